//! The compressed list of losses that a NAK carries (section 6.4).

use std::ops::Range;

use crate::seq::{SEQ_MASK, wire};

/// First bit of a number that begins a range.
const RANGE_BIT: u32 = 1 << 31;

/// The losses of a NAK as they came, in numbers of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossReport<'a>(&'a [u8]);

impl<'a> LossReport<'a> {
    /// Reads the control information field. `None`: it is empty or no array of words.
    pub fn new(body: &'a [u8]) -> Option<LossReport<'a>> {
        (!body.is_empty() && body.len().is_multiple_of(4)).then_some(LossReport(body))
    }

    /// The ranges, each with its first and its last number. The iterator ends at a range that has no end.
    pub fn ranges(&self) -> impl Iterator<Item = (u32, u32)> + 'a {
        let mut words = self.0.as_chunks::<4>().0.iter().map(|bytes| u32::from_be_bytes(*bytes));
        std::iter::from_fn(move || {
            let first = words.next()?;
            if first & RANGE_BIT == 0 {
                return Some((first, first));
            }
            let last = words.next().filter(|last| last & RANGE_BIT == 0)?;
            Some((first & SEQ_MASK, last))
        })
    }
}

/// Appends ranges of indexes in the compressed form, with at most `max_words` words; returns how many ranges fit.
pub fn append(ranges: impl Iterator<Item = Range<u64>>, max_words: usize, to: &mut Vec<u8>) -> usize {
    let (mut words, mut written) = (0, 0);
    for range in ranges.filter(|range| !range.is_empty()) {
        let (first, last) = (wire(range.start), wire(range.end - 1));
        words += if first == last { 1 } else { 2 };
        if words > max_words {
            break;
        }
        if first != last {
            to.extend_from_slice(&(first | RANGE_BIT).to_be_bytes());
        }
        to.extend_from_slice(&last.to_be_bytes());
        written += 1;
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_section_6_4() {
        let words = [0x2u32, 0x8000_0006, 0xb, 0xe];
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let ranges: Vec<_> = LossReport::new(&body).unwrap().ranges().collect();
        assert_eq!(ranges, [(2, 2), (6, 11), (14, 14)]);

        let base = 1 << 31;
        let mut out = Vec::new();
        let lost = [2..3, 6..12, 14..15].map(|range: Range<u64>| range.start + base..range.end + base);
        assert_eq!(append(lost.clone().into_iter(), 100, &mut out), 3);
        assert_eq!(out, body);
        out.clear();
        assert_eq!(append(lost.into_iter(), 2, &mut out), 1);
        assert_eq!(out.len(), 4);
    }

    #[test]
    fn a_range_without_an_end_ends_the_report() {
        for bad in [vec![0x80, 0, 0, 1], vec![0x80, 0, 0, 1, 0x80, 0, 0, 2]] {
            assert_eq!(LossReport::new(&bad).unwrap().ranges().count(), 0);
        }
        assert_eq!(LossReport::new(&[]), None);
        assert_eq!(LossReport::new(&[1, 2, 3]), None);
    }
}
