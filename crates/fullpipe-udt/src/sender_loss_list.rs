//! The sender's loss list (section 6.1): packets to be sent again, as ranges in increasing order.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of lost packets. Every operation costs the logarithm of the number of ranges, whatever a NAK says.
#[derive(Debug, Default)]
pub struct SenderLossList {
    /// First index of each range, and the index behind its last. Ranges neither overlap nor touch.
    ranges: BTreeMap<u64, u64>,
    /// Packets in all ranges.
    packets: u64,
}

impl SenderLossList {
    /// Whether nothing waits to be sent again.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Packets in the list.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// The first range.
    pub fn first(&self) -> Option<Range<u64>> {
        self.ranges.first_key_value().map(|(start, end)| *start..*end)
    }

    /// Adds a range; returns how many of its packets were not in the list.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let Range { mut start, mut end } = range;
        let before = self.packets;
        // Ranges that overlap or touch the new one become one with it. Each was inserted once, so that this is paid for.
        while let Some((first, last)) = self.ranges.range(..=end).next_back().map(|(first, last)| (*first, *last)) {
            if last < start {
                break;
            }
            self.ranges.remove(&first);
            self.packets -= last - first;
            start = start.min(first);
            end = end.max(last);
        }
        self.ranges.insert(start, end);
        self.packets += end - start;
        self.packets - before
    }

    /// Removes all packets below an index: they have been acknowledged.
    pub fn remove_below(&mut self, index: u64) {
        while let Some(entry) = self.ranges.first_entry() {
            let (start, end) = (*entry.key(), *entry.get());
            if start >= index {
                break;
            }
            entry.remove();
            self.packets -= end.min(index) - start;
            if end > index {
                self.ranges.insert(index, end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ranges_that_touch_become_one() {
        let mut list = SenderLossList::default();
        assert_eq!(list.insert(10..12), 2);
        assert_eq!(list.insert(14..16), 2);
        assert_eq!(list.insert(12..14), 2);
        assert_eq!(list.first(), Some(10..16));
        assert_eq!(list.insert(0..u64::MAX), u64::MAX - 6);
    }

    proptest::proptest! {
        #[test]
        fn it_holds_the_packets_of_a_set(steps in proptest::collection::vec((0u8..3, 0u64..60, 0u64..20), 0..60)) {
            let (mut list, mut set) = (SenderLossList::default(), BTreeSet::new());
            for (what, at, len) in steps {
                match what {
                    0 => {
                        let new = (at..at + len).filter(|i| set.insert(*i)).count() as u64;
                        proptest::prop_assert_eq!(list.insert(at..at + len), new);
                    }
                    1 => {
                        list.remove_below(at);
                        set.retain(|i| *i >= at);
                    }
                    _ => {
                        // As the sender takes packets from the first range.
                        let first = list.first().unwrap_or_default();
                        proptest::prop_assert_eq!(first.clone().next(), set.first().copied());
                        let taken = first.start..first.end.min(first.start + len + 1);
                        list.remove_below(taken.end);
                        for i in taken {
                            proptest::prop_assert!(set.remove(&i));
                        }
                    }
                }
                proptest::prop_assert_eq!(list.packets, set.len() as u64);
            }
            let held: Vec<u64> = list.ranges.iter().flat_map(|(start, end)| *start..*end).collect();
            proptest::prop_assert_eq!(held, set.into_iter().collect::<Vec<_>>());
        }
    }
}
