//! The preface: bytes that a client with a token may send first, so that clients without one cannot crowd it out.
//!
//! A preface proves only that its sender knows a token's secret. It gives no access, but other pending connections cannot
//! take its connection's place ([`crate::serve::PendingClient`]). The owner of the secrets checks it ([`Check`]).

use std::sync::Arc;

/// First byte of a preface. It differs from the first byte of TLS (0x16), of a measurement (0), and of a connection without
/// encryption (0x54).
pub const MARK: u8 = 0xf1;
/// Length of a preface, bytes.
pub const LEN: usize = 1 + 8 + 8 + 16 + 32;

/// A preface, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preface {
    /// Identifier of the client's token. It does not reveal the secret.
    pub token: [u8; 8],
    /// The client's time, seconds since the Unix epoch.
    pub time_s: u64,
    /// Random bytes that are used only once.
    pub nonce: [u8; 16],
    /// Keyed hash of all bytes before it.
    pub mac: [u8; 32],
}

/// Returns whether a preface proves knowledge of a token and was not sent before.
pub type Check = Arc<dyn Fn(&Preface) -> bool + Send + Sync>;

impl Preface {
    /// Returns the preface as it is sent.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[0] = MARK;
        bytes[1..9].copy_from_slice(&self.token);
        bytes[9..17].copy_from_slice(&self.time_s.to_le_bytes());
        bytes[17..33].copy_from_slice(&self.nonce);
        bytes[33..].copy_from_slice(&self.mac);
        bytes
    }

    /// Parses a preface. The first byte is ignored.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; LEN]) -> Preface {
        fn part<const N: usize>(bytes: &[u8; LEN], at: usize) -> [u8; N] {
            std::array::from_fn(|i| bytes[at + i])
        }
        let time_s = u64::from_le_bytes(part(bytes, 9));
        Preface { token: part(bytes, 1), time_s, nonce: part(bytes, 17), mac: part(bytes, 33) }
    }

    /// Returns the bytes that [`Preface::mac`] is a hash of.
    #[must_use]
    pub fn hashed(&self) -> [u8; 33] {
        let bytes = self.to_bytes();
        std::array::from_fn(|i| bytes[i])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let preface = Preface { token: [1; 8], time_s: 2, nonce: [3; 16], mac: [4; 32] };
        assert_eq!(Preface::from_bytes(&preface.to_bytes()), preface);
        assert_eq!(preface.hashed(), preface.to_bytes()[..33]);
    }
}
