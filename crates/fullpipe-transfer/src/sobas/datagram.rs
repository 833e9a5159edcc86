//! The UDP datagrams beside the streams. Each has a keyed hash and a sequence number, so that nobody else can write one or
//! replay one.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::replay::ReplayWindow;
use crate::protocol::sizing::SenderStats;

/// Bytes of the hash.
const MAC: usize = 16;
/// Bytes of the hash and of the sequence number, which is little-endian.
pub(super) const HEAD: usize = MAC + 8;
/// Least bytes of a datagram, so that most datagrams have the same size.
const MIN_BYTES: usize = 64;
/// Bytes of a datagram that are hashed, together with its length. No content is longer; only padding lies beyond.
const HASHED_BYTES: usize = 128;

/// The content of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Datagram {
    /// Either end: a greeting. It tells the sizes of the sending end's segments, and zeros from the receiving end.
    Hello {
        /// TCP payload of a full segment, bytes.
        mss: u32,
        /// The IP packet that carries it, bytes.
        packet: u32,
    },
    /// Receiving end: a probe, to be echoed.
    Probe {
        /// Number of the probe.
        n: u32,
        /// When the probe left, by the receiving end's clock, nanoseconds.
        sent_ns: u64,
    },
    /// Sending end: the echo of a probe.
    Echo {
        /// Number of the probe.
        n: u32,
        /// `sent_ns` of the probe.
        sent_ns: u64,
        /// How long the sending end held the probe, nanoseconds.
        held_ns: u64,
        /// Statistics of the sending end's streams.
        seen: SenderStats,
    },
    /// Receiving end: send a packet train.
    Train {
        /// Number of the train.
        id: u32,
        /// Number of packets.
        packets: u16,
        /// Bytes of each IP packet.
        bytes: u32,
        /// Time over which the packets are spread, nanoseconds; zero for back to back.
        over_ns: u64,
    },
    /// Sending end: a packet of a train.
    Packet {
        /// Number of the train.
        id: u32,
    },
    /// Sending end: the train is over.
    TrainEnd {
        /// Number of the train.
        id: u32,
        /// Number of packets that were sent.
        sent: u16,
        /// Time from the first packet to the last, nanoseconds.
        span_ns: u64,
    },
}

/// The keys and sequence numbers of both directions.
pub(super) struct Keys {
    mine: [u8; 32],
    theirs: [u8; 32],
    /// Number of the last datagram that this end sealed.
    sealed: AtomicU64,
    /// The numbers of the other end's datagrams that have arrived.
    opened: ReplayWindow,
}

/// The hash of a datagram, whose first bytes have room for it.
fn mac(key: &[u8; 32], datagram: &[u8]) -> [u8; MAC] {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&(datagram.len() as u64).to_le_bytes());
    hasher.update(datagram.get(MAC..datagram.len().min(HASHED_BYTES)).unwrap_or_default());
    let mut mac = [0; MAC];
    mac.copy_from_slice(&hasher.finalize().as_bytes()[..MAC]);
    mac
}

impl Keys {
    /// Derives the keys from the session's token. `calls` says whether this end is the client.
    pub fn new(token: &[u8; 32], calls: bool) -> Keys {
        let from_client = blake3::derive_key("fullpipe 2026 datagrams from the client", token);
        let from_far = blake3::derive_key("fullpipe 2026 datagrams from the far end", token);
        let (mine, theirs) = if calls { (from_client, from_far) } else { (from_far, from_client) };
        Keys { mine, theirs, sealed: AtomicU64::new(0), opened: ReplayWindow::default() }
    }

    /// Makes a datagram of `len` bytes, or more if its content needs more.
    pub fn seal(&self, datagram: &Datagram, len: usize) -> Vec<u8> {
        let Ok(mut bytes) = postcard::to_extend(datagram, vec![0; HEAD]) else { return Vec::new() };
        bytes.resize(len.max(MIN_BYTES).max(bytes.len()), 0);
        self.number(&mut bytes);
        bytes
    }

    /// Writes the next sequence number and the hash into a datagram.
    pub fn number(&self, datagram: &mut [u8]) {
        let Some(head) = datagram.get_mut(MAC..HEAD) else { return };
        let number = 1 + self.sealed.fetch_add(1, Ordering::Relaxed);
        head.copy_from_slice(&number.to_le_bytes());
        let mac = mac(&self.mine, datagram);
        datagram[..MAC].copy_from_slice(&mac);
    }

    /// The content of a datagram; `None` if the other end has not written it, or it has arrived before.
    pub fn open(&mut self, bytes: &[u8]) -> Option<Datagram> {
        let (head, word) = bytes.split_at_checked(HEAD)?;
        let number = u64::from_le_bytes(head[MAC..].try_into().ok()?);
        if !self.opened.is_new(number) {
            return None;
        }
        // The comparison takes the same time whichever bytes differ.
        let differs = head.iter().zip(mac(&self.theirs, bytes)).fold(0, |all, (a, b)| all | (a ^ b));
        if differs != 0 || !self.opened.take(number) {
            return None;
        }
        let word = &word[..word.len().min(HASHED_BYTES - HEAD)];
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
        assert!(client.seal(&longest, 0).len() <= HASHED_BYTES, "a message reaches beyond what is hashed");
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
