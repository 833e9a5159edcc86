//! Sets what the controller decides: the receiver's window, the sender's pacing rate, and a new slow start.

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fullpipe_net::sys;

use crate::protocol::sizing::BBR;
use crate::threads::lock;

/// A limit of all streams together, shared among the streams that have something to move. Near the end of a transfer some
/// streams are idle, and an equal share for them would be lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Shared {
    limit: Option<u64>,
    /// Number of streams that have something to move; zero counts as all.
    busy: usize,
}

impl Shared {
    /// The share of one stream.
    fn each(self, streams: usize) -> Option<u64> {
        let among = if self.busy == 0 { streams } else { self.busy.min(streams) };
        self.limit.map(|limit| limit / among.max(1) as u64)
    }
}

/// The receiver's windows, set by `TCP_WINDOW_CLAMP`. If the kernel tunes the buffer, it moves the clamp too
/// (`tcp_rcv_space_adjust`), so the clamp has to be checked from time to time.
#[derive(Default)]
pub(super) struct Windows {
    shared: Shared,
}

impl Windows {
    /// Limits all windows together to `total` bytes; with `None` only the buffers limit them.
    pub fn set(&mut self, sockets: &[TcpStream], total: Option<u64>) {
        self.shared.limit = total;
        self.apply(sockets);
    }

    /// Shares the limit among this number of busy streams.
    pub fn busy(&mut self, sockets: &[TcpStream], busy: usize) {
        let before = self.shared.each(sockets.len());
        self.shared.busy = busy;
        if self.shared.each(sockets.len()) != before {
            self.apply(sockets);
        }
    }

    fn each(&self, sockets: &[TcpStream]) -> Option<i32> {
        self.shared.each(sockets.len()).map(|each| i32::try_from(each).unwrap_or(i32::MAX))
    }

    fn apply(&self, sockets: &[TcpStream]) {
        for socket in sockets {
            clamp(socket, self.each(sockets).unwrap_or(i32::MAX));
        }
    }

    /// Sets the clamps again that the kernel has moved.
    pub fn keep(&self, sockets: &[TcpStream]) {
        let Some(each) = self.each(sockets) else { return };
        for socket in sockets {
            let now = sys::int_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP);
            if now.is_ok_and(|now| now > each) {
                clamp(socket, each);
            }
        }
    }
}

fn clamp(socket: &TcpStream, bytes: i32) {
    // This fails only for a connection that is over.
    let _ = sys::set_int_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, bytes.max(1));
}

/// The sender's pacing rate in bits of payload per second, for all streams together. TCP's own pacing and, since Linux
/// 4.20, the fq qdisc space segments by their payload (`tcp_update_skb_after_send`).
#[derive(Default)]
pub(super) struct Pacing {
    /// Guards the rate and how it is shared. It is held while the rates are set on the sockets, so that two threads do not
    /// set different ones.
    shared: Mutex<Shared>,
    /// Tells the streams to send in small parts while there is a rate; `None` if they always do.
    parts: Option<Arc<AtomicBool>>,
}

impl Pacing {
    pub fn new(parts: Option<Arc<AtomicBool>>) -> Pacing {
        Pacing { parts, ..Pacing::default() }
    }

    /// Sets the rate of all streams together; with `None` they are not paced.
    pub fn set(&self, sockets: &[TcpStream], bps: Option<u64>) {
        let mut shared = lock(&self.shared);
        shared.limit = bps;
        if let Some(parts) = &self.parts {
            parts.store(bps.is_some(), Ordering::Relaxed);
        }
        pace(sockets, shared.each(sockets.len()));
    }

    /// Shares the rate among this number of busy streams.
    pub fn busy(&self, sockets: &[TcpStream], busy: usize) {
        let mut shared = lock(&self.shared);
        let before = shared.each(sockets.len());
        shared.busy = busy;
        if shared.each(sockets.len()) != before {
            pace(sockets, shared.each(sockets.len()));
        }
    }
}

fn pace(sockets: &[TcpStream], each_bps: Option<u64>) {
    // All ones means to the kernel that there is no limit.
    let each = each_bps.map_or(u64::MAX, |bps| (bps / 8).max(1));
    for socket in sockets {
        let _ = sys::set_max_pacing_rate(socket.as_fd(), each);
    }
}

/// Restarts a stream's slow start from its current window. Linux has no call for that. But when BBR takes over a connection,
/// it resets the threshold at which slow start ends (`bbr_init` in `tcp_bbr.c`), and the congestion control that gets the
/// connection back keeps that. If BBR is not available, or the stream uses it already, nothing changes.
pub(super) fn slow_start(socket: &TcpStream) {
    let socket = socket2::SockRef::from(socket);
    let Ok(name) = socket.tcp_congestion() else { return };
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    if name != BBR.as_bytes() && socket.set_tcp_congestion(BBR.as_bytes()).is_ok() {
        // This cannot fail for want of the module: it was in use just now.
        let _ = socket.set_tcp_congestion(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_read() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let all = [TcpStream::connect(listener.local_addr().unwrap()).unwrap()];
        let read = || sys::int_option(all[0].as_fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP).unwrap();
        let mut windows = Windows::default();
        windows.set(&all, Some(20_000));
        assert_eq!(read(), 20_000);
        windows.set(&all, None);
        assert_eq!(read(), i32::MAX);
        let pacing = Pacing::default();
        pacing.set(&all, Some(8_000_000));
        assert_eq!(sys::max_pacing_rate(all[0].as_fd()).unwrap(), 1_000_000);
        pacing.set(&all, None);
        assert_eq!(sys::max_pacing_rate(all[0].as_fd()).unwrap(), u64::MAX);
    }

    #[test]
    fn who_has_nothing_to_do_leaves_its_share() {
        let share = |busy| Shared { limit: Some(8000), busy }.each(8);
        assert_eq!([0, 8, 2, 1, 9].map(share), [1000, 1000, 4000, 8000, 1000].map(Some));
        assert_eq!(Shared { limit: None, busy: 2 }.each(8), None);
    }
}
