//! The receiver's buffer: a ring of slots, one for each packet of the window. A payload is copied into its slot when it
//! arrives, in order or not. Full packets that follow one another are one slice of bytes for the reader.

/// Packets that have arrived and have not been read.
#[derive(Debug)]
pub struct ReceiveBuffer {
    bytes: Vec<u8>,
    /// Payload bytes in each slot that holds a packet.
    lengths: Vec<u16>,
    payload_bytes: usize,
    /// Packet that the reader reads next.
    first: u64,
    /// Bytes of that packet that have been read.
    offset: usize,
}

impl ReceiveBuffer {
    /// A buffer of `packets` slots whose first packet has the index `first`. The kernel gives its memory when it is first used.
    pub fn new(first: u64, packets: usize, payload_bytes: usize) -> ReceiveBuffer {
        let packets = packets.max(2);
        ReceiveBuffer {
            bytes: vec![0; packets * payload_bytes],
            lengths: vec![0; packets],
            payload_bytes,
            first,
            offset: 0,
        }
    }

    /// Index behind the last packet that there is room for.
    pub fn limit(&self) -> u64 {
        self.first + self.lengths.len() as u64
    }

    /// Packets that the whole buffer has room for.
    pub fn packets(&self) -> u64 {
        self.lengths.len() as u64
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
        debug_assert!((self.first..self.limit()).contains(&index) && payload.len() <= self.payload_bytes);
        let slot = self.slot(index);
        let at = slot * self.payload_bytes;
        self.bytes[at..at + payload.len()].copy_from_slice(payload);
        self.lengths[slot] = payload.len() as u16;
    }

    fn slot(&self, index: u64) -> usize {
        (index % self.lengths.len() as u64) as usize
    }

    /// The next bytes to read, of packets below `end`; empty if there are none.
    pub fn readable(&mut self, end: u64) -> &[u8] {
        while self.first < end && self.offset >= usize::from(self.lengths[self.slot(self.first)]) {
            self.first += 1;
            self.offset = 0;
        }
        let slot = self.slot(self.first);
        let most = (self.lengths.len() - slot).min(end.saturating_sub(self.first) as usize);
        let lengths = &self.lengths[slot..slot + most];
        let full = lengths.iter().take_while(|length| usize::from(**length) == self.payload_bytes).count();
        let short = lengths.get(full).map_or(0, |length| usize::from(*length));
        let at = slot * self.payload_bytes;
        &self.bytes[at + self.offset.min(full * self.payload_bytes + short)..at + full * self.payload_bytes + short]
    }

    /// Counts bytes as read, of packets below `end`.
    pub fn consume(&mut self, mut bytes: usize, end: u64) {
        while bytes > 0 && self.first < end {
            let left = usize::from(self.lengths[self.slot(self.first)]).saturating_sub(self.offset);
            if bytes < left {
                self.offset += bytes;
                return;
            }
            bytes -= left;
            self.first += 1;
            self.offset = 0;
        }
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
        assert_eq!((buffer.first(), buffer.limit()), (51, 55));
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
        assert_eq!((buffer.first(), buffer.limit()), (3, 7), "no more than there is");
    }
}
