//! The proof of a token that a client sends before TLS, and its check.
//!
//! A proof carries the time at which it was made. The server accepts it once, and only if its own clock differs from
//! that time by at most 15 minutes, so an attacker who copies a proof on the path gains nothing by replaying it. A
//! client whose clock is further off counts as a client without a proof; the server still serves it.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use fullpipe_net::preface::{LEN, Preface};
use fullpipe_net::wire::ProofKey;
use rand::RngExt;

/// Largest accepted difference between the time in a proof and the server's clock, in seconds.
const MAX_CLOCK_DIFFERENCE_S: u64 = 15 * 60;
/// Largest number of accepted proofs that a server remembers. When this many are remembered, the server rejects further
/// proofs until the oldest expire. Only holders of a token can bring this about.
const MAX_REMEMBERED_PROOFS: usize = 1 << 16;

/// Derives the key that authenticates proofs of a token.
fn key(of: &ProofKey) -> [u8; 32] {
    blake3::derive_key("fullpipe 2026 greeting of a client", &of.0)
}

/// Derives the public identifier of a token: the first 8 bytes of a hash.
fn token_id(of: &ProofKey) -> [u8; 8] {
    let whole = blake3::derive_key("fullpipe 2026 name of a token", &of.0);
    std::array::from_fn(|i| whole[i])
}

/// Makes a new proof of a token, as of now.
#[must_use]
pub fn prove_now(token: &ProofKey) -> [u8; LEN] {
    prove(token, SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs()))
}

/// Makes a new proof of a token. `now_s` is the Unix time in seconds.
#[must_use]
pub fn prove(token: &ProofKey, now_s: u64) -> [u8; LEN] {
    let nonce = rand::rng().random();
    let mut preface = Preface { token: token_id(token), time_s: now_s, nonce, mac: [0; 32] };
    preface.mac = *blake3::keyed_hash(&key(token), &preface.hashed()).as_bytes();
    preface.to_bytes()
}

/// Whether a preface proves that its sender has the token of this key. It does not check the proof's age or nonce;
/// [`AcceptedProofs::accept`] does.
#[must_use]
pub fn proves(preface: &Preface, token: &ProofKey) -> bool {
    // blake3 compares hashes in constant time.
    preface.token == token_id(token)
        && blake3::keyed_hash(&key(token), &preface.hashed()) == blake3::Hash::from_bytes(preface.mac)
}

/// The unexpired proofs that a server has accepted. It rejects each of them if it is replayed.
#[derive(Debug, Default)]
pub struct AcceptedProofs {
    /// Each proof's time (Unix time, seconds) and nonce.
    seen: BTreeSet<(u64, [u8; 16])>,
}

impl AcceptedProofs {
    /// Accepts a preface if its time is close to `now_s`, `is_proof` returns true, and it was not accepted before.
    /// `is_proof` checks the preface against the server's tokens with [`proves`]. `now_s` is the Unix time in seconds.
    pub fn accept(&mut self, preface: &Preface, is_proof: impl FnOnce() -> bool, now_s: u64) -> bool {
        if preface.time_s.abs_diff(now_s) > MAX_CLOCK_DIFFERENCE_S || !is_proof() {
            return false;
        }
        // The set is ordered by the time in the proof, so the expired proofs come first.
        let good = (now_s.saturating_sub(MAX_CLOCK_DIFFERENCE_S), [0; 16]);
        self.seen = self.seen.split_off(&good);
        self.seen.len() < MAX_REMEMBERED_PROOFS && self.seen.insert((preface.time_s, preface.nonce))
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

    fn accept(accepted: &mut AcceptedProofs, preface: &Preface, now_s: u64) -> bool {
        accepted.accept(preface, || proves(preface, &OURS), now_s)
    }

    #[test]
    fn a_proof_is_good_once_and_for_its_token() {
        let mut accepted = AcceptedProofs::default();
        let other = ProofKey([2; 32]);
        let first = proof(NOW_S);
        assert!(!accepted.accept(&first, || proves(&first, &other), NOW_S), "another token");
        assert!(accept(&mut accepted, &first, NOW_S));
        assert!(!accept(&mut accepted, &first, NOW_S + 1), "replayed");
        assert!(accept(&mut accepted, &proof(NOW_S), NOW_S + 1), "a new one");
        assert!(!accept(&mut accepted, &first, NOW_S + MAX_CLOCK_DIFFERENCE_S), "replayed late");
        assert!(!accept(&mut accepted, &first, NOW_S + MAX_CLOCK_DIFFERENCE_S + 1), "replayed too late");
    }

    #[test]
    fn each_bit_counts() {
        let good = prove(&OURS, NOW_S);
        for bit in 8..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!accept(&mut AcceptedProofs::default(), &Preface::from_bytes(&bad), NOW_S), "bit {bit}");
        }
    }

    #[test]
    fn a_clock_may_be_off_by_a_quarter_of_an_hour() {
        for (at_s, good) in [
            (NOW_S - MAX_CLOCK_DIFFERENCE_S, true),
            (NOW_S + MAX_CLOCK_DIFFERENCE_S, true),
            (NOW_S - MAX_CLOCK_DIFFERENCE_S - 1, false),
            (NOW_S + MAX_CLOCK_DIFFERENCE_S + 1, false),
            (0, false),
            (u64::MAX, false),
        ] {
            let is_accepted = accept(&mut AcceptedProofs::default(), &proof(at_s), NOW_S);
            assert_eq!(is_accepted, good, "{at_s}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_and_forgotten_in_time() {
        let mut accepted = AcceptedProofs::default();
        for n in 0..MAX_REMEMBERED_PROOFS as u128 {
            accepted.seen.insert((NOW_S, n.to_le_bytes()));
        }
        assert!(!accept(&mut accepted, &proof(NOW_S), NOW_S), "full");
        let later = NOW_S + MAX_CLOCK_DIFFERENCE_S + 1;
        assert!(accept(&mut accepted, &proof(later), later));
        assert_eq!(accepted.seen.len(), 1);
    }
}
