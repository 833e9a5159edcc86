//! The names at a destination: those that files get, those of files that are not whole yet, and those of the transfer's own
//! files.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use nix::fcntl::OFlag;

use crate::fs::at;
use crate::fs::root::Root;
use crate::protocol::name::{self, Name, scratch};
use crate::source::glob::Part;

/// How a transfer names files at its destination.
pub(super) struct DestinationNames {
    /// The name at the destination of the one source, if it differs from the source's own.
    pub(super) rename: Option<Vec<u8>>,
    /// Whether the command means this name whatever stands there (`-T`, standard input).
    pub(super) exact: bool,
    /// The names that may arrive at the top level; `None` allows any.
    pub(super) only: Option<Vec<Part>>,
    /// Number in the names of the transfer's own files here. It is the transfer's number, unless another user has taken
    /// those names.
    pub(super) number: u64,
}

impl DestinationNames {
    /// The name that a file, folder or link of the sender gets at the destination.
    ///
    /// # Errors
    /// The name was not asked for, is too long, or is one that fullpipe's own files have.
    pub(super) fn final_name<'a>(&self, name: &'a Name) -> io::Result<Cow<'a, Name>> {
        if self.only.as_ref().is_some_and(|only| !only.iter().any(|top| top.is_match(name.first()))) {
            return Err(io::Error::other("it was not asked for"));
        }
        let name = match &self.rename {
            None => Cow::Borrowed(name),
            Some(first) => Cow::Owned(name.with_first(first).map_err(|_| nix::errno::Errno::ENAMETOOLONG)?),
        };
        if name.bytes().split(|b| *b == b'/').any(name::is_scratch) {
            let why = "fullpipe's own files have such names while it works";
            return Err(io::Error::new(io::ErrorKind::InvalidFilename, why));
        }
        Ok(name)
    }

    /// The name of a file until it is whole. It lies in the file's own folder, so that a rename finishes the file.
    pub(super) fn partial(&self, name: &Name) -> PathBuf {
        scratch(self.partial_number(name), "partial")
    }

    /// The number in a partial file's name.
    pub(super) fn partial_number(&self, name: &Name) -> u64 {
        name.key() ^ self.number
    }

    /// The name of the transfer's journal.
    pub(super) fn journal(&self) -> PathBuf {
        journal(self.number)
    }

    /// The name of the file that asks for the transfer's destination ([`request`]).
    pub(super) fn request(&self) -> PathBuf {
        request(self.number)
    }

    /// Whether the one source gets another name here, and a folder of that name exists by now. Then, unless the command says so by
    /// itself, only the journal tells that the same command means this name, and not a place inside that folder.
    pub(super) fn is_renamed_folder(&self, root: &Root) -> bool {
        let how = OFlag::O_PATH | OFlag::O_DIRECTORY;
        !self.exact && self.rename.as_ref().is_some_and(|name| root.open_at(at::part(name), how, 0).is_ok())
    }
}

/// Name of the file that asks the holder of a destination to release it. The file holds the number of the process that
/// has connected again.
pub(super) fn request(number: u64) -> PathBuf {
    scratch(number, "next")
}

/// Name of the journal, which tells the same command what is finished.
pub(super) fn journal(number: u64) -> PathBuf {
    scratch(number, "journal")
}
