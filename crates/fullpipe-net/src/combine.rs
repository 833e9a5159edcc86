//! Combines what both ends of a run have observed to its result. No I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use fullpipe_path::record::udp::{UdpCounts, UdpOutcome};
use fullpipe_path::record::{EndInfo, LoadedRtt, Outcome, StreamOutcome};
use fullpipe_path::{Direction, Protocol, Transport, Workload};

use crate::bottleneck::{self, Evidence, FULL_PATH_LOSS};
use crate::omitted;
use crate::rate::{self, Arrivals, Limit};
use crate::sample::Sample;
use crate::session::Observed;
use crate::side::Side;
use crate::wire::Request;

/// What the client knows of a run besides what both sides have observed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Circumstances {
    /// Largest rate of payload that the path can carry, bit/s, if it is known.
    pub capacity: Option<f64>,
    /// Whether traffic of others takes a part of it.
    pub has_cross: bool,
    /// Start of the run's clock on this host's `CLOCK_MONOTONIC`, ns.
    pub zero_ns: u64,
    /// Round-trip time before the first byte of data, ns.
    pub rtt_ns: u64,
    /// Length of the run in real time, s.
    pub wall_s: f64,
    /// As `omit` of [`MeasureOptions`](crate::measure::MeasureOptions).
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

/// Datagrams that a stream over plain UDP has sent, of which the receiver has counted these; 0 for another transport. The sender's
/// last sample may be older than its last datagrams, and what arrived or was lost has been sent.
fn udp_sent(samples: &[&Sample], stream: usize, counted: Option<UdpCounts>) -> u64 {
    let of_stream = samples.iter().filter(|sample| usize::from(sample.stream) == stream);
    let sampled = of_stream.filter_map(|sample| Some(sample.udp?.datagrams)).max().unwrap_or(0);
    sampled.max(counted.map_or(0, |counts| counts.datagrams_received.saturating_add(counts.datagrams_lost)))
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
        // Who waits for what was lost has nothing to send either (TCP_CA_Recovery is 3, TCP_CA_Loss 4: include/uapi/linux/tcp.h).
        let recovers = field("ca_state").is_some_and(|state| state >= 3);
        let room = !recovers && sent * 10 < window * 9 && sent * field("snd_mss")? < field("snd_wnd")? * 9 / 10;
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

/// Whether a transport has a congestion window: plain UDP, and UDT at the rate of `--pacing`, have none.
fn has_cwnd(transport: &Transport) -> bool {
    match transport.protocol() {
        Protocol::Tcp => true,
        Protocol::Udt => transport.pacing.is_none(),
        Protocol::Udp => false,
    }
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
        Protocol::Udp => (None, 0),
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

/// Whether most of what was sent again may be what the receiver's sockets dropped. Each drop is of up to 64 packets (UDP_MAX_SEGMENTS,
/// include/linux/udp.h).
fn overran(retransmits: u64, socket_drops: Option<u64>) -> bool {
    retransmits > 0 && socket_drops.is_some_and(|drops| drops.saturating_mul(64) >= retransmits)
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
            udp: r.udp.map(|counts| UdpOutcome::of(sender.report.end.mss, udp_sent(&at_sender, i, r.udp), &[counts])),
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
    let counts: Vec<UdpCounts> = receiver.report.received.iter().filter_map(|r| r.udp).collect();
    let sent = streams.iter().filter_map(|stream| Some(stream.udp?.sent)).fold(0, u64::saturating_add);
    let udp = (!counts.is_empty()).then(|| UdpOutcome::of(sender.report.end.mss, sent, &counts));
    let datagrams = udp.map(|udp| udp.received);
    let rate = rate::rate(&Arrivals { bytes, early_bytes, interval_ns, rtt_ns, datagrams }, &limits);
    let cpu = |seen: &Observed| seen.report.cpu_s / seen.report.seconds.max(1e-9);
    // A client's one process serves both directions, the server has a process for each.
    let directions = f64::from(known.directions.max(1));
    let (cpu_sender, cpu_receiver) = match request.direction {
        Direction::Send => (cpu(&sender) / directions, cpu(&receiver)),
        Direction::Receive => (cpu(&sender), cpu(&receiver) / directions),
    };
    let segment_bytes = u64::from(sender.report.end.mss);
    let again = retransmits.saturating_mul(segment_bytes) as f64;
    let evidence = |goodput: f64| Evidence {
        goodput,
        lost: again / (again + bytes as f64).max(1.0),
        // In the testbed processors cost nothing, and packets that its path has damaged are dropped by sockets, too.
        overrun: capacity.is_none() && overran(retransmits, receiver.report.end.socket_drops),
        capacity: capacity.filter(|_| !known.has_cross),
        pacing: paced_payload_bps(&request.transport, sender.report.end.mss, sender.report.end.mtu),
        has_cwnd: has_cwnd(&request.transport),
        cpu: cpu_sender.max(cpu_receiver) / f64::from(request.transport.streams),
        ..udp.map_or_else(
            || evidence(&at_sender, streams.len(), &request.transport),
            // What a path drops of a flow that does not yield is what did not fit.
            |udp| Evidence { queued: if udp.loss > FULL_PATH_LOSS { 1.0 } else { 0.0 }, ..Evidence::default() },
        )
    };
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
        udp,
        window_max,
        cwnd_max,
        interrupted,
        after_omitted: known.omit.map(|omit| {
            let from_ns = first.saturating_add(omit.as_nanos() as u64);
            let udp = &receiver.report.received.iter().map(|r| r.udp).collect::<Option<Vec<_>>>();
            let datagram_bytes = sender.report.end.mss;
            let udp = udp.as_ref().map(|counts| omitted::AllDatagrams { counts, sent, datagram_bytes });
            let later = omitted::After { from_ns, end_ns: end, bytes, retransmits, rtt_ns, udp };
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
    use crate::tcp_info::TcpInfo;
    use crate::wire::{Received, Report};

    /// The largest numbers that a peer can send, in a record of TCP or of UDT.
    #[test]
    fn losses_are_the_receivers_only_if_its_sockets_dropped_as_many() {
        let of = |drops| overran(201, drops);
        assert_eq!([of(Some(30)), of(Some(3)), of(Some(0)), of(None)], [true, false, false, false]);
        assert!(!overran(0, Some(30)));
    }

    #[test]
    fn whatever_a_peer_reports_is_combined() {
        for cc in ["cubic", "udt", "udp"] {
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
                let most = u64::MAX;
                let counts = UdpCounts {
                    datagrams: most,
                    datagrams_received: most,
                    datagrams_lost: most,
                    datagrams_out_of_order: most,
                    datagrams_duplicate: most,
                    jitter_ns: most,
                };
                let udp = (cc == "udp").then_some(counts);
                let received = Received { bytes: u64::MAX, first_ns: 0, last_ns: u64::MAX, udp };
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
                    udp,
                };
                Observed { report, samples: vec![sample(0), sample(1), sample(1)], most_sent: Vec::new() }
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
            assert_eq!(measured.outcome.udp.map(|udp| udp.loss), (cc == "udp").then_some(0.5));
            assert!(cc == "udp" || measured.outcome.retransmits > u64::from(u32::MAX), "{cc}");
        }
    }

    #[test]
    fn what_arrived_or_was_lost_has_been_sent() {
        let counts = UdpCounts { datagrams_received: 190, datagrams_lost: 10, ..UdpCounts::default() };
        let sampled = |datagrams| Sample {
            t_ns: 1,
            end: Side::Sender,
            stream: 2,
            bytes: 0,
            info: TcpInfo::from_bytes(&[]),
            udt: None,
            udp: Some(UdpCounts { datagrams, ..UdpCounts::default() }),
        };
        let (early, late) = (sampled(199), sampled(201));
        assert_eq!(udp_sent(&[&early], 2, Some(counts)), 200);
        assert_eq!(udp_sent(&[&early, &late], 2, Some(counts)), 201);
        assert_eq!(udp_sent(&[&late], 1, None), 0);
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
