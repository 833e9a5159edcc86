//! `fullpipe serve`.

mod channel;
pub mod child;
mod parent;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use channel::{Copied, CopyOptions};
use fullpipe_net::serve::{Event, MeasurementPolicy};
use fullpipe_net::{AnonymousLimits, NetError, ServeOptions, Server};
use fullpipe_path::{ExitClass, Time, path, text};
use fullpipe_transfer::connection::token;
use fullpipe_transfer::connection::token_proof::{self, Greetings};
use fullpipe_transfer::connection::token_store::Tokens;
use fullpipe_transfer::protocol::message::{Summary, Task, Verified};
use fullpipe_transfer::protocol::name::{one_line, printable};
use fullpipe_transfer::resolve::Base;
use fullpipe_transfer::{SkippedEntry, TransferError};
use parent::Parent;
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::failure::{Failure, Result};
use crate::output::{errln, outln};
use crate::{format, ports, rlimit};

/// Longest measurement of a client without a token where --max-duration does not say.
const MAX_DURATION: Time = Time(600_000_000_000);
/// Sources of one client that a line of the log names, and things that were left.
const SHOWN: usize = 3;
/// Room in a line of the log for the fields that are not a list of the client's, bytes.
const OTHER_FIELDS: usize = 512;
/// Longest name in the log, bytes; as JSON it may take twice as many.
const MAX_NAME: usize = 1024;

/// Command line.
#[derive(clap::Args)]
pub struct Args {
    /// Let clients with a token copy files to and from this folder too
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Holds the first token of --root, made where there is none; beside it the key (FILE.key) and the tokens that
    /// 'fullpipe token' makes (FILE.store)
    #[arg(long, value_name = "FILE", requires = "root", conflicts_with = "insecure")]
    token_file: Option<PathBuf>,
    /// Anyone may copy, without token and without encryption of what is said
    #[arg(long, requires = "root")]
    insecure: bool,
    /// Clients may ask for data streams that are not encrypted
    #[arg(long, requires = "root")]
    allow_plain: bool,
    /// Let clients bring setuid, setgid and sticky bits (cp -p)
    #[arg(long, requires = "root")]
    allow_special: bool,
    /// Address to listen on; all by default
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Port of control connections
    #[arg(long, default_value_t = path::DEFAULT_PORT)]
    port: u16,
    /// Ports for data streams, FIRST-LAST; the kernel chooses if not given
    #[arg(long, value_name = "FIRST-LAST")]
    data_ports: Option<String>,
    /// Clients served at once; more are refused
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = places)]
    max_clients: usize,
    /// Without tokens: clients measured at once for one IPv4 address or IPv6 /64; half of --max-clients by default
    #[arg(long, value_name = "N", value_parser = places)]
    max_clients_per_address: Option<usize>,
    /// Without tokens: longest measurement; 10min by default
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    max_duration: Option<Time>,
    /// Give a run up when nothing moved for so long
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = some_time)]
    stall: Time,
    /// End after one client
    #[arg(long)]
    once: bool,
    /// Events as NDJSON on stdout
    #[arg(long)]
    json: bool,
    /// Say nothing but errors
    #[arg(long)]
    quiet: bool,
    /// Runs in the testbed's guest, whose memory does not hold what is in its buffers
    #[arg(long, hide = true)]
    guest: bool,
}

/// Reads a number of clients.
fn places(text: &str) -> std::result::Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "give a number from 1 on".to_owned())
}

/// Reads a time that is not zero.
fn some_time(text: &str) -> std::result::Result<Time, String> {
    let time: Time = text.parse().map_err(|e| format!("{e}"))?;
    if time.0 > 0 { Ok(time) } else { Err("give a time above 0s".to_owned()) }
}

/// Serves until killed.
pub fn run(args: Args) -> Result {
    rlimit::raise_open_files();
    let data_ports = ports::data_ports(args.data_ports.as_deref())?;
    let per_address = args.max_clients_per_address.unwrap_or_else(|| args.max_clients.div_ceil(2));
    let max_duration = args.max_duration.unwrap_or(MAX_DURATION);
    let limits = AnonymousLimits::new(max_duration.duration(), per_address);
    let options = |address| ServeOptions {
        bind: SocketAddr::new(address, args.port),
        max_clients: args.max_clients,
        once: args.once,
    };
    let server = match args.bind {
        Some(address) => Server::bind(options(address))?,
        // A host without IPv6 refuses its wildcard address; then IPv4's serves.
        None => Server::bind(options(Ipv6Addr::UNSPECIFIED.into()))
            .or_else(|_| Server::bind(options(IpAddr::from([0, 0, 0, 0]))))?,
    };
    let address = server.address().map_err(|e| Failure::new(ExitClass::Missing, e))?;
    let told = Told { json: args.json, quiet: args.quiet };
    let clients = Clients::default();
    let measuring = match args.guest {
        true => "anyone may measure".to_owned(),
        false => format!(
            "ANYONE may measure: runs of at most {} (--max-duration), {per_address} at once from one address \
             (--max-clients-per-address)",
            max_duration
        ),
    };
    let mut notices = Vec::new();
    let (copies, door) = match &args.root {
        None => {
            notices.push(Notice::Note(format!("{measuring}; nobody may copy files (no --root)")));
            (None, None)
        }
        Some(root) => {
            let base = base(root)?;
            let (copies, door) = files(&args, &base, data_ports, &measuring, told, &mut notices)?;
            (Some((copies, base)), door)
        }
    };
    let server = match &door {
        Some(door) => server.with_check(door.clone().check()),
        None => server,
    };
    if !args.guest && copies.is_some() && nix::unistd::geteuid().is_root() {
        let why =
            "it runs as root, so clients choose who owns what they bring: run it as a user who may write to --root";
        notices.push(Notice::Warning(why.to_owned()));
    }
    if !args.guest && !child::can_confine() {
        let why = "this kernel has no Landlock: a flaw that a client finds is not confined to --root (Linux 5.13 and \
                   later have it)";
        notices.push(Notice::Warning(why.to_owned()));
    }
    notices.iter().for_each(|notice| told.operator(notice));
    on_signals(clients.clone(), door.clone(), told)?;
    let measure = MeasurementPolicy {
        data_ports,
        stall: Duration::from_nanos(args.stall.0),
        check_memory: !args.guest,
        max_run: (!args.guest && door.is_none()).then_some(max_duration.duration()),
        wants_proof: door.is_some(),
    };
    let limits = (!args.guest).then_some(limits);
    let parent = Parent { measure, copies, door, limits, clients: clients.clone(), told };
    if told.json {
        // The first line of the log says where it listens: notices come behind it.
        outln!("{}", json!({"kind": "listening", "time": now(), "address": address.to_string()}));
        notices.iter().for_each(|notice| told.log(notice));
    } else if !told.quiet {
        errln!("listening on {address}");
    }
    server.run(&parent::serve(parent), move |event| {
        let token = match event {
            Event::Begin { peer, .. } => clients.served(peer),
            Event::End { peer, .. } => {
                let client = clients.remove(peer);
                // Who has only asked for the round-trip time has not been served.
                if let (false, Event::End { result: Ok(()), .. }, false) = (client.served, event, told.json) {
                    return;
                }
                client.token
            }
        };
        log(event, token.as_deref(), told);
    })?;
    Ok(())
}

/// The tokens of this server and what they open.
#[derive(Clone)]
struct Door {
    root: PathBuf,
    tokens: Arc<Tokens>,
    told: Told,
    /// Warnings that hold now, and that the operator knows of. Guards nothing else, and is held only while comparing.
    known: Arc<Mutex<BTreeSet<String>>>,
}

impl Door {
    fn new(root: PathBuf, tokens: Tokens, told: Told) -> Door {
        Door { root, tokens: Arc::new(tokens), told, known: Arc::default() }
    }

    /// Reads the tokens again if their files have changed.
    fn refresh(&self) {
        if let Some(read) = self.tokens.refresh() {
            self.tell(read);
        }
    }

    /// Reads the tokens again, as SIGHUP asks for.
    fn reload(&self) {
        self.tell(self.tokens.reload());
    }

    fn tell(&self, read: Result<usize, TransferError>) {
        let error = read.as_ref().err().map(ToString::to_string);
        match (read, &error) {
            _ if self.told.json => {
                let n = self.tokens.grants().len();
                outln!("{}", json!({"kind": "tokens", "time": now(), "tokens": n, "error": error}));
            }
            (_, Some(error)) => say("tokens", None, format_args!("{error}; those read before stay in force")),
            (Ok(n), _) if !self.told.quiet => {
                say("tokens", None, format_args!("read again, {}", format::count(n as u64, "token", "tokens")));
            }
            _ => {}
        }
        self.warnings().iter().for_each(|warning| self.told.say(warning));
    }

    /// Tells which callers have proven to hold a token, with their first bytes.
    fn check(self) -> fullpipe_net::preface::Check {
        let seen = Mutex::new(Greetings::default());
        Arc::new(move |preface| {
            self.refresh();
            let now = SystemTime::now();
            let now_s = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
            let is_proof = || self.tokens.prove(now, |key| token_proof::proves(preface, key)).is_ok();
            seen.lock().unwrap_or_else(PoisonError::into_inner).accept(preface, is_proof, now_s)
        })
    }

    /// Files that others may read, and tokens that open nothing here, of which the operator does not know yet.
    fn warnings(&self) -> Vec<Notice> {
        let exposed = self.tokens.exposed().into_iter().map(|exposed| exposed.to_string());
        let root = self.root.display();
        let useless = self.tokens.grants().into_iter().filter_map(|grant| {
            let (name, folder) = (grant.name, grant.folder?);
            let shown = folder.display();
            if !folder.starts_with(&self.root) {
                return Some(format!(
                    "token {name} is for {shown}, which is not below {root}: its holder can measure, but not copy. Make \
                     another for a folder below {root}, or serve {shown} or a folder above it"
                ));
            }
            let missing = !folder.is_dir();
            missing.then(|| format!("token {name} is for {shown}, which does not exist: its holder cannot copy"))
        });
        let now: BTreeSet<String> = exposed.chain(useless).collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let new = now.difference(&known).cloned().map(Notice::Warning).collect();
        *known = now;
        new
    }
}

/// Clients that have shown a token or are served, by their addresses. Guards nothing but the map.
#[derive(Clone, Default)]
struct Clients(Arc<Mutex<BTreeMap<String, Client>>>);

#[derive(Default)]
struct Client {
    /// Name of its token.
    token: Option<String>,
    /// Whether it has begun what it came for.
    served: bool,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Client>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whose token a client holds.
    fn holds(&self, peer: &str, token: &str) {
        self.lock().entry(peer.to_owned()).or_default().token = Some(token.to_owned());
    }

    /// Notes that a client is served; gives its token's name.
    fn served(&self, peer: &str) -> Option<String> {
        let mut clients = self.lock();
        let client = clients.entry(peer.to_owned()).or_default();
        client.served = true;
        client.token.clone()
    }

    /// Forgets a client; gives what was known of it.
    fn remove(&self, peer: &str) -> Client {
        self.lock().remove(peer).unwrap_or_default()
    }
}

/// Has SIGHUP read the tokens again, and SIGTERM tell the log whom the server's end cuts off.
fn on_signals(clients: Clients, door: Option<Door>, told: Told) -> Result {
    let failed = |e| Failure::new(ExitClass::Missing, format!("cannot wait for signals: {e}"));
    // A second one ends it even where nobody takes what the log says.
    let ending = Arc::<AtomicBool>::default();
    signal_hook::flag::register_conditional_default(SIGTERM, ending.clone()).map_err(failed)?;
    let mut signals = Signals::new([SIGTERM, SIGHUP]).map_err(failed)?;
    let wait = move || {
        for signal in signals.forever() {
            if signal == SIGHUP {
                match &door {
                    Some(door) => door.reload(),
                    None => told.say(&Notice::Note("SIGHUP: this server has no tokens to read again".to_owned())),
                }
                continue;
            }
            ending.store(true, Ordering::SeqCst);
            // Held to the end: whoever is served says nothing more.
            let clients = clients.lock();
            for (peer, client) in clients.iter().filter(|(_, client)| client.served) {
                let why = NetError::Other("cut off: SIGTERM has ended this server".to_owned());
                log(&Event::End { peer, result: Err(why), measured: false }, client.token.as_deref(), told);
            }
            // What it does where nobody waits for it.
            let _ = low_level::emulate_default_handler(signal);
        }
    };
    std::thread::Builder::new().stack_size(256 << 10).spawn(wait).map_err(failed)?;
    Ok(())
}

/// Opens the folder of --root, and holds it from here to the end: whoever may rename it, or a folder above it, cannot
/// exchange it for another.
fn base(root: &Path) -> Result<Base> {
    Base::open(root).map_err(|e| {
        let is = match e.kind() {
            ErrorKind::NotFound => "there is no such folder; make it first".to_owned(),
            ErrorKind::NotADirectory => "it is not a folder; make it first".to_owned(),
            _ => format!("cannot be opened: {e}"),
        };
        Failure::new(ExitClass::Usage, format!("--root {}: {is}", root.display()))
    })
}

/// How files are served, and to holders of which tokens. Tells the operator who may do what.
fn files(
    args: &Args,
    base: &Base,
    data_ports: (u16, u16),
    measuring: &str,
    told: Told,
    notices: &mut Vec<Notice>,
) -> Result<(CopyOptions, Option<Door>)> {
    let root = base.path().to_owned();
    let mut copies = CopyOptions {
        path: root.clone(),
        identity: None,
        data_ports,
        plain_streams: args.allow_plain || args.insecure,
        special_bits: args.allow_special,
        stall: Duration::from_nanos(args.stall.0),
    };
    let shown = root.display();
    if args.insecure {
        notices.push(Notice::Note(format!(
            "ANYONE may copy files to and from {shown}: no token, and what is said is not encrypted (--insecure)"
        )));
        notices.push(Notice::Note(measuring.to_owned()));
        return Ok((copies, None));
    }
    let file = crate::commands::token::server_file(args.token_file.as_deref())?;
    let (tokens, identity, made) = Tokens::load_or_make(&file)?;
    let n = tokens.grants().len() as u64;
    let place = if made || file.exists() { file.clone() } else { token::store_file(&file) };
    let (n, place) = (format::count(n, "token", "tokens"), place.display());
    let made = if made { ", made just now" } else { "" };
    notices.push(Notice::Note(format!(
        "files below {shown}, for clients with the token in {place}{made} ({n} in all); they may measure too, nobody \
         else may do either"
    )));
    if args.max_duration.is_some() || args.max_clients_per_address.is_some() {
        let why = "--max-duration and --max-clients-per-address limit clients without a token; this server serves none of \
                   those, so they have no effect";
        notices.push(Notice::Warning(why.to_owned()));
    }
    let door = Door::new(root.clone(), tokens, told);
    notices.extend(door.warnings());
    if std::fs::canonicalize(&file).is_ok_and(|file| file.starts_with(&root)) {
        let file = file.display();
        notices.push(Notice::Warning(format!(
            "CLIENTS may fetch {file} and its key, and pose as this server: keep them outside --root"
        )));
    }
    copies.identity = Some(identity);
    Ok((copies, Some(door)))
}

/// Who reads the log.
#[derive(Clone, Copy)]
struct Told {
    json: bool,
    quiet: bool,
}

/// Something that whoever runs the server is told, and that is about no client.
enum Notice {
    /// Who may do what.
    Note(String),
    /// Something to be changed.
    Warning(String),
}

impl Told {
    /// Tells it on standard error.
    fn operator(self, notice: &Notice) {
        if self.quiet {
            return;
        }
        match notice {
            Notice::Note(text) => errln!("{}", one_line(text.as_bytes())),
            Notice::Warning(text) => errln!("warning: {}", one_line(text.as_bytes())),
        }
    }

    /// Writes it to the log of `--json`.
    fn log(self, notice: &Notice) {
        if self.json {
            let (kind, text) = match notice {
                Notice::Note(text) => ("note", text),
                Notice::Warning(text) => ("warning", text),
            };
            outln!("{}", json!({"kind": kind, "time": now(), "text": one_line(text.as_bytes())}));
        }
    }

    /// Tells it in both places.
    fn say(self, notice: &Notice) {
        self.operator(notice);
        self.log(notice);
    }
}

/// A client's copy.
struct Copy<'a> {
    peer: &'a str,
    /// Name of the client's token, once it has shown one.
    token: OnceCell<String>,
    begin: Instant,
}

impl<'a> Copy<'a> {
    fn new(peer: &'a str) -> Copy<'a> {
        Copy { peer, token: OnceCell::new(), begin: Instant::now() }
    }

    /// Notes whose token the client holds.
    fn holds(&self, token: &str) {
        // A client shows one.
        let _ = self.token.set(token.to_owned());
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        say(self.peer, self.token.get().map(String::as_str), what);
    }

    fn begins(&self, task: &Task, told: Told) {
        let shown = |paths: &[Vec<u8>]| -> Vec<String> {
            paths.iter().map(|path| text::cut(printable(path), MAX_NAME)).collect()
        };
        let (field, does, places) = match task {
            Task::Push(target) => ("to", "copies to", shown(std::slice::from_ref(&target.path))),
            Task::Pull(sources) => ("from", "copies from", shown(&sources.paths)),
            Task::Look(sources) if sources.paths.is_empty() => ("look", "asks whether it may copy here", Vec::new()),
            Task::Look(sources) => ("look", "asks what would be copied from", shown(&sources.paths)),
        };
        if told.json {
            let total = places.len();
            let places = fitting(places.into_iter().map(Value::from));
            outln!(
                "{}",
                json!({"kind": "begin", "time": now(), "peer": self.peer, "token": self.token.get(), field: places,
                       "total": total})
            );
        } else if !told.quiet {
            let more = match places.len().saturating_sub(SHOWN) {
                0 => String::new(),
                n => format!(" and {}", format::count(n as u64, "other", "others")),
            };
            let places = places[..places.len().min(SHOWN)].join(", ");
            let space = if places.is_empty() { "" } else { " " };
            self.say(format_args!("{does}{space}{places}{more}"));
        }
    }

    /// Tells of a file at the destination that an earlier attempt could have left, and that others may have changed.
    fn distrusts(&self, file: &str, told: Told) {
        let file = text::cut(one_line(file.as_bytes()), MAX_NAME);
        if told.json {
            outln!(
                "{}",
                json!({"kind": "distrusted", "time": now(), "peer": self.peer, "token": self.token.get(), "file": file})
            );
        } else if !told.quiet {
            self.say(format_args!("not used: {file}; what an earlier attempt may have left there is copied again"));
        }
    }

    fn ends(&self, outcome: &Copied, told: Told) {
        let Summary { files, present: skipped, bytes, verified, .. } = outcome.summary;
        // Nothing was, unless the client has asked for it.
        let verified = (verified != Verified::default()).then_some(verified);
        let left = outcome.skipped.clone().with(&outcome.summary.skipped);
        let seconds = self.begin.elapsed().as_secs_f64();
        if told.json {
            outln!(
                "{}",
                json!({"kind": "copied", "time": now(), "peer": self.peer, "token": self.token.get(),
                       "files": files, "skipped": skipped, "bytes": bytes,
                       "left": fitting(left.named.iter().map(shortened)), "left_total": left.total,
                       "seconds": seconds, "verified": verified.as_ref().map(format::verified)})
            );
        } else if !told.quiet {
            let files = format::count(files.saturating_sub(skipped), "file", "files");
            let rate = format::rate(bytes as f64 * 8.0 / seconds.max(1e-9));
            let (bytes, seconds) = (format::bytes(bytes as f64), format::seconds(seconds));
            let skipped =
                if skipped > 0 { format!(", {} already there", format::thousands(skipped)) } else { String::new() };
            for one in left.named.iter().take(SHOWN) {
                self.say(format_args!("left: {one}"));
            }
            let left = if left.total > 0 { format!(", {} not", format::thousands(left.total)) } else { String::new() };
            let verified = verified.as_ref().map(format::verified_line).unwrap_or_default();
            self.say(format_args!("{files} copied{skipped}{left}; {bytes} in {seconds} ({rate}){verified}"));
        }
    }
}

/// UTC, to the second.
fn now() -> String {
    let now = OffsetDateTime::now_utc();
    now.replace_nanosecond(0).unwrap_or(now).format(&Rfc3339).unwrap_or_default()
}

/// Writes one line to the log, of at most [`text::MAX_LOG_LINE`] bytes: clients have their words in it.
fn say(peer: &str, token: Option<&str>, what: impl std::fmt::Display) {
    let token = token.map_or_else(String::new, |token| format!(", token {token}"));
    let line = format!("{} {peer}{token}: {}", now(), one_line(what.to_string().as_bytes()));
    errln!("{}", text::cut(line, text::MAX_LOG_LINE));
}

/// The first of these values, as many as fit into a line of the log beside its other fields. A field of that line says
/// how many there are in all.
fn fitting(values: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut room = text::MAX_LOG_LINE - OTHER_FIELDS;
    let fits = |value: &Value| {
        let len = text::json(&value.to_string()).len() + 1;
        let fits = len <= room;
        room = room.saturating_sub(len);
        fits
    };
    values.take_while(fits).collect()
}

/// Something that was not copied, short enough to fit into a line of the log.
fn shortened(left: &SkippedEntry) -> Value {
    let name = text::cut(printable(&left.name), MAX_NAME);
    let why = text::cut(text::from_peer(&left.why), MAX_NAME / 2);
    json!({"name": name, "why": why, "for_good": left.for_good})
}

fn log(event: &Event<'_>, token: Option<&str>, Told { json, quiet }: Told) {
    match event {
        Event::Begin { peer, request } if json => {
            outln!("{}", json!({"kind": "begin", "time": now(), "peer": peer, "token": token, "request": request}));
        }
        Event::Begin { peer, request } if !quiet => {
            say(peer, token, format_args!("{}, {}", request.transport, request.workload))
        }
        Event::End { peer, result, .. } if json => {
            let error = result.as_ref().err().map(|error| text::from_peer(&error.in_log()));
            outln!("{}", json!({"kind": "end", "time": now(), "peer": peer, "token": token, "error": error}));
        }
        Event::End { peer, result: Err(error), .. } => say(peer, token, error.in_log()),
        Event::End { peer, result: Ok(()), measured: true } if !quiet => say(peer, token, "done"),
        _ => {}
    }
}
