//! Trials of a longer queue, beside traffic that yields to it.
//!
//! TCP with a fixed window w has the rate w/(T + q) beside a queue of q, so a longer queue leaves more for us. Traffic that
//! does not yield leaves no more. Where a longer queue is known to do no harm and would show which of the two it is, it is
//! let stand for a while, and kept if the rate has grown by what such yielding explains.

use super::measure::{overflowed_s, round_ns};
use super::params::RATE;
use super::queue::Queue;
use crate::network_model::NetworkModel;

/// How a longer queue is tried and judged.
struct Params {
    /// The longer queues that are tried one after the other, as fractions of the RTT.
    rtts: [f64; 3],
    /// Longest queue to try, seconds.
    max_s: f64,
    /// Longest queue to try, as a fraction of the longest that was seen without a loss. Once a queue has overflowed, this
    /// length is tried at once.
    of_depth: f64,
    /// Fraction of a queue that overflowed, and of the one kept until then, that is kept afterwards.
    after_overflow: f64,
    /// The next queue to try is at least this many times as long as the one that others yielded to.
    longer: f64,
    /// Least growth of the rate that is told from chance, as a fraction.
    visible: f64,
    /// A transfer with more than this share of the capacity takes no more from others, which may size themselves too.
    max_share: f64,
    /// Others yield if at least this fraction of what a fixed window would give up has come.
    yielded: f64,
    /// Others that give up more than this many times as much avoid queues as this algorithm does, and keep what they have.
    gave_way: f64,
    /// Rate and queue are means over this many RTTs.
    mean_rtts: u64,
    /// Limits of that time, nanoseconds. Byte counts are not kept for much longer.
    mean_ns: (u64, u64),
    /// Rounds that a longer queue takes to build.
    rounds: u64,
    /// Longest RTT over which a longer queue is tried, nanoseconds. Beyond it a queue takes seconds to build, and so does what
    /// rises above it.
    max_rtt_ns: u64,
    /// Time until the next trial where others did not yield, or a loss or a drain ended it, nanoseconds.
    wait_ns: u64,
}

const PARAMS: Params = Params {
    rtts: [0.1, 0.2, 0.35],
    max_s: 10e-3,
    of_depth: 0.9,
    after_overflow: 0.8,
    longer: 1.2,
    visible: 0.03,
    max_share: 0.55,
    yielded: 0.5,
    gave_way: 2.0,
    mean_rtts: 10,
    mean_ns: (300_000_000, 2_000_000_000),
    rounds: 6,
    max_rtt_ns: 100_000_000,
    wait_ns: 10_000_000_000,
};

/// What a trial has shown.
#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome {
    /// Others yielded to a queue of this many seconds, which stays.
    Yielded(f64),
    /// A queue that others had yielded to before an overflow stands again.
    Resumed,
    /// Others did not yield. The earlier queue stands again.
    Unyielding,
}

/// The trial, and what earlier ones have shown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QueueTrial {
    running: Option<Running>,
    /// Earliest instant of the next trial.
    ready: u64,
    /// Longest queue that others have yielded to, seconds.
    kept: Option<f64>,
    /// Queue that others had yielded to when a longer one overflowed, seconds, and the instant until which that holds.
    resume: Option<(f64, u64)>,
    /// Whether a queue has overflowed, so that its depth is known.
    depth_known: bool,
}

/// A trial under way.
#[derive(Debug, Clone, Copy)]
struct Running {
    /// When it is judged.
    until: u64,
    /// Payload rate received before it, bit/s.
    bps: f64,
    /// Queue before it, seconds.
    queue: f64,
    /// Target before it, seconds.
    target: f64,
}

impl QueueTrial {
    /// Rate or queue have changed for another reason, so means over earlier times say nothing.
    pub fn unsteady(&mut self, now: u64, model: &NetworkModel) {
        self.ready = self.ready.max(now + round_ns(model) + mean_ns(model));
    }

    /// Ends a trial and returns to the usual queue, because something else has happened.
    pub fn end(&mut self, now: u64, queue: &mut Queue) {
        (self.running, self.kept) = (None, None);
        if queue.lower() {
            self.ready = now + PARAMS.wait_ns;
        }
    }

    /// A queue overflowed. Returns whether it was a longer one that was being tried. The queue that others had yielded to
    /// stands again soon.
    pub fn overflowed(&mut self, now: u64, model: &NetworkModel, queue: &mut Queue) -> bool {
        let tried = self.running.is_some();
        let kept = self.kept.map(|kept| if tried { kept } else { PARAMS.after_overflow * kept });
        self.depth_known = true;
        self.end(now, queue);
        if let Some(kept) = kept {
            let kept = kept.min(PARAMS.after_overflow * overflowed_s(model, now));
            (self.resume, self.ready) = (Some((kept, now + PARAMS.wait_ns)), now);
        }
        self.unsteady(now, model);
        tried
    }

    /// The path has changed, so what was learnt about its queue no longer holds.
    pub fn forget(&mut self) {
        (self.depth_known, self.resume) = (false, None);
    }

    /// The next longer queue to try on a path with an RTT of `t` seconds.
    fn longer(&self, t: f64, depth: f64) -> f64 {
        let steps = PARAMS.rtts.map(|part| (part * t).min(PARAMS.max_s));
        let seen = PARAMS.of_depth * depth;
        if self.depth_known {
            return steps[2].min(seen);
        }
        match self.kept {
            None => seen.clamp(steps[0], steps[1]),
            Some(kept) => steps.into_iter().find(|step| *step > PARAMS.longer * kept).unwrap_or(kept),
        }
    }

    /// Begins or judges a trial while a queue stands as it should and nothing else is being tried. `at_ceiling`: whether the
    /// rate has reached a limit above which the queue overflows.
    pub fn step(
        &mut self,
        now: u64,
        model: &NetworkModel,
        (rate, capacity): (f64, f64),
        at_ceiling: bool,
        queue: &mut Queue,
    ) -> Option<Outcome> {
        let over = now.saturating_sub(mean_ns(model));
        let t = model.probes.base_ns() as f64 * 1e-9;
        let means = || Some((model.bytes.between(over, now)?, model.probes.median_ns(over)? as f64 * 1e-9));
        if let Some(running) = self.running {
            if now < running.until {
                return None;
            }
            let (bps, delay) = means()?;
            self.running = None;
            let expected = given_up(capacity - running.bps, delay - running.queue, t + delay);
            let came = bps - running.bps;
            if came >= PARAMS.yielded * expected.max(PARAMS.visible * running.bps) && came <= PARAMS.gave_way * expected
            {
                self.unsteady(now, model);
                self.kept = Some(queue.target);
                return Some(Outcome::Yielded(delay));
            }
            queue.return_to(running.target);
            self.ready = now + PARAMS.wait_ns;
            return Some(Outcome::Unyielding);
        }
        let may = model.config.pacing && model.probes.base_ns() <= PARAMS.max_rtt_ns;
        if !may || now < self.ready || at_ceiling {
            return None;
        }
        if let Some((kept, _)) = self.resume.take().filter(|(_, until)| now < *until) {
            queue.raise(kept);
            self.kept = Some(kept);
            self.unsteady(now, model);
            return Some(Outcome::Resumed);
        }
        let (bps, delay) = means()?;
        let longer = self.longer(t, queue.depth);
        // Others that gave up what TCP would do not size themselves. And a limit costs BBR more than it costs others, if those
        // are TCP.
        let takes = self.kept.is_some() || model.config.decrease == 0.0 || bps <= PARAMS.max_share * capacity;
        let gains = given_up(capacity - bps, longer - delay, t + longer) >= PARAMS.visible * bps;
        if !takes || !gains || bps < RATE.started * rate {
            return None;
        }
        let until = now + PARAMS.rounds * round_ns(model) + mean_ns(model);
        self.running = Some(Running { until, bps, queue: delay, target: queue.target });
        queue.raise(longer);
        None
    }
}

/// Rate that others with fixed windows give up, of `others` bit/s, if the queue grows by `longer` seconds to a round-trip
/// time of `t` seconds.
fn given_up(others: f64, longer: f64, t: f64) -> f64 {
    (others * longer / t).max(0.0)
}

/// Time over which means are taken, nanoseconds.
fn mean_ns(model: &NetworkModel) -> u64 {
    (PARAMS.mean_rtts * model.probes.base_ns()).clamp(PARAMS.mean_ns.0, PARAMS.mean_ns.1)
}
