//! The sender's buffer: data that has not been acknowledged, already laid out as packets.
//!
//! A ring of slots, one for each packet, with room for the header before the payload. Packets that follow one another lie one
//! behind the other, so a run of full packets is one slice of bytes that `UDP_SEGMENT` cuts into datagrams. Data is copied
//! once, when it is written.
//!
//! What has not been sent yet is bounded apart, as `TCP_NOTSENT_LOWAT` does for TCP: a large buffer is there for what is on its
//! way, and a path that needs less takes less memory.

use std::ops::Range;

use crate::packet::HEADER_BYTES;
use crate::slots::Slots;

/// Data that may wait to be sent, bytes: most of a millisecond of 10 Gb/s, so that the writer can sleep meanwhile, and little enough
/// to stay in a processor's cache between the writer and the socket.
const MAX_UNSENT_BYTES: usize = 1 << 20;

/// Packets that wait to be sent or acknowledged.
#[derive(Debug)]
pub struct SendBuffer {
    /// Each has room for the header before the payload.
    slots: Slots,
    payload_bytes: usize,
    /// Packets that may wait to be sent.
    max_unsent: u64,
    /// Oldest packet that has not been acknowledged.
    first: u64,
    /// First packet that has never been sent.
    next: u64,
    /// Index behind the last packet that has data. That packet can take more data if it has never been sent.
    end: u64,
}

impl SendBuffer {
    /// A buffer of `packets` slots whose first packet has the index `first`.
    pub fn new(first: u64, packets: usize, payload_bytes: usize) -> SendBuffer {
        let slots = Slots::new(first, packets, HEADER_BYTES + payload_bytes);
        let max_unsent = (MAX_UNSENT_BYTES / payload_bytes).max(1) as u64;
        SendBuffer { slots, payload_bytes, max_unsent, first, next: first, end: first }
    }

    /// Copies as much of `data` as there is room for; returns how much.
    pub fn write(&mut self, data: &[u8]) -> usize {
        let mut rest = data;
        if self.end > self.next {
            rest = self.append(self.end - 1, rest);
        }
        while !rest.is_empty() && self.free_packets() > 0 {
            *self.slots.fill(self.first, self.end).1 = 0;
            self.end += 1;
            rest = self.append(self.end - 1, rest);
        }
        data.len() - rest.len()
    }

    /// Packets that can be begun now.
    fn free_packets(&self) -> u64 {
        let held = self.slots.packets() as u64 - (self.end - self.first);
        held.min(self.max_unsent.saturating_sub(self.unsent()))
    }

    /// Fills up the packet `index`; returns what did not fit.
    fn append<'a>(&mut self, index: u64, data: &'a [u8]) -> &'a [u8] {
        let (slot, length) = self.slots.fill(self.first, index);
        let filled = usize::from(*length);
        let (now, rest) = data.split_at(data.len().min(self.payload_bytes - filled));
        slot[HEADER_BYTES + filled..][..now.len()].copy_from_slice(now);
        *length += now.len() as u16;
        rest
    }

    /// First packet that has never been sent.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Packets that have never been sent and are full.
    pub fn full_unsent(&self) -> u64 {
        self.unsent() - u64::from(self.has_partial())
    }

    /// Packets that have never been sent.
    pub fn unsent(&self) -> u64 {
        self.end - self.next
    }

    /// Whether the last packet that has never been sent can take more data.
    pub fn has_partial(&self) -> bool {
        self.end > self.next && self.slots.length(self.end - 1) < self.payload_bytes
    }

    /// Whether all that has been written has been acknowledged.
    pub fn is_empty(&self) -> bool {
        self.end == self.first
    }

    /// Bytes that can be written now.
    pub fn room_bytes(&self) -> u64 {
        let partial = if self.has_partial() { self.payload_bytes - self.slots.length(self.end - 1) } else { 0 };
        self.free_packets() * self.payload_bytes as u64 + partial as u64
    }

    /// Frees all packets below an index; returns how many bytes they held. The index is at most the first unsent packet's.
    pub fn acknowledge(&mut self, index: u64) -> u64 {
        let index = index.min(self.next);
        let mut bytes = 0;
        while self.first < index {
            bytes += self.slots.length(self.first) as u64;
            self.first += 1;
        }
        bytes
    }

    /// Counts packets as sent once.
    pub fn sent_up_to(&mut self, index: u64) {
        self.next = self.next.max(index.min(self.end));
    }

    /// The longest beginning of a range of packets that can be sent as one buffer: without the ring's seam in it, all full
    /// but the last, at most `max_bytes` with headers. It has one packet at least.
    pub fn run(&self, range: Range<u64>, max_bytes: usize) -> Range<u64> {
        let stride = HEADER_BYTES + self.payload_bytes;
        let most = self.slots.until_seam(range.start).min((max_bytes / stride).max(1)) as u64;
        let most = most.min(range.end - range.start);
        let full = self.slots.full(range.start, most as usize, self.payload_bytes) as u64;
        range.start..range.start + most.min(full + 1)
    }

    /// Writes the headers of a run, and returns the run as it goes out.
    pub fn packets(&mut self, run: Range<u64>, header: impl Fn(u64, &mut [u8; HEADER_BYTES])) -> &[u8] {
        let stride = HEADER_BYTES + self.payload_bytes;
        let short = self.payload_bytes - self.slots.length(run.end.saturating_sub(1));
        let packets = self.slots.run(run.start, (run.end - run.start) as usize);
        for (index, packet) in run.zip(packets.chunks_exact_mut(stride)) {
            if let Some(head) = packet.first_chunk_mut() {
                header(index, head);
            }
        }
        &packets[..packets.len() - short]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_cut_into_full_packets_and_a_run_is_one_slice() {
        let mut buffer = SendBuffer::new(100, 4, 10);
        assert_eq!(buffer.write(&[1; 7]), 7);
        assert_eq!(buffer.write(&[2; 28]), 28);
        assert_eq!(buffer.write(&[3; 20]), 5);
        assert_eq!((buffer.unsent(), buffer.full_unsent(), buffer.room_bytes()), (4, 4, 0));
        let run = buffer.run(100..104, usize::MAX);
        assert_eq!(run, 100..104);
        let bytes = buffer.packets(run, |index, head| head.fill(index as u8));
        assert_eq!(bytes.len(), 4 * 26);
        assert_eq!(&bytes[..26], &[[100; 16].as_slice(), &[1; 7], &[2; 3]].concat()[..]);
        assert_eq!(buffer.run(100..104, 3 * 26), 100..103);
        buffer.sent_up_to(104);
        assert_eq!(buffer.acknowledge(102), 20);
        assert_eq!(buffer.write(&[4; 13]), 13);
        // The ring's seam, and a short packet, end a run.
        assert_eq!(buffer.run(103..106, usize::MAX), 103..104);
        assert_eq!(buffer.run(104..106, usize::MAX), 104..106);
        assert_eq!(buffer.packets(104..106, |_, _| ()).len(), 26 + 16 + 3);
        assert!(buffer.has_partial());
        buffer.sent_up_to(106);
        assert!(!buffer.has_partial());
        assert_eq!(buffer.acknowledge(1000), 33);
        assert!(buffer.is_empty());
    }

    #[test]
    fn what_waits_to_be_sent_is_bounded_apart() {
        let mut buffer = SendBuffer::new(0, 100_000, 1000);
        let most = (MAX_UNSENT_BYTES / 1000 * 1000) as u64;
        assert_eq!(buffer.room_bytes(), most);
        assert_eq!(buffer.write(&vec![1; MAX_UNSENT_BYTES + 5000]), most as usize);
        assert_eq!((buffer.write(&[1]), buffer.room_bytes()), (0, 0));
        buffer.sent_up_to(10);
        assert_eq!((buffer.room_bytes(), buffer.write(&[2; 20_000])), (10_000, 10_000));
    }
}
