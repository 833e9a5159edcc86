//! Receives chunks from the streams. A chunk counts only once its tag and its digest were checked.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use super::incoming::IncomingStream;
use super::large::LargeFile;
use super::receiver::Receiver;
use super::small::Folder;
use crate::connection::stream::Stream;
use crate::error::{TransferError, system};
use crate::fs::direct_io::{Aligned, Pipe};
use crate::fs::large_file::HugePages;
use crate::protocol::chunk::Chunk;
use crate::protocol::digest::{Digest, Mac};
use crate::protocol::file::Extent;
use crate::sizes::{HUGE_PAGE, PIECE};
use crate::telemetry::counters::timed;
use crate::threads::lock;

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
        let mut line = IncomingStream::new((i, stream), (self.tags, most), &self.session, &self.counters);
        let mut memory = Memory { buffer: vec![0; PIECE], huge_pages: HugePages::default() };
        let mut pack = Vec::new();
        // The folder of the last small file: the next one mostly lies in the same.
        let mut last: Option<Folder> = None;
        loop {
            let (mut chunk, len) = line.next()?;
            self.change(&mut chunk);
            if let Some(trace) = &self.traces.own {
                trace.arrived(i, 0);
            }
            let hole = matches!(chunk, Chunk::Block { hole: true, .. });
            let arrived = if hole { 0 } else { len };
            match chunk {
                Chunk::End => {
                    return if line.is_good(None)? { Ok(()) } else { Err(self.damaged("a stream's end")) };
                }
                Chunk::Block { id, file, extent, hole: true } => {
                    if !line.is_good(None)? {
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
                    line.receive(&mut pack)?;
                    let digest = timed(&self.counters.hash_ns, || self.key.pack(&pack));
                    // A pack always has a tag: files that the sender could not read are in none.
                    if !line.is_good(Some(&digest))? {
                        return Err(self.damaged("a pack of files"));
                    }
                    self.counters.whole(len);
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

    /// The error for data that were damaged on the way, or that no sender would send.
    pub(super) fn damaged(&self, what: &str) -> TransferError {
        TransferError::Damaged { peer: self.session.peer.clone(), what: what.to_owned() }
    }

    /// Receives a block for the thread that writes behind this one.
    fn fill(
        &self,
        line: &mut IncomingStream<'_>,
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
                line.receive(bytes)?;
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
        let good = line.is_good(Some(&digest))?;
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
        line: &mut IncomingStream<'_>,
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
                Some(large) => self.in_place(line, &mut mac, memory, large, at, rest)?,
                None => None,
            };
            let done = if let Some(result) = in_place {
                failed = result.err();
                HUGE_PAGE as u64
            } else {
                // No further than to where the next huge page begins.
                let len = (PIECE as u64).min(rest).min(HUGE_PAGE as u64 - at % HUGE_PAGE as u64);
                let piece = &mut memory.buffer[..len as usize];
                line.receive(piece)?;
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
        let good = line.is_good(Some(&digest))?;
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
        line: &mut IncomingStream<'_>,
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
            line.receive_or(piece, || guard.put())?;
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
