//! Opens a path below a folder without leaving the folder, one component at a time, and follows those symbolic links that a rule
//! allows.
//!
//! The kernel does this by itself (`openat2`, Linux 5.6), but for two things. An older kernel lacks the call, and so may a
//! container. And the kernel follows links of any owner. So another user who may write to a folder could redirect names in it to a
//! different folder of the user who copies, and the copy would change the permissions and owner there. This module
//! therefore opens each component by itself, without following links, and checks it on its own descriptor, so nobody can
//! replace the component between the check and the use.
//!
//! A path does not leave the folder: `..` returns to the folder that was opened before, at most up to the first one, and a link
//! to an absolute path is refused.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};

use crate::fs::at;

/// Maximum number of links followed on one path, as in the kernel (`path_resolution(7)`).
pub(crate) const MAX_LINKS: u32 = 40;

/// Most folders that are open at the same time while a path is followed: each takes a descriptor. The longest path that the
/// kernel takes has half as many components (`PATH_MAX`); links in it may add more.
const MAX_OPEN_FOLDERS: usize = 4096;

/// Which symbolic links on a path are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// None: a link on the path is an error (`ELOOP`).
    None,
    /// All that do not lead out of the folder.
    All,
    /// Those of this user and of root, and a link of another user to what belongs to that user.
    Trusted,
}

/// Opens a path below a folder, as `openat(2)` with the flags `how` and the mode `mode`.
///
/// # Errors
/// Those of the file system; `ENAMETOOLONG` if the path and its links have more than 4,096 folders; `EXDEV` if the path leads
/// out of the folder; `ELOOP` and `PermissionDenied` if a link on the path may not be followed.
pub(crate) fn open(folder: impl AsFd, path: &Path, how: OFlag, mode: Mode, follow: Links) -> io::Result<OwnedFd> {
    if path.has_root() {
        return Err(Errno::EXDEV.into());
    }
    let mut folders = vec![folder.as_fd().try_clone_to_owned()?];
    let mut steps: VecDeque<Step> = components(path.as_os_str().as_bytes()).collect();
    let mut links = 0;
    while let (Some(step), Some(folder)) = (steps.pop_front(), folders.last()) {
        let part = match step {
            Step::Name(part) => part,
            Step::Owned(by) => {
                by.check(&fstat(folder)?)?;
                continue;
            }
        };
        if part == ".." {
            folders.pop();
            if folders.is_empty() {
                return Err(Errno::EXDEV.into());
            }
            continue;
        }
        let is_last = steps.iter().all(|step| matches!(step, Step::Owned(_)));
        let found = match nix::fcntl::openat(folder, &*part, seen(OFlag::empty()), Mode::empty()) {
            // The last component may be missing, because the open below may create it.
            Err(Errno::ENOENT) if is_last => None,
            other => Some(other?),
        };
        let stat = found.as_ref().map(fstat).transpose()?;
        let is = |kind| stat.as_ref().is_some_and(|stat| at::kind(stat) == kind);
        if is_last && (!is(SFlag::S_IFLNK) || how.contains(OFlag::O_NOFOLLOW)) {
            let check = |stat: &FileStat| steps.iter().try_for_each(|step| step.check(stat));
            if !steps.is_empty() {
                // Before the open, which may truncate. What a link of another user names must exist: that tells its owner.
                check(stat.as_ref().ok_or(Errno::ENOENT)?)?;
            }
            // O_NOFOLLOW, because a link may have replaced the component since the check.
            let opened = nix::fcntl::openat(folder, &*part, how | OFlag::O_NOFOLLOW, mode)?;
            let stat = fstat(&opened)?;
            check(&stat)?;
            // O_PATH opens the link itself.
            if at::kind(&stat) == SFlag::S_IFLNK && !how.contains(OFlag::O_NOFOLLOW) {
                return Err(Errno::ELOOP.into());
            }
            return Ok(opened);
        }
        let (Some(found), Some(stat)) = (found, stat) else { return Err(Errno::ENOENT.into()) };
        if at::kind(&stat) != SFlag::S_IFLNK {
            if folders.len() >= MAX_OPEN_FOLDERS {
                return Err(Errno::ENAMETOOLONG.into());
            }
            folders.push(nix::fcntl::openat(&found, ".", seen(OFlag::O_DIRECTORY), Mode::empty())?);
            continue;
        }
        links += 1;
        if follow == Links::None || links > MAX_LINKS {
            return Err(Errno::ELOOP.into());
        }
        let target = nix::fcntl::readlinkat(&found, "")?;
        if target.as_bytes().starts_with(b"/") {
            return Err(Errno::EXDEV.into());
        }
        if follow == Links::Trusted
            && let Some(owner) = LinkOwner::of(&stat, &part)
        {
            steps.push_front(Step::Owned(owner));
        }
        for part in components(target.as_bytes()).rev() {
            steps.push_front(part);
        }
    }
    // The path ends in a folder that is already open (`.`, `..`, or a link to one).
    let folder = folders.pop().ok_or(Errno::EXDEV)?;
    Ok(nix::fcntl::openat(&folder, ".", how, mode)?)
}

/// One step of a path that is followed.
enum Step {
    /// A component of the path or of a link's target.
    Name(OsString),
    /// The end of a link's target: what has been reached must belong to the link's owner.
    Owned(LinkOwner),
}

impl Step {
    fn check(&self, reached: &FileStat) -> io::Result<()> {
        match self {
            Step::Name(_) => Ok(()),
            Step::Owned(by) => by.check(reached),
        }
    }
}

/// A link of another user, who is neither this user nor root. It is followed only to something that this user owns: so a
/// link leads nobody's copy to what the link's owner could not have changed without the link. Web servers know the rule as
/// `SymLinksIfOwnerMatch`.
pub(crate) struct LinkOwner {
    uid: u32,
    name: String,
}

impl LinkOwner {
    /// Returns the owner of the link `name`, or `None` if the link belongs to this user or to root.
    pub(crate) fn of(link: &FileStat, name: &OsStr) -> Option<LinkOwner> {
        let me = nix::unistd::geteuid().as_raw();
        let name = || crate::protocol::name::printable(name.as_bytes());
        (![me, 0].contains(&link.st_uid)).then(|| LinkOwner { uid: link.st_uid, name: name() })
    }

    /// Checks that what the link leads to belongs to the link's owner.
    ///
    /// # Errors
    /// `PermissionDenied` if it belongs to anybody else.
    pub(crate) fn check(&self, reached: &FileStat) -> io::Result<()> {
        if reached.st_uid == self.uid {
            return Ok(());
        }
        let LinkOwner { uid, name } = self;
        let why = format!(
            "the symbolic link {name} on its way belongs to another user (uid {uid}), and what it leads to does not"
        );
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }
}

/// The flags that open a component without following it and without access to its content, plus `extra`.
fn seen(extra: OFlag) -> OFlag {
    extra | OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

/// Splits a path into its components, without empty ones and `.`.
fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = Step> {
    let parts = path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts.map(|part| Step::Name(OsString::from_vec(part.to_vec())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn opened(folder: &OwnedFd, path: &str, how: OFlag) -> io::Result<OwnedFd> {
        open(folder, Path::new(path), how | OFlag::O_CLOEXEC, Mode::from_bits_truncate(0o600), Links::Trusted)
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
    fn a_link_of_another_user_leads_only_to_what_is_his() {
        let me = nix::unistd::geteuid();
        if !me.is_root() {
            eprintln!("skipped: only root can give files to other users");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (alice, bob) = (12_345, 12_346);
        let at = |name: &str| dir.path().join(name);
        for (name, owner) in [("alice", alice), ("alice/own", alice), ("bob", bob), ("root", 0)] {
            std::fs::create_dir(at(name)).unwrap();
            std::os::unix::fs::chown(at(name), Some(owner), None).unwrap();
        }
        for (target, link, owner) in [
            ("own", "alice/good", alice),
            ("../bob", "alice/bad", alice),
            ("../root", "alice/up", alice),
            ("bad", "alice/twice", alice),
            ("../bob", "alice/of-root", 0),
            ("../bob/none", "alice/none", alice),
        ] {
            symlink(target, at(link)).unwrap();
            std::os::unix::fs::lchown(at(link), Some(owner), None).unwrap();
        }
        for (name, owner) in [("bob/file", bob), ("alice/own/file", alice)] {
            std::fs::write(at(name), "x").unwrap();
            std::os::unix::fs::chown(at(name), Some(owner), None).unwrap();
        }
        symlink("../bob/file", at("alice/f")).unwrap();
        symlink("own/file", at("alice/g")).unwrap();
        for link in ["alice/f", "alice/g"] {
            std::os::unix::fs::lchown(at(link), Some(alice), None).unwrap();
        }
        let folder = OwnedFd::from(std::fs::File::open(dir.path()).unwrap());
        for good in ["alice/good", "alice/good/file", "alice/of-root/file", "alice/g"] {
            assert!(opened(&folder, good, OFlag::O_RDONLY).is_ok(), "{good}");
        }
        for bad in ["alice/bad", "alice/bad/file", "alice/up", "alice/twice", "alice/twice/file", "alice/f"] {
            let error = opened(&folder, bad, OFlag::O_RDONLY).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{bad}: {error}");
        }
        let truncate = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC;
        assert!(opened(&folder, "alice/f", truncate).is_err());
        assert_eq!(std::fs::read(at("bob/file")).unwrap(), b"x");
        assert!(opened(&folder, "alice/none", truncate).is_err());
        assert!(!at("bob/none").exists());
    }
}
