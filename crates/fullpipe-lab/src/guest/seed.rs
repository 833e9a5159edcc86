//! Derives the seeds of the guest's generators from the job's seed.

use crate::job::End;

/// What a generator beside the kernel's draws.
#[derive(Debug, Clone, Copy)]
pub(super) enum Draws {
    /// The pauses of an end's programs.
    Pauses(End),
    /// What happens to packets after a change of the path; changes count from 1.
    Change(usize),
}

impl Draws {
    /// Returns the generator's seed. Neighbouring seeds of jobs share none of these.
    pub(super) fn seed(self, job: u64) -> u64 {
        let stream = match self {
            Draws::Pauses(end) => 1 << 32 | end as u64,
            Draws::Change(n) => 2 << 32 | n as u64,
        };
        splitmix64(splitmix64(job) ^ stream)
    }
}

/// One step of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators"). It maps no two numbers
/// to the same.
fn splitmix64(state: u64) -> u64 {
    let mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix64_is_as_published() {
        // First numbers of the generator that starts at 1234567, as in the published tests of other implementations.
        assert_eq!(splitmix64(1_234_567), 6_457_827_717_110_365_317);
    }

    #[test]
    fn no_two_generators_have_the_same_seed() {
        let of = |job: u64| {
            let changes = (1..10).map(Draws::Change);
            [Draws::Pauses(End::A), Draws::Pauses(End::B)].into_iter().chain(changes).map(move |draws| draws.seed(job))
        };
        let seeds: std::collections::BTreeSet<u64> = (0..1_000).flat_map(of).chain(0..1_000).collect();
        assert_eq!(seeds.len(), 12_000);
    }
}
