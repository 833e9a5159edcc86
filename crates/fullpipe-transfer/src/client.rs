//! The client: the end where the person sits who copies.

pub mod far_server;
pub mod look;
mod round_trip;
mod streams;
pub mod third_party;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_net::Observed;
use fullpipe_path::Transport;
use rand::RngExt;

use self::round_trip::{RoundTrip, is_relayed, min_rtt_s, round_trip, tcp_round_trip};
use self::streams::{Opened, Opening, probably_ready};
use crate::connection::dial::{self, ControlChannel};
use crate::connection::endpoint::{Endpoint, SshEndpoint, Via};
use crate::connection::session::Session;
use crate::connection::ssh::DataConnections;
use crate::connection::stop::Stop;
use crate::connection::{far_port, join};
use crate::error::{TransferError, why};
use crate::protocol::hello::Limits;
use crate::protocol::losses::Losses;
use crate::protocol::message::{Connect, Message, Options, Removed, Setup, Sources, Summary, Target, Task, ThirdParty};
use crate::protocol::name::printable;
use crate::protocol::sizing::SizingMode;
use crate::protocol::skipped::Skipped;
use crate::receive::Output;
use crate::resolve::{self, Realm};
use crate::send::Outgoing;
use crate::send::input::Input;
use crate::sobas::setup::SizingSetup;
use crate::source::name_list::NameList;
use crate::source::tree::SourceTree;
use crate::telemetry::counters::Counters;
use crate::transfer::{self, Negotiated, Outcome, Role};

/// A copy that a person asks for.
pub struct Order<'a> {
    /// Where the server is.
    pub endpoint: &'a Endpoint,
    /// The direction, the sources and the target.
    pub way: Way,
    /// The names below the source to which the copy is limited, where [`Sources::listed`] says that it is.
    pub list: Option<Arc<NameList>>,
    /// How files are treated.
    pub options: Options,
    /// Chooses the transport. It may be called twice: with what the client expects, and with what the server allows.
    pub choose: &'a dyn Fn(&Between) -> Result<Sending, TransferError>,
    /// Called when what was chosen last is going to be used.
    pub chosen: &'a dyn Fn(),
    /// Called if data go from the far end's connections to here ([`Via::Either`]), with the reason why this host cannot connect
    /// to the far end.
    pub reversed: &'a dyn Fn(&TransferError),
    /// Tells the user something, in one line.
    pub say: &'a dyn Fn(&str),
    /// Whether the counters collect the names of files as they are copied.
    pub names: bool,
    /// Called several times a second with the counters.
    pub show: &'a mut dyn FnMut(&Counters),
    /// Ends the transfer when it is set to true.
    pub interrupted: &'a AtomicBool,
}

/// How the sender is to send.
#[derive(Debug, Clone, PartialEq)]
pub struct Sending {
    /// Congestion control, number of streams, buffers and pacing.
    pub transport: Transport,
    /// The law by which SOBAS sets window and pacing during the transfer; `None` for a transport that stays as it is.
    pub sizing: Option<SizingMode>,
    /// Rate of the path as the user or the profile says it, bit/s, with all headers. With a law that paces, the sender begins no faster.
    pub assumed_bps: u64,
    /// Number of streams to open besides those of the transport. They send when SOBAS lets them, or without it when disks call
    /// for them.
    pub spare: u16,
}

/// What is known of the path between the two ends, and of their kernels.
#[derive(Debug, Clone)]
pub struct Between {
    /// Round-trip time, seconds.
    pub rtt_s: f64,
    /// What carries the data.
    pub via: Via,
    /// Whether a relay (a proxy, a forwarded port) ends TCP's connections on the way, so that no kernel sees the whole path.
    pub relayed: bool,
    /// Largest packet, bytes, as far as this end's kernel knows the path.
    pub mtu: Option<u32>,
    /// What the sender's kernel allows its sockets.
    pub sender: Limits,
    /// What the receiver's kernel allows its sockets.
    pub receiver: Limits,
}

/// The direction of a copy.
#[derive(Debug, Clone)]
pub enum Way {
    /// From local sources to a target at the server.
    Push(Sources, Target),
    /// From sources at the server to a local target.
    Pull(Sources, Target),
    /// From standard input to a target at the server.
    PushInput(Arc<Input>, Target),
    /// From one source at the server to standard output.
    PullOutput(Sources, Arc<Output>),
    /// From sources at another host to a target at the far end. Both are started over ssh.
    ThirdParty(Box<SshEndpoint>, Sources, Target),
}

impl Way {
    /// Whether this end sends, or sees the copy as its sender does.
    #[must_use]
    pub fn sends(&self) -> bool {
        matches!(self, Way::Push(..) | Way::PushInput(..) | Way::ThirdParty(..))
    }

    /// Whether a second attempt would lack what the first has read, or write twice what the first has written.
    #[must_use]
    pub fn happens_once(&self) -> bool {
        match self {
            Way::Push(..) | Way::Pull(..) | Way::ThirdParty(..) => false,
            Way::PushInput(input, _) => input.is_begun(),
            Way::PullOutput(_, output) => output.is_begun(),
        }
    }
}

/// The result of a copy.
#[derive(Debug)]
pub struct Finished {
    /// The receiver's result.
    pub summary: Summary,
    /// What the sender skipped.
    pub skipped: Skipped,
    /// What the sender has removed of its sources, if it was to, and if this end knows.
    pub removed: Option<Removed>,
    /// The transport that was used.
    pub transport: Transport,
    /// The law by which SOBAS set window and pacing.
    pub sizing: Option<SizingMode>,
    /// Whether the streams were encrypted.
    pub encrypted: bool,
    /// Round-trip time, seconds.
    pub rtt_s: f64,
    /// The path's losses, if the sender reported them.
    pub losses: Option<Losses>,
    /// The samples of both ends, if samples were asked for.
    pub trace: Option<TraceOfBoth>,
}

/// The samples of both ends.
#[derive(Debug)]
pub struct TraceOfBoth {
    /// This end's `CLOCK_MONOTONIC` when sampling began, nanoseconds.
    pub zero_ns: u64,
    /// The samples of the sending end.
    pub sender: Observed,
    /// The samples of the receiving end.
    pub receiver: Observed,
}

/// Number of round trips before the first byte of data arrives: one to connect, one to agree on the transfer, and half of
/// one for the byte. TLS takes one more, and so do streams that wait for the server to name its port. Those of ssh itself
/// are not counted.
#[must_use]
pub fn start_rtts(options: Options, rtt_s: f64) -> f64 {
    let tls = if options.encrypt { 1.0 } else { 0.0 };
    let told = if rtt_s < far_port::FAR_S { 1.0 } else { 0.0 };
    2.5 + tls + told
}

/// Longest time to wait for the server to close the connection after the end.
const MAX_HANG_UP: Duration = Duration::from_secs(1);

/// The error for a copy that [`third_party`] is for.
const NOT_HERE: &str = "neither end of the copy is on this host";

/// Connects to the server, and starts a session over that connection.
fn call(endpoint: &Endpoint, stop: &Stop) -> Result<(ControlChannel, Arc<Session>), TransferError> {
    let mut line = dial::dial(endpoint, stop)?;
    let output = std::mem::replace(&mut line.output, Box::new(std::io::sink()));
    let session = Session::new(line.peer.clone(), output);
    Ok((line, session))
}

/// Makes one attempt to copy to or from this host; [`third_party::run`] copies between two others.
///
/// # Errors
/// The transfer failed; [`TransferError::may_retry`] says whether another attempt may succeed.
pub fn run(order: &mut Order<'_>) -> Result<Finished, TransferError> {
    if order.endpoint.via() == Via::Ssh {
        // At the far host, ssh's relays meet the session on a port of that host, which another user may take after the session's
        // end: only the session itself can read what is encrypted.
        order.options.encrypt = true;
        // The sockets before ssh show the path to ssh alone.
        order.options.sample_ns = 0;
    }
    // Local errors show before the server is called.
    let here = here(&order.way)?;
    let (mine, task) = match &order.way {
        Way::Push(sources, target) => {
            let trees = limited(resolve::places(&here, sources)?, order.list.as_ref());
            resolve::check_removed(&trees, &order.options)?;
            (Role::Send(Outgoing::Trees(trees)), Task::Push(target.clone()))
        }
        Way::PushInput(input, target) => (Role::Send(Outgoing::Input(input.clone())), Task::Push(target.clone())),
        Way::PullOutput(sources, output) => (Role::Print(output.clone()), Task::Pull(sources.clone())),
        Way::Pull(sources, target) => {
            let mut to = resolve::destination(&here, target, &|| order.interrupted.load(Ordering::SeqCst))?;
            to.near();
            resolve::expect(&mut to, sources);
            (Role::Receive(Box::new(to)), Task::Pull(sources.clone()))
        }
        Way::ThirdParty(..) => return Err(TransferError::Usage(NOT_HERE.into())),
    };
    let sends = mine.sends();
    let stop = Arc::new(Stop::default());
    let stall = Duration::from_nanos(order.options.stall_ns);
    let (mut line, session, introduced) =
        unless_stopped(order.interrupted, stall, order.endpoint.name(), &stop, || {
            let (mut line, session) = call(order.endpoint, &stop)?;
            let line_too = stop.clone();
            session.alarm(move || line_too.cut());
            let introduced = introduce(order, &session, &mut line, (mine, task), &stop);
            let introduced = introduced.map_err(|error| dial::explain(&line, error))?;
            if !sends {
                line.limit_writes(stall)?;
            }
            Ok::<_, TransferError>((line, session, introduced))
        })?;
    let Introduced { met, transport, sizing, rtt_s, carriers: _carriers } = introduced;
    let counters = Arc::new(Counters::new(order.names));
    let (shown, ended, interrupted) = (counters.clone(), session.clone(), order.interrupted);
    let show = &mut order.show;
    let mut tick = || {
        show(&shown);
        if interrupted.load(Ordering::SeqCst) {
            ended.fail(TransferError::Interrupted);
        }
    };
    let input = std::mem::replace(&mut line.input, Box::new(std::io::empty()));
    // Waits until the server has removed its journal, so that a user who looks there after this finds none. On a long path
    // this is not worth a round trip: no user is there that fast. But samples are still on their way then, and with messages unread
    // here TCP would discard them and reset the connection, so that the server never learns that all is done.
    let lingers = sends && (rtt_s < far_port::FAR_S || order.options.sample_ns > 0);
    if lingers {
        session.linger();
    }
    let Outcome { summary, skipped, removed, losses, samples, peer_samples } =
        transfer::run(&session, input, met, counters.clone(), &mut tick)?;
    if lingers {
        session.hang_up(MAX_HANG_UP);
    }
    (order.show)(&counters);
    // Through ssh, the sender's sockets lead no further than ssh, and lose nothing whatever the path loses.
    let losses = losses.filter(|_| order.endpoint.via() != Via::Ssh);
    let trace = samples.zip(peer_samples).map(|((zero_ns, ours), theirs)| {
        let (sender, receiver) = if sends { (ours, theirs) } else { (theirs, ours) };
        TraceOfBoth { zero_ns, sender, receiver }
    });
    let encrypted = order.options.encrypt;
    Ok(Finished { summary, skipped, removed, transport, sizing, encrypted, rtt_s, trace, losses })
}

/// Source trees, limited to a list of names if there is one.
fn limited(mut trees: Vec<SourceTree>, list: Option<&Arc<NameList>>) -> Vec<SourceTree> {
    SourceTree::limit(&mut trees, list.cloned());
    trees
}

/// Tells the server the list to which the copy from there is limited, and waits until it has the whole list.
fn tell_list(session: &Session, line: &mut ControlChannel, list: &NameList) -> Result<(), TransferError> {
    for part in list.parts() {
        line.await_later();
        session.send(&Message::Names(part.to_vec()))?;
    }
    round_trip(session, &mut *line.input).map(drop)
}

/// Calls `connect`, and stops whatever it waits for on an interruption, or if the server is silent for `stall`.
fn unless_stopped<R>(
    interrupted: &AtomicBool,
    stall: Duration,
    peer: &str,
    stop: &Stop,
    connect: impl FnOnce() -> Result<R, TransferError>,
) -> Result<R, TransferError> {
    let (connected, late) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !connected.load(Ordering::SeqCst) {
                late.fetch_or(stop.awaited() > stall, Ordering::SeqCst);
                if interrupted.load(Ordering::SeqCst) || late.load(Ordering::SeqCst) {
                    // Repeated, since there may be nothing to cut yet.
                    stop.cut();
                }
                std::thread::park_timeout(Duration::from_millis(100));
            }
        });
        let result = connect();
        connected.store(true, Ordering::SeqCst);
        watch.thread().unpark();
        let silent = || format!("{peer} has not answered for {stall:?}; if it is there and only slow, raise --stall");
        result.map_err(|error| if late.load(Ordering::SeqCst) { TransferError::Unreachable(silent()) } else { error })
    })
}

/// What the choice of a transport is based on.
fn between(
    endpoint: &Endpoint,
    line: &ControlChannel,
    trip: RoundTrip,
    sends: bool,
    ours: Limits,
    theirs: Limits,
) -> Between {
    let mtu = line.addresses.first().and_then(|to| fullpipe_net::socket::path_mtu(*to));
    let (sender, receiver) = if sends { (ours, theirs) } else { (theirs, ours) };
    Between { rtt_s: trip.seconds, via: endpoint.via(), relayed: trip.relayed, mtu, sender, receiver }
}

/// The local file system, with relative names below the current folder. If that folder was removed, other names still work.
fn here(way: &Way) -> Result<Realm, TransferError> {
    let missing = match std::env::current_dir() {
        Ok(folder) => return Ok(Realm::User(folder)),
        Err(e) => e,
    };
    let local = match way {
        Way::Push(sources, _) => &sources.paths[..],
        Way::Pull(_, target) => std::slice::from_ref(&target.path),
        Way::PushInput(..) | Way::PullOutput(..) | Way::ThirdParty(..) => &[],
    };
    match local.iter().find(|path| resolve::is_relative(path)) {
        None => Ok(Realm::User("/".into())),
        Some(path) => Err(TransferError::Usage(format!(
            "{}: the current folder cannot be found ({}); go to another one, or give an absolute name",
            printable(path),
            why(&missing)
        ))),
    }
}

/// Greets the server and says what is wanted. Returns what the server's kernel allows.
fn greet(
    endpoint: &Endpoint,
    options: Options,
    task: Task,
    probably: Option<Connect>,
    (session, line): (&Arc<Session>, &mut ControlChannel),
    say: &dyn Fn(&str),
    third_party: Option<ThirdParty>,
) -> Result<Limits, TransferError> {
    let secret = match endpoint {
        Endpoint::Server { token: Some(token), .. } => token.secret.to_vec(),
        _ => Vec::new(),
    };
    // All messages that need no answer first go in one flight: each further one would cost a round trip.
    let setup = Box::new(Setup { task, options, probably });
    let mut flight: Vec<_> =
        third_party.map(|third_party| Message::ThirdParty(Box::new(third_party))).into_iter().collect();
    flight.extend([Message::Hello(join::hello()), Message::Secret(secret), Message::Setup(setup)]);
    session.send_all(&flight)?;
    if line.await_far_end(&|bytes| session.send_raw(bytes), say)? {
        session.send_all(&flight)?;
    }
    hear_greeting(session, line)
}

/// Waits for the far end's greeting. Returns what its kernel allows.
fn hear_greeting(session: &Session, line: &mut ControlChannel) -> Result<Limits, TransferError> {
    match session.heard(line.first_message()?)? {
        Message::Hello(hello) => join::greet(&session.peer, hello),
        other => Err(session.unexpected(&other)),
    }
}

/// The agreement with the server.
struct Introduced {
    met: Negotiated,
    transport: Transport,
    sizing: Option<SizingMode>,
    rtt_s: f64,
    /// The ssh connections that carry the streams.
    carriers: DataConnections,
}

/// Agrees with the server on the transfer, chooses the transport, and connects the streams.
fn introduce(
    order: &Order<'_>,
    session: &Arc<Session>,
    line: &mut ControlChannel,
    (role, task): (Role, Task),
    stop: &Stop,
) -> Result<Introduced, TransferError> {
    let sends = role.sends();
    let ours = join::hello().limits;
    let (options, via) = (order.options, order.endpoint.via());
    // If the control connection is TCP, its kernel knows the round-trip time.
    let known_s = line.socket.as_ref().and_then(tcp_round_trip);
    let wished = rand::rng().random_range(far_port::WISHES);
    let choose = |line: &ControlChannel, trip: RoundTrip, theirs: &Limits| {
        let between = between(order.endpoint, line, trip, sends, ours.clone(), theirs.clone());
        let Sending { transport, sizing, assumed_bps, spare } = (order.choose)(&between)?;
        let sizing = sizing.map(|law| law.with(&between.sender));
        // With a law that does not pace, nobody could tell when they are of use. Without one, the disks do.
        let spare = if sizing.is_none_or(SizingMode::paces) { spare } else { 0 };
        let rtt_ns = (trip.seconds * 1e9) as u64;
        // A trial of several addresses waits for the port anyway.
        let port = if trip.seconds >= far_port::FAR_S && line.addresses.len() == 1 { wished } else { 0 };
        let relays = via == Via::Ssh;
        let terms = role.terms();
        Ok::<_, TransferError>(Connect { transport, spare, sizing, assumed_bps, rtt_ns, terms, port, relays })
    };
    // The server's kernel mostly allows what this one does.
    let probably = known_s.map(|rtt_s| choose(line, RoundTrip::of_tcp(rtt_s), &ours)).transpose()?;
    // The streams connect while the request for this port is still on its way to the server.
    let to = line.addresses.first();
    let stall = Duration::from_nanos(options.stall_ns);
    let knocked =
        probably.as_ref().zip(to).and_then(|(connect, to)| far_port::Early::knock(*to, connect, sends, stall));
    let asked = Instant::now();
    let theirs = greet(order.endpoint, options, task, probably.clone(), (session, line), order.say, None)?;
    let answered_s = asked.elapsed().as_secs_f64();
    let ready = if probably.is_some() { probably_ready(session, line)? } else { None };
    let mut early = probably.zip(ready).map(|(connect, port)| (connect, port, knocked));
    // So does the kernel below ssh, once ssh has logged in.
    let ssh_s = line.ssh_info().filter(|_| via == Via::Either).and_then(|info| min_rtt_s(&info));
    let mut trip = match (known_s, ssh_s) {
        (Some(known_s), _) if !is_relayed(known_s, answered_s) => RoundTrip::of_tcp(known_s),
        (None, Some(ssh_s)) => RoundTrip::of_tcp(ssh_s),
        // The server may only have been slow: an answer to a ping tells.
        _ => RoundTrip::of(known_s, round_trip(session, &mut *line.input)?),
    };
    let ports = match order.endpoint {
        Endpoint::Ssh(ssh) => ssh.ports.unwrap_or_default(),
        Endpoint::Server { .. } => (0, 0),
    };
    let (encrypt, reversed) = (options.encrypt, order.reversed);
    let first = choose(line, trip, &theirs)?;
    let opening = Opening { session, via, ports, connect: &first, encrypt, sends, stall, stop, reversed };
    let mut second = None;
    if let Some(ssh_s) = ssh_s {
        // Whether a relay is on ssh's way shows in the first answer, which the streams need anyway.
        let asked = Instant::now();
        let listened = opening.listen(line)?;
        let has_told = listened.is_some() && !is_relayed(ssh_s, asked.elapsed().as_secs_f64());
        early = listened.map(|(port, knocked)| (first.clone(), port, knocked));
        if !has_told {
            trip = RoundTrip::of(Some(ssh_s), round_trip(session, &mut *line.input)?);
            second = Some(choose(line, trip, &theirs)?);
        }
    }
    let connect = second.unwrap_or_else(|| first.clone());
    (order.chosen)();
    if let Some(list) = order.list.as_ref().filter(|_| !sends) {
        tell_list(session, line, list)?;
    }
    let early = early.filter(|(asked, ..)| *asked == connect).map(|(_, port, knocked)| {
        // What leads to another port would be waited for.
        let knocked = knocked.filter(|_| port.port == connect.port);
        (port, knocked)
    });
    let Opened { streams, terms, carriers, udp } = Opening { connect: &connect, ..opening }.open(line, early)?;
    let setup = SizingSetup::new(&connect, udp);
    let Connect { transport, sizing, .. } = connect;
    let (sending, shared_bps) = (transport.streams, transfer::shared_bps(&transport));
    let met = Negotiated { role, options, terms, streams, sending, shared_bps, sizing: setup };
    Ok(Introduced { met, transport, sizing, rtt_s: trip.seconds, carriers })
}
