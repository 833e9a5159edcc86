//! Round-trip time and loss, from small UDP probes.

use std::collections::VecDeque;

/// Bytes of a probe at the IP layer (section IV-B).
pub const PROBE_BYTES: u32 = 100;
/// From one probe to the next, nanoseconds: 10 ms, hence 80 kb/s (section IV-B).
pub const PROBE_EVERY_NS: u64 = 10_000_000;
/// Probes whose loss is remembered (section IV-B).
pub const REMEMBERED: usize = 100;
/// More than so many of them lost: the path is congested (section IV-B).
pub const TOLERATED: usize = 1;
/// Weight of a new sample in the running average: TCP's own 1/8 (RFC 6298, 2.3); the paper does not give its.
const AVERAGE: f64 = 0.125;
/// A queue delay above this is no accident of timestamps, nanoseconds.
const BUSY_NS: u64 = 200_000;
/// How long samples are kept, nanoseconds.
const KEPT_NS: u64 = 3_000_000_000;

/// What the probes show.
#[derive(Debug, Clone)]
pub(crate) struct Probes {
    base_ns: u64,
    average_ns: f64,
    samples: VecDeque<(u64, u64)>,
    losses: VecDeque<bool>,
    busy_since: Option<u64>,
}

impl Probes {
    /// With the round-trip time measured on connecting.
    pub fn new(rtt_ns: u64) -> Probes {
        let rtt_ns = rtt_ns.max(1);
        Probes {
            base_ns: rtt_ns,
            average_ns: rtt_ns as f64,
            samples: VecDeque::new(),
            losses: VecDeque::new(),
            busy_since: None,
        }
    }

    /// One came back.
    pub fn back(&mut self, at_ns: u64, rtt_ns: u64) {
        let rtt_ns = rtt_ns.max(1);
        self.remember(false);
        self.average_ns += AVERAGE * (rtt_ns as f64 - self.average_ns);
        self.base_ns = self.base_ns.min(rtt_ns);
        self.samples.push_back((at_ns, rtt_ns));
        while self.samples.front().is_some_and(|s| s.0 + KEPT_NS < at_ns) {
            self.samples.pop_front();
        }
        if rtt_ns - self.base_ns > BUSY_NS {
            self.busy_since.get_or_insert(at_ns);
        } else {
            self.busy_since = None;
        }
    }

    /// One was lost. Before any has come back that may be a firewall, not congestion.
    pub fn lost(&mut self) {
        if !self.samples.is_empty() {
            self.remember(true);
        }
    }

    fn remember(&mut self, lost: bool) {
        self.losses.push_back(lost);
        if self.losses.len() > REMEMBERED {
            self.losses.pop_front();
        }
    }

    /// Lost of the last hundred.
    pub fn losses(&self) -> usize {
        self.losses.iter().filter(|&&lost| lost).count()
    }

    /// Whether more than one of the last hundred was lost.
    pub fn congested(&self) -> bool {
        self.losses() > TOLERATED
    }

    /// Whether a hundred have been seen since they were last forgotten.
    pub fn full(&self) -> bool {
        self.losses.len() >= REMEMBERED
    }

    /// Forgets losses, after the cause has been dealt with.
    pub fn forget_losses(&mut self) {
        self.losses.clear();
    }

    /// Least round-trip time, nanoseconds.
    pub fn base_ns(&self) -> u64 {
        self.base_ns
    }

    /// Takes the least of what came since for the path's own: it has changed.
    pub fn rebase(&mut self, since_ns: u64) {
        if let Some(least) = self.since(since_ns).min() {
            self.base_ns = least;
            self.busy_since = None;
        }
    }

    /// Running average, nanoseconds.
    pub fn average_ns(&self) -> f64 {
        self.average_ns
    }

    /// Since when a queue has stood without a break, by the probes' return.
    pub fn busy_since(&self) -> Option<u64> {
        self.busy_since
    }

    fn since(&self, since_ns: u64) -> impl Iterator<Item = u64> + '_ {
        self.samples.iter().rev().take_while(move |s| s.0 >= since_ns).map(|s| s.1)
    }

    /// Delay of the standing queue, nanoseconds: the least since then over the least ever. A burst
    /// passes between two probes; what none of them escapes, stands. None with fewer than three.
    pub fn standing_ns(&self, since_ns: u64) -> Option<u64> {
        (self.since(since_ns).count() >= 3)
            .then(|| self.since(since_ns).min().unwrap_or(0).saturating_sub(self.base_ns))
    }

    /// Median queue delay since then, nanoseconds.
    pub fn median_ns(&self, since_ns: u64) -> Option<u64> {
        let mut all: Vec<u64> = self.since(since_ns).collect();
        all.sort_unstable();
        all.get(all.len() / 2).map(|rtt| rtt.saturating_sub(self.base_ns))
    }

    /// Longest queue delay since then, nanoseconds.
    pub fn longest_ns(&self, since_ns: u64) -> u64 {
        self.since(since_ns).max().map_or(0, |rtt| rtt.saturating_sub(self.base_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn congested_is_more_than_one_of_a_hundred() {
        let mut probes = Probes::new(20_000_000);
        probes.lost();
        probes.lost();
        assert!(!probes.congested());
        probes.back(0, 20_000_000);
        probes.lost();
        assert!(!probes.congested());
        probes.lost();
        assert!(probes.congested());
        for at in 1..100 {
            probes.back(at, 20_000_000);
        }
        assert!(!probes.congested());
    }

    #[test]
    fn a_burst_does_not_stand() {
        let mut probes = Probes::new(20_000_000);
        for (at, rtt) in [(1, 20_000_000), (2, 29_000_000), (3, 21_000_000), (4, 22_000_000)] {
            probes.back(at, rtt);
        }
        assert_eq!(probes.standing_ns(2), Some(1_000_000));
        assert_eq!(probes.standing_ns(0), Some(0));
        assert_eq!(probes.standing_ns(3), None);
        assert_eq!(probes.busy_since(), Some(2));
        assert_eq!(probes.longest_ns(0), 9_000_000);
    }
}
