//! The round-trip time and its variance (section 6.2, "On ACK2 packet received").

use crate::clock::SYN_NS;

/// RTT before anything has been measured: 10 SYN, as in libudt.
const INITIAL_RTT_NS: u64 = 10 * SYN_NS;
/// How long an answer may take before anything has been measured, nanoseconds (RFC 6298, 2.1). libudt has 0.3 s, and so takes for
/// lost what goes over a longer path first.
const INITIAL_TIMEOUT_NS: u64 = 1_000_000_000;
/// Longest first sample that is believed, nanoseconds.
const MAX_FIRST_SAMPLE_NS: u64 = 3_000_000_000;
/// A sample counts as at most this many times RTT + 4 RTTVar: a step of the clock looks like a long RTT.
const MAX_GROWTH: u64 = 8;
/// Divisor of the RTT that gives the time of a burst: a queue of a few hundredths of the bandwidth-delay product holds a burst.
const BURST_RTT_DIVISOR: u64 = 100;
/// Shortest time of a burst, nanoseconds. A timer that is late by up to half of it costs no rate.
const MIN_BURST_NS: u64 = 200_000;
/// Longest time of a burst, nanoseconds.
const MAX_BURST_NS: u64 = 500_000;
/// Divisor of the RTT that gives the time for which an end may gather what arrives.
const GATHERING_RTT_DIVISOR: u64 = 16;
/// Shortest time for which an end gathers what arrives, nanoseconds.
const MIN_GATHERING_NS: u64 = 50_000;
/// Longest time for which an end gathers what arrives, nanoseconds.
const MAX_GATHERING_NS: u64 = 500_000;

/// Divisor of the distance by which the least RTT comes nearer to the smoothed one with each sample: by half in half a minute.
const LEAST_AGEING: u64 = 4096;

/// Smoothed RTT and its variance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rtt {
    smoothed_ns: u64,
    variance_ns: u64,
    /// Shortest sample of late, or the largest number before there is one.
    least_ns: u64,
    measured: bool,
}

impl Rtt {
    /// Nothing has been measured, or `first_ns` by the handshake.
    pub fn new(first_ns: Option<u64>) -> Rtt {
        let (smoothed_ns, variance_ns) = (INITIAL_RTT_NS, INITIAL_RTT_NS / 2);
        let mut rtt = Rtt { smoothed_ns, variance_ns, least_ns: u64::MAX, measured: false };
        if let Some(sample_ns) = first_ns {
            rtt.sample(sample_ns);
        }
        rtt
    }

    /// Takes a sample: RTTVar = (3 RTTVar + |RTT - rtt|) / 4, RTT = (7 RTT + rtt) / 8. The first sample is taken whole, with
    /// half of it as the variance (as in RFC 6298); libudt starts from 100 ms and needs 20 samples to forget them.
    pub fn sample(&mut self, sample_ns: u64) {
        // It ages, as the path may become longer.
        let aged_ns = self.least_ns.saturating_add(self.smoothed_ns.saturating_sub(self.least_ns) / LEAST_AGEING);
        self.least_ns = aged_ns.min(sample_ns);
        if !self.measured {
            let sample_ns = sample_ns.min(MAX_FIRST_SAMPLE_NS);
            *self = Rtt { smoothed_ns: sample_ns, variance_ns: sample_ns / 2, measured: true, ..*self };
            return;
        }
        let sample_ns = sample_ns.min(self.timeout_ns().saturating_mul(MAX_GROWTH).max(INITIAL_RTT_NS));
        self.variance_ns = (self.variance_ns * 3 + self.smoothed_ns.abs_diff(sample_ns)) / 4;
        self.smoothed_ns = (self.smoothed_ns * 7 + sample_ns) / 8;
    }

    /// Smoothed RTT, nanoseconds.
    pub fn smoothed_ns(&self) -> u64 {
        self.smoothed_ns
    }

    /// The smoothed RTT less the shortest sample of late, nanoseconds: the time in queues at present.
    pub fn queueing_ns(&self) -> u64 {
        self.smoothed_ns.saturating_sub(self.least_ns)
    }

    /// Variance of the RTT, nanoseconds.
    pub fn variance_ns(&self) -> u64 {
        self.variance_ns
    }

    /// Time that a burst of packets may last at the sending rate, nanoseconds.
    pub fn burst_ns(&self) -> u64 {
        self.fraction(BURST_RTT_DIVISOR, MIN_BURST_NS, MAX_BURST_NS)
    }

    /// Time for which an end may gather what arrives before it handles it, nanoseconds.
    pub fn gathering_ns(&self) -> u64 {
        self.fraction(GATHERING_RTT_DIVISOR, MIN_GATHERING_NS, MAX_GATHERING_NS)
    }

    /// A fraction of the RTT within bounds, nanoseconds; the lower bound until the RTT is known.
    fn fraction(&self, divisor: u64, min_ns: u64, max_ns: u64) -> u64 {
        if self.measured { (self.smoothed_ns / divisor).clamp(min_ns, max_ns) } else { min_ns }
    }

    /// How long an answer to data may take, nanoseconds: [`Rtt::timeout_ns`], and longer while nothing has been measured.
    pub fn answer_ns(&self) -> u64 {
        if self.measured { self.timeout_ns() } else { self.timeout_ns().max(INITIAL_TIMEOUT_NS) }
    }

    /// RTT + 4 RTTVar, nanoseconds: how long an answer may take. Section 4 has the factor at the other term; libudt has it here.
    pub fn timeout_ns(&self) -> u64 {
        self.smoothed_ns + 4 * self.variance_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_counts_whole_and_later_ones_by_an_eighth() {
        let mut rtt = Rtt::new(None);
        assert_eq!(rtt.smoothed_ns(), 100_000_000);
        rtt.sample(8_000);
        assert_eq!((rtt.smoothed_ns(), rtt.variance_ns()), (8_000, 4_000));
        rtt.sample(16_000);
        assert_eq!((rtt.smoothed_ns(), rtt.variance_ns()), (9_000, 5_000));
        assert_eq!(rtt.timeout_ns(), 29_000);
        rtt.sample(u64::MAX);
        assert!(rtt.smoothed_ns() < 13_000_000);
    }

    #[test]
    fn a_burst_lasts_a_hundredth_of_the_rtt_within_bounds() {
        for (rtt_ns, burst_ns) in [
            (None, 200_000),
            (Some(100_000), 200_000),
            (Some(10_000_000), 200_000),
            (Some(30_000_000), 300_000),
            (Some(366_000_000), 500_000),
        ] {
            assert_eq!(Rtt::new(rtt_ns).burst_ns(), burst_ns, "{rtt_ns:?}");
        }
    }
}
