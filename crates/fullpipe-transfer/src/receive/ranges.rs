//! Which bytes of a file have come or are coming: each comes once.
//!
//! A file is whole when as many bytes have come as it has. Blocks that overlap would be counted twice, and others be
//! missing under the file's final name.

use std::collections::BTreeMap;

use crate::protocol::file::Extent;

/// Most ranges apart from each other. A sender sends in order, and there are no more in what an earlier attempt has left.
const MOST: usize = 1 << 18;

/// Ranges of bytes, apart from each other: where each ends, by where it begins.
#[derive(Debug, Default)]
pub(super) struct ByteRanges(BTreeMap<u64, u64>);

impl ByteRanges {
    /// These are there already; in order, without overlaps.
    pub(super) fn of(have: &[Extent]) -> ByteRanges {
        ByteRanges(have.iter().filter_map(|extent| Some((extent.offset, extent.end()?))).collect())
    }

    /// Adds a range, unless some of it is there already, or there are too many.
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
        self.0.len() <= MOST
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
    fn nothing_behind_the_last_byte() {
        assert!(!ByteRanges::default().add(Extent { offset: u64::MAX, len: 2 }));
    }
}
