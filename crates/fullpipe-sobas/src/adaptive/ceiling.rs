//! The rate at which a queue overflowed before it could be seen, and nothing above it for now.
//!
//! Where the bottleneck holds less than the queue that is let stand to feel one's way by ([`super::TARGET_RTT`]), pulses
//! find what is free only by losing segments, each of which costs TCP half of its window. So what overflowed is
//! remembered. Whether others have left shows in the longest delay of probes: beside them it is 0.2 to 0.3 ms at 1 Gb/s,
//! without them one of TCP's own bursts. What came of a single pulse does not tell the two apart.
//!
//! Several who do so would each stay beneath what they had when they met. So who has little does not wait: it pushes by
//! a part of the capacity, the same for all, while losses take a part of what one has, and more of who has much; those
//! together lead to even shares (Chiu and Jain, Computer Networks and ISDN Systems 17, 1989). Where nobody gives way, it
//! waits longer each time, until it is as patient as those who have much.

use super::Adaptive;
use super::rate_probe::SENDER_LIMITED;
use crate::event::State;
use crate::network_model::NetworkModel;

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
/// Who has more than this part of the capacity
const MUCH: f64 = 0.5;
/// stays beneath this part of what overflowed first, where a queue longer than it should be shows the loss to be no
/// chance; and beneath this part of that next time.
const WEAR: f64 = 0.99;
/// Who has less than this part of the capacity
const LITTLE: f64 = 0.4;
/// pushes by so much of it,
const PUSH: f64 = 0.07;
/// first after so long, nanoseconds; and after twice as long, up to [`LIFT_NS`], each time that it has not
const SOON_NS: u64 = 1_500_000_000;
/// gained this much on the highest ceiling so far.
const GAINED: f64 = 1.03;
/// At less than this part of that, others have come, and it says nothing any more.
const CAME: f64 = 0.85;
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
    /// Beneath a rate that overflowed a queue; maybe once more. What overflowed first may wear down.
    fn beneath(bps: f64, wear: bool, earlier: Option<Ceiling>, now: u64) -> Ceiling {
        // At much less than it was to stay at, others take more than they did.
        let same = earlier.filter(|earlier| bps > BENEATH * LEAST * earlier.first);
        let first = same.map_or(bps, |earlier| if wear { WEAR * earlier.first } else { earlier.first });
        let beneath = (BENEATH * bps).max(LEAST * first);
        // Losses that change nothing do not keep it from being lifted, nor does what has worn.
        let least = if wear { WEAR * WEAR } else { 1.0 };
        let since = same.filter(|earlier| least * earlier.bps <= beneath).map_or(now, |earlier| earlier.since);
        Ceiling { bps: beneath, first, lift: LIFT, clear: 0, since, lost: now }
    }

    /// Whether what overflowed is known so lately that trains need not ask what is free beneath.
    pub(super) fn fresh(&self, now: u64) -> bool {
        now < self.lost.saturating_add(FRESH_NS)
    }

    /// A pulse at the ceiling has been judged; none: others have left. Where pulses do not tell, it is lifted after
    /// `wait` nanoseconds by `push` bit/s at least.
    fn after(self, now: u64, clear: bool, wait: u64, push: f64) -> Option<Ceiling> {
        let clear = if clear { self.clear + 1 } else { 0 };
        if clear < CLEAR && now < self.since.saturating_add(wait) {
            return Some(Ceiling { clear, ..self });
        }
        let push = if clear < CLEAR { push } else { 0.0 };
        let bps = self.bps + (self.lift * self.bps).max(push);
        let lifted = Ceiling { bps, lift: 2.0 * self.lift, clear: 0, since: now, ..self };
        (lifted.lift < GONE).then_some(lifted)
    }
}

/// How patient who has little is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// For how long the ceiling stays, nanoseconds.
    wait: u64,
    /// Whether it has been lifted since the last loss.
    pushed: bool,
    /// The highest ceiling so far, bit/s.
    most: f64,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { wait: SOON_NS, pushed: false, most: 0.0 }
    }
}

impl Patience {
    /// A queue overflowed at a rate, and this is the ceiling beneath, bit/s.
    fn lost(self, bps: f64) -> Patience {
        let wait = match self.pushed {
            true if bps >= GAINED * self.most => SOON_NS,
            true => (2 * self.wait).min(LIFT_NS),
            false => self.wait,
        };
        let most = if bps < CAME * self.most { bps } else { self.most.max(bps) };
        Patience { wait, pushed: false, most }
    }
}

impl Adaptive {
    /// The most that is aimed at, bit/s.
    pub(super) fn top(&self) -> f64 {
        self.ceiling.map_or(self.cap(), |ceiling| ceiling.bps.min(self.cap()))
    }

    /// A sender that filled its rate had so much of a queue that overflowed; whether it was longer than it should have
    /// been. A deep one shows before it does.
    pub(super) fn overflowed_at(&mut self, now: u64, s: &NetworkModel, bps: f64, long: bool) {
        if self.overflown(now, s) >= DEEP_S.max(DEEP_RTT * s.probes.base_ns() as f64 * 1e-9) {
            return;
        }
        let rate = if self.state == State::Drain { Some(self.after) } else { self.rate };
        let Some(rate) = rate.filter(|rate| bps > SENDER_LIMITED * rate) else { return };
        // Who sends more than is left pushes others aside in the queue: of C', p beside x has p·C'/(p + x).
        let others = self.capacity.map_or(0.0, |capacity| capacity / bps - 1.0).clamp(0.0, 1.0);
        let taken = (rate / bps - 1.0).max(0.0) * others;
        let wear = long && self.capacity.is_none_or(|capacity| bps.min(rate) > MUCH * capacity);
        let ceiling = Ceiling::beneath((1.0 - taken) * bps.min(rate), wear, self.ceiling, now);
        self.patience = self.patience.lost(ceiling.bps);
        self.ceiling = Some(ceiling);
    }

    /// A pulse at the ceiling has been judged.
    pub(super) fn lift_ceiling(&mut self, now: u64, clear: bool) {
        let (Some(ceiling), Some(capacity)) = (self.ceiling, self.capacity) else { return };
        let little = ceiling.bps < LITTLE * capacity;
        let (wait, push) = if little { (self.patience.wait, PUSH * capacity) } else { (LIFT_NS, 0.0) };
        self.ceiling = ceiling.after(now, clear, wait, push);
        self.left = clear && self.ceiling.is_none();
        // By 2% only where pulses had told.
        self.patience.pushed |= little && self.ceiling.is_none_or(|lifted| lifted.bps >= ceiling.bps + push);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_at_it_wear_it_down_to_a_floor_only() {
        let mut ceiling = Ceiling::beneath(100.0, false, None, 0);
        assert_eq!(ceiling.bps, 98.0);
        for second in 1..20 {
            ceiling = Ceiling::beneath(ceiling.bps, false, Some(ceiling), second * 1_000_000_000);
        }
        assert_eq!(ceiling.bps, 95.0);
        // Further where it is known that they are no chance.
        assert!(Ceiling::beneath(95.0, true, Some(ceiling), 0).bps < 94.1);
        // Nor do those that change nothing keep it from being lifted.
        assert!(ceiling.after(19_000_000_000, false, LIFT_NS, 0.0).unwrap().bps > 96.0);
        // Others who take more are another matter.
        assert_eq!(Ceiling::beneath(60.0, false, Some(ceiling), 20_000_000_000).bps, 58.8);
    }

    #[test]
    fn clear_pulses_lift_it_away() {
        let mut ceiling = Some(Ceiling::beneath(100.0, false, None, 0));
        for _ in 0..2 {
            ceiling = ceiling.unwrap().after(1, true, LIFT_NS, 0.0);
        }
        ceiling = ceiling.unwrap().after(1, false, LIFT_NS, 0.0);
        let mut pulses = 0;
        while let Some(now) = ceiling {
            assert!(now.bps >= 98.0 && pulses < 20, "{now:?}");
            ceiling = now.after(1, true, LIFT_NS, 0.0);
            pulses += 1;
        }
        assert_eq!(pulses, 15);
    }

    #[test]
    fn who_has_little_pushes_ever_less_often_where_it_gains_nothing() {
        let mut patience = Patience::default().lost(100.0);
        assert_eq!(patience.wait, SOON_NS);
        let pushed = |patience: Patience| Patience { pushed: true, ..patience };
        for _ in 0..9 {
            patience = pushed(patience).lost(102.0);
        }
        assert_eq!(patience.wait, LIFT_NS);
        // What comes of nothing that it did changes nothing.
        assert_eq!(patience.lost(120.0).wait, LIFT_NS);
        assert_eq!(pushed(patience).lost(110.0).wait, SOON_NS);
        // After others have come it is less that is a gain.
        let fewer = pushed(patience).lost(60.0);
        assert_eq!((fewer.wait, pushed(fewer).lost(65.0).wait), (LIFT_NS, SOON_NS));
        let ceiling = Ceiling::beneath(100.0, false, None, 0);
        assert_eq!(ceiling.after(SOON_NS - 1, false, SOON_NS, 70.0).unwrap().bps, 98.0);
        assert_eq!(ceiling.after(SOON_NS, false, SOON_NS, 70.0).unwrap().bps, 168.0);
    }
}
