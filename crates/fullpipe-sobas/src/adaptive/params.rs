//! Parameters that several states of the adaptive algorithm share.
//!
//! Parameters here and in the other files that cite neither the paper nor a kernel file are fullpipe's own. They were found
//! by experiment in the testbed, on the paths of `docs/explanation/sobas-results.md` and with changing cross traffic
//! (`lab/sobas/changes.py`).

use crate::network_model::FRAMING_BYTES;

/// A pacing rate that no path reaches, bit/s. It makes TCP pace at its own rate, twice the window per RTT in slow start
/// (`tcp_pacing_ss_ratio`), so that an acknowledgment does not release a burst.
pub const SMOOTH_PACING_BPS: u64 = 1_000_000_000_000;
/// Largest burst that a paced sender may hand to the line, bytes per stream: a quarter of a queue of 64 KB.
pub const MAX_BURST_BYTES: u32 = 16_384;

/// Pacing rate from the first byte on, until trains have measured the path, bit/s of payload in segments of `mss` bytes, each in a
/// packet of `packet` bytes. `assumed_bps` is the rate of the path as the user assumes it, bit/s on the line. On a long path Hybla and
/// Scalable would have filled its queue by the time the trains tell its rate.
#[must_use]
pub fn first_pacing_bps(assumed_bps: f64, mss: u32, packet: u32) -> f64 {
    let payload = f64::from(mss) / (f64::from(packet) + FRAMING_BYTES);
    (RATE.of_capacity * assumed_bps * payload).min(SMOOTH_PACING_BPS as f64)
}

/// How the rate relates to the capacity and to what is received.
pub(super) struct RateParams {
    /// Pacing rate as a fraction of the capacity. Five trains measure the capacity to 2%.
    pub of_capacity: f64,
    /// Pacing rate as a fraction of what the trains say is available. Trains are few, so this leaves more room.
    pub of_available: f64,
    /// TCP counts as started up once it receives this fraction of the rate.
    pub started: f64,
    /// A rate at or above this fraction of a limit counts as having reached the limit.
    pub filled: f64,
    /// Below this fraction of the pacing rate, the sender rather than the path limits what is received.
    pub sender_limited: f64,
    /// Fraction of the capacity below which the traffic of others is not told from chance.
    pub min_others: f64,
    /// Least share of the capacity to try, however much the others take. Trains are too few to exclude it.
    pub min_share: f64,
}

/// See [`RateParams`].
pub(super) const RATE: RateParams = RateParams {
    of_capacity: 0.98,
    of_available: 0.95,
    started: 0.95,
    filled: 0.97,
    sender_limited: 0.9,
    min_others: 0.08,
    min_share: 0.1,
};

/// A queue through which the path gives this fraction of the capacity or more is the transfer's own.
pub(super) const ALONE: f64 = 0.9;

/// How a queue is recognised.
pub(super) struct SightParams {
    /// A queue counts as standing if no probe of this period escaped it, nanoseconds: four probe intervals and a half.
    pub standing_ns: u64,
    /// The same period while TCP starts up or nothing is being tried, nanoseconds. TCP then doubles its window each RTT.
    pub standing_start_ns: u64,
    /// Shortest queue delay that is told from the noise of timestamps, seconds.
    pub visible_s: f64,
}

/// See [`SightParams`].
pub(super) const SIGHT: SightParams =
    SightParams { standing_ns: 45_000_000, standing_start_ns: 35_000_000, visible_s: 2e-4 };

/// The bursts that TCP sends.
pub(super) struct BurstParams {
    /// Largest burst of an unpaced sender, bytes (`GSO_LEGACY_MAX_SIZE`).
    pub unpaced_bytes: f64,
    /// Longest burst of any sender, seconds (`tcp_tso_autosize` with a `sk_pacing_shift` of 10).
    pub max_s: f64,
}

/// See [`BurstParams`].
pub(super) const BURSTS: BurstParams = BurstParams { unpaced_bytes: 65_536.0, max_s: 1e-3 };
