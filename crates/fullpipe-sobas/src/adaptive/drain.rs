//! A queue stands, so the rate received is exactly what the path has to give. The rate is reduced until the queue has gone.

use super::ceiling::Ceiling;
use super::measure::round_ns;
use super::mode::{Drain, Follow, Mode};
use super::params::SIGHT;
use super::state::Adaptive;
use crate::event::Why;
use crate::network_model::NetworkModel;

/// How a queue is drained.
struct Params {
    /// Rate after the drain, as a fraction of what the standing queue shows to be available.
    then: f64,
    /// Largest reduction of the rate, as a fraction of what is available.
    max_cut: f64,
    /// Longest drain, in rounds, whatever the queue.
    max_rounds: u64,
}

const PARAMS: Params = Params { then: 0.99, max_cut: 0.5, max_rounds: 4 };

impl Adaptive {
    /// Drains a queue of this many seconds, through which the path gives `given` bit/s.
    pub(super) fn drain_queue(
        &mut self,
        now: u64,
        model: &NetworkModel,
        given: f64,
        queue: f64,
        why: Why,
    ) -> Option<Why> {
        let drain = self.plan_drain(now, model, given, queue);
        self.enter(Mode::Drain(drain), why)
    }

    /// Lowers the rate to drain a queue. Returns how long that takes, and the rate afterwards.
    pub(super) fn plan_drain(&mut self, now: u64, model: &NetworkModel, given: f64, queue: f64) -> Drain {
        let given = self.repeated_drains.begin(queue, given, self.rate);
        self.capacity.queued(given);
        let capacity = self.capacity.bps.unwrap_or(given).max(1.0);
        let then = (PARAMS.then * given).min(self.top());
        let over = (model.probes.base_ns().max(SIGHT.standing_ns)) as f64 * 1e-9;
        // A window alone drains the queue by itself: nothing beyond it is sent.
        let cut = if model.config.pacing {
            ((queue - self.stand()) * capacity / over).clamp(0.0, PARAMS.max_cut * given)
        } else {
            0.0
        };
        self.rate = Some(then - cut);
        let length = if cut > 0.0 { (queue - self.stand()).max(0.0) * capacity / cut } else { 0.0 };
        let longest = PARAMS.max_rounds * round_ns(model);
        self.others.left = false;
        self.queue_trial.end(now, &mut self.queue);
        Drain { until: now.saturating_add(((length * 1e9) as u64).min(longest)), then }
    }

    /// Waits until the queue has drained at the bottleneck. The probes show that an RTT later.
    pub(super) fn drain(&mut self, now: u64, model: &NetworkModel, drain: Drain) -> Option<Why> {
        if now < drain.until {
            return None;
        }
        self.rate = Some(drain.then);
        if self.is_lossy_at(drain.then) {
            return self.enter_lossy(now, model, Why::Drained);
        }
        self.queue_trial.unsteady(now, model);
        self.enter_follow(now, model, Why::Drained)
    }

    /// What looked like a queue was the path's own delay, which has changed. Takes back what was done against it.
    pub(super) fn accept_delay(&mut self, now: u64, model: &mut NetworkModel, follow: Follow) -> Option<Why> {
        model.probes.rebase(now.saturating_sub(SIGHT.standing_ns));
        // A window that opens at once releases a burst, unless the burst is paced.
        self.rate = self.repeated_drains.earlier_rate().filter(|_| model.config.pacing).or(self.rate);
        self.queue.depth = 0.0;
        self.ceiling = Ceiling::default();
        self.queue_trial.end(now, &mut self.queue);
        self.queue_trial.forget();
        self.queue_trial.unsteady(now, model);
        self.queue.set_target(model, self.capacity.bps.unwrap_or(f64::INFINITY));
        self.repeated_drains = Default::default();
        self.enter(Mode::Follow(Follow { next: now + round_ns(model), ..follow }), Why::Rebased)
    }
}
