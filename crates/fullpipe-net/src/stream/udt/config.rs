//! What the ends of a stream over UDT are opened with.

use std::time::Duration;

use fullpipe_path::Transport;
use fullpipe_udt::{Config, RateControl};

/// Time without a datagram after which the other end counts as gone (draft-gg-udt-03, section 5.3).
pub(super) const PEER_TIMEOUT: Duration = Duration::from_secs(30);

/// What an end of a stream is opened with. `mss` is the MTU of the path as far as the kernel knows it.
pub(super) fn config(transport: &Transport, mss: u16) -> Config {
    let buffer = usize::try_from(transport.udt_buffer_bytes()).unwrap_or(usize::MAX);
    let control = rate(transport).map_or(RateControl::Native, RateControl::Fixed);
    Config {
        mss,
        send_buffer_bytes: buffer,
        receive_buffer_bytes: buffer,
        control,
        peer_timeout_ns: PEER_TIMEOUT.as_nanos() as u64,
        ..Config::default()
    }
}

/// The rate that a transport gives to each stream, bytes per second of packets with their IP and UDP headers.
pub(super) fn rate(transport: &Transport) -> Option<f64> {
    transport.pacing.map(|rate| rate.0 as f64 / 8.0 / f64::from(transport.streams.max(1)))
}
