//! Receives one file and writes it to standard output, in order, as soon as each block was checked.
//!
//! Blocks come over several streams. A stream whose block is not next keeps it in memory and waits, so that the sender sends no
//! more on that stream: a slow reader of the output slows the sender down. Nobody waits for a block that cannot come: each stream
//! carries its blocks in the order of the file, and the sender tells when it begins to leave out blocks.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use fullpipe_net::Observed;
use fullpipe_net::side::Side;

use super::incoming::IncomingStream;
use crate::connection::session::{Handler, Session};
use crate::connection::stream::Stream;
use crate::error::TransferError;
use crate::protocol::chunk::Chunk;
use crate::protocol::digest::Key;
use crate::protocol::file::{Extent, FileItem};
use crate::protocol::losses::Losses;
use crate::protocol::message::{Message, Options, Reading, Summary, Terms};
use crate::protocol::skipped::Skipped;
use crate::sizes::{PIECE, SMALL, block_size};
use crate::telemetry::counters::{Counters, timed};
use crate::telemetry::trace::{Trace, Traces};
use crate::threads::{lock, thread};

/// How often a stream that waits for its turn checks whether the session is over.
const SESSION_CHECK: Duration = Duration::from_millis(100);

/// Standard output, as the destination of a copy.
#[derive(Debug)]
pub struct Output {
    file: File,
    terms: Terms,
    /// Whether anything was written, so that another attempt would write it twice.
    begun: AtomicBool,
}

impl Output {
    /// Makes a destination of an open file.
    #[must_use]
    pub fn new(file: File) -> Output {
        let terms = Terms { offer: false, key: Key::random(), tags: Key::random(), journal: None };
        Output { file, terms, begun: AtomicBool::new(false) }
    }

    /// Whether anything was written. Then another attempt would write it twice.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    /// What this end asks of the sender.
    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }
}

/// How far the output is.
#[derive(Default)]
struct State {
    /// The file's number and what the sender announced, once its first chunk has come.
    file: Option<(u64, FileItem)>,
    /// Offset of the next byte to write.
    next: u64,
    /// Whether a stream is writing, and perhaps waits for whoever reads the output.
    writing: bool,
    /// Whether a block cannot be written, so that the rest of the file is dropped.
    broken: bool,
    /// How the sender read the file, once it has said so. A small file is read whole, which the sender need not say.
    reading: Option<Reading>,
    /// Number of streams that have not ended.
    streams: usize,
    /// What the sender skipped, once it has sent everything.
    all_sent: Option<Skipped>,
    /// Whether the end has been told, or is about to be.
    over: bool,
    summary: Summary,
}

impl State {
    /// Whether the whole file was written.
    fn is_whole(&self) -> bool {
        let size = self.file.as_ref().map(|(_, file)| file.size);
        size == Some(self.next) && !self.broken && self.reading == Some(Reading::Whole)
    }
}

/// The receiving end of a session that writes to standard output. Threads share it: one for each stream, and the session's own.
pub(crate) struct OutputReceiver {
    session: Arc<Session>,
    output: Arc<Output>,
    /// Guards how far the output is. It is not held while anything is written.
    state: Mutex<State>,
    /// Wakes streams that wait for their turn.
    turn: Condvar,
    /// Whether everything was written and the sender was told.
    all_done: AtomicBool,
    traces: Traces,
    /// Guards the losses that the sender reports.
    losses: Mutex<Option<Losses>>,
    counters: Arc<Counters>,
}

impl OutputReceiver {
    /// Starts the threads.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn start(
        session: Arc<Session>,
        options: Options,
        output: Arc<Output>,
        streams: Vec<Stream>,
        counters: Arc<Counters>,
    ) -> Result<Arc<OutputReceiver>, TransferError> {
        let traces = Traces::start(&session, &streams, Side::Receiver, options.sample_ns)?;
        let most = block_size(options.block, streams.len()).max(SMALL);
        let receiver = Arc::new(OutputReceiver {
            session,
            output,
            state: Mutex::new(State { streams: streams.len(), ..State::default() }),
            turn: Condvar::new(),
            all_done: AtomicBool::new(false),
            traces,
            losses: Mutex::default(),
            counters,
        });
        for (i, stream) in streams.into_iter().enumerate() {
            let receiver = receiver.clone();
            thread("stream", move || {
                let result = receiver.stream(i, stream, most).and_then(|()| receiver.part_over(true));
                if let Err(error) = result {
                    receiver.session.fail(error);
                }
            })?;
        }
        Ok(receiver)
    }

    /// Receives the chunks of one stream to its end.
    fn stream(&self, i: usize, stream: Stream, most: u64) -> Result<(), TransferError> {
        let Terms { key, tags, .. } = self.output.terms;
        let mut line = IncomingStream::new((i, stream), (tags, most), &self.session, &self.counters);
        let mut buffer = Vec::new();
        loop {
            let (chunk, len) = line.next()?;
            if let Some(trace) = &self.traces.own {
                trace.arrived(i, 0);
            }
            match chunk {
                Chunk::End => return if line.is_good(None)? { Ok(()) } else { Err(self.damaged("a stream's end")) },
                Chunk::Block { id, file, extent, hole: true } => {
                    if !line.is_good(None)? {
                        return Err(self.damaged("a hole"));
                    }
                    self.enter(id, &file)?;
                    self.write(extent, None)?;
                }
                Chunk::Block { id, file, extent, hole: false } => {
                    buffer.resize(len as usize, 0);
                    let mut mac = key.block(file.key(), extent);
                    for piece in buffer.chunks_mut(PIECE) {
                        line.receive(piece)?;
                        timed(&self.counters.hash_ns, || mac.update(piece));
                    }
                    let good = line.is_good(Some(&mac.finish()))?;
                    self.counters.whole(extent.len);
                    self.enter(id, &file)?;
                    if good {
                        self.write(extent, Some(&buffer))?;
                    } else {
                        // The sender could not read it, or the file has changed. What was damaged on the way looks alike: then
                        // the sender knows of no reason.
                        self.give_up();
                    }
                }
                Chunk::Pack(files) => {
                    buffer.resize(len as usize, 0);
                    line.receive(&mut buffer)?;
                    let digest = timed(&self.counters.hash_ns, || key.pack(&buffer));
                    if !line.is_good(Some(&digest))? {
                        return Err(self.damaged("a pack of files"));
                    }
                    self.counters.whole(len);
                    let [file] = &files[..] else { return Err(self.damaged("another file than was asked for")) };
                    self.enter(0, file)?;
                    self.write(Extent { offset: 0, len }, Some(&buffer))?;
                    lock(&self.state).reading = Some(Reading::Whole);
                }
            }
        }
    }

    /// Takes in which file a chunk is of: there is but one.
    fn enter(&self, id: u64, file: &FileItem) -> Result<(), TransferError> {
        let mut state = lock(&self.state);
        let known = state.file.get_or_insert_with(|| {
            self.counters.named(&file.name);
            (id, file.clone())
        });
        if (known.0, &known.1) == (id, file) { Ok(()) } else { Err(self.damaged("another file than was asked for")) }
    }

    /// Writes a block once all before it is written; a hole, if there are no bytes.
    fn write(&self, extent: Extent, bytes: Option<&[u8]>) -> Result<(), TransferError> {
        let mut state = lock(&self.state);
        while (state.writing || state.next < extent.offset) && !state.broken && !self.session.is_over() {
            state = self.turn.wait_timeout(state, SESSION_CHECK).unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.broken || self.session.is_over() {
            return Ok(());
        }
        if state.next > extent.offset {
            return Err(self.damaged("a block that has come already"));
        }
        state.writing = true;
        drop(state);
        self.output.begun.store(true, Ordering::SeqCst);
        let mut to = &self.output.file;
        let written = timed(&self.counters.disk_ns, || match bytes {
            Some(bytes) => to.write_all(bytes),
            None => std::io::copy(&mut std::io::Read::take(std::io::repeat(0), extent.len), &mut to).map(drop),
        });
        let what = || "cannot write to standard output".to_owned();
        written.map_err(|source| TransferError::Local { what: what(), source })?;
        let sent = if bytes.is_some() { extent.len } else { 0 };
        self.counters.wire_bytes.fetch_add(sent, Ordering::Relaxed);
        self.counters.done_bytes.fetch_add(extent.len, Ordering::Relaxed);
        self.session.moved(1);
        let mut state = lock(&self.state);
        state.writing = false;
        state.next += extent.len;
        state.summary.bytes += sent;
        self.turn.notify_all();
        Ok(())
    }

    /// Drops the rest of the file, for which nobody waits any more.
    fn give_up(&self) {
        lock(&self.state).broken = true;
        self.turn.notify_all();
    }

    /// Called when a stream has ended, or the sender has sent everything. The last time, this tells the sender.
    fn part_over(&self, stream: bool) -> Result<(), TransferError> {
        let summary = {
            let mut state = lock(&self.state);
            state.streams -= usize::from(stream);
            let Some(skipped) = state.all_sent.as_ref().map(|skipped| skipped.total) else { return Ok(()) };
            if state.streams > 0 || state.over || self.session.is_over() {
                return Ok(());
            }
            state.over = true;
            if !state.is_whole() && skipped == 0 {
                return Err(self.damaged("a block"));
            }
            state.summary.files = u64::from(state.is_whole());
            state.summary.clone()
        };
        self.counters.done_files.store(summary.files, Ordering::Relaxed);
        self.tell_progress();
        if let Some(trace) = &self.traces.own {
            trace.tell(&self.session)?;
        }
        self.all_done.store(true, Ordering::SeqCst);
        self.session.send(&Message::AllDone(summary))
    }

    /// Tells the sender how far this end is.
    pub(crate) fn tell_progress(&self) {
        // Whoever reads the output may take any time.
        self.session.moved(u64::from(lock(&self.state).writing));
        if self.session.is_over() || self.all_done.load(Ordering::SeqCst) {
            return;
        }
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (bytes, files) = (read(&self.counters.done_bytes), read(&self.counters.done_files));
        let (come, partial) = (read(&self.counters.come_bytes), read(&self.counters.partial_bytes));
        let (moved, times) = (self.session.has_moved(), self.counters.times());
        if let Err(error) = self.session.send(&Message::Progress { bytes, files, come, partial, moved, times }) {
            self.session.fail(error);
        }
    }

    /// The result at this end, and what the sender skipped.
    pub(crate) fn summary(&self) -> (Summary, Skipped) {
        let mut state = lock(&self.state);
        (std::mem::take(&mut state.summary), state.all_sent.take().unwrap_or_default())
    }

    /// This end's samples and the sender's, if samples were asked for.
    pub(crate) fn trace(&self) -> (Option<Arc<Trace>>, Option<Observed>) {
        self.traces.both()
    }

    /// The losses that the sender reported.
    pub(crate) fn losses(&self) -> Option<Losses> {
        *lock(&self.losses)
    }

    /// The error for data that were damaged on the way, or that no sender would send.
    fn damaged(&self, what: &str) -> TransferError {
        TransferError::Damaged { peer: self.session.peer.clone(), what: what.to_owned() }
    }
}

impl Handler for OutputReceiver {
    fn handle(&self, message: Message) -> Result<bool, TransferError> {
        match message {
            Message::FileEnd { id, reading } => {
                lock(&self.state).reading = Some(reading);
                self.session.send(&Message::FileDone { id })?;
            }
            Message::GivenUp { .. } => self.give_up(),
            Message::Totals { bytes, files, all } => self.counters.found(bytes, files, all),
            Message::AllSent(skipped) => {
                lock(&self.state).all_sent = Some(skipped);
                self.part_over(false)?;
            }
            // There is no file here that could keep anything.
            Message::NotKept(_) => {}
            Message::Losses(losses) => *lock(&self.losses) = Some(losses),
            Message::Report { end, samples, last } => {
                self.traces.take(&end, &samples);
                if last && self.is_done() {
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
}
