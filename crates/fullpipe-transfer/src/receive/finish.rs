//! Finishes a transfer when everything has arrived: cleans up, removes the journal, and tells the sender. Tells it before of what
//! is complete, if its sources are to be removed.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use nix::sys::stat::FileStat;

use super::complete::Complete;
use super::delete::{self, Deleter, Progress};
use super::destination;
use super::journal::Record;
use super::receiver::Receiver;
use crate::error::{TransferError, is_gone, local};
use crate::fs::{at, metadata, publish};
use crate::protocol::message::{Listing, Message};
use crate::protocol::name::{self, Name};
use crate::protocol::skipped::SkippedEntry;
use crate::threads::lock;

/// Most names in one message, so that it fits a frame.
const MAX_TOLD: usize = 512;

impl Receiver {
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
        self.make_hard_links()?;
        if self.rules.is_some() && self.is_complete() {
            *lock(&self.deleting) = Some(Progress::default());
            return self.session.send(&Message::List);
        }
        self.finish()
    }

    /// Deletes what a folder of the sources does not have.
    pub(super) fn delete(&self, listing: Listing) -> Result<(), TransferError> {
        let Some(rules) = &self.rules else { return Ok(()) };
        // Taken out, so that no lock is held while files are deleted.
        let Some(mut progress) = lock(&self.deleting).take() else { return Ok(()) };
        let goes_on = || {
            self.session.moved(1);
            !self.session.is_over()
        };
        let deleter = Deleter { root: &self.root, names: &self.names, rules, dry: false, goes_on: &goes_on };
        let gone = deleter.take(listing, &mut progress);
        *lock(&self.deleting) = Some(progress);
        let gone = gone?;
        gone.iter().for_each(|name| self.counters.deleted(name.clone()));
        delete::tell(&self.session, gone)
    }

    /// Finishes a transfer after all files have their names and all that is not at the source is deleted.
    pub(super) fn finish(&self) -> Result<(), TransferError> {
        let nothing = !self.is_complete() && self.is_for_nothing();
        // If this attempt gave every file its name, only earlier attempts can have left partial files.
        if self.is_complete() && lock(&self.resume).begun {
            let why = "an interrupted copy with --inplace has left it partly old, and this command does not copy it; copy it again, \
                       or remove it";
            let unfinished = self.remove_orphans()?;
            let mut summary = lock(&self.summary);
            unfinished.into_iter().for_each(|name| summary.skipped.add(SkippedEntry::new(name, why)));
        }
        self.dress_folders()?;
        if self.options.fsync {
            // The names of links and folders at the top. All below lie in folders that were synced just now.
            self.sync_destination().map_err(local("writing the destination folder to disk"))?;
        }
        self.tell_all_complete()?;
        let verified = self.verifier.close();
        let summary = {
            let mut summary = lock(&self.summary);
            summary.verified = verified;
            summary.deleted = lock(&self.deleting).take().map(|progress| progress.deleted);
            summary.clone()
        };
        lock(&self.journal).flush().map_err(local("writing the journal"))?;
        // If something was skipped that the next attempt may copy, the journal saves it from sending the rest again.
        self.outlived.store(nothing || self.is_complete(), Ordering::SeqCst);
        if nothing {
            self.forget_journal();
        }
        self.tell_progress();
        if let Some(trace) = &self.traces.own {
            trace.tell(&self.session)?;
        }
        self.all_done.store(true, Ordering::SeqCst);
        // If the sender has lost the connection, it will ask again. Until it knows, the journal tells that all is there.
        self.session.send(&Message::AllDone(summary))
    }

    /// Removes the journal if no later attempt needs it. Call it when both ends know that all is done.
    pub(super) fn forget_journal(&self) {
        if self.outlived.swap(false, Ordering::SeqCst) {
            destination::clear(&self.root, self.folder_time, || {
                let _ = publish::remove(&self.root, &self.names.request());
                let _ = publish::remove(&self.root, &self.names.journal());
            });
        }
    }

    /// Whether the same command would find nothing more to copy.
    pub(super) fn is_complete(&self) -> bool {
        let here = lock(&self.summary).skipped.to_do();
        let there = lock(&self.end).skipped.to_do();
        here == 0 && there == 0
    }

    /// Whether no later attempt could build on anything here. If so, partial files are removed; if one cannot be removed, or is
    /// an unfinished file of the destination, this returns false and the journal stays.
    pub(super) fn is_for_nothing(&self) -> bool {
        let is_empty = lock(&self.journal).is_empty();
        is_empty
            && !self.names.is_renamed_folder(&self.root)
            && self.remove_orphans().is_ok_and(|unfinished| unfinished.is_empty())
    }

    /// Removes partial files that no attempt will continue: their sources have changed or are gone, or nothing of them
    /// arrived. Returns the names of files that are unfinished: they were written to in place, so they are not whole, and have
    /// another name than that of a partial file. These stay as they are.
    fn remove_orphans(&self) -> Result<BTreeSet<Vec<u8>>, TransferError> {
        let mut failed = None;
        let mut unfinished = BTreeSet::new();
        let mut remove = |name: &Name, partial: u64, in_place: Option<u64>| -> io::Result<()> {
            let parent = name.parent();
            let at = parent.as_ref().map_or_else(|| Path::new("."), Name::path);
            let folder = self.root.enter(at)?;
            if parent.is_some() {
                metadata::open_up(&folder)?;
            }
            let partial = name::scratch(partial, "partial");
            // A record of another attempt may have the same number without saying that the file is written to in place.
            let own = at::look(&folder, at::part(name.last())).ok().map(|stat| stat.st_ino);
            let is_unfinished = |stat: FileStat| stat.st_nlink > 1 && [in_place, own].contains(&Some(stat.st_ino));
            if at::look(&folder, &partial).is_ok_and(is_unfinished) {
                unfinished.insert(name.bytes().to_vec());
                return Ok(());
            }
            publish::remove(folder, &partial)
        };
        let each = |record| {
            let (name, partial, in_place) = match record {
                Record::Begun { name, partial } => (name, partial, None),
                Record::BegunInPlace { name, partial, inode } => (name, partial, Some(inode)),
                _ => return,
            };
            if let Err(e) = remove(&name, partial, in_place)
                && !is_gone(&e)
            {
                failed = Some(e);
            }
        };
        let reader = lock(&self.journal).reader().map_err(local("reading the journal"))?;
        reader.all(each).map_err(local("reading the journal"))?;
        failed.map_or(Ok(unfinished), |e| Err(local("removing what an earlier attempt left")(e)))
    }
}

impl Receiver {
    /// Takes note of a file that is complete and on disk.
    pub(super) fn complete(&self, name: &Name, key: u64) -> Result<(), TransferError> {
        if !self.options.remove_sources {
            return Ok(());
        }
        let mut complete = lock(&self.complete);
        complete.ready.push((name.clone(), key));
        if complete.ready.len() >= MAX_TOLD { self.tell(&mut complete) } else { Ok(()) }
    }

    /// Takes note of a symbolic link that has its name.
    pub(super) fn link_named(&self, name: &Name, key: u64) {
        if self.options.remove_sources {
            lock(&self.complete).links.push((name.clone(), key));
        }
    }

    /// Tells the sender what is complete.
    pub(super) fn tell_complete(&self) -> Result<(), TransferError> {
        self.tell(&mut lock(&self.complete))
    }

    /// Tells the sender of the symbolic links, too. Call it when the names in all folders are on disk.
    pub(super) fn tell_all_complete(&self) -> Result<(), TransferError> {
        let mut complete = lock(&self.complete);
        let links = std::mem::take(&mut complete.links);
        complete.ready.extend(links);
        self.tell(&mut complete)
    }

    /// The lock is held while the message is sent: the receiver's last message must not overtake it.
    fn tell(&self, complete: &mut Complete) -> Result<(), TransferError> {
        for part in complete.ready.chunks(MAX_TOLD) {
            self.session.send(&Message::Complete(part.to_vec()))?;
        }
        complete.ready.clear();
        Ok(())
    }
}
