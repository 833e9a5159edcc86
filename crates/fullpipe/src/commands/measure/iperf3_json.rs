//! A run's result in the format of iperf3's JSON output (`--iperf3-json`), made from the run's record.
//!
//! Fields have iperf3's names and units. A field for which the record has nothing is left out.

mod udp;

use std::collections::BTreeMap;

use fullpipe_path::record::udp::UdpCounts;
use fullpipe_path::record::{Header, Outcome};
use fullpipe_path::transport::UNLIMITED;
use fullpipe_path::{Buffer, Direction, Path, Protocol, Run, Workload};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::intervals::NEARLY;
use crate::failure::Failure;
use crate::format;

/// The `error` of a run that the user ended, as iperf3 words it.
const INTERRUPTED: &str = "interrupt - the client has been terminated by signal";

/// The part of a record's `sample` line that iperf3 also has.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Sample {
    /// Time on the run's clock, s.
    t: f64,
    end: String,
    stream: u16,
    bytes: u64,
    total_retrans: u64,
    /// Smoothed round-trip time, us.
    rtt: Option<u64>,
    rttvar: Option<u64>,
    /// Congestion window, segments.
    snd_cwnd: Option<u64>,
    snd_mss: u64,
    snd_wnd: Option<u64>,
    pmtu: Option<u64>,
    /// The counts of plain UDP.
    #[serde(flatten)]
    udp: Option<UdpCounts>,
}

impl Sample {
    fn window_bytes(&self) -> Option<u64> {
        Some(self.snd_cwnd?.saturating_mul(self.snd_mss))
    }
}

/// The latest samples of all streams at one time, by the streams' numbers. That of a stream which broke is an earlier one.
type Tick = BTreeMap<u16, Sample>;

fn time_s(tick: &Tick) -> f64 {
    tick.values().map(|sample| sample.t).fold(0.0, f64::max)
}

/// Whether what is left at the end is an interval: it has data, or is not short. iperf3 decides so, too.
fn is_rest(before: &Tick, last: &Tick, every_s: f64) -> bool {
    let counts = |tick: &Tick| {
        let of = |sample: &Sample| [sample.bytes, sample.total_retrans, sample.udp.map_or(0, |udp| udp.datagrams)];
        tick.values().flat_map(of).fold(0, u64::saturating_add)
    };
    counts(last) > counts(before) || time_s(last) - time_s(before) >= every_s / 10.0
}

/// Adds the next sample in the order of time.
fn add_sample(ticks: &mut Vec<Tick>, sample: Sample) {
    // The samples of one tick have one time.
    if ticks.last().is_none_or(|tick| time_s(tick) < sample.t) {
        ticks.push(ticks.last().cloned().unwrap_or_default());
    }
    ticks.last_mut().map(|tick| tick.insert(sample.stream, sample));
}

/// A record, as far as iperf3's format needs it.
struct Parsed {
    header: Header,
    outcome: Outcome,
    /// The samples of either side, in the order of time.
    sender: Vec<Tick>,
    receiver: Vec<Tick>,
    /// Whether the client sent.
    sends: bool,
}

/// Makes iperf3's JSON of a record over TCP or plain UDP. `every_s` is the length of an interval, s.
///
/// # Errors
/// The text is no record.
pub fn of_record(record: &str, every_s: f64) -> serde_json::Result<Value> {
    let (first, rest) = record.split_once('\n').unwrap_or((record, ""));
    let (body, last) = rest.trim_end().rsplit_once('\n').unwrap_or(("", rest));
    let header: Header = serde_json::from_str(first)?;
    let (mut sender, mut receiver) = (Vec::new(), Vec::new());
    for line in body.lines().filter(|line| line.starts_with(r#"{"kind":"sample""#)) {
        let sample: Sample = serde_json::from_str(line)?;
        let ticks: &mut Vec<Tick> = if sample.end == "sender" { &mut sender } else { &mut receiver };
        add_sample(ticks, sample);
    }
    let sends = header.run.direction == Direction::Send;
    let parsed = Parsed { header, outcome: serde_json::from_str(last)?, sender, receiver, sends };
    let mut all = json!({ "start": parsed.start(), "intervals": parsed.intervals(every_s), "end": parsed.end() });
    let no_rate = parsed.outcome.after_omitted.as_ref().map_or(&parsed.outcome.no_rate, |later| &later.no_rate);
    if parsed.outcome.interrupted && parsed.header.run.workload != Workload::Duration(UNLIMITED) {
        all["error"] = json!(INTERRUPTED);
    } else if let Some(why) = no_rate {
        all["error"] = json!(format!("no rate: {why}"));
    }
    Ok(all)
}

/// Makes iperf3's JSON of a run that has no record, because it failed.
pub fn of_failure(run: &Run, failure: &Failure) -> Value {
    let system_info = nix::sys::utsname::uname().map_or_else(
        |_| "Linux".to_owned(),
        |name| format!("Linux {} {}", name.nodename().to_string_lossy(), name.release().to_string_lossy()),
    );
    let mut start = json!({
        "connected": [],
        "version": format!("fullpipe {}", env!("CARGO_PKG_VERSION")),
        "system_info": system_info,
    });
    add(&mut start, [("connecting_to", connecting_to(&run.path))]);
    let error = if failure.is_interrupt() { INTERRUPTED.to_owned() } else { failure.to_string() };
    json!({ "start": start, "intervals": [], "end": {}, "error": error })
}

/// The server of a path; `None` if it is emulated.
fn connecting_to(path: &Path) -> Option<Value> {
    match path {
        Path::Host(host) => Some(json!({ "host": host.name, "port": host.port })),
        Path::Lab(_) => None,
    }
}

/// Adds fields that have a value.
fn add<const N: usize>(to: &mut Value, fields: [(&str, Option<Value>); N]) {
    if let Value::Object(map) = to {
        map.extend(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    }
}

/// A time and what was carried in it, as iperf3 writes them.
fn carried(start_s: f64, end_s: f64, bytes: u64, bps: Option<f64>) -> Value {
    let mut fields = json!({ "start": start_s, "end": end_s, "seconds": end_s - start_s, "bytes": bytes });
    add(&mut fields, [("bits_per_second", bps.map(Value::from))]);
    fields
}

fn rate(bytes: u64, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| bytes as f64 * 8.0 / seconds)
}

/// A number in the ratio of `part` to `whole`, and not above it.
fn part(of: u64, part: u64, whole: u64) -> u64 {
    (u128::from(of) * u128::from(part.min(whole)) / u128::from(whole.max(1))) as u64
}

impl Parsed {
    /// The time that the rate is of, s, the bytes that arrived in it, and the rate, bit/s; all bytes if there is no rate.
    fn received(&self) -> (f64, u64, Option<f64>) {
        let outcome = &self.outcome;
        match &outcome.after_omitted {
            Some(later) => (later.seconds, later.bytes, later.goodput_bps),
            None if outcome.goodput_bps.is_none() => (outcome.seconds, outcome.bytes, None),
            None => (outcome.seconds, outcome.counted_bytes(), outcome.goodput_bps),
        }
    }

    /// The side of the client, whose samples iperf3 shows, and the other one.
    fn client(&self) -> &[Tick] {
        if self.sends { &self.sender } else { &self.receiver }
    }

    /// When what is omitted is over, on the run's clock, s; `None` if nothing is.
    fn omitted_until_s(&self) -> Option<f64> {
        let begun = self.outcome.streams.iter().filter(|stream| stream.bytes > 0).map(|stream| stream.first_s);
        self.outcome.after_omitted.as_ref().map(|later| later.omit_s + begun.fold(f64::INFINITY, f64::min))
    }

    fn omit_s(&self) -> f64 {
        self.outcome.after_omitted.as_ref().map_or(0.0, |later| later.omit_s)
    }

    fn is_udp(&self) -> bool {
        self.header.run.transport.protocol() == Protocol::Udp
    }

    /// A side's first tick whose time is not omitted, and its last one; the last one twice if all is omitted.
    fn counted(&self, ticks: &[Tick]) -> (Tick, Tick) {
        let last = ticks.last().cloned().unwrap_or_default();
        let base = self.omitted_until_s().map_or_else(Tick::new, |until_s| {
            ticks.iter().find(|tick| time_s(tick) >= until_s).unwrap_or(&last).clone()
        });
        (base, last)
    }

    fn start(&self) -> Value {
        let (run, real) = (&self.header.run, &self.header.real);
        let client = if self.sends { &self.header.sender } else { &self.header.receiver };
        let transport = &run.transport;
        let bitrate = transport.pacing.map_or(0, |rate| rate.0 / u64::from(transport.streams.max(1)));
        let buffer = match transport.buffer {
            Buffer::Auto => 0,
            Buffer::Bytes(size) => size.0,
        };
        let (bytes, duration_s) = match run.workload {
            Workload::Size(size) => (size.0, 0.0),
            // iperf3 -t 0 has no limit.
            Workload::Duration(UNLIMITED) => (0, 0.0),
            Workload::Duration(time) => (0, time.seconds() - self.omit_s()),
        };
        let host = real.get("host").and_then(Value::as_str).unwrap_or("-");
        let connected: Vec<Value> = (0..transport.streams).map(|stream| json!({ "socket": stream })).collect();
        let mut start = json!({
            "connected": connected,
            "version": format!("fullpipe {}", self.header.program),
            "system_info": format!("Linux {host} {}", client.kernel),
            "target_bitrate": bitrate,
            "sock_bufsize": buffer,
            "sndbuf_actual": client.sndbuf,
            "rcvbuf_actual": client.rcvbuf,
            "test_start": {
                "protocol": if self.is_udp() { "UDP" } else { "TCP" },
                "num_streams": transport.streams,
                "omit": self.omit_s(),
                "duration": duration_s,
                "bytes": bytes,
                "blocks": 0,
                "reverse": u8::from(!self.sends),
                "tos": transport.dscp.map_or(0, |dscp| dscp.traffic_class()),
                "target_bitrate": bitrate,
            },
        });
        let wall_s = self.outcome.real.get("wall_s").and_then(Value::as_f64);
        let began = real.get("ended_unix_s").and_then(Value::as_f64).zip(wall_s).map(|(ended, wall)| ended - wall);
        let timestamp = began.map(|began| {
            let seconds = began.round() as i64;
            json!({ "time": format::http_time(seconds), "timesecs": seconds })
        });
        add(&mut start, [("connecting_to", connecting_to(&run.path)), ("timestamp", timestamp)]);
        let (is_udp, size) = (self.is_udp(), self.header.sender.mss);
        add(&mut start, [("tcp_mss_default", (!is_udp).then(|| client.mss.into()))]);
        add(&mut start["test_start"], [("blksize", is_udp.then(|| size.into()))]);
        start
    }

    /// The intervals of the client's side, first those that are omitted. After these, iperf3's clock starts again.
    fn intervals(&self, every_s: f64) -> Vec<Value> {
        let ticks = self.client();
        let omitted = self.omitted_until_s().map_or(0, |until_s| {
            let base = ticks.iter().position(|tick| time_s(tick) >= until_s);
            base.map_or(ticks.len(), |base| base + 1)
        });
        let (before, after) = ticks.split_at(omitted);
        let base = before.last().cloned().unwrap_or_default();
        let mut all = self.cut(&Tick::new(), before, every_s, true);
        all.extend(self.cut(&base, after, every_s, false));
        all
    }

    /// Cuts ticks that follow another one into intervals. The last that is omitted takes in a rest that is short, as iperf3 has none.
    fn cut(&self, base: &Tick, ticks: &[Tick], every_s: f64, omitted: bool) -> Vec<Value> {
        let zero_s = time_s(base);
        let end_s = ticks.last().map_or(0.0, time_s) - zero_s;
        let (mut before, mut next_s, mut all) = (base, every_s, Vec::new());
        for (i, tick) in ticks.iter().enumerate() {
            let t_s = time_s(tick) - zero_s + every_s * NEARLY;
            let is_over = t_s >= next_s && !(omitted && end_s - t_s < every_s / 2.0);
            let is_last = i + 1 == ticks.len();
            if is_over || is_last && (omitted || is_rest(before, tick, every_s)) {
                all.push(self.interval(before, tick, zero_s, omitted));
                before = tick;
                next_s = ((t_s / every_s).floor() + 1.0) * every_s;
            }
        }
        all
    }

    /// What the client's side carried between two ticks.
    fn interval(&self, before: &Tick, tick: &Tick, zero_s: f64, omitted: bool) -> Value {
        let (start_s, end_s) = (time_s(before) - zero_s, time_s(tick) - zero_s);
        if self.is_udp() {
            return self.udp_interval(before, tick, (start_s, end_s), omitted);
        }
        let finish = |fields: &mut Value, retransmits: u64| {
            let retransmits = self.sends.then(|| retransmits.into());
            let (omitted, sender) = (Some(omitted.into()), Some(self.sends.into()));
            add(fields, [("retransmits", retransmits), ("omitted", omitted), ("sender", sender)]);
        };
        let (mut streams, mut bytes, mut retransmits) = (Vec::new(), 0_u64, 0_u64);
        for (stream, sample) in tick {
            let base = before.get(stream).cloned().unwrap_or_default();
            let moved = sample.bytes.saturating_sub(base.bytes);
            let resent = sample.total_retrans.saturating_sub(base.total_retrans);
            let mut fields = carried(start_s, end_s, moved, rate(moved, end_s - start_s));
            let number = |value: Option<u64>| value.filter(|_| self.sends).map(Value::from);
            add(
                &mut fields,
                [
                    ("socket", Some((*stream).into())),
                    ("snd_cwnd", number(sample.window_bytes())),
                    ("snd_wnd", number(sample.snd_wnd)),
                    ("rtt", number(sample.rtt)),
                    ("rttvar", number(sample.rttvar)),
                    ("pmtu", number(sample.pmtu)),
                ],
            );
            finish(&mut fields, resent);
            streams.push(fields);
            bytes = bytes.saturating_add(moved);
            retransmits = retransmits.saturating_add(resent);
        }
        let mut sum = carried(start_s, end_s, bytes, rate(bytes, end_s - start_s));
        finish(&mut sum, retransmits);
        json!({ "streams": streams, "sum": sum })
    }

    fn end(&self) -> Value {
        if self.is_udp() {
            return self.udp_end();
        }
        let outcome = &self.outcome;
        let (received_s, received_bytes, received_bps) = self.received();
        let sent_again = outcome.after_omitted.as_ref().map_or(outcome.retransmits, |later| later.retransmits);
        let (mut of_all, mut counted_of_all) = (0_u64, 0_u64);
        let ((sent_base, sent), (received_base, received)) = (self.counted(&self.sender), self.counted(&self.receiver));
        let sent_s = time_s(&sent) - time_s(&sent_base);
        let mut sent_bytes = 0;
        let mut streams = Vec::new();
        for (i, stream) in (0..).zip(&outcome.streams) {
            let of = |tick: &Tick| tick.get(&i).cloned().unwrap_or_default();
            let moved = |base: &Tick, tick: &Tick| of(tick).bytes.saturating_sub(of(base).bytes);
            let bytes = moved(&sent_base, &sent);
            sent_bytes = bytes.saturating_add(sent_bytes);
            let mut sender = carried(0.0, sent_s, bytes, rate(bytes, sent_s));
            let samples: Vec<&Sample> =
                self.sender.iter().filter_map(|tick| tick.get(&i)).filter(|s| s.t >= self.omit_s()).collect();
            let rtts: Vec<u64> = samples.iter().filter_map(|sample| sample.rtt).filter(|us| *us > 0).collect();
            let most =
                |value: fn(&Sample) -> Option<u64>| samples.iter().filter_map(|s| value(s)).max().map(Value::from);
            add(
                &mut sender,
                [
                    ("socket", Some(i.into())),
                    ("retransmits", Some(of(&sent).total_retrans.saturating_sub(of(&sent_base).total_retrans).into())),
                    ("max_snd_cwnd", most(Sample::window_bytes)),
                    ("max_snd_wnd", most(|sample| sample.snd_wnd)),
                    ("max_rtt", rtts.iter().max().map(|us| (*us).into())),
                    ("min_rtt", rtts.iter().min().map(|us| (*us).into())),
                    (
                        "mean_rtt",
                        rtts.iter()
                            .fold(0, |sum: u64, rtt| sum.saturating_add(*rtt))
                            .checked_div(rtts.len() as u64)
                            .map(Value::from),
                    ),
                    ("sender", Some(self.sends.into())),
                ],
            );
            let bytes = if self.omit_s() > 0.0 {
                moved(&received_base, &received)
            } else {
                // Its part of what counts: of which streams the bytes before that were is not known.
                of_all = of_all.saturating_add(stream.bytes);
                let until_here = part(received_bytes, of_all, outcome.bytes);
                until_here - std::mem::replace(&mut counted_of_all, until_here)
            };
            let bps = received_bps.and_then(|_| rate(bytes, received_s));
            let mut receiver = carried(0.0, received_s, bytes, bps);
            add(&mut receiver, [("socket", Some(i.into())), ("sender", Some(self.sends.into()))]);
            streams.push(json!({ "sender": sender, "receiver": receiver }));
        }
        let mut sum_sent = carried(0.0, sent_s, sent_bytes, rate(sent_bytes, sent_s));
        add(&mut sum_sent, [("retransmits", Some(sent_again.into())), ("sender", Some(self.sends.into()))]);
        let mut sum_received = carried(0.0, received_s, received_bytes, received_bps);
        add(&mut sum_received, [("sender", Some(self.sends.into()))]);
        let mut end = json!({ "streams": streams, "sum_sent": sum_sent, "sum_received": sum_received });
        add(
            &mut end,
            [
                ("cpu_utilization_percent", self.cpu()),
                ("sender_tcp_congestion", Some(self.header.sender.cc.clone().into())),
                ("receiver_tcp_congestion", Some(self.header.receiver.cc.clone().into())),
            ],
        );
        end
    }

    /// Processor time of the two programs, as a percentage of the run's time.
    fn cpu(&self) -> Option<Value> {
        let run_s = self.client().last().map(time_s).filter(|s| *s > 0.0)?;
        let percent = |name: &str| Some(self.outcome.real.get(name)?.as_f64()? / run_s * 100.0);
        let (host, remote) =
            if self.sends { ("cpu_sender_s", "cpu_receiver_s") } else { ("cpu_receiver_s", "cpu_sender_s") };
        let mut fields = Value::Object(Map::new());
        add(
            &mut fields,
            [("host_total", percent(host).map(Value::from)), ("remote_total", percent(remote).map(Value::from))],
        );
        fields.as_object().is_some_and(|map| !map.is_empty()).then_some(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_has_the_latest_sample_of_every_stream() {
        let mut ticks = Vec::new();
        // Stream 0 has no sample at first, and stream 1 none in the end.
        for (t, stream, bytes) in [(1.0, 1, 10), (2.0, 0, 5), (2.0, 1, 20), (3.0, 0, 6)] {
            add_sample(&mut ticks, Sample { t, stream, bytes, ..Sample::default() });
        }
        let seen: Vec<(f64, Vec<u64>)> =
            ticks.iter().map(|tick| (time_s(tick), tick.values().map(|sample| sample.bytes).collect())).collect();
        assert_eq!(seen, [(1.0, vec![10]), (2.0, vec![5, 20]), (3.0, vec![6, 20])]);
    }
}
