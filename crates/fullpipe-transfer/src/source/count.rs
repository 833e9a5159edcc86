//! Counts the files of source trees, and lists them for a dry run.

use std::fs::File;
use std::time::{Duration, Instant};

use crate::error::{TransferError, unreadable};
use crate::fs::content_hash;
use crate::protocol::candidate::{Candidate, Kind};
use crate::protocol::message::Options;
use crate::protocol::skipped::{Skipped, SkippedEntry};
use crate::source::hard_links::{HardLinks, Known};
use crate::source::tree::{SourceTree, WalkOptions};
use crate::source::walk::{self, Found};

/// Interval between progress reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes of candidates after which a part of them is handed on, so that it fits a frame.
const MAX_PART_BYTES: usize = 64 << 10;

/// The totals of a walk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of regular files.
    pub files: u64,
    /// Total size of the regular files, in bytes.
    pub bytes: u64,
    /// The entries that cannot be sent.
    pub skipped: Skipped,
}

/// What a count tells while it walks.
pub(crate) enum Told<'a> {
    /// The next files and links.
    Candidates(Vec<Candidate>),
    /// The totals so far, once a second.
    Totals(&'a Count),
}

/// A count, as far as it has come.
struct Walk<'a> {
    count: Count,
    part: Vec<Candidate>,
    bytes: usize,
    told: Instant,
    tell: &'a mut dyn FnMut(Told<'_>) -> Result<(), TransferError>,
}

impl Walk<'_> {
    fn tick(&mut self) -> Result<(), TransferError> {
        if self.told.elapsed() < REPORT_INTERVAL {
            return Ok(());
        }
        self.told = Instant::now();
        (self.tell)(Told::Totals(&self.count))
    }

    fn add(&mut self, candidate: Candidate) -> Result<(), TransferError> {
        self.bytes += candidate.weight();
        self.part.push(candidate);
        if self.bytes < MAX_PART_BYTES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), TransferError> {
        self.bytes = 0;
        (self.tell)(Told::Candidates(std::mem::take(&mut self.part)))
    }

    /// Hashes a file's content; `None` if it cannot be read.
    fn hash(&mut self, file: &File) -> Result<Option<[u8; 32]>, TransferError> {
        let mut ticked = Ok(());
        let hash = content_hash::of(file, &mut |_| {
            if ticked.is_ok() {
                ticked = self.tick();
            }
        });
        ticked.map(|()| hash.ok())
    }
}

/// Counts the files in source trees, and calls `tell` with what it finds. If contents are compared, reads and hashes them.
///
/// # Errors
/// Those of `tell`.
pub(crate) fn count(
    places: &[SourceTree],
    options: &Options,
    tell: &mut dyn FnMut(Told<'_>) -> Result<(), TransferError>,
) -> Result<Count, TransferError> {
    let mut walked = Walk { count: Count::default(), part: Vec::new(), bytes: 0, told: Instant::now(), tell };
    let mut links = HardLinks::new(options.hard_links);
    for place in places {
        walk::walk(place, WalkOptions::from(options), &mut |found| {
            match found {
                Found::File { item, inode, at } => {
                    let file = match at.read() {
                        Ok(file) => file,
                        Err(e) => {
                            walked.count.skipped.add(SkippedEntry::new(item.name.bytes(), unreadable(&e)));
                            return walked.tick();
                        }
                    };
                    // The content of a hard link that is kept is not sent.
                    let is_sent = !matches!(links.find(inode, &item.name), Known::Under(_));
                    let bytes = if is_sent { item.size } else { 0 };
                    walked.count.files += 1;
                    walked.count.bytes = walked.count.bytes.saturating_add(bytes);
                    let content = if options.checksum { walked.hash(&file)? } else { None };
                    let kind = Kind::File { size: item.size, mtime: item.meta.mtime, content };
                    walked.add(Candidate { name: item.name, bytes, kind })?;
                }
                Found::Link { name, target, .. } => {
                    walked.add(Candidate { name, bytes: 0, kind: Kind::Link { target } })?;
                }
                Found::Skipped(entry) => walked.count.skipped.add(entry),
                Found::Folder { .. } | Found::Omitted(_) | Found::Attribute(..) => {}
            }
            walked.tick()
        })?;
    }
    if !walked.part.is_empty() {
        walked.flush()?;
    }
    Ok(walked.count)
}
