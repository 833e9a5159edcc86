//! Opens the control connection to a server or, over ssh, to a far end.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fullpipe_net::NetError;
use fullpipe_path::{ExitClass, Host, text};

use crate::connection::endpoint::Endpoint;
use crate::connection::join::JOIN;
use crate::connection::stream::Protection;
use crate::connection::token::Token;
use crate::connection::{tls, token_proof};
use crate::error::{self, TransferError, system};
use crate::protocol::message::Message;
use crate::protocol::{frame, hello};
use crate::threads::{lock, thread};

/// Timeout for ssh to connect if ssh's configuration sets none, in seconds.
const SSH_CONNECTS_S: u32 = 30;

/// Maximum number of ssh's error lines that are kept.
const MAX_ERROR_LINES: usize = 100;
/// Maximum length of one of ssh's error lines, in bytes.
const MAX_ERROR_LINE_BYTES: u64 = 4096;

/// A control connection.
pub(crate) struct ControlChannel {
    pub(crate) input: Box<dyn Read + Send>,
    pub(crate) output: Box<dyn Write + Send>,
    pub(crate) peer: String,
    /// The far end's addresses. The streams go to one of them; the far end tells the port later.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) socket: Option<TcpStream>,
    pub(crate) child: Option<Arc<Mutex<Child>>>,
    /// Whether the far end is a server and this end has shown no token.
    tokenless: bool,
    awaited: Awaited,
    /// Guards the last lines that ssh printed to its standard error. Held only while lines are added or read.
    errors: Arc<Mutex<VecDeque<String>>>,
}

impl ControlChannel {
    /// Reads the far end's first message. Over ssh, the output of login scripts comes before it and is skipped.
    pub(crate) fn first_words(&mut self) -> Result<Message, TransferError> {
        let lost = |peer: &str, source| TransferError::Lost { peer: peer.to_owned(), doing: "greeting", source };
        if self.child.is_some() {
            let mut seen = Vec::new();
            let mut byte = [0];
            while !seen.ends_with(hello::READY) {
                if seen.len() > 64 << 10 {
                    let why = "what it sends is not fullpipe's greeting".to_owned();
                    return Err(TransferError::Stranger { peer: self.peer.clone(), why });
                }
                self.input.read_exact(&mut byte).map_err(|e| lost(&self.peer, e))?;
                seen.push(byte[0]);
            }
            *lock(&self.awaited) = Some(Instant::now());
        }
        frame::receive(&mut *self.input).map_err(|e| lost(&self.peer, e))
    }
}

/// The input from the far end. Each read resets the time of silence.
struct Heard {
    from: Box<dyn Read + Send>,
    awaited: Awaited,
}

impl Read for Heard {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.from.read(into)?;
        if let Some(since) = lock(&self.awaited).as_mut() {
            *since = Instant::now();
        }
        Ok(read)
    }
}

impl Drop for ControlChannel {
    fn drop(&mut self) {
        if let Some(child) = &self.child {
            let mut child = lock(child);
            // ssh ends by itself when its input ends, unless it is stuck.
            for _ in 0..50 {
                if !matches!(child.try_wait(), Ok(None)) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            end(&mut child);
            let _ = child.wait();
        }
    }
}

fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, TransferError> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let found = (bare, port).to_socket_addrs();
    Ok(found.map_err(|source| NetError::Resolve { host: host.to_owned(), source })?.collect())
}

/// The sockets and processes of connections that are being opened. [`Stop::cut`] ends them, and then threads that wait for
/// an answer get an error.
#[derive(Default)]
pub(crate) struct Stop {
    /// Guards the list of sockets. Held while they are shut down.
    sockets: Mutex<Vec<TcpStream>>,
    /// Guards the list of sockets that receive the children's output. Held while they are shut down.
    ears: Mutex<Vec<UnixStream>>,
    /// Guards the list of children. A child's own lock may be taken while it is held.
    children: Mutex<Vec<Arc<Mutex<Child>>>>,
    awaited: Awaited,
}

/// The time since which the far end has been silent, in a lock that guards only it. `None` while ssh may still be waiting
/// for the user's input.
type Awaited = Arc<Mutex<Option<Instant>>>;

impl Stop {
    /// Returns how long the far end has been silent.
    pub(crate) fn awaited(&self) -> Duration {
        lock(&self.awaited).map_or(Duration::ZERO, |since| since.elapsed())
    }

    pub(crate) fn cut(&self) {
        for socket in lock(&self.sockets).iter() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        for child in lock(&self.children).iter() {
            end(&mut lock(child));
        }
        // A process that the child has started may live on and hold the other end of the socket: a script around ssh leaves
        // ssh behind.
        for ear in lock(&self.ears).iter() {
            let _ = ear.shutdown(Shutdown::Both);
        }
    }
}

/// Kills a child, and its process group if it has its own ([`start`]).
fn end(child: &mut Child) {
    use nix::sys::signal::{Signal, kill, killpg};
    let Ok(None) = child.try_wait() else { return };
    let id = nix::unistd::Pid::from_raw(child.id().cast_signed());
    let _ =
        if nix::unistd::getpgid(Some(id)) == Ok(id) { killpg(id, Signal::SIGKILL) } else { kill(id, Signal::SIGKILL) };
}

/// Opens the control connection to an endpoint.
///
/// # Errors
/// The endpoint cannot be reached, or its certificate is not the one that the token names.
pub(crate) fn dial(endpoint: &Endpoint, stop: &Stop) -> Result<ControlChannel, TransferError> {
    match endpoint {
        Endpoint::Server { host, port, token } => {
            let name = Host { name: host.clone(), port: *port }.to_string();
            let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
            for address in resolve(host, *port)? {
                match TcpStream::connect_timeout(&address, Duration::from_secs(10)) {
                    Ok(socket) => {
                        let socket_copy = socket.try_clone().map_err(system("doubling a descriptor"))?;
                        lock(&stop.sockets).push(socket_copy);
                        *lock(&stop.awaited) = Some(Instant::now());
                        return answer(socket, address, name, token.as_ref(), stop.awaited.clone());
                    }
                    Err(error) => last = error,
                }
            }
            Err(NetError::Connect { host: name, source: last }.into())
        }
        Endpoint::Ssh { host, ssh, program, ports } => start(host, ssh, program, ports.as_deref(), stop),
    }
}

/// Greets a server over a connected socket: proves the token and starts TLS, if there is a token.
fn answer(
    mut socket: TcpStream,
    address: SocketAddr,
    peer: String,
    token: Option<&Token>,
    awaited: Awaited,
) -> Result<ControlChannel, TransferError> {
    socket.set_nodelay(true).map_err(system("setting TCP_NODELAY"))?;
    socket.set_read_timeout(Some(JOIN)).map_err(system("setting a timeout"))?;
    socket.set_write_timeout(Some(JOIN)).map_err(system("setting a timeout"))?;
    let socket_copy = socket.try_clone().map_err(system("doubling a descriptor"))?;
    let guard = match token {
        Some(token) => {
            // The proof comes before TLS, so that a server which strangers flood can tell its clients at little cost.
            let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
            let proved = socket.write_all(&token_proof::prove(&token.proof_key(), now_s));
            proved.map_err(|source| TransferError::Lost { peer: peer.clone(), doing: "greeting", source })?;
            Protection::Client(tls::client(token.fingerprint)?)
        }
        None => Protection::None,
    };
    let mut stream = guard.wrap(socket).map_err(|e| {
        // Bytes that are not TLS at all (`InvalidMessage`) say nothing about the certificate.
        let told = e.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
        if matches!(told, Some(rustls::Error::InvalidCertificate(_))) {
            let why = "this is not the server that the token is for; the token is mistyped, or from before the server got a \
                       new key, or another server answers here. Ask the server's operator for a new token";
            return TransferError::Trust { peer: peer.clone(), why: why.to_owned() };
        }
        if matches!(told, Some(e) if !matches!(e, rustls::Error::InvalidMessage(_))) {
            let why = format!("no encrypted connection ({}); ask its operator", text::from_peer(&e.to_string()));
            return TransferError::Trust { peer: peer.clone(), why };
        }
        let why = error::why(&e);
        TransferError::Unreachable(format!(
            "{peer} does not serve files to holders of a token ({why}): perhaps its 'fullpipe serve' has no --root, or has \
             --insecure (then give --insecure here too), or it has too many connections from here. Ask its operator; \
             the server's log has the reason"
        ))
    })?;
    if token.is_none() {
        // A server that also serves measurements tells by this byte that the client wants to copy.
        let told = stream.write_all(&[hello::PLAIN]);
        told.map_err(|source| TransferError::Lost { peer: peer.clone(), doing: "greeting", source })?;
    }
    let (input, output) = stream.split().map_err(system("doubling a descriptor"))?;
    Ok(ControlChannel {
        input: Box::new(Heard { from: input, awaited: awaited.clone() }),
        output,
        peer,
        addresses: vec![address],
        socket: Some(socket_copy),
        child: None,
        tokenless: token.is_none(),
        awaited,
        errors: Arc::default(),
    })
}

/// Starts the far end over ssh. Returns before ssh has connected.
fn start(
    host: &str,
    ssh: &[OsString],
    program: &str,
    ports: Option<&str>,
    stop: &Stop,
) -> Result<ControlChannel, TransferError> {
    let awaited = stop.awaited.clone();
    let (ssh, own) = ssh.split_first().map_or((OsStr::new("ssh"), &[][..]), |(ssh, own)| (ssh.as_os_str(), own));
    if host.starts_with('-') {
        return Err(TransferError::Usage(format!("'{host}' is not a host")));
    }
    let configured = configured(ssh, own, host, stop);
    let mut command = Command::new(ssh);
    command.args(own);
    let by_another = |line: &str| line.starts_with("proxyjump ") || line.starts_with("proxycommand ");
    if configured.lines().any(|line| line == "connecttimeout none") && !configured.lines().any(by_another) {
        // Without a limit, ssh waits for a host that does not answer as long as the kernel retries: two minutes. Through a
        // jump host, the limit would also apply to the time in which a person types a password there.
        command.args(["-o", &format!("ConnectTimeout={SSH_CONNECTS_S}")]);
    }
    command.arg(host).arg("--").arg(program).arg("far");
    if let Some(ports) = ports {
        command.args(["--data-ports", ports]);
    }
    // Unlike a pipe, a socket can be shut down by its reader while other processes still hold its other end.
    let (input, theirs) = UnixStream::pair().map_err(system("making a pair of sockets"))?;
    lock(&stop.ears).push(input.try_clone().map_err(system("doubling a descriptor"))?);
    command.stdin(Stdio::piped()).stdout(OwnedFd::from(theirs)).stderr(Stdio::piped());
    let anyone = is_anyone_there();
    if !anyone {
        // With a process group of its own, all processes that ssh starts can be killed with it. On a terminal the group
        // would be a background job, which may not ask for a password.
        command.process_group(0);
    }
    if configured.lines().any(|line| line == "batchmode yes") || !anyone {
        *lock(&awaited) = Some(Instant::now() + Duration::from_secs(SSH_CONNECTS_S.into()));
    }
    let mut child =
        command.spawn().map_err(|source| TransferError::NoTool { tool: ssh.to_string_lossy().into_owned(), source })?;
    // The command holds the other end of the socket as long as it exists.
    drop(command);
    let (Some(output), Some(errors)) = (child.stdin.take(), child.stderr.take()) else {
        return Err(TransferError::Unreachable("ssh has no pipes".into()));
    };
    let lines: Arc<Mutex<VecDeque<String>>> = Arc::default();
    let said = lines.clone();
    thread("ssh", move || {
        let mut errors = BufReader::new(errors);
        let mut line = Vec::new();
        // Long lines are cut and old lines are dropped: the far end must not fill this end's memory.
        while errors.by_ref().take(MAX_ERROR_LINE_BYTES).read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let mut said = lock(&said);
            if said.len() == MAX_ERROR_LINES {
                said.pop_front();
            }
            // The far host can make ssh print any text (ssh_config(5), Banner).
            said.push_back(text::from_peer(String::from_utf8_lossy(&line).trim_end()));
            line.clear();
        }
    })?;
    let child = Arc::new(Mutex::new(child));
    lock(&stop.children).push(child.clone());
    let addresses = match data_addresses(&configured, host) {
        // `ssh -G` has failed, so the host's name may be an alias. The real ssh fails too, and prints the reason.
        Err(_) if configured.is_empty() => Vec::new(),
        found => found?,
    };
    Ok(ControlChannel {
        input: Box::new(Heard { from: Box::new(input), awaited: awaited.clone() }),
        output: Box::new(output),
        peer: host.to_owned(),
        addresses,
        socket: None,
        child: Some(child),
        tokenless: false,
        awaited,
        errors: lines,
    })
}

/// Whether ssh can ask the user for input (ssh(1), SSH_ASKPASS). Then waiting for ssh has no time limit.
fn is_anyone_there() -> bool {
    let asks = ["SSH_ASKPASS", "DISPLAY", "WAYLAND_DISPLAY"];
    std::fs::File::open("/dev/tty").is_ok() || asks.iter().any(|name| std::env::var_os(name).is_some())
}

/// Returns ssh's configuration for a host, as `ssh -G` prints it; empty if `ssh` is another program that has no `-G`. A
/// command that ssh runs for it (ssh_config(5), Match exec) may hang until `stop` ends it.
fn configured(ssh: &OsStr, own: &[OsString], host: &str, stop: &Stop) -> String {
    let Ok((mut output, theirs)) = UnixStream::pair() else { return String::new() };
    let mut command = Command::new(ssh);
    command.args(own).arg("-G").arg(host).stdin(Stdio::null()).stdout(OwnedFd::from(theirs)).stderr(Stdio::null());
    let Ok(child) = command.spawn() else { return String::new() };
    drop(command);
    let child = Arc::new(Mutex::new(child));
    lock(&stop.children).push(child.clone());
    *lock(&stop.awaited) = Some(Instant::now());
    // The output fits into a socket's buffer, so it can be read after ssh has ended. Reading until the socket's end instead
    // would also wait for processes that ssh has started.
    let ended = loop {
        match lock(&child).try_wait() {
            Ok(None) => {}
            ended => break ended.ok().flatten(),
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    lock(&stop.children).retain(|other| !Arc::ptr_eq(other, &child));
    *lock(&stop.awaited) = None;
    let mut told = Vec::new();
    if ended.is_some_and(|status| status.success()) {
        // The shutdown ends the output here: other processes may still hold the socket's other end.
        let _ = output.shutdown(Shutdown::Both).and_then(|()| output.read_to_end(&mut told));
    }
    String::from_utf8_lossy(&told).into_owned()
}

/// Resolves the addresses of the host to which ssh connects, by ssh's own configuration.
fn data_addresses(configured: &str, host: &str) -> Result<Vec<SocketAddr>, TransferError> {
    let name = configured.lines().find_map(|line| line.strip_prefix("hostname ")).unwrap_or(host);
    let name = name.rsplit('@').next().unwrap_or(name);
    let mut found = resolve(name, 0)?;
    found.dedup();
    Ok(found)
}

/// Whether the error is that the connection ended, not that its data were damaged.
fn is_end(error: &TransferError) -> bool {
    use std::io::ErrorKind::{BrokenPipe, UnexpectedEof};
    matches!(error, TransferError::Lost { source, .. } if matches!(source.kind(), BrokenPipe | UnexpectedEof))
}

/// Explains an error of a control connection. If ssh could not start the far end, or lost it, the new error has the reason
/// that ssh or the far end printed.
pub(crate) fn explain(line: &ControlChannel, error: TransferError) -> TransferError {
    if let (TransferError::Lost { peer, .. }, true) = (&error, line.tokenless) {
        return TransferError::Unreachable(format!(
            "{peer} does not serve files without a token: perhaps it wants one (give it with --token-file), or its \
             'fullpipe serve' has no --root. Ask its operator; the server's log has the reason"
        ));
    }
    let (Some(child), TransferError::Lost { .. }) = (&line.child, &error) else { return error };
    // ssh's last lines may not have been read yet. Its exit status, which is the far end's, comes when it ends.
    let mut status = None;
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(50));
        status = lock(child).try_wait().ok().flatten();
        if status.is_some() {
            break;
        }
    }
    // ssh's warnings, such as the one about a new host key, are not the reason.
    let is_reason =
        |line: &&String| !line.trim().is_empty() && !line.starts_with("Warning:") && !line.starts_with("** ");
    let said = lock(&line.errors).iter().rev().find(is_reason).cloned().unwrap_or_default();
    let peer = &line.peer;
    // The far end refused and ended, and a message to it met a closed pipe before its refusal was read.
    if let Some(why) = said.strip_prefix("error: far end: ").filter(|why| !why.starts_with("lost ")) {
        let code = status.and_then(|status| u8::try_from(status.code()?).ok());
        let class = code.map_or(ExitClass::Peer, error::class);
        return TransferError::Refused { peer: peer.clone(), why: why.to_owned(), retry: false, class };
    }
    match status.and_then(|status| status.code()) {
        Some(127) => TransferError::Unreachable(format!(
            "{peer} does not find fullpipe ({said}); copy this program to the PATH of its ssh logins, or say where it is with --far-program"
        )),
        Some(255) => TransferError::Unreachable(format!("ssh {peer}: {said}")),
        Some(2) if said.contains("far") => TransferError::Unreachable(format!(
            "{peer} has another version of fullpipe ({said}); install this version there"
        )),
        _ if !said.is_empty() => TransferError::Unreachable(format!("{peer}: {said}")),
        Some(code) if is_end(&error) => TransferError::Unreachable(format!(
            "{peer}: the program that was started there ended without a message (status {code}); check --ssh and --far-program"
        )),
        _ => error,
    }
}
