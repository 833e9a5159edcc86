//! Restarts of slow start, for TCP that losses have left below the rate.
//!
//! Congestion avoidance recovers one segment per round trip (RFC 5681, 3.1), so half of a window takes seconds at 20 ms and
//! minutes at 200 ms. Where packet trains show that the missing rate is free, slow start up to the pacing rate does no harm.
//! Without trains it is tried anyway, less often each time that it does not help.

use super::params::{RATE, SIGHT};
use super::question::Question;
use crate::network_model::NetworkModel;

/// When slow start restarts.
struct Params {
    /// RTTs without a loss before a restart.
    calm_rtts: u64,
    /// RTTs that the first start takes at most.
    first_start_rtts: u64,
    /// RTTs that a further start takes at most, from a window of some size.
    restart_rtts: u64,
    /// Time that any start takes at most besides, nanoseconds.
    start_ns: u64,
    /// A restart has helped if this many times as much is received as before.
    helped: f64,
    /// Longest time between restarts, nanoseconds. The time doubles after each that did not help: the sender then has no more
    /// to send.
    max_wait_ns: u64,
    /// A restart is worth it if this many times as much is free.
    worth: f64,
}

const PARAMS: Params = Params {
    calm_rtts: 2,
    first_start_rtts: 20,
    restart_rtts: 6,
    start_ns: 300_000_000,
    helped: 1.1,
    max_wait_ns: 30_000_000_000,
    worth: 1.03,
};

/// The transfer's situation, while slow start may restart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Situation {
    /// Rate that is aimed at, bit/s.
    pub rate: f64,
    /// Estimate of the path's capacity, bit/s.
    pub capacity: Option<f64>,
    /// Delay of the standing queue, seconds; none if unknown.
    pub queue: Option<f64>,
    /// A shorter queue than this has gone, seconds.
    pub low: f64,
    /// Whether a recent loss has shown what is free, so that trains need not ask.
    pub limit_is_fresh: bool,
}

/// What to do about slow start.
#[derive(Debug, Clone, Copy)]
pub(super) enum Decision {
    /// Packet trains are asking what is free.
    Ask,
    /// Slow start restarts, up to this rate, bit/s.
    Restart(f64),
    /// Others have what is missing. The rate falls to this, bit/s.
    Share(f64),
}

/// When slow start restarts, and whether that helps.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlowStart {
    /// When the transfer began.
    began: u64,
    /// The question that packet trains are asking now.
    question: Option<Question>,
    /// When a segment was last seen to have been lost.
    lost: u64,
    /// Since when less has been received than is free.
    below: Option<u64>,
    /// Earliest instant of the next restart.
    after: u64,
    /// Time between restarts, nanoseconds.
    wait: u64,
    /// Rate received at the last restart, bit/s.
    from: f64,
    /// Highest rate received since, bit/s.
    most: f64,
}

impl SlowStart {
    pub fn new(began: u64) -> SlowStart {
        SlowStart { began, question: None, lost: 0, below: None, after: 0, wait: 0, from: 0.0, most: 0.0 }
    }

    /// Segments were lost.
    pub fn lost(&mut self, now: u64) {
        self.lost = now;
        self.question = None;
    }

    /// The rate has changed, so what was received so far says nothing about the rate that follows.
    pub fn rate_changed(&mut self) {
        self.below = None;
    }

    /// Slow start may not restart at present, whatever trains say.
    pub fn drop_question(&mut self) {
        self.question = None;
    }

    /// Rate of the trains that ask whether more is free, bit/s of payload, while they ask.
    pub fn asking_bps(&self) -> Option<f64> {
        self.question.map(|question| question.more)
    }

    /// Decides whether slow start restarts.
    pub fn step(&mut self, now: u64, model: &mut NetworkModel, at: Situation) -> Option<Decision> {
        if let Some(question) = self.question {
            return if question.is_answered(now, model) { self.answer(now, model, question, at) } else { None };
        }
        let t = model.probes.base_ns();
        let over = (PARAMS.calm_rtts * t).max(2 * SIGHT.standing_ns);
        let received = model.bytes.between(now.saturating_sub(over), now)?;
        let queue = at.queue?;
        self.most = self.most.max(received);
        if received >= RATE.started * at.rate || queue > at.low {
            self.below = None;
            return None;
        }
        // Traffic that has just come shows in the rate received before its queue is seen to stand.
        let below = *self.below.get_or_insert(now);
        let first = self.began + PARAMS.first_start_rtts * t + PARAMS.start_ns;
        if now < self.after.max(first).max(self.lost + over).max(below + over / 2) {
            return None;
        }
        if !model.config.trains || at.limit_is_fresh {
            self.schedule(now, model, received);
            return Some(Decision::Restart(at.rate));
        }
        self.question = Some(Question::ask(now, model, at.rate - received, received));
        Some(Decision::Ask)
    }

    /// Takes in what the trains say is free.
    fn answer(&mut self, now: u64, model: &NetworkModel, mut question: Question, at: Situation) -> Option<Decision> {
        self.question = None;
        // TCP may have grown meanwhile.
        let lately = now.saturating_sub(model.probes.base_ns().max(SIGHT.standing_ns));
        let has = model.bytes.between(lately, now)?.max(question.has);
        if has >= RATE.started * at.rate {
            return None;
        }
        question.has = has;
        let free = question.free_bps(model, at.capacity.unwrap_or(at.rate).max(at.rate));
        self.schedule(now, model, has);
        // Trains that were lost or never sent say nothing.
        let free = free?.max(RATE.min_share * at.rate);
        let rate = if free < at.rate { at.rate.min(RATE.of_available * free) } else { at.rate };
        if rate < PARAMS.worth * has {
            return Some(Decision::Share(at.rate.min(has.max(rate))));
        }
        Some(Decision::Restart(rate))
    }

    /// Sets the earliest instant of the next restart, given what is received now.
    fn schedule(&mut self, now: u64, model: &NetworkModel, received: f64) {
        let short = PARAMS.restart_rtts * model.probes.base_ns() + PARAMS.start_ns;
        let helped = self.most >= PARAMS.helped * self.from;
        let wait = if helped { short } else { (2 * self.wait).clamp(short, PARAMS.max_wait_ns.max(short)) };
        *self = SlowStart { below: None, after: now + wait, wait, from: received, most: received, ..*self };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::trains::{Own, Train};

    #[test]
    fn trains_beside_a_pause_do_not_lower_the_rate_to_nothing() {
        let mut model = NetworkModel::new(Config::of_one_stream(), 20_000_000);
        for at in (0..=2_000_000_000).step_by(10_000_000) {
            model.bytes.add(at, 0);
        }
        let now = 2_000_000_000;
        let question = Question::ask(now, &mut model, 1e9, 0.0);
        // Sent at the capacity, beside as much again.
        for _ in 0..5 {
            let arrivals_ns = (0..32).map(|i| i * 46_336).collect();
            let question = model.trains.question();
            let train = Train { sent_span_ns: 31 * 11_584, sent: 32, over_ns: 370_688, question, arrivals_ns };
            model.trains.add(&train, Own::default());
        }
        let at = Situation { rate: 1e9, capacity: Some(1e9), queue: Some(0.0), low: 1e-4, limit_is_fresh: false };
        let mut start = SlowStart { question: Some(question), ..SlowStart::new(0) };
        let decision = start.step(now, &mut model, at);
        assert!(matches!(decision, Some(Decision::Restart(rate)) if rate >= 0.05e9), "{decision:?}");
    }
}
