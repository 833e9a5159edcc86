//! Draws the start times of a run's streams from its seed.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Returns when each of `n` streams starts, ns after the start of the run's clock. Each time is drawn uniformly from one
/// round-trip time. A stream's time depends on the seed and its number only, not on `n`.
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
