//! The receiver's loss list (section 6.2): packets that have not arrived though later ones have, when each was last reported
//! to the sender, and how often.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges that one NAK event looks at, at most. What is left is looked at in the next event.
const MAX_RANGES_PER_EVENT: usize = 4096;

/// How a range of lost packets has been reported.
#[derive(Debug, Clone, Copy)]
struct Reported {
    /// Index behind the last packet of the range.
    end: u64,
    /// When the range was last reported; `None` if it never was.
    at_ns: Option<u64>,
    /// Times that it has been reported plus one: k of section 6.2.
    k: u32,
}

/// Ranges of packets that are missing. Every operation but a NAK event costs the logarithm of the number of ranges.
#[derive(Debug, Default)]
pub struct ReceiverLossList {
    ranges: BTreeMap<u64, Reported>,
    packets: u64,
}

impl ReceiverLossList {
    /// Packets that are missing.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// The first packet that is missing.
    pub fn first(&self) -> Option<u64> {
        self.ranges.first_key_value().map(|(start, _)| *start)
    }

    /// Adds a range behind all others.
    pub fn push(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        debug_assert!(self.ranges.last_key_value().is_none_or(|(_, last)| last.end <= range.start));
        self.packets += range.end - range.start;
        self.ranges.insert(range.start, Reported { end: range.end, at_ns: None, k: 1 });
    }

    /// Removes a packet that has arrived; false if it was not missing.
    pub fn remove(&mut self, index: u64) -> bool {
        let Some((&start, &range)) = self.ranges.range(..=index).next_back() else { return false };
        if index >= range.end {
            return false;
        }
        self.packets -= 1;
        if start == index {
            self.ranges.remove(&start);
        } else if let Some(before) = self.ranges.get_mut(&start) {
            before.end = index;
        }
        if index + 1 < range.end {
            self.ranges.insert(index + 1, range);
        }
        true
    }

    /// Whether a range has never been reported. New ranges are behind all others.
    pub fn has_unreported(&self) -> bool {
        self.ranges.last_key_value().is_some_and(|(_, last)| last.at_ns.is_none())
    }

    /// Collects ranges that are to be reported now, and counts them as reported: those that never were (section 6.2, step 7a
    /// of the receiver), and those whose last report is at least `k * interval_ns` ago (NAK event).
    pub fn due(&mut self, now_ns: u64, interval_ns: u64, max_ranges: usize, into: &mut Vec<Range<u64>>) {
        into.clear();
        for (start, range) in self.ranges.iter_mut().take(MAX_RANGES_PER_EVENT) {
            let wait = interval_ns.saturating_mul(u64::from(range.k));
            let due = range.at_ns.is_none_or(|at| now_ns.saturating_sub(at) >= wait);
            if due && into.len() < max_ranges {
                range.mark(now_ns);
                into.push(*start..range.end);
            }
        }
    }

    /// Collects the ranges that have never been reported, from the newest backwards, and counts them as reported.
    pub fn unreported(&mut self, now_ns: u64, max_ranges: usize, into: &mut Vec<Range<u64>>) {
        into.clear();
        for (start, range) in self.ranges.iter_mut().rev().take(max_ranges) {
            if range.at_ns.is_some() {
                break;
            }
            range.mark(now_ns);
            into.push(*start..range.end);
        }
        into.reverse();
    }
}

impl Reported {
    fn mark(&mut self, now_ns: u64) {
        self.at_ns = Some(now_ns);
        self.k = self.k.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_in_the_middle_splits_a_range() {
        let mut list = ReceiverLossList::default();
        list.push(5..10);
        assert!(list.remove(7) && !list.remove(7) && !list.remove(4) && !list.remove(10));
        assert_eq!((list.first(), list.packets()), (Some(5), 4));
        assert!(list.remove(5) && list.remove(6));
        assert_eq!(list.first(), Some(8));
        assert!(list.remove(9) && list.remove(8));
        assert_eq!((list.first(), list.packets()), (None, 0));
    }

    #[test]
    fn a_loss_is_reported_at_once_then_after_2_rtt_then_after_3() {
        let (mut list, mut out) = (ReceiverLossList::default(), Vec::new());
        list.push(5..10);
        assert!(list.has_unreported());
        list.unreported(100, 9, &mut out);
        assert!(out.len() == 1 && out[0] == (5..10));
        assert!(!list.has_unreported());
        let mut due = |now| {
            list.due(now, 50, 9, &mut out);
            !out.is_empty()
        };
        assert!(!due(199) && due(200) && !due(349) && due(350));
    }
}
