//! The far end's data port: where it is, connections to it that are begun early, and why none comes.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use fullpipe_net::measure::FIRST_ANSWER;
use fullpipe_net::stream::DataStream;
use fullpipe_net::stream::open;
use fullpipe_net::{NetError, local_end};

use crate::connection::join::JOIN;
use crate::error::{self, TransferError};
use crate::protocol::message::Connect;
use crate::threads::{lock, thread};

/// Time for the first connection to the data port of a copy that may not be silent for longer than `stall`. It is longer over a
/// path with a long round trip, if that is known: enough for a handshake of which a packet is lost.
pub(crate) fn first_answer(stall: Duration, rtt_ns: u64) -> Duration {
    FIRST_ANSWER.max(Duration::from_nanos(rtt_ns) * 4).min(stall)
}

/// Returns the first of a host's addresses at which the port answers, and the time that a connection to it may take: a name
/// may have several addresses, and a firewall may stand before some of them. The last one is returned without a trial, which
/// would take a round trip; trials of the others take as long as its connection may, `patience`, together. `connects` tries an
/// address for as long as it is told.
pub(crate) fn answering(
    addresses: &[SocketAddr],
    port: u16,
    patience: Duration,
    connects: &dyn Fn(SocketAddr, Duration) -> bool,
) -> Result<(SocketAddr, Duration), TransferError> {
    let share = patience / u32::try_from(addresses.len().saturating_sub(1)).unwrap_or(u32::MAX).max(1);
    let mut all = addresses.iter().map(|address| with_port(*address, port));
    let Some(mut to) = all.next() else {
        return Err(unknown_address(port));
    };
    for next in all {
        if connects(to, share) {
            return Ok((to, JOIN));
        }
        to = next;
    }
    Ok((to, patience))
}

/// Replaces the port of an address, and keeps the rest: a link-local address also names its interface.
pub(crate) fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// Ports that a client may ask the far end to open: those that no service is assigned to (RFC 6335, section 6).
pub(crate) const WISHES: std::ops::RangeInclusive<u16> = 49152..=65535;
/// Least round-trip time, seconds, from which on the client connects before the far end has confirmed the port.
pub(crate) const FAR_S: f64 = 0.02;
/// Time that the far end gets to open the port before the client connects, beside a part of the round-trip time.
const OPENING: Duration = Duration::from_millis(5);

/// Least time after the first connection from which others count as lost. TCP sends a lost SYN again after a second (RFC 6298).
const LOST: Duration = Duration::from_millis(50);

/// Where a trial to connect has led, and how it has ended.
type Knock = (SocketAddr, Result<Box<dyn DataStream>, NetError>);

/// Connections to a port, from threads of their own, which may fail or never be answered. What is not used is dropped.
pub(crate) struct Early {
    knocks: mpsc::Receiver<Knock>,
    /// Trials that have ended and are not used yet.
    ended: VecDeque<Knock>,
    /// Time that each trial has.
    patience: Duration,
    /// Time after the first connection from which a trial that has not ended counts as lost, and the instant.
    others_after: Duration,
    lost_from: Option<Instant>,
}

impl Early {
    /// Starts to connect to the port that `connect` asks for, before the far end confirms it, which saves a round trip: after
    /// the time that the far end gets to open it. Returns `None` if it asks for no port.
    pub(crate) fn knock(address: SocketAddr, connect: &Connect, sends: bool, stall: Duration) -> Option<Early> {
        if connect.port == 0 {
            return None;
        }
        let to = with_port(address, connect.port);
        let pause = OPENING + Duration::from_nanos(connect.rtt_ns) / 32;
        let patience = first_answer(stall, connect.rtt_ns);
        let (tell, knocks) = mpsc::channel();
        start(&tell, (to, patience), connect, (sends, pause)).ok()?;
        Some(Early::new(knocks, patience, connect))
    }

    fn new(knocks: mpsc::Receiver<Knock>, patience: Duration, connect: &Connect) -> Early {
        let others_after = LOST + 2 * Duration::from_nanos(connect.rtt_ns);
        Early { knocks, ended: VecDeque::new(), patience, others_after, lost_from: None }
    }

    /// Starts to connect to an open port of the far end, at the first of its addresses that answers.
    pub(crate) fn call(
        addresses: Vec<SocketAddr>,
        port: u16,
        connect: &Connect,
        sends: bool,
        stall: Duration,
    ) -> Result<Early, TransferError> {
        let (tell, knocks) = mpsc::channel();
        let patience = first_answer(stall, connect.rtt_ns);
        let early = Early::new(knocks, patience, connect);
        let (transport, connect) = (connect.at_first(sends), connect.clone());
        thread("callers", move || {
            let connects = |to, time| open::connector(to, &local_end::ANY, &transport, sends).connect(time).is_ok();
            // This fails if there is no address, and then no connection comes.
            if let Ok(to) = answering(&addresses, port, patience, &connects) {
                let _ = start(&tell, to, &connect, (sends, Duration::ZERO));
            }
        })?;
        Ok(early)
    }

    /// Waits for the end of the first trial, for so long. Returns where it has led and why it has failed, if it has; `None` if
    /// none has ended yet.
    pub(crate) fn first(&mut self, within: Duration) -> Option<(SocketAddr, Option<TransferError>)> {
        if self.ended.is_empty() {
            self.ended.extend(self.knocks.recv_timeout(within).ok());
        }
        let (to, connected) = self.ended.front()?;
        Some((*to, connected.as_ref().err().map(|error| no_data_port(*to, error, self.patience))))
    }

    /// Takes the connections, if `to` is where they lead. Once `is_open`, those that take much longer than the first count as lost:
    /// another one is then sooner there than theirs.
    fn next(&mut self, to: SocketAddr, is_open: bool) -> Option<Result<Box<dyn DataStream>, NetError>> {
        let ended = self.ended.pop_front();
        let knock = ended.or_else(|| {
            if !is_open {
                return self.knocks.recv().ok();
            }
            let lost_from = *self.lost_from.get_or_insert_with(|| Instant::now() + self.others_after);
            self.knocks.recv_timeout(lost_from.saturating_duration_since(Instant::now())).ok()
        });
        knock.filter(|(led, _)| *led == to).map(|(_, connected)| connected)
    }
}

/// Starts to connect all streams to an address, in threads of their own, after a pause. A second trial follows a refusal after a
/// pause, which may have been too short.
fn start(
    tell: &mpsc::Sender<Knock>,
    (to, patience): (SocketAddr, Duration),
    connect: &Connect,
    (sends, pause): (bool, Duration),
) -> Result<(), TransferError> {
    for _ in 0..connect.opened() {
        let (tell, transport) = (tell.clone(), connect.at_first(sends));
        thread("knock", move || {
            let connect = || open::connector(to, &local_end::ANY, &transport, sends).connect(patience);
            std::thread::sleep(pause);
            let mut connected = connect();
            if !pause.is_zero() && is_refused(&connected) {
                connected = connect();
            }
            // Nobody may listen any more.
            let _ = tell.send((to, connected));
        })?;
    }
    Ok(())
}

/// The error of a data port that answers at none of the far end's addresses within so long.
pub(crate) fn unanswered(addresses: &[SocketAddr], port: u16, within: Duration) -> TransferError {
    match addresses.first() {
        Some(address) => {
            let timed_out = NetError::Connect { host: String::new(), source: io::ErrorKind::TimedOut.into() };
            no_data_port(with_port(*address, port), &timed_out, within)
        }
        None => unknown_address(port),
    }
}

fn unknown_address(port: u16) -> TransferError {
    let why = "the host has no address that is known here".to_owned();
    TransferError::NoDataPort { to: format!("port {port}"), why }
}

/// The error of a data port to which a connection failed after so long.
fn no_data_port(to: SocketAddr, error: &NetError, after: Duration) -> TransferError {
    let why = match error {
        NetError::NoUdp { to, within } => return TransferError::NoUdp { to: *to, within: *within },
        NetError::Connect { source, .. } if source.kind() == io::ErrorKind::TimedOut => {
            format!("no answer within {after:?}, as if a firewall dropped it")
        }
        NetError::Connect { source, .. } => error::why(source),
        other => other.to_string(),
    };
    TransferError::NoDataPort { to: to.to_string(), why }
}

/// The far end's data port, and connections to it.
pub(crate) struct FarPort<'a> {
    to: SocketAddr,
    agreed: &'a Connect,
    sends: bool,
    /// Time for the first connection.
    patience: Duration,
    /// Guards the connections that were made early and are not used yet. Held while one is waited for.
    early: Mutex<Option<Early>>,
    /// Whether any stream has connected, so that the port is open.
    is_open: AtomicBool,
}

impl<'a> FarPort<'a> {
    pub(crate) fn new(
        (to, patience): (SocketAddr, Duration),
        agreed: &'a Connect,
        sends: bool,
        early: Option<Early>,
    ) -> FarPort<'a> {
        FarPort { to, agreed, sends, patience, early: Mutex::new(early), is_open: AtomicBool::new(false) }
    }

    /// Opens one connection. It may be called from several threads at once.
    pub(crate) fn open(&self) -> Result<Box<dyn DataStream>, TransferError> {
        let transport = self.agreed.at_first(self.sends);
        let connector = open::connector(self.to, &local_end::ANY, &transport, self.sends);
        let connect = |time| connector.connect(time);
        // Whether the port is open is asked for when it is this stream's turn.
        let early =
            lock(&self.early).as_mut().and_then(|early| early.next(self.to, self.is_open.load(Ordering::Relaxed)));
        let mut connected = match early {
            Some(early) if early.is_ok() || is_late(&early) => early,
            _ => connect(self.patience),
        };
        if is_late(&connected) && self.is_open.load(Ordering::Relaxed) {
            connected = connect(JOIN);
        }
        let stream = connected.map_err(|error| match error {
            NetError::NoUdp { .. } | NetError::Connect { .. } => no_data_port(self.to, &error, self.patience),
            other => other.into(),
        })?;
        self.is_open.store(true, Ordering::Relaxed);
        Ok(stream)
    }
}

/// Whether nobody listens on the port.
fn is_refused(connected: &Result<Box<dyn DataStream>, NetError>) -> bool {
    matches!(connected, Err(NetError::Connect { source, .. }) if source.kind() == io::ErrorKind::ConnectionRefused)
}

/// Whether nobody has answered in time.
fn is_late(connected: &Result<Box<dyn DataStream>, NetError>) -> bool {
    match connected {
        Err(NetError::Connect { source, .. }) => source.kind() == io::ErrorKind::TimedOut,
        Err(NetError::NoUdp { .. }) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_beyond_a_long_path_has_longer_to_answer() {
        let s = Duration::from_secs;
        for (stall, rtt_ns, expected) in
            [(60, 0, 3), (60, 366_000_000, 3), (60, 2_700_000_000, 10), (2, 2_700_000_000, 2)]
        {
            assert_eq!(first_answer(s(stall), rtt_ns).as_secs(), expected, "{stall} {rtt_ns}");
        }
    }

    /// A lost SYN is sent again after a second, and another connection is there by then.
    #[test]
    fn a_connection_that_takes_long_is_not_waited_for_once_others_are_there() {
        let to = SocketAddr::from(([127, 0, 0, 1], 1));
        let (tell, knocks) = mpsc::channel();
        let others_after = Duration::from_millis(20);
        let patience = Duration::from_secs(3);
        let mut early = Early { knocks, ended: VecDeque::new(), patience, others_after, lost_from: None };
        let late = || Err(NetError::Connect { host: String::new(), source: io::ErrorKind::TimedOut.into() });
        tell.send((to, late())).unwrap();
        assert!(early.next(to, false).is_some());
        let began = Instant::now();
        assert!(early.next(to, true).is_none() && early.next(to, true).is_none());
        assert!((others_after..Duration::from_secs(1)).contains(&began.elapsed()));
        // It may come after all.
        tell.send((to, late())).unwrap();
        assert!(early.next(to, true).is_some());
    }
}
