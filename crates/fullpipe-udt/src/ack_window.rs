//! The ACK History Window (section 6.2): when each ACK left, and what it acknowledged, so that its ACK2 gives a round-trip time.

use crate::seq::SEQ_MASK;

/// ACKs that are remembered (libudt).
const ACKS: usize = 1024;

#[derive(Debug, Clone, Copy)]
struct SentAck {
    ack_seq: u32,
    acked: u64,
    at_ns: u64,
}

/// The last ACKs. Their sequence numbers follow one another, so each has its place.
#[derive(Debug)]
pub struct AckWindow {
    acks: Vec<Option<SentAck>>,
    last_seq: u32,
}

impl Default for AckWindow {
    fn default() -> AckWindow {
        AckWindow { acks: vec![None; ACKS], last_seq: 0 }
    }
}

impl AckWindow {
    /// Remembers an ACK of all packets below `acked`; returns the sequence number that it has.
    pub fn sent(&mut self, now_ns: u64, acked: u64) -> u32 {
        self.last_seq = (self.last_seq + 1) & SEQ_MASK;
        self.acks[self.last_seq as usize % ACKS] = Some(SentAck { ack_seq: self.last_seq, acked, at_ns: now_ns });
        self.last_seq
    }

    /// Takes the ACK that an ACK2 names; returns what it acknowledged, and how long ago it left, nanoseconds.
    pub fn acknowledged(&mut self, now_ns: u64, ack_seq: u32) -> Option<(u64, u64)> {
        let ack = self.acks[ack_seq as usize % ACKS].take_if(|ack| ack.ack_seq == ack_seq)?;
        Some((ack.acked, now_ns.saturating_sub(ack.at_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ack2_counts_once_and_an_overwritten_ack_not_at_all() {
        let mut window = AckWindow::default();
        let first = window.sent(10, 100);
        let second = window.sent(20, 200);
        assert_eq!(window.acknowledged(50, second), Some((200, 30)));
        assert_eq!(window.acknowledged(50, second), None);
        for _ in 0..ACKS {
            window.sent(60, 300);
        }
        assert_eq!(window.acknowledged(70, first), None);
        assert_eq!(window.acknowledged(70, 0), None);
    }
}
