//! Large files: blocks in any order, and a name when all are there.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use nix::fcntl::FallocateFlags;

use super::ranges::Claims;
use super::{MOST_LARGE, Receiver};
use crate::connection::session::lock;
use crate::error::{TransferError, local};
use crate::fs::direct_io;
use crate::fs::huge_pages;
use crate::fs::metadata;
use crate::fs::ownership;
use crate::protocol::digest::Digest;
use crate::protocol::file::{self, Extent, FileItem, Name};
use crate::protocol::message::{Message, Reading};
use crate::receive::journal::{Block, Record};
use crate::telemetry::counters::timed;

/// A large file that is being written.
pub(super) struct Large {
    pub(super) item: FileItem,
    pub(super) name: Name,
    pub(super) key: u64,
    pub(super) folder: OwnedFd,
    pub(super) partial: PathBuf,
    pub(super) file: File,
    /// The same, past the cache.
    pub(super) direct: Option<File>,
    /// It is in memory, and so many huge pages of it are yet to be refused before no more are asked for.
    pub(super) huge: AtomicU32,
    /// An earlier attempt has written to it.
    pub(super) kept: bool,
    pub(super) state: Mutex<LargeState>,
}

#[derive(Default)]
pub(super) struct LargeState {
    /// What has been announced, or was there.
    pub(super) claims: Claims,
    /// Bytes written and verified, holes included.
    pub(super) covered: u64,
    /// All good blocks, with `--verify` alone.
    pub(super) blocks: Vec<Block>,
    /// Bytes that this attempt has brought, whether they are good or not.
    come: u64,
    /// The sender's last word on it.
    pub(super) ended: Option<Reading>,
    /// A block was not what its digest says, or has none. If it could not be read, or the source has changed meanwhile,
    /// that is why: pages of the cache that are sent without a copy change on their way. The sender's last word tells.
    pub(super) damaged: bool,
    pub(super) over: bool,
}

impl LargeState {
    /// A block was not what its digest says.
    pub(super) fn damaged(&mut self, extent: Extent) {
        self.damaged = true;
        self.come += extent.len;
    }
}

impl Large {
    /// A huge page of it could not be had. Where the kernel has none, it says so each time; others may come back.
    pub(super) fn no_page(&self, error: &io::Error) {
        let left = |tries: u32| match error.raw_os_error() {
            Some(libc::EINVAL) => Some(0),
            _ => tries.checked_sub(1),
        };
        let _ = self.huge.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    }

    /// It has its size: whoever cuts it short meanwhile takes with that what was written.
    fn is_whole(&self) -> io::Result<()> {
        if self.file.metadata()?.len() == self.item.size { Ok(()) } else { Err(huge_pages::short()) }
    }
}

/// A large file as the streams find it: open, or given up, which what is still on its way must find too.
pub(super) type Slot = Option<Arc<Large>>;

impl Receiver {
    /// Where a block goes that is announced.
    pub(super) fn slot(&self, id: u64, item: &FileItem, extent: Extent) -> Result<Slot, TransferError> {
        let slot = self.found(id, item)?;
        if let Some(large) = &slot {
            if large.item != *item {
                return Err(self.damaged("blocks of two files under one number"));
            }
            if !lock(&large.state).claims.add(extent) {
                return Err(self.damaged("a block that has come already"));
            }
        }
        Ok(slot)
    }

    fn found(&self, id: u64, item: &FileItem) -> Result<Slot, TransferError> {
        let mut large = lock(&self.large);
        if let Some(slot) = large.get(&id) {
            return Ok(slot.clone());
        }
        if large.values().filter(|slot| slot.is_some()).count() > MOST_LARGE {
            return Err(self.damaged("more files at once than there should be"));
        }
        let ended = lock(&self.early).remove(&id);
        // Of a file that is given up already, what still comes is let pass; the sender knows.
        let given_up = ended.is_some_and(Reading::is_all);
        let opened =
            if given_up { None } else { Some(timed(&self.counters.disk_ns, || self.open_apart(item, &large))) };
        let slot = match opened {
            None => None,
            Some(Ok(opened)) => {
                lock(&opened.state).ended = ended;
                Some(Arc::new(opened))
            }
            Some(Err(e)) => {
                self.leave(item.name.bytes(), &e)?;
                let ended = ended.is_some();
                self.session.send(&if ended { Message::FileDone { id } } else { Message::Unwanted { id } })?;
                None
            }
        };
        large.insert(id, slot.clone());
        Ok(slot)
    }

    /// Two that are written at once under one name would be mixed.
    pub(super) fn open_apart(&self, item: &FileItem, others: &HashMap<u64, Slot>) -> io::Result<Large> {
        if others.values().flatten().any(|other| other.item.name == item.name) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "another source brings a file of this name"));
        }
        self.open(item)
    }

    pub(super) fn open(&self, item: &FileItem) -> io::Result<Large> {
        let name = self.named(&item.name)?.into_owned();
        let folder = self.parent(&name)?;
        // Found out now, not after all of it has come.
        metadata::may_take(&folder, metadata::part(name.last()))?;
        let key = item.key();
        let kept = lock(&self.kept).remove(&key);
        let (file, partial) = match kept {
            Some(_) => (ownership::reopen(&folder, &self.partial(&name))?, self.partial(&name)),
            None => self.begin(&name, &folder)?,
        };
        file.set_len(item.size)?;
        if kept.is_none() && !item.sparse && !metadata::in_memory(&file) {
            // A disk that is too small is found out now. Not every file system can promise room.
            let room = nix::fcntl::fallocate(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, item.size as i64);
            if room == Err(nix::errno::Errno::ENOSPC) {
                // It may have taken all that was left.
                let _ = metadata::remove(&folder, &partial);
                return Err(nix::errno::Errno::ENOSPC.into());
            }
        }
        let have = kept.as_deref().unwrap_or_default();
        let covered = have.iter().map(|extent| extent.len).sum();
        let blocks = self.verifier.kept(key);
        let state = Mutex::new(LargeState { claims: Claims::of(have), covered, blocks, ..LargeState::default() });
        let kept = kept.is_some();
        let past_cache = direct_io::wanted(self.options.direct, &file, item.size);
        let direct = if past_cache { direct_io::again(&file, true) } else { None };
        let huge = AtomicU32::new(if huge_pages::wanted(&file, item.size) { huge_pages::TRIES } else { 0 });
        Ok(Large { item: item.clone(), name, key, folder, partial, file, direct, huge, kept, state })
    }

    /// Makes a partial file, and has its name in the journal before.
    fn begin(&self, name: &Name, folder: &OwnedFd) -> io::Result<(File, PathBuf)> {
        let create = |partial: &Path| {
            let number = file::partial_number(partial).unwrap_or_else(|| self.partial_number(name));
            lock(&self.journal).add(&Record::Begun { name: name.clone(), partial: number })?;
            ownership::create(folder, partial)
        };
        ownership::fresh(folder, self.partial(name), create)
    }

    /// Bytes that are nothing but zeros. An earlier attempt may have brought others.
    pub(super) fn hole(&self, id: u64, slot: Slot, extent: Extent) -> Result<(), TransferError> {
        if let Some(large) = slot.as_ref().filter(|large| large.kept)
            && let Err(e) = metadata::clear(&large.file, extent)
        {
            return self.give_up(id, large, &e);
        }
        self.covered(id, slot, extent, None)
    }

    /// Bytes of a large file are in place.
    pub(super) fn covered(
        &self,
        id: u64,
        slot: Slot,
        extent: Extent,
        digest: Option<Digest>,
    ) -> Result<(), TransferError> {
        let Some(large) = slot else { return Ok(()) };
        if let Err(e) = large.is_whole() {
            return self.give_up(id, &large, &e);
        }
        let record = Record::Block { file: large.key, extent, digest };
        {
            let mut state = lock(&large.state);
            // Given up meanwhile: what comes of it does not count.
            if state.over {
                return Ok(());
            }
            lock(&self.journal).add(&record).map_err(local("writing the journal"))?;
            if self.options.verify {
                state.blocks.push((extent, digest));
            }
            state.covered += extent.len;
            state.come += extent.len;
        }
        self.counters.done_bytes.fetch_add(extent.len, Ordering::Relaxed);
        self.session.moved(1);
        self.close(id, &large)
    }

    /// A large file cannot be written; what still comes of it is dropped.
    pub(super) fn give_up(&self, id: u64, large: &Large, error: &io::Error) -> Result<(), TransferError> {
        if std::mem::replace(&mut lock(&large.state).over, true) {
            return Ok(());
        }
        self.leave(large.item.name.bytes(), error)?;
        lock(&self.large).insert(id, None);
        // From here on the sender's last word finds that it is given up, and is answered where it comes.
        let ended = lock(&large.state).ended.is_some();
        if !ended {
            return self.session.send(&Message::Unwanted { id });
        }
        self.session.send(&Message::FileDone { id })?;
        self.part_over(false)
    }

    /// Gives a file its name, if that is all that is left to do.
    pub(super) fn close(&self, id: u64, large: &Large) -> Result<(), TransferError> {
        let (reading, covered) = {
            let mut state = lock(&large.state);
            let Some(reading) = state.ended else { return Ok(()) };
            if state.damaged && reading == Reading::Whole {
                return Err(self.damaged("a block"));
            }
            // The control connection is faster than the streams.
            let more = match reading {
                Reading::Whole => state.covered < large.item.size,
                Reading::Partly { sent } => state.come < sent,
                Reading::Changed => false,
            };
            if state.over || more {
                return Ok(());
            }
            state.over = true;
            (reading, state.covered)
        };
        let result = timed(&self.counters.disk_ns, || match reading {
            Reading::Whole => self.name(&large.file, &large.folder, &large.partial, &large.name, &large.item.meta),
            // Another attempt needs only the rest.
            Reading::Partly { .. } if covered > 0 => Ok(()),
            // What is there is of no use.
            Reading::Partly { .. } | Reading::Changed => {
                metadata::remove(&large.folder, &large.partial).map(|()| lock(&self.journal).forget(large.key))
            }
        });
        match result {
            Ok(()) if reading == Reading::Whole => self.large_named(large)?,
            Ok(()) => {}
            Err(e) => self.leave(large.item.name.bytes(), &e)?,
        }
        if reading == Reading::Whole {
            lock(&self.large).remove(&id);
        } else {
            lock(&self.large).insert(id, None);
        }
        self.session.send(&Message::FileDone { id })?;
        self.part_over(false)
    }

    pub(super) fn file_end(&self, id: u64, reading: Reading) -> Result<(), TransferError> {
        // Held until it is clear that no block has come: a stream looks for this word under the same lock.
        let slots = lock(&self.large);
        match slots.get(&id).cloned() {
            Some(Some(large)) => {
                lock(&large.state).ended = Some(reading);
                drop(slots);
                self.close(id, &large)
            }
            Some(None) => {
                drop(slots);
                self.session.send(&Message::FileDone { id })?;
                self.part_over(false)
            }
            None => {
                let mut early = lock(&self.early);
                if early.len() > MOST_LARGE {
                    return Err(self.damaged("more files at once than there should be"));
                }
                early.insert(id, reading);
                drop((early, slots));
                if reading.is_all() { self.session.send(&Message::FileDone { id }) } else { Ok(()) }
            }
        }
    }
}
