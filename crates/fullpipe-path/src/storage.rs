//! The complete description of a measurement of storage.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What is done to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// A new file is written.
    Write,
    /// A file is read.
    Read,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Operation::Write => "write",
            Operation::Read => "read",
        })
    }
}

/// A measurement of storage: threads that read or write the blocks of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageRun {
    /// The folder of the file, an absolute path.
    pub folder: String,
    /// Whether the file is read or written.
    pub operation: Operation,
    /// Number of threads. Each takes the next block of the file.
    pub threads: u16,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Whether the file is read or written past the page cache.
    pub direct: bool,
    /// Bytes of the file.
    pub size_bytes: u64,
}

impl StorageRun {
    /// Returns a readable name for the run's record. Different descriptions have different names.
    pub fn id(&self) -> String {
        format!("{}-{}", self.name(), hash(self))
    }

    /// Returns such a name for a run under further conditions, with a seed.
    pub fn id_with(&self, conditions: &impl Serialize, seed: u64) -> String {
        format!("{}-s{seed}-{}", self.name(), hash(&(self, conditions, seed)))
    }

    fn name(&self) -> String {
        let how = if self.direct { "direct" } else { "cached" };
        format!("{}-t{}-b{}-{how}", self.operation, self.threads, binary(self.block_bytes))
    }
}

/// Ten digits that differ between different descriptions.
fn hash(description: &impl Serialize) -> String {
    let json = serde_json::to_vec(description).unwrap_or_default();
    Sha256::digest(&json).iter().take(5).map(|b| format!("{b:02x}")).collect()
}

/// Writes a size in binary units: `8MiB`, `1.5GiB`, `1000B`.
pub fn binary(bytes: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    // A quarter of a unit is the finest part that is written.
    let fits = |unit: &&(&str, u64)| bytes >= unit.1 && bytes.is_multiple_of(unit.1 / 4);
    match units.iter().find(fits) {
        Some((name, unit)) => format!("{}{name}", bytes as f64 / *unit as f64),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_tells_runs_apart() {
        let run = StorageRun {
            folder: "/scratch".into(),
            operation: Operation::Read,
            threads: 4,
            block_bytes: 8 << 20,
            direct: true,
            size_bytes: 1_000_000_000,
        };
        assert!(run.id().starts_with("read-t4-b8MiB-direct-"), "{}", run.id());
        let other = StorageRun { folder: "/other".into(), ..run.clone() };
        assert_ne!(run.id(), other.id());
        assert!(run.id_with(&"near", 7).starts_with("read-t4-b8MiB-direct-s7-"));
        assert_ne!(run.id_with(&"near", 1), run.id_with(&"far", 1));
    }

    #[test]
    fn binary_sizes() {
        let written: Vec<_> = [0, 1000, 4096, 128 << 20, 3 << 29, 1 << 40].map(binary).into();
        assert_eq!(written, ["0B", "1000B", "4KiB", "128MiB", "1.5GiB", "1024GiB"]);
    }
}
