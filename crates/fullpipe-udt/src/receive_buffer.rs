//! The receiver's buffer: a ring of slots, one for each packet of the window. A payload is copied into its slot when it
//! arrives, in order or not. Full packets that follow one another are one slice of bytes for the reader.

use crate::slots::Slots;

/// Packets that have arrived and have not been read.
#[derive(Debug)]
pub struct ReceiveBuffer {
    slots: Slots,
    payload_bytes: usize,
    /// Packet that the reader reads next.
    first: u64,
    /// Bytes of that packet that have been read.
    offset: usize,
}

impl ReceiveBuffer {
    /// A buffer of `packets` slots whose first packet has the index `first`.
    pub fn new(first: u64, packets: usize, payload_bytes: usize) -> ReceiveBuffer {
        ReceiveBuffer { slots: Slots::new(first, packets, payload_bytes), payload_bytes, first, offset: 0 }
    }

    /// Bytes of payload that a full packet has.
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Packet that the reader reads next.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Stores a packet. The caller has checked that its index is within the buffer and its payload no longer than a slot.
    pub fn store(&mut self, index: u64, payload: &[u8]) {
        let end = self.first + self.slots.packets() as u64;
        debug_assert!((self.first..end).contains(&index) && payload.len() <= self.payload_bytes);
        let (slot, length) = self.slots.fill(self.first, index);
        slot[..payload.len()].copy_from_slice(payload);
        *length = payload.len() as u16;
    }

    /// The next bytes to read, of packets below `end`; empty if there are none.
    pub fn readable(&mut self, end: u64) -> &[u8] {
        while self.first < end && self.offset >= self.slots.length(self.first) {
            self.first += 1;
            self.offset = 0;
        }
        if self.first >= end {
            return &[];
        }
        let most = self.slots.until_seam(self.first).min((end - self.first) as usize);
        let full = self.slots.full(self.first, most, self.payload_bytes);
        let short = if full < most { self.slots.length(self.first + full as u64) } else { 0 };
        let count = most.min(full + 1);
        let bytes = self.slots.run(self.first, count);
        &bytes[self.offset..full * self.payload_bytes + short]
    }

    /// Counts bytes as read, of packets below `end`; returns how many of them there were.
    pub fn consume(&mut self, bytes: usize, end: u64) -> usize {
        let mut rest = bytes;
        while rest > 0 && self.first < end {
            let left = self.slots.length(self.first).saturating_sub(self.offset);
            if rest < left {
                self.offset += rest;
                return bytes;
            }
            rest -= left;
            self.first += 1;
            self.offset = 0;
        }
        bytes - rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_in_order_as_long_slices() {
        let mut buffer = ReceiveBuffer::new(48, 4, 3);
        buffer.store(49, &[4, 5, 6]);
        buffer.store(48, &[1, 2, 3]);
        buffer.store(50, &[7]);
        buffer.store(51, &[8, 9, 10]);
        assert_eq!(buffer.readable(48), &[0u8; 0]);
        assert_eq!(buffer.readable(52), &[1, 2, 3, 4, 5, 6, 7]);
        buffer.consume(4, 53);
        assert_eq!(buffer.readable(52), &[5, 6, 7]);
        buffer.consume(3, 53);
        assert_eq!(buffer.first(), 51);
        buffer.store(52, &[11, 12, 13]);
        assert_eq!(buffer.readable(53), &[8, 9, 10]);
        buffer.consume(3, 53);
        assert_eq!(buffer.readable(53), &[11, 12, 13]);
        buffer.consume(3, 53);
        assert_eq!(buffer.readable(53), &[0u8; 0]);
    }

    #[test]
    fn empty_packets_are_passed_over() {
        let mut buffer = ReceiveBuffer::new(0, 4, 3);
        buffer.store(0, &[]);
        buffer.store(1, &[1]);
        buffer.store(2, &[]);
        assert_eq!(buffer.readable(3), &[1]);
        buffer.consume(1, 3);
        assert_eq!(buffer.readable(3), &[0u8; 0]);
        assert_eq!(buffer.first(), 3);
        buffer.consume(usize::MAX, 3);
        assert_eq!(buffer.first(), 3, "no more than there is");
    }
}
