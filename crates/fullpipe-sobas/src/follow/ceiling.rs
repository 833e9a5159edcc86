//! The rate at which a queue overflowed before it could be seen, and nothing above it for now.
//!
//! Where the bottleneck holds less than the queue that is let stand to feel one's way by ([`super::TARGET_RTT`]), pulses
//! find what is free only by losing segments, each of which costs TCP half of its window. So what overflowed is
//! remembered. Whether others have left shows in the longest delay of probes: beside them it is 0.2 to 0.3 ms at 1 Gb/s,
//! without them one of TCP's own bursts. What came of a single pulse does not tell the two apart.

use super::pulses::SENDER_LIMITED;
use super::{Follow, HIGH};
use crate::Senses;
use crate::words::State;

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
}

impl Ceiling {
    /// Beneath a rate that overflowed a queue; maybe once more.
    fn beneath(bps: f64, earlier: Option<Ceiling>, now: u64) -> Ceiling {
        let first = earlier.map_or(bps, |earlier| earlier.first);
        // At less, others take more than they did.
        let first = if bps > LEAST * first { first } else { bps };
        Ceiling { bps: (BENEATH * bps).max(LEAST * first), first, lift: LIFT, clear: 0, since: now }
    }

    /// Whether what overflowed is known so lately that trains need not ask what is free beneath.
    pub(super) fn fresh(&self, now: u64) -> bool {
        now < self.since + FRESH_NS
    }

    /// A pulse at the ceiling has been judged; none: others have left.
    pub(super) fn after(self, now: u64, clear: bool) -> Option<Ceiling> {
        let clear = if clear { self.clear + 1 } else { 0 };
        if clear < CLEAR && now < self.since + LIFT_NS {
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
        if self.overflown(now, s) >= HIGH * self.high(s) {
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
