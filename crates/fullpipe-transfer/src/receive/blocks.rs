//! Blocks of large files: where each goes, and what happens when a file is complete or cannot be written.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::journal::Record;
use super::large::{DamagedBlock, Ended, LargeFile, LargeState, Lookup, TooMany};
use super::ranges::ByteRanges;
use super::receiver::Receiver;
use crate::error::{TransferError, local};
use crate::fs::large_file::{self, TargetFile};
use crate::fs::{at, lustre, ownership, publish, sparse};
use crate::protocol::digest::Digest;
use crate::protocol::file::{Extent, FileItem};
use crate::protocol::message::{Message, Reading};
use crate::protocol::name::{self, Name};
use crate::telemetry::counters::timed;
use crate::threads::lock;

impl Receiver {
    /// The file that an announced block goes to; `None` if the file was given up, and its blocks are dropped.
    pub(super) fn file_of_block(
        &self,
        id: u64,
        item: &FileItem,
        extent: Extent,
    ) -> Result<Option<Arc<LargeFile>>, TransferError> {
        let file = match self.large.lookup(id, item).map_err(|TooMany| self.too_many_files())? {
            Lookup::Found(file) => file,
            Lookup::MustOpen => {
                let opened = timed(&self.counters.disk_ns, || self.open(item));
                self.opened(id, item, opened)?
            }
            Lookup::NameInUse => {
                let why = "another source brings a file of this name";
                self.opened(id, item, Err(io::Error::new(io::ErrorKind::AlreadyExists, why)))?
            }
        };
        if let Some(file) = &file {
            if file.item != *item {
                return Err(self.damaged("blocks of two files under one number"));
            }
            if !lock(&file.state).claims.add(extent) {
                return Err(self.damaged("a block that has come already"));
            }
        }
        Ok(file)
    }

    fn too_many_files(&self) -> TransferError {
        self.damaged("more files at once than there should be")
    }

    /// Enters a file that was opened; one that cannot be opened is given up, and the sender told.
    fn opened(
        &self,
        id: u64,
        item: &FileItem,
        opened: io::Result<LargeFile>,
    ) -> Result<Option<Arc<LargeFile>>, TransferError> {
        match opened {
            Ok(file) => Ok(Some(self.large.opened(id, file))),
            Err(e) => {
                let ended = self.large.not_opened(id);
                self.skip(item.name.bytes(), &e)?;
                self.session.send(&if ended { Message::FileDone { id } } else { Message::Unwanted { id } })?;
                Ok(None)
            }
        }
    }

    /// Opens the partial file of a large file: the one of an earlier attempt, or a new one with room for all of it.
    pub(super) fn open(&self, item: &FileItem) -> io::Result<LargeFile> {
        let name = self.names.final_name(&item.name)?.into_owned();
        let folder = self.parent(&name)?;
        // Checked now, not after all of the file has arrived.
        self.may_take(&folder, at::part(name.last()))?;
        let key = item.key();
        let kept = self.large.take_kept(key);
        let (file, partial) = match kept {
            Some(_) => {
                let partial = self.names.partial(&name);
                let linked = self.is_partial_in_place(&folder, &name);
                (ownership::reopen(&folder, &partial, linked)?, partial)
            }
            None => match self.begin_in_place(item, &folder, &name)? {
                Some(begun) => begun,
                None => self.begin(item, &name, &folder)?,
            },
        };
        if item.has_size() {
            file.set_len(item.size)?;
        }
        if kept.is_none() && item.has_size() && (!item.sparse || self.options.dense) {
            // If this fails, the partial file may have taken all room that there was. One with another name is written to in place
            // and not whole any more.
            let is_only = file.metadata()?.nlink() == 1;
            let free = |_: &_| {
                if is_only {
                    drop(publish::remove(&folder, &partial))
                }
            };
            large_file::reserve(&file, item.size, self.options.dense).inspect_err(free)?;
        }
        let have = kept.as_deref().unwrap_or_default();
        let covered = have.iter().map(|extent| extent.len).sum();
        let blocks = self.verifier.kept(key);
        let state = Mutex::new(LargeState { claims: ByteRanges::of(have), covered, blocks, ..LargeState::default() });
        let kept = kept.is_some();
        let target = TargetFile::new(file, self.options.direct, item.size);
        Ok(LargeFile { item: item.clone(), name, key, folder, partial, target, kept, state })
    }

    /// Makes a partial file. Its name goes into the journal first, so that a later attempt can remove it.
    fn begin(&self, item: &FileItem, name: &Name, folder: &OwnedFd) -> io::Result<(File, PathBuf)> {
        self.keep_mark(folder, name)?;
        let size = item.has_size().then_some(item.size);
        let wanted = lustre::Wanted { asked: self.options.stripes, size, streams: self.streams };
        let create = |partial: &Path| {
            let number = name::partial_number(partial).unwrap_or_else(|| self.names.partial_number(name));
            lock(&self.journal).add(&Record::Begun { name: name.clone(), partial: number })?;
            lustre::create(&lustre::Mounted, folder, partial, &wanted)
        };
        let ((file, why), partial) = ownership::fresh(folder, self.names.partial(name), create)?;
        if let Some(why) = why {
            lock(&self.summary).not_kept.stripes.add(item.name.bytes(), why);
        }
        Ok((file, partial))
    }

    /// Takes in a hole: bytes that are zero. In a partial file of an earlier attempt there may be other bytes, which are
    /// cleared.
    pub(super) fn hole(&self, id: u64, file: Option<Arc<LargeFile>>, extent: Extent) -> Result<(), TransferError> {
        if let Some(large) = file.as_ref().filter(|large| large.kept)
            && let Err(e) =
                sparse::clear(large.target.file(), extent, self.options.dense, &mut |bytes| self.session.moved(bytes))
        {
            return self.give_up(id, large, &e);
        }
        self.covered(id, file, extent, None)
    }

    /// Counts a block that is in the partial file, and adds it to the journal. With the last block the file gets its name.
    pub(super) fn covered(
        &self,
        id: u64,
        file: Option<Arc<LargeFile>>,
        extent: Extent,
        digest: Option<Digest>,
    ) -> Result<(), TransferError> {
        let Some(large) = file else { return Ok(()) };
        if let Err(e) = large.check_size(large.item.size) {
            return self.give_up(id, &large, &e);
        }
        // Blocks of a file that was given up do not count.
        if large.is_over() {
            return Ok(());
        }
        // What comes from standard input comes once: no later attempt could go on with it.
        if large.item.has_size() {
            let record = Record::Block { file: large.key, extent, digest };
            lock(&self.journal).add(&record).map_err(local("writing the journal"))?;
        }
        if large.add_block(extent, self.options.verify.then_some((extent, digest))) {
            // The file was given up while the record was written. If its partial file is gone, no attempt can use it.
            if large.ended() == Some(Reading::Changed) {
                lock(&self.journal).forget(large.key);
            }
            return Ok(());
        }
        self.counters.done_bytes.fetch_add(extent.len, Ordering::Relaxed);
        self.session.moved(1);
        self.close(id, &large)
    }

    /// Gives up a large file that cannot be written, and tells the sender.
    pub(super) fn give_up(&self, id: u64, large: &LargeFile, error: &io::Error) -> Result<(), TransferError> {
        if large.end() {
            return Ok(());
        }
        self.skip(large.item.name.bytes(), error)?;
        self.large.give_up(id);
        // If the sender ends the file from here on, `file_end` answers it.
        if large.ended().is_none() {
            return self.session.send(&Message::Unwanted { id });
        }
        self.session.send(&Message::FileDone { id })?;
        self.part_over(false)
    }

    /// Gives a large file its name, if nothing else is left to do.
    pub(super) fn close(&self, id: u64, large: &LargeFile) -> Result<(), TransferError> {
        let ending = large.end_if_complete().map_err(|DamagedBlock| self.damaged("a block"))?;
        let Some(ending) = ending else { return Ok(()) };
        let reading = ending.reading;
        let result = timed(&self.counters.disk_ns, || match reading {
            Reading::Whole | Reading::Ended { .. } => large.check_size(large.size()).and_then(|()| {
                self.give_name(large.target.file(), &large.folder, &large.partial, &large.name, &large.item)
            }),
            // Another attempt needs only the rest.
            Reading::Partly { .. } if ending.covered > 0 => Ok(()),
            // Written to in place: its second name tells that it is not whole.
            Reading::Partly { .. } | Reading::Changed if large.target.file().metadata()?.nlink() > 1 => Ok(()),
            // The source has changed, or nothing of it arrived: the partial file is of no use.
            Reading::Partly { .. } | Reading::Changed => {
                publish::remove(&large.folder, &large.partial).map(|()| lock(&self.journal).forget(large.key))
            }
        });
        match result {
            Ok(()) if reading.is_whole() => self.large_named(large)?,
            Ok(()) => {}
            Err(e) => self.skip(large.item.name.bytes(), &e)?,
        }
        if reading.is_whole() {
            self.large.remove(id);
        } else {
            self.large.give_up(id);
        }
        self.session.send(&Message::FileDone { id })?;
        self.part_over(false)
    }

    /// Takes in how the sender read a large file, of which it sends no more.
    pub(super) fn file_end(&self, id: u64, reading: Reading) -> Result<(), TransferError> {
        match self.large.end(id, reading).map_err(|TooMany| self.too_many_files())? {
            Ended::Open(large) => self.close(id, &large),
            Ended::GivenUp => {
                self.session.send(&Message::FileDone { id })?;
                self.part_over(false)
            }
            Ended::Early if reading.is_useless() => self.session.send(&Message::FileDone { id }),
            Ended::Early => Ok(()),
        }
    }
}
