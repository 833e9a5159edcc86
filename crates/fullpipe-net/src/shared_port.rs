//! One port for everything: data streams that arrive at the server's own port, among the control connections.
//!
//! Such a stream begins with [`MARK`], the length of its preamble (one byte), and the preamble of its session. The server
//! knows the preambles that its sessions expect, and hands a stream that shows one of them to the process of that session.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

use crate::Denial;
use crate::admission::{Admission, ExpectedStreams};
use crate::callers::Network;

/// First byte of a data stream at the server's own port. It differs from all other first bytes
/// ([`crate::preface::MARK`]).
pub const MARK: u8 = 0xf2;
/// The port that a server names for its streams if they are to come to the port of the control connection. The server does
/// not name that one itself, since the client may have reached it through a forwarded port.
pub const SAME_PORT: u16 = 0;
/// Bytes before the preamble of a stream to the server's own port.
pub const HEAD: usize = 2;
/// Longest preamble, bytes.
const MAX_PREAMBLE: usize = 64;
/// Time for which the streams of a session are handed over. A session waits less long for them.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Longest time to wait for room on the way to a session's process.
const HAND_OVER: Duration = Duration::from_secs(5);

/// Returns the bytes before a preamble of this length.
#[must_use]
pub fn head(preamble_bytes: usize) -> [u8; HEAD] {
    // No preamble is longer than `MAX_PREAMBLE`.
    [MARK, preamble_bytes as u8]
}

/// The server's own port, as the code that serves one client sees it. The server may be another process.
pub trait SharedStreams {
    /// Has the streams with these preambles handed over: each comes through the returned channel ([`receive`]), with the
    /// position of its preamble. A second call replaces the first.
    ///
    /// # Errors
    /// The client may not have streams yet, or the server has gone.
    fn expect(&self, preambles: Vec<Vec<u8>>) -> Result<UnixStream, Denial>;
}

/// What a session expects.
struct Session {
    preambles: Vec<Vec<u8>>,
    until: Instant,
    line: Arc<UnixStream>,
}

/// The sessions that expect streams, by number, and the last number.
type Sessions = Arc<Mutex<(u64, BTreeMap<u64, Session>)>>;

/// The streams that are expected at a server's own port. Clones are the same port.
#[derive(Clone)]
pub struct SharedPort {
    sessions: Sessions,
    admission: Admission,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedPort {
    pub(crate) fn new(admission: Admission) -> SharedPort {
        SharedPort { sessions: Arc::default(), admission }
    }

    /// Has the streams with these preambles handed over through `line`, until what is returned is dropped. Strangers cannot
    /// crowd out connections from the network of `from` meanwhile, except strangers from there.
    ///
    /// # Errors
    /// The time limit of the line cannot be set.
    pub fn expect(&self, from: IpAddr, preambles: Vec<Vec<u8>>, line: UnixStream) -> io::Result<Expectation> {
        line.set_write_timeout(Some(HAND_OVER))?;
        let streams = self.admission.expect(Network::from(from), preambles.len());
        let session = Session { preambles, until: Instant::now() + MAX_WAIT, line: Arc::new(line) };
        let mut all = lock(&self.sessions);
        all.0 += 1;
        let number = all.0;
        all.1.insert(number, session);
        Ok(Expectation { sessions: self.sessions.clone(), number, _streams: streams })
    }

    /// Reads the beginning of a stream, whose first byte is [`MARK`], and hands the stream to its session.
    ///
    /// # Errors
    /// The connection's, or its session's; no session expects the stream.
    pub(crate) fn hand_over(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut head = [0; HEAD];
        stream.read_exact(&mut head)?;
        let len = Some(usize::from(head[1])).filter(|len| *len <= MAX_PREAMBLE);
        let mut preamble = vec![0; len.ok_or(io::ErrorKind::NotFound)?];
        stream.read_exact(&mut preamble)?;
        let (position, line) = self.session(&preamble).ok_or(io::ErrorKind::NotFound)?;
        stream.set_read_timeout(None)?;
        send(&line, position, &stream)
    }

    /// Returns the session that expects a preamble, and the preamble's position. All are compared, each in whole, so that the time
    /// does not reveal how much of one is right.
    fn session(&self, shown: &[u8]) -> Option<(u16, Arc<UnixStream>)> {
        let mut all = lock(&self.sessions);
        let now = Instant::now();
        all.1.retain(|_, session| session.until > now);
        let mut found = None;
        for session in all.1.values() {
            for (expected, position) in session.preambles.iter().zip(0..=u16::MAX) {
                let differs = expected.iter().zip(shown).fold(0, |all, (a, b)| all | (a ^ b));
                if differs == 0 && expected.len() == shown.len() {
                    found = Some((position, session.line.clone()));
                }
            }
        }
        found
    }
}

/// Streams that are handed over, until this is dropped.
pub struct Expectation {
    sessions: Sessions,
    number: u64,
    _streams: ExpectedStreams,
}

impl Drop for Expectation {
    fn drop(&mut self) {
        lock(&self.sessions).1.remove(&self.number);
    }
}

/// Hands a stream over (`unix(7)`, SCM_RIGHTS), with the position of its preamble.
fn send(line: &UnixStream, position: u16, stream: &TcpStream) -> io::Result<()> {
    let (bytes, fds) = (position.to_le_bytes(), [stream.as_raw_fd()]);
    let parts = [IoSlice::new(&bytes)];
    sendmsg::<()>(line.as_raw_fd(), &parts, &[ControlMessage::ScmRights(&fds)], MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// Receives a stream that has been handed over, with the position of its preamble. Returns `None` if none has come yet.
///
/// # Errors
/// The channel's; the server has gone.
pub fn receive(line: &UnixStream) -> io::Result<Option<(u16, TcpStream)>> {
    let mut space = nix::cmsg_space!([RawFd; 1]);
    let mut bytes = [0; 2];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let received = match recvmsg::<()>(line.as_raw_fd(), &mut parts, Some(&mut space), flags) {
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return Ok(None),
        received => received?,
    };
    let mut stream = None;
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = message {
            // SAFETY: the kernel has just made these descriptors for this process, and nobody else knows them (unix(7)).
            stream = raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).next();
        }
    }
    match stream {
        Some(stream) => Ok(Some((u16::from_le_bytes(bytes), stream.into()))),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn a_stream_goes_to_the_session_that_expects_it_and_to_no_other() {
        let port = SharedPort::new(Admission::default());
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (others, _others_end) = UnixStream::pair().unwrap();
        let from = IpAddr::from([127, 0, 0, 1]);
        let _other = port.expect(from, vec![vec![1; 20]], others).unwrap();
        let expectation = port.expect(from, vec![vec![7; 34], vec![8; 34]], ours).unwrap();
        let call = |preamble: &[u8]| {
            let (mut client, server) = pair();
            client.write_all(&head(preamble.len())).unwrap();
            client.write_all(preamble).unwrap();
            client.write_all(b"data").unwrap();
            (port.hand_over(server).map_err(|e| e.kind()), client)
        };
        assert_eq!(call(&[9; 34]).0, Err(io::ErrorKind::NotFound));
        assert_eq!(call(&[8; 33]).0, Err(io::ErrorKind::NotFound), "the beginning of a preamble");
        assert_eq!(call(&[]).0, Err(io::ErrorKind::NotFound));
        assert_eq!(call(&[8; 200]).0, Err(io::ErrorKind::NotFound));
        assert!(receive(&theirs).unwrap().is_none());
        let (handed, client) = call(&[8; 34]);
        assert_eq!(handed, Ok(()));
        let (position, mut stream) = receive(&theirs).unwrap().unwrap();
        assert_eq!((position, stream.peer_addr().unwrap()), (1, client.local_addr().unwrap()));
        let mut data = [0; 4];
        stream.read_exact(&mut data).unwrap();
        assert_eq!(&data, b"data");
        drop(expectation);
        assert_eq!(call(&[8; 34]).0, Err(io::ErrorKind::NotFound), "the session is over");
    }
}
