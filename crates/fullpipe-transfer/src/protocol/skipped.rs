//! What of a tree was not transferred.

use fullpipe_path::text;
use serde::{Deserialize, Serialize};

use crate::protocol::name::printable;

/// Names in a message, at most, and bytes of them with what is said of each: they have to fit a frame.
const NAMED: usize = 1000;
const NAMED_BYTES: usize = 1 << 20;

/// Something that was not transferred.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// Why, for a person.
    pub why: String,
    /// The same command never will: a FIFO, a socket, a device.
    pub for_good: bool,
}

impl SkippedEntry {
    /// What may go better the next time.
    pub fn new(name: impl Into<Vec<u8>>, why: impl std::fmt::Display) -> SkippedEntry {
        SkippedEntry { name: name.into(), why: why.to_string(), for_good: false }
    }

    /// What the same command never transfers.
    pub fn for_good(name: impl Into<Vec<u8>>, why: impl std::fmt::Display) -> SkippedEntry {
        SkippedEntry { for_good: true, ..SkippedEntry::new(name, why) }
    }
}

impl std::fmt::Display for SkippedEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // It may come from another host.
        write!(f, "{}: {}", printable(&self.name), text::from_peer(&self.why))
    }
}

/// All of it, in bounded memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Skipped {
    /// The first of it.
    pub named: Vec<SkippedEntry>,
    /// How much there is.
    pub total: u64,
    /// How much of it is left for good.
    pub for_good: u64,
    /// Bytes of the names, and of what is said of them.
    #[serde(skip)]
    bytes: usize,
}

impl Skipped {
    /// One thing more.
    pub fn add(&mut self, entry: SkippedEntry) {
        self.total += 1;
        self.for_good += u64::from(entry.for_good);
        let bytes = self.bytes + entry.name.len() + entry.why.len();
        if self.named.len() < NAMED && bytes <= NAMED_BYTES {
            self.bytes = bytes;
            self.named.push(entry);
        }
    }

    /// What both ends have left.
    #[must_use]
    pub fn with(mut self, other: &Skipped) -> Skipped {
        self.named.extend_from_slice(&other.named);
        self.total = self.total.saturating_add(other.total);
        self.for_good = self.for_good.saturating_add(other.for_good);
        self
    }

    /// How much the same command may copy once its cause is mended.
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
