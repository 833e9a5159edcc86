//! A stream of datagrams: the two faces that the seam wants. One end sends at the rate, and counts; the other one counts, drops
//! what arrives, and reports to the sender.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use fullpipe_path::Transport;
use fullpipe_path::record::udp::UdpCounts;
use fullpipe_path::transport::UDP;
use nix::sys::eventfd::{EfdFlags, EventFd};
use rand::RngExt;

use super::arrivals::Arrivals;
use super::datagram::{self, Datagram, HEADER_BYTES};
use super::pacer::Pacer;
use crate::stream::datagrams::{Datagrams, MAX_SEGMENTS, MAX_SEND_BYTES, RECEIVE_BYTES, headers_bytes};
use crate::stream::{DataStream, Observation, Settings, StreamHandle};
use crate::sys;

/// Time between two reports of the receiver, ns.
const REPORT_NS: u64 = 50_000_000;
/// A sender that has no report for this time pauses until it has one, ns: nobody may be there any more.
const SILENCE_NS: u64 = 5_000_000_000;
/// Time for which datagrams may arrive behind the sender's last word, ns.
const LATE_NS: u64 = 200_000_000;
/// Time between two of the sender's last words, ns.
const END_NS: u64 = 20_000_000;
/// Time between two looks for reports of a sender that never waits, ns.
const LOOK_NS: u64 = 10_000_000;

/// What a stream is made of.
pub(super) struct Terms {
    /// Payload of each datagram that this end sends, bytes.
    pub(super) datagram_bytes: usize,
    /// Rate of the payload, bytes per second.
    pub(super) bytes_per_s: f64,
    /// Marks the stream's datagrams.
    pub(super) tag: u16,
    /// Whether this end sends data.
    pub(super) sends: bool,
}

impl Terms {
    /// The terms of one of a transport's streams.
    pub(super) fn new(transport: &Transport, datagram_bytes: usize, tag: u16, sends: bool) -> Terms {
        let bps = transport.pacing.map_or(0, |rate| rate.0) as f64;
        let bytes_per_s = (bps / 8.0 / f64::from(transport.streams.max(1))).max(1.0);
        Terms { datagram_bytes, bytes_per_s, tag, sends }
    }
}

/// The latest report of the receiver.
#[derive(Default)]
struct Report {
    /// Its number plus 1; 0 before the first.
    after: u64,
    bytes: u64,
    counts: UdpCounts,
}

/// What both faces see. The lock on it is held for a batch of datagrams, and never while a thread waits.
struct State {
    /// At the receiver.
    arrivals: Arrivals,
    /// Bytes of payload that have arrived.
    received_bytes: u64,
    /// At the sender: datagrams handed to the kernel.
    sent: u64,
    report: Report,
}

struct Shared {
    datagrams: Datagrams,
    terms: Terms,
    state: Mutex<State>,
    closed: AtomicBool,
    /// Readable once the stream is closed.
    wake: EventFd,
}

/// A stream of datagrams.
pub(super) struct UdpStream {
    shared: Arc<Shared>,
    pacer: Pacer,
    /// Memory for what arrives.
    arriving: Vec<u8>,
    /// Memory for what is sent at once: random bytes, with a header at the beginning of each datagram.
    leaving: Vec<u8>,
    /// Bytes that were written and do not fill a datagram yet.
    owed_bytes: u64,
    /// When the last report arrived, or the first datagram left.
    heard_ns: Option<u64>,
    looked_ns: u64,
    reported_ns: u64,
    reports: u64,
    /// When the receiver stops to wait for late datagrams.
    ends_ns: Option<u64>,
}

impl UdpStream {
    /// Makes a stream of a socket that is connected to the other end.
    pub(super) fn new(datagrams: Datagrams, terms: Terms) -> io::Result<UdpStream> {
        let state = State { arrivals: Arrivals::new(), received_bytes: 0, sent: 0, report: Report::default() };
        let pacer = Pacer::new(terms.bytes_per_s, terms.datagram_bytes);
        let (arriving, leaving) = if terms.sends {
            let datagrams = (MAX_SEND_BYTES / terms.datagram_bytes).clamp(1, MAX_SEGMENTS);
            let mut random = vec![0; datagrams * terms.datagram_bytes];
            rand::rng().fill(&mut random[..]);
            (vec![0; RECEIVE_BYTES], random)
        } else {
            (vec![0; RECEIVE_BYTES * sys::MAX_MESSAGES], Vec::new())
        };
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        let shared = Shared { datagrams, terms, state: Mutex::new(state), closed: AtomicBool::new(false), wake };
        Ok(UdpStream {
            shared: Arc::new(shared),
            pacer,
            arriving,
            leaving,
            owed_bytes: 0,
            heard_ns: None,
            looked_ns: 0,
            reported_ns: 0,
            reports: 0,
            ends_ns: None,
        })
    }

    /// Waits until something has arrived, an instant, or the end of the stream.
    fn wait_until(&self, at_ns: u64) -> io::Result<()> {
        let (socket, wake) = (self.shared.datagrams.as_fd(), self.shared.wake.as_fd());
        sys::wait_readable([socket, wake], at_ns.saturating_sub(sys::now_ns())).map(drop)
    }

    /// Takes in what has arrived; returns the bytes of data that are new.
    fn take_in(&mut self) -> io::Result<u64> {
        let arrived = self.shared.datagrams.receive(&mut self.arriving)?;
        let mut state = self.shared.state();
        let before = state.received_bytes;
        let (now_ns, unix_ns) = (sys::now_ns(), unix_ns());
        for (arrived, message) in arrived.zip(self.arriving.chunks(RECEIVE_BYTES)) {
            for bytes in message[..arrived.bytes].chunks(arrived.segment_bytes.max(1)) {
                match datagram::parse(bytes, self.shared.terms.tag) {
                    Some(Datagram::Data { seq, sent_ns }) => {
                        let is_new = state.arrivals.arrived(seq, sent_ns, arrived.at_ns.unwrap_or(unix_ns));
                        state.received_bytes += if is_new { bytes.len() as u64 } else { 0 };
                    }
                    Some(Datagram::End { sent }) => {
                        state.arrivals.ended(sent);
                        self.ends_ns.get_or_insert(now_ns + LATE_NS);
                    }
                    Some(Datagram::Report { number, bytes, counts }) if number >= state.report.after => {
                        state.report = Report { after: number + 1, bytes, counts };
                        self.heard_ns = Some(now_ns);
                    }
                    _ => {}
                }
            }
        }
        Ok(state.received_bytes - before)
    }

    /// Tells the sender what has arrived, if it is time for that.
    fn report(&mut self, now_ns: u64) {
        if now_ns < self.reported_ns + REPORT_NS {
            return;
        }
        self.reported_ns = now_ns;
        let (bytes, counts) = {
            let state = self.shared.state();
            (state.received_bytes, state.arrivals.counts())
        };
        let report = datagram::report(self.shared.terms.tag, self.reports, bytes, &counts);
        self.reports += 1;
        // A report that cannot be sent is lost; the next one says more.
        let _ = self.shared.datagrams.send(&report, report.len());
    }

    /// Waits until the next datagram may be sent, and takes in reports meanwhile.
    fn wait_for_turn(&mut self) -> io::Result<()> {
        loop {
            self.shared.check_open()?;
            let now = sys::now_ns();
            let heard_ns = *self.heard_ns.get_or_insert(now);
            if now >= self.looked_ns + LOOK_NS {
                self.looked_ns = now;
                self.take_in()?;
            }
            if now.saturating_sub(heard_ns) > SILENCE_NS && self.heard_ns == Some(heard_ns) {
                self.pacer.restart();
                self.wait_until(now + LOOK_NS)?;
                continue;
            }
            let next = self.pacer.next_ns(now);
            if next <= now {
                return Ok(());
            }
            self.wait_until(next)?;
            // A datagram that has ended the wait must not end the next one.
            if sys::now_ns() < next {
                self.take_in()?;
            }
        }
    }

    /// Sends datagrams at once when it is their turn: at most `most` of them. Returns how many.
    fn send(&mut self, most: u64, datagram_bytes: usize) -> io::Result<u64> {
        self.wait_for_turn()?;
        let datagrams = self.pacer.burst(sys::now_ns(), most);
        let whole = datagrams as usize * datagram_bytes;
        let mut gone = 0;
        while gone < whole {
            self.shared.check_open()?;
            let first = self.shared.state().sent;
            let now_ns = sys::now_ns();
            let left = &mut self.leaving[..whole - gone];
            for (seq, datagram) in (first..).zip(left.chunks_exact_mut(datagram_bytes)) {
                if let Some(header) = datagram.first_chunk_mut::<HEADER_BYTES>() {
                    datagram::write_data(header, self.shared.terms.tag, seq, now_ns);
                }
            }
            let sent = self.shared.datagrams.send(left, datagram_bytes).map_err(|e| too_long(e, datagram_bytes))?;
            self.shared.state().sent += sent.div_ceil(datagram_bytes) as u64;
            gone += sent;
            if gone < whole {
                // The kernel has no room.
                let (socket, wake) = (self.shared.datagrams.as_fd(), self.shared.wake.as_fd());
                sys::wait_ready([(socket, libc::POLLOUT), (wake, libc::POLLIN)], END_NS)?;
            }
        }
        self.pacer.sent(datagrams, sys::now_ns());
        Ok(datagrams)
    }
}

/// The time of day, ns since 1970: the clock of the kernel's times of arrival.
fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// Says what helps against a datagram that does not fit.
fn too_long(error: io::Error, datagram_bytes: usize) -> io::Error {
    if error.raw_os_error() != Some(libc::EMSGSIZE) {
        return error;
    }
    let why = format!(
        "datagrams of {datagram_bytes} bytes do not fit into the path's packets; give a smaller --datagram-size"
    );
    io::Error::new(error.kind(), why)
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_open(&self) -> io::Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }
}

impl Read for UdpStream {
    /// Datagrams are counted, and nobody reads them.
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Write for UdpStream {
    /// Sends datagrams with as many bytes in all. What is in them is not what was written: it has no meaning.
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let size = self.shared.terms.datagram_bytes;
        self.owed_bytes += from.len() as u64;
        let most = (self.leaving.len() / size) as u64;
        while self.owed_bytes >= size as u64 {
            let datagrams = self.send(most.min(self.owed_bytes / size as u64), size)?;
            self.owed_bytes -= datagrams * size as u64;
        }
        Ok(from.len())
    }

    /// Sends what does not fill a datagram, and says how many datagrams there were, until the stream is closed.
    fn flush(&mut self) -> io::Result<()> {
        let size = self.shared.terms.datagram_bytes;
        if self.owed_bytes > 0 {
            self.send(1, (self.owed_bytes as usize).clamp(HEADER_BYTES, size))?;
            self.owed_bytes = 0;
        }
        let end = datagram::end(self.shared.terms.tag, self.shared.state().sent);
        while self.shared.check_open().is_ok() {
            let now = sys::now_ns();
            if self.heard_ns.is_none_or(|heard| now.saturating_sub(heard) <= SILENCE_NS) {
                let _ = self.shared.datagrams.send(&end, end.len());
            }
            let next = now + END_NS;
            while sys::now_ns() < next && self.shared.check_open().is_ok() {
                self.wait_until(next)?;
                self.take_in()?;
            }
        }
        Ok(())
    }
}

impl DataStream for UdpStream {
    fn handle(&self) -> Arc<dyn StreamHandle> {
        Arc::new(UdpHandle(self.shared.clone()))
    }

    fn may_lose(&self) -> bool {
        true
    }

    fn discard(&mut self, most: usize, _: bool) -> io::Result<usize> {
        loop {
            self.shared.check_open()?;
            let new = self.take_in()?;
            let now = sys::now_ns();
            self.report(now);
            if new > 0 {
                return Ok(usize::try_from(new).unwrap_or(most).min(most));
            }
            if self.ends_ns.is_some_and(|ends| now >= ends) || self.shared.state().arrivals.is_complete() {
                return Ok(0);
            }
            self.wait_until(self.ends_ns.unwrap_or(u64::MAX).min(self.reported_ns + REPORT_NS))?;
        }
    }

    /// [`Write::flush`] says all that the other end has to know.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The shared face of a [`UdpStream`].
struct UdpHandle(Arc<Shared>);

impl StreamHandle for UdpHandle {
    fn observe(&self) -> io::Result<Observation> {
        let state = self.0.state();
        let (acked_bytes, counts) = if self.0.terms.sends {
            (Some(state.report.bytes), UdpCounts { datagrams: state.sent, ..state.report.counts })
        } else {
            (None, state.arrivals.counts())
        };
        Ok(Observation { acked_bytes, udp: Some(counts), ..Observation::default() })
    }

    fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
        // Fails only at 2^64 - 1 unread events.
        let _ = self.0.wake.write(1);
    }

    fn settings(&self) -> Settings {
        let (send_buffer_bytes, receive_buffer_bytes) = self.0.datagrams.buffer_sizes();
        let Terms { datagram_bytes, bytes_per_s, .. } = self.0.terms;
        let payload_bytes = datagram_bytes as u32;
        Settings {
            congestion_control: Some(UDP.into()),
            pacing_bytes_per_s: Some(bytes_per_s as u64),
            send_buffer_bytes,
            receive_buffer_bytes,
            dscp: self.0.datagrams.dscp(),
            segment_bytes: Some(payload_bytes),
            packet_bytes: self.peer_address().map(|peer| payload_bytes + headers_bytes(peer)),
            dropped: sys::dropped(self.0.datagrams.as_fd()).ok(),
        }
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.0.datagrams.local_address()
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        self.0.datagrams.peer_address()
    }
}
