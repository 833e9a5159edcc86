//! Reads what the mount of a folder is like, from /proc and /sys.

use std::fs;
use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fullpipe_path::record::storage::{self, MountInfo};
use fullpipe_path::{ExitClass, Time};

use crate::failure::{Failure, Result};

/// Port of an NFS server (RFC 7530, section 3.1).
const NFS_PORT: u16 = 2049;
/// Types of the file systems that the kernel itself mounts from another machine. Those with a program of their own (FUSE) have
/// types of their own, `fuse.sshfs`.
const NETWORK_TYPES: [&str; 17] = [
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "orangefs", "panfs",
    "pvfs2", "smb3", "virtiofs", "wekafs",
];

/// A mounted file system.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mount {
    /// Where it is mounted.
    pub folder: PathBuf,
    /// Its type, such as `nfs4`.
    pub kind: String,
    /// What is mounted, such as `server:/export`.
    pub source: String,
    /// Its options, of the mount and of the file system, each once.
    pub options: Vec<String>,
    /// Read-ahead, bytes; `None` if it could not be read.
    pub read_ahead: Option<u64>,
    /// File with the read-ahead in KiB.
    pub read_ahead_file: String,
    /// Most requests under way that this host asks an NFS 4.1 server for (`max_session_slots` of the module nfs).
    pub session_slots: Option<u64>,
}

impl Mount {
    /// Reads the mount that a folder lies on. `root` is `/` for this host, another folder in tests.
    ///
    /// # Errors
    /// The folder is not there, or not for this user, or the list of mounts cannot be read.
    pub fn read(root: &Path, folder: &str) -> Result<Mount> {
        let failed = |e: std::io::Error| match e.kind() {
            ErrorKind::PermissionDenied => {
                let why = format!(
                    "mount:{folder}: {e}; a mount of FUSE is only for the user who made it, if it was not made with allow_other"
                );
                Failure::new(ExitClass::Missing, why)
            }
            _ => Failure::usage(format!("mount:{folder}: {e}; give a folder of the mounted file system")),
        };
        let folder = fs::canonicalize(folder).map_err(failed)?;
        // What is mounted only when it is used (`autofs(5)`) is mounted now. If it cannot be, the file system below is found.
        drop(fs::read_dir(&folder));
        fs::metadata(&folder).map_err(failed)?;
        // Any user may have mounted something under a name that is not UTF-8.
        let list = fs::read(root.join("proc/self/mountinfo")).map_err(|e| {
            Failure::new(ExitClass::Missing, format!("cannot read /proc/self/mountinfo: {e}; mount:FOLDER needs /proc"))
        })?;
        let mut mount = find(&String::from_utf8_lossy(&list), &folder).ok_or_else(|| {
            Failure::new(ExitClass::Missing, format!("no mount in /proc/self/mountinfo has {}", folder.display()))
        })?;
        let number = |file: &str| fs::read_to_string(root.join(file)).ok()?.trim().parse().ok();
        mount.read_ahead = number(mount.read_ahead_file.trim_start_matches('/')).map(|kib: u64| kib << 10);
        mount.session_slots = number("sys/module/nfs/parameters/max_session_slots");
        Ok(mount)
    }

    /// Whether this is a mount of NFS.
    pub fn is_nfs(&self) -> bool {
        storage::is_nfs(&self.kind)
    }

    /// Whether the mount has sessions, as NFS has from version 4.1 on.
    pub fn has_sessions(&self) -> bool {
        let version = self.option("vers").unwrap_or_default();
        self.is_nfs() && version.starts_with('4') && !["4", "4.0"].contains(&version)
    }

    /// Whether the files are on another machine, or come from a program (FUSE), as far as the type tells.
    pub fn is_remote(&self) -> bool {
        let is_fuse = ["fuse", "fuseblk"].contains(&&*self.kind) || self.kind.starts_with("fuse.");
        is_fuse || NETWORK_TYPES.contains(&&*self.kind)
    }

    /// What a record says of the mount.
    pub fn info(&self) -> MountInfo {
        MountInfo {
            folder: self.folder.to_string_lossy().into_owned(),
            kind: self.kind.clone(),
            source: self.source.clone(),
            options: self.options.clone(),
            read_ahead_bytes: self.read_ahead,
            session_slots: self.session_slots.filter(|_| self.has_sessions()),
        }
    }

    /// The value of an option `NAME=VALUE`.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }

    /// The value of an option that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.option(name)?.parse().ok()
    }

    /// Whether an option without a value is there.
    pub fn has(&self, name: &str) -> bool {
        self.options.iter().any(|option| option == name)
    }

    /// Measures the round-trip time to the server: the shortest of three connections.
    ///
    /// # Errors
    /// The server cannot be reached; the text is the reason.
    pub fn round_trip(&self) -> std::result::Result<Time, String> {
        let port = self.number("port").and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        let name =
            self.option("addr").or_else(|| self.source.split_once(":/").map(|(host, _)| host)).unwrap_or_default();
        let mut addresses = (name, port.unwrap_or(NFS_PORT)).to_socket_addrs().map_err(|e| format!("{name}: {e}"))?;
        let address = addresses.next().ok_or_else(|| format!("{name} has no address"))?;
        let connect = || {
            let begun = Instant::now();
            TcpStream::connect_timeout(&address, Duration::from_secs(5)).map(|_| begun.elapsed())
        };
        let trips: std::io::Result<Vec<Duration>> = (0..3).map(|_| connect()).collect();
        let least = trips.map_err(|e| format!("connecting to {address}: {e}"))?.into_iter().min().unwrap_or_default();
        Ok(Time((least.as_nanos() as u64).max(1)))
    }
}

/// Finds the mount of a folder in /proc/self/mountinfo (`proc_pid_mountinfo(5)`): of several that it lies below, the innermost,
/// and of several at one place, the last.
fn find(list: &str, folder: &Path) -> Option<Mount> {
    let mut best: Option<Mount> = None;
    for line in list.lines() {
        let (mount, file_system) = line.split_once(" - ")?;
        let mount: Vec<&str> = mount.split(' ').collect();
        let file_system: Vec<&str> = file_system.split(' ').collect();
        let ([_, _, device, _, at, of_mount, ..], [kind, source, of_system, ..]) = (&mount[..], &file_system[..])
        else {
            continue;
        };
        let at = PathBuf::from(unescaped(at));
        let depth = |path: &Path| path.components().count();
        if folder.starts_with(&at) && best.as_ref().is_none_or(|best| depth(&best.folder) <= depth(&at)) {
            let mut options: Vec<String> = Vec::new();
            for option in of_mount.split(',').chain(of_system.split(',')).filter(|option| !option.is_empty()) {
                if !options.iter().any(|there| there == option) {
                    options.push(option.to_owned());
                }
            }
            best = Some(Mount {
                folder: at,
                kind: (*kind).to_owned(),
                source: unescaped(source),
                options,
                read_ahead_file: format!("/sys/class/bdi/{device}/read_ahead_kb"),
                ..Mount::default()
            });
        }
    }
    best
}

/// A name in which spaces and the like are written as `\040`.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let code = behind.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
22 1 0:20 / / rw,relatime - ext4 /dev/vda rw
108 22 0:30 / /mnt/far\\040away rw,nosuid - nfs4 10.0.2.1:/data rw,vers=4.2,rsize=1048576,nconnect=4,addr=10.0.2.1
109 108 0:31 / /mnt/far\\040away/sub rw - tmpfs tmpfs rw
";

    #[test]
    fn a_folder_lies_on_the_innermost_mount() {
        let far = find(LIST, Path::new("/mnt/far away/deep/er")).unwrap();
        assert_eq!((far.kind.as_str(), far.source.as_str()), ("nfs4", "10.0.2.1:/data"));
        assert_eq!((far.number("rsize"), far.option("vers"), far.has("nosuid")), (Some(1 << 20), Some("4.2"), true));
        assert_eq!(far.read_ahead_file, "/sys/class/bdi/0:30/read_ahead_kb");
        assert_eq!(find(LIST, Path::new("/mnt/far away/sub/x")).unwrap().kind, "tmpfs");
        assert_eq!(find(LIST, Path::new("/mnt/farther")).unwrap().kind, "ext4");
        assert!(find("", Path::new("/")).is_none());
    }

    #[test]
    fn a_mount_under_any_name_hides_no_other() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        let list = [&b"23 22 0:9 / /mnt/\xff rw - tmpfs tmpfs rw\n"[..], LIST.as_bytes()].concat();
        fs::write(root.path().join("proc/self/mountinfo"), list).unwrap();
        assert_eq!(Mount::read(root.path(), "/").map(|mount| mount.kind).map_err(|e| e.to_string()), Ok("ext4".into()));
    }

    #[test]
    fn a_type_tells_what_is_far() {
        let of = |kind: &str| Mount { kind: kind.into(), session_slots: Some(64), ..Mount::default() };
        for kind in ["nfs", "nfs4", "lustre", "cifs", "fuse", "fuse.sshfs", "fuseblk"] {
            assert!(of(kind).is_remote(), "{kind}");
        }
        for kind in ["ext4", "xfs", "tmpfs", "overlay", "fusectl", "nfsd", "autofs"] {
            assert!(!of(kind).is_remote(), "{kind}");
        }
        let slots =
            |kind: &str, vers: &str| Mount { options: vec![format!("vers={vers}")], ..of(kind) }.info().session_slots;
        assert_eq!((slots("nfs4", "4.2"), slots("nfs4", "4.1")), (Some(64), Some(64)));
        for (kind, vers) in [("nfs4", "4.0"), ("nfs4", "4"), ("nfs", "3"), ("fuse.sshfs", "4.2")] {
            assert_eq!(slots(kind, vers), None, "{kind} {vers}");
        }
        let far = find(LIST, Path::new("/mnt/far away")).unwrap();
        let options = ["rw", "nosuid", "vers=4.2", "rsize=1048576", "nconnect=4", "addr=10.0.2.1"];
        assert_eq!(
            (far.info().folder.as_str(), far.info().options),
            ("/mnt/far away", options.map(String::from).into())
        );
    }
}
