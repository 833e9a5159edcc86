//! What is sent: sources or standard input, and each file on its way.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::error::unreadable;
use crate::fs::large_file::SourceFile;
use crate::protocol::chunk::Chunk;
use crate::protocol::file::{Extent, FileItem};
use crate::protocol::skipped::SkippedEntry;
use crate::send::input::Input;
use crate::source::tree::SourceTree;
use crate::source::walk::FileLocation;
use crate::threads::lock;

/// What an end sends.
pub enum Outgoing {
    /// Files and folders with all that is in them.
    Trees(Vec<SourceTree>),
    /// What comes from standard input.
    Input(Arc<Input>),
}

impl Outgoing {
    pub(super) fn trees(&self) -> &[SourceTree] {
        match self {
            Outgoing::Trees(places) => places,
            Outgoing::Input(_) => &[],
        }
    }

    pub(super) fn input(&self) -> Option<&Input> {
        match self {
            Outgoing::Trees(_) => None,
            Outgoing::Input(input) => Some(input),
        }
    }
}

/// A file to send.
pub(crate) struct OutgoingFile {
    /// The file's number in messages.
    pub(super) id: u64,
    /// What the receiver is told of the file.
    pub(super) item: FileItem,
    /// Where the file is opened.
    pub(super) at: FileLocation,
    /// Bytes of a large file, holes included, that no stream has sent or given up yet.
    pub(super) rest: AtomicU64,
    /// Bytes of a large file, holes included, that were put on the streams.
    pub(super) sent: AtomicU64,
    /// Guards the open file, from when a large file is planned until its last block was read.
    pub(super) open: Mutex<Option<Arc<SourceFile>>>,
    /// Guards why the file could not be read, so that the receiver must not give it its name.
    pub(super) bad: Mutex<Option<Unreadable>>,
    /// Whether the receiver cannot write the file.
    pub(super) unwanted: AtomicBool,
}

/// Why a file cannot be sent.
pub(super) enum Unreadable {
    /// The file ended before its size.
    Short,
    /// Another reason, for a person to read.
    Other(String),
}

impl Unreadable {
    /// The meaning of an error of reading a file.
    pub(super) fn of(error: &std::io::Error) -> Unreadable {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Unreadable::Short,
            _ => Unreadable::Other(unreadable(error)),
        }
    }

    /// The report for a file that has not changed since it was found: then its size never was that of its content.
    pub(super) fn skipped(self, name: &[u8]) -> SkippedEntry {
        match self {
            Unreadable::Short => SkippedEntry::for_good(name, "its size is not its content, as with files in /sys"),
            Unreadable::Other(why) => SkippedEntry::new(name, why),
        }
    }
}

impl OutgoingFile {
    /// Whether no more of the file need be read: the receiver cannot write it, or this end could not read all of it.
    pub(super) fn is_given_up(&self) -> bool {
        self.unwanted.load(Ordering::Relaxed) || lock(&self.bad).is_some()
    }

    pub(super) fn chunk(&self, extent: Extent, hole: bool) -> Chunk {
        Chunk::Block { id: self.id, file: self.item.clone(), extent, hole }
    }
}
