//! Opens the data streams of a copy, once the two ends have a control connection.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fullpipe_net::stream::{Acceptor, DataStream, Expected, StreamHandle};
use fullpipe_net::sys;
use fullpipe_path::text;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::connection::session::Session;
use crate::connection::stream::{Protection, Stream};
use crate::connection::tls;
use crate::error::{self, TransferError, system};
use crate::protocol::hello::{Hello, Limits, MAGIC, PROTOCOL};
use crate::protocol::preamble::{PREAMBLE, numbered, preamble};
use crate::threads::thread;

/// Version of this program.
pub(crate) const PROGRAM: &str = env!("CARGO_PKG_VERSION");
/// Time limit for all streams to connect.
pub(crate) const JOIN: Duration = Duration::from_secs(30);
/// Maximum interval between checks, while waiting for streams, whether the session is over.
const LOOK: Duration = Duration::from_millis(100);

/// Makes this end's greeting.
pub(crate) fn hello() -> Hello {
    let (ccs, send, receive) = fullpipe_net::socket::limits();
    let (tuned_send, tuned_receive) = fullpipe_net::socket::tuned();
    let udp_receive = fullpipe_net::stream::udt::udp_buffer();
    Hello {
        magic: MAGIC,
        protocol: PROTOCOL,
        program: PROGRAM.into(),
        limits: Limits { ccs, send, receive, udp_receive, tuned_send, tuned_receive },
    }
}

/// Checks the other end's greeting and returns its limits.
pub(crate) fn greet(peer: &str, hello: Hello) -> Result<Limits, TransferError> {
    if hello.magic != MAGIC {
        return Err(TransferError::Stranger { peer: peer.into(), why: "its first words are no greeting".into() });
    }
    if hello.protocol != PROTOCOL {
        let theirs = format!("{} (protocol {})", text::from_peer(&hello.program), hello.protocol);
        let ours = format!("{PROGRAM} (protocol {PROTOCOL})");
        return Err(TransferError::Version { peer: peer.into(), theirs, ours });
    }
    Ok(hello.limits)
}

/// Time between the starts of two streams' handshakes in TLS, from the fifth on. Each sends about 1.5 kB at once: those of 64 streams
/// together would overflow a short queue, and TCP begins again only after a second.
const HANDSHAKE_SPACING: Duration = Duration::from_micros(200);
/// Streams whose handshakes begin at once.
const AT_ONCE: u16 = 4;

/// Opens `n` streams, none waits for another: one after the other, they would take at least as many round trips. `open` opens a
/// connection to the far end's data port.
pub(crate) fn connect(
    session: &Session,
    n: u16,
    open: &(dyn Fn() -> Result<Box<dyn DataStream>, TransferError> + Sync),
    guard: &Protection,
    token: &[u8; 32],
) -> Result<Vec<Stream>, TransferError> {
    let one = |i: u16| -> Result<Stream, TransferError> {
        let stream = open()?;
        stream.handle().set_read_timeout(Some(JOIN)).map_err(system("setting a timeout"))?;
        session.cut_with(stream.handle());
        join_as(stream, i, guard, token).map_err(|e| untrusted(session, e))
    };
    std::thread::scope(|scope| {
        let start = |i| {
            if i >= AT_ONCE && !matches!(guard, Protection::None) {
                std::thread::sleep(HANDSHAKE_SPACING);
            }
            std::thread::Builder::new().spawn_scoped(scope, move || one(i))
        };
        let threads: Vec<_> = (0..n).map(start).collect();
        let failed = || TransferError::Unreachable("a connecting thread failed".into());
        let streams = threads.into_iter().map(|thread| {
            let thread = thread.map_err(system("starting a thread"))?;
            thread.join().unwrap_or_else(|_| Err(failed()))
        });
        streams.collect()
    })
}

/// Joins a connection to the session as stream number `i`.
fn join_as(mut inner: Box<dyn DataStream>, i: u16, guard: &Protection, token: &[u8; 32]) -> io::Result<Stream> {
    inner.write_all(&preamble(token, i))?;
    inner.flush()?;
    let mut stream = guard.wrap(inner)?;
    if !matches!(guard, Protection::None) {
        let mut proof = [0; PREAMBLE];
        proof[..32].copy_from_slice(token);
        proof[32..].copy_from_slice(&i.to_le_bytes());
        stream.write_all(&proof)?;
        stream.flush()?;
    }
    stream.handle().set_read_timeout(None)?;
    Ok(stream)
}

fn untrusted(session: &Session, error: io::Error) -> TransferError {
    if tls::objection(&error).is_some() {
        let why = format!("its data streams are not its own: {error}");
        return TransferError::Trust { peer: session.peer.clone(), why };
    }
    session.lost(error::CONNECTING, error)
}

/// The state of one expected stream of a session.
enum Seat {
    /// No connection has shown this stream's tag.
    Free,
    /// A connection with the right tag is in its handshake. Further connections with the same tag are dropped, since they
    /// must have copied it.
    Taken(Arc<dyn StreamHandle>),
    /// The stream has joined.
    Joined(Stream),
}

/// What the acceptor of a session's `n` streams is opened with.
pub(crate) fn expected(session: &Session, ports: (u16, u16), n: u16, token: [u8; 32]) -> Expected<PREAMBLE> {
    let check = move |shown: &[u8; PREAMBLE]| numbered(shown, &token).filter(|i| *i < n);
    Expected { ports, peer: session.address(), check: Box::new(check) }
}

/// Waits for a session's streams, for `patience`. A connection that does not show the token is dropped and does no harm: only
/// the time limit and the loss of the client end the waiting early. The port closes at the end.
pub(crate) fn accept(
    session: &Session,
    mut acceptor: Box<dyn Acceptor>,
    n: u16,
    (guard, token): (&Protection, &[u8; 32]),
    patience: Duration,
) -> Result<Vec<Stream>, TransferError> {
    let mut seats: Vec<Seat> = (0..n).map(|_| Seat::Free).collect();
    let waited = fill(session, &mut *acceptor, (guard, token), &mut seats, Instant::now() + patience);
    let mut joined = Vec::new();
    for seat in seats {
        match seat {
            Seat::Free => {}
            // This ends the thread of the handshake.
            Seat::Taken(handle) => handle.close(),
            Seat::Joined(stream) => joined.push(stream),
        }
    }
    waited?;
    for stream in &joined {
        session.cut_with(stream.handle());
    }
    Ok(joined)
}

fn fill(
    session: &Session,
    acceptor: &mut dyn Acceptor,
    (guard, token): (&Protection, &[u8; 32]),
    seats: &mut [Seat],
    deadline: Instant,
) -> Result<(), TransferError> {
    let (done, shaken) = mpsc::channel();
    let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(nix_error)?);
    while !seats.iter().all(|seat| matches!(seat, Seat::Joined(_))) {
        let left = deadline.saturating_duration_since(Instant::now());
        if session.is_gone() {
            let why = "the client has gone before all had come; does a firewall drop them?";
            return Err(session.lost("waiting for the streams", io::Error::new(io::ErrorKind::ConnectionAborted, why)));
        }
        if left.is_zero() || session.is_over() {
            let why = io::Error::new(io::ErrorKind::TimedOut, "not all came");
            return Err(session.lost("waiting for the streams", why));
        }
        let ready = sys::wait_readable([acceptor.as_fd(), wake.as_fd()], left.min(LOOK).as_nanos() as u64);
        if ready.map_err(system("waiting for streams"))?[1] {
            // Resets the event. How often it was signalled does not matter.
            let _ = wake.read();
        }
        while let Ok((i, stream)) = shaken.try_recv() {
            seats[usize::from(i)] = Option::map_or(stream, Seat::Free, Seat::Joined);
        }
        for (i, stream) in acceptor.accepted().map_err(system("waiting for streams"))? {
            // One that came for another request may have a number that this one lacks.
            let Some(seat) = seats.get_mut(usize::from(i)).filter(|seat| matches!(seat, Seat::Free)) else { continue };
            // The handshake has a thread of its own, since it may block. There is at most one for each stream.
            *seat = Seat::Taken(stream.handle());
            let (done, guard, token, wake) = (done.clone(), guard.clone(), *token, wake.clone());
            thread("caller", move || {
                let stream = welcome(stream, i, &guard, &token).ok();
                // This fails if the waiting is over, and then the stream is not needed.
                let _ = done.send((i, stream));
                let _ = wake.write(1);
            })?;
        }
    }
    Ok(())
}

fn nix_error(error: nix::errno::Errno) -> TransferError {
    system("opening an eventfd")(error.into())
}

/// Performs the handshake with a caller whose tag is right, and checks the token that it shows inside TLS.
fn welcome(inner: Box<dyn DataStream>, i: u16, guard: &Protection, token: &[u8; 32]) -> io::Result<Stream> {
    inner.handle().set_read_timeout(Some(JOIN))?;
    let mut stream = guard.wrap(inner)?;
    if !matches!(guard, Protection::None) {
        let mut proof = [0; PREAMBLE];
        stream.read_exact(&mut proof)?;
        let mut shown = [0; 32];
        shown.copy_from_slice(&proof[..32]);
        // blake3 compares hashes in constant time.
        let right = blake3::Hash::from_bytes(shown) == blake3::Hash::from_bytes(*token);
        if !right || proof[32..] != i.to_le_bytes() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
    }
    stream.handle().set_read_timeout(None)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};

    use fullpipe_net::local_end;
    use fullpipe_net::stream::open;
    use fullpipe_net::stream::tcp::{TcpAcceptor, TcpDataStream};
    use fullpipe_path::{Buffer, Transport};

    use super::*;
    use crate::connection::tls::{self, Identity};

    const TOKEN: [u8; 32] = [7; 32];

    fn session() -> Arc<Session> {
        Session::new(String::new(), Box::new(io::sink()))
    }

    /// Waits on loopback for so many streams; with the port's address.
    fn acceptor(n: u16) -> (Box<dyn Acceptor>, SocketAddr) {
        let transport =
            Transport { cc: "cubic".into(), streams: n, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None };
        let expected = expected(&session(), (0, 0), n, TOKEN);
        let acceptor = TcpAcceptor::new(([127, 0, 0, 1], 0).into(), &transport, false, expected).unwrap();
        let at = acceptor.address().unwrap();
        (Box::new(acceptor), at)
    }

    fn call(at: SocketAddr, bytes: &[u8]) -> TcpStream {
        let mut socket = TcpStream::connect(at).unwrap();
        socket.write_all(bytes).unwrap();
        socket
    }

    fn peers(streams: &[Stream]) -> Vec<SocketAddr> {
        streams.iter().map(|stream| stream.handle().peer_address().unwrap()).collect()
    }

    fn is_let_go(mut socket: TcpStream) -> bool {
        socket.set_read_timeout(Some(JOIN)).unwrap();
        !matches!(socket.read(&mut [0]), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }

    #[test]
    fn a_stream_is_of_whoever_shows_the_token() {
        let (acceptor, at) = acceptor(1);
        // Three strangers: another token, a stream number that is too high, a tag that is cut short. The right one comes later.
        let mut others = vec![call(at, &preamble(&[8; 32], 0)), call(at, &preamble(&TOKEN, 1))];
        others.push(call(at, &preamble(&TOKEN, 0)[..33]));
        let (joined, right) = std::thread::scope(|scope| {
            let right = scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(200));
                call(at, &preamble(&TOKEN, 0))
            });
            (accept(&session(), acceptor, 1, (&Protection::None, &TOKEN), JOIN).unwrap(), right.join().unwrap())
        });
        assert_eq!(peers(&joined), [right.local_addr().unwrap()]);
        assert!(others.into_iter().all(is_let_go));
    }

    /// Over UDT: strangers with nonsense, with another token, with a number that is too high, and one that says nothing.
    #[test]
    fn strangers_over_udt_are_no_streams() {
        let transport =
            Transport { cc: "udt".into(), streams: 2, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None };
        let wait = Duration::from_secs(10);
        let identity = Identity::new().unwrap();
        let (server, client) = (identity.server().unwrap(), tls::client(identity.fingerprint()).unwrap());
        let acceptor =
            open::acceptor(([127, 0, 0, 1], 0).into(), &transport, false, expected(&session(), (0, 0), 2, TOKEN));
        let acceptor = acceptor.unwrap();
        let at = acceptor.address().unwrap();
        let call = || open::connector(at, &local_end::ANY, &transport, true).connect(wait).unwrap();
        let (joined, ours, mut others) = std::thread::scope(|scope| {
            let calling = scope.spawn(|| {
                let nonsense = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                (0..100u8).for_each(|i| drop(nonsense.send_to(&[i; 64], at)));
                let mut others = vec![call()];
                for shown in [preamble(&[8; 32], 0), preamble(&TOKEN, 2)] {
                    let mut stranger = call();
                    stranger.write_all(&shown).and_then(|()| stranger.flush()).unwrap();
                    others.push(stranger);
                }
                let ours = [0, 1].map(|i| join_as(call(), i, &Protection::Client(client.clone()), &TOKEN).unwrap());
                (ours, others)
            });
            let joined = accept(&session(), acceptor, 2, (&Protection::Server(server), &TOKEN), wait).unwrap();
            let (ours, others) = calling.join().unwrap();
            (joined, ours, others)
        });
        assert_eq!(peers(&joined), ours.each_ref().map(|stream| stream.handle().local_address().unwrap()));
        for stranger in &mut others {
            stranger.handle().set_read_timeout(Some(wait)).unwrap();
            let read = stranger.read(&mut [0]);
            assert!(!matches!(&read, Err(e) if e.kind() == io::ErrorKind::WouldBlock), "{read:?}");
        }
    }

    /// More callers than any limit, some silent, some with nonsense, before the only one with the token.
    #[test]
    fn strangers_cost_a_session_nothing() {
        let identity = Identity::new().unwrap();
        let (server, client) = (identity.server().unwrap(), tls::client(identity.fingerprint()).unwrap());
        let (acceptor, at) = acceptor(2);
        let ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut all = std::collections::VecDeque::new();
                for i in 0.. {
                    if ended.load(std::sync::atomic::Ordering::SeqCst) {
                        break;
                    }
                    // A stranger that has been dropped cannot write.
                    if let Ok(mut socket) = TcpStream::connect(at) {
                        let _ = socket.write_all(&vec![0x16; i % 40]);
                        all.push_back(socket);
                    }
                    std::thread::sleep(Duration::from_micros(300));
                    if all.len() > 300 {
                        all.pop_front();
                    }
                }
            });
            let right = scope.spawn(|| {
                std::thread::sleep(Duration::from_secs(1));
                let stream = |i| {
                    let socket = TcpStream::connect(at).unwrap();
                    join_as(TcpDataStream::boxed(socket), i, &Protection::Client(client.clone()), &TOKEN).unwrap()
                };
                [stream(0), stream(1)]
            });
            let joined = accept(&session(), acceptor, 2, (&Protection::Server(server), &TOKEN), JOIN);
            ended.store(true, std::sync::atomic::Ordering::SeqCst);
            let right = right.join().unwrap();
            assert_eq!(peers(&joined.unwrap()), right.map(|stream| stream.handle().local_address().unwrap()));
        });
    }

    /// The tag can be seen on the path and sent again: it takes no place, and does not suffice inside TLS.
    #[test]
    fn a_tag_that_was_copied_joins_nothing() {
        let identity = Identity::new().unwrap();
        let (server, client) = (identity.server().unwrap(), tls::client(identity.fingerprint()).unwrap());
        let (acceptor, at) = acceptor(1);
        let socket = TcpStream::connect(at).unwrap();
        let ours = socket.local_addr().unwrap();
        let (joined, _ours) = std::thread::scope(|scope| {
            let guard = Protection::Client(client);
            let calling = scope.spawn(move || {
                // Shakes hands, and has no token to show.
                let mut thief = TcpStream::connect(at).unwrap();
                thief.write_all(&preamble(&TOKEN, 0)).unwrap();
                let mut thief = guard.wrap(TcpDataStream::new(thief)).unwrap();
                thief.write_all(&[0; PREAMBLE]).unwrap();
                let _ = thief.read(&mut [0]);
                std::thread::sleep(Duration::from_millis(200));
                join_as(TcpDataStream::boxed(socket), 0, &guard, &TOKEN).unwrap()
            });
            let joined = accept(&session(), acceptor, 1, (&Protection::Server(server), &TOKEN), JOIN).unwrap();
            (joined, calling.join().unwrap())
        });
        assert_eq!(peers(&joined), [ours]);
    }
}
