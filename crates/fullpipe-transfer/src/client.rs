//! The end that a person sits at.

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_net::Seen;
use fullpipe_path::Transport;
use rand::RngExt;

use crate::connection::dial::{self, ControlChannel, Stop};
use crate::connection::endpoint::Endpoint;
use crate::connection::session::Session;
use crate::connection::stream::Protection;
use crate::connection::{join, tls};
use crate::error::{TransferError, system};
use crate::protocol::frame;
use crate::protocol::hello::Limits;
use crate::protocol::losses::Losses;
use crate::protocol::message::{Connect, Message, Options, Setup, Sources, Summary, Target, Task, Terms};
use crate::protocol::skipped::Skipped;
use crate::resolve::{self, Realm};
use crate::sobas::setup::{self, SizingSetup};
use crate::source::glob::Part;
use crate::source::tree::WalkOptions;
use crate::source::walk::{self, Count};
use crate::telemetry::counters::Counters;
use crate::transfer::{self, Negotiated, Outcome, Role};

/// What is wanted.
pub struct Order<'a> {
    /// Where the far end is.
    pub endpoint: &'a Endpoint,
    /// Which way.
    pub way: Way,
    /// How files are treated.
    pub options: Options,
    /// Chooses how to send. It may be asked twice.
    pub choose: &'a dyn Fn(&Between) -> Result<Transport, TransferError>,
    /// Called when what was last chosen is going to be used.
    pub chosen: &'a dyn Fn(),
    /// Whether the counters are to have the names of what moves.
    pub names: bool,
    /// Called now and then with the counters.
    pub show: &'a mut dyn FnMut(&Counters),
    /// Ends the transfer when it is set.
    pub interrupted: &'a AtomicBool,
}

/// Two ends, and what is known of the path between them.
#[derive(Debug, Clone)]
pub struct Between {
    /// Round-trip time, seconds.
    pub rtt_s: f64,
    /// Largest packet, bytes, as far as this end's kernel knows the path.
    pub mtu: Option<u32>,
    /// What the sender's kernel allows.
    pub sender: Limits,
    /// The receiver's.
    pub receiver: Limits,
}

/// Which way.
#[derive(Debug, Clone)]
pub enum Way {
    /// These local things go there.
    Push(Sources, Target),
    /// Those things there come here.
    Pull(Sources, Target),
}

/// How it went.
#[derive(Debug)]
pub struct Finished {
    /// At the receiver.
    pub summary: Summary,
    /// What the sender could not read.
    pub skipped: Skipped,
    /// How it was sent.
    pub transport: Transport,
    /// Round-trip time, seconds.
    pub rtt_s: f64,
    /// What the network has lost, where the sender has told.
    pub losses: Option<Losses>,
    /// What both ends have seen, where samples were wanted.
    pub trace: Option<TraceOfBoth>,
}

/// What both ends have seen.
#[derive(Debug)]
pub struct TraceOfBoth {
    /// This end's `CLOCK_MONOTONIC` when it began.
    pub zero_ns: u64,
    /// The sending end.
    pub sender: Seen,
    /// The receiving end.
    pub receiver: Seen,
}

/// Round trips before the first byte arrives: one to connect, one to agree, and half of one for the byte; TLS
/// takes one more, and so do streams that wait to be told where to go. ssh's own are not counted.
#[must_use]
pub fn start_rtts(options: Options, rtt_s: f64) -> f64 {
    let tls = if options.encrypt { 1.0 } else { 0.0 };
    let told = if rtt_s < join::FAR_S { 1.0 } else { 0.0 };
    2.5 + tls + told
}

/// How long the far end may take to close what is done.
const HANG_UP: Duration = Duration::from_secs(1);

/// What a look at the far end tells.
pub struct Looked {
    /// The ends.
    pub between: Between,
    /// What there is to be sent.
    pub count: Count,
}

/// Looks at the far end, and at the sources, and moves nothing.
///
/// # Errors
/// It cannot be reached, or does not want to talk; a source is not there.
pub fn look(endpoint: &Endpoint, options: Options, way: &Way) -> Result<Looked, TransferError> {
    let (here, there) = match way {
        Way::Push(sources, _) => (Some(resolve::places(&here()?, sources)?), Sources::default()),
        Way::Pull(sources, _) => (None, sources.clone()),
    };
    let (stop, stall) = (Stop::default(), Duration::from_nanos(options.stall_ns));
    let (between, count) = unless_stopped(&AtomicBool::new(false), stall, endpoint.name(), &stop, || {
        let (mut line, session) = call(endpoint, &stop)?;
        let mut look = || {
            let theirs = greet(endpoint, options, Task::Look(there.clone()), None, &session, &mut line)?;
            let rtt_s = far_away(&session, &mut line)?;
            let count = if here.is_none() { Some(counted(&session, &mut *line.input)?) } else { None };
            Ok((between(&line, rtt_s, matches!(way, Way::Push(..)), join::hello().limits, theirs), count))
        };
        let looked = look();
        looked.map_err(|error| dial::explain(&line, error))
    })?;
    // What is here is counted when nobody waits.
    let count = match (count, here) {
        (None, Some(places)) => walk::count(&places, WalkOptions::from(&options), &mut |_| Ok(()))?,
        (count, _) => count.unwrap_or_default(),
    };
    Ok(Looked { between, count })
}

/// Reaches the far end, and a session to talk over.
fn call(endpoint: &Endpoint, stop: &Stop) -> Result<(ControlChannel, Arc<Session>), TransferError> {
    let mut line = dial::dial(endpoint, stop)?;
    let output = std::mem::replace(&mut line.output, Box::new(std::io::sink()));
    let session = Session::new(line.peer.clone(), output);
    Ok((line, session))
}

/// Asks how much there is to be sent.
fn counted(session: &Session, input: &mut (dyn Read + Send)) -> Result<Count, TransferError> {
    session.send(&Message::Count)?;
    let mut count = Count::default();
    loop {
        match hear(session, input)? {
            Message::Totals { bytes, files, .. } => (count.bytes, count.files) = (bytes, files),
            Message::AllSent(skipped) => return Ok(Count { skipped, ..count }),
            other => return Err(session.unexpected(&other)),
        }
    }
}

/// Does it, once.
///
/// # Errors
/// The transfer's; [`TransferError::again`] says whether the same order may go better.
pub fn run(order: &mut Order<'_>) -> Result<Finished, TransferError> {
    // What is wrong here is said before anyone is called.
    let here = here()?;
    let (mine, task) = match &order.way {
        Way::Push(sources, target) => (Role::Send(resolve::places(&here, sources)?), Task::Push(target.clone())),
        Way::Pull(sources, target) => {
            let mut to = resolve::destination(&here, target, &|| order.interrupted.load(Ordering::SeqCst))?;
            to.near();
            // Of what is in a folder, the names are not known here.
            let tops: Option<Vec<&[u8]>> = sources.paths.iter().map(|source| resolve::last(source)).collect();
            if let Some(tops) = tops {
                // What is no pattern may be a name all the same.
                let pattern = |top: &[u8]| Part::new(top).ok().filter(|_| sources.patterns);
                to.only(tops.into_iter().map(|top| pattern(top).unwrap_or_else(|| Part::exactly(top))).collect());
            }
            (Role::Receive(Box::new(to)), Task::Pull(sources.clone()))
        }
    };
    let sends = matches!(mine, Role::Send(_));
    let stop = Arc::new(Stop::default());
    let stall = Duration::from_nanos(order.options.stall_ns);
    let (mut line, session, introduced) =
        unless_stopped(order.interrupted, stall, order.endpoint.name(), &stop, || {
            let (mut line, session) = call(order.endpoint, &stop)?;
            let line_too = stop.clone();
            session.alarm(move || line_too.cut());
            let introduced = introduce(order, &session, &mut line, mine, task);
            let introduced = introduced.map_err(|error| dial::explain(&line, error))?;
            untimed(&line)?;
            Ok::<_, TransferError>((line, session, introduced))
        })?;
    let Introduced { met, transport, rtt_s } = introduced;
    let counters = Arc::new(Counters::new(order.names));
    let (seen, ended, interrupted) = (counters.clone(), session.clone(), order.interrupted);
    let show = &mut order.show;
    let mut tick = || {
        show(&seen);
        if interrupted.load(Ordering::SeqCst) {
            ended.fail(TransferError::Interrupted);
        }
    };
    let input = std::mem::replace(&mut line.input, Box::new(std::io::empty()));
    // Whoever looks there once this has ended finds no journal; from far away nobody is there as fast as our last word.
    let lingers = sends && rtt_s < join::FAR_S;
    if lingers {
        session.linger();
    }
    let Outcome { summary, skipped, losses, seen, told } =
        transfer::run(&session, input, met, counters.clone(), &mut tick)?;
    if lingers {
        session.hang_up(HANG_UP);
    }
    (order.show)(&counters);
    let trace = seen.zip(told).map(|((zero_ns, ours), theirs)| {
        let (sender, receiver) = if sends { (ours, theirs) } else { (theirs, ours) };
        TraceOfBoth { zero_ns, sender, receiver }
    });
    Ok(Finished { summary, skipped, transport, rtt_s, trace, losses })
}

/// Connects; an interruption ends it at once, whatever it waits for, and so does a far end that is silent for too long.
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
                    // Again and again: there may be nothing to cut yet.
                    stop.cut();
                }
                std::thread::park_timeout(Duration::from_millis(100));
            }
        });
        let result = connect();
        connected.store(true, Ordering::SeqCst);
        watch.thread().unpark();
        let silent = || format!("{peer} has not answered for {stall:?}; raise --stall if it is only slow");
        result.map_err(|error| if late.load(Ordering::SeqCst) { TransferError::Unreachable(silent()) } else { error })
    })
}

/// What there is to choose from.
fn between(line: &ControlChannel, rtt_s: f64, sends: bool, ours: Limits, theirs: Limits) -> Between {
    let mtu = line.addresses.first().and_then(|to| fullpipe_net::socket::path_mtu(*to));
    let (sender, receiver) = if sends { (ours, theirs) } else { (theirs, ours) };
    Between { rtt_s, mtu, sender, receiver }
}

/// Where relative names start.
fn here() -> Result<Realm, TransferError> {
    Ok(Realm::User(std::env::current_dir().map_err(system("finding the current folder"))?))
}

/// From here on the session watches for stalls.
fn untimed(line: &ControlChannel) -> Result<(), TransferError> {
    line.socket.as_ref().map_or(Ok(()), |socket| socket.set_read_timeout(None)).map_err(system("clearing a timeout"))
}

fn hear(session: &Session, input: &mut (dyn Read + Send)) -> Result<Message, TransferError> {
    session.heard(frame::receive(input).map_err(|e| session.lost("asking", e))?)
}

/// First words: what is wanted, and who the far end is.
fn greet(
    endpoint: &Endpoint,
    options: Options,
    task: Task,
    probably: Option<Connect>,
    session: &Arc<Session>,
    line: &mut ControlChannel,
) -> Result<Limits, TransferError> {
    let secret = match endpoint {
        Endpoint::Server { token: Some(token), .. } => token.secret.to_vec(),
        _ => Vec::new(),
    };
    // All that need not wait for an answer goes in one flight: over 366 ms each more would cost as much.
    let setup = Box::new(Setup { task, options, probably });
    session.send_all(&[Message::Hello(join::hello()), Message::Secret(secret), Message::Setup(setup)])?;
    let theirs = match session.heard(line.first_words()?)? {
        Message::Hello(hello) => join::greet(&session.peer, hello)?,
        other => return Err(session.unexpected(&other)),
    };
    Ok(theirs)
}

struct Introduced {
    met: Negotiated,
    transport: Transport,
    rtt_s: f64,
}

/// Where the streams go.
struct DataPort {
    port: u16,
    token: [u8; 32],
    certificate: Vec<u8>,
    terms: Option<Terms>,
    udp: u16,
}

fn ready(session: &Session, line: &mut ControlChannel) -> Result<DataPort, TransferError> {
    match hear(session, &mut *line.input)? {
        Message::Ready { port, token, certificate, terms, udp } => {
            Ok(DataPort { port, token, certificate, terms, udp })
        }
        other => Err(session.unexpected(&other)),
    }
}

fn introduce(
    order: &Order<'_>,
    session: &Arc<Session>,
    line: &mut ControlChannel,
    role: Role,
    task: Task,
) -> Result<Introduced, TransferError> {
    let sends = role.sends();
    let ours = join::hello().limits;
    let mut options = order.options;
    if sends {
        options.sobas = options.sobas.map(|law| law.with(&ours));
    }
    // The round-trip time is known where the connection is TCP's own.
    let known_s = line.socket.as_ref().and_then(tcp_round_trip);
    let port = match (known_s, &line.addresses[..]) {
        (Some(rtt_s), [_]) if rtt_s >= join::FAR_S => rand::rng().random_range(join::WISHES),
        _ => 0,
    };
    let choose = |line: &ControlChannel, rtt_s: f64, theirs: &Limits| {
        let transport = (order.choose)(&between(line, rtt_s, sends, ours.clone(), theirs.clone()))?;
        Ok::<_, TransferError>(Connect { transport, rtt_ns: (rtt_s * 1e9) as u64, terms: role.terms(), port })
    };
    // Most hosts allow what this one does.
    let probably = known_s.map(|rtt_s| choose(line, rtt_s, &ours)).transpose()?;
    // The streams set out while the far end still reads where to wait for them.
    let to = line.addresses.first();
    let knocked = probably.as_ref().zip(to).and_then(|(connect, to)| join::Early::knock(*to, connect, sends));
    let theirs = greet(order.endpoint, options, task, probably.clone(), session, line)?;
    let early = if probably.is_some() { Some(ready(session, line)?) } else { None };
    let rtt_s = known_s.map_or_else(|| round_trip(session, &mut *line.input), Ok)?;
    let connect = choose(line, rtt_s, &theirs)?;
    (order.chosen)();
    session.send(&Message::Connect(Box::new(connect.clone())))?;
    let (door, knocked) = match early {
        Some(door) if probably.as_ref() == Some(&connect) => (door, knocked),
        _ => (ready(session, line)?, None),
    };
    let DataPort { port, token, certificate, terms, udp } = door;
    let Connect { transport, rtt_ns, .. } = connect;
    let guard = match (options.encrypt, certificate.is_empty()) {
        (true, false) => Protection::Client(tls::data_client(*blake3::hash(&certificate).as_bytes())?),
        (false, _) => Protection::None,
        (true, true) => {
            let why = "it offers no encryption; --no-encrypt does without".to_owned();
            return Err(TransferError::Trust { peer: session.peer.clone(), why });
        }
    };
    let mut to = join::answering(&line.addresses, port)?;
    let streams = join::connect(session, to, &transport, sends, &guard, &token, knocked)?;
    to.set_port(udp);
    let law = options.sobas.map(|law| if sends { law } else { law.with(&theirs) });
    let sizing = law.map(|law| SizingSetup::new(law, &transport, rtt_ns, setup::call(&token, to)));
    let met = Negotiated { role, options, terms, streams, sizing };
    Ok(Introduced { met, transport, rtt_s })
}

/// The round-trip time to the far end, seconds.
fn far_away(session: &Session, line: &mut ControlChannel) -> Result<f64, TransferError> {
    // Asked for in any case: a far end that wants nothing to do with this one answers with a refusal.
    let asked = round_trip(session, &mut *line.input)?;
    Ok(line.socket.as_ref().and_then(tcp_round_trip).unwrap_or(asked))
}

/// The round-trip time of a connection as its kernel has measured it, seconds.
fn tcp_round_trip(socket: &TcpStream) -> Option<f64> {
    let info = fullpipe_net::tcp_info::TcpInfo::read(std::os::fd::AsFd::as_fd(socket)).ok()?;
    let us = info.get("min_rtt").filter(|us| *us > 0 && *us < u64::from(u32::MAX))?;
    Some(us as f64 * 1e-6)
}

/// The least of a few round trips, seconds.
fn round_trip(session: &Session, input: &mut (dyn Read + Send)) -> Result<f64, TransferError> {
    let mut least = f64::INFINITY;
    let first = Instant::now();
    for n in 1..=5 {
        if n > 1 && first.elapsed() > Duration::from_millis(200) {
            break;
        }
        let begin = Instant::now();
        session.send(&Message::Ping { n })?;
        match hear(session, input)? {
            Message::Pong { n: back } if back == n => least = least.min(begin.elapsed().as_secs_f64()),
            other => return Err(session.unexpected(&other)),
        }
    }
    Ok(least)
}
