//! Paths whose own delay varies, as over radio, or between hosts that pause. Where it varies by more than the queue that is let
//! stand, delays show no queue, and packet trains arrive at any rate. Then TCP alone is better than limits from such
//! measurements. Other traffic makes delays vary too, but trains that pass through it agree.
//!
//! Losses can still be told apart. Before those of a queue that overflows, the delay is longer than usual; before those that the
//! path makes by itself it is not. These matter where far less is received than trains have shown, however roughly.

use super::measure::round_ns;
use super::mode::{Mode, Unlimited};
use super::params::SIGHT;
use super::queue::Queue;
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
    /// The usual delay is that of this time, nanoseconds.
    usual_ns: u64,
    /// A transfer that receives this fraction of what the trains have shown is not held back by losses.
    held_back: f64,
    /// Losses without a queue, in rounds of their own, from which they count as the path's.
    rounds: u32,
}

const PARAMS: Params = Params { of_queue: 1.5, above_usual: 3.0, usual_ns: 3_000_000_000, held_back: 0.7, rounds: 3 };

impl Adaptive {
    /// Limits nothing where the delay varies too much to show a queue, and has the sender bear losses that no queue explains.
    pub(super) fn noise(&mut self, now: u64, model: &mut NetworkModel) -> Option<Why> {
        if self.noisy {
            return self.losses_in_noise(now, model);
        }
        let limited = matches!(self.mode, Mode::Start | Mode::Hold | Mode::Follow(_) | Mode::Drain(_));
        if !limited || !model.config.trains || !model.config.pacing || model.trains.are_consistent() {
            return None;
        }
        let noise = PARAMS.of_queue * model.probes.noise_ns() as f64 * 1e-9;
        if noise <= self.queue.target.max(Queue::least_target(model)) {
            return None;
        }
        self.noisy = true;
        self.random_loss.explained();
        self.random_loss.retransmitted(model.retransmits);
        self.others.search_is_over = true;
        self.queue_trial.end(now, &mut self.queue);
        let unlimited = Unlimited { judge: None, least: 0.0, alone: 0.0, retransmits: model.retransmits };
        self.enter(Mode::Unlimited(unlimited), Why::Noisy)
    }

    /// Counts losses before which the delay was as usual.
    fn losses_in_noise(&mut self, now: u64, model: &mut NetworkModel) -> Option<Why> {
        let lost = self.random_loss.retransmitted(model.retransmits);
        if !lost || !model.config.change || self.random_loss.is_same_round(now, 2 * round_ns(model)) {
            return None;
        }
        let before = model.probes.median_ns(now.saturating_sub(model.probes.base_ns() + SIGHT.standing_ns))?;
        let usual = model.probes.median_ns(now.saturating_sub(PARAMS.usual_ns))?;
        let queue = before as f64 > usual as f64 + PARAMS.above_usual * model.probes.noise_ns() as f64;
        if queue || model.recent_bps(now)? >= PARAMS.held_back * self.capacity.trained {
            self.random_loss.explained();
            return None;
        }
        if self.random_loss.unexplained(now, model) < PARAMS.rounds {
            return None;
        }
        self.change_sender(model);
        Some(Why::RandomLoss)
    }
}
