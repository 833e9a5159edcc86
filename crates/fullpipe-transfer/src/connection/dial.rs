//! Opens the control connection to a server or, over ssh, to a far end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use fullpipe_net::NetError;
use fullpipe_net::socket::lacks_zone;
use fullpipe_net::stream::tcp::TcpDataStream;
use fullpipe_net::tcp_info::TcpInfo;
use fullpipe_path::{ExitClass, Host, text};
use socket2::SockRef;

use crate::connection::endpoint::{Endpoint, NAME_UNKNOWN, SshEndpoint, Via, command_to_try};
use crate::connection::join::JOIN;
use crate::connection::session::Session;
use crate::connection::ssh::{self, FarTask, FirstWord, Ssh, SshProcess};
use crate::connection::stop::{Awaited, Stop};
use crate::connection::stream::Protection;
use crate::connection::token::Token;
use crate::connection::{tls, token_proof};
use crate::error::{self, TransferError, system};
use crate::protocol::message::Message;
use crate::protocol::{frame, hello};
use crate::threads::lock;

/// A control connection.
pub(crate) struct ControlChannel {
    pub(crate) input: Box<dyn Read + Send>,
    pub(crate) output: Box<dyn Write + Send>,
    pub(crate) peer: String,
    /// The far end's addresses. The streams go to one of them; the far end tells the port later.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) socket: Option<TcpStream>,
    /// The ssh that carries this connection, if one does.
    pub(crate) ssh: Option<SshConnection>,
    /// Whether the far end is a server and this end has shown no token.
    tokenless: bool,
    awaited: Awaited,
}

/// An ssh connection, and the ssh that has made it.
pub(crate) struct SshConnection {
    pub(crate) ssh: Ssh,
    process: SshProcess,
    /// What the far end's messages come through.
    line: OwnedFd,
    /// What messages to the far end go through.
    writes: OwnedFd,
}

impl ControlChannel {
    /// Stops counting how long the far end is silent, while this end waits for something else.
    pub(crate) fn await_nothing(&self) {
        *lock(&self.awaited) = None;
    }

    /// TCP_INFO of ssh's connection to one of the far end's addresses, if there is one that this process may see: ssh may use
    /// another ssh's connection, or a jump host.
    pub(crate) fn ssh_info(&self) -> Option<TcpInfo> {
        let to: Vec<_> = self.addresses.iter().map(|address| address.ip().to_canonical()).collect();
        self.ssh.as_ref()?.process.tcp_info(&to)
    }

    /// Lets the session notice that the connection has ended while nobody reads it.
    pub(crate) fn watch_end(&self, session: &Session) {
        session.heard_on(self.ssh.as_ref().and_then(|SshConnection { line, .. }| line.try_clone().ok()));
    }

    /// Limits the time that a write may take. An end that receives tells its progress while it watches for stalls and
    /// interruptions, and nothing must hold it up; an end that sends may have to wait for as long as the other one is busy.
    pub(crate) fn limit_writes(&self, longest: Duration) -> Result<(), TransferError> {
        let ssh = self.ssh.as_ref().map(|ssh| SockRef::from(&ssh.writes));
        let socket = self.socket.as_ref().map(SockRef::from).or(ssh);
        socket.map_or(Ok(()), |socket| socket.set_write_timeout(Some(longest))).map_err(system("setting a timeout"))
    }

    /// Counts how long the far end is silent from a little later: what this end sends now may take long to arrive.
    pub(crate) fn await_later(&self) {
        *lock(&self.awaited) = Some(Instant::now() + JOIN);
    }

    /// Waits until the far end runs, and sends it this program if it has none. Over ssh, the output of login scripts comes
    /// first and is dropped. `send` sends bytes to the far host, and `say` tells the user of the sending. Returns whether the
    /// program was sent; what had been sent before is lost then.
    pub(crate) fn await_far_end(
        &mut self,
        send: &dyn Fn(&[u8]) -> Result<(), TransferError>,
        say: &dyn Fn(&str),
    ) -> Result<bool, TransferError> {
        let Some(SshConnection { ssh, .. }) = &self.ssh else { return Ok(false) };
        let peer = &self.peer;
        let mut next = || {
            let word = ssh::first_word(&mut self.input, ssh.program());
            word.map_err(|source| TransferError::Lost { peer: peer.clone(), doing: "greeting", source })
        };
        let sent = match (next()?, ssh.program()) {
            (FirstWord::Ready, _) => false,
            (FirstWord::Wanted(wanted), Some(program)) if ssh.sends() => {
                program.check(peer, &wanted)?;
                say(&format!("{peer} has no fullpipe of this version; sending this one ({})", program.size()));
                let (answer, content) = program.answer();
                for part in std::iter::once(answer.as_bytes()).chain(content.chunks(SENT_AT_ONCE)) {
                    // What ssh has taken may still take long to arrive.
                    *lock(&self.awaited) = Some(Instant::now() + JOIN);
                    send(part)?;
                }
                if !matches!(next()?, FirstWord::Ready) {
                    return Err(stranger(peer));
                }
                true
            }
            _ => return Err(stranger(peer)),
        };
        if let Some(SshConnection { ssh, process, .. }) = &mut self.ssh {
            process.has_logged_in();
            ssh.forget_content();
        }
        *lock(&self.awaited) = Some(Instant::now());
        Ok(sent)
    }

    /// Reads the far end's first message.
    pub(crate) fn first_message(&mut self) -> Result<Message, TransferError> {
        let lost = |source| TransferError::Lost { peer: self.peer.clone(), doing: "greeting", source };
        frame::receive(&mut *self.input).map_err(lost)
    }
}

/// Bytes of a program that are sent at a time. The far host counts as silent if it takes none of them for too long.
const SENT_AT_ONCE: usize = 64 << 10;

fn stranger(peer: &str) -> TransferError {
    TransferError::Stranger { peer: peer.to_owned(), why: ssh::NO_GREETING.to_owned() }
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

pub(crate) fn resolve(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    Ok((bare, port).to_socket_addrs()?.collect())
}

/// Opens the control connection to an endpoint.
///
/// # Errors
/// The endpoint cannot be reached, or its certificate is not the one that the token names.
pub(crate) fn dial(endpoint: &Endpoint, stop: &Stop) -> Result<ControlChannel, TransferError> {
    match endpoint {
        Endpoint::Server { host, port, token } => {
            let name = Host { name: host.clone(), port: *port }.to_string();
            let mut errors = Vec::new();
            let unknown = |source| NetError::Resolve { host: host.clone(), source };
            for address in resolve(host, *port).map_err(unknown)? {
                match TcpStream::connect_timeout(&address, Duration::from_secs(10)) {
                    Ok(socket) => {
                        let socket_copy = socket.try_clone().map_err(system("doubling a descriptor"))?;
                        lock(&stop.sockets).push(socket_copy);
                        *lock(&stop.awaited) = Some(Instant::now());
                        return answer(socket, address, name, token.as_ref(), stop.awaited.clone());
                    }
                    Err(_) if lacks_zone(&address) => errors.push(NetError::NoZone { address: host.clone() }),
                    Err(source) => errors.push(NetError::Connect { host: name.clone(), source }),
                }
            }
            let none = || NetError::Connect { host: name, source: std::io::ErrorKind::AddrNotAvailable.into() };
            Err(NetError::most_telling(errors).unwrap_or_else(none).into())
        }
        Endpoint::Ssh(endpoint) => start(endpoint, FarTask::Session, stop),
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
            let proved = socket.write_all(&token_proof::prove_now(&token.proof_key()));
            proved.map_err(|source| TransferError::Lost { peer: peer.clone(), doing: "greeting", source })?;
            Protection::Client(tls::client(token.fingerprint)?)
        }
        None => Protection::None,
    };
    let mut stream = guard.wrap(TcpDataStream::new(socket)).map_err(|e| {
        let told = tls::objection(&e);
        if matches!(told, Some(rustls::Error::InvalidCertificate(_))) {
            let why = "this is not the server that the token is for; the token is mistyped, or from before the server got a \
                       new key, or another server answers here. Ask the server's operator for a new token";
            return TransferError::Trust { peer: peer.clone(), why: why.to_owned() };
        }
        if let Some(told) = told {
            let why = format!("no encrypted connection ({}); ask its operator", text::from_peer(&told.to_string()));
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
    // From here on others notice if the server is silent: they know for how long it may be.
    let untimed = socket_copy.set_read_timeout(None).and_then(|()| socket_copy.set_write_timeout(None));
    untimed.map_err(system("clearing a timeout"))?;
    Ok(ControlChannel {
        input: Box::new(Heard { from: input, awaited: awaited.clone() }),
        output,
        peer,
        addresses: vec![address],
        socket: Some(socket_copy),
        ssh: None,
        tokenless: token.is_none(),
        awaited,
    })
}

/// Starts a far end over ssh. Returns before ssh has connected.
pub(crate) fn start(endpoint: &SshEndpoint, task: FarTask, stop: &Stop) -> Result<ControlChannel, TransferError> {
    let ssh = Ssh::configured(endpoint, stop)?;
    let (process, output, input) = ssh.start(task, stop)?;
    let addresses = match endpoint.via {
        Via::Tcp | Via::Either => data_addresses(&ssh, &endpoint.host)?,
        // The far end also knows an address of this host.
        Via::Reverse => data_addresses(&ssh, &endpoint.host).unwrap_or_default(),
        Via::Ssh => Vec::new(),
    };
    let line = input.try_clone().map_err(system("doubling a descriptor"))?;
    let writes = output.descriptor().map_err(system("doubling a descriptor"))?;
    let awaited = stop.awaited.clone();
    Ok(ControlChannel {
        input: Box::new(Heard { from: Box::new(input), awaited: awaited.clone() }),
        output: Box::new(output),
        peer: endpoint.host.clone(),
        addresses,
        socket: None,
        ssh: Some(SshConnection { ssh, process, line: line.into(), writes }),
        tokenless: false,
        awaited,
    })
}

/// Resolves the addresses of the host to which ssh connects, by ssh's own configuration. If that is unknown, the host's name
/// may be an alias, and there are none.
fn data_addresses(ssh: &Ssh, host: &str) -> Result<Vec<SocketAddr>, TransferError> {
    let name = ssh.host_name().unwrap_or(host);
    let name = name.rsplit('@').next().unwrap_or(name);
    match resolve(name, 0) {
        Ok(mut found) => {
            found.dedup();
            Ok(found)
        }
        Err(_) if ssh.host_name().is_none() => Ok(Vec::new()),
        Err(source) if ssh.is_proxied() => {
            let why = format!("its name is unknown here: {source}");
            Err(TransferError::NoDataPort { to: name.to_owned(), why })
        }
        Err(source) => Err(NetError::Resolve { host: name.to_owned(), source }.into()),
    }
}

/// The name of the host to which ssh connects, as far as is known, and its addresses as far as they are known here. Another far
/// end may know more.
pub(crate) fn name_and_addresses(line: &ControlChannel) -> (String, Vec<SocketAddr>) {
    let name = line.ssh.as_ref().and_then(|SshConnection { ssh, .. }| ssh.host_name()).unwrap_or(&line.peer);
    let name = name.rsplit('@').next().unwrap_or(name);
    (name.to_owned(), resolve(name, 0).unwrap_or_default())
}

/// Whether the error is that the connection ended, not that its data were damaged.
fn is_end(error: &TransferError) -> bool {
    use std::io::ErrorKind::{BrokenPipe, UnexpectedEof};
    matches!(error, TransferError::Lost { source, .. } if matches!(source.kind(), BrokenPipe | UnexpectedEof))
}

/// Explains an error of a control connection. If ssh could not start the far end, or lost it, the new error has the reason
/// that ssh or the far end printed.
pub(crate) fn explain(line: &ControlChannel, error: TransferError) -> TransferError {
    // One that does not answer in time is stuck.
    let is_late = matches!(&error, TransferError::Lost { source, .. } if source.kind() == std::io::ErrorKind::TimedOut);
    if let (TransferError::Lost { peer, .. }, true, false) = (&error, line.tokenless, is_late) {
        return TransferError::Unreachable(format!(
            "{peer} does not serve files without a token: perhaps it wants one (give it with --token-file), or its \
             'fullpipe serve' has no --root. Ask its operator; the server's log has the reason"
        ));
    }
    let (Some(SshConnection { ssh, process, .. }), TransferError::Lost { .. }) = (&line.ssh, &error) else {
        return error;
    };
    let (status, said) = process.ended();
    let peer = &line.peer;
    let try_it = |rest| command_to_try(ssh.words(), peer, rest);
    // The far end refused and ended, and a message to it met a closed pipe before its refusal was read.
    if let Some(why) = said.strip_prefix("error: far end: ").filter(|why| !why.starts_with("lost ")) {
        let code = status.and_then(|status| u8::try_from(status.code()?).ok());
        let class = code.map_or(ExitClass::Peer, error::class);
        return TransferError::Refused { peer: peer.clone(), why: why.to_owned(), retry: false, class };
    }
    match status.and_then(|status| status.code()) {
        Some(127) if ssh.program().is_some() => TransferError::Unreachable(format!(
            "{peer} has no fullpipe of this version; a copy sends it this one, except with --no-deploy or --dry-run"
        )),
        Some(127) => TransferError::Unreachable(format!(
            "{peer} does not find the program of --far-program ({said}); leave the flag out to have this program sent"
        )),
        Some(255) => match said.split_once(NAME_UNKNOWN) {
            Some((_, why)) => {
                let (host, why) = why.split_once(": ").unwrap_or((peer, "ssh does not know it"));
                NetError::Resolve { host: host.trim().to_owned(), source: std::io::Error::other(why.to_owned()) }.into()
            }
            None => {
                let said = if said.is_empty() { "it ended without a message" } else { &said };
                TransferError::Unreachable(format!("ssh {peer}: {said}; to see all of it, run: {}", try_it("")))
            }
        },
        Some(2) if said.contains("far") || said.contains("unexpected argument") => TransferError::Unreachable(format!(
            "{peer} has another version of fullpipe ({said}); install this version there, or leave out --far-program"
        )),
        _ if !said.is_empty() => TransferError::Unreachable(format!("{peer}: {said}")),
        Some(code) if is_end(&error) => TransferError::Unreachable(format!(
            "{peer}: the program that was started there ended without a message (status {code}); \
             does the login there run commands ({})? If so, check --ssh and --far-program",
            try_it(" true")
        )),
        _ => error,
    }
}
