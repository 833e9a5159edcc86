//! Copies whose data go over UDT.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::firewall::behind;
use crate::host::{Cp, Done, Host, Running};
use crate::large::{LARGE, MIB, SLOW, both_ways, some_blocks};
use crate::tree::{bytes, leftovers, only, same, write};

/// Ports that a firewall drops.
const PORTS: &str = "21000-21015";

/// A tree of large and small files.
fn a_tree(host: &Host) {
    write(host.file("tree/large"), bytes(20 * MIB, 1));
    write(host.file("tree/empty"), "");
    for i in 0..50 {
        write(host.file(&format!("tree/small/{i}")), bytes(i * 100, i as u64));
    }
}

#[test]
fn there_and_back() {
    let host = Host::start();
    a_tree(&host);
    for words in ["", "-n 4 --buffer 4MB", "--no-encrypt -n 2", "--pacing 400mbit --data-ports 21000-21015"] {
        for (push, from, to) in [(true, "tree", "there"), (false, "there", "back")] {
            let words = format!("-r -T --json --transport udt {words}");
            let done = host.copy(push, &words, from, to).ok();
            same(&host.file("tree"), &host.file(to));
            let lines = done.json();
            for line in [&lines[0], lines.last().unwrap()] {
                assert_eq!(line["transport"]["cc"], "udt", "{line}");
            }
        }
        assert!(leftovers(&host.file("")).is_empty());
        ["there", "back"].iter().for_each(|name| fs::remove_dir_all(host.file(name)).unwrap());
    }
}

/// A copy of a large file over UDT, to be run.
fn large(host: &Host, push: bool, words: &str) -> Cp {
    let transport = if words.contains("--transport") { "" } else { "--transport udt" };
    host.copy(push, &format!("--json {transport} {words}"), "large", "to/")
}

/// The same copy, while it runs and after some blocks.
fn begun(host: &Host, push: bool, words: &str) -> Running {
    write(host.file("large"), bytes(LARGE, 7));
    fs::create_dir(host.file("to")).unwrap();
    let running = large(host, push, &format!("{SLOW} {words}")).start();
    some_blocks(&host.file("to"));
    running
}

fn goes_on(host: &Host, push: bool, words: &str) {
    assert!(!host.file("to/large").exists());
    let sent = large(host, push, words).ok().number("bytes");
    assert!(sent > 0 && sent < (LARGE - 2 * MIB) as u64, "{sent} bytes were sent again");
    only(&host.file("to"), &["large"]);
    same(&host.file("large"), &host.file("to/large"));
}

#[test]
fn a_killed_client_goes_on() {
    both_ways(|push| {
        let host = Host::start();
        begun(&host, push, "").kill();
        goes_on(&host, push, "");
    });
}

#[test]
fn an_interrupted_client_goes_on_over_tcp_too() {
    both_ways(|push| {
        let host = Host::start();
        let running = begun(&host, push, "-n 2");
        let began = Instant::now();
        running.signal(Signal::SIGINT);
        let done = running.wait();
        assert_eq!(done.code(), 130, "{}", done.err);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        goes_on(&host, push, "--transport tcp");
    });
}

#[test]
fn a_killed_far_end_is_started_again() {
    both_ways(|push| {
        let host = Host::start();
        let (program, ids) = host.known_by_id();
        write(host.file("large"), bytes(LARGE, 7));
        fs::create_dir(host.file("to")).unwrap();
        let running = large(&host, push, SLOW).far_program(&program).start();
        some_blocks(&host.file("to"));
        let id = fs::read_to_string(&ids).unwrap().trim().parse().unwrap();
        kill(Pid::from_raw(id), Signal::SIGKILL).unwrap();
        let done = running.wait();
        assert_eq!(done.code(), 0, "push {push}: {} {}", done.err, done.out);
        assert!(done.number("spared_bytes") > 0, "push {push}: {}", done.out);
        only(&host.file("to"), &["large"]);
        same(&host.file("large"), &host.file("to/large"));
    });
}

#[test]
fn udp_that_a_firewall_drops() {
    let drop = format!("chain in {{ type filter hook input priority 0; udp dport {PORTS} drop; }};");
    behind(&format!("table inet test {{ {drop} }}"), || {
        let host = &Host::start();
        write(host.file("a"), bytes(3 * MIB, 1));
        let copy = |words: &str| {
            let mut cp = host.cp();
            cp.words("--data-ports").arg(PORTS).words(words).arg(host.file("a")).arg(host.far("b"));
            cp
        };
        for (words, within) in [("", "within 3 s"), ("-n 4 --stall 1s", "within 1 s")] {
            let began = Instant::now();
            let done = copy(words).arg("--transport=udt").fails_at_once(4, "no answer over UDP from 127.0.0.1:210");
            assert!(done.err.contains(within) && done.err.contains("without --transport udt"), "{}", done.err);
            assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
        }
        // Nothing is remembered of the host: TCP passes.
        let done = copy("--json").ok();
        assert!(done.json().iter().all(|line| line["kind"] != "note"), "{}", done.out);
        same(&host.file("a"), &host.file("b"));
    });
}

/// `fullpipe cp` as the profile says: UDT is faster at 2 ms. What the far end says is late by as much. It is behind a jump host, as the
/// kernel knows better how far a host is to which ssh itself connects.
fn by_profile(host: &Host, words: &str, to: &str) -> Cp {
    let entry = |cc: &str, bps: f64| {
        let transport = serde_json::json!({"cc": cc, "streams": 1, "buffer": "16MB"});
        serde_json::json!({"path": 0, "workload": 0, "transport": transport, "rtt_ms": [2.0], "n": [1], "mean_bps": [bps],
                           "sd_bps": [null]})
    };
    let profile = serde_json::json!({"kind": "profile", "version": 2, "confidence": 0.95, "workloads": [{"duration": "10s"}],
        "paths": [{"rate_bps": 1e9, "queue_bdp": 1.0}], "entries": [entry("udt", 6e8), entry("cubic", 2e8)]});
    write(host.file("profile.json"), profile.to_string());
    let late = "use Time::HiRes qw(sleep); while (sysread(STDIN, $b, 65536)) { sleep 0.002; syswrite(STDOUT, $b) }";
    let program = host.file("late");
    write(&program, format!("#!/bin/bash\n{} \"$@\" | perl -e '{late}'\n", crate::host::FULLPIPE));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut cp = host.cp();
    cp.far_program(&program).words("--json --profile").arg(host.file("profile.json"));
    cp.words(words).arg(host.file("a")).arg(format!("behind:{}", host.file(to).display()));
    cp
}

/// How data were sent, and what was noted on the way.
fn sent_and_noted(done: &Done) -> (String, Vec<String>) {
    let lines = done.json();
    let cc = lines.last().unwrap()["transport"]["cc"].as_str().unwrap().to_owned();
    let notes = lines.iter().filter(|line| line["kind"] == "note");
    (cc, notes.map(|line| line["note"].as_str().unwrap().to_owned()).collect())
}

#[test]
fn udt_is_used_where_the_profile_says_so_and_udp_gets_through() {
    behind("table inet test { chain in { type filter hook input priority 0; }; }", || {
        let nft = |words: &str| {
            assert!(Command::new("nft").args(words.split_whitespace()).status().unwrap().success(), "nft {words}");
        };
        let host = &Host::start();
        write(host.file("a"), bytes(3 * MIB, 1));
        let copy = |words: &str, to: &str| {
            let done = by_profile(host, &format!("--data-ports {PORTS} {words}"), to).ok();
            same(&host.file("a"), &host.file(to));
            sent_and_noted(&done)
        };
        let memory = host.home().join(".local/state/fullpipe/closed-ports.json");
        assert_eq!(copy("", "1"), ("udt".to_owned(), vec![]));
        assert!(!memory.exists());
        for (words, to) in [("--transport tcp", "tcp"), ("-n 2", "two")] {
            assert_ne!(copy(words, to).0, "udt", "{words}");
        }
        nft(&format!("add rule inet test in udp dport {PORTS} drop"));
        let began = Instant::now();
        let (cc, notes) = copy("", "2");
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        assert_ne!(cc, "udt");
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.starts_with("no answer over UDP from 127.0.0.1:210"), "{note}");
        assert!(note.ends_with(" within 3 s; copying over TCP"), "{note}");
        // It is remembered, also if UDP gets through again, until a copy over UDT has worked.
        assert!(memory.exists());
        nft("flush chain inet test in");
        let done = by_profile(host, &format!("--data-ports {PORTS}"), "3").ok();
        let (cc, notes) = sent_and_noted(&done);
        assert!(cc != "udt" && notes.is_empty(), "{cc} {notes:?}");
        assert!(done.out.contains("a copy over UDP failed before; --transport udt tries it"), "{}", done.out);
        let to = format!("behind:{}", host.file("4").display());
        let done = host.cp().words(&format!("--transport udt --data-ports {PORTS}")).arg(host.file("a")).arg(to).ok();
        assert!(done.err.contains(" over UDT"), "{}", done.err);
        assert_eq!(copy("", "5").0, "udt");
    });
}

/// Over TCP, the port can be shared.
#[test]
fn a_copy_that_chose_udt_goes_over_tcp_where_its_port_is_taken() {
    behind("table inet test { chain in { type filter hook input priority 0; }; }", || {
        let host = &Host::start();
        write(host.file("a"), bytes(3 * MIB, 1));
        let taken = std::net::UdpSocket::bind("0.0.0.0:21000").unwrap();
        let copy = |to: &str| sent_and_noted(&by_profile(host, "--data-ports 21000-21000", to).ok());
        let (cc, notes) = copy("1");
        same(&host.file("a"), &host.file("1"));
        assert_ne!(cc, "udt");
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.starts_with("the copy failed over UDT: behind refused: its data ports 21000 to 21000"), "{note}");
        assert!(note.ends_with("; copying over TCP"), "{note}");
        // The next copy tries again.
        drop(taken);
        assert_eq!(copy("2"), ("udt".to_owned(), vec![]));
    });
}

/// A hop that drops packets of more than 1,500 bytes and tells nobody, though both hosts' interfaces carry more.
#[test]
fn packets_that_a_hop_is_too_small_for() {
    let drop = "chain in { type filter hook input priority 0; meta l4proto udp meta length > 1500 drop; };";
    behind(&format!("table inet test {{ {drop} }}"), || {
        // Otherwise the loopback would carry many packets as one.
        let mut ip = Command::new("ip");
        assert!(ip.args("link set lo gso_max_segs 1".split_whitespace()).status().unwrap().success());
        let host = &Host::start();
        write(host.file("a"), bytes(3 * MIB, 1));
        both_ways(|push| {
            let to = if push { "there" } else { "back" };
            host.copy(push, "--transport udt --stall 5s", "a", to).ok();
            same(&host.file("a"), &host.file(to));
        });
    });
}

#[test]
fn udp_that_stops_during_a_copy() {
    behind("table inet test { chain in { type filter hook input priority 0; }; }", || {
        let nft = |words: &str| {
            let done = Command::new("nft").args(words.split_whitespace()).status().unwrap();
            assert!(done.success(), "nft {words}");
        };
        let host = &Host::start();
        let words = format!("--stall 1s --data-ports {PORTS}");
        let running = begun(host, true, &words);
        nft(&format!("add rule inet test in udp dport {PORTS} drop"));
        let done = running.wait();
        assert!(done.code() == 4 && done.err.contains("no answer over UDP"), "{}: {}", done.code(), done.err);
        nft("flush chain inet test in");
        goes_on(host, true, &words);
    });
}

#[test]
fn what_cannot_be_is_one_line() {
    let host = Host::start();
    write(host.file("a"), "1");
    for (words, says) in [
        ("--transport sctp", "'sctp' is no transport; choose auto, tcp or udt"),
        ("--cc udt", "give --transport udt instead of --cc udt"),
        ("--transport udt --cc cubic", "--transport udt brings its own"),
        ("--transport udt --buffer sobas", "--buffer sobas is for TCP"),
        ("--transport udt --rate 10gbit", "--pacing is the rate to send at"),
        ("--transport udt --loss 0.1", "--loss is for choosing between transports, and --transport udt is one"),
        ("--transport udt --via ssh", "needs UDP to the far host, and ssh carries none"),
        ("--transport udt -n 65", "65 streams"),
        ("--transport udt --pacing 1kbit", "pacing at 1kbit"),
    ] {
        let done = host.copy(true, words, "a", "b").fails(2, says);
        assert!(words.contains("sctp") || done.err.trim_end().lines().count() == 1, "{}", done.err);
        assert!(!host.file("b").exists());
    }
}

#[test]
fn a_copy_keeps_its_port_to_itself() {
    let host = Host::start();
    write(host.file("large"), bytes(LARGE, 7));
    write(host.file("a"), "1");
    fs::create_dir(host.file("to")).unwrap();
    // Slow enough for the second to find it there.
    let running = large(&host, true, "--pacing 60mbit --block 1MiB --data-ports 21101-21101").start();
    some_blocks(&host.file("to"));
    let second = host.copy(true, "--transport udt --data-ports 21101-21101", "a", "b").start();
    let first = running.wait();
    assert_eq!(first.code(), 0, "{}", first.err);
    // It has tried again until the port was free.
    let second = second.wait();
    assert_eq!(second.code(), 0, "{}", second.err);
    assert!(second.err.contains("data ports 21101 to 21101 are all in use"), "{}", second.err);
}

#[test]
fn a_record_has_what_udt_tells() {
    let host = Host::start();
    write(host.file("large"), bytes(LARGE, 7));
    fs::create_dir(host.file("to")).unwrap();
    both_ways(|push| {
        let record = host.file(&format!("{push}.ndjson"));
        let words = format!("-n 2 --pacing 400mbit --sample 50ms --record {}", record.display());
        let to = if push { "to/1" } else { "to/2" };
        host.copy(push, &format!("--json --transport udt {words}"), "large", to).ok();
        let text = fs::read_to_string(record).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&lines[0]["transport"]["cc"], &lines[0]["transport"]["streams"]), (&"udt".into(), &2.into()));
        for end in ["sender", "receiver"] {
            let samples = lines.iter().filter(|line| line["end"] == end);
            let packets = if end == "sender" { "pktSent" } else { "pktRecv" };
            let all: u64 = samples.clone().map(|sample| sample[packets].as_u64().unwrap()).sum();
            assert!(all * 65_000 > LARGE as u64, "{all} packets at the {end}");
            assert!(samples.clone().count() > 4);
            assert!(samples.clone().all(|sample| sample.get("rtt").is_none() && sample["bytes"].is_u64()), "{end}");
        }
        let last = lines.last().unwrap();
        assert_eq!(last["bytes"], LARGE as u64);
        assert!(last["goodput_bps"].as_f64().unwrap() < 400e6, "{last}");
    });
}
