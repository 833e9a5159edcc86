//! The server: what `fullpipe far` does when ssh starts it, and what `fullpipe serve` does for each client.

pub(crate) mod data_listener;
pub mod measurements;

use std::fs::File;
use std::io::{BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fullpipe_net::Denial;
use fullpipe_net::shared_port::SharedStreams;
use fullpipe_net::stream::DataStream;
use fullpipe_net::stream::tcp::TcpDataStream;
use fullpipe_path::{Classified, Protocol, text};

use self::data_listener::{DataListener, Place};
use crate::connection::far_port::FarPort;
use crate::connection::session::Session;
use crate::connection::stream::{Protection, Stream};
use crate::connection::tls::Identity;
use crate::connection::token_store::Grant;
use crate::connection::{far_port, join, ssh, third_party};
use crate::error::{self, TransferError};
use crate::protocol::frame;
use crate::protocol::hello::PLAIN;
use crate::protocol::message::{Connect, Dial, Message, Options, Setup, Summary, Target, Task, ThirdParty};
use crate::receive::delete;
use crate::receive::dry_run::DryRun;
use crate::resolve::{self, Realm};
use crate::send::Outgoing;
use crate::sobas::setup::{self, SizingSetup};
use crate::source::count::{self, Count, Told};
use crate::source::listing;
use crate::source::name_list::NameList;
use crate::source::tree::{SourceTree, WalkOptions};
use crate::telemetry::counters::Counters;
use crate::transfer::{self, Negotiated, Outcome, Role};

/// How a server serves its clients.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The part of the file system that clients may use.
    pub realm: Realm,
    /// Address at which data streams are accepted. Their port is chosen from `ports`.
    pub listen: SocketAddr,
    /// First and last port for data streams; zeros let the kernel choose.
    pub ports: (u16, u16),
    /// Whether clients may ask for streams that are not encrypted.
    pub plain_streams: bool,
    /// Whether clients may set setuid, setgid and sticky bits. With them, a token's holder who has an account on this host
    /// could get the rights of the user that the server runs as.
    pub special_bits: bool,
    /// Most data streams of one client.
    pub most_streams: u16,
    /// Whether data streams may come through relays on this host, which ssh starts.
    pub relays: bool,
    /// Time without progress after which a transfer fails, even if a client asks for more.
    pub stall: Duration,
    /// The address from which the client's ssh has come, if one has.
    pub client: Option<IpAddr>,
}

/// Decides what a client may do. In the process of one client, the implementation asks the parent process.
pub trait AccessControl {
    /// Returns what a client's secret grants; `None` if the server asks for no token and so limits nothing.
    ///
    /// # Errors
    /// The client is refused.
    fn grant(&self, secret: &[u8]) -> Result<Option<Grant>, TransferError>;

    /// Decides whether a client may start its task now. The task is one that its token allows.
    ///
    /// # Errors
    /// The client is refused.
    fn admit(&self, task: &Task) -> Result<(), TransferError>;

    /// Takes note of a file at the destination that is ignored because another user may have written it, with the reason, as
    /// `NAME: WHY`.
    fn distrusts(&self, file: &str);

    /// The server's own port, if data streams come there.
    fn shared_port(&self) -> Option<&dyn SharedStreams> {
        None
    }

    /// What the client says of the third host that is the other end of the transfer; `None` if the client itself is that end.
    fn third_party(&self) -> Option<&ThirdParty> {
        None
    }

    /// Whether the client may have this host connect the streams to another one, or to the client. ssh's clients may: they may
    /// connect from this host to any other one anyway.
    fn may_dial(&self) -> bool {
        false
    }
}

/// Admits every client: ssh has checked who it is.
struct AccessOverSsh {
    third_party: Option<ThirdParty>,
}

impl AccessControl for AccessOverSsh {
    fn grant(&self, _: &[u8]) -> Result<Option<Grant>, TransferError> {
        Ok(None)
    }

    fn admit(&self, _: &Task) -> Result<(), TransferError> {
        Ok(())
    }

    fn distrusts(&self, _: &str) {}

    fn third_party(&self) -> Option<&ThirdParty> {
        self.third_party.as_ref()
    }

    fn may_dial(&self) -> bool {
        true
    }
}

/// Serves one client over ssh's input and output. `line` is the descriptor that shows when the client is gone, if there is one.
/// Returns `None` for a client that only asked questions.
///
/// # Errors
/// The transfer failed. The client was told.
pub fn serve(
    input: OwnedFd,
    output: OwnedFd,
    peer: String,
    options: &ServerOptions,
    line: Option<OwnedFd>,
) -> Result<Option<Outcome>, TransferError> {
    let (mut input, mut output) = (BufReader::new(File::from(input)), File::from(output));
    // The greeting does not wait for the client's: that would cost a round trip.
    let greeted = frame::send(&mut output, &Message::Hello(join::hello()));
    // ssh has checked who the client is, so its messages may be long.
    let mut first = greeted.and_then(|()| frame::receive(&mut input));
    let mut third_party = None;
    if let Ok(Message::ThirdParty(introduced)) = first {
        third_party = Some(*introduced);
        first = frame::receive(&mut input);
    }
    let peer = third_party.as_ref().map_or(peer, |third_party| text::from_peer(&third_party.peer));
    let session = Session::new(peer, Box::new(output));
    session.heard_on(line);
    let first = first.map_err(|e| session.lost("greeting", e));
    let access = AccessOverSsh { third_party };
    let greeted = first.and_then(|first| greet(&session, first, false));
    serve_session(&session, greeted, Box::new(input), options, &|_, _| Ok(()), &access)
}

/// Sets the longest time that a read and a write of the control connection may take; none for as long as it takes.
type SetLimits<'a> = &'a dyn Fn(Option<Duration>, Option<Duration>) -> Result<(), TransferError>;

/// Longest time for which a client that only asks questions may be silent, or read nothing: it may be comparing what it has been
/// told with large files of its own.
const COMPARES: Duration = Duration::from_secs(3600);

/// Serves one client of a session, whose greeting went as `greeted` says.
fn serve_session(
    session: &Arc<Session>,
    greeted: Result<(), TransferError>,
    mut input: Box<dyn Read + Send>,
    options: &ServerOptions,
    set_limits: SetLimits<'_>,
    access: &dyn AccessControl,
) -> Result<Option<Outcome>, TransferError> {
    let met = prepare(session, greeted, &mut *input, options, (access, set_limits));
    let served = met.and_then(|met| {
        // From here on the session watches for stalls. Where it is the one that receives, it also writes, and must not be held up.
        let receives = met.as_ref().filter(|met| !met.role.sends());
        set_limits(None, receives.map(|met| Duration::from_nanos(met.options.stall_ns)))?;
        Ok(met)
    });
    match served {
        Ok(None) => Ok(None),
        Ok(Some(met)) => match access.third_party() {
            Some(third_party) if met.role.sends() => {
                let counters = Arc::new(Counters::new(third_party.names));
                let sent = transfer::run(session, input, met, counters.clone(), &mut || {
                    tell_progress(session, &counters);
                })?;
                tell_progress(session, &counters);
                Ok(Some(sent))
            }
            _ => transfer::run(session, input, met, Arc::default(), &mut || {}).map(Some),
        },
        Err(error) => {
            // This fails if the client is gone, who then needs no answer.
            let is_taken = matches!(error, TransferError::Busied(_) | TransferError::Busy(_));
            let (retry, class) = (is_taken, error.class() as u8);
            let _ = session.send(&match error {
                TransferError::TcpOnly(_) => Message::TcpOnly,
                TransferError::PortsTaken { first, last, .. } => Message::PortsTaken { first, last },
                _ => Message::Refused { why: error.for_client(), retry, class },
            });
            Err(error)
        }
    }
}

/// Most names in one message about the progress. A name has at most 4095 bytes.
const MAX_TOLD_NAMES: usize = 512;

/// Tells a client between two far ends what it cannot hear from the other one. It fails if the client is gone, which others
/// notice.
fn tell_progress(session: &Session, counters: &Counters) {
    let mut names = counters.take_names();
    loop {
        let rest = names.split_off(names.len().min(MAX_TOLD_NAMES));
        let sent = counters.wire_bytes.load(Ordering::Relaxed);
        let told = session.send(&Message::SenderProgress { sent, times: counters.times(), names });
        if rest.is_empty() || told.is_err() {
            return;
        }
        names = rest;
    }
}

/// Serves one client of a standing server. `identity` is the server's certificate; without one, connections are not
/// encrypted. Returns `None` for a client that only asked questions.
///
/// # Errors
/// The transfer failed. The client was told, if that was possible.
pub fn serve_socket(
    mut socket: TcpStream,
    peer: &str,
    identity: Option<&Identity>,
    options: &ServerOptions,
    access: &dyn AccessControl,
) -> Result<Option<Outcome>, TransferError> {
    let lost = |source| TransferError::Lost { peer: peer.to_owned(), doing: "greeting", source };
    let local = socket.local_addr().map_err(lost)?;
    socket.set_nodelay(true).and_then(|()| socket.set_read_timeout(Some(join::JOIN))).map_err(lost)?;
    socket.set_write_timeout(Some(join::JOIN)).map_err(lost)?;
    let socket_copy = socket.try_clone().map_err(lost)?;
    let guard = match identity {
        Some(identity) => Protection::Server(identity.server()?),
        None => {
            let mut first = [0];
            socket.read_exact(&mut first).map_err(lost)?;
            if first != [PLAIN] {
                let why = "it speaks TLS, and this server was started with --insecure".to_owned();
                return Err(TransferError::Stranger { peer: peer.to_owned(), why });
            }
            Protection::None
        }
    };
    let greeted = guard.wrap(TcpDataStream::new(socket)).and_then(Stream::split);
    let (mut input, output) = greeted.map_err(|e| stranger(&e, peer).unwrap_or_else(|| lost(e)))?;
    let options = ServerOptions { listen: local, ..options.clone() };
    let session = Session::new(peer.to_owned(), output);
    session.cut_with(TcpDataStream::new(socket_copy.try_clone().map_err(lost)?).handle());
    session.heard_on(socket_copy.try_clone().ok().map(OwnedFd::from));
    let greeted = hear_stranger(&session, &mut *input).and_then(|first| greet(&session, first, true));
    let set_limits = |read, write| {
        socket_copy.set_read_timeout(read).and_then(|()| socket_copy.set_write_timeout(write)).map_err(lost)
    };
    serve_session(&session, greeted, input, &options, &set_limits, access)
}

/// Explains why a client's TLS handshake failed, if the error tells.
fn stranger(error: &std::io::Error, peer: &str) -> Option<TransferError> {
    let why = match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::AlertReceived(_) => {
            let why = "it does not take this server's certificate: its token is another server's";
            return Some(TransferError::Denied(why.to_owned().into()));
        }
        rustls::Error::InvalidMessage(_) => "it does not speak TLS: --insecure perhaps, or no client of fullpipe",
        _ => return None,
    };
    Some(TransferError::Stranger { peer: peer.to_owned(), why: why.to_owned() })
}

/// Receives the next message of a client.
fn hear(session: &Session, input: &mut (dyn Read + Send)) -> Result<Message, TransferError> {
    frame::receive(input).map_err(|e| session.lost("waiting for what it wants", e))
}

/// As [`hear`], for a client that has not shown its token yet: its messages must be short.
fn hear_stranger(session: &Session, input: &mut (dyn Read + Send)) -> Result<Message, TransferError> {
    frame::receive_within(input, frame::GREETING_MAX).map_err(|e| session.lost("greeting", e))
}

/// Takes a client's first message, its greeting, and answers it if this end has not greeted the client before.
fn greet(session: &Session, first: Message, answers: bool) -> Result<(), TransferError> {
    match first {
        Message::Hello(hello) => {
            if answers {
                session.send(&Message::Hello(join::hello()))?;
            }
            join::greet(&session.peer, hello).map(drop)
        }
        other => Err(session.unexpected(&other)),
    }
}

/// Agrees with a client on a transfer, and accepts its streams. Returns `None` for a client that only asked questions.
fn prepare(
    session: &Arc<Session>,
    greeted: Result<(), TransferError>,
    input: &mut (dyn Read + Send),
    options: &ServerOptions,
    (access, set_limits): (&dyn AccessControl, SetLimits<'_>),
) -> Result<Option<Negotiated>, TransferError> {
    greeted?;
    let grant = match hear_stranger(session, input)? {
        Message::Secret(shown) => access.grant(&shown).inspect_err(|_| {
            // Closing a connection with unread data would destroy the refusal before the client reads it.
            let _ = frame::skip(input);
        })?,
        other => return Err(session.unexpected(&other)),
    };
    let mut setup = match hear(session, input)? {
        Message::Setup(setup) => *setup,
        other => return Err(session.unexpected(&other)),
    };
    check(&setup, options)?;
    if let Realm::Below(base) = &options.realm
        && base.is_removed()
    {
        let why = "the folder that this server serves has been removed, so the server has to be restarted";
        return Err(TransferError::Denied(Denial::new(why, "ask its operator to do that")));
    }
    let realm = match &grant {
        Some(grant) => {
            check_rights(grant, &setup)?;
            kept_in(&options.realm, grant)?
        }
        None => options.realm.clone(),
    };
    access.admit(&setup.task)?;
    let stall = u64::try_from(options.stall.as_nanos()).unwrap_or(u64::MAX);
    setup.options.stall_ns = setup.options.stall_ns.min(stall);
    if matches!(setup.task, Task::Look(_) | Task::Compare(_)) {
        set_limits(Some(COMPARES), Some(COMPARES))?;
    }
    let mut role = match &setup.task {
        Task::Push(target) => {
            let mut to = resolve::destination(&realm, target, &|| session.is_gone())?;
            if let Some(asked) = access.third_party().and_then(|third_party| third_party.asked.as_ref()) {
                resolve::expect(&mut to, asked);
            }
            to.distrusted().iter().for_each(|file| access.distrusts(file));
            Role::Receive(Box::new(to))
        }
        Task::Look(paths) => {
            let sources = resolve::places(&realm, paths)?;
            resolve::check_removed(&sources, &setup.options)?;
            let list = paths.listed.then(NameList::default);
            return looked_at(session, input, (sources, list), setup.options).map(|()| None);
        }
        Task::Compare(target) => {
            let is_blind = grant.as_ref().is_some_and(|grant| !grant.rights.may_read());
            let dry_run = match is_blind {
                true => DryRun::blind(setup.options),
                false => resolve::dry_run(&realm, target, setup.options)?,
            };
            return compared(session, input, dry_run).map(|()| None);
        }
        Task::Pull(paths) => {
            let trees = resolve::places(&realm, paths)?;
            resolve::check_removed(&trees, &setup.options)?;
            Role::Send(Outgoing::Trees(trees))
        }
    };
    let mut early = match setup.probably.take() {
        // The client did not know yet which congestion controls this user may set.
        Some(probably) if role.sends() && fullpipe_net::socket::check_cc(&probably.transport).is_err() => {
            session.send(&Message::NotReady)?;
            None
        }
        Some(probably) => Some((open_port(session, &setup, &probably, (options, access), &role)?, probably)),
        None => None,
    };
    let may_dial = access.may_dial();
    let mut list = matches!(&setup.task, Task::Pull(paths) if paths.listed).then(NameList::default);
    let connect: Connect = loop {
        match (hear(session, input)?, &mut list) {
            (Message::Ping { n }, _) => session.send(&Message::Pong { n })?,
            (Message::Names(part), Some(list)) => list.add(&part)?,
            (Message::Listen(connect), _) if may_dial => {
                // Closed before another is opened, since there may be a single port.
                drop(early.take());
                early = Some((open_port(session, &setup, &connect, (options, access), &role)?, *connect));
            }
            (Message::Reach(reach), _) if may_dial => {
                let stall = Duration::from_nanos(setup.options.stall_ns);
                let reached = third_party::reach(&reach, role.sends(), stall, options.client);
                session.send(&Message::Reached(reached))?;
            }
            (Message::Dial(dial), _) if may_dial => {
                drop(early);
                limit(&mut role, list);
                return dialled(session, &setup, *dial, options, role).map(Some);
            }
            (Message::Connect(connect), _) => break *connect,
            (other, _) => return Err(session.unexpected(&other)),
        }
    };
    limit(&mut role, list);
    let data = match early {
        Some((data, probably)) if probably == connect => data,
        other => {
            // Closed before another is opened, since there may be a single port.
            drop(other);
            open_port(session, &setup, &connect, (options, access), &role)?
        }
    };
    let opened = connect.opened();
    // Through ssh they come a few at a time, each after a login.
    let patience = if connect.relays { join::JOIN * u32::from(opened.div_ceil(ssh::MAX_LOGINS)) } else { join::JOIN };
    let (streams, udp) = data.accept(session, opened, patience)?;
    let sizing = SizingSetup::new(&connect, udp);
    let (sending, shared_bps) = (connect.transport.streams, transfer::shared_bps(&connect.transport));
    Ok(Some(Negotiated { role, terms: connect.terms, options: setup.options, streams, sending, shared_bps, sizing }))
}

/// Limits what is sent to a list of names, if there is one.
fn limit(role: &mut Role, list: Option<NameList>) {
    if let Role::Send(Outgoing::Trees(trees)) = role {
        SourceTree::limit(trees, list.map(Arc::new));
    }
}

/// Connects the streams of a transfer to the client, or to the other far end to which the client has introduced this one.
fn dialled(
    session: &Arc<Session>,
    setup: &Setup,
    dial: Dial,
    options: &ServerOptions,
    role: Role,
) -> Result<Negotiated, TransferError> {
    let Dial { connect, mut to, token, certificate, udp } = dial;
    check_streams(&connect, options)?;
    let guard = Protection::of_data(&session.peer, setup.options.encrypt, &certificate)?;
    let patience = far_port::first_answer(Duration::from_nanos(setup.options.stall_ns), connect.rtt_ns);
    let far = FarPort::new((to, patience), &connect, role.sends(), None);
    let streams = join::connect(session, connect.opened(), &|| far.open(), &guard, &token);
    let streams = streams.inspect_err(|error| {
        if let Some((_, why)) = error.no_data_path() {
            let _ = session.send(&Message::Reached(Err(why)));
        }
    })?;
    to.set_port(udp);
    let sizing = SizingSetup::new(&connect, setup::call(&token, to));
    let Connect { transport, terms, .. } = connect;
    let (sending, shared_bps) = (transport.streams, transfer::shared_bps(&transport));
    Ok(Negotiated { role, terms, options: setup.options, streams, sending, shared_bps, sizing })
}

/// Longest time for which this end is silent while it compares.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// Answers a client that only asks questions, until it closes the connection. With the sources comes the list to which they are
/// limited, if they are, which the client sends first.
fn looked_at(
    session: &Session,
    input: &mut (dyn Read + Send),
    (mut sources, mut list): (Vec<SourceTree>, Option<NameList>),
    options: Options,
) -> Result<(), TransferError> {
    let totals = |count: &Count, all| session.send(&Message::Totals { bytes: count.bytes, files: count.files, all });
    loop {
        match frame::receive(input) {
            Ok(Message::Ping { n }) => session.send(&Message::Pong { n })?,
            Ok(Message::Names(part)) if list.is_some() => list.iter_mut().try_for_each(|list| list.add(&part))?,
            Ok(Message::List) => {
                let unreadable = listing::list(&sources, WalkOptions::from(&options), &mut |part| {
                    session.send(&Message::Listing(part))
                })?;
                session.send(&Message::Listed(unreadable))?;
            }
            Ok(Message::Count) => {
                SourceTree::limit(&mut sources, list.take().map(Arc::new));
                let count = count::count(&sources, &options, &mut |told| match told {
                    Told::Candidates(part) => session.send(&Message::Candidates(part)),
                    Told::Totals(count) => totals(count, false),
                })?;
                totals(&count, true)?;
                session.send(&Message::AllSent(count.skipped))?;
            }
            Ok(other) => return Err(session.unexpected(&other)),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(session.lost("being looked at", error)),
        }
    }
}

/// Answers a client that asks what a copy would do here, until it closes the connection.
fn compared(session: &Session, input: &mut (dyn Read + Send), mut dry_run: DryRun) -> Result<(), TransferError> {
    loop {
        match frame::receive(input) {
            Ok(Message::Ping { n }) => session.send(&Message::Pong { n })?,
            Ok(Message::Candidates(part)) => {
                let (mut changes, mut told) = (Vec::new(), Instant::now());
                for candidate in part {
                    let mut alive = Ok(());
                    changes.push(dry_run.compare(&candidate, &mut || {
                        if told.elapsed() >= SIGN_OF_LIFE && alive.is_ok() {
                            told = Instant::now();
                            alive = session.send(&Message::Compared(Vec::new()));
                        }
                    }));
                    alive?;
                }
                session.send(&Message::Compared(changes))?;
            }
            Ok(Message::Listing(_)) if !dry_run.deletes() => {
                return Err(TransferError::Usage("nothing is to be deleted".into()));
            }
            Ok(Message::Listing(listing)) => delete::tell(session, dry_run.take(listing, &|| !session.is_gone())?)?,
            Ok(Message::Listed(_)) => {
                let deleted = Some(dry_run.deleted());
                return session.send(&Message::AllDone(Summary { deleted, ..Summary::default() }));
            }
            Ok(other) => return Err(session.unexpected(&other)),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(session.lost("being looked at", error)),
        }
    }
}

/// Refuses a task that the client's token does not allow.
fn check_rights(grant: &Grant, setup: &Setup) -> Result<(), TransferError> {
    let (granted, may) = match &setup.task {
        // Whether a file was sent tells whether a guess at its content was right.
        Task::Push(_) | Task::Compare(_) if setup.options.checksum && grant.rights.may_write() => {
            (grant.rights.may_read(), "may copy to this server without knowing what is there; leave out --checksum")
        }
        // What is deleted has names, which the client is told.
        Task::Push(Target { delete: Some(_), .. }) | Task::Compare(Target { delete: Some(_), .. })
            if grant.rights.may_write() =>
        {
            (grant.rights.may_read(), "may copy to this server without knowing what is there; leave out --delete")
        }
        Task::Push(_) | Task::Compare(_) => (grant.rights.may_write(), "may copy from this server, not to it"),
        // A client asks this before a copy to the server. The answer tells nothing of the files here.
        Task::Look(sources) if sources.paths.is_empty() => {
            (grant.rights.may_write(), "may copy from this server, not to it")
        }
        Task::Pull(_) | Task::Look(_) if setup.options.remove_sources && grant.rights.may_read() => (
            grant.rights.may_write(),
            "may copy from this server, not remove files there; leave out --remove-source-files",
        ),
        Task::Pull(_) | Task::Look(_) => {
            (grant.rights.may_read(), "may copy to this server, neither from it nor look at what is there")
        }
    };
    if granted {
        return Ok(());
    }
    Err(TransferError::Denied(format!("the token '{}' is {}: it {may}", grant.name, grant.rights).into()))
}

/// The part of the realm that a token's holder may use.
fn kept_in(realm: &Realm, grant: &Grant) -> Result<Realm, TransferError> {
    let (Realm::Below(root), Some(folder)) = (realm, &grant.folder) else { return Ok(realm.clone()) };
    let denied = |why: String| {
        let why = format!("the token '{}' is for a folder that {why}", grant.name);
        TransferError::Denied(Denial::new(why, "ask its operator for another token"))
    };
    let within = root.within(folder).ok_or_else(|| denied("this server does not serve".to_owned()))?;
    within.check().map_err(|e| denied(format!("cannot be opened ({})", error::why(&e))))?;
    Ok(Realm::Below(within))
}

/// Refuses options that this server does not allow.
fn check(setup: &Setup, options: &ServerOptions) -> Result<(), TransferError> {
    if !setup.options.encrypt && !options.plain_streams {
        let advice = "leave out --no-encrypt, or ask its operator to start it with --allow-plain";
        return Err(TransferError::Denied(Denial::new("it takes encrypted streams only", advice)));
    }
    if setup.options.special && !options.special_bits && matches!(setup.task, Task::Push(_)) {
        let advice = "leave out -p, or ask its operator to start it with --allow-special";
        return Err(TransferError::Denied(Denial::new("it takes no setuid, setgid and sticky bits", advice)));
    }
    let block = setup.options.block;
    if !(64 << 10..=64 << 20).contains(&block) {
        return Err(TransferError::Usage(format!("a block of {block} bytes; from 64 KiB to 64 MiB")));
    }
    Ok(())
}

/// Refuses streams that this server does not allow, or for which this host has no memory.
fn check_streams(connect: &Connect, options: &ServerOptions) -> Result<(), TransferError> {
    connect.transport.validate_for_copy().map_err(|e| TransferError::Usage(e.to_string()))?;
    if connect.transport.protocol() == Protocol::Udt {
        if connect.relays || connect.sizing.is_some() {
            return Err(TransferError::Usage("UDT through relays, or sized by SOBAS; both are for TCP".into()));
        }
        fullpipe_net::socket::check_memory(&connect.transport)?;
    }
    if connect.opened() > options.most_streams {
        let why = format!("{} streams; it allows {}", connect.opened(), options.most_streams);
        return Err(TransferError::Usage(why));
    }
    Ok(())
}

/// Opens the port at which the client's streams arrive, and tells the client.
fn open_port(
    session: &Session,
    setup: &Setup,
    connect: &Connect,
    (options, access): (&ServerOptions, &dyn AccessControl),
    role: &Role,
) -> Result<DataListener, TransferError> {
    check_streams(connect, options)?;
    let shared = access.shared_port();
    if shared.is_some() && connect.transport.protocol() == Protocol::Udt {
        return Err(TransferError::TcpOnly(session.peer.clone()));
    }
    if connect.relays && !options.relays {
        return Err(TransferError::Usage("data through relays; only a far end that ssh has started takes them".into()));
    }
    let at = if connect.relays {
        (SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), (0, 0))
    } else {
        (options.listen, options.ports)
    };
    let at = shared.map_or(Place::Own(at.0, at.1), Place::Shared);
    let data = DataListener::open(session, at, connect, (setup.options.encrypt, role.sends()))?;
    session.send(&data.ready(role.terms()))?;
    Ok(data)
}
