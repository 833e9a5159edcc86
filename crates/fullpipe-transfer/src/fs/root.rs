//! Files and folders below a root, reached only through descriptors.
//!
//! Each [`Root`] has a rule for how far the names below it may lead ([`Within`]); `resolve.rs` chooses the rules of both ends.
//! All rules but one keep names inside the folder: neither `..` nor a symbolic link leads out, even if another user makes the
//! link at that moment.
//!
//! - A receiver uses [`Within::BeneathWithoutLinks`] for all names that arrive: a link there may be one that the copy itself has
//!   brought, and whose text the other end chose. So does a sender for what lies below a source.
//! - The kernel resolves all paths under [`Within::Beneath`] and [`Within::BeneathWithoutLinks`] (`openat2`). Where it lacks the
//!   call (before Linux 5.6, and in some containers), `symlinks.rs` does.
//! - A server uses [`Within::BeneathOwnLinks`] for the destination that its client names. The kernel resolves a path without
//!   links (`RESOLVE_NO_SYMLINKS`). `symlinks.rs` resolves a path with links, one component at a time.
//! - [`Within::Anywhere`] is a plain `openat`, which keeps nothing inside. It is for names that the user has typed.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag};
use nix::sys::stat::Mode;

use crate::fs::at::{flags, part};
use crate::fs::metadata::open_up;
use crate::fs::symlinks::{self, Links};
use crate::protocol::name::Name;

/// An open folder, and the rule for how far names below it may lead.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    within: Within,
}

/// How far a name below a [`Root`] may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// Names may lead anywhere that the user may go, through symbolic links and `..`.
    Anywhere,
    /// Names may lead through symbolic links, but not out of the folder.
    Beneath,
    /// Names may lead through symbolic links of this user and of root, and through a link of another user to what belongs to
    /// that user, but not out of the folder.
    BeneathOwnLinks,
    /// Names may lead through folders only, not through symbolic links, and not out of the folder. If a tree's owner
    /// replaces a folder with a symbolic link, opening a name through it fails with `ELOOP`.
    BeneathWithoutLinks,
}

impl Within {
    fn links(self) -> Links {
        match self {
            Within::Anywhere | Within::Beneath => Links::All,
            Within::BeneathOwnLinks => Links::Trusted,
            Within::BeneathWithoutLinks => Links::None,
        }
    }

    fn resolve(self) -> Option<ResolveFlag> {
        let beneath = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        match self {
            Within::Anywhere => None,
            Within::Beneath => Some(beneath),
            // This suffices for a path without links. For a path with links see [`symlinks`].
            Within::BeneathOwnLinks | Within::BeneathWithoutLinks => Some(beneath | ResolveFlag::RESOLVE_NO_SYMLINKS),
        }
    }
}

/// Maximum number of attempts to resolve a path while other processes rename folders on it.
const MAX_RESOLVE_ATTEMPTS: u32 = 1000;

/// Opens a path below a folder, as `openat(2)`, under a rule.
///
/// # Errors
/// Those of the file system; `EXDEV` if the path leads out of the folder.
pub fn open_below(folder: impl AsFd, path: &Path, how_flags: OFlag, mode: Mode, within: Within) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let Some(resolve) = within.resolve() else {
        return Ok(nix::fcntl::openat(folder, path, flags(how_flags), mode)?);
    };
    let how = OpenHow::new().flags(flags(how_flags)).mode(mode).resolve(resolve);
    // The kernel returns EAGAIN if a concurrent rename could have led the path out of the root (openat2(2)).
    for _ in 1..MAX_RESOLVE_ATTEMPTS {
        match nix::fcntl::openat2(&folder, path, how) {
            Err(Errno::EAGAIN) => {}
            Err(Errno::ELOOP) if within == Within::BeneathOwnLinks => {
                return symlinks::open(folder, path, flags(how_flags), mode, Links::Trusted);
            }
            // The kernel lacks the call, or a container's filter of system calls does not know it.
            Err(Errno::ENOSYS | Errno::EPERM) => {
                return symlinks::open(folder, path, flags(how_flags), mode, within.links());
            }
            other => return Ok(other?),
        }
    }
    Ok(nix::fcntl::openat2(folder, path, how)?)
}

impl Root {
    /// Opens a folder by its path. It follows symbolic links.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(path: &Path, within: Within) -> io::Result<Root> {
        let fd = nix::fcntl::open(path, flags(OFlag::O_PATH | OFlag::O_DIRECTORY), Mode::empty())?;
        Ok(Root { fd, within })
    }

    /// Opens a folder below this one as a root with the same rule. The rule [`Within::Anywhere`] becomes
    /// [`Within::Beneath`].
    ///
    /// # Errors
    /// Those of the file system.
    pub fn below(&self, path: &Path) -> io::Result<Root> {
        let fd = self.open_at(path, OFlag::O_PATH | OFlag::O_DIRECTORY, 0)?;
        let within = if self.within == Within::Anywhere { Within::Beneath } else { self.within };
        Ok(Root { fd, within })
    }

    /// Returns the same folder with another rule for the names below it.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn again(&self, within: Within) -> io::Result<Root> {
        Ok(Root { fd: self.fd.try_clone()?, within })
    }

    /// Makes a root from an open folder.
    pub fn from_fd(fd: OwnedFd, within: Within) -> Root {
        Root { fd, within }
    }

    /// Opens a path below the root.
    ///
    /// # Errors
    /// Those of the file system; `EXDEV` if the path leads out of the root.
    pub fn open_at(&self, path: &Path, how_flags: OFlag, mode: u32) -> io::Result<OwnedFd> {
        open_below(&self.fd, path, how_flags, Mode::from_bits_truncate(mode), self.within)
    }

    /// Opens a file for reading. It does not block on a FIFO.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn read(&self, path: &Path) -> io::Result<File> {
        let open = |how| self.open_at(path, OFlag::O_RDONLY | how, 0).map(File::from);
        match open(OFlag::O_NONBLOCK) {
            // Another process, such as Samba, holds a lease on the file. The kernel asks it to release the lease, which may
            // take a while (fcntl(2), F_SETLEASE).
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && open(OFlag::O_PATH)?.metadata()?.is_file() => {
                open(OFlag::empty())
            }
            other => other,
        }
    }

    /// Opens the folder with this name, and creates missing folders on the way with access for their owner only. The
    /// transfer sets their final permissions later. If a folder below this one forbids its owner to enter it or to create a
    /// folder in it, this changes its permissions ([`Root::enter`]).
    ///
    /// # Errors
    /// Those of the file system; `ENOTDIR` if a file is in the way.
    pub fn folder(&self, name: Option<&Name>) -> io::Result<OwnedFd> {
        self.make(name, Mode::S_IRWXU, true)
    }

    /// Opens a folder below this one, and gives its owner access to it and to the folders on the way, if this user is the
    /// owner and lacks it ([`open_up`]): an earlier copy may have closed them. A folder that can be written to but not read,
    /// such as a drop box of mode 1733, is opened without access to its list of names (O_PATH).
    ///
    /// # Errors
    /// Those of the file system.
    pub fn enter(&self, path: &Path) -> io::Result<OwnedFd> {
        self.open_folder(path, true)
    }

    /// As [`Root::enter`]; changes permissions only with `ours`.
    fn open_folder(&self, path: &Path, ours: bool) -> io::Result<OwnedFd> {
        let read = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        match self.open_at(path, read, 0) {
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => {}
            other => return other,
        }
        if ours {
            self.open_up_to(path)?;
            if let Ok(folder) = self.open_at(path, read, 0) {
                return Ok(folder);
            }
        }
        self.open_at(path, OFlag::O_PATH | OFlag::O_DIRECTORY, 0)
    }

    /// Gives this user access to its own folders on a path, the last one included. This folder itself stays as it is.
    fn open_up_to(&self, path: &Path) -> io::Result<()> {
        let mut on_the_way: Vec<&Path> = path.ancestors().collect();
        on_the_way.retain(|path| !path.as_os_str().is_empty() && *path != Path::new("."));
        for path in on_the_way.into_iter().rev() {
            open_up(&self.open_at(path, OFlag::O_PATH | OFlag::O_DIRECTORY, 0)?)?;
        }
        Ok(())
    }

    /// Opens the folder with this name, and creates missing folders with `mode` reduced by the process's umask. It does not
    /// change the permissions of existing folders.
    ///
    /// # Errors
    /// Those of [`Root::folder`].
    pub fn folder_for(&self, name: Option<&Name>, mode: Mode) -> io::Result<OwnedFd> {
        self.make(name, mode, false)
    }

    /// Opens a folder and creates missing folders on the way. With `ours`, it may give the owner access to folders below
    /// the root ([`open_up`]), which an earlier copy may have made read-only.
    fn make(&self, name: Option<&Name>, mode: Mode, ours: bool) -> io::Result<OwnedFd> {
        let mut missing: Vec<Name> = Vec::new();
        let mut at = name.cloned();
        // A loop, not recursion, because names come from the network and may have two thousand components.
        let mut folder = loop {
            match self.open_folder(at.as_ref().map_or_else(|| Path::new("."), Name::path), ours) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    let Some(name) = at else { return Err(e) };
                    at = name.parent();
                    missing.push(name);
                }
                other => break other?,
            }
        };
        while let Some(name) = missing.pop() {
            let mkdir = || nix::sys::stat::mkdirat(&folder, part(name.last()), mode);
            let mut made = mkdir();
            if made == Err(Errno::EACCES) && ours && name.parent().is_some() {
                open_up(&folder)?;
                made = mkdir();
            }
            match made {
                // EEXIST: another stream has created it in the meantime.
                Ok(()) | Err(Errno::EEXIST) => folder = self.open_folder(name.path(), ours)?,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(folder)
    }
}

impl Root {
    /// Whether the root's file system has run out of inodes. False if the file system does not count inodes.
    pub fn has_no_inodes(&self) -> bool {
        nix::sys::statvfs::fstatvfs(&self.fd).is_ok_and(|stat| stat.files() > 0 && stat.files_available() == 0)
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

    use super::*;

    /// Makes this thread's kernel one without `openat2` (seccomp(2)).
    fn without_openat2(errno: i32) {
        let (allow, refuse) = (SeccompAction::Allow, SeccompAction::Errno(errno as u32));
        let calls = [(libc::SYS_openat2, Vec::new())].into();
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let program: BpfProgram = SeccompFilter::new(calls, allow, refuse, arch).unwrap().try_into().unwrap();
        seccompiler::apply_filter(&program).unwrap();
    }

    /// What the kernel does and what this program does where the kernel cannot is the same.
    #[test]
    fn without_openat2_the_rules_are_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("root/a/b")).unwrap();
        for name in ["secret", "root/file", "root/a/b/file"] {
            std::fs::write(at(name), "x").unwrap();
        }
        for (target, link) in [("a", "to-a"), ("..", "up"), ("file", "to-file"), ("/etc", "etc"), ("none", "dead")] {
            std::os::unix::fs::symlink(target, at("root").join(link)).unwrap();
        }
        let paths = [
            "",
            ".",
            "a",
            "a/b/file",
            "a/../file",
            "to-a/b/file",
            "to-file",
            "dead",
            "up/secret",
            "../secret",
            "etc/passwd",
            "/etc/passwd",
            "none",
            "none/x",
            "file/x",
            "a/b",
            "to-a",
            "a/./b/../../file",
            "up",
            "..",
            "a/../..",
        ];
        let ways = [
            OFlag::O_RDONLY,
            OFlag::O_PATH,
            OFlag::O_PATH | OFlag::O_NOFOLLOW,
            OFlag::O_RDONLY | OFlag::O_NOFOLLOW,
            OFlag::O_RDONLY | OFlag::O_DIRECTORY,
            OFlag::O_PATH | OFlag::O_DIRECTORY,
        ];
        let all = || -> Vec<String> {
            let rules = [Within::Beneath, Within::BeneathOwnLinks, Within::BeneathWithoutLinks];
            let each = rules
                .into_iter()
                .flat_map(|within| paths.into_iter().flat_map(move |p| ways.map(|how| (within, p, how))));
            each.map(|(within, path, how)| {
                let root = Root::open(&at("root"), within).unwrap();
                let opened = root.open_at(Path::new(path), how, 0);
                let told = opened.map(|fd| nix::sys::stat::fstat(&fd).unwrap().st_ino).map_err(|e| e.raw_os_error());
                format!("{within:?} {path:?} {how:?}: {told:?}")
            })
            .collect()
        };
        let before = all();
        for errno in [libc::ENOSYS, libc::EPERM] {
            let after = std::thread::scope(|scope| {
                scope
                    .spawn(|| {
                        without_openat2(errno);
                        all()
                    })
                    .join()
                    .unwrap()
            });
            assert!(before.iter().any(|line| line.contains("Ok")) && before.iter().any(|line| line.contains("Err")));
            for (before, after) in before.iter().zip(&after) {
                assert_eq!(before, after);
            }
        }
    }

    #[test]
    fn nothing_leads_out_of_a_root() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("secret"), "x").unwrap();
        std::fs::create_dir(dir.path().join("root")).unwrap();
        std::os::unix::fs::symlink("..", dir.path().join("root/up")).unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("root/etc")).unwrap();
        std::os::unix::fs::symlink("in", dir.path().join("root/fine")).unwrap();
        std::fs::create_dir(dir.path().join("root/in")).unwrap();
        let root = Root::open(&dir.path().join("root"), Within::Beneath).unwrap();
        for bad in ["../secret", "up/secret", "etc/passwd", "/etc/passwd", "in/../../secret"] {
            assert!(root.read(Path::new(bad)).is_err(), "{bad}");
        }
        let name = |text: &str| Name::try_from(text.as_bytes().to_vec()).unwrap();
        assert!(root.folder(Some(&name("up/new"))).is_err());
        assert!(root.folder(Some(&name("fine/new/deep"))).is_ok());
        assert!(dir.path().join("root/in/new/deep").is_dir());
    }
}
