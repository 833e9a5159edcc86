//! The start: packet trains measure the path, TCP starts up under a pacing rate, and may do so again after losses; and the
//! state in which nothing limits but the path.

use super::capacity::Capacity;
use super::measure::{queued_bps, round_ns};
use super::mode::{Estimate, Mode, Unlimited};
use super::params::{RATE, SIGHT};
use super::raise::{self, MAX_PPS};
use super::slow_start::{Decision, Situation};
use super::state::Adaptive;
use crate::event::Why;
use crate::network_model::NetworkModel;
use crate::trains::Dispersion;

/// A transfer with less than this fraction of the capacity has not made the queue by itself.
const OWN_PART: f64 = 0.5;
/// Packets of all trains that are asked for at the start: five of 32 and five of up to 64.
const TRAINED_PACKETS: f64 = 480.0;
/// RTTs after which those trains are judged that have arrived.
const TRAIN_RTTS: u64 = 3;

impl Adaptive {
    /// Takes the capacity from the packet trains.
    pub(super) fn estimate(&mut self, now: u64, model: &NetworkModel, estimate: Estimate) -> Option<Why> {
        let waited = now >= estimate.began.saturating_add(TRAIN_RTTS * model.probes.base_ns());
        match model.trains.dispersion() {
            Dispersion::Known { mean, capacity, sure } if model.trains.done() || waited => {
                self.capacity = Capacity::within(model.payload_bps(capacity), sure, model.config.limit_bps);
                let capacity = self.capacity.trained;
                if capacity > model.payload_bps(MAX_PPS) {
                    return self.leave_unlimited();
                }
                // Where there is cross traffic, the mean is nearer to what is available.
                self.rate = Some(RATE.of_capacity * model.payload_bps(mean).min(capacity));
                self.queue.set_target(model, capacity);
                self.enter(Mode::Start, Why::Trains)
            }
            _ if model.trains_are_over(estimate.began, now) => {
                self.queue.set_target(model, f64::INFINITY);
                self.enter(Mode::Start, Why::NoTrains)
            }
            _ => None,
        }
    }

    /// Limits nothing to the end: the path is faster than trains can tell.
    fn leave_unlimited(&mut self) -> Option<Why> {
        self.others.search_is_over = true;
        let unlimited = Unlimited { judge: None, least: 0.0, alone: 0.0, retransmits: 0 };
        self.enter(Mode::Unlimited(unlimited), Why::TooFast)
    }

    /// Waits until TCP has started up or a queue stands.
    pub(super) fn start(&mut self, now: u64, model: &mut NetworkModel) -> Option<Why> {
        if let Some(why) = self.look_for_others(now, model) {
            return Some(why);
        }
        let queue = self.standing_queue(model, now, SIGHT.standing_start_ns)?;
        if queue > self.queue.target.max(self.burst(model) + SIGHT.visible_s)
            && let Some(given) = queued_bps(model, now)
            && (given >= OWN_PART * self.capacity.trained || self.others.present || !self.trains_may_queue(now, model))
        {
            // TCP may only have begun, and the queue may be that of the trains, which know more of what is left. Beside others
            // that have all of the path, the trains may not have arrived yet.
            let left = self.rate.filter(|_| self.others.present).unwrap_or(RATE.min_share * self.capacity.trained);
            return self.drain_queue(now, model, given.max(left), queue, Why::Queue);
        }
        let measured = model.windows.step(now, model.probes.base_ns(), &mut model.bytes)?;
        let rate = self.rate?;
        if measured.bps < RATE.started * rate {
            return None;
        }
        self.queue_trial.unsteady(now, model);
        if rate >= RATE.filled * self.capacity.cap() && !self.others.present {
            return self.enter(Mode::Hold, Why::Flat);
        }
        self.enter_follow(now, model, Why::Flat)
    }

    /// Whether the queue may be that of the start's trains, which fill a slow path for tens of milliseconds.
    fn trains_may_queue(&self, now: u64, model: &NetworkModel) -> bool {
        let seconds = TRAINED_PACKETS * model.packet_bits() / self.capacity.trained.max(1.0);
        now < self.began + 3 * model.probes.base_ns() + (seconds * 1e9) as u64 + SIGHT.standing_start_ns
    }

    /// Takes what paced trains, sent at the path's own rate, say of other traffic.
    fn look_for_others(&mut self, now: u64, model: &NetworkModel) -> Option<Why> {
        if self.others.search_is_over {
            return None;
        }
        let others = model.payload_bps(model.trains.others(self.trained_pps(model)?)?);
        let trained = self.capacity.trained;
        self.others.search_is_over = model.trains.all_paced_arrived();
        let before = self.others.present;
        self.others.present = others >= RATE.min_others * trained;
        if self.others.present {
            self.rate = Some(RATE.of_available * (trained - others).max(RATE.min_share * trained));
        } else if before {
            self.rate = Some(self.capacity.cap().min(RATE.of_capacity * trained));
        }
        if self.others.present
            && self.others.search_is_over
            && let Some(why) = self.unlimit_at_once(now, model, trained - others)
        {
            return Some(why);
        }
        (self.others.present && !before).then_some(Why::Shared)
    }

    /// Holds the rate just below the capacity until a queue stands. On a fast path the estimate of the capacity is raised after a
    /// while, in case it was too low. No other rate is tried, because a queue of 64 KB would not forgive it.
    pub(super) fn hold(&mut self, now: u64, model: &mut NetworkModel) -> Option<Why> {
        let queue = self.standing_queue(model, now, SIGHT.standing_start_ns)?;
        if queue <= self.high_beside_trains(now, model) {
            return self.raise_capacity(now, model).or_else(|| self.remeasure(now, model));
        }
        let given = queued_bps(model, now)?;
        if let Some(before) = self.raise.ended() {
            self.capacity = Capacity::measured(given.max(before), true);
        }
        self.drain_queue(now, model, given, queue, Why::Queue)
    }

    /// Raises the estimate of the capacity where the transfer has all of it.
    fn raise_capacity(&mut self, now: u64, model: &NetworkModel) -> Option<Why> {
        let (rate, bps) = (self.rate?, self.capacity.bps?);
        let received = model.recent_bps(now)?;
        if !model.config.pacing || !self.capacity.sure || self.capacity.is_allowed || received < RATE.filled * rate {
            return None;
        }
        let raised = self.raise.next(now, model, round_ns(model), bps)?;
        self.capacity = Capacity::measured(raised, true);
        self.rate = Some(self.capacity.cap());
        Some(Why::Room)
    }

    /// Finds out whether the path has become faster, while the transfer has all that it was known to carry.
    pub(super) fn remeasure(&mut self, now: u64, model: &mut NetworkModel) -> Option<Why> {
        let (rate, known) = (self.rate?, self.capacity.bps?);
        let received = model.recent_bps(now)?;
        let has_all = received >= RATE.sender_limited * rate && rate >= RATE.filled * self.capacity.cap();
        // They ask what is free for a reason of their own.
        let others_ask = self.random_loss.asking_bps().or_else(|| self.slow_start.asking_bps()).is_some();
        let tells = model.config.trains && model.config.pacing && !others_ask && !raise::is_fast(known, model);
        let may = tells && !self.capacity.is_allowed;
        if !may || !has_all {
            self.remeasure.pause();
            return None;
        }
        // Paced trains are asking ones from now on.
        self.others.search_is_over = true;
        let (capacity, sure) = self.remeasure.step(now, model, known)?;
        if capacity > model.payload_bps(MAX_PPS) {
            return self.leave_unlimited();
        }
        self.capacity = Capacity::within(capacity, sure, model.config.limit_bps);
        let capacity = self.capacity.trained;
        self.rate = Some(RATE.of_capacity * capacity);
        self.ceiling = Default::default();
        self.queue.set_target(model, capacity);
        // A path that loses segments by itself still does.
        if matches!(self.mode, Mode::Lossy(_)) {
            return self.enter_lossy(now, model, Why::Trains);
        }
        self.enter(Mode::Start, Why::Trains)
    }

    /// Restarts slow start where losses have left TCP below the rate.
    pub(super) fn restart_slow_start(&mut self, now: u64, model: &mut NetworkModel) -> Option<Why> {
        let config = model.config;
        let idle = match self.mode {
            Mode::Start | Mode::Hold => true,
            Mode::Follow(follow) => follow.probe.is_none() && self.first_trains.asking_bps().is_none(),
            _ => false,
        };
        if !config.restart || !config.pacing || model.buffer_limited == Some(true) || !idle {
            self.slow_start.drop_question();
            return None;
        }
        let rate = self.rate?;
        let situation = Situation {
            rate,
            capacity: self.capacity.bps,
            queue: self.standing_queue(model, now, SIGHT.standing_start_ns),
            low: self.low(model),
            limit_is_fresh: self.ceiling.is_fresh_above(now, rate),
        };
        match self.slow_start.step(now, model, situation)? {
            Decision::Ask => {
                self.others.search_is_over = true;
                None
            }
            Decision::Restart(rate) => {
                self.rate = Some(rate);
                self.restart_now = true;
                self.losses.while_starting = 0;
                self.queue_trial.end(now, &mut self.queue);
                self.enter(Mode::Start, Why::Restart)
            }
            Decision::Share(rate) => {
                self.rate = Some(rate);
                self.queue_trial.end(now, &mut self.queue);
                self.queue_trial.unsteady(now, model);
                // The rate rises again from here once others have left.
                self.enter_follow(now, model, Why::Shared)
            }
        }
    }
}
