//! System calls on one name in an open folder. None of them follows a symbolic link.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FileStat, Mode, SFlag};

pub(super) fn flags(extra: OFlag) -> OFlag {
    // openat2 refuses combinations of flags that make no sense, such as O_NOCTTY with O_PATH.
    let usual = if extra.contains(OFlag::O_PATH) { OFlag::empty() } else { OFlag::O_NOCTTY };
    extra | usual | OFlag::O_CLOEXEC
}

/// Converts one component of a name from bytes to a path.
pub fn part(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

/// Reads the metadata of an entry in a folder (`fstatat(2)`). It does not follow a symbolic link.
///
/// # Errors
/// Those of the file system.
pub fn look(folder: impl AsFd, name: &Path) -> io::Result<FileStat> {
    Ok(nix::sys::stat::fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)?)
}

/// Opens an entry in a folder. It does not follow a symbolic link.
///
/// # Errors
/// Those of the file system; `ELOOP` or `ENOTDIR` if the entry is a symbolic link.
pub fn open_part(folder: impl AsFd, name: &Path, how: OFlag) -> io::Result<OwnedFd> {
    Ok(nix::fcntl::openat(folder, name, flags(how | OFlag::O_NOFOLLOW), Mode::empty())?)
}

/// Whether an entry, opened with `O_PATH` and `O_NOFOLLOW`, is a symbolic link with this target.
pub fn is_link_to(entry: impl AsFd, target: &[u8]) -> bool {
    nix::fcntl::readlinkat(entry, "").is_ok_and(|there| there.as_bytes() == target)
}

/// The kind of an entry, such as [`SFlag::S_IFDIR`] for a folder.
pub fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}
