//! `measure --transport udp`: datagrams at a rate, over loopback and in the testbed.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Server, error, fullpipe, json_lines, without_real};
use crate::firewall;

fn measure(target: &str, flags: &str) -> Vec<Value> {
    let mut record = json_lines(&fullpipe(&format!("measure {target} --transport udp --json {flags}")));
    // It warns of a small buffer of the kernel's if anything was lost.
    record.retain(|line| line["kind"] != "warning");
    record
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// What arrived cannot exceed what was sent, and the rate is that of what arrived.
fn check(record: &[Value], datagram_bytes: u64) {
    let (header, result) = (&record[0], record.last().unwrap());
    let udp = &result["udp"];
    let (received, bytes) = (udp["received"].as_u64().unwrap(), result["bytes"].as_u64().unwrap());
    assert_eq!((&header["transport"]["cc"], &header["sender"]["cc"]), (&"udp".into(), &"udp".into()));
    assert_eq!(header["sender"]["mss"], datagram_bytes);
    assert!(received > 0 && received + udp["lost"].as_u64().unwrap() <= udp["sent"].as_u64().unwrap(), "{udp}");
    assert!(bytes <= received * datagram_bytes && bytes + datagram_bytes > received * datagram_bytes, "{result}");
    assert!(number(&result["goodput_bps"]) <= bytes as f64 * 8.0 / number(&result["seconds"]), "{result}");
    assert!(result["retransmits"] == 0 && result["cwnd_max"] == 0, "{result}");
}

#[test]
fn both_directions_keep_to_the_rate_and_count() {
    let server = Server::start("");
    for flags in ["", "--reverse", "-n 3", "-n 3 --reverse"] {
        let flags = format!("--pacing 20mbit --duration 1s --datagram-size 1000 {flags}");
        let record = measure(&server.address, &flags);
        check(&record, 1_000);
        let result = record.last().unwrap();
        assert!(number(&result["goodput_bps"]) < 20e6 * 1.05, "{flags}: {result}");
        // The sender knows from reports what the receiver has counted.
        let last = |end: &str| record.iter().rev().find(|line| line["kind"] == "sample" && line["end"] == end).unwrap();
        let (sender, receiver) = (last("sender"), last("receiver"));
        assert!(sender["datagrams_received"].as_u64().unwrap() <= receiver["datagrams_received"].as_u64().unwrap());
        assert!(number(&sender["bytes"]) > 0.0 && number(&sender["datagrams"]) > 0.0, "{flags}: {sender}");
    }
    // A size is sent whole: 3,000 datagrams and a half.
    let record = measure(&server.address, "--pacing 100mbit --size 1500500B --datagram-size 1000");
    check(&record, 1_000);
    let udp = &record.last().unwrap()["udp"];
    assert_eq!((number(&udp["sent"]), number(&udp["received"]) + number(&udp["lost"])), (1_501.0, 1_501.0), "{udp}");
}

#[test]
fn intervals_and_the_result_tell_of_datagrams() {
    let server = Server::start("");
    for flags in ["", "--reverse"] {
        let words = format!("measure {} --transport udp --pacing 20mbit --duration 1s --interval 0.2s", server.address);
        let text = String::from_utf8(fullpipe(&format!("{words} {flags}")).stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("jitter") && lines[1].ends_with('s') && lines[1].contains("0.0-0."), "{text}");
        let of = |name: &str| lines.iter().find(|line| line.starts_with(name)).copied().unwrap_or_default().to_owned();
        assert!(
            of("loss ").contains(" datagrams lost (") && of("jitter ").contains("s, 0 out of order, 0 dupl"),
            "{text}"
        );
        assert!(of("transport ").ends_with("udp × 1, paced at 20mbit"), "{text}");
        let mut record = json_lines(&fullpipe(&format!("{words} {flags} --omit 0.5s --json")));
        let result = record.pop().unwrap();
        let intervals = record.iter().filter(|line| line["kind"] == "interval");
        let received: u64 = intervals.map(|line| line["udp"]["received"].as_u64().unwrap()).sum();
        let (whole, later) = (&result["udp"], &result["after_omitted"]["udp"]);
        assert!(received > 0 && received <= whole["received"].as_u64().unwrap(), "{received} {whole}");
        let part = number(&later["received"]) / number(&whole["received"]);
        assert!((0.4..0.95).contains(&part), "{later} of {whole}");
    }
}

#[test]
fn what_has_no_meaning_is_refused() {
    for (flags, why) in [
        ("", "needs a rate: give --pacing RATE"),
        ("--pacing 10mbit --cc bbr", "plain UDP has no congestion control"),
        ("--pacing 10mbit --buffer 1MB", "--buffer is for TCP and UDT"),
        ("--pacing 10mbit --mss 1000", "there is --datagram-size"),
        ("--pacing 10mbit --datagram-size 15", "15 is not in 16..=65507"),
        ("--pacing 1kbit", "give at least 64kbit"),
    ] {
        let (code, text) = error(&fullpipe(&format!("measure 127.0.0.1:1 --transport udp {flags}")));
        assert!(code == 2 && text.contains(why), "{flags}: {code} {text}");
    }
    for (words, why) in [
        ("measure 127.0.0.1:1 --datagram-size 1000", "--datagram-size is for --transport udp"),
        ("measure 127.0.0.1:1 --transport auto", "only a copy chooses its transport by itself"),
        ("measure 127.0.0.1:1 --transport udt -n 8 --pacing 7mbit", "at least 1mbit for each stream, so 8mbit for 8"),
        (
            "measure 127.0.0.1:1 --transport udt --buffer 143KB",
            "a buffer of 143KB over UDT, whose window is never less",
        ),
        ("measure 127.0.0.1:1 --cc udp", "give --transport udp instead of --cc udp"),
        ("measure disk:. --datagram-size 1000", "--datagram-size is for a path"),
        ("cp --cc udp a host:b", "plain UDP cannot carry a copy"),
        ("cp --transport udp a host:b", "plain UDP loses data, so a copy cannot use it"),
    ] {
        let (code, text) = error(&fullpipe(words));
        assert!(code == 2 && text.contains(why), "{words}: {code} {text}");
    }
}

#[test]
fn a_firewall_that_drops_udp_is_named_soon() {
    firewall::behind("table inet t { chain c { type filter hook input priority 0; meta l4proto udp drop; }; }", || {
        let server = Server::start("");
        let begun = Instant::now();
        let words = format!("measure {} --transport udp --pacing 10mbit", server.address);
        let (code, text) = error(&fullpipe(&words));
        assert!(code == 4 && text.contains("no answer over UDP from 127.0.0.1:"), "{code} {text}");
        assert!(text.contains("within 3 s, though TCP passes; let UDP through"), "{text}");
        assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
        assert_eq!(error(&fullpipe(&format!("measure {} --size 1MB --quiet", server.address))), (0, String::new()));
    });
}

#[test]
fn a_path_that_carries_only_smaller_datagrams_is_found_out_before_data_are_sent() {
    let large = "table inet t { chain c { type filter hook input priority 0; udp length > 1000 drop; }; }";
    firewall::behind(large, || {
        let server = Server::start("");
        let words = |size: u32| {
            let to = &server.address;
            format!("measure {to} --transport udp --pacing 10mbit --datagram-size {size} --duration 200ms --quiet")
        };
        assert_eq!(error(&fullpipe(&words(992))), (0, String::new()));
        let (code, text) = error(&fullpipe(&words(993)));
        assert!(code == 4 && text.contains("no answer over UDP"), "{code} {text}");
    });
}

/// The queue holds 13 calls, which are as long as datagrams of data.
#[test]
fn many_streams_are_called_through_a_short_queue() {
    let record = measure("lab:rtt=1ms,rate=1gbit", "--pacing 100mbit --duration 1s -n 64");
    let result = &record[record.len() - 1];
    let streams = result["streams"].as_array().unwrap();
    assert!(streams.len() == 64 && streams.iter().all(|stream| number(&stream["bytes"]) > 0.0), "{result}");
    assert_eq!(number(&result["udp"]["lost"]), 0.0, "nor do the datagrams of all streams come together");
}

#[test]
fn a_lossy_path_loses_what_it_is_told_to() {
    let path = "lab:rtt=10ms,rate=1gbit,mtu=1500,loss=1e-2,jitter=1ms,reorder=1e-2,duplicate=1e-2";
    let run = |flags: &str| measure(path, &format!("--pacing 100mbit --duration 1s --datagram-size 1200 {flags}"));
    let record = run("");
    check(&record, 1_200);
    let result = record.last().unwrap();
    let udp = &result["udp"];
    // 10,417 datagrams: four standard deviations of each count.
    let near = |name: &str, expected: f64| {
        let n = number(&udp[name]);
        assert!((n - expected).abs() < 4.0 * expected.sqrt(), "{name}: {n}, not {expected}");
    };
    near("lost", 104.2);
    near("duplicates", 103.1);
    // The path's own count has packets of TCP, too, and what was on its way at the end.
    let losses = number(&result["random_losses"]);
    assert!((number(&udp["lost"])..number(&udp["lost"]) + 20.0).contains(&losses), "{result}");
    assert!(number(&udp["out_of_order"]) > 103.0, "{udp}");
    assert!((10e-6..1e-3).contains(&number(&udp["jitter_s"])), "{udp}");
    assert!((number(&result["goodput_bps"]) / 99e6 - 1.0).abs() < 0.01, "{result}");
    assert_eq!(without_real(record.clone()), without_real(run("")), "two runs of one seed differ");
    // Four times as much as fits.
    let record = measure("lab:rtt=10ms,rate=25mbit,mtu=1500", "--pacing 100mbit --duration 1s -n 2");
    check(&record, 1_472);
    let result = record.last().unwrap();
    assert!(result["bottleneck"] == "path" && number(&result["udp"]["loss"]) > 0.7, "{result}");
    assert!((0.95..=1.001).contains(&(number(&result["goodput_bps"]) / (25e6 * 1472.0 / 1514.0))), "{result}");
}
