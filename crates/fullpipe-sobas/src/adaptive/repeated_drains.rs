//! Drains that change nothing: what cannot be drained is no queue.

/// When drains count as having changed nothing.
struct Params {
    /// A queue below this fraction of what it was has shrunk.
    shrunk: f64,
    /// Drains in a row that change nothing before the path's own delay counts as changed.
    drains: u32,
    /// Factor for the rate to aim at after each drain that has changed nothing.
    shy: f64,
}

const PARAMS: Params = Params { shrunk: 0.7, drains: 4, shy: 0.97 };

/// Drains in a row that have changed nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RepeatedDrains {
    count: u32,
    /// Queue that the first of them found, seconds.
    queue: f64,
    /// Rate that was aimed at before, bit/s.
    rate: Option<f64>,
    /// Rate that the path gave before, bit/s.
    given: f64,
}

impl RepeatedDrains {
    /// Queue that drains have not shortened, seconds; none while none was needed.
    pub fn standing(&self) -> Option<f64> {
        (self.count > 0).then_some(self.queue)
    }

    /// Rate that was aimed at before the drains, bit/s.
    pub fn earlier_rate(&self) -> Option<f64> {
        self.rate
    }

    /// Whether a queue of this many seconds cannot be drained.
    pub fn are_in_vain(&self, queue: f64) -> bool {
        self.count >= PARAMS.drains && queue >= PARAMS.shrunk * self.queue
    }

    /// A drain of a queue begins, which the path serves at `given` bit/s while `rate` is aimed at. Returns the rate to
    /// believe in, bit/s.
    pub fn begin(&mut self, queue: f64, given: f64, rate: Option<f64>) -> f64 {
        if self.count == 0 || queue < PARAMS.shrunk * self.queue {
            // A queue that has shrunk is our own and is being dealt with.
            *self = RepeatedDrains { count: 0, queue, rate, given };
        } else if self.queue < PARAMS.shrunk * queue {
            // Other traffic has come meanwhile, or the first look was too early.
            *self = RepeatedDrains { count: 0, queue, given, ..*self };
        }
        self.count += 1;
        // What has arrived since is what the drains let through, not what the path can give. But it was a little too much if a
        // drain that aimed at it has not helped.
        given.max(self.given * PARAMS.shy.powi(self.count.saturating_sub(1) as i32))
    }
}
