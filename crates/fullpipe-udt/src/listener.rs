//! The listening end of a handshake (section 5.1).

use std::collections::HashMap;
use std::net::SocketAddr;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::config::Config;
use crate::connection::{Agreed, Connection};
use crate::cookie::Cookies;
use crate::handshake::{HANDSHAKE_BYTES, Handshake, Kind, draw_socket_id, is_socket_id, peer_ip};

/// What a listener makes of a datagram.
#[derive(Debug)]
pub enum Request {
    /// Nothing: it is no request, or its cookie is wrong.
    Ignored,
    /// An answer for the address that it came from. It is to be sent as long as the request, with zeros after its end: no longer,
    /// as the address may be forged, and no shorter, as a caller may be trying a packet size.
    Answer([u8; HANDSHAKE_BYTES]),
    /// A connection, and the answer that the caller waits for.
    Accepted(Box<Connection>, [u8; HANDSHAKE_BYTES]),
}

/// Takes connection requests. It keeps nothing about an address before the address has returned its cookie.
#[derive(Debug)]
pub struct Listener {
    config: Config,
    cookies: Cookies,
    rng: Pcg64Mcg,
    /// Connections by address and socket of the caller, with the answer that they got: a request may come again.
    accepted: HashMap<(SocketAddr, u32), Handshake>,
    max_connections: usize,
}

impl Listener {
    /// A listener that has up to `max_connections` at once. All that is random follows from `seed`, which must be secret.
    pub fn new(config: Config, max_connections: usize, seed: [u8; 32]) -> Listener {
        let cookies = Cookies::new(seed);
        let rng = Pcg64Mcg::from_seed(seed_of(&seed));
        Listener { config, cookies, rng, accepted: HashMap::new(), max_connections }
    }

    /// Handles a datagram.
    pub fn handle_datagram(&mut self, now_ns: u64, from: SocketAddr, datagram: &[u8]) -> Request {
        let Some((request, 0)) = Handshake::from_datagram(datagram) else { return Request::Ignored };
        match request.kind {
            // An answer to no socket would itself be a request: two listeners could be made to answer each other without end.
            Kind::Regular if is_socket_id(request.socket_id) => {
                let answer = Handshake { cookie: self.cookies.cookie(now_ns, &from), ..request };
                Request::Answer(answer.datagram(request.socket_id, 0))
            }
            // Only a first request may be longer, to try a packet size.
            Kind::Conclusion
                if datagram.len() == HANDSHAKE_BYTES && self.cookies.is_valid(now_ns, &from, request.cookie) =>
            {
                self.conclude(now_ns, from, &request)
            }
            // A rendezvous is none of a listener's (section 5.2).
            _ => Request::Ignored,
        }
    }

    fn conclude(&mut self, now_ns: u64, from: SocketAddr, request: &Handshake) -> Request {
        let key = (from, request.socket_id);
        if let Some(answer) = self.accepted.get(&key).filter(|answer| answer.isn == request.isn) {
            return Request::Answer(answer.datagram(request.socket_id, 0));
        }
        if !request.is_acceptable() || self.accepted.len() >= self.max_connections || self.accepted.contains_key(&key) {
            let refusal = Handshake { kind: Kind::Refusal, ..*request };
            return Request::Answer(refusal.datagram(request.socket_id, 0));
        }
        let mss = u16::try_from(request.mss).unwrap_or(u16::MAX).min(self.config.mss());
        let answer = Handshake {
            mss: u32::from(mss),
            flow_window: self.config.flow_window(mss),
            kind: Kind::Conclusion,
            socket_id: draw_socket_id(&mut self.rng),
            // The caller's own number, in both directions: libudt takes it for proof that the answer is to its request. The
            // draft has a number of the listener's own.
            isn: request.isn,
            peer_ip: peer_ip(&from),
            ..*request
        };
        let agreed = Agreed {
            mss,
            flow_window: request.flow_window,
            send_isn: request.isn,
            receive_isn: request.isn,
            local_id: answer.socket_id,
            peer_id: request.socket_id,
            answer: Some(answer),
            rtt_ns: None,
        };
        self.accepted.insert(key, answer);
        let connection = Connection::new(now_ns, &self.config, agreed, self.rng.next_u64());
        Request::Accepted(Box::new(connection), answer.datagram(request.socket_id, 0))
    }

    /// Forgets a connection that has ended, by the address of the other end and its socket.
    pub fn forget(&mut self, from: SocketAddr, peer_id: u32) {
        self.accepted.remove(&(from, peer_id));
    }
}

/// Half of a secret as the seed of a generator; the other half is never shown.
fn seed_of(secret: &[u8; 32]) -> [u8; 16] {
    let key = blake3::derive_key("fullpipe-udt generator", secret);
    std::array::from_fn(|i| key[i])
}
