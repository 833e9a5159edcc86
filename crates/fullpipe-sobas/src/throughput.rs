//! Receive throughput, and the two signatures of a saturated path in it.

use std::collections::VecDeque;

/// Measurements are over so many round-trip times (section IV-B: the trade between noise and latency).
pub const WINDOW_RTTS: u64 = 2;
/// Measurements that must be almost equal for the flat-rate condition (section IV-B).
pub const FLAT: usize = 5;
/// The same in the initial slow start, states 1 and 2 (section IV-B, footnote 4).
pub const FLAT_SLOW_START: usize = 2;
/// Almost equal: a slope below this part of what the growing window alone would give (section IV-B).
pub const FLAT_SLOPE: f64 = 0.5;
/// Segments by which congestion avoidance with delayed ACKs grows the window, per RTT (section IV-B).
pub const DELAYED_ACK_GROWTH: f64 = 0.5;
/// Constant, for const-rate-drop: within 5% of each other (section IV-B).
pub const CONSTANT: f64 = 0.05;
/// Measurements that must have been constant before the drop (section IV-B).
pub const CONSTANT_COUNT: usize = 2;
/// A drop: by more than 20% (section IV-B).
pub const DROP: f64 = 0.2;
/// How long byte counts are kept beyond two windows, nanoseconds.
const KEPT_NS: u64 = 2_000_000_000;
/// Byte counts closer than this are one, nanoseconds: it bounds the memory.
const APART_NS: u64 = 500_000;

/// Bytes received, over time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bytes {
    seen: VecDeque<(u64, u64)>,
    longest_ns: u64,
}

impl Bytes {
    /// Total so far. What goes backwards is ignored.
    pub fn add(&mut self, at_ns: u64, total: u64) {
        if self.seen.back().is_some_and(|&(at, bytes)| at_ns <= at || total < bytes) {
            return;
        }
        let n = self.seen.len();
        if n >= 2 && at_ns - self.seen[n - 2].0 < APART_NS {
            self.seen.pop_back();
        }
        self.seen.push_back((at_ns, total));
        let kept = KEPT_NS + self.longest_ns;
        while self.seen.len() > 2 && self.seen[1].0 + kept < at_ns {
            self.seen.pop_front();
        }
    }

    /// When the last count came.
    pub fn last_ns(&self) -> Option<u64> {
        self.seen.back().map(|s| s.0)
    }

    /// Total at an instant, linear between counts.
    fn at(&self, at_ns: u64) -> Option<f64> {
        let right = self.seen.partition_point(|s| s.0 < at_ns);
        let &(t1, b1) = self.seen.get(right)?;
        if t1 == at_ns {
            return Some(b1 as f64);
        }
        let &(t0, b0) = self.seen.get(right.checked_sub(1)?)?;
        Some(b0 as f64 + (b1 - b0) as f64 * (at_ns - t0) as f64 / (t1 - t0) as f64)
    }

    /// Mean rate between two instants that lie within what is known, bit/s.
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
    /// End of its window, nanoseconds.
    pub at_ns: u64,
    /// bit/s.
    pub bps: f64,
}

/// Measurements over successive windows of two RTTs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Windows {
    start_ns: Option<u64>,
    recent: VecDeque<Measured>,
}

impl Windows {
    /// A new measurement, if a window has ended.
    pub fn step(&mut self, now_ns: u64, rtt_ns: u64, bytes: &mut Bytes) -> Option<Measured> {
        let length = WINDOW_RTTS * rtt_ns.max(1);
        bytes.longest_ns = bytes.longest_ns.max(2 * length);
        let first = bytes.seen.front()?.0;
        let start = *self.start_ns.get_or_insert(first);
        let over = now_ns.min(bytes.last_ns()?).checked_sub(start)? / length;
        if over == 0 {
            return None;
        }
        // Windows may be shorter than ticks are apart: of those that have ended since, the latest.
        let end = start.saturating_add(over * length);
        let start = end - length;
        self.start_ns = Some(end);
        let Some(bps) = bytes.between(start, end) else {
            // Nobody looked for so long that the window is no longer known: begin anew.
            self.start_ns = bytes.last_ns();
            return None;
        };
        let measured = Measured { at_ns: end, bps };
        self.recent.push_back(measured);
        if self.recent.len() > FLAT {
            self.recent.pop_front();
        }
        Some(measured)
    }

    /// The last `n`, if there are as many.
    fn last(&self, n: usize) -> Option<Vec<Measured>> {
        let skip = self.recent.len().checked_sub(n)?;
        Some(self.recent.iter().skip(skip).copied().collect())
    }

    /// The flat-rate condition over the last `n`: their slope is below half of `growth` (bit/s per
    /// second), and they are within 5% of each other. The second half of it is ours: the slope alone
    /// calls a falling rate flat.
    pub fn flat(&self, n: usize, growth: f64) -> bool {
        self.last(n).is_some_and(|all| slope(&all) < FLAT_SLOPE * growth && constant(&all))
    }

    /// The const-rate-drop condition; gives the rate from which it dropped, bit/s.
    pub fn constant_then_drop(&self) -> Option<f64> {
        let all = self.last(CONSTANT_COUNT + 1)?;
        let (before, after) = all.split_at(CONSTANT_COUNT);
        let level = before.iter().map(|m| m.bps).sum::<f64>() / before.len() as f64;
        (constant(before) && after[0].bps < (1.0 - DROP) * level).then_some(level)
    }

    /// A drop by more than 20% since the measurement before.
    pub fn drop(&self) -> bool {
        self.last(2).is_some_and(|all| all[1].bps < (1.0 - DROP) * all[0].bps)
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

/// Within 5% of each other.
fn constant(all: &[Measured]) -> bool {
    let low = all.iter().map(|m| m.bps).fold(f64::INFINITY, f64::min);
    let high = all.iter().map(|m| m.bps).fold(0.0, f64::max);
    high > 0.0 && high - low <= CONSTANT * high
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
        assert!(windows(&[900e6; 5]).flat(FLAT, growth));
        assert!(!windows(&[900e6; 4]).flat(FLAT, growth));
        let growing: Vec<f64> = (0..5).map(|i| 900e6 + growth * 0.02 * f64::from(i)).collect();
        assert!(!windows(&growing).flat(FLAT, growth));
        assert!(!windows(&[900e6, 800e6, 700e6, 600e6, 500e6]).flat(FLAT, growth));
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
        assert_eq!(windows.recent.len(), FLAT);
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
