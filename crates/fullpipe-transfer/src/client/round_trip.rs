//! The time of a round trip to the server: as the kernel below a connection knows it, or as answers take.

use std::io::Read;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use fullpipe_net::tcp_info::TcpInfo;

use super::streams::hear;
use crate::connection::dial::ControlChannel;
use crate::connection::session::Session;
use crate::error::TransferError;
use crate::protocol::message::Message;
use crate::threads::lock;

/// An answer that takes this many of TCP's round trips, and [`RELAY_SLACK_S`] more, came through a relay.
const RELAY_FACTOR: f64 = 2.0;

/// Time that a server without a relay may take to answer beyond TCP's round trips, seconds: it starts a process.
const RELAY_SLACK_S: f64 = 0.02;

/// The round trip to the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundTrip {
    /// Its time, seconds.
    pub seconds: f64,
    /// Whether TCP's connection ends at a relay on the way.
    pub relayed: bool,
}

impl RoundTrip {
    /// The round trip of a connection that ends at the server.
    pub fn of_tcp(seconds: f64) -> Self {
        Self { seconds, relayed: false }
    }

    /// The round trip as TCP knows it, if it does, and as an answered ping has taken.
    pub fn of(tcp_s: Option<f64>, answered_s: f64) -> Self {
        match tcp_s {
            Some(tcp_s) if !is_relayed(tcp_s, answered_s) => Self::of_tcp(tcp_s),
            tcp_s => Self { seconds: answered_s, relayed: tcp_s.is_some() },
        }
    }
}

/// Whether an answer took so much longer than TCP's round trip that TCP's connection ends at a relay.
pub(super) fn is_relayed(tcp_s: f64, answered_s: f64) -> bool {
    answered_s > RELAY_FACTOR * tcp_s + RELAY_SLACK_S
}

/// Measures the round trip to the server.
pub(super) fn far_away(session: &Session, line: &mut ControlChannel) -> Result<RoundTrip, TransferError> {
    // Sent even if TCP knows the time: a server that refuses this client says so in its answer.
    let asked = round_trip(session, &mut *line.input)?;
    Ok(RoundTrip::of(line.socket.as_ref().and_then(tcp_round_trip), asked))
}

/// The round-trip time of a connection as its kernel measured it, seconds.
pub(super) fn tcp_round_trip(socket: &TcpStream) -> Option<f64> {
    TcpInfo::read(socket.as_fd()).ok().and_then(|info| min_rtt_s(&info))
}

/// The least round-trip time that a connection has had, seconds.
pub(super) fn min_rtt_s(info: &TcpInfo) -> Option<f64> {
    let us = info.get("min_rtt").filter(|us| *us > 0 && *us < u64::from(u32::MAX))?;
    Some(us as f64 * 1e-6)
}

/// Pings whose answers are awaited, and the time until the next one is sent without an answer.
const PINGS: u64 = 5;
const PING_GAP: Duration = Duration::from_millis(4);

/// The shortest of five round trips, seconds. Over a long path the pings follow each other before the first is answered: together
/// they take hardly longer than one.
pub(super) fn round_trip(session: &Session, input: &mut (dyn Read + Send)) -> Result<f64, TransferError> {
    let sent = &Mutex::new([None; PINGS as usize]);
    let (answered, answers) = mpsc::channel();
    std::thread::scope(|scope| {
        let ping = move || {
            for (n, at) in (1..=PINGS).zip(0..) {
                lock(sent)[at] = Some(Instant::now());
                session.send(&Message::Ping { n })?;
                let _ = answers.recv_timeout(PING_GAP);
            }
            Ok::<_, TransferError>(())
        };
        let pings = scope.spawn(ping);
        let mut least = f64::INFINITY;
        for (n, at) in (1..=PINGS).zip(0..) {
            match (hear(session, input)?, lock(sent)[at]) {
                (Message::Pong { n: back }, Some(begun)) if back == n => {
                    least = least.min(begun.elapsed().as_secs_f64());
                    let _ = answered.send(());
                }
                (other, _) => return Err(session.unexpected(&other)),
            }
        }
        pings.join().unwrap_or(Ok(())).map(|()| least)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::frame;

    #[test]
    fn a_relay_shows_in_answers_that_take_longer_than_tcp_can_explain() {
        // A relay on this host, 127 ms from the server.
        let trip = RoundTrip::of(Some(0.001), 0.128);
        assert!(trip.relayed);
        assert_eq!(trip.seconds, 0.128);
        // A server that takes 15 ms to start a process for the client.
        let trip = RoundTrip::of(Some(0.091), 0.106);
        assert!(!trip.relayed);
        assert_eq!(trip.seconds, 0.091);
        // Over ssh no connection is known to end anywhere.
        let trip = RoundTrip::of(None, 0.128);
        assert!(!trip.relayed);
        assert_eq!(trip.seconds, 0.128);
    }

    #[test]
    fn pings_over_a_long_path_do_not_wait_for_each_other() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let session = Session::new("far".to_owned(), Box::new(ours.try_clone().unwrap()));
        std::thread::scope(|scope| {
            // It answers only once it has heard all of them.
            scope.spawn(|| {
                let heard: Vec<Message> = (0..PINGS).map(|_| frame::receive(&mut &theirs).unwrap()).collect();
                for message in heard {
                    let Message::Ping { n } = message else { panic!("{message:?}") };
                    frame::send(&mut &theirs, &Message::Pong { n }).unwrap();
                }
            });
            let took_s = round_trip(&session, &mut &ours).unwrap();
            assert!(took_s > 0.0 && took_s.is_finite());
        });
    }
}
