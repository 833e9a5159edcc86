//! Less than the capacity is to be had. A short queue is kept standing: while it stands, nothing is left free. Once it has
//! gone, rate probes find out whether others have left.

use super::measure::{queued_bps, round_ns};
use super::mode::{Follow, Mode};
use super::params::{RATE, SIGHT};
use super::queue_trial::Outcome;
use super::state::Adaptive;
use crate::event::Why;
use crate::network_model::NetworkModel;
use crate::probes::PROBE_INTERVAL_NS;

/// How the rate follows the standing queue.
struct Params {
    /// Fraction of the queue's growth that is taken back at once.
    damp: f64,
    /// Fraction of the distance to the target that is made up per round.
    pull: f64,
    /// Largest rise of the rate in a round, as a factor.
    max_rise: f64,
    /// Limits of a fall of the rate in a round, as fractions of the rate. The fraction in between is the transfer's share of
    /// the capacity: what a queue grows by is measured by the capacity, and could be all of a small rate.
    fall: (f64, f64),
    /// At this fraction of the highest rate, the capacity is reached.
    reached: f64,
}

const PARAMS: Params = Params { damp: 0.7, pull: 0.25, max_rise: 1.1, fall: (0.09, 0.5), reached: 0.99 };

impl Adaptive {
    /// Adjusts the rate to the standing queue, or probes for more once the queue has gone.
    pub(super) fn follow(&mut self, now: u64, model: &mut NetworkModel, follow: Follow) -> Option<Why> {
        if let Some(probe) = follow.probe {
            if now < probe.judge {
                return None;
            }
            return self.judge_rate_probe(now, model, follow, probe);
        }
        let (queue, rate) = (self.standing_queue(model, now, SIGHT.standing_ns)?, self.rate?);
        if now < follow.next {
            return None;
        }
        if self.others.present
            && let Some(why) = self.unlimit_beside_others(now, model)
        {
            return Some(why);
        }
        let capacity = self.capacity.bps.unwrap_or(rate).max(1.0);
        if queue > self.high(model) {
            if self.repeated_drains.are_in_vain(queue) {
                return self.accept_delay(now, model, follow);
            }
            let given = queued_bps(model, now)?;
            return self.drain_queue(now, model, given, queue, Why::Queue);
        }
        self.repeated_drains = Default::default();
        let next = now + round_ns(model);
        if queue > self.low(model) {
            self.mode = Mode::Follow(Follow { next, last_queue: Some((now, queue)), ..follow });
            return self.adjust(now, model, queue, rate, capacity, follow.last_queue);
        }
        let follow = Follow { next, last_queue: None, ..follow };
        self.mode = Mode::Follow(follow);
        self.queue_trial.end(now, &mut self.queue);
        if self.others.present {
            let free = self.doubt_others(now, model);
            // A rate probe would disturb the trains.
            if free.is_some() || self.first_trains.asking_bps().is_some() {
                return free;
            }
        }
        if rate >= PARAMS.reached * self.capacity.cap() {
            // Who has all of the path is alone, whatever trains said at the start.
            self.others.present = false;
            self.rate = Some(rate.max(self.capacity.cap()));
            return self.enter(Mode::Hold, Why::Capacity);
        }
        self.begin_rate_probe(now, model, follow, queue, (rate, capacity));
        None
    }

    /// Adjusts the rate so that the queue comes to stand as it should.
    fn adjust(
        &mut self,
        now: u64,
        model: &NetworkModel,
        queue: f64,
        rate: f64,
        capacity: f64,
        last_queue: Option<(u64, f64)>,
    ) -> Option<Why> {
        let grown = last_queue.map_or(0.0, |(at, was)| {
            (queue - was) * capacity / ((now.saturating_sub(at)).max(PROBE_INTERVAL_NS) as f64 * 1e-9)
        });
        let pull = (self.stand() - queue) * capacity / (round_ns(model) as f64 * 1e-9);
        let why = self.try_longer_queue(now, model, rate);
        let aim = rate - PARAMS.damp * grown + PARAMS.pull * pull;
        // The rate must not run away from a sender that does not fill it.
        let filled = model.recent_bps(now).is_none_or(|bps| bps >= RATE.sender_limited * rate);
        let most = if filled { PARAMS.max_rise * rate } else { rate };
        let fall = self.part().clamp(PARAMS.fall.0, PARAMS.fall.1);
        self.rate = Some(aim.clamp((1.0 - fall) * rate, most).min(self.top()));
        why
    }

    /// Tries a longer queue, where others may yield to it.
    fn try_longer_queue(&mut self, now: u64, model: &NetworkModel, rate: f64) -> Option<Why> {
        let (capacity, at_ceiling) = (self.capacity.bps?, self.is_at_ceiling());
        match self.queue_trial.step(now, model, (rate, capacity), at_ceiling, &mut self.queue)? {
            Outcome::Yielded(queue) => self.unlimit_beside_tcp(now, model, queue).or(Some(Why::Yielded)),
            Outcome::Resumed => Some(Why::Yielded),
            Outcome::Unyielding => Some(Why::Unyielding),
        }
    }
}
