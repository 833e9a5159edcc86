//! The rate at which packets arrive, and the capacity of the path by packet pairs (section 6.2, "ACK Event Processing", steps
//! 4 and 5), both with median filters.
//!
//! Packets that the kernel has coalesced (`UDP_GRO`) arrive at one instant, so an interval is that between two arrivals over the
//! number of packets in the second one. When each packet arrives alone this is the draft's rule.

/// Arrivals in the PKT History Window (section 6.2, step 4).
const HISTORY: usize = 16;
/// Pairs in the Packet Pair Window. The draft has 16; libudt has 64.
const PAIRS: usize = 64;
/// Intervals this many times longer or shorter than the median are left out.
const OUTLIER_FACTOR: f64 = 8.0;
/// A packet pair is the packet whose number is a multiple of this, and the next one (section 6.1, step 5).
pub const PAIR_INTERVAL: u64 = 16;

/// A ring of the last `N` intervals between packets, nanoseconds, each with how many packets it stands for.
#[derive(Debug, Clone)]
struct Window<const N: usize> {
    intervals: [(f32, u32); N],
    count: usize,
    next: usize,
}

impl<const N: usize> Window<N> {
    fn new() -> Window<N> {
        Window { intervals: [(0.0, 0); N], count: 0, next: 0 }
    }

    fn push(&mut self, interval_ns: f32, packets: u32) {
        self.intervals[self.next] = (interval_ns, packets);
        self.next = (self.next + 1) % N;
        self.count = (self.count + 1).min(N);
    }

    /// Mean interval of the packets whose interval is near the median; `None` where fewer than `min` are.
    fn mean_ns(&self, min: usize) -> Option<f64> {
        let mut sorted = self.intervals;
        let sorted = &mut sorted[..self.count];
        if sorted.is_empty() {
            return None;
        }
        let middle = sorted.len() / 2;
        let median = f64::from(sorted.select_nth_unstable_by(middle, |a, b| a.0.total_cmp(&b.0)).1.0);
        let near = |ns: f64| ns < median * OUTLIER_FACTOR && ns > median / OUTLIER_FACTOR;
        let (mut kept, mut time, mut packets) = (0, 0.0, 0.0);
        for (ns, n) in sorted.iter().map(|(ns, n)| (f64::from(*ns), f64::from(*n))).filter(|(ns, _)| near(*ns)) {
            kept += 1;
            time += ns * n;
            packets += n;
        }
        (kept >= min && time > 0.0).then(|| time / packets)
    }
}

/// What a receiver remembers of the times at which packets arrived.
#[derive(Debug, Clone)]
pub struct Arrivals {
    history: Window<HISTORY>,
    pairs: Window<PAIRS>,
    /// When the last packets arrived, and the last of them.
    last: Option<(u64, u64)>,
}

impl Default for Arrivals {
    fn default() -> Arrivals {
        Arrivals { history: Window::new(), pairs: Window::new(), last: None }
    }
}

impl Arrivals {
    /// Notes that `packets` data packets have arrived at one instant, the first and the last of which are given.
    pub fn arrived(&mut self, now_ns: u64, first: u64, last: u64, packets: u32) {
        if let Some((at_ns, before)) = self.last
            && packets > 0
        {
            let interval_ns = now_ns.saturating_sub(at_ns) as f32 / packets as f32;
            self.history.push(interval_ns, packets);
            // The two packets of a pair leave the sender back to back, and nothing was lost between them.
            if before.is_multiple_of(PAIR_INTERVAL) && first == before + 1 && interval_ns > 0.0 {
                self.pairs.push(interval_ns, 1);
            }
        }
        self.last = Some((now_ns, last));
    }

    /// Rate at which packets arrive, packets per second; 0 where fewer than half of the window's intervals are near their
    /// median.
    pub fn arrival_pps(&self) -> u32 {
        self.history.mean_ns(HISTORY / 2 + 1).map_or(0, pps)
    }

    /// Capacity of the path, packets per second; 0 where no pair has been seen. The draft takes the median pair; libudt the
    /// mean of those near it, as here.
    pub fn capacity_pps(&self) -> u32 {
        self.pairs.mean_ns(1).map_or(0, pps)
    }
}

fn pps(interval_ns: f64) -> u32 {
    (1e9 / interval_ns).ceil().min(f64::from(i32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_leaves_pauses_out() {
        let mut arrivals = Arrivals::default();
        assert_eq!((arrivals.arrival_pps(), arrivals.capacity_pps()), (0, 0));
        let mut now = 0;
        for index in 0..160 {
            now += match index % 16 {
                0 => 5_000_000,
                1 => 1_200,
                _ => 12_000,
            };
            arrivals.arrived(now, index, index, 1);
        }
        // 14 intervals of 12 us of each 16; pause and pair are outliers.
        assert_eq!(arrivals.arrival_pps(), 83_334);
        assert!((833_333..833_335).contains(&arrivals.capacity_pps()));
    }

    #[test]
    fn coalesced_packets_count_each() {
        let mut arrivals = Arrivals::default();
        for batch in 0..32u64 {
            arrivals.arrived(batch * 40_000, batch * 40, batch * 40 + 39, 40);
        }
        assert_eq!(arrivals.arrival_pps(), 1_000_000);
    }

    #[test]
    fn a_pair_with_a_loss_between_is_none() {
        let mut arrivals = Arrivals::default();
        arrivals.arrived(0, 16, 16, 1);
        arrivals.arrived(900, 33, 33, 1);
        arrivals.arrived(1_000, 32, 32, 1);
        arrivals.arrived(1_000, 33, 33, 1);
        assert_eq!(arrivals.capacity_pps(), 0);
    }
}
