//! Memory-to-memory traffic: the streams of one side of a run, and what their threads do.
//!
//! Each stream has a thread that makes few, long, blocking calls. The sender hands the kernel pages of a memory file by
//! reference, the receiver drops what arrives without copying it, where the transport can. So the engine costs hardly
//! any processor time, never spins, and the kernel wakes it when there is something to do.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use fullpipe_path::Workload;
use nix::sys::eventfd::EventFd;

use crate::side::Side;
use crate::stream::{DataStream, Observation, StreamHandle};
use crate::sys;

/// Bytes of the memory file that a sender sends again and again.
const SOURCE_BYTES: usize = 4 << 20;
/// Bytes of that file that a sender writes at a time where the transport cannot send files.
const COPY_BYTES: usize = 256 << 10;
/// Segments at the start of a connection that the kernel does not pace (`tcp_update_skb_after_send`, net/ipv4/tcp_output.c).
const UNPACED_SEGMENTS: u64 = 10;
/// Segments at the start of a connection that the sender paces itself, if the kernel's unpaced ones would be a burst. After
/// that the kernel paces alone. Its bursts of two segments then are small against what was sent.
const HELD_SEGMENTS: u64 = 40;
/// Longest time for which unpaced segments at the pacing rate are no burst, ns.
const BURST_NS: u64 = 1_000_000;
/// Time for which the sender hands over bytes at once while it paces, ns.
const HELD_PIECE_NS: u64 = 50_000_000;
/// Most bytes that one call discards. Any large number serves, since nothing is stored.
const DISCARD_BYTES: u64 = 1 << 30;

/// The data that a sender sends.
pub(crate) struct Source(File);

impl Source {
    /// Makes the data: pseudo-random, so that nothing on a path can compress them.
    pub(crate) fn new() -> io::Result<Source> {
        sys::random_memory_file(SOURCE_BYTES).map(|fd| Source(fd.into()))
    }
}

/// The streams of one side, as the threads that move, sample and watch them share them.
pub(crate) struct Traffic {
    streams: Vec<SharedStream>,
    /// Bytes that count as acknowledged or received on each stream and are not data: the preamble, and what the
    /// transport itself adds.
    overhead_bytes: u64,
    /// Whether the run is over. The lock guards nothing else, and is held only to read or set it, or to wait on `wake`.
    stopped: Mutex<bool>,
    wake: Condvar,
    /// The error of the first stream that broke. The lock is held only to put it in or to take it out.
    broken: Mutex<Option<io::Error>>,
    /// Bytes of all streams that had arrived when the first byte of any was read.
    early_bytes: OnceLock<u64>,
    /// Written whenever a stream's first byte arrives, and when a stream ends or breaks.
    pub(crate) event: EventFd,
}

/// What is shared of one stream. Instants are of `CLOCK_MONOTONIC`, and zero where there was none.
struct SharedStream {
    handle: Arc<dyn StreamHandle>,
    /// Bytes that this stream carries; `None` if a duration limits the run.
    share_bytes: Option<u64>,
    first_ns: AtomicU64,
    last_ns: AtomicU64,
    /// Bytes that the receiving side has read, or that the sending side has handed to the transport.
    moved_bytes: AtomicU64,
    /// Whether the sender has sent all, over a transport that may lose data.
    ended: AtomicBool,
}

impl Traffic {
    /// The traffic over these streams.
    pub(crate) fn new(streams: &[Box<dyn DataStream>], workload: Workload, overhead_bytes: u64) -> io::Result<Traffic> {
        let n = streams.len() as u16;
        let shared = |(handle, i): (Arc<dyn StreamHandle>, u16)| SharedStream {
            handle,
            share_bytes: workload.share(i, n),
            first_ns: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
            moved_bytes: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        };
        Ok(Traffic {
            streams: streams.iter().map(|stream| stream.handle()).zip(0..n).map(shared).collect(),
            overhead_bytes,
            stopped: Mutex::new(false),
            wake: Condvar::new(),
            broken: Mutex::new(None),
            early_bytes: OnceLock::new(),
            event: EventFd::new()?,
        })
    }

    /// Number of streams.
    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    /// The handle of a stream.
    pub(crate) fn handle(&self, i: usize) -> &dyn StreamHandle {
        &*self.streams[i].handle
    }

    /// The transport's view of a stream, and the bytes that count as goodput so far: read by the application, or
    /// acknowledged by the other side. If the transport does not count bytes, those that were handed to it count.
    pub(crate) fn observe(&self, i: usize, side: Side) -> io::Result<(Observation, u64)> {
        let stream = &self.streams[i];
        let seen = stream.handle.observe()?;
        let counted = match side {
            Side::Sender => seen.acked_bytes,
            Side::Receiver => {
                seen.received_bytes.map(|bytes| bytes.saturating_sub(stream.handle.unread_bytes().unwrap_or(0)))
            }
        };
        let data = self.data_bytes(stream, counted);
        Ok((seen, data))
    }

    /// Bytes of a stream that are data, of those that the transport counted. If it does not count, the bytes that were moved.
    fn data_bytes(&self, stream: &SharedStream, counted: Option<u64>) -> u64 {
        let data = counted.map_or_else(
            || stream.moved_bytes.load(Ordering::Acquire),
            |bytes| bytes.saturating_sub(self.overhead_bytes),
        );
        // A closing FIN counts as a byte too, hence the bound.
        data.min(stream.share_bytes.unwrap_or(u64::MAX))
    }

    /// Bytes of all streams that have arrived here, whether or not they have been read.
    fn arrived_bytes(&self) -> u64 {
        let arrived = |stream: &SharedStream| {
            let counted = stream.handle.observe().ok().and_then(|seen| seen.received_bytes);
            self.data_bytes(stream, counted)
        };
        self.streams.iter().map(arrived).sum()
    }

    /// Bytes of all streams that had arrived when the first byte of any was read: they are not of the time that began then.
    pub(crate) fn early_bytes(&self) -> u64 {
        self.early_bytes.get().copied().unwrap_or(0)
    }

    /// Waits until an instant, or until the run is over; returns whether it is over.
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

    /// Ends the run: closes every stream, so that every thread returns.
    pub(crate) fn stop(&self) {
        if let Ok(mut stopped) = self.stopped.lock() {
            *stopped = true;
        }
        self.wake.notify_all();
        self.streams.iter().for_each(|stream| stream.handle.close());
    }

    fn is_stopped(&self) -> bool {
        self.stopped.lock().map_or(true, |stopped| *stopped)
    }

    fn signal(&self) {
        // Fails only at 2^64 - 1 unread events.
        let _ = self.event.write(1);
    }

    /// Takes the error of the first stream that broke, if one has.
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

    /// Sends the data of stream `i` from an instant on, until its share is sent or the run is over.
    pub(crate) fn send(&self, i: usize, mut stream: Box<dyn DataStream>, source: &Source, start_ns: u64) {
        if self.stopped_before(start_ns) {
            return;
        }
        let mut rest = self.streams[i].share_bytes.unwrap_or(u64::MAX);
        let sent = self.send_held(i, &mut *stream, source, &mut rest).and_then(|()| {
            if self.is_stopped() {
                Ok(())
            } else if stream.sends_files() {
                send_by_reference(&mut *stream, source, &mut rest, &self.streams[i].moved_bytes)
            } else {
                send_copies(&mut *stream, source, &mut rest, &self.streams[i].moved_bytes)
            }
        });
        if let Err(error) = sent {
            self.break_with(error);
        }
    }

    /// Sends the first segments of stream `i` at its pacing rate, where the kernel's TCP would send them as a burst. `rest` is
    /// what remains to be sent.
    fn send_held(&self, i: usize, stream: &mut dyn DataStream, source: &Source, rest: &mut u64) -> io::Result<()> {
        let handle = &self.streams[i].handle;
        if !handle.observe().is_ok_and(|seen| seen.tcp_info.is_some()) {
            return Ok(());
        }
        let settings = handle.settings();
        let Some(hold) = Hold::new(settings.pacing_bytes_per_s, settings.segment_bytes) else { return Ok(()) };
        // The streams take turns, so that their pieces together are no burst either.
        let start_ns = sys::now_ns() + hold.duration_ns(hold.piece_bytes) * i as u64 / self.len() as u64;
        let mut sent = 0;
        while *rest > 0 && sent < hold.total_bytes {
            let mut piece = hold.piece_bytes.min(*rest);
            // Bytes go when their time is over, so what was sent is never ahead of the rate.
            if self.stopped_before(start_ns + hold.duration_ns(sent + piece)) {
                return Ok(());
            }
            sent += piece;
            *rest -= piece;
            // Copies, also where files could be sent: after sendfile(2) the kernel may wait for more to fill a segment.
            send_copies(stream, source, &mut piece, &self.streams[i].moved_bytes)?;
        }
        Ok(())
    }

    /// Receives the data of stream `i`, until its share has arrived or the run is over.
    pub(crate) fn receive(&self, i: usize, mut stream: Box<dyn DataStream>) {
        let shared = &self.streams[i];
        let share = shared.share_bytes.unwrap_or(u64::MAX);
        let mut received = 0;
        while received < share {
            // The first call returns with the first byte, to see when that arrives.
            let most = (share - received).min(DISCARD_BYTES) as usize;
            match stream.discard(most, received > 0) {
                Ok(0) if stream.may_lose() => {
                    shared.ended.store(true, Ordering::Release);
                    break;
                }
                Ok(0) => return self.break_with(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    let now = sys::now_ns();
                    let is_first = received == 0;
                    received += n as u64;
                    shared.moved_bytes.store(received, Ordering::Release);
                    shared.last_ns.store(now, Ordering::Release);
                    if is_first {
                        // Counted after the time was taken: what arrived in between may count as early, never as of the run.
                        self.early_bytes.get_or_init(|| self.arrived_bytes());
                        shared.first_ns.store(now, Ordering::Release);
                        self.signal();
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.break_with(error),
            }
        }
        self.signal();
    }

    /// Instant at which the first byte of any stream arrived, if one has.
    pub(crate) fn first_arrival_ns(&self) -> Option<u64> {
        self.streams.iter().map(|stream| stream.first_ns.load(Ordering::Acquire)).filter(|ns| *ns > 0).min()
    }

    /// Whether every stream has received its share, or what was left of it on the way.
    pub(crate) fn complete(&self) -> bool {
        let has_all = |stream: &SharedStream| {
            stream.ended.load(Ordering::Acquire)
                || stream.share_bytes.is_some_and(|share| stream.moved_bytes.load(Ordering::Acquire) >= share)
        };
        self.streams.iter().all(has_all)
    }

    /// Most bytes that stream `i` can have sent: a write that broke may have sent a part.
    pub(crate) fn most_sent(&self, i: usize) -> u64 {
        self.streams[i].moved_bytes.load(Ordering::Acquire).saturating_add(COPY_BYTES as u64)
    }

    /// Bytes that stream `i` has received, and the instants of its first and last arrival.
    pub(crate) fn received(&self, i: usize) -> (u64, u64, u64) {
        let stream = &self.streams[i];
        (
            stream.moved_bytes.load(Ordering::Acquire),
            stream.first_ns.load(Ordering::Acquire),
            stream.last_ns.load(Ordering::Acquire),
        )
    }
}

/// How the first segments of a paced stream are sent.
#[derive(Debug, PartialEq)]
struct Hold {
    bytes_per_s: u64,
    /// Bytes that are handed over at once.
    piece_bytes: u64,
    /// Bytes after which the kernel paces alone.
    total_bytes: u64,
}

impl Hold {
    /// `None` if the stream is not paced, or if the kernel's unpaced segments are no burst at its rate.
    fn new(pacing_bytes_per_s: Option<u64>, segment_bytes: Option<u32>) -> Option<Hold> {
        let (bytes_per_s, segment) = (pacing_bytes_per_s?, u64::from(segment_bytes?));
        let bytes_in = |ns: u64| (u128::from(bytes_per_s) * u128::from(ns) / 1_000_000_000) as u64;
        if bytes_in(BURST_NS) >= UNPACED_SEGMENTS * segment {
            return None;
        }
        let piece_bytes = bytes_in(HELD_PIECE_NS).clamp(1, segment.max(1));
        Some(Hold { bytes_per_s, piece_bytes, total_bytes: HELD_SEGMENTS * segment })
    }

    /// Time that bytes take at the rate, ns.
    fn duration_ns(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s.max(1))) as u64
    }
}

/// Sends `rest` bytes by reference, and counts it down.
fn send_by_reference(
    stream: &mut dyn DataStream,
    source: &Source,
    rest: &mut u64,
    moved: &AtomicU64,
) -> io::Result<()> {
    while *rest > 0 {
        match stream.send_file(source.0.as_fd(), 0, (*rest).min(SOURCE_BYTES as u64) as usize) {
            Ok(n) => {
                *rest = rest.saturating_sub(n as u64);
                moved.fetch_add(n as u64, Ordering::Release);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends copies of `rest` bytes, and counts it down.
fn send_copies(stream: &mut dyn DataStream, source: &Source, rest: &mut u64, moved: &AtomicU64) -> io::Result<()> {
    let mut bytes = vec![0; (*rest).min(COPY_BYTES as u64) as usize];
    source.0.read_exact_at(&mut bytes, 0)?;
    while *rest > 0 {
        let n = (*rest).min(COPY_BYTES as u64);
        stream.write_all(&bytes[..n as usize])?;
        *rest -= n;
        moved.fetch_add(n, Ordering::Release);
    }
    stream.flush()
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    use fullpipe_path::Size;

    use super::*;
    use crate::stream::Settings;

    /// A transport that can do nothing but what the seam requires.
    struct Bare(Arc<UnixStream>);

    struct BareHandle(Arc<UnixStream>);

    /// A transport that paces from the first byte on by itself.
    struct Pacing(Bare);

    struct PacingHandle(BareHandle);

    impl io::Read for Bare {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            (&*self.0).read(to)
        }
    }

    impl io::Write for Bare {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            (&*self.0).write(from)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl DataStream for Bare {
        fn handle(&self) -> Arc<dyn StreamHandle> {
            Arc::new(BareHandle(self.0.clone()))
        }
        fn finish(&mut self) -> io::Result<()> {
            self.0.shutdown(Shutdown::Write)
        }
    }

    impl StreamHandle for BareHandle {
        fn observe(&self) -> io::Result<Observation> {
            Ok(Observation::default())
        }
        fn close(&self) {
            let _ = self.0.shutdown(Shutdown::Both);
        }
    }

    impl io::Read for Pacing {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.0.read(to)
        }
    }

    impl io::Write for Pacing {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            self.0.write(from)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl DataStream for Pacing {
        fn handle(&self) -> Arc<dyn StreamHandle> {
            Arc::new(PacingHandle(BareHandle(self.0.0.clone())))
        }
        fn finish(&mut self) -> io::Result<()> {
            self.0.finish()
        }
    }

    impl StreamHandle for PacingHandle {
        fn observe(&self) -> io::Result<Observation> {
            self.0.observe()
        }
        fn close(&self) {
            self.0.close();
        }
        fn settings(&self) -> Settings {
            Settings { pacing_bytes_per_s: Some(1), segment_bytes: Some(1_448), ..Settings::default() }
        }
    }

    /// At its rate of a byte per second, 1,000 bytes would take a quarter of an hour.
    #[test]
    fn only_what_tcp_would_send_at_once_is_held() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let stream: Box<dyn DataStream> = Box::new(Pacing(Bare(Arc::new(ours))));
        let traffic = Traffic::new(std::slice::from_ref(&stream), Workload::Size(Size(1_000)), 0).unwrap();
        let begun = std::time::Instant::now();
        traffic.send(0, stream, &Source::new().unwrap(), 0);
        assert!(begun.elapsed() < Duration::from_secs(60));
        assert_eq!(traffic.observe(0, Side::Sender).unwrap().1, 1_000);
    }

    #[test]
    fn a_transport_that_only_reads_and_writes_carries_a_run() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let side = |socket| -> (Box<dyn DataStream>, Traffic) {
            let stream: Box<dyn DataStream> = Box::new(Bare(Arc::new(socket)));
            let traffic = Traffic::new(std::slice::from_ref(&stream), Workload::Size(Size(3_000_001)), 20).unwrap();
            (stream, traffic)
        };
        let ((sending, sender), (receiving, receiver)) = (side(ours), side(theirs));
        std::thread::scope(|scope| {
            scope.spawn(|| sender.send(0, sending, &Source::new().unwrap(), 0));
            receiver.receive(0, receiving);
        });
        assert!(receiver.complete() && receiver.take_broken().is_none() && sender.take_broken().is_none());
        let (seen, bytes) = receiver.observe(0, Side::Receiver).unwrap();
        assert_eq!((bytes, seen.tcp_info.is_none(), seen.udt.is_none()), (3_000_001, true, true));
        assert_eq!(sender.observe(0, Side::Sender).unwrap().1, 3_000_001, "what was handed over");
        assert!(receiver.handle(0).set_pacing(Some(1)).is_err_and(|e| e.kind() == io::ErrorKind::Unsupported));
        assert_eq!(receiver.handle(0).settings(), Default::default());
    }

    #[test]
    fn slow_pacing_holds_the_segments_that_the_kernel_does_not_pace() {
        // 8 kbit/s over Ethernet: 50 bytes every 50 ms.
        let slow = Hold::new(Some(1_000), Some(1_448)).unwrap();
        assert_eq!(slow, Hold { bytes_per_s: 1_000, piece_bytes: 50, total_bytes: 57_920 });
        assert_eq!(slow.duration_ns(50), 50_000_000);
        assert_eq!(Hold::new(Some(125), Some(1_448)).unwrap().piece_bytes, 6);
        assert_eq!(Hold::new(Some(12_500_000), Some(1_448)).unwrap().piece_bytes, 1_448, "100 Mb/s");
        assert_eq!(Hold::new(Some(1_250_000_000), Some(8_948)), None, "ten segments are 72 us of 10 Gb/s");
        assert_eq!(Hold::new(None, Some(1_448)), None);
    }

    #[test]
    fn closing_a_stream_ends_its_thread() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let stream: Box<dyn DataStream> = Box::new(Bare(Arc::new(ours)));
        let traffic =
            Traffic::new(std::slice::from_ref(&stream), Workload::Duration(fullpipe_path::Time(1)), 0).unwrap();
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| traffic.receive(0, stream));
            std::thread::sleep(Duration::from_millis(50));
            traffic.stop();
            receiving.join().unwrap();
        });
        assert!(traffic.take_broken().is_none(), "a run that was stopped has not failed");
    }
}
