//! Decides what is sent next: large files are cut into blocks, small ones gathered into packs. It is a state machine that
//! knows no file and no stream.

use std::collections::VecDeque;

use crate::protocol::file::Extent;
use crate::sizes::ALIGN;

/// Work for one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work<F> {
    /// A piece of a large file.
    Block {
        /// The file.
        file: F,
        /// The bytes of the file.
        extent: Extent,
        /// Whether the bytes are a hole, of which nothing is sent.
        hole: bool,
    },
    /// Small files, each whole.
    Pack(Vec<F>),
    /// Nothing at the moment; more may be added.
    Wait,
    /// Nothing any more.
    End,
}

/// The part of a large file that no stream has taken.
#[derive(Debug)]
struct Remainder<F> {
    file: F,
    /// Extents in order, each with whether it is a hole. The first is cut into blocks.
    rest: VecDeque<(Extent, bool)>,
}

/// The order of work.
#[derive(Debug)]
pub struct Plan<F> {
    block: u64,
    streams: u64,
    pack_files: usize,
    large: VecDeque<Remainder<F>>,
    /// Bytes of large files that no stream has taken, without holes.
    rest: u64,
    small: VecDeque<(F, u64)>,
    complete: bool,
}

/// Least bytes of a block, unless the file ends.
const MIN_BLOCK_BYTES: u64 = 256 << 10;

impl<F: Clone> Plan<F> {
    /// Makes a plan for `streams` streams, with blocks of at most `block` bytes and packs of at most `pack_files` files.
    pub fn new(block: u64, streams: u16, pack_files: usize) -> Plan<F> {
        Plan {
            block: (block / ALIGN * ALIGN).max(ALIGN),
            streams: u64::from(streams.max(1)),
            pack_files: pack_files.max(1),
            large: VecDeque::new(),
            rest: 0,
            small: VecDeque::new(),
            complete: false,
        }
    }

    /// Adds a small file, which is packed with others.
    pub fn add_small(&mut self, file: F, size: u64) {
        self.small.push_back((file, size));
    }

    /// Adds a large file: the extents to send, in order, each with whether it is a hole.
    pub fn add_large(&mut self, file: F, rest: impl IntoIterator<Item = (Extent, bool)>) {
        let rest: VecDeque<_> = rest.into_iter().filter(|(extent, _)| extent.len > 0).collect();
        // The sum may exceed u64: a sparse file may claim any size where the file system does not report holes.
        for (extent, _) in rest.iter().filter(|(_, hole)| !hole) {
            self.rest = self.rest.saturating_add(extent.len);
        }
        self.large.push_back(Remainder { file, rest });
    }

    /// Notes that nothing more will be added.
    pub fn complete(&mut self) {
        self.complete = true;
    }

    /// Number of files that are not completely taken.
    pub fn waiting(&self) -> usize {
        self.large.len() + self.small.len()
    }

    /// Bytes that no stream has taken; `None` as long as files may be added or small ones wait.
    pub fn rest(&self) -> Option<u64> {
        (self.complete && self.small.is_empty()).then_some(self.rest)
    }

    /// Takes the next work, of about `most` bytes or less. Small files come first: each costs the receiver a few system calls, which
    /// large files on other streams hide.
    pub fn take(&mut self, most: u64) -> Work<F> {
        let most = (most / ALIGN * ALIGN).clamp(ALIGN, self.block);
        if !self.small.is_empty() {
            let mut pack = Vec::new();
            let mut bytes = 0;
            while let Some((_, size)) = self.small.front() {
                if !pack.is_empty() && (bytes + size > most || pack.len() >= self.pack_files) {
                    break;
                }
                bytes += size;
                pack.extend(self.small.pop_front().map(|(file, _)| file));
            }
            return Work::Pack(pack);
        }
        // Blocks shrink towards the end, so that streams of different speed end at about the same time (guided
        // self-scheduling, Polychronopoulos and Kuck 1987).
        let fair = (self.rest / (self.streams * 4)).div_ceil(ALIGN) * ALIGN;
        let block = fair.clamp(MIN_BLOCK_BYTES.min(most), most);
        while let Some(first) = self.large.front_mut() {
            let Some((extent, hole)) = first.rest.pop_front() else {
                self.large.pop_front();
                continue;
            };
            if hole {
                return Work::Block { file: first.file.clone(), extent, hole };
            }
            // Up to the next multiple of the block, so that unaligned extents become aligned.
            let most = block - extent.offset % ALIGN;
            let cut = Extent { offset: extent.offset, len: extent.len.min(most) };
            self.rest = self.rest.saturating_sub(cut.len);
            if cut.len < extent.len {
                let rest = Extent { offset: cut.offset + cut.len, len: extent.len - cut.len };
                first.rest.push_front((rest, false));
            }
            return Work::Block { file: first.file.clone(), extent: cut, hole };
        }
        if self.complete { Work::End } else { Work::Wait }
    }
}

/// The extents of `all` without those of `have`. Both are in order and without overlaps.
pub fn without(all: &[(Extent, bool)], have: &[Extent]) -> Vec<(Extent, bool)> {
    let mut left = Vec::new();
    let mut have = have.iter().filter(|e| e.len > 0 && e.end().is_some()).peekable();
    for (extent, hole) in all {
        let Some(end) = extent.end() else { continue };
        let mut at = extent.offset;
        while at < end {
            while have.peek().is_some_and(|h| h.offset + h.len <= at) {
                have.next();
            }
            let (from, to) = have.peek().map_or((end, end), |h| (h.offset.clamp(at, end), (h.offset + h.len).min(end)));
            if from > at {
                left.push((Extent { offset: at, len: from - at }, *hole));
            }
            at = to.max(from);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extent(offset: u64, len: u64) -> Extent {
        Extent { offset, len }
    }

    fn drain(plan: &mut Plan<u32>) -> Vec<Work<u32>> {
        let mut all = Vec::new();
        loop {
            match plan.take(u64::MAX) {
                Work::End | Work::Wait => return all,
                work => all.push(work),
            }
        }
    }

    #[test]
    fn no_work_is_larger_than_asked_for() {
        let mut plan = Plan::new(8 << 20, 2, 100);
        (0..9).for_each(|file| plan.add_small(file, 50_000));
        plan.add_large(9, [(extent(5000, 64 << 20), false)]);
        let Work::Pack(files) = plan.take(120_000) else { unreachable!() };
        assert_eq!(files, [0, 1]);
        assert_eq!(plan.take(1), Work::Pack(vec![2]));
        let Work::Pack(files) = plan.take(u64::MAX) else { unreachable!() };
        assert_eq!(files.len(), 6);
        let mut at = 5000;
        for (most, least) in [(100_000, 90_000), (64 << 10, 64 << 10), (1, 4096), (u64::MAX, 7 << 20)] {
            let Work::Block { extent, .. } = plan.take(most) else { unreachable!() };
            assert!(extent.offset == at && (least..=most.max(4096)).contains(&extent.len), "{extent:?}");
            at += extent.len;
            // The first begins unaligned, the others do not.
            assert!(at.is_multiple_of(ALIGN), "{extent:?}");
        }
    }

    #[test]
    fn a_large_file_in_blocks_for_every_stream() {
        let mut plan = Plan::new(8 << 20, 4, 100);
        assert_eq!(plan.take(u64::MAX), Work::Wait);
        plan.add_large(1, [(extent(0, 20_000_000), false)]);
        plan.complete();
        let work = drain(&mut plan);
        assert!(work.len() >= 16, "{}", work.len());
        assert_eq!(plan.take(u64::MAX), Work::End);
        let mut at = 0;
        for work in work {
            let Work::Block { extent, hole: false, .. } = work else { unreachable!("{work:?}") };
            assert_eq!((extent.offset, extent.offset % ALIGN), (at, 0));
            at += extent.len;
        }
        assert_eq!(at, 20_000_000);
    }

    #[test]
    fn blocks_shrink_towards_the_end() {
        let mut plan = Plan::new(8 << 20, 8, 100);
        plan.add_large(1, [(extent(0, 1 << 30), false)]);
        plan.add_large(2, [(extent(0, 100 << 20), false)]);
        plan.complete();
        let lens: Vec<u64> = drain(&mut plan)
            .into_iter()
            .map(|work| if let Work::Block { extent, .. } = work { extent.len } else { 0 })
            .collect();
        assert_eq!((lens[0], lens.iter().sum::<u64>()), (8 << 20, (1 << 30) + (100 << 20)));
        // But for the end of the first file, and what is left of the second.
        let (end, whole) = (lens.iter().rposition(|len| *len > MIN_BLOCK_BYTES).unwrap(), lens.len() - 1);
        assert!(lens[end..whole].is_sorted_by(|a, b| a >= b) && whole - end >= 16, "{:?}", &lens[end..]);
    }

    #[test]
    fn sizes_that_no_disk_has_do_no_harm() {
        let mut plan = Plan::new(8 << 20, 1, 100);
        for file in 0..3 {
            plan.add_large(file, [(extent(0, u64::MAX / 2), false)]);
        }
        for _ in 0..100 {
            assert!(matches!(plan.take(u64::MAX), Work::Block { extent, .. } if extent.len == 8 << 20));
        }
    }

    #[test]
    fn the_rest_is_known_once_only_large_files_are_left() {
        let mut plan = Plan::new(8 << 20, 1, 100);
        plan.add_large(1, [(extent(0, 20 << 20), false), (extent(20 << 20, 1 << 40), true)]);
        plan.add_small(2, 1000);
        assert_eq!(plan.rest(), None);
        plan.complete();
        assert_eq!(plan.rest(), None);
        assert!(matches!(plan.take(u64::MAX), Work::Pack(_)));
        assert_eq!(plan.rest(), Some(20 << 20));
        assert!(
            matches!(plan.take(u64::MAX), Work::Block { extent, .. } if plan.rest() == Some((20 << 20) - extent.len))
        );
        drain(&mut plan);
        assert_eq!(plan.rest(), Some(0));
    }

    #[test]
    fn small_files_together() {
        let mut plan = Plan::new(1 << 20, 1, 3);
        for i in 0..7 {
            plan.add_small(i, 1000);
        }
        plan.add_small(7, 3 << 20);
        let packs: Vec<_> =
            drain(&mut plan).into_iter().map(|w| if let Work::Pack(p) = w { p } else { vec![] }).collect();
        assert_eq!(packs, [vec![0, 1, 2], vec![3, 4, 5], vec![6], vec![7]]);
    }

    #[test]
    fn holes_are_not_cut() {
        let mut plan = Plan::new(1 << 20, 1, 3);
        plan.add_large(1, [(extent(0, 1 << 40), true), (extent(1 << 40, 10), false)]);
        assert_eq!(drain(&mut plan).len(), 2);
    }

    proptest! {
        #[test]
        fn what_is_left(have in proptest::collection::vec((0u64..50, 1u64..20), 0..8), len in 1u64..200) {
            let mut at = 0;
            let have: Vec<Extent> = have.iter().map(|(gap, len)| {
                let e = extent(at + gap, *len);
                at = e.offset + e.len;
                e
            }).collect();
            let all = [(extent(0, len / 2), false), (extent(len / 2, len - len / 2), true)];
            let left = without(&all, &have);
            let covered = |byte: u64, list: &[Extent]| list.iter().filter(|e| e.offset <= byte && byte < e.offset + e.len).count();
            let flat: Vec<Extent> = left.iter().map(|(e, _)| *e).collect();
            for byte in 0..len {
                prop_assert_eq!(covered(byte, &flat), usize::from(covered(byte, &have) == 0), "byte {}", byte);
            }
        }
    }
}
