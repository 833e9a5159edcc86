//! What the ends of a stream over UDT are opened with.

use std::net::SocketAddr;
use std::time::Duration;

use fullpipe_path::Transport;
use fullpipe_udt::{Config, RateControl};

use crate::socket::udt_buffer_bytes;
use crate::stream::datagrams::{packet_bytes, uncounted_bytes};

/// Time without a datagram after which the other end counts as gone (draft-gg-udt-03, section 5.3).
pub(super) const PEER_TIMEOUT: Duration = Duration::from_secs(30);

/// Packets that are tried where larger ones do not get through, bytes: Ethernet's, and the least that IPv6 allows (RFC 8200).
const SMALLER_PACKETS_BYTES: [u32; 2] = [1500, 1280];

/// What an end of a stream to a host is opened with. Its packets are as large as the way there needs, as far as the kernel knows.
pub(super) fn config(transport: &Transport, to: SocketAddr) -> Config {
    let mss = packet_bytes(to);
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let buffer = size(udt_buffer_bytes(transport));
    let whole = u32::from(mss) + uncounted_bytes(to);
    let counted = |rate: f64| rate * f64::from(mss) / f64::from(whole);
    let control = rate(transport).map_or(RateControl::Native, |rate| RateControl::Fixed(counted(rate)));
    Config {
        mss,
        smaller_mss: SMALLER_PACKETS_BYTES.map(|bytes| (bytes - uncounted_bytes(to)) as u16).to_vec(),
        send_buffer_bytes: buffer,
        receive_buffer_bytes: buffer,
        first_window_bytes: size(transport.udt_first_window_bytes()),
        control,
        peer_timeout_ns: PEER_TIMEOUT.as_nanos() as u64,
        ..Config::default()
    }
}

/// The rate that a transport gives to each stream, bytes per second of whole packets.
pub(super) fn rate(transport: &Transport) -> Option<f64> {
    transport.pacing.map(|rate| rate.0 as f64 / 8.0 / f64::from(transport.streams.max(1)))
}

#[cfg(test)]
mod tests {
    use fullpipe_path::{Buffer, Rate};

    use super::*;

    #[test]
    fn a_rate_counts_the_whole_header_of_ipv6() {
        let transport = Transport {
            cc: "udt".into(),
            streams: 2,
            buffer: Buffer::Auto,
            pacing: Some(Rate(144_000)),
            dscp: None,
            mss: None,
        };
        for (to, rate) in [("127.0.0.1:9", 9_000.0), ("[::1]:9", 8_980.0)] {
            assert_eq!(config(&transport, to.parse().unwrap()).control, RateControl::Fixed(rate), "{to}");
        }
    }
}
