//! Digests of blocks: what the sender has read, what came, and what an earlier attempt has left are the same bytes.
//!
//! AEGIS-128X2 as a MAC (AEGISMAC-128X2 of RFC 10032) with tags of 256 bits: on processors with AES instructions it
//! takes half of the time of BLAKE3 or less, and hashing is what a fast transfer's processors do most. It is no hash:
//! who knows the key can make two blocks of one tag. So the receiver draws a key for each transfer, tells it to the
//! sender on the control connection, and keeps it in the journal: no content can have been made for it. Digests tell
//! damage; that nobody in between changes what is said, names and places of blocks included, is TLS's part.

use aegis::aegis128x2::Aegis128X2Mac;
use rand::RngExt;
use serde::{Deserialize, Serialize};

/// Bytes of a digest.
pub const LEN: usize = 32;

/// A digest.
pub type Digest = [u8; LEN];

/// What digests of a transfer are made with.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key(pub [u8; Key::LEN]);

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
        let mut mac = self.mac();
        mac.update(bytes);
        mac.finish()
    }

    /// For bytes that come piece by piece.
    pub(crate) fn mac(&self) -> Mac {
        Mac(Aegis128X2Mac::new(&self.0))
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

/// A digest that is being made.
pub(crate) struct Mac(Aegis128X2Mac<LEN>);

impl Mac {
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

    /// Whatever the processor: the two ends may have different ones, and a journal may be read by another.
    #[test]
    fn digests_are_the_same_everywhere() {
        let hex = |tag: Digest| tag.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let bytes = |n: usize| (0..n).map(|i| i as u8).collect::<Vec<u8>>();
        // RFC 10032's test vector has a nonce.
        let (mut key, mut nonce) = ([0; Key::LEN], [0; 16]);
        (key[0], key[1], nonce[0], nonce[2]) = (0x10, 0x01, 0x10, 0x02);
        let mut mac = Aegis128X2Mac::<LEN>::new_with_nonce(&key, &nonce);
        mac.update(&bytes(35));
        assert_eq!(hex(mac.finalize()), "afcba3fc2d63c8d6c7f2d63f3ec8fbbbaf022e15ac120e78ffa7755abccd959c");
        // Another implementation, in Rust alone, says this too.
        let digest = Key([0x10; Key::LEN]).digest(&bytes(1000));
        assert_eq!(hex(digest), "593028d296600333918b079e4a2b681e4b820e5880a7b828f104f3d1381737e0");
    }

    #[test]
    fn pieces_make_the_digest_of_the_whole() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| ((i * i) >> 3) as u8).collect();
        let key = Key([7; Key::LEN]);
        for piece in [1, 31, 64, 100, 4096, 10_000] {
            let mut mac = key.mac();
            bytes.chunks(piece).for_each(|piece| mac.update(piece));
            assert_eq!(mac.finish(), key.digest(&bytes), "{piece}");
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
