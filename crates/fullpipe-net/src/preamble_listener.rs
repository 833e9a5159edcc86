//! A listener for one session's streams, to which strangers may call too.
//!
//! Accepts and reads preambles without waiting for any single caller. [`Callers`] decides whom to keep.

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

/// Connections that the kernel holds until they are accepted: at 1,000 a second, those of four seconds.
pub(crate) const BACKLOG: i32 = 4096;
/// Most callers of one session that have not shown the token. At 1,000 calls a second the oldest of them has had two
/// seconds, in which a preamble that was lost once is sent again, even over long paths (RFC 6298, section 2).
const MOST_CALLERS: usize = 2048;
/// Least such callers where a process may have few descriptors.
const FEWEST_CALLERS: usize = 64;
/// All sessions' callers together must leave descriptors for files: one session has one of so many parts.
const PART_OF_DESCRIPTORS: u64 = 32;
/// Time in which a caller must have sent its preamble, nanoseconds. It comes with the handshake, or, lost twice, some
/// retransmission timeouts later.
const DEADLINE_NS: u64 = 5_000_000_000;
/// Pause after `accept` has failed where dropping a caller did not help: else its caller would spin.
const PAUSE: Duration = Duration::from_millis(10);
/// Events that one call takes from the kernel, and connections that it accepts.
const BATCH: usize = 256;
/// The listener's number among the events; callers have numbers from 1.
const LISTENER: u64 = 0;

/// A listener and those that call it.
pub struct PreambleListener<const N: usize> {
    listener: TcpListener,
    epoll: Epoll,
    callers: Callers<N>,
    sockets: BTreeMap<u64, TcpStream>,
}

impl<const N: usize> AsFd for PreambleListener<N> {
    /// Readable when [`PreambleListener::come`] has something to do, but for callers whose time is over.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

/// The limits for this process.
fn limits() -> CallerLimits {
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    let callers = usize::try_from(descriptors / PART_OF_DESCRIPTORS).unwrap_or(MOST_CALLERS);
    CallerLimits { callers: callers.clamp(FEWEST_CALLERS, MOST_CALLERS), deadline_ns: DEADLINE_NS }
}

impl<const N: usize> PreambleListener<N> {
    /// Watches a listener. `peer` is the address of the session's control connection, where it is known: callers from
    /// there are dropped last.
    ///
    /// # Errors
    /// The kernel has no epoll descriptor to give, or the listener's cannot be doubled.
    pub fn new(listener: &TcpListener, peer: Option<IpAddr>) -> io::Result<PreambleListener<N>> {
        let listener = listener.try_clone()?;
        listener.set_nonblocking(true)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        Ok(PreambleListener { listener, epoll, callers: Callers::new(limits(), peer), sockets: BTreeMap::new() })
    }

    /// Does what there is to do, without waiting: gives the connections that have shown the token since the last call,
    /// with their streams' numbers. `check` gives the number for a right preamble. Nothing after the preamble has been
    /// read from them.
    ///
    /// # Errors
    /// The epoll descriptor's. No caller causes any.
    pub fn come(&mut self, check: &dyn Fn(&[u8; N]) -> Option<u16>) -> io::Result<Vec<(u16, TcpStream)>> {
        let now_ns = sys::now_ns();
        let mut events = [EpollEvent::empty(); BATCH];
        let n = match self.epoll.wait(&mut events, EpollTimeout::ZERO) {
            Err(Errno::EINTR) => 0,
            n => n?,
        };
        let mut come = Vec::new();
        // Those that have sent something go first: a newcomer must not take their place.
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
                    // Too many open files most likely. Whom this process can spare goes.
                    let Some(victim) = self.callers.recycle() else { return std::thread::sleep(PAUSE) };
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

    /// Reads what a caller has sent; gives its connection once that has shown the token.
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
                // One that came with its preamble has not been watched.
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
            all.extend(door.come(&check).unwrap());
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
