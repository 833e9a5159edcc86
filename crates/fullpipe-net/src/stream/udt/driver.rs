//! The thread that drives a connection, and what it shares with the threads that read and write.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use fullpipe_path::transport::UDT;
use fullpipe_udt::{Connection, End, Snapshot, Transmit};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::config::PEER_TIMEOUT;
use crate::stream::Settings;
use crate::stream::datagrams::{Datagrams, Departure, RECEIVE_BYTES, uncounted_bytes};
use crate::sys;

/// Calls that receive, at most, before timers and senders get their turn.
const MAX_RECEIVES: usize = 8;
/// Messages that are received with one call before the other end has shown the token.
const UNPROVEN_MESSAGES: usize = 2;
/// Bytes of data packets that are handed to the kernel with one call, at most.
const MAX_TRANSMIT_BYTES: usize = 1 << 20;
/// Room that a writer is woken for: this part of what there is at the beginning, and at most so many bytes.
const WRITER_WAKE: (u64, u64) = (8, 4 << 20);
/// Longest sleep of a driver, ns.
const MAX_SLEEP_NS: u64 = 3_600_000_000_000;
/// Longest sleep of a driver that waits for room in the kernel, ns. The connection's timers may have something to do.
const MAX_BLOCKED_NS: u64 = 10_000_000;

/// A connection that a thread drives.
pub(super) struct Driven {
    datagrams: Datagrams,
    /// The connection and who waits for it. The lock is held while datagrams are sent, and never while the driver waits.
    state: Mutex<State>,
    /// Data has arrived, or the connection has ended.
    readable: Condvar,
    /// There is room to write, or the connection has ended.
    writable: Condvar,
    /// Wakes the driver before its time.
    wake: EventFd,
    /// Bytes of the kernel's buffer for what has arrived, bookkeeping included.
    receive_buffer_bytes: u64,
    /// Bytes of room that a writer is woken for.
    wake_room_bytes: u64,
}

/// An error of this host's own socket, which every thread of the stream is told.
struct SocketError {
    kind: io::ErrorKind,
    text: String,
}

impl SocketError {
    /// `mss` is the packet size that both ends agreed on, bytes.
    fn new(error: &io::Error, mss: u16) -> SocketError {
        let text = match error.raw_os_error() {
            // The kernel remembers what an ICMP message has said of the path.
            Some(libc::EMSGSIZE) => format!(
                "packets of {mss} bytes do not pass the path; this host has just learned of a smaller MTU, so run the same command \
                 again"
            ),
            _ => error.to_string(),
        };
        SocketError { kind: error.kind(), text }
    }

    fn again(&self) -> io::Error {
        io::Error::new(self.kind, self.text.clone())
    }
}

/// Datagrams of one length for which the kernel had no room.
#[derive(Default)]
struct Unsent {
    bytes: Vec<u8>,
    /// Bytes of each datagram but the last, which may be shorter.
    segment_bytes: usize,
    departure: Departure,
}

impl Unsent {
    /// Sends what the kernel has room for.
    fn send(&mut self, datagrams: &Datagrams) -> io::Result<()> {
        let sent = datagrams.send_at(&self.bytes, self.segment_bytes, self.departure)?;
        self.bytes.drain(..sent);
        self.departure = self.departure.after(sent / self.segment_bytes);
        Ok(())
    }
}

struct State {
    connection: Connection,
    /// The latest instant that the connection has been told, ns.
    told_ns: u64,
    /// What is to be sent before anything else of the connection's.
    unsent: Unsent,
    /// When the driver wakes of itself, ns; 0 while it is awake or has been woken.
    sleeps_until_ns: u64,
    /// The error of this host's own socket.
    error: Option<SocketError>,
    /// Bytes that the driver is to drop for a reader.
    to_discard: usize,
    /// The driver has dropped the last of them.
    dropped_all: bool,
    read_bytes: u64,
    /// Bytes of room that a writer waits for; 0 if none waits.
    wanted_room: u64,
    /// Whether a reader waits for data, or for all that it wants dropped.
    reader_waits: bool,
    /// Tells an acceptor that data has arrived.
    arrived: Option<Arc<EventFd>>,
    read_timeout: Option<Duration>,
    /// The rate that was given, bytes per second of whole packets.
    rate: Option<f64>,
}

impl State {
    /// The instant to tell the connection. Another thread may have told it a later one than the driver read before it waited for
    /// the lock; the connection would take the earlier one for a step of the clock, and go on faster.
    fn instant(&mut self, now_ns: u64) -> u64 {
        self.told_ns = self.told_ns.max(now_ns);
        self.told_ns
    }

    /// Drops what a reader wants dropped. Returns whether the other end waits for the room that this makes.
    fn discard(&mut self) -> bool {
        let mut waits = false;
        while self.to_discard > 0 {
            let n = self.connection.readable().len().min(self.to_discard);
            if n == 0 {
                break;
            }
            waits |= self.consume(n);
            self.to_discard -= n;
            self.dropped_all = self.to_discard == 0;
        }
        waits
    }

    fn consume(&mut self, bytes: usize) -> bool {
        self.read_bytes += bytes as u64;
        self.connection.consume(bytes)
    }

    fn is_over(&self) -> bool {
        self.error.is_some() || self.connection.ended().is_some()
    }

    /// What a writer, or a reader that found nothing, is told when the connection is over.
    fn end(&self) -> io::Error {
        if let Some(error) = &self.error {
            return error.again();
        }
        match self.connection.ended() {
            Some(End::PeerLost) => {
                let why = format!(
                    "no datagram came from the other end for {} s: it is gone, or the path drops all but small packets",
                    PEER_TIMEOUT.as_secs()
                );
                io::Error::new(io::ErrorKind::TimedOut, why)
            }
            Some(End::Incomplete) => io::ErrorKind::ConnectionReset.into(),
            _ => io::ErrorKind::BrokenPipe.into(),
        }
    }
}

impl Driven {
    /// Starts the driver of a connection whose socket is connected.
    pub(super) fn start(
        connection: Connection,
        datagrams: Datagrams,
        rate: Option<f64>,
        arrived: Option<Arc<EventFd>>,
    ) -> io::Result<Arc<Driven>> {
        let connection_room = connection.room_bytes();
        let state = State {
            connection,
            told_ns: 0,
            unsent: Unsent::default(),
            sleeps_until_ns: 0,
            error: None,
            to_discard: 0,
            dropped_all: false,
            read_bytes: 0,
            wanted_room: 0,
            reader_waits: false,
            arrived,
            read_timeout: None,
            rate,
        };
        let (part, most) = WRITER_WAKE;
        let driven = Arc::new(Driven {
            receive_buffer_bytes: datagrams.buffer_sizes().1.unwrap_or(0),
            wake_room_bytes: (connection_room / part).min(most),
            datagrams,
            state: Mutex::new(state),
            readable: Condvar::new(),
            writable: Condvar::new(),
            wake: EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?,
        });
        let driver = driven.clone();
        std::thread::Builder::new().name("udt".into()).stack_size(256 << 10).spawn(move || driver.drive())?;
        Ok(driven)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn drive(&self) {
        sys::exact_timers();
        // Who has not shown the token yet may not fill more.
        let mut buffer = vec![0; RECEIVE_BYTES * UNPROVEN_MESSAGES];
        let (mut turn_ns, mut look_ns) = (sys::now_ns(), 0);
        loop {
            let before_ns = std::mem::replace(&mut turn_ns, sys::now_ns());
            let received = if turn_ns < look_ns { Ok(0) } else { self.receive(turn_ns, &mut buffer) };
            let mut state = self.lock();
            if state.arrived.is_none() && buffer.len() < RECEIVE_BYTES * sys::MAX_MESSAGES {
                buffer = vec![0; RECEIVE_BYTES * sys::MAX_MESSAGES];
            }
            match received.and_then(|bytes| self.work(&mut state, turn_ns).map(|()| bytes)) {
                Ok(0) => {}
                Ok(bytes) => look_ns = turn_ns + self.nap_ns(&state, bytes, turn_ns - before_ns),
                Err(error) => state.error = Some(SocketError::new(&error, state.connection.mss())),
            }
            self.tell(&mut state);
            if state.error.is_some() || state.connection.is_over() {
                return;
            }
            let now = sys::now_ns();
            let (naps, blocked) = (look_ns > now, !state.unsent.bytes.is_empty());
            let next = match blocked {
                true => now + MAX_BLOCKED_NS,
                false => state.connection.next_timeout().unwrap_or(u64::MAX),
            };
            let sleep = if naps { next.min(look_ns) } else { next }.saturating_sub(now).min(MAX_SLEEP_NS);
            state.sleeps_until_ns = now + sleep;
            drop(state);
            if sleep > 0 {
                let events = if naps { 0 } else { libc::POLLIN } | if blocked { libc::POLLOUT } else { 0 };
                let woken =
                    sys::wait_ready([(self.wake.as_fd(), libc::POLLIN), (self.datagrams.as_fd(), events)], sleep);
                if matches!(woken, Ok([true, _])) {
                    let _ = self.wake.read();
                }
            }
            self.lock().sleeps_until_ns = 0;
        }
    }

    /// Time that the driver waits after it has received so many bytes, before it looks at the socket again, ns: many datagrams
    /// then come with one call. The kernel's buffer fills to an eighth at most, at the rate since the turn before.
    fn nap_ns(&self, state: &State, bytes: usize, since_last_ns: u64) -> u64 {
        let fills_ns = u128::from(self.receive_buffer_bytes) * u128::from(since_last_ns) / bytes.max(1) as u128;
        state.connection.gathering_ns().min((fills_ns / 8) as u64)
    }

    /// Takes all datagrams that are there, as many as a turn allows. Returns how many bytes they had.
    fn receive(&self, now_ns: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut bytes = 0;
        for _ in 0..MAX_RECEIVES {
            let arrived = self.datagrams.receive(buffer)?;
            let (mut state, mut messages) = (None, 0);
            for (one, message) in arrived.zip(buffer.chunks(RECEIVE_BYTES)) {
                let state = state.get_or_insert_with(|| self.lock());
                let now_ns = state.instant(now_ns);
                let at_ns = one.at_ns.unwrap_or(now_ns);
                state.connection.handle_datagrams_of(now_ns, at_ns, &message[..one.bytes], one.segment_bytes);
                bytes += one.bytes;
                messages += 1;
            }
            if let Some(mut state) = state {
                state.discard();
            }
            if messages < buffer.len() / RECEIVE_BYTES {
                break;
            }
        }
        Ok(bytes)
    }

    /// Timers, and everything that may be sent now and that the kernel has room for.
    fn work(&self, state: &mut State, now_ns: u64) -> io::Result<()> {
        let now_ns = state.instant(now_ns);
        state.connection.handle_timeout(now_ns);
        if !state.unsent.bytes.is_empty() {
            state.unsent.send(&self.datagrams)?;
        }
        while state.unsent.bytes.is_empty()
            && let Some(transmit) = state.connection.poll_transmit(now_ns, MAX_TRANSMIT_BYTES)
        {
            let (bytes, segment_bytes, departure) = match transmit {
                Transmit::Control(packet) => (packet, packet.len(), Departure::default()),
                Transmit::Data(run) => {
                    let departure = Departure { first_ns: now_ns + run.wait_ns, period_ns: run.period_ns };
                    (run.bytes, run.segment_bytes, departure)
                }
            };
            let sent = self.datagrams.send_at(bytes, segment_bytes, departure)?;
            let departure = departure.after(sent / segment_bytes);
            state.unsent = Unsent { bytes: bytes[sent..].to_vec(), segment_bytes, departure };
        }
        Ok(())
    }

    /// Wakes the threads that wait for what is so now.
    fn tell(&self, state: &mut State) {
        let over = state.is_over();
        if state.reader_waits && (over || state.connection.is_readable() || state.dropped_all) {
            state.reader_waits = false;
            self.readable.notify_all();
        }
        if let Some(arrived) = &state.arrived
            && (over || state.connection.is_readable())
        {
            let _ = arrived.write(1);
        }
        if over || state.wanted_room > 0 && state.connection.room_bytes() >= state.wanted_room {
            state.wanted_room = 0;
            self.writable.notify_all();
        }
    }

    /// Wakes the driver if what has changed needs it sooner than it would wake.
    fn nudge(&self, state: &mut State) {
        let next = state.connection.next_timeout().unwrap_or(0);
        if state.sleeps_until_ns > next {
            state.sleeps_until_ns = 0;
            let _ = self.wake.write(1);
        }
    }

    /// Wakes the driver if it sleeps.
    fn rouse(&self, state: &mut State) {
        if std::mem::take(&mut state.sleeps_until_ns) > 0 {
            let _ = self.wake.write(1);
        }
    }

    pub(super) fn write(&self, from: &[u8]) -> io::Result<usize> {
        let mut state = self.lock();
        loop {
            if state.is_over() {
                return Err(state.end());
            }
            let now_ns = state.instant(sys::now_ns());
            let written = state.connection.write(now_ns, from);
            if written > 0 || from.is_empty() {
                self.nudge(&mut state);
                return Ok(written);
            }
            state.wanted_room = self.wake_room_bytes.max(1);
            state = self.writable.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    pub(super) fn flush(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.connection.flush();
        self.nudge(&mut state);
        Ok(())
    }

    pub(super) fn read(&self, to: &mut [u8]) -> io::Result<usize> {
        let mut state = self.lock();
        if to.is_empty() {
            return Ok(0);
        }
        loop {
            let bytes = state.connection.readable();
            let n = bytes.len().min(to.len());
            if n > 0 {
                to[..n].copy_from_slice(&bytes[..n]);
                self.consumed(&mut state, n);
                return Ok(n);
            }
            if let Some(end) = self.end_of_data(&state) {
                return end;
            }
            state = self.wait_readable(state)?;
        }
    }

    pub(super) fn discard(&self, most: usize, full: bool) -> io::Result<usize> {
        let mut state = self.lock();
        let before = state.read_bytes;
        loop {
            let dropped = (state.read_bytes - before) as usize;
            (state.to_discard, state.dropped_all) = (most - dropped, false);
            if state.discard() {
                self.rouse(&mut state);
            }
            let dropped = (state.read_bytes - before) as usize;
            if dropped == most || dropped > 0 && (!full || state.is_over()) {
                state.to_discard = 0;
                return Ok(dropped);
            }
            if let Some(end) = self.end_of_data(&state) {
                state.to_discard = 0;
                return end;
            }
            // The driver drops what comes, and wakes this thread when it has dropped all. For the first byte it wakes it at
            // once.
            if !full {
                state.to_discard = 0;
            }
            state = match self.wait_readable(state) {
                Ok(state) => state,
                Err(error) => {
                    let mut state = self.lock();
                    state.to_discard = 0;
                    let dropped = (state.read_bytes - before) as usize;
                    return if dropped > 0 { Ok(dropped) } else { Err(error) };
                }
            };
        }
    }

    /// Counts bytes as read, and has an ACK sent if the other end waits for the room.
    fn consumed(&self, state: &mut State, bytes: usize) {
        if state.consume(bytes) {
            self.rouse(state);
        }
    }

    /// What a reader that found nothing gets; `None`: it is to wait.
    fn end_of_data(&self, state: &State) -> Option<io::Result<usize>> {
        if !state.is_over() {
            return None;
        }
        match (&state.error, state.connection.ended()) {
            (None, Some(End::ByPeer | End::Finished)) => Some(Ok(0)),
            _ => Some(Err(state.end())),
        }
    }

    fn wait_readable<'a>(&self, mut state: MutexGuard<'a, State>) -> io::Result<MutexGuard<'a, State>> {
        state.reader_waits = true;
        let Some(timeout) = state.read_timeout else {
            return Ok(self.readable.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner));
        };
        let (state, waited) =
            self.readable.wait_timeout(state, timeout).unwrap_or_else(std::sync::PoisonError::into_inner);
        if waited.timed_out() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(state) }
    }

    /// Takes the first bytes if so many have arrived, without waiting. `Some(None)`: the connection has ended before.
    pub(super) fn try_read<const N: usize>(&self) -> Option<Option<[u8; N]>> {
        let mut state = self.lock();
        if let Some(first) = state.connection.readable().first_chunk::<N>().copied() {
            state.arrived = None;
            self.consumed(&mut state, N);
            return Some(Some(first));
        }
        state.is_over().then_some(None)
    }

    /// Ends the sending direction, and waits until everything has been acknowledged.
    pub(super) fn finish(&self) -> io::Result<()> {
        let mut state = self.lock();
        let now_ns = state.instant(sys::now_ns());
        state.connection.finish(now_ns);
        self.rouse(&mut state);
        while !state.is_over() {
            state = self.writable.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        match (&state.error, state.connection.ended()) {
            (None, Some(End::Finished | End::ByPeer)) => Ok(()),
            _ => Err(state.end()),
        }
    }

    /// Closes both directions at once. The shutdown has been sent when this returns, and is sent again for a while to an end
    /// that has not heard it.
    pub(super) fn abort(&self) {
        self.close(Connection::abort);
    }

    /// Closes both directions at once, as [`Driven::abort`] does, but sends the shutdown only once. The driver ends.
    pub(super) fn reset(&self) {
        self.close(Connection::reset);
    }

    fn close(&self, how: fn(&mut Connection, u64)) {
        let mut state = self.lock();
        if state.is_over() {
            return;
        }
        let now_ns = state.instant(sys::now_ns());
        how(&mut state.connection, now_ns);
        // The other end needs no more data.
        state.unsent.bytes.clear();
        let _ = self.work(&mut state, now_ns);
        self.tell(&mut state);
        self.rouse(&mut state);
    }

    /// Takes all packets of a connection that was started with a limit; see [`Connection::limit_packets`].
    pub(super) fn take_all_packets(&self) {
        self.lock().connection.limit_packets(None);
    }

    pub(super) fn observe(&self) -> io::Result<(Snapshot, u64)> {
        let state = self.lock();
        match &state.error {
            Some(error) => Err(error.again()),
            None => Ok((state.connection.snapshot(sys::now_ns()), state.read_bytes)),
        }
    }

    pub(super) fn settings(&self) -> Settings {
        let (send_buffer_bytes, receive_buffer_bytes) = self.datagrams.buffer_sizes();
        let (mss, rate) = {
            let state = self.lock();
            (state.connection.mss(), state.rate)
        };
        Settings {
            congestion_control: Some(UDT.into()),
            pacing_bytes_per_s: rate.map(|rate| rate as u64),
            send_buffer_bytes,
            dscp: self.datagrams.dscp(),
            receive_buffer_bytes,
            segment_bytes: u32::try_from(fullpipe_udt::payload_bytes(mss)).ok(),
            packet_bytes: Some(self.packet_bytes(mss)),
            dropped: sys::dropped(self.datagrams.as_fd()).ok(),
        }
    }

    /// Bytes of a packet that UDT takes for one of `mss` bytes.
    fn packet_bytes(&self, mss: u16) -> u32 {
        u32::from(mss) + self.datagrams.peer_address().map_or(0, uncounted_bytes)
    }

    /// Changes the rate of a stream that was opened with one, bytes of payload per second; `None` lifts it.
    pub(super) fn set_rate(&self, payload_bytes_per_s: Option<u64>) -> io::Result<()> {
        let mut state = self.lock();
        let mss = state.connection.mss();
        let packets_per_s = payload_bytes_per_s.map(|rate| rate as f64 / fullpipe_udt::payload_bytes(mss) as f64);
        let counted = packets_per_s.map_or(f64::INFINITY, |packets| packets * f64::from(mss));
        if !state.connection.congestion_control().set_rate(counted) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        state.rate = packets_per_s.map(|packets| packets * f64::from(self.packet_bytes(mss)));
        self.nudge(&mut state);
        Ok(())
    }

    pub(super) fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        self.lock().read_timeout = time;
        Ok(())
    }

    pub(super) fn datagrams(&self) -> &Datagrams {
        &self.datagrams
    }
}
