//! The receiving end of a session: its state, its threads, and the messages that it handles.
//!
//! # Locks
//!
//! Every lock guards one thing, which its field names. At most one of them is held at a time, for a few statements, with
//! two exceptions. [`LargeFiles`] takes the lock of its table first and then the state of one file. The journal's lock
//! covers the write of a record, because records must not mix, and the duplication of the journal's descriptor for
//! reading. Apart from duplicating a descriptor, no other lock is held across a system call, and none while a file is
//! opened or a message sent.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use fullpipe_net::Observed;
use fullpipe_net::side::Side;
use nix::fcntl::OFlag;

use super::complete::Complete;
use super::delete::{Progress, Rules};
use super::destination::{self, Destination, FolderTime, Held};
use super::destination_names::DestinationNames;
use super::journal::{Journal, ResumeState};
use super::large::LargeFiles;
use super::unfinished::UnfinishedFiles;
use super::verifier::{self, Verifier};
use crate::connection::session::{Handler, Session};
use crate::connection::stream::Stream;
use crate::error::{Lack, TransferError, local, why};
use crate::fs::metadata::{Attributes, Special, Unset};
use crate::fs::ownership::{self, Trust};
use crate::fs::root::Root;
use crate::fs::write_back::WriteBack;
use crate::fs::{metadata, publish};
use crate::protocol::changes::Resolved;
use crate::protocol::chunk::Chunk;
use crate::protocol::digest::Key;
use crate::protocol::file::FileItem;
use crate::protocol::losses::Losses;
use crate::protocol::message::{Message, Options, Removed, Summary};
use crate::protocol::name::{Name, printable};
use crate::protocol::skipped::{self, Skipped};
use crate::sizes::{MAX_HEADER_BYTES, MAX_OFFERED_FILES, SMALL, block_size};
use crate::telemetry::counters::Counters;
use crate::telemetry::trace::{Trace, Traces};
use crate::threads::{lock, thread};

/// Most offers that may wait for an answer. A sender makes fewer.
const MAX_UNANSWERED_OFFERS: usize = 64;

/// The receiving end of a session. Threads share it: one for each stream and one that writes behind it, those that
/// verify, one that answers offers, and the session's own, which hands it messages.
pub struct Receiver {
    pub(super) session: Arc<Session>,
    pub(super) options: Options,
    pub(super) root: Root,
    /// How the transfer names files at the destination.
    pub(super) names: DestinationNames,
    /// Number of the process that asked for this transfer ([`crate::protocol::message::Target::process`]).
    pub(super) process: u64,
    /// Guards the journal's file and the records that are not written yet. The lock covers the write of a record.
    pub(super) journal: Mutex<Journal>,
    /// Guards what earlier attempts have finished, as far as this attempt has not used it up.
    pub(super) resume: Mutex<ResumeState>,
    /// Key of the blocks' digests. It lasts as long as the journal.
    pub(super) key: Key,
    /// Key of the tags of this attempt's chunks.
    pub(super) tags: Key,
    /// How the destination's file system tells that it cannot write what it took.
    pub(super) write_back: WriteBack,
    /// The large files that are being written. It has locks of its own.
    pub(super) large: LargeFiles,
    /// Guards what is still to come before the transfer can end.
    pub(super) end: Mutex<EndState>,
    /// Guards the result so far.
    pub(super) summary: Mutex<Summary>,
    /// Guards the way to the thread that answers offers; `None` once no more offers come.
    pub(super) offers: Mutex<Option<mpsc::SyncSender<Vec<FileItem>>>>,
    /// Guards the lock on the journal's file (`flock(2)`), which keeps other transfers out of the destination; `None`
    /// once it is released.
    pub(super) lock: Mutex<Option<Held>>,
    /// The destination folder's time before the journal was made.
    pub(super) folder_time: Option<FolderTime>,
    /// Number of threads that may write to the destination, and of messages that are being handled.
    pub(super) running: AtomicUsize,
    /// Whether everything has its name and the sender was told.
    pub(super) all_done: AtomicBool,
    /// Whether the person who waits for the copy waits at this end, not at the sender.
    pub(super) near: bool,
    /// Whether this end may look at what lies outside of the destination, to see where a symbolic link leads
    /// ([`Destination::sees_all`]).
    pub(super) sees_all: bool,
    /// Whether no later attempt will need the journal. It is removed when both ends know that all is done.
    pub(super) outlived: AtomicBool,
    /// Whether the file system can make files without a name (O_TMPFILE), as far as this end has tried.
    pub(super) nameless: AtomicBool,
    /// The files to read back, with `--verify`. It has locks of its own.
    pub(super) verifier: Verifier,
    /// Number of streams.
    pub(super) streams: usize,
    /// Both ends' samples of TCP_INFO, if samples were asked for. It has locks of its own.
    pub(super) traces: Traces,
    /// What is changed of the files' attributes.
    changes: Resolved,
    /// What may be deleted once everything has arrived.
    pub(super) rules: Option<Rules>,
    /// Guards what was deleted, and the sender's names that it follows from; `None` before everything has arrived.
    pub(super) deleting: Mutex<Option<Progress>>,
    /// Guards what is complete and was not told to the sender yet. It is held while the sender is told.
    pub(super) complete: Mutex<Complete>,
    /// Guards what the sender has removed, once the sender has said so.
    removed: Mutex<Option<Removed>>,
    /// Guards the losses that the sender reports.
    pub(super) losses: Mutex<Option<Losses>>,
    /// Guards the files with several names, each device and inode, whose content is one of this copy's (`--inplace`).
    pub(super) in_place: Mutex<HashSet<(u64, u64)>>,
    /// Guards the unfinished files of the folder that was looked at last.
    pub(super) unfinished: Mutex<Option<UnfinishedFiles>>,
    /// Set once the journal is on disk. No file takes its name before that: after a crash of the machine, only the
    /// journal tells which files may lack content.
    pub(super) journal_synced: OnceLock<()>,
    /// Counters for displays.
    pub counters: Arc<Counters>,
}

/// Something that may write to the destination as long as this exists. [`Receiver::release`] waits for its end.
struct Running<'a>(&'a AtomicUsize);

impl Running<'_> {
    fn of(count: &AtomicUsize) -> Running<'_> {
        count.fetch_add(1, Ordering::SeqCst);
        Running(count)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What is still to come before the transfer can end.
pub(super) struct EndState {
    pub(super) streams: usize,
    pub(super) all_sent: bool,
    pub(super) skipped: Skipped,
}

impl Receiver {
    /// Starts the threads of a receiving end.
    ///
    /// # Errors
    /// A thread cannot be started, or the destination was used before.
    pub fn start(
        session: Arc<Session>,
        options: Options,
        mut to: Destination,
        streams: Vec<Stream>,
        counters: Arc<Counters>,
    ) -> Result<Arc<Receiver>, TransferError> {
        let Some(to) = to.0.take() else {
            return Err(TransferError::Usage("the destination is in use already".into()));
        };
        let (offers, offered) = mpsc::sync_channel(MAX_UNANSWERED_OFFERS);
        let n = streams.len();
        let readers = if options.verify { verifier::READERS } else { 0 };
        let traces = Traces::start(&session, &streams, Side::Receiver, options.sample_ns)?;
        let receiver = Arc::new(Receiver {
            all_done: AtomicBool::new(false),
            near: to.near,
            sees_all: to.sees_all,
            outlived: AtomicBool::new(false),
            nameless: AtomicBool::new(true),
            write_back: WriteBack::of(&to.root),
            verifier: Verifier::default(),
            traces,
            changes: to.changes,
            rules: to.rules,
            deleting: Mutex::default(),
            complete: Mutex::default(),
            removed: Mutex::default(),
            losses: Mutex::default(),
            in_place: Mutex::default(),
            unfinished: Mutex::default(),
            journal_synced: OnceLock::new(),
            session,
            options,
            root: to.root,
            names: to.names,
            process: to.process,
            key: to.journal.key(),
            tags: to.tags,
            journal: Mutex::new(to.journal),
            resume: Mutex::new(to.resume),
            large: LargeFiles::default(),
            streams: n,
            end: Mutex::new(EndState { streams: n, all_sent: false, skipped: Skipped::default() }),
            summary: Mutex::new(Summary { unfinished: to.unfinished, distrusted: to.distrusted, ..Summary::default() }),
            offers: Mutex::new(Some(offers)),
            lock: Mutex::new(Some(to.lock)),
            folder_time: to.folder_time,
            running: AtomicUsize::new(n + 1 + readers),
            counters,
        });
        let syncing = receiver.clone();
        thread("sync", move || syncing.sync_journal())?;
        let most = block_size(options.block, n).max(SMALL);
        for (i, stream) in streams.into_iter().enumerate() {
            let receiver = receiver.clone();
            thread("stream", move || {
                let result = receiver.stream(i, stream, most).and_then(|()| receiver.part_over(true));
                receiver.check(result);
                receiver.running.fetch_sub(1, Ordering::SeqCst);
            })?;
        }
        for _ in 0..readers {
            let receiver = receiver.clone();
            thread("verify", move || {
                receiver.verify_all();
                receiver.running.fetch_sub(1, Ordering::SeqCst);
            })?;
        }
        let answering = receiver.clone();
        thread("offers", move || {
            for offer in offered {
                answering.check(answering.answer(&offer));
            }
            answering.running.fetch_sub(1, Ordering::SeqCst);
        })?;
        Ok(receiver)
    }

    /// Writes the journal's file and its name to disk, so that files may take their names.
    fn sync_journal(&self) {
        let synced = self.journal_file().and_then(|file| file.sync_all()).and_then(|()| self.sync_destination());
        if !self.session.is_over() {
            self.check(synced.map_err(local("writing the journal to disk")));
        }
        let _ = self.journal_synced.set(());
    }

    /// Another descriptor of the journal's file.
    pub(super) fn journal_file(&self) -> io::Result<File> {
        let file = lock(&self.lock).as_ref().map(|lock| lock.try_clone());
        file.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
    }

    /// Writes the names in the destination folder to disk.
    pub(super) fn sync_destination(&self) -> io::Result<()> {
        metadata::sync_folder(self.root.folder(None)?, self.journal_file()?)
    }

    /// This end's samples and the sender's, if samples were asked for.
    pub(crate) fn trace(&self) -> (Option<Arc<Trace>>, Option<Observed>) {
        self.traces.both()
    }

    /// The losses that the sender reported.
    pub(crate) fn losses(&self) -> Option<Losses> {
        *lock(&self.losses)
    }

    /// What the sender has removed of its sources, if it has said so.
    pub(crate) fn removed(&self) -> Option<Removed> {
        lock(&self.removed).take()
    }

    /// The result at this end, and what the sender skipped.
    pub fn summary(&self) -> (Summary, Skipped) {
        let summary = std::mem::take(&mut *lock(&self.summary));
        let skipped = std::mem::take(&mut lock(&self.end).skipped);
        (summary, skipped)
    }

    /// Releases the destination for the next attempt, which may be in this very process. Call it when the session is
    /// over. It keeps the destination if a thread does not end within 5 s, since that thread may still write.
    pub(crate) fn release(&self) {
        lock(&self.offers).take();
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.running.load(Ordering::SeqCst) > 0 {
            if Instant::now() > deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // After a success the journal is mostly gone. After a failure it lacks the records that still wait here.
        let _ = lock(&self.journal).flush();
        if !self.all_done.load(Ordering::SeqCst) && self.is_for_nothing() {
            destination::clear(&self.root, self.folder_time, || {
                let _ = publish::remove(&self.root, &self.names.journal());
            });
        }
        // The file is unlocked and closed after the mutex.
        let held = lock(&self.lock).take();
        drop(held);
    }

    /// Ends this attempt if its own client has connected again and asks for the destination. This end may not notice for
    /// a long time that the old connection is dead.
    fn look_for_request(&self) {
        use std::os::unix::fs::FileExt;
        let request = self.names.request();
        let Ok(Trust::Trusted(file)) = ownership::open(&self.root, &request, OFlag::O_RDONLY) else { return };
        let mut process = [0; 8];
        if file.read_exact_at(&mut process, 0).is_ok() && u64::from_le_bytes(process) == self.process {
            let why = io::Error::new(io::ErrorKind::ConnectionAborted, "it has connected again");
            self.session.fail(self.session.lost("receiving", why));
        }
    }

    /// Tells the sender how far this end is, and writes the journal's waiting records.
    pub fn tell_progress(&self) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (bytes, files) = (read(&self.counters.done_bytes), read(&self.counters.done_files));
        let (come, partial) = (read(&self.counters.come_bytes), read(&self.counters.partial_bytes));
        if !self.session.is_over() {
            let (moved, times) = (self.session.has_moved(), self.counters.times());
            // After the last message nobody reads any more, and unread data would destroy it (RFC 1122, 4.2.2.13: a
            // close with unread data resets the connection).
            if !self.is_done() {
                self.check(self.tell_complete());
                self.check(self.session.send(&Message::Progress { bytes, files, come, partial, moved, times }));
            }
            let flushed = lock(&self.journal).flush();
            self.check(flushed.map_err(local("writing the journal")));
            self.look_for_request();
        }
    }

    pub(super) fn check(&self, result: Result<(), TransferError>) {
        if let Err(error) = result {
            self.session.fail(error);
        }
    }

    /// Skips one file, folder or link that cannot be written. A full disk ends the transfer instead: it would skip all
    /// the others too.
    pub(super) fn skip(&self, name: &[u8], error: &io::Error) -> Result<(), TransferError> {
        if let Some(lack) = Lack::of(error) {
            let lack = if lack == Lack::Space && self.root.has_no_inodes() { Lack::Inodes } else { lack };
            let unfinished = lock(&self.summary).unfinished;
            return Err(TransferError::Full { lack, what: printable(name), unfinished });
        }
        let text = match error.raw_os_error() {
            Some(libc::ELOOP) => {
                let remedy = "remove the link, or copy to where it points";
                format!("a symbolic link stands at the destination where the source has a folder; {remedy}")
            }
            Some(libc::ENOTDIR) => "a file stands where a folder is needed".to_owned(),
            Some(libc::EISDIR) => "a folder stands where the file should be".to_owned(),
            _ => format!("cannot be written at the destination: {}", why(error)),
        };
        // The name is too long or reserved for fullpipe, which no change at the destination can fix.
        let for_good = error.kind() == io::ErrorKind::InvalidFilename;
        lock(&self.summary).skipped.add(skipped::SkippedEntry { for_good, ..skipped::SkippedEntry::new(name, text) });
        Ok(())
    }

    /// Changes the attributes of files in a chunk, as the copy asks for.
    pub(super) fn change(&self, chunk: &mut Chunk) {
        match chunk {
            Chunk::Block { file, .. } => self.changes.apply(&mut file.meta, Some(false)),
            Chunk::Pack(files) => self.change_all(files),
            Chunk::End => {}
        }
    }

    fn change_all(&self, files: &mut [FileItem]) {
        files.iter_mut().for_each(|file| self.changes.apply(&mut file.meta, Some(false)));
    }

    /// What a file's mode and extended attributes are made of.
    pub(super) fn of_file(&self) -> (Special, Attributes) {
        (Special::of_file(self.options.special), Attributes::of(&self.options))
    }

    /// Counts what could not be set of an entry that was copied. `name` is the sender's.
    pub(super) fn not_kept(&self, name: &Name, unset: &Unset) {
        let Unset { owner, special, attributes, access_lists, refused, .. } = unset;
        if owner.is_none() && !special && !attributes && !access_lists && refused.is_empty() {
            return;
        }
        let mut summary = lock(&self.summary);
        let not_kept = &mut summary.not_kept;
        if let Some(e) = owner {
            not_kept.owner.add(name.bytes(), why(e));
        }
        if *special {
            not_kept.special.add(name.bytes(), "only root, or the owner of both if in the group, may set them");
        }
        if *attributes {
            not_kept.attributes.add(name.bytes(), "the destination's file system has none");
        }
        if *access_lists {
            not_kept.access_lists.add(name.bytes(), "the destination's file system has none");
        }
        for (attribute, why) in refused {
            not_kept.refuse(name.bytes(), format!("extended attribute {}: {why}", printable(attribute)));
        }
    }

    /// Opens the folder that something goes to, and makes it if it is missing. If an earlier copy left it without
    /// permission to write, the permission is set.
    pub(super) fn parent(&self, name: &Name) -> io::Result<OwnedFd> {
        let parent = name.parent();
        let folder = self.root.folder(parent.as_ref())?;
        // The destination folder itself is not part of the copy: its permissions stay.
        if parent.is_some() {
            metadata::open_up(&folder)?;
        }
        Ok(folder)
    }
}

impl Handler for Receiver {
    fn handle(&self, message: Message) -> Result<bool, TransferError> {
        let _running = Running::of(&self.running);
        if self.session.is_over() {
            // Another attempt may hold the destination by now.
            return Ok(true);
        }
        match message {
            Message::Folder { name, mut meta } => {
                self.changes.apply(&mut meta, Some(true));
                self.folder(&name, meta)?;
            }
            Message::Link { name, target, changed, mut meta } => {
                self.changes.apply(&mut meta, None);
                self.link(&name, (&target, changed), &meta)?;
            }
            Message::HardLink { mut item, to } if self.options.hard_links => {
                self.changes.apply(&mut item.meta, Some(false));
                self.hard_link(item, to)?;
            }
            Message::FileEnd { id, reading } => self.file_end(id, reading)?,
            Message::Offer(items) if items.len() > MAX_OFFERED_FILES => {
                return Err(self.damaged("more files in an offer than there should be"));
            }
            Message::Offer(items)
                if items.iter().map(|item| item.meta.xattrs.len()).sum::<usize>()
                    > FileItem::most_xattrs(MAX_HEADER_BYTES) =>
            {
                return Err(self.damaged("more extended attributes in an offer than there should be"));
            }
            Message::Offer(mut items) => {
                self.change_all(&mut items);
                // The thread at the other side of the channel lives as long as this end of it.
                if let Some(Err(mpsc::TrySendError::Full(_))) =
                    lock(&self.offers).as_ref().map(|offers| offers.try_send(items))
                {
                    return Err(self.damaged("more offers at once than there should be"));
                }
            }
            // Its end follows.
            Message::GivenUp { .. } => {}
            Message::Totals { bytes, files, all } => self.counters.found(bytes, files, all),
            Message::AllSent(skipped) => {
                {
                    let mut end = lock(&self.end);
                    end.all_sent = true;
                    end.skipped = skipped;
                }
                lock(&self.offers).take();
                self.part_over(false)?;
            }
            Message::Listing(listing) if lock(&self.deleting).is_some() => self.delete(listing)?,
            Message::Listed(skipped) if lock(&self.deleting).is_some() => {
                lock(&self.end).skipped.merge(skipped);
                self.finish()?;
            }
            Message::NotKept(not_kept) => lock(&self.summary).not_kept.merge(*not_kept),
            Message::Removed(removed) if self.options.remove_sources => *lock(&self.removed) = Some(removed),
            Message::Losses(losses) => *lock(&self.losses) = Some(losses),
            Message::Report { end, samples, last } => {
                self.traces.take(&end, &samples);
                if last && self.is_done() {
                    self.forget_journal();
                    self.session.finish();
                    return Ok(true);
                }
            }
            other => return Err(self.session.unexpected(&other)),
        }
        self.session.moved(1);
        Ok(false)
    }

    fn is_done(&self) -> bool {
        self.all_done.load(Ordering::SeqCst)
    }

    fn unanswered(&self) {
        let _running = Running::of(&self.running);
        // If the person waits at the sender, the sender may not know that all is done, and will ask again.
        if self.near && !self.session.is_over() {
            self.forget_journal();
        }
    }
}
