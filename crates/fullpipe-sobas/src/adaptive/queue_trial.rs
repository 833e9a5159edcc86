//! A longer queue, beside others that yield to it.
//!
//! TCP with a fixed window w has w/(T + q) beside a queue of q, so that a longer queue leaves more to us; those who do not
//! yield leave no more. Where a longer queue is known to do no harm and would show which they are, it is let stand for
//! a while, and kept if the rate has grown by what their yielding explains.

use super::{Adaptive, FILLED, STARTED};
use crate::event::Why;
use crate::network_model::NetworkModel;

/// The longer queues that are tried, one after the other, parts of the RTT.
const OF_RTT: [f64; 3] = [0.1, 0.2, 0.35];
/// None is longer than this, seconds,
const MOST_S: f64 = 10e-3;
/// nor, once one has overflown, than this part of the longest that was seen without a loss. So long a one is tried at once.
const OF_DEPTH: f64 = 0.9;
/// Part of what overflown, and of what was kept until then, that is kept afterwards.
const SHORTER: f64 = 0.8;
/// Others yield to a queue that is so many times as long.
const LONGER: f64 = 1.2;
/// Less than this part more is not told from chance.
const SEEN: f64 = 0.03;
/// Who has more of the path than this takes no more from others who may size themselves too.
const MOST_SHARE: f64 = 0.55;
/// They yield if so much has come of what a fixed window of theirs would leave.
const YIELDED: f64 = 0.5;
/// Who gives up so many times as much shuns queues as we do, and keeps what it has.
const GAVE_WAY: f64 = 2.0;
/// Rate and queue are means of so many round trips,
const OVER_RTTS: u64 = 10;
/// but of no less and no more than this, nanoseconds: bytes are counted for little longer.
const OVER_NS: (u64, u64) = (300_000_000, 2_000_000_000);
/// Rounds for the longer queue to come.
const ROUNDS: u64 = 6;
/// On longer paths it takes seconds, and what rises above it too: not tried, nanoseconds.
const LONG_NS: u64 = 100_000_000;
/// Where they do not yield, or a loss or a drain ended it, it is not tried for so long, nanoseconds.
const WAIT_NS: u64 = 10_000_000_000;

/// A longer queue than usual.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lift {
    /// What is usual, seconds, while a longer one stands.
    usual: Option<f64>,
    trial: Option<Trial>,
    /// Not before this.
    ready: u64,
    /// What others have yielded to, seconds.
    kept: Option<f64>,
    /// What others had yielded to when a longer one overflowed, seconds, and until when that is true.
    back: Option<(f64, u64)>,
    /// A queue has overflown: its depth is known.
    known: bool,
}

/// It is being tried.
#[derive(Debug, Clone, Copy)]
struct Trial {
    until: u64,
    /// Before it: payload received, bit/s; the queue, seconds; what was let stand, seconds.
    bps: f64,
    queue: f64,
    target: f64,
}

impl Adaptive {
    /// Rate and queue have changed for another reason.
    pub(super) fn unsteady(&mut self, now: u64, s: &NetworkModel) {
        self.lift.ready = self.lift.ready.max(now + Self::round(s) + mean_over(s));
    }

    /// Whether a longer queue than usual stands, or is being tried.
    pub(super) fn lifted(&self) -> bool {
        self.lift.usual.is_some()
    }

    /// The queue that is let stand where nothing speaks for a longer one, seconds.
    pub(super) fn usual(&self) -> f64 {
        self.lift.usual.unwrap_or(self.target)
    }

    /// Back to what is usual: something else has happened.
    pub(super) fn lower(&mut self, now: u64) {
        (self.lift.trial, self.lift.kept) = (None, None);
        if let Some(usual) = self.lift.usual.take() {
            self.target = self.target.min(usual);
            self.lift.ready = now + WAIT_NS;
        }
    }

    /// A queue has overflown; whether it was a longer one that was being tried. What others had yielded to comes back soon.
    pub(super) fn lift_overflown(&mut self, now: u64, s: &NetworkModel) -> bool {
        let tried = self.lift.trial.is_some();
        let kept = self.lift.kept.map(|kept| if tried { kept } else { SHORTER * kept });
        self.lift.known = true;
        self.lower(now);
        if let Some(kept) = kept {
            let kept = kept.min(SHORTER * self.overflown(now, s));
            (self.lift.back, self.lift.ready) = (Some((kept, now + WAIT_NS)), now);
        }
        self.unsteady(now, s);
        tried
    }

    /// The path has changed.
    pub(super) fn lift_anew(&mut self) {
        (self.lift.known, self.lift.back) = (false, None);
    }

    /// The next longer queue to try, seconds.
    fn longer(&self, t: f64) -> f64 {
        let steps = OF_RTT.map(|part| (part * t).min(MOST_S));
        let seen = OF_DEPTH * self.depth;
        if self.lift.known {
            return steps[2].min(seen);
        }
        match self.lift.kept {
            None => seen.clamp(steps[0], steps[1]),
            Some(kept) => steps.into_iter().find(|step| *step > LONGER * kept).unwrap_or(kept),
        }
    }

    /// A queue stands as it should, and nothing else is being tried.
    pub(super) fn lift(&mut self, now: u64, s: &NetworkModel) -> Option<Why> {
        let over = now.saturating_sub(mean_over(s));
        let capacity = self.capacity?;
        let t = s.probes.base_ns() as f64 * 1e-9;
        if let Some(trial) = self.lift.trial {
            if now < trial.until {
                return None;
            }
            let (bps, queue) = (s.bytes.between(over, now)?, s.probes.median_ns(over)? as f64 * 1e-9);
            self.lift.trial = None;
            let left = yielded(capacity - trial.bps, queue - trial.queue, t + queue);
            let came = bps - trial.bps;
            if came >= YIELDED * left.max(SEEN * trial.bps) && came <= GAVE_WAY * left {
                self.unsteady(now, s);
                self.lift.kept = Some(self.target);
                return self.free_beside_tcp(now, s, queue).or(Some(Why::Yielded));
            }
            self.target = trial.target;
            self.lift.usual = self.lift.usual.filter(|usual| *usual < trial.target);
            self.lift.ready = now + WAIT_NS;
            return Some(Why::Unyielding);
        }
        let may = s.config.pacing && s.probes.base_ns() <= LONG_NS;
        // A ceiling far above what is had does not keep a longer queue from standing.
        let beneath = self.ceiling.is_some_and(|ceiling| self.rate >= Some(FILLED * ceiling.bps));
        if !may || now < self.lift.ready || beneath {
            return None;
        }
        if let Some((kept, _)) = self.lift.back.take().filter(|(_, until)| now < *until) {
            self.lift.usual.get_or_insert(self.target);
            (self.lift.kept, self.target) = (Some(kept), kept);
            self.unsteady(now, s);
            return Some(Why::Yielded);
        }
        let (bps, queue) = (s.bytes.between(over, now)?, s.probes.median_ns(over)? as f64 * 1e-9);
        let longer = self.longer(t);
        // Who has given up what TCP would does not size itself; and BBR's limit costs it more than others, if they are TCP.
        let takes = self.lift.kept.is_some() || s.config.decrease == 0.0 || bps <= MOST_SHARE * capacity;
        let gains = yielded(capacity - bps, longer - queue, t + longer) >= SEEN * bps;
        if !takes || !gains || bps < STARTED * self.rate? {
            return None;
        }
        let until = now + ROUNDS * Self::round(s) + mean_over(s);
        self.lift.trial = Some(Trial { until, bps, queue, target: self.target });
        self.lift.usual.get_or_insert(self.target);
        self.target = longer;
        None
    }
}

/// What others who take so much give up if a queue grows by `longer` to a round-trip time of `t`, bit/s.
fn yielded(others: f64, longer: f64, t: f64) -> f64 {
    (others * longer / t).max(0.0)
}

fn mean_over(s: &NetworkModel) -> u64 {
    (OVER_RTTS * s.probes.base_ns()).clamp(OVER_NS.0, OVER_NS.1)
}
