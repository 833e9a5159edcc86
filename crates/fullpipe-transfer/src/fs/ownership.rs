//! Whether a file that an earlier attempt has left may be believed, and new ones that nobody else can have made.
//!
//! Whoever may write to a destination may put a file of any name there: a journal that says what was never done, or a partial
//! file with bytes of their own. Such a file counts only if it is this user's, regular, has one name, and nobody else may
//! write to it. All of that is read from the open descriptor, so that nothing can be exchanged between the look and the use.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use rand::RngExt;

use crate::fs::{at, publish};
use crate::protocol::name::scratch;

/// Tries to make a file under names that nobody can guess.
const MAX_TRIES: u32 = 8;

/// A file that was left under a name of the transfer's own.
pub(crate) enum Trust {
    /// There is none.
    Missing,
    /// This user's, which nobody else may have changed.
    Trusted(File),
    /// Anything else; why it does not count.
    Distrusted(String),
}

/// Opens what stands under a name of the transfer's own, if that can be believed.
///
/// # Errors
/// The file system's, other than what another user can bring about with the name.
pub(crate) fn open(folder: impl AsFd, name: &Path, how: OFlag) -> io::Result<Trust> {
    // A FIFO must not make this wait.
    match at::open_part(&folder, name, how | OFlag::O_NONBLOCK) {
        Ok(fd) => {
            let file = File::from(fd);
            Ok(match distrust(&folder, &fstat(&file)?)? {
                None => Trust::Trusted(file),
                Some(why) => Trust::Distrusted(why),
            })
        }
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(Trust::Missing),
        Err(e) => match at::look(&folder, name) {
            Ok(stat) => match distrust(&folder, &stat)? {
                None => Err(e),
                Some(why) => Ok(Trust::Distrusted(why)),
            },
            Err(gone) if gone.raw_os_error() == Some(libc::ENOENT) => Ok(Trust::Missing),
            Err(_) => Err(e),
        },
    }
}

/// Opens a partial file of this user's to read and write, whatever permissions it has by now.
///
/// # Errors
/// The file system's; `PermissionDenied` with the reason where it cannot be believed.
pub(crate) fn reopen(folder: impl AsFd, name: &Path) -> io::Result<File> {
    let ours = |how| match open(&folder, name, how)? {
        Trust::Trusted(file) => Ok(file),
        Trust::Missing => Err(io::Error::from(Errno::ENOENT)),
        Trust::Distrusted(why) => Err(io::Error::new(io::ErrorKind::PermissionDenied, why)),
    };
    match ours(OFlag::O_RDWR) {
        // It was about to take its name, and has the permissions that go with it.
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
            nix::sys::stat::fchmod(ours(OFlag::O_RDONLY)?, Mode::S_IRUSR | Mode::S_IWUSR)?;
            ours(OFlag::O_RDWR)
        }
        other => other,
    }
}

/// Makes something new under a name of the transfer's own; what stands there goes. Where it does not, as in a sticky folder in
/// which somebody else has put it, another name serves. Gives the name too.
///
/// # Errors
/// The file system's.
pub(crate) fn fresh<T>(
    folder: impl AsFd,
    name: PathBuf,
    mut make: impl FnMut(&Path) -> io::Result<T>,
) -> io::Result<(T, PathBuf)> {
    let exists = |e: &io::Error| e.raw_os_error() == Some(libc::EEXIST);
    let mut name = name;
    for _ in 0..MAX_TRIES {
        match make(&name) {
            Err(e) if exists(&e) && publish::remove(&folder, &name).is_ok() => match make(&name) {
                Err(e) if exists(&e) => {}
                made => return made.map(|made| (made, name)),
            },
            Err(e) if exists(&e) => {}
            made => return made.map(|made| (made, name)),
        }
        name = scratch(rand::rng().random(), "partial");
    }
    make(&name).map(|made| (made, name))
}

/// Makes a file that was not there, for its owner alone.
///
/// # Errors
/// The file system's; `EEXIST` where something is there.
pub(crate) fn create(folder: impl AsFd, name: &Path) -> io::Result<File> {
    let how = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(nix::fcntl::openat(folder, name, how, Mode::S_IRUSR | Mode::S_IWUSR).map(File::from)?)
}

/// Why a file does not count, if it does not.
fn distrust(folder: impl AsFd, stat: &FileStat) -> io::Result<Option<String>> {
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
        return Ok(Some("it is not a regular file".to_owned()));
    }
    if stat.st_nlink > 1 {
        return Ok(Some(format!("it has {} names (hard links)", stat.st_nlink)));
    }
    if stat.st_mode & 0o022 != 0 {
        return Ok(Some(format!("others may write to it (mode {:04o})", stat.st_mode & 0o7777)));
    }
    if stat.st_uid != nix::unistd::geteuid().as_raw() && stat.st_uid != owner_of_new(folder)? {
        return Ok(Some(format!("it belongs to another user (uid {})", stat.st_uid)));
    }
    Ok(None)
}

/// The owner that a file system gives to what this user makes in a folder: another than the user's own where a server maps
/// root to nobody (`exports(5)`, root_squash), or a mount names one (`mount.cifs(8)`, uid=).
fn owner_of_new(folder: impl AsFd) -> io::Result<u32> {
    let fd: OwnedFd = match publish::nameless(&folder, 0o600) {
        Some(file) => file.into(),
        None => {
            let (file, name) = fresh(&folder, scratch(rand::rng().random(), "partial"), |name| create(&folder, name))?;
            publish::remove(&folder, &name)?;
            file.into()
        }
    };
    Ok(fstat(fd)?.st_uid)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn why(folder: &File, name: &str) -> Option<String> {
        match open(folder, Path::new(name), OFlag::O_RDWR).unwrap() {
            Trust::Trusted(_) => None,
            Trust::Missing => Some("nothing".to_owned()),
            Trust::Distrusted(why) => Some(why),
        }
    }

    #[test]
    fn what_others_may_have_made_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let folder = File::open(dir.path()).unwrap();
        for (name, mode) in [("ours", 0o600), ("read", 0o644), ("group", 0o660), ("all", 0o602), ("two", 0o600)] {
            std::fs::write(at(name), "x").unwrap();
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        std::fs::hard_link(at("two"), at("two too")).unwrap();
        symlink("ours", at("link")).unwrap();
        symlink("none", at("dangling")).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        assert_eq!((why(&folder, "ours"), why(&folder, "read")), (None, None));
        assert_eq!(why(&folder, "none").as_deref(), Some("nothing"));
        for (name, part) in [
            ("group", "others may write"),
            ("all", "others may write"),
            ("two", "2 names"),
            ("link", "not a regular file"),
            ("dangling", "not a regular file"),
            ("folder", "not a regular file"),
            ("fifo", "not a regular file"),
        ] {
            assert!(why(&folder, name).unwrap().contains(part), "{name}");
        }
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(at("ours"), Some(12345), None).unwrap();
            assert!(why(&folder, "ours").unwrap().contains("another user (uid 12345)"));
            assert!(reopen(&folder, Path::new("ours")).is_err());
        }
    }

    #[test]
    fn what_cannot_be_removed_is_given_up_for_another_name() {
        let dir = tempfile::tempdir().unwrap();
        let folder = File::open(dir.path()).unwrap();
        std::fs::write(dir.path().join("file"), "theirs").unwrap();
        let (_, name) = fresh(&folder, "file".into(), |name| create(&folder, name)).unwrap();
        assert_eq!(name, Path::new("file"));
        assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"");
        // unlink(2) removes no folder.
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        let (_, name) = fresh(&folder, "folder".into(), |name| create(&folder, name)).unwrap();
        assert!(name != Path::new("folder") && dir.path().join(&name).is_file());
    }
}
