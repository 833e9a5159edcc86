//! The properties of a file that travel besides its content.

use std::fmt;

use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::protocol::name::{Name, number};

/// A file's metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Permission bits.
    pub mode: u32,
    /// Owner (uid).
    pub uid: u32,
    /// Group (gid).
    pub gid: u32,
    /// Last change of the content (mtime) as Unix time: seconds, and nanoseconds within the second.
    pub mtime: (i64, u32),
    /// Names and values of extended attributes. Empty if the user did not ask for them.
    #[serde(deserialize_with = "few_xattrs")]
    pub xattrs: Xattrs,
}

/// Names and values of extended attributes.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Most extended attributes of a file. The kernel lists names of 64 KiB in all (XATTR_LIST_MAX, include/uapi/linux/limits.h), and
/// none is shorter than four bytes with its end.
const MAX_XATTRS: usize = 16_384;

/// Reads extended attributes. Empty ones take little of a message and much memory.
fn few_xattrs<'de, D: Deserializer<'de>>(from: D) -> Result<Xattrs, D::Error> {
    struct Few;
    impl<'de> Visitor<'de> for Few {
        type Value = Xattrs;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {MAX_XATTRS} extended attributes")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(one) = from.next_element()? {
                if all.len() == MAX_XATTRS {
                    return Err(de::Error::invalid_length(all.len() + 1, &self));
                }
                all.push(one);
            }
            Ok(all)
        }
    }
    from.deserialize_seq(Few)
}

/// A regular file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileItem {
    /// The file's name below the root.
    pub name: Name,
    /// Size in bytes; [`FileItem::UNKNOWN_SIZE`] for what comes from standard input.
    pub size: u64,
    /// Whether the source file has holes. Then the receiver must not allocate its full size.
    pub sparse: bool,
    /// Last change of the source's inode (ctime). Unlike size and mtime, a user cannot set it after changing the content.
    pub changed: (i64, u32),
    /// Hash of the content (BLAKE3), if the receiver is to compare it with what it has.
    pub content: Option<[u8; 32]>,
    /// The other metadata.
    pub meta: Meta,
}

impl FileItem {
    /// The size of a file whose end nobody knows before it is read. Such a file has no owner, permissions and times of its own
    /// either: at the destination it gets those of a new file.
    pub const UNKNOWN_SIZE: u64 = u64::MAX;

    /// Whether the size is known before the file has been read.
    pub fn has_size(&self) -> bool {
        self.size != FileItem::UNKNOWN_SIZE
    }

    /// A number that identifies this version of the file. Blocks of an older version cannot be used.
    pub fn key(&self) -> u64 {
        file_key(&self.name, self.size, self.meta.mtime, self.changed)
    }

    /// Approximate size of this item in a frame, in bytes.
    pub fn weight(&self) -> usize {
        let xattrs = self.meta.xattrs.iter().map(|(name, value)| name.len() + value.len() + 8);
        64 + self.name.bytes().len() + xattrs.sum::<usize>()
    }

    /// Most extended attributes of files that are sent in one message of up to `bytes`, by [`FileItem::weight`], and a last file.
    pub fn most_xattrs(bytes: usize) -> usize {
        bytes / 8 + MAX_XATTRS
    }
}

/// A number that identifies the version of a file: its size, in bytes, and its mtime and ctime.
pub fn file_key(name: &Name, size: u64, mtime: (i64, u32), changed: (i64, u32)) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&size.to_le_bytes());
    for (seconds, nanoseconds) in [mtime, changed] {
        hasher.update(&seconds.to_le_bytes()).update(&nanoseconds.to_le_bytes());
    }
    hasher.update(name.bytes());
    number(&hasher.finalize())
}

/// A number that identifies the version of a symbolic link, by its target and the time of its last change.
pub fn link_key(name: &Name, target: &[u8], (seconds, nanos): (i64, u32)) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"link").update(&seconds.to_le_bytes()).update(&nanos.to_le_bytes());
    hasher.update(&(target.len() as u64).to_le_bytes()).update(target).update(name.bytes());
    number(&hasher.finalize())
}

/// A range of bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Extent {
    /// Offset of the first byte after the range. `None` if it exceeds 64 bits.
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
        let file = FileItem {
            name: Name::try_from(b"a".to_vec()).unwrap(),
            size: 1,
            sparse: false,
            changed: (1, 1),
            content: None,
            meta,
        };
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
