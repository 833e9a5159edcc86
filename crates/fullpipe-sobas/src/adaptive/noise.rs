//! Paths whose own delay varies, as over radio, or between hosts that pause. Where it varies by more than the queue that is let
//! stand, delays show no queue, and packet trains arrive at any rate. Then TCP alone is better than limits from such
//! measurements. Other traffic makes delays vary too, but trains that pass through it agree.
//!
//! Losses can still be told apart. Before those of a queue that overflows, the delay is longer than usual; before those that the
//! path makes by itself it is not. These matter where far less is received than trains have shown, however roughly.

use super::measure::round_ns;
use super::mode::{Mode, Unlimited};
use super::noisy::Noise;
use super::params::SIGHT;
use super::state::Adaptive;
use crate::event::Why;
use crate::network_model::NetworkModel;

/// When delays are too noisy, and which losses are the path's own then.
struct Params {
    /// Delays show no queue if this multiple of their noise exceeds the queue that is let stand: 0.36 times the range over which
    /// they vary. The least of the probes that tell a standing queue is a fifth of the range above the shortest delay.
    of_queue: f64,
    /// A loss followed a queue if the delay before it exceeded the usual one by this multiple of the noise.
    above_usual: f64,
    /// A transfer that receives this fraction of what the trains have shown is not held back by losses.
    held_back: f64,
    /// Losses without a queue, in rounds of their own, from which they count as the path's.
    rounds: u32,
    /// RTTs, and nanoseconds besides, within which these losses must come.
    within_rtts: u64,
    within_ns: u64,
    /// The usual delay is that of this time, nanoseconds.
    usual_ns: u64,
}

const PARAMS: Params = Params {
    of_queue: 1.5,
    above_usual: 3.0,
    held_back: 0.7,
    rounds: 3,
    within_rtts: 20,
    within_ns: 2_000_000_000,
    usual_ns: 3_000_000_000,
};

impl Adaptive {
    /// Limits nothing where the delay varies too much to show a queue, and has the sender bear losses that no queue explains.
    pub(super) fn noise(&mut self, now: u64, model: &mut NetworkModel) -> Option<Why> {
        if self.noise.known {
            return self.losses_in_noise(now, model);
        }
        let limited = matches!(self.mode, Mode::Start | Mode::Hold | Mode::Follow(_) | Mode::Drain(_));
        if !limited || !model.config.trains || !model.config.pacing || model.trains.are_consistent() {
            return None;
        }
        let noise = PARAMS.of_queue * model.probes.noise_ns() as f64 * 1e-9;
        if noise <= self.queue.target.max(self.queue.least_target(model)) {
            return None;
        }
        self.noise = Noise { known: true, retransmits: model.retransmits, ..Noise::default() };
        self.others.search_is_over = true;
        self.queue_trial.end(now, &mut self.queue);
        let unlimited = Unlimited { judge: None, least: 0.0, alone: 0.0, retransmits: model.retransmits };
        self.enter(Mode::Unlimited(unlimited), Why::Noisy)
    }

    /// Counts losses before which the delay was as usual.
    fn losses_in_noise(&mut self, now: u64, model: &mut NetworkModel) -> Option<Why> {
        let lost = model.retransmits > self.noise.retransmits;
        self.noise.retransmits = model.retransmits;
        if !lost || now < self.noise.until || !model.config.change {
            return None;
        }
        self.noise.until = now + 2 * round_ns(model);
        let before = model.probes.median_ns(now.saturating_sub(model.probes.base_ns() + SIGHT.standing_ns))?;
        let usual = model.probes.median_ns(now.saturating_sub(PARAMS.usual_ns))?;
        let queue = before as f64 > usual as f64 + PARAMS.above_usual * model.probes.noise_ns() as f64;
        if queue || model.recent_bps(now)? >= PARAMS.held_back * self.capacity.trained {
            self.noise.rounds = 0;
            return None;
        }
        let within = PARAMS.within_rtts * model.probes.base_ns() + PARAMS.within_ns;
        if self.noise.rounds == 0 || now > self.noise.first.saturating_add(within) {
            (self.noise.rounds, self.noise.first) = (0, now);
        }
        self.noise.rounds += 1;
        if self.noise.rounds < PARAMS.rounds {
            return None;
        }
        self.change_sender(model);
        Some(Why::RandomLoss)
    }
}
