//! The receiving end: takes what comes on the streams, checks it, writes it, and gives files their names
//! when they are whole.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use fullpipe_net::Seen;
use fullpipe_net::sample::End;
use nix::fcntl::{Flock, OFlag};

use super::destination::{self, Destination};
use super::journal::{Journal, ResumeState};
use super::large::LargeFiles;
use super::verifier::{self, Verifier};
use crate::connection::session::{Handler, Session};
use crate::connection::stream::Stream;
use crate::error::{Lack, TransferError, local, why};
use crate::fs::ownership::{self, Trust};
use crate::fs::root::Root;
use crate::fs::{metadata, publish};
use crate::limits::{SMALL, block_size};
use crate::protocol::digest::Key;
use crate::protocol::file::FileItem;
use crate::protocol::losses::Losses;
use crate::protocol::message::{Message, Options, Summary};
use crate::protocol::name::{self, Name, printable};
use crate::protocol::skipped::{self, Skipped};
use crate::source::glob::Part;
use crate::telemetry::counters::Counters;
use crate::telemetry::trace::{PeerTrace, Trace};
use crate::threads::{lock, thread};

/// Bytes that pass through the processor's cache at a time: received, hashed, written.
pub(super) const PIECE: usize = 256 << 10;
/// Offers without an answer; a sender makes fewer.
const MOST_OFFERS: usize = 64;
/// Files in one offer; a sender makes no more.
const MOST_OFFERED: usize = 256;
/// Extents in the answer to one: with more it would be longer than a frame.
const MOST_EXTENTS: usize = 1 << 17;

/// The receiving end of a session.
pub struct Receiver {
    pub(super) session: Arc<Session>,
    pub(super) options: Options,
    pub(super) root: Root,
    pub(super) rename: Option<Vec<u8>>,
    pub(super) only: Option<Vec<Part>>,
    /// Number in the names of the transfer's own files.
    pub(super) number: u64,
    pub(super) process: u64,
    pub(super) journal: Mutex<Journal>,
    pub(super) journal_name: PathBuf,
    pub(super) past: Mutex<ResumeState>,
    pub(super) key: Key,
    /// Key of the tags of this attempt's chunks.
    pub(super) tags: Key,
    pub(super) large: LargeFiles,
    pub(super) end: Mutex<EndState>,
    pub(super) summary: Mutex<Summary>,
    pub(super) offers: Mutex<Option<mpsc::SyncSender<Vec<FileItem>>>>,
    pub(super) lock: Mutex<Option<Flock<File>>>,
    /// Threads that write, and messages that are acted upon.
    pub(super) running: AtomicUsize,
    pub(super) all_done: AtomicBool,
    /// Whoever waits for the copy waits here, and not at the sender.
    pub(super) near: bool,
    /// The journal is of no use once it is known that all is done.
    pub(super) outlived: AtomicBool,
    /// The file system makes files without a name, as far as is known.
    pub(super) nameless: AtomicBool,
    /// Files that are to be read back, with `--verify`.
    pub(super) verifier: Verifier,
    pub(super) trace: Option<Arc<Trace>>,
    pub(super) told: Mutex<PeerTrace>,
    pub(super) losses: Mutex<Option<Losses>>,
    /// Set once the journal is on disk: before that no file takes its name. Without a journal nobody knows after a crash of
    /// the machine which files may lack content.
    pub(super) journal_synced: OnceLock<()>,
    /// For displays.
    pub counters: Arc<Counters>,
}

/// What may write, as long as it does: [`Receiver::release`] waits for it.
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

pub(super) struct EndState {
    pub(super) streams: usize,
    pub(super) all_sent: bool,
    pub(super) skipped: Skipped,
}

impl Receiver {
    /// Starts the threads of a receiving end, one per stream.
    ///
    /// # Errors
    /// Threads cannot be started.
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
        let (offers, offered) = mpsc::sync_channel(MOST_OFFERS);
        let n = streams.len();
        let readers = if options.verify { verifier::READERS } else { 0 };
        let trace = Trace::start(&session, &streams, End::Receiver, options.sample_ns)?;
        let receiver = Arc::new(Receiver {
            all_done: AtomicBool::new(false),
            near: to.near,
            outlived: AtomicBool::new(false),
            nameless: AtomicBool::new(true),
            verifier: Verifier::default(),
            trace,
            told: Mutex::default(),
            losses: Mutex::default(),
            journal_synced: OnceLock::new(),
            session,
            options,
            root: to.root,
            rename: to.rename,
            only: to.only,
            number: to.number,
            process: to.process,
            key: to.journal.key(),
            tags: to.tags,
            journal: Mutex::new(to.journal),
            journal_name: to.journal_name,
            past: Mutex::new(to.past),
            large: LargeFiles::default(),
            end: Mutex::new(EndState { streams: n, all_sent: false, skipped: Skipped::default() }),
            summary: Mutex::new(Summary { unfinished: to.unfinished, distrusted: to.distrusted, ..Summary::default() }),
            offers: Mutex::new(Some(offers)),
            lock: Mutex::new(Some(to.lock)),
            running: AtomicUsize::new(n + 1 + readers),
            counters,
        });
        let syncing = receiver.clone();
        thread("sync", move || {
            let file = lock(&syncing.lock).as_ref().map(|lock| lock.try_clone());
            let synced = file.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into())).and_then(|file| file.sync_all());
            let synced = synced.and_then(|()| metadata::sync_folder(syncing.root.folder(None)?));
            if !syncing.session.is_over() {
                syncing.check(synced.map_err(local("writing the journal to disk")));
            }
            let _ = syncing.journal_synced.set(());
        })?;
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
                let mut room = MOST_EXTENTS;
                let wants = offer.iter().map(|item| answering.want(item, &mut room)).collect::<Result<Vec<_>, _>>();
                let result = wants.and_then(|wants| answering.session.send(&Message::Want(wants)));
                answering.check(result);
            }
            answering.running.fetch_sub(1, Ordering::SeqCst);
        })?;
        Ok(receiver)
    }

    /// What this end has seen, and what the other has told, where samples were wanted.
    pub(crate) fn trace(&self) -> (Option<Arc<Trace>>, Option<Seen>) {
        (self.trace.clone(), lock(&self.told).seen())
    }

    /// What the network has lost, as the sender has told.
    pub(crate) fn losses(&self) -> Option<Losses> {
        *lock(&self.losses)
    }

    /// How it went, and what the sender could not read.
    pub fn summary(&self) -> (Summary, Skipped) {
        let summary = std::mem::take(&mut *lock(&self.summary));
        let skipped = std::mem::take(&mut lock(&self.end).skipped);
        (summary, skipped)
    }

    /// Lets the next attempt have the destination, in this process perhaps. To be called when the session
    /// is over; keeps it if a thread does not come to its end, since that may still write.
    pub(crate) fn release(&self) {
        lock(&self.offers).take();
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.running.load(Ordering::SeqCst) > 0 {
            if Instant::now() > deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // After a success there is no journal any more, mostly; after a failure this is what it knows too little.
        let _ = lock(&self.journal).flush();
        if !self.all_done.load(Ordering::SeqCst) && self.is_for_nothing() {
            let _ = publish::remove(&self.root, &self.journal_name);
        }
        lock(&self.lock).take();
    }

    /// Lets the process go on that holds this destination and has come again: of the connection that it
    /// has lost, this end may hear nothing for long.
    fn look_for_request(&self) {
        use std::os::unix::fs::FileExt;
        let request = destination::request(self.number);
        let Ok(Trust::Trusted(file)) = ownership::open(&self.root, &request, OFlag::O_RDONLY) else { return };
        let mut process = [0; 8];
        if file.read_exact_at(&mut process, 0).is_ok() && u64::from_le_bytes(process) == self.process {
            let why = io::Error::new(io::ErrorKind::ConnectionAborted, "it has connected anew");
            self.session.fail(self.session.lost("receiving", why));
        }
    }

    /// Tells the sender, and the journal, how far it is.
    pub fn tell_progress(&self) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (bytes, files) = (read(&self.counters.done_bytes), read(&self.counters.done_files));
        let (come, partial) = (read(&self.counters.come_bytes), read(&self.counters.partial_bytes));
        if !self.session.is_over() {
            let (moved, times) = (self.session.has_moved(), self.counters.times());
            // Behind the last word nobody reads any more, and what is not read would take the answer with it (RFC 1122,
            // 4.2.2.13).
            if !self.is_done() {
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

    /// One thing is not written. A full disk concerns all the others too.
    pub(super) fn leave(&self, name: &[u8], error: &io::Error) -> Result<(), TransferError> {
        if let Some(lack) = Lack::of(error) {
            let lack = if lack == Lack::Space && self.root.has_no_inodes() { Lack::Inodes } else { lack };
            return Err(TransferError::Full { lack, what: printable(name) });
        }
        let text = match error.raw_os_error() {
            Some(libc::EXDEV) => {
                "a symbolic link at the destination leads out of it; copy to where it points".to_owned()
            }
            Some(libc::ENOTDIR) => "a file stands where a folder is needed".to_owned(),
            Some(libc::EISDIR) => "a folder stands where the file should be".to_owned(),
            _ => format!("cannot be written: {}", why(error)),
        };
        // Too long, or fullpipe's own: a name is not mended at the destination.
        let for_good = error.kind() == io::ErrorKind::InvalidFilename;
        lock(&self.summary).skipped.add(skipped::SkippedEntry { for_good, ..skipped::SkippedEntry::new(name, text) });
        Ok(())
    }

    /// What something is called here.
    pub(super) fn named<'a>(&self, name: &'a Name) -> io::Result<Cow<'a, Name>> {
        if self.only.as_ref().is_some_and(|only| !only.iter().any(|top| top.is_match(name.first()))) {
            return Err(io::Error::other("it was not asked for"));
        }
        let name = match &self.rename {
            None => Cow::Borrowed(name),
            Some(first) => Cow::Owned(name.with_first(first).map_err(|_| nix::errno::Errno::ENAMETOOLONG)?),
        };
        if name.bytes().split(|b| *b == b'/').any(name::is_scratch) {
            let why = "fullpipe's own files have such names while it works";
            return Err(io::Error::new(io::ErrorKind::InvalidFilename, why));
        }
        Ok(name)
    }

    /// The folder that something goes to, made where it is missing. An earlier copy may have closed it, if only
    /// to writing.
    pub(super) fn parent(&self, name: &Name) -> io::Result<OwnedFd> {
        let parent = name.parent();
        let folder = self.root.folder(parent.as_ref())?;
        // The destination itself is not of what comes.
        if parent.is_some() {
            metadata::open_up(&folder)?;
        }
        Ok(folder)
    }

    /// What a file is called until it is whole: in its own folder, so that a rename is all that is left.
    pub(super) fn partial(&self, name: &Name) -> PathBuf {
        name::scratch(self.partial_number(name), "partial")
    }

    pub(super) fn partial_number(&self, name: &Name) -> u64 {
        name.key() ^ self.number
    }
}

impl Handler for Receiver {
    fn handle(&self, message: Message) -> Result<bool, TransferError> {
        let _running = Running::of(&self.running);
        if self.session.is_over() {
            // The destination may be another attempt's by now.
            return Ok(true);
        }
        match message {
            Message::Folder { name, meta } => self.folder(&name, meta)?,
            Message::Link { name, target, meta } => self.link(&name, &target, &meta)?,
            Message::FileEnd { id, reading } => self.file_end(id, reading)?,
            Message::Offer(items) if items.len() > MOST_OFFERED => {
                return Err(self.damaged("more files in an offer than there should be"));
            }
            Message::Offer(items) => {
                // The other side of the channel lives as long as this.
                if let Some(Err(mpsc::TrySendError::Full(_))) =
                    lock(&self.offers).as_ref().map(|offers| offers.try_send(items))
                {
                    return Err(self.damaged("more offers at once than there should be"));
                }
            }
            Message::Totals { bytes, files, all } => {
                self.counters.found_bytes.store(bytes, Ordering::Relaxed);
                self.counters.found_files.store(files, Ordering::Relaxed);
                self.counters.found_all.store(u64::from(all), Ordering::Relaxed);
            }
            Message::AllSent(skipped) => {
                {
                    let mut end = lock(&self.end);
                    end.all_sent = true;
                    end.skipped = skipped;
                }
                lock(&self.offers).take();
                self.part_over(false)?;
            }
            Message::Losses(losses) => *lock(&self.losses) = Some(losses),
            Message::Report { end, samples, last } => {
                lock(&self.told).take(&end, &samples);
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
        // A sender that waits may not know that all is done: then it asks again.
        if self.near && !self.session.is_over() {
            self.forget_journal();
        }
    }
}
