//! The datagrams beside the streams: a keyed hash, a sequence number and a message, so that nobody else can write one
//! or send one again.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::replay::ReplayWindow;
use crate::protocol::sizing::SenderStats;

/// Bytes of the hash.
const MAC: usize = 16;
/// Bytes of the hash and of the sequence number, which is little endian.
pub(super) const HEAD: usize = MAC + 8;
/// Least bytes of a datagram: most of the messages are of one size.
const LEAST: usize = 64;
/// Bytes of a datagram that are hashed, with its length: no message reaches beyond them, only padding does.
const HASHED: usize = 128;

/// What a datagram says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Datagram {
    /// Either end: here I am; and the sending end's segments: payload and packet, 0 from the receiving end.
    Hello {
        /// TCP payload, bytes.
        mss: u32,
        /// IP packet, bytes.
        packet: u32,
    },
    /// Receiving end: come back.
    Probe {
        /// Its number.
        n: u32,
        /// By its clock.
        sent_ns: u64,
    },
    /// Sending end: a probe back.
    Echo {
        /// Its number.
        n: u32,
        /// As it came.
        sent_ns: u64,
        /// How long this end kept it.
        held_ns: u64,
        /// What the streams say.
        seen: SenderStats,
    },
    /// Receiving end: send so many packets back to back.
    Train {
        /// Its number.
        id: u32,
        /// Packets.
        packets: u16,
        /// IP bytes of each.
        bytes: u32,
        /// Spread over this, nanoseconds; 0: back to back.
        over_ns: u64,
    },
    /// Sending end: one of them.
    Packet {
        /// Of which train.
        id: u32,
    },
    /// Sending end: that was the train.
    TrainEnd {
        /// Which.
        id: u32,
        /// Packets sent.
        sent: u16,
        /// From the first to the last.
        span_ns: u64,
    },
}

/// One key for each direction, and the sequence numbers of both.
pub(super) struct Keys {
    mine: [u8; 32],
    theirs: [u8; 32],
    /// Datagrams sealed so far: the last one's number.
    sealed: AtomicU64,
    /// Numbers of the other end's datagrams.
    opened: ReplayWindow,
}

/// Hash of a datagram, which begins with room for it.
fn mac(key: &[u8; 32], datagram: &[u8]) -> [u8; MAC] {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&(datagram.len() as u64).to_le_bytes());
    hasher.update(datagram.get(MAC..datagram.len().min(HASHED)).unwrap_or_default());
    let mut mac = [0; MAC];
    mac.copy_from_slice(&hasher.finalize().as_bytes()[..MAC]);
    mac
}

impl Keys {
    /// From the session's token; `calls` is the client.
    pub fn new(token: &[u8; 32], calls: bool) -> Keys {
        let from_client = blake3::derive_key("fullpipe 2026 datagrams from the client", token);
        let from_far = blake3::derive_key("fullpipe 2026 datagrams from the far end", token);
        let (mine, theirs) = if calls { (from_client, from_far) } else { (from_far, from_client) };
        Keys { mine, theirs, sealed: AtomicU64::new(0), opened: ReplayWindow::default() }
    }

    /// A datagram of so many bytes, or as many as it needs.
    pub fn seal(&self, word: &Datagram, len: usize) -> Vec<u8> {
        let Ok(mut bytes) = postcard::to_extend(word, vec![0; HEAD]) else { return Vec::new() };
        bytes.resize(len.max(LEAST).max(bytes.len()), 0);
        self.number(&mut bytes);
        bytes
    }

    /// Gives a datagram the next sequence number, and the hash that belongs to it.
    pub fn number(&self, datagram: &mut [u8]) {
        let Some(head) = datagram.get_mut(MAC..HEAD) else { return };
        let number = 1 + self.sealed.fetch_add(1, Ordering::Relaxed);
        head.copy_from_slice(&number.to_le_bytes());
        let mac = mac(&self.mine, datagram);
        datagram[..MAC].copy_from_slice(&mac);
    }

    /// What a datagram of the other end says; none if it is not of the other end, or has come before.
    pub fn open(&mut self, bytes: &[u8]) -> Option<Datagram> {
        let (head, word) = bytes.split_at_checked(HEAD)?;
        let number = u64::from_le_bytes(head[MAC..].try_into().ok()?);
        if !self.opened.is_new(number) {
            return None;
        }
        // The same time whatever differs.
        let differs = head.iter().zip(mac(&self.theirs, bytes)).fold(0, |all, (a, b)| all | (a ^ b));
        if differs != 0 || !self.opened.take(number) {
            return None;
        }
        let word = &word[..word.len().min(HASHED - HEAD)];
        postcard::take_from_bytes(word).ok().map(|(word, _)| word)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen() -> SenderStats {
        SenderStats { retransmits: u64::MAX, window_limited_us: u64::MAX, rtt_us: u32::MAX }
    }

    #[test]
    fn there_and_back_and_only_there() {
        let (mut client, mut far) = (Keys::new(&[7; 32], true), Keys::new(&[7; 32], false));
        let longest = Datagram::Echo { n: u32::MAX, sent_ns: u64::MAX, held_ns: u64::MAX, seen: seen() };
        for (word, len) in [(longest, 0), (longest, 80), (Datagram::Hello { mss: 1448, packet: 1500 }, 72)] {
            let bytes = client.seal(&word, len);
            assert!(bytes.len() == len || len == 0, "{}", bytes.len());
            for at in 0..bytes.len() {
                let mut bad = bytes.clone();
                bad[at] ^= 1;
                assert_eq!(far.open(&bad), None);
            }
            assert_eq!(far.open(&bytes[..bytes.len() - 1]), None, "cut short");
            assert_eq!(far.open(&bytes), Some(word));
            assert_eq!(far.open(&bytes), None, "once more");
            assert_eq!(client.open(&bytes), None, "reflected");
            assert_eq!(Keys::new(&[8; 32], false).open(&bytes), None, "of another session");
        }
        assert!(client.seal(&longest, 0).len() <= HASHED, "a message reaches beyond what is hashed");
    }

    proptest! {
        #[test]
        fn anything_may_arrive(rest in proptest::collection::vec(any::<u8>(), 0..200), right in any::<bool>()) {
            let (client, mut far) = (Keys::new(&[7; 32], true), Keys::new(&[7; 32], false));
            let mut bytes = rest.clone();
            if right {
                // Behind a right hash too.
                bytes = [&[0; HEAD], &rest[..]].concat();
                client.number(&mut bytes);
            }
            let _ = far.open(&bytes);
        }
    }
}
