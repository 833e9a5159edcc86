//! Serves one client that wants to be measured.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use fullpipe_path::units::Time;
use fullpipe_path::{Direction, Workload, text};
use rand::RngExt;
use serde::{Deserialize, Serialize};

use crate::error::{Denial, NetError, system, too_large, too_many_samples};
use crate::host_info::PROGRAM;
use crate::one_client::MeasurementId;
use crate::session::{self, ANSWER, Control, Role, Watcher};
use crate::shared_port::SharedStreams;
use crate::side::Side;
use crate::stream::handed::HandedAcceptor;
use crate::stream::udp::UdpAcceptor;
use crate::stream::{self, Acceptor, DataStream, Expected};
use crate::wire::{self, MAGIC, Message, PROTOCOL, Request};
use crate::{sample_count, socket, sys};

/// Time between two looks for callers whose time is over.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The rules by which a server measures clients.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MeasurementPolicy {
    /// First and last port for data streams; 0 and 0 let the kernel choose.
    pub data_ports: (u16, u16),
    /// Longest time without progress before a run has failed.
    pub stall: Duration,
    /// Whether to refuse buffers larger than memory.
    pub check_memory: bool,
    /// Longest time of a run; `None` for no limit.
    pub max_run: Option<Duration>,
    /// Whether the client must prove that it holds a token.
    pub wants_proof: bool,
}

/// The server, as the code that serves one client sees it. The server may be another process.
pub trait Gatekeeper {
    /// Checks a proof ([`wire::proof`]) that the client holds a token.
    ///
    /// # Errors
    /// The client is refused.
    fn prove(&self, nonce: &[u8; 32], mac: &[u8; 32]) -> Result<(), Denial>;

    /// Takes a place for a connection of a client that wants to be measured. `id` is the number of the measurement, if that
    /// takes several connections.
    ///
    /// # Errors
    /// The client is refused.
    fn let_in(&self, id: Option<MeasurementId>) -> Result<(), Denial>;

    /// Notes that a run begins.
    fn begins(&self, request: &Request);

    /// The server's own port, if the streams come there.
    fn shared_port(&self) -> Option<&dyn SharedStreams> {
        None
    }
}

pub(crate) fn hello(nonce: Option<[u8; 32]>, measurement: Option<MeasurementId>) -> Message {
    Message::Hello { magic: MAGIC.into(), protocol: PROTOCOL, program: PROGRAM.into(), nonce, measurement }
}

/// The denial for a client that has not proved that it holds a token.
fn wants_token() -> Denial {
    Denial::new(
        "it measures for holders of its token only, and none was shown",
        "give the token with --token-file FILE, or in FULLPIPE_TOKEN",
    )
}

/// Refuses a client, and tells it why; returns the error.
fn deny(control: &mut Control, denial: Denial) -> NetError {
    // If the client is gone, there is nobody to tell.
    let _ = control.send(&Message::Refused { why: denial.to_string(), usable_cc: None }, "refusing");
    NetError::Denied(denial)
}

/// Receives a client's proof of its token, and refuses the client if the proof is wrong. Returns false if the client has
/// closed the connection instead.
fn passes(control: &mut Control, gatekeeper: &dyn Gatekeeper, nonce: &[u8; 32]) -> Result<bool, NetError> {
    let judged = match control.receive("waiting for a proof of its token") {
        Ok(Message::Proof { mac }) => gatekeeper.prove(nonce, &mac),
        Ok(_) => Err(wants_token()),
        // A client without a token may have wanted only the round-trip time, which the greeting shows.
        Err(NetError::Lost { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    judged.map(|()| true).map_err(|denial| deny(control, denial))
}

/// Serves one client that wants to be measured.
///
/// # Errors
/// The session's; the client has been told, if it could be.
pub fn measure(
    stream: TcpStream,
    peer: &str,
    options: &MeasurementPolicy,
    gatekeeper: &dyn Gatekeeper,
) -> Result<(), NetError> {
    let local = stream.local_addr().map_err(system("reading the connection's address"))?;
    let mut control = Control::new(stream, peer.to_owned())?;
    let nonce: Option<[u8; 32]> = options.wants_proof.then(|| rand::rng().random());
    let id = match control.receive("greeting")? {
        Message::Hello { magic, protocol, program, measurement, .. } if magic == MAGIC => {
            control.send(&hello(nonce, None), "greeting")?;
            if protocol != PROTOCOL {
                // The client sees the versions in the hello, and says so to its user.
                return Err(version_error(peer, &program, protocol));
            }
            measurement
        }
        other => return Err(control.unexpected(&other)),
    };
    if let Some(nonce) = nonce
        && !passes(&mut control, gatekeeper, &nonce)?
    {
        return Ok(());
    }
    let let_in = |control: &mut Control| gatekeeper.let_in(id).map_err(|denial| deny(control, denial));
    // One of several connections belongs to a measurement, also if it only asks the time (`--probe`).
    if id.is_some() {
        let_in(&mut control)?;
    }
    let mut asked_the_time = false;
    let request = loop {
        match control.receive("waiting for a request") {
            Ok(Message::Request(request)) => break request,
            Ok(Message::Clock { .. }) => {
                asked_the_time = true;
                control.send(&Message::Clock { ns: sys::now_ns() }, "telling the time")?;
            }
            Ok(other) => return Err(control.unexpected(&other)),
            // A client that wants only the round-trip time asks for the clock, and closes the connection. It takes no place.
            Err(NetError::Lost { .. }) if asked_the_time => return Ok(()),
            Err(error) => return Err(error),
        }
    };
    let refuse = |control: &mut Control, error: NetError| {
        // If the client is gone, there is nobody to tell.
        let usable_cc = matches!(error, NetError::NotAllowedCc { .. }).then(socket::system_cc).flatten();
        let _ = control.send(&Message::Refused { why: error.for_client(), usable_cc }, "refusing");
        error
    };
    // A request that cannot be met takes no place.
    validate(&request, options).map_err(|error| refuse(&mut control, error))?;
    if id.is_none() {
        let_in(&mut control)?;
    }
    let shared = gatekeeper.shared_port();
    let streams = join(&mut control, local, &request, options, shared).map_err(|error| refuse(&mut control, error))?;
    control.send(&Message::Joined, "starting")?;
    let (zero_ns, rtt_ns, stall_ns) = loop {
        match control.receive("agreeing on a clock")? {
            Message::Clock { .. } => control.send(&Message::Clock { ns: sys::now_ns() }, "agreeing on a clock")?,
            Message::Begin { zero_ns, rtt_ns, stall_ns } => break (zero_ns, rtt_ns, stall_ns),
            other => return Err(control.unexpected(&other)),
        }
    };
    // A clock far from ours would make the run wait for it.
    let minute = 60_000_000_000;
    let now = sys::now_ns();
    if zero_ns.abs_diff(now) > minute || rtt_ns > minute {
        let why = "a start more than a minute away".into();
        let _ = control.send(&Message::Refused { why, usable_cc: None }, "refusing");
        return Err(NetError::Stranger { peer: peer.into(), why: "a start more than a minute away".into() });
    }
    gatekeeper.begins(&request);
    let side = match request.direction {
        Direction::Send => Side::Receiver,
        Direction::Receive => Side::Sender,
    };
    let stall_ns = stall_ns.min(options.stall.as_nanos() as u64);
    let limit_ns = options.max_run.map(|most| limit_ns(most, &request));
    let preamble_bytes = session::counted_preamble_bytes(&request.transport, shared.is_some());
    let overhead_bytes = if side == Side::Receiver { preamble_bytes } else { 0 };
    let role = Role { end: side, request: &request, zero_ns, rtt_ns, stall_ns, limit_ns };
    let seen = session::run(&role, streams, overhead_bytes, &mut control, &Watcher::default())?;
    control.send(&Message::Report(Box::new(seen.report)), "reporting")?;
    wire::send_samples(&mut control.stream, &seen.samples).map_err(|e| control.lost("reporting", e))?;
    control.send(&Message::End, "reporting")?;
    control.wait_for_hang_up();
    Ok(())
}

pub(crate) fn version_error(peer: &str, theirs: &str, their_protocol: u32) -> NetError {
    let theirs = text::from_peer(theirs);
    NetError::Version { peer: peer.into(), theirs, their_protocol, ours: PROGRAM, our_protocol: PROTOCOL }
}

/// Returns the longest time that a run may take from its start, ns. A run of a given duration counts it from the first
/// byte's arrival, which may be late; it gets more time, so that it is not cut off.
fn limit_ns(most: Duration, request: &Request) -> u64 {
    let more = match request.workload {
        Workload::Size(_) => Duration::ZERO,
        Workload::Duration(_) => ANSWER,
    };
    u64::try_from(most.saturating_add(more).as_nanos()).unwrap_or(u64::MAX)
}

/// Turns a setting that this host does not have into a refusal: the client asked for it, so this host is not at fault.
fn deny_setting(error: NetError) -> NetError {
    NetError::Denied(match error {
        NetError::NoSuchCc { name, available } => Denial::new(
            format!("its kernel has no congestion control '{name}', only: {available}"),
            "choose one of these, or ask its operator to load it",
        ),
        NetError::Memory { buffer, count, memory } => Denial::new(
            too_large(count, buffer, memory),
            if count > 2 { "ask for a smaller --buffer, or fewer --streams" } else { "ask for a smaller --buffer" },
        ),
        NetError::TooManySamples { count, most } => {
            Denial::new(too_many_samples(count, most), "ask for a longer --sample, or fewer --streams")
        }
        other => return other,
    })
}

fn validate(request: &Request, options: &MeasurementPolicy) -> Result<(), NetError> {
    let transport = &request.transport;
    // The reason may quote what the client has sent.
    let denied = |why: String| NetError::Denied(text::from_peer(&why).into());
    transport.validate().map_err(|e| denied(e.to_string()))?;
    request.workload.validate(transport.streams).map_err(|e| denied(e.to_string()))?;
    if request.sample < Time(10_000_000) || request.sample > Time(3_600_000_000_000) {
        return Err(denied("the sampling interval must be from 10 ms to 1 h".into()));
    }
    sample_count::check_count(request).map_err(deny_setting)?;
    // Only a sender over TCP needs the congestion control.
    if transport.protocol() == fullpipe_path::Protocol::Tcp && request.direction == Direction::Receive {
        socket::check_known(&transport.cc).map_err(deny_setting)?;
    }
    if let (Some(most), Workload::Duration(time)) = (options.max_run, request.workload)
        && time.duration() > most
    {
        let most = most.as_secs_f64();
        return Err(NetError::Denied(Denial::new(
            format!("a run may take {most} s here, and {} was asked for", request.workload),
            "ask for less, or ask its operator to raise --max-duration",
        )));
    }
    if options.check_memory {
        socket::check_memory(transport).map_err(deny_setting)?;
    }
    Ok(())
}

/// Opens a port for the run's streams and waits for them.
fn join(
    control: &mut Control,
    local: SocketAddr,
    request: &Request,
    options: &MeasurementPolicy,
    shared: Option<&dyn SharedStreams>,
) -> Result<Vec<Box<dyn DataStream>>, NetError> {
    let n = usize::from(request.transport.streams);
    let token: [u8; 16] = rand::rng().random();
    // A caller without the token is not of this session, and does not delay it.
    let check =
        move |preamble: &[u8; wire::PREAMBLE]| session::read_preamble(preamble, token).filter(|i| usize::from(*i) < n);
    let peer = control.stream.peer_addr().ok().map(|peer| peer.ip());
    let expected = Expected { ports: options.data_ports, peer, check: Box::new(check) };
    let sends = request.direction == Direction::Receive;
    let protocol = request.transport.protocol();
    let mut acceptor: Box<dyn Acceptor> = match (protocol, shared) {
        (fullpipe_path::Protocol::Tcp, Some(shared)) => {
            let preambles = (0..request.transport.streams).map(|i| session::preamble(token, i).to_vec()).collect();
            let line = shared.expect(preambles).map_err(NetError::Denied)?;
            Box::new(HandedAcceptor::new(line, &request.transport, sends))
        }
        (_, Some(_)) => {
            return Err(NetError::Denied(Denial::new(
                "its data streams come to the port of control connections (--data-ports same), which is TCP's",
                "measure over TCP, or ask its operator for a range of --data-ports",
            )));
        }
        (fullpipe_path::Protocol::Udp, None) => Box::new(UdpAcceptor::new(local, &request.transport, sends, expected)?),
        (_, None) => stream::open::acceptor(local, &request.transport, sends, expected)?,
    };
    let port = acceptor.address().map_err(system("reading the data port"))?.port();
    control.send(&Message::Ready { port, token }, "getting ready")?;
    let mut streams: Vec<Option<Box<dyn DataStream>>> = (0..n).map(|_| None).collect();
    let deadline = Instant::now() + ANSWER;
    while streams.iter().any(Option::is_none) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let late = io::ErrorKind::WouldBlock.into();
            return Err(control.lost("waiting for its data streams; is the data port open?", late));
        }
        let wait = left.min(LOOK_INTERVAL).as_nanos() as u64;
        let ready = sys::wait_readable([acceptor.as_fd(), control.stream.as_fd()], wait);
        if ready.map_err(system("waiting for streams"))?[1] {
            return Err(match control.receive("waiting for its data streams") {
                Ok(message) => control.unexpected(&message),
                Err(error) => without_streams(error, protocol, streams.iter().flatten().count(), port),
            });
        }
        for (i, stream) in acceptor.accepted().map_err(system("waiting for streams"))? {
            streams[usize::from(i)] = Some(stream);
        }
    }
    Ok(streams.into_iter().flatten().collect())
}

/// The error of a client that has gone while this end waited for its data streams, `come` of which had come to `port`.
fn without_streams(error: NetError, protocol: fullpipe_path::Protocol, come: usize, port: u16) -> NetError {
    let NetError::Lost { peer, doing, source } = error else { return error };
    if source.kind() != io::ErrorKind::UnexpectedEof {
        return NetError::Lost { peer, doing, source };
    }
    let what = match protocol {
        fullpipe_path::Protocol::Tcp => "TCP connection",
        fullpipe_path::Protocol::Udp | fullpipe_path::Protocol::Udt => "UDP",
    };
    let why = match come {
        0 => format!("no {what} came from the client to port {port}, and it has gone; does a firewall drop it?"),
        _ => format!("only {come} came before the client went"),
    };
    NetError::Lost { peer, doing, source: io::Error::new(io::ErrorKind::UnexpectedEof, why) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn policy() -> MeasurementPolicy {
        let (stall, max_run) = (Duration::from_secs(60), Some(Duration::from_secs(600)));
        MeasurementPolicy { data_ports: (0, 0), stall, check_memory: true, max_run, wants_proof: false }
    }

    fn request(cc: &str, streams: u16, workload: Workload, sample_ms: u64) -> Request {
        let (cc, buffer) = (cc.to_owned(), fullpipe_path::Buffer::Auto);
        let transport = fullpipe_path::Transport { cc, streams, buffer, pacing: None, dscp: None, mss: None };
        Request { transport, workload, direction: Direction::Send, seed: 1, sample: Time(sample_ms * 1_000_000) }
    }

    /// A server that lets nobody in.
    struct Closed;

    impl Gatekeeper for Closed {
        fn prove(&self, _: &[u8; 32], _: &[u8; 32]) -> Result<(), Denial> {
            Ok(())
        }
        fn let_in(&self, _: Option<MeasurementId>) -> Result<(), Denial> {
            Err("no place".to_owned().into())
        }
        fn begins(&self, _: &Request) {}
    }

    /// A stranger could have any number of them in the log, or send a megabyte to be quoted there.
    #[test]
    fn a_request_that_cannot_be_met_takes_no_place_and_little_of_the_log() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ask = |cc: &str| {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let stream = listener.accept().unwrap().0;
            let workload = Workload::Duration(Time(1_000_000_000));
            wire::send(&mut client, &hello(None, None)).unwrap();
            let request = Message::Request(request(cc, 1, workload, 100));
            let send = std::thread::spawn(move || wire::send(&mut client, &request).map(|()| client));
            let why = measure(stream, "peer", &policy(), &Closed).unwrap_err().in_log();
            let mut client = send.join().unwrap().unwrap();
            wire::receive_message(&mut client).unwrap();
            let told = wire::receive_message(&mut client).unwrap();
            assert!(matches!(told, Message::Refused { .. }), "{told:?}");
            why
        };
        assert_eq!(ask("cubic"), "refused: no place");
        let long = ask(&"x".repeat(1_000_000));
        assert!(long.contains("xxx") && !long.contains("no place") && long.len() < 4096, "{}", long.len());
    }

    #[test]
    fn a_run_with_more_samples_than_are_kept_is_refused() {
        let judged = |streams, workload, sample_ms| {
            validate(&request("cubic", streams, workload, sample_ms), &policy()).map_err(|error| error.to_string())
        };
        let ten_minutes = Workload::Duration(Time(600_000_000_000));
        assert_eq!(judged(256, ten_minutes, 100), Ok(()));
        assert_eq!(judged(1, ten_minutes, 10), Ok(()));
        // How long a size takes is not known before.
        assert_eq!(judged(256, Workload::Size(fullpipe_path::Size(1_000_000)), 10), Ok(()));
        let why = judged(256, ten_minutes, 10).unwrap_err();
        assert!(why.contains("15360000 samples") && why.contains("longer --sample"), "{why}");
    }

    #[test]
    fn a_client_whose_udp_is_dropped() {
        let ended = |protocol, come| {
            let lost = NetError::Lost {
                peer: "192.0.2.1".into(),
                doing: "waiting for its data streams",
                source: io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection"),
            };
            without_streams(lost, protocol, come, 5202).in_log()
        };
        let text = "lost while waiting for its data streams: no UDP came from the client to port 5202, and it has gone";
        assert!(ended(fullpipe_path::Protocol::Udt, 0).starts_with(text), "{}", ended(fullpipe_path::Protocol::Udt, 0));
        assert!(ended(fullpipe_path::Protocol::Tcp, 0).contains("no TCP connection came from the client to port 5202"));
        assert!(ended(fullpipe_path::Protocol::Tcp, 2).ends_with("only 2 came before the client went"));
    }
}
