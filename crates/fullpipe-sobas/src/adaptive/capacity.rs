//! The capacity of the path, as far as it is known.

use super::params::RATE;

/// How the estimate is corrected.
struct Params {
    /// Factor for the estimate at a loss while the transfer runs at the capacity.
    loss_cut: f64,
    /// Least fraction of the trains' estimate to which losses may lower it. Trains measure to 2%, and one `loss_cut` may go 1%
    /// beyond. Losses below that are chance, however many there are.
    min_of_trained: f64,
    /// A queue at or above this fraction of the trains' estimate corrects it. A queue at less shows other traffic.
    corrects: f64,
}

const PARAMS: Params = Params { loss_cut: 0.99, min_of_trained: 0.97, corrects: 0.97 };

/// The capacity of the path, bit/s of payload.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Capacity {
    /// The present estimate.
    pub bps: Option<f64>,
    /// The trains' estimate; 0 without one.
    pub trained: f64,
    /// Whether the estimate is an upper limit, above which no rate is tried.
    pub sure: bool,
}

impl Capacity {
    /// The trains have measured it.
    pub fn measured(bps: f64, sure: bool) -> Capacity {
        Capacity { bps: Some(bps), trained: bps, sure }
    }

    /// Highest rate to try, bit/s.
    pub fn cap(&self) -> f64 {
        if self.sure { self.bps.map_or(f64::INFINITY, |bps| RATE.of_capacity * bps) } else { f64::INFINITY }
    }

    /// Fraction of the capacity that a rate is; 1 if either is unknown.
    pub fn part(&self, rate: Option<f64>) -> f64 {
        let (Some(rate), Some(bps)) = (rate, self.bps) else { return 1.0 };
        (rate / bps.max(1.0)).clamp(0.0, 1.0)
    }

    /// Segments were lost while the transfer ran at the capacity. It was overestimated, and the queue is too shallow to show
    /// that first.
    pub fn lost(&mut self) {
        self.bps = self.bps.map(|bps| (PARAMS.loss_cut * bps).max(PARAMS.min_of_trained * self.trained));
    }

    /// This rate came through a standing queue.
    pub fn queued(&mut self, bps: f64) {
        match self.bps {
            Some(known) if self.sure && bps >= PARAMS.corrects * self.trained => self.bps = Some(known.min(bps)),
            Some(_) if self.sure => {}
            known => self.bps = Some(known.unwrap_or(0.0).max(bps)),
        }
    }
}
