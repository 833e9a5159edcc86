//! The large files that a receiver is writing, and what is known of those whose blocks have not come yet.
//!
//! [`LargeFiles`] owns the maps and their lock. It opens nothing, writes nothing and sends nothing: a file that is being
//! opened has an entry of its own, [`Slot::Opening`], so that no lock is held meanwhile.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::journal::Block;
use super::ranges::ByteRanges;
use crate::fs::huge_pages;
use crate::fs::large_file::TargetFile;
use crate::protocol::file::{Extent, FileItem};
use crate::protocol::message::Reading;
use crate::protocol::name::Name;
use crate::threads::lock;

/// Most large files that are open at once, and most files that the sender ended before their first block. A sender has
/// fewer.
const MAX_LARGE_FILES: usize = 256;

/// A large file that is being written.
pub(super) struct LargeFile {
    /// What the sender announced.
    pub(super) item: FileItem,
    /// The file's final name at the destination.
    pub(super) name: Name,
    /// [`FileItem::key`] of `item`.
    pub(super) key: u64,
    /// The folder of the final name and of the partial file.
    pub(super) folder: OwnedFd,
    /// Name of the partial file in `folder`.
    pub(super) partial: PathBuf,
    /// The partial file.
    pub(super) target: TargetFile,
    /// Whether an earlier attempt has written to the partial file.
    pub(super) kept: bool,
    /// Guards how much of the file has arrived. It is held for a few statements only, never across a system call.
    pub(super) state: Mutex<LargeState>,
}

/// How much of a large file has arrived.
#[derive(Default)]
pub(super) struct LargeState {
    /// Bytes whose block was announced, or which were there before.
    pub(super) claims: ByteRanges,
    /// Bytes that are written and verified, holes included.
    pub(super) covered: u64,
    /// All good blocks; collected only with `--verify`.
    pub(super) blocks: Vec<Block>,
    /// Bytes that this attempt received, good or bad.
    pub(super) received: u64,
    /// How the sender read the file, once the sender has said so.
    pub(super) ended: Option<Reading>,
    /// Whether a block did not match its digest, or had none. That is no damage if the sender could not read the block
    /// or the source changed meanwhile: pages of the cache that are sent without a copy change on their way. So the
    /// receiver judges it only when the sender has ended the file.
    pub(super) damaged: bool,
    /// Whether the file has its name, or was given up.
    pub(super) over: bool,
}

/// What is left to do when a large file may be complete.
pub(super) struct Ending {
    /// How the sender read the file.
    pub(super) reading: Reading,
    /// Bytes that are written and verified.
    pub(super) covered: u64,
}

/// A block was damaged on the way although the sender read its file without an error.
pub(super) struct DamagedBlock;

impl LargeFile {
    /// The file's size, bytes: the one that was announced, or else the one that the sender has told at the end.
    pub(super) fn size(&self) -> u64 {
        match self.ended() {
            Some(Reading::Ended { size }) => size,
            _ => self.item.size,
        }
    }

    /// Checks that the partial file has its full size: a program that truncates it removes what was written. As long as the
    /// size is not known, there is nothing to check.
    pub(super) fn check_size(&self, size: u64) -> io::Result<()> {
        if size == FileItem::UNKNOWN_SIZE || self.target.file().metadata()?.len() == size {
            Ok(())
        } else {
            Err(huge_pages::short())
        }
    }

    /// Counts a block that does not match its digest.
    pub(super) fn add_damaged(&self, extent: Extent) {
        let mut state = lock(&self.state);
        state.damaged = true;
        state.received += extent.len;
    }

    /// Whether the file has its name, or was given up.
    pub(super) fn is_over(&self) -> bool {
        lock(&self.state).over
    }

    /// Counts a block that is written and in the journal. Returns whether the file was over before that.
    pub(super) fn add_block(&self, extent: Extent, kept: Option<Block>) -> bool {
        let mut state = lock(&self.state);
        if !state.over {
            state.blocks.extend(kept);
            state.covered += extent.len;
            state.received += extent.len;
        }
        state.over
    }

    /// Marks the file as over if nothing more of it is to come, and returns what is left to do then.
    ///
    /// # Errors
    /// A block is damaged.
    pub(super) fn end_if_complete(&self) -> Result<Option<Ending>, DamagedBlock> {
        let mut state = lock(&self.state);
        let Some(reading) = state.ended else { return Ok(None) };
        if state.damaged && reading.is_whole() {
            return Err(DamagedBlock);
        }
        if self.item.has_size() == matches!(reading, Reading::Ended { .. }) && reading.is_whole() {
            // No sender tells a size twice, or never.
            return Err(DamagedBlock);
        }
        // The control connection may be faster than the streams.
        let more = match reading {
            Reading::Whole => state.covered < self.item.size,
            Reading::Ended { size } if state.covered >= size && !state.claims.are_first(size) => {
                return Err(DamagedBlock);
            }
            Reading::Ended { size } => state.covered < size,
            Reading::Partly { sent } => state.received < sent,
            Reading::Changed => false,
        };
        if state.over || more {
            return Ok(None);
        }
        state.over = true;
        Ok(Some(Ending { reading, covered: state.covered }))
    }

    /// Marks the file as over. Returns whether it was over before.
    pub(super) fn end(&self) -> bool {
        std::mem::replace(&mut lock(&self.state).over, true)
    }

    /// How the sender read the file, if the sender has said so.
    pub(super) fn ended(&self) -> Option<Reading> {
        lock(&self.state).ended
    }

    /// The good blocks, which this forgets.
    pub(super) fn take_blocks(&self) -> Vec<Block> {
        std::mem::take(&mut lock(&self.state).blocks)
    }
}

/// The entry of one large file.
enum Slot {
    /// A stream is opening it; the name is what the sender calls it.
    Opening(Name),
    /// It is being written.
    Open(Arc<LargeFile>),
}

#[derive(Default)]
struct Table {
    slots: HashMap<u64, Slot>,
    /// Files that were given up. Blocks of them that are still on their way are dropped.
    given_up: HashSet<u64>,
    /// How the sender read files of which no block has come yet: the control connection may be faster.
    early: HashMap<u64, Reading>,
}

impl Table {
    fn give_up(&mut self, id: u64) {
        self.slots.remove(&id);
        self.given_up.insert(id);
    }
}

/// All large files of a transfer, by the sender's number.
#[derive(Default)]
pub(super) struct LargeFiles {
    /// Guards all entries. It is held for a few statements only, never across a system call. [`LargeFile::state`] may be
    /// taken while it is held.
    table: Mutex<Table>,
    /// Wakes those who wait until a file is no longer [`Slot::Opening`].
    opened: Condvar,
    /// Guards the blocks of earlier attempts that are still good, by [`FileItem::key`]. It is held alone.
    kept: Mutex<HashMap<u64, Vec<Extent>>>,
}

/// What a stream is to do with the first or a further block of a file.
pub(super) enum Lookup {
    /// Open the file, and tell [`LargeFiles::opened`] or [`LargeFiles::not_opened`].
    MustOpen,
    /// Nothing: two files of this name would be mixed. Tell [`LargeFiles::not_opened`].
    NameInUse,
    /// Write the block to this file, or drop it if the file was given up.
    Found(Option<Arc<LargeFile>>),
}

/// The sender keeps more files open, or ends more of them early, than it may.
pub(super) struct TooMany;

impl LargeFiles {
    /// Decides about a block of a file. Waits while another stream opens the file.
    ///
    /// # Errors
    /// Too many files are open.
    pub(super) fn lookup(&self, id: u64, item: &FileItem) -> Result<Lookup, TooMany> {
        let mut table = lock(&self.table);
        loop {
            match table.slots.get(&id) {
                None if table.given_up.contains(&id) => return Ok(Lookup::Found(None)),
                None => break,
                Some(Slot::Open(file)) => return Ok(Lookup::Found(Some(file.clone()))),
                Some(Slot::Opening(_)) => table = self.opened.wait(table).unwrap_or_else(PoisonError::into_inner),
            }
        }
        let in_use = |slot: &Slot| match slot {
            Slot::Opening(name) => *name == item.name,
            Slot::Open(file) => file.item.name == item.name,
        };
        if table.slots.len() > MAX_LARGE_FILES {
            return Err(TooMany);
        }
        // Blocks of a file that the sender has given up already are dropped; the sender knows.
        if table.early.get(&id).copied().is_some_and(Reading::is_useless) {
            table.early.remove(&id);
            table.given_up.insert(id);
            return Ok(Lookup::Found(None));
        }
        let is_in_use = table.slots.values().any(in_use);
        table.slots.insert(id, Slot::Opening(item.name.clone()));
        Ok(if is_in_use { Lookup::NameInUse } else { Lookup::MustOpen })
    }

    /// Ends [`Slot::Opening`] with an open file.
    pub(super) fn opened(&self, id: u64, mut file: LargeFile) -> Arc<LargeFile> {
        let mut table = lock(&self.table);
        file.state.get_mut().unwrap_or_else(PoisonError::into_inner).ended = table.early.remove(&id);
        let file = Arc::new(file);
        table.slots.insert(id, Slot::Open(file.clone()));
        self.opened.notify_all();
        file
    }

    /// Ends [`Slot::Opening`] without a file. Returns whether the sender has ended the file already.
    pub(super) fn not_opened(&self, id: u64) -> bool {
        let mut table = lock(&self.table);
        table.give_up(id);
        self.opened.notify_all();
        table.early.remove(&id).is_some()
    }

    /// Takes in how the sender read a file. Waits while a stream opens the file.
    ///
    /// # Errors
    /// The sender has ended too many files of which no block has come.
    pub(super) fn end(&self, id: u64, reading: Reading) -> Result<Ended, TooMany> {
        let mut table = lock(&self.table);
        loop {
            match table.slots.get(&id) {
                Some(Slot::Opening(_)) => table = self.opened.wait(table).unwrap_or_else(PoisonError::into_inner),
                Some(Slot::Open(file)) => {
                    // With the table's lock: whoever gives the file up reads this after it has changed the entry.
                    lock(&file.state).ended = Some(reading);
                    return Ok(Ended::Open(file.clone()));
                }
                None if table.given_up.contains(&id) => return Ok(Ended::GivenUp),
                None => {
                    if table.early.len() > MAX_LARGE_FILES {
                        return Err(TooMany);
                    }
                    table.early.insert(id, reading);
                    return Ok(Ended::Early);
                }
            }
        }
    }

    /// Gives a file up: blocks that are still on their way are dropped.
    pub(super) fn give_up(&self, id: u64) {
        lock(&self.table).give_up(id);
    }

    /// Forgets a file that has its name.
    pub(super) fn remove(&self, id: u64) {
        lock(&self.table).slots.remove(&id);
    }

    /// Whether a file is being written.
    pub(super) fn any_open(&self) -> bool {
        !lock(&self.table).slots.is_empty()
    }

    /// Keeps the extents of a file that an earlier attempt wrote and that are still good.
    pub(super) fn keep(&self, key: u64, extents: Vec<Extent>) {
        lock(&self.kept).insert(key, extents);
    }

    /// The extents of a file that an earlier attempt wrote, which this forgets.
    pub(super) fn take_kept(&self, key: u64) -> Option<Vec<Extent>> {
        lock(&self.kept).remove(&key)
    }
}

/// What [`LargeFiles::end`] found the file to be.
pub(super) enum Ended {
    /// The file is being written; it may be complete now.
    Open(Arc<LargeFile>),
    /// The file was given up.
    GivenUp,
    /// No block of the file has come yet.
    Early,
}
