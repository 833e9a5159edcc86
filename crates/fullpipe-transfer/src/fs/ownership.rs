//! Opens files that an earlier attempt left, if they can be trusted, and creates new files that no other user controls.
//!
//! Any user who may write to a destination can put a file of any name there, such as a false journal or a partial file
//! with other content. A transfer trusts a file only if it is regular, belongs to this user, has one name, and no other
//! user may write to it. All of this is checked on the open descriptor, so nobody can replace the file between the check
//! and the use.

use std::cell::OnceCell;
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

/// Maximum number of random names that [`fresh`] tries.
const MAX_TRIES: u32 = 8;

/// The result of opening a file that an earlier attempt may have left.
pub(crate) enum Trust {
    /// The file does not exist.
    Missing,
    /// The file belongs to this user, and no other user may have changed it.
    Trusted(File),
    /// The file cannot be trusted; the text says why.
    Distrusted(String),
}

/// The owner (uid) and permissions that new files in one folder show, or the error code of the attempt to find out, once it is
/// known. Whoever opens many files of a folder keeps one, because finding out creates a file, and other users may have put many
/// files there.
#[derive(Default)]
pub(crate) struct NewFileOwner(OnceCell<Result<(u32, u32), i32>>);

impl NewFileOwner {
    fn get(&self, folder: impl AsFd) -> io::Result<(u32, u32)> {
        let find = || shown_of_new(folder).map_err(|e| e.raw_os_error().unwrap_or(libc::EIO));
        (*self.0.get_or_init(find)).map_err(io::Error::from_raw_os_error)
    }

    /// Whether a file of this owner is this user's.
    ///
    /// # Errors
    /// No file can be made in the folder.
    pub(crate) fn is(&self, folder: impl AsFd, uid: u32) -> io::Result<bool> {
        Ok(uid == nix::unistd::geteuid().as_raw() || uid == self.get(folder)?.0)
    }
}

/// Opens the file that an earlier attempt left under this name, if it can be trusted.
///
/// # Errors
/// The file system fails. Errors that another user can cause with the file are no error here but a distrusted file.
pub(crate) fn open(folder: impl AsFd, name: &Path, how: OFlag) -> io::Result<Trust> {
    open_one_of_many(folder, name, how, &NewFileOwner::default())
}

/// Opens a file as [`open`] does. With `linked`, it may have other names: it is a file of the destination that is written in place.
///
/// # Errors
/// As for [`open`].
pub(crate) fn open_linked(folder: impl AsFd, name: &Path, how: OFlag, linked: bool) -> io::Result<Trust> {
    open_as(folder, name, how, &NewFileOwner::default(), linked)
}

/// Opens one of many files of a folder as [`open`] does. `owner` is the same for all of them.
///
/// # Errors
/// As for [`open`].
pub(crate) fn open_one_of_many(folder: impl AsFd, name: &Path, how: OFlag, owner: &NewFileOwner) -> io::Result<Trust> {
    open_as(folder, name, how, owner, false)
}

fn open_as(folder: impl AsFd, name: &Path, how: OFlag, owner: &NewFileOwner, linked: bool) -> io::Result<Trust> {
    let distrust = |folder: &_, stat: &FileStat, owner| distrust(folder, stat, owner, linked);
    // O_NONBLOCK, because opening a FIFO would otherwise block.
    match at::open_part(&folder, name, how | OFlag::O_NONBLOCK) {
        Ok(fd) => {
            let file = File::from(fd);
            Ok(match distrust(&folder, &fstat(&file)?, owner)? {
                None => Trust::Trusted(file),
                Some(why) => Trust::Distrusted(why),
            })
        }
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(Trust::Missing),
        Err(e) => match at::look(&folder, name) {
            Ok(stat) => match distrust(&folder, &stat, owner)? {
                None => Err(e),
                Some(why) => Ok(Trust::Distrusted(why)),
            },
            Err(gone) if gone.raw_os_error() == Some(libc::ENOENT) => Ok(Trust::Missing),
            Err(_) => Err(e),
        },
    }
}

/// Opens a partial file of this user for reading and writing. If its permissions forbid that, it changes them to 600. `linked`
/// is as for [`open_linked`].
///
/// # Errors
/// Those of the file system; `PermissionDenied` with the reason if the file cannot be trusted.
pub(crate) fn reopen(folder: impl AsFd, name: &Path, linked: bool) -> io::Result<File> {
    let ours = |how| match open_linked(&folder, name, how, linked)? {
        Trust::Trusted(file) => Ok(file),
        Trust::Missing => Err(io::Error::from(Errno::ENOENT)),
        Trust::Distrusted(why) => Err(io::Error::new(io::ErrorKind::PermissionDenied, why)),
    };
    match ours(OFlag::O_RDWR) {
        // The earlier attempt has already given the file its final permissions, shortly before it would have renamed it.
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
            nix::sys::stat::fchmod(ours(OFlag::O_RDONLY)?, Mode::S_IRUSR | Mode::S_IWUSR)?;
            ours(OFlag::O_RDWR)
        }
        other => other,
    }
}

/// Creates something new with `make`, and returns it with its name. It removes whatever has the name already. If that
/// cannot be removed, as when it belongs to another user in a sticky folder, it tries random names instead.
///
/// # Errors
/// Those of `make`; `EEXIST` if all names are taken.
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

/// How a new file is opened.
pub(crate) const CREATE: OFlag =
    OFlag::O_RDWR.union(OFlag::O_CREAT).union(OFlag::O_EXCL).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
/// Its first permissions.
pub(crate) const MODE: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);

/// Creates a new file with mode 600, open for reading and writing.
///
/// # Errors
/// Those of the file system; `EEXIST` if the name is taken.
pub(crate) fn create(folder: impl AsFd, name: &Path) -> io::Result<File> {
    Ok(nix::fcntl::openat(folder, name, CREATE, MODE).map(File::from)?)
}

/// Returns why a file cannot be trusted, or `None` if it can.
fn distrust(folder: impl AsFd, stat: &FileStat, owner: &NewFileOwner, linked: bool) -> io::Result<Option<String>> {
    if at::kind(stat) != SFlag::S_IFREG {
        return Ok(Some("it is not a regular file".to_owned()));
    }
    if stat.st_nlink > 1 && !linked {
        return Ok(Some(format!("it has {} names (hard links)", stat.st_nlink)));
    }
    // Where every file shows the same permissions (mount.cifs(8), file_mode=), they say nothing: whoever may write to this one may
    // write to all.
    let writers = stat.st_mode & 0o022;
    if writers != 0 && writers & !owner.get(&folder)?.1 != 0 {
        return Ok(Some(format!("other users may write to it (mode {:04o})", stat.st_mode & 0o7777)));
    }
    if !owner.is(folder, stat.st_uid)? {
        return Ok(Some(format!("it belongs to another user (uid {})", stat.st_uid)));
    }
    Ok(None)
}

/// Returns the owner (uid) that new files of this user in a folder show, and their permissions if 0600 was asked for. It is another
/// user if an NFS server maps root to nobody (`exports(5)`, root_squash), or if a mount option sets the owner (`mount.cifs(8)`,
/// uid=).
fn shown_of_new(folder: impl AsFd) -> io::Result<(u32, u32)> {
    #[cfg(test)]
    tests::PROBES.set(tests::PROBES.get() + 1);
    let fd: OwnedFd = match publish::nameless(&folder, 0o600) {
        Some(file) => file.into(),
        None => {
            let (file, name) = fresh(&folder, scratch(rand::rng().random(), "partial"), |name| create(&folder, name))?;
            publish::remove(&folder, &name)?;
            file.into()
        }
    };
    let stat = fstat(fd)?;
    Ok((stat.st_uid, stat.st_mode & 0o7777))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    thread_local! {
        /// Number of files that this thread created to find out the owner of new files.
        pub(crate) static PROBES: Cell<u32> = const { Cell::new(0) };
    }

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
            ("group", "other users may write"),
            ("all", "other users may write"),
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
            assert!(reopen(&folder, Path::new("ours"), false).is_err());
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
        // unlink(2) does not remove folders.
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        let (_, name) = fresh(&folder, "folder".into(), |name| create(&folder, name)).unwrap();
        assert!(name != Path::new("folder") && dir.path().join(&name).is_file());
    }
}
