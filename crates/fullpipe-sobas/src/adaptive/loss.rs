//! Losses: whose they are, and what they teach.

use super::ceiling::Patience;
use super::drain::Stuck;
use super::rate_probe::{FIRST_BUDGET, SENDER_LIMITED};
use super::{Adaptive, LEAST_TARGET_S, STANDING_NS, VISIBLE_S};
use crate::event::{State, Why};
use crate::network_model::NetworkModel;
use crate::probes::PROBE_EVERY_NS;

/// What loss at the capacity takes off the estimate of it,
const LOSS_CUT: f64 = 0.99;
/// which may fall to this part of what the trains said: they are right within 2%, and a step of `LOSS_CUT` may go 1%
/// beyond. Losses below that are chance, however many.
const LEAST_CUT: f64 = 0.97;
/// Rate while it is found out whose losses they are.
const YIELD: f64 = 0.85;
/// Rounds for which a queue may stand before it is not our own.
const YIELD_ROUNDS: u64 = 16;
/// Without a lost probe for so long, limits are tried again, nanoseconds.
const CLEAN_NS: u64 = 10_000_000_000;

impl Adaptive {
    /// More than one of the last hundred probes was lost.
    pub(super) fn congestion(&mut self, now: u64, s: &mut NetworkModel) -> Option<Why> {
        if s.probes.losses() > 0 || self.state != State::Disabled {
            self.clean_since = now;
        }
        match self.state {
            State::Disabled => {
                if now.saturating_sub(self.clean_since) < CLEAN_NS || !s.probes.full() {
                    return None;
                }
                // TCP may still be on its way up: limited as at the start, not to what it has reached.
                self.rate = self.sure.then(|| self.cap());
                self.calm();
                self.stuck = Stuck::default();
                self.enter(State::Start, Why::Clean)
            }
            State::Yield => {
                let queue = self.queue(s, now, STANDING_NS).unwrap_or(0.0);
                let own = queue > self.high(s) && now < self.judge + YIELD_ROUNDS * Self::round(s);
                if now < self.judge || own {
                    // Those that were on their way, or that our own queue still drops.
                    s.probes.forget_losses();
                } else if s.probes.congested() {
                    (self.rate, self.ceiling, self.patience) = (None, None, Patience::default());
                    s.probes.forget_losses();
                    return self.enter(State::Disabled, Why::Congested);
                } else if s.probes.full() {
                    self.rate = Some(self.after);
                    self.judge = now + Self::round(s);
                    self.unsteady(now, s);
                    return self.enter(State::Follow, Why::Clean);
                }
                None
            }
            State::Estimate | State::Free => None,
            _ if s.probes.congested() => {
                let bps = self.given(now, s)?;
                let queue = s.probes.median_ns(now.saturating_sub(STANDING_NS)).unwrap_or(0) as f64 * 1e-9;
                self.reduce(now, s, bps, queue, Why::Congested);
                self.rate = self.rate.map(|rate| YIELD * rate);
                self.learn_queue(now, s);
                self.judge = now + 2 * Self::round(s) + s.probes.longest_ns(0);
                s.probes.forget_losses();
                self.enter(State::Yield, Why::Congested)
            }
            _ => None,
        }
    }

    /// What the path gave before losses: what came through a queue that stood for long enough, or else
    /// the highest of late.
    fn given(&self, now: u64, s: &NetworkModel) -> Option<f64> {
        let stood = s.probes.busy_since().is_some_and(|since| now.saturating_sub(since) > STANDING_NS);
        self.seen(now, s).filter(|_| stood).or_else(|| self.received_before(now, s))
    }

    /// The highest rate of the last three RTTs, since loss has lowered the latest, bit/s: over no more than a part of
    /// one, for so short a queue overflows.
    fn received_before(&self, now: u64, s: &NetworkModel) -> Option<f64> {
        let t = (s.probes.base_ns() / 4).max(PROBE_EVERY_NS);
        let windows = (6 * s.probes.base_ns()).div_ceil(t).max(6);
        let rate = |i: u64| {
            let end = now.saturating_sub(i * t / 2);
            s.bytes.between(end.saturating_sub(t), end)
        };
        (0..windows).filter_map(rate).reduce(f64::max).filter(|bps| *bps > 0.0)
    }

    /// Longest delay of the queue before a loss that has been told just now, seconds.
    pub(super) fn overflown(&self, now: u64, s: &NetworkModel) -> f64 {
        s.probes.longest_ns(now.saturating_sub(2 * s.probes.base_ns() + STANDING_NS)) as f64 * 1e-9
    }

    /// The queue that overflowed was no longer than the longest delay that was seen.
    pub(super) fn learn_queue(&mut self, now: u64, s: &NetworkModel) {
        let longest = self.overflown(now, s);
        self.depth = self.depth.min(longest);
        if longest >= VISIBLE_S {
            self.target = self.target.min(longest / 3.0).max(LEAST_TARGET_S);
        }
        self.budget = (self.budget / 4.0).max(FIRST_BUDGET);
    }

    /// Segments were lost.
    pub(super) fn loss(&mut self, now: u64, s: &NetworkModel) -> Option<Why> {
        if s.retransmits <= self.retransmits {
            return None;
        }
        self.retransmits = s.retransmits;
        self.left = false;
        if now < self.deaf_until {
            return None;
        }
        let bps = self.given(now, s)?;
        self.deaf_until = now + 2 * Self::round(s);
        // Longer than it should be, as it was let stand until now.
        let long = self.overflown(now, s) > self.high(s);
        if self.state != State::Free
            && let Some(why) = self.free_after_loss(now, s, bps)
        {
            return Some(why);
        }
        match self.state {
            // Limited above what there is, or unlimited and after a queue: it has overflown, so this is what there is.
            // Far below it, or without a queue, one loss may be chance, two are not.
            State::Start
                if self.start_losses > 0
                    || self.rate.map_or(self.overflown(now, s) >= VISIBLE_S, |rate| bps > 0.25 * rate) =>
            {
                let queue = s.probes.longest_ns(now.saturating_sub(STANDING_NS)) as f64 * 1e-9;
                self.learn_queue(now, s);
                self.overflowed_at(now, s, bps, long);
                self.reduce(now, s, bps, queue, Why::Loss)
            }
            State::Start => {
                self.start_losses += 1;
                None
            }
            // The capacity was overestimated, and the queue too shallow to show it first.
            State::Hold if bps >= SENDER_LIMITED * self.rate? => {
                self.capacity = self.capacity.map(|c| (LOSS_CUT * c).max(LEAST_CUT * self.trained));
                self.rate = Some(self.cap());
                Some(Why::Loss)
            }
            State::Follow | State::Drain => {
                let tried = self.lift_overflown(now, s);
                self.learn_queue(now, s);
                self.calm();
                // Too shallow a queue to feel one's way by: this is the capacity, then.
                let filled = self.rate.is_some_and(|rate| bps > SENDER_LIMITED * rate);
                let longest = s.probes.longest_ns(now.saturating_sub(s.probes.base_ns() + STANDING_NS)) as f64 * 1e-9;
                if !self.sure && filled && longest < VISIBLE_S {
                    (self.capacity, self.sure, self.trained) = (Some(bps), true, bps);
                }
                if !tried {
                    self.overflowed_at(now, s, bps, long);
                }
                self.rate = self.rate.map(|rate| rate.min(self.top()));
                self.after = self.after.min(self.top());
                Some(Why::Loss)
            }
            _ => None,
        }
    }
}
