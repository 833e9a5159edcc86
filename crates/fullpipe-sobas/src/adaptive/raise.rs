//! Raises of an estimate of the capacity that may be too low. A receiver takes in a train packet by packet, which may be slower
//! than a fast path brings it, where TCP's segments come many at a time. An estimate that is the rate of a usual link is that link's.

use crate::network_model::NetworkModel;

/// Rates of usual links that are fast enough to need a look, bit/s.
const LINKS: [f64; 3] = [2.5e9, 5e9, 10e9];
/// Bytes of an Ethernet frame besides its IP packet: header, checksum, preamble and gap, less what emulated links leave out.
const FRAMING_BYTES: f64 = 26.0;

/// How the estimate is raised.
struct Params {
    /// An estimate this near to the rate of a usual link is that link's: trains err by 2%, and framing is not known.
    near: f64,
    /// Trains that arrive at this rate or faster may have been slowed by the hosts, packets per second. A virtual machine takes in
    /// no more than a few hundred thousand.
    min_pps: f64,
    /// RTTs at the estimate, without a queue and without a loss, after which it is raised first, and nanoseconds besides.
    first_rtts: u64,
    first_ns: u64,
    /// First rise, as a fraction of the estimate. Each that raises no queue is followed by one twice as large.
    first_step: f64,
    /// Largest rise.
    max_step: f64,
}

/// Trains that arrive faster than this tell nothing of the path, packets per second: 12 Gb/s in packets of 1,500 bytes. Today's
/// hosts take in one or two million packets a second with one processor.
pub(super) const MAX_PPS: f64 = 1e6;

const PARAMS: Params =
    Params { near: 0.06, min_pps: 2e5, first_rtts: 10, first_ns: 500_000_000, first_step: 0.01, max_step: 0.25 };

/// The rises so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raise {
    /// When the next one is due; none while the transfer is not at the estimate.
    due: Option<u64>,
    /// The next rise, as a fraction.
    step: f64,
    /// The estimate before the last rise, bit/s, until the rise has shown no queue.
    before: Option<f64>,
    /// Whether a queue or a loss has ended them.
    over: bool,
}

impl Default for Raise {
    fn default() -> Raise {
        Raise { due: None, step: PARAMS.first_step, before: None, over: false }
    }
}

impl Raise {
    /// The transfer is not at the estimate.
    pub fn pause(&mut self) {
        self.due = None;
    }

    /// The next estimate of a transfer at the present one, `bps`, if it is due; `round_ns` later its effect is seen.
    pub fn next(&mut self, now: u64, model: &NetworkModel, round_ns: u64, bps: f64) -> Option<f64> {
        let pps = bps / model.packet_bits();
        if !is_fast(bps, model) || self.before.is_none() && is_of_a_link(pps, model) {
            return None;
        }
        let first = now + PARAMS.first_rtts * model.probes.base_ns() + PARAMS.first_ns;
        if self.over || now < *self.due.get_or_insert(first) {
            return None;
        }
        let raised = bps * (1.0 + self.step);
        self.step = (2.0 * self.step).min(PARAMS.max_step);
        (self.before, self.due) = (Some(bps), Some(now + 2 * round_ns));
        Some(raised)
    }

    /// A queue or a loss has shown itself: if there was a rise, there is no further one. Returns the last estimate before it.
    pub fn ended(&mut self) -> Option<f64> {
        let before = self.before.take();
        self.over |= before.is_some();
        before
    }
}

/// Whether trains that arrive at this rate, bit/s, may have been slowed by the hosts.
pub(super) fn is_fast(bps: f64, model: &NetworkModel) -> bool {
    bps / model.packet_bits() >= PARAMS.min_pps
}

/// Whether a path that passes this many train packets per second is as fast as a usual link.
fn is_of_a_link(pps: f64, model: &NetworkModel) -> bool {
    let bps = pps * (f64::from(model.train_packet()) + FRAMING_BYTES) * 8.0;
    LINKS.iter().any(|link| (bps / link - 1.0).abs() < PARAMS.near)
}
