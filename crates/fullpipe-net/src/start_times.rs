//! Draws the start times of a run's streams from its seed.

use fullpipe_path::{Protocol, Transport};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Longest time within which streams start for the sake of their datagrams, ns.
const MAX_SPREAD_NS: u64 = 1_000_000_000;

/// Time within which streams start, ns: one round-trip time. Several streams of plain UDP take all the time between two datagrams
/// of a stream, of `datagram_bytes`, if that is longer, since else the datagrams of all would come together for as long as the run
/// lasts.
pub(crate) fn within_ns(transport: &Transport, datagram_bytes: u32, rtt_ns: u64) -> u64 {
    let Some(rate) = transport.pacing.filter(|_| transport.protocol() == Protocol::Udp && transport.streams > 1) else {
        return rtt_ns;
    };
    let between_ns =
        (u64::from(datagram_bytes) * 8 * u64::from(transport.streams)).saturating_mul(1_000_000_000) / rate.0.max(1);
    rtt_ns.max(between_ns.min(MAX_SPREAD_NS))
}

/// Returns when each of `n` streams starts, ns after the start of the run's clock. Each time is drawn uniformly from
/// `within_ns`. A stream's time depends on the seed and its number only, not on `n`.
pub(crate) fn starts(seed: u64, n: u16, within_ns: u64) -> Vec<u64> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    (0..n).map(|_| (rng.random::<f64>() * within_ns as f64) as u64).collect()
}

#[cfg(test)]
mod tests {
    use fullpipe_path::{Buffer, Rate};

    use super::*;

    #[test]
    fn a_seed_decides() {
        let ten = starts(7, 10, 183_000_000);
        assert_eq!(ten, starts(7, 10, 183_000_000));
        assert_eq!(ten[..4], starts(7, 4, 183_000_000));
        assert_ne!(ten, starts(8, 10, 183_000_000));
        assert!(ten.iter().all(|&t| t < 183_000_000));
    }

    #[test]
    fn datagrams_of_several_streams_are_spread() {
        let within = |cc: &str, streams, mbit: u64| {
            let (buffer, pacing) = (Buffer::Auto, Some(Rate(mbit * 1_000_000)));
            within_ns(&Transport { cc: cc.into(), streams, buffer, pacing, dscp: None, mss: None }, 9_000, 1_000_000)
        };
        assert_eq!([within("udp", 1, 100), within("cubic", 64, 100), within("udp", 64, 10_000)], [1_000_000; 3]);
        assert_eq!([within("udp", 64, 100), within("udp", 64, 1)], [46_080_000, MAX_SPREAD_NS]);
    }
}
