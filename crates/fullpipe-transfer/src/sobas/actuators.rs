//! Sets what the controller decides: the receiver's window, the sender's pacing rate, and a new slow start.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fullpipe_net::stream::StreamHandle;
use fullpipe_sobas::MAX_BURST_BYTES;

use super::setup::segment;
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
        self.limit.map(|limit| limit / self.among(streams) as u64)
    }

    /// Number of streams that share the limit, at least one.
    fn among(self, streams: usize) -> usize {
        if self.busy == 0 { streams.max(1) } else { self.busy.min(streams).max(1) }
    }
}

/// The receiver's windows, set by `TCP_WINDOW_CLAMP`. If the kernel tunes the buffer, it moves the clamp too
/// (`tcp_rcv_space_adjust`), so the clamp has to be checked from time to time.
#[derive(Default)]
pub(super) struct Windows {
    shared: Shared,
    /// Whether the kernel's tuning has been ended.
    is_fixed: bool,
}

impl Windows {
    /// Limits all windows together to `total` bytes; with `None` only the buffers limit them.
    pub fn set(&mut self, streams: &Streams, total: Option<u64>) {
        self.shared.limit = total;
        self.apply(streams);
    }

    /// Ends the kernel's tuning of the buffers, with room for windows of `largest` bytes together, once.
    pub fn end_tuning(&mut self, streams: &Streams, largest: u64) {
        if !std::mem::replace(&mut self.is_fixed, true) {
            for stream in streams {
                // Where the kernel does not grant it, the clamp is checked all the same.
                let _ = stream.fix_receive_buffer(largest / streams.len() as u64);
            }
        }
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
    /// Bytes of a segment of each stream.
    segments: Vec<usize>,
    /// The rate that is never exceeded, bit/s, if the user gives one.
    most: Option<u64>,
    /// Whether bursts stay limited when the rate is lifted.
    always_in_parts: bool,
}

impl Pacing {
    /// Bursts are limited while there is a rate. With `always_in_parts` they stay limited: BBR paces itself. No rate exceeds `most`,
    /// bit/s.
    pub fn new(streams: &Streams, always_in_parts: bool, most: Option<u64>) -> Pacing {
        let segments = streams.iter().map(|stream| (segment(&**stream).0 as usize).max(1)).collect();
        Pacing { segments, most, always_in_parts, ..Pacing::default() }
    }

    /// Sets the rate of all streams together; with `None` only the user's limit paces them.
    pub fn set(&self, streams: &Streams, bps: Option<u64>) {
        let mut shared = lock(&self.shared);
        shared.limit = bps.into_iter().chain(self.most).min();
        self.apply(streams, *shared);
    }

    /// Shares the rate among this number of busy streams.
    pub fn busy(&self, streams: &Streams, busy: usize) {
        let mut shared = lock(&self.shared);
        let before = shared.each(streams.len());
        shared.busy = busy;
        if shared.each(streams.len()) != before {
            self.apply(streams, *shared);
        }
    }

    fn apply(&self, streams: &Streams, shared: Shared) {
        let each_bps = shared.each(streams.len());
        let in_parts = shared.limit.is_some() || self.always_in_parts;
        let burst = in_parts.then(|| burst_bytes(shared.limit, shared.among(streams.len())));
        for (stream, segment) in streams.iter().zip(&self.segments) {
            let _ = stream.set_max_burst(burst.map(|bytes| whole_segments(bytes, *segment)));
            let _ = stream.set_pacing(each_bps.map(|bps| bps / 8));
        }
    }
}

/// Bytes that all streams together may have in bursts at the same time: what a shallow queue holds.
const BURSTS_BYTES: usize = 64 << 10;
/// Least time that a burst takes at the rate of all streams together. It limits how often they send.
const MIN_BURST: Duration = Duration::from_micros(10);
/// Least burst, segments: with single ones the kernel's work for each byte is greatest.
const MIN_BURST_SEGMENTS: usize = 2;

/// Most bytes that each of `streams` streams hands to the line at once, at a rate of all together.
fn burst_bytes(bps: Option<u64>, streams: usize) -> usize {
    let often = bps.map_or(f64::INFINITY, |bps| bps as f64 / 8.0 * MIN_BURST.as_secs_f64());
    (often as usize).max(BURSTS_BYTES / streams.max(1)).min(MAX_BURST_BYTES as usize)
}

/// The bytes as whole segments: at least two, or one where two are more than a burst may have.
fn whole_segments(bytes: usize, segment: usize) -> usize {
    let bytes = bytes.max(MIN_BURST_SEGMENTS * segment).min(MAX_BURST_BYTES as usize);
    (bytes / segment).max(1) * segment
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
        let pacing = Pacing::new(&all, false, None);
        pacing.set(&all, Some(8_000_000));
        assert_eq!(sys::max_pacing_rate(fd.as_fd()).unwrap(), 1_000_000);
        pacing.set(&all, None);
        assert_eq!(sys::max_pacing_rate(fd.as_fd()).unwrap(), u64::MAX);
    }

    #[test]
    fn many_streams_send_small_bursts_as_far_as_the_rate_allows() {
        let burst = |bps, streams| whole_segments(burst_bytes(bps, streams), 1448) / 1448;
        // Ten streams of a gigabit share 64 KB; at 10 Gb/s a burst lasts at least 10 us.
        assert_eq!(
            [(1, 1), (1, 4), (1, 10), (1, 64), (10, 64)].map(|(g, n)| burst(Some(g * 1_000_000_000), n)),
            [11, 11, 4, 2, 8]
        );
        assert_eq!(burst(None, 64), 11);
        assert_eq!(whole_segments(burst_bytes(Some(1_000_000), 64), 8948), 8948);
    }

    #[test]
    fn who_has_nothing_to_do_leaves_its_share() {
        let share = |busy| Shared { limit: Some(8000), busy }.each(8);
        assert_eq!([0, 8, 2, 1, 9].map(share), [1000, 1000, 4000, 8000, 1000].map(Some));
        assert_eq!(Shared { limit: None, busy: 2 }.each(8), None);
    }
}
