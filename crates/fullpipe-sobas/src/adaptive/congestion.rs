//! Lost probes: others congest the path. Less is sent for the length of a hundred probes. If probes are still lost, limits would
//! only give the path to the others (section III-B), so there are none until the losses have ended.

use super::ceiling::Ceiling;
use super::measure::{given_bps, overflowed_s, round_ns};
use super::mode::{Disabled, Mode, Yield};
use super::params::SIGHT;
use super::state::Adaptive;
use crate::event::Why;
use crate::network_model::NetworkModel;

/// How lost probes are answered.
struct Params {
    /// Factor for the rate that the path gives, while it is found out whose losses they are.
    yielding: f64,
    /// Rounds for which a queue may stand and still be our own.
    own_rounds: u64,
    /// Where fewer of the transfer's own segments are lost than this fraction, probes are lost on the way back.
    least_share: f64,
    /// Time without a lost probe after which limits are tried again, nanoseconds.
    clean_ns: u64,
}

const PARAMS: Params = Params { yielding: 0.85, own_rounds: 16, least_share: 1e-3, clean_ns: 10_000_000_000 };

impl Adaptive {
    /// Looks whether more than one of the last hundred probes was lost, or no longer is.
    pub(super) fn congestion(&mut self, now: u64, model: &mut NetworkModel) -> Option<Why> {
        match self.mode {
            Mode::Disabled(disabled) => self.disabled(now, model, disabled),
            Mode::Yield(yielding) => self.yielding(now, model, yielding),
            Mode::Estimate(_) | Mode::Unlimited(_) | Mode::Lossy(_) => None,
            _ if self.is_congested(model) => {
                let given = given_bps(model, now)?;
                let since = now.saturating_sub(SIGHT.standing_ns);
                let queue = model.probes.median_ns(since).unwrap_or(0) as f64 * 1e-9;
                let drain = self.plan_drain(now, model, given, queue);
                self.rate = Some(PARAMS.yielding * drain.then);
                self.queue.overflowed(overflowed_s(model, now));
                let from = now + 2 * round_ns(model) + model.probes.longest_ns(0);
                model.probes.forget_losses();
                self.enter(Mode::Yield(Yield { from, then: drain.then }), Why::Congested)
            }
            _ => {
                if model.probes.congested() {
                    model.probes.forget_losses();
                }
                None
            }
        }
    }

    /// Whether more than one of the last hundred probes was lost, and not on the way back: the transfer's own segments are lost too.
    pub(super) fn is_congested(&self, model: &NetworkModel) -> bool {
        model.probes.congested() && self.lost_lately.share(model) >= PARAMS.least_share
    }

    /// Without limits: waits until probes are no longer lost.
    fn disabled(&mut self, now: u64, model: &NetworkModel, mut disabled: Disabled) -> Option<Why> {
        if model.probes.losses() > 0 {
            disabled.clean_since = now;
        }
        self.mode = Mode::Disabled(disabled);
        if now.saturating_sub(disabled.clean_since) < PARAMS.clean_ns || !model.probes.full() {
            return None;
        }
        // TCP may still be on its way up, so the limit is that of the start, not what TCP has reached.
        self.rate = self.capacity.sure.then(|| self.capacity.cap());
        self.repeated_drains = Default::default();
        self.enter(Mode::Start, Why::Clean)
    }

    /// At a reduced rate: looks whether probes are still lost.
    fn yielding(&mut self, now: u64, model: &mut NetworkModel, yielding: Yield) -> Option<Why> {
        let queue = self.standing_queue(model, now, SIGHT.standing_ns).unwrap_or(0.0);
        let own = queue > self.high(model) && now < yielding.from + PARAMS.own_rounds * round_ns(model);
        if now < yielding.from || own {
            // These probes were on their way, or our own queue still drops them.
            model.probes.forget_losses();
        } else if model.probes.congested() {
            (self.rate, self.ceiling) = (None, Ceiling::default());
            model.probes.forget_losses();
            return self.enter(Mode::Disabled(Disabled { clean_since: now }), Why::Congested);
        } else if model.probes.full() {
            self.rate = Some(yielding.then);
            self.queue_trial.unsteady(now, model);
            return self.enter_follow(now, model, Why::Clean);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adaptive::capacity::Capacity;
    use crate::config::Config;

    #[test]
    fn a_queue_that_drops_probes_lowers_the_rate_by_a_little() {
        let mut model = NetworkModel::new(Config::of_one_stream(), 20_000_000);
        let now = 3_000_000_000;
        for at in (0..=now).step_by(10_000_000) {
            model.bytes.add(at, at / 8);
            model.probes.back(at, if at < now - 100_000_000 { 20_000_000 } else { 50_000_000 });
        }
        let capacity = Capacity::measured(1e9, true);
        let mut adaptive = Adaptive { capacity, mode: Mode::Hold, rate: Some(0.98e9), ..Adaptive::new(0) };
        adaptive.lost_lately.observe(now, &model);
        model.probes.lost();
        model.probes.lost();
        model.retransmits = 10_000;
        assert_eq!(adaptive.congestion(now, &mut model), Some(Why::Congested));
        assert!(adaptive.rate.is_some_and(|rate| (0.8e9..0.9e9).contains(&rate)), "{:?}", adaptive.rate);
    }
}
