//! What an end is opened with.

use crate::congestion::{CongestionControl, FixedRate, INITIAL_WINDOW_PACKETS, Native};
use crate::handshake::{MAX_MSS, MIN_MSS};
use crate::packet::{HEADER_BYTES, IP_UDP_BYTES};

/// Most packets that a window may have: an eighth of the sequence numbers, so that old and new packets stay apart.
const MAX_WINDOW_PACKETS: usize = 1 << 28;

/// How a sender chooses its rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RateControl {
    /// UDT's own congestion control (section 7.2).
    Native,
    /// A given rate, bytes per second of packets with their IP and UDP headers.
    Fixed(f64),
}

impl RateControl {
    pub(crate) fn start(self, now_ns: u64, first: u64, mss: u16, seed: u64) -> Box<dyn CongestionControl> {
        match self {
            RateControl::Native => Box::new(Native::new(now_ns, first, seed)),
            RateControl::Fixed(bytes_per_s) => Box::new(FixedRate::new(mss, bytes_per_s)),
        }
    }
}

/// What an end is opened with.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Largest packet, bytes, with the IP and UDP headers: the path's MTU. The smaller one of the two ends is used.
    pub mss: u16,
    /// Packet sizes that a caller tries, one after another, where requests as long as packets of `mss` get no answer, bytes: a link
    /// on the way may be unable to carry them and not say so. If there are none, `mss` is taken on trust.
    pub smaller_mss: Vec<u16>,
    /// Data that may wait to be sent or acknowledged, bytes of payload.
    pub send_buffer_bytes: usize,
    /// Data that may wait to be read, bytes of payload: the largest window that the other end gets.
    pub receive_buffer_bytes: usize,
    /// Window that the other end gets at first, bytes of payload. It grows to four times what is read in a round trip, up to
    /// `receive_buffer_bytes`. `usize::MAX`: all of that at once, as libudt does.
    pub first_window_bytes: usize,
    /// How the rate is chosen.
    pub control: RateControl,
    /// Packets of a burst, at most. Bursts last a hundredth of the RTT, from 0.2 to 0.5 ms. A queue on the path must hold them.
    pub max_burst_packets: u64,
    /// Time without a datagram from the other end after which the connection is lost, nanoseconds (section 5.3).
    pub peer_timeout_ns: u64,
    /// Time after which a connection attempt ends, nanoseconds (libudt: 3 s; 30 s for a rendezvous).
    pub connect_timeout_ns: u64,
}

impl Default for Config {
    /// 1,500-byte packets, libudt's buffers of 8,192 packets, and its times.
    fn default() -> Config {
        Config {
            mss: 1500,
            smaller_mss: Vec::new(),
            send_buffer_bytes: 8192 * 1456,
            receive_buffer_bytes: 8192 * 1456,
            first_window_bytes: usize::MAX,
            control: RateControl::Native,
            max_burst_packets: 1024,
            peer_timeout_ns: 30_000_000_000,
            connect_timeout_ns: 3_000_000_000,
        }
    }
}

impl Config {
    /// The packet size to offer: the configured one within the bounds of the protocol.
    pub(crate) fn mss(&self) -> u16 {
        self.mss.clamp(MIN_MSS, MAX_MSS)
    }

    /// Packets of `mss` bytes that the receive buffer has room for.
    pub(crate) fn receive_packets(&self, mss: u16) -> usize {
        packets(self.receive_buffer_bytes, mss)
    }

    /// Packets of `mss` bytes that the send buffer has room for.
    pub(crate) fn send_packets(&self, mss: u16) -> usize {
        packets(self.send_buffer_bytes, mss)
    }

    /// Packets of `mss` bytes that the other end may send at first.
    pub(crate) fn first_window_packets(&self, mss: u16) -> usize {
        packets(self.first_window_bytes, mss).min(self.receive_packets(mss))
    }

    /// The flow window to offer, packets of `mss` bytes.
    pub(crate) fn flow_window(&self, mss: u16) -> u32 {
        self.first_window_packets(mss) as u32
    }
}

fn packets(bytes: usize, mss: u16) -> usize {
    bytes.div_ceil(payload_bytes(mss)).clamp(INITIAL_WINDOW_PACKETS, MAX_WINDOW_PACKETS)
}

/// Payload of a full packet of `mss` bytes. `mss` is at least [`MIN_MSS`].
pub fn payload_bytes(mss: u16) -> usize {
    usize::from(mss.max(MIN_MSS)) - IP_UDP_BYTES - HEADER_BYTES
}
