//! One side of a run, from its start to its report. Client and server, sender and receiver use the same code.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fullpipe_path::{Direction, Protocol, Transport, Workload, text};

use crate::error::{NetError, system};
use crate::sample::{Sample, Sampler};
use crate::side::Side;
use crate::stream::DataStream;
use crate::traffic::{Source, Traffic};
use crate::wire::{self, Message, Received, Report, Request};
use crate::{host_info, shared_port, socket, start_times, sys};

/// Longest time that a message may take to arrive, or to be answered.
pub(crate) const ANSWER: Duration = Duration::from_secs(20);
/// Time that the other end's reason for closing a stream may come after the stream's end, besides two round trips, ns.
const REASON_NS: u64 = 1_000_000_000;

/// The control connection.
pub(crate) struct Control {
    pub(crate) stream: TcpStream,
    /// Name of the other end for errors.
    pub(crate) peer: String,
}

impl Control {
    pub(crate) fn new(stream: TcpStream, peer: String) -> Result<Control, NetError> {
        // Small messages must not wait for each other (RFC 896).
        stream.set_nodelay(true).map_err(system("setting TCP_NODELAY"))?;
        stream.set_read_timeout(Some(ANSWER)).map_err(system("setting a timeout"))?;
        stream.set_write_timeout(Some(ANSWER)).map_err(system("setting a timeout"))?;
        Ok(Control { stream, peer })
    }

    pub(crate) fn send(&mut self, message: &Message, doing: &'static str) -> Result<(), NetError> {
        wire::send(&mut self.stream, message).map_err(|e| self.lost(doing, e))
    }

    /// Receives the next message. If the other end refuses or has failed, its reason, made safe to show, becomes an error.
    pub(crate) fn receive(&mut self, doing: &'static str) -> Result<Message, NetError> {
        match wire::receive_message(&mut self.stream) {
            Ok(Message::Refused { why, usable_cc }) => Err(NetError::Refused {
                peer: self.peer.clone(),
                why: text::from_peer(&why),
                usable_cc: usable_cc.filter(|cc| socket::check_known(cc).is_ok()),
            }),
            Ok(Message::Failed { why, is_stall }) => Err(self.failed(&why, is_stall)),
            Ok(message) => Ok(message),
            Err(error) => Err(self.lost(doing, error)),
        }
    }

    /// Waits a moment until the other end has closed the connection, and passes over a [`Message::Stop`] that came too late: a close
    /// with unread data would destroy what this end has sent last (RFC 1122, section 4.2.2.13).
    pub(crate) fn wait_for_hang_up(&mut self) {
        const LONGEST: Duration = Duration::from_secs(1);
        if self.stream.set_read_timeout(Some(LONGEST)).is_ok() {
            let _ = wire::receive_message(&mut self.stream);
        }
    }

    /// Makes an error of the reason that the other end gave for its failure.
    pub(crate) fn failed(&self, why: &str, is_stall: bool) -> NetError {
        NetError::Remote { peer: self.peer.clone(), why: text::from_peer(why), is_stall }
    }

    pub(crate) fn lost(&self, doing: &'static str, source: io::Error) -> NetError {
        use io::ErrorKind::{ConnectionReset, InvalidData, TimedOut, UnexpectedEof, WouldBlock};
        // A program that hangs up on the greeting, or does not answer it, is most likely not fullpipe.
        let why = match source.kind() {
            UnexpectedEof | ConnectionReset if doing == "greeting" => Some("it hung up"),
            WouldBlock | TimedOut if doing == "greeting" => Some("it did not answer"),
            _ => None,
        };
        if let Some(why) = why {
            return NetError::Stranger { peer: self.peer.clone(), why: why.into() };
        }
        match source.kind() {
            // The error may quote what did not parse.
            InvalidData => NetError::Stranger { peer: self.peer.clone(), why: text::from_peer(&source.to_string()) },
            // A read has waited for too long. The kernel's own words for that are about a resource.
            WouldBlock => {
                let why = format!("no answer for {} s", ANSWER.as_secs());
                NetError::Lost { peer: self.peer.clone(), doing, source: io::Error::new(TimedOut, why) }
            }
            // The library's words are of a buffer.
            UnexpectedEof => {
                let source = io::Error::new(UnexpectedEof, "it closed the connection");
                NetError::Lost { peer: self.peer.clone(), doing, source }
            }
            _ => NetError::Lost { peer: self.peer.clone(), doing, source },
        }
    }

    pub(crate) fn unexpected(&self, message: &Message) -> NetError {
        NetError::Stranger { peer: self.peer.clone(), why: text::from_peer(&format!("out of turn: {message:?}")) }
    }
}

/// What one side of a run needs to know.
pub(crate) struct Role<'a> {
    pub(crate) end: Side,
    pub(crate) request: &'a Request,
    /// Start of the run's clock, ns of this host's `CLOCK_MONOTONIC`.
    pub(crate) zero_ns: u64,
    pub(crate) rtt_ns: u64,
    /// Longest time without progress before the run has failed, ns.
    pub(crate) stall_ns: u64,
    /// Longest time that the run may take from the start of its clock, ns; `None` for no limit.
    pub(crate) limit_ns: Option<u64>,
}

impl Role<'_> {
    /// What this side does with the data, for errors.
    fn moving(&self) -> &'static str {
        match self.end {
            Side::Sender => "sending data",
            Side::Receiver => "receiving data",
        }
    }
}

/// How far a run is.
#[derive(Debug)]
pub struct Progress<'a> {
    /// Time on the run's clock, s.
    pub seconds: f64,
    /// Bytes of all streams so far.
    pub bytes: u64,
    /// This side's samples since the last call, in order. Those of one time, one for each stream, come together.
    pub samples: &'a [Sample],
}

/// Who watches a run, and may end it.
#[derive(Clone, Copy, Default)]
pub struct Watcher<'a> {
    /// Called with the run's progress about every half second, or every `tick`.
    pub show: Option<&'a dyn Fn(&Progress<'_>)>,
    /// Longest time between two calls of `show`; `None` for half a second.
    pub tick: Option<Duration>,
    /// Asked about every half second; the run ends before its time or size when it returns true.
    pub interrupted: Option<&'a (dyn Fn() -> bool + Sync)>,
}

impl Watcher<'_> {
    /// Whether the run is to end before its time or size.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.is_some_and(|is_interrupted| is_interrupted())
    }
}

/// What one side of a run has observed.
#[derive(Debug, Clone)]
pub struct Observed {
    /// Description of the host, and what its streams received.
    pub report: Report,
    /// TCP_INFO of its streams over time.
    pub samples: Vec<Sample>,
    /// Most bytes that it can have sent on each stream; empty for a receiver, and for another host.
    pub most_sent: Vec<u64>,
}

/// Moves the data of one side, and returns what it observed. `overhead_bytes` are those bytes on each stream that are not
/// data.
pub(crate) fn run(
    role: &Role<'_>,
    streams: Vec<Box<dyn DataStream>>,
    overhead_bytes: u64,
    control: &mut Control,
    watcher: &Watcher<'_>,
) -> Result<Observed, NetError> {
    let traffic =
        &Traffic::new(&streams, role.request.workload, overhead_bytes).map_err(system("opening an eventfd"))?;
    let sampler = Sampler::new(role.end, role.zero_ns, role.request.sample.0);
    let source = match role.end {
        Side::Sender => Some(Source::new().map_err(system("making a memory file to send"))?),
        Side::Receiver => None,
    };
    let datagram_bytes = traffic.handle(0).settings().segment_bytes.unwrap_or(0);
    let starts = start_times::starts(
        role.request.seed,
        traffic.len() as u16,
        start_times::within_ns(&role.request.transport, datagram_bytes, role.rtt_ns),
    );
    let handles: Vec<_> = (0..traffic.len()).map(|i| traffic.handle(i)).collect();
    let mut end = host_info::describe(&handles);
    let cpu = sys::cpu_seconds();
    sys::exact_timers();
    let watched = std::thread::scope(|scope| {
        for ((i, stream), start) in streams.into_iter().enumerate().zip(&starts) {
            let source = source.as_ref();
            std::thread::Builder::new()
                .stack_size(128 << 10)
                .spawn_scoped(scope, move || match source {
                    Some(source) => traffic.send(i, stream, source, role.zero_ns + start),
                    None => traffic.receive(i, stream),
                })
                .map_err(system("starting a thread for a stream"))
                .inspect_err(|_| traffic.stop())?;
        }
        let sampling = std::thread::Builder::new()
            .stack_size(128 << 10)
            .spawn_scoped(scope, || sampler.run(traffic))
            .map_err(system("starting the sampling thread"))
            .inspect_err(|_| traffic.stop());
        let watched = sampling.and_then(|_| watch(role, traffic, &sampler, control, watcher));
        if watched.is_ok() {
            sampler.tick(traffic, sys::now_ns());
        }
        if role.end == Side::Receiver {
            // The sender must know the reason before its streams close.
            let last = match &watched {
                Ok(()) => Message::Finished,
                Err(error) => failure(error),
            };
            let told = control.send(&last, "ending the run");
            traffic.stop();
            return watched.and(told);
        }
        // The receiver knows of the failures that it told of, and an end that hung up hears nothing.
        if let Err(error) = &watched
            && !matches!(error, NetError::Remote { .. })
        {
            let _ = control.send(&failure(error), "ending the run");
        }
        traffic.stop();
        watched
    });
    watched?;
    // The kernel's tuning has changed them meanwhile.
    (end.sndbuf, end.rcvbuf) = host_info::buffers(&traffic.handle(0).settings());
    end.socket_drops = host_info::dropped(&handles);
    let seconds = sys::now_ns().saturating_sub(role.zero_ns) as f64 / 1e9;
    let received = match role.end {
        Side::Sender => Vec::new(),
        Side::Receiver => (0..traffic.len())
            .map(|i| {
                let (bytes, first, last) = traffic.received(i);
                let on_clock = |ns: u64| ns.saturating_sub(role.zero_ns);
                let udp = traffic.handle(i).observe().ok().and_then(|seen| seen.udp);
                Received { bytes, first_ns: on_clock(first), last_ns: on_clock(last), udp }
            })
            .collect(),
    };
    let (early_bytes, cpu_s) = (traffic.early_bytes(), sys::cpu_seconds() - cpu);
    let report = Report { end, received, early_bytes, cpu_s, seconds };
    let most_sent = match role.end {
        Side::Sender => (0..traffic.len()).map(|i| traffic.most_sent(i)).collect(),
        Side::Receiver => Vec::new(),
    };
    Ok(Observed { report, samples: sampler.into_samples(), most_sent })
}

/// What the other end is told of a failure of the run.
fn failure(error: &NetError) -> Message {
    Message::Failed { why: error.to_string(), is_stall: matches!(error, NetError::Stalled { .. }) }
}

/// Waits for the end of the run. The receiver ends it when all bytes have arrived, the time is over, or the client interrupts
/// it; the sender when the receiver says so. Both end it with an error if the other end disappears, a stream breaks, nothing
/// moves, or the run takes too long.
fn watch(
    role: &Role<'_>,
    traffic: &Traffic,
    sampler: &Sampler,
    control: &mut Control,
    watcher: &Watcher<'_>,
) -> Result<(), NetError> {
    let tick_ns = watcher.tick.map_or(500_000_000, |tick| tick.as_nanos() as u64);
    // The number of samples that were shown, and whether the receiver was asked to end the run.
    let (mut shown, mut stopping) = (0, false);
    let mut moved = (0, sys::now_ns().max(role.zero_ns));
    // Bytes are counted when samples are taken.
    let patience = role.stall_ns.max(3 * role.request.sample.0);
    // The first stream's error, and until when the other end may give the reason for it.
    let mut broken: Option<(io::Error, u64)> = None;
    loop {
        let now = sys::now_ns();
        let mut wait = tick_ns;
        let interrupted = watcher.is_interrupted();
        if role.end == Side::Receiver {
            if traffic.complete() || interrupted {
                return Ok(());
            }
            if let (Workload::Duration(time), Some(first)) = (role.request.workload, traffic.first_arrival_ns()) {
                let Some(left) = first.saturating_add(time.0).checked_sub(now).filter(|left| *left > 0) else {
                    return Ok(());
                };
                wait = wait.min(left);
            }
        }
        if role.end == Side::Sender && interrupted && !std::mem::replace(&mut stopping, true) {
            control.send(&Message::Stop, "ending the run")?;
        }
        if let Some(error) = traffic.take_broken() {
            let reason_ns = REASON_NS.saturating_add(role.rtt_ns.saturating_mul(2));
            broken.get_or_insert((error, now.saturating_add(reason_ns)));
        }
        if let Some((error, until_ns)) = broken.take() {
            let Some(left) = until_ns.checked_sub(now).filter(|left| *left > 0) else {
                return Err(control.lost(role.moving(), error));
            };
            wait = wait.min(left);
            broken = Some((error, until_ns));
        }
        if let Some(limit) = role.limit_ns {
            let end = role.zero_ns.saturating_add(limit);
            if now >= end {
                return Err(NetError::TooLong { seconds: limit as f64 / 1e9 });
            }
            wait = wait.min(end - now);
        }
        sampler.check_room()?;
        let total = sampler.total.load(Ordering::Relaxed);
        if total != moved.0 {
            moved = (total, now);
        } else if now.saturating_sub(moved.1) >= patience {
            return Err(NetError::Stalled { seconds: now.saturating_sub(moved.1) as f64 / 1e9 });
        }
        wait = wait.min(patience.saturating_sub(now.saturating_sub(moved.1)));
        if let Some(show) = watcher.show {
            let samples = sampler.since(shown);
            shown += samples.len();
            show(&Progress { seconds: now.saturating_sub(role.zero_ns) as f64 / 1e9, bytes: total, samples: &samples });
        }
        let ready = sys::wait_readable([control.stream.as_fd(), traffic.event.as_fd()], wait)
            .map_err(system("waiting for the streams"))?;
        if ready[1] {
            // The event itself matters, not how many there were.
            let _ = traffic.event.read();
        }
        if ready[0] {
            return match (control.receive("moving data")?, role.end) {
                (Message::Finished, Side::Sender) => Ok(()),
                // Only a client may cut a run short; to a client that receives, it would look as if all had come.
                (Message::Stop, Side::Receiver) if role.request.direction == Direction::Send => Ok(()),
                (other, _) => Err(control.unexpected(&other)),
            };
        }
    }
}

/// Returns the number of the stream if its preamble has the session's token.
pub(crate) fn read_preamble(preamble: &[u8; wire::PREAMBLE], token: [u8; 16]) -> Option<u16> {
    // All bytes are compared, so that the time does not show how many of them are right.
    let differs = preamble.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b));
    (differs == 0).then(|| u16::from_le_bytes([preamble[16], preamble[17]]))
}

/// Bytes of the preamble that a stream's transport counts with the data. `is_shared` tells whether the stream goes to the
/// server's own port.
pub(crate) fn counted_preamble_bytes(transport: &Transport, is_shared: bool) -> u64 {
    let head = if is_shared { shared_port::HEAD } else { 0 };
    if transport.protocol() == Protocol::Udp { 0 } else { (head + wire::PREAMBLE) as u64 }
}

/// Makes the preamble of a stream, which [`read_preamble`] reads.
pub(crate) fn preamble(token: [u8; 16], stream: u16) -> [u8; wire::PREAMBLE] {
    let mut bytes = [0; wire::PREAMBLE];
    bytes[..16].copy_from_slice(&token);
    bytes[16..18].copy_from_slice(&stream.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::time::Instant;

    use fullpipe_path::{Buffer, Size, Time};

    use super::*;
    use crate::stream::{Observation, StreamHandle};

    /// A stream whose first write fails with an error of this host.
    struct Broken;

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }
    }

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(libc::EMSGSIZE))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl DataStream for Broken {
        fn handle(&self) -> Arc<dyn StreamHandle> {
            Arc::new(Broken)
        }
        fn finish(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl StreamHandle for Broken {
        fn observe(&self) -> io::Result<Observation> {
            Ok(Observation::default())
        }
        fn close(&self) {}
    }

    /// A stream on which nothing comes.
    struct Idle;

    impl Read for Idle {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            std::thread::sleep(Duration::from_millis(300));
            Err(io::ErrorKind::ConnectionAborted.into())
        }
    }

    impl Write for Idle {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl DataStream for Idle {
        fn handle(&self) -> Arc<dyn StreamHandle> {
            Arc::new(Broken)
        }
        fn finish(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Runs a sender whose stream breaks at once. Returns its error, how long it ran, and the other end of its control
    /// connection, on which `told` has been sent before.
    fn broken_sender(told: Option<&Message>) -> (Result<(), NetError>, Duration, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut receiver = listener.accept().unwrap().0;
        if let Some(message) = told {
            wire::send(&mut receiver, message).unwrap();
        }
        let mut control = Control::new(stream, "receiver".into()).unwrap();
        let request = Request {
            transport: Transport {
                cc: "udt".into(),
                streams: 1,
                buffer: Buffer::Auto,
                pacing: None,
                dscp: None,
                mss: None,
            },
            workload: Workload::Size(Size(1_000_000)),
            direction: Direction::Send,
            seed: 1,
            sample: Time(100_000_000),
        };
        let (zero_ns, stall_ns) = (sys::now_ns(), 30_000_000_000);
        let role = Role { end: Side::Sender, request: &request, zero_ns, rtt_ns: 1_000_000, stall_ns, limit_ns: None };
        let begun = Instant::now();
        let ended = run(&role, vec![Box::new(Broken)], 0, &mut control, &Watcher::default()).map(drop);
        (ended, begun.elapsed(), receiver)
    }

    /// A transport's own limit is not that of an answer on the control connection.
    #[test]
    fn only_an_answer_that_is_missing_is_said_to_be_missing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let control = Control::new(stream, "peer".into()).unwrap();
        let late = control.lost("asking", io::ErrorKind::WouldBlock.into());
        assert_eq!(late.to_string(), "lost peer while asking: no answer for 20 s");
        let silent = control.lost("sending data", io::Error::new(io::ErrorKind::TimedOut, "no datagram for 30 s"));
        assert_eq!(silent.to_string(), "lost peer while sending data: no datagram for 30 s");
    }

    /// A server that sends could else have a part count as the whole.
    #[test]
    fn only_the_client_cuts_a_run_short() {
        for (direction, ends) in [(Direction::Send, true), (Direction::Receive, false)] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut sender = listener.accept().unwrap().0;
            wire::send(&mut sender, &Message::Stop).unwrap();
            let mut control = Control::new(stream, "sender".into()).unwrap();
            let request = Request {
                transport: Transport {
                    cc: "cubic".into(),
                    streams: 1,
                    buffer: Buffer::Auto,
                    pacing: None,
                    dscp: None,
                    mss: None,
                },
                workload: Workload::Size(Size(1_000_000)),
                direction,
                seed: 1,
                sample: Time(100_000_000),
            };
            let (zero_ns, stall_ns) = (sys::now_ns(), 30_000_000_000);
            let role =
                Role { end: Side::Receiver, request: &request, zero_ns, rtt_ns: 1_000_000, stall_ns, limit_ns: None };
            let ended = run(&role, vec![Box::new(Idle)], 0, &mut control, &Watcher::default()).map(drop);
            assert_eq!(ended.is_ok(), ends, "{direction:?}: {ended:?}");
        }
    }

    #[test]
    fn a_senders_own_error_reaches_both_users() {
        let (ended, took, mut receiver) = broken_sender(None);
        let error = ended.unwrap_err().to_string();
        assert!(error.starts_with("lost receiver while sending data: Message too long"), "{error}");
        assert!(took < Duration::from_secs(10), "{took:?}");
        let told = wire::receive_message(&mut receiver).unwrap();
        assert_eq!(told, Message::Failed { why: error, is_stall: false });
    }

    #[test]
    fn a_sender_whose_streams_the_receiver_has_closed_learns_the_reason() {
        assert!(broken_sender(Some(&Message::Finished)).0.is_ok());
        let why = "no data moved for 5 s".to_owned();
        let error = broken_sender(Some(&Message::Failed { why, is_stall: true })).0.unwrap_err();
        assert!(matches!(error, NetError::Remote { is_stall: true, .. }), "{error}");
    }
}
