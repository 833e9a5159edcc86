//! Control packets (section 2): reading them with every field checked, and writing them.

use crate::handshake::Handshake;
use crate::loss_report::LossReport;
use crate::packet::{ACK, ACK2, ControlHeader, HANDSHAKE, HEADER_BYTES, KEEP_ALIVE, NAK, SHUTDOWN};
use crate::seq::SEQ_MASK;

/// Longest RTT and RTT variance that are believed, microseconds: half a minute. libudt measures by the wall clock, whose steps may
/// make them longer for a while.
const MAX_RTT_US: u32 = 30_000_000;

/// A full ACK (section 2, type 0x2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// Sequence number of this ACK, which its ACK2 repeats.
    pub ack_seq: u32,
    /// Sequence number before which all packets have arrived.
    pub data_seq: u32,
    /// RTT, microseconds.
    pub rtt_us: u32,
    /// Variance of the RTT, microseconds.
    pub rtt_variance_us: u32,
    /// Packets that the receiver's buffer has room for.
    pub available_packets: u32,
    /// What the receiver measures; only the ACKs of the timer carry it (section 6.2, "ACK Event Processing").
    pub rates: Option<Rates>,
}

/// What a receiver measures of the packets that arrive. Zero means that it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Rate at which packets arrive, packets per second.
    pub arrival_pps: u32,
    /// Capacity of the path by packet pairs, packets per second.
    pub capacity_pps: u32,
}

/// The control packets that a stream knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control<'a> {
    /// Sets a connection up.
    Handshake(Handshake),
    /// Says that the sender is alive.
    KeepAlive,
    /// An ACK with all fields.
    Ack(Ack),
    /// An ACK with nothing but the sequence number before which all packets have arrived.
    LightAck(u32),
    /// Lost packets.
    Nak(LossReport<'a>),
    /// Ends the connection.
    Shutdown,
    /// Acknowledges the ACK of this sequence number.
    Ack2(u32),
    /// A type that a stream has no use for: congestion warning, message drop request, error signal, user-defined.
    Ignored,
}

impl<'a> Control<'a> {
    /// Reads a control packet. `None`: a field is out of its bounds, or the length is none that the type has.
    pub fn parse(header: &ControlHeader, body: &'a [u8]) -> Option<Control<'a>> {
        Some(match header.kind {
            HANDSHAKE => Control::Handshake(Handshake::parse(body)?),
            KEEP_ALIVE => Control::KeepAlive,
            ACK => return parse_ack(header.info, body),
            NAK => Control::Nak(LossReport::new(body)?),
            SHUTDOWN => Control::Shutdown,
            ACK2 => Control::Ack2(header.info & SEQ_MASK),
            _ => Control::Ignored,
        })
    }
}

fn parse_ack(info: u32, body: &[u8]) -> Option<Control<'_>> {
    let word = |i: usize| body.get(4 * i..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
    let data_seq = word(0).filter(|seq| *seq <= SEQ_MASK)?;
    if body.len() == 4 {
        return Some(Control::LightAck(data_seq));
    }
    let positive = |i: usize| word(i).map(|value| if value > i32::MAX as u32 { 0 } else { value });
    let rates = match body.len() {
        16 => None,
        24.. => Some(Rates { arrival_pps: positive(4)?, capacity_pps: positive(5)? }),
        _ => return None,
    };
    Some(Control::Ack(Ack {
        ack_seq: info & SEQ_MASK,
        data_seq,
        rtt_us: word(1)?.min(MAX_RTT_US),
        rtt_variance_us: word(2)?.min(MAX_RTT_US),
        available_packets: word(3).filter(|n| *n <= i32::MAX as u32)?,
        rates,
    }))
}

/// Where control packets are written, one after the other; it keeps its memory.
#[derive(Debug, Default)]
pub struct ControlWriter {
    bytes: Vec<u8>,
}

impl ControlWriter {
    /// Writes a control packet; `body` appends its control information field.
    pub fn write(&mut self, header: ControlHeader, body: impl FnOnce(&mut Vec<u8>)) -> &[u8] {
        self.bytes.clear();
        self.bytes.resize(HEADER_BYTES, 0);
        if let Some(head) = self.bytes.first_chunk_mut() {
            header.write(head);
        }
        body(&mut self.bytes);
        &self.bytes
    }

    /// Takes a packet that is written already.
    pub fn write_whole(&mut self, packet: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(packet);
    }

    /// The packet that was written last.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Ack {
    /// Appends the control information field.
    pub fn append(&self, to: &mut Vec<u8>) {
        for word in
            [self.data_seq, self.rtt_us.min(MAX_RTT_US), self.rtt_variance_us.min(MAX_RTT_US), self.available_packets]
        {
            to.extend_from_slice(&word.to_be_bytes());
        }
        if let Some(rates) = self.rates {
            for word in [rates.arrival_pps, rates.capacity_pps] {
                to.extend_from_slice(&word.min(i32::MAX as u32).to_be_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Packet, parse};

    fn again(kind: u16, info: u32, body: &[u8]) -> Option<Control<'_>> {
        Control::parse(&ControlHeader { kind, info, timestamp_us: 0, socket_id: 1 }, body)
    }

    #[test]
    fn an_ack_comes_back_as_it_was_written() {
        let rates = Some(Rates { arrival_pps: 800_000, capacity_pps: 833_333 });
        for rates in [rates, None] {
            let ack = Ack { ack_seq: 9, data_seq: 3, rtt_us: 91_600, rtt_variance_us: 5, available_packets: 2, rates };
            let mut writer = ControlWriter::default();
            let header = ControlHeader { kind: ACK, info: 9, timestamp_us: 0, socket_id: 1 };
            let Some(Packet::Control(header, body)) = parse(writer.write(header, |to| ack.append(to))) else {
                panic!()
            };
            assert_eq!(Control::parse(&header, body), Some(Control::Ack(ack)));
        }
        assert_eq!(again(ACK, 0, &[0, 0, 0, 7]), Some(Control::LightAck(7)));
    }

    #[test]
    fn an_ack_with_a_field_out_of_bounds_is_refused() {
        let ack = Ack { ack_seq: 9, data_seq: 3, rtt_us: 1, rtt_variance_us: 5, available_packets: 2, rates: None };
        let mut body = Vec::new();
        ack.append(&mut body);
        for (at, byte) in [(0, 0x80), (12, 0xff)] {
            let mut bad = body.clone();
            bad[at] = byte;
            assert_eq!(again(ACK, 9, &bad), None, "byte {at}");
        }
        for (at, rtt_us, rtt_variance_us) in [(4, MAX_RTT_US, 5), (8, 1, MAX_RTT_US)] {
            let mut long = body.clone();
            long[at] = 0x7f;
            assert_eq!(again(ACK, 9, &long), Some(Control::Ack(Ack { rtt_us, rtt_variance_us, ..ack })), "byte {at}");
        }
        for length in [0, 1, 3, 5, 15, 17, 20, 23] {
            assert_eq!(again(ACK, 9, &vec![0; length]), None, "{length} bytes");
        }
    }

    #[test]
    fn types_that_a_stream_does_not_know_are_ignored() {
        for kind in [4, 7, 8, 0x7fff] {
            assert_eq!(again(kind, 0, &[1, 2, 3]), Some(Control::Ignored));
        }
    }
}
