//! The rate at which a queue overflowed before it could be seen, and nothing above it for now.
//!
//! Where the bottleneck holds less than the queue that is let stand to feel one's way by ([`super::TARGET_RTT`]), pulses
//! find what is free only by losing segments, each of which costs TCP half of its window. So what overflowed is
//! remembered. Where for a while no probe has met more than one of TCP's own bursts, others may have left: packet trains
//! then ask whether what they had is free, so far apart that each has drained before the next. A rise of the rate itself
//! would lose segments each time that they have not.
//!
//! Without trains the longest delay of the probes behind pulses has to tell: beside others it is 0.2 to 0.3 ms at 1 Gb/s,
//! without them one of TCP's own bursts. What came of a single pulse does not tell the two apart.

use super::pulses::SENDER_LIMITED;
use super::{Asking, BELOW, Follow, STANDING_NS, VISIBLE_S};
use crate::Senses;
use crate::trains::{ASKING_PACKETS, ASKING_PPS, TRAINS};
use crate::words::{State, Why};

/// A queue that holds so much shows in time, seconds,
const DEEP_S: f64 = 4e-3;
/// if it is this part of the RTT too.
const DEEP_RTT: f64 = 0.08;
/// Part of a rate that overflowed, or that trains have found, which nothing above is tried of;
const BENEATH: f64 = 0.98;
/// losses below this part of it are chance, however many.
const LEAST: f64 = 0.95;
/// So long no probe must have met others before trains are sent, nanoseconds.
const WATCH_NS: u64 = 400_000_000;
/// They ask for all that is above, and then for this part of the capacity: less could not be told from TCP's own bursts.
const ASKED: f64 = 0.06;
/// They may have to drain by what this part of the capacity is.
const DRAINS: f64 = 0.01;
/// Where they find less than this part of it there is nothing worth a rise.
const WORTH: f64 = 0.5;
/// Without trains, so many pulses in a row that left no queue but TCP's own bursts lift the ceiling,
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
    /// When trains have last said that there is no more.
    asked: u64,
    /// They have just found more, and ask again at once.
    eager: bool,
}

/// Trains ask whether more is free.
#[derive(Debug, Clone, Copy)]
pub(super) struct Above {
    pub asking: Asking,
    /// Until then they are waited for.
    until: u64,
    /// What has been found once already, bit/s.
    found: Option<f64>,
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
        Ceiling { bps: beneath, first, lift: LIFT, clear: 0, since, lost: now, asked: now, eager: false }
    }

    /// Whether what overflowed is known so lately that trains need not ask what is free beneath.
    pub(super) fn fresh(&self, now: u64) -> bool {
        now < self.lost.saturating_add(FRESH_NS)
    }

    /// A pulse at the ceiling has been judged; none: others have left.
    pub(super) fn after(self, now: u64, clear: bool) -> Option<Ceiling> {
        let clear = if clear { self.clear + 1 } else { 0 };
        if clear < CLEAR && !self.old(now) {
            return Some(Ceiling { clear, ..self });
        }
        self.lifted(now)
    }

    /// Whether it has changed nothing for long.
    fn old(&self, now: u64) -> bool {
        now >= self.since.saturating_add(LIFT_NS)
    }

    fn lifted(self, now: u64) -> Option<Ceiling> {
        let lifted = Ceiling { bps: self.bps * (1.0 + self.lift), lift: 2.0 * self.lift, clear: 0, since: now, ..self };
        (lifted.lift < GONE).then_some(lifted)
    }
}

impl Follow {
    /// The most that is aimed at, bit/s.
    pub(super) fn top(&self) -> f64 {
        self.ceiling.map_or(self.cap(), |ceiling| ceiling.bps.min(self.cap()))
    }

    /// At the ceiling, with trains: asks from time to time whether others have left, and takes what is free then.
    pub(super) fn look_above(&mut self, now: u64, s: &mut Senses, rate: f64) -> Option<Why> {
        let ceiling = self.ceiling?;
        let capacity = self.capacity?.max(rate);
        let most = self.cap().min(BELOW * capacity).max(rate);
        let Some(above) = self.above else {
            if ceiling.old(now) {
                self.ceiling = ceiling.lifted(now);
                self.rate = Some(rate.max(self.top().min(most).min(ceiling.bps * (1.0 + ceiling.lift))));
            } else if self.seems_free(now, s, ceiling, rate) {
                self.ask_above(now, s, most - rate, None);
            }
            return None;
        };
        if !s.trains.all_spread() && now < above.until {
            return None;
        }
        self.above = None;
        let asked = above.asking.bps;
        let found = s.trains.found(asked / capacity).map_or(0.0, |part| part * capacity);
        if found < WORTH * asked {
            self.ceiling = Some(Ceiling { asked: now, eager: false, ..ceiling });
            // A little may be free.
            if asked > ASKED * capacity && above.found.is_none() {
                self.ask_above(now, s, 0.0, None);
            }
            return None;
        }
        let Some(before) = above.found else {
            self.ask_above(now, s, asked, Some(found));
            return None;
        };
        let found = found.min(before);
        let is_all = found >= asked && rate + asked >= most;
        let free = if is_all { most } else { (BENEATH * (rate + found)).clamp(rate, most) };
        // What overflowed is not true any more. Where all that was asked for is there, there may be more.
        let raised = Ceiling { bps: free, first: free, lift: LIFT, since: now, eager: found >= asked, ..ceiling };
        self.ceiling = (free < most).then_some(raised);
        Some(self.rise(s, free))
    }

    /// Whether a rate that is filled has left no queue but TCP's own bursts for a while, as it does without others, and
    /// beside some who send evenly.
    fn seems_free(&self, now: u64, s: &Senses, ceiling: Ceiling, rate: f64) -> bool {
        let since = now.saturating_sub(WATCH_NS);
        (ceiling.eager || since >= ceiling.since.max(ceiling.asked).max(ceiling.lost) + Self::echo(s))
            && s.recent_bps(now).is_some_and(|bps| bps > SENDER_LIMITED * rate)
            && s.probes.longest_ns(since.max(ceiling.since)) as f64 * 1e-9 <= self.burst(s) + VISIBLE_S / 2.0
    }

    fn ask_above(&mut self, now: u64, s: &mut Senses, bps: f64, found: Option<f64>) {
        let Some(capacity) = self.capacity else { return };
        let packet = s.packet_bits();
        let bps = bps.max(ASKED * capacity).max(ASKING_PPS * packet);
        let apart = ASKING_PACKETS * packet / (DRAINS * capacity).max(1.0) * 1e9;
        let until = (now + 3 * s.probes.base_ns() + 2 * STANDING_NS).saturating_add((TRAINS as f64 * apart) as u64);
        s.trains.ask();
        self.asked_others = true;
        self.above = Some(Above { asking: Asking { bps, apart_ns: apart as u64 }, until, found });
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
