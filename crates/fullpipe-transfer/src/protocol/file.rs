//! What is known of a file besides its content.

use serde::{Deserialize, Serialize};

use crate::protocol::name::{Name, number};

/// What a file is besides its name and content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of the content: seconds and nanoseconds since 1970.
    pub mtime: (i64, u32),
    /// Extended attributes, where they were asked for.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A regular file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileItem {
    /// Below the root.
    pub name: Name,
    /// Bytes.
    pub size: u64,
    /// It occupies less at its source: room for all of it must not be asked for.
    pub sparse: bool,
    /// Last change of the inode at its source (ctime): other content may be given the same size and times, not this.
    pub changed: (i64, u32),
    /// The rest.
    pub meta: Meta,
}

impl FileItem {
    /// A number that tells versions of files apart: blocks of a file that has changed since are worth nothing.
    pub fn key(&self) -> u64 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.size.to_le_bytes());
        for (seconds, nanoseconds) in [self.meta.mtime, self.changed] {
            hasher.update(&seconds.to_le_bytes()).update(&nanoseconds.to_le_bytes());
        }
        hasher.update(self.name.bytes());
        number(&hasher.finalize())
    }

    /// About how many bytes this takes in a frame.
    pub fn weight(&self) -> usize {
        let xattrs = self.meta.xattrs.iter().map(|(name, value)| name.len() + value.len() + 8);
        64 + self.name.bytes().len() + xattrs.sum::<usize>()
    }
}

/// Bytes of a file, from `offset` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// How many.
    pub len: u64,
}

impl Extent {
    /// The first byte after it, if there can be one.
    pub fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let meta = Meta { mode: 0o644, uid: 0, gid: 0, mtime: (1, 1), xattrs: vec![] };
        let file =
            FileItem { name: Name::try_from(b"a".to_vec()).unwrap(), size: 1, sparse: false, changed: (1, 1), meta };
        let longer = FileItem { size: 2, ..file.clone() };
        let later = FileItem { meta: Meta { mtime: (1, 2), ..file.meta.clone() }, ..file.clone() };
        let open = FileItem { meta: Meta { mode: 0o600, ..file.meta.clone() }, ..file.clone() };
        let other = FileItem { changed: (1, 2), ..file.clone() };
        for changed in [longer, later, other] {
            assert!(file.key() != changed.key());
        }
        assert_eq!(file.key(), open.key());
    }
}
