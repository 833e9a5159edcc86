//! The rate at which a queue overflowed before it could be seen, and nothing above it for now.
//!
//! Where the bottleneck holds less than the queue that is let stand to feel one's way by ([`super::TARGET_RTT`]), pulses
//! find what is free only by losing segments, each of which costs TCP half of its window. So what overflowed is
//! remembered. Whether others have left shows in the longest delay of probes: beside them it is 0.2 to 0.3 ms at 1 Gb/s,
//! without them one of TCP's own bursts. What came of a single pulse does not tell the two apart.

use super::Follow;
use super::pulses::SENDER_LIMITED;
use crate::Senses;
use crate::words::State;

/// A queue that holds so much shows in time, seconds,
const DEEP_S: f64 = 4e-3;
/// if it is this part of the RTT too.
const DEEP_RTT: f64 = 0.08;
/// Part of a rate that overflowed which nothing above is tried of;
const BENEATH: f64 = 0.98;
/// losses below this part of it are chance, however many.
const LEAST: f64 = 0.95;
/// So many pulses in a row that left no queue but TCP's own bursts lift the ceiling,
const CLEAR: usize = 5;
/// or, where clocks are too coarse to tell, so long without a loss, nanoseconds:
const LIFT_NS: u64 = 10_000_000_000;
/// by this part first, and twice as much each time,
const LIFT: f64 = 0.02;
/// until it would be by this: others have left.
const GONE: f64 = 0.16;
/// So long after a loss what it taught is taken for true, nanoseconds.
const FRESH_NS: u64 = 2_000_000_000;

/// What is aimed at stays beneath.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ceiling {
    /// bit/s.
    pub bps: f64,
    /// What overflowed first, bit/s.
    first: f64,
    /// Part by which it is lifted next.
    lift: f64,
    /// Pulses in a row that left no queue.
    clear: usize,
    /// When it last changed.
    since: u64,
    /// When segments were lost last.
    lost: u64,
}

impl Ceiling {
    /// Beneath a rate that overflowed a queue; maybe once more.
    fn beneath(bps: f64, earlier: Option<Ceiling>, now: u64) -> Ceiling {
        // At much less than it was to stay at, others take more than they did.
        let same = earlier.filter(|earlier| bps > BENEATH * LEAST * earlier.first);
        let first = same.map_or(bps, |earlier| earlier.first);
        let beneath = (BENEATH * bps).max(LEAST * first);
        // Losses that change nothing do not keep it from being lifted.
        let since = same.filter(|earlier| earlier.bps <= beneath).map_or(now, |earlier| earlier.since);
        Ceiling { bps: beneath, first, lift: LIFT, clear: 0, since, lost: now }
    }

    /// Whether what overflowed is known so lately that trains need not ask what is free beneath.
    pub(super) fn fresh(&self, now: u64) -> bool {
        now < self.lost.saturating_add(FRESH_NS)
    }

    /// A pulse at the ceiling has been judged; none: others have left.
    pub(super) fn after(self, now: u64, clear: bool) -> Option<Ceiling> {
        let clear = if clear { self.clear + 1 } else { 0 };
        if clear < CLEAR && now < self.since.saturating_add(LIFT_NS) {
            return Some(Ceiling { clear, ..self });
        }
        let lifted = Ceiling { bps: self.bps * (1.0 + self.lift), lift: 2.0 * self.lift, clear: 0, since: now, ..self };
        (lifted.lift < GONE).then_some(lifted)
    }
}

impl Follow {
    /// The most that is aimed at, bit/s.
    pub(super) fn top(&self) -> f64 {
        self.ceiling.map_or(self.cap(), |ceiling| ceiling.bps.min(self.cap()))
    }

    /// A sender that filled its rate had so much of a queue that overflowed. A deep one shows before it does.
    pub(super) fn overflowed_at(&mut self, now: u64, s: &Senses, bps: f64) {
        if self.overflown(now, s) >= DEEP_S.max(DEEP_RTT * s.probes.base_ns() as f64 * 1e-9) {
            return;
        }
        let rate = if self.state == State::Drain { Some(self.after) } else { self.rate };
        let Some(rate) = rate.filter(|rate| bps > SENDER_LIMITED * rate) else { return };
        // Who sends more than is left pushes others aside in the queue: of C', p beside x has p·C'/(p + x).
        let others = self.capacity.map_or(0.0, |capacity| capacity / bps - 1.0).clamp(0.0, 1.0);
        let taken = (rate / bps - 1.0).max(0.0) * others;
        self.ceiling = Some(Ceiling::beneath((1.0 - taken) * bps.min(rate), self.ceiling, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_at_it_wear_it_down_to_a_floor_only() {
        let mut ceiling = Ceiling::beneath(100.0, None, 0);
        assert_eq!(ceiling.bps, 98.0);
        for second in 1..20 {
            ceiling = Ceiling::beneath(ceiling.bps, Some(ceiling), second * 1_000_000_000);
        }
        assert_eq!(ceiling.bps, 95.0);
        // Nor do those that change nothing keep it from being lifted.
        assert!(ceiling.after(19_000_000_000, false).unwrap().bps > 96.0);
        // Others who take more are another matter.
        assert_eq!(Ceiling::beneath(60.0, Some(ceiling), 20_000_000_000).bps, 58.8);
    }

    #[test]
    fn clear_pulses_lift_it_away() {
        let mut ceiling = Some(Ceiling::beneath(100.0, None, 0));
        for _ in 0..2 {
            ceiling = ceiling.unwrap().after(1, true);
        }
        ceiling = ceiling.unwrap().after(1, false);
        let mut pulses = 0;
        while let Some(now) = ceiling {
            assert!(now.bps >= 98.0 && pulses < 20, "{now:?}");
            ceiling = now.after(1, true);
            pulses += 1;
        }
        assert_eq!(pulses, 15);
    }
}
