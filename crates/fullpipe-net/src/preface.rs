//! What a client with a token may send before anything else, so that it need not wait behind those without.
//!
//! A preface proves that its sender knows a token's secret, and nothing more: it opens nothing, but it gives its
//! connection a place in the lobby that strangers cannot take. It has no meaning of its own here; whoever knows the
//! secrets checks it.

use std::sync::Arc;

/// First byte of a preface: neither TLS's (0x16), nor a measurement's (0), nor that of a connection that is not
/// encrypted (0x54).
pub const MARK: u8 = 0xf1;
/// Bytes of a preface.
pub const LEN: usize = 1 + 8 + 8 + 16 + 32;

/// What a client has sent before anything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preface {
    /// Which token the client has; it does not give the secret away.
    pub token: [u8; 8],
    /// The client's clock, Unix time in seconds.
    pub time_s: u64,
    /// Random, and never used again.
    pub nonce: [u8; 16],
    /// Keyed hash of all that is before it.
    pub mac: [u8; 32],
}

/// Says whether a preface is of somebody who knows a token, and has not been sent before.
pub type Check = Arc<dyn Fn(&Preface) -> bool + Send + Sync>;

impl Preface {
    /// The bytes to send.
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

    /// Reads it. The first byte is not looked at.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; LEN]) -> Preface {
        fn part<const N: usize>(bytes: &[u8; LEN], at: usize) -> [u8; N] {
            std::array::from_fn(|i| bytes[at + i])
        }
        let time_s = u64::from_le_bytes(part(bytes, 9));
        Preface { token: part(bytes, 1), time_s, nonce: part(bytes, 17), mac: part(bytes, 33) }
    }

    /// All that is hashed.
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
