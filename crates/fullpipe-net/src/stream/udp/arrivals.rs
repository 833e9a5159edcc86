//! Counts the datagrams of a stream as they arrive: losses, order, copies, jitter. It does no I/O.

use fullpipe_path::record::udp::UdpCounts;

/// Numbers behind the highest one for which the receiver remembers whether they have arrived.
const WINDOW: u64 = 1 << 20;
const WORD_BITS: u64 = 64;

/// What has arrived of one stream.
pub(super) struct Arrivals {
    /// A bit for each number of the window, at the number modulo [`WINDOW`].
    seen: Vec<u64>,
    /// The highest number that has arrived, plus 1.
    next: u64,
    /// Number of datagrams that the sender says it has sent, once it has said so.
    sent: u64,
    received: u64,
    out_of_order: u64,
    duplicates: u64,
    jitter_ns: f64,
    /// Time on the way of the last arrival, ns. The clocks of both hosts differ, so it is only good for differences.
    transit_ns: Option<u64>,
}

impl Arrivals {
    pub(super) fn new() -> Arrivals {
        Arrivals {
            seen: vec![0; (WINDOW / WORD_BITS) as usize],
            next: 0,
            sent: 0,
            received: 0,
            out_of_order: 0,
            duplicates: 0,
            jitter_ns: 0.0,
            transit_ns: None,
        }
    }

    /// Takes in a datagram with the time at which the sender's clock said that it was sent and the receiver's that it arrived.
    /// Returns whether it is the first of its number.
    pub(super) fn arrived(&mut self, seq: u64, sent_ns: u64, at_ns: u64) -> bool {
        self.take_transit(at_ns.wrapping_sub(sent_ns));
        if seq >= self.next {
            self.forget_until(seq);
            self.next = seq + 1;
        } else if seq + WINDOW >= self.next && self.is_seen(seq) {
            self.duplicates += 1;
            return false;
        } else {
            self.out_of_order += 1;
        }
        self.mark(seq);
        self.received += 1;
        true
    }

    /// Smooths the difference between this datagram's time on the way and that of the one before it (RFC 3550, section 6.4.1), as
    /// iperf3 does.
    fn take_transit(&mut self, transit_ns: u64) {
        if let Some(before) = self.transit_ns.replace(transit_ns) {
            let difference_ns = (transit_ns.wrapping_sub(before) as i64).unsigned_abs() as f64;
            self.jitter_ns += (difference_ns - self.jitter_ns) / 16.0;
        }
    }

    /// Takes in that the sender has sent all.
    pub(super) fn ended(&mut self, sent: u64) {
        self.sent = self.sent.max(sent);
    }

    /// Whether the sender has sent all, and all of it has arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.sent > 0 && self.received >= self.sent
    }

    pub(super) fn counts(&self) -> UdpCounts {
        let known = self.next.max(self.sent);
        UdpCounts {
            datagrams: known,
            datagrams_received: self.received,
            datagrams_lost: known.saturating_sub(self.received),
            datagrams_out_of_order: self.out_of_order,
            datagrams_duplicate: self.duplicates,
            jitter_ns: self.jitter_ns as u64,
        }
    }

    /// Marks the numbers from the highest one up to `seq` as not seen.
    fn forget_until(&mut self, seq: u64) {
        if seq - self.next >= WINDOW {
            self.seen.fill(0);
            return;
        }
        for number in self.next..seq {
            let (word, bit) = place(number);
            self.seen[word] &= !bit;
        }
    }

    fn is_seen(&self, seq: u64) -> bool {
        let (word, bit) = place(seq);
        self.seen[word] & bit != 0
    }

    fn mark(&mut self, seq: u64) {
        // A number behind the window shares its bit with one of the window.
        if seq + WINDOW >= self.next {
            let (word, bit) = place(seq);
            self.seen[word] |= bit;
        }
    }
}

/// The word of a number, and its bit there.
fn place(seq: u64) -> (usize, u64) {
    let at = seq % WINDOW;
    ((at / WORD_BITS) as usize, 1 << (at % WORD_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[u64]) -> (UdpCounts, u64) {
        let mut arrivals = Arrivals::new();
        let new = numbers.iter().filter(|seq| arrivals.arrived(**seq, 0, 0)).count() as u64;
        (arrivals.counts(), new)
    }

    #[test]
    fn each_fate_is_counted() {
        let ahead = 3 * WINDOW + 5;
        for (numbers, known, lost, out_of_order, duplicates) in [
            (&[0, 1, 2][..], 3, 0, 0, 0),
            (&[0, 2, 5], 6, 3, 0, 0),
            (&[2, 0, 1], 3, 0, 2, 0),
            (&[0, 2, 1, 1, 2], 3, 0, 1, 2),
            // What lies between two numbers that are far apart was not seen, though its bits were set once.
            (&[0, 1, ahead, ahead - 1, ahead - 1], ahead + 1, ahead - 3, 1, 1),
            (&[0, 1, WINDOW + 1, WINDOW], WINDOW + 2, WINDOW - 2, 1, 0),
        ] {
            let (counts, new) = of(numbers);
            let found =
                (counts.datagrams, counts.datagrams_lost, counts.datagrams_out_of_order, counts.datagrams_duplicate);
            assert_eq!(found, (known, lost, out_of_order, duplicates), "{numbers:?}");
            assert_eq!((new, counts.datagrams_received), (numbers.len() as u64 - duplicates, new), "{numbers:?}");
        }
    }

    #[test]
    fn what_was_sent_last_is_lost_too() {
        let mut arrivals = Arrivals::new();
        arrivals.arrived(0, 0, 0);
        assert!(!arrivals.is_complete());
        arrivals.ended(3);
        assert_eq!((arrivals.counts().datagrams, arrivals.counts().datagrams_lost), (3, 2));
        arrivals.arrived(1, 0, 0);
        arrivals.arrived(2, 0, 0);
        assert!(arrivals.is_complete() && arrivals.counts().datagrams_lost == 0);
    }

    /// The numbers were computed by hand from the formula of RFC 3550.
    #[test]
    fn jitter_is_that_of_the_rfc() {
        let mut arrivals = Arrivals::new();
        // Times on the way of 1000, 1016, 1016 and 984 ns; the sender's clock is ahead.
        for (i, (sent_ns, at_ns)) in [(5_000, 0), (6_000, 1_016), (7_000, 2_016), (8_000, 2_984)].iter().enumerate() {
            arrivals.arrived(i as u64, *sent_ns, *at_ns);
        }
        // 16/16 = 1; 1 - 1/16 = 0.9375; 0.9375 + (32 - 0.9375)/16 = 2.879.
        assert!((arrivals.jitter_ns - 2.878_906_25).abs() < 1e-9, "{}", arrivals.jitter_ns);
        assert_eq!(arrivals.counts().jitter_ns, 2);
    }
}
