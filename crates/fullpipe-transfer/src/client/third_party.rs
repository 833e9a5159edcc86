//! A copy between two other hosts. This client starts a far end at each, introduces them, and passes their messages on, from
//! which it knows how far the copy is. The data go from host to host, or through here if the two cannot reach each other.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use fullpipe_net::stream::DataStream;
use fullpipe_path::text;

use super::look::{Each, Looked, compared_there, counted, deleted_there, unblocked};
use super::round_trip::round_trip;
use super::streams::{DataPort, hear, ready};
use super::{Between, Finished, Order, Sending, Way, call, greet, unless_stopped};
use crate::connection::dial::{self, ControlChannel, SshConnection};
use crate::connection::endpoint::{Endpoint, SshEndpoint, Via};
use crate::connection::join;
use crate::connection::session::Session;
use crate::connection::ssh::{DataConnections, SshPort};
use crate::connection::stop::Stop;
use crate::connection::stream::{Protection, Stream};
use crate::error::{TransferError, system};
use crate::protocol::frame;
use crate::protocol::hello::Limits;
use crate::protocol::losses::Losses;
use crate::protocol::message::{
    Connect, Dial, Filter, Listing, Message, Options, Reach, Reached, Sources, Summary, Target, Task, Terms, ThirdParty,
};
use crate::protocol::name::{Name, Named};
use crate::protocol::sizing::SizingMode;
use crate::protocol::skipped::Skipped;
use crate::sobas::setup::keep_event;
use crate::telemetry::counters::Counters;
use crate::threads::lock;

/// The two hosts' places in arrays.
const SOURCE: usize = 0;
const DESTINATION: usize = 1;

/// Round-trip time between the two hosts before it is measured, seconds. The port that is opened with it is opened again.
const GUESSED_RTT_S: f64 = 0.01;
/// Longest round-trip time that a far end is believed.
const MAX_RTT_NS: u64 = 60_000_000_000;
/// Longest time to wait for the two far ends to end after everything is done.
const MAX_HANG_UP: Duration = Duration::from_secs(5);
/// How long a host's reason may take to arrive after a stream has broken.
const REASON_WAIT: Duration = Duration::from_secs(1);
/// How often the display is told.
const TICK: Duration = Duration::from_millis(200);
/// Bytes that a relayed stream moves at a time.
const RELAY_BUFFER: usize = 256 << 10;

/// One of the two hosts, with the far end that runs there.
struct Host {
    line: ControlChannel,
    session: Arc<Session>,
    limits: Limits,
    /// Round-trip time between this client and the host, seconds.
    rtt_s: f64,
}

/// How the data go.
struct Agreed {
    connect: Connect,
    rtt_s: f64,
    /// The streams from the source and those to the destination, if the data go through here.
    streams: Vec<(Stream, Stream)>,
    /// The ssh connections that carry these streams.
    _carriers: Vec<DataConnections>,
}

/// The two hosts of a copy, its sources and its target.
///
/// # Errors
/// The copy is not between two other hosts.
fn parts<'a>(
    to: &'a Endpoint,
    way: &'a Way,
) -> Result<(&'a SshEndpoint, &'a SshEndpoint, &'a Sources, &'a Target), TransferError> {
    match (way, to) {
        (Way::ThirdParty(from, sources, target), Endpoint::Ssh(to)) => Ok((from, to, sources, target)),
        _ => Err(TransferError::Usage("the copy is not between two hosts that ssh reaches".into())),
    }
}

/// Makes one attempt to copy from one host to another one.
///
/// # Errors
/// Those of [`super::run`].
pub fn run(order: &mut Order<'_>) -> Result<Finished, TransferError> {
    let way = order.way.clone();
    let (from, to, sources, target) = parts(order.endpoint, &way)?;
    if to.via == Via::Ssh {
        // As in `client::run`.
        order.options.encrypt = true;
    }
    let stop = Arc::new(Stop::default());
    let stall = Duration::from_nanos(order.options.stall_ns);
    let words = (order.options, order.say);
    // A person may have to answer both, so one is asked after the other.
    let source = {
        let third_party = ThirdParty { peer: to.host.clone(), asked: None, names: order.names };
        let task = Task::Pull(sources.clone());
        unless_stopped(order.interrupted, stall, &from.host, &stop, || meet(words, from, task, third_party, &stop))?
    };
    let destination = {
        let asked = Some(Sources { filter: Filter::default(), ..sources.clone() });
        let third_party = ThirdParty { peer: from.host.clone(), asked, names: false };
        unless_stopped(order.interrupted, stall, &to.host, &stop, || {
            meet(words, to, Task::Push(target.clone()), third_party, &stop)
        })?
    };
    let mut hosts = [source, destination];
    let both = format!("{} or {}", from.host, to.host);
    let agreed = unless_stopped(order.interrupted, stall, &both, &stop, || {
        let agreed = match to.via {
            Via::Ssh => through_here(order, &mut hosts, &stop),
            Via::Tcp | Via::Either | Via::Reverse => straight(order, &mut hosts),
        };
        hosts.iter().for_each(|host| host.line.await_nothing());
        agreed.map_err(|error| explained(&hosts, error))
    })?;
    relay(order, hosts, agreed, &stop)
}

/// Asks the two hosts what would be copied and deleted, and copies nothing. The path between them is not measured. Calls `each` for
/// all files and links, and `gone` with the names of what would be deleted.
///
/// # Errors
/// Those of [`super::look::look`].
pub fn look(
    endpoint: &Endpoint,
    options: Options,
    way: &Way,
    each: Each<'_>,
    gone: &mut (dyn FnMut(Name) + Send),
) -> Result<Looked, TransferError> {
    let (from, to, sources, target) = parts(endpoint, way)?;
    let (stop, stall) = (Arc::new(Stop::default()), Duration::from_nanos(options.stall_ns));
    let never = AtomicBool::new(false);
    let words: (_, &dyn Fn(&str)) = (options, &|_| {});
    let introduced = |peer: &str| ThirdParty { peer: peer.to_owned(), asked: None, names: false };
    let mut source = unless_stopped(&never, stall, &from.host, &stop, || {
        meet(words, from, Task::Look(sources.clone()), introduced(&to.host), &stop)
    })?;
    let ((count, tally), deleted) = unless_stopped(&never, stall, &to.host, &stop, || {
        let mut host = meet(words, to, Task::Compare(target.clone()), introduced(&from.host), &stop)?;
        let found = compared_there(&host.session, &mut *host.line.input, each, |sink| {
            counted(&source.session, &mut *source.line.input, sink).map_err(|error| dial::explain(&source.line, error))
        });
        let found = unblocked(found.map_err(|error| dial::explain(&host.line, error))?);
        if target.delete.is_none() || found.0.skipped.to_do() > 0 {
            return Ok((found, None));
        }
        let list = |each: &mut dyn FnMut(Listing) -> Result<(), TransferError>| {
            source.session.send(&Message::List)?;
            loop {
                match hear(&source.session, &mut *source.line.input)? {
                    Message::Listing(part) => each(part)?,
                    Message::Listed(unreadable) => return Ok(unreadable),
                    other => return Err(source.session.unexpected(&other)),
                }
            }
        };
        let deleted = deleted_there(&host.session, &mut *host.line.input, list, gone);
        Ok((found, deleted.map_err(|error| dial::explain(&host.line, error))?))
    })?;
    Ok(Looked { between: None, count, tally, deleted })
}

/// Starts a far end, and asks it for its part of the copy.
fn meet(
    (options, say): (Options, &dyn Fn(&str)),
    endpoint: &SshEndpoint,
    task: Task,
    third_party: ThirdParty,
    stop: &Arc<Stop>,
) -> Result<Host, TransferError> {
    // Without a path for data to this host, which needs none.
    let endpoint = Endpoint::Ssh(SshEndpoint { via: Via::Ssh, ..endpoint.clone() });
    let (mut line, session) = call(&endpoint, stop)?;
    let alarmed = stop.clone();
    session.alarm(move || alarmed.cut());
    let greeted =
        greet(&endpoint, options, task, None, (&session, &mut line), say, Some(third_party)).and_then(|limits| {
            // The answer comes once the far end has opened its files.
            Ok((limits, round_trip(&session, &mut *line.input)?))
        });
    let (limits, rtt_s) = greeted.map_err(|error| dial::explain(&line, error))?;
    Ok(Host { line, session, limits, rtt_s })
}

/// Explains an error of one of the two control connections.
fn explained(hosts: &[Host; 2], error: TransferError) -> TransferError {
    let TransferError::Lost { peer, .. } = &error else { return error };
    let peer = peer.clone();
    // Both are asked if both are the same host: one that has nothing to say leaves the error as it is.
    let lines = hosts.iter().filter(|host| host.session.peer == peer).map(|host| &host.line);
    lines.fold(error, |error, line| dial::explain(line, error))
}

/// What the two hosts are asked for, once the path is known.
fn choose(order: &Order<'_>, hosts: &[Host; 2], path: (f64, Option<u32>)) -> Result<Connect, TransferError> {
    let via = order.endpoint.via();
    let limits = |host: usize| hosts[host].limits.clone();
    let (sender, receiver) = (limits(SOURCE), limits(DESTINATION));
    let between = Between { rtt_s: path.0, via, relayed: false, mtu: path.1, sender, receiver };
    let Sending { transport, sizing, assumed_bps, spare } = (order.choose)(&between)?;
    let sizing = sizing.map(|law| law.with(&between.sender));
    let spare = if sizing.is_none_or(SizingMode::paces) { spare } else { 0 };
    let rtt_ns = (path.0 * 1e9) as u64;
    let relays = via == Via::Ssh;
    Ok(Connect { transport, spare, sizing, assumed_bps, rtt_ns, terms: None, port: 0, relays })
}

/// Has one host connect to the other one: the source if it can, else the destination.
fn straight(order: &Order<'_>, hosts: &mut [Host; 2]) -> Result<Agreed, TransferError> {
    let guess = choose(order, hosts, (GUESSED_RTT_S, None))?;
    let mut failed = Vec::new();
    let mut terms: Option<Terms> = None;
    for (dialling, listening) in [(SOURCE, DESTINATION), (DESTINATION, SOURCE)] {
        let listener = &mut hosts[listening];
        let guessed = Connect { terms, ..guess.clone() };
        listener.session.send(&Message::Listen(Box::new(guessed.clone())))?;
        let mut port = ready(&listener.session, &mut listener.line)?;
        terms = terms.or(port.terms);
        let (host, mut addresses) = dial::name_and_addresses(&listener.line);
        if hosts[SOURCE].session.peer == hosts[DESTINATION].session.peer {
            addresses.insert(0, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        }
        let dialler = &mut hosts[dialling];
        let (host, transport) = (Some(host), guess.transport.clone());
        let reach = Reach { addresses, host, port: port.port, transport, within_ns: order.options.stall_ns };
        dialler.session.send(&Message::Reach(Box::new(reach)))?;
        let Reached { mut to, rtt_ns, mtu } = match hear(&dialler.session, &mut *dialler.line.input)? {
            Message::Reached(Ok(reached)) => reached,
            Message::Reached(Err(why)) => {
                failed.push(unreached(&dialler.session, &why));
                continue;
            }
            other => return Err(dialler.session.unexpected(&other)),
        };
        let rtt_s = rtt_ns.min(MAX_RTT_NS) as f64 * 1e-9;
        let connect = choose(order, hosts, (rtt_s, mtu))?;
        (order.chosen)();
        let terms_of = |host: usize| if host == SOURCE { terms } else { None };
        let listened = Connect { terms: terms_of(listening), ..connect.clone() };
        let listener = &mut hosts[listening];
        listener.session.send(&Message::Connect(Box::new(listened.clone())))?;
        if listened != guessed {
            port = ready(&listener.session, &mut listener.line)?;
        }
        let DataPort { port, token, certificate, udp, .. } = port;
        to.set_port(port);
        let dialled = Connect { terms: terms_of(dialling), ..connect.clone() };
        let dial = Dial { connect: dialled, to, token, certificate, udp };
        hosts[dialling].session.send(&Message::Dial(Box::new(dial)))?;
        return Ok(Agreed { connect, rtt_s, streams: Vec::new(), _carriers: Vec::new() });
    }
    Err(no_direct_path(&hosts.each_ref().map(|host| host.session.clone()), failed.join("; ")))
}

/// Why a host does not reach the other one, in its own words.
fn unreached(session: &Session, why: &str) -> String {
    format!("from {} to {}", session.peer, text::from_peer(why))
}

fn no_direct_path(sessions: &[Arc<Session>; 2], why: String) -> TransferError {
    let name = |host: usize| sessions[host].peer.clone();
    TransferError::NoDirectPath { from: name(SOURCE), to: name(DESTINATION), why }
}

/// Opens streams to both hosts, through ssh. What one host sends is decrypted here and encrypted for the other one.
fn through_here(order: &Order<'_>, hosts: &mut [Host; 2], stop: &Stop) -> Result<Agreed, TransferError> {
    let rtt_s = hosts.iter().map(|host| host.rtt_s).sum();
    let connect = choose(order, hosts, (rtt_s, None))?;
    (order.chosen)();
    let mut terms = None;
    let mut carried = Vec::new();
    for host in [DESTINATION, SOURCE] {
        let Host { line, session, .. } = &mut hosts[host];
        session.send(&Message::Connect(Box::new(Connect { terms, ..connect.clone() })))?;
        let port = ready(session, line)?;
        terms = port.terms;
        let Some(SshConnection { ssh, .. }) = &line.ssh else {
            return Err(TransferError::Usage("a copy between two hosts goes over ssh".into()));
        };
        line.await_nothing();
        let guard = Protection::of_data(&session.peer, order.options.encrypt, &port.certificate)?;
        let far = SshPort::new(ssh, port.port, &connect, host == DESTINATION, stop);
        let streams = join::connect(session, connect.opened(), &|| far.open(), &guard, &port.token)
            .map_err(|error| dial::explain(line, error))?;
        carried.push((streams, far.into_connections()));
    }
    let mut carriers = Vec::new();
    let mut streams = Vec::new();
    if let (Some((from, from_ssh)), Some((to, to_ssh))) = (carried.pop(), carried.pop()) {
        streams = from.into_iter().zip(to).collect();
        carriers.extend([from_ssh, to_ssh]);
    }
    Ok(Agreed { connect, rtt_s, streams, _carriers: carriers })
}

/// What the messages between the two far ends tell of the copy.
struct Heard {
    counters: Arc<Counters>,
    /// The receiver's result, once it has everything.
    summary: Option<Summary>,
    /// What the sender skipped.
    skipped: Skipped,
    losses: Option<Losses>,
    /// When the receiver was heard last. It tells its progress several times a second.
    receiver_at: Instant,
}

impl Heard {
    /// Takes in a message that a host sends. Returns whether it is for the other one, too.
    fn take(&mut self, host: usize, message: &Message) -> bool {
        let store = |counter: &AtomicU64, value: u64| counter.store(value, Ordering::Relaxed);
        let counters = &self.counters;
        if host == DESTINATION {
            self.receiver_at = Instant::now();
        }
        match (host, message) {
            (SOURCE, Message::SenderProgress { sent, times, names }) => {
                store(&counters.wire_bytes, *sent);
                store(&counters.disk_ns, times.disk);
                store(&counters.hash_ns, times.hash);
                store(&counters.net_ns, times.net);
                for name in names {
                    match name {
                        Named::Copied(name) => counters.named(name),
                        Named::Newer(name) => counters.kept(name),
                        Named::Deleted(name) => counters.deleted(name.clone()),
                    }
                }
                return false;
            }
            (SOURCE, Message::Totals { bytes, files, all }) => counters.found(*bytes, *files, *all),
            (SOURCE, Message::AllSent(skipped)) => self.skipped = skipped.clone(),
            (SOURCE, Message::Listed(unreadable)) => self.skipped.merge(unreadable.clone()),
            (SOURCE, Message::Losses(losses)) => self.losses = Some(*losses),
            (DESTINATION, Message::Progress { bytes, files, come, partial, times, .. }) => {
                store(&counters.done_bytes, *bytes);
                store(&counters.done_files, *files);
                store(&counters.come_bytes, *come);
                store(&counters.partial_bytes, *partial);
                *lock(&counters.other) = *times;
            }
            (DESTINATION, Message::Sized(event)) => keep_event(counters, event.clone()),
            (DESTINATION, Message::AllDone(summary)) => self.summary = Some(summary.clone()),
            _ => {}
        }
        true
    }
}

/// How a thread that passes something on has ended.
enum Ended {
    /// A host has no more messages.
    Messages(Result<(), TransferError>),
    /// A host takes nothing more, for a reason that it is about to tell.
    Broken(TransferError),
}

/// Passes the messages of one host on to the other one until they end. A host that is done closes its connection.
fn pass_on(host: usize, input: &mut (dyn Read + Send), sessions: &[Arc<Session>; 2], heard: &Mutex<Heard>) -> Ended {
    let (from, to) = (&sessions[host], &sessions[1 - host]);
    let next = |input: &mut (dyn Read + Send)| {
        let message = frame::receive(input).map_err(|error| from.lost("waiting for its next message", error))?;
        match from.heard(message)? {
            Message::Reached(Err(why)) => Err(no_direct_path(sessions, unreached(from, &why))),
            message => Ok(message),
        }
    };
    let ended = loop {
        match next(input) {
            Ok(message) => {
                if lock(heard).take(host, &message)
                    && let Err(error) = to.send(&message)
                {
                    break Ended::Broken(error);
                }
            }
            Err(error) => break Ended::Messages(Err(error)),
        }
    };
    // Once everything is done, a connection that breaks does no harm.
    if lock(heard).summary.is_some() { Ended::Messages(Ok(())) } else { ended }
}

/// Passes the data of a stream on. An error comes with the host that it is of.
fn pass_data(mut from: Stream, mut to: Stream) -> Result<(), (usize, std::io::Error)> {
    let mut buffer = vec![0; RELAY_BUFFER];
    loop {
        match from.read(&mut buffer).map_err(|error| (SOURCE, error))? {
            0 => return to.finish().map_err(|error| (DESTINATION, error)),
            n => {
                let passed = to.write_all(&buffer[..n]).and_then(|()| to.flush());
                passed.map_err(|error| (DESTINATION, error))?;
            }
        }
    }
}

/// Passes everything on until the copy has ended, and shows how far it is.
fn relay(
    order: &mut Order<'_>,
    mut hosts: [Host; 2],
    agreed: Agreed,
    stop: &Arc<Stop>,
) -> Result<Finished, TransferError> {
    let Agreed { connect, rtt_s, streams, _carriers } = agreed;
    let heard = Mutex::new(Heard {
        counters: Arc::new(Counters::new(order.names)),
        summary: None,
        skipped: Skipped::default(),
        losses: None,
        // Until then the streams are being joined.
        receiver_at: Instant::now() + join::JOIN,
    });
    let counters = lock(&heard).counters.clone();
    let sessions = hosts.each_ref().map(|host| host.session.clone());
    let mut inputs = hosts.each_mut().map(|host| std::mem::replace(&mut host.line.input, Box::new(std::io::empty())));
    let ended = std::thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let watched = || {
            let thread = || std::thread::Builder::new().name("relay".into());
            for (host, input) in inputs.iter_mut().enumerate() {
                let (tell, sessions, heard) = (tell.clone(), &sessions, &heard);
                let started = thread().spawn_scoped(scope, move || {
                    let _ = tell.send(pass_on(host, &mut **input, sessions, heard));
                });
                started.map_err(system("starting a thread"))?;
            }
            for (from, to) in streams {
                let (tell, sessions) = (tell.clone(), &sessions);
                let started = thread().spawn_scoped(scope, move || {
                    if let Err((host, error)) = pass_data(from, to) {
                        let doing =
                            if host == SOURCE { "taking its data to pass them on" } else { "passing data on to it" };
                        let _ = tell.send(Ended::Broken(sessions[host].lost(doing, error)));
                    }
                });
                started.map_err(system("starting a thread"))?;
            }
            watch(order, &heard, &counters, &told)
        };
        let ended = watched();
        if let Err(error) = &ended {
            sessions.iter().for_each(|session| session.tell(error));
        }
        // Ends the threads, which may wait for a host that is gone.
        stop.cut();
        ended
    });
    (order.show)(&counters);
    ended.map_err(|error| explained(&hosts, error))?;
    let Heard { summary, skipped, losses, .. } = heard.into_inner().unwrap_or_else(PoisonError::into_inner);
    let summary = summary.unwrap_or_default();
    let Connect { transport, sizing, .. } = connect;
    // Through here, the sender's sockets lead no further than its own host.
    let losses = losses.filter(|_| order.endpoint.via() != Via::Ssh);
    let (encrypted, removed) = (order.options.encrypt, None);
    Ok(Finished { summary, skipped, transport, sizing, encrypted, rtt_s, trace: None, losses, removed })
}

/// Waits until both hosts have ended, and shows how far they are.
fn watch(
    order: &mut Order<'_>,
    heard: &Mutex<Heard>,
    counters: &Counters,
    told: &mpsc::Receiver<Ended>,
) -> Result<(), TransferError> {
    let stall = Duration::from_nanos(order.options.stall_ns);
    let mut running = 2;
    let mut done_at: Option<Instant> = None;
    let mut broken: Option<(Instant, TransferError)> = None;
    while running > 0 {
        match told.recv_timeout(TICK) {
            Ok(Ended::Messages(ended)) => {
                ended?;
                running -= 1;
            }
            Ok(Ended::Broken(error)) => {
                broken.get_or_insert((Instant::now(), error));
            }
            Err(_) => {}
        }
        (order.show)(counters);
        if order.interrupted.load(Ordering::SeqCst) {
            return Err(TransferError::Interrupted);
        }
        let (is_done, silent) = {
            let heard = lock(heard);
            (heard.summary.is_some(), heard.receiver_at.elapsed())
        };
        if is_done {
            // What the hosts still have to say is not worth a long wait.
            if done_at.get_or_insert_with(Instant::now).elapsed() > MAX_HANG_UP {
                return Ok(());
            }
        } else if silent > stall {
            return Err(TransferError::Stalled { seconds: silent.as_secs_f64() });
        } else if broken.as_ref().is_some_and(|(since, _)| since.elapsed() > REASON_WAIT)
            && let Some((_, error)) = broken.take()
        {
            return Err(error);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener, TcpStream};

    use fullpipe_net::stream::tcp::TcpDataStream;

    use super::*;

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (ours, listener.accept().unwrap().0)
    }

    #[test]
    fn an_error_of_passing_data_on_is_of_its_host() {
        let stream = |socket: &TcpStream| {
            Protection::None.wrap(TcpDataStream::boxed(socket.try_clone().unwrap())).unwrap_or_else(|e| panic!("{e}"))
        };
        let ((from, mut source), (to, _destination)) = (connected(), connected());
        // Nothing is there to be read, which is an error now.
        from.set_nonblocking(true).unwrap();
        assert_eq!(pass_data(stream(&from), stream(&to)).unwrap_err().0, SOURCE);
        from.set_nonblocking(false).unwrap();
        source.write_all(b"data").unwrap();
        to.shutdown(Shutdown::Write).unwrap();
        assert_eq!(pass_data(stream(&from), stream(&to)).unwrap_err().0, DESTINATION);
    }
}
