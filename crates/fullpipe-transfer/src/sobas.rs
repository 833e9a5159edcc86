//! Socket buffers that size themselves: the shell of [`fullpipe_sobas`], which decides.
//!
//! The controller runs at the receiving end (`controller`), which knows what arrives. The sending end (`responder`)
//! echoes its probes, sends packet trains when asked, says what TCP has sent again, and paces its streams.
//! Probes and trains are UDP beside the streams (`datagram`, `udp`); everything else goes over the control
//! connection. Where UDP does not pass, TCP's own round-trip times serve as probes and there are no trains.

mod actuators;
mod controller;
mod datagram;
mod replay;
mod responder;
mod udp;

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fullpipe_net::tcp_info::TcpInfo;
use fullpipe_path::{Buffer, Size, Transport};
use serde::{Deserialize, Serialize};

use crate::connection::session::{Session, lock, thread};
use crate::connection::tls::{self, Stream};
use crate::error::TransferError;
use crate::protocol::message::Limits;
use crate::telemetry::counters::Counters;
use datagram::Keys;
pub(crate) use udp::Udp;

pub use fullpipe_sobas::Event;

/// Which of the controller's laws decides, and by which means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Law {
    /// The paper's: the receiver's window, set once.
    Paper,
    /// Adaptive, the receiver's window alone.
    Window,
    /// Adaptive, the sender's pacing rate alone.
    Pacing,
    /// Adaptive, both.
    Both,
    /// Adaptive, both, and slow start once more where losses have left TCP far below the pacing rate.
    All,
}

impl Law {
    /// As far as the sender's kernel allows: it is through BBR that slow start begins once more.
    pub(crate) fn with(self, sender: &Limits) -> Law {
        if self == Law::All && !sender.ccs.iter().any(|cc| cc == BBR) { Law::Both } else { self }
    }

    /// Whether the sender is paced.
    fn paces(self) -> bool {
        matches!(self, Law::Pacing | Law::Both | Law::All)
    }
}

/// Slow start begins once more through it.
const BBR: &str = "bbr";
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
/// What TCP sends at once while it is paced, and BBR, which paces itself, always, bytes: a quarter of the shallowest queue that is thought of.
const PART: usize = fullpipe_sobas::BURST as usize;

/// What the sending end has seen of its streams, all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Seen {
    /// Segments sent again.
    pub retransmits: u64,
    /// How long the receiver's window was the limit, microseconds, summed over the streams.
    pub window_limited_us: u64,
    /// Least of TCP's own latest round-trip times, microseconds.
    pub rtt_us: u32,
}

/// Something for the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Note {
    /// How it began.
    Began {
        /// Which law.
        law: Law,
        /// Whether UDP passes, hence probes and trains.
        udp: bool,
        /// TCP payload of a full segment, bytes.
        mss: u32,
        /// Largest window, bytes, all streams together.
        largest: u64,
    },
    /// A decision. Its instant counts from the beginning.
    Decided(Event),
}

impl Note {
    /// Its fields; `what` says which it is.
    ///
    /// # Errors
    /// None that is known.
    pub fn to_json(&self) -> serde_json::Result<serde_json::Value> {
        #[derive(Serialize)]
        #[serde(tag = "what", rename_all = "snake_case")]
        enum Line<'a> {
            Began { law: Law, udp: bool, mss: u32, largest: u64 },
            Decided(&'a Event),
        }
        serde_json::to_value(match self {
            Note::Began { law, udp, mss, largest } => {
                Line::Began { law: *law, udp: *udp, mss: *mss, largest: *largest }
            }
            Note::Decided(event) => Line::Decided(event),
        })
    }
}

/// Longest time until UDP is given up, besides two round trips.
const PATIENCE: Duration = Duration::from_secs(1);
/// While the ends don't know each other: between two greetings.
const GREET_EVERY_NS: u64 = 50_000_000;
/// Longest that a thread waits before it looks whether the session is over, nanoseconds.
const LOOK_NS: u64 = 100_000_000;

/// Notes that wait for a display: it looks many times a second, and the controller decides at most each millisecond.
const MOST_NOTES: usize = 1000;

/// Keeps a note until a display takes it. A far end has none, and the other end may send as many as it likes.
fn keep(counters: &Counters, note: Note) {
    let mut notes = lock(&counters.notes);
    if notes.len() < MOST_NOTES {
        notes.push(note);
    }
}

/// What an end needs besides its streams.
pub(crate) struct Aside {
    law: Law,
    udp: Option<Udp>,
    rtt_ns: u64,
    buffer: Buffer,
    /// Part of its window that the congestion control gives up at a loss.
    decrease: f64,
}

impl Aside {
    pub(crate) fn new(law: Law, transport: &Transport, rtt_ns: u64, udp: Option<Udp>) -> Aside {
        // BBR has no slow start that could begin again.
        let law = if law == Law::All && transport.cc == BBR { Law::Both } else { law };
        // The other end's word is no more than that.
        Aside {
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

/// Starts this end's part, which ends with the session.
///
/// # Errors
/// Threads cannot be started, or descriptors not doubled.
pub(crate) fn start(
    session: &Arc<Session>,
    aside: Option<Aside>,
    streams: &mut [Stream],
    sends: bool,
    counters: &Arc<Counters>,
) -> Result<(), TransferError> {
    let Some(aside) = aside else { return Ok(()) };
    let sockets = Arc::new(tls::sockets(streams)?);
    let session = session.clone();
    if sends {
        let parts = Arc::new(AtomicBool::new(true));
        if aside.law.paces() {
            for stream in streams {
                let (segment, _) = segment(stream.socket());
                stream.in_parts(PART, segment, parts.clone());
            }
        }
        let answer = responder::Answer::new(&session, aside, sockets, parts, counters.clone());
        thread("sobas", move || answer.run())
    } else {
        let judge = controller::Judge::new(&session, aside, sockets, counters.clone());
        thread("sobas", move || judge.run())
    }
}

/// TCP_INFO of a stream.
pub(crate) fn read(socket: &TcpStream) -> Option<TcpInfo> {
    TcpInfo::read(std::os::fd::AsFd::as_fd(socket)).ok()
}

/// Payload of a full segment, and the IP packet that carries it, bytes.
fn segment(socket: &TcpStream) -> (u32, u32) {
    const ETHERNET: u32 = 1500;
    let info = read(socket);
    let get = |name| info.as_ref().and_then(|i| i.get(name)).and_then(|v| u32::try_from(v).ok()).filter(|v| *v > 0);
    let packet = get("pmtu").unwrap_or(ETHERNET);
    // IP and TCP headers with timestamps, at least.
    (get("snd_mss").unwrap_or(packet.saturating_sub(52)).min(packet), packet)
}

/// Largest window of a stream, bytes: what was asked for, or half of what the kernel's own tuning stops at.
fn largest(buffer: Buffer) -> u64 {
    match buffer {
        Buffer::Bytes(Size(bytes)) => bytes,
        Buffer::Auto => fullpipe_net::socket::tuned().1 / 2,
    }
}
