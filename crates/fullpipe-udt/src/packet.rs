//! The header that every UDT packet has (section 2).

/// Bytes of the header of a data or a control packet.
pub const HEADER_BYTES: usize = 16;
/// Bytes of the IPv4 and UDP headers, which count towards the packet size that a handshake names. libudt subtracts as much for
/// IPv6, whose header is 20 bytes longer.
pub const IP_UDP_BYTES: usize = 28;

/// Type of a handshake.
pub const HANDSHAKE: u16 = 0;
/// Type of a keep-alive.
pub const KEEP_ALIVE: u16 = 1;
/// Type of an ACK, light or full.
pub const ACK: u16 = 2;
/// Type of a NAK.
pub const NAK: u16 = 3;
/// Type of a shutdown.
pub const SHUTDOWN: u16 = 5;
/// Type of an ACK of an ACK.
pub const ACK2: u16 = 6;

/// First bit of a control packet.
const CONTROL_BIT: u32 = 1 << 31;
/// Bits that say that a packet is a whole message which is to be delivered in order (`FF` = 11, `O` = 1). A stream has no
/// messages; libudt reads these bits in messaging mode alone.
const SOLO_IN_ORDER: u32 = 0b111 << 29;
/// Bits of the message number.
const MESSAGE_MASK: u32 = (1 << 29) - 1;

/// Header of a data packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHeader {
    /// Sequence number of the packet, 31 bits.
    pub seq: u32,
    /// Number of the message, 29 bits; each packet of a stream is one.
    pub message: u32,
    /// Time since the connection was set up, microseconds; it wraps.
    pub timestamp_us: u32,
    /// Socket that the packet is for.
    pub socket_id: u32,
}

impl DataHeader {
    /// Writes the header in the order of the network.
    pub fn write(&self, to: &mut [u8; HEADER_BYTES]) {
        let words = [self.seq & !CONTROL_BIT, SOLO_IN_ORDER | (self.message & MESSAGE_MASK), self.timestamp_us];
        write_words(to, words, self.socket_id);
    }
}

/// Header of a control packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlHeader {
    /// Type of the control packet, 15 bits.
    pub kind: u16,
    /// Additional information: the ACK's own sequence number for ACK and ACK2.
    pub info: u32,
    /// Time since the connection was set up, microseconds; it wraps.
    pub timestamp_us: u32,
    /// Socket that the packet is for; 0 in a connection request.
    pub socket_id: u32,
}

impl ControlHeader {
    /// Writes the header in the order of the network.
    pub fn write(&self, to: &mut [u8; HEADER_BYTES]) {
        write_words(
            to,
            [CONTROL_BIT | u32::from(self.kind & 0x7fff) << 16, self.info, self.timestamp_us],
            self.socket_id,
        );
    }
}

/// A datagram, told apart by its first bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A data packet and its payload.
    Data(DataHeader, &'a [u8]),
    /// A control packet and its control information field.
    Control(ControlHeader, &'a [u8]),
}

/// Reads a datagram; `None` if it is shorter than a header.
pub fn parse(datagram: &[u8]) -> Option<Packet<'_>> {
    let (header, rest) = datagram.split_first_chunk::<HEADER_BYTES>()?;
    let word = |i: usize| u32::from_be_bytes([header[i], header[i + 1], header[i + 2], header[i + 3]]);
    let (first, second, timestamp_us, socket_id) = (word(0), word(4), word(8), word(12));
    if first & CONTROL_BIT == 0 {
        let header = DataHeader { seq: first, message: second & MESSAGE_MASK, timestamp_us, socket_id };
        return Some(Packet::Data(header, rest));
    }
    let kind = (first >> 16) as u16 & 0x7fff;
    Some(Packet::Control(ControlHeader { kind, info: second, timestamp_us, socket_id }, rest))
}

fn write_words(to: &mut [u8; HEADER_BYTES], words: [u32; 3], last: u32) {
    for (to, word) in to.chunks_exact_mut(4).zip(words.into_iter().chain([last])) {
        to.copy_from_slice(&word.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_as_they_were_written() {
        let data = DataHeader { seq: 0x7fff_fffe, message: 77, timestamp_us: u32::MAX, socket_id: 9 };
        let mut bytes = [0; HEADER_BYTES + 2];
        data.write(bytes.first_chunk_mut().unwrap());
        assert_eq!(parse(&bytes), Some(Packet::Data(data, &[0, 0])));
        assert_eq!(bytes[4] >> 5, 0b111);

        let control = ControlHeader { kind: 6, info: 3, timestamp_us: 4, socket_id: 5 };
        control.write(bytes.first_chunk_mut().unwrap());
        assert_eq!(parse(&bytes[..16]), Some(Packet::Control(control, &[])));
        assert_eq!(bytes[..4], [0x80, 6, 0, 0]);
        assert_eq!(parse(&bytes[..15]), None);
    }
}
