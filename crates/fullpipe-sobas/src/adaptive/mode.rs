//! The states of the adaptive algorithm, each with the data that it owns.

use crate::event::State;

/// A state with its data.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mode {
    Estimate(Estimate),
    Start,
    Hold,
    Follow(Follow),
    Drain(Drain),
    Yield(Yield),
    Disabled(Disabled),
    Unlimited(Unlimited),
    Lossy(Lossy),
}

impl Mode {
    /// The state's name in the record.
    pub fn state(&self) -> State {
        match self {
            Mode::Estimate(_) => State::Estimate,
            Mode::Start => State::Start,
            Mode::Hold => State::Hold,
            Mode::Follow(_) => State::Follow,
            Mode::Drain(_) => State::Drain,
            Mode::Yield(_) => State::Yield,
            Mode::Disabled(_) => State::Disabled,
            Mode::Unlimited(_) => State::Free,
            Mode::Lossy(_) => State::Lossy,
        }
    }
}

/// Packet trains are on their way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Estimate {
    /// When the transfer began.
    pub began: u64,
}

/// The rate follows what is available, by a short standing queue and by rate probes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Follow {
    /// When the next decision is due.
    pub next: u64,
    /// The rate probe under way.
    pub probe: Option<RateProbe>,
    /// When a queue last stood, and its delay in seconds.
    pub last_queue: Option<(u64, f64)>,
    /// Whether the record already says that no more is to be had.
    pub told_full: bool,
    /// Rate probes in a row that raised no queue.
    pub passed: usize,
    /// Rate before the last rate probe that raised no queue, bit/s. The sender must have filled it before the next probe.
    pub settled: f64,
}

impl Follow {
    /// Follows, with the first decision at `next`.
    pub fn new(next: u64) -> Follow {
        Follow { next, probe: None, last_queue: None, told_full: false, passed: 0, settled: 0.0 }
    }
}

/// A short rise of the rate, which finds out whether more of the path is free.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateProbe {
    /// Whether the rate is still raised.
    pub raised: bool,
    /// When the rate falls back.
    pub until: u64,
    /// When the outcome is judged.
    pub judge: u64,
    /// Bits sent in addition to the rate's.
    pub volume: f64,
    /// Rise, bit/s.
    pub extra: f64,
    /// Longest queue delay before, nanoseconds, including TCP's own bursts.
    pub longest_before: u64,
    /// Median queue delay before, nanoseconds.
    pub median_before: u64,
}

/// The rate is reduced until a queue has drained.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    /// When the queue has drained at the bottleneck.
    pub until: u64,
    /// Rate afterwards, bit/s.
    pub then: f64,
}

/// The rate is reduced to see whether that ends the loss of probes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Yield {
    /// When the effect is seen first.
    pub from: u64,
    /// Rate afterwards, bit/s.
    pub then: f64,
}

/// The path loses segments by itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lossy {
    /// When the effect of the last decision is seen.
    pub next: u64,
}

/// Nothing is limited, because others congest the path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Disabled {
    /// Since when no probe has been lost.
    pub clean_since: u64,
}

/// Nothing is limited: BBR or Scalable runs beside others, the path is too fast for trains, or its delay too noisy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unlimited {
    /// When it is judged; none if it stays so for good.
    pub judge: Option<u64>,
    /// Beside others that do not yield, it would have no more than this, bit/s.
    pub least: f64,
    /// With this rate or more there are no others, bit/s.
    pub alone: f64,
    /// Segments retransmitted until it began.
    pub retransmits: u64,
}
