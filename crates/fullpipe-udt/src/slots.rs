//! The memory of a buffer: a ring of equal slots, one for each packet of the window.

use crate::congestion::INITIAL_WINDOW_PACKETS;

/// A ring of slots. It takes the memory of those behind the initial window when one of these is first used. So a
/// connection that has not shown whose it is, and the direction that a stream does not use, cost little.
#[derive(Debug)]
pub struct Slots {
    /// The slots that have memory: those of the initial window, or all.
    bytes: Vec<u8>,
    /// Payload bytes in each of these that holds a packet.
    lengths: Vec<u16>,
    /// Slots of the whole ring.
    packets: usize,
    /// Bytes of a slot.
    slot_bytes: usize,
    /// Packet that the first slot was for at the beginning.
    origin: u64,
}

impl Slots {
    /// A ring of `packets` slots (two at least) whose first packet has the index `first`.
    pub fn new(first: u64, packets: usize, slot_bytes: usize) -> Slots {
        let packets = packets.max(2);
        let now = packets.min(INITIAL_WINDOW_PACKETS);
        Slots { bytes: vec![0; now * slot_bytes], lengths: vec![0; now], packets, slot_bytes, origin: first }
    }

    /// Slots of the whole ring.
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// Packets from an index on, that one included, whose slots lie behind one another: up to the ring's seam.
    pub fn until_seam(&self, index: u64) -> usize {
        self.packets - self.slot(index)
    }

    /// Payload bytes in the slot of a packet.
    pub fn length(&self, index: u64) -> usize {
        self.lengths.get(self.slot(index)).map_or(0, |length| usize::from(*length))
    }

    /// Of `count` packets from an index on, up to the seam, how many come before the first that has less than `full` bytes.
    pub fn full(&self, index: u64, count: usize, full: usize) -> usize {
        let lengths = self.lengths.iter().skip(self.slot(index)).take(count);
        lengths.take_while(|length| usize::from(**length) == full).count()
    }

    /// The slots of `count` packets from an index on, up to the seam, as one slice. They have been used before.
    pub fn run(&mut self, index: u64, count: usize) -> &mut [u8] {
        let at = self.slot(index) * self.slot_bytes;
        &mut self.bytes[at..at + count * self.slot_bytes]
    }

    /// The slot of a packet, to be filled, and the payload bytes in it.
    pub fn fill(&mut self, index: u64) -> (&mut [u8], &mut u16) {
        let slot = self.slot(index);
        if slot >= self.lengths.len() {
            let mut bytes = vec![0; self.packets * self.slot_bytes];
            bytes[..self.bytes.len()].copy_from_slice(&self.bytes);
            self.bytes = bytes;
            self.lengths.resize(self.packets, 0);
        }
        let at = slot * self.slot_bytes;
        (&mut self.bytes[at..at + self.slot_bytes], &mut self.lengths[slot])
    }

    fn slot(&self, index: u64) -> usize {
        ((index - self.origin) % self.packets as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_when_the_initial_window_is_left() {
        let mut slots = Slots::new(7, 1000, 3);
        for index in 7..7 + INITIAL_WINDOW_PACKETS as u64 {
            let (slot, length) = slots.fill(index);
            slot.fill(index as u8);
            *length = 3;
        }
        assert_eq!(
            (slots.bytes.capacity(), slots.lengths.capacity()),
            (3 * INITIAL_WINDOW_PACKETS, INITIAL_WINDOW_PACKETS)
        );
        assert_eq!(slots.length(7 + 900), 0);
        let (slot, length) = slots.fill(7 + 900);
        slot.fill(200);
        *length = 3;
        assert_eq!(slots.bytes.capacity(), 3000);
        // Nothing has moved, and the ring goes on at its beginning.
        assert_eq!(slots.run(7, 2), [7, 7, 7, 8, 8, 8]);
        assert_eq!(slots.run(7 + 900, 1), [200; 3]);
        assert_eq!((slots.full(7, 1000, 3), slots.until_seam(7 + 990)), (INITIAL_WINDOW_PACKETS, 10));
        slots.fill(7 + 1000).0.fill(1);
        assert_eq!(slots.run(7, 1), [1; 3]);
    }
}
