//! Sends what comes from standard input: blocks in the order in which they are read, each over the stream that has read it.

use std::sync::atomic::Ordering;

use super::input::{Input, Next};
use super::sender::Sender;
use super::streams::OutgoingStream;
use crate::error::{TransferError, unreadable};
use crate::protocol::chunk::Chunk;
use crate::protocol::file::Extent;
use crate::protocol::message::{Message, Reading};
use crate::sizes::PIECE;
use crate::telemetry::counters::timed;
use crate::threads::lock;

/// The file's number in messages.
const ID: u64 = 1;

impl Sender {
    /// Sends blocks of the input over one stream until the input ends.
    pub(super) fn stream_input(&self, i: u16, line: &mut OutgoingStream, input: &Input) -> Result<(), TransferError> {
        let mut buffer = vec![0; self.block as usize];
        let wait = |is_time: bool| {
            // A thread of an attempt that has failed must not take what the next attempt is to send.
            if self.session.is_over() {
                return Err(TransferError::Interrupted);
            }
            if !is_time {
                return Ok(());
            }
            self.session.moved(1);
            self.tell_totals()
        };
        loop {
            drop(self.parked(i));
            if self.session.is_over() {
                return Ok(());
            }
            // All that wait for the reader wait for the input.
            match timed(&self.counters.disk_ns, || input.next(&mut buffer, &wait))? {
                Next::Block(extent) => self.input_block(line, input, extent, &buffer)?,
                Next::Last(extent) => {
                    // An empty file needs a block, too: the receiver opens it with the first one.
                    if extent.len > 0 || extent.offset == 0 {
                        self.input_block(line, input, extent, &buffer)?;
                    }
                    self.input_over(Reading::Ended { size: extent.offset + extent.len })?;
                }
                Next::Failed(e) => {
                    self.skip(input.item.name.bytes(), unreadable(&e));
                    self.input_over(Reading::Changed)?;
                }
                Next::Nothing => {
                    self.walked(&mut lock(&self.state));
                    return self.end_stream(line);
                }
            }
        }
    }

    /// Tells the receiver how the input ended, and lets all streams end.
    fn input_over(&self, reading: Reading) -> Result<(), TransferError> {
        self.session.send(&Message::FileEnd { id: ID, reading })?;
        self.counters.found_all.store(1, Ordering::Relaxed);
        self.tell_totals()
    }

    /// Sends a block of the input.
    fn input_block(
        &self,
        line: &mut OutgoingStream,
        input: &Input,
        extent: Extent,
        buffer: &[u8],
    ) -> Result<(), TransferError> {
        if extent.offset == 0 {
            self.counters.found_files.store(1, Ordering::Relaxed);
            self.counters.named(&input.item.name);
        }
        self.counters.found_bytes.fetch_add(extent.len, Ordering::Relaxed);
        let data = &buffer[..extent.len as usize];
        let digest = timed(&self.counters.hash_ns, || {
            let mut mac = self.key.block(input.item.key(), extent);
            mac.update(data);
            mac.finish()
        });
        self.header(line, &Chunk::Block { id: ID, file: input.item.clone(), extent, hole: false })?;
        for piece in data.chunks(PIECE) {
            self.write(line, piece)?;
        }
        self.close(line, Some(digest))?;
        self.counters.wire_bytes.fetch_add(extent.len, Ordering::Relaxed);
        Ok(())
    }
}
