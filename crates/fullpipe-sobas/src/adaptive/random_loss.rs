//! Losses that the path makes by itself, on a dirty fibre or in a radio link. They are told from those of a queue that
//! overflows: the transfer is far below the capacity, no queue stood before the loss, and packet trains beside the transfer
//! find the rest of the capacity free.
//!
//! A congestion control that takes each loss for a full queue leaves such a path empty: at one loss in a thousand, over
//! 45 ms, CUBIC has a tenth of 10 Gb/s. So the sender's streams change to BBR, which does not, under a pacing rate just below
//! the capacity, at which BBR's own start overflows nothing. Where the sender's kernel has no BBR, losses no longer lower
//! the rate that is aimed at.

use super::measure::{given_bps, overflowed_s, queued_bps, round_ns};
use super::mode::Mode;
use super::params::{RATE, SIGHT};
use super::state::Adaptive;
use crate::event::Why;
use crate::network_model::NetworkModel;
use crate::trains::MIN_ASKING_PPS;

/// When losses count as the path's own.
struct Params {
    /// A transfer with at least this fraction of the capacity may have overflowed a queue that was too short to be seen.
    below: f64,
    /// Trains that find this fraction of the capacity free, the transfer's own rate included, find nobody else.
    free: f64,
    /// A queue through which the path gives this fraction of the capacity or more is the transfer's own.
    alone: f64,
    /// Losses without a queue, in rounds of their own, from which they count as the path's.
    rounds: u32,
    /// RTTs, and nanoseconds besides, within which these losses must come, and after which trains ask again.
    within_rtts: u64,
    within_ns: u64,
}

const PARAMS: Params =
    Params { below: 0.7, free: 0.9, alone: 0.9, rounds: 2, within_rtts: 20, within_ns: 2_000_000_000 };

/// The losses that no queue explains.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RandomLoss {
    /// Retransmissions seen so far.
    retransmits: u64,
    /// Rounds with such losses, since the last one that a queue explains.
    rounds: u32,
    /// When the first of these began, nanoseconds.
    first: u64,
    /// Until when further retransmissions belong to the same round.
    until: u64,
    /// What packet trains say of the rest of the capacity.
    rest: Rest,
    /// Whether the path has shown such losses.
    known: bool,
    /// Whether the sender is to change to a congestion control that bears losses, and has not been told yet.
    pub change: bool,
}

/// Whether the rest of the capacity is free.
#[derive(Debug, Clone, Copy, Default)]
enum Rest {
    /// Nobody has asked.
    #[default]
    Unasked,
    /// Trains are on their way that ask for `more` bit/s, beside a transfer that `has` so much, until an instant.
    Asked { until: u64, more: f64, has: f64 },
    /// It is free.
    Free,
    /// It is not, or trains were lost. They ask again from this instant on.
    Taken { again: u64 },
}

impl RandomLoss {
    /// Rate of the trains that ask for the rest of the capacity, bit/s, while they ask.
    pub fn asking_bps(&self) -> Option<f64> {
        if let Rest::Asked { more, .. } = self.rest { Some(more) } else { None }
    }
}

impl Adaptive {
    /// Looks whether losses are the path's own; then nothing but pacing limits the sender.
    pub(super) fn random_loss(&mut self, now: u64, model: &mut NetworkModel) -> Option<Why> {
        let lost = model.retransmits > self.random_loss.retransmits;
        self.random_loss.retransmits = model.retransmits;
        let limited = matches!(self.mode, Mode::Start | Mode::Hold | Mode::Follow(_) | Mode::Drain(_));
        if !limited || !model.config.pacing || self.capacity.trained <= 0.0 {
            self.random_loss.rest = Rest::Unasked;
            return None;
        }
        self.hear_of_rest(now, model);
        if now >= self.random_loss.until && (lost || model.probes.congested()) {
            self.random_loss.until = now + round_ns(model);
            self.count_random_loss(now, model);
        }
        let told = self.random_loss.rounds >= PARAMS.rounds && matches!(self.random_loss.rest, Rest::Free);
        if told { self.bear_losses(now, model) } else { None }
    }

    /// Counts a loss that no queue explains, and lets trains ask whether others do.
    fn count_random_loss(&mut self, now: u64, model: &mut NetworkModel) {
        let Some(given) = given_bps(model, now) else { return };
        let capacity = self.capacity.trained;
        let shown = overflowed_s(model, now) > SIGHT.visible_s + self.burst(model);
        if self.others.present || shown || given > PARAMS.below * capacity {
            self.random_loss.rounds = 0;
            self.random_loss.rest = Rest::Unasked;
            return;
        }
        let within = PARAMS.within_rtts * model.probes.base_ns() + PARAMS.within_ns;
        if self.random_loss.rounds == 0 || now > self.random_loss.first.saturating_add(within) {
            (self.random_loss.rounds, self.random_loss.first) = (0, now);
        }
        self.random_loss.rounds += 1;
        let again = match self.random_loss.rest {
            Rest::Unasked => true,
            Rest::Taken { again } => now >= again,
            _ => false,
        };
        if again {
            model.trains.ask();
            self.others.search_is_over = true;
            let more = (RATE.of_capacity * capacity - given).max(MIN_ASKING_PPS * model.packet_bits());
            let until = now + 3 * model.probes.base_ns() + 2 * SIGHT.standing_ns;
            self.random_loss.rest = Rest::Asked { until, more, has: given };
        }
    }

    /// Takes in what the trains say.
    fn hear_of_rest(&mut self, now: u64, model: &NetworkModel) {
        let Rest::Asked { until, has, .. } = self.random_loss.rest else { return };
        if !model.trains.all_paced_arrived() && now < until {
            return;
        }
        let packet = model.packet_bits();
        let (capacity, own) = (self.capacity.trained / packet, has / packet);
        let is_free = model.trains.free_beside(capacity, own).is_some_and(|free| free >= PARAMS.free * capacity);
        let again = now + PARAMS.within_rtts * model.probes.base_ns() + PARAMS.within_ns;
        self.random_loss.rest = if is_free { Rest::Free } else { Rest::Taken { again } };
    }

    /// The path loses segments by itself: nothing but pacing limits the sender, which is to bear them.
    fn bear_losses(&mut self, now: u64, model: &mut NetworkModel) -> Option<Why> {
        (self.random_loss.rounds, self.random_loss.known) = (0, true);
        self.random_loss.rest = Rest::Unasked;
        self.losses.retransmits = model.retransmits;
        self.rate = Some(self.capacity.cap().min(RATE.of_capacity * self.capacity.trained));
        self.ceiling = Default::default();
        self.queue_trial.end(now, &mut self.queue);
        model.probes.forget_losses();
        if model.config.change {
            // From now on the sender holds a rate of its own, and has no slow start.
            (model.config.decrease, model.config.restart, model.config.change) = (0.0, false, false);
            self.random_loss.change = true;
        }
        self.enter(Mode::Lossy, Why::RandomLoss)
    }

    /// Whether a queue has shown the path's capacity, rather than others: then losses go on being the path's own.
    pub(super) fn is_lossy_at(&self, given: f64) -> bool {
        self.random_loss.known && given >= PARAMS.alone * self.capacity.trained
    }

    /// The path loses segments by itself. Only a queue shows that others have come, or that the path carries less.
    pub(super) fn lossy(&mut self, now: u64, model: &NetworkModel) -> Option<Why> {
        let queue = self.standing_queue(model, now, SIGHT.standing_ns)?;
        if queue <= self.high(model) {
            return None;
        }
        let given = queued_bps(model, now)?;
        self.drain_queue(now, model, given, queue, Why::Queue)
    }
}
