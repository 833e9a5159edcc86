//! The measuring end: asks a server, moves the data, and puts both ends' views together.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::Duration;

use fullpipe_path::record::{EndInfo, Outcome, StreamOutcome};
use fullpipe_path::{Direction, Host};
use std::io::Write;

use crate::bottleneck::{self, Evidence};
use crate::error::{NetError, system};
use crate::sample::Sample;
use crate::serve::{hello, version_error};
use crate::session::{self, Control, Observed, Role};
use crate::side::Side;
use crate::tcp_info::TcpInfo;
use crate::traffic::Streams;
use crate::wire::{self, Frame, MAGIC, Message, PROTOCOL, ProofKey, Report, Request};
use crate::{socket, sys};

/// What to expect of the path, and of the machine.
#[derive(Debug, Clone, Copy)]
pub struct MeasureOptions {
    /// With no progress for so long the run has failed.
    pub stall: Duration,
    /// For each connection to be established.
    pub connect: Duration,
    /// The most payload that the path can carry, bit/s, where known; names the bottleneck better.
    pub capacity: Option<f64>,
    /// Refuse buffers larger than this machine's memory.
    pub check_memory: bool,
    /// Proves to hold the server's token, if it asks; none where there is no token.
    pub proof_key: Option<ProofKey>,
}

/// A finished run.
#[derive(Debug)]
pub struct Measured {
    /// This end's `CLOCK_MONOTONIC` at the run's zero.
    pub zero_ns: u64,
    /// Round-trip time before the first byte, seconds.
    pub rtt_s: f64,
    /// The sending end.
    pub sender: EndInfo,
    /// The receiving end.
    pub receiver: EndInfo,
    /// Of both ends, by time, then end, then stream.
    pub samples: Vec<Sample>,
    /// The result.
    pub outcome: Outcome,
}

/// Runs one measurement against a server.
///
/// # Errors
/// Whatever keeps it from finishing; nothing is left behind.
pub fn measure(
    host: &Host,
    request: &Request,
    options: &MeasureOptions,
    progress: Option<&dyn Fn(f64, u64)>,
) -> Result<Measured, NetError> {
    if options.check_memory {
        socket::check_memory(&request.transport)?;
    }
    socket::check_cc(&request.transport)?;
    let started = sys::now_ns();
    let mut control = connect(host, options.connect)?;
    // Without a token the server refuses the request, and its log says so.
    if let (Some(nonce), Some(key)) = (greet(&mut control)?, options.proof_key) {
        let mac = *wire::proof(&key, &nonce).as_bytes();
        control.send(&Message::Proof { mac }, "proving to hold the token")?;
    }
    control.send(&Message::Request(request.clone()), "asking")?;
    let (port, token) = match control.receive("asking")? {
        Message::Ready { port, token } => (port, token),
        other => return Err(control.unexpected(&other)),
    };
    let mut to = control.stream.peer_addr().map_err(system("reading the connection's address"))?;
    to.set_port(port);
    let sockets = connect_streams(to, token, request, options.connect)?;
    match control.receive("connecting the streams")? {
        Message::Joined => {}
        other => return Err(control.unexpected(&other)),
    }
    let (offset, rtt_ns) = compare_clocks(&mut control)?;
    // The sending end starts at once if it is here, and when it has surely heard of it if it is there.
    let head_start = if request.direction == Direction::Send { 0 } else { rtt_ns };
    let zero_ns = sys::now_ns() + head_start;
    control.send(&Message::Begin { zero_ns: zero_ns.wrapping_add_signed(offset), rtt_ns }, "starting")?;

    let (end, skip) = match request.direction {
        // The kernel counts the SYN of the end that connects as an acknowledged byte.
        Direction::Send => (Side::Sender, wire::PREAMBLE as u64 + 1),
        Direction::Receive => (Side::Receiver, 0),
    };
    let streams = Streams::new(sockets, request.workload, skip).map_err(system("opening an eventfd"))?;
    let role = Role { end, request, zero_ns, rtt_ns, stall_ns: options.stall.as_nanos() as u64, limit_ns: None };
    let ours = session::run(&role, &streams, &mut control, progress)?;
    let theirs = receive_report(&mut control)?;
    let wall_s = (sys::now_ns() - started) as f64 / 1e9;
    let (sender, receiver) = if end == Side::Sender { (ours, theirs) } else { (theirs, ours) };
    Ok(combine(request, options.capacity, (zero_ns, rtt_ns), wall_s, sender, receiver))
}

/// Round-trip time to a server, seconds, from its control connection. It needs no token: a server that wants one is asked
/// nothing but a greeting, and the kernel has timed that.
///
/// # Errors
/// It cannot be reached, or is no server of this version.
pub fn round_trip(host: &Host, timeout: Duration) -> Result<f64, NetError> {
    let mut control = connect(host, timeout)?;
    if greet(&mut control)?.is_some() {
        let info = TcpInfo::read(control.stream.as_fd()).map_err(system("reading TCP_INFO"))?;
        let rtt_us = info.get("min_rtt").or_else(|| info.get("rtt")).unwrap_or(0);
        return Ok(rtt_us.max(1) as f64 / 1e6);
    }
    compare_clocks(&mut control).map(|(_, rtt_ns)| rtt_ns as f64 / 1e9)
}

fn connect(host: &Host, timeout: Duration) -> Result<Control, NetError> {
    let name = host.to_string();
    let addresses: Vec<SocketAddr> = (host.name.as_str(), host.port)
        .to_socket_addrs()
        .map_err(|source| NetError::Resolve { host: host.name.clone(), source })?
        .collect();
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Control::new(stream, name),
            Err(error) => last = error,
        }
    }
    Err(NetError::Connect { host: name, source: last })
}

/// Greets a server; gives the nonce of one that wants its token proven.
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
    to: SocketAddr,
    token: [u8; 16],
    request: &Request,
    timeout: Duration,
) -> Result<Vec<TcpStream>, NetError> {
    let one = |i: u16| -> Result<TcpStream, NetError> {
        let mut stream = socket::connect(to, &request.transport, true, timeout)?;
        stream.set_nodelay(true).map_err(system("setting TCP_NODELAY"))?;
        stream.write_all(&session::preamble(token, i)).map_err(|source| NetError::Lost {
            peer: to.to_string(),
            doing: "connecting the streams",
            source,
        })?;
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

/// How far the server's clock is ahead of ours, and the round-trip time, nanoseconds: the best of
/// five questions (as NTP's clock filter, RFC 5905 section 10).
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
                Message::Failed { why } => return Err(control.failed(&why)),
                Message::End => {
                    let Some(report) = report else { return Err(control.unexpected(&Message::End)) };
                    return Ok(Observed { report, samples });
                }
                other => return Err(control.unexpected(&other)),
            },
        }
    }
}

/// Largest value of a field over samples.
fn largest(samples: &[&Sample], value: impl Fn(&Sample) -> Option<u64>) -> Option<u64> {
    samples.iter().filter_map(|sample| value(sample)).max()
}

/// Share of the samples with something in flight of which a question is true, where it can be answered.
fn share(samples: &[&Sample], question: impl Fn(&Sample) -> Option<bool>) -> f64 {
    let busy = samples.iter().filter(|sample| sample.info.get("unacked").is_some_and(|n| n > 0));
    let answers = busy.filter_map(|sample| question(sample));
    let (yes, all) = answers.fold((0, 0), |(yes, all), is| (yes + u32::from(is), all + 1));
    f64::from(yes) / f64::from(all.max(1))
}

/// Puts both ends' views together; `capacity` is the most payload that the path can carry, bit/s, where
/// known.
pub fn combine(
    request: &Request,
    capacity: Option<f64>,
    (zero_ns, rtt_ns): (u64, u64),
    wall_s: f64,
    sender: Observed,
    receiver: Observed,
) -> Measured {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let at_sender: Vec<&Sample> = sender.samples.iter().collect();
    let last = |stream: usize, field: &str| {
        let mut of_stream = at_sender.iter().rev().filter(|sample| usize::from(sample.stream) == stream);
        of_stream.next().and_then(|sample| sample.info.get(field)).unwrap_or(0)
    };
    let streams: Vec<StreamOutcome> = receiver
        .report
        .received
        .iter()
        .enumerate()
        .map(|(i, r)| StreamOutcome {
            bytes: r.bytes,
            first_s: seconds(r.first_ns),
            last_s: seconds(r.last_ns),
            retransmits: last(i, "total_retrans"),
        })
        .collect();
    let bytes: u64 = streams.iter().map(|s| s.bytes).sum();
    let started = receiver.report.received.iter().filter(|r| r.bytes > 0);
    let first = started.clone().map(|r| r.first_ns).min().unwrap_or(0);
    let end = started.map(|r| r.last_ns).max().unwrap_or(0);
    // A run shorter than the clock's step still took some time.
    let length = seconds(end.saturating_sub(first).max(1));
    let goodput_bps = bytes as f64 * 8.0 / length;
    let sum = |field: &str| (0..streams.len()).map(|i| last(i, field)).sum::<u64>();
    let queued = share(&at_sender, |sample| {
        let (rtt, least) = (sample.info.get("rtt")?, sample.info.get("min_rtt")?);
        Some(rtt > least + (least / 20).max(1_000))
    });
    let starved = share(&at_sender, |sample| {
        let field = |name| sample.info.get(name);
        let (sent, window) = (field("unacked")?, field("snd_cwnd")?);
        let room = sent * 10 < window * 9 && sent * field("snd_mss")? * 10 < field("snd_wnd")? * 9;
        Some(room && field("notsent_bytes")? < 65_536)
    });
    let cpu = |seen: &Observed| seen.report.cpu_s / seen.report.seconds.max(1e-9);
    let evidence = Evidence {
        goodput: goodput_bps,
        capacity,
        pacing: request.transport.pacing.map(|rate| rate.0 as f64),
        busy: sum("busy_time"),
        rwnd: sum("rwnd_limited"),
        sndbuf: sum("sndbuf_limited"),
        cpu: cpu(&sender).max(cpu(&receiver)) / f64::from(request.transport.streams),
        queued,
        starved,
    };
    let mut real: BTreeMap<String, serde_json::Value> = BTreeMap::new();
    real.insert("wall_s".into(), wall_s.into());
    real.insert("cpu_sender_s".into(), sender.report.cpu_s.into());
    real.insert("cpu_receiver_s".into(), receiver.report.cpu_s.into());
    let outcome = Outcome {
        kind: "result".into(),
        goodput_bps,
        bytes,
        seconds: length,
        queue_drops: None,
        queue_deepest: None,
        random_losses: None,
        retransmits: streams.iter().map(|s| s.retransmits).sum(),
        window_max: largest(&at_sender, |s| s.info.get("snd_wnd")),
        cwnd_max: largest(&at_sender, |s| Some(s.info.get("snd_cwnd")? * s.info.get("snd_mss")?)).unwrap_or(0),
        bottleneck: bottleneck::name(&evidence),
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
