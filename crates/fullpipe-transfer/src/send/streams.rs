//! Sends chunks: reads blocks and packs, hashes them, and writes them to the streams.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use super::outgoing::{OutgoingFile, Unreadable};
use super::sender::{Sender, State};
use fullpipe_net::stream::DataStream;

use crate::connection::stream::{Stream, tcp_info};
use crate::error::{SHORTER, TransferError, system, unreadable};
use crate::fs::direct_io::{Aligned, Pipe};
use crate::fs::large_file::SourceFile;
use crate::fs::metadata;
use crate::protocol::chunk::{Chunk, Trailer};
use crate::protocol::digest::{Digest, Mac, Tagger};
use crate::protocol::file::{Extent, FileItem};
use crate::protocol::frame;
use crate::protocol::message::{Message, Reading};
use crate::send::schedule::Work;
use crate::sizes::{MAX_HEADER_BYTES, PIECE};
use crate::telemetry::counters::timed;
use crate::threads::lock;

/// What a stream sends next.
enum Ready {
    /// Bytes of a block that were read ahead.
    Piece(Piece),
    /// Anything else.
    Work(Work<Arc<OutgoingFile>>),
}

/// A part of a block.
struct Piece {
    source: Arc<OutgoingFile>,
    block: Extent,
    first: bool,
    data: Aligned,
    len: usize,
    /// The block's digest, with its last piece only. The inner `None` means that the block could not be read.
    digest: Option<Option<Digest>>,
}

/// A stream, and what the tag of its next chunk is computed from.
pub(super) struct OutgoingStream {
    stream: Stream,
    tagger: Tagger,
    /// The frame with the header of the chunk that is being sent.
    header: Vec<u8>,
}

impl OutgoingStream {
    /// The trailer of the chunk that is being sent. `data` is the digest of its data, if it has data.
    fn trailer(&mut self, data: Option<&Digest>) -> [u8; Trailer::LEN] {
        Trailer(Some(self.tagger.next(&self.header[frame::FRAME_HEAD..], data))).pack()
    }

    /// The trailer of the chunk that is being sent if its data could not be read.
    fn no_trailer(&mut self) -> [u8; Trailer::LEN] {
        self.tagger.skip();
        Trailer(None).pack()
    }
}

/// Longest time for which a stream that waits for its turn does not notice that the session is over.
const TURN_CHECK: Duration = Duration::from_millis(50);
/// Longest time for which files are read into one pack. The receiver hears nothing on this stream meanwhile.
const MAX_PACK_TIME: Duration = Duration::from_secs(1);

/// The memory of a stream.
struct Buffer {
    /// A piece of a large file.
    piece: Vec<u8>,
    /// The content of a pack.
    pack: Vec<u8>,
}

impl Buffer {
    fn new(piece: usize) -> Buffer {
        Buffer { piece: vec![0; piece], pack: Vec::new() }
    }
}

impl Sender {
    /// The next work for stream `i`, for which it waits; `None` when the session is over.
    fn next(&self, i: u16) -> Option<Work<Arc<OutgoingFile>>> {
        let mut state = self.parked(i);
        loop {
            if self.session.is_over() {
                return None;
            }
            let most = state.portion.most();
            match state.plan.take(most) {
                Work::Wait => state = self.wait(state),
                work => {
                    // There is room again for files that the walk finds.
                    self.wake(&state);
                    return Some(work);
                }
            }
        }
    }

    /// Waits until stream `i` may take work, or until there is nothing but to end.
    pub(super) fn parked(&self, i: u16) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        while i >= state.sending && state.plan.rest() != Some(0) && !self.session.is_over() {
            state.parked += 1;
            state = self.released.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.parked -= 1;
        }
        state
    }

    /// Sends one stream to its end. A second thread takes its work and reads ahead blocks that bypass the page cache.
    pub(super) fn stream(&self, i: u16, stream: Stream) -> Result<(), TransferError> {
        let mut line = OutgoingStream { stream, tagger: Tagger::new(self.tags, i), header: Vec::new() };
        if let Some(input) = self.from.input() {
            return self.stream_input(i, &mut line, input);
        }
        let (pipe, coming, give_back) = Pipe::new(self.block);
        std::thread::scope(|scope| {
            let ahead = move || self.read_ahead(i, &pipe);
            let started =
                std::thread::Builder::new().name("read".into()).stack_size(256 << 10).spawn_scoped(scope, ahead);
            let result =
                started.map_err(system("starting a thread")).and_then(|_| self.feed(i, &mut line, coming, &give_back));
            if let Err(error) = result {
                // This must come before the wait for the other thread, which may itself wait until the session ends.
                self.session.fail(error);
            }
        });
        Ok(())
    }

    /// Takes the stream's work and hands it on. Blocks that bypass the page cache are read here.
    fn read_ahead(&self, i: u16, pipe: &Pipe<Ready>) {
        while let Some(work) = self.next(i) {
            let over = matches!(work, Work::End);
            let past_cache = match &work {
                Work::Block { file, hole: false, .. } if !file.is_given_up() => lock(&file.open).clone(),
                _ => None,
            };
            let sent = match (work, past_cache.filter(|open| open.is_direct())) {
                (Work::Block { file, extent, .. }, Some(open)) => self.read_block(&file, &open, extent, pipe),
                (work, _) => pipe.to.send(Ready::Work(work)),
            };
            if sent.is_err() || over {
                return;
            }
        }
    }

    /// Reads a block and hands it on piece by piece.
    fn read_block(
        &self,
        source: &Arc<OutgoingFile>,
        open: &SourceFile,
        block: Extent,
        pipe: &Pipe<Ready>,
    ) -> Result<(), mpsc::SendError<Ready>> {
        // `None` once a read has failed.
        let mut mac = Some(self.key.block(source.item.key(), block));
        let mut at = 0;
        while at < block.len {
            let len = (pipe.piece as u64).min(block.len - at) as usize;
            let mut data = pipe.memory();
            if let Some(hash) = &mut mac {
                let offset = block.offset + at;
                let read = || open.read_direct(&mut data, len, offset);
                match timed(&self.counters.disk_ns, read) {
                    Ok(()) => timed(&self.counters.hash_ns, || hash.update(data.first(len))),
                    Err(e) => {
                        self.check(self.give_up(source, Unreadable::of(&e)));
                        mac = None;
                    }
                }
            }
            let first = at == 0;
            at += len as u64;
            let digest = (at == block.len).then(|| mac.take().map(Mac::finish));
            pipe.to.send(Ready::Piece(Piece { source: source.clone(), block, first, data, len, digest }))?;
        }
        Ok(())
    }

    /// Sends the work that was handed on. It owns `coming`, so that the thread that reads ahead notices when this ends.
    fn feed(
        &self,
        i: u16,
        line: &mut OutgoingStream,
        coming: mpsc::Receiver<Ready>,
        give_back: &mpsc::Sender<Aligned>,
    ) -> Result<(), TransferError> {
        let mut buffer = Buffer::new(PIECE);
        let mut has_begun = false;
        for ready in coming {
            if !has_begun && !matches!(ready, Ready::Work(Work::Wait | Work::End)) {
                self.await_turn(i, &line.stream);
                has_begun = true;
            }
            match ready {
                Ready::Piece(mut piece) => {
                    if piece.first {
                        self.begin(line, &piece.source, piece.block)?;
                    }
                    for bytes in piece.data.first(piece.len).chunks(PIECE) {
                        self.write(line, bytes)?;
                    }
                    // This fails only if the other thread has ended and needs no memory any more.
                    let _ = give_back.send(piece.data);
                    if let Some(digest) = piece.digest {
                        self.close(line, digest)?;
                        self.counters.wire_bytes.fetch_add(piece.block.len, Ordering::Relaxed);
                        self.dealt_with(&piece.source, piece.block)?;
                    }
                }
                Ready::Work(Work::Block { file, extent, .. }) if file.is_given_up() => {
                    self.dealt_with(&file, extent)?;
                }
                Ready::Work(Work::Block { file, extent, hole }) => {
                    self.block(line, &mut buffer, &file, extent, hole)?
                }
                Ready::Work(Work::Pack(files)) => self.pack(line, &mut buffer, files)?,
                Ready::Work(Work::Wait) => {}
                Ready::Work(Work::End) => return self.end_stream(line),
            }
        }
        Ok(())
    }

    /// Waits until it is stream `i`'s turn to begin.
    fn await_turn(&self, i: u16, stream: &Stream) {
        let turns = lock(&self.state).turns;
        let handle = stream.handle();
        let info = tcp_info(&*handle);
        let of = |field| info.as_ref().and_then(|info| info.get(field)).map_or(f64::INFINITY, |n| n as f64);
        let begins = turns.begins(i, self.rtt, of("snd_mss"), of("max_pacing_rate"));
        while !self.session.is_over()
            && let Some(wait) = begins.checked_duration_since(Instant::now())
        {
            std::thread::sleep(wait.min(TURN_CHECK));
        }
    }

    /// Gives a file up that this end could not read. The receiver is told, so that it does not wait for blocks that are left out.
    fn give_up(&self, source: &OutgoingFile, why: Unreadable) -> Result<(), TransferError> {
        let first = {
            let mut bad = lock(&source.bad);
            let first = bad.is_none();
            bad.get_or_insert(why);
            first
        };
        if first { self.session.send(&Message::GivenUp { id: source.id }) } else { Ok(()) }
    }

    /// Counts bytes of a large file that were sent, or will never be. With the last of them the file ends.
    fn dealt_with(&self, source: &OutgoingFile, extent: Extent) -> Result<(), TransferError> {
        if source.rest.fetch_sub(extent.len, Ordering::SeqCst) == extent.len { self.end(source) } else { Ok(()) }
    }

    /// Ends a stream.
    pub(super) fn end_stream(&self, line: &mut OutgoingStream) -> Result<(), TransferError> {
        self.empty(line, &Chunk::End)?;
        let lost = |e| self.session.lost("ending a stream", e);
        line.stream.flush().map_err(lost)?;
        // The receiver learns at once that all was sent: UDT waits for a round trip to end a stream.
        self.stream_ended()?;
        line.stream.finish().map_err(lost)
    }

    /// Counts a stream that has ended. After the last one, the receiver is told that all was sent.
    fn stream_ended(&self) -> Result<(), TransferError> {
        let mut state = lock(&self.state);
        state.streams -= 1;
        if state.streams > 0 || self.session.is_over() {
            return Ok(());
        }
        let (skipped, not_kept) = (state.skipped.clone(), std::mem::take(&mut state.not_kept));
        drop(state);
        if !not_kept.is_empty() {
            self.session.send(&Message::NotKept(Box::new(not_kept)))?;
        }
        self.session.send(&Message::AllSent(skipped))
    }

    /// Writes bytes to a stream.
    pub(super) fn write(&self, line: &mut OutgoingStream, bytes: &[u8]) -> Result<(), TransferError> {
        timed(&self.counters.net_ns, || line.stream.write_all(bytes)).map_err(|e| self.session.lost("sending", e))?;
        self.session.moved(bytes.len() as u64);
        Ok(())
    }

    /// Sends the header of a chunk with data.
    pub(super) fn header(&self, line: &mut OutgoingStream, chunk: &Chunk) -> Result<(), TransferError> {
        line.header = frame::pack(chunk).map_err(system("packing a header"))?;
        let header = std::mem::take(&mut line.header);
        let sent = self.write(line, &header);
        line.header = header;
        sent
    }

    /// Sends the trailer of a chunk with data. `digest` is `None` if the data could not be read.
    pub(super) fn close(&self, line: &mut OutgoingStream, digest: Option<Digest>) -> Result<(), TransferError> {
        let trailer = match digest {
            Some(digest) => line.trailer(Some(&digest)),
            None => line.no_trailer(),
        };
        self.write(line, &trailer)
    }

    /// Sends a chunk without data.
    fn empty(&self, line: &mut OutgoingStream, chunk: &Chunk) -> Result<(), TransferError> {
        line.header = frame::pack(chunk).map_err(system("packing a header"))?;
        let trailer = line.trailer(None);
        let whole = [&line.header[..], &trailer].concat();
        self.write(line, &whole)
    }

    /// Sends the header of a block. All of its bytes must follow, even if the source cannot be read any further.
    fn begin(&self, line: &mut OutgoingStream, source: &OutgoingFile, block: Extent) -> Result<(), TransferError> {
        source.sent.fetch_add(block.len, Ordering::SeqCst);
        self.header(line, &source.chunk(block, false))
    }

    /// Sends a block, or a hole.
    fn block(
        &self,
        line: &mut OutgoingStream,
        buffer: &mut Buffer,
        source: &Arc<OutgoingFile>,
        extent: Extent,
        hole: bool,
    ) -> Result<(), TransferError> {
        if hole {
            source.sent.fetch_add(extent.len, Ordering::SeqCst);
            self.empty(line, &source.chunk(extent, true))?;
        } else {
            self.begin(line, source, extent)?;
            let open = lock(&source.open).clone();
            let file = open.as_deref();
            let mut mac = self.key.block(source.item.key(), extent);
            let (mut at, mut rest) = (extent.offset, extent.len);
            let mut good = file.is_some() && lock(&source.bad).is_none();
            while rest > 0 {
                let piece = &mut buffer.piece[..PIECE.min(rest as usize)];
                if good {
                    let read = timed(&self.counters.disk_ns, || file.map_or(Ok(()), |f| f.read_cached(piece, at)));
                    if let Err(e) = read {
                        good = false;
                        self.give_up(source, Unreadable::of(&e))?;
                    }
                }
                if good {
                    timed(&self.counters.hash_ns, || mac.update(piece));
                }
                let len = piece.len();
                match file {
                    // Sends the pages of the page cache without a copy. If they change between the read above and
                    // this call, the digest does not match and the receiver notices.
                    Some(file) if good && line.stream.sends_files() => {
                        let sent = timed(&self.counters.net_ns, || send_range(&mut line.stream, file.file(), at, len));
                        let sent = sent.map_err(|e| self.session.lost("sending", e))?;
                        self.session.moved(sent as u64);
                        if sent < len {
                            good = false;
                            self.give_up(source, Unreadable::Short)?;
                            let rest = &buffer.piece[sent..len];
                            self.write(line, rest)?;
                        }
                    }
                    _ => self.write(line, piece)?,
                }
                let piece = &buffer.piece[..len];
                at += piece.len() as u64;
                rest -= piece.len() as u64;
            }
            self.close(line, good.then(|| mac.finish()))?;
            self.counters.wire_bytes.fetch_add(extent.len, Ordering::Relaxed);
        }
        self.dealt_with(source, extent)
    }

    /// Ends a large file: checks that it is still what it was when it was found, and tells the receiver.
    pub(super) fn end(&self, source: &OutgoingFile) -> Result<(), TransferError> {
        let file = lock(&source.open).take();
        let bad = lock(&source.bad).take();
        let changed = file.and_then(|open| match metadata::at_rest(open.file(), &source.item, self.options.growing) {
            Ok(true) => None,
            Ok(false) => Some(restless(open.file())),
            Err(e) => Some(unreadable(&e)),
        });
        let reading = match (&bad, &changed) {
            (_, Some(_)) | (Some(Unreadable::Short), None) => Reading::Changed,
            (Some(Unreadable::Other(_)), None) => Reading::Partly { sent: source.sent.load(Ordering::SeqCst) },
            (None, None) => Reading::Whole,
        };
        let name = source.item.name.bytes();
        match (bad, changed) {
            (Some(Unreadable::Short), Some(_)) => self.skip(name, SHORTER),
            (Some(Unreadable::Other(why)), _) | (None, Some(why)) => self.skip(name, why),
            (Some(Unreadable::Short), None) => self.skip_entry(Unreadable::Short.skipped(name)),
            (None, None) => {}
        }
        self.session.send(&Message::FileEnd { id: source.id, reading })
    }

    /// Sends small files, in as many packs as their headers need.
    fn pack(
        &self,
        line: &mut OutgoingStream,
        buffer: &mut Buffer,
        files: Vec<Arc<OutgoingFile>>,
    ) -> Result<(), TransferError> {
        let mut files = files.into_iter().peekable();
        while files.peek().is_some() {
            self.pack_some(line, buffer, &mut files)?;
        }
        Ok(())
    }

    /// Sends as many small files as one header can name.
    fn pack_some(
        &self,
        line: &mut OutgoingStream,
        buffer: &mut Buffer,
        files: &mut impl Iterator<Item = Arc<OutgoingFile>>,
    ) -> Result<(), TransferError> {
        let (mut items, mut weight, mut len) = (Vec::new(), 0, 0);
        let begin = Instant::now();
        timed(&self.counters.disk_ns, || {
            while weight < MAX_HEADER_BYTES
                && begin.elapsed() < MAX_PACK_TIME
                && let Some(source) = files.next()
            {
                self.session.moved(1);
                let end = len + source.item.size as usize;
                if buffer.pack.len() < end {
                    buffer.pack.resize(end, 0);
                }
                match self.whole(&source, &mut buffer.pack[len..end]) {
                    Ok(item) => {
                        len = end;
                        weight += item.weight();
                        items.push(item);
                    }
                    Err(why) => self.skip_entry(why.skipped(source.item.name.bytes())),
                }
            }
        });
        // Who waits for a single file is told by then why it does not come.
        if items.is_empty() {
            return Ok(());
        }
        let content = &buffer.pack[..len];
        let digest = timed(&self.counters.hash_ns, || self.key.pack(content));
        self.header(line, &Chunk::Pack(items))?;
        for piece in content.chunks(PIECE) {
            self.write(line, piece)?;
        }
        self.close(line, Some(digest))?;
        self.counters.wire_bytes.fetch_add(len as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Reads a small file. Returns what the receiver is told of it, or why it cannot be sent.
    fn whole(&self, source: &OutgoingFile, to: &mut [u8]) -> Result<FileItem, Unreadable> {
        let file = source.at.read().map_err(|e| Unreadable::of(&e))?;
        let mut item = source.item.clone();
        let read = file.read_exact_at(to, 0).map_err(|e| Unreadable::of(&e));
        if !matches!(read, Err(Unreadable::Other(_)))
            && !metadata::at_rest(&file, &item, self.options.growing).map_err(|e| Unreadable::of(&e))?
        {
            return Err(Unreadable::Other(if read.is_err() { SHORTER.into() } else { restless(&file) }));
        }
        read?;
        self.describe(&file, &mut item);
        Ok(item)
    }
}

/// Sends bytes of a file by reference. Returns how many the file had.
fn send_range(stream: &mut Stream, file: &File, at: u64, len: usize) -> std::io::Result<usize> {
    let mut sent = 0;
    while sent < len {
        match stream.send_file(file.as_fd(), at + sent as u64, len - sent) {
            Ok(0) => break,
            Ok(n) => sent += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(sent)
}

/// Says how a file changed that is no longer what it was when it was found.
fn restless(file: &File) -> String {
    match file.metadata() {
        Ok(now) if now.nlink() == 0 => "it was deleted or replaced while it was read".into(),
        _ => "it changed while it was read; copy it again when it is at rest".into(),
    }
}
