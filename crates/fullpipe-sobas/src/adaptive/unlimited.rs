//! A congestion control that gives up little at a loss runs without a limit, beside others that yield to it.
//!
//! BBR holds a rate of its own and gains what losses make TCP give up, so a limit at what is free would leave it less than
//! it has by itself. Beside others that do not yield, the limit costs nothing and saves thousands of losses. Only running
//! without a limit shows which they are, so that is tried for a while.
//!
//! Scalable gives up an eighth of its window at a loss. It runs without a limit where others have yielded to a longer queue
//! and so are TCP: they give up half of theirs, which brings it more than any queue does.

use super::measure::{overflowed_s, round_ns};
use super::mode::{Mode, Unlimited};
use super::params::{RATE, SIGHT};
use super::state::Adaptive;
use crate::event::Why;
use crate::network_model::NetworkModel;

/// When limits are lifted and how that is judged.
struct Params {
    /// RTTs between two rises of BBR's rate (`bbr_pacing_gain`, `tcp_bbr.c`).
    cycle_rtts: u64,
    /// Such cycles until it is judged, by the last of them.
    cycles: u64,
    /// Others yield if it has this many times what it had under a limit, or what trains say is free. Trains may err by more,
    /// but a limit that is lifted in vain costs only segments, and a longer queue may later find others that were missed.
    more: f64,
    /// That bar is at least this fraction of the capacity.
    min_part: f64,
    /// If it pushed others aside before trains saw them, others yield if it holds this fraction of what it had.
    held: f64,
    /// At this fraction of the capacity or more there are no others.
    alone: f64,
    /// Losses at less than this fraction of the rate are not its own.
    pushed: f64,
    /// A congestion control that gives up more than this fraction of its window at a loss gains nothing by losses.
    max_decrease: f64,
    /// Longest RTT over which it is judged, nanoseconds. Over longer paths rate probes end long before BBR would follow them,
    /// so it stays without a limit.
    max_rtt_ns: u64,
}

const PARAMS: Params = Params {
    cycle_rtts: 8,
    cycles: 3,
    more: 1.1,
    min_part: 0.5,
    held: 0.9,
    alone: 0.96,
    pushed: 0.5,
    max_decrease: 0.125,
    max_rtt_ns: 100_000_000,
};

impl Adaptive {
    /// Lifts the limit of BBR once trains have shown others that leave `left` bit/s, if that is too little to climb from to
    /// what they may yield, or the path is too long.
    pub(super) fn unlimit_at_once(&mut self, now: u64, model: &NetworkModel, left: f64) -> Option<Why> {
        let least = PARAMS.min_part * self.capacity.trained;
        if left > least && model.probes.base_ns() <= PARAMS.max_rtt_ns {
            return None;
        }
        self.unlimit_bbr(now, model, PARAMS.more * left.max(least), Why::Shared)
    }

    /// Lifts the limit of BBR once it has started up beneath what trains say others leave.
    pub(super) fn unlimit_beside_others(&mut self, now: u64, model: &NetworkModel) -> Option<Why> {
        let had = model.recent_bps(now)?;
        self.unlimit_bbr(now, model, PARAMS.more * had, Why::Shared)
    }

    /// Lifts the limit of BBR once losses have shown others: it had less than the capacity, `had` bit/s.
    pub(super) fn unlimit_after_loss(&mut self, now: u64, model: &NetworkModel, had: f64) -> Option<Why> {
        let limited = matches!(self.mode, Mode::Start | Mode::Hold | Mode::Follow(_));
        let pushed = had > PARAMS.pushed * self.rate? && had < (1.0 - RATE.min_others) * self.capacity.trained;
        // Without a queue the loss was chance.
        if limited && pushed && !self.others.present && overflowed_s(model, now) >= SIGHT.visible_s {
            self.unlimit_bbr(now, model, PARAMS.held * had, Why::Loss)
        } else {
            None
        }
    }

    /// Lifts the limit of BBR, once in a transfer.
    fn unlimit_bbr(&mut self, now: u64, model: &NetworkModel, least: f64, why: Why) -> Option<Why> {
        if model.config.decrease > 0.0 || self.others.tried_unlimited {
            return None;
        }
        let t = model.probes.base_ns();
        let judge = (t <= PARAMS.max_rtt_ns).then_some(now + PARAMS.cycles * PARAMS.cycle_rtts * t + SIGHT.standing_ns);
        let alone = PARAMS.alone * self.capacity.trained;
        self.others.tried_unlimited = true;
        self.others.search_is_over = true;
        self.repeated_drains = Default::default();
        self.enter(Mode::Unlimited(Unlimited { judge, least, alone, retransmits: model.retransmits }), why)
    }

    /// Lifts the limit for good once others have yielded to a queue of this many seconds, if the queue outlasts a loss.
    pub(super) fn unlimit_beside_tcp(&mut self, now: u64, model: &NetworkModel, queue: f64) -> Option<Why> {
        let t = model.probes.base_ns() as f64 * 1e-9;
        let had = model.recent_bps(now)?;
        let given_up = model.config.decrease * had / self.capacity.trained.max(1.0) * (t + queue);
        if model.config.decrease > PARAMS.max_decrease || queue < given_up {
            return None;
        }
        self.others.tried_unlimited = true;
        let (alone, retransmits) = (self.capacity.trained, model.retransmits);
        self.enter(Mode::Unlimited(Unlimited { judge: None, least: had, alone, retransmits }), Why::Yielded)
    }

    /// Judges whether others yield, when that is due.
    pub(super) fn unlimited(&mut self, now: u64, model: &mut NetworkModel, unlimited: Unlimited) -> Option<Why> {
        if now < unlimited.judge? {
            return None;
        }
        let since = now.saturating_sub((PARAMS.cycle_rtts * model.probes.base_ns()).max(SIGHT.standing_ns));
        let received = model.bytes.between(since, now)?;
        if received > unlimited.least && received < unlimited.alone {
            return self.enter(Mode::Unlimited(Unlimited { judge: None, ..unlimited }), Why::Yielded);
        }
        if model.retransmits > unlimited.retransmits {
            self.queue.overflowed(overflowed_s(model, now));
        }
        self.rate = self.rate.map(|rate| rate.max(RATE.of_available * received));
        // Losses of this time are still being reported.
        self.losses.ignored_until = now + 2 * round_ns(model);
        model.probes.forget_losses();
        self.enter(Mode::Start, Why::Unyielding)
    }
}
