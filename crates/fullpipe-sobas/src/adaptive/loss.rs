//! Lost segments: what each loss shows about the capacity, the queue and the traffic of others.

use super::capacity::Capacity;
use super::ceiling::Overflow;
use super::measure::{given_bps, longest_s, overflowed_s, round_ns};
use super::mode::{Drain, Mode};
use super::params::{RATE, SIGHT};
use super::state::Adaptive;
use crate::event::Why;
use crate::network_model::NetworkModel;

/// While TCP starts up, a first loss at less than this fraction of the rate may be chance.
const CHANCE: f64 = 0.25;

impl Adaptive {
    /// Deals with retransmissions since the last step.
    pub(super) fn loss(&mut self, now: u64, model: &NetworkModel) -> Option<Why> {
        if model.retransmits <= self.losses.retransmits {
            return None;
        }
        self.losses.retransmits = model.retransmits;
        self.others.left = false;
        if now < self.losses.ignored_until {
            return None;
        }
        let given = given_bps(model, now)?;
        self.losses.ignored_until = now + 2 * round_ns(model);
        self.losses.latest = [Some(now), self.losses.latest[0]];
        // Longer than the queue that was let stand until now.
        let too_long = overflowed_s(model, now) > self.high(model);
        if let Some(why) = self.unlimit_after_loss(now, model, given) {
            return Some(why);
        }
        match self.mode {
            // Trains are asking whether anybody else is there.
            Mode::Start | Mode::Follow(_) | Mode::Drain(_) if self.random_loss.asking_bps().is_some() => None,
            // The queue overflowed if the rate was limited above what there is, or unlimited and a queue stood. Then the rate
            // given is what there is. Far below the rate, or without a queue, one loss may be chance, but two are not.
            Mode::Start
                if self.losses.while_starting > 0
                    || self.rate.map_or(overflowed_s(model, now) >= SIGHT.visible_s, |rate| given > CHANCE * rate) =>
            {
                let queue = longest_s(model, now, SIGHT.standing_ns);
                self.queue.overflowed(overflowed_s(model, now));
                self.lower_ceiling(now, model, given, too_long);
                self.drain_queue(now, model, given, queue, Why::Loss)
            }
            Mode::Start => {
                self.losses.while_starting += 1;
                None
            }
            Mode::Hold if given >= RATE.sender_limited * self.rate? => {
                match self.raise.ended() {
                    Some(before) => self.capacity = Capacity::measured(before, true),
                    None => self.capacity.lost(),
                }
                self.rate = Some(self.capacity.cap());
                Some(Why::Loss)
            }
            Mode::Follow(_) | Mode::Drain(_) => Some(self.loss_beside_others(now, model, given, too_long)),
            _ => None,
        }
    }

    /// Deals with a loss while the rate follows what others leave.
    fn loss_beside_others(&mut self, now: u64, model: &NetworkModel, given: f64, too_long: bool) -> Why {
        let tried = self.queue_trial.overflowed(now, model, &mut self.queue);
        self.queue.overflowed(overflowed_s(model, now));
        self.end_probing();
        // Where the queue is too shallow to show itself first, the rate that overflowed it is the capacity.
        let filled = self.rate.is_some_and(|rate| given > RATE.sender_limited * rate);
        let longest = longest_s(model, now, model.probes.base_ns() + SIGHT.standing_ns);
        if !self.capacity.sure && filled && longest < SIGHT.visible_s {
            self.capacity = Capacity::measured(given, true);
        }
        if !tried {
            self.lower_ceiling(now, model, given, too_long);
        }
        let top = self.top();
        self.rate = self.rate.map(|rate| rate.min(top));
        if let Mode::Drain(drain) = self.mode {
            self.mode = Mode::Drain(Drain { then: drain.then.min(top), ..drain });
        }
        Why::Loss
    }

    /// Keeps the rate below the one that overflowed the queue.
    fn lower_ceiling(&mut self, now: u64, model: &NetworkModel, given: f64, too_long: bool) {
        let rate = if let Mode::Drain(drain) = self.mode { Some(drain.then) } else { self.rate };
        let overflow = Overflow {
            base_ns: model.probes.base_ns(),
            delay: overflowed_s(model, now),
            too_long,
            rate,
            given,
            capacity: self.capacity.bps,
        };
        self.ceiling.overflowed(now, overflow);
    }
}
