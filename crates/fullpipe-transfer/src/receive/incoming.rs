//! One data stream of the receiving end: its chunks, and whether each is what the sender sent.

use std::io::{self, Read};

use fullpipe_net::stream::DataStream;

use crate::connection::session::Session;
use crate::connection::stream::Stream;
use crate::error::TransferError;
use crate::protocol::chunk::{Chunk, PACK_FILES, Trailer};
use crate::protocol::digest::{Digest, Key, Tagger};
use crate::protocol::frame;
use crate::sizes::SMALL;
use crate::telemetry::counters::{Counters, timed};

/// Bytes that one read waits for when the network is slower than this end. Without it, a stream would read each packet by
/// itself. It is small because received bytes are what shows that a transfer has not stalled.
const MIN_READ_BYTES: usize = 16 << 10;

/// A stream, and what the tag of its next chunk is computed from.
pub(super) struct IncomingStream<'a> {
    stream: Stream,
    tagger: Tagger,
    /// The packed header of the chunk that is being received.
    header: Vec<u8>,
    /// Most bytes of data in one chunk.
    most: u64,
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
        IncomingStream { stream, tagger: Tagger::new(tags, i as u16), header: Vec::new(), most, session, counters }
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

    /// Receives all of a pack's data.
    pub(super) fn pack(&mut self, data: &mut [u8]) -> Result<(), TransferError> {
        timed(&self.counters.net_ns, || self.stream.read_exact(data)).map_err(|e| self.lost(e))
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

    /// Receives all of a piece of a block. Bytes count as they arrive, since a piece takes long over a slow path.
    pub(super) fn receive(&mut self, piece: &mut [u8]) -> Result<(), TransferError> {
        self.receive_or(piece, || false)
    }

    /// As [`IncomingStream::receive`], for a piece in a page of a file that may vanish: then `put` maps another page in its
    /// place, if it can.
    pub(super) fn receive_or(&mut self, piece: &mut [u8], put: impl Fn() -> bool) -> Result<(), TransferError> {
        let mut at = 0;
        let mut waits = false;
        while at < piece.len() {
            let rest = &mut piece[at..];
            let asked = rest.len();
            let stream = &mut self.stream;
            let read = timed(&self.counters.net_ns, || {
                if waits { stream.read_full(&mut rest[..asked.min(MIN_READ_BYTES)]) } else { stream.read(rest) }
            });
            let n = match read {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.raw_os_error() == Some(libc::EFAULT) && put() => continue,
                read => read,
            };
            let n = n.map_err(|e| self.lost(e))?;
            // An encrypted stream waits for whole records by itself.
            waits |= n < asked && !self.stream.reads_records();
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
