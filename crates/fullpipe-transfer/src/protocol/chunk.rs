//! Chunks: what data streams carry.

use serde::{Deserialize, Serialize};

use crate::protocol::digest::{self, Tag};
use crate::protocol::file::{Extent, FileItem};

/// Most files in one pack.
pub const PACK_FILES: usize = 4096;

/// Header of a chunk, in a frame. Data follow as announced, then a [`Trailer`], for holes and the end of a stream too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Chunk {
    /// Bytes of a large file.
    Block {
        /// Its number, the same in all of its blocks.
        id: u64,
        /// The file, in every block: so no stream waits for another.
        file: FileItem,
        /// Which bytes.
        extent: Extent,
        /// Nothing but zeros, not sent.
        hole: bool,
    },
    /// Many small files, whole, one after the other.
    Pack(Vec<FileItem>),
    /// Nothing more comes on this stream.
    End,
}

impl Chunk {
    /// Bytes of data that follow; none if they are more than can be.
    pub fn data_len(&self) -> Option<u64> {
        match self {
            Chunk::Block { hole: true, .. } | Chunk::End => Some(0),
            Chunk::Block { extent, .. } => Some(extent.len),
            Chunk::Pack(files) => files.iter().try_fold(0u64, |sum, file| sum.checked_add(file.size)),
        }
    }
}

/// Closes a chunk with its tag ([`digest::Tagger`]). It has none if the sender could not read all of the data: then the
/// data are filling, and the sender says on the control connection what was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer(pub Option<Tag>);

impl Trailer {
    /// Bytes of a trailer.
    pub const LEN: usize = digest::LEN;
    /// Stands for no tag. No damage to a tag makes it this.
    const NONE: Tag = [0; Trailer::LEN];

    /// Packed.
    pub fn pack(&self) -> [u8; Trailer::LEN] {
        self.0.unwrap_or(Trailer::NONE)
    }

    /// Unpacked.
    pub fn unpack(bytes: [u8; Trailer::LEN]) -> Trailer {
        Trailer((bytes != Trailer::NONE).then_some(bytes))
    }
}
