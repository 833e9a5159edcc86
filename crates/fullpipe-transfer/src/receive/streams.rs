//! Receives chunks from the streams. A chunk counts only once its tag and its digest were checked.

use std::io::{self, Read};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use super::large::LargeFile;
use super::receiver::Receiver;
use super::small::Folder;
use fullpipe_net::stream::DataStream;

use crate::connection::stream::Stream;
use crate::error::{TransferError, system};
use crate::fs::direct_io::{Aligned, Pipe};
use crate::fs::large_file::HugePages;
use crate::protocol::chunk::{Chunk, PACK_FILES, Trailer};
use crate::protocol::digest::{Digest, Mac, Tagger};
use crate::protocol::file::Extent;
use crate::protocol::frame;
use crate::sizes::{HUGE_PAGE, PIECE, SMALL};
use crate::telemetry::counters::timed;
use crate::threads::lock;

/// Bytes that one read waits for when the network is slower than this end. Without it, a stream would read each packet by
/// itself. It is small because received bytes are what shows that a transfer has not stalled.
const MIN_READ_BYTES: usize = 16 << 10;

/// A stream, and what the tag of its next chunk is computed from.
struct IncomingStream {
    stream: Stream,
    tagger: Tagger,
    /// The packed header of the chunk that is being received.
    header: Vec<u8>,
}

/// Received bytes of a block, on their way to the thread that writes them.
struct Piece {
    large: Arc<LargeFile>,
    data: Aligned,
    len: usize,
    offset: u64,
    after: After,
}

/// What follows a piece.
enum After {
    /// Another piece of the same block.
    More,
    /// Nothing: the block is complete and matches its digest.
    Whole { id: u64, extent: Extent, digest: Digest },
    /// Nothing: the block is complete, but does not match its digest or has none.
    Damaged,
}

impl Receiver {
    /// Receives one stream to its end. A second thread writes blocks that bypass the page cache (O_DIRECT).
    pub(super) fn stream(&self, i: usize, stream: Stream, most: u64) -> Result<(), TransferError> {
        let (pipe, filled, give_back) = Pipe::new(most);
        std::thread::scope(|scope| {
            let write = move || self.write_behind(&filled, &give_back);
            let started =
                std::thread::Builder::new().name("write".into()).stack_size(256 << 10).spawn_scoped(scope, write);
            started.map_err(system("starting a thread"))?;
            self.take(i, stream, most, pipe)
        })
    }

    /// Writes blocks that bypass the page cache, and counts them.
    fn write_behind(&self, filled: &mpsc::Receiver<Piece>, give_back: &mpsc::Sender<Aligned>) {
        // The result for the block that is being written.
        let mut written = Ok(());
        for Piece { large, mut data, len, offset, after } in filled {
            if written.is_ok() && !matches!(after, After::Damaged) {
                let write = || large.target.write_direct(&mut data, len, offset);
                written = timed(&self.counters.disk_ns, write);
            }
            let _ = give_back.send(data);
            match after {
                After::More => {}
                After::Damaged => written = Ok(()),
                After::Whole { id, extent, digest } => {
                    let result = match std::mem::replace(&mut written, Ok(())) {
                        Ok(()) => self.covered(id, Some(large), extent, Some(digest)),
                        Err(e) => self.give_up(id, &large, &e),
                    };
                    self.check(result);
                }
            }
        }
    }

    /// Receives the chunks of one stream.
    fn take(&self, i: usize, stream: Stream, most: u64, pipe: Pipe<Piece>) -> Result<(), TransferError> {
        let mut line = IncomingStream { stream, tagger: Tagger::new(self.tags, i as u16), header: Vec::new() };
        let mut memory = Memory { buffer: vec![0; PIECE], huge_pages: HugePages::default() };
        let mut pack = Vec::new();
        // The folder of the last small file: the next one mostly lies in the same.
        let mut last: Option<Folder> = None;
        loop {
            let lost = |e| self.session.lost("receiving", e);
            let received = timed(&self.counters.net_ns, || frame::receive_packed::<Chunk>(&mut line.stream));
            let (chunk, header) = received.map_err(lost)?;
            line.header = header;
            if let Some(trace) = &self.traces.own {
                trace.arrived(i, 0);
            }
            let len = chunk.data_len().filter(|len| *len <= most);
            let fine = match &chunk {
                Chunk::Pack(files) => files.len() <= PACK_FILES && files.iter().all(|file| file.size <= SMALL),
                Chunk::Block { file, extent, .. } => extent.end().is_some_and(|end| end <= file.size),
                Chunk::End => true,
            };
            let (Some(len), true) = (len, fine) else {
                return Err(lost(io::Error::new(io::ErrorKind::InvalidData, "a chunk over its limits")));
            };
            let hole = matches!(chunk, Chunk::Block { hole: true, .. });
            let arrived = if hole { 0 } else { len };
            match chunk {
                Chunk::End => {
                    return if self.is_good(&mut line, None)? { Ok(()) } else { Err(self.damaged("a stream's end")) };
                }
                Chunk::Block { id, file, extent, hole: true } => {
                    if !self.is_good(&mut line, None)? {
                        return Err(self.damaged("a hole"));
                    }
                    let file = self.file_of_block(id, &file, extent)?;
                    self.hole(id, file, extent)?;
                }
                Chunk::Block { id, file, extent, hole: false } => {
                    let large = self.file_of_block(id, &file, extent)?;
                    let mac = self.key.block(file.key(), extent);
                    if let Some(large) = large.clone().filter(|large| large.target.is_direct()) {
                        self.fill(&mut line, mac, id, large, extent, &pipe)?;
                    } else {
                        self.block(&mut line, mac, &mut memory, id, large, extent)?;
                    }
                }
                Chunk::Pack(files) => {
                    pack.resize(len as usize, 0);
                    timed(&self.counters.net_ns, || line.stream.read_exact(&mut pack)).map_err(lost)?;
                    let digest = timed(&self.counters.hash_ns, || self.key.pack(&pack));
                    // A pack always has a tag: files that the sender could not read are in none.
                    if !self.is_good(&mut line, Some(&digest))? {
                        return Err(self.damaged("a pack of files"));
                    }
                    self.session.moved(len);
                    self.counters.come_bytes.fetch_add(len, Ordering::Relaxed);
                    let mut rest = pack.as_slice();
                    for item in &files {
                        let (content, behind) = rest.split_at(item.size as usize);
                        rest = behind;
                        // Another attempt may hold the destination by now.
                        if self.session.is_over() {
                            return Ok(());
                        }
                        timed(&self.counters.disk_ns, || self.small(item, content, &mut last))?;
                        self.session.moved(1);
                    }
                    lock(&self.summary).bytes += len;
                    self.counters.wire_bytes.fetch_add(len, Ordering::Relaxed);
                }
            }
            if let Some(trace) = &self.traces.own {
                trace.arrived(i, arrived);
            }
        }
    }

    /// Receives the trailer of a chunk. Returns whether it is the tag of this chunk with data of this digest.
    fn is_good(&self, line: &mut IncomingStream, data: Option<&Digest>) -> Result<bool, TransferError> {
        let mut bytes = [0; Trailer::LEN];
        timed(&self.counters.net_ns, || line.stream.read_exact(&mut bytes))
            .map_err(|e| self.session.lost("receiving", e))?;
        let right = line.tagger.next(&line.header, data);
        // The comparison of blake3's type takes the same time whichever bytes differ.
        let shown = Trailer::unpack(bytes).0;
        Ok(shown.is_some_and(|tag| blake3::Hash::from_bytes(tag) == blake3::Hash::from_bytes(right)))
    }

    /// Receives all of a piece of a block. Bytes count as they arrive, since a piece takes long over a slow path.
    fn receive(&self, stream: &mut Stream, piece: &mut [u8]) -> Result<(), TransferError> {
        self.receive_or(stream, piece, || false)
    }

    /// As [`Receiver::receive`], for a piece in a page of a file that may vanish: then `put` maps another page in its place,
    /// if it can.
    fn receive_or(&self, stream: &mut Stream, piece: &mut [u8], put: impl Fn() -> bool) -> Result<(), TransferError> {
        let mut at = 0;
        let mut waits = false;
        while at < piece.len() {
            let rest = &mut piece[at..];
            let asked = rest.len();
            let read = timed(&self.counters.net_ns, || {
                if waits { stream.read_full(&mut rest[..asked.min(MIN_READ_BYTES)]) } else { stream.read(rest) }
            });
            let n = match read {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.raw_os_error() == Some(libc::EFAULT) && put() => continue,
                read => read,
            };
            let n = n.map_err(|e| self.session.lost("receiving", e))?;
            // An encrypted stream waits for whole records by itself.
            waits |= n < asked && !stream.reads_records();
            self.session.moved(n as u64);
            self.counters.came(n as u64);
            at += n;
        }
        Ok(())
    }

    /// The error for data that were damaged on the way, or that no sender would send.
    pub(super) fn damaged(&self, what: &str) -> TransferError {
        TransferError::Damaged { peer: self.session.peer.clone(), what: what.to_owned() }
    }

    /// Receives a block for the thread that writes behind this one.
    fn fill(
        &self,
        line: &mut IncomingStream,
        mut mac: Mac,
        id: u64,
        large: Arc<LargeFile>,
        extent: Extent,
        pipe: &Pipe<Piece>,
    ) -> Result<(), TransferError> {
        let (mut offset, mut rest) = (extent.offset, extent.len);
        let (data, len) = loop {
            let len = (pipe.piece as u64).min(rest) as usize;
            let mut data = pipe.memory();
            for bytes in data.first(len).chunks_mut(PIECE) {
                self.receive(&mut line.stream, bytes)?;
                timed(&self.counters.hash_ns, || mac.update(bytes));
            }
            rest -= len as u64;
            if rest == 0 {
                break (data, len);
            }
            // The other thread ends only after this one, so this cannot fail.
            let _ = pipe.to.send(Piece { large: large.clone(), data, len, offset, after: After::More });
            offset += len as u64;
        };
        let digest = mac.finish();
        let good = self.is_good(line, Some(&digest))?;
        self.counters.whole(extent.len);
        let after = if good {
            lock(&self.summary).bytes += extent.len;
            self.counters.wire_bytes.fetch_add(extent.len, Ordering::Relaxed);
            After::Whole { id, extent, digest }
        } else {
            After::Damaged
        };
        let _ = pipe.to.send(Piece { large: large.clone(), data, len, offset, after });
        if !good {
            large.add_damaged(extent);
            self.close(id, &large)?;
        }
        Ok(())
    }

    /// Receives a block and writes it piece by piece.
    fn block(
        &self,
        line: &mut IncomingStream,
        mut mac: Mac,
        memory: &mut Memory,
        id: u64,
        file: Option<Arc<LargeFile>>,
        extent: Extent,
    ) -> Result<(), TransferError> {
        let (mut at, mut rest) = (extent.offset, extent.len);
        let mut failed = None;
        while rest > 0 {
            let large = file.as_ref().filter(|_| failed.is_none());
            let in_place = match large {
                Some(large) => self.in_place(&mut line.stream, &mut mac, memory, large, at, rest)?,
                None => None,
            };
            let done = if let Some(result) = in_place {
                failed = result.err();
                HUGE_PAGE as u64
            } else {
                // No further than to where the next huge page begins.
                let len = (PIECE as u64).min(rest).min(HUGE_PAGE as u64 - at % HUGE_PAGE as u64);
                let piece = &mut memory.buffer[..len as usize];
                self.receive(&mut line.stream, piece)?;
                timed(&self.counters.hash_ns, || mac.update(piece));
                if let Some(large) = large {
                    failed = timed(&self.counters.disk_ns, || large.target.write_cached(piece, at)).err();
                }
                len
            };
            at += done;
            rest -= done;
        }
        let digest = mac.finish();
        let good = self.is_good(line, Some(&digest))?;
        self.counters.whole(extent.len);
        if !good {
            let Some(large) = file else { return Ok(()) };
            large.add_damaged(extent);
            return self.close(id, &large);
        }
        lock(&self.summary).bytes += extent.len;
        self.counters.wire_bytes.fetch_add(extent.len, Ordering::Relaxed);
        if let (Some(large), Some(e)) = (&file, failed) {
            return self.give_up(id, large, &e);
        }
        self.covered(id, file, extent, Some(digest))
    }

    /// Receives the bytes at `at` straight into a huge page of the file. Returns whether the page could be written, or
    /// `None` if there is no huge page for them.
    fn in_place(
        &self,
        stream: &mut Stream,
        mac: &mut Mac,
        memory: &mut Memory,
        large: &LargeFile,
        at: u64,
        rest: u64,
    ) -> Result<Option<io::Result<()>>, TransferError> {
        let Some(mut page) = timed(&self.counters.disk_ns, || memory.huge_pages.page(&large.target, at, rest)) else {
            return Ok(None);
        };
        let (bytes, guard) = page.bytes();
        for piece in bytes.chunks_mut(PIECE) {
            self.receive_or(stream, piece, || guard.put())?;
            timed(&self.counters.hash_ns, || mac.update(piece));
        }
        Ok(Some(page.end()))
    }
}

/// The memory that a stream receives blocks into.
struct Memory {
    buffer: Vec<u8>,
    huge_pages: HugePages,
}
