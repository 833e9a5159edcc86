//! `measure --iperf3-json` beside the output of iperf3 itself: one parser reads both.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::{Server, error, fullpipe};

/// What iperf3 has and a record has not: addresses and descriptors of sockets, blocks, and the split of processor time into user
/// and system.
const NOT_KNOWN: [&str; 10] = [
    "start.connected[].local_host",
    "start.connected[].local_port",
    "start.connected[].remote_host",
    "start.connected[].remote_port",
    "start.cookie",
    "start.test_start.blksize",
    "end.cpu_utilization_percent.host_system",
    "end.cpu_utilization_percent.host_user",
    "end.cpu_utilization_percent.remote_system",
    "end.cpu_utilization_percent.remote_user",
];

/// The names of all fields, with the fields that they are in. Lists count as their elements.
fn fields(value: &Value, prefix: &str, all: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| fields(value, &format!("{prefix}.{name}"), all)),
        Value::Array(list) => list.iter().for_each(|value| fields(value, &format!("{prefix}[]"), all)),
        _ => drop(all.insert(prefix.trim_start_matches('.').to_owned())),
    }
}

/// What dashboards take of iperf3's output.
#[derive(Debug)]
struct Summary {
    streams: usize,
    reverse: bool,
    seconds: f64,
    sent_bytes: f64,
    received_bytes: f64,
    received_bps: f64,
    retransmits: f64,
    /// The bytes of all intervals that are not omitted, from their sums and from their streams.
    interval_bytes: [f64; 2],
    omitted: usize,
    congestion: String,
}

/// Reads the output of either program. It fails where a field is missing or of another type.
fn summary(all: &Value) -> Summary {
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} is no number in {all}"));
    let (start, end) = (&all["start"], &all["end"]);
    assert!(start["version"].is_string() && start["system_info"].is_string() && start["timestamp"]["time"].is_string());
    for name in ["timestamp", "connecting_to"] {
        number(&start[name][if name == "timestamp" { "timesecs" } else { "port" }]);
    }
    let mut interval_bytes = [0.0; 2];
    let intervals = all["intervals"].as_array().unwrap();
    let (omitted, counted): (Vec<&Value>, Vec<&Value>) =
        intervals.iter().partition(|interval| interval["sum"]["omitted"].as_bool().unwrap());
    let mut before_s = 0.0;
    for interval in counted {
        let sum = &interval["sum"];
        assert!((number(&sum["start"]) - before_s).abs() < 0.1, "{sum} after {before_s} s");
        before_s = number(&sum["end"]);
        interval_bytes[0] += number(&sum["bytes"]);
        for stream in interval["streams"].as_array().unwrap() {
            interval_bytes[1] += number(&stream["bytes"]);
            if stream["sender"] == true {
                for name in ["retransmits", "snd_cwnd", "rtt", "rttvar", "pmtu"] {
                    number(&stream[name]);
                }
            }
        }
    }
    let streams = end["streams"].as_array().unwrap();
    for stream in streams {
        for name in ["retransmits", "max_snd_cwnd", "max_rtt", "min_rtt", "mean_rtt", "bits_per_second"] {
            number(&stream["sender"][name]);
        }
        number(&stream["receiver"]["bits_per_second"]);
    }
    let of = |name: &str| streams.iter().map(|stream| number(&stream[name]["bytes"])).sum::<f64>();
    assert!((of("sender") - number(&end["sum_sent"]["bytes"])).abs() < 1.0, "{end}");
    number(&end["cpu_utilization_percent"]["host_total"]);
    number(&end["cpu_utilization_percent"]["remote_total"]);
    Summary {
        streams: streams.len(),
        reverse: number(&start["test_start"]["reverse"]) > 0.0,
        seconds: number(&end["sum_received"]["seconds"]),
        sent_bytes: number(&end["sum_sent"]["bytes"]),
        received_bytes: of("receiver"),
        received_bps: number(&end["sum_received"]["bits_per_second"]),
        retransmits: number(&end["sum_sent"]["retransmits"]),
        interval_bytes,
        omitted: omitted.len(),
        congestion: end["sender_tcp_congestion"].as_str().unwrap().to_owned(),
    }
}

/// `iperf3 -s`, ended when dropped.
struct Iperf3Server(Child);

impl Drop for Iperf3Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `iperf3 -s` for one client, and its port.
fn iperf3_server() -> Option<(Iperf3Server, u16)> {
    // iperf3 cannot choose a port; this one was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = Command::new("iperf3")
        .args(["-s", "-1", "--forceflush", "-p", &port.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut server = Iperf3Server(server);
    let listening = BufReader::new(server.0.stdout.as_mut().unwrap()).lines().map_while(Result::ok);
    assert!(listening.into_iter().any(|line| line.contains("listening")));
    Some((server, port))
}

/// The output of iperf3 with these flags; `None` if it is not installed.
fn iperf3(flags: &str) -> Option<Value> {
    let (_server, port) = iperf3_server()?;
    let words = format!("-c 127.0.0.1 -p {port} -J {flags}");
    let out = Command::new("iperf3").args(words.split_whitespace()).output().unwrap();
    Some(serde_json::from_slice(&out.stdout).unwrap())
}

fn measured(server: &Server, flags: &str) -> Value {
    let out = fullpipe(&format!("measure {} --iperf3-json {flags}", server.address));
    assert_eq!(error(&out), (0, String::new()));
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn what_parses_iperf3_parses_measure() {
    let server = Server::start("");
    for (theirs, ours) in [
        ("-t 2 -P 2 -C reno", "--duration 2s -n 2 --cc reno"),
        ("-t 2 -R -C cubic", "--duration 2s --reverse --cc cubic"),
        ("-t 2 -O 1 -C cubic", "--duration 2s --omit 1s --cc cubic"),
    ] {
        let Some(theirs) = iperf3(theirs) else { return eprintln!("skipped: it needs iperf3") };
        let ours = measured(&server, ours);
        let (a, b) = (summary(&theirs), summary(&ours));
        assert_eq!((a.streams, a.reverse, &a.congestion), (b.streams, b.reverse, &b.congestion));
        assert_eq!(a.omitted, b.omitted, "{ours}");
        for one in [&a, &b] {
            assert!((1.8..2.6).contains(&one.seconds), "{one:?}");
            let rate = one.received_bytes * 8.0 / one.seconds;
            assert!((0.95..1.05).contains(&(one.received_bps / rate)), "{one:?}");
            assert!(one.retransmits >= 0.0 && one.sent_bytes > 0.0, "{one:?}");
            // The last tenth of an interval may be none.
            let [sums, streams] = one.interval_bytes;
            assert!((sums - streams).abs() < 1.0 && sums > 0.0, "{one:?}");
        }
        let [mut known, mut given] = [BTreeSet::new(), BTreeSet::new()];
        fields(&theirs, "", &mut known);
        fields(&ours, "", &mut given);
        let not_known: BTreeSet<String> = NOT_KNOWN.into_iter().map(str::to_owned).collect();
        assert_eq!(given.difference(&known).collect::<Vec<_>>(), Vec::<&String>::new(), "iperf3 has no such fields");
        assert_eq!(known.difference(&given).cloned().collect::<BTreeSet<_>>(), not_known);
    }
}

/// Over UDP, too. What both have of datagrams is of the same kind, and of about the same size.
#[test]
fn what_parses_iperf3_parses_datagrams() {
    let server = Server::start("");
    for (theirs, ours) in [
        ("-u -b 20M -l 1000 -t 2 -P 2", "--pacing 40mbit --datagram-size 1000 --duration 2s -n 2"),
        ("-u -b 20M -l 1000 -t 2 -R", "--pacing 20mbit --datagram-size 1000 --duration 2s --reverse"),
        ("-u -b 20M -l 1000 -t 2 -O 1", "--pacing 20mbit --datagram-size 1000 --duration 2s --omit 1s"),
    ] {
        let Some(theirs) = iperf3(theirs) else { return eprintln!("skipped: it needs iperf3") };
        let ours = measured(&server, &format!("--transport udp {ours}"));
        let [mut known, mut given] = [BTreeSet::new(), BTreeSet::new()];
        fields(&theirs, "", &mut known);
        fields(&ours, "", &mut given);
        let not_known: BTreeSet<String> =
            NOT_KNOWN.into_iter().filter(|name| !name.ends_with("blksize")).map(str::to_owned).collect();
        assert_eq!(given.difference(&known).collect::<Vec<_>>(), Vec::<&String>::new(), "iperf3 has no such fields");
        assert_eq!(known.difference(&given).cloned().collect::<BTreeSet<_>>(), not_known);
        for all in [&theirs, &ours] {
            assert_eq!(
                (&all["start"]["test_start"]["protocol"], &all["start"]["test_start"]["blksize"]),
                (&"UDP".into(), &1_000.into())
            );
            let number = |name: &str| all["end"]["sum"][name].as_f64().unwrap();
            let percent = 100.0 * number("lost_packets") / number("packets");
            assert!((number("lost_percent") - percent).abs() < 1e-6 && number("packets") > 100.0, "{all}");
            assert!((0.0..100.0).contains(&number("jitter_ms")), "{all}");
            for interval in all["intervals"].as_array().unwrap() {
                let streams: f64 =
                    interval["streams"].as_array().unwrap().iter().map(|s| s["packets"].as_f64().unwrap()).sum();
                assert!((interval["sum"]["packets"].as_f64().unwrap() - streams).abs() < 1.0, "{interval}");
            }
        }
    }
}

/// Of a short run, what had arrived when the first byte was read is a large part, and not of the rate.
#[test]
fn bytes_over_seconds_are_the_rate() {
    let server = Server::start("");
    for flags in ["", "-n 3", "--reverse", "--size 20MB -n 2", "--omit 200ms", "--transport udp --pacing 100mbit"] {
        let duration = if flags.contains("--size") { "" } else { "--duration 500ms" };
        let all = measured(&server, &format!("{duration} {flags}"));
        let of_streams = all["end"]["streams"].as_array().unwrap().iter().map(|stream| &stream["receiver"]);
        let of_streams: Vec<&Value> = of_streams.filter(|receiver| receiver.is_object()).collect();
        let number = |of: &Value, name: &str| of[name].as_f64().unwrap();
        let sum = &all["end"]["sum_received"];
        for one in of_streams.iter().copied().chain([sum]) {
            let rate = number(one, "bytes") * 8.0 / number(one, "seconds");
            assert!((rate / number(one, "bits_per_second") - 1.0).abs() < 1e-6, "{flags}: {one}");
        }
        if !of_streams.is_empty() && !flags.contains("--omit") {
            let bytes: f64 = of_streams.iter().map(|one| number(one, "bytes")).sum();
            assert!((bytes - number(sum, "bytes")).abs() < 0.5, "{flags}: {bytes} {sum}");
        }
    }
}

/// As `iperf3 -J`, which prints an object for every run.
#[test]
fn a_run_that_fails_prints_why() {
    // Nothing listens there: the listener is gone.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for target in [&gone.to_string(), "lab:rtt=1ms,rate=1gbit,kernel=1.2"] {
        let out = fullpipe(&format!("measure {target} --duration 1s --iperf3-json"));
        let (code, text) = error(&out);
        let all: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert!(code != 0 && all["start"]["version"].as_str().unwrap().starts_with("fullpipe "), "{code} {all}");
        assert_eq!(text.trim(), format!("error: {}", all["error"].as_str().unwrap()));
        assert_eq!(
            all["start"]["connecting_to"]["port"].as_u64(),
            (!target.starts_with("lab:")).then_some(gone.port().into())
        );
    }
    // Each run that fails has an object of its own.
    let out = fullpipe(&format!("measure {gone} --duration 1s --iperf3-json --repeat 2"));
    let objects = serde_json::Deserializer::from_slice(&out.stdout).into_iter::<Value>();
    assert_eq!(objects.map(|one| one.unwrap()["error"].is_string()).collect::<Vec<_>>(), [true, true]);
    assert!(error(&out).1.contains("2 of 2 measurements failed"));
}

#[test]
fn an_interrupted_run_says_so() {
    let server = Server::start("");
    let interrupted = |flags: &str, after: std::time::Duration| {
        let words = format!("measure {} --iperf3-json {flags}", server.address);
        let child = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
            .args(words.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(after);
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::Signal::SIGINT)
            .unwrap();
        let done = child.wait_with_output().unwrap();
        let all: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert!(all["error"].as_str().unwrap().starts_with("interrupt - "), "{all}");
        assert_eq!(error(&done).0, 130);
        all
    };
    let all = interrupted("--duration 60s --pacing 100mbit", std::time::Duration::from_secs(2));
    assert!(all["end"]["sum_received"]["bits_per_second"].as_f64() > Some(1e6), "{all}");
    // Ten probes, one a second, come before the data.
    let all = interrupted("--duration 2s --probe=1s", std::time::Duration::from_secs(2));
    assert!(all["end"].as_object().unwrap().is_empty() && all["intervals"] == Value::Array(Vec::new()), "{all}");
}

#[test]
fn a_run_without_a_rate_gives_none() {
    let server = Server::start("");
    let all = measured(&server, "--size 10KB");
    assert!(all["error"].as_str().unwrap().starts_with("no rate: "), "{all}");
    let received = &all["end"]["sum_received"];
    assert!(received["bytes"] == 10_000 && received.get("bits_per_second").is_none(), "{all}");
}

/// The intervals that are not omitted carry what the end says.
#[test]
fn the_end_is_of_what_is_not_omitted() {
    let number = |value: &Value| value.as_f64().unwrap();
    let server = Server::start("");
    for flags in ["", "--reverse", "--streams 3", "--transport udp"] {
        let flags = format!("--duration 2s --omit 1s --interval 500ms --pacing 100mbit {flags}");
        let all = measured(&server, &flags);
        let intervals = all["intervals"].as_array().unwrap();
        let counted: Vec<&Value> =
            intervals.iter().map(|one| &one["sum"]).filter(|sum| sum["omitted"] == false).collect();
        assert!((4..=5).contains(&counted.len()) && counted.len() + 2 == intervals.len(), "{flags}: {all}");
        assert_eq!(counted[0]["start"], 0.0, "{flags}");
        let bytes: f64 = counted.iter().map(|sum| number(&sum["bytes"])).sum();
        let sums = [&all["end"]["sum_sent"], &all["end"]["sum_received"]];
        let sum = sums[usize::from(flags.contains("--reverse"))];
        // What a receiver reads after its last sample is in the result alone.
        let left = if flags.contains("--reverse") { 0.02 * bytes } else { 0.5 };
        assert!((bytes - number(&sum["bytes"])).abs() < left, "{flags}: {bytes} {sum}");
        let last = number(&counted[counted.len() - 1]["end"]);
        assert!((last - number(&sum["seconds"])).abs() < 0.02, "{flags}: {last} {sum}");
    }
}

#[test]
fn intervals_are_as_long_as_was_asked_for() {
    const EVERY_S: f64 = 0.25;
    let server = Server::start("");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("r.ndjson");
    let all = measured(&server, &format!("--duration 1s --interval 250ms --out {}", file.display()));
    let ends: Vec<f64> =
        all["intervals"].as_array().unwrap().iter().map(|one| one["sum"]["end"].as_f64().unwrap()).collect();
    // Each ends with the first sample after a multiple of its length, however late that was.
    let record = std::fs::read_to_string(file).unwrap();
    let samples = record.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let times = samples.filter(|line| line["end"] == "sender").filter_map(|line| line["t"].as_f64());
    let (mut expected, mut number) = (Vec::new(), 0.0);
    for t in times {
        if (t / EVERY_S + 1e-6).floor() > number {
            expected.push(t);
            number = (t / EVERY_S + 1e-6).floor();
        }
    }
    assert!(
        !expected.is_empty() && ends.starts_with(&expected) && ends.len() <= expected.len() + 1,
        "{ends:?} {record}"
    );
    for flags in ["--json", "--bidir", "--transport udt"] {
        let (code, text) = error(&fullpipe(&format!("measure {} --iperf3-json {flags}", server.address)));
        assert!(code == 2 && text.contains("--iperf3-json"), "{code} {text}");
    }
}
