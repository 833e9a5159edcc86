//! `measure mount:` on real mounts: sshfs (FUSE) on this host, NFS between the ends of an emulated path.

#![allow(clippy::unwrap_used, reason = "a test may panic; that is how it fails")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{error, fullpipe, json_lines};
use serde_json::Value;

/// Where Debian and Fedora have the other end of sshfs.
const SFTP_SERVERS: [&str; 2] = ["/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server"];

/// A folder that is mounted at another by sshfs, without a network between them.
struct Sshfs {
    dir: tempfile::TempDir,
}

impl Sshfs {
    /// `None` if FUSE or sshfs is not here.
    fn mount(options: &[&str]) -> Option<Sshfs> {
        let dir = tempfile::tempdir().unwrap();
        let server = SFTP_SERVERS.into_iter().find(|file| Path::new(file).exists());
        let is_root = nix::unistd::geteuid().is_root();
        let (Some(server), true, true) = (server, is_root, Path::new("/dev/fuse").exists()) else {
            eprintln!("not tested: needs root, /dev/fuse and sftp-server");
            return None;
        };
        let ssh = dir.path().join("ssh");
        fs::write(&ssh, format!("#!/bin/sh\nexec {server}\n")).unwrap();
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
        let mount = Sshfs { dir };
        for folder in [mount.far(), mount.at()] {
            fs::create_dir(folder).unwrap();
        }
        let done = Command::new("sshfs")
            .arg(format!("far:{}", mount.far().display()))
            .arg(mount.at())
            .args(["-o", &format!("ssh_command={}", ssh.display())])
            .args(options)
            .status();
        match done {
            Ok(status) => assert!(status.success(), "sshfs cannot mount"),
            Err(error) => {
                eprintln!("not tested: sshfs: {error}");
                return None;
            }
        }
        Some(mount)
    }

    fn far(&self) -> PathBuf {
        self.dir.path().join("far")
    }

    fn at(&self) -> PathBuf {
        self.dir.path().join("at")
    }

    fn measure(&self, flags: &str) -> std::process::Output {
        fullpipe(&format!("measure mount:{} --size 20MB {flags}", self.at().display()))
    }

    /// Fails if anything stays in the folder. A program of FUSE removes a file a moment after it was closed.
    fn assert_empty(&self) {
        let count = || fs::read_dir(self.far()).unwrap().count();
        let is_empty = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            count() == 0
        });
        assert!(is_empty, "{:?}", fs::read_dir(self.far()).unwrap().collect::<Vec<_>>());
    }
}

impl Drop for Sshfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.at()).stderr(Stdio::null()).status();
    }
}

/// The first and the last lines of records.
fn ends(lines: &[Value]) -> (Vec<&Value>, Vec<&Value>) {
    lines.iter().filter(|line| line["kind"] != "sample").partition(|line| line["kind"] == "storage")
}

#[test]
fn a_fuse_mount_is_measured_and_named() {
    let Some(mount) = Sshfs::mount(&[]) else { return };
    let lines = json_lines(&mount.measure("--direct on,off --threads 2 --block 1MiB --json"));
    let (headers, results) = ends(&lines);
    assert_eq!((headers.len(), results.len()), (4, 4));
    for (header, result) in headers.iter().zip(&results) {
        let (at, named) = (mount.at(), &header["mount"]);
        assert_eq!(header["storage"]["folder"], at.to_str().unwrap());
        assert_eq!(named["folder"], at.to_str().unwrap());
        assert_eq!((&named["type"], &header["file_system"]["type"]), (&"fuse.sshfs".into(), &"fuse.sshfs".into()));
        assert_eq!(named["source"], format!("far:{}", mount.far().display()));
        let options = named["options"].as_array().unwrap();
        assert!(options.contains(&"rw".into()) && options.contains(&"user_id=0".into()), "{named}");
        assert_eq!(options.iter().filter(|option| *option == "rw").count(), 1);
        assert_eq!(named["read_ahead_bytes"], 128 << 10);
        assert!(named["session_slots"].is_null());
        assert!(header["id"].as_str().unwrap().starts_with("mount-"), "{header}");
        assert_eq!(result["bytes"], 20_000_000);
        // The kernel does not count what FUSE reads, and that does not make the page cache its source.
        assert!(result["storage_bytes"].is_null());
        assert_ne!(result["bottleneck"], "page_cache");
        let is_read = header["storage"]["operation"] == "read";
        assert_eq!(result["cached_bytes"], if is_read { Value::from(0) } else { Value::Null });
    }
    let text = String::from_utf8(mount.measure("--write").stdout).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("mount ")).collect();
    let expected = format!("mount       far:{} at {}, fuse.sshfs: rw,", mount.far().display(), mount.at().display());
    assert!(lines.len() == 1 && lines[0].starts_with(&expected), "{text}");
    assert!(lines[0].ends_with("; read-ahead 128KiB"), "{text}");
    // The same folder as a disk: no mount in the record.
    let disk = json_lines(&fullpipe(&format!("measure disk:{} --size 20MB --write --json", mount.at().display())));
    assert!(disk[0].get("mount").is_none() && disk[0]["id"].as_str().unwrap().starts_with("write-"), "{}", disk[0]);
    mount.assert_empty();
}

#[test]
fn a_page_cache_that_cannot_be_seen_is_said() {
    let Some(mount) = Sshfs::mount(&["-o", "direct_io"]) else { return };
    let done = mount.measure("--direct off --json");
    let (code, text) = error(&done);
    assert!(code == 0 && text.contains("does not show whether the page cache had part of the file"), "{text}");
    let lines = json_lines(&done);
    let read = lines.last().unwrap();
    assert!(read["cached_bytes"].is_null() && read["bottleneck"] != "page_cache", "{read}");
    let (_, text) = error(&mount.measure("--direct on --json"));
    assert!(!text.contains("page cache"), "{text}");
}

#[test]
fn a_killed_measurement_of_a_mount_leaves_nothing() {
    let Some(mount) = Sshfs::mount(&[]) else { return };
    let mut child = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
        .args([
            "measure",
            &format!("mount:{}", mount.at().display()),
            "--write",
            "--size",
            "200MB",
            "--threads",
            "1-16",
            "--block",
            "1MiB-8MiB",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Until its file has data, and so no name of its own any more.
    let size = |file: std::io::Result<fs::DirEntry>| file.and_then(|file| file.metadata()).map_or(0, |meta| meta.len());
    let has_file = || fs::read_dir(mount.far()).unwrap().any(|file| size(file) > 0);
    let begun = (0..5000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        has_file()
    });
    assert!(begun, "it has not begun");
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    mount.assert_empty();
}

#[test]
fn what_is_no_mount_or_cannot_be_written_is_refused() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = dir.path().display();
    for (words, code, part) in [
        ("measure mount:".to_owned(), 2, "mount: names no folder; give one, as in mount:/mnt/far"),
        ("measure mount:/no/such".into(), 2, "mount:/no/such: No such file"),
        ("measure mount:/dev/shm".into(), 2, "(tmpfs) is not mounted over a network or by FUSE"),
        (format!("measure mount:{at}"), 2, &*format!("measure it as a disk: disk:{at}")),
        (format!("measure mount:{at} --streams 2"), 2, "--streams is for a path between hosts"),
        (format!("measure mount:{at} --read --write"), 2, "cannot be used with '--write'"),
    ] {
        let (got, text) = error(&fullpipe(&words));
        assert!(got == code && text.contains(part) && text.lines().count() <= 5, "{words}: {got}: {text}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let Some(mount) = Sshfs::mount(&["-o", "ro"]) else { return };
    let (code, text) = error(&mount.measure(""));
    assert!(
        code == 3 && text.contains("read-only file system; choose a folder that you may write to"),
        "{code} {text}"
    );
    fs::write(mount.far().join("file"), "x").unwrap();
    let (code, text) = error(&fullpipe(&format!("measure mount:{}/file", mount.at().display())));
    assert!(code == 2 && text.contains("is no folder"), "{code} {text}");
    // A mount of FUSE is its user's own.
    fs::set_permissions(mount.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let done = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_fullpipe"), "measure"])
        .arg(format!("mount:{}", mount.at().display()))
        .output()
        .unwrap();
    let (code, text) = error(&done);
    assert!(code == 3 && text.contains("only for the user who made it"), "{code} {text}");
}

/// The server's end: the kernel's own, which needs no program of its own if it is told what it would ask `rpc.mountd(8)`: the
/// domain of an address, the export of a path there, the path of a file handle.
const NFS_SERVER: &str = r#"
mkdir /tmp/export
mount -t tmpfs -o size=200m tmpfs /tmp/export
mount -t nfsd nfsd /proc/fs/nfsd
mount -t tmpfs tmpfs /var/lib && mkdir -p /var/lib/nfs/v4recovery
cd /proc/fs/nfsd
echo 10 >nfsv4gracetime; echo 10 >nfsv4leasetime
echo '-2 -3 +4 +4.1 +4.2' >versions
never=2147483647
# An insecure port is fine, async, no_subtree_check, fsid=0.
flags=$((0x2 + 0x10 + 0x400 + 0x2000))
echo "nfsd 10.0.1.1 $never far" >/proc/net/rpc/auth.unix.ip/channel
echo "far /tmp/export $never $flags 65534 65534 0" >/proc/net/rpc/nfsd.export/channel
echo "far 1 \x00000000 $never /tmp/export" >/proc/net/rpc/nfsd.fh/channel
echo 'tcp 2049' >portlist
echo 8 >threads
sleep 1000
"#;

/// The client's end.
const NFS_CLIENT: &str = "
mkdir /tmp/mnt; sleep 1
options=vers=4.2,proto=tcp,nconnect=2,rsize=65536,wsize=131072,addr=10.0.2.1,clientaddr=10.0.1.1
mount -i -t nfs4 -o $options 10.0.2.1:/ /tmp/mnt || exit 1
mkdir /tmp/mnt/in || exit 1
fullpipe measure mount:/tmp/mnt/in --size 20MB --threads 2 --block 1MiB --direct on,off --json || exit 1
ls -A /tmp/mnt/in
";

#[test]
fn an_nfs_mount_over_a_path_is_measured_at_the_rate_of_the_path() {
    // Programs of the guest see this host's /tmp below /host.
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    for (name, text) in [("server", NFS_SERVER), ("client", NFS_CLIENT)] {
        fs::write(dir.path().join(name), format!("export PATH=$PATH:/usr/sbin:/sbin\n{text}")).unwrap();
    }
    let scenario = dir.path().join("nfs.toml");
    let run = |name: &str| format!("run = [\"/bin/sh\", \"/host{}/{name}\"]", dir.path().display());
    let text = format!(
        "path = {{ rtt = \"10ms\", rate = \"1gbit\" }}\nmemory = \"1GB\"\n[[program]]\nend = \"b\"\n{}\n\
         [[program]]\nend = \"a\"\nstart = \"100ms\"\n{}\n",
        run("server"),
        run("client")
    );
    fs::write(&scenario, text).unwrap();
    let done = fullpipe(&format!("lab run --quiet {}", scenario.display()));
    let (code, said) = error(&done);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(code, 0, "{said} {text}");
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let (headers, results) = ends(&lines);
    assert_eq!((headers.len(), results.len()), (4, 4), "{text}");
    for (header, result) in headers.iter().zip(&results) {
        let mount = &header["mount"];
        assert_eq!((&mount["type"], &mount["source"]), (&"nfs4".into(), &"10.0.2.1:/".into()), "{text}");
        assert_eq!((&header["storage"]["folder"], &mount["folder"]), (&"/tmp/mnt/in".into(), &"/tmp/mnt".into()));
        let options = mount["options"].as_array().unwrap();
        for option in ["vers=4.2", "nconnect=2", "rsize=65536", "wsize=131072", "addr=10.0.2.1"] {
            assert!(options.contains(&option.into()), "no {option} in {mount}");
        }
        assert_eq!((&mount["read_ahead_bytes"], &mount["session_slots"]), (&(128 << 10).into(), &64.into()));
        // In virtual time, what comes from the client's page cache takes no time at all.
        let rate = result["rate_bps"].as_f64().unwrap();
        assert!((50e6..1e9).contains(&rate), "{} at {rate}", header["storage"]);
        let is_read = header["storage"]["operation"] == "read";
        assert_eq!(result["cached_bytes"], if is_read { Value::from(0) } else { Value::Null });
    }
    assert!(!text.contains(".nfs"), "{text}");
}
