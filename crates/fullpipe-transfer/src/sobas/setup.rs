//! What an end needs to size its sockets, made when the two ends connect.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use fullpipe_path::{Buffer, Size, Transport};

use super::datagram::Keys;
use super::udp::Udp;
use crate::connection::stream::tcp_info;
use crate::protocol::sizing::{BBR, SizingEvent, SizingMode};
use crate::telemetry::counters::Counters;
use crate::threads::lock;

/// Part of its window that a congestion control gives up at a loss. Of the others what matters is that it is more:
/// Reno's half (RFC 5681, section 3.1).
fn decrease(cc: &str) -> f64 {
    match cc {
        BBR => 0.0,
        // `TCP_SCALABLE_MD_SCALE`, tcp_scalable.c.
        "scalable" => 0.125,
        _ => 0.5,
    }
}

/// Longest time until UDP is given up, besides two round trips.
pub(in crate::sobas) const PATIENCE: Duration = Duration::from_secs(1);

/// While the ends don't know each other: between two greetings.
pub(in crate::sobas) const GREET_EVERY_NS: u64 = 50_000_000;

/// Longest that a thread waits before it looks whether the session is over, nanoseconds.
pub(in crate::sobas) const LOOK_NS: u64 = 100_000_000;

/// Notes that wait for a display: it looks many times a second, and the controller decides at most each millisecond.
const MOST_NOTES: usize = 1000;

/// Keeps a note until a display takes it. A far end has none, and the other end may send as many as it likes.
pub(in crate::sobas) fn keep(counters: &Counters, note: SizingEvent) {
    let mut notes = lock(&counters.notes);
    if notes.len() < MOST_NOTES {
        notes.push(note);
    }
}

/// What an end needs besides its streams.
pub(crate) struct SizingSetup {
    pub(in crate::sobas) law: SizingMode,
    pub(in crate::sobas) udp: Option<Udp>,
    pub(in crate::sobas) rtt_ns: u64,
    pub(in crate::sobas) buffer: Buffer,
    /// Part of its window that the congestion control gives up at a loss.
    pub(in crate::sobas) decrease: f64,
}

impl SizingSetup {
    pub(crate) fn new(law: SizingMode, transport: &Transport, rtt_ns: u64, udp: Option<Udp>) -> SizingSetup {
        // BBR has no slow start that could begin again.
        let law = if law == SizingMode::All && transport.cc == BBR { SizingMode::Both } else { law };
        // The other end's word is no more than that.
        SizingSetup {
            law,
            udp,
            rtt_ns: rtt_ns.min(fullpipe_sobas::LONGEST_RTT_NS),
            buffer: transport.buffer,
            decrease: decrease(&transport.cc),
        }
    }
}

/// The end that is called: opens the UDP socket, on the number of the data port if it is free, and tells its port;
/// 0 if there is none. `token`: the session's.
pub(crate) fn listen(token: &[u8; 32], at: SocketAddr, ports: (u16, u16)) -> (Option<Udp>, u16) {
    let socket = std::iter::once(at.port()).chain(ports.0..=ports.1).find_map(|port| Udp::bind(at.ip(), port).ok());
    let port = socket.as_ref().and_then(|s| s.local_addr().ok()).map_or(0, |address| address.port());
    (socket.map(|socket| Udp::new(socket, None, Keys::new(token, false))), port)
}

/// The end that calls; `to` is the other's UDP port, 0 if it has none.
pub(crate) fn call(token: &[u8; 32], to: SocketAddr) -> Option<Udp> {
    let any = if to.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let socket = if to.port() == 0 { None } else { Udp::bind(any, 0).ok() };
    socket.map(|socket| Udp::new(socket, Some(to), Keys::new(token, true)))
}

/// Payload of a full segment, and the IP packet that carries it, bytes.
pub(in crate::sobas) fn segment(socket: &TcpStream) -> (u32, u32) {
    const ETHERNET: u32 = 1500;
    let info = tcp_info(socket);
    let get = |name| info.as_ref().and_then(|i| i.get(name)).and_then(|v| u32::try_from(v).ok()).filter(|v| *v > 0);
    let packet = get("pmtu").unwrap_or(ETHERNET);
    // IP and TCP headers with timestamps, at least.
    (get("snd_mss").unwrap_or(packet.saturating_sub(52)).min(packet), packet)
}

/// Largest window of a stream, bytes: what was asked for, or half of what the kernel's own tuning stops at.
pub(in crate::sobas) fn largest(buffer: Buffer) -> u64 {
    match buffer {
        Buffer::Bytes(Size(bytes)) => bytes,
        Buffer::Auto => fullpipe_net::socket::tuned().1 / 2,
    }
}
