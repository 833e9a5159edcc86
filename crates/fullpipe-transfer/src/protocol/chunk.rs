//! Chunks, the units that data streams carry.

use serde::{Deserialize, Serialize};

use crate::protocol::digest::{self, Tag};
use crate::protocol::file::{Extent, FileItem};

/// Maximum number of files in one pack.
pub const PACK_FILES: usize = 4096;

/// Header of a chunk, sent in a frame. The chunk's data follow, if it has any, then a [`Trailer`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Chunk {
    /// A range of bytes of a large file.
    Block {
        /// The file's number in this transfer.
        id: u64,
        /// The file's name, size and metadata. Every block has them, so that no stream waits for another.
        file: FileItem,
        /// The range of bytes.
        extent: Extent,
        /// Whether the range contains only zeros. Then no data follow.
        hole: bool,
    },
    /// Small files. Their complete contents follow, one after the other.
    Pack(Vec<FileItem>),
    /// The end of the stream.
    End,
}

impl Chunk {
    /// Number of data bytes that follow the header. `None` if the number exceeds 64 bits.
    pub fn data_len(&self) -> Option<u64> {
        match self {
            Chunk::Block { hole: true, .. } | Chunk::End => Some(0),
            Chunk::Block { extent, .. } => Some(extent.len),
            Chunk::Pack(files) => files.iter().try_fold(0u64, |sum, file| sum.checked_add(file.size)),
        }
    }
}

/// The end of a chunk, with the chunk's tag ([`digest::Tagger`]). It has no tag if the sender could not read all of the
/// data. Then the data are padding, and the sender reports the cause on the control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer(pub Option<Tag>);

impl Trailer {
    /// Length of a trailer, in bytes.
    pub const LEN: usize = digest::LEN;
    /// The bytes that stand for a missing tag.
    const NONE: Tag = [0; Trailer::LEN];

    /// Returns the trailer's bytes on the wire.
    pub fn pack(&self) -> [u8; Trailer::LEN] {
        self.0.unwrap_or(Trailer::NONE)
    }

    /// Reads a trailer from its bytes on the wire.
    pub fn unpack(bytes: [u8; Trailer::LEN]) -> Trailer {
        Trailer((bytes != Trailer::NONE).then_some(bytes))
    }
}
