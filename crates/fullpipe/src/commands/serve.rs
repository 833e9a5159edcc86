//! `fullpipe serve`: serves measurements, and with `--root` copies, each client in a process of its own.

mod alto;
mod api;
mod channel;
pub mod child;
mod clients;
mod http;
mod log;
mod metrics;
mod parent;
mod rate_limits;
mod token_access;

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::Api;
use channel::CopyOptions;
use clients::Clients;
use fullpipe_net::serve::Event;
use fullpipe_net::serve_measurement::MeasurementPolicy;
use fullpipe_net::{AnonymousLimits, NetError, ServeOptions, Server};
use fullpipe_path::transport::{self, UNLIMITED};
use fullpipe_path::{ExitClass, Time, host};
use fullpipe_transfer::connection::token;
use fullpipe_transfer::connection::token_store::Tokens;
use fullpipe_transfer::resolve::Base;
use http::{Pages, Problem};
use log::{Notice, Told, log};
use metrics::Metrics;
use parent::Parent;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use token_access::TokenAccess;

use crate::failure::{Failure, Result};
use crate::output::{errln, outln};
use crate::{format, interrupt, ports, rlimit, token_files};

/// The value of --data-ports for the port of control connections.
const SAME: &str = "same";
/// Default of --max-duration.
const MAX_DURATION: Time = Time(600_000_000_000);
const EXAMPLES: &str = "\
Examples:
  fullpipe serve                               anyone may measure, nobody may copy
  fullpipe serve --root /data                  clients with a token may copy below /data, and measure
  fullpipe serve --port 7500 --data-ports 7501-7564   for a firewall that has these ports open
  fullpipe serve --root /data --data-ports same       for a firewall that has one port open";

/// The arguments of `fullpipe serve`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Let clients with a token copy files to and from this folder
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Keep the first token in this file, created if missing, the server's key in FILE.key, and tokens made by 'fullpipe
    /// token' in FILE.store [default: ~/.local/state/fullpipe/token]
    #[arg(long, value_name = "FILE", requires = "root", conflicts_with = "insecure")]
    token_file: Option<PathBuf>,
    /// Let anyone copy without a token, and encrypt nothing
    #[arg(long, requires = "root")]
    insecure: bool,
    /// Let clients send data unencrypted (cp --no-encrypt)
    #[arg(long, requires = "root")]
    allow_plain: bool,
    /// Let clients set setuid, setgid and sticky bits (cp -p)
    #[arg(long, requires = "root")]
    allow_special: bool,
    /// Listen on this address, such as fe80::1%eth0 [default: all addresses]
    #[arg(long, value_name = "ADDRESS", value_parser = listening_address)]
    bind: Option<SocketAddr>,
    /// Listen on this port for control connections
    #[arg(long, default_value_t = host::DEFAULT_PORT)]
    port: u16,
    /// Accept data streams on these ports, such as 7413-7476, or on the port of control connections (same), over TCP alone
    /// [default: any free port]
    #[arg(long, value_name = "FIRST-LAST|same")]
    data_ports: Option<String>,
    /// Serve this many clients at once, and refuse more
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = places)]
    max_clients: usize,
    /// Without tokens, measure for this many clients of one IPv4 address or IPv6 /64 at once [default: half of
    /// --max-clients]
    #[arg(long, value_name = "N", value_parser = places)]
    max_clients_per_address: Option<usize>,
    /// Without tokens, refuse or end measurements longer than this, or none (unlimited) [default: 10min]
    #[arg(long, value_name = "TIME|unlimited", value_parser = some_duration)]
    max_duration: Option<Time>,
    /// Drop a client when nothing has moved for this long
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = some_time)]
    stall: Time,
    /// Show what has been served to Prometheus, at http://ADDRESS:PORT/metrics; a port alone is for this host alone
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = http::address)]
    metrics: Option<SocketAddr>,
    /// Answer path controllers, as 'fullpipe select --json' does, at http://ADDRESS:PORT/v1/select?rtt=...; a port alone is
    /// for this host alone
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = http::address)]
    http: Option<SocketAddr>,
    /// Answer only those over HTTP who give the token in the first line of this file (Authorization: Bearer)
    #[arg(long, value_name = "FILE", requires = "http")]
    http_token_file: Option<PathBuf>,
    /// Select from this profile over HTTP [default: the one that comes with fullpipe]
    #[arg(long, value_name = "FILE", requires = "http")]
    profile: Option<PathBuf>,
    /// Answer ALTO clients (RFC 7285) over HTTP, too, at http://ADDRESS:PORT/v1/alto/directory: the throughput of TCP that the
    /// profile has for each path in this file
    #[arg(long, value_name = "FILE", requires = "http")]
    alto: Option<PathBuf>,
    /// Exit after one client: one copy, or one measurement with all its connections; refuse others meanwhile
    #[arg(long)]
    once: bool,
    /// Print events as NDJSON on stdout
    #[arg(long)]
    json: bool,
    /// Print only errors
    #[arg(long)]
    quiet: bool,
    /// Runs in the testbed's guest, where buffers may be larger than memory
    #[arg(long, hide = true)]
    guest: bool,
}

/// Reads a number of clients.
fn places(text: &str) -> std::result::Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "give a number from 1 on".to_owned())
}

/// Reads an address of this host, which may name its interface; the port is left at 0.
fn listening_address(text: &str) -> std::result::Result<SocketAddr, String> {
    let bad = || "give an address of this host, such as 192.0.2.1 or fe80::1%eth0".to_owned();
    let is_address = text.split('%').next().is_some_and(|address| address.parse::<IpAddr>().is_ok());
    if !is_address {
        return Err(bad());
    }
    // The system's resolver knows interfaces by name.
    let address = (text, 0).to_socket_addrs().map_err(|_| bad())?.next().ok_or_else(bad)?;
    if fullpipe_net::socket::lacks_zone(&address) {
        return Err(format!("a link-local address needs its interface: write {text}%eth0 for the one on eth0"));
    }
    Ok(address)
}

/// Reads a time that is not zero, or `unlimited`.
fn some_duration(text: &str) -> std::result::Result<Time, String> {
    if transport::duration(text) == Ok(UNLIMITED) { Ok(UNLIMITED) } else { some_time(text) }
}

/// Reads a time that is not zero.
fn some_time(text: &str) -> std::result::Result<Time, String> {
    let time: Time = text.parse().map_err(|e| format!("{e}"))?;
    if time.0 > 0 { Ok(time) } else { Err("give a time above 0s".to_owned()) }
}

/// Serves until a signal ends the process.
pub fn run(args: Args) -> Result {
    // One that comes meanwhile waits until the server has started, instead of ending it.
    let hangups = Signals::new([SIGHUP]).map_err(no_signals)?;
    rlimit::raise_open_files();
    let shares_port = args.data_ports.as_deref() == Some(SAME);
    let data_ports = if shares_port { (0, 0) } else { own_data_ports(&args)? };
    let per_address = args.max_clients_per_address.unwrap_or_else(|| args.max_clients.div_ceil(2));
    let max_duration = args.max_duration.unwrap_or(MAX_DURATION);
    let limits = AnonymousLimits::new(max_duration.duration(), per_address);
    let options = |mut bind: SocketAddr| {
        bind.set_port(args.port);
        ServeOptions { bind, max_clients: args.max_clients, once: args.once }
    };
    let mut server = match args.bind {
        Some(address) => Server::bind(options(address))?,
        // A host without IPv6 refuses its wildcard address; then IPv4's serves.
        None => Server::bind(options((Ipv6Addr::UNSPECIFIED, 0).into()))
            .or_else(|_| Server::bind(options((Ipv4Addr::UNSPECIFIED, 0).into())))?,
    };
    let shared = shares_port.then(|| server.share_port());
    let address = server.address().map_err(|e| Failure::new(ExitClass::Missing, e))?;
    let told = Told { json: args.json, quiet: args.quiet };
    let clients = Clients::default();
    let measuring = match args.guest {
        true => "anyone may measure".to_owned(),
        false => format!(
            "ANYONE may measure: runs of {} (--max-duration), {per_address} at once from one address \
             (--max-clients-per-address)",
            if max_duration == UNLIMITED { "any length".to_owned() } else { format!("at most {max_duration}") }
        ),
    };
    let mut notices = Vec::new();
    let (copies, access) = match &args.root {
        None => {
            notices.push(Notice::Note(format!("{measuring}; nobody may copy files (no --root)")));
            (None, None)
        }
        Some(root) => {
            let base = base(root)?;
            let (copies, access) = files(&args, &base, data_ports, &measuring, told, &mut notices)?;
            (Some((copies, base)), access)
        }
    };
    let server = match &access {
        Some(access) => server.with_check(access.clone().check()),
        None => server,
    };
    if !args.guest && copies.is_some() && nix::unistd::geteuid().is_root() {
        let why =
            "it runs as root, so clients choose who owns what they bring: run it as a user who may write to --root";
        notices.push(Notice::Warning(why.to_owned()));
    }
    if let Some(gap) = (!args.guest).then(child::confinement_gap).flatten() {
        notices.push(Notice::Warning(gap.to_owned()));
    }
    let metrics = Metrics::new();
    let mut urls = Vec::new();
    if let Some(address) = args.metrics {
        let shown = metrics.clone();
        let pages: Pages = Arc::new(move |asked| match asked.path.as_str() {
            "/metrics" => shown.page().ok_or_else(|| Problem::Internal("the counts cannot be shown".to_owned())),
            _ => Err(Problem::Missing),
        });
        let url = format!("http://{}/metrics", listen("metrics", address, pages)?);
        notices.push(Notice::Note(format!("whoever reaches {url} may read what has been served (--metrics)")));
        urls.push(("metrics", url));
    }
    if let Some(address) = args.http {
        if !address.ip().is_loopback() && args.http_token_file.is_none() {
            return Err(Failure::usage(format!(
                "--http {address}: other hosts may ask there; add --http-token-file FILE, or give a port alone, for this host alone"
            )));
        }
        let (api, exposed) = Api::new(args.profile.as_deref(), args.http_token_file.as_deref(), args.alto.as_deref())?;
        notices.extend(exposed.iter().map(|exposed| Notice::Warning(exposed.to_string())));
        let url = format!("http://{}/v1", listen("http", address, Arc::new(move |asked| api.answer(asked)))?);
        let who = if args.http_token_file.is_some() { "who has its token" } else { "whoever reaches it" };
        notices.push(Notice::Note(format!("{url}/select and {url}/profiles answer {who} (--http)")));
        if args.alto.is_some() {
            notices.push(Notice::Note(format!("{url}/alto/directory answers {who}, too (--alto)")));
        }
        urls.push(("http", url));
    }
    notices.iter().for_each(|notice| told.operator(notice));
    on_signals(hangups, clients.clone(), access.clone(), told)?;
    let measure = MeasurementPolicy {
        data_ports,
        stall: Duration::from_nanos(args.stall.0),
        check_memory: !args.guest,
        max_run: (!args.guest && access.is_none()).then_some(max_duration.duration()),
        wants_proof: access.is_some(),
    };
    let limits = (!args.guest).then_some(limits);
    let parent =
        Parent { measure, copies, access, limits, shared, clients: clients.clone(), told, metrics: metrics.clone() };
    if told.json {
        // The first line of the log says where it listens: notices come behind it.
        let mut first = json!({"kind": "listening", "time": format::now(), "address": address.to_string()});
        urls.into_iter().for_each(|(name, url)| first[name] = url.into());
        outln!("{first}");
        notices.iter().for_each(|notice| told.log(notice));
    } else if !told.quiet {
        errln!("listening on {address}");
    }
    server.run(&parent::serve(parent), move |event| {
        // A client's own process reports what begins.
        let Event::End { peer, logged, result, .. } = event else { return };
        metrics.disconnects();
        // Also if the end is not logged, because the client would be remembered for ever.
        let client = clients.remove(peer);
        // A client that only asked for the round-trip time has not been served.
        let is_silent = !client.served && result.is_ok() && !told.json;
        if *logged && !is_silent {
            log(event, client.token.as_deref(), told);
        }
    })?;
    Ok(())
}

/// Ports of data streams that are not the port of control connections.
///
/// # Errors
/// The flag names no range of ports, or only the port of control connections.
fn own_data_ports(args: &Args) -> Result<(u16, u16)> {
    let text = args.data_ports.as_deref();
    let ports = ports::data_ports(text)
        .map_err(|failure| Failure::usage(format!("{failure}, or as {SAME} for the port of control connections")))?;
    if ports == (args.port, args.port) && args.port != 0 {
        return Err(Failure::usage(format!(
            "--data-ports {}: this is the port of control connections, where no stream finds room beside them; give \
             --data-ports {SAME} to share it, or other ports",
            args.port
        )));
    }
    Ok(ports)
}

/// Answers HTTP at the address of a flag; returns the address.
fn listen(flag: &str, address: SocketAddr, pages: Pages) -> Result<SocketAddr> {
    let failed = |e| Failure::new(ExitClass::Missing, format!("--{flag} {address}: cannot listen there: {e}"));
    http::listen(address, pages).map_err(failed)
}

/// Has SIGHUP read the tokens again, and SIGTERM tell the log whom the server's end cuts off.
fn on_signals(mut signals: Signals, clients: Clients, access: Option<TokenAccess>, told: Told) -> Result {
    // What a signal does where nobody waits for it.
    let end = |signal| drop(low_level::emulate_default_handler(signal));
    signals.add_signal(SIGTERM).map_err(no_signals)?;
    let wait = move || {
        for signal in signals.forever() {
            if signal == SIGHUP {
                match &access {
                    Some(access) => access.reload(),
                    None => told.say(&Notice::Note("SIGHUP: this server has no tokens to read again".to_owned())),
                }
                continue;
            }
            // A second one ends it even where nobody takes what the log says.
            interrupt::at_second(&[SIGTERM], end);
            // Held to the end: whoever is served says nothing more.
            let clients = clients.lock();
            for (peer, client) in clients.iter().filter(|(_, client)| client.served) {
                let why = NetError::Other("cut off: SIGTERM has ended this server".to_owned());
                log(
                    &Event::End { peer, result: Err(why), measured: false, logged: true },
                    client.token.as_deref(),
                    told,
                );
            }
            end(signal);
        }
    };
    std::thread::Builder::new().stack_size(256 << 10).spawn(wait).map_err(no_signals)?;
    Ok(())
}

/// The failure of a server that cannot wait for signals.
fn no_signals(error: std::io::Error) -> Failure {
    Failure::new(ExitClass::Missing, format!("cannot wait for signals: {error}"))
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
) -> Result<(CopyOptions, Option<TokenAccess>)> {
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
    let file = token_files::server_file(args.token_file.as_deref())?;
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
    let access = TokenAccess::new(root.clone(), tokens, told);
    notices.extend(access.warnings());
    if std::fs::canonicalize(&file).is_ok_and(|file| file.starts_with(&root)) {
        let file = file.display();
        notices.push(Notice::Warning(format!(
            "CLIENTS may fetch {file} and its key, and pose as this server: keep them outside --root"
        )));
    }
    copies.identity = Some(identity);
    Ok((copies, Some(access)))
}
