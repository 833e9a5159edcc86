//! What the observations say about the path: delay, loss, throughput, capacity.

use crate::config::Config;
use crate::probes::{PROBE_INTERVAL_NS, Probes};
use crate::throughput::{Bytes, Windows};
use crate::trains::{DOUBLING_RATIO, Own, Trains};

/// Least window and least pacing per stream, segments (per RTT): TCP's initial window (RFC 6928). At less, ACKs stall.
pub(crate) const MIN_WINDOW_SEGMENTS: f64 = 10.0;
/// Longest round-trip time that is believed, nanoseconds. Longer samples are not the network's.
pub const MAX_RTT_NS: u64 = 10_000_000_000;
/// The paper's initial window S, as a multiple of C'·T (Figure 8).
pub(crate) const START_FACTOR: f64 = 1.2;
/// Shortest time over which the record states a rate, nanoseconds.
pub(crate) const RECORD_RATE_NS: u64 = 50_000_000;
/// Least time before a train arrives over which the rate of the transfer beside it is taken, nanoseconds.
const TRAIN_RATE_NS: u64 = 10_000_000;
/// Packets that the path carries in that time at least: more than bursts of slow start have on a slow path.
const TRAIN_RATE_PACKETS: f64 = 256.0;
/// Largest packet of a train, IP bytes: a queue of 64 KB holds 32 of them.
pub const MAX_TRAIN_PACKET_BYTES: u32 = 1500;
/// Bytes of a frame besides its IP packet: the Ethernet header.
pub(crate) const FRAMING_BYTES: f64 = 14.0;
/// RTTs after which no answer from packet trains is expected any more.
const TRAIN_TIMEOUT_RTTS: u64 = 6;
/// Least time after which no answer from packet trains is expected any more, nanoseconds. On paths with a shorter RTT the
/// hosts' own delays dominate.
const MIN_TRAIN_TIMEOUT_NS: u64 = 50_000_000;

/// The observations so far.
#[derive(Debug, Clone)]
pub(crate) struct NetworkModel {
    pub config: Config,
    pub probes: Probes,
    pub bytes: Bytes,
    pub windows: Windows,
    pub trains: Trains,
    /// Whether the window limits the sender; `None` if the shell never told.
    pub buffer_limited: Option<bool>,
    /// Segments that the sender has retransmitted since the start.
    pub retransmits: u64,
}

impl NetworkModel {
    /// A model that knows only the RTT that was measured on connecting.
    pub fn new(config: Config, rtt_ns: u64) -> NetworkModel {
        NetworkModel {
            config,
            probes: Probes::new(rtt_ns.min(MAX_RTT_NS)),
            bytes: Bytes::default(),
            windows: Windows::default(),
            trains: Trains::default(),
            buffer_limited: None,
            retransmits: 0,
        }
    }

    /// Size of a train's packets, IP bytes. Larger ones would fill a shallow queue.
    pub fn train_packet(&self) -> u32 {
        self.config.packet.min(MAX_TRAIN_PACKET_BYTES)
    }

    /// TCP payload, in full segments, that occupies the path for as long as one packet of a train, bits.
    pub fn packet_bits(&self) -> f64 {
        let line = |packet: u32| f64::from(packet) + FRAMING_BYTES;
        f64::from(self.config.mss) * 8.0 * line(self.train_packet()) / line(self.config.packet)
    }

    /// Payload rate of full segments on a path that passes this many train packets per second, bit/s.
    pub fn payload_bps(&self, packets_per_second: f64) -> f64 {
        packets_per_second * self.packet_bits()
    }

    /// One segment per stream, bytes.
    pub fn segments(&self) -> f64 {
        f64::from(self.config.mss) * f64::from(self.config.streams)
    }

    /// The nearest possible window: at least TCP's initial one, at most the largest that the hosts grant, bytes.
    pub fn fit(&self, window: f64) -> f64 {
        let largest = self.config.largest as f64;
        window.max((MIN_WINDOW_SEGMENTS * self.segments()).min(largest)).min(largest)
    }

    /// Rate of the transfer over the last round trip, in train packets per second.
    pub fn own_pps(&self, now: u64) -> f64 {
        let lately = now.saturating_sub(self.probes.base_ns().max(PROBE_INTERVAL_NS));
        self.bytes.between(lately, now).unwrap_or(0.0) / self.packet_bits()
    }

    /// The transfer beside a train that arrives now, on a path of this capacity in train packets per second, if it is known. In slow
    /// start its rate is above the mean over a round trip.
    pub fn beside_train(&self, now: u64, capacity_pps: Option<f64>) -> Own {
        let over_ns = capacity_pps.map_or(0, |pps| (TRAIN_RATE_PACKETS / pps.max(1.0) * 1e9) as u64).max(TRAIN_RATE_NS);
        let lately = self.bytes.between(now.saturating_sub(over_ns), now).unwrap_or(0.0) / self.packet_bits();
        Own { rate: lately.max(DOUBLING_RATIO * self.own_pps(now)), lately }
    }

    /// Payload rate received over the last RTT, or over the last 50 ms if the RTT is shorter, bit/s.
    pub fn recent_bps(&self, now: u64) -> Option<f64> {
        self.bytes.between(now.saturating_sub(self.probes.base_ns().max(RECORD_RATE_NS)), now)
    }

    /// Whether to stop waiting for packet trains that were first sent at `began`: there will be no more, or they are overdue.
    pub fn trains_are_over(&self, began: u64, now: u64) -> bool {
        let patience = (TRAIN_TIMEOUT_RTTS * self.probes.base_ns()).max(MIN_TRAIN_TIMEOUT_NS);
        !self.config.trains || self.trains.done() || now >= began.saturating_add(patience)
    }
}
