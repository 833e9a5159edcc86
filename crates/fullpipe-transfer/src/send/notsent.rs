//! Limits how much unsent data waits in each stream's socket (TCP_NOTSENT_LOWAT): enough to keep TCP busy while the
//! stream's thread does something else, and no more. Data that wait in a socket cannot move to a faster stream.

use std::sync::Arc;

use fullpipe_net::socket::UNSENT;
use fullpipe_net::stream::{Observation, StreamHandle};

/// Least limit, bytes.
const MIN_LIMIT_BYTES: u32 = 256 << 10;
/// Limits of all streams together until their rates are known, bytes. Slow start doubles a rate several times between two
/// adjustments.
const FIRST_LIMITS_BYTES: u32 = 16 << 20;
/// Largest limit of one stream until its rate is known, bytes.
const FIRST_LIMIT_BYTES: u32 = 4 << 20;
/// The limit as the time in which the stream sends so much, seconds.
const LIMIT_S: f64 = 0.25;
/// The same near the end of the transfer, when it decides how long the other streams wait for the slowest, seconds.
const LAST_LIMIT_S: f64 = 0.02;

/// The limits of all streams of a sending end.
pub(crate) struct NotsentLimit {
    /// The limit last set on each stream, bytes; `None` if the kernel refused it.
    set: Vec<Option<u32>>,
}

impl NotsentLimit {
    /// Sets the first limit on new streams.
    pub fn new(streams: &[Arc<dyn StreamHandle>]) -> NotsentLimit {
        let first = first_limit(streams.len());
        NotsentLimit { set: streams.iter().map(|stream| set(&**stream, first)).collect() }
    }

    /// Adjusts the limits; call it several times a second. `seen` is what each stream's transport tells, and `rest` the bytes
    /// that no stream has taken, if nothing else will be added.
    pub fn adjust(&mut self, streams: &[Arc<dyn StreamHandle>], seen: &[Option<Observation>], rest: Option<u64>) {
        let rate = |one: &Option<Observation>| one.as_ref().and_then(|one| one.delivery_bytes_per_s).unwrap_or(0);
        // Less than a second of data is left: each stream now has its last data in its socket.
        let near_end =
            streams.len() > 1 && rest.is_some_and(|rest| rest < seen.iter().map(rate).fold(0, u64::saturating_add));
        let first = first_limit(streams.len());
        for ((stream, one), now) in streams.iter().zip(seen).zip(&mut self.set) {
            let wanted = wanted(rate(one), near_end, first);
            if now.is_some_and(|now| now != wanted) {
                *now = set(&**stream, wanted);
            }
        }
    }
}

fn set(stream: &dyn StreamHandle, bytes: u32) -> Option<u32> {
    stream.set_max_unsent(bytes).ok().map(|()| bytes)
}

/// The limit of each of so many streams until its rate is known.
fn first_limit(streams: usize) -> u32 {
    (FIRST_LIMITS_BYTES / streams.max(1) as u32).clamp(MIN_LIMIT_BYTES, FIRST_LIMIT_BYTES)
}

/// The limit for a rate in bytes per second; zero means that the rate is not known, and the limit is `first`.
fn wanted(rate: u64, near_end: bool, first: u32) -> u32 {
    let worth = |share| ((rate as f64 * share) as u32).clamp(MIN_LIMIT_BYTES, UNSENT);
    match rate {
        0 => first,
        // Exact, so that all streams end at the same time.
        _ if near_end => worth(LAST_LIMIT_S),
        // In steps, so that not every adjustment takes a system call.
        _ => worth(LIMIT_S).next_power_of_two(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_follows_the_rate() {
        for (mbit, mib) in [(0.0, 4.0), (3.0, 0.25), (100.0, 4.0), (1_000.0, 32.0), (100_000.0, 32.0)] {
            assert_eq!(f64::from(wanted((mbit * 125e3) as u64, false, FIRST_LIMIT_BYTES)) / 1048576.0, mib, "{mbit}");
        }
        for (mbit, bytes) in [
            (0.0, FIRST_LIMIT_BYTES),
            (3.0, MIN_LIMIT_BYTES),
            (1_000.0, 2_500_000),
            (4_000.0, 10_000_000),
            (1e5, UNSENT),
        ] {
            assert_eq!(wanted((mbit * 125e3) as u64, true, FIRST_LIMIT_BYTES), bytes, "{mbit}");
        }
    }
}
