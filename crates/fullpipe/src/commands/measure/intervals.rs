//! Tells how a run goes, interval by interval (`--interval`), from the samples of this side.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use fullpipe_net::sample::Sample;
use fullpipe_net::side::Side;
use fullpipe_path::Time;
use fullpipe_path::record::udp::{UdpCounts, UdpOutcome};
use serde::{Deserialize, Serialize};

use crate::format;

/// Fraction of an interval by which a time that is a multiple of it may differ from it in its last digit.
pub const NEARLY: f64 = 1e-6;

/// The time between samples with which intervals end where they should: a part of the interval that is at most `usual`.
pub fn sample_time(interval: Time, usual: Time) -> Time {
    let parts = interval.0.div_ceil(usual.0.max(1)).max(1);
    // Every interval that people give is a multiple of some of these.
    let exact = (parts..2 * parts).find(|parts| interval.0.is_multiple_of(*parts));
    Time(interval.0 / exact.unwrap_or(parts))
}

/// The part of a record's `sample` line that an interval needs. Counters are those of one stream since the run's start, but for
/// UDT's, which are since the stream's last sample.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SampleLine {
    /// Time on the run's clock, s.
    t: f64,
    end: String,
    stream: u16,
    bytes: u64,
    total_retrans: u64,
    /// Smoothed round-trip time, us.
    rtt: Option<f64>,
    snd_cwnd: Option<u64>,
    snd_mss: u64,
    #[serde(rename = "pktRetrans")]
    pkt_retrans: u64,
    #[serde(rename = "msRTT")]
    ms_rtt: Option<f64>,
    /// The counts of plain UDP.
    #[serde(flatten)]
    udp: Option<UdpCounts>,
}

impl SampleLine {
    /// Reads a line of a record; `None` if it is no sample of this side, `sender` or `receiver`.
    pub fn read(line: &str, end: &str) -> Option<SampleLine> {
        if !line.starts_with(r#"{"kind":"sample""#) {
            return None;
        }
        serde_json::from_str(line).ok().filter(|sample: &SampleLine| sample.end == end)
    }

    fn of(sample: &Sample) -> Option<SampleLine> {
        let line: SampleLine = serde_json::from_value(serde_json::to_value(sample.fields()).ok()?).ok()?;
        Some(SampleLine { t: sample.t_ns as f64 / 1e9, ..line })
    }
}

/// What a run carried in an interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Interval {
    /// Always `interval`.
    kind: &'static str,
    /// Begin on the run's clock, s.
    pub(super) begin_s: f64,
    /// End on the run's clock, s.
    pub(super) end_s: f64,
    /// Time of the end, seconds since 1970 (UTC); not in the testbed, whose time is virtual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unix_s: Option<f64>,
    /// Bytes that arrived, or that were acknowledged to the sender.
    pub(super) bytes: u64,
    /// Their rate, bit/s.
    pub(super) bps: f64,
    /// Segments or packets that were sent again; only at a sender over TCP or UDT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retransmits: Option<u64>,
    /// Smoothed round-trip time at the end, mean of the streams, s; only at the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rtt_s: Option<f64>,
    /// Congestion windows at the end, sum of the streams, bytes; only at a sender over TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cwnd_bytes: Option<u64>,
    /// Over plain UDP: what the receiver counted. At the sender, its reports of a moment ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) udp: Option<Datagrams>,
    /// The same for each stream, if there are several.
    #[serde(skip)]
    pub(super) streams: Vec<(u16, Interval)>,
    /// Decimals of its times in a table.
    #[serde(skip)]
    digits: usize,
}

/// What became of an interval's datagrams, on all streams.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Datagrams {
    pub(super) received: u64,
    pub(super) lost: u64,
    pub(super) out_of_order: u64,
    pub(super) duplicates: u64,
    /// At the interval's end, mean of the streams, s.
    pub(super) jitter_s: f64,
}

impl Datagrams {
    fn between(begin: &UdpOutcome, end: &UdpOutcome) -> Datagrams {
        Datagrams {
            received: end.received.saturating_sub(begin.received),
            // What was lost at the begin may have come late.
            lost: end.lost.saturating_sub(begin.lost),
            out_of_order: end.out_of_order.saturating_sub(begin.out_of_order),
            duplicates: end.duplicates.saturating_sub(begin.duplicates),
            jitter_s: end.jitter_s,
        }
    }
}

impl Interval {
    /// The heading of the lines of a table.
    const HEADING: &'static str = "     seconds           rate   retransmits    round trip      window";
    /// The same over plain UDP.
    const UDP_HEADING: &'static str = "     seconds           rate          lost      received      jitter";

    /// The heading of a table with such lines.
    pub fn heading(&self) -> &'static str {
        if self.udp.is_some() { Self::UDP_HEADING } else { Self::HEADING }
    }

    /// The heading of a table with another first column.
    pub fn heading_of(&self, first: &str) -> String {
        let others = self.heading().trim_start().split_once(' ').map_or("", |(_, others)| others);
        format!("{first:>12} {others}")
    }

    /// The interval as a line of a table.
    pub fn line(&self) -> String {
        self.line_of(&format!("{0:.2$}-{1:.2$}", self.begin_s, self.end_s, self.digits))
    }

    /// The same with another first column.
    pub fn line_of(&self, first: &str) -> String {
        let dash = || "-".to_owned();
        if let Some(udp) = self.udp {
            let [lost, received] = [udp.lost, udp.received].map(format::thousands);
            let (rate, jitter) = (format::rate(self.bps), format::seconds(udp.jitter_s));
            return format!("{first:>12} {rate:>14} {lost:>13} {received:>13} {jitter:>11}");
        }
        format!(
            "{first:>12} {:>14} {:>13} {:>13} {:>11}",
            format::rate(self.bps),
            self.retransmits.map_or_else(dash, format::thousands),
            self.rtt_s.map_or_else(dash, format::seconds),
            self.cwnd_bytes.map_or_else(dash, |bytes| format::bytes(bytes as f64)),
        )
    }
}

/// Bytes and retransmissions of streams at one time.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    t_s: f64,
    bytes: u64,
    retransmits: u64,
    udp: UdpOutcome,
}

impl Totals {
    /// Sums of streams, given what UDT has sent again on them.
    fn of(lines: &[&SampleLine], udt_retransmits: u64) -> Totals {
        let counts: Vec<UdpCounts> = lines.iter().filter_map(|line| line.udp).collect();
        Totals {
            t_s: lines.iter().map(|line| line.t).fold(0.0, f64::max),
            bytes: lines.iter().map(|line| line.bytes).fold(0, u64::saturating_add),
            retransmits: lines.iter().map(|line| line.total_retrans).fold(udt_retransmits, u64::saturating_add),
            udp: UdpOutcome::of(0, 0, &counts),
        }
    }
}

/// Time of day, seconds since 1970 (UTC).
fn unix_now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Cuts a run into intervals.
#[derive(Debug)]
pub struct Intervals {
    every_s: f64,
    sends: bool,
    /// End of the interval that goes on, s.
    next_s: f64,
    begin: Totals,
    /// The begin for each stream.
    stream_begins: BTreeMap<u16, Totals>,
    /// The last line of each stream.
    streams: BTreeMap<u16, SampleLine>,
    /// Packets that UDT sent again on each stream.
    udt_retransmits: BTreeMap<u16, u64>,
    /// Zero of the run's clock, seconds since 1970 (UTC), by the latest samples of the run while it went on.
    zero_unix_s: Option<f64>,
    /// Number of samples that came while the run went on.
    seen_samples: usize,
}

impl Intervals {
    /// Intervals of a run's side that sends or receives.
    pub fn new(every_s: f64, sends: bool) -> Intervals {
        Intervals {
            every_s,
            sends,
            next_s: every_s,
            begin: Totals::default(),
            stream_begins: BTreeMap::new(),
            streams: BTreeMap::new(),
            udt_retransmits: BTreeMap::new(),
            zero_unix_s: None,
            seen_samples: 0,
        }
    }

    /// Takes in samples of this side, and leaves out others, while the run goes on. Returns the intervals that are over.
    pub fn live(&mut self, samples: &[Sample]) -> Vec<Interval> {
        let ours: Vec<&Sample> = samples.iter().filter(|sample| sample.end == self.side()).collect();
        self.seen_samples += ours.len();
        if let Some(last) = ours.last() {
            // Samples are handed on soon after they were taken.
            self.zero_unix_s = Some(unix_now_s() - last.t_ns as f64 / 1e9);
        }
        self.take(ours.into_iter().filter_map(SampleLine::of))
    }

    /// Takes in what has not come yet of all samples of a run that is over, maybe for some time. Returns all intervals that are left.
    pub fn finish(&mut self, samples: &[Sample]) -> Vec<Interval> {
        let ours = samples.iter().filter(|sample| sample.end == self.side());
        let last: Vec<&Sample> = ours.skip(self.seen_samples).collect();
        if self.zero_unix_s.is_none() {
            let last_s = last.last().map(|sample| sample.t_ns as f64 / 1e9);
            self.zero_unix_s = last_s.map(|last_s| unix_now_s() - last_s);
        }
        let mut over = self.take(last.into_iter().filter_map(SampleLine::of));
        over.extend(self.rest());
        over
    }

    fn side(&self) -> Side {
        if self.sends { Side::Sender } else { Side::Receiver }
    }

    /// Takes in samples in the order of their times; those of one time come together. Returns the intervals that are over.
    pub fn take(&mut self, samples: impl Iterator<Item = SampleLine>) -> Vec<Interval> {
        let mut over = Vec::new();
        for sample in samples {
            let of_last_time = self.streams.get(&sample.stream).is_some_and(|last| last.t < sample.t);
            if of_last_time {
                over.extend(self.cut());
            }
            let resent = self.udt_retransmits.entry(sample.stream).or_default();
            *resent = resent.saturating_add(sample.pkt_retrans);
            self.streams.insert(sample.stream, sample);
        }
        over.extend(self.cut());
        over
    }

    /// Ends the interval that goes on, if its time is over for all streams.
    fn cut(&mut self) -> Option<Interval> {
        let t_s = self.streams.values().map(|line| line.t).fold(f64::INFINITY, f64::min);
        let nearly = self.every_s * NEARLY;
        if !t_s.is_finite() || t_s + nearly < self.next_s {
            return None;
        }
        self.next_s = (((t_s + nearly) / self.every_s).floor() + 1.0) * self.every_s;
        Some(self.end())
    }

    /// The rest of a run that is over, if it has data or is not short.
    pub fn rest(&mut self) -> Option<Interval> {
        let is_long = self.last_s() - self.begin.t_s >= self.every_s / 10.0;
        let rest = (self.last_s() > self.begin.t_s).then(|| self.end())?;
        let datagrams = rest.udp.map_or(0, |udp| udp.received.saturating_add(udp.lost));
        // What is reported to a sender of datagrams came a moment before, and says nothing of so short a time.
        let is_late = self.sends && rest.udp.is_some();
        let has_data = !is_late && (rest.bytes > 0 || rest.retransmits > Some(0) || datagrams > 0);
        // iperf3 decides so, too.
        (is_long || has_data).then_some(rest)
    }

    /// Time of the last sample, s.
    fn last_s(&self) -> f64 {
        self.streams.values().map(|line| line.t).fold(0.0, f64::max)
    }

    /// Decimals that tell the ends of intervals apart.
    fn digits(&self, begin_s: f64, end_s: f64) -> usize {
        let is_multiple =
            |unit: f64| ((self.every_s / unit).round() * unit - self.every_s).abs() < NEARLY * self.every_s;
        let tells = |unit: f64| is_multiple(unit) && end_s - begin_s >= unit;
        if tells(0.1) {
            1
        } else if tells(0.01) {
            2
        } else {
            3
        }
    }

    fn end(&mut self) -> Interval {
        let lines: Vec<&SampleLine> = self.streams.values().collect();
        let now = Totals::of(&lines, self.udt_retransmits.values().copied().fold(0, u64::saturating_add));
        let mut interval = self.between(&lines, &self.begin, &now);
        let mut begins = BTreeMap::new();
        for (stream, line) in &self.streams {
            let resent = self.udt_retransmits.get(stream).copied().unwrap_or(0);
            let now = Totals::of(&[line], resent);
            let begin = self.stream_begins.get(stream).copied().unwrap_or_default();
            if lines.len() > 1 {
                interval.streams.push((*stream, self.between(&[line], &begin, &now)));
            }
            begins.insert(*stream, now);
        }
        (self.begin, self.stream_begins) = (now, begins);
        interval
    }

    /// What streams, whose last lines these are, carried between two times.
    fn between(&self, lines: &[&SampleLine], begin: &Totals, now: &Totals) -> Interval {
        let rtts_s: Vec<f64> =
            lines.iter().filter_map(|line| line.rtt.map(|us| us / 1e6).or(line.ms_rtt.map(|ms| ms / 1e3))).collect();
        let windows: Vec<u64> =
            lines.iter().filter_map(|line| Some(line.snd_cwnd?.saturating_mul(line.snd_mss))).collect();
        let is_udp = lines.iter().any(|line| line.udp.is_some());
        let bytes = now.bytes.saturating_sub(begin.bytes);
        Interval {
            kind: "interval",
            begin_s: begin.t_s,
            end_s: now.t_s,
            unix_s: self.zero_unix_s.map(|zero_s| zero_s + now.t_s),
            bytes,
            bps: bytes as f64 * 8.0 / (now.t_s - begin.t_s).max(1e-9),
            retransmits: (self.sends && !is_udp).then(|| now.retransmits.saturating_sub(begin.retransmits)),
            rtt_s: (self.sends && !rtts_s.is_empty()).then(|| rtts_s.iter().sum::<f64>() / rtts_s.len() as f64),
            cwnd_bytes: (self.sends && !windows.is_empty())
                .then(|| windows.iter().copied().fold(0, u64::saturating_add)),
            udp: is_udp.then(|| Datagrams::between(&begin.udp, &now.udp)),
            streams: Vec::new(),
            digits: self.digits(begin.t_s, now.t_s),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(t: f64, stream: u16, bytes: u64) -> SampleLine {
        let total_retrans = bytes / 1_000_000;
        let (rtt, snd_cwnd) = (Some(2e3 * f64::from(stream + 1)), Some(10));
        SampleLine { t, stream, bytes, total_retrans, rtt, snd_cwnd, snd_mss: 1_000, ..SampleLine::default() }
    }

    #[test]
    fn samples_end_where_intervals_do() {
        let ms = |ms: u64| Time(ms * 1_000_000);
        for (interval, usual, expected) in
            [(1_000, 100, 100), (250, 100, 62), (110, 100, 55), (50, 100, 50), (1_500, 1_000, 750)]
        {
            let sample = sample_time(ms(interval), ms(usual));
            assert_eq!((sample.0 / 1_000_000, ms(interval).0 % sample.0), (expected, 0), "{interval}");
        }
    }

    #[test]
    fn a_run_is_cut_where_samples_are() {
        let lines: Vec<SampleLine> = (1..=25_u32)
            .flat_map(|i| {
                (0..2).map(move |stream| sample(f64::from(i) * 0.1 + 0.001, stream, u64::from(i) * 1_000_000))
            })
            .collect();
        let mut intervals = Intervals::new(1.0, true);
        // However the samples are handed on.
        let mut all = intervals.take(lines[..7].iter().cloned());
        all.extend(intervals.take(lines[7..].iter().cloned()));
        all.extend(intervals.rest());
        assert_eq!(all.iter().map(|i| i.bytes).collect::<Vec<_>>(), [20_000_000, 20_000_000, 10_000_000]);
        let (first, second) = (&all[0], &all[1]);
        assert!((first.end_s - 1.001).abs() < 1e-9 && (second.begin_s - first.end_s).abs() < 1e-9, "{all:?}");
        assert!((second.bps - 160e6).abs() < 1.0, "{second:?}");
        assert_eq!((first.retransmits, first.cwnd_bytes, second.retransmits), (Some(20), Some(20_000), Some(20)));
        assert!((first.rtt_s.unwrap() - 0.003).abs() < 1e-9);
        assert_eq!(first.line(), "     0.0-1.0     159.8 Mb/s            20      3.000 ms    20.00 KB");
        assert_eq!(first.heading().len(), first.line().len());
    }

    #[test]
    fn datagrams_have_columns_of_their_own() {
        let line = |t: f64, lost: u64| {
            let text = format!(
                r#"{{"kind":"sample","t":{t},"end":"sender","stream":0,"bytes":{},"datagrams":99,"datagrams_received":{},
                "datagrams_lost":{lost},"datagrams_out_of_order":0,"datagrams_duplicate":0,"jitter_ns":1500}}"#,
                t * 1e6,
                t * 1e3
            );
            SampleLine::read(&text, "sender").unwrap()
        };
        let over = Intervals::new(1.0, true).take([line(1.0, 5), line(2.0, 7)].into_iter());
        assert_eq!((over[1].udp.unwrap().received, over[1].udp.unwrap().lost), (1_000, 2));
        assert_eq!(over[1].line(), "     1.0-2.0     8.000 Mb/s             2         1,000    1.500 us");
        assert_eq!(over[1].heading().len(), over[1].line().len());
        assert_eq!(over[1].retransmits, None);
    }

    #[test]
    fn a_receiver_knows_only_its_rate() {
        let mut intervals = Intervals::new(0.5, false);
        let over = intervals.take([sample(0.25, 0, 1_000), sample(0.5, 0, 2_000)].into_iter());
        assert_eq!((over.len(), over[0].bytes, over[0].retransmits, over[0].rtt_s), (1, 2_000, None, None));
        assert!(intervals.rest().is_none());
        // A short rest is an interval only if it has data.
        assert!(intervals.take([sample(0.51, 0, 2_000)].into_iter()).is_empty() && intervals.rest().is_none());
        assert!(intervals.take([sample(0.512, 0, 2_500)].into_iter()).is_empty());
        let rest = intervals.rest().unwrap();
        assert_eq!(
            (rest.bytes, rest.line()),
            (500, " 0.510-0.512     2.000 Mb/s             -             -           -".into())
        );
    }

    #[test]
    fn lines_of_a_record_are_samples() {
        let line = r#"{"kind":"sample","t":0.5,"end":"sender","stream":1,"bytes":7,"pktRetrans":3,"msRTT":5.5}"#;
        let sample = SampleLine::read(line, "sender").unwrap();
        assert_eq!((sample.t, sample.stream, sample.bytes, sample.pkt_retrans), (0.5, 1, 7, 3));
        assert!(SampleLine::read(line, "receiver").is_none() && SampleLine::read("{}", "sender").is_none());
    }
}
