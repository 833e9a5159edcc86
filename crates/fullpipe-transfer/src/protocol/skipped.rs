//! The entries of a tree that a transfer skipped, and why.

use fullpipe_path::text;
use serde::{Deserialize, Serialize};

use crate::protocol::name::printable;

/// Maximum number of skipped entries that a message names, so that the message fits into a frame.
const MAX_NAMED_ENTRIES: usize = 1000;
/// Maximum total length of the names and reasons in a message, in bytes, so that the message fits into a frame.
const MAX_NAMED_BYTES: usize = 1 << 20;

/// A file, folder or other entry that was not transferred.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedEntry {
    /// The entry's name.
    pub name: Vec<u8>,
    /// The reason, for a person to read.
    pub why: String,
    /// Whether the same command can never transfer the entry, as with a FIFO, a socket or a device.
    pub for_good: bool,
}

impl SkippedEntry {
    /// An entry that the same command may transfer next time.
    pub fn new(name: impl Into<Vec<u8>>, why: impl std::fmt::Display) -> SkippedEntry {
        SkippedEntry { name: name.into(), why: why.to_string(), for_good: false }
    }

    /// An entry that the same command can never transfer.
    pub fn for_good(name: impl Into<Vec<u8>>, why: impl std::fmt::Display) -> SkippedEntry {
        SkippedEntry { for_good: true, ..SkippedEntry::new(name, why) }
    }
}

impl std::fmt::Display for SkippedEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The name and the reason may come from another host.
        write!(f, "{}: {}", printable(&self.name), text::from_peer(&self.why))
    }
}

/// All skipped entries, in bounded memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Skipped {
    /// The first skipped entries.
    pub named: Vec<SkippedEntry>,
    /// Number of all skipped entries.
    pub total: u64,
    /// Number of skipped entries that the same command can never transfer.
    pub for_good: u64,
    /// Total length of the names and reasons in `named`, in bytes.
    #[serde(skip)]
    bytes: usize,
}

impl Skipped {
    /// Adds a skipped entry.
    pub fn add(&mut self, entry: SkippedEntry) {
        self.total = self.total.saturating_add(1);
        self.for_good = self.for_good.saturating_add(u64::from(entry.for_good));
        let bytes = self.bytes + entry.name.len() + entry.why.len();
        if self.named.len() < MAX_NAMED_ENTRIES && bytes <= MAX_NAMED_BYTES {
            self.bytes = bytes;
            self.named.push(entry);
        }
    }

    /// Adds the entries of the other end, which names no more of them than fit.
    pub fn merge(&mut self, other: Skipped) {
        let unnamed = |total: u64, named: usize| total.saturating_sub(named as u64);
        let for_good = other.named.iter().filter(|entry| entry.for_good).count();
        self.total = self.total.saturating_add(unnamed(other.total, other.named.len()));
        self.for_good = self.for_good.saturating_add(unnamed(other.for_good, for_good));
        other.named.into_iter().for_each(|entry| self.add(entry));
    }

    /// Combines the skipped entries of both ends.
    #[must_use]
    pub fn with(mut self, other: &Skipped) -> Skipped {
        self.named.extend_from_slice(&other.named);
        self.total = self.total.saturating_add(other.total);
        self.for_good = self.for_good.saturating_add(other.for_good);
        self
    }

    /// Number of skipped entries that the same command may copy once the cause is fixed.
    pub fn to_do(&self) -> u64 {
        self.total.saturating_sub(self.for_good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line() {
        let entry = SkippedEntry::new("a\n", "gone\n2026-11-22T10:59:16Z 192.0.2.1: 5 files copied");
        assert!(!entry.to_string().contains('\n'), "{entry}");
    }
}
