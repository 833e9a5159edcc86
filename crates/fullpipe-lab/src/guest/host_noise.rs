//! Models host noise: pauses of a host's programs and of the processes that they start, as on a busy or badly scheduled machine.
//!
//! Pauses come as a Poisson process, one a second on average; their lengths are exponential with the
//! given mean. A paused host's kernel goes on: it acknowledges what arrives until its buffers are full,
//! as a real one does. Drawn from the run's seed, for each host apart.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Mean time from the end of one pause to the beginning of the next, ns.
const MEAN_GAP_NS: f64 = 1e9;

/// The pauses of one host.
pub(super) struct Noise {
    rng: Pcg64Mcg,
    mean_ns: f64,
    next_ns: u64,
    paused: bool,
}

impl Noise {
    pub(super) fn new(seed: u64, mean_ns: u64, zero_ns: u64) -> Noise {
        let mut noise =
            Noise { rng: Pcg64Mcg::seed_from_u64(seed), mean_ns: mean_ns as f64, next_ns: zero_ns, paused: false };
        noise.next_ns += noise.exponential(MEAN_GAP_NS);
        noise
    }

    /// Returns when the host's state changes next, ns.
    pub(super) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Whether the host pauses.
    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Changes the state; returns whether the host pauses now.
    pub(super) fn step(&mut self) -> bool {
        self.paused = !self.paused;
        self.next_ns += self.exponential(if self.paused { self.mean_ns } else { MEAN_GAP_NS });
        self.paused
    }

    fn exponential(&mut self, mean: f64) -> u64 {
        let uniform: f64 = self.rng.random();
        (-mean * (1.0 - uniform).ln()).max(1.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pause_a_second_of_the_mean_length() {
        let mut noise = Noise::new(1, 10_000_000, 0);
        let (mut paused, mut pauses) = (0, 0);
        while noise.next_ns() < 10_000_000_000_000 {
            let from = noise.next_ns();
            if noise.step() {
                pauses += 1;
                paused += noise.next_ns() - from;
            }
        }
        assert!((9_600..10_200).contains(&pauses), "{pauses}");
        let mean = paused / pauses;
        assert!((9_500_000..10_500_000).contains(&mean), "{mean}");
    }
}
