//! The receive throughput, and the two signatures by which it shows a saturated path.

use std::collections::VecDeque;

/// Length of a measurement, round-trip times (section IV-B: a compromise between noise and latency).
const WINDOW_RTTS: u64 = 2;
/// Number of measurements that must be almost equal for the flat-rate condition (section IV-B).
pub const FLAT_COUNT: usize = 5;
/// The same number during the initial slow start, states 1 and 2 (section IV-B, footnote 4).
pub const FLAT_SLOW_START_COUNT: usize = 2;
/// Measurements are almost equal if their slope is below this fraction of what the growing window alone would give
/// (section IV-B).
const FLAT_SLOPE: f64 = 0.5;
/// Growth of the window per RTT in congestion avoidance with delayed ACKs, segments (section IV-B).
pub const DELAYED_ACK_GROWTH: f64 = 0.5;
/// Measurements are constant, for the const-rate-drop condition, within this fraction of each other (section IV-B).
const CONSTANT_FRACTION: f64 = 0.05;
/// Number of measurements that must have been constant before the drop (section IV-B).
const CONSTANT_COUNT: usize = 2;
/// Least fall of the rate that counts as a drop, as a fraction (section IV-B).
const DROP_FRACTION: f64 = 0.2;
/// Time for which byte counts are kept beyond two measurements, nanoseconds.
const HISTORY_NS: u64 = 2_000_000_000;
/// Least time between two byte counts, nanoseconds; closer ones are merged. This bounds the memory.
const MIN_COUNT_INTERVAL_NS: u64 = 500_000;

/// The bytes received over time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bytes {
    /// Instants and totals.
    seen: VecDeque<(u64, u64)>,
    /// Longest time over which a rate has been asked for by [`Windows`].
    longest_ns: u64,
}

impl Bytes {
    /// Takes in the total at an instant. Ignores a total or an instant that goes backwards.
    pub fn add(&mut self, at_ns: u64, total: u64) {
        if self.seen.back().is_some_and(|&(at, bytes)| at_ns <= at || total < bytes) {
            return;
        }
        let n = self.seen.len();
        if n >= 2 && at_ns - self.seen[n - 2].0 < MIN_COUNT_INTERVAL_NS {
            self.seen.pop_back();
        }
        self.seen.push_back((at_ns, total));
        let kept = HISTORY_NS + self.longest_ns;
        while self.seen.len() > 2 && self.seen[1].0 + kept < at_ns {
            self.seen.pop_front();
        }
    }

    /// Instant of the latest count.
    pub fn last_ns(&self) -> Option<u64> {
        self.seen.back().map(|s| s.0)
    }

    /// The latest total, bytes.
    pub fn total(&self) -> u64 {
        self.seen.back().map_or(0, |s| s.1)
    }

    /// Total at an instant, interpolated linearly between counts.
    fn at(&self, at_ns: u64) -> Option<f64> {
        let right = self.seen.partition_point(|s| s.0 < at_ns);
        let &(t1, b1) = self.seen.get(right)?;
        if t1 == at_ns {
            return Some(b1 as f64);
        }
        let &(t0, b0) = self.seen.get(right.checked_sub(1)?)?;
        Some(b0 as f64 + (b1 - b0) as f64 * (at_ns - t0) as f64 / (t1 - t0) as f64)
    }

    /// Mean rate between two instants, bit/s; none outside the time for which counts are kept.
    pub fn between(&self, from_ns: u64, to_ns: u64) -> Option<f64> {
        let to_ns = to_ns.min(self.last_ns()?);
        if to_ns <= from_ns {
            return None;
        }
        Some((self.at(to_ns)? - self.at(from_ns)?) * 8.0 / ((to_ns - from_ns) as f64 * 1e-9))
    }
}

/// One measurement of throughput.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measured {
    /// End of the measurement, nanoseconds.
    pub at_ns: u64,
    /// Rate, bit/s.
    pub bps: f64,
}

/// Measurements over successive periods of two RTTs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Windows {
    /// When the present measurement began.
    start_ns: Option<u64>,
    /// The latest measurements.
    recent: VecDeque<Measured>,
}

impl Windows {
    /// Returns a new measurement, if one has ended.
    pub fn step(&mut self, now_ns: u64, rtt_ns: u64, bytes: &mut Bytes) -> Option<Measured> {
        let length = WINDOW_RTTS * rtt_ns.max(1);
        bytes.longest_ns = bytes.longest_ns.max(2 * length);
        let first = bytes.seen.front()?.0;
        let start = *self.start_ns.get_or_insert(first);
        let over = now_ns.min(bytes.last_ns()?).checked_sub(start)? / length;
        if over == 0 {
            return None;
        }
        // Several measurements may have ended since the last tick; the latest counts.
        let end = start.saturating_add(over * length);
        let start = end - length;
        self.start_ns = Some(end);
        let Some(bps) = bytes.between(start, end) else {
            // The last tick is so long ago that the counts have been dropped.
            self.start_ns = bytes.last_ns();
            return None;
        };
        let measured = Measured { at_ns: end, bps };
        self.recent.push_back(measured);
        if self.recent.len() > FLAT_COUNT {
            self.recent.pop_front();
        }
        Some(measured)
    }

    /// The latest `n` measurements; none if there are fewer.
    fn last(&self, n: usize) -> Option<Vec<Measured>> {
        let skip = self.recent.len().checked_sub(n)?;
        Some(self.recent.iter().skip(skip).copied().collect())
    }

    /// Whether the flat-rate condition holds over the latest `n` measurements: their slope is below half of `growth` (bit/s per
    /// second), and they are within 5% of each other. The second part is ours, because a falling rate passes the first.
    pub fn flat(&self, n: usize, growth: f64) -> bool {
        self.last(n).is_some_and(|all| slope(&all) < FLAT_SLOPE * growth && constant(&all))
    }

    /// Tests the const-rate-drop condition. Returns the rate before the drop, bit/s.
    pub fn constant_then_drop(&self) -> Option<f64> {
        let all = self.last(CONSTANT_COUNT + 1)?;
        let (before, after) = all.split_at(CONSTANT_COUNT);
        let level = before.iter().map(|m| m.bps).sum::<f64>() / before.len() as f64;
        (constant(before) && after[0].bps < (1.0 - DROP_FRACTION) * level).then_some(level)
    }

    /// Whether the latest measurement is more than 20% below the one before.
    pub fn drop(&self) -> bool {
        self.last(2).is_some_and(|all| all[1].bps < (1.0 - DROP_FRACTION) * all[0].bps)
    }
}

/// Least-squares slope, bit/s per second.
fn slope(all: &[Measured]) -> f64 {
    let Some(first) = all.first() else { return 0.0 };
    let n = all.len() as f64;
    let x = |m: &Measured| (m.at_ns - first.at_ns) as f64 * 1e-9;
    let (mx, my) = (all.iter().map(x).sum::<f64>() / n, all.iter().map(|m| m.bps).sum::<f64>() / n);
    let (top, bottom) =
        all.iter().fold((0.0, 0.0), |(t, b), m| (t + (x(m) - mx) * (m.bps - my), b + (x(m) - mx).powi(2)));
    if bottom > 0.0 { top / bottom } else { 0.0 }
}

/// Whether all are within 5% of each other.
fn constant(all: &[Measured]) -> bool {
    let low = all.iter().map(|m| m.bps).fold(f64::INFINITY, f64::min);
    let high = all.iter().map(|m| m.bps).fold(0.0, f64::max);
    high > 0.0 && high - low <= CONSTANT_FRACTION * high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(rates: &[f64]) -> Windows {
        let (mut windows, mut bytes, mut total) = (Windows::default(), Bytes::default(), 0.0);
        bytes.add(0, 0);
        for (i, rate) in rates.iter().enumerate() {
            total += rate * 0.02 / 8.0;
            let at = (i as u64 + 1) * 20_000_000;
            bytes.add(at, total as u64);
            let measured = windows.step(at, 10_000_000, &mut bytes).unwrap();
            assert!((measured.bps / rate - 1.0).abs() < 1e-3);
        }
        windows
    }

    #[test]
    fn flat_is_five_alike() {
        // Half a segment per RTT, per RTT, at 10 ms.
        let growth = 0.5 * 1448.0 * 8.0 / 0.01 / 0.01;
        assert!(windows(&[900e6; 5]).flat(FLAT_COUNT, growth));
        assert!(!windows(&[900e6; 4]).flat(FLAT_COUNT, growth));
        let growing: Vec<f64> = (0..5).map(|i| 900e6 + growth * 0.02 * f64::from(i)).collect();
        assert!(!windows(&growing).flat(FLAT_COUNT, growth));
        assert!(!windows(&[900e6, 800e6, 700e6, 600e6, 500e6]).flat(FLAT_COUNT, growth));
    }

    #[test]
    fn windows_shorter_than_ticks_do_not_fall_behind() {
        let (mut windows, mut bytes) = (Windows::default(), Bytes::default());
        for tick in 0..100 {
            let now = tick * 5_000_000;
            bytes.add(now, tick * tick);
            if let Some(measured) = windows.step(now, 500_000, &mut bytes) {
                assert_eq!(measured.at_ns, now);
            }
        }
        assert_eq!(windows.recent.len(), FLAT_COUNT);
    }

    #[test]
    fn a_drop_is_from_something_constant() {
        assert_eq!(windows(&[900e6, 900e6, 600e6]).constant_then_drop().map(|r| r.round()), Some(900e6));
        assert_eq!(windows(&[900e6, 900e6, 750e6]).constant_then_drop(), None);
        assert_eq!(windows(&[500e6, 900e6, 600e6]).constant_then_drop(), None);
        assert!(windows(&[500e6, 900e6, 600e6]).drop());
    }

    #[test]
    fn counts_that_go_backwards_are_ignored() {
        let mut bytes = Bytes::default();
        for (at, total) in [(0, 0), (10_000_000, 1_000), (5_000_000, 2_000), (20_000_000, 500), (20_000_000, 2_000)] {
            bytes.add(at, total);
        }
        assert_eq!(bytes.between(0, 20_000_000), Some(800_000.0));
        assert_eq!(bytes.between(30_000_000, 40_000_000), None);
    }
}
