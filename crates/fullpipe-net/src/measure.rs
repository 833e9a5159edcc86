//! The client of a measurement: it asks a server for a run, moves the data, and combines what both ends have observed.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fullpipe_path::record::{EndInfo, LoadedRtt, Outcome, StreamOutcome};
use fullpipe_path::{Direction, Host, Protocol, Transport, Workload};

use crate::bottleneck::{self, Evidence};
use crate::error::{NetError, system};
use crate::local_end::LocalEnd;
use crate::probe::Prober;
use crate::rate::{self, Arrivals, Limit};
use crate::sample::Sample;
use crate::serve::{hello, version_error};
use crate::session::{self, Control, Observed, Role, Watcher};
use crate::side::Side;
use crate::stream::{self, Connector, DataStream};
use crate::tcp_info::TcpInfo;
use crate::wire::{self, Frame, MAGIC, Message, PROTOCOL, ProofKey, Report, Request};
use crate::{local_end, omitted, socket, sys};

/// What a client assumes and allows.
#[derive(Debug, Clone, Default)]
pub struct MeasureOptions {
    /// This host's end of all connections.
    pub from: LocalEnd,
    /// Longest time without progress before the run has failed.
    pub stall: Duration,
    /// Longest time to establish a connection.
    pub connect: Duration,
    /// Largest rate of payload that the path can carry, bit/s, if it is known. It helps to name the bottleneck.
    pub capacity: Option<f64>,
    /// Whether to refuse buffers larger than memory.
    pub check_memory: bool,
    /// Key that proves that this client holds the server's token; `None` without a token.
    pub proof_key: Option<ProofKey>,
    /// Time from the first byte's arrival that a second rate leaves out; `None` for no second rate.
    pub omit: Option<Duration>,
    /// Time between two probes of the path's latency, on a connection of their own; `None` for no probes.
    pub probe: Option<Duration>,
}

/// What the client knows of a run besides what both sides have observed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Circumstances {
    /// Largest rate of payload that the path can carry, bit/s, if it is known.
    pub capacity: Option<f64>,
    /// Start of the run's clock on this host's `CLOCK_MONOTONIC`, ns.
    pub zero_ns: u64,
    /// Round-trip time before the first byte of data, ns.
    pub rtt_ns: u64,
    /// Length of the run in real time, s.
    pub wall_s: f64,
    /// As [`MeasureOptions::omit`].
    pub omit: Option<Duration>,
    /// Whether the user wanted the run to end before its time or size.
    pub interrupted: bool,
    /// Number of directions in which the processes of the client moved data at once; 0 counts as one.
    pub directions: u16,
}

/// A finished run.
#[derive(Debug)]
pub struct Measured {
    /// Start of the run's clock on this host's `CLOCK_MONOTONIC`, ns.
    pub zero_ns: u64,
    /// Round-trip time before the first byte of data, s.
    pub rtt_s: f64,
    /// Description of the sending host.
    pub sender: EndInfo,
    /// Description of the receiving host.
    pub receiver: EndInfo,
    /// Samples of both sides, sorted by time, side (the sender first) and stream.
    pub samples: Vec<Sample>,
    /// The result.
    pub outcome: Outcome,
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
    let prober = options.probe.map(|every| Prober::start(greeted(host, options)?, every)).transpose()?;
    let ready = Ready::new(host, request, options)?;
    // A sender on this host starts at once. A sender at the server starts after one round-trip time, when it knows of it.
    let head_start = if request.direction == Direction::Send { 0 } else { ready.rtt_ns };
    let begun_ns = sys::now_ns() + head_start;
    let mut measured = ready.run(begun_ns, 1, watcher)?;
    // What was asked before data moved, or after, met no queue of theirs.
    let last_s = measured.outcome.streams.iter().map(|stream| stream.last_s).fold(0.0, f64::max);
    measured.outcome.probe = prober.map(|prober| prober.finish(begun_ns, begun_ns + (last_s * 1e9) as u64));
    Ok(measured)
}

/// Runs two measurements with a server at once, one in either direction, and returns what was sent, then what was received.
/// Each has a session of its own at the server. `watcher` is shown the data that this host receives.
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
    let (there, back) = (Ready::new(host, &there, options)?, Ready::new(host, &back, options)?);
    let zero_ns = sys::now_ns() + there.rtt_ns.max(back.rtt_ns);
    let (failed, interrupted) = (AtomicBool::new(false), watcher.interrupted);
    let is_over = || failed.load(Ordering::SeqCst) || interrupted.is_some_and(|is_interrupted| is_interrupted());
    let run = |ready: Ready<'_>, watcher: &Watcher<'_>| {
        ready.run(zero_ns, 2, watcher).inspect_err(|_| failed.store(true, Ordering::SeqCst))
    };
    // What shows progress is of this thread.
    let unseen = || Watcher { interrupted: Some(&is_over), ..Watcher::default() };
    std::thread::scope(|scope| {
        let sending = std::thread::Builder::new()
            .spawn_scoped(scope, || run(there, &unseen()))
            .map_err(system("starting a thread for a direction"))?;
        let received = run(back, &Watcher { interrupted: Some(&is_over), ..*watcher });
        let sent = sending.join().unwrap_or_else(|_| Err(system("sending")(std::io::Error::other("panicked"))));
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
    fn new(host: &Host, request: &'a Request, options: &'a MeasureOptions) -> Result<Ready<'a>, NetError> {
        if options.check_memory {
            socket::check_memory(&request.transport)?;
        }
        let sends = request.direction == Direction::Send;
        if sends {
            socket::check_cc(&request.transport)?;
        }
        let started_ns = sys::now_ns();
        let mut control = greeted(host, options)?;
        control.send(&Message::Request(request.clone()), "asking")?;
        let (port, token) = match control.receive("asking")? {
            Message::Ready { port, token } => (port, token),
            other => return Err(control.unexpected(&other)),
        };
        let mut to = control.stream.peer_addr().map_err(system("reading the connection's address"))?;
        to.set_port(port);
        let connector = stream::open::connector(to, &options.from, &request.transport, sends);
        let streams = connect_streams(&*connector, to, token, request, options.connect)?;
        match control.receive("connecting the streams")? {
            Message::Joined => {}
            other => return Err(control.unexpected(&other)),
        }
        let (offset_ns, rtt_ns) = compare_clocks(&mut control)?;
        let overhead_bytes = if sends { wire::PREAMBLE as u64 + connector.overhead_bytes() } else { 0 };
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
        let theirs = receive_report(&mut self.control)?;
        let wall_s = (sys::now_ns() - self.started_ns) as f64 / 1e9;
        let (sender, receiver) = if side == Side::Sender { (ours, theirs) } else { (theirs, ours) };
        let interrupted = watcher.is_interrupted();
        let &MeasureOptions { capacity, omit, .. } = self.options;
        let known = Circumstances { capacity, zero_ns, rtt_ns, wall_s, omit, interrupted, directions };
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
    if greet(&mut control)?.is_some() {
        let info = TcpInfo::read(control.stream.as_fd()).map_err(system("reading TCP_INFO"))?;
        let rtt_us = info.get("min_rtt").or_else(|| info.get("rtt")).unwrap_or(0);
        return Ok(rtt_us.max(1) as f64 / 1e6);
    }
    compare_clocks(&mut control).map(|(_, rtt_ns)| rtt_ns as f64 / 1e9)
}

fn connect(host: &Host, from: &LocalEnd, timeout: Duration) -> Result<Control, NetError> {
    let name = host.to_string();
    let addresses: Vec<SocketAddr> = (host.name.as_str(), host.port)
        .to_socket_addrs()
        .map_err(|source| NetError::Resolve { host: host.name.clone(), source })?
        .collect();
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    if !addresses.iter().any(|address| from.reaches(address)) {
        let is_ipv4 = from.address.is_some_and(|address| address.is_ipv4());
        return Err(NetError::OtherFamily { host: host.name.clone(), end: from.to_string(), is_ipv4 });
    }
    for address in addresses.into_iter().filter(|address| from.reaches(address)) {
        if socket::lacks_zone(&address) {
            return Err(NetError::NoZone { address: host.name.clone() });
        }
        match socket::connect_plain(address, from, timeout)? {
            Ok(stream) => return Control::new(stream, name),
            Err(error) => last = error,
        }
    }
    Err(NetError::Connect { host: name, source: last })
}

/// Connects to a server, greets it, and proves to hold its token.
fn greeted(host: &Host, options: &MeasureOptions) -> Result<Control, NetError> {
    let mut control = connect(host, &options.from, options.connect)?;
    // Without a token the server refuses the request, and its log says so.
    if let (Some(nonce), Some(key)) = (greet(&mut control)?, options.proof_key) {
        let mac = *wire::proof(&key, &nonce).as_bytes();
        control.send(&Message::Proof { mac }, "proving to hold the token")?;
    }
    Ok(control)
}

/// Greets a server. Returns its nonce if it wants proof of its token.
fn greet(control: &mut Control) -> Result<Option<[u8; 32]>, NetError> {
    control.send(&hello(None), "greeting")?;
    match control.receive("greeting")? {
        Message::Hello { magic, protocol, program, nonce } if magic == MAGIC => {
            if protocol == PROTOCOL {
                Ok(nonce)
            } else {
                Err(version_error(&control.peer, &program, protocol))
            }
        }
        other => Err(control.unexpected(&other)),
    }
}

/// Connects all streams at once; one after the other would take n round trips.
fn connect_streams(
    connector: &dyn Connector,
    to: SocketAddr,
    token: [u8; 16],
    request: &Request,
    timeout: Duration,
) -> Result<Vec<Box<dyn DataStream>>, NetError> {
    let one = |i: u16| -> Result<Box<dyn DataStream>, NetError> {
        let mut stream = connector.connect(timeout)?;
        stream
            .write_all(&session::preamble(token, i))
            .and_then(|()| stream.flush())
            .map_err(|source| NetError::Lost { peer: to.to_string(), doing: "connecting the streams", source })?;
        Ok(stream)
    };
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

/// Receives what the server has observed.
fn receive_report(control: &mut Control) -> Result<Observed, NetError> {
    let mut report: Option<Report> = None;
    let mut samples = Vec::new();
    loop {
        match wire::receive(&mut control.stream).map_err(|e| control.lost("waiting for its report", e))? {
            Frame::Samples(mut batch) => samples.append(&mut batch),
            Frame::Message(message) => match *message {
                Message::Report(mut theirs) => {
                    theirs.end.make_printable();
                    report = Some(theirs);
                }
                Message::Failed { why, is_stall } => return Err(control.failed(&why, is_stall)),
                Message::End => {
                    let Some(report) = report else { return Err(control.unexpected(&Message::End)) };
                    return Ok(Observed { report, samples });
                }
                other => return Err(control.unexpected(&other)),
            },
        }
    }
}

/// Returns the largest value of a field of samples.
fn largest(samples: &[&Sample], value: impl Fn(&Sample) -> Option<u64>) -> Option<u64> {
    samples.iter().filter_map(|sample| value(sample)).max()
}

/// Returns the fraction of samples for which `question` is true. Samples without data in flight, and those for which it has
/// no answer, do not count.
fn share(samples: &[&Sample], question: impl Fn(&Sample) -> Option<bool>) -> f64 {
    let busy = samples.iter().filter(|sample| sample.info.get("unacked").is_some_and(|n| n > 0));
    let answers = busy.filter_map(|sample| question(sample));
    let (yes, all) = answers.fold((0, 0), |(yes, all), is| (yes + u32::from(is), all + 1));
    f64::from(yes) / f64::from(all.max(1))
}

/// The last value of a TCP_INFO field that a stream's samples have; 0 if they lack it.
fn last(samples: &[&Sample], stream: usize, field: &str) -> u64 {
    let mut of_stream = samples.iter().rev().filter(|sample| usize::from(sample.stream) == stream);
    of_stream.next().and_then(|sample| sample.info.get(field)).unwrap_or(0)
}

/// Packets that a stream over UDT has sent again; 0 for another transport.
fn udt_retransmits(samples: &[&Sample], stream: usize) -> u64 {
    let of_stream = samples.iter().filter(|sample| usize::from(sample.stream) == stream);
    of_stream.filter_map(|sample| Some(sample.udt?.pkt_retrans)).fold(0, u64::saturating_add)
}

/// Round-trip times of samples with data in flight, s.
fn loaded_rtts_s(samples: &[&Sample]) -> Vec<f64> {
    let rtt_s = |sample: &&Sample| match &sample.udt {
        Some(udt) => Some(udt.instant.ms_rtt / 1e3).filter(|_| udt.instant.pkt_flight_size > 0),
        None => Some(sample.info.get("rtt")? as f64 / 1e6).filter(|_| sample.info.get("unacked") > Some(0)),
    };
    samples.iter().filter_map(rtt_s).filter(|rtt_s| *rtt_s > 0.0).collect()
}

/// What the sender's samples of a run's streams show; the other evidence is left at its default.
fn evidence(samples: &[&Sample], streams: usize, transport: &Transport) -> Evidence {
    if transport.protocol() == Protocol::Udt {
        return udt_evidence(samples, streams);
    }
    let sum = |field: &str| (0..streams).map(|i| last(samples, i, field)).fold(0, u64::saturating_add);
    let queued = share(samples, |sample| {
        let (rtt, least) = (sample.info.get("rtt")?, sample.info.get("min_rtt")?);
        Some(rtt > least + (least / 20).max(1_000))
    });
    let starved = share(samples, |sample| {
        let field = |name| sample.info.get(name);
        let (sent, window) = (field("unacked")?, field("snd_cwnd")?);
        let room = sent * 10 < window * 9 && sent * field("snd_mss")? < field("snd_wnd")? * 9 / 10;
        Some(room && field("notsent_bytes")? < 65_536)
    });
    Evidence {
        busy: sum("busy_time"),
        rwnd: sum("rwnd_limited"),
        sndbuf: sum("sndbuf_limited"),
        queued,
        starved,
        ..Evidence::default()
    }
}

/// What the sender's samples of a run over UDT show. The times are numbers of samples. The send buffer is as large as the
/// receiver's window, so it never limits a stream alone.
fn udt_evidence(samples: &[&Sample], streams: usize) -> Evidence {
    let mut evidence = Evidence::default();
    let mut queued = 0_u64;
    for i in 0..streams {
        let of_stream = samples.iter().filter(|sample| usize::from(sample.stream) == i);
        let instants = of_stream.filter_map(|sample| Some(sample.udt?.instant)).filter(|at| at.pkt_flight_size > 0);
        let least_ms = instants.clone().map(|at| at.ms_rtt).fold(f64::INFINITY, f64::min);
        for at in instants {
            evidence.busy += 1;
            evidence.rwnd += u64::from(at.pkt_flight_size.saturating_mul(10) >= at.pkt_flow_window.saturating_mul(9));
            queued += u64::from(at.ms_rtt > least_ms + (least_ms / 20.0).max(1.0));
        }
    }
    evidence.queued = queued as f64 / evidence.busy.max(1) as f64;
    evidence
}

/// Whether a transport has a congestion window: UDT at the rate of `--pacing` has none.
fn has_cwnd(transport: &Transport) -> bool {
    transport.protocol() != Protocol::Udt || transport.pacing.is_none()
}

/// Rate of payload at the transport's pacing rate, bit/s. UDT's rate counts the headers of its packets of `packet_bytes`.
fn paced_payload_bps(transport: &Transport, payload_bytes: u32, packet_bytes: Option<u32>) -> Option<f64> {
    let bps = transport.pacing?.0 as f64;
    Some(match (transport.protocol(), packet_bytes) {
        (Protocol::Udt, Some(packet)) if packet > 0 => bps * f64::from(payload_bytes) / f64::from(packet),
        _ => bps,
    })
}

/// The largest receive window that the sender saw and the largest congestion window, of any stream, bytes.
fn largest_windows(samples: &[&Sample], transport: &Transport, segment_bytes: u64) -> (Option<u64>, u64) {
    match transport.protocol() {
        Protocol::Tcp => (
            largest(samples, |s| s.info.get("snd_wnd")),
            largest(samples, |s| Some(s.info.get("snd_cwnd")? * s.info.get("snd_mss")?)).unwrap_or(0),
        ),
        Protocol::Udt => {
            let bytes = |packets: u64| packets.saturating_mul(segment_bytes);
            let congestion = |s: &Sample| Some(bytes(s.udt?.instant.pkt_congestion_window));
            (
                largest(samples, |s| Some(bytes(s.udt?.instant.pkt_flow_window))),
                largest(samples, congestion).filter(|_| has_cwnd(transport)).unwrap_or(0),
            )
        }
    }
}

/// Returns the rates that a run cannot exceed: the capacity of the path, if it is known, and the rates of both hosts'
/// interfaces, where their drivers tell.
fn limits(capacity: Option<f64>, ends: [&EndInfo; 2]) -> Vec<Limit> {
    let speed = |end: &EndInfo| end.interface.as_ref()?.speed_bps;
    let interfaces =
        ends.into_iter().filter_map(speed).map(|bps| Limit { bps: bps as f64, what: "the interface's rate" });
    capacity.map(|bps| Limit { bps, what: "the path's capacity" }).into_iter().chain(interfaces).collect()
}

/// Combines what both sides have observed to the result of a run.
pub fn combine(request: &Request, known: &Circumstances, sender: Observed, receiver: Observed) -> Measured {
    let Circumstances { capacity, zero_ns, rtt_ns, wall_s, .. } = *known;
    let seconds = |ns: u64| ns as f64 / 1e9;
    let at_sender: Vec<&Sample> = sender.samples.iter().collect();
    let streams: Vec<StreamOutcome> = receiver
        .report
        .received
        .iter()
        .enumerate()
        .map(|(i, r)| StreamOutcome {
            bytes: r.bytes,
            first_s: seconds(r.first_ns),
            last_s: seconds(r.last_ns),
            retransmits: last(&at_sender, i, "total_retrans").saturating_add(udt_retransmits(&at_sender, i)),
        })
        .collect();
    // The other end's numbers may be anything.
    let sum = |of: fn(&StreamOutcome) -> u64| streams.iter().map(of).fold(0, u64::saturating_add);
    let (bytes, retransmits) = (sum(|stream| stream.bytes), sum(|stream| stream.retransmits));
    let started = receiver.report.received.iter().filter(|r| r.bytes > 0);
    let first = started.clone().map(|r| r.first_ns).min().unwrap_or(0);
    let last_read = started.map(|r| r.last_ns).max().unwrap_or(0);
    let interrupted = known.interrupted
        && match request.workload {
            Workload::Size(size) => bytes < size.0,
            // What had come in time was read a moment later.
            Workload::Duration(time) => last_read < first.saturating_add(time.0 / 100 * 99),
        };
    let end = match request.workload {
        // The receiver waited for the whole time, whether or not anything arrived at its end.
        Workload::Duration(time) if !interrupted => last_read.max(first.saturating_add(time.0)),
        _ => last_read,
    };
    let interval_ns = end.saturating_sub(first);
    let early_bytes = receiver.report.early_bytes.min(bytes);
    let limits = limits(capacity, [&sender.report.end, &receiver.report.end]);
    let rate = rate::rate(&Arrivals { bytes, early_bytes, interval_ns, rtt_ns }, &limits);
    let cpu = |seen: &Observed| seen.report.cpu_s / seen.report.seconds.max(1e-9);
    // A client's one process serves both directions, the server has a process for each.
    let directions = f64::from(known.directions.max(1));
    let (cpu_sender, cpu_receiver) = match request.direction {
        Direction::Send => (cpu(&sender) / directions, cpu(&receiver)),
        Direction::Receive => (cpu(&sender), cpu(&receiver) / directions),
    };
    let evidence = |goodput: f64| Evidence {
        goodput,
        capacity,
        pacing: paced_payload_bps(&request.transport, sender.report.end.mss, sender.report.end.mtu),
        has_cwnd: has_cwnd(&request.transport),
        cpu: cpu_sender.max(cpu_receiver) / f64::from(request.transport.streams),
        ..evidence(&at_sender, streams.len(), &request.transport)
    };
    let segment_bytes = u64::from(sender.report.end.mss);
    let (window_max, cwnd_max) = largest_windows(&at_sender, &request.transport, segment_bytes);
    let mut real: BTreeMap<String, serde_json::Value> = BTreeMap::new();
    real.insert("wall_s".into(), wall_s.into());
    real.insert("cpu_sender_s".into(), sender.report.cpu_s.into());
    real.insert("cpu_receiver_s".into(), receiver.report.cpu_s.into());
    let outcome = Outcome {
        kind: "result".into(),
        goodput_bps: rate.as_ref().ok().copied(),
        no_rate: rate.as_ref().err().cloned(),
        bytes,
        early_bytes,
        seconds: seconds(interval_ns),
        queue_drops: None,
        queue_deepest: None,
        random_losses: None,
        retransmits,
        window_max,
        cwnd_max,
        interrupted,
        after_omitted: known.omit.map(|omit| {
            let from_ns = first.saturating_add(omit.as_nanos() as u64);
            let later = omitted::After { from_ns, end_ns: end, bytes, retransmits, rtt_ns };
            omitted::after(&later, omit, [&sender.samples, &receiver.samples], &limits)
        }),
        probe: None,
        loaded_rtt: LoadedRtt::of(loaded_rtts_s(&at_sender)),
        bottleneck: rate.ok().map(|goodput| bottleneck::name(&evidence(goodput))),
        streams,
        real,
    };
    let mut samples = sender.samples;
    samples.extend(receiver.samples);
    samples.sort_by_key(|s| (s.t_ns, s.end == Side::Receiver, s.stream));
    Measured {
        zero_ns,
        rtt_s: seconds(rtt_ns),
        sender: sender.report.end,
        receiver: receiver.report.end,
        samples,
        outcome,
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_path::{Buffer, Rate, Time};

    use super::*;
    use crate::wire::Received;

    /// The largest numbers that a peer can send, in a record of TCP or of UDT.
    #[test]
    fn whatever_a_peer_reports_is_combined() {
        for cc in ["cubic", "udt"] {
            let request = Request {
                transport: Transport {
                    cc: cc.into(),
                    streams: 2,
                    buffer: Buffer::Auto,
                    pacing: None,
                    dscp: None,
                    mss: None,
                },
                workload: Workload::Duration(Time(1)),
                direction: Direction::Send,
                seed: 1,
                sample: Time(100_000_000),
            };
            let udt = serde_json::from_value(serde_json::json!({ "pktRetrans": u64::MAX, "pktFlightSize": u64::MAX,
                "pktSent": u64::MAX, "pktRecv": 0, "pktSndLoss": 0, "pktRcvLoss": 0, "pktSentACK": 0, "pktRecvACK": 0,
                "pktSentNAK": 0, "pktRecvNAK": 0, "mbpsSendRate": 1e300, "mbpsRecvRate": 1e300, "usPktSndPeriod": 1e300,
                "pktFlowWindow": u64::MAX, "pktCongestionWindow": u64::MAX, "msRTT": 1e300, "mbpsBandwidth": 1e300,
                "byteAvailSndBuf": u64::MAX, "byteAvailRcvBuf": u64::MAX }))
            .unwrap();
            let side = |end| {
                let received = Received { bytes: u64::MAX, first_ns: 0, last_ns: u64::MAX };
                let end_info = EndInfo { mss: u32::MAX, mtu: Some(1), ..EndInfo::default() };
                let received = vec![received; 2];
                let report = Report { end: end_info, received, early_bytes: 1, cpu_s: 1e300, seconds: 0.0 };
                let sample = |stream| Sample {
                    t_ns: u64::MAX,
                    end,
                    stream,
                    bytes: u64::MAX,
                    info: TcpInfo::from_bytes(&[0xff; 320]),
                    udt: (cc == "udt").then_some(udt),
                };
                Observed { report, samples: vec![sample(0), sample(1), sample(1)] }
            };
            let (sender, receiver) = (side(Side::Sender), side(Side::Receiver));
            let known = Circumstances {
                capacity: Some(1e300),
                omit: Some(Duration::from_secs(1)),
                interrupted: true,
                ..Circumstances::default()
            };
            let measured = combine(&request, &known, sender, receiver);
            assert_eq!(measured.outcome.bytes, u64::MAX, "{cc}");
            assert!(measured.outcome.retransmits > u64::from(u32::MAX), "{cc}");
        }
    }

    #[test]
    fn a_rate_of_udt_counts_headers() {
        let paced = |cc: &str| {
            let transport = Transport {
                cc: cc.into(),
                streams: 2,
                buffer: Buffer::Auto,
                pacing: Some(Rate(1_000_000)),
                dscp: None,
                mss: None,
            };
            paced_payload_bps(&transport, 456, Some(500))
        };
        assert_eq!((paced("udt"), paced("cubic")), (Some(912_000.0), Some(1_000_000.0)));
    }
}
