//! Gives finished files their names, and removes files.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, SFlag};
use nix::unistd::UnlinkatFlags;

use crate::fs::at::{flags, look};

/// Makes a file that has no name yet, if the file system can (`open(2)`, O_TMPFILE).
pub fn nameless(folder: impl AsFd, mode: u32) -> Option<File> {
    let how = flags(OFlag::O_WRONLY | OFlag::O_TMPFILE);
    nix::fcntl::openat(folder, ".", how, Mode::from_bits_truncate(mode)).ok().map(File::from)
}

/// Whether a descriptor may be linked by itself, as far as is known.
static ITSELF: AtomicBool = AtomicBool::new(true);

/// Gives a nameless file a name.
///
/// # Errors
/// The file system's; `EEXIST` where the name is taken.
pub fn link(file: &File, folder: impl AsFd, name: &Path) -> io::Result<()> {
    // Root may name a descriptor itself, and from Linux 6.10 on whoever has opened it (linkat(2), AT_EMPTY_PATH): of
    // all that a small file takes at both ends that is 6% less than by way of /proc, which serves where it may not.
    if ITSELF.load(Ordering::Relaxed) {
        match nix::unistd::linkat(file, "", &folder, name, AtFlags::AT_EMPTY_PATH) {
            Err(Errno::ENOENT) => ITSELF.store(false, Ordering::Relaxed),
            other => return Ok(other?),
        }
    }
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(nix::unistd::linkat(nix::fcntl::AT_FDCWD, itself.as_str(), &folder, name, AtFlags::AT_SYMLINK_FOLLOW)?)
}

/// Looks whether a file may take a name. A device, FIFO or socket that has it stays: what it stands for is no file's
/// content. So does a folder.
///
/// # Errors
/// Such a thing is there, or the name is longer than the file system has them.
pub fn may_take(folder: impl AsFd, name: &Path) -> io::Result<()> {
    let stat = match look(folder, name) {
        Ok(stat) => stat,
        // Nor will it be given one of this length.
        Err(e) if e.kind() == io::ErrorKind::InvalidFilename => return Err(e),
        Err(_) => return Ok(()),
    };
    match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG | SFlag::S_IFLNK => Ok(()),
        SFlag::S_IFDIR => Err(Errno::EISDIR.into()),
        _ => Err(io::Error::new(io::ErrorKind::AlreadyExists, "a device, FIFO or socket stands there")),
    }
}

/// Renames a file to its final name.
///
/// # Errors
/// The file system's; or as with [`may_take`].
pub fn rename(folder: impl AsFd, from: &Path, to: &Path) -> io::Result<()> {
    may_take(&folder, to)?;
    Ok(nix::fcntl::renameat(&folder, from, &folder, to)?)
}

/// Removes a file, and is content if it is not there.
///
/// # Errors
/// The file system's.
pub fn remove(folder: impl AsFd, name: &Path) -> io::Result<()> {
    match nix::unistd::unlinkat(folder, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
