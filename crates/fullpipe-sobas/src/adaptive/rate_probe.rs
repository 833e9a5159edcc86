//! Rate probes: short rises of the rate that find out whether more of the path is free, at the price of a short queue.

use super::measure::echo_ns;
use super::mode::{Follow, Mode, RateProbe};
use super::params::{RATE, SIGHT};
use super::state::Adaptive;
use crate::event::Why;
use crate::network_model::NetworkModel;
use crate::probes::PROBE_INTERVAL_NS;

/// How rate probes are sent and judged.
struct Params {
    /// Length of a rate probe, nanoseconds: several of TCP's bursts (`sk_pacing_shift`: about 1 ms each).
    length_ns: u64,
    /// A rate probe raised no queue if less than this fraction of it came back as queue.
    passed: f64,
    /// Fraction of a rate probe's rise by which the rate grows after the first, second, third and further probes in a row that
    /// raised no queue. The lulls of other traffic are shorter than the time between probes.
    gains: [f64; 4],
    /// Largest growth after a probe that did raise a queue, as a fraction of the probe's rise.
    max_partial_gain: f64,
    /// Fraction of the free rate that is taken at once.
    caution: f64,
    /// Highest rate to aim at, as a multiple of the rate that is received.
    ahead: f64,
}

const PARAMS: Params = Params {
    length_ns: 10_000_000,
    passed: 0.2,
    gains: [0.1, 0.1, 0.5, 1.0],
    max_partial_gain: 0.5,
    caution: 0.9,
    ahead: 1.25,
};

impl Adaptive {
    /// Begins a rate probe, unless the sender does not fill the rate as it is.
    pub(super) fn begin_rate_probe(
        &mut self,
        now: u64,
        model: &NetworkModel,
        follow: Follow,
        queue: f64,
        (rate, capacity): (f64, f64),
    ) {
        let filled = if follow.passed > 0 { follow.settled } else { rate };
        if model.recent_bps(now).is_none_or(|bps| bps < RATE.sender_limited * filled) {
            return;
        }
        let volume = ((self.queue.target - queue) * capacity).min(self.queue.probe_bits).max(0.0);
        // After a probe that raised no queue, the same volume is sent in half of the time.
        let length = if follow.passed > 0 { PARAMS.length_ns / 2 } else { PARAMS.length_ns };
        let until = now + length;
        let recent = now.saturating_sub(SIGHT.standing_ns);
        let Some(median_before) = model.probes.median_ns(recent) else { return };
        let probe = RateProbe {
            raised: true,
            until,
            judge: until + echo_ns(model) + SIGHT.standing_ns / 2,
            volume,
            extra: volume / (length as f64 * 1e-9),
            longest_before: model.probes.longest_ns(recent),
            median_before,
        };
        self.mode = Mode::Follow(Follow { probe: Some(probe), ..follow });
    }

    /// Judges a rate probe, once the probes that followed it are back.
    pub(super) fn judge_rate_probe(
        &mut self,
        now: u64,
        model: &NetworkModel,
        follow: Follow,
        probe: RateProbe,
    ) -> Option<Why> {
        let follow = Follow { probe: None, ..follow };
        self.mode = Mode::Follow(follow);
        self.queue_trial.unsteady(now, model);
        self.slow_start.rate_changed();
        let rate = self.rate?;
        let capacity = self.capacity.bps.unwrap_or(rate).max(1.0);
        let volume = probe.volume;
        let expected = volume / capacity;
        self.queue.probed(model, capacity, expected);
        let follow = Follow { next: now, ..follow };
        self.mode = Mode::Follow(follow);
        if expected < SIGHT.visible_s {
            return None;
        }
        let since = now.saturating_sub(SIGHT.standing_ns / 2 + PROBE_INTERVAL_NS);
        let rise = |now: u64, before: u64| now.saturating_sub(before) as f64 * 1e-9;
        let longest = rise(model.probes.longest_ns(since), probe.longest_before);
        let median = rise(model.probes.median_ns(since)?, probe.median_before);
        // The longest delay shows a queue that has drained again, unless TCP's own bursts hide it. The median delay shows one that
        // has not.
        let passed = longest < PARAMS.passed * expected && median < PARAMS.passed * expected;
        // No delay exceeds TCP's own bursts. Beside others that may be a lull; once they have left, nothing else could hide a queue.
        let clear = model.probes.longest_ns(since) as f64 * 1e-9 <= self.burst(model) + SIGHT.visible_s / 2.0;
        let passed = passed || self.others.left && clear;
        let room = if passed {
            PARAMS.gains[follow.passed.min(3)] * probe.extra
        } else {
            // What is missing of the probe has drained since.
            let drained = (PARAMS.length_ns + SIGHT.standing_ns / 2) as f64 * 1e-9;
            ((volume - capacity * median) / drained).clamp(0.0, PARAMS.max_partial_gain * probe.extra)
        };
        let received = model.recent_bps(now).unwrap_or(rate);
        // A sender that does not follow rate probes must not lead the rate away.
        let aim = (rate + PARAMS.caution * room).min(self.capacity.cap()).min(rate.max(PARAMS.ahead * received));
        if rate >= self.top()
            && let Some(left) = self.ceiling.probed(now, clear, self.capacity.bps)
        {
            self.others.left = left;
        }
        self.rate = Some(aim.min(self.top()));
        if !self.capacity.sure {
            self.capacity.bps = Some(capacity.max(received));
        }
        if passed {
            let passed = follow.passed + 1;
            return self.enter(Mode::Follow(Follow { told_full: false, passed, settled: rate, ..follow }), Why::Room);
        }
        self.mode = Mode::Follow(Follow { told_full: true, passed: 0, ..follow });
        (!follow.told_full).then_some(Why::Full)
    }
}
