//! Decides whether a datagram's sequence number is new (RFC 6479).
//!
//! It is a state machine that knows no socket and no key. A number counts only once its datagram is known to be authentic:
//! ask [`ReplayWindow::is_new`] first, check the datagram, and then call [`ReplayWindow::take`].

/// Bits of one word of the ring.
const BITS: u64 = 64;
/// Words of the ring.
const WORDS: u64 = 32;
/// How many numbers, the highest included, the window can tell apart: those of all words but the one that the next number
/// may clear. A packet train of 1,024 datagrams in any order fits.
const WIDTH: u64 = BITS * (WORDS - 1);

/// The sequence numbers that have been taken.
#[derive(Debug, Default)]
pub(super) struct ReplayWindow {
    /// Highest number that was taken. Numbers start at 1.
    highest: u64,
    /// One bit for each number, as a ring.
    taken: [u64; WORDS as usize],
}

impl ReplayWindow {
    fn place(number: u64) -> (usize, u64) {
        ((number / BITS % WORDS) as usize, 1 << (number % BITS))
    }

    /// Whether a number was not taken yet. A number too old for the window counts as taken.
    pub fn is_new(&self, number: u64) -> bool {
        if number > self.highest {
            return true;
        }
        let (word, bit) = ReplayWindow::place(number);
        number > 0 && self.highest - number < WIDTH && self.taken[word] & bit == 0
    }

    /// Takes a number. Returns whether it was new.
    pub fn take(&mut self, number: u64) -> bool {
        if !self.is_new(number) {
            return false;
        }
        if number > self.highest {
            let (last, now) = (self.highest / BITS, number / BITS);
            for word in 1..=(now - last).min(WORDS) {
                self.taken[((last + word) % WORDS) as usize] = 0;
            }
            self.highest = number;
        }
        let (word, bit) = ReplayWindow::place(number);
        self.taken[word] |= bit;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_number_once() {
        let mut window = ReplayWindow::default();
        for number in [1, 2, 5, 3, 64, 63, 65, 128, 127, WIDTH + 100, WIDTH + 99, 3 * WIDTH, 3 * WIDTH - WIDTH + 1] {
            assert!(window.take(number), "{number}");
            assert!(!window.take(number), "{number} again");
        }
        assert!(!window.take(4), "too old to tell");
        assert!(!window.take(2 * WIDTH), "just too old");
        assert!(window.take(u64::MAX) && !window.take(u64::MAX) && window.take(u64::MAX - 1));
        assert!(!ReplayWindow::default().take(0), "no datagram has this number");
    }

    proptest! {
        /// Beside a set of all numbers that have been taken.
        #[test]
        fn as_a_set_would_say(steps in proptest::collection::vec(0..3000u64, 1..400), jump in 0..100_000u64) {
            let (mut window, mut all, mut highest) = (ReplayWindow::default(), BTreeSet::new(), 0);
            for (i, step) in steps.iter().enumerate() {
                let number = 1 + step + if i > steps.len() / 2 { jump } else { 0 };
                let new = !all.contains(&number) && highest < number + WIDTH;
                prop_assert_eq!(window.is_new(number), new);
                prop_assert_eq!(window.take(number), new);
                if new {
                    all.insert(number);
                    highest = highest.max(number);
                }
            }
        }
    }
}
