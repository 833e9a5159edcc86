//! Permissions, owners, times and extended attributes of files and folders.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FileStat, Mode, SFlag};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid};
use xattr::FileExt;

use crate::fs::at::open_part;
use crate::protocol::file::{FileItem, Meta};

/// What a look tells.
pub fn meta(stat: &FileStat) -> Meta {
    Meta {
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
        xattrs: Vec::new(),
    }
}

/// Whether an open file has this size, and this time of its last change as far as its file system can tell times.
///
/// # Errors
/// The file system's.
pub fn unchanged(file: &File, size: u64, mtime: (i64, u32)) -> io::Result<bool> {
    let now = file.metadata()?;
    Ok(now.len() == size && is_time(self::mtime(&now), mtime))
}

/// Whether a time is what some file system makes of another: NTFS and SMB keep tenths of microseconds, some NFS servers
/// microseconds, exFAT hundredths of seconds, ext4 with small inodes seconds, FAT even ones.
fn is_time(kept: (i64, u32), mtime: (i64, u32)) -> bool {
    let (seconds, ns) = mtime;
    let cut = |grain: u32| (seconds, ns - ns % grain);
    [1, 100, 1_000, 10_000_000, 1_000_000_000].into_iter().any(|grain| kept == cut(grain)) || kept == (seconds & !1, 0)
}

/// Whether a source is still what it was when it was found: the same, and by the time of its inode's last change too,
/// which nobody can set back.
///
/// # Errors
/// The file system's.
pub fn at_rest(file: &File, item: &FileItem) -> io::Result<bool> {
    let now = file.metadata()?;
    let changed = (now.ctime(), now.ctime_nsec() as u32);
    Ok((now.len(), mtime(&now), changed) == (item.size, item.meta.mtime, item.changed))
}

/// When a file's content was last changed: seconds and nanoseconds since 1970.
pub fn mtime(of: &std::fs::Metadata) -> (i64, u32) {
    (of.mtime(), of.mtime_nsec() as u32)
}

/// Most bytes of a file's extended attributes.
const XATTRS: usize = 1 << 20;

/// Whether an extended attribute is the file's; the others describe its system, or give rights.
fn is_its_own(name: &[u8]) -> bool {
    name.starts_with(b"user.")
}

/// Extended attributes of a file; none where the file system has none.
///
/// # Errors
/// They are too large to be sent.
pub fn xattrs(file: &File) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let Ok(names) = file.list_xattr() else { return Ok(Vec::new()) };
    let mut sum = 0;
    let mut list = Vec::new();
    for name in names.filter(|name| is_its_own(name.as_bytes())) {
        let Ok(Some(value)) = file.get_xattr(&name) else { continue };
        sum += name.len() + value.len();
        if sum > XATTRS {
            return Err(io::Error::other("its extended attributes take more than 1 MiB"));
        }
        list.push((name.as_bytes().to_vec(), value));
    }
    Ok(list)
}

/// Gives an open file or folder its extended attributes.
///
/// # Errors
/// The file system's.
pub fn set_xattrs(file: &File, meta: &Meta) -> io::Result<()> {
    let mut own = meta.xattrs.iter().filter(|(name, _)| is_its_own(name));
    own.try_for_each(|(name, value)| file.set_xattr(std::ffi::OsStr::from_bytes(name), value))
}

/// Who this process is, which does not change.
struct Me {
    uid: u32,
    gid: u32,
}

fn me() -> &'static Me {
    static ME: OnceLock<Me> = OnceLock::new();
    ME.get_or_init(|| Me { uid: nix::unistd::geteuid().as_raw(), gid: nix::unistd::getegid().as_raw() })
}

/// What a new file has from its making: nobody but its owner may read it before it is whole, unless
/// everybody may then. Extended attributes are only its to take as long as it may be written to.
pub fn first_mode(meta: &Meta) -> u32 {
    let mode = if meta.uid == me().uid { meta.mode & 0o777 } else { meta.mode & 0o700 };
    if meta.xattrs.is_empty() { mode } else { mode | 0o600 }
}

/// Where the setuid, setgid and sticky bits of a copied file or folder come from (`chmod(2)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// From the source: what `--preserve` asks for.
    Source,
    /// It has none: a file without `--preserve`, as with scp and rsync.
    None,
    /// It keeps those that it has: a folder without `--preserve`, as with rsync. A folder inherits the setgid bit of the
    /// folder that it is made in, so that a group's files stay the group's.
    Own,
}

impl Special {
    /// For a file.
    pub fn of_file(preserve: bool) -> Special {
        if preserve { Special::Source } else { Special::None }
    }

    /// The mode that something gets that has the mode `now`: permissions from its source, special bits as this says.
    pub fn mode(self, meta: &Meta, now: u32) -> u32 {
        let special = match self {
            Special::Source => meta.mode,
            Special::None => 0,
            Special::Own => now,
        };
        meta.mode & 0o777 | special & 0o7000
    }
}

/// Gives an open file what it had at its source: owner where this user may, permissions, extended
/// attributes, times. `fresh`: made by this process, in a folder that gives its files no group; `now`: the permissions
/// that it has, where they are known.
///
/// # Errors
/// The file system's; an owner that may not be set is none.
pub fn dress(file: &File, meta: &Meta, special: Special, fresh: bool, now: Option<u32>) -> io::Result<()> {
    let mine = fresh && (meta.uid, meta.gid) == (me().uid, me().gid);
    let mine = mine || owner(file, meta);
    set_xattrs(file, meta)?;
    // An access list among the attributes brings its own.
    let now = match now.filter(|_| meta.xattrs.is_empty()) {
        Some(now) => now,
        None => permissions(file)?,
    };
    let mut mode = special.mode(meta, now);
    if special == Special::Source && !mine {
        // Another owner's rights are not ours to give.
        mode &= 0o1777;
    }
    if now != mode {
        nix::sys::stat::fchmod(file, Mode::from_bits_truncate(mode))?;
    }
    let (last, changed) = (TimeSpec::UTIME_OMIT, TimeSpec::new(meta.mtime.0, i64::from(meta.mtime.1)));
    nix::sys::stat::futimens(file, &last, &changed)?;
    Ok(())
}

/// The permissions of a file.
///
/// # Errors
/// The file system's.
pub fn permissions(file: &File) -> io::Result<u32> {
    Ok(nix::sys::stat::fstat(file)?.st_mode & 0o7777)
}

/// Whether the file now belongs to its owner.
fn owner(file: &File, meta: &Meta) -> bool {
    if me().uid != 0 {
        return me().uid == meta.uid;
    }
    nix::unistd::fchown(file, Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid))).is_ok()
}

/// Gives a symbolic link that this process has just made its owner and time; nothing else of one can be set. It is held open
/// meanwhile: another file that takes its name gets neither.
///
/// # Errors
/// The file system's; `PermissionDenied` where the name is no link any more.
pub fn dress_link(folder: impl AsFd, name: &Path, meta: &Meta) -> io::Result<()> {
    let link = open_part(folder, name, OFlag::O_PATH)?;
    let stat = nix::sys::stat::fstat(&link)?;
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFLNK {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "something else took its name meanwhile"));
    }
    if me().uid == 0 {
        let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
        // In a user namespace root may still not give files away.
        let _ = nix::unistd::fchownat(&link, "", Some(uid), Some(gid), AtFlags::AT_EMPTY_PATH);
    }
    let times = [TimeSpec::UTIME_OMIT, TimeSpec::new(meta.mtime.0, i64::from(meta.mtime.1))].map(|time| *time.as_ref());
    // SAFETY: the descriptor is open, the path a string that ends in zero, the times an array of two (utimensat(2)).
    let set = unsafe { libc::utimensat(link.as_raw_fd(), c"".as_ptr(), times.as_ptr(), libc::AT_EMPTY_PATH) };
    match Errno::result(set) {
        // Kernels before 5.8 set the times of a name only; a link's time is worth nothing to anybody else.
        Ok(_) | Err(Errno::EINVAL) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Gives a folder its owner, permissions and times; the special bits of its source only with `preserve`. With `sync` they are
/// written to disk, and so are the names in it.
///
/// # Errors
/// The file system's.
pub fn dress_folder(folder: OwnedFd, meta: &Meta, preserve: bool, sync: bool) -> io::Result<()> {
    let folder = File::from(folder);
    dress(&folder, meta, if preserve { Special::Source } else { Special::Own }, false, None)?;
    if sync { sync_folder(&folder) } else { Ok(()) }
}

/// Writes the names in an open folder to disk, with its permissions and times. Some file systems cannot (`fsync(2)`,
/// EINVAL); they write them when they like.
///
/// # Errors
/// The file system's.
pub fn sync_folder(folder: impl AsFd) -> io::Result<()> {
    match nix::unistd::fsync(folder) {
        Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => Ok(()),
        other => Ok(other?),
    }
}

/// Lets the owner of a folder read, write and enter it, if that is this user and not root, who may in any case.
///
/// # Errors
/// The file system's.
pub fn open_up(folder: &OwnedFd) -> io::Result<()> {
    let stat = nix::sys::stat::fstat(folder)?;
    let is_open = stat.st_mode & libc::S_IRWXU == libc::S_IRWXU;
    if me().uid == 0 || stat.st_uid != me().uid || is_open {
        return Ok(());
    }
    Ok(nix::sys::stat::fchmod(folder, Mode::from_bits_truncate(stat.st_mode & 0o7777) | Mode::S_IRWXU)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_what_file_systems_keep_of_them() {
        let at = (1_700_000_001, 123_456_789);
        for kept in [at, (at.0, 123_456_700), (at.0, 123_456_000), (at.0, 120_000_000), (at.0, 0), (at.0 - 1, 0)] {
            assert!(is_time(kept, at), "{kept:?}");
        }
        for other in [(at.0, 123_456_788), (at.0, 100_000_000), (at.0 + 1, 0), (at.0 - 2, 0), (at.0 - 1, at.1)] {
            assert!(!is_time(other, at), "{other:?}");
        }
        assert!(!is_time((at.0 - 1, 0), (at.0 - 2, 1)));
    }
}
