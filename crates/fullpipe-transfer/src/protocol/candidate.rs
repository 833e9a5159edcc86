//! What a dry run compares: the files and links that a copy would find, and what it would do with each.

use serde::{Deserialize, Serialize};

use crate::protocol::name::Name;

/// A file or symbolic link that a copy would find.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its name below the root.
    pub name: Name,
    /// The bytes that a copy would send of it: none of a link, or of a second name of a file that keeps its names.
    pub bytes: u64,
    /// What the destination compares.
    pub kind: Kind,
}

/// What the destination compares of a [`Candidate`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File {
        /// Size in bytes.
        size: u64,
        /// Last change of the content (mtime) as Unix time: seconds, and nanoseconds within the second.
        mtime: (i64, u32),
        /// Hash of the content (BLAKE3), if contents are compared and it can be read.
        content: Option<[u8; 32]>,
    },
    /// A symbolic link.
    Link {
        /// The path that it points at.
        target: Vec<u8>,
    },
}

impl Candidate {
    /// Approximate size in a frame, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let kind = match &self.kind {
            Kind::File { .. } => 64,
            Kind::Link { target } => target.len(),
        };
        32 + self.name.bytes().len() + kind
    }
}

/// What a copy would do with a [`Candidate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// It would be new at the destination.
    New,
    /// It would take the place of what is there under its name.
    Replaced,
    /// It would not be sent, since the destination has it.
    Present,
    /// It would not be sent, since it is newer at the destination and has another size there.
    Newer,
    /// It would not be copied, since a folder or a special file stands where it should be, or a file where its folder should.
    Blocked,
    /// It would be copied; nobody may know, or has looked, what is there.
    Unknown,
}
