//! Prints the result of a measurement for people.

use std::borrow::Cow;
use std::net::ToSocketAddrs;
use std::path::Path as FilePath;

use fullpipe_net::Measured;
use fullpipe_net::socket::path_mtu;
use fullpipe_net::stream::udt::UDP_BUFFER;
use fullpipe_path::record::udp::UdpOutcome;
use fullpipe_path::record::{Bottleneck, Outcome, Probed};
use fullpipe_path::storage::binary;
use fullpipe_path::{Buffer, Direction, DiskAccess, LabHost, LabPath, Path, Protocol, Rate, Run, Size};

use crate::format;
use crate::output::{errln, outln};

/// Largest packets over UDT, bytes.
const JUMBO: u32 = 9000;

/// What the first line of a record tells beside the result.
#[derive(Default)]
struct Known {
    /// Round-trip time before the first byte of data, s.
    idle_s: Option<f64>,
    /// Socket buffers as the kernels report them, bytes: twice of what they granted (`socket(7)`). The sender's for sending, and
    /// the receiver's for receiving.
    buffers: [Option<u64>; 2],
}

impl Known {
    fn of(record: &str) -> Known {
        let header: serde_json::Value =
            record.lines().next().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
        let buffers = [&header["sender"]["sndbuf"], &header["receiver"]["rcvbuf"]].map(serde_json::Value::as_u64);
        Known { idle_s: header["rtt_s"].as_f64(), buffers }
    }
}

/// Prints the result of a run, whose record this is, for people.
pub fn print(run: &Run, outcome: &Outcome, text: &str, target: Option<&FilePath>) {
    match (run.bidir, run.direction) {
        (true, Direction::Send) => outln!("direction   sent, while data were received"),
        (true, Direction::Receive) => outln!("direction   received, while data were sent"),
        (false, _) => {}
    }
    outln!("path        {}", run.path);
    outln!("transport   {}", run.transport);
    if let Some(DiskAccess { block, direct }) = run.disks {
        outln!("disks       blocks of {}, direct I/O {direct}", binary(block.0));
    }
    match (outcome.goodput_bps, &outcome.no_rate) {
        (Some(goodput), _) => {
            let before = match outcome.early_bytes {
                0 => String::new(),
                early => format!(", after the first {}", format::thousands(early)),
            };
            outln!(
                "goodput     {} ({} bytes in {}{before})",
                format::rate(goodput),
                format::thousands(outcome.counted_bytes()),
                format::seconds(outcome.seconds)
            );
        }
        (None, why) => outln!("goodput     none: {}", why.as_deref().unwrap_or("the record has none")),
    }
    if let Some(later) = &outcome.after_omitted {
        let omitted = format::seconds(later.omit_s);
        match (later.goodput_bps, &later.no_rate) {
            (Some(goodput), _) => outln!(
                "            {} after the first {omitted} ({} bytes in {})",
                format::rate(goodput),
                format::thousands(later.bytes),
                format::seconds(later.seconds)
            ),
            (None, why) => {
                outln!("            none after the first {omitted}: {}", why.as_deref().unwrap_or_default())
            }
        }
    }
    outln!("loss        {}", loss(outcome, run.transport.protocol()));
    if let Some(later) = outcome.after_omitted.as_ref().and_then(|later| Some((later.omit_s, later.udp.as_ref()?))) {
        outln!("            {} after the first {}", datagrams(later.1), format::seconds(later.0));
    }
    if let Some(udp) = &outcome.udp {
        let disorder = [(udp.out_of_order, "out of order"), (udp.duplicates, "duplicate")]
            .map(|(n, what)| format!(", {} {what}", format::thousands(n)));
        outln!("jitter      {}{}", format::seconds(udp.jitter_s), disorder.concat());
    }
    let known = Known::of(text);
    if let Some(rtt) = outcome.loaded_rtt {
        let [idle, median, most] = [known.idle_s.unwrap_or(rtt.min_s), rtt.p50_s, rtt.p95_s].map(format::seconds);
        outln!("round trip  {idle} idle; under load {median} (median), {most} (95%)");
    } else if let Some(idle) = known.idle_s {
        outln!("round trip  {} idle", format::seconds(idle));
    }
    if let Some(probed) = &outcome.probe {
        outln!("latency     {}", latency(probed));
    }
    if let Some(what) = outcome.bottleneck {
        outln!("bottleneck  {}", bottleneck(what, run, &known, outcome.goodput_bps, lost(outcome) > 0));
    }
    if let Some(target) = target {
        outln!("record      {}", target.display());
    }
}

/// What was lost, and in the testbed where, for people.
fn loss(outcome: &Outcome, protocol: Protocol) -> String {
    let again = match protocol {
        Protocol::Tcp => ["segment retransmitted", "segments retransmitted"],
        Protocol::Udt | Protocol::Udp => ["packet retransmitted", "packets retransmitted"],
    };
    let mut text =
        outcome.udp.as_ref().map_or_else(|| format::count(outcome.retransmits, again[0], again[1]), datagrams);
    if let Some(drops) = outcome.queue_drops {
        text += &format!(", {} dropped by the bottleneck's queue", format::count(drops, "packet", "packets"));
    }
    if let Some(random) = outcome.random_losses.filter(|packets| *packets > 0) {
        text += &format!(", {} lost at random", format::thousands(random));
    }
    text
}

/// Packets that were lost, or sent again.
fn lost(outcome: &Outcome) -> u64 {
    outcome.udp.map_or(outcome.retransmits, |udp| udp.lost)
}

/// What became of datagrams, for people.
fn datagrams(udp: &UdpOutcome) -> String {
    let known = format::count(udp.received.saturating_add(udp.lost), "datagram", "datagrams");
    format!("{} of {known} lost ({:.3}%)", format::thousands(udp.lost), 100.0 * udp.loss)
}

/// What probes showed, for people.
fn latency(probed: &Probed) -> String {
    if let Some(why) = &probed.ended {
        return format!("none under load: the probes ended before the run did ({why})");
    }
    let (Some(idle), Some(loaded)) = (probed.idle, probed.loaded) else {
        return "too few probes; measure for longer, or probe more often (--probe=20ms)".into();
    };
    let [before, median, p95] = [idle.p50_s, loaded.p50_s, loaded.p95_s].map(format::seconds);
    let p99 = loaded.p99_s.map_or_else(String::new, |s| format!(", {} (99%)", format::seconds(s)));
    let more = format::seconds(probed.increase_s.unwrap_or_default());
    let grade = probed.grade.as_deref().unwrap_or_default();
    format!("{before} idle; under load {median} (median), {p95} (95%){p99}; bufferbloat {grade} (+{more})")
}

/// To what the buffers of an emulated path's hosts may grow in a remedy, bytes.
const LARGE: u32 = 256 << 20;

/// The hosts of an emulated path after a change, as its keys.
fn with_hosts(lab: &LabPath, change: impl Fn(&mut LabHost)) -> String {
    let [a, b] = [&lab.host_a, &lab.host_b].map(|host| {
        let mut host = host.clone();
        change(&mut host);
        host
    });
    if a == b { format!("host={a}") } else { format!("host_a={a},host_b={b}") }
}

/// What limited the run, and what to try. The hosts of an emulated path are part of its description, and have no settings
/// that a user could raise.
fn bottleneck(what: Bottleneck, run: &Run, known: &Known, goodput: Option<f64>, any_lost: bool) -> Cow<'static, str> {
    if let Some(refused) = refused_buffer(what, run, known) {
        return refused.into();
    }
    let reached = |rate: Rate| goodput.is_none_or(|bps| bps >= 0.9 * rate.0 as f64);
    if let (Path::Lab(lab), Buffer::Auto) = (&run.path, run.transport.buffer)
        && run.transport.protocol() == Protocol::Tcp
    {
        let is_short_of_memory = lab.host_a.tcp_mem.is_some();
        let try_this = if is_short_of_memory {
            "its tcp_mem may be the limit; try more of it, or"
        } else {
            "try --buffer, or the path with"
        };
        match what {
            Bottleneck::Rwnd => {
                let hosts = with_hosts(lab, |host| host.tcp_rmem[2] = LARGE);
                return format!("rwnd: the receiver's window; {try_this} {hosts}").into();
            }
            Bottleneck::Sndbuf => {
                let hosts = with_hosts(lab, |host| host.tcp_wmem[2] = LARGE);
                return format!("sndbuf: the sender's buffer; {try_this} {hosts}").into();
            }
            _ => {}
        }
    }
    let above_path = |rate: Rate| matches!(&run.path, Path::Lab(lab) if rate > lab.rate);
    match (what, run.transport.buffer) {
        (Bottleneck::Cwnd, _) if run.transport.protocol() == Protocol::Udt => {
            "cwnd: UDT's congestion control, still raising its rate or recovering from loss"
        }
        (Bottleneck::Rwnd, _) if run.transport.protocol() == Protocol::Udt => {
            "rwnd: the receiver's window; try a larger --buffer"
        }
        (Bottleneck::Cwnd, _) => "cwnd: the congestion window, still ramping up or recovering from loss",
        (Bottleneck::Rwnd, Buffer::Auto) => {
            "rwnd: the receiver's window; try --buffer, or raise net.ipv4.tcp_rmem there"
        }
        (Bottleneck::Rwnd, _) => "rwnd: the receiver's window; try a larger --buffer",
        (Bottleneck::Sndbuf, Buffer::Auto) => {
            "sndbuf: the sender's buffer; try --buffer, or raise net.ipv4.tcp_wmem there"
        }
        (Bottleneck::Sndbuf, _) => "sndbuf: the sender's buffer; try a larger --buffer",
        (Bottleneck::Path, _) => "path: it is full",
        (Bottleneck::Cpu, _) => "cpu: a processor of one of the ends is busy",
        (Bottleneck::Pacing, _) if any_lost && run.transport.pacing.is_some_and(above_path) => {
            "pacing: the rate that --pacing sets is above that of the path, which drops the rest; give a lower one"
        }
        (Bottleneck::Pacing, _) if !run.transport.pacing.is_none_or(reached) => {
            if any_lost {
                "pacing: losses kept it below the rate that --pacing sets"
            } else if std::thread::available_parallelism().is_ok_and(|n| n.get() <= run.transport.streams.into()) {
                "pacing: the sender came too late for the rate that --pacing sets; it lacks processors"
            } else {
                "pacing: the sender came too late for the rate that --pacing sets; try more --streams"
            }
        }
        (Bottleneck::DiskRead, _) => "disk_read: reading disk_a; try more --streams, or another --direct",
        (Bottleneck::DiskWrite, _) => "disk_write: writing disk_b; try more --streams, or another --direct",
        (Bottleneck::Pacing, _) => "pacing: the rate that --pacing sets",
    }
    .into()
}

/// What to try if a buffer limited the run of which a kernel granted less than `--buffer` asks for.
fn refused_buffer(what: Bottleneck, run: &Run, known: &Known) -> Option<String> {
    let [sent, received] = known.buffers;
    let (words, reported, sysctl) = match what {
        Bottleneck::Sndbuf => ("sndbuf: the sender's buffer", sent?, "wmem_max"),
        Bottleneck::Rwnd => ("rwnd: the receiver's window", received?, "rmem_max"),
        _ => return None,
    };
    let Buffer::Bytes(asked) = run.transport.buffer else { return None };
    if run.transport.protocol() != Protocol::Tcp || reported >= asked.0 * 2 {
        return None;
    }
    let remedy = match run.path {
        Path::Lab(_) => format!("give the path's host a larger {sysctl}, or leave it out"),
        Path::Host(_) => format!("there, as root: sysctl -w net.core.{sysctl}={}", asked.0),
    };
    Some(format!("{words}, for which its kernel granted {} of the {asked} of --buffer; {remedy}", Size(reported / 2)))
}

/// Bytes of TCP's options in every segment: timestamps (RFC 7323).
const TIMESTAMPS: u32 = 12;

/// The warning of segments that are smaller than `--mss` asks for.
fn refused_mss(run: &Run, sender_mss: u32, mtu: Option<u32>) -> Option<String> {
    let asked = run.transport.mss.filter(|_| run.transport.protocol() == Protocol::Tcp)?;
    if sender_mss == 0 || sender_mss.saturating_add(TIMESTAMPS) >= u32::from(asked) {
        return None;
    }
    let of_mtu = mtu.map_or_else(String::new, |mtu| format!(" (MTU {mtu})"));
    Some(format!(
        "the sender's kernel granted an MSS of {sender_mss} instead of {asked}: more does not fit into the path's packets{of_mtu}; \
         give a smaller --mss, or leave it out"
    ))
}

/// The warning of packets over UDT that are smaller than those that this host would send.
fn smaller_packets(run: &Run, mtu: Option<u32>) -> Option<String> {
    let Path::Host(host) = &run.path else { return None };
    if run.transport.protocol() != Protocol::Udt {
        return None;
    }
    let to = (host.name.as_str(), host.port).to_socket_addrs().ok()?.next()?;
    let (sent, route) = (mtu?, path_mtu(to)?.min(JUMBO));
    (sent < route).then(|| {
        format!(
            "the packets have {sent} bytes, though this host's interface takes {route}: larger ones got no answer, so a link on the \
             way may carry less"
        )
    })
}

/// Warns of segments in the testbed, by the run's record, that are smaller than `--mss` asks for, and of a kernel's buffer that
/// lost packets over UDP.
pub fn warn_of_limits_in_testbed(run: &Run, record: &str, outcome: &Outcome) {
    let header: serde_json::Value =
        record.lines().next().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    let of_path = outcome.queue_drops.unwrap_or(0).saturating_add(outcome.random_losses.unwrap_or(0));
    let granted = header["receiver"]["rcvbuf"].as_u64().unwrap_or(u64::MAX) / 2;
    // What such paths do to packets is not counted, or is taken for a loss.
    let is_plain = |lab: &LabPath| {
        lab.corrupt.is_zero() && lab.reorder.is_zero() && lab.duplicate.is_zero() && lab.jitter.is_none()
    };
    let is_plain = matches!(&run.path, Path::Lab(lab) if is_plain(lab));
    if is_plain && run.transport.protocol() != Protocol::Tcp && granted < UDP_BUFFER.0 && lost(outcome) > of_path {
        errln!(
            "warning: packets were lost at the receiver, whose kernel granted SO_RCVBUF {} instead of {UDP_BUFFER}: a burst can fill that; \
             give the path's receiving host an rmem_max of {}, or 'tuned'",
            Size(granted),
            UDP_BUFFER.0
        );
    }
    let [mss, mtu] = ["mss", "mtu"].map(|key| header["sender"][key].as_u64().and_then(|bytes| bytes.try_into().ok()));
    if let Some(warning) = refused_mss(run, mss.unwrap_or(0), mtu) {
        errln!("warning: {warning}");
    }
}

/// Warns of buffers that a kernel granted smaller than `--buffer` asks for, and of smaller segments than `--mss` asks for.
pub fn warn_of_limits(run: &Run, measured: &Measured) {
    if let Some(warning) = refused_mss(run, measured.sender.mss, measured.sender.mtu) {
        errln!("warning: {warning}");
    }
    if let (Some(least), Some(most)) =
        (measured.sender.stream_mtus.iter().min(), measured.sender.stream_mtus.iter().max())
    {
        errln!(
            "warning: the streams have packets of different sizes, {least} to {most} bytes: some lost the first packets that they \
             sent; 'stream_mtus' in the record has them"
        );
    }
    if let Some(warning) = smaller_packets(run, measured.sender.mtu).filter(|_| measured.sender.stream_mtus.is_empty())
    {
        errln!("warning: {warning}");
    }
    if run.transport.protocol() != Protocol::Tcp {
        // UDT's own buffers are as large as they were asked for. The kernel's only hold a burst.
        let got = measured.receiver.rcvbuf / 2;
        let drops = measured.receiver.socket_drops.filter(|drops| *drops > 0);
        if got < UDP_BUFFER.0 && (lost(&measured.outcome) > 0 || drops.is_some()) {
            errln!(
                "warning: packets were lost, and the receiver's kernel granted SO_RCVBUF {} instead of {UDP_BUFFER}, which a burst \
                 can fill; there, as root: sysctl -w net.core.rmem_max={}",
                Size(got),
                UDP_BUFFER.0
            );
        } else if let Some(drops) = drops {
            errln!(
                "warning: the receiver's program was too slow: {} its socket was full, and what came was lost; a smaller --buffer or \
                 --pacing spares it",
                format::count(drops, "time", "times")
            );
        }
        return;
    }
    let Buffer::Bytes(asked) = run.transport.buffer else { return };
    for (end, got, what, sysctl) in [
        ("sender", measured.sender.sndbuf, "SO_SNDBUF", "net.core.wmem_max"),
        ("receiver", measured.receiver.rcvbuf, "SO_RCVBUF", "net.core.rmem_max"),
    ] {
        // The kernel reports twice of what was asked for.
        if got < asked.0 * 2 {
            errln!(
                "warning: the {end}'s kernel granted {what} {} instead of {asked}; there, as root: sysctl -w {sysctl}={}",
                Size(got / 2),
                asked.0
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_path::{Time, Transport, Workload};

    use super::*;

    #[test]
    fn probes_that_ended_early_show_no_latency() {
        let ended = Some("lost server while probing: it is gone".to_owned());
        let text = latency(&Probed { ended, ..Probed::new(0.1, None, None) });
        assert!(text.starts_with("none under load: ") && text.contains("(lost server while probing"), "{text}");
        assert!(latency(&Probed::new(0.1, None, None)).starts_with("too few probes"));
    }

    #[test]
    fn segments_that_do_not_fit_are_warned_of() {
        let warning = |cc: &str, mss, granted| {
            let transport =
                Transport { cc: cc.into(), streams: 1, buffer: Buffer::Auto, pacing: None, dscp: None, mss };
            let path = "host".parse().unwrap();
            let (workload, direction) = (Workload::Size(Size(1_000_000)), Direction::Receive);
            let run = Run { path, transport, workload, direction, bidir: false, disks: None, seed: 1, sample: Time(1) };
            refused_mss(&run, granted, Some(1_500))
        };
        let text = warning("cubic", Some(9_000), 1_448).unwrap();
        assert!(text.contains("granted an MSS of 1448 instead of 9000") && text.contains("(MTU 1500)"), "{text}");
        assert!(warning("cubic", Some(1_461), 1_448).is_some());
        // Timestamps are part of what was asked for.
        for (cc, mss, granted) in [
            ("cubic", Some(1_460), 1_448),
            ("cubic", Some(1_400), 1_400),
            ("cubic", None, 1_448),
            ("udp", Some(9_000), 8),
        ] {
            assert_eq!(warning(cc, mss, granted), None);
        }
    }

    #[test]
    fn advice_is_for_the_path_that_was_measured() {
        let transport =
            Transport { cc: "cubic".into(), streams: 1, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None };
        let paced = Transport { pacing: Some(Rate(1_000_000_000)), ..transport.clone() };
        let advice = |path: &str, what, transport: &Transport, goodput, any_lost| {
            let known = Known { buffers: [Some(8 << 20), Some(8 << 20)], ..Known::default() };
            let workload = Workload::Size(Size(1_000_000));
            let (direction, sample) = (Direction::Send, Time(100_000_000));
            let path = path.parse().unwrap();
            bottleneck(
                what,
                &Run {
                    path,
                    transport: transport.clone(),
                    workload,
                    direction,
                    bidir: false,
                    disks: None,
                    seed: 1,
                    sample,
                },
                &known,
                goodput,
                any_lost,
            )
        };
        assert!(advice("host", Bottleneck::Sndbuf, &transport, None, false).ends_with("raise net.ipv4.tcp_wmem there"));
        for what in [Bottleneck::Sndbuf, Bottleneck::Rwnd] {
            for hosts in ["", ",host=stock+user:user", ",host_a=stock"] {
                let text = advice(&format!("lab:rtt=1ms,rate=1gbit{hosts}"), what, &transport, None, false);
                let keys = text.split(' ').find(|word| word.starts_with("host")).unwrap();
                assert!(format!("lab:rtt=1ms,rate=1gbit,{keys}").parse::<Path>().is_ok(), "{text}");
                assert_eq!(keys.contains("stock"), !hosts.is_empty(), "{text}");
            }
        }
        let buffered = |bytes| Transport { buffer: Buffer::Bytes(Size(bytes)), ..transport.clone() };
        for (what, sysctl) in [(Bottleneck::Sndbuf, "wmem_max"), (Bottleneck::Rwnd, "rmem_max")] {
            let asked = |path, bytes| advice(path, what, &buffered(bytes), None, false);
            let text = asked("host", 256_000_000);
            assert!(text.contains("granted 4.194304MB of the 256MB of --buffer; there, as root: sysctl -w"), "{text}");
            assert!(text.ends_with(&format!("net.core.{sysctl}=256000000")), "{text}");
            let text = asked("lab:rtt=1ms,rate=1gbit,host=stock", 256_000_000);
            assert!(text.ends_with(&format!("give the path's host a larger {sysctl}, or leave it out")), "{text}");
            assert!(asked("host", 4 << 20).ends_with("try a larger --buffer"));
        }
        // A rate that was never reached did not limit.
        let pacing = |goodput, any_lost| advice("host", Bottleneck::Pacing, &paced, Some(goodput), any_lost);
        assert_eq!(pacing(950e6, true), "pacing: the rate that --pacing sets");
        assert!(pacing(500e6, true).contains("losses kept it below the rate"));
        assert!(pacing(500e6, false).contains("the sender came too late"));
    }
}
