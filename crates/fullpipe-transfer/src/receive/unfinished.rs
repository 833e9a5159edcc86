//! The files of a folder in which interrupted copies have written in place.

use std::io;
use std::os::fd::AsFd;

use nix::dir::Dir;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use crate::fs::at;
use crate::protocol::name::{self, Name};

/// The files of one folder that have the name of a partial file.
pub(super) struct UnfinishedFiles {
    folder: Option<Name>,
    inodes: Vec<u64>,
}

impl UnfinishedFiles {
    /// Reads the names in a folder.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn in_folder(folder: Option<Name>, fd: impl AsFd) -> io::Result<UnfinishedFiles> {
        let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut inodes = Vec::new();
        for entry in Dir::openat(fd, ".", how, Mode::empty())? {
            let entry = entry?;
            if name::partial_number(at::part(entry.file_name().to_bytes())).is_some() {
                inodes.push(entry.ino());
            }
        }
        Ok(UnfinishedFiles { folder, inodes })
    }

    /// Whether these are the files of this folder.
    pub(super) fn is_of(&self, folder: Option<&Name>) -> bool {
        self.folder.as_ref() == folder
    }

    /// Whether a file is one of them.
    pub(super) fn has(&self, inode: u64) -> bool {
        self.inodes.contains(&inode)
    }
}
