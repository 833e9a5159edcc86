//! Round-trip time and loss, from small UDP probes.

use std::collections::VecDeque;

/// Size of a probe at the IP layer, bytes (section IV-B).
pub const PROBE_BYTES: u32 = 100;
/// Time from one probe to the next, nanoseconds: 10 ms, hence 80 kb/s (section IV-B).
pub const PROBE_INTERVAL_NS: u64 = 10_000_000;
/// Number of latest probes whose loss is remembered (section IV-B).
const REMEMBERED_PROBES: usize = 100;
/// Number of lost probes among these above which the path counts as congested (section IV-B).
const TOLERATED_LOSSES: usize = 1;
/// Weight of a new sample in the running average of the RTT: TCP's own 1/8 (RFC 6298, 2.3). The paper does not give its own.
const AVERAGE_WEIGHT: f64 = 0.125;
/// Least queue delay that cannot come from the noise of timestamps, nanoseconds.
const MIN_QUEUE_NS: u64 = 200_000;
/// Time for which RTT samples are kept, nanoseconds.
const HISTORY_NS: u64 = 3_000_000_000;
/// Latest probes from which the noise of delays is taken: a third of a second.
const NOISE_PROBES: usize = 34;
/// Fewest of these that tell it.
const MIN_NOISE_PROBES: usize = 5;
/// Noise below this is that of clocks, and of our own bursts, nanoseconds.
const MIN_NOISE_NS: u64 = 150_000;

/// The round-trip times and losses that the probes have shown.
#[derive(Debug, Clone)]
pub(crate) struct Probes {
    /// Least round-trip time.
    base_ns: u64,
    /// Running average of the round-trip time.
    average_ns: f64,
    /// Instant of return and round-trip time of each recent probe.
    samples: VecDeque<(u64, u64)>,
    /// Whether each of the latest probes was lost.
    losses: VecDeque<bool>,
    /// Since when every probe has shown a queue.
    busy_since: Option<u64>,
}

impl Probes {
    /// Starts with the round-trip time that was measured on connecting.
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

    /// A probe came back.
    pub fn back(&mut self, at_ns: u64, rtt_ns: u64) {
        let rtt_ns = rtt_ns.max(1);
        self.remember(false);
        self.average_ns += AVERAGE_WEIGHT * (rtt_ns as f64 - self.average_ns);
        self.base_ns = self.base_ns.min(rtt_ns);
        self.samples.push_back((at_ns, rtt_ns));
        while self.samples.front().is_some_and(|s| s.0 + HISTORY_NS < at_ns) {
            self.samples.pop_front();
        }
        if rtt_ns - self.base_ns > MIN_QUEUE_NS {
            self.busy_since.get_or_insert(at_ns);
        } else {
            self.busy_since = None;
        }
    }

    /// A probe was lost. It does not count before any probe has come back, because a firewall may drop them all.
    pub fn lost(&mut self) {
        if !self.samples.is_empty() {
            self.remember(true);
        }
    }

    fn remember(&mut self, lost: bool) {
        self.losses.push_back(lost);
        if self.losses.len() > REMEMBERED_PROBES {
            self.losses.pop_front();
        }
    }

    /// Number of lost probes among the last hundred.
    pub fn losses(&self) -> usize {
        self.losses.iter().filter(|&&lost| lost).count()
    }

    /// Whether more than one of the last hundred probes was lost, which the paper calls a congested path.
    pub fn congested(&self) -> bool {
        self.losses() > TOLERATED_LOSSES
    }

    /// Whether a hundred probes have come back or been lost since the losses were last forgotten.
    pub fn full(&self) -> bool {
        self.losses.len() >= REMEMBERED_PROBES
    }

    /// Forgets the losses, once their cause has been dealt with.
    pub fn forget_losses(&mut self) {
        self.losses.clear();
    }

    /// Least round-trip time, nanoseconds.
    pub fn base_ns(&self) -> u64 {
        self.base_ns
    }

    /// Replaces the least round-trip time by the least since an instant, because the path has changed.
    pub fn rebase(&mut self, since_ns: u64) {
        if let Some(least) = self.since(since_ns).min() {
            self.base_ns = least;
            self.busy_since = None;
        }
    }

    /// Running average of the round-trip time, nanoseconds.
    pub fn average_ns(&self) -> f64 {
        self.average_ns
    }

    /// Instant since which every probe that came back has shown a queue.
    pub fn busy_since(&self) -> Option<u64> {
        self.busy_since
    }

    /// Round-trip times of the probes that came back since an instant, latest first.
    fn since(&self, since_ns: u64) -> impl Iterator<Item = u64> + '_ {
        self.samples.iter().rev().take_while(move |s| s.0 >= since_ns).map(|s| s.1)
    }

    /// Delay of the standing queue since an instant, nanoseconds: the least round-trip time since then minus the least ever. A
    /// burst passes between two probes, but no probe escapes a standing queue. None with fewer than three probes.
    pub fn standing_ns(&self, since_ns: u64) -> Option<u64> {
        (self.since(since_ns).count() >= 3)
            .then(|| self.since(since_ns).min().unwrap_or(0).saturating_sub(self.base_ns))
    }

    /// By how much a delay differs from the mean of its neighbours, as a median over the latest probes, nanoseconds: the noise of a
    /// path whose own delay varies, as over radio. A queue changes little within three probes. 0 if it is too little to matter.
    ///
    /// Delays that are spread evenly over a range R have a noise of 0.24 R.
    pub fn noise_ns(&self) -> u64 {
        let latest: Vec<u64> = self.samples.iter().rev().take(NOISE_PROBES).map(|s| s.1).collect();
        if latest.len() < MIN_NOISE_PROBES {
            return 0;
        }
        let mut rough: Vec<u64> = latest.windows(3).map(|w| (2 * w[1]).abs_diff(w[0] + w[2]) / 2).collect();
        rough.sort_unstable();
        let noise = rough.get(rough.len() / 2).copied().unwrap_or(0);
        if noise < MIN_NOISE_NS { 0 } else { noise }
    }

    /// Median queue delay since an instant, nanoseconds.
    pub fn median_ns(&self, since_ns: u64) -> Option<u64> {
        let mut all: Vec<u64> = self.since(since_ns).collect();
        all.sort_unstable();
        all.get(all.len() / 2).map(|rtt| rtt.saturating_sub(self.base_ns))
    }

    /// Longest queue delay since an instant, nanoseconds.
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
    fn noise_is_told_from_a_queue_that_grows() {
        let noise = |rtt: &dyn Fn(u64) -> u64| {
            let mut probes = Probes::new(20_000_000);
            (0..40).for_each(|i| probes.back(i * PROBE_INTERVAL_NS, rtt(i)));
            probes.noise_ns()
        };
        assert_eq!(noise(&|_| 20_000_000), 0);
        assert_eq!(noise(&|i| 20_000_000 + i * 1_000_000), 0, "a queue that grows");
        assert_eq!(noise(&|i| 20_000_000 + u64::from(i % 10 == 0) * 5_000_000), 0, "a burst now and then");
        assert_eq!(noise(&|i| 20_000_000 + i % 2 * 100_000), 0, "clocks");
        // By the golden ratio, delays are spread evenly over 4 ms, without a trend.
        let even = noise(&|i| 20_000_000 + (4e6 * (i as f64 * 0.618_034).fract()) as u64);
        assert!((500_000..2_500_000).contains(&even), "{even}");
    }

    #[test]
    fn a_burst_is_no_standing_queue() {
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
