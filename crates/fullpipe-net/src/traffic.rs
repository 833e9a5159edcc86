//! The streams of one end, and the threads that move data through them.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use fullpipe_path::Workload;
use nix::sys::eventfd::EventFd;

use crate::side::Side;
use crate::sys;
use crate::tcp_info::TcpInfo;

/// Bytes of the memory file that the sender sends again and again.
const SOURCE: usize = 4 << 20;
/// The most that one call discards; any large number, since nothing is stored.
const READ: usize = 1 << 30;

/// The streams of one end.
pub(crate) struct Streams {
    sockets: Vec<TcpStream>,
    /// Bytes on each stream, in the data's direction, that are not data: the preamble, and the SYN
    /// that the kernel counts as an acknowledged byte of the end that connected.
    skip: u64,
    /// Bytes of each stream, where the workload says.
    shares: Vec<Option<u64>>,
    arrivals: Vec<Arrivals>,
    stopped: Mutex<bool>,
    wake: Condvar,
    broken: Mutex<Option<io::Error>>,
    /// Written whenever a stream's first byte comes, ends or fails.
    pub(crate) event: EventFd,
}

/// What one receiving stream has seen; instants of `CLOCK_MONOTONIC`, zero where there were none.
#[derive(Default)]
struct Arrivals {
    first_ns: AtomicU64,
    last_ns: AtomicU64,
    bytes: AtomicU64,
}

impl Streams {
    pub(crate) fn new(sockets: Vec<TcpStream>, workload: Workload, skip: u64) -> io::Result<Streams> {
        let n = sockets.len();
        Ok(Streams {
            skip,
            shares: (0..n).map(|i| workload.share(i as u16, n as u16)).collect(),
            arrivals: (0..n).map(|_| Arrivals::default()).collect(),
            stopped: Mutex::new(false),
            wake: Condvar::new(),
            broken: Mutex::new(None),
            event: EventFd::new()?,
            sockets,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.sockets.len()
    }

    pub(crate) fn socket(&self, i: usize) -> &TcpStream {
        &self.sockets[i]
    }

    /// The kernel's view of a stream, and the bytes that count as goodput so far: read by the
    /// application, or acknowledged by the other end.
    pub(crate) fn observe(&self, i: usize, end: Side) -> io::Result<(TcpInfo, u64)> {
        let fd = self.sockets[i].as_fd();
        let info = TcpInfo::read(fd)?;
        let all = match end {
            Side::Sender => info.get("bytes_acked").unwrap_or(0),
            Side::Receiver => info.get("bytes_received").unwrap_or(0).saturating_sub(sys::unread(fd).unwrap_or(0)),
        };
        // A closing FIN counts as a byte too, hence the bound.
        Ok((info, all.saturating_sub(self.skip).min(self.shares[i].unwrap_or(u64::MAX))))
    }

    /// Waits until an instant, or until the streams are stopped, whichever comes first; says whether
    /// they were.
    pub(crate) fn stopped_before(&self, at_ns: u64) -> bool {
        let Ok(mut stopped) = self.stopped.lock() else { return true };
        while !*stopped {
            let now = sys::now_ns();
            if now >= at_ns {
                return false;
            }
            match self.wake.wait_timeout(stopped, Duration::from_nanos(at_ns - now)) {
                Ok((guard, _)) => stopped = guard,
                Err(_) => return true,
            }
        }
        true
    }

    /// Ends every thread: what has not been sent or read by now will not be.
    pub(crate) fn stop(&self) {
        if let Ok(mut stopped) = self.stopped.lock() {
            *stopped = true;
        }
        self.wake.notify_all();
        for socket in &self.sockets {
            // One that is closed already needs no shutting down.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.lock().map_or(true, |stopped| *stopped)
    }

    fn signal(&self) {
        // Fails only at 2^64 - 1 unread events.
        let _ = self.event.write(1);
    }

    /// Why the first stream that broke did so, once.
    pub(crate) fn take_broken(&self) -> Option<io::Error> {
        self.broken.lock().ok()?.take()
    }

    fn break_with(&self, error: io::Error) {
        if self.is_stopped() {
            return;
        }
        if let Ok(mut broken) = self.broken.lock() {
            broken.get_or_insert(error);
        }
        self.signal();
    }

    /// Sends stream `i`'s share, or until stopped, starting at an instant.
    pub(crate) fn send(&self, i: usize, source: &OwnedFd, start_ns: u64) {
        if self.stopped_before(start_ns) {
            return;
        }
        let socket = &self.sockets[i];
        let mut left = self.shares[i].unwrap_or(u64::MAX);
        while left > 0 {
            match sys::send_from(socket.as_fd(), source.as_fd(), left.min(SOURCE as u64) as usize) {
                Ok(n) => left = left.saturating_sub(n as u64),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.break_with(error),
            }
        }
    }

    /// Receives stream `i`'s share, or until stopped.
    pub(crate) fn receive(&self, i: usize) {
        let socket = self.sockets[i].as_fd();
        let seen = &self.arrivals[i];
        let share = self.shares[i].unwrap_or(u64::MAX);
        let mut got = 0;
        while got < share {
            // The first read returns with the first byte, to see when it came.
            let most = (share - got).min(READ as u64) as usize;
            match sys::discard(socket, most, got > 0) {
                Ok(0) => return self.break_with(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    let now = sys::now_ns();
                    if got == 0 {
                        seen.first_ns.store(now, Ordering::Release);
                        self.signal();
                    }
                    got += n as u64;
                    seen.bytes.store(got, Ordering::Release);
                    seen.last_ns.store(now, Ordering::Release);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.break_with(error),
            }
        }
        self.signal();
    }

    /// When the first byte of any stream came, if one has.
    pub(crate) fn first_arrival_ns(&self) -> Option<u64> {
        self.arrivals.iter().map(|a| a.first_ns.load(Ordering::Acquire)).filter(|&t| t > 0).min()
    }

    /// Whether every stream has received its share.
    pub(crate) fn complete(&self) -> bool {
        self.shares
            .iter()
            .zip(&self.arrivals)
            .all(|(share, seen)| share.is_some_and(|share| seen.bytes.load(Ordering::Acquire) >= share))
    }

    /// Bytes, first and last arrival of stream `i`.
    pub(crate) fn received(&self, i: usize) -> (u64, u64, u64) {
        let seen = &self.arrivals[i];
        (
            seen.bytes.load(Ordering::Acquire),
            seen.first_ns.load(Ordering::Acquire),
            seen.last_ns.load(Ordering::Acquire),
        )
    }
}

/// The memory file that a sender sends.
pub(crate) fn source() -> io::Result<OwnedFd> {
    sys::random_memory_file(SOURCE)
}
