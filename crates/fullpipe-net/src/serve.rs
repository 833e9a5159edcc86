//! The serving end: many clients at once, each a session of its own.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fullpipe_path::units::Time;
use fullpipe_path::{Direction, Workload, text};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::admission::{Admission, LogLimit, Places};
pub use crate::admission::{PendingClient, Purpose};
use crate::error::{Denial, NetError, system};
use crate::host_info::PROGRAM;
use crate::preamble_listener::{BACKLOG, PreambleListener};
use crate::preface::{self, Preface};
use crate::session::{self, ANSWER, Control, Role};
use crate::side::Side;
use crate::socket;
use crate::sys;
use crate::traffic::Streams;
use crate::wire::{self, MAGIC, Message, PROTOCOL, Request};

/// Between looks at callers whose time is over.
const SECOND: Duration = Duration::from_secs(1);

/// How to listen.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Address and port of control connections.
    pub bind: SocketAddr,
    /// Most clients of each [`Purpose`] that are served at once; more are refused.
    pub max_clients: usize,
    /// Whether to end after one client.
    pub once: bool,
}

/// How a client is measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MeasurementPolicy {
    /// First and last port for the streams; 0 and 0 let the kernel choose.
    pub data_ports: (u16, u16),
    /// A run in which nothing moves for so long has failed.
    pub stall: Duration,
    /// Whether buffers larger than this machine's memory are refused.
    pub check_memory: bool,
    /// Longest run; none for any.
    pub max_run: Option<Duration>,
    /// Whether the client has to prove to hold a token.
    pub wants_proof: bool,
}

/// What the serving of one client asks of the server that it belongs to, which may be another process.
pub trait Gatekeeper {
    /// Decides whether a proof of a token ([`wire::proof`]) for a nonce is one.
    ///
    /// # Errors
    /// The reason for refusing the client.
    fn prove(&self, nonce: &[u8; 32], mac: &[u8; 32]) -> Result<(), Denial>;

    /// Takes a place for a client that is to be measured.
    ///
    /// # Errors
    /// The reason for refusing the client.
    fn let_in(&self) -> Result<(), Denial>;

    /// Hears that a run begins.
    fn begins(&self, request: &Request);
}

/// Serves one connection of a client; the flag says whether the client begins as one that wants to be measured. The preface
/// has been taken from the connection.
pub type Serve = Arc<dyn Fn(TcpStream, &str, &PendingClient, bool) -> Result<(), NetError> + Send + Sync>;

/// What happens at a server, for a log.
#[derive(Debug)]
pub enum Event<'a> {
    /// A client's run begins.
    Begin {
        /// The client's address.
        peer: &'a str,
        /// What it wants.
        request: &'a Request,
    },
    /// A connection is over.
    End {
        /// The client's address.
        peer: &'a str,
        /// Its result.
        result: Result<(), NetError>,
        /// Whether the client was to be measured.
        measured: bool,
    },
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    options: ServeOptions,
    places: Places,
    lobby: Admission,
    check: Option<preface::Check>,
}

impl Server {
    /// Takes the port.
    ///
    /// # Errors
    /// It is in use, or may not be used.
    pub fn bind(options: ServeOptions) -> Result<Server, NetError> {
        let listen = || -> io::Result<TcpListener> {
            let socket = Socket::new(Domain::for_address(options.bind), Type::STREAM, Some(Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            if options.bind.is_ipv6() {
                // One server answers both families.
                socket.set_only_v6(false)?;
            }
            socket.bind(&options.bind.into())?;
            socket.listen(BACKLOG)?;
            Ok(socket.into())
        };
        let listener = listen().map_err(|source| NetError::Listen { address: options.bind.to_string(), source })?;
        let (places, lobby) = (Places::new(options.max_clients), Admission::default());
        Ok(Server { listener, options, places, lobby, check: None })
    }

    /// Gives clients a place that strangers cannot take, if this says so of their preface.
    #[must_use]
    pub fn with_check(mut self, check: preface::Check) -> Server {
        self.check = Some(check);
        self
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until killed, or with `once` until one client has been served: one that has shown what it must. Nothing
    /// that a client does ends it.
    ///
    /// # Errors
    /// With `once`, that session's.
    pub fn run(&self, serve: &Serve, log: impl Fn(&Event<'_>) + Send + Sync + Clone + 'static) -> Result<(), NetError> {
        let limit = Arc::new(Mutex::new(LogLimit::new(Instant::now())));
        let end = move |log: &dyn Fn(&Event<'_>), guest: Option<&PendingClient>, event: &Event<'_>| {
            // A client's end is told in any case.
            let is_in = guest.is_some_and(PendingClient::is_in);
            if is_in || limit.lock().unwrap_or_else(PoisonError::into_inner).allows(Instant::now()) {
                log(event);
            }
        };
        loop {
            let (stream, address) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    // A client that is gone already harms nobody. Where descriptors are lacking, a stranger gives its own
                    // back, in a thread that has to get there first.
                    if error.kind() != io::ErrorKind::ConnectionAborted {
                        self.lobby.make_room();
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    continue;
                }
            };
            // One of IPv4 comes as one of IPv6 where both are listened to.
            let peer = SocketAddr::new(address.ip().to_canonical(), address.port()).to_string();
            let guest = match self.lobby.enter(address.ip().to_canonical(), &stream, &self.places) {
                Ok(guest) => guest,
                Err(why) => {
                    let result = Err(NetError::Other(why));
                    end(&log, None, &Event::End { peer: &peer, result, measured: false });
                    continue;
                }
            };
            if self.options.once {
                let (measured, result) = hand_over(stream, &peer, self.check.as_ref(), &guest, serve);
                // Whoever has not shown that it is a client is none, and must not keep the one that is from being served.
                if guest.is_in() {
                    return result;
                }
                let result = guest.explain(result);
                end(&log, Some(&guest), &Event::End { peer: &peer, result, measured });
                continue;
            }
            let (check, serve, log, end) = (self.check.clone(), serve.clone(), log.clone(), end.clone());
            // Without a thread the connection closes, which is all that can be done.
            let _ = std::thread::Builder::new().stack_size(256 << 10).spawn(move || {
                let (measured, result) = hand_over(stream, &peer, check.as_ref(), &guest, &serve);
                let result = guest.explain(result);
                end(&log, Some(&guest), &Event::End { peer: &peer, result, measured });
            });
        }
    }
}

/// Serves a connection; says whether its client wanted to be measured. A measurement begins with a message, whose kind is
/// zero ([`wire`]); nothing else does. A preface may come before either.
fn hand_over(
    mut stream: TcpStream,
    peer: &str,
    check: Option<&preface::Check>,
    guest: &PendingClient,
    serve: &Serve,
) -> (bool, Result<(), NetError>) {
    let first = stream.set_read_timeout(Some(ANSWER)).and_then(|()| first_byte(&mut stream, check, guest));
    match first {
        Ok(Some(first)) => (first == 0, serve(stream, peer, guest, first == 0)),
        Ok(None) => (false, Ok(())),
        Err(source) => (false, Err(NetError::Lost { peer: peer.into(), doing: "greeting", source })),
    }
}

/// The first byte behind the preface, if there is one; none if the connection has ended. The byte is not taken.
fn first_byte(stream: &mut TcpStream, check: Option<&preface::Check>, guest: &PendingClient) -> io::Result<Option<u8>> {
    let mut first = [0];
    let mut peek = |stream: &TcpStream| stream.peek(&mut first).map(|n| (n > 0).then_some(first[0]));
    match peek(stream)? {
        Some(preface::MARK) => {}
        other => return Ok(other),
    }
    let mut preface = [0; preface::LEN];
    stream.read_exact(&mut preface)?;
    if check.is_some_and(|check| check(&Preface::from_bytes(&preface))) {
        guest.prove();
    }
    peek(stream)
}

pub(crate) fn hello(nonce: Option<[u8; 32]>) -> Message {
    Message::Hello { magic: MAGIC.into(), protocol: PROTOCOL, program: PROGRAM.into(), nonce }
}

/// What a client is told that has to prove to hold a token, and does not.
fn wants_token() -> Denial {
    Denial::new(
        "it measures for holders of its token only, and none was shown",
        "give the token with --token-file FILE, or in FULLPIPE_TOKEN",
    )
}

/// Tells a client why it is turned away.
fn deny(control: &mut Control, denial: Denial) -> NetError {
    // If the client is gone, there is nobody to tell.
    let _ = control.send(&Message::Refused { why: denial.to_string() }, "refusing");
    NetError::Denied(denial)
}

/// Hears a client's proof, and refuses it if it is none. False for a client that has gone instead.
fn passes(control: &mut Control, desk: &dyn Gatekeeper, nonce: &[u8; 32]) -> Result<bool, NetError> {
    let judged = match control.receive("waiting for a proof of its token") {
        Ok(Message::Proof { mac }) => desk.prove(nonce, &mac),
        Ok(_) => Err(wants_token()),
        // Whoever has no token may have come for the round-trip time, which the greeting tells.
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
    desk: &dyn Gatekeeper,
) -> Result<(), NetError> {
    let local = stream.local_addr().map_err(system("reading the connection's address"))?;
    let mut control = Control::new(stream, peer.to_owned())?;
    let nonce: Option<[u8; 32]> = options.wants_proof.then(|| rand::rng().random());
    match control.receive("greeting")? {
        Message::Hello { magic, protocol, program, .. } if magic == MAGIC => {
            control.send(&hello(nonce), "greeting")?;
            if protocol != PROTOCOL {
                // The client sees the versions in the hello, and says so to its user.
                return Err(version_error(peer, &program, protocol));
            }
        }
        other => return Err(control.unexpected(&other)),
    }
    if let Some(nonce) = nonce
        && !passes(&mut control, desk, &nonce)?
    {
        return Ok(());
    }
    if let Err(denial) = desk.let_in() {
        return Err(deny(&mut control, denial));
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
            // Whoever only wants to know the round-trip time asks, and goes.
            Err(NetError::Lost { .. }) if asked_the_time => return Ok(()),
            Err(error) => return Err(error),
        }
    };
    let joined = validate(&request, options).and_then(|()| join(&mut control, local, &request, options));
    let streams = match joined {
        Ok(streams) => streams,
        Err(error) => {
            // If the client is gone, there is nobody to tell.
            let _ = control.send(&Message::Refused { why: error.for_client() }, "refusing");
            return Err(error);
        }
    };
    control.send(&Message::Joined, "starting")?;
    let (zero_ns, rtt_ns) = loop {
        match control.receive("agreeing on a clock")? {
            Message::Clock { .. } => control.send(&Message::Clock { ns: sys::now_ns() }, "agreeing on a clock")?,
            Message::Begin { zero_ns, rtt_ns } => break (zero_ns, rtt_ns),
            other => return Err(control.unexpected(&other)),
        }
    };
    // A clock far from ours would make the run wait for it.
    let minute = 60_000_000_000;
    let now = sys::now_ns();
    if zero_ns.abs_diff(now) > minute || rtt_ns > minute {
        let _ = control.send(&Message::Refused { why: "a start more than a minute away".into() }, "refusing");
        return Err(NetError::Stranger { peer: peer.into(), why: "a start more than a minute away".into() });
    }
    desk.begins(&request);
    let end = match request.direction {
        Direction::Send => Side::Receiver,
        Direction::Receive => Side::Sender,
    };
    let stall_ns = options.stall.as_nanos() as u64;
    let limit_ns = options.max_run.map(|most| limit_ns(most, &request));
    let role = Role { end, request: &request, zero_ns, rtt_ns, stall_ns, limit_ns };
    let seen = session::run(&role, &streams, &mut control, None)?;
    control.send(&Message::Report(seen.report), "reporting")?;
    wire::send_samples(&mut control.stream, &seen.samples).map_err(|e| control.lost("reporting", e))?;
    control.send(&Message::End, "reporting")
}

pub(crate) fn version_error(peer: &str, theirs: &str, their_protocol: u32) -> NetError {
    let theirs = text::from_peer(theirs);
    NetError::Version { peer: peer.into(), theirs, their_protocol, ours: PROGRAM, our_protocol: PROTOCOL }
}

/// Longest that a run may take from its start, ns. One whose time is within the limit is not cut off: it is counted from the
/// first byte's arrival, which may be late.
fn limit_ns(most: Duration, request: &Request) -> u64 {
    let more = match request.workload {
        Workload::Size(_) => Duration::ZERO,
        Workload::Duration(_) => ANSWER,
    };
    u64::try_from(most.saturating_add(more).as_nanos()).unwrap_or(u64::MAX)
}

fn validate(request: &Request, options: &MeasurementPolicy) -> Result<(), NetError> {
    let transport = &request.transport;
    let denied = |why: String| NetError::Denied(why.into());
    transport.validate().map_err(|e| denied(e.to_string()))?;
    request.workload.validate(transport.streams).map_err(|e| denied(e.to_string()))?;
    if request.sample < Time(10_000_000) || request.sample > Time(3_600_000_000_000) {
        return Err(denied("the sampling interval is outside 10 ms to 1 h".into()));
    }
    socket::check_known(&transport.cc)?;
    if let (Some(most), Workload::Duration(time)) = (options.max_run, request.workload)
        && time.duration() > most
    {
        let most = most.as_secs_f64();
        return Err(NetError::Denied(Denial::new(
            format!("a run may take {most} s here, and {time} were asked for"),
            "ask for less, or ask its operator to raise --max-duration",
        )));
    }
    if options.check_memory {
        socket::check_memory(transport)?;
    }
    Ok(())
}

/// Opens a port for the session and waits for its streams.
fn join(
    control: &mut Control,
    local: SocketAddr,
    request: &Request,
    options: &MeasurementPolicy,
) -> Result<Streams, NetError> {
    let n = usize::from(request.transport.streams);
    let listener = socket::listen(local, options.data_ports, &request.transport, true)?;
    let port = listener.local_addr().map_err(system("reading the data port"))?.port();
    let token: [u8; 16] = rand::rng().random();
    control.send(&Message::Ready { port, token }, "getting ready")?;
    let mut sockets: Vec<Option<TcpStream>> = (0..n).map(|_| None).collect();
    let deadline = Instant::now() + ANSWER;
    let peer = control.stream.peer_addr().ok().map(|peer| peer.ip());
    let mut door =
        PreambleListener::<{ wire::PREAMBLE }>::new(&listener, peer).map_err(system("watching the data port"))?;
    // Whoever does not show the token is not of this session, and costs it nothing.
    let check =
        |preamble: &[u8; wire::PREAMBLE]| session::read_preamble(preamble, token).filter(|i| usize::from(*i) < n);
    while sockets.iter().any(Option::is_none) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let source = io::ErrorKind::TimedOut.into();
            return Err(control.lost("waiting for its data streams; is the data port open?", source));
        }
        let wait = left.min(SECOND).as_nanos() as u64;
        let ready = sys::wait_readable([door.as_fd(), control.stream.as_fd()], wait);
        if ready.map_err(system("waiting for streams"))?[1] {
            let message = control.receive("waiting for its data streams")?;
            return Err(control.unexpected(&message));
        }
        for (i, stream) in door.come(&check).map_err(system("waiting for streams"))? {
            SockRef::from(&stream).set_tcp_nodelay(true).map_err(system("setting TCP_NODELAY"))?;
            sockets[usize::from(i)] = Some(stream);
        }
    }
    let skip = if request.direction == Direction::Send { wire::PREAMBLE as u64 } else { 0 };
    Streams::new(sockets.into_iter().flatten().collect(), request.workload, skip).map_err(system("opening an eventfd"))
}
