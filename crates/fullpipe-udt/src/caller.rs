//! The calling end of a handshake: of a listener (section 5.1), or of another caller (rendezvous, section 5.2).

use std::net::SocketAddr;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::clock::Clock;
use crate::config::Config;
use crate::connection::{Agreed, Connection};
use crate::handshake::{HANDSHAKE_BYTES, Handshake, Kind, MIN_MSS, STREAM, VERSION, draw_socket_id, peer_ip};
use crate::packet::IP_UDP_BYTES;
use crate::seq::SEQ_MASK;

/// Time between two requests, nanoseconds (libudt).
const REQUEST_INTERVAL_NS: u64 = 250_000_000;

/// Requests of each packet size that get no answer before the next smaller one is tried.
const REQUESTS_OF_SIZE: u32 = 2;

/// Why no connection came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallError {
    /// No answer came in time.
    TimedOut,
    /// The listener refused: it is full, or has another version or socket type.
    Refused,
}

/// How far an attempt is.
#[derive(Debug)]
pub enum Progress {
    /// Go on: send what [`Caller::poll_transmit`] has, wait until [`Caller::next_timeout`].
    Waiting,
    /// The connection is there.
    Connected(Box<Connection>),
    /// The attempt has failed.
    Failed(CallError),
}

/// An attempt to set up a connection.
#[derive(Debug)]
pub struct Caller {
    config: Config,
    clock: Clock,
    rendezvous: bool,
    request: Handshake,
    /// Socket that requests are for: the other caller's once it is known, 0 before and for a listener.
    to: u32,
    next_request_ns: u64,
    deadline_ns: u64,
    /// When the present request was first sent, if it was sent once: then its answer gives the RTT.
    sent_ns: Option<u64>,
    requests: u32,
    /// Packet sizes that have not been tried, the largest last.
    smaller: Vec<u16>,
    /// Whether the first requests are as long as packets, so that an answer shows that the path carries those.
    probes: bool,
    seed: u64,
}

impl Caller {
    /// Calls a listener at `to`. All that is random follows from `seed`, which must be secret.
    pub fn new(now_ns: u64, config: Config, to: SocketAddr, seed: [u8; 16]) -> Caller {
        Caller::with_kind(now_ns, config, to, seed, false)
    }

    /// Meets another caller at `to`, which calls at the same time.
    pub fn rendezvous(now_ns: u64, config: Config, to: SocketAddr, seed: [u8; 16]) -> Caller {
        Caller::with_kind(now_ns, config, to, seed, true)
    }

    fn with_kind(now_ns: u64, config: Config, to: SocketAddr, seed: [u8; 16], rendezvous: bool) -> Caller {
        let mut rng = Pcg64Mcg::from_seed(seed);
        let mut smaller: Vec<u16> = config.smaller_mss.iter().copied().filter(|mss| *mss < config.mss()).collect();
        smaller.sort_unstable();
        let request = Handshake {
            version: VERSION,
            socket_type: STREAM,
            isn: rng.next_u32() & SEQ_MASK,
            mss: u32::from(config.mss()),
            flow_window: config.flow_window(config.mss()),
            kind: if rendezvous { Kind::Rendezvous } else { Kind::Regular },
            socket_id: draw_socket_id(&mut rng),
            cookie: 0,
            peer_ip: peer_ip(&to),
        };
        Caller {
            clock: Clock::new(now_ns),
            rendezvous,
            request,
            to: 0,
            next_request_ns: now_ns,
            deadline_ns: now_ns.saturating_add(config.connect_timeout_ns),
            sent_ns: None,
            requests: 0,
            smaller,
            probes: !config.smaller_mss.is_empty() && !rendezvous,
            seed: rng.next_u64(),
            config,
        }
    }

    /// The request to send now, if one is due.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<[u8; HANDSHAKE_BYTES]> {
        let now_ns = self.clock.at(now_ns);
        if now_ns < self.next_request_ns {
            return None;
        }
        if self.requests >= REQUESTS_OF_SIZE {
            self.try_smaller();
        }
        self.next_request_ns = now_ns.saturating_add(REQUEST_INTERVAL_NS);
        if self.requests == 0 {
            self.sent_ns = Some(now_ns);
        }
        self.requests = self.requests.saturating_add(1);
        Some(self.request.datagram(self.to, 0))
    }

    /// Bytes to send the request as, zeros after its end: while the packet size is tried, as long as a packet.
    pub fn request_bytes(&self) -> usize {
        let packet = if self.is_probing() { self.request.mss as usize } else { 0 };
        packet.saturating_sub(IP_UDP_BYTES).max(HANDSHAKE_BYTES)
    }

    /// This host has learned that the path does not carry a request of [`Caller::request_bytes`]. The next one is shorter, and due
    /// now. If the packet size is agreed already, this was about an earlier request, and changes nothing.
    pub fn too_long(&mut self) {
        if self.is_probing() {
            self.try_smaller();
            self.next_request_ns = self.clock.now_ns();
        }
    }

    fn is_probing(&self) -> bool {
        self.probes && self.request.kind == Kind::Regular
    }

    /// Goes on to the next smaller packet size. After the smallest, requests are as short as can be, for listeners that take no
    /// others.
    fn try_smaller(&mut self) {
        if !self.is_probing() {
            return;
        }
        match self.smaller.pop() {
            Some(mss) => self.offer(u32::from(mss)),
            None => self.probes = false,
        }
        self.requests = 0;
    }

    fn offer(&mut self, mss: u32) {
        self.request.mss = mss;
        self.request.flow_window = self.config.flow_window(u16::try_from(mss).unwrap_or(u16::MAX));
    }

    /// When the next request is due, or the attempt ends.
    pub fn next_timeout(&self) -> u64 {
        self.clock.caller_ns(self.next_request_ns.min(self.deadline_ns))
    }

    /// Ends the attempt if its time is over.
    pub fn handle_timeout(&mut self, now_ns: u64) -> Progress {
        if self.clock.at(now_ns) >= self.deadline_ns {
            Progress::Failed(CallError::TimedOut)
        } else {
            Progress::Waiting
        }
    }

    /// Handles a datagram from the address that was called.
    pub fn handle_datagram(&mut self, now_ns: u64, datagram: &[u8]) -> Progress {
        self.clock.at(now_ns);
        match Handshake::from_datagram(datagram) {
            Some((answer, to)) if self.rendezvous => self.on_rendezvous(&answer, to),
            Some((answer, to)) if to == self.request.socket_id => self.on_answer(&answer),
            _ => Progress::Waiting,
        }
    }

    /// A listener's answer (section 5.1). It repeats the number of the request, which nobody else knows.
    fn on_answer(&mut self, answer: &Handshake) -> Progress {
        if answer.isn != self.request.isn {
            return Progress::Waiting;
        }
        match answer.kind {
            Kind::Regular if self.request.kind == Kind::Regular => {
                // The answer repeats the size of the request, which may be an earlier one than the last.
                if (u32::from(MIN_MSS)..=u32::from(self.config.mss())).contains(&answer.mss) {
                    self.offer(answer.mss);
                }
                self.request.kind = Kind::Conclusion;
                self.request.cookie = answer.cookie;
                self.ask_again();
                Progress::Waiting
            }
            Kind::Conclusion if self.request.kind == Kind::Conclusion && self.fits(answer) => self.connected(answer),
            Kind::Refusal => Progress::Failed(CallError::Refused),
            _ => Progress::Waiting,
        }
    }

    /// The other caller's handshake (section 5.2): 0 is answered with -1, and -1 with -2.
    fn on_rendezvous(&mut self, answer: &Handshake, to: u32) -> Progress {
        let for_this = to == 0 || to == self.request.socket_id;
        // libudt leaves version and type out of a handshake that it repeats after it has connected.
        let known = self.to == answer.socket_id;
        let whole = if known { Handshake { version: VERSION, socket_type: STREAM, ..*answer } } else { *answer };
        if !for_this || !whole.is_acceptable() || answer.socket_id == self.request.socket_id {
            return Progress::Waiting;
        }
        self.to = answer.socket_id;
        self.request.mss = self.request.mss.min(answer.mss);
        match answer.kind {
            Kind::Rendezvous | Kind::Conclusion if self.request.kind == Kind::Rendezvous => {
                self.request.kind = Kind::Conclusion;
                self.ask_again();
                Progress::Waiting
            }
            Kind::Rendezvous => {
                self.ask_again();
                Progress::Waiting
            }
            Kind::Conclusion | Kind::Agreement if self.request.kind == Kind::Conclusion => self.connected(answer),
            _ => Progress::Waiting,
        }
    }

    /// Sends the request at once, once for each that it answers.
    fn ask_again(&mut self) {
        self.next_request_ns = self.clock.now_ns();
        self.requests = 0;
    }

    /// Whether a listener's answer is within the request: no larger packet, and numbers within their bounds.
    fn fits(&self, answer: &Handshake) -> bool {
        answer.is_acceptable() && answer.mss <= self.request.mss
    }

    fn connected(&self, answer: &Handshake) -> Progress {
        let mss = u16::try_from(answer.mss.min(self.request.mss)).unwrap_or(MIN_MSS);
        let agreement = Handshake { kind: Kind::Agreement, mss: u32::from(mss), ..self.request };
        let agreed = Agreed {
            mss,
            flow_window: answer.flow_window,
            send_isn: self.request.isn,
            receive_isn: answer.isn,
            local_id: self.request.socket_id,
            peer_id: answer.socket_id,
            answer: self.rendezvous.then_some(agreement),
            // If the request was repeated, this may be too long, which delays a repetition. Too short a guess would take data for
            // lost.
            rtt_ns: self.sent_ns.filter(|_| !self.rendezvous).map(|sent| self.clock.now_ns().saturating_sub(sent)),
        };
        let mut connection =
            Connection::new(self.clock.caller_ns(self.clock.now_ns()), &self.config, agreed, self.seed);
        if self.rendezvous && answer.kind == Kind::Conclusion {
            connection.answer_handshake();
        }
        Progress::Connected(Box::new(connection))
    }
}
