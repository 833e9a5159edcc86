//! A congestion control that gives up little at a loss, beside others.
//!
//! BBR holds a rate of its own, and takes from TCP what losses make TCP give up, so a limit at what is free would leave it
//! less than it has by itself. Beside those who do not yield the limit costs nothing, and saves thousands of losses. Which
//! they are shows only without a limit: so it runs without one for a while.
//!
//! Scalable gives up an eighth of its window. It is let run where others have yielded to a longer queue, and so are TCP:
//! they give up half, and more comes of that than of any queue.

use super::drain::Stuck;
use super::{Adaptive, BELOW_SHARED, SHARED, STANDING_NS, VISIBLE_S};
use crate::event::{State, Why};
use crate::network_model::NetworkModel;

/// BBR tries a higher rate once in so many round trips (`bbr_pacing_gain`, `tcp_bbr.c`).
const CYCLE_RTTS: u64 = 8;
/// So many of them until it is judged, by the last.
const CYCLES: u64 = 3;
/// They yield if it has so many times what a limit at what trains say to be free let it have, or of what those say, but no
/// less than this part of the capacity. Trains may err by more, but beside those who do not yield it loses nothing but
/// segments; and who yields and is missed now, a longer queue may find later;
const MORE: f64 = 1.1;
const HALF: f64 = 0.5;
/// or, where it pushed them aside before trains saw them, holds so much of that.
const HELD: f64 = 0.9;
/// At this part of the capacity and above there are no others.
const ALONE: f64 = 0.96;
/// Losses at less than this part of the rate are not its own.
const PUSHED: f64 = 0.5;
/// Who gives up more of its window than this at a loss gains nothing by losses.
const LITTLE: f64 = 0.125;
/// On longer paths pulses are over long before BBR would follow them: it is left to itself, nanoseconds.
const LONG_NS: u64 = 100_000_000;

/// It runs without a limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    /// When it is judged; none: for good.
    judge: Option<u64>,
    /// Beside those who do not yield it would have less, bit/s;
    least: f64,
    /// and where it has this, there are none.
    alone: f64,
    /// Segments sent again until then.
    retransmits: u64,
}

impl Adaptive {
    /// Trains have shown others who leave so much: too little to climb from to what they may yield, or too long a path.
    pub(super) fn free_at_once(&mut self, now: u64, s: &NetworkModel, left: f64) -> Option<Why> {
        let half = HALF * self.trained;
        if left > half && s.probes.base_ns() <= LONG_NS {
            return None;
        }
        self.set_free(now, s, MORE * left.max(half), Why::Shared)
    }

    /// Trains have shown others, and it has started up beneath what they leave.
    pub(super) fn free_beside(&mut self, now: u64, s: &NetworkModel) -> Option<Why> {
        let had = s.recent_bps(now)?;
        self.set_free(now, s, MORE * had, Why::Shared)
    }

    /// Losses have, at less than the capacity.
    pub(super) fn free_after_loss(&mut self, now: u64, s: &NetworkModel, had: f64) -> Option<Why> {
        let limited = matches!(self.state, State::Start | State::Hold | State::Follow);
        let pushed = had > PUSHED * self.rate? && had < (1.0 - SHARED) * self.trained;
        // Without a queue it was chance.
        if limited && pushed && !self.shared && self.overflown(now, s) >= VISIBLE_S {
            self.set_free(now, s, HELD * had, Why::Loss)
        } else {
            None
        }
    }

    /// Once in a transfer.
    fn set_free(&mut self, now: u64, s: &NetworkModel, least: f64, why: Why) -> Option<Why> {
        if s.config.decrease > 0.0 || self.trial.is_some() {
            return None;
        }
        let t = s.probes.base_ns();
        let judge = (t <= LONG_NS).then_some(now + CYCLES * CYCLE_RTTS * t + STANDING_NS);
        self.trial = Some(Trial { judge, least, alone: ALONE * self.trained, retransmits: s.retransmits });
        self.asked_others = true;
        self.stuck = Stuck::default();
        self.calm();
        self.enter(State::Free, why)
    }

    /// Others have yielded to a queue of so many seconds, which a loss would not empty.
    pub(super) fn free_beside_tcp(&mut self, now: u64, s: &NetworkModel, queue: f64) -> Option<Why> {
        let t = s.probes.base_ns() as f64 * 1e-9;
        let had = s.recent_bps(now)?;
        let given_up = s.config.decrease * had / self.trained.max(1.0) * (t + queue);
        if s.config.decrease > LITTLE || queue < given_up {
            return None;
        }
        self.trial = Some(Trial { judge: None, least: had, alone: self.trained, retransmits: s.retransmits });
        self.calm();
        self.enter(State::Free, Why::Yielded)
    }

    pub(super) fn free(&mut self, now: u64, s: &mut NetworkModel) -> Option<Why> {
        let trial = self.trial?;
        if now < trial.judge? {
            return None;
        }
        let since = now.saturating_sub((CYCLE_RTTS * s.probes.base_ns()).max(STANDING_NS));
        let received = s.bytes.between(since, now)?;
        self.trial = Some(Trial { judge: None, ..trial });
        if received > trial.least && received < trial.alone {
            return self.enter(State::Free, Why::Yielded);
        }
        if s.retransmits > trial.retransmits {
            self.learn_queue(now, s);
        }
        // What it lost is still being told.
        self.rate = self.rate.map(|rate| rate.max(BELOW_SHARED * received));
        self.deaf_until = now + 2 * Self::round(s);
        s.probes.forget_losses();
        self.enter(State::Start, Why::Unyielding)
    }
}
