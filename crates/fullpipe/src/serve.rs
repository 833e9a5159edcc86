//! `fullpipe serve`.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::builder::RangedU64ValueParser;
use fullpipe_net::serve::{Event, Kind};
use fullpipe_net::{NetError, ServeOptions, Server};
use fullpipe_path::{ExitClass, Time, path, text};
use fullpipe_transfer::end::Outcome;
use fullpipe_transfer::far::{self, FarOptions};
use fullpipe_transfer::files::{Root, Within};
use fullpipe_transfer::greeting::Greetings;
use fullpipe_transfer::item::{one_line, printable};
use fullpipe_transfer::place::Realm;
use fullpipe_transfer::proto::{Summary, Task, Verified};
use fullpipe_transfer::secure::Identity;
use fullpipe_transfer::{Left, TransferError};
use serde_json::{Value, json};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::Result;
use crate::failure::Failure;
use crate::output::{errln, outln};
use crate::words;

/// Sources of one client that a line of the log names, and things that were left.
const SHOWN: usize = 3;
/// Room in a line of the log for the fields that are not a list of the client's, bytes.
const OTHER_FIELDS: usize = 512;
/// Longest name in the log, bytes; as JSON it may take twice as many.
const MAX_NAME: usize = 1024;

/// Command line.
#[derive(clap::Args)]
pub struct Args {
    /// Let clients with the token copy files to and from this folder too
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Holds the token of --root, made where it is missing, and beside it the key (FILE.key)
    #[arg(long, value_name = "FILE", requires = "root", conflicts_with = "insecure")]
    token_file: Option<PathBuf>,
    /// Anyone may copy, without token and without encryption of what is said
    #[arg(long, requires = "root")]
    insecure: bool,
    /// Clients may ask for data streams that are not encrypted
    #[arg(long, requires = "root")]
    allow_plain: bool,
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
    #[arg(long, default_value_t = 8, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    max_clients: usize,
    /// Give a run up when nothing moved for so long
    #[arg(long, default_value = "60s", value_name = "TIME")]
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

fn ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first > 0 && first <= last).then_some((first, last))
}

/// The ports of `--data-ports`; 0 and 0 where the kernel chooses.
pub fn data_ports(text: Option<&str>) -> Result<(u16, u16)> {
    let Some(text) = text else { return Ok((0, 0)) };
    ports(text).ok_or_else(|| {
        Failure::new(ExitClass::Usage, format!("--data-ports '{text}' is not a range; write for example 7413-7476"))
    })
}

/// Serves until killed.
pub fn run(args: Args) -> Result {
    crate::far::more_files();
    let data_ports = data_ports(args.data_ports.as_deref())?;
    let options = |address| ServeOptions {
        bind: SocketAddr::new(address, args.port),
        data_ports,
        max_clients: args.max_clients,
        stall: Duration::from_nanos(args.stall.0),
        once: args.once,
        check_memory: !args.guest,
    };
    let server = match args.bind {
        Some(address) => Server::bind(options(address))?,
        // A host without IPv6 refuses its wildcard address; then IPv4's serves.
        None => Server::bind(options(Ipv6Addr::UNSPECIFIED.into()))
            .or_else(|_| Server::bind(options(IpAddr::from([0, 0, 0, 0]))))?,
    };
    let address = server.address().map_err(|e| Failure::new(ExitClass::Missing, e))?;
    let (json, quiet) = (args.json, args.quiet);
    let clients = Clients::default();
    clients.tell_of_end(Told { json, quiet })?;
    let server = match &args.root {
        None => server,
        Some(root) => {
            let (far, identity, told) = files(&args, root, address, data_ports)?;
            if !quiet && !json {
                errln!("{told}");
            }
            let clients = clients.clone();
            let (secret, seen) = (far.secret, Mutex::new(Greetings::default()));
            let server = server.with_check(Arc::new(move |preface| {
                let now_s = u64::try_from(OffsetDateTime::now_utc().unix_timestamp()).unwrap_or(0);
                seen.lock().unwrap_or_else(PoisonError::into_inner).accept(preface, secret.iter(), now_s)
            }));
            server.with_other(Arc::new(move |socket, peer, guest| {
                let told = Told { json, quiet };
                let copy = Copy { peer, begin: Instant::now() };
                let begins = |task: &Task| {
                    guest.let_in(Kind::Other).map_err(TransferError::Busied)?;
                    clients.add(peer);
                    copy.begins(task, told);
                    Ok(())
                };
                let done = far::serve_socket(socket, peer, identity.as_ref(), &far, &begins);
                done.map(|done| done.map_or((), |done| copy.ends(&done, told)))
                    .map_err(|error| NetError::Other(error.to_string()))
            }))
        }
    };
    if json {
        outln!("{}", json!({"kind": "listening", "address": address.to_string()}));
    } else if !quiet {
        errln!("listening on {address}");
    }
    server.run(move |event| {
        match event {
            Event::Begin { peer, .. } => clients.add(peer),
            Event::End { peer, .. } => clients.remove(peer),
        }
        log(event, Told { json, quiet });
    })?;
    Ok(())
}

/// Who is served just now.
#[derive(Clone, Default)]
struct Clients(Arc<Mutex<BTreeSet<String>>>);

impl Clients {
    fn add(&self, peer: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(peer.to_owned());
    }

    fn remove(&self, peer: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(peer);
    }

    /// When SIGTERM ends the server, the log says of whom that was the end too.
    fn tell_of_end(&self, told: Told) -> Result {
        let failed = |e| Failure::new(ExitClass::Missing, format!("cannot wait for SIGTERM: {e}"));
        // A second one ends it even where nobody takes what the log says.
        let ending = Arc::<AtomicBool>::default();
        signal_hook::flag::register_conditional_default(SIGTERM, ending.clone()).map_err(failed)?;
        let mut signals = Signals::new([SIGTERM]).map_err(failed)?;
        let clients = self.clone();
        let tell = move || {
            let Some(signal) = signals.forever().next() else { return };
            ending.store(true, Ordering::SeqCst);
            // Held to the end: whoever is served says nothing more.
            let clients = clients.0.lock().unwrap_or_else(PoisonError::into_inner);
            for peer in clients.iter() {
                let why = NetError::Other("cut off: SIGTERM has ended this server".to_owned());
                log(&Event::End { peer, result: Err(why), measured: false }, told);
            }
            // What it does where nobody waits for it.
            let _ = low_level::emulate_default_handler(signal);
        };
        std::thread::Builder::new().stack_size(256 << 10).spawn(tell).map_err(failed)?;
        Ok(())
    }
}

/// How files are served: where, to whom, and what to tell the operator.
fn files(
    args: &Args,
    root: &Path,
    listen: SocketAddr,
    ports: (u16, u16),
) -> Result<(FarOptions, Option<Identity>, String)> {
    // Held from here to the end: whoever may rename it, or a folder above it, cannot exchange it for another.
    let opened = Root::open(root, Within::Beneath).and_then(|folder| Ok((folder, std::fs::canonicalize(root)?)));
    let (folder, whole) = opened.map_err(|e| {
        let is = match e.kind() {
            ErrorKind::NotFound => "there is no such folder; make it first".to_owned(),
            ErrorKind::NotADirectory => "it is not a folder; make it first".to_owned(),
            _ => format!("cannot be opened: {e}"),
        };
        Failure::new(ExitClass::Usage, format!("--root {}: {is}", root.display()))
    })?;
    let mut far = FarOptions {
        realm: Realm::Below(Arc::new(folder)),
        listen,
        ports,
        secret: None,
        plain_streams: args.allow_plain || args.insecure,
        most_streams: fullpipe_path::transport::MAX_STREAMS,
        stall: Duration::from_nanos(args.stall.0),
    };
    if args.insecure {
        let told = format!(
            "ANYONE may copy files to and from {}: no token, and what is said is not encrypted (--insecure)",
            whole.display()
        );
        return Ok((far, None, told));
    }
    let file = match &args.token_file {
        Some(file) => file.clone(),
        None => default_token_file()?,
    };
    let (token, identity, made) = fullpipe_transfer::keys::load_or_make(&file)?;
    far.secret = Some(token.secret);
    let made = if made { ", made just now" } else { "" };
    let mut told = format!("files below {}, for clients with the token in {}{made}", whole.display(), file.display());
    if let Some(open) = fullpipe_transfer::keys::exposed(&file) {
        let open = open.display();
        told += &format!("\nANYONE on this host may read {open}, and so may copy: chmod o= {open}");
    }
    if std::fs::canonicalize(&file).is_ok_and(|file| file.starts_with(&whole)) {
        let file = file.display();
        told += &format!("\nCLIENTS may fetch {file} and its key, and pose as this server: keep them outside --root");
    }
    Ok((far, Some(identity), told))
}

fn default_token_file() -> Result<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")));
    let why = "where to keep the token? HOME is not set; give --token-file FILE";
    let folder = state.ok_or_else(|| Failure::new(ExitClass::Missing, why))?.join("fullpipe");
    std::fs::create_dir_all(&folder)
        .map_err(|e| Failure::new(ExitClass::Record, format!("cannot make folder {}: {e}", folder.display())))?;
    Ok(folder.join("token"))
}

/// Who reads the log.
#[derive(Clone, Copy)]
struct Told {
    json: bool,
    quiet: bool,
}

/// A client's copy.
struct Copy<'a> {
    peer: &'a str,
    begin: Instant,
}

impl Copy<'_> {
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
            outln!("{}", json!({"kind": "begin", "time": now(), "peer": self.peer, field: places, "total": total}));
        } else if !told.quiet {
            let more = match places.len().saturating_sub(SHOWN) {
                0 => String::new(),
                n => format!(" and {}", words::count(n as u64, "other", "others")),
            };
            let places = places[..places.len().min(SHOWN)].join(", ");
            let space = if places.is_empty() { "" } else { " " };
            say(self.peer, format_args!("{does}{space}{places}{more}"));
        }
    }

    fn ends(&self, outcome: &Outcome, told: Told) {
        let Summary { files, skipped, bytes, verified, .. } = outcome.summary;
        // Nothing was, unless the client has asked for it.
        let verified = (verified != Verified::default()).then_some(verified);
        let left = outcome.left.clone().with(&outcome.summary.left);
        let seconds = self.begin.elapsed().as_secs_f64();
        if told.json {
            outln!(
                "{}",
                json!({"kind": "copied", "time": now(), "peer": self.peer, "files": files, "skipped": skipped,
                       "bytes": bytes, "left": fitting(left.named.iter().map(shortened)),
                       "left_total": left.total, "seconds": seconds,
                       "verified": verified.as_ref().map(words::verified)})
            );
        } else if !told.quiet {
            let files = words::count(files, "file", "files");
            let rate = words::rate(bytes as f64 * 8.0 / seconds.max(1e-9));
            let (bytes, seconds) = (words::bytes(bytes as f64), words::seconds(seconds));
            let skipped =
                if skipped > 0 { format!(" ({} there already)", words::thousands(skipped)) } else { String::new() };
            for one in left.named.iter().take(SHOWN) {
                say(self.peer, format_args!("left: {one}"));
            }
            let left = if left.total > 0 { format!(", {} not", words::thousands(left.total)) } else { String::new() };
            let verified = verified.as_ref().map(words::verified_line).unwrap_or_default();
            say(self.peer, format_args!("{files} copied{skipped}{left}; {bytes} in {seconds} ({rate}){verified}"));
        }
    }
}

/// UTC, to the second.
fn now() -> String {
    let now = OffsetDateTime::now_utc();
    now.replace_nanosecond(0).unwrap_or(now).format(&Rfc3339).unwrap_or_default()
}

/// Writes one line to the log, of at most [`text::MAX_LOG_LINE`] bytes: clients have their words in it.
fn say(peer: &str, what: impl std::fmt::Display) {
    let line = format!("{} {peer}: {}", now(), one_line(what.to_string().as_bytes()));
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
fn shortened(left: &Left) -> Value {
    let name = text::cut(printable(&left.name), MAX_NAME);
    let why = text::cut(text::from_peer(&left.why), MAX_NAME / 2);
    json!({"name": name, "why": why, "for_good": left.for_good})
}

fn log(event: &Event<'_>, Told { json, quiet }: Told) {
    match event {
        Event::Begin { peer, request } if json => {
            outln!("{}", json!({"kind": "begin", "time": now(), "peer": peer, "request": request}));
        }
        Event::Begin { peer, request } if !quiet => {
            say(peer, format_args!("{}, {}", request.transport, request.workload))
        }
        Event::End { peer, result, .. } if json => {
            let error = result.as_ref().err().map(|error| text::from_peer(&error.to_string()));
            outln!("{}", json!({"kind": "end", "time": now(), "peer": peer, "error": error}));
        }
        Event::End { peer, result: Err(error), .. } => say(peer, error),
        Event::End { peer, result: Ok(()), measured: true } if !quiet => say(peer, "done"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::ports;

    #[test]
    fn port_ranges() {
        assert_eq!(ports("7413-7476"), Some((7413, 7476)));
        assert_eq!(ports("7413"), Some((7413, 7413)));
        for bad in ["0-9", "9-8", "", "a-b", "1-70000"] {
            assert_eq!(ports(bad), None, "{bad}");
        }
    }
}
