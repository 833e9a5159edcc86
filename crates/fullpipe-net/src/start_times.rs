//! What a seed decides: when each stream starts.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Starting instants of `n` streams, nanoseconds after the run's zero, each drawn uniformly from
/// one round-trip time. Streams of one seed start alike however many follow them.
pub(crate) fn starts(seed: u64, n: u16, rtt_ns: u64) -> Vec<u64> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    (0..n).map(|_| (rng.random::<f64>() * rtt_ns as f64) as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides() {
        let ten = starts(7, 10, 183_000_000);
        assert_eq!(ten, starts(7, 10, 183_000_000));
        assert_eq!(ten[..4], starts(7, 4, 183_000_000));
        assert_ne!(ten, starts(8, 10, 183_000_000));
        assert!(ten.iter().all(|&t| t < 183_000_000));
    }
}
