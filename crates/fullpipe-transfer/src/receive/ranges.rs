//! Which bytes of a file were announced: each byte may be announced once.
//!
//! A file counts as whole when as many bytes have arrived as it has. If blocks could overlap, some bytes would count twice
//! and others would be missing under the file's final name.

use std::collections::BTreeMap;

use crate::protocol::file::Extent;

/// Most separate ranges of one file. A sender sends in order, and an earlier attempt leaves no more either.
const MAX_RANGES: usize = 1 << 18;

/// Separate ranges of bytes. The map's key is the first byte of a range, its value the first byte after it.
#[derive(Debug, Default)]
pub(super) struct ByteRanges(BTreeMap<u64, u64>);

impl ByteRanges {
    /// Starts with extents that are there already, in order and without overlaps.
    pub(super) fn of(have: &[Extent]) -> ByteRanges {
        ByteRanges(have.iter().filter_map(|extent| Some((extent.offset, extent.end()?))).collect())
    }

    /// Whether exactly the first `size` bytes were announced.
    pub(super) fn are_first(&self, size: u64) -> bool {
        self.0.iter().map(|(from, to)| (*from, *to)).eq((size > 0).then_some((0, size)))
    }

    /// Adds a range. Returns false if some of it was added before, or if there are too many ranges.
    pub(super) fn add(&mut self, extent: Extent) -> bool {
        let Some(end) = extent.end() else { return false };
        if extent.len == 0 {
            return true;
        }
        let before = self.0.range(..=extent.offset).next_back().map(|(from, to)| (*from, *to));
        let behind = self.0.range(extent.offset..).next().map(|(from, to)| (*from, *to));
        if before.is_some_and(|(_, to)| to > extent.offset) || behind.is_some_and(|(from, _)| from < end) {
            return false;
        }
        let from = before.filter(|(_, to)| *to == extent.offset).map_or(extent.offset, |(from, _)| from);
        let to = match behind.filter(|(from, _)| *from == end) {
            Some((next, to)) => {
                self.0.remove(&next);
                to
            }
            None => end,
        };
        self.0.insert(from, to);
        self.0.len() <= MAX_RANGES
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_byte_once(have in 0u64..6, extents in proptest::collection::vec((0u64..40, 0u64..8), 0..30)) {
            let mut there = [false; 64];
            there[..have as usize].fill(true);
            let kept = Extent { offset: 0, len: have };
            let mut claims = ByteRanges::of(if have > 0 { std::slice::from_ref(&kept) } else { &[] });
            for (offset, len) in extents {
                let bytes = &mut there[offset as usize..(offset + len) as usize];
                let free = bytes.iter().all(|byte| !byte);
                prop_assert_eq!(claims.add(Extent { offset, len }), free);
                if free {
                    bytes.fill(true);
                }
                // Ranges that touch are one.
                let ranges = there.windows(2).filter(|pair| !pair[0] && pair[1]).count() + usize::from(there[0]);
                prop_assert_eq!(claims.0.len(), ranges);
            }
        }
    }

    #[test]
    fn the_first_bytes() {
        let mut ranges = ByteRanges::default();
        assert!(ranges.are_first(0) && !ranges.are_first(1));
        for (offset, are_first) in [(10, false), (0, true), (30, false)] {
            ranges.add(Extent { offset, len: 10 });
            assert_eq!(ranges.are_first(20), are_first, "{offset}");
        }
    }

    #[test]
    fn nothing_behind_the_last_byte() {
        assert!(!ByteRanges::default().add(Extent { offset: u64::MAX, len: 2 }));
    }
}
