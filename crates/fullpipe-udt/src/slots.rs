//! The memory of a buffer: a ring of equal slots, one for each packet of the window.

use crate::congestion::INITIAL_WINDOW_PACKETS;

/// A ring of slots. It has memory for as many packets as were ever held at once, up to twice as many: so a connection that has
/// not shown whose it is costs little, as does a direction that a stream does not use, or a path that needs less than the window.
///
/// The memory is written to in its own order: also where a lost packet will come later, and where a copy, which may go backwards,
/// would be first. Otherwise neighbouring pages of a process lie apart in a guest's memory, and the host maps each piece by itself:
/// user-mode Linux ends a process that has more pieces than the host's `vm.max_map_count`.
#[derive(Debug)]
pub struct Slots {
    /// The slots that have been used, and those before them. There is room for all.
    bytes: Vec<u8>,
    /// Payload bytes in each of these that holds a packet.
    lengths: Vec<u16>,
    /// Packets that there may be at once.
    packets: usize,
    /// Bytes of a slot.
    slot_bytes: usize,
    /// A packet whose place is the first slot.
    origin: u64,
}

impl Slots {
    /// A ring for `packets` packets (two at least), of which the first has the index `first`.
    pub fn new(first: u64, packets: usize, slot_bytes: usize) -> Slots {
        let packets = packets.max(2);
        let now = packets.min(INITIAL_WINDOW_PACKETS);
        Slots { bytes: Vec::with_capacity(now * slot_bytes), lengths: vec![0; now], packets, slot_bytes, origin: first }
    }

    /// Packets that there may be at once.
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// Packets from an index on, that one included, whose slots lie behind one another: up to the ring's seam.
    pub fn until_seam(&self, index: u64) -> usize {
        self.lengths.len() - self.slot(index)
    }

    /// Payload bytes in the slot of a packet, which has been filled.
    pub fn length(&self, index: u64) -> usize {
        usize::from(self.lengths[self.slot(index)])
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

    /// The slot of a packet, to be filled, and the payload bytes in it. All packets before `first` have gone; `index` is one of
    /// the `packets` that follow.
    pub fn fill(&mut self, first: u64, index: u64) -> (&mut [u8], &mut u16) {
        let needed = (index - first) as usize + 1;
        if needed > self.lengths.len() {
            self.grow(first, needed);
        }
        let slot = self.slot(index);
        let at = slot * self.slot_bytes;
        self.touch(at + self.slot_bytes);
        (&mut self.bytes[at..at + self.slot_bytes], &mut self.lengths[slot])
    }

    /// Takes memory for `needed` packets or more. What is held stays, from the packet `first` on: behind the seam in its place, and
    /// what came before the seam now follows it.
    fn grow(&mut self, first: u64, needed: usize) {
        let (old, seam) = (self.lengths.len(), self.slot(first));
        let new = needed.max((2 * old).min(self.packets));
        let moved = seam.min(new - old);
        self.lengths.resize(new, 0);
        self.bytes.reserve_exact(new * self.slot_bytes - self.bytes.len());
        self.touch((old + moved) * self.slot_bytes);
        for (from, to) in [(0..moved, old), (moved..seam, 0)] {
            self.lengths.copy_within(from.clone(), to);
            self.bytes.copy_within(from.start * self.slot_bytes..from.end * self.slot_bytes, to * self.slot_bytes);
        }
        self.origin = first - seam as u64;
    }

    /// Writes to the memory up to `end`, bytes.
    fn touch(&mut self, end: usize) {
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
        }
    }

    fn slot(&self, index: u64) -> usize {
        ((index - self.origin) % self.lengths.len() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_for_what_is_held_at_once() {
        let mut slots = Slots::new(7, 1000, 3);
        slots.fill(7, 9);
        assert_eq!(slots.bytes, [0; 9], "what comes later has its memory");
        let fill = |slots: &mut Slots, first, index: u64| {
            let (slot, length) = slots.fill(first, index);
            slot.fill(index as u8);
            *length = 3;
        };
        // A short window, many times around the ring.
        let window = INITIAL_WINDOW_PACKETS as u64;
        for index in 7..2007 {
            fill(&mut slots, index.max(6 + window) + 1 - window, index);
        }
        assert_eq!(slots.lengths.len(), INITIAL_WINDOW_PACKETS);
        let first = 2007 - window;
        // One more grows the ring, and what is held stays, in order and behind one another.
        fill(&mut slots, first, 2007);
        assert_eq!(slots.lengths.len(), 2 * INITIAL_WINDOW_PACKETS);
        let held: Vec<u8> = (first..=2007).flat_map(|index| [index as u8; 3]).collect();
        assert_eq!(slots.run(first, INITIAL_WINDOW_PACKETS + 1), held);
        assert_eq!(slots.full(first, INITIAL_WINDOW_PACKETS + 5, 3), INITIAL_WINDOW_PACKETS + 1);
        assert_eq!(slots.until_seam(2007), INITIAL_WINDOW_PACKETS);
        // The last of the window takes it all, and no more.
        fill(&mut slots, first, first + 999);
        assert_eq!((slots.lengths.len(), slots.bytes.len()), (1000, 3000));
        assert_eq!(slots.length(first + 999), 3);
        assert_eq!(*slots.run(first, 2), held[..6]);
        fill(&mut slots, first + 1, first + 1000);
        assert_eq!(slots.run(first + 1000, 1), [(first + 1000) as u8; 3]);
    }

    #[test]
    fn what_is_held_stays_wherever_the_seam_was() {
        let old = INITIAL_WINDOW_PACKETS as u64;
        for (begun, packets) in (0..old).flat_map(|begun| (old + 1..=2 * old + 1).map(move |packets| (begun, packets)))
        {
            let mut slots = Slots::new(0, packets as usize, 3);
            let mut fill = |first: u64, index: u64| {
                let (slot, length) = slots.fill(first, index);
                slot.fill(index as u8);
                *length = index as u16 % 3;
            };
            (0..begun + old).for_each(|index| fill(index.saturating_sub(old - 1), index));
            (begun + old..begun + packets).for_each(|index| fill(begun, index));
            for index in begun..begun + packets {
                assert_eq!(slots.run(index, 1), [index as u8; 3]);
                assert_eq!(slots.length(index), index as usize % 3);
            }
        }
    }
}
