//! Opens a path below a folder, and follows its symbolic links one by one if their owners are trusted.
//!
//! The kernel follows links of any owner. So another user who may write to a folder could redirect names in it to a
//! different folder of the user who copies, and the copy would change the permissions and owner there. This module
//! therefore opens each component by itself, without following links, and checks it on its own descriptor, so nobody can
//! replace the component between the check and the use.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};

/// Maximum number of links followed on one path, as in the kernel (`path_resolution(7)`).
const MAX_LINKS: u32 = 40;

/// Opens a path below a folder, as `openat(2)` with the flags `how` and the mode `mode`.
///
/// # Errors
/// Those of the file system; `EXDEV` if the path leads out of the folder; `PermissionDenied` if a link on the path belongs
/// to a user who is not trusted.
pub(crate) fn open(folder: impl AsFd, path: &Path, how: OFlag, mode: Mode) -> io::Result<OwnedFd> {
    let mut folders = vec![folder.as_fd().try_clone_to_owned()?];
    let mut parts: VecDeque<OsString> = components(path.as_os_str().as_bytes()).collect();
    let mut links = 0;
    while let (Some(part), Some(folder)) = (parts.pop_front(), folders.last()) {
        if part == ".." {
            folders.pop();
            if folders.is_empty() {
                return Err(Errno::EXDEV.into());
            }
            continue;
        }
        let found = match nix::fcntl::openat(folder, &*part, seen(OFlag::empty()), Mode::empty()) {
            // The last component may be missing, because the open below may create it.
            Err(Errno::ENOENT) if parts.is_empty() => None,
            other => Some(other?),
        };
        let stat = found.as_ref().map(fstat).transpose()?;
        let is =
            |kind| stat.as_ref().is_some_and(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == kind);
        if parts.is_empty() && (!is(SFlag::S_IFLNK) || how.contains(OFlag::O_NOFOLLOW)) {
            // O_NOFOLLOW, because a link may have replaced the component since the check.
            return Ok(nix::fcntl::openat(folder, &*part, how | OFlag::O_NOFOLLOW, mode)?);
        }
        let (Some(found), Some(stat)) = (found, stat) else { return Err(Errno::ENOENT.into()) };
        if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFLNK {
            folders.push(nix::fcntl::openat(&found, ".", seen(OFlag::O_DIRECTORY), Mode::empty())?);
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Errno::ELOOP.into());
        }
        may_follow(&stat, &fstat(folder)?, &part)?;
        let target = nix::fcntl::readlinkat(&found, "")?;
        if target.as_bytes().starts_with(b"/") {
            return Err(Errno::EXDEV.into());
        }
        for part in components(target.as_bytes()).collect::<Vec<_>>().into_iter().rev() {
            parts.push_front(part);
        }
    }
    // The path ends in a folder that is already open (`.`, `..`, or a link to one).
    let folder = folders.pop().ok_or(Errno::EXDEV)?;
    Ok(nix::fcntl::openat(&folder, ".", how, mode)?)
}

/// The flags that open a component without following it and without access to its content, plus `extra`.
fn seen(extra: OFlag) -> OFlag {
    extra | OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

/// Splits a path into its components, without empty ones and `.`.
fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = OsString> {
    let parts = path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts.map(|part| OsString::from_vec(part.to_vec()))
}

/// Checks the owner of the link `name`. The link is trusted if it belongs to this user, to root, or to the owner of the
/// folder that contains it.
///
/// # Errors
/// `PermissionDenied` if the link belongs to any other user.
fn may_follow(link: &FileStat, folder: &FileStat, name: &OsStr) -> io::Result<()> {
    let me = nix::unistd::geteuid().as_raw();
    if [me, 0, folder.st_uid].contains(&link.st_uid) {
        return Ok(());
    }
    let name = crate::protocol::name::printable(name.as_bytes());
    let why = format!("the symbolic link {name} on its way belongs to another user (uid {})", link.st_uid);
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn opened(folder: &OwnedFd, path: &str, how: OFlag) -> io::Result<OwnedFd> {
        open(folder, Path::new(path), how | OFlag::O_CLOEXEC, Mode::from_bits_truncate(0o600))
    }

    #[test]
    fn own_links_are_followed_and_never_lead_out() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("top/a/b")).unwrap();
        std::fs::write(at("top/a/b/file"), "x").unwrap();
        std::fs::write(at("secret"), "x").unwrap();
        for (target, link) in [
            ("a", "top/to-a"),
            ("../a/./b", "top/a/to-b"),
            ("to-a/to-b", "top/twice"),
            ("..", "top/up"),
            ("loop", "top/loop"),
            ("b/file", "top/a/f"),
            ("/", "top/root"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        let folder = OwnedFd::from(std::fs::File::open(at("top")).unwrap());
        for good in ["to-a/b/file", "to-a/to-b/file", "twice/file", "twice/../b/file", "to-a/f", "to-a/../to-a/f"] {
            assert!(opened(&folder, good, OFlag::O_RDONLY).is_ok(), "{good}");
        }
        assert!(opened(&folder, "twice", OFlag::O_RDONLY | OFlag::O_DIRECTORY).is_ok());
        assert!(opened(&folder, "to-a/..", OFlag::O_RDONLY | OFlag::O_DIRECTORY).is_ok());
        for bad in
            ["up/secret", "root/etc/passwd", "loop", "loop/x", "to-a/../../secret", "to-a/none/x", "to-a/b/file/x"]
        {
            assert!(opened(&folder, bad, OFlag::O_RDONLY).is_err(), "{bad}");
        }
        // O_NOFOLLOW on a path that ends in a link fails.
        assert!(opened(&folder, "to-a/f", OFlag::O_RDONLY | OFlag::O_NOFOLLOW).is_err());
        drop(opened(&folder, "twice/new", OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL).unwrap());
        assert!(at("top/a/b/new").exists());
    }

    #[test]
    fn links_of_others_are_not_followed() {
        let stat = |uid: u32| {
            let mut stat = fstat(std::fs::File::open("/").unwrap()).unwrap();
            stat.st_uid = uid;
            stat
        };
        let me = nix::unistd::geteuid().as_raw();
        let (other, third) = (me + 1000, me + 1001);
        for (link, folder, good) in [
            (me, third, true),
            (0, third, true),
            (other, other, true),
            (other, third, false),
            (other, 0, false),
            (other, me, false),
        ] {
            assert_eq!(may_follow(&stat(link), &stat(folder), OsStr::new("l")).is_ok(), good, "{link} in {folder}");
        }
    }
}
