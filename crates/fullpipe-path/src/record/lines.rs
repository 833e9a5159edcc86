//! Writes a record's lines, and adds to a record what the testbed saw.
//!
//! All lines of a record are made here. Lines between the header and the result have a time: `kind` stands first and `t`
//! second in them, so that [`add_path`] finds the time of a line without parsing all of it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Header, Outcome};
use crate::Direction;

/// Keys of `real` that stand in the header; the others stand in the result.
const REAL_OF_HEADER: [&str; 2] = ["host", "ended_unix_s"];

/// A line with a time.
#[derive(Serialize)]
struct TimedLine<F: Serialize> {
    kind: &'static str,
    /// Seconds on the run's clock.
    t: f64,
    #[serde(flatten)]
    fields: F,
}

/// A transport's view of a stream, without its time: what follows `kind` and `t` in a `sample` line.
#[derive(Serialize)]
pub struct SampleFields<T: Serialize> {
    /// `sender` or `receiver`.
    pub end: &'static str,
    /// Number of the stream, from 0.
    pub stream: u16,
    /// Bytes that the receiver's application has read, or that were acknowledged to the sender.
    pub bytes: u64,
    /// Fields of the transport, under its own names.
    #[serde(flatten)]
    pub transport: T,
}

#[derive(Serialize)]
struct QueueFields {
    backlog_bytes: u32,
    drops: u32,
}

/// Nanoseconds of a run's clock as a record's `t`.
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

pub(super) fn write_line(to: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, line)?;
    to.write_all(b"\n")
}

/// Writes a record: the header; samples and decisions of SOBAS in the order of their times; the result. Samples and
/// decisions come with their times on the run's clock, ns, each in order.
///
/// # Errors
/// `to` cannot be written.
pub fn write<T: Serialize>(
    to: &mut impl Write,
    header: &Header,
    samples: impl Iterator<Item = (u64, SampleFields<T>)>,
    decisions: &[(u64, Value)],
    outcome: &Outcome,
) -> io::Result<()> {
    write_line(to, header)?;
    let mut decisions = decisions.iter().peekable();
    let decision = |to: &mut _, (t_ns, fields): &(u64, Value)| {
        write_line(to, &TimedLine { kind: "sobas", t: seconds(*t_ns), fields })
    };
    for (t_ns, fields) in samples {
        while let Some(next) = decisions.next_if(|(at_ns, _)| *at_ns <= t_ns) {
            decision(to, next)?;
        }
        write_line(to, &TimedLine { kind: "sample", t: seconds(t_ns), fields })?;
    }
    for next in decisions {
        decision(to, next)?;
    }
    write_line(to, outcome)?;
    to.flush()
}

/// What the testbed saw of the path in one direction.
pub struct DirectionView<'a> {
    /// Packets that the bottleneck's queue dropped.
    pub queue_drops: u64,
    /// Most bytes that were seen in the queue.
    pub queue_deepest_bytes: u64,
    /// Packets that the path's random loss took.
    pub random_losses: u64,
    /// The queue over time: `CLOCK_MONOTONIC` of the guest in ns, bytes in the queue, packets dropped so far.
    pub queue: &'a mut dyn Iterator<Item = (u64, u32, u32)>,
}

/// What the testbed saw of the path. A record gets what was seen in the direction of its data.
pub struct PathView<'a> {
    /// The direction from the client to the server.
    pub forward: DirectionView<'a>,
    /// The direction from the server to the client.
    pub back: DirectionView<'a>,
    /// Facts about the host on which the guest ran.
    pub real: &'a BTreeMap<String, Value>,
}

/// Adds to a record that was written in the testbed's guest what the testbed saw in the direction of the data: the queue's
/// samples among the other lines by time, the totals in the result, and under `real` the facts of the host instead of the
/// guest's. Returns the record and its result.
///
/// # Errors
/// The text is not a record; the error says why.
pub fn add_path(text: &str, path: PathView<'_>) -> Result<(String, Outcome), String> {
    let lacks = |what: &str| format!("the guest's record has no {what}");
    let mut lines: Vec<&str> = text.lines().collect();
    let last = lines.pop().ok_or_else(|| lacks("result"))?;
    let mut timed = lines.into_iter();
    let first = timed.next().ok_or_else(|| lacks("header"))?;
    let mut header: Value = serde_json::from_str(first).map_err(|e| format!("the guest's record: header: {e}"))?;
    let mut outcome: Outcome = serde_json::from_str(last).map_err(|e| format!("the guest's record: result: {e}"))?;
    let zero_ns = header["real"]["zero_ns"].as_u64().ok_or_else(|| lacks("real.zero_ns in its header"))?;
    let real = |in_header: bool| {
        let wanted = move |key: &str| REAL_OF_HEADER.contains(&key) == in_header;
        path.real.iter().filter(move |(key, _)| wanted(key)).map(|(key, value)| (key.clone(), value.clone()))
    };
    header["real"] = Value::Object(real(true).collect());
    let direction = Direction::deserialize(&header["direction"]).map_err(|_| lacks("direction in its header"))?;
    let seen = match direction {
        Direction::Send => path.forward,
        Direction::Receive => path.back,
    };
    outcome.queue_drops = Some(seen.queue_drops);
    outcome.queue_deepest = Some(seen.queue_deepest_bytes);
    outcome.random_losses = Some(seen.random_losses);
    outcome.real = real(false).collect();

    let on_clock = |(ns, backlog_bytes, drops): (u64, u32, u32)| {
        // What was seen before the run's zero is not of the run.
        Some((seconds(ns.checked_sub(zero_ns)?), QueueFields { backlog_bytes, drops }))
    };
    let mut queue = seen.queue.filter_map(on_clock).peekable();
    let mut record = Vec::with_capacity(text.len() + text.len() / 8);
    let written = || "the record does not fit into memory".to_owned();
    let queue_line = |record: &mut Vec<u8>, (t, fields): (f64, QueueFields)| {
        write_line(record, &TimedLine { kind: "queue", t, fields }).map_err(|_| written())
    };
    write_line(&mut record, &header).map_err(|_| written())?;
    for line in timed {
        let t = time(line).ok_or_else(|| format!("the guest's record has a line without a time: {line}"))?;
        while let Some(next) = queue.next_if(|(at, _)| *at < t) {
            queue_line(&mut record, next)?;
        }
        record.extend_from_slice(line.as_bytes());
        record.push(b'\n');
    }
    for next in queue {
        queue_line(&mut record, next)?;
    }
    write_line(&mut record, &outcome).map_err(|_| written())?;
    String::from_utf8(record).map(|record| (record, outcome)).map_err(|e| e.to_string())
}

/// The `t` of a [`TimedLine`], seconds.
fn time(line: &str) -> Option<f64> {
    let (_, rest) = line.strip_prefix(r#"{"kind":""#)?.split_once(r#"","t":"#)?;
    rest.split([',', '}']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::record::{Bottleneck, EndInfo, VERSION};

    fn header() -> Header {
        Header {
            kind: "run".into(),
            version: VERSION,
            id: "test".into(),
            program: "0".into(),
            run: crate::Run {
                path: "lab:rtt=10ms,rate=1gbit".parse().unwrap(),
                transport: crate::Transport {
                    cc: "cubic".into(),
                    streams: 1,
                    buffer: crate::Buffer::Auto,
                    pacing: None,
                    dscp: None,
                    mss: None,
                },
                workload: crate::Workload::Size(crate::Size(1)),
                direction: crate::Direction::Send,
                bidir: false,
                disks: None,
                seed: 1,
                sample: crate::Time(100_000_000),
            },
            rtt_s: 0.01,
            sender: EndInfo::default(),
            receiver: EndInfo::default(),
            sobas: None,
            copy: None,
            real: [("zero_ns".to_owned(), json!(1_000_000_000u64))].into(),
        }
    }

    fn outcome() -> Outcome {
        Outcome {
            kind: "result".into(),
            goodput_bps: Some(1.0),
            no_rate: None,
            bytes: 1,
            early_bytes: 0,
            seconds: 1.0,
            queue_drops: None,
            queue_deepest: None,
            random_losses: None,
            retransmits: 0,
            udp: None,
            window_max: None,
            cwnd_max: 0,
            interrupted: false,
            after_omitted: None,
            loaded_rtt: None,
            probe: None,
            bottleneck: Some(Bottleneck::Cwnd),
            streams: Vec::new(),
            real: BTreeMap::new(),
        }
    }

    #[test]
    fn lines_stand_in_the_order_of_their_times() {
        let sample = |t_ns| {
            let transport: BTreeMap<&str, u64> = [("rtt", 7)].into();
            (t_ns, SampleFields { end: "sender", stream: 0, bytes: 5, transport })
        };
        let decisions = [(100_000_000, json!({"pace": 3})), (300_000_000, json!({"pace": 4}))];
        let mut text = Vec::new();
        let samples = [sample(100_000_000), sample(200_000_000)].into_iter();
        write(&mut text, &header(), samples, &decisions, &outcome()).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], r#"{"kind":"sobas","t":0.1,"pace":3}"#);
        assert_eq!(lines[2], r#"{"kind":"sample","t":0.1,"end":"sender","stream":0,"bytes":5,"rtt":7}"#);
        assert!(lines[4].starts_with(r#"{"kind":"sobas","t":0.3"#) && lines.len() == 6);

        let real = [("host".to_owned(), json!("here")), ("wall_s".to_owned(), json!(2.5))].into();
        let mut queue = [(900_000_000, 1, 0), (1_150_000_000, 9, 2), (1_900_000_000, 0, 2)].into_iter();
        let mut queue_back = std::iter::empty();
        let path = PathView { forward: seen(2, &mut queue), back: seen(0, &mut queue_back), real: &real };
        let (whole, outcome) = add_path(&text, path).unwrap();
        let whole: Vec<&str> = whole.lines().collect();
        assert_eq!(whole[3], r#"{"kind":"queue","t":0.15,"backlog_bytes":9,"drops":2}"#);
        assert!(whole[0].ends_with(r#""real":{"host":"here"}}"#) && whole.len() == 8, "one came before the zero");
        assert_eq!((outcome.queue_drops, outcome.random_losses), (Some(2), Some(3)));
        assert_eq!(outcome.real.get("wall_s"), Some(&json!(2.5)));
    }

    /// A direction in which the queue dropped so many packets.
    fn seen(queue_drops: u64, queue: &mut dyn Iterator<Item = (u64, u32, u32)>) -> DirectionView<'_> {
        DirectionView { queue_drops, queue_deepest_bytes: 10 * queue_drops, random_losses: queue_drops + 1, queue }
    }

    #[test]
    fn data_of_the_server_went_through_the_queue_on_the_way_back() {
        let mut header = header();
        header.run.direction = Direction::Receive;
        let mut text = Vec::new();
        write(&mut text, &header, std::iter::empty::<(u64, SampleFields<u64>)>(), &[], &outcome()).unwrap();
        let (mut queue, mut queue_back) =
            ([(1_100_000_000, 1, 1)].into_iter(), [(1_200_000_000, 2, 0), (1_300_000_000, 3, 4)].into_iter());
        let path = PathView { forward: seen(1, &mut queue), back: seen(4, &mut queue_back), real: &BTreeMap::new() };
        let (whole, outcome) = add_path(&String::from_utf8(text).unwrap(), path).unwrap();
        assert_eq!((outcome.queue_drops, outcome.queue_deepest, outcome.random_losses), (Some(4), Some(40), Some(5)));
        let lines: Vec<&str> = whole.lines().filter(|line| line.contains(r#""kind":"queue""#)).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1], r#"{"kind":"queue","t":0.3,"backlog_bytes":3,"drops":4}"#);
    }

    #[test]
    fn what_is_no_record_says_why() {
        let real = BTreeMap::new();
        for (text, why) in [("", "no result"), ("{}", "no header"), ("{}\n{}", "result"), ("x\n{}", "header")] {
            let (mut queue, mut queue_back) = (std::iter::empty(), std::iter::empty());
            let path = PathView { forward: seen(0, &mut queue), back: seen(0, &mut queue_back), real: &real };
            assert!(add_path(text, path).unwrap_err().contains(why), "{text}");
        }
    }
}
