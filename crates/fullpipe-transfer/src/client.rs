//! The end that a person sits at.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fullpipe_net::{NetError, Seen};
use fullpipe_path::{ExitClass, Transport};

use crate::error::{self, Left, TransferError, system};
use crate::far;
use crate::join::{self, JOIN};
use crate::place::{self, Realm};
use crate::proto::{self, Connect, Limits, Message, Options, Setup, Summary, Target, Task};
use crate::secure::{self, Fingerprint, Guard};
use crate::send::Counters;
use crate::session::{Session, lock};
use crate::sobas::{self, About, Aside};
use crate::walk::Place;

/// How the far end is reached.
#[derive(Debug, Clone)]
pub enum Endpoint {
    /// It is started over ssh.
    Ssh {
        /// As ssh takes it: `user@host` or a name of its configuration.
        host: String,
        /// The program and its own options, `ssh` by default.
        ssh: Vec<String>,
        /// What is started there, `fullpipe` by default.
        program: String,
        /// Ports that its streams may use there.
        ports: Option<String>,
    },
    /// A standing server.
    Server {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
        /// What it wants to hear, and its certificate's fingerprint; none where it wants neither.
        token: Option<Token>,
    },
}

/// What opens a standing server: its secret, and the fingerprint of its certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Shown to the server.
    pub secret: [u8; 32],
    /// Of its certificate.
    pub fingerprint: Fingerprint,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "fp1-{}-{}", hex(&self.secret), hex(&self.fingerprint))
    }
}

impl std::str::FromStr for Token {
    type Err = TransferError;

    fn from_str(text: &str) -> Result<Token, TransferError> {
        let wrong = || {
            TransferError::Usage("the token is none: it has the form fp1-...-..., as 'fullpipe serve' prints it".into())
        };
        let bytes = |part: &str| -> Option<[u8; 32]> {
            let hash = blake3::Hash::from_hex(part).ok()?;
            Some(*hash.as_bytes())
        };
        let mut parts = text.trim().strip_prefix("fp1-").ok_or_else(wrong)?.splitn(2, '-');
        let secret = parts.next().and_then(bytes).ok_or_else(wrong)?;
        let fingerprint = parts.next().and_then(bytes).ok_or_else(wrong)?;
        Ok(Token { secret, fingerprint })
    }
}

/// What is wanted.
pub struct Order<'a> {
    /// Where the far end is.
    pub endpoint: &'a Endpoint,
    /// Which way.
    pub way: Way,
    /// How files are treated.
    pub options: Options,
    /// Chooses how to send, from the round-trip time in seconds and what both kernels allow: sender, receiver.
    pub choose: &'a dyn Fn(f64, &Limits, &Limits) -> Result<Transport, TransferError>,
    /// Called now and then with the counters.
    pub show: &'a mut dyn FnMut(&Counters),
    /// Ends the transfer when it is set.
    pub interrupted: &'a std::sync::atomic::AtomicBool,
}

/// Which way.
#[derive(Debug, Clone)]
pub enum Way {
    /// These local things go there.
    Push(Vec<Vec<u8>>, Target),
    /// Those things there come here.
    Pull(Vec<Vec<u8>>, Target),
}

/// How it went.
#[derive(Debug)]
pub struct Finished {
    /// At the receiver.
    pub summary: Summary,
    /// What the sender could not read.
    pub left: Vec<Left>,
    /// How it was sent.
    pub transport: Transport,
    /// Round-trip time, seconds.
    pub rtt_s: f64,
    /// Segments sent again, where this end sends.
    pub retransmits: Option<u64>,
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

/// A control connection.
struct Line {
    input: Box<dyn Read + Send>,
    output: Box<dyn Write + Send>,
    peer: String,
    /// Where the streams go; the port comes later.
    address: SocketAddr,
    socket: Option<TcpStream>,
    child: Option<Arc<Mutex<Child>>>,
    errors: Arc<Mutex<Vec<String>>>,
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(child) = &self.child {
            let mut child = lock(child);
            // It ends by itself when its input does; if not, it is stuck.
            for _ in 0..50 {
                if !matches!(child.try_wait(), Ok(None)) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, TransferError> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let found = (bare, port).to_socket_addrs();
    Ok(found.map_err(|source| NetError::Resolve { host: host.to_owned(), source })?.collect())
}

fn dial(endpoint: &Endpoint) -> Result<Line, TransferError> {
    match endpoint {
        Endpoint::Server { host, port, token } => {
            let name = format!("{host}:{port}");
            let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
            for address in resolve(host, *port)? {
                match TcpStream::connect_timeout(&address, Duration::from_secs(10)) {
                    Ok(socket) => return answer(socket, address, name, token.as_ref()),
                    Err(error) => last = error,
                }
            }
            Err(NetError::Connect { host: name, source: last }.into())
        }
        Endpoint::Ssh { host, ssh, program, ports } => start(host, ssh, program, ports.as_deref()),
    }
}

fn answer(socket: TcpStream, address: SocketAddr, peer: String, token: Option<&Token>) -> Result<Line, TransferError> {
    socket.set_nodelay(true).map_err(system("setting TCP_NODELAY"))?;
    socket.set_read_timeout(Some(JOIN)).map_err(system("setting a timeout"))?;
    socket.set_write_timeout(Some(JOIN)).map_err(system("setting a timeout"))?;
    let again = socket.try_clone().map_err(system("doubling a descriptor"))?;
    let guard = match token {
        Some(token) => Guard::Client(secure::client(token.fingerprint)?),
        None => Guard::None,
    };
    let mut stream = guard.wrap(socket).map_err(|e| {
        let why = match e.kind() {
            std::io::ErrorKind::InvalidData => {
                format!("its certificate is not the token's ({e}); is the token of this server?")
            }
            _ => format!("it does not answer as 'fullpipe serve --root' does ({e})"),
        };
        TransferError::Trust { peer: peer.clone(), why }
    })?;
    if token.is_none() {
        // A server that also measures tells by this what is wanted.
        let told = stream.write_all(&[far::PLAIN]);
        told.map_err(|source| TransferError::Lost { peer: peer.clone(), doing: "greeting", source })?;
    }
    let (input, output) = stream.split().map_err(system("doubling a descriptor"))?;
    Ok(Line { input, output, peer, address, socket: Some(again), child: None, errors: Arc::default() })
}

fn start(host: &str, ssh: &[String], program: &str, ports: Option<&str>) -> Result<Line, TransferError> {
    let (ssh, own) = ssh.split_first().map_or(("ssh", &[][..]), |(ssh, own)| (ssh.as_str(), own));
    if host.starts_with('-') {
        return Err(TransferError::Usage(format!("'{host}' is not a host")));
    }
    let mut command = Command::new(ssh);
    command.args(own).arg(host).arg("--").arg(program).arg("far");
    if let Some(ports) = ports {
        command.args(["--data-ports", ports]);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|e| TransferError::Unreachable(format!("cannot run {ssh}: {e}; install it, or name it with --ssh")))?;
    let (Some(input), Some(output), Some(errors)) = (child.stdout.take(), child.stdin.take(), child.stderr.take())
    else {
        return Err(TransferError::Unreachable("ssh has no pipes".into()));
    };
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let said = lines.clone();
    crate::send::thread("ssh", move || {
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            lock(&said).push(line);
        }
    })?;
    let address = data_address(ssh, own, host)?;
    Ok(Line {
        input: Box::new(input),
        output: Box::new(output),
        peer: host.to_owned(),
        address,
        socket: None,
        child: Some(Arc::new(Mutex::new(child))),
        errors: lines,
    })
}

/// Where the host is that ssh talks to, by ssh's own configuration (`ssh -G`).
fn data_address(ssh: &str, own: &[String], host: &str) -> Result<SocketAddr, TransferError> {
    let told = Command::new(ssh).args(own).arg("-G").arg(host).stderr(Stdio::null()).output();
    let text = told.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("hostname ")).unwrap_or(host);
    let name = name.rsplit('@').next().unwrap_or(name);
    resolve(name, 0)?.first().copied().ok_or_else(|| TransferError::Unreachable(format!("{name} has no address")))
}

/// Says why ssh did not bring the far end, in its own words.
fn ssh_failed(line: &Line, error: TransferError) -> TransferError {
    let Some(child) = &line.child else { return error };
    // What it had to say may still be on its way, and so may its end, which has the far end's exit code.
    let mut status = None;
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(50));
        status = lock(child).try_wait().ok().flatten();
        if status.is_some() {
            break;
        }
    }
    let said = lock(&line.errors).iter().rev().find(|line| !line.trim().is_empty()).cloned().unwrap_or_default();
    let peer = &line.peer;
    // It said no and went, and a word of ours met a closed pipe before its own was read.
    if let Some(why) = said.strip_prefix("error: far end: ").filter(|why| !why.starts_with("lost ")) {
        let code = status.and_then(|status| u8::try_from(status.code()?).ok());
        let class = code.map_or(ExitClass::Peer, error::class);
        return TransferError::Refused { peer: peer.clone(), why: why.to_owned(), class };
    }
    match status.and_then(|status| status.code()) {
        Some(127) => TransferError::Unreachable(format!(
            "{peer} has no fullpipe on the PATH of its ssh logins ({said}); copy this program there, or say where it is with --far-program"
        )),
        Some(255) => TransferError::Unreachable(format!("ssh {peer}: {said}")),
        Some(2) if said.contains("far") => TransferError::Unreachable(format!(
            "{peer} has another version of fullpipe ({said}); install this version there"
        )),
        _ if !said.is_empty() => TransferError::Unreachable(format!("{peer}: {said}")),
        _ => error,
    }
}

/// Reads the far end's first words. Over ssh, what a login script has printed comes before them.
fn first_words(line: &mut Line) -> Result<Message, TransferError> {
    let lost = |peer: &str, source| TransferError::Lost { peer: peer.to_owned(), doing: "greeting", source };
    if line.child.is_some() {
        let mut seen = Vec::new();
        let mut byte = [0];
        while !seen.ends_with(far::READY) {
            if seen.len() > 64 << 10 {
                let why = "it talks, but not as fullpipe does".to_owned();
                return Err(TransferError::Stranger { peer: line.peer.clone(), why });
            }
            line.input.read_exact(&mut byte).map_err(|e| lost(&line.peer, e))?;
            seen.push(byte[0]);
        }
    }
    proto::receive(&mut *line.input).map_err(|e| lost(&line.peer, e))
}

/// What a look at the far end tells.
pub struct Looked {
    /// Round-trip time, seconds.
    pub rtt_s: f64,
    /// What this kernel allows.
    pub ours: Limits,
    /// What the far one does.
    pub theirs: Limits,
}

/// Looks at the far end, and moves nothing.
///
/// # Errors
/// It cannot be reached, or does not want to talk.
pub fn look(endpoint: &Endpoint, options: Options) -> Result<Looked, TransferError> {
    let mut line = dial(endpoint)?;
    let output = std::mem::replace(&mut line.output, Box::new(std::io::sink()));
    let session = Session::new(line.peer.clone(), output);
    let (theirs, rtt_s) = greet(endpoint, options, Task::Look, &session, &mut line)
        .map_err(|error| if matches!(error, TransferError::Lost { .. }) { ssh_failed(&line, error) } else { error })?;
    Ok(Looked { rtt_s, ours: join::hello().limits, theirs })
}

/// Does it, once.
///
/// # Errors
/// The transfer's; [`TransferError::again`] says whether the same order may go better.
pub fn run(order: &mut Order<'_>) -> Result<Finished, TransferError> {
    // What is wrong here is said before anyone is called.
    let here = Realm::User(std::env::current_dir().map_err(system("finding the current folder"))?);
    let mine = match &order.way {
        Way::Push(sources, target) => Mine::Send(place::places(&here, sources)?, Task::Push(target.clone())),
        Way::Pull(sources, target) => Mine::Receive(
            Box::new(place::destination(&here, target, &|| order.interrupted.load(Ordering::SeqCst))?),
            Task::Pull(sources.clone()),
        ),
    };
    let sends = matches!(mine, Mine::Send(..));
    let mut line = dial(order.endpoint)?;
    let output = std::mem::replace(&mut line.output, Box::new(std::io::sink()));
    let session = Session::new(line.peer.clone(), output);
    if let Some(socket) = &line.socket {
        session.cut_with(socket.try_clone().map_err(system("doubling a descriptor"))?);
    }
    if let Some(child) = line.child.clone() {
        session.alarm(move || drop(lock(&child).kill()));
    }
    let introduced = introduce(order, &session, &mut line, &mine);
    let Introduced { transport, rtt_s, streams, offer, aside } = match introduced {
        Ok(introduced) => introduced,
        Err(error) => {
            let error = if matches!(error, TransferError::Lost { .. }) { ssh_failed(&line, error) } else { error };
            return Err(error);
        }
    };
    let counters = Arc::new(Counters::default());
    let sockets: Vec<TcpStream> = streams.iter().filter_map(|stream| stream.socket().try_clone().ok()).collect();
    sobas::start(&session, aside, &streams, sends, &counters)?;
    let (seen, last) = (counters.clone(), counters.clone());
    let stall = Duration::from_nanos(order.options.stall_ns);
    let interrupted = order.interrupted;
    let show = &mut order.show;
    let ended = session.clone();
    let mut tick = || {
        show(&seen);
        if interrupted.load(Ordering::SeqCst) {
            ended.fail(TransferError::Interrupted);
        }
    };
    let input = std::mem::replace(&mut line.input, Box::new(std::io::empty()));
    let outcome = match mine {
        Mine::Send(places, _) => {
            untimed(&line)?;
            far::send(&session, input, order.options, places, streams, offer, counters, stall, &mut tick)?
        }
        Mine::Receive(to, _) => {
            untimed(&line)?;
            far::receive(&session, input, order.options, *to, streams, counters, stall, &mut tick)?
        }
    };
    (order.show)(&last);
    let retransmits =
        sends.then(|| sockets.iter().filter_map(sobas::read).filter_map(|i| i.get("total_retrans")).sum());
    let far::Outcome { summary, left, seen, told } = outcome;
    let trace = seen.zip(told).map(|((zero_ns, ours), theirs)| {
        let (sender, receiver) = if sends { (ours, theirs) } else { (theirs, ours) };
        TraceOfBoth { zero_ns, sender, receiver }
    });
    Ok(Finished { summary, left, transport, rtt_s, trace, retransmits })
}

/// From here on the session watches for stalls.
fn untimed(line: &Line) -> Result<(), TransferError> {
    line.socket.as_ref().map_or(Ok(()), |socket| socket.set_read_timeout(None)).map_err(system("clearing a timeout"))
}

enum Mine {
    Send(Vec<Place>, Task),
    Receive(Box<far::Destination>, Task),
}

fn hear(session: &Session, input: &mut (dyn Read + Send)) -> Result<Message, TransferError> {
    match proto::receive(input).map_err(|e| session.lost("asking", e))? {
        Message::Refused { why, class } => {
            Err(TransferError::Refused { peer: session.peer.clone(), why, class: error::class(class) })
        }
        Message::Failed { why, again, class } => {
            Err(TransferError::Remote { peer: session.peer.clone(), why, again, class: error::class(class) })
        }
        message => Ok(message),
    }
}

/// First words: what is wanted, who the far end is, and how far away.
fn greet(
    endpoint: &Endpoint,
    options: Options,
    task: Task,
    session: &Arc<Session>,
    line: &mut Line,
) -> Result<(Limits, f64), TransferError> {
    let secret = match endpoint {
        Endpoint::Server { token: Some(token), .. } => token.secret.to_vec(),
        _ => Vec::new(),
    };
    // All that need not wait for an answer goes in one flight: over 366 ms each more would cost as much.
    session.send(&Message::Hello(join::hello()))?;
    session.send(&Message::Setup(Box::new(Setup { task, options, secret })))?;
    let theirs = match first_words(line)? {
        Message::Hello(hello) => join::greet(&session.peer, hello)?,
        Message::Refused { why, class } => {
            return Err(TransferError::Refused { peer: session.peer.clone(), why, class: error::class(class) });
        }
        other => return Err(session.unexpected(&other)),
    };
    let rtt_s = match &line.socket {
        Some(socket) => tcp_round_trip(socket),
        None => None,
    };
    let rtt_s = rtt_s.map_or_else(|| round_trip(session, &mut *line.input), Ok)?;
    Ok((theirs, rtt_s))
}

struct Introduced {
    transport: Transport,
    rtt_s: f64,
    streams: Vec<secure::Stream>,
    offer: bool,
    aside: Option<Aside>,
}

fn introduce(
    order: &Order<'_>,
    session: &Arc<Session>,
    line: &mut Line,
    mine: &Mine,
) -> Result<Introduced, TransferError> {
    let (task, sends, ours_has_past) = match mine {
        Mine::Send(_, task) => (task.clone(), true, false),
        Mine::Receive(to, task) => (task.clone(), false, to.has_past()),
    };
    let (theirs, rtt_s) = greet(order.endpoint, order.options, task, session, line)?;
    let ours = join::hello().limits;
    let transport = if sends { (order.choose)(rtt_s, &ours, &theirs) } else { (order.choose)(rtt_s, &theirs, &ours) }?;
    let connect = Connect { transport: transport.clone(), rtt_ns: (rtt_s * 1e9) as u64, offer: ours_has_past };
    session.send(&Message::Connect(Box::new(connect)))?;
    let (port, token, certificate, offer, udp) = match hear(session, &mut *line.input)? {
        Message::Ready { port, token, certificate, offer, udp } => (port, token, certificate, offer, udp),
        other => return Err(session.unexpected(&other)),
    };
    let guard = match (order.options.encrypt, certificate.is_empty()) {
        (true, false) => Guard::Client(secure::client(*blake3::hash(&certificate).as_bytes())?),
        (false, _) => Guard::None,
        (true, true) => {
            let why = "it offers no encryption; --no-encrypt does without".to_owned();
            return Err(TransferError::Trust { peer: session.peer.clone(), why });
        }
    };
    let mut to = line.address;
    to.set_port(port);
    let streams = join::connect(session, to, &transport, sends, &guard, &token)?;
    to.set_port(udp);
    let rtt_ns = (rtt_s * 1e9) as u64;
    let about = order.options.sobas.map(|law| About { law, token: &token, rtt_ns, buffer: transport.buffer });
    let aside = about.map(|about| sobas::call(about, to));
    Ok(Introduced { transport, rtt_s, streams, offer, aside })
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
        // The first also waits for what was asked before it.
        if n > 2 && first.elapsed() > Duration::from_millis(200) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens() {
        let token = Token { secret: [1; 32], fingerprint: [0xab; 32] };
        assert_eq!(token.to_string().parse::<Token>().unwrap(), token);
        for bad in ["", "fp1-", "fp1-00-00", "fp2-x", &token.to_string()[..50]] {
            assert!(bad.parse::<Token>().is_err(), "{bad}");
        }
    }
}
