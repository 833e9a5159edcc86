//! The handshake packet (section 5), and how two ends agree on what it names.

use std::net::{IpAddr, SocketAddr};

use rand::Rng;

use crate::packet::{self, ControlHeader, HEADER_BYTES, IP_UDP_BYTES, Packet};

/// Version of the protocol (section 5).
pub const VERSION: u32 = 4;
/// Socket type of a stream. The draft gives 0; libudt sends and expects 1.
pub const STREAM: u32 = 1;
/// Bytes of the control information field of a handshake.
pub const HANDSHAKE_BODY_BYTES: usize = 48;
/// Bytes of a whole handshake packet. Zeros may follow. Request and answer are of one length, so an answer amplifies nothing.
pub const HANDSHAKE_BYTES: usize = HEADER_BYTES + HANDSHAKE_BODY_BYTES;
/// Smallest packet size that two ends may agree on, bytes with the IP and UDP headers: a handshake fits (as in libudt).
pub const MIN_MSS: u16 = (IP_UDP_BYTES + HANDSHAKE_BODY_BYTES) as u16;
/// Largest packet size, bytes: 65,507 bytes of payload is the most that UDP over IPv4 carries.
pub const MAX_MSS: u16 = u16::MAX;

/// What a handshake asks or answers (section 5, "connection type").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 1: a client's request, or a listener's answer to it, which carries the cookie.
    Regular,
    /// 0: the first packet of a rendezvous.
    Rendezvous,
    /// -1: a client's request with the cookie; a listener's last answer; the second packet of a rendezvous.
    Conclusion,
    /// -2: the last packet of a rendezvous, which is not answered.
    Agreement,
    /// 1002: the listener refuses (libudt; the draft has no refusal).
    Refusal,
}

impl Kind {
    fn from_wire(word: u32) -> Option<Kind> {
        Some(match word as i32 {
            1 => Kind::Regular,
            0 => Kind::Rendezvous,
            -1 => Kind::Conclusion,
            -2 => Kind::Agreement,
            1002 => Kind::Refusal,
            _ => return None,
        })
    }

    fn wire(self) -> u32 {
        let word: i32 = match self {
            Kind::Regular => 1,
            Kind::Rendezvous => 0,
            Kind::Conclusion => -1,
            Kind::Agreement => -2,
            Kind::Refusal => 1002,
        };
        word as u32
    }
}

/// Control information of a handshake packet (section 2, type 0x0).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshake {
    /// Version of the protocol.
    pub version: u32,
    /// Socket type, see [`STREAM`].
    pub socket_type: u32,
    /// Sequence number of the first data packet that the sender of this handshake will send.
    pub isn: u32,
    /// Largest packet, bytes, with the IP and UDP headers.
    pub mss: u32,
    /// Most packets that may be in flight to the sender of this handshake.
    pub flow_window: u32,
    /// What this handshake asks or answers.
    pub kind: Kind,
    /// Socket of the sender of this handshake.
    pub socket_id: u32,
    /// Cookie of the listener; 0 in the first request.
    pub cookie: u32,
    /// Address of the host that this handshake is sent to, in libudt's order; nobody checks it.
    pub peer_ip: [u32; 4],
}

impl Handshake {
    /// Reads the control information field; what follows it does not count. `None`: it is shorter, or has an unknown connection
    /// type.
    pub fn parse(body: &[u8]) -> Option<Handshake> {
        let body: &[u8; HANDSHAKE_BODY_BYTES] = body.first_chunk()?;
        let word = |i: usize| u32::from_be_bytes([body[4 * i], body[4 * i + 1], body[4 * i + 2], body[4 * i + 3]]);
        Some(Handshake {
            version: word(0),
            socket_type: word(1),
            isn: word(2),
            mss: word(3),
            flow_window: word(4),
            kind: Kind::from_wire(word(5))?,
            socket_id: word(6),
            cookie: word(7),
            peer_ip: [word(8), word(9), word(10), word(11)],
        })
    }

    /// Reads a whole datagram; returns the handshake and the socket that it is for. `None`: the datagram is no handshake.
    pub fn from_datagram(datagram: &[u8]) -> Option<(Handshake, u32)> {
        let Packet::Control(header, body) = packet::parse(datagram)? else { return None };
        let handshake = (header.kind == packet::HANDSHAKE).then(|| Handshake::parse(body)).flatten()?;
        Some((handshake, header.socket_id))
    }

    /// Writes a whole datagram for the socket `to`; 0 stands for a listener.
    pub fn datagram(&self, to: u32, timestamp_us: u32) -> [u8; HANDSHAKE_BYTES] {
        let mut bytes = [0; HANDSHAKE_BYTES];
        let header = ControlHeader { kind: packet::HANDSHAKE, info: 0, timestamp_us, socket_id: to };
        if let Some((head, body)) = bytes.split_first_chunk_mut() {
            header.write(head);
            let mut words = [
                self.version,
                self.socket_type,
                self.isn,
                self.mss,
                self.flow_window,
                self.kind.wire(),
                self.socket_id,
                self.cookie,
                0,
                0,
                0,
                0,
            ];
            words[8..].copy_from_slice(&self.peer_ip);
            for (to, word) in body.chunks_exact_mut(4).zip(words) {
                to.copy_from_slice(&word.to_be_bytes());
            }
        }
        bytes
    }

    /// Whether this implementation can talk to the sender of this handshake: version, socket type, a socket to answer to, and
    /// numbers within their bounds.
    pub fn is_acceptable(&self) -> bool {
        self.version == VERSION
            && self.socket_type == STREAM
            && self.mss >= u32::from(MIN_MSS)
            && self.flow_window >= 1
            && self.flow_window <= i32::MAX as u32
            && self.isn <= crate::seq::SEQ_MASK
            && is_socket_id(self.socket_id)
    }
}

/// Draws the number of a socket.
pub(crate) fn draw_socket_id(rng: &mut impl Rng) -> u32 {
    (rng.next_u32() & (i32::MAX as u32)).max(1)
}

/// Whether a number is one of a socket: libudt's are positive numbers of 32 bits with a sign.
pub fn is_socket_id(id: u32) -> bool {
    id != 0 && id <= i32::MAX as u32
}

/// Returns the field "peer IP address" for an address. libudt stores an IPv4 address as the kernel does and turns the word
/// around for the network, so its bytes are in reverse order on the wire.
pub fn peer_ip(address: &SocketAddr) -> [u32; 4] {
    match address.ip() {
        IpAddr::V4(ip) => [u32::from_le_bytes(ip.octets()), 0, 0, 0],
        IpAddr::V6(ip) => {
            let o = ip.octets();
            std::array::from_fn(|i| u32::from_le_bytes([o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_comes_back_as_it_was_written() {
        let handshake = Handshake {
            version: VERSION,
            socket_type: STREAM,
            isn: 5,
            mss: 1500,
            flow_window: 25_600,
            kind: Kind::Conclusion,
            socket_id: 17,
            cookie: 0xdead_beef,
            peer_ip: peer_ip(&"10.0.2.1:5000".parse().unwrap()),
        };
        let bytes = handshake.datagram(3, 7);
        assert_eq!(Handshake::from_datagram(&bytes), Some((handshake, 3)));
        assert_eq!(bytes[HEADER_BYTES + 32..HEADER_BYTES + 36], [1, 2, 0, 10]);
        assert_eq!(Handshake::from_datagram(&bytes[..63]), None);
        assert!(handshake.is_acceptable());
        assert!(!Handshake { mss: 0, ..handshake }.is_acceptable());
        assert!(!Handshake { socket_id: 0, ..handshake }.is_acceptable());
    }
}
