//! Calls on one name in an open folder, none of which follows a symbolic link.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FileStat, Mode};

pub(super) fn flags(extra: OFlag) -> OFlag {
    // openat2 refuses flags that mean nothing together.
    let usual = if extra.contains(OFlag::O_PATH) { OFlag::empty() } else { OFlag::O_NOCTTY };
    extra | usual | OFlag::O_CLOEXEC
}

/// One component of a name as the file system takes it.
pub fn part(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

/// Looks at something in a folder without following it.
///
/// # Errors
/// The file system's.
pub fn look(folder: impl AsFd, name: &Path) -> io::Result<FileStat> {
    Ok(nix::sys::stat::fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)?)
}

/// Opens something in a folder without following it.
///
/// # Errors
/// The file system's; `ELOOP` or `ENOTDIR` where a symbolic link has the name.
pub fn open_part(folder: impl AsFd, name: &Path, how: OFlag) -> io::Result<OwnedFd> {
    Ok(nix::fcntl::openat(folder, name, flags(how | OFlag::O_NOFOLLOW), Mode::empty())?)
}
