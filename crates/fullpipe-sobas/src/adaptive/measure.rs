//! Delays and rates that several states read from the network model.

use super::params::SIGHT;
use crate::network_model::NetworkModel;
use crate::probes::PROBE_INTERVAL_NS;

/// Time from an order to the return of its effect, nanoseconds. Without UDP the sender's report of its TCP replaces probes:
/// it is half a round trip older than a probe would be, and takes half a round trip to arrive.
pub(super) fn echo_ns(model: &NetworkModel) -> u64 {
    model.probes.base_ns() * if model.config.trains { 1 } else { 2 }
}

/// Time from an order until enough probes have shown its effect, nanoseconds. One decision is taken per such round.
pub(super) fn round_ns(model: &NetworkModel) -> u64 {
    echo_ns(model) + SIGHT.standing_ns
}

/// Rate that the path gave while its queue stood, bit/s.
pub(super) fn queued_bps(model: &NetworkModel, now: u64) -> Option<f64> {
    let longest = model.probes.base_ns().max(2 * SIGHT.standing_ns);
    let since = model.probes.busy_since()?.max(now.saturating_sub(longest));
    model.bytes.between(since, now)
}

/// Rate that the path gave before a loss, bit/s: the rate received while a queue stood for long enough, otherwise the
/// highest recent rate.
pub(super) fn given_bps(model: &NetworkModel, now: u64) -> Option<f64> {
    let stood = model.probes.busy_since().is_some_and(|since| now.saturating_sub(since) > SIGHT.standing_ns);
    queued_bps(model, now).filter(|_| stood).or_else(|| highest_bps(model, now))
}

/// Highest rate of the last three RTTs, bit/s. The latest rate is already lowered by the loss. Each rate is over a quarter
/// of an RTT, because a short queue overflows within that.
fn highest_bps(model: &NetworkModel, now: u64) -> Option<f64> {
    let t = (model.probes.base_ns() / 4).max(PROBE_INTERVAL_NS);
    let windows = (6 * model.probes.base_ns()).div_ceil(t).max(6);
    let rate = |i: u64| {
        let end = now.saturating_sub(i * t / 2);
        model.bytes.between(end.saturating_sub(t), end)
    };
    (0..windows).filter_map(rate).reduce(f64::max).filter(|bps| *bps > 0.0)
}

/// Longest queue delay of the last `over_ns` nanoseconds, seconds.
pub(super) fn longest_s(model: &NetworkModel, now: u64, over_ns: u64) -> f64 {
    model.probes.longest_ns(now.saturating_sub(over_ns)) as f64 * 1e-9
}

/// Longest queue delay before a loss that was reported just now, seconds.
pub(super) fn overflowed_s(model: &NetworkModel, now: u64) -> f64 {
    longest_s(model, now, 2 * model.probes.base_ns() + SIGHT.standing_ns)
}
