//! What could not be kept of files and folders that were copied. Each kind is counted, and told once.

use serde::{Deserialize, Serialize};

use crate::protocol::skipped::{Skipped, SkippedEntry};

/// What the two ends could not keep.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NotKept {
    /// Entries whose owner could not be set, although the receiver is root.
    pub owner: Entries,
    /// Entries whose setuid, setgid or sticky bits could not be set, although they were to be kept.
    pub special: Entries,
    /// Entries whose extended attributes were lost because the destination's file system has none.
    pub attributes: Entries,
    /// Entries whose access control lists were lost because the destination's file system has none.
    pub access_lists: Entries,
    /// Files that could not be laid out on Lustre as the user asked.
    pub stripes: Entries,
    /// Files that were copied although another of their names was, too: the hard link is lost.
    pub hard_links: Entries,
    /// Total size of these files, in bytes.
    pub hard_link_bytes: u64,
    /// Single extended attributes that were refused, each with its file.
    pub refused: Skipped,
}

/// Entries that lack the same property.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Entries {
    /// Number of entries.
    pub total: u64,
    /// Name of the first one.
    pub first: Vec<u8>,
    /// The reason for the first one, for a person to read.
    pub why: String,
}

impl Entries {
    /// Counts one entry.
    pub fn add(&mut self, name: &[u8], why: impl std::fmt::Display) {
        if self.total == 0 {
            (self.first, self.why) = (name.to_vec(), why.to_string());
        }
        self.total = self.total.saturating_add(1);
    }

    fn merge(&mut self, other: Entries) {
        let total = self.total.saturating_add(other.total);
        if self.total == 0 {
            *self = other;
        }
        self.total = total;
    }
}

impl NotKept {
    /// Adds an extended attribute of a file that was refused.
    pub fn refuse(&mut self, name: &[u8], why: impl std::fmt::Display) {
        self.refused.add(SkippedEntry::for_good(name, why));
    }

    /// Adds what the other end could not keep.
    pub fn merge(&mut self, other: NotKept) {
        self.owner.merge(other.owner);
        self.special.merge(other.special);
        self.attributes.merge(other.attributes);
        self.access_lists.merge(other.access_lists);
        self.stripes.merge(other.stripes);
        self.hard_links.merge(other.hard_links);
        self.hard_link_bytes = self.hard_link_bytes.saturating_add(other.hard_link_bytes);
        self.refused.merge(other.refused);
    }

    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        *self == NotKept::default()
    }

    /// Number of entries that lack something that the user asked for. Owners are not asked for, since root keeps them by
    /// itself; of setuid, setgid and sticky bits the user is told, as only their owner may set them; and hard links that were to be kept are skipped instead.
    pub fn asked_for(&self) -> u64 {
        self.attributes.total.saturating_add(self.access_lists.total).saturating_add(self.refused.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_counted_and_the_first_entry_is_named() {
        let (mut one, mut other) = (NotKept::default(), NotKept::default());
        other.owner.add(b"a", "not permitted");
        other.owner.add(b"b", "not supported");
        other.refuse(b"c", "too large");
        assert!(one.is_empty());
        one.merge(other.clone());
        assert_eq!(one, other);
        one.merge(other);
        let Entries { total, first, why } = &one.owner;
        assert_eq!((*total, &first[..], &why[..]), (4, &b"a"[..], "not permitted"));
        assert_eq!((one.asked_for(), one.refused.named.len()), (2, 2));
    }
}
