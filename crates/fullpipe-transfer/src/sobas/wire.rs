//! The datagrams beside the streams: a message, and before it a keyed hash of it, so that nobody else can
//! write one.

use serde::{Deserialize, Serialize};

use super::Seen;

/// Bytes of the hash.
const MAC: usize = 16;
/// Least bytes of a datagram: most of the messages are of one size.
const LEAST: usize = 64;

/// What a datagram says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Word {
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
        seen: Seen,
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

/// One key for each direction.
pub(super) struct Keys {
    mine: [u8; 32],
    theirs: [u8; 32],
}

impl Keys {
    /// From the session's token; `calls` is the client.
    pub fn new(token: &[u8; 32], calls: bool) -> Keys {
        let from_client = blake3::derive_key("fullpipe 2026 datagrams from the client", token);
        let from_far = blake3::derive_key("fullpipe 2026 datagrams from the far end", token);
        if calls { Keys { mine: from_client, theirs: from_far } } else { Keys { mine: from_far, theirs: from_client } }
    }

    /// A datagram of so many bytes, or as many as it needs.
    pub fn seal(&self, word: &Word, len: usize) -> Vec<u8> {
        let Ok(mut bytes) = postcard::to_extend(word, vec![0; MAC]) else { return Vec::new() };
        bytes.resize(len.max(LEAST).max(bytes.len()), 0);
        let mac = blake3::keyed_hash(&self.mine, &bytes[MAC..]);
        bytes[..MAC].copy_from_slice(&mac.as_bytes()[..MAC]);
        bytes
    }

    /// What a datagram of the other end says; none if it is not of the other end.
    pub fn open(&self, bytes: &[u8]) -> Option<Word> {
        let (mac, rest) = bytes.split_at_checked(MAC)?;
        let right = blake3::keyed_hash(&self.theirs, rest);
        // The same time whatever differs.
        let differs = mac.iter().zip(right.as_bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        if differs != 0 {
            return None;
        }
        postcard::take_from_bytes(rest).ok().map(|(word, _)| word)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen() -> Seen {
        Seen { retransmits: u64::MAX, window_limited_us: u64::MAX, rtt_us: u32::MAX }
    }

    #[test]
    fn there_and_back_and_only_there() {
        let (client, far) = (Keys::new(&[7; 32], true), Keys::new(&[7; 32], false));
        let longest = Word::Echo { n: u32::MAX, sent_ns: u64::MAX, held_ns: u64::MAX, seen: seen() };
        for (word, len) in [(longest, 0), (longest, 72), (Word::Hello { mss: 1448, packet: 1500 }, 72)] {
            let bytes = client.seal(&word, len);
            assert!(bytes.len() == len || len == 0, "{}", bytes.len());
            assert_eq!(far.open(&bytes), Some(word));
            assert_eq!(client.open(&bytes), None, "reflected");
            assert_eq!(Keys::new(&[8; 32], false).open(&bytes), None, "of another session");
            for at in 0..bytes.len() {
                let mut bad = bytes.clone();
                bad[at] ^= 1;
                assert_eq!(far.open(&bad), None);
            }
        }
    }

    proptest! {
        #[test]
        fn anything_may_arrive(rest in proptest::collection::vec(any::<u8>(), 0..200), right in any::<bool>()) {
            let (client, far) = (Keys::new(&[7; 32], true), Keys::new(&[7; 32], false));
            let mut bytes = rest.clone();
            if right {
                // Behind a right hash too.
                bytes = blake3::keyed_hash(&client.mine, &rest).as_bytes()[..MAC].to_vec();
                bytes.extend_from_slice(&rest);
            }
            let _ = far.open(&bytes);
        }
    }
}
