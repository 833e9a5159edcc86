//! Trains that measure the capacity anew, where the path has become faster: another route, or another circuit.
//!
//! While the transfer has all of the capacity that is known, trains ask now and then whether half as much again is free
//! beside it. They are short, since a queue of 64 KB must hold them where nothing is free. Only if they pass do trains back to
//! back measure the capacity as at the start.

use super::params::{RATE, SIGHT};
use crate::network_model::NetworkModel;
use crate::trains::{Dispersion, MIN_PACED_PACKETS, TRAIN_COUNT};

/// How often trains ask, and what is believed.
struct Params {
    /// Least time between questions: nanoseconds, RTTs, and multiples of the time that the trains of one need.
    min_wait_ns: u64,
    min_wait_rtts: u64,
    min_wait_trains: u64,
    /// Factor for the time in which a train drains beside the transfer, where nothing else is free.
    apart: f64,
    /// Rate that is asked for, as a fraction of the capacity.
    more: f64,
    /// The capacity has grown if trains measure this many times as much.
    grown: f64,
    /// The time doubles, up to this many times, after each measurement that found no more.
    max_patience: u64,
}

const PARAMS: Params = Params {
    min_wait_ns: 1_000_000_000,
    min_wait_rtts: 5,
    min_wait_trains: 4,
    apart: 1.5,
    more: 0.5,
    grown: 1.1,
    max_patience: 32,
};

/// Where the next measurement stands.
#[derive(Debug, Clone, Copy, Default)]
enum Stage {
    /// The transfer does not have all of the capacity.
    #[default]
    Paused,
    /// Trains ask from this instant on.
    Waiting(u64),
    /// Trains ask for this rate, bit/s. Answers are awaited until an instant.
    Asking { until: u64, more: f64 },
    /// Trains measure the capacity. Answers are awaited until an instant.
    Measuring { until: u64 },
}

/// Questions whether the path has become faster.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remeasure {
    stage: Stage,
    /// Factor for the time between questions.
    patience: u64,
    /// Until when the queue of the last train that asked may stand.
    queued_until: u64,
}

impl Default for Remeasure {
    fn default() -> Remeasure {
        Remeasure { stage: Stage::Paused, patience: 1, queued_until: 0 }
    }
}

impl Remeasure {
    /// The transfer does not have all of the capacity.
    pub fn pause(&mut self) {
        self.stage = Stage::Paused;
    }

    /// Rate of the trains that ask whether more is free, bit/s, while they ask.
    pub fn asking_bps(&self) -> Option<f64> {
        if let Stage::Asking { more, .. } = self.stage { Some(more) } else { None }
    }

    /// Least time between two trains that ask, nanoseconds, beside a transfer that has all of the known capacity, bit/s.
    pub fn apart_ns(&self, model: &NetworkModel, known: f64) -> u64 {
        if self.asking_bps().is_some() { apart_ns(model, known) } else { 0 }
    }

    /// Delay of the queue that trains which ask may leave, seconds, on a path of the known capacity, bit/s.
    pub fn queue_s(&self, now: u64, model: &NetworkModel, known: f64) -> f64 {
        if now < self.queued_until { MIN_PACED_PACKETS * model.packet_bits() / known.max(1.0) } else { 0.0 }
    }

    /// Whether trains back to back measure the capacity.
    pub fn is_measuring(&self) -> bool {
        matches!(self.stage, Stage::Measuring { .. })
    }

    /// Goes on with a transfer that has all of the known capacity, bit/s. Returns another one, and whether it is sure, if trains
    /// have found it.
    pub fn step(&mut self, now: u64, model: &mut NetworkModel, known: f64) -> Option<(f64, bool)> {
        let t = model.probes.base_ns();
        let trains_ns = TRAIN_COUNT as u64 * apart_ns(model, known);
        let answers_ns = 3 * t + 2 * SIGHT.standing_ns;
        let wait =
            self.patience * PARAMS.min_wait_ns.max(PARAMS.min_wait_rtts * t).max(PARAMS.min_wait_trains * trains_ns);
        match self.stage {
            Stage::Paused => self.stage = Stage::Waiting(now.saturating_add(wait)),
            Stage::Waiting(due) if now >= due => {
                // Few packets, as this happens again and again: 24 KB.
                model.trains.ask(MIN_PACED_PACKETS);
                let more = PARAMS.more * known;
                let until = now + trains_ns + answers_ns;
                (self.stage, self.queued_until) = (Stage::Asking { until, more }, until + apart_ns(model, known));
            }
            Stage::Asking { until, .. } if model.trains.all_paced_arrived() || now >= until => {
                self.stage = if model.trains.fitted() {
                    model.trains.measure_again();
                    // The first of these waits until the last that asked has drained.
                    Stage::Measuring { until: now + apart_ns(model, known) + answers_ns }
                } else {
                    Stage::Waiting(now.saturating_add(wait))
                };
            }
            Stage::Measuring { until } if model.trains.done() || now >= until => {
                self.stage = Stage::Paused;
                if let Dispersion::Known { capacity, sure, .. } = model.trains.dispersion()
                    && model.payload_bps(capacity) >= PARAMS.grown * known
                {
                    self.patience = 1;
                    return Some((model.payload_bps(capacity), sure));
                }
                self.patience = (2 * self.patience).min(PARAMS.max_patience);
            }
            _ => {}
        }
        None
    }
}

/// Time between two trains, nanoseconds, in which the first drains, if only what the transfer leaves of the capacity is free.
fn apart_ns(model: &NetworkModel, known: f64) -> u64 {
    let free = (1.0 - RATE.of_capacity) * known.max(1.0);
    (PARAMS.apart * MIN_PACED_PACKETS * model.packet_bits() / free * 1e9) as u64
}
