//! Files and folders below a root, reached only through descriptors.
//!
//! A receiver never leaves its root: every name is resolved by `openat2` with `RESOLVE_BENEATH`, so that
//! neither `..` nor a symbolic link, made just now by somebody else perhaps, leads out of it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag};
use nix::sys::stat::Mode;

use crate::fs::at::{flags, part};
use crate::fs::metadata::open_up;
use crate::fs::symlinks;
use crate::protocol::name::Name;

/// A folder below which everything happens.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    within: Within,
}

/// How far a name below a [`Root`] may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// Anywhere that its user may go, through symbolic links and `..`.
    Anywhere,
    /// Through symbolic links, but not out of the folder.
    Beneath,
    /// Through symbolic links whose owner could lead names astray in any case, but not out of the folder: links of this user,
    /// of root, and of whoever owns the folder that the link is in (as the kernel's `fs.protected_symlinks`, everywhere).
    BeneathOwnLinks,
    /// Through folders alone, not out of the folder. Whoever owns a tree may exchange a folder in it for a symbolic link
    /// at any instant; such a name is not found then (`ELOOP`).
    BeneathWithoutLinks,
}

impl Within {
    fn resolve(self) -> Option<ResolveFlag> {
        let beneath = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        match self {
            Within::Anywhere => None,
            Within::Beneath => Some(beneath),
            // A path without links needs no more; for one with links see [`symlinks`].
            Within::BeneathOwnLinks | Within::BeneathWithoutLinks => Some(beneath | ResolveFlag::RESOLVE_NO_SYMLINKS),
        }
    }
}

/// Times that a path is looked up while others rename what it leads through.
const UNSURE: u32 = 1000;

impl Root {
    /// Opens a folder by its path, following symbolic links.
    ///
    /// # Errors
    /// The file system's.
    pub fn open(path: &Path, within: Within) -> io::Result<Root> {
        let fd = nix::fcntl::open(path, flags(OFlag::O_PATH | OFlag::O_DIRECTORY), Mode::empty())?;
        Ok(Root { fd, within })
    }

    /// Makes a root of a folder below this one, with the same rule for names in it; where that is none, names lead no
    /// further than [`Within::Beneath`].
    ///
    /// # Errors
    /// The file system's.
    pub fn below(&self, path: &Path) -> io::Result<Root> {
        let fd = self.open_at(path, OFlag::O_PATH | OFlag::O_DIRECTORY, 0)?;
        let within = if self.within == Within::Anywhere { Within::Beneath } else { self.within };
        Ok(Root { fd, within })
    }

    /// The same folder with another rule for names below it.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn again(&self, within: Within) -> io::Result<Root> {
        Ok(Root { fd: self.fd.try_clone()?, within })
    }

    /// Makes a root of an open folder.
    pub fn from_fd(fd: OwnedFd, within: Within) -> Root {
        Root { fd, within }
    }

    /// Opens something below.
    ///
    /// # Errors
    /// The file system's; `EXDEV` where it leads out.
    pub fn open_at(&self, path: &Path, how_flags: OFlag, mode: u32) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let mode = Mode::from_bits_truncate(mode);
        if let Some(resolve) = self.within.resolve() {
            let how = OpenHow::new().flags(flags(how_flags)).mode(mode).resolve(resolve);
            // The kernel gives up where a rename elsewhere makes it unsure (openat2(2), EAGAIN).
            for _ in 1..UNSURE {
                match nix::fcntl::openat2(&self.fd, path, how) {
                    Err(Errno::EAGAIN) => {}
                    Err(Errno::ELOOP) if self.within == Within::BeneathOwnLinks => {
                        return symlinks::open(&self.fd, path, flags(how_flags), mode);
                    }
                    other => return Ok(other?),
                }
            }
            return Ok(nix::fcntl::openat2(&self.fd, path, how)?);
        }
        Ok(nix::fcntl::openat(&self.fd, path, flags(how_flags), mode)?)
    }

    /// Opens a file to read. A FIFO does not make it wait.
    ///
    /// # Errors
    /// The file system's.
    pub fn read(&self, path: &Path) -> io::Result<File> {
        let open = |how| self.open_at(path, OFlag::O_RDONLY | how, 0).map(File::from);
        match open(OFlag::O_NONBLOCK) {
            // Who holds a lease on it (Samba, say) is asked to let go, which may take a while (fcntl(2), F_SETLEASE).
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && open(OFlag::O_PATH)?.metadata()?.is_file() => {
                open(OFlag::empty())
            }
            other => other,
        }
    }

    /// The folder of a name, made where it is missing: for its owner alone, until what comes says otherwise. A folder
    /// below this one in which it has to be made is opened up to its owner ([`open_up`]).
    ///
    /// # Errors
    /// The file system's; `ENOTDIR` where a file stands in its way.
    pub fn folder(&self, name: Option<&Name>) -> io::Result<OwnedFd> {
        self.make(name, Mode::S_IRWXU, true)
    }

    /// The same with another mode, of which the process's mask takes away; nothing is opened up.
    ///
    /// # Errors
    /// As with [`Root::folder`].
    pub fn folder_for(&self, name: Option<&Name>, mode: Mode) -> io::Result<OwnedFd> {
        self.make(name, mode, false)
    }

    /// Opens a folder, making what is missing of it. `ours`: those below this one may be opened up to their owner, as an
    /// earlier copy may have closed them.
    fn make(&self, name: Option<&Name>, mode: Mode, ours: bool) -> io::Result<OwnedFd> {
        let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let mut missing: Vec<Name> = Vec::new();
        let mut at = name.cloned();
        // No recursion: names come from the network, and may be two thousand components deep.
        let mut folder = loop {
            match self.open_at(at.as_ref().map_or_else(|| Path::new("."), Name::path), how, 0) {
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
                // Another stream was faster.
                Ok(()) | Err(Errno::EEXIST) => folder = self.open_at(name.path(), how, 0)?,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(folder)
    }
}

impl Root {
    /// Whether its file system, which counts them, has room for no more files.
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
    use super::*;

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
