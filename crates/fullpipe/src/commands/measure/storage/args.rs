//! The flags of a measurement of storage.

use std::path::PathBuf;

use fullpipe_path::{DirectIo, DiskAccess, Size};

use crate::failure::{Failure, Result};
use crate::run_record;

/// Most threads.
pub(super) const MAX_THREADS: u64 = 64;
/// Blocks may have these sizes, and must be multiples of the smaller: direct I/O needs whole sectors.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 4096..=1 << 30;
/// Size of the file without `--size`.
pub const DEFAULT_SIZE: Size = Size(1_000_000_000);
/// Size of a block without `--block`.
pub const DEFAULT_BLOCK: Size = Size(8 << 20);

/// The flags that only storage has.
#[derive(clap::Args)]
pub struct StorageArgs {
    /// Only read; the file is written first and dropped from the page cache [default: write, then read]
    #[arg(long, conflicts_with = "write", help_heading = HEADING)]
    pub read: bool,
    /// Only write
    #[arg(long, help_heading = HEADING)]
    pub write: bool,
    /// Read or write with this many threads, 1 to 64: a number, a list (1,4,16), or a range of doubles (1-16) [default: 1]
    #[arg(long, value_name = "LIST", value_parser = threads, help_heading = HEADING)]
    pub threads: Option<List>,
    /// Give each thread blocks of this size in turn, 4KiB to 1GiB: a size, a list, or a range (1MiB-128MiB); between the disks of a
    /// path, give each stream such blocks, one size from 64KiB to 64MiB [default: 8MiB]
    #[arg(long, value_name = "LIST", value_parser = blocks, help_heading = HEADING)]
    pub block: Option<List>,
    /// Bypass the page cache (on), use it (off), measure both (on,off), or do as cp does (auto) [default: auto]
    #[arg(long, value_name = "on|off|auto", value_parser = direct, help_heading = HEADING)]
    pub direct: Option<DirectList>,
}

/// The flags that have a meaning for storage, too.
pub struct Common {
    /// Size of the file.
    pub size: Option<Size>,
    /// Where the records go.
    pub out: Option<PathBuf>,
    /// Whether the records are printed.
    pub json: bool,
    /// Whether only errors are printed.
    pub quiet: bool,
}

impl Common {
    /// Checks that the records of so many runs can go where they are to go.
    ///
    /// # Errors
    /// It is a file, which holds one run, or cannot be written to.
    pub fn check_out(&self, runs: u64) -> Result {
        let Some(out) = &self.out else { return Ok(()) };
        if run_record::is_file(out) && runs > 1 {
            let why = format!("{} can hold one run, and these are {runs}; give --out a folder", out.display());
            return Err(Failure::usage(why));
        }
        run_record::check_target(out)
    }
}

/// Heading of these flags in the help text.
const HEADING: &str = "Storage (disk:FOLDER, mount:FOLDER, or a path with mount, or with disk_a and disk_b)";

/// Values of which each is measured.
#[derive(Clone)]
pub struct List(pub Vec<u64>);

/// Whether the page cache is bypassed: each of these is measured.
#[derive(Clone)]
pub struct DirectList(pub Vec<DirectIo>);

impl StorageArgs {
    /// The first of these flags that was given.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [
            (self.read, "--read"),
            (self.write, "--write"),
            (self.threads.is_some(), "--threads"),
            (self.block.is_some(), "--block"),
            (self.direct.is_some(), "--direct"),
        ];
        flags.into_iter().find_map(|(given, flag)| given.then_some(flag))
    }

    /// How these flags want files on emulated disks to be read and written.
    ///
    /// # Errors
    /// A flag has several values, or none for such a run.
    pub fn disk_access(&self) -> Result<DiskAccess> {
        let given = [(self.read, "--read"), (self.write, "--write"), (self.threads.is_some(), "--threads")];
        if let Some((_, flag)) = given.iter().find(|(given, _)| *given) {
            let why = format!(
                "{flag} is for disk:FOLDER, mount:FOLDER, and a path with mount; between the disks of a path, each of --streams has a thread at both ends"
            );
            return Err(Failure::usage(why));
        }
        let one = |flag: &str| Failure::usage(format!("{flag}: give one value for a run between the disks of a path"));
        let block = match self.block.as_ref().map(|list| &list.0[..]) {
            None => DEFAULT_BLOCK,
            Some([bytes]) => Size(*bytes),
            Some(_) => return Err(one("--block")),
        };
        let direct = match self.direct.as_ref().map(|list| &list.0[..]) {
            None => DirectIo::Auto,
            Some([one]) => *one,
            Some(_) => return Err(one("--direct")),
        };
        Ok(DiskAccess { block, direct })
    }
}

fn threads(text: &str) -> Result<List, String> {
    let parse = |one: &str| match one.parse() {
        Ok(n) if (1..=MAX_THREADS).contains(&n) => Ok(n),
        _ => Err(format!("'{one}' is no number of threads from 1 to {MAX_THREADS}")),
    };
    list(text, parse)
}

fn blocks(text: &str) -> Result<List, String> {
    let parse = |one: &str| {
        let size: Size = one.parse().map_err(|e| format!("{e}"))?;
        if !BLOCK_BYTES.contains(&size.0) || !size.0.is_multiple_of(*BLOCK_BYTES.start()) {
            return Err(format!("'{one}' is not a multiple of 4KiB from 4KiB to 1GiB, such as 8MiB"));
        }
        Ok(size.0)
    };
    list(text, parse)
}

/// Reads numbers with commas between them, and ranges: `2-16` is 2, 4, 8, 16, and `2-12` is 2, 4, 8, 12.
fn list(text: &str, parse: impl Fn(&str) -> Result<u64, String>) -> Result<List, String> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (parse(first)?, parse(last)?);
        if first > last {
            return Err(format!("'{part}' ends before it begins; write the smaller first"));
        }
        let doubles = std::iter::successors(Some(first), |n| n.checked_mul(2)).take_while(|n| *n < last);
        all.extend(doubles.chain([last]));
    }
    let mut seen = std::collections::HashSet::new();
    all.retain(|n| seen.insert(*n));
    Ok(List(all))
}

fn direct(text: &str) -> Result<DirectList, String> {
    let one = |word: &str| word.parse().map_err(|_| "give on, off, auto, or on,off".to_owned());
    text.split(',').map(one).collect::<Result<_, _>>().map(DirectList)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges() {
        let ok = |text| threads(text).ok().map(|list| list.0);
        assert_eq!(ok("4"), Some(vec![4]));
        assert_eq!(ok("1,4,16"), Some(vec![1, 4, 16]));
        assert_eq!(ok("1-16"), Some(vec![1, 2, 4, 8, 16]));
        assert_eq!(ok("3-20,1,6"), Some(vec![3, 6, 12, 20, 1]));
        for bad in ["", "0", "65", "1-", "-1", "16-1", "x", "1,,2"] {
            assert_eq!(ok(bad), None, "{bad}");
        }
        assert_eq!(blocks("1MiB-4MiB").ok().map(|list| list.0), Some(vec![1 << 20, 2 << 20, 4 << 20]));
        for bad in ["1000", "1MB", "2GiB", "1KiB"] {
            assert!(blocks(bad).is_err(), "{bad}");
        }
    }
}
