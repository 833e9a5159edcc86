//! Folders, symbolic links, and what happens when everything has arrived.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use nix::fcntl::OFlag;

use super::receiver::Receiver;
use crate::error::{TransferError, local, why};
use crate::fs::{at, metadata, ownership, publish};
use crate::protocol::file::Meta;
use crate::protocol::message::Message;
use crate::protocol::name::{self, Name, printable};
use crate::protocol::skipped::SkippedEntry;
use crate::receive::journal::Record;
use crate::threads::lock;

impl Receiver {
    /// Makes a folder. Its permissions and times are set at the end, when all is in it; the journal keeps them until then.
    pub(super) fn folder(&self, name: &Name, meta: Meta) -> Result<(), TransferError> {
        let made = self.names.final_name(name).and_then(|name| {
            let folder = self.root.folder(Some(&name))?;
            if !meta.xattrs.is_empty() {
                metadata::open_up(&folder)?;
            }
            let inode = nix::sys::stat::fstat(&folder)?.st_ino;
            metadata::set_xattrs(&File::from(folder), &meta).map(|()| inode)
        });
        match made {
            Ok(inode) => {
                // Extended attributes are set already, and may be longer than a record of the journal.
                let meta = Meta { xattrs: Vec::new(), ..meta };
                let record = Record::Folder { name: name.clone(), inode, meta };
                lock(&self.journal).add(&record).map_err(local("writing the journal"))
            }
            // This folder is all that the transfer copies, so nothing of it can be written.
            Err(e)
                if e.raw_os_error() == Some(libc::ENOTDIR)
                    && self.names.rename.is_some()
                    && name.parent().is_none() =>
            {
                let shown = printable(self.names.rename.as_deref().unwrap_or_default());
                Err(TransferError::Usage(format!("destination {shown}: a file stands where a folder is needed")))
            }
            Err(e) => self.skip(name.bytes(), &e),
        }
    }

    /// Makes a symbolic link, or skips it.
    pub(super) fn link(&self, name: &Name, target: &[u8], meta: &Meta) -> Result<(), TransferError> {
        let make = || -> io::Result<()> {
            let name = self.names.final_name(name)?;
            let folder = self.parent(&name)?;
            let make = |partial: &Path| Ok(nix::unistd::symlinkat(at::part(target), &folder, partial)?);
            let ((), partial) = ownership::fresh(&folder, self.names.partial(&name), make)?;
            let named = metadata::dress_link(&folder, &partial, meta)
                .and_then(|()| publish::rename(&folder, &partial, at::part(name.last())));
            if named.is_err() {
                let _ = publish::remove(&folder, &partial);
            }
            named
        };
        match make() {
            Ok(()) => self.counters.named(name),
            Err(e) => self.skip(name.bytes(), &e)?,
        }
        Ok(())
    }

    /// Called whenever a stream, a file or the sender's list has ended. If it was the last, this finishes the transfer:
    /// it sets the folders' permissions, writes the journal, and tells the sender.
    pub(super) fn part_over(&self, stream: bool) -> Result<(), TransferError> {
        {
            let mut end = lock(&self.end);
            end.streams -= usize::from(stream);
            if end.streams > 0 || !end.all_sent || self.session.is_over() {
                return Ok(());
            }
        }
        // In this order: a file is with the verifier before it is no longer open.
        if self.large.any_open() || !self.verifier.is_idle() {
            return Ok(());
        }
        // Several threads may come here; one goes on.
        if !std::mem::replace(&mut lock(&self.end).all_sent, false) {
            return Ok(());
        }
        let nothing = !self.is_complete() && self.is_for_nothing();
        // If this attempt gave every file its name, only earlier attempts can have left partial files.
        if self.is_complete() && lock(&self.resume).begun {
            self.remove_orphans()?;
        }
        self.dress_folders()?;
        if self.options.fsync {
            // The names of links and folders at the top. All below lie in folders that were synced just now.
            let synced = self.root.folder(None).and_then(metadata::sync_folder);
            synced.map_err(local("writing the destination folder to disk"))?;
        }
        let verified = self.verifier.close();
        let summary = {
            let mut summary = lock(&self.summary);
            summary.verified = verified;
            summary.clone()
        };
        lock(&self.journal).flush().map_err(local("writing the journal"))?;
        // If something was skipped that the next attempt may copy, the journal saves it from sending the rest again.
        self.outlived.store(nothing || self.is_complete(), Ordering::SeqCst);
        if nothing {
            self.forget_journal();
        }
        self.tell_progress();
        if let Some(trace) = &self.trace {
            trace.tell(&self.session)?;
        }
        self.all_done.store(true, Ordering::SeqCst);
        // If the sender has lost the connection, it will ask again. Until it knows, the journal tells that all is there.
        self.session.send(&Message::AllDone(summary))
    }

    /// Removes the journal if no later attempt needs it. Call it when both ends know that all is done.
    pub(super) fn forget_journal(&self) {
        if self.outlived.swap(false, Ordering::SeqCst) {
            let _ = publish::remove(&self.root, &self.names.request());
            let _ = publish::remove(&self.root, &self.names.journal());
        }
    }

    /// Whether the same command would find nothing more to copy.
    fn is_complete(&self) -> bool {
        let here = lock(&self.summary).skipped.to_do();
        let there = lock(&self.end).skipped.to_do();
        here == 0 && there == 0
    }

    /// Whether no later attempt could build on anything here. If so, partial files are removed; if one cannot be removed,
    /// this returns false and the journal stays.
    pub(super) fn is_for_nothing(&self) -> bool {
        let is_empty = lock(&self.journal).is_empty();
        is_empty && !self.names.is_renamed_folder(&self.root) && self.remove_orphans().is_ok()
    }

    /// Removes partial files that no attempt will continue: their sources have changed or are gone, or nothing of them
    /// arrived.
    fn remove_orphans(&self) -> Result<(), TransferError> {
        let mut failed = None;
        let remove = |name: &Name, partial: u64| -> io::Result<()> {
            let parent = name.parent();
            let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
            let at = parent.as_ref().map_or_else(|| Path::new("."), Name::path);
            let folder = self.root.open_at(at, how, 0)?;
            if parent.is_some() {
                metadata::open_up(&folder)?;
            }
            publish::remove(folder, &name::scratch(partial, "partial"))
        };
        let each = |record| {
            if let Record::Begun { name, partial } = record
                && let Err(e) = remove(&name, partial)
                && !is_gone(&e)
            {
                failed = Some(e);
            }
        };
        let reader = lock(&self.journal).reader().map_err(local("reading the journal"))?;
        reader.all(each).map_err(local("reading the journal"))?;
        failed.map_or(Ok(()), |e| Err(local("removing what an earlier attempt left")(e)))
    }

    /// Gives all folders the permissions and times of their sources.
    pub(super) fn dress_folders(&self) -> Result<(), TransferError> {
        let complete = self.is_complete();
        // If something was skipped, the next attempt must be able to enter. A folder that only lacks permission to write
        // is opened when a file is written to it.
        let open = |mode: u32| if complete || mode & 0o500 == 0o500 { mode } else { mode | 0o700 };
        // Sorted by name, so that a folder comes after the one that it lies in.
        let mut closed = BTreeMap::new();
        // One entry for each folder, however many attempts have seen it.
        let mut failed = BTreeMap::new();
        let mut dress = |name: Name, inode: u64, meta: &Meta, now: bool| {
            self.session.moved(1);
            let done = self.names.final_name(&name).and_then(|name| {
                let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
                let meta = Meta { mode: open(meta.mode), ..meta.clone() };
                let folder = self.root.open_at(name.path(), how, 0)?;
                if nix::sys::stat::fstat(&folder)?.st_ino != inode {
                    // Another user may have put it there, and must not get these permissions for it.
                    return Err(io::Error::new(io::ErrorKind::NotFound, "another folder took its place meanwhile"));
                }
                metadata::dress_folder(folder, &meta, self.options.special, self.options.fsync)
            });
            match done {
                Err(e) if now || !is_gone(&e) => drop(failed.insert(name.bytes().to_vec(), e)),
                _ => drop(failed.remove(name.bytes())),
            }
        };
        let mut each = |record, now: bool| match record {
            // A folder that its owner may not enter must wait until all folders below it are done.
            Record::Folder { name, inode, meta } if meta.mode & 0o700 == 0o700 => {
                closed.remove(name.bytes());
                dress(name, inode, &meta, now);
            }
            Record::Folder { name, inode, meta } => {
                closed.insert(name.bytes().to_vec(), (name, inode, meta, now));
            }
            _ => {}
        };
        // The journal's lock is not held while records are read: this may take long, and progress must be reported.
        let reader = || lock(&self.journal).reader().map_err(local("reading the journal"));
        // When the copy is complete, folders of earlier attempts get their permissions too, even if they are no longer
        // part of the source. This attempt has added those that are.
        if complete {
            reader()?.of_earlier_attempts(|record| each(record, false)).map_err(local("reading the journal"))?;
        }
        reader()?.of_this_attempt(|record| each(record, true)).map_err(local("reading the journal"))?;
        for (name, inode, meta, now) in closed.into_values().rev() {
            dress(name, inode, &meta, now);
        }
        failed.into_iter().try_for_each(|(name, e)| {
            if e.raw_os_error() != Some(libc::EPERM) {
                return self.skip(&name, &e);
            }
            // The folder may belong to another user and be writable for this one: its content has arrived.
            let why = format!("its permissions and times cannot be set: {}", why(&e));
            lock(&self.summary).skipped.add(SkippedEntry::for_good(name, why));
            Ok(())
        })
    }
}

/// Whether a folder that an earlier attempt saw is gone, or replaced by a file.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
