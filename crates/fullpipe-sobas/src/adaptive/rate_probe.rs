//! Short rises of the rate that find out whether more of the path is free, at the price of a short queue.

use super::{Adaptive, STANDING_NS, VISIBLE_S};
use crate::event::Why;
use crate::network_model::NetworkModel;
use crate::probes::PROBE_EVERY_NS;

/// Length of a pulse, nanoseconds: several of TCP's bursts (`sk_pacing_shift`: about 1 ms each).
pub(super) const PULSE_NS: u64 = 10_000_000;
/// First pulse, bits: half of a 64 KB queue.
pub(super) const FIRST_BUDGET: f64 = 32_768.0 * 8.0;
/// What has been learnt of a shallow queue is forgotten so fast, per pulse without loss.
pub(super) const UNLEARN: f64 = 1.05;
/// A pulse of which less than this part came back as queue passed freely.
pub(super) const PASSED: f64 = 0.2;
/// A pulse of this length, in delay, is seen well enough, seconds.
pub(super) const CLEAR_S: f64 = 2.5e-4;
/// A queue known to hold so many times as much forgives a longer one.
pub(super) const DEEPER: f64 = 3.0;
/// Received below this part of the pacing rate: the sender is the limit.
pub(super) const SENDER_LIMITED: f64 = 0.9;
/// The rate is led no further than this multiple of what is received.
pub(super) const AHEAD: f64 = 1.25;

#[derive(Debug, Clone, Copy)]
pub(super) struct Pulse {
    /// Whether the rate is still raised.
    pub on: bool,
    pub until: u64,
    pub judge: u64,
    /// Bits more than the rate's.
    pub volume: f64,
    /// bit/s above the rate.
    pub extra: f64,
    /// Longest and median queue delay that it found, nanoseconds: TCP's own bursts are in them.
    before: (u64, u64),
}

impl Adaptive {
    /// Begins one, unless the sender does not fill the rate as it is.
    pub(super) fn begin(&mut self, now: u64, s: &NetworkModel, queue: f64, rate: f64, capacity: f64) {
        let filled = if self.passed > 0 { self.settled } else { rate };
        if s.recent_bps(now).is_none_or(|bps| bps < SENDER_LIMITED * filled) {
            return;
        }
        let volume = ((self.target - queue) * capacity).min(self.budget).max(0.0);
        // After one that passed, the same volume twice as steep.
        let length = if self.passed > 0 { PULSE_NS / 2 } else { PULSE_NS };
        let extra = volume / (length as f64 * 1e-9);
        let until = now + length;
        let recent = now.saturating_sub(STANDING_NS);
        let Some(median) = s.probes.median_ns(recent) else { return };
        self.pulse = Some(Pulse {
            on: true,
            until,
            judge: until + Self::echo(s) + STANDING_NS / 2,
            volume,
            extra,
            before: (s.probes.longest_ns(recent), median),
        });
    }

    /// What became of a pulse, once the probes that followed it are back.
    pub(super) fn verdict(&mut self, now: u64, s: &NetworkModel, pulse: Pulse) -> Option<Why> {
        self.pulse = None;
        self.unsteady(now, s);
        // What has come so far says nothing of the rate that follows.
        self.restart.anew();
        let rate = self.rate?;
        let capacity = self.capacity.unwrap_or(rate).max(1.0);
        let volume = pulse.volume;
        let expected = volume / capacity;
        // No loss came of it; but a queue of 64 KB would not forgive one much longer than can be seen, until
        // the queue is known to hold more.
        if expected < CLEAR_S || DEEPER * expected < self.depth {
            self.budget *= 2.0;
        }
        self.target = (self.target * UNLEARN).min(self.target_at(s, capacity));
        self.judge = now;
        if expected < VISIBLE_S {
            return None;
        }
        let since = now.saturating_sub(STANDING_NS / 2 + PROBE_EVERY_NS);
        let rise = |now: u64, before: u64| now.saturating_sub(before) as f64 * 1e-9;
        let longest = rise(s.probes.longest_ns(since), pulse.before.0);
        let median = rise(s.probes.median_ns(since)?, pulse.before.1);
        // The longest shows a queue that has drained again, but TCP's own bursts hide it; the median one that has not.
        let passes = longest < PASSED * expected && median < PASSED * expected;
        // No more than TCP's own bursts. Where others are, that may be a lull; where they have left, nothing else is
        // there that could hide what came back.
        let clear = s.probes.longest_ns(since) as f64 * 1e-9 <= self.burst(s) + VISIBLE_S / 2.0;
        let passes = passes || self.left && clear;
        let room = if passes {
            // Others' lulls are shorter than pulses are apart.
            [0.1, 0.1, 0.5, 1.0][self.passed.min(3)] * pulse.extra
        } else {
            // What is missing of it has drained since.
            let drained = (PULSE_NS + STANDING_NS / 2) as f64 * 1e-9;
            ((volume - capacity * median) / drained).clamp(0.0, 0.5 * pulse.extra)
        };
        let received = s.recent_bps(now).unwrap_or(rate);
        // A sender that does not follow pulses must not lead the rate away.
        let aim = (rate + 0.9 * room).min(self.cap()).min(rate.max(AHEAD * received));
        if rate >= self.top() {
            self.lift_ceiling(now, clear);
        }
        self.rate = Some(aim.min(self.top()));
        if !self.sure {
            self.capacity = Some(capacity.max(received));
        }
        if passes {
            (self.told_full, self.passed, self.settled) = (false, self.passed + 1, rate);
            return Some(Why::Room);
        }
        let first = !self.told_full;
        (self.told_full, self.passed) = (true, 0);
        first.then_some(Why::Full)
    }
}
