//! One data stream of the receiving end: its chunks, and whether each is what the sender sent.

use std::io::{self, Read};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fullpipe_net::stream::DataStream;

use crate::connection::session::Session;
use crate::connection::stream::Stream;
use crate::error::TransferError;
use crate::protocol::chunk::{Chunk, PACK_FILES, Trailer};
use crate::protocol::digest::{Digest, Key, Tagger};
use crate::protocol::frame;
use crate::sizes::{PIECE, SMALL};
use crate::telemetry::counters::{Counters, timed};

/// Least bytes that one read waits for. Received bytes are what shows that a transfer has not stalled, also over a slow path.
const MIN_READ_BYTES: usize = 16 << 10;
/// A read that took less than this lets the next one wait for twice as many bytes.
const SHORT_READ: Duration = Duration::from_micros(250);
/// A read that took longer than this halves them.
const LONG_READ: Duration = Duration::from_millis(1);

/// A stream, and what the tag of its next chunk is computed from.
pub(super) struct IncomingStream<'a> {
    stream: Stream,
    tagger: Tagger,
    /// The packed header of the chunk that is being received.
    header: Vec<u8>,
    /// Most bytes of data in one chunk.
    most: u64,
    /// Bytes that one read waits for. A read for each packet as it comes would be most of what a fast network costs.
    read_bytes: usize,
    session: &'a Session,
    counters: &'a Counters,
}

impl<'a> IncomingStream<'a> {
    /// Starts with the first chunk of stream number `i`. `tags` is the key of the attempt's tags, `most` the most bytes of data
    /// in one chunk.
    pub(super) fn new(
        (i, stream): (usize, Stream),
        (tags, most): (Key, u64),
        session: &'a Session,
        counters: &'a Counters,
    ) -> IncomingStream<'a> {
        let (tagger, header, read_bytes) = (Tagger::new(tags, i as u16), Vec::new(), MIN_READ_BYTES);
        IncomingStream { stream, tagger, header, most, read_bytes, session, counters }
    }

    /// Receives the header of the next chunk. Returns the chunk and the number of its bytes, a hole's included.
    ///
    /// # Errors
    /// The connection's; the chunk exceeds a limit.
    pub(super) fn next(&mut self) -> Result<(Chunk, u64), TransferError> {
        let received = timed(&self.counters.net_ns, || frame::receive_packed::<Chunk>(&mut self.stream));
        let (chunk, header) = received.map_err(|e| self.lost(e))?;
        self.header = header;
        let len = chunk.data_len().filter(|len| *len <= self.most);
        let fine = match &chunk {
            Chunk::Pack(files) => files.len() <= PACK_FILES && files.iter().all(|file| file.size <= SMALL),
            Chunk::Block { file, extent, .. } => extent.end().is_some_and(|end| end <= file.size),
            Chunk::End => true,
        };
        match len.filter(|_| fine) {
            Some(len) => Ok((chunk, len)),
            None => Err(self.lost(io::Error::new(io::ErrorKind::InvalidData, "a chunk over its limits"))),
        }
    }

    /// Receives the trailer of a chunk. Returns whether it is the tag of this chunk with data of this digest.
    pub(super) fn is_good(&mut self, data: Option<&Digest>) -> Result<bool, TransferError> {
        let mut bytes = [0; Trailer::LEN];
        timed(&self.counters.net_ns, || self.stream.read_exact(&mut bytes)).map_err(|e| self.lost(e))?;
        let right = self.tagger.next(&self.header, data);
        // The comparison of blake3's type takes the same time whichever bytes differ.
        let shown = Trailer::unpack(bytes).0;
        Ok(shown.is_some_and(|tag| blake3::Hash::from_bytes(tag) == blake3::Hash::from_bytes(right)))
    }

    /// Receives all of a pack, or of a piece of a block. Bytes count as they arrive, since that takes long over a slow path.
    pub(super) fn receive(&mut self, piece: &mut [u8]) -> Result<(), TransferError> {
        self.receive_or(piece, || false)
    }

    /// As [`IncomingStream::receive`], for a piece in a page of a file that may vanish: then `put` maps another page in its
    /// place, if it can.
    pub(super) fn receive_or(&mut self, piece: &mut [u8], put: impl Fn() -> bool) -> Result<(), TransferError> {
        let mut at = 0;
        while at < piece.len() {
            let asked = self.read_bytes.min(piece.len() - at);
            let begin = Instant::now();
            let read = self.stream.read_full(&mut piece[at..at + asked]);
            let took = begin.elapsed();
            self.counters.net_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
            let n = match read {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.raw_os_error() == Some(libc::EFAULT) && put() => continue,
                read => read,
            };
            let n = n.map_err(|e| self.lost(e))?;
            self.read_bytes = next_read(self.read_bytes, took);
            self.session.moved(n as u64);
            self.counters.came(n as u64);
            at += n;
        }
        Ok(())
    }

    fn lost(&self, error: io::Error) -> TransferError {
        self.session.lost("receiving", error)
    }
}

/// The bytes that the next read waits for, after one that waited for `bytes` and took this time.
fn next_read(bytes: usize, took: Duration) -> usize {
    if took < SHORT_READ {
        (bytes * 2).min(PIECE)
    } else if took > LONG_READ {
        (bytes / 2).max(MIN_READ_BYTES)
    } else {
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that a read waits for once they settle, where they come at this rate.
    fn settled(bytes_per_s: f64) -> usize {
        (0..100).fold(MIN_READ_BYTES, |bytes, _| next_read(bytes, Duration::from_secs_f64(bytes as f64 / bytes_per_s)))
    }

    #[test]
    fn reads_wait_for_a_quarter_to_one_millisecond() {
        assert_eq!(settled(1e10), PIECE);
        for bytes_per_s in [1.25e8, 2.5e8, 3.125e8, 1e9] {
            let seconds = settled(bytes_per_s) as f64 / bytes_per_s;
            assert!((2.5e-4..=1e-3).contains(&seconds), "{bytes_per_s}: {seconds}");
        }
        assert_eq!(settled(2.5e5), MIN_READ_BYTES);
    }

    #[test]
    fn a_path_that_becomes_slower_shows_what_comes_within_seconds() {
        let slow = |bytes: usize| Duration::from_secs_f64(bytes as f64 / 2.5e5);
        assert_eq!(
            [PIECE, PIECE / 2, PIECE / 4, PIECE / 8].map(|bytes| next_read(bytes, slow(bytes))),
            [PIECE / 2, PIECE / 4, PIECE / 8, MIN_READ_BYTES]
        );
    }
}
