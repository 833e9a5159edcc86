//! Digests of blocks: what the sender has read, what came, and what an earlier attempt has left are the same bytes.
//!
//! AEGIS-128X2 as a MAC (RFC 10032) with tags of 256 bits: on processors with AES instructions it takes half of the
//! time of BLAKE3 or less, and hashing is what a fast transfer's processors do most. It is no hash: who knows the key
//! can make two blocks of one digest. So the receiver draws a key for each transfer, tells it to the sender on the
//! control connection, and keeps it in the journal, which only its user can read: whoever has made the files, or
//! damages them on their way, does not know it.

use aegis::aegis128x2::Aegis128X2Mac;
use rand::RngExt;
use serde::{Deserialize, Serialize};

/// Bytes of a digest.
pub const LEN: usize = 32;

/// A digest.
pub type Digest = [u8; LEN];

/// What digests of a transfer are made with.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Key(pub(crate) [u8; Key::LEN]);

impl Key {
    /// Bytes of a key.
    pub const LEN: usize = 16;

    /// One that nobody knows.
    pub(crate) fn random() -> Key {
        Key(rand::rng().random())
    }

    /// The digest of all of these bytes.
    #[must_use]
    pub fn digest(&self, bytes: &[u8]) -> Digest {
        let mut hasher = self.hasher();
        hasher.update(bytes);
        hasher.finish()
    }

    /// For bytes that come piece by piece.
    pub(crate) fn hasher(&self) -> Hasher {
        Hasher(Aegis128X2Mac::new(&self.0))
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

/// A digest that is being made.
pub(crate) struct Hasher(Aegis128X2Mac<LEN>);

impl Hasher {
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    pub fn finish(self) -> Digest {
        self.0.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_digest_of_the_whole() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| ((i * i) >> 3) as u8).collect();
        let key = Key([7; Key::LEN]);
        for piece in [1, 31, 64, 100, 4096, 10_000] {
            let mut hasher = key.hasher();
            bytes.chunks(piece).for_each(|piece| hasher.update(piece));
            assert_eq!(hasher.finish(), key.digest(&bytes), "{piece}");
        }
    }

    #[test]
    fn one_bit_one_byte_or_another_key_is_another_digest() {
        let bytes = vec![0; 1000];
        let key = Key([7; Key::LEN]);
        let right = key.digest(&bytes);
        for bit in 0..8 * bytes.len() {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(key.digest(&other), right, "{bit}");
        }
        assert_ne!(key.digest(&bytes[1..]), right);
        assert_ne!(Key([8; Key::LEN]).digest(&bytes), right);
        assert_ne!(Key::random(), Key::random());
    }
}
