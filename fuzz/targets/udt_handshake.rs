//! Handshakes of UDT: both ends of one, and a rendezvous, hear datagrams that an attacker has made.
#![no_main]

use std::net::{Ipv4Addr, SocketAddr};

use fullpipe_fuzz::{mutant_of_bytes, replay};
use fullpipe_udt::handshake::{HANDSHAKE_BYTES, Handshake, Kind};
use fullpipe_udt::{Caller, Config, Connection, Listener, Progress, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| replay(data, mutant_of_bytes, run));

/// Datagrams that are played, at most.
const MOST: usize = 64;

fn address(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 2, 1), port))
}

fn config() -> Config {
    Config { send_buffer_bytes: 1 << 16, receive_buffer_bytes: 1 << 16, ..Config::default() }
}

/// The input: chunks of a length byte and that many bytes. A length of 0 lets time go on.
fn run(data: &[u8]) {
    let mut now = 1_000_000_000_000;
    let mut listener = Listener::new(config(), 4, [7; 32]);
    let probing = Config { smaller_mss: vec![1280], ..config() };
    let mut callers =
        [Caller::new(now, probing, address(1), [1; 16]), Caller::rendezvous(now, config(), address(1), [2; 16])];
    let mut connections: Vec<Connection> = Vec::new();
    // libFuzzer sees what cookies are compared with, and finds this one without having asked for it.
    let first = Caller::new(now, config(), address(1), [3; 16]).poll_transmit(now).expect("a request");
    let Request::Answer(answer) = listener.handle_datagram(now, address(9), &first) else { panic!("no answer") };
    let cookie = Handshake::from_datagram(&answer).map(|(answer, _)| answer.cookie).expect("the answer is a handshake");
    let mut rest = data;
    for _ in 0..MOST {
        let Some((length, behind)) = rest.split_first() else { break };
        let (chunk, behind) = behind.split_at(behind.len().min(usize::from(*length)));
        rest = behind;
        if chunk.is_empty() {
            now += 100_000_000;
        }
        let datagrams = [chunk.to_vec(), completed(chunk, cookie).to_vec()];
        for caller in &mut callers {
            let _ = caller.poll_transmit(now);
            assert!(caller.request_bytes() >= HANDSHAKE_BYTES, "a request that is cut off");
            let _ = caller.handle_timeout(now);
        }
        for datagram in &datagrams {
            let valid = Handshake::from_datagram(datagram)
                .is_some_and(|(request, _)| request.cookie == cookie && request.kind == Kind::Conclusion);
            match listener.handle_datagram(now, address(9), datagram) {
                Request::Ignored => {}
                Request::Answer(answer) => {
                    assert!(answer.len() <= datagram.len(), "an answer amplifies");
                    let (answer, _) = Handshake::from_datagram(&answer).expect("the answer is a handshake");
                    assert!(answer.kind == Kind::Regular || valid, "an answer without a cookie");
                }
                Request::Accepted(connection, _) => {
                    assert!(valid, "a connection without a cookie");
                    connections.push(*connection);
                }
            }
            for caller in &mut callers {
                if let Progress::Connected(connection) = caller.handle_datagram(now, datagram) {
                    connections.push(*connection);
                    connections.truncate(16);
                }
            }
        }
        for connection in &mut connections {
            connection.handle_datagrams(now, chunk, chunk.len());
            connection.handle_timeout(now);
            while connection.poll_transmit(now, 65_000).is_some() {}
        }
    }
}

/// A whole handshake with the chunk's fields and the cookie.
fn completed(chunk: &[u8], cookie: u32) -> [u8; HANDSHAKE_BYTES] {
    let mut bytes = [0; HANDSHAKE_BYTES];
    bytes[0] = 0x80;
    for (to, from) in bytes[12..].iter_mut().zip(chunk) {
        *to = *from;
    }
    bytes[44..48].copy_from_slice(&cookie.to_be_bytes());
    bytes
}
