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
    /// A limit below this fraction of the trains' estimate is reached before the path's own: trains measure to 2%.
    below: f64,
    /// Rate as a fraction of an estimate that a queue has shown. That errs by a burst in a tenth of a second or more, and a rate
    /// that is a little too high makes such a queue again, which corrects it.
    of_shown: f64,
}

const PARAMS: Params = Params { loss_cut: 0.99, min_of_trained: 0.97, corrects: 0.97, below: 0.96, of_shown: 0.997 };

/// The capacity of the path, bit/s of payload.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Capacity {
    /// The present estimate.
    pub bps: Option<f64>,
    /// The trains' estimate; 0 without one.
    pub trained: f64,
    /// Whether the estimate is an upper limit, above which no rate is tried.
    pub sure: bool,
    /// Whether a queue of the transfer's own has shown it, without a loss since. It is known to a few thousandths then.
    pub is_shown: bool,
    /// Whether it is what the user allows: the path carries more.
    pub is_allowed: bool,
}

impl Capacity {
    /// The trains have measured it.
    pub fn measured(bps: f64, sure: bool) -> Capacity {
        Capacity { bps: Some(bps), trained: bps, sure, is_shown: false, is_allowed: false }
    }

    /// The trains have measured it, and no rate above `limit`, bit/s, is allowed. To the transfer, the path has no more then.
    pub fn within(bps: f64, sure: bool, limit: f64) -> Capacity {
        let most = limit / RATE.of_capacity;
        if most < PARAMS.below * bps {
            Capacity { is_allowed: true, ..Capacity::measured(most, true) }
        } else {
            Capacity::measured(bps, sure)
        }
    }

    /// Highest rate to try, bit/s.
    pub fn cap(&self) -> f64 {
        let part = if self.is_shown { PARAMS.of_shown } else { RATE.of_capacity };
        if self.sure { self.bps.map_or(f64::INFINITY, |bps| part * bps) } else { f64::INFINITY }
    }

    /// Fraction of the capacity that a rate is; 1 if either is unknown.
    pub fn part(&self, rate: Option<f64>) -> f64 {
        let (Some(rate), Some(bps)) = (rate, self.bps) else { return 1.0 };
        (rate / bps.max(1.0)).clamp(0.0, 1.0)
    }

    /// Segments were lost while the transfer ran at the capacity. It was overestimated, and the queue is too shallow to show
    /// that first. One that is only what is allowed overflows no queue.
    pub fn lost(&mut self) {
        if self.is_allowed {
            return;
        }
        self.is_shown = false;
        self.bps = self.bps.map(|bps| (PARAMS.loss_cut * bps).max(PARAMS.min_of_trained * self.trained));
    }

    /// This rate came through a standing queue.
    pub fn queued(&mut self, bps: f64) {
        match self.bps {
            Some(known) if self.sure && bps >= PARAMS.corrects * self.trained => {
                (self.bps, self.is_shown) = (Some(known.min(bps)), !self.is_allowed);
            }
            Some(_) if self.sure => {}
            known => self.bps = Some(known.unwrap_or(0.0).max(bps)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_correct_what_trains_measured_and_not_what_is_allowed() {
        for (limit, is_allowed) in [(f64::INFINITY, false), (0.97e9, false), (0.9e9, true), (1e6, true)] {
            let mut capacity = Capacity::within(1e9, false, limit);
            assert_eq!((capacity.is_allowed, capacity.sure), (is_allowed, is_allowed), "{limit}");
            let before = capacity.bps;
            assert!(!is_allowed || (capacity.cap() / limit - 1.0).abs() < 1e-9, "{limit}: {}", capacity.cap());
            capacity.lost();
            assert_eq!(capacity.bps == before, is_allowed, "{limit}");
        }
    }
}
