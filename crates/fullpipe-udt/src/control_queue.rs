//! Control packets that wait to be sent, in the order in which they leave.

use crate::config::payload_bytes;
use crate::control::ControlWriter;
use crate::handshake::Handshake;
use crate::loss_report;
use crate::packet::{self, ControlHeader};
use crate::perfmon::Counters;
use crate::receiver::{AckKind, Receiver};
use crate::rtt::Rtt;
use crate::stamp::Stamp;

/// ACK2s that wait to be sent, at most; a peer that sends more ACKs at once gets the last ones answered.
const MAX_PENDING_ACK2: usize = 16;

/// Control packets that wait to be sent. ACK and NAK are asked of the receiver when their turn comes.
#[derive(Debug, Default)]
pub(crate) struct ControlQueue {
    /// The other end has not heard the answer to its handshake.
    pub handshake: bool,
    /// The other end is to be told that this one has closed.
    pub shutdown: bool,
    /// The other end may take this one for dead.
    pub keep_alive: bool,
    /// Losses that have never been reported.
    pub nak_new: bool,
    /// Losses that may have to be reported again.
    pub nak_again: bool,
    ack2: [u32; MAX_PENDING_ACK2],
    ack2_count: usize,
    writer: ControlWriter,
}

impl ControlQueue {
    /// Adds an ACK2 for an ACK that has arrived.
    pub fn push_ack2(&mut self, ack_seq: u32) {
        if self.ack2_count == MAX_PENDING_ACK2 {
            self.ack2.rotate_left(1);
            self.ack2_count -= 1;
        }
        self.ack2[self.ack2_count] = ack_seq;
        self.ack2_count += 1;
    }

    /// Writes the next packet; false if there is none.
    pub fn write_next(&mut self, now_ns: u64, stamp: Stamp, mut open: Open<'_>) -> bool {
        let header =
            |kind, info| ControlHeader { kind, info, timestamp_us: stamp.timestamp_us, socket_id: stamp.socket_id };
        let (kind, info) = if self.ack2_count > 0 {
            self.ack2_count -= 1;
            (packet::ACK2, self.ack2[self.ack2_count])
        } else if let Some(ack) = open.receiver.take_ack(now_ns, open.rtt, open.counters) {
            match ack {
                AckKind::Light(seq) => {
                    self.writer.write(header(packet::ACK, 0), |to| to.extend_from_slice(&seq.to_be_bytes()))
                }
                AckKind::Full(ack) => self.writer.write(header(packet::ACK, ack.ack_seq), |to| ack.append(to)),
            };
            return true;
        } else if self.write_nak(now_ns, header(packet::NAK, 0), &mut open) {
            return true;
        } else if std::mem::take(&mut self.keep_alive) {
            (packet::KEEP_ALIVE, 0)
        } else {
            return false;
        };
        self.writer.write(header(kind, info), |_| ());
        true
    }

    /// Writes a handshake or a shutdown, which are sent in any state; false if neither waits.
    pub fn write_first(&mut self, stamp: Stamp, answer: Option<&Handshake>) -> bool {
        if std::mem::take(&mut self.handshake)
            && let Some(answer) = answer
        {
            self.writer.write_whole(&answer.datagram(stamp.socket_id, stamp.timestamp_us));
            return true;
        }
        if std::mem::take(&mut self.shutdown) {
            let (timestamp_us, socket_id) = (stamp.timestamp_us, stamp.socket_id);
            self.writer.write(ControlHeader { kind: packet::SHUTDOWN, info: 0, timestamp_us, socket_id }, |_| ());
            return true;
        }
        false
    }

    /// Writes a NAK of the new losses, else of those that are due again; false if there is nothing to report.
    fn write_nak(&mut self, now_ns: u64, header: ControlHeader, open: &mut Open<'_>) -> bool {
        let max_words = payload_bytes(open.mss) / 4;
        for again in [false, true] {
            let flag = if again { &mut self.nak_again } else { &mut self.nak_new };
            if !std::mem::take(flag) {
                continue;
            }
            let ranges = open.receiver.take_report(now_ns, open.rtt, again, max_words);
            if !ranges.is_empty() {
                // One packet may not hold all that are due.
                self.nak_again |= again;
                self.writer.write(header, |to| {
                    loss_report::append(ranges.iter().cloned(), max_words, to);
                });
                open.counters.pkt_sent_nak += 1;
                return true;
            }
        }
        false
    }

    /// The packet that was written last.
    pub fn bytes(&self) -> &[u8] {
        self.writer.bytes()
    }
}

/// What an open connection tells the other end about.
#[derive(Debug)]
pub(crate) struct Open<'a> {
    pub receiver: &'a mut Receiver,
    pub rtt: &'a Rtt,
    pub counters: &'a mut Counters,
    pub mss: u16,
}
