//! UDT's native congestion control (section 7.2): additive increase by decades of the free capacity, multiplicative decrease by
//! a ninth for each of a few NAKs of a congestion period.
//!
//! It follows libudt 4.11 where that differs from the draft, since the papers measured libudt; each difference is named where it
//! is. Two things of libudt are left out: it rounds the period up to whole microseconds after a decrease, which at 10 Gb/s
//! would halve the rate; and it computes the period at the end of a slow start without a measured rate upside down.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg32;

use super::interface::{CongestionControl, INITIAL_WINDOW_PACKETS, Path};
use crate::clock::SYN_NS;

/// Initial congestion window, packets.
const INITIAL_WINDOW: f64 = INITIAL_WINDOW_PACKETS as f64;
/// Initial period, nanoseconds. The draft has 0; libudt has 1 us.
const INITIAL_PERIOD_NS: f64 = 1_000.0;
/// Smallest increase, packets per SYN (section 7.2, "min_inc").
const MIN_INCREASE: f64 = 0.01;
/// Beta of section 7.2.
const BETA: f64 = 0.000_001_5;
/// Factor of the period at a decrease: the rate falls by a ninth (section 7.2).
const DECREASE: f64 = 1.125;
/// NAKs of a congestion period that can decrease the rate: (8/9)^5 is 0.55. libudt counts NAKs; the draft counts
/// decreases (DecCount), and has six.
const MAX_DECREASING_NAKS: u32 = 5;
/// After a decrease, the increase assumes this part of the capacity to be free until the old rate is reached again (libudt).
const RECOVERY_PART: f64 = 1.0 / 9.0;
/// Longest period, nanoseconds: a packet every 10 s.
const MAX_PERIOD_NS: f64 = 1e10;

/// The native control.
#[derive(Debug)]
pub struct Native {
    /// Whether slow start goes on. It holds the index that the last ACK acknowledged.
    slow_start: Option<u64>,
    window: f64,
    period_ns: f64,
    /// When the rate was last updated: at most once per SYN.
    updated_ns: u64,
    /// A NAK has come since the last update; that update does not increase the rate (libudt).
    loss_since_update: bool,
    /// Period before the last decrease that began a congestion period.
    period_before_decrease_ns: f64,
    /// Largest index that had been sent at the last decrease (LastDecSeq).
    last_decrease_index: u64,
    /// NAKs of this congestion period that could decrease the rate (NAKCount).
    nak_count: u32,
    /// Mean of `nak_count` over congestion periods (AvgNAKNum).
    average_naks: u32,
    /// Every how many NAKs the rate is decreased again (DecRandom).
    decrease_every: u32,
    rng: Pcg32,
}

impl Native {
    /// A control for a sender whose first packet has the index `first`.
    pub fn new(now_ns: u64, first: u64, seed: u64) -> Native {
        Native {
            slow_start: Some(first),
            window: INITIAL_WINDOW,
            period_ns: INITIAL_PERIOD_NS,
            updated_ns: now_ns,
            loss_since_update: false,
            period_before_decrease_ns: INITIAL_PERIOD_NS,
            last_decrease_index: first.saturating_sub(1),
            nak_count: 0,
            average_naks: 0,
            decrease_every: 1,
            rng: Pcg32::seed_from_u64(seed),
        }
    }

    /// Ends slow start: the rate becomes that at which packets arrive or, where that is unknown, one window per RTT + SYN.
    /// Returns whether the rate is known.
    fn end_slow_start(&mut self, path: &Path) -> bool {
        self.slow_start = None;
        let measured = path.arrival_pps > 0.0;
        self.set_period(if measured { 1e9 / path.arrival_pps } else { (path.rtt_ns + SYN_NS) as f64 / self.window });
        measured
    }

    fn set_period(&mut self, period_ns: f64) {
        self.period_ns = period_ns.clamp(1.0, MAX_PERIOD_NS);
    }

    /// Packets by which the rate increases per SYN (section 7.2, step 3 of "On ACK").
    fn increase(&self, path: &Path) -> f64 {
        let mut free_pps = path.capacity_pps - 1e9 / self.period_ns;
        // libudt; not in the draft.
        if self.period_ns > self.period_before_decrease_ns {
            free_pps = free_pps.min(path.capacity_pps * RECOVERY_PART);
        }
        if free_pps <= 0.0 {
            return MIN_INCREASE;
        }
        let mss = f64::from(path.mss);
        (10f64.powf((free_pps * mss * 8.0).log10().ceil()) * BETA / mss).max(MIN_INCREASE)
    }

    fn decrease(&mut self, path: &Path) {
        self.set_period(self.period_ns * DECREASE);
        self.last_decrease_index = path.largest_sent;
    }
}

impl CongestionControl for Native {
    fn on_ack(&mut self, now_ns: u64, acked: u64, path: &Path) {
        if now_ns.saturating_sub(self.updated_ns) < SYN_NS {
            return;
        }
        self.updated_ns = now_ns;
        if let Some(last) = self.slow_start {
            // The draft ends slow start at the first ACK. libudt lets the window grow by what is acknowledged, up to the
            // receiver's window.
            self.window += acked.saturating_sub(last) as f64;
            self.slow_start = Some(acked.max(last));
            if self.window <= path.max_window as f64 {
                return;
            }
            self.end_slow_start(path);
        } else {
            self.window = path.arrival_pps * (path.rtt_ns + SYN_NS) as f64 / 1e9 + INITIAL_WINDOW;
        }
        if std::mem::take(&mut self.loss_since_update) {
            return;
        }
        // SND = SND * SYN / (SND * inc + SYN): the rate, 1 / SND, grows by inc / SYN.
        let syn = SYN_NS as f64;
        self.set_period(self.period_ns * syn / (self.period_ns * self.increase(path) + syn));
    }

    fn on_loss(&mut self, _now_ns: u64, first_lost: u64, path: &Path) {
        if self.slow_start.is_some() && self.end_slow_start(path) {
            return;
        }
        self.loss_since_update = true;
        if first_lost > self.last_decrease_index {
            // A new congestion period.
            self.period_before_decrease_ns = self.period_ns;
            self.decrease(path);
            self.average_naks =
                (f64::from(self.average_naks) * 0.875 + f64::from(self.nak_count) * 0.125).ceil() as u32;
            self.nak_count = 1;
            self.decrease_every = 1 + self.rng.next_u32() % self.average_naks.max(1);
        } else if self.nak_count < MAX_DECREASING_NAKS {
            self.nak_count += 1;
            if self.nak_count.is_multiple_of(self.decrease_every) {
                self.decrease(path);
            }
        }
    }

    fn on_timeout(&mut self, _now_ns: u64, path: &Path) {
        // libudt: a timeout after slow start changes nothing.
        if self.slow_start.is_some() {
            self.end_slow_start(path);
        }
    }

    fn sending_period_ns(&self) -> f64 {
        self.period_ns
    }

    fn window_packets(&self) -> f64 {
        self.window
    }
}
