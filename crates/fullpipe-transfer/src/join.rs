//! From two ends that have been introduced to n streams between them.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullpipe_net::{NetError, sys};
use fullpipe_path::{Transport, text};

use crate::error::{TransferError, system};
use crate::proto::{Connect, Hello, Limits, MAGIC, PROTOCOL};
use crate::secure::{Guard, Stream};
use crate::session::{Session, thread};

/// Version of this program.
pub(crate) const PROGRAM: &str = env!("CARGO_PKG_VERSION");
/// How long all streams may take to connect.
pub(crate) const JOIN: Duration = Duration::from_secs(30);
/// What a stream says first: the token, and which stream it is.
const PREAMBLE: usize = 34;

/// Who this end is.
pub(crate) fn hello() -> Hello {
    let (ccs, send, receive) = fullpipe_net::socket::limits();
    let (tuned_send, tuned_receive) = fullpipe_net::socket::tuned();
    Hello {
        magic: MAGIC,
        protocol: PROTOCOL,
        program: PROGRAM.into(),
        limits: Limits { ccs, send, receive, tuned_send, tuned_receive },
    }
}

/// Checks who the other end is.
pub(crate) fn greet(peer: &str, hello: Hello) -> Result<Limits, TransferError> {
    if hello.magic != MAGIC {
        return Err(TransferError::Stranger { peer: peer.into(), why: "its first words are no greeting".into() });
    }
    if hello.protocol != PROTOCOL {
        let theirs = format!("{} (protocol {})", text::from_peer(&hello.program), hello.protocol);
        return Err(TransferError::Version { peer: peer.into(), theirs, ours: PROGRAM });
    }
    Ok(hello.limits)
}

/// That address of a host at which its port answers: a name may have several, and a filter before some. One
/// alone is not tried, which would take a round trip.
pub(crate) fn answering(addresses: &[SocketAddr], port: u16) -> Result<SocketAddr, TransferError> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let mut all = addresses.iter().map(|address| with_port(*address, port));
    let Some(mut to) = all.next() else {
        return Err(TransferError::Unreachable(
            "the host has no address that is known here; give it a name that resolves".into(),
        ));
    };
    for next in all {
        if TcpStream::connect_timeout(&to, PATIENCE).is_ok() {
            break;
        }
        to = next;
    }
    Ok(to)
}

/// Another port of the same host: one on this very network has the interface in its address.
fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// Ports that a client may wish for: those that no service has by right (RFC 6335, section 6).
pub(crate) const WISHES: std::ops::RangeInclusive<u16> = 49152..=65535;
/// From this round-trip time on it is worth knocking before the far end has said where, seconds.
pub(crate) const FAR_S: f64 = 0.02;
/// What the far end is given to open a port, beside a part of the round-trip time.
const OPENING: Duration = Duration::from_millis(5);

/// A connection that may come to be.
type Knock = JoinHandle<Result<TcpStream, NetError>>;

/// Connections to a port that the far end was asked for, and may have opened: it says so a round trip later,
/// in which they could be made. Where it has not, they are refused, or nobody answers, and they are forgotten.
pub(crate) struct Early {
    to: SocketAddr,
    knocks: Vec<Knock>,
}

impl Early {
    /// Knocks a little later, if a port is wished for.
    pub(crate) fn knock(address: SocketAddr, connect: &Connect, sends: bool) -> Option<Early> {
        if connect.port == 0 {
            return None;
        }
        let rtt = Duration::from_nanos(connect.rtt_ns);
        let to = with_port(address, connect.port);
        let one = |_| {
            let transport = connect.transport.clone();
            let knock = move || {
                std::thread::sleep(OPENING + rtt / 32);
                fullpipe_net::socket::connect(to, &transport, sends, JOIN)
            };
            std::thread::Builder::new().name("knock".into()).spawn(knock).ok()
        };
        let knocks: Option<Vec<_>> = (0..connect.transport.streams).map(one).collect();
        Some(Early { to, knocks: knocks? })
    }

    /// Those that lead there.
    fn leading(self, to: SocketAddr) -> Vec<Knock> {
        if self.to == to { self.knocks } else { Vec::new() }
    }
}

/// Connects all streams at once; one after the other would take n round trips and more.
pub(crate) fn connect(
    session: &Session,
    to: SocketAddr,
    transport: &Transport,
    sends: bool,
    guard: &Guard,
    token: &[u8; 32],
    early: Option<Early>,
) -> Result<Vec<Stream>, TransferError> {
    let one = |i: u16, knock: Option<Knock>| -> Result<Stream, TransferError> {
        let knocked = knock.and_then(|knock| knock.join().ok()).and_then(Result::ok);
        let connected = knocked.map_or_else(|| fullpipe_net::socket::connect(to, transport, sends, JOIN), Ok);
        let socket = connected.map_err(|e| match e {
            NetError::Connect { source, .. } => TransferError::Unreachable(format!(
                "cannot connect to {to} for the data: {source}; let its firewall pass the port, or name those that \
                 it passes with --data-ports"
            )),
            other => other.into(),
        })?;
        prepare(session, &socket)?;
        let shaken = guard.wrap(socket).and_then(|mut stream| {
            let mut preamble = [0; PREAMBLE];
            preamble[..32].copy_from_slice(token);
            preamble[32..].copy_from_slice(&i.to_le_bytes());
            stream.write_all(&preamble)?;
            stream.flush()?;
            stream.socket().set_read_timeout(None)?;
            Ok(stream)
        });
        shaken.map_err(|e| untrusted(session, e))
    };
    let mut knocks = early.map_or_else(Vec::new, |early| early.leading(to)).into_iter();
    std::thread::scope(|scope| {
        let start = |i| {
            let knock = knocks.next();
            std::thread::Builder::new().spawn_scoped(scope, move || one(i, knock))
        };
        let threads: Vec<_> = (0..transport.streams).map(start).collect();
        let failed = || TransferError::Unreachable("a connecting thread failed".into());
        let streams = threads.into_iter().map(|thread| {
            let thread = thread.map_err(system("starting a thread"))?;
            thread.join().unwrap_or_else(|_| Err(failed()))
        });
        streams.collect()
    })
}

fn untrusted(session: &Session, error: io::Error) -> TransferError {
    if error.kind() == io::ErrorKind::InvalidData {
        let why = format!("its data streams are not its own: {error}");
        return TransferError::Trust { peer: session.peer.clone(), why };
    }
    session.lost("connecting the streams", error)
}

fn prepare(session: &Session, socket: &TcpStream) -> Result<(), TransferError> {
    // The last part of a chunk must not wait for an acknowledgement (RFC 896).
    socket.set_nodelay(true).map_err(system("setting TCP_NODELAY"))?;
    socket.set_read_timeout(Some(JOIN)).map_err(system("setting a timeout"))?;
    session.cut_with(socket.try_clone().map_err(system("doubling a descriptor"))?);
    Ok(())
}

/// Waits for a session's streams. Whoever does not show the token is not of it, and is let go.
pub(crate) fn accept(
    session: &Session,
    listener: &TcpListener,
    n: u16,
    guard: &Guard,
    token: &[u8; 32],
) -> Result<Vec<Stream>, TransferError> {
    // Those that have not shown yet who they are.
    let mut callers = Vec::new();
    let joined = accept_all(session, listener, n, guard, token, &mut callers);
    for caller in callers.iter().flatten() {
        // Its thread waits for it; one that is gone needs no shutting down.
        let _ = caller.shutdown(Shutdown::Both);
    }
    let joined = joined?;
    for stream in &joined {
        session.cut_with(stream.socket().try_clone().map_err(system("doubling a descriptor"))?);
    }
    Ok(joined)
}

fn accept_all(
    session: &Session,
    listener: &TcpListener,
    n: u16,
    guard: &Guard,
    token: &[u8; 32],
    callers: &mut Vec<Option<TcpStream>>,
) -> Result<Vec<Stream>, TransferError> {
    let deadline = Instant::now() + JOIN;
    let (done, streams) = mpsc::channel();
    let mut joined: Vec<Option<Stream>> = (0..n).map(|_| None).collect();
    while joined.iter().any(Option::is_none) {
        let left = deadline.saturating_duration_since(Instant::now());
        if session.is_gone() {
            return Err(session.lost("waiting for the streams", io::ErrorKind::ConnectionAborted.into()));
        }
        if left.is_zero() || session.is_over() || callers.len() > 4 * usize::from(n) + 64 {
            let why = io::Error::new(io::ErrorKind::TimedOut, "not all came; is the data port open?");
            return Err(session.lost("waiting for the streams", why));
        }
        while let Ok((caller, i, stream)) = streams.try_recv() {
            callers[caller] = None;
            joined[usize::from(i)] = Some(stream);
        }
        let wait = left.min(Duration::from_millis(5)).as_nanos() as u64;
        if !sys::wait_readable([listener.as_fd()], wait).map_err(system("waiting for streams"))?[0] {
            continue;
        }
        let Ok((socket, _)) = listener.accept() else { continue };
        let (caller, done, guard, token) = (callers.len(), done.clone(), guard.clone(), *token);
        callers.push(Some(socket.try_clone().map_err(system("doubling a descriptor"))?));
        thread("caller", move || {
            if let Ok((i, stream)) = welcome(socket, &guard, &token)
                && i < n
            {
                // Nobody waits any more when all have come.
                let _ = done.send((caller, i, stream));
            }
        })?;
    }
    Ok(joined.into_iter().flatten().collect())
}

/// Hears who has called; gives the stream's number.
fn welcome(socket: TcpStream, guard: &Guard, token: &[u8; 32]) -> io::Result<(u16, Stream)> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(JOIN))?;
    let mut stream = guard.wrap(socket)?;
    let mut preamble = [0; PREAMBLE];
    stream.read_exact(&mut preamble)?;
    let (mut shown, mut i) = ([0; 32], [0; 2]);
    shown.copy_from_slice(&preamble[..32]);
    i.copy_from_slice(&preamble[32..]);
    // blake3's comparison takes the same time whatever differs.
    if blake3::Hash::from_bytes(shown) != blake3::Hash::from_bytes(*token) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.socket().set_read_timeout(None)?;
    Ok((u16::from_le_bytes(i), stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_of_whoever_shows_the_token() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let call = |token: [u8; 32], stream: u16| {
            let mut socket = TcpStream::connect(at).unwrap();
            socket.write_all(&[token.as_slice(), &stream.to_le_bytes()].concat()).unwrap();
            socket
        };
        // Another token, no such stream, too little said; and who is meant only when they have long been heard.
        let (wrong, beyond) = (call([8; 32], 0), call([7; 32], 1));
        let mut short = TcpStream::connect(at).unwrap();
        short.write_all(&[7; 32]).unwrap();
        let session = Session::new(String::new(), Box::new(io::sink()));
        let (joined, right) = std::thread::scope(|scope| {
            let right = scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(200));
                call([7; 32], 0)
            });
            (accept(&session, &listener, 1, &Guard::None, &[7; 32]).unwrap(), right.join().unwrap())
        });
        let peers: Vec<_> = joined.iter().map(|stream| stream.socket().peer_addr().unwrap()).collect();
        assert_eq!(peers, [right.local_addr().unwrap()]);
        // The others are let go.
        for mut other in [wrong, beyond, short] {
            other.set_read_timeout(Some(JOIN)).unwrap();
            assert!(!matches!(other.read(&mut [0]), Err(e) if e.kind() == io::ErrorKind::WouldBlock));
        }
    }
}
