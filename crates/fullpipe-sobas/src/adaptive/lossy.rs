//! Losses that the path makes by itself, on a dirty fibre or in a radio link. They are told from those of a queue that
//! overflows: the transfer is far below the capacity, no queue stood before the loss, and packet trains beside the transfer
//! find the rest of the capacity free.
//!
//! A congestion control that takes each loss for a full queue leaves such a path empty: at one loss in a thousand, over
//! 45 ms, CUBIC has a tenth of 10 Gb/s. So the sender's streams change to BBR, which does not, under a pacing rate just below
//! the capacity, at which BBR's own start overflows nothing. Where the sender may not, losses no longer lower the rate that
//! is aimed at.

use super::measure::{given_bps, overflowed_s, queued_bps, round_ns};
use super::mode::{Follow, Lossy, Mode};
use super::params::{ALONE, RATE, SIGHT};
use super::question::Question;
use super::state::Adaptive;
use crate::event::Why;
use crate::network_model::NetworkModel;

/// A transfer with at least this fraction of the capacity may have overflowed a queue that was too short to be seen.
const BELOW: f64 = 0.7;
/// A transfer that is paced to at most this fraction of the capacity has not overflowed a queue, whatever it has reached.
const PACED_BELOW: f64 = 0.96;
/// Factor for the rate in each round in which no queue stands, until the capacity is reached: others whom a queue showed may have left.
const RISE: f64 = 1.01;

impl Adaptive {
    /// Looks whether losses are the path's own; then nothing but pacing limits the sender.
    pub(super) fn random_loss(&mut self, now: u64, model: &mut NetworkModel) -> Option<Why> {
        if self.noisy {
            return None;
        }
        let lost = self.random_loss.retransmitted(model.retransmits);
        let limited = matches!(self.mode, Mode::Start | Mode::Hold | Mode::Follow(_) | Mode::Drain(_));
        if !limited || !model.config.pacing || self.capacity.trained <= 0.0 {
            self.random_loss.explained();
            return None;
        }
        self.random_loss.hear(now, model, self.capacity.trained);
        if (lost || self.is_congested(model)) && !self.random_loss.is_same_round(now, round_ns(model)) {
            self.count_random_loss(now, model);
        }
        if self.random_loss.take_proof() { self.bear_losses(now, model) } else { None }
    }

    /// Counts a loss that no queue explains, and lets trains ask whether others do.
    fn count_random_loss(&mut self, now: u64, model: &mut NetworkModel) {
        let Some(given) = given_bps(model, now) else { return };
        let capacity = self.capacity.trained;
        let shown = overflowed_s(model, now) > SIGHT.visible_s + self.burst(model);
        let paced_below = self.capacity.is_allowed || self.rate.is_some_and(|rate| rate <= PACED_BELOW * capacity);
        let others = self.others.present && !self.first_trains.are_doubtful(model);
        if others || shown || given > BELOW * capacity && !paced_below {
            self.random_loss.explained();
            return;
        }
        self.random_loss.unexplained(now, model);
        if self.random_loss.should_ask(now) {
            self.others.search_is_over = true;
            self.random_loss.asks(Question::ask(now, model, RATE.of_capacity * capacity - given, given));
        }
    }

    /// The path loses segments by itself: nothing but pacing limits the sender, which is to bear them.
    fn bear_losses(&mut self, now: u64, model: &mut NetworkModel) -> Option<Why> {
        self.losses.retransmits = model.retransmits;
        self.rate = Some(self.lossy_rate());
        self.ceiling = Default::default();
        self.others.present = false;
        self.queue_trial.end(now, &mut self.queue);
        model.probes.forget_losses();
        self.change_sender(model);
        self.enter_lossy(now, model, Why::RandomLoss)
    }

    /// Bears losses, and decides next once the effect of this decision is seen.
    pub(super) fn enter_lossy(&mut self, now: u64, model: &NetworkModel, why: Why) -> Option<Why> {
        self.enter(Mode::Lossy(Lossy { next: now + round_ns(model) }), why)
    }

    /// Rate to aim at where nobody else uses the path, bit/s.
    fn lossy_rate(&self) -> f64 {
        self.capacity.cap().min(RATE.of_capacity * self.capacity.trained)
    }

    /// Has the sender change to a congestion control that bears losses, if it may.
    pub(super) fn change_sender(&mut self, model: &mut NetworkModel) {
        if model.config.change {
            // From now on the sender holds a rate of its own, and has no slow start.
            (model.config.decrease, model.config.restart, model.config.change) = (0.0, false, false);
            self.random_loss.change = true;
        }
    }

    /// Whether a queue has shown the path's capacity, rather than others: then losses go on being the path's own.
    pub(super) fn is_lossy_at(&self, given: f64) -> bool {
        self.random_loss.known && given >= ALONE * self.capacity.trained
    }

    /// The path loses segments by itself. Only a queue shows that others have come, or that the path carries less; the rate rises
    /// again while none stands.
    pub(super) fn lossy(&mut self, now: u64, model: &mut NetworkModel, lossy: Lossy) -> Option<Why> {
        let queue = self.standing_queue(model, now, SIGHT.standing_ns)?;
        if queue <= self.high_beside_trains(now, model) {
            self.repeated_drains = Default::default();
            if now >= lossy.next && queue <= self.low(model) {
                self.raise_lossy(now, model);
            }
            return self.remeasure(now, model);
        }
        if now < lossy.next {
            return None;
        }
        if self.repeated_drains.are_in_vain(queue) {
            let why = self.accept_delay(now, model, Follow::new(now));
            return if self.is_lossy_at(self.rate?) { self.enter_lossy(now, model, why?) } else { why };
        }
        let given = queued_bps(model, now)?;
        self.drain_queue(now, model, given, queue, Why::Queue)
    }

    /// Raises the rate a little where the transfer has what it aims at, up to what it has alone.
    fn raise_lossy(&mut self, now: u64, model: &NetworkModel) {
        let (Some(rate), Some(received)) = (self.rate, model.recent_bps(now)) else { return };
        let most = self.lossy_rate();
        if rate < most && received >= RATE.sender_limited * rate {
            self.rate = Some((RISE * rate).min(most));
            self.mode = Mode::Lossy(Lossy { next: now + round_ns(model) });
        }
    }
}
