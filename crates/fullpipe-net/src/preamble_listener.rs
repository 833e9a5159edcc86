//! Listens for one session's streams, and hands out only connections whose preamble has the session's token.
//!
//! Strangers may call the port too. It accepts connections and reads preambles without waiting for any single caller;
//! [`Callers`] decides which callers are kept.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{MsgFlags, recv};

use crate::callers::{CallerLimits, Callers, Verdict};
use crate::sys;

/// Most connections that the kernel holds until they are accepted: those of four seconds at 1,000 per second.
pub(crate) const BACKLOG: i32 = 4096;
/// Most callers of one session that have not shown the token. At 1,000 calls per second the oldest of them has had two
/// seconds. TCP sends a preamble that was lost once again within that time, even over long paths (RFC 6298, section 2).
const MAX_CALLERS: usize = 2048;
/// Least limit of such callers, for a process that may have few descriptors.
const MIN_CALLERS: usize = 64;
/// The callers of one session take at most this fraction (1/n) of the process's descriptors, so that files have some left.
const DESCRIPTOR_DIVISOR: u64 = 32;
/// Time within which a caller must have sent its preamble, ns. The preamble arrives with the handshake, or a few
/// retransmission timeouts later if it was lost twice.
const DEADLINE_NS: u64 = 5_000_000_000;
/// Pause after `accept` has failed and there was no caller to drop. Without it, the loop would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// Most events that one call takes from the kernel, and most connections that it accepts.
const BATCH: usize = 256;
/// Number of the listener among the events. Callers have numbers from 1.
const LISTENER: u64 = 0;

/// A listener and its callers.
pub struct PreambleListener<const N: usize> {
    listener: TcpListener,
    epoll: Epoll,
    callers: Callers<N>,
    sockets: BTreeMap<u64, TcpStream>,
}

impl<const N: usize> AsFd for PreambleListener<N> {
    /// The descriptor is readable when [`PreambleListener::accepted`] has something to do, except for callers whose time is
    /// over.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

/// Returns the limits for this process.
fn limits() -> CallerLimits {
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    let callers = usize::try_from(descriptors / DESCRIPTOR_DIVISOR).unwrap_or(MAX_CALLERS);
    CallerLimits { callers: callers.clamp(MIN_CALLERS, MAX_CALLERS), deadline_ns: DEADLINE_NS }
}

impl<const N: usize> PreambleListener<N> {
    /// Watches a listener. `peer` is the address of the session's control connection, where it is known: callers from
    /// there are dropped last.
    ///
    /// # Errors
    /// The kernel has no descriptors left.
    pub fn new(listener: &TcpListener, peer: Option<IpAddr>) -> io::Result<PreambleListener<N>> {
        let listener = listener.try_clone()?;
        listener.set_nonblocking(true)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        Ok(PreambleListener { listener, epoll, callers: Callers::new(limits(), peer), sockets: BTreeMap::new() })
    }

    /// Accepts callers and reads preambles, without waiting. Returns the connections that have shown the token since the last
    /// call, with their streams' numbers. `check` returns the number for a right preamble. Bytes after the preamble have not
    /// been read.
    ///
    /// # Errors
    /// The epoll descriptor fails. No caller can cause that.
    pub fn accepted(&mut self, check: &dyn Fn(&[u8; N]) -> Option<u16>) -> io::Result<Vec<(u16, TcpStream)>> {
        let now_ns = sys::now_ns();
        let mut events = [EpollEvent::empty(); BATCH];
        let n = match self.epoll.wait(&mut events, EpollTimeout::ZERO) {
            Err(Errno::EINTR) => 0,
            n => n?,
        };
        let mut come = Vec::new();
        // Callers that have sent something go first: a newcomer must not take their place.
        for number in events[..n].iter().map(EpollEvent::data).filter(|number| *number != LISTENER) {
            come.extend(self.hear(number, check));
        }
        for late in self.callers.late(now_ns) {
            self.sockets.remove(&late);
        }
        if events[..n].iter().any(|event| event.data() == LISTENER) {
            self.accept(now_ns, check, &mut come);
        }
        Ok(come)
    }

    fn accept(&mut self, now_ns: u64, check: &dyn Fn(&[u8; N]) -> Option<u16>, come: &mut Vec<(u16, TcpStream)>) {
        for _ in 0..BATCH {
            let (socket, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // The caller has gone, or its network has failed (accept(2)).
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => continue,
                Err(_) => {
                    // Most likely the process has too many open files: drop a caller.
                    let Some(victim) = self.callers.drop_for_room() else { return std::thread::sleep(ACCEPT_PAUSE) };
                    self.sockets.remove(&victim);
                    continue;
                }
            };
            let (number, victim) = self.callers.enter(from.ip(), now_ns);
            self.sockets.insert(number, socket);
            if let Some(victim) = victim {
                self.sockets.remove(&victim);
            }
            // Most often the preamble is there already.
            come.extend(self.hear(number, check));
            if let Some(socket) = self.sockets.get(&number) {
                let watched = self.epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, number));
                if watched.is_err() {
                    self.drop_caller(number);
                }
            }
        }
    }

    fn drop_caller(&mut self, number: u64) {
        self.callers.forget(number);
        self.sockets.remove(&number);
    }

    /// Reads what a caller has sent; returns its connection if that has shown the token.
    fn hear(&mut self, number: u64, check: &dyn Fn(&[u8; N]) -> Option<u16>) -> Option<(u16, TcpStream)> {
        let socket = self.sockets.get(&number)?;
        let mut bytes = [0; N];
        let lacks = self.callers.lacks(number).min(N);
        let verdict = match recv(socket.as_raw_fd(), &mut bytes[..lacks], MsgFlags::MSG_DONTWAIT) {
            Ok(0) => Verdict::Stranger,
            Ok(n) => self.callers.heard(number, &bytes[..n], check),
            Err(Errno::EAGAIN | Errno::EINTR) => Verdict::Incomplete,
            Err(_) => Verdict::Stranger,
        };
        match verdict {
            Verdict::Incomplete => None,
            Verdict::Stranger => {
                self.drop_caller(number);
                None
            }
            Verdict::Stream(stream) => {
                let socket = self.sockets.remove(&number)?;
                // A connection that arrived with its preamble is not watched.
                let _ = self.epoll.delete(&socket);
                Some((stream, socket))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Instant;

    use super::*;

    fn check(preamble: &[u8; 2]) -> Option<u16> {
        (preamble[1] == 7).then_some(u16::from(preamble[0]))
    }

    /// Waits for streams until so many have come.
    fn wait(door: &mut PreambleListener<2>, n: usize) -> Vec<(u16, TcpStream)> {
        let (mut all, began) = (Vec::new(), Instant::now());
        while all.len() < n {
            assert!(began.elapsed() < Duration::from_secs(10), "{} of {n} have come", all.len());
            sys::wait_readable([door.as_fd()], 100_000_000).unwrap();
            all.extend(door.accepted(&check).unwrap());
        }
        all
    }

    #[test]
    fn nobody_waits_for_one_that_says_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut door = PreambleListener::<2>::new(&listener, None).unwrap();
        let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(at).unwrap()).collect();
        let mut wrong = TcpStream::connect(at).unwrap();
        wrong.write_all(&[1, 8]).unwrap();
        let mut slow = TcpStream::connect(at).unwrap();
        slow.write_all(&[1]).unwrap();
        let mut right = TcpStream::connect(at).unwrap();
        right.write_all(&[2, 7, 9]).unwrap();
        let began = Instant::now();
        let come = wait(&mut door, 1);
        assert_eq!((come[0].0, come[0].1.peer_addr().unwrap()), (2, right.local_addr().unwrap()));
        slow.write_all(&[7]).unwrap();
        assert_eq!(wait(&mut door, 1)[0].0, 1);
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        // What follows the preamble is the stream's.
        let mut next = [0; 2];
        assert_eq!(come[0].1.peek(&mut next).unwrap(), 1);
        assert_eq!((next[0], door.sockets.len()), (9, silent.len()));
    }
}
