//! The proof of a token that a client sends before TLS, and its check.
//!
//! A proof is good for 15 minutes around the time in it, and once: whoever has seen it on the path and sends it
//! again has shown nothing. A client whose clock is further off is treated as one without a proof, and is served all
//! the same.

use std::collections::BTreeSet;

use fullpipe_net::preface::{LEN, Preface};
use fullpipe_net::wire::ProofKey;
use rand::RngExt;

/// Largest difference between the two clocks, seconds.
const MOST_AGE_S: u64 = 15 * 60;
/// Proofs that are remembered. Only those who know a token can fill this; then further proofs count for nothing until
/// the oldest are past their age.
const MOST_REMEMBERED: usize = 1 << 16;

fn key(of: &ProofKey) -> [u8; 32] {
    blake3::derive_key("fullpipe 2026 greeting of a client", &of.0)
}

fn token_id(of: &ProofKey) -> [u8; 8] {
    let whole = blake3::derive_key("fullpipe 2026 name of a token", &of.0);
    std::array::from_fn(|i| whole[i])
}

/// A new proof. `now_s` is Unix time.
#[must_use]
pub fn prove(token: &ProofKey, now_s: u64) -> [u8; LEN] {
    let nonce = rand::rng().random();
    let mut preface = Preface { token: token_id(token), time_s: now_s, nonce, mac: [0; 32] };
    preface.mac = *blake3::keyed_hash(&key(token), &preface.hashed()).as_bytes();
    preface.to_bytes()
}

/// Whether a preface proves that its sender has the token of this key. The age and the nonce are not looked at.
#[must_use]
pub fn proves(preface: &Preface, token: &ProofKey) -> bool {
    // blake3's comparison takes the same time whatever differs.
    preface.token == token_id(token)
        && blake3::keyed_hash(&key(token), &preface.hashed()) == blake3::Hash::from_bytes(preface.mac)
}

/// The proofs that a server has seen, as long as they are good.
#[derive(Debug, Default)]
pub struct Greetings {
    /// Time in the proof, Unix time in seconds, and nonce.
    seen: BTreeSet<(u64, [u8; 16])>,
}

impl Greetings {
    /// Whether a preface is a proof ([`proves`], which `is_proof` asks of the server's tokens), made now, and seen for the
    /// first time. `now_s` is Unix time.
    pub fn accept(&mut self, preface: &Preface, is_proof: impl FnOnce() -> bool, now_s: u64) -> bool {
        if preface.time_s.abs_diff(now_s) > MOST_AGE_S || !is_proof() {
            return false;
        }
        // The oldest are first, whatever order they came in.
        let good = (now_s.saturating_sub(MOST_AGE_S), [0; 16]);
        self.seen = self.seen.split_off(&good);
        self.seen.len() < MOST_REMEMBERED && self.seen.insert((preface.time_s, preface.nonce))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_800_000_000;

    const OURS: ProofKey = ProofKey([1; 32]);

    fn proof(at_s: u64) -> Preface {
        Preface::from_bytes(&prove(&OURS, at_s))
    }

    fn accept(greetings: &mut Greetings, preface: &Preface, now_s: u64) -> bool {
        greetings.accept(preface, || proves(preface, &OURS), now_s)
    }

    #[test]
    fn a_proof_is_good_once_and_for_its_token() {
        let mut greetings = Greetings::default();
        let other = ProofKey([2; 32]);
        let first = proof(NOW_S);
        assert!(!greetings.accept(&first, || proves(&first, &other), NOW_S), "another token");
        assert!(accept(&mut greetings, &first, NOW_S));
        assert!(!accept(&mut greetings, &first, NOW_S + 1), "replayed");
        assert!(accept(&mut greetings, &proof(NOW_S), NOW_S + 1), "a new one");
        assert!(!accept(&mut greetings, &first, NOW_S + MOST_AGE_S), "replayed late");
        assert!(!accept(&mut greetings, &first, NOW_S + MOST_AGE_S + 1), "replayed too late");
    }

    #[test]
    fn each_bit_counts() {
        let good = prove(&OURS, NOW_S);
        for bit in 8..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!accept(&mut Greetings::default(), &Preface::from_bytes(&bad), NOW_S), "bit {bit}");
        }
    }

    #[test]
    fn a_clock_may_be_off_by_a_quarter_of_an_hour() {
        for (at_s, good) in [
            (NOW_S - MOST_AGE_S, true),
            (NOW_S + MOST_AGE_S, true),
            (NOW_S - MOST_AGE_S - 1, false),
            (NOW_S + MOST_AGE_S + 1, false),
            (0, false),
            (u64::MAX, false),
        ] {
            let accepted = accept(&mut Greetings::default(), &proof(at_s), NOW_S);
            assert_eq!(accepted, good, "{at_s}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_and_forgotten_in_time() {
        let mut greetings = Greetings::default();
        for n in 0..MOST_REMEMBERED as u128 {
            greetings.seen.insert((NOW_S, n.to_le_bytes()));
        }
        assert!(!accept(&mut greetings, &proof(NOW_S), NOW_S), "full");
        let later = NOW_S + MOST_AGE_S + 1;
        assert!(accept(&mut greetings, &proof(later), later));
        assert_eq!(greetings.seen.len(), 1);
    }
}
