//! The paper's algorithm: Figures 7 and 8. It has six states and sets the window alone.
//!
//! ```text
//!  1 ──estimate C', S = 1.2·C'·T──▶ 2 ──rate drop──▶ 3
//!                                   │                │
//!                                   └─buffer limited─┴──▶ 4 ⟲ each T: S += MSS   (both edges S += MSS too)
//!  2 ──flat-rate──────────────────────┐
//!  3, 4 ──flat-rate, const-rate-drop──┴──▶ 5: S = R·T, or 6: S = maximum if the path is congested
//! ```
//!
//! Where the paper is silent, this implementation chooses:
//!
//! - It tests for a congested path when one of the two signatures appears (Figure 7), not before. Otherwise the paper's own
//!   transfer to Lulea, which lost packets in slow start and was sized after 10 s, would have ended in state 6.
//! - After a const-rate-drop, R is the rate before the drop. The rate after it shows how far TCP backed off, not what the
//!   path carries.

use crate::event::{State, Why};
use crate::network_model::{NetworkModel, START_FACTOR};
use crate::throughput::{DELAYED_ACK_GROWTH, FLAT_COUNT, FLAT_SLOW_START_COUNT};
use crate::trains::Dispersion;

/// Growth of the window per RTT in slow start with delayed ACKs, as a fraction of the window (Appendix).
const SLOW_START_GROWTH: f64 = 0.5;
/// The window counts as the limit once R·T reaches this fraction of S, unless the sender tells what limits it.
const NEAR_WINDOW: f64 = 0.95;

/// The paper's state machine.
#[derive(Debug, Clone)]
pub(crate) struct Paper {
    pub state: State,
    /// Window that is wanted, bytes.
    pub window: f64,
    /// When the transfer began.
    began: u64,
    /// When the window grew last.
    grown: u64,
}

impl Paper {
    pub fn new(now: u64, largest: u64) -> Paper {
        Paper { state: State::Estimate, window: largest as f64, began: now, grown: now }
    }

    fn enter(&mut self, state: State, why: Why) -> Option<Why> {
        self.state = state;
        Some(why)
    }

    /// Takes one step. Returns the reason if the state has changed.
    pub fn step(&mut self, now: u64, model: &mut NetworkModel) -> Option<Why> {
        let rtt = model.probes.average_ns();
        let measured = model.windows.step(now, rtt as u64, &mut model.bytes);
        match self.state {
            State::Estimate => self.estimate(now, model, rtt),
            State::SlowStart | State::Avoidance | State::Growing => {
                let limited = self.limited(model, measured.map(|m| m.bps), rtt);
                measured.and_then(|m| self.signature(model, m.bps, rtt)).or_else(|| self.grow(now, model, limited, rtt))
            }
            _ => None,
        }
    }

    /// Waits for the packet trains, and sets the first window.
    fn estimate(&mut self, now: u64, model: &NetworkModel, rtt: f64) -> Option<Why> {
        match model.trains.dispersion() {
            Dispersion::Known { mean, .. } if model.trains.done() => {
                let capacity = model.payload_bps(mean);
                self.window = model.fit(START_FACTOR * capacity / 8.0 * rtt * 1e-9);
                self.enter(State::SlowStart, Why::Trains)
            }
            _ if model.trains_are_over(self.began, now) => self.enter(State::SlowStart, Why::NoTrains),
            _ => None,
        }
    }

    /// Whether the window limits the transfer.
    fn limited(&self, model: &NetworkModel, bps: Option<f64>, rtt: f64) -> bool {
        match model.buffer_limited {
            Some(limited) => limited,
            None => bps.is_some_and(|bps| bps / 8.0 * rtt * 1e-9 >= NEAR_WINDOW * self.window),
        }
    }

    /// Looks for the signatures of a saturated path in the throughput.
    fn signature(&mut self, model: &NetworkModel, bps: f64, rtt: f64) -> Option<Why> {
        let t = rtt * 1e-9;
        let (count, growth) = match self.state {
            State::SlowStart => (FLAT_SLOW_START_COUNT, SLOW_START_GROWTH * bps / t),
            _ => (FLAT_COUNT, DELAYED_ACK_GROWTH * model.segments() * 8.0 / t / t),
        };
        let flat = model.windows.flat(count, growth).then_some((Why::Flat, bps));
        let drop = model.windows.constant_then_drop().filter(|_| self.state != State::SlowStart);
        if let Some((why, rate)) = flat.or(drop.map(|rate| (Why::ConstantThenDrop, rate))) {
            if model.probes.congested() {
                self.window = model.config.largest as f64;
                return self.enter(State::Disabled, Why::Congested);
            }
            self.window = model.fit(rate / 8.0 * t);
            return self.enter(State::Sized, why);
        }
        if self.state == State::SlowStart && model.windows.drop() {
            return self.enter(State::Avoidance, Why::Drop);
        }
        None
    }

    /// Grows the window where it limits the transfer.
    fn grow(&mut self, now: u64, model: &NetworkModel, limited: bool, rtt: f64) -> Option<Why> {
        let due = now.saturating_sub(self.grown) as f64 > rtt;
        if self.state == State::Growing {
            if due {
                self.window = model.fit(self.window + model.segments());
                self.grown = now;
            }
            return None;
        }
        if !limited {
            return None;
        }
        self.window = model.fit(self.window + model.segments());
        self.grown = now;
        self.enter(State::Growing, Why::BufferLimited)
    }
}
