//! What an end needs to size its sockets, made when the two ends connect.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fullpipe_net::stream::StreamHandle;
use fullpipe_path::{Buffer, Size};

use super::datagram::Keys;
use super::udp::Udp;
use crate::connection::stream::tcp_info;
use crate::protocol::message::Connect;
use crate::protocol::sizing::{BBR, SizingEvent, SizingMode};
use crate::telemetry::counters::Counters;
use crate::threads::lock;

/// The fraction of its window that a congestion control gives up at a loss. All that are not listed count as Reno, which
/// gives up half (RFC 5681, section 3.1).
fn decrease(cc: &str) -> f64 {
    match cc {
        BBR => 0.0,
        // `TCP_SCALABLE_MD_SCALE`, tcp_scalable.c.
        "scalable" => 0.125,
        _ => 0.5,
    }
}

/// Time without an answer after which UDP is given up, in addition to two round trips.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Time between two greetings until the other end answers, nanoseconds.
pub(super) const GREET_EVERY_NS: u64 = 50_000_000;

/// Number of packet trains that the sending end sends unasked; they have the first numbers. On a long path slow start would have
/// filled the queue by the time trains could be asked for.
pub(super) const UNASKED_TRAINS: u32 = 2;

/// Longest time that a thread waits before it checks whether the session is over, nanoseconds.
pub(super) const SESSION_CHECK_NS: u64 = 100_000_000;

/// Least rate that a path is assumed to have, bit/s.
const LEAST_ASSUMED_BPS: u64 = 100_000;

/// Most events that wait for a display. A display takes them many times a second, and the controller decides at most once
/// per millisecond.
const MAX_WAITING_EVENTS: usize = 1000;

/// Keeps an event until a display takes it. A server has no display, and the other end may send any number of events.
pub(crate) fn keep_event(counters: &Counters, event: SizingEvent) {
    let mut events = lock(&counters.sizing_events);
    if events.len() < MAX_WAITING_EVENTS {
        events.push(event);
    }
}

/// What an end needs for sizing besides its streams.
pub(crate) struct SizingSetup {
    pub(super) law: SizingMode,
    pub(super) udp: Option<Udp>,
    pub(crate) rtt_ns: u64,
    pub(super) buffer: Buffer,
    /// Rate that the path is assumed to have, bit/s.
    pub(super) assumed_bps: u64,
    /// Rate that all streams together are not to exceed, bit/s, if the user gives one.
    pub(super) limit_bps: Option<u64>,
    /// Fraction of its window that the congestion control gives up at a loss.
    pub(super) decrease: f64,
}

impl SizingSetup {
    /// Whether SOBAS paces the sender.
    pub(crate) fn paces(&self) -> bool {
        self.law.paces()
    }

    /// What a connection asks for, unless it turns SOBAS off. The other end may claim any round-trip time, and any rate.
    pub(crate) fn new(connect: &Connect, udp: Option<Udp>) -> Option<SizingSetup> {
        let transport = &connect.transport;
        // BBR has no slow start that could begin again.
        let law = connect.sizing?;
        let law = if law.restarts() && transport.cc == BBR { SizingMode::Both } else { law };
        Some(SizingSetup {
            law,
            udp,
            rtt_ns: connect.rtt_ns.min(fullpipe_sobas::MAX_RTT_NS),
            buffer: transport.buffer,
            assumed_bps: connect.assumed_bps.max(LEAST_ASSUMED_BPS),
            limit_bps: transport.pacing.map(|rate| rate.0),
            decrease: decrease(&transport.cc),
        })
    }
}

/// Opens the server's UDP socket, on the number of the data port if that is free. Returns the socket and its port, which is
/// zero if there is no socket. `token` is the session's.
pub(crate) fn listen(token: &[u8; 32], at: SocketAddr, ports: (u16, u16)) -> (Option<Udp>, u16) {
    let socket = std::iter::once(at.port()).chain(ports.0..=ports.1).find_map(|port| Udp::bind(at.ip(), port).ok());
    let port = socket.as_ref().and_then(|s| s.local_addr().ok()).map_or(0, |address| address.port());
    (socket.map(|socket| Udp::new(socket, None, Keys::new(token, false))), port)
}

/// Opens the client's UDP socket. `to` is the server's UDP address; its port is zero if the server has none.
pub(crate) fn call(token: &[u8; 32], to: SocketAddr) -> Option<Udp> {
    let any = if to.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let socket = if to.port() == 0 { None } else { Udp::bind(any, 0).ok() };
    socket.map(|socket| Udp::new(socket, Some(to), Keys::new(token, true)))
}

/// Bytes of payload in a full segment, and of the IP packet that carries it.
pub(super) fn segment(stream: &dyn StreamHandle) -> (u32, u32) {
    const ETHERNET: u32 = 1500;
    let info = tcp_info(stream);
    let get = |name| info.as_ref().and_then(|i| i.get(name)).and_then(|v| u32::try_from(v).ok()).filter(|v| *v > 0);
    let packet = get("pmtu").unwrap_or(ETHERNET);
    // Without IPv4 and TCP headers with timestamps, which take 52 bytes.
    (get("snd_mss").unwrap_or(packet.saturating_sub(52)).min(packet), packet)
}

/// Largest window of a stream, bytes: the buffer that was asked for, or half of the limit of the kernel's autotuning.
pub(super) fn max_window(buffer: Buffer) -> u64 {
    match buffer {
        Buffer::Bytes(Size(bytes)) => bytes,
        Buffer::Auto => fullpipe_net::socket::tuned().1 / 2,
    }
}
