//! The paper's algorithm: Figures 7 and 8, six states, the window alone.
//!
//! ```text
//!  1 ──estimate C', S = 1.2·C'·T──▶ 2 ──rate drop──▶ 3
//!                                   │                │
//!                                   └─buffer limited─┴──▶ 4 ⟲ each T: S += MSS   (both edges S += MSS too)
//!  2 ──flat-rate──────────────────────┐
//!  3, 4 ──flat-rate, const-rate-drop──┴──▶ 5: S = R·T, or 6: S = maximum if the path is congested
//! ```
//!
//! Where the paper is silent: the congested path is looked for when one of the two signatures shows
//! (Figure 7), not before, or the paper's own Lulea transfer, which lost packets in slow start and was
//! sized at 10 s, would have ended in state 6; after a const-rate-drop R is the rate before the drop,
//! since the one after it says what TCP backed off to, not what the path carries.

use crate::Senses;
use crate::event::{State, Why};
use crate::throughput::{DELAYED_ACK_GROWTH, FLAT, FLAT_SLOW_START};
use crate::trains::Dispersion;

/// S = 1.2·C'·T at the start (Figure 8).
pub const START_FACTOR: f64 = 1.2;
/// Growth of the window in slow start with delayed ACKs, per RTT (Appendix: half of one window).
const SLOW_START_GROWTH: f64 = 0.5;
/// Without word from the sender: it is limited by the window once R·T comes this near to S.
const NEAR_WINDOW: f64 = 0.95;
/// No answer from trains in so many RTTs: none will come.
const PATIENCE_RTTS: u64 = 6;
/// And never sooner than this, nanoseconds: shorter RTTs than the hosts' own delays say little.
const PATIENCE_NS: u64 = 50_000_000;

/// When to stop waiting for trains that were first sent at `began`.
pub(crate) fn give_up_at(began: u64, rtt_ns: u64) -> u64 {
    began.saturating_add((PATIENCE_RTTS * rtt_ns).max(PATIENCE_NS))
}

/// The state machine.
#[derive(Debug, Clone)]
pub(crate) struct Paper {
    pub state: State,
    pub window: f64,
    began: u64,
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

    /// A step; why, if the state has changed.
    pub fn step(&mut self, now: u64, s: &mut Senses) -> Option<Why> {
        let rtt = s.probes.average_ns();
        let measured = s.windows.step(now, rtt as u64, &mut s.bytes);
        match self.state {
            State::Estimate => self.estimate(now, s, rtt),
            State::SlowStart | State::Avoidance | State::Growing => {
                let limited = self.limited(s, measured.map(|m| m.bps), rtt);
                measured.and_then(|m| self.signature(s, m.bps, rtt)).or_else(|| self.grow(now, s, limited, rtt))
            }
            _ => None,
        }
    }

    fn estimate(&mut self, now: u64, s: &Senses, rtt: f64) -> Option<Why> {
        match s.trains.dispersion() {
            Dispersion::Known { mean, .. } if s.trains.done() => {
                let capacity = s.payload_bps(mean);
                self.window = s.fit(START_FACTOR * capacity / 8.0 * rtt * 1e-9);
                self.enter(State::SlowStart, Why::Trains)
            }
            _ if !s.config.trains || s.trains.done() || now >= give_up_at(self.began, s.probes.base_ns()) => {
                self.enter(State::SlowStart, Why::NoTrains)
            }
            _ => None,
        }
    }

    fn limited(&self, s: &Senses, bps: Option<f64>, rtt: f64) -> bool {
        match s.buffer_limited {
            Some(limited) => limited,
            None => bps.is_some_and(|bps| bps / 8.0 * rtt * 1e-9 >= NEAR_WINDOW * self.window),
        }
    }

    fn signature(&mut self, s: &Senses, bps: f64, rtt: f64) -> Option<Why> {
        let t = rtt * 1e-9;
        let (count, growth) = match self.state {
            State::SlowStart => (FLAT_SLOW_START, SLOW_START_GROWTH * bps / t),
            _ => (FLAT, DELAYED_ACK_GROWTH * s.segments() * 8.0 / t / t),
        };
        let flat = s.windows.flat(count, growth).then_some((Why::Flat, bps));
        let drop = s.windows.constant_then_drop().filter(|_| self.state != State::SlowStart);
        if let Some((why, rate)) = flat.or(drop.map(|rate| (Why::ConstantThenDrop, rate))) {
            if s.probes.congested() {
                self.window = s.config.largest as f64;
                return self.enter(State::Disabled, Why::Congested);
            }
            self.window = s.fit(rate / 8.0 * t);
            return self.enter(State::Sized, why);
        }
        if self.state == State::SlowStart && s.windows.drop() {
            return self.enter(State::Avoidance, Why::Drop);
        }
        None
    }

    fn grow(&mut self, now: u64, s: &Senses, limited: bool, rtt: f64) -> Option<Why> {
        let due = now.saturating_sub(self.grown) as f64 > rtt;
        if self.state == State::Growing {
            if due {
                self.window = s.fit(self.window + s.segments());
                self.grown = now;
            }
            return None;
        }
        if !limited {
            return None;
        }
        self.window = s.fit(self.window + s.segments());
        self.grown = now;
        self.enter(State::Growing, Why::BufferLimited)
    }
}
