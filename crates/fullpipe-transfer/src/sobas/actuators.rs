//! Sets what the controller decides: the receiver's window, the sender's pacing rate, and a new slow start.

use std::sync::{Arc, Mutex};

use fullpipe_net::stream::StreamHandle;

use crate::threads::lock;

/// The streams that are actuated.
pub(super) type Streams = [Arc<dyn StreamHandle>];

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
    pub fn set(&mut self, streams: &Streams, total: Option<u64>) {
        self.shared.limit = total;
        self.apply(streams);
    }

    /// Shares the limit among this number of busy streams.
    pub fn busy(&mut self, streams: &Streams, busy: usize) {
        let before = self.shared.each(streams.len());
        self.shared.busy = busy;
        if self.shared.each(streams.len()) != before {
            self.apply(streams);
        }
    }

    fn each(&self, streams: &Streams) -> Option<u32> {
        self.shared.each(streams.len()).map(|each| u32::try_from(each).unwrap_or(u32::MAX))
    }

    fn apply(&self, streams: &Streams) {
        for stream in streams {
            // This fails only for a connection that is over.
            let _ = stream.set_receive_window(self.each(streams));
        }
    }

    /// Sets the clamps again that the kernel has moved.
    pub fn keep(&self, streams: &Streams) {
        let Some(each) = self.each(streams) else { return };
        for stream in streams {
            if stream.receive_window().is_some_and(|now| now > each) {
                let _ = stream.set_receive_window(Some(each));
            }
        }
    }
}

/// The sender's pacing rate in bits of payload per second, for all streams together. TCP's own pacing and, since Linux
/// 4.20, the fq qdisc space segments by their payload (`tcp_update_skb_after_send`).
#[derive(Default)]
pub(super) struct Pacing {
    /// Guards the rate and how it is shared. It is held while the rates are set on the streams, so that two threads do not
    /// set different ones.
    shared: Mutex<Shared>,
    /// Most bytes that each stream hands to the line at once while there is a rate; `None` if the rate does not change
    /// that.
    bursts: Option<Vec<usize>>,
}

impl Pacing {
    pub fn new(bursts: Option<Vec<usize>>) -> Pacing {
        Pacing { bursts, ..Pacing::default() }
    }

    /// Sets the rate of all streams together; with `None` they are not paced.
    pub fn set(&self, streams: &Streams, bps: Option<u64>) {
        let mut shared = lock(&self.shared);
        shared.limit = bps;
        for (stream, burst) in streams.iter().zip(self.bursts.iter().flatten()) {
            let _ = stream.set_max_burst(bps.map(|_| *burst));
        }
        pace(streams, shared.each(streams.len()));
    }

    /// Shares the rate among this number of busy streams.
    pub fn busy(&self, streams: &Streams, busy: usize) {
        let mut shared = lock(&self.shared);
        let before = shared.each(streams.len());
        shared.busy = busy;
        if shared.each(streams.len()) != before {
            pace(streams, shared.each(streams.len()));
        }
    }
}

fn pace(streams: &Streams, each_bps: Option<u64>) {
    for stream in streams {
        let _ = stream.set_pacing(each_bps.map(|bps| bps / 8));
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::os::fd::AsFd;

    use fullpipe_net::stream::DataStream;
    use fullpipe_net::stream::tcp::TcpDataStream;
    use fullpipe_net::sys;

    use super::*;

    #[test]
    fn what_is_set_is_read() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let fd = socket.try_clone().unwrap();
        let all = [TcpDataStream::new(socket).handle()];
        let read = || sys::int_option(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP).unwrap();
        let mut windows = Windows::default();
        windows.set(&all, Some(20_000));
        assert_eq!(read(), 20_000);
        windows.set(&all, None);
        assert_eq!(read(), i32::MAX);
        let pacing = Pacing::default();
        pacing.set(&all, Some(8_000_000));
        assert_eq!(sys::max_pacing_rate(fd.as_fd()).unwrap(), 1_000_000);
        pacing.set(&all, None);
        assert_eq!(sys::max_pacing_rate(fd.as_fd()).unwrap(), u64::MAX);
    }

    #[test]
    fn who_has_nothing_to_do_leaves_its_share() {
        let share = |busy| Shared { limit: Some(8000), busy }.each(8);
        assert_eq!([0, 8, 2, 1, 9].map(share), [1000, 1000, 4000, 8000, 1000].map(Some));
        assert_eq!(Shared { limit: None, busy: 2 }.each(8), None);
    }
}
