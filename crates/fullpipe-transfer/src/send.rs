//! The sending end: walks the sources, plans, and feeds the streams.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::error::{Left, TransferError, system};
use crate::files::{self, Root};
use crate::item::{Extent, FileItem};
use crate::plan::{self, Plan, Work};
use crate::proto::{self, Chunk, Message, Options, Summary, Times, Trailer, Want};
use crate::secure::Stream;
use crate::session::{Handler, Session, lock};
use crate::sobas::Note;
use crate::walk::{self, Found, Place, Sight};

/// Files up to this size travel whole, many together.
pub(crate) const SMALL: u64 = 1 << 20;
/// Bytes that pass through the processor's cache at a time: read, hashed, sent.
const PIECE: usize = 256 << 10;
/// Files that wait to be sent, at most; the walk waits then.
const WAITING: usize = 16 << 10;
/// Large files under way at once.
const UNDER_WAY: usize = 32;
/// Files in one offer.
const OFFER: usize = 256;
/// Offers without an answer, at most.
const OFFERS: usize = 16;
/// What could not be read is named up to this number, and counted beyond.
pub(crate) const NAMED: usize = 1000;

/// A file to send.
pub(crate) struct Source {
    id: u64,
    item: FileItem,
    root: Arc<Root>,
    path: PathBuf,
    /// Bytes, holes included, that have not been dealt with.
    rest: AtomicU64,
    open: Mutex<Option<Arc<File>>>,
    /// Why it must not take its name.
    bad: Mutex<Option<String>>,
}

struct State {
    plan: Plan<Arc<Source>>,
    /// Offered, and not answered.
    offers: VecDeque<Vec<Arc<Source>>>,
    /// Answered, and not planned.
    answers: VecDeque<(Vec<Arc<Source>>, Vec<Want>)>,
    /// Answers that are being planned just now.
    planning: usize,
    walked: bool,
    /// Large files that the receiver has not finished.
    under_way: HashMap<u64, Arc<Source>>,
    left: Vec<Left>,
    left_total: u64,
    streams: usize,
    summary: Option<Summary>,
}

/// Counters that a display reads.
#[derive(Debug, Default)]
pub struct Counters {
    /// Bytes found.
    pub found_bytes: AtomicU64,
    /// Files found.
    pub found_files: AtomicU64,
    /// Bytes done with: at the receiver written or there already, at the sender as the receiver says.
    pub done_bytes: AtomicU64,
    /// Files under their names.
    pub done_files: AtomicU64,
    /// Bytes on the network, content only.
    pub wire_bytes: AtomicU64,
    /// 1 when everything has been found.
    pub found_all: AtomicU64,
    /// This end's times.
    pub disk_ns: AtomicU64,
    /// Hashing.
    pub hash_ns: AtomicU64,
    /// In the network's calls.
    pub net_ns: AtomicU64,
    /// The other end's times, as it last told.
    pub other: Mutex<Times>,
    /// What the controller of window and pacing did, until a display takes it.
    pub notes: Mutex<Vec<Note>>,
}

impl Counters {
    /// This end's times.
    pub fn times(&self) -> Times {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Times { disk: read(&self.disk_ns), hash: read(&self.hash_ns), net: read(&self.net_ns) }
    }
}

/// Adds the time of a call to a counter.
pub(crate) fn timed<T>(counter: &AtomicU64, call: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = call();
    counter.fetch_add(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
    result
}

/// The sending end of a session.
pub struct Sender {
    session: Arc<Session>,
    options: Options,
    offer: bool,
    state: Mutex<State>,
    changed: Condvar,
    /// For displays.
    pub counters: Arc<Counters>,
}

impl Sender {
    /// Starts the threads of a sending end: the walk and one per stream. The session ends with the receiver's
    /// last word.
    ///
    /// # Errors
    /// Threads cannot be started.
    pub fn start(
        session: Arc<Session>,
        options: Options,
        places: Vec<Place>,
        streams: Vec<Stream>,
        offer: bool,
        counters: Arc<Counters>,
    ) -> Result<Arc<Sender>, TransferError> {
        let n = streams.len();
        let block = block_size(&options, n);
        let state = State {
            plan: Plan::new(block, n as u16, proto::PACK_FILES),
            offers: VecDeque::new(),
            answers: VecDeque::new(),
            planning: 0,
            walked: false,
            under_way: HashMap::new(),
            left: Vec::new(),
            left_total: 0,
            streams: n,
            summary: None,
        };
        let sender = Arc::new(Sender {
            session: session.clone(),
            options,
            offer: offer || options.update,
            state: Mutex::new(state),
            changed: Condvar::new(),
            counters,
        });
        let waker = Arc::downgrade(&sender);
        session.alarm(move || {
            if let Some(sender) = waker.upgrade() {
                drop(lock(&sender.state));
                sender.changed.notify_all();
            }
        });
        for stream in streams {
            let sender = sender.clone();
            thread("stream", move || {
                let result = sender.stream(stream).and_then(|()| sender.stream_ended());
                sender.check(result);
            })?;
        }
        if sender.offer {
            let planner = sender.clone();
            thread("plan", move || {
                let result = planner.plan_answers();
                planner.check(result);
            })?;
        }
        let walker = sender.clone();
        thread("walk", move || {
            let result = walker.walk(places);
            walker.check(result);
        })?;
        Ok(sender)
    }

    /// How it went at the receiver, once the session has ended well; and what this end could not read.
    pub fn summary(&self) -> (Summary, Vec<Left>, u64) {
        let mut state = lock(&self.state);
        let summary = state.summary.take().unwrap_or_default();
        (summary, std::mem::take(&mut state.left), state.left_total)
    }

    fn check(&self, result: Result<(), TransferError>) {
        if let Err(error) = result {
            self.session.fail(error);
        }
    }

    fn leave(&self, name: &[u8], why: impl std::fmt::Display) {
        let mut state = lock(&self.state);
        state.left_total += 1;
        if state.left.len() < NAMED {
            state.left.push(Left { name: name.to_vec(), why: why.to_string() });
        }
    }

    // The walk

    fn walk(&self, places: Vec<Place>) -> Result<(), TransferError> {
        let mut next_id = 1;
        let mut batch = Vec::new();
        let sight = Sight { recursive: self.options.recursive, dereference: self.options.dereference };
        for place in places {
            let root = place.root.clone();
            walk::walk(&place, sight, &mut |found| {
                if self.session.is_over() {
                    return Ok(());
                }
                match found {
                    Found::File { item, path } => {
                        self.counters.found_bytes.fetch_add(item.size, Ordering::Relaxed);
                        let files = self.counters.found_files.fetch_add(1, Ordering::Relaxed);
                        if files % 4096 == 4095 {
                            self.tell_totals()?;
                        }
                        let source = Source {
                            id: next_id,
                            item,
                            root: root.clone(),
                            path,
                            rest: AtomicU64::new(0),
                            open: Mutex::default(),
                            bad: Mutex::default(),
                        };
                        next_id += 1;
                        self.found(Arc::new(source), &mut batch)
                    }
                    Found::Folder { name, meta } => self.session.send(&Message::Folder { name, meta }),
                    Found::Link { name, target, meta } => self.session.send(&Message::Link { name, target, meta }),
                    Found::Left { name, why } => {
                        self.leave(&name, why);
                        Ok(())
                    }
                }
            })?;
        }
        self.make_offer(&mut batch)?;
        self.counters.found_all.store(1, Ordering::Relaxed);
        self.tell_totals()?;
        let mut state = lock(&self.state);
        state.walked = true;
        self.settle(&mut state);
        Ok(())
    }

    /// A file to send, or to offer first.
    fn found(&self, source: Arc<Source>, batch: &mut Vec<Arc<Source>>) -> Result<(), TransferError> {
        if !self.offer {
            self.wait_until(|state| state.plan.waiting() < WAITING);
            return self.plan(source, &[]);
        }
        batch.push(source);
        if batch.len() >= OFFER { self.make_offer(batch) } else { Ok(()) }
    }

    fn make_offer(&self, batch: &mut Vec<Arc<Source>>) -> Result<(), TransferError> {
        let room = |state: &State| state.offers.len() + state.answers.len() < OFFERS && state.plan.waiting() < WAITING;
        if batch.is_empty() || !self.wait_until(room) {
            return Ok(());
        }
        let items = batch.iter().map(|source| source.item.clone()).collect();
        lock(&self.state).offers.push_back(std::mem::take(batch));
        self.session.send(&Message::Offer(items))
    }

    /// Plans what the receiver wants of what it was offered.
    fn plan_answers(&self) -> Result<(), TransferError> {
        loop {
            let due = |state: &State| !state.answers.is_empty() || (state.walked && state.offers.is_empty());
            if !self.wait_until(due) {
                return Ok(());
            }
            let answer = {
                let mut state = lock(&self.state);
                state.planning = 1;
                state.answers.pop_front()
            };
            let over = answer.is_none();
            for (source, want) in answer.into_iter().flat_map(|(offered, wants)| offered.into_iter().zip(wants)) {
                match want {
                    Want::Nothing => {}
                    Want::All => self.plan(source, &[])?,
                    Want::But(have) => self.plan(source, &have)?,
                }
            }
            let mut state = lock(&self.state);
            state.planning = 0;
            self.settle(&mut state);
            if over {
                return Ok(());
            }
        }
    }

    fn tell_totals(&self) -> Result<(), TransferError> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.session.send(&Message::Totals {
            bytes: read(&self.counters.found_bytes),
            files: read(&self.counters.found_files),
            all: read(&self.counters.found_all) > 0,
        })
    }

    /// After every change of the state: whether nothing more will be planned; and wakes who waits.
    fn settle(&self, state: &mut State) {
        if state.walked && state.offers.is_empty() && state.answers.is_empty() && state.planning == 0 {
            state.plan.complete();
        }
        self.changed.notify_all();
    }

    /// Waits until the state is as wanted; false if the session is over first.
    fn wait_until(&self, mut is: impl FnMut(&State) -> bool) -> bool {
        let mut state = lock(&self.state);
        loop {
            if self.session.is_over() {
                return false;
            }
            if is(&state) {
                return true;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Puts a file in the plan; `have` is there already.
    fn plan(&self, source: Arc<Source>, have: &[Extent]) -> Result<(), TransferError> {
        if source.item.size <= SMALL {
            let mut state = lock(&self.state);
            let size = source.item.size;
            state.plan.add_small(source, size);
            self.settle(&mut state);
            return Ok(());
        }
        if !self.wait_until(|state| state.under_way.len() < UNDER_WAY) {
            return Ok(());
        }
        let extents = source.root.read(&source.path).and_then(|file| {
            let list = files::extents(&file, source.item.size)?;
            *lock(&source.open) = Some(Arc::new(file));
            Ok(list)
        });
        let extents = match extents {
            Ok(list) => plan::without(&list, have),
            Err(e) => {
                self.leave(source.item.name.bytes(), why(&e));
                return Ok(());
            }
        };
        let rest: u64 = extents.iter().map(|(extent, _)| extent.len).sum();
        source.rest.store(rest, Ordering::SeqCst);
        {
            let mut state = lock(&self.state);
            state.under_way.insert(source.id, source.clone());
            state.plan.add_large(source.clone(), extents);
            self.settle(&mut state);
        }
        if rest == 0 { self.end(&source) } else { Ok(()) }
    }

    // The streams

    fn stream(&self, mut stream: Stream) -> Result<(), TransferError> {
        let mut buffer = Buffer::new(PIECE);
        loop {
            let work = {
                let mut state = lock(&self.state);
                loop {
                    if self.session.is_over() {
                        return Ok(());
                    }
                    match state.plan.next() {
                        Work::Wait => {
                            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                        }
                        work => {
                            // The walk may go on.
                            self.changed.notify_all();
                            break work;
                        }
                    }
                }
            };
            match work {
                Work::Block { file, extent, hole } => self.block(&mut stream, &mut buffer, &file, extent, hole)?,
                Work::Pack(files) => self.pack(&mut stream, &mut buffer, files)?,
                Work::Wait => {}
                Work::End => {
                    self.write(&mut stream, &proto::pack(&Chunk::End).map_err(system("packing"))?)?;
                    return stream.finish().map_err(|e| self.session.lost("ending a stream", e));
                }
            }
        }
    }

    fn stream_ended(&self) -> Result<(), TransferError> {
        let mut state = lock(&self.state);
        state.streams -= 1;
        if state.streams > 0 || self.session.is_over() {
            return Ok(());
        }
        let (left, left_total) = (state.left.clone(), state.left_total);
        drop(state);
        self.session.send(&Message::AllSent { left, left_total })
    }

    fn write(&self, stream: &mut Stream, bytes: &[u8]) -> Result<(), TransferError> {
        timed(&self.counters.net_ns, || stream.write_all(bytes)).map_err(|e| self.session.lost("sending", e))?;
        self.session.moved(bytes.len() as u64);
        Ok(())
    }

    fn header(&self, stream: &mut Stream, chunk: &Chunk) -> Result<(), TransferError> {
        self.write(stream, &proto::pack(chunk).map_err(system("packing a header"))?)
    }

    fn block(
        &self,
        stream: &mut Stream,
        buffer: &mut Buffer,
        source: &Arc<Source>,
        extent: Extent,
        hole: bool,
    ) -> Result<(), TransferError> {
        self.header(stream, &Chunk::Block { id: source.id, file: source.item.clone(), extent, hole })?;
        if !hole {
            let file = lock(&source.open).clone();
            let mut hasher = blake3::Hasher::new();
            let (mut at, mut rest) = (extent.offset, extent.len);
            let mut good = file.is_some() && lock(&source.bad).is_none();
            while rest > 0 {
                let piece = &mut buffer.0[..PIECE.min(rest as usize)];
                if good {
                    let file = file.as_deref();
                    let read = timed(&self.counters.disk_ns, || file.map_or(Ok(()), |f| f.read_exact_at(piece, at)));
                    if let Err(e) = read {
                        good = false;
                        lock(&source.bad).get_or_insert(why(&e));
                    }
                }
                if good {
                    timed(&self.counters.hash_ns, || hasher.update(piece));
                }
                let len = piece.len();
                match (&*stream, &file) {
                    // The page cache's own pages go out, without another copy. Should they change between
                    // these two reads, the digest tells.
                    (Stream::Plain(socket), Some(file)) if good => {
                        let sent = timed(&self.counters.net_ns, || send_range(socket, file, at, len));
                        let sent = sent.map_err(|e| self.session.lost("sending", e))?;
                        self.session.moved(sent as u64);
                        if sent < len {
                            good = false;
                            lock(&source.bad).get_or_insert("it became shorter while it was read".into());
                            let rest = &buffer.0[sent..len];
                            self.write(stream, rest)?;
                        }
                    }
                    _ => self.write(stream, piece)?,
                }
                let piece = &buffer.0[..len];
                at += piece.len() as u64;
                rest -= piece.len() as u64;
            }
            self.write(stream, &Trailer { good, digest: *hasher.finalize().as_bytes() }.pack())?;
            self.counters.wire_bytes.fetch_add(extent.len, Ordering::Relaxed);
        }
        if source.rest.fetch_sub(extent.len, Ordering::SeqCst) == extent.len {
            self.end(source)?;
        }
        Ok(())
    }

    /// All of a large file has been read: is it what it was?
    fn end(&self, source: &Source) -> Result<(), TransferError> {
        let file = lock(&source.open).take();
        let mut failed = lock(&source.bad).take();
        if let (None, Some(file)) = (&failed, file) {
            match files::unchanged(&file, source.item.size, source.item.meta.mtime) {
                Ok(true) => {}
                Ok(false) => failed = Some("it changed while it was read; copy it again when it is at rest".into()),
                Err(e) => failed = Some(why(&e)),
            }
        }
        if let Some(failed) = &failed {
            self.leave(source.item.name.bytes(), failed);
        }
        self.session.send(&Message::FileEnd { id: source.id, failed })
    }

    fn pack(&self, stream: &mut Stream, buffer: &mut Buffer, files: Vec<Arc<Source>>) -> Result<(), TransferError> {
        let mut items = Vec::with_capacity(files.len());
        buffer.1.clear();
        timed(&self.counters.disk_ns, || {
            for source in &files {
                let from = buffer.1.len();
                match whole(source, self.options.xattrs, &mut buffer.1) {
                    Ok(item) => items.push(item),
                    Err(text) => {
                        buffer.1.truncate(from);
                        self.leave(source.item.name.bytes(), text);
                    }
                }
            }
        });
        let digest = timed(&self.counters.hash_ns, || *blake3::hash(&buffer.1).as_bytes());
        self.header(stream, &Chunk::Pack(items))?;
        for piece in buffer.1.chunks(PIECE) {
            self.write(stream, piece)?;
        }
        self.write(stream, &Trailer { good: true, digest }.pack())?;
        self.counters.wire_bytes.fetch_add(buffer.1.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// Sends bytes of a file by reference (`sendfile(2)`); gives how many there were.
fn send_range(socket: &TcpStream, file: &File, at: u64, len: usize) -> std::io::Result<usize> {
    let mut offset = at as i64;
    let mut sent = 0;
    while sent < len {
        match nix::sys::sendfile::sendfile64(socket, file, Some(&mut offset), len - sent) {
            Ok(0) => break,
            Ok(n) => sent += n,
            Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(sent)
}

/// Bytes of a block: what was asked for, or less where many streams would take too much memory.
pub(crate) fn block_size(options: &Options, streams: usize) -> u64 {
    const ALL: u64 = 96 << 20;
    u64::from(options.block).min(ALL / streams.max(1) as u64)
}

/// A stream's memory: a piece of a large file, and a pack of small ones.
struct Buffer(Vec<u8>, Vec<u8>);

impl Buffer {
    fn new(piece: usize) -> Buffer {
        Buffer(vec![0; piece], Vec::new())
    }
}

/// An error as a person reads it, without the number.
pub(crate) fn why(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => nix::errno::Errno::from_raw(code).desc().to_lowercase(),
        None if error.kind() == std::io::ErrorKind::UnexpectedEof => "it became shorter while it was read".into(),
        None => error.to_string(),
    }
}

pub(crate) fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), TransferError> {
    let builder = std::thread::Builder::new().name(name.into()).stack_size(512 << 10);
    builder.spawn(work).map(drop).map_err(system("starting a thread"))
}

/// Appends a small file, as it is now; gives its item, or why it cannot be sent.
fn whole(source: &Source, xattrs: bool, to: &mut Vec<u8>) -> Result<FileItem, String> {
    let file = source.root.read(&source.path).map_err(|e| why(&e))?;
    let mut item = source.item.clone();
    let from = to.len();
    to.resize(from + item.size as usize, 0);
    file.read_exact_at(&mut to[from..], 0).map_err(|e| why(&e))?;
    if !files::unchanged(&file, item.size, item.meta.mtime).map_err(|e| why(&e))? {
        return Err("it changed while it was read; copy it again when it is at rest".into());
    }
    if xattrs {
        item.meta.xattrs = files::xattrs(&file);
    }
    Ok(item)
}

impl Handler for Sender {
    fn handle(&self, message: Message) -> Result<bool, TransferError> {
        match message {
            Message::Want(wants) => {
                let offered = lock(&self.state).offers.front().cloned();
                let Some(offered) = offered.filter(|offered| offered.len() == wants.len()) else {
                    let why = "an answer to no question".to_owned();
                    return Err(TransferError::Stranger { peer: self.session.peer.clone(), why });
                };
                // Planning may wait for room, which this thread's next messages make: not here.
                let mut state = lock(&self.state);
                state.offers.pop_front();
                state.answers.push_back((offered, wants));
                self.changed.notify_all();
            }
            Message::FileDone { id } => {
                let mut state = lock(&self.state);
                state.under_way.remove(&id);
                self.changed.notify_all();
                self.session.moved(1);
            }
            Message::Progress { bytes, files, times } => {
                let before = self.counters.done_bytes.swap(bytes, Ordering::Relaxed);
                let before_files = self.counters.done_files.swap(files, Ordering::Relaxed);
                *lock(&self.counters.other) = times;
                self.session.moved(u64::from(before != bytes || before_files != files));
            }
            Message::AllDone(summary) => {
                lock(&self.state).summary = Some(summary);
                self.session.finish();
                return Ok(true);
            }
            Message::Report { .. } => {}
            other => return Err(self.session.unexpected(&other)),
        }
        Ok(false)
    }
}
