//! What the controller moves: the receiver's window, the sender's pacing rate, and its slow start.

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fullpipe_net::sys;

use crate::protocol::sizing::BBR;
use crate::threads::lock;

/// How a limit of all streams together is shared: among those that have something to move. At a transfer's end some
/// have nothing left, and their part would be lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Shared {
    limit: Option<u64>,
    /// Streams at work; none yet counts as all.
    busy: usize,
}

impl Shared {
    fn each(self, streams: usize) -> Option<u64> {
        let among = if self.busy == 0 { streams } else { self.busy.min(streams) };
        self.limit.map(|limit| limit / among.max(1) as u64)
    }
}

/// The receiver's windows, set by `TCP_WINDOW_CLAMP`. Where the kernel tunes the buffer itself it moves the
/// clamp with it (`tcp_rcv_space_adjust`), so it is looked at now and then.
#[derive(Default)]
pub(super) struct Windows {
    shared: Shared,
}

impl Windows {
    /// Limits all of them together to so many bytes; none: the buffers are the limit.
    pub fn set(&mut self, sockets: &[TcpStream], total: Option<u64>) {
        self.shared.limit = total;
        self.apply(sockets);
    }

    /// So many streams are at work.
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

    /// Sets them again where the kernel has moved them.
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
    // A connection that is over needs none.
    let _ = sys::set_int_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, bytes.max(1));
}

/// The sender's pacing rates: bits of payload per second, all streams together. TCP's own pacing and, from Linux 4.20
/// on, the fq qdisc space segments by their payload (`tcp_update_skb_after_send`).
#[derive(Default)]
pub(super) struct Pacing {
    shared: Mutex<Shared>,
    /// So while there is a limit: streams send in parts.
    parts: Option<Arc<AtomicBool>>,
}

impl Pacing {
    pub fn new(parts: Option<Arc<AtomicBool>>) -> Pacing {
        Pacing { parts, ..Pacing::default() }
    }

    /// As fast as this; none: as they like.
    pub fn set(&self, sockets: &[TcpStream], bps: Option<u64>) {
        let mut shared = lock(&self.shared);
        shared.limit = bps;
        if let Some(parts) = &self.parts {
            parts.store(bps.is_some(), Ordering::Relaxed);
        }
        pace(sockets, shared.each(sockets.len()));
    }

    /// So many streams are at work.
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
    // ~0 is the kernel's "none".
    let each = each_bps.map_or(u64::MAX, |bps| (bps / 8).max(1));
    for socket in sockets {
        let _ = sys::set_max_pacing_rate(socket.as_fd(), each);
    }
}

/// Lets a stream's slow start begin once more, from the window that it has. Linux has no call for that, but BBR forgets
/// the threshold where slow start ends when it takes a connection over (`bbr_init` in `tcp_bbr.c`), and hands the
/// connection back as it is. Where BBR is not to be had, or is what the stream uses, nothing changes.
pub(super) fn slow_start(socket: &TcpStream) {
    let socket = socket2::SockRef::from(socket);
    let Ok(name) = socket.tcp_congestion() else { return };
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    if name != BBR.as_bytes() && socket.set_tcp_congestion(BBR.as_bytes()).is_ok() {
        // It was in use, so it is there.
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
