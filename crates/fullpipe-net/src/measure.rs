//! The client of a measurement: it asks a server for a run, moves the data, and gathers what both ends have observed.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fullpipe_path::{Direction, Host, Protocol};
use rand::RngExt;

use crate::combine::{Circumstances, Measured, combine};
use crate::error::{NetError, system};
use crate::local_end::LocalEnd;
use crate::one_client::MeasurementId;
use crate::plausible::{self, Known};
use crate::probe::Prober;
use crate::serve_measurement::{hello, version_error};
use crate::session::{self, ANSWER, Control, Observed, Progress, Role, Watcher};
use crate::shared_port::{self, SAME_PORT};
use crate::side::Side;
use crate::stream::{self, Connector, DataStream};
use crate::tcp_info::TcpInfo;
use crate::wire::{self, Frame, MAGIC, Message, PROTOCOL, ProofKey, Report, Request};
use crate::{local_end, preface, sample, sample_count, socket, sys};

/// Time in which the far end's port for data streams must answer the first one. A port that no stream reaches until then is taken
/// for closed: TCP has tried at least twice (RFC 6298, section 2).
pub const FIRST_ANSWER: Duration = Duration::from_secs(3);
/// Time in which the server's whole report must come, besides [`SAMPLE_TIME`] for each sample.
const REPORT_TIME: Duration = Duration::from_secs(60);
/// Time that each sample of a report may take: a few hundred bytes, over a path that carries a few Mb/s.
const SAMPLE_TIME: Duration = Duration::from_millis(1);
/// Time by which the server's clock may differ from this host's besides its drift, ns.
const CLOCK_NS: u64 = 2_000_000_000;

/// What a client assumes and allows.
#[derive(Debug, Clone, Default)]
pub struct MeasureOptions {
    /// This host's end of all connections.
    pub from: LocalEnd,
    /// Longest time without progress before the run has failed.
    pub stall: Duration,
    /// Longest time to establish a connection.
    pub connect: Duration,
    /// Time in which the server's data port must answer the first stream, at most `connect`.
    pub first_answer: Duration,
    /// Largest rate of payload that the path can carry, bit/s, if it is known. It helps to name the bottleneck.
    pub capacity: Option<f64>,
    /// Whether traffic of others takes a part of the capacity.
    pub has_cross: bool,
    /// Whether to refuse buffers larger than memory.
    pub check_memory: bool,
    /// Key that proves that this client holds the server's token; `None` without a token.
    pub proof_key: Option<ProofKey>,
    /// Makes the preface of a connection, with which strangers cannot crowd it out, of `proof_key`; `None` to send none. Each
    /// connection needs its own.
    pub preface: Option<fn(&ProofKey) -> [u8; preface::LEN]>,
    /// Time from the first byte's arrival that a second rate leaves out; `None` for no second rate.
    pub omit: Option<Duration>,
    /// Time between two probes of the path's latency, on a connection of their own; `None` for no probes.
    pub probe: Option<Duration>,
}

/// Runs one measurement with a server.
///
/// # Errors
/// The run cannot start or does not finish. Nothing of it is left then.
pub fn measure(
    host: &Host,
    request: &Request,
    options: &MeasureOptions,
    watcher: &Watcher<'_>,
) -> Result<Measured, NetError> {
    // A measurement with probes has two connections.
    let id = options.probe.map(|_| rand::rng().random());
    let prober = options.probe.map(|every| Prober::start(greeted(host, options, id)?, every, watcher)).transpose()?;
    let ready = Ready::new(host, request, options, id)?;
    // A sender on this host starts at once. A sender at the server starts after one round-trip time, when it knows of it.
    let head_start = if request.direction == Direction::Send { 0 } else { ready.rtt_ns };
    let begun_ns = sys::now_ns() + head_start;
    let mut measured = ready.run(begun_ns, 1, watcher)?;
    // What was asked before data moved, or after, met no queue of theirs.
    let last_s = measured.outcome.streams.iter().map(|stream| stream.last_s).fold(0.0, f64::max);
    measured.outcome.probe =
        prober.map(|prober| prober.finish(begun_ns, begun_ns.saturating_add((last_s * 1e9) as u64)));
    Ok(measured)
}

/// Runs two measurements with a server at once, one in either direction, and returns what was sent, then what was received.
/// Each has a session of its own at the server. Both are connected at the same time; data move when both are ready. `watcher`
/// is shown the data that this host receives, and this host's samples of both directions.
///
/// # Errors
/// One of the runs cannot start or does not finish. The other one ends, too.
pub fn measure_both(
    host: &Host,
    request: &Request,
    options: &MeasureOptions,
    watcher: &Watcher<'_>,
) -> Result<[Measured; 2], NetError> {
    let [there, back] = [Direction::Send, Direction::Receive].map(|direction| Request { direction, ..request.clone() });
    let id = Some(rand::rng().random());
    let panicked = |what| system(what)(std::io::Error::other("panicked"));
    let (there, back) = std::thread::scope(|scope| {
        let there = std::thread::Builder::new()
            .spawn_scoped(scope, || Ready::new(host, &there, options, id))
            .map_err(system("starting a thread for a direction"))?;
        let back = Ready::new(host, &back, options, id);
        Ok((there.join().unwrap_or_else(|_| Err(panicked("connecting")))?, back?))
    })?;
    let zero_ns = sys::now_ns() + there.rtt_ns.max(back.rtt_ns);
    let (failed, interrupted) = (AtomicBool::new(false), watcher.interrupted);
    let (is_shown, tick) = (watcher.show.is_some(), watcher.tick);
    let is_over = || failed.load(Ordering::SeqCst) || interrupted.is_some_and(|is_interrupted| is_interrupted());
    let run = |ready: Ready<'_>, watcher: &Watcher<'_>| {
        ready.run(zero_ns, 2, watcher).inspect_err(|_| failed.store(true, Ordering::SeqCst))
    };
    // What shows progress is of this thread, so the other direction's samples are handed over. The lock is held only for that.
    let sent_samples = Mutex::new(Vec::new());
    let lock = || sent_samples.lock().unwrap_or_else(PoisonError::into_inner);
    let send = || {
        let keep = |seen: &Progress<'_>| lock().extend_from_slice(seen.samples);
        let show: Option<&dyn Fn(&Progress<'_>)> = if is_shown { Some(&keep) } else { None };
        run(there, &Watcher { show, tick, interrupted: Some(&is_over) })
    };
    let show_both = |seen: &Progress<'_>| {
        let samples = [std::mem::take(&mut *lock()), seen.samples.to_vec()].concat();
        if let Some(show) = watcher.show {
            show(&Progress { samples: &samples, ..*seen });
        }
    };
    std::thread::scope(|scope| {
        let sending = std::thread::Builder::new()
            .spawn_scoped(scope, send)
            .map_err(system("starting a thread for a direction"))?;
        let show: Option<&dyn Fn(&Progress<'_>)> = if is_shown { Some(&show_both) } else { None };
        let received = run(back, &Watcher { show, tick, interrupted: Some(&is_over) });
        let sent = sending.join().unwrap_or_else(|_| Err(panicked("sending")));
        Ok([sent?, received?])
    })
}

/// A run that can begin: its streams are connected, and the clocks of both ends have been compared.
struct Ready<'a> {
    request: &'a Request,
    options: &'a MeasureOptions,
    control: Control,
    streams: Vec<Box<dyn DataStream>>,
    /// Bytes on each stream that count as acknowledged and are no data.
    overhead_bytes: u64,
    /// Time by which the server's clock is ahead of this host's, ns.
    offset_ns: i64,
    rtt_ns: u64,
    /// When the client turned to the server, ns of this host's `CLOCK_MONOTONIC`.
    started_ns: u64,
}

impl<'a> Ready<'a> {
    /// Asks a server for a run, and connects the streams.
    fn new(
        host: &Host,
        request: &'a Request,
        options: &'a MeasureOptions,
        id: Option<MeasurementId>,
    ) -> Result<Ready<'a>, NetError> {
        sample_count::check_count(request)?;
        if options.check_memory {
            socket::check_memory(&request.transport)?;
        }
        let sends = request.direction == Direction::Send;
        if sends {
            socket::check_cc(&request.transport)?;
        }
        let started_ns = sys::now_ns();
        let mut control = greeted(host, options, id)?;
        control.send(&Message::Request(request.clone()), "asking")?;
        let (port, token) = match control.receive("asking")? {
            Message::Ready { port, token } => (port, token),
            other => return Err(control.unexpected(&other)),
        };
        let mut to = control.stream.peer_addr().map_err(system("reading the connection's address"))?;
        let is_shared = port == SAME_PORT;
        if !is_shared {
            to.set_port(port);
        }
        let (streams, added_bytes) = match request.transport.protocol() {
            Protocol::Udp => (call_streams(&control, to, token, request, options)?, 0),
            _ => {
                let connector = stream::open::connector(to, &options.from, &request.transport, sends);
                let within = [first_answer(&control, options)?, options.connect];
                let streams = connect_streams(&*connector, (to, is_shared), token, request, within)?;
                (streams, connector.overhead_bytes())
            }
        };
        match control.receive("connecting the streams")? {
            Message::Joined => {}
            other => return Err(control.unexpected(&other)),
        }
        let (offset_ns, rtt_ns) = compare_clocks(&mut control)?;
        let overhead_bytes =
            if sends { session::counted_preamble_bytes(&request.transport, is_shared) + added_bytes } else { 0 };
        Ok(Ready { request, options, control, streams, overhead_bytes, offset_ns, rtt_ns, started_ns })
    }

    /// Moves the data. The run's clock starts at `zero_ns`. `directions` is the number of directions in which this process moves
    /// data meanwhile.
    fn run(mut self, zero_ns: u64, directions: u16, watcher: &Watcher<'_>) -> Result<Measured, NetError> {
        let Ready { request, rtt_ns, .. } = self;
        let stall_ns = self.options.stall.as_nanos() as u64;
        let begin = Message::Begin { zero_ns: zero_ns.wrapping_add_signed(self.offset_ns), rtt_ns, stall_ns };
        self.control.send(&begin, "starting")?;
        let side = match request.direction {
            Direction::Send => Side::Sender,
            Direction::Receive => Side::Receiver,
        };
        let role = Role { end: side, request, zero_ns, rtt_ns, stall_ns, limit_ns: None };
        let ours = session::run(&role, self.streams, self.overhead_bytes, &mut self.control, watcher)?;
        let most_samples = most_samples(request, sys::now_ns().saturating_sub(zero_ns));
        let theirs = receive_report(&mut self.control, most_samples)?;
        let known = Known {
            request,
            peer: if side == Side::Sender { Side::Receiver } else { Side::Sender },
            most_sent: &ours.most_sent,
            datagram_bytes: ours.report.end.mss,
            elapsed_ns: sys::now_ns().saturating_sub(zero_ns),
            rtt_ns,
            interrupted: watcher.is_interrupted(),
        };
        plausible::check(&known, &theirs.report, &theirs.samples)
            .map_err(|why| NetError::Implausible { peer: self.control.peer.clone(), why })?;
        let wall_s = (sys::now_ns() - self.started_ns) as f64 / 1e9;
        let (sender, receiver) = if side == Side::Sender { (ours, theirs) } else { (theirs, ours) };
        let interrupted = watcher.is_interrupted();
        let &MeasureOptions { capacity, has_cross, omit, .. } = self.options;
        let known = Circumstances { capacity, has_cross, zero_ns, rtt_ns, wall_s, omit, interrupted, directions };
        Ok(combine(request, &known, sender, receiver))
    }
}

/// Measures the round-trip time to a server, s, on its control connection. It needs no token: if the server wants one, the
/// kernel's own measurement of the greeting serves.
///
/// # Errors
/// It cannot be reached, or is no server of this version.
pub fn round_trip(host: &Host, timeout: Duration) -> Result<f64, NetError> {
    let mut control = connect(host, &local_end::ANY, timeout)?;
    if greet(&mut control, None)?.is_some() {
        return Ok(kernels_rtt_us(&control)?.max(1) as f64 / 1e6);
    }
    compare_clocks(&mut control).map(|(_, rtt_ns)| rtt_ns as f64 / 1e9)
}

/// The round-trip time of a control connection as its kernel has measured it, us.
fn kernels_rtt_us(control: &Control) -> Result<u64, NetError> {
    let info = TcpInfo::read(control.stream.as_fd()).map_err(system("reading TCP_INFO"))?;
    Ok(info.get("min_rtt").or_else(|| info.get("rtt")).unwrap_or(0))
}

/// Time in which the data port must answer: longer than asked for where round trips are long, but not than a run may stall.
fn first_answer(control: &Control, options: &MeasureOptions) -> Result<Duration, NetError> {
    let handshake = Duration::from_micros(kernels_rtt_us(control)?) * 4;
    Ok(options.first_answer.max(handshake.min(options.connect).min(options.stall)))
}

fn connect(host: &Host, from: &LocalEnd, timeout: Duration) -> Result<Control, NetError> {
    let name = host.to_string();
    let addresses: Vec<SocketAddr> = (host.name.as_str(), host.port)
        .to_socket_addrs()
        .map_err(|source| NetError::Resolve { host: host.name.clone(), source })?
        .collect();
    if !addresses.iter().any(|address| from.reaches(address)) {
        let is_ipv4 = from.address.is_some_and(|address| address.is_ipv4());
        return Err(NetError::OtherFamily { host: host.name.clone(), end: from.to_string(), is_ipv4 });
    }
    let addresses = addresses.into_iter().filter(|address| from.reaches(address));
    Control::new(connect_first(host, addresses, from, timeout)?, name)
}

/// Connects to the first address of a host that answers.
fn connect_first(
    host: &Host,
    addresses: impl Iterator<Item = SocketAddr>,
    from: &LocalEnd,
    timeout: Duration,
) -> Result<TcpStream, NetError> {
    let connect = |address: SocketAddr| {
        if socket::lacks_zone(&address) {
            return Err(NetError::NoZone { address: host.name.clone() });
        }
        socket::connect_plain(address, from, timeout)?
            .map_err(|source| NetError::Connect { host: host.to_string(), source })
    };
    let mut errors = Vec::new();
    for address in addresses {
        match connect(address) {
            Ok(stream) => return Ok(stream),
            Err(error) => errors.push(error),
        }
    }
    let none = || NetError::Connect { host: host.to_string(), source: io::ErrorKind::AddrNotAvailable.into() };
    Err(NetError::most_telling(errors).unwrap_or_else(none))
}

/// Connects to a server, greets it, and proves to hold its token.
fn greeted(host: &Host, options: &MeasureOptions, id: Option<MeasurementId>) -> Result<Control, NetError> {
    let mut control = connect(host, &options.from, options.connect)?;
    if let (Some(preface), Some(key)) = (options.preface, options.proof_key) {
        control.stream.write_all(&preface(&key)).map_err(|e| control.lost("greeting", e))?;
    }
    // Without a token the server refuses the request, and its log says so.
    if let (Some(nonce), Some(key)) = (greet(&mut control, id)?, options.proof_key) {
        let mac = *wire::proof(&key, &nonce).as_bytes();
        control.send(&Message::Proof { mac }, "proving to hold the token")?;
    }
    Ok(control)
}

/// Greets a server. Returns its nonce if it wants proof of its token.
fn greet(control: &mut Control, id: Option<MeasurementId>) -> Result<Option<[u8; 32]>, NetError> {
    control.send(&hello(None, id), "greeting")?;
    match control.receive("greeting")? {
        Message::Hello { magic, protocol, program, nonce, .. } if magic == MAGIC => {
            if protocol == PROTOCOL {
                Ok(nonce)
            } else {
                Err(version_error(&control.peer, &program, protocol))
            }
        }
        other => Err(control.unexpected(&other)),
    }
}

/// Calls the streams of plain UDP, until the server says that it has taken them.
fn call_streams(
    control: &Control,
    to: SocketAddr,
    token: [u8; 16],
    request: &Request,
    options: &MeasureOptions,
) -> Result<Vec<Box<dyn DataStream>>, NetError> {
    let transport = &request.transport;
    let preambles: Vec<_> = (0..transport.streams).map(|i| session::preamble(token, i)).collect();
    let sends = request.direction == Direction::Send;
    let (answered, within) = (control.stream.as_fd(), (first_answer(control, options)?, options.connect));
    stream::udp::connect(to, &options.from, transport, (&preambles, sends), answered, within)
}

/// Connects all streams at once; one after the other would take n round trips. `is_shared` tells whether they go to the
/// server's own port. A stream that is not answered in time (`first_answer`) is tried again (`within`) if another one was: then the
/// port is open.
fn connect_streams(
    connector: &dyn Connector,
    (to, is_shared): (SocketAddr, bool),
    token: [u8; 16],
    request: &Request,
    [first_answer, within]: [Duration; 2],
) -> Result<Vec<Box<dyn DataStream>>, NetError> {
    let is_open = AtomicBool::new(false);
    let connect = || match connector.connect(first_answer) {
        Err(error) if is_late(&error) && is_open.load(Ordering::Relaxed) => connector.connect(within),
        connected => connected,
    };
    let one = |i: u16| -> Result<Box<dyn DataStream>, NetError> {
        let mut stream = connect().map_err(|error| match error {
            NetError::Connect { source, .. } if !is_shared => NetError::NoDataPort { to, within: first_answer, source },
            other => other,
        })?;
        is_open.store(true, Ordering::Relaxed);
        let head = shared_port::head(wire::PREAMBLE);
        let head = if is_shared { &head[..] } else { &[] };
        stream
            .write_all(&[head, &session::preamble(token, i)].concat())
            .and_then(|()| stream.flush())
            .map_err(|source| NetError::Lost { peer: to.to_string(), doing: "connecting the streams", source })?;
        Ok(stream)
    };
    let one = &one;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..request.transport.streams)
            .map(|i| std::thread::Builder::new().stack_size(128 << 10).spawn_scoped(scope, move || one(i)))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                let thread = thread.map_err(system("starting a thread for a stream"))?;
                thread.join().unwrap_or_else(|_| Err(system("connecting")(std::io::Error::other("panicked"))))
            })
            .collect()
    })
}

/// Whether nobody has answered in time.
fn is_late(error: &NetError) -> bool {
    match error {
        NetError::Connect { source, .. } => source.kind() == std::io::ErrorKind::TimedOut,
        NetError::NoUdp { .. } => true,
        _ => false,
    }
}

/// Returns how far the server's clock is ahead of this host's, and the round-trip time, ns. Of five questions it takes the
/// one with the shortest round trip (NTP's clock filter, RFC 5905 section 10).
fn compare_clocks(control: &mut Control) -> Result<(i64, u64), NetError> {
    let mut best = (0, u64::MAX);
    for _ in 0..5 {
        let before = sys::now_ns();
        control.send(&Message::Clock { ns: 0 }, "agreeing on a clock")?;
        let ns = match control.receive("agreeing on a clock")? {
            Message::Clock { ns } => ns,
            other => return Err(control.unexpected(&other)),
        };
        let after = sys::now_ns();
        if after - before < best.1 {
            let middle = before + (after - before) / 2;
            best = (ns.wrapping_sub(middle) as i64, after - before);
        }
    }
    Ok(best)
}

/// Returns how many samples a server can have taken of a run that has lasted for this time, ns. Its clock may be faster, and it
/// takes one more of each stream at the end.
fn most_samples(request: &Request, elapsed_ns: u64) -> u64 {
    let time_ns = elapsed_ns.saturating_add(elapsed_ns / 50).saturating_add(CLOCK_NS);
    let last = 2 * u64::from(request.transport.streams);
    sample_count::count(request, time_ns).saturating_add(last).min(sample::MAX_SAMPLES)
}

/// A connection that is read until a deadline.
struct Until<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it took too long to send all of it"));
        }
        self.stream.set_read_timeout(Some(left.min(ANSWER)))?;
        (&mut &*self.stream).read(into)
    }
}

/// Receives what the server has observed: a report, and at most `most_samples`.
fn receive_report(control: &mut Control, most_samples: u64) -> Result<Observed, NetError> {
    let mut report: Option<Report> = None;
    let mut samples = Vec::new();
    let time = REPORT_TIME.saturating_add(SAMPLE_TIME.saturating_mul(u32::try_from(most_samples).unwrap_or(u32::MAX)));
    let deadline = Instant::now() + time;
    loop {
        let frame = wire::receive(&mut Until { stream: &control.stream, deadline });
        match frame.map_err(|e| control.lost("waiting for its report", e))? {
            Frame::Samples(batch) if (samples.len() + batch.len()) as u64 > most_samples => {
                let why = format!("more than the {most_samples} samples that the run can have had");
                return Err(NetError::Implausible { peer: control.peer.clone(), why });
            }
            Frame::Samples(mut batch) => samples.append(&mut batch),
            Frame::Message(message) => match *message {
                Message::Report(mut theirs) => {
                    theirs.end.make_printable();
                    report = Some(*theirs);
                }
                Message::Failed { why, is_stall } => return Err(control.failed(&why, is_stall)),
                Message::End => {
                    let Some(report) = report else { return Err(control.unexpected(&Message::End)) };
                    return Ok(Observed { report, samples, most_sent: Vec::new() });
                }
                other => return Err(control.unexpected(&other)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use fullpipe_path::{Buffer, Size, Time, Transport, Workload};

    use super::*;
    use crate::sample::Sample;

    fn request(streams: u16) -> Request {
        let transport =
            Transport { cc: "cubic".into(), streams, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None };
        let (workload, sample) = (Workload::Size(Size(1_000_000)), Time(100_000_000));
        Request { transport, workload, direction: Direction::Send, seed: 1, sample }
    }

    #[test]
    fn a_server_that_sends_samples_for_ever_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut control =
            Control::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap(), "server".into()).unwrap();
        let mut server = listener.accept().unwrap().0;
        let most = most_samples(&request(4), 1_000_000_000);
        // 4 streams, 3.02 s in which samples may have been taken, and what is taken at the end.
        assert_eq!(most, 4 * 30 + 8);
        assert_eq!(most_samples(&request(256), u64::MAX), sample::MAX_SAMPLES);
        let sending = std::thread::spawn(move || {
            let info = TcpInfo::from_bytes(&[]);
            let one = Sample { t_ns: 0, end: Side::Receiver, stream: 0, bytes: 0, info, udt: None, udp: None };
            let batch = vec![one; 100];
            while wire::send_samples(&mut server, &batch).is_ok() {}
        });
        let error = receive_report(&mut control, most).unwrap_err();
        assert!(error.to_string().contains("more than the 128 samples"), "{error}");
        drop(control);
        sending.join().unwrap();
    }

    #[test]
    fn a_holder_of_a_token_sends_a_preface_first() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = Host { name: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
        let heard = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut preface = [0; preface::LEN];
            stream.read_exact(&mut preface).unwrap();
            (preface, wire::receive_message(&mut stream).unwrap())
        });
        let options = MeasureOptions {
            connect: Duration::from_secs(10),
            proof_key: Some(ProofKey([7; 32])),
            preface: Some(|key| [key.0[0]; preface::LEN]),
            ..MeasureOptions::default()
        };
        assert!(greeted(&host, &options, None).is_err(), "it hangs up");
        let (preface, message) = heard.join().unwrap();
        assert_eq!(preface, [7; preface::LEN]);
        assert!(matches!(message, Message::Hello { .. }));
    }

    #[test]
    fn an_address_that_fails_leaves_the_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let (link_local, closed) = ("[fe80::1]:9".parse().unwrap(), "127.0.0.1:1".parse().unwrap());
        let host = Host { name: "far".into(), port: 9 };
        let connect = |addresses: &[SocketAddr]| {
            connect_first(&host, addresses.iter().copied(), &local_end::ANY, Duration::from_secs(5)).map(drop)
        };
        assert!(connect(&[link_local, closed, open]).is_ok());
        assert!(matches!(connect(&[link_local]), Err(NetError::NoZone { .. })));
        let error = connect(&[link_local, closed, link_local]).unwrap_err();
        assert!(error.to_string().contains("far:9: Connection refused"), "{error}");
    }

    #[test]
    fn what_is_reported_is_about_the_host() {
        let failed = |errno| NetError::Connect { host: "far".into(), source: io::Error::from_raw_os_error(errno) };
        let reported = |errnos: &[i32]| {
            let errors = errnos.iter().map(|errno| failed(*errno)).collect();
            match NetError::most_telling(errors) {
                Some(NetError::Connect { source, .. }) => source.raw_os_error(),
                _ => None,
            }
        };
        let all = [libc::EAFNOSUPPORT, libc::ECONNREFUSED, libc::EHOSTUNREACH, libc::ENETUNREACH];
        assert_eq!(reported(&all), Some(libc::ECONNREFUSED));
        assert_eq!(reported(&[libc::ENETUNREACH, libc::EADDRNOTAVAIL]), Some(libc::ENETUNREACH));
        assert_eq!(reported(&[]), None);
    }

    #[test]
    fn a_report_has_a_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        std::io::Write::write_all(&mut server, b"xy").unwrap();
        let read = |deadline| Until { stream: &stream, deadline }.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(read(Instant::now() + ANSWER), Ok(1));
        assert_eq!(read(Instant::now()), Err(io::ErrorKind::TimedOut));
    }

    /// A server that greets nobody until it has both connections. One after the other, the second would wait for the first.
    #[test]
    fn both_directions_connect_at_the_same_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = Host { name: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
        let both = std::thread::spawn(move || (0..2).map(|_| listener.accept().unwrap().0).collect::<Vec<_>>().len());
        let request = request(1);
        let options = MeasureOptions { connect: Duration::from_secs(10), ..MeasureOptions::default() };
        let begun = Instant::now();
        assert!(measure_both(&host, &request, &options, &Watcher::default()).is_err(), "it greets nobody");
        assert_eq!(both.join().unwrap(), 2);
        assert!(begun.elapsed() < ANSWER);
    }
}
