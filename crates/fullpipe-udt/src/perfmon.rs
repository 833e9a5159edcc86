//! Statistics under the names of libudt's `perfmon` (`struct CPerfMon` in its `udt.h`).

use serde::{Deserialize, Serialize};

/// Counts since the connection was set up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// `pktSentTotal`: data packets sent, repeated ones included.
    #[serde(rename = "pktSentTotal")]
    pub pkt_sent: u64,
    /// `pktRecvTotal`: data packets received, duplicates included.
    #[serde(rename = "pktRecvTotal")]
    pub pkt_recv: u64,
    /// `pktSndLossTotal`: packets that were put into the sender's loss list.
    #[serde(rename = "pktSndLossTotal")]
    pub pkt_snd_loss: u64,
    /// `pktRcvLossTotal`: packets that were put into the receiver's loss list.
    #[serde(rename = "pktRcvLossTotal")]
    pub pkt_rcv_loss: u64,
    /// `pktRetransTotal`: data packets sent again.
    #[serde(rename = "pktRetransTotal")]
    pub pkt_retrans: u64,
    /// `pktSentACKTotal`: full ACKs sent.
    #[serde(rename = "pktSentACKTotal")]
    pub pkt_sent_ack: u64,
    /// `pktRecvACKTotal`: full ACKs received.
    #[serde(rename = "pktRecvACKTotal")]
    pub pkt_recv_ack: u64,
    /// `pktSentNAKTotal`: NAKs sent.
    #[serde(rename = "pktSentNAKTotal")]
    pub pkt_sent_nak: u64,
    /// `pktRecvNAKTotal`: NAKs received.
    #[serde(rename = "pktRecvNAKTotal")]
    pub pkt_recv_nak: u64,
}

/// A connection at one instant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Snapshot {
    /// The instant, nanoseconds of the caller's clock.
    pub at_ns: u64,
    /// What has been counted.
    pub counters: Counters,
    /// Payload bytes that the other end has acknowledged.
    pub acked_bytes: u64,
    /// Payload bytes that have arrived, in order or not.
    pub received_bytes: u64,
    /// Payload of a full packet, bytes.
    pub payload_bytes: u32,
    /// What is measured at the instant.
    pub instant: Instant,
}

/// What `perfmon` tells of the instant at which it is called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Instant {
    /// `usPktSndPeriod`: time between two packets, microseconds.
    #[serde(rename = "usPktSndPeriod")]
    pub us_pkt_snd_period: f64,
    /// `pktFlowWindow`: the receiver's window, packets.
    #[serde(rename = "pktFlowWindow")]
    pub pkt_flow_window: u64,
    /// `pktCongestionWindow`: the congestion window, packets.
    #[serde(rename = "pktCongestionWindow")]
    pub pkt_congestion_window: u64,
    /// `pktFlightSize`: packets that have been sent and not acknowledged.
    #[serde(rename = "pktFlightSize")]
    pub pkt_flight_size: u64,
    /// `msRTT`: smoothed RTT, milliseconds.
    #[serde(rename = "msRTT")]
    pub ms_rtt: f64,
    /// `mbpsBandwidth`: capacity of the path by packet pairs, 10^6 bits of payload per second; 0 before it is measured.
    #[serde(rename = "mbpsBandwidth")]
    pub mbps_bandwidth: f64,
    /// `byteAvailSndBuf`: room in the send buffer, bytes of payload.
    #[serde(rename = "byteAvailSndBuf")]
    pub byte_avail_snd_buf: u64,
    /// `byteAvailRcvBuf`: room in the receive buffer, bytes of payload.
    #[serde(rename = "byteAvailRcvBuf")]
    pub byte_avail_rcv_buf: u64,
}

/// A connection over an interval: what changed in it, and the instant at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PerfMon {
    /// `pktSent`: data packets sent, repeated ones included.
    #[serde(rename = "pktSent")]
    pub pkt_sent: u64,
    /// `pktRecv`: data packets received, duplicates included.
    #[serde(rename = "pktRecv")]
    pub pkt_recv: u64,
    /// `pktSndLoss`: packets that were put into the sender's loss list.
    #[serde(rename = "pktSndLoss")]
    pub pkt_snd_loss: u64,
    /// `pktRcvLoss`: packets that were put into the receiver's loss list.
    #[serde(rename = "pktRcvLoss")]
    pub pkt_rcv_loss: u64,
    /// `pktRetrans`: data packets sent again.
    #[serde(rename = "pktRetrans")]
    pub pkt_retrans: u64,
    /// `pktSentACK`: full ACKs sent.
    #[serde(rename = "pktSentACK")]
    pub pkt_sent_ack: u64,
    /// `pktRecvACK`: full ACKs received.
    #[serde(rename = "pktRecvACK")]
    pub pkt_recv_ack: u64,
    /// `pktSentNAK`: NAKs sent.
    #[serde(rename = "pktSentNAK")]
    pub pkt_sent_nak: u64,
    /// `pktRecvNAK`: NAKs received.
    #[serde(rename = "pktRecvNAK")]
    pub pkt_recv_nak: u64,
    /// `mbpsSendRate`: rate of sending, 10^6 bits per second; like libudt's, each packet counts as a full one.
    #[serde(rename = "mbpsSendRate")]
    pub mbps_send_rate: f64,
    /// `mbpsRecvRate`: rate of receiving, counted in the same way.
    #[serde(rename = "mbpsRecvRate")]
    pub mbps_recv_rate: f64,
    /// The end of the interval.
    #[serde(flatten)]
    pub instant: Instant,
}

impl PerfMon {
    /// What happened between two snapshots. The rates are 0 where no time has passed.
    pub fn between(before: &Snapshot, after: &Snapshot) -> PerfMon {
        let (a, b) = (&after.counters, &before.counters);
        let seconds = after.at_ns.saturating_sub(before.at_ns) as f64 / 1e9;
        let mbps = |packets: u64| match seconds {
            0.0 => 0.0,
            _ => packets as f64 * f64::from(after.payload_bytes) * 8.0 / seconds / 1e6,
        };
        let (pkt_sent, pkt_recv) = (a.pkt_sent.saturating_sub(b.pkt_sent), a.pkt_recv.saturating_sub(b.pkt_recv));
        PerfMon {
            pkt_sent,
            pkt_recv,
            pkt_snd_loss: a.pkt_snd_loss.saturating_sub(b.pkt_snd_loss),
            pkt_rcv_loss: a.pkt_rcv_loss.saturating_sub(b.pkt_rcv_loss),
            pkt_retrans: a.pkt_retrans.saturating_sub(b.pkt_retrans),
            pkt_sent_ack: a.pkt_sent_ack.saturating_sub(b.pkt_sent_ack),
            pkt_recv_ack: a.pkt_recv_ack.saturating_sub(b.pkt_recv_ack),
            pkt_sent_nak: a.pkt_sent_nak.saturating_sub(b.pkt_sent_nak),
            pkt_recv_nak: a.pkt_recv_nak.saturating_sub(b.pkt_recv_nak),
            mbps_send_rate: mbps(pkt_sent),
            mbps_recv_rate: mbps(pkt_recv),
            instant: after.instant,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_libudt() {
        let json = serde_json::to_value(PerfMon::default()).unwrap();
        let names: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        let libudt = "pktSent pktRecv pktSndLoss pktRcvLoss pktRetrans pktSentACK pktRecvACK pktSentNAK pktRecvNAK mbpsSendRate \
                      mbpsRecvRate usPktSndPeriod pktFlowWindow pktCongestionWindow pktFlightSize msRTT mbpsBandwidth \
                      byteAvailSndBuf byteAvailRcvBuf";
        assert_eq!(names, libudt.split_whitespace().collect::<Vec<_>>());
    }
}
