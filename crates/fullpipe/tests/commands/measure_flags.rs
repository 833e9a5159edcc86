//! What `measure` lets its user set of the sockets, and both directions at once, over loopback.

use serde_json::Value;

use crate::common::{NO_CONFIG, Server, error, fullpipe, json_lines};
use crate::firewall;

fn measure(server: &Server, flags: &str) -> Vec<Value> {
    json_lines(&fullpipe(&format!("measure {} --json {flags}", server.address)))
}

#[test]
fn both_directions_at_once_are_two_results() {
    let server = Server::start("");
    for flags in ["--size 40MB --streams 2", "--transport udt --size 40MB", "--duration 1s"] {
        let lines = measure(&server, &format!("--bidir {flags}"));
        let of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).collect::<Vec<_>>();
        let (headers, results) = (of("run"), of("result"));
        let directions: Vec<&Value> = headers.iter().map(|header| &header["direction"]).collect();
        assert_eq!(directions, ["send", "receive"], "{flags}");
        assert!(headers.iter().all(|header| header["bidir"] == true), "{flags}");
        // One clock: both began at the same time.
        assert_eq!(headers[0]["real"]["zero_ns"], headers[1]["real"]["zero_ns"], "{flags}");
        assert_ne!(headers[0]["id"], headers[1]["id"], "{flags}");
        assert_eq!(results.len(), 2, "{flags}");
        for result in results {
            let bytes = result["bytes"].as_u64().unwrap();
            assert!(if flags.contains("--size") { bytes == 40_000_000 } else { bytes > 0 }, "{flags}: {result}");
        }
    }
}

#[test]
fn both_directions_have_a_record_each() {
    let server = Server::start("");
    let dir = tempfile::tempdir().unwrap();
    let out = fullpipe(&format!("measure {} --bidir --size 40MB --out {}", server.address, dir.path().display()));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(error(&out), (0, String::new()));
    assert!(text.contains("direction   sent, while data were received"), "{text}");
    assert!(text.contains("direction   received, while data were sent"), "{text}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "{text}");
    let both = |flags: &str| {
        let out = fullpipe(&format!("measure {} --bidir --duration 500ms --interval 100ms {flags}", server.address));
        let text = String::from_utf8(out.stdout.clone()).unwrap();
        assert_eq!(error(&out), (0, String::new()));
        text
    };
    let text = both("");
    let of = |text: &str, word: &str| text.lines().filter(|line| line.contains(word)).count();
    assert_eq!(of(&text, "retransmits"), 1, "{text}");
    assert!(of(&text, "send     ") >= 4 && of(&text, "receive  ") >= 4, "{text}");
    let text = both("--json");
    let intervals: Vec<&str> = text.lines().filter(|line| line.contains(r#""kind":"interval""#)).collect();
    let of = |word: &str| intervals.iter().filter(|line| line.ends_with(&format!(r#""direction":"{word}"}}"#))).count();
    assert!(of("send") >= 4 && of("receive") >= 4, "{text}");
    for (flags, why) in [
        ("--bidir --out both.ndjson", "--bidir makes several records; give a folder"),
        ("--bidir --reverse", "cannot be used with"),
        ("--csv --json", "cannot be used with"),
        ("--csv --iperf3-json", "cannot be used with"),
    ] {
        let (code, text) = error(&fullpipe(&format!("measure {} {flags}", server.address)));
        assert!(code == 2 && text.contains(why), "{code} {text}");
    }
}

#[test]
fn a_run_needs_some_time_without_progress() {
    let (code, text) = error(&fullpipe("measure 127.0.0.1:9 --stall 0s"));
    assert!(code == 2 && text.contains("--stall 0s leaves a run no time"), "{code} {text}");
}

#[test]
fn a_server_for_one_client_refuses_both_directions_at_once() {
    let server = Server::start("--max-clients 1");
    for flags in ["--bidir", "--probe"] {
        let (code, text) = error(&fullpipe(&format!("measure {} {flags} --duration 1s", server.address)));
        let advice = "--bidir and --probe take two of its places at once: try again later, or measure without them";
        assert!(code == 4 && text.contains("refused") && text.contains(advice), "{code} {text}");
    }
}

/// A measurement is one client, whatever connections it takes.
#[test]
fn a_server_that_ends_after_one_client_serves_a_whole_measurement() {
    for flags in ["--bidir --size 5MB", "--bidir --transport udt --size 5MB", "--probe --size 5MB", "--size 5MB"] {
        for ports in ["", "--data-ports same"] {
            if flags.contains("udt") && !ports.is_empty() {
                continue;
            }
            let mut server = Server::start(&format!("--once {ports}"));
            let lines = measure(&server, flags);
            let results: Vec<&Value> = lines.iter().filter(|line| line["kind"] == "result").collect();
            assert_eq!(results.len(), 1 + usize::from(flags.contains("--bidir")), "{flags} {ports}");
            assert!(results.iter().all(|result| result["bytes"] == 5_000_000), "{flags} {ports}");
            assert_eq!(results[0]["probe"].is_object(), flags.contains("--probe"), "{flags} {ports}");
            let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
            while server.alive() {
                assert!(std::time::Instant::now() < until, "{flags} {ports}: it has served its client");
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
}

#[test]
fn a_server_that_ends_after_one_client_refuses_another_at_once() {
    let mut server = Server::start("--once");
    let words = format!("measure {} --bidir --duration 5s --pacing 10mbit --quiet", server.address);
    let mut first = std::process::Command::new(env!("CARGO_BIN_EXE_fullpipe"))
        .args(words.split_whitespace())
        .env("XDG_CONFIG_HOME", NO_CONFIG)
        .spawn()
        .unwrap();
    server.log_with("begin", 2);
    for flags in ["", "--probe", "--bidir"] {
        let (code, text) = error(&fullpipe(&format!("measure {} --duration 1s {flags}", server.address)));
        assert!(code == 4 && text.contains("start another server, or one without --once"), "{code} {text}");
        assert_eq!(text.matches("error:").count(), 1, "{text}");
    }
    assert!(server.alive() && first.wait().unwrap().success());
}

#[test]
fn a_client_that_only_asks_is_not_the_one() {
    for flags in ["--once", "--once --max-clients 1"] {
        let mut server = Server::start(flags);
        for asks in ["select", "doctor"] {
            let out = fullpipe(&format!("{asks} {}", server.address));
            assert!(matches!(out.status.code(), Some(0 | 1)), "{asks}: {out:?}");
        }
        // What the last has said may not have come yet.
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(server.alive(), "{flags}");
        assert_eq!(measure(&server, "--size 1MB")[0]["kind"], "run");
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while server.alive() {
            assert!(std::time::Instant::now() < until, "{flags}: it has served its client");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[test]
fn segments_are_no_larger_than_was_asked_for() {
    // With one port for everything, only the client's kernel knows the size when a stream is opened.
    let (server, single) = (Server::start(""), Server::start("--data-ports same"));
    for (server, direction) in [(&server, ""), (&server, "--reverse"), (&single, ""), (&single, "--reverse")] {
        let record = measure(server, &format!("--mss 1000 --size 10MB {direction}"));
        assert_eq!(record[0]["transport"]["mss"], 1_000);
        // Timestamps take 12 bytes of each segment.
        let segment = record[0]["sender"]["mss"].as_u64().unwrap();
        assert!((900..=1_000).contains(&segment), "{segment} {direction}");
        let last = record.iter().rfind(|line| line["end"] == "sender").unwrap();
        let segments = last["data_segs_out"].as_u64().unwrap();
        assert!(segments >= 10_000_000 / 1_000, "{segments} {direction}");
    }
    for (flags, why) in [("--mss 40", "give from 88 to 32767"), ("--transport udt --mss 1000", "is for TCP")] {
        let (code, text) = error(&fullpipe(&format!("measure {} {flags}", server.address)));
        assert!(code == 2 && text.contains(why), "{code} {text}");
    }
}

#[test]
fn both_ends_mark_their_packets_over_ipv4_and_ipv6() {
    let server = Server::start("--bind ::");
    let port = server.address.rsplit(':').next().unwrap();
    for host in ["127.0.0.1", "[::1]"] {
        for flags in ["", "--reverse", "--transport udt"] {
            let words = format!("measure {host}:{port} --dscp cs1 --size 10MB --json {flags}");
            let record = json_lines(&fullpipe(&words));
            for dscp in [&record[0]["transport"]["dscp"], &record[0]["sender"]["dscp"], &record[0]["receiver"]["dscp"]]
            {
                assert_eq!(dscp, "CS1", "{words}");
            }
        }
        let plain = json_lines(&fullpipe(&format!("measure {host}:{port} --size 10MB --json")));
        assert!(plain[0]["transport"].get("dscp").is_none() && plain[0]["sender"].get("dscp").is_none());
    }
    let (code, text) = error(&fullpipe(&format!("measure 127.0.0.1:{port} --dscp CS9")));
    assert!(code == 2 && text.contains("'CS9' is no DSCP"), "{code} {text}");
}

/// Runs a test in a network where only packets of class CS1 pass, but for those of a server's own port, with that server.
fn where_only_cs1_passes(flags: &str, test: impl FnOnce(&Server) + Send) {
    firewall::behind("table inet t { chain c { type filter hook input priority 0; }; }", || {
        let server = Server::start(flags);
        let port = server.address.rsplit(':').next().unwrap();
        // In one rule, nft would join the two ports into one field, of which "not equal" means that either differs.
        let rule = format!(
            "add rule inet t c th dport {port} accept; add rule inet t c th sport {port} accept; \
             add rule inet t c meta l4proto {{ tcp, udp }} ip dscp != cs1 reject with icmpx type admin-prohibited"
        );
        assert!(std::process::Command::new("nft").arg(rule).status().unwrap().success());
        test(&server);
    });
}

#[test]
fn every_packet_of_a_data_connection_is_marked() {
    where_only_cs1_passes("", |server| {
        for flags in ["", "--reverse", "--transport udt"] {
            let record = measure(server, &format!("--size 10MB --dscp CS1 {flags}"));
            assert_eq!(record.last().unwrap()["bytes"], 10_000_000, "{flags}");
        }
        let (code, text) = error(&fullpipe(&format!("measure {} --size 10MB", server.address)));
        assert!(code == 4 && text.contains("its port for data streams, "), "{code} {text}");
    });
}

#[test]
fn the_data_connections_of_a_copy_are_marked() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::write(&from, vec![7; 3_000_000]).unwrap();
    std::fs::create_dir(&to).unwrap();
    where_only_cs1_passes(&format!("--root {} --insecure", to.display()), |server| {
        let words = format!("cp --insecure --quiet {} fullpipe://{}/there", from.display(), server.address);
        let (code, text) = error(&fullpipe(&words));
        assert!(code != 0 && !to.join("there").exists(), "{code} {text}");
        assert_eq!(error(&fullpipe(&format!("{words} --dscp CS1"))), (0, String::new()));
        assert_eq!(std::fs::read(to.join("there")).unwrap().len(), 3_000_000);
    });
}

/// Drops the large datagrams of the first source port that sends one: the first requests of one stream.
const ONE_STREAM_LOSES_ITS_FIRST_REQUESTS: &str = "table inet t { set s { type inet_service; size 1; flags dynamic; }; \
    chain c { type filter hook input priority 0; \
    meta l4proto udp meta length > 1600 udp sport @s drop; \
    meta l4proto udp meta length > 1600 add @s { udp sport } drop; }; }";

#[test]
fn a_stream_with_smaller_packets_than_the_others_is_in_the_record() {
    firewall::behind(ONE_STREAM_LOSES_ITS_FIRST_REQUESTS, || {
        let server = Server::start("");
        let words = format!("measure {} --transport udt -n 3 --size 6MB --json", server.address);
        let out = fullpipe(&words);
        let (_, warnings) = error(&out);
        let record = json_lines(&out);
        let sender = &record[0]["sender"];
        let mut sizes: Vec<u64> =
            sender["stream_mtus"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
        sizes.sort_unstable();
        assert!(sizes.len() == 3 && sizes[0] < sizes[1] && sizes[1] == sizes[2], "{sizes:?}");
        assert_eq!(sender["mtu"], sizes[0]);
        assert!(sender["mss"].as_u64().unwrap() < sizes[0]);
        let says = format!("packets of different sizes, {} to {} bytes", sizes[0], sizes[2]);
        assert!(warnings.contains(&says), "{warnings}");
    });
    let server = Server::start("");
    let record = measure(&server, "--transport udt -n 3 --size 6MB");
    assert!(record[0]["sender"].get("stream_mtus").is_none(), "{}", record[0]);
}

/// Refuses what comes from the address that connections within this host have by themselves.
const NOT_FROM_LOCALHOST: &str = "table inet t { chain c { type filter hook input priority 0; \
    ip saddr 127.0.0.1 ip daddr 127.0.0.1 reject with icmpx type admin-prohibited; }; }";

#[test]
fn control_and_data_come_from_the_address_that_was_chosen() {
    firewall::behind(NOT_FROM_LOCALHOST, || {
        let server = Server::start("");
        for (i, flags) in
            (1..).zip(["--bind 127.0.0.9", "--bind 127.0.0.9%lo --reverse", "--bind 127.0.0.9 --transport udt"])
        {
            let record = measure(&server, &format!("--size 10MB {flags}"));
            assert_eq!(record.last().unwrap()["bytes"], 10_000_000, "{flags}");
            let log = server.log_with("begin", i);
            let peer = log.iter().rfind(|line| line["kind"] == "begin").unwrap()["peer"].as_str().unwrap();
            assert!(peer.starts_with("127.0.0.9:"), "{peer}");
        }
        let (code, text) = error(&fullpipe(&format!("measure {} --size 10MB", server.address)));
        assert!(code == 4 && text.contains("cannot connect to "), "{code} {text}");
    });
}

/// Nobody asked for CUBIC, so a server that may not use it sends with its system's own.
#[test]
fn a_server_that_may_not_use_the_default_sends_with_its_own() {
    let allowed = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap();
    if allowed.contains("cubic") || !nix::unistd::geteuid().is_root() {
        return eprintln!(
            "skipped: it needs root, and a kernel that keeps cubic from ordinary users; it allows {allowed}"
        );
    }
    let own = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    let server = Server::start_without_capabilities("");
    for flag in ["--reverse", "--bidir"] {
        let out = fullpipe(&format!("measure {} --size 10MB --json {flag}", server.address));
        let said = String::from_utf8_lossy(&out.stderr);
        let line = format!("the server cannot use cubic: measuring with {}, its system's own (--cc", own.trim());
        assert!(said.contains(&line) && !said.contains("error:"), "{said}");
        let header = &json_lines(&out)[0];
        assert_eq!(header["transport"]["cc"], own.trim(), "{header}");
    }
    let (code, text) = error(&fullpipe(&format!("measure {} --size 10MB --reverse --cc cubic", server.address)));
    assert!(code == 4 && text.contains("may not use congestion control 'cubic', only: "), "{text}");
    assert!(text.contains("Choose one of these with --cc"), "{text}");
}

#[test]
fn an_end_that_this_host_does_not_have_is_refused() {
    let server = Server::start("");
    assert_eq!(measure(&server, "--bind %lo --size 10MB").last().unwrap()["bytes"], 10_000_000);
    for (flags, why) in [
        ("--bind 192.0.2.1", "cannot bind to 192.0.2.1: "),
        ("--bind %nosuch0", "cannot bind to %nosuch0: "),
        ("--bind ::1", "has no IPv6 address, which --bind ::1 needs"),
        ("--bind eth0", "'eth0' is no address of this host"),
    ] {
        let (code, text) = error(&fullpipe(&format!("measure {} {flags}", server.address)));
        assert!(code == 2 && text.contains(why) && text.matches("error:").count() == 1, "{code} {text}");
    }
    let (code, text) = error(&fullpipe("measure lab:rtt=1ms,rate=1gbit --bind 127.0.0.1"));
    assert!(code == 2 && text.contains("--bind is for a host"), "{code} {text}");
}

#[test]
fn a_run_without_a_limit_ends_with_ctrl_c() {
    let server = Server::start("--max-duration unlimited");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("r.ndjson");
    // It is slow, so that it costs little if the test is killed.
    let flags = "--duration unlimited --pacing 10mbit --quiet --out";
    let words = format!("measure {} {flags} {}", server.address, file.display());
    let client = std::process::Command::new(env!("CARGO_BIN_EXE_fullpipe"))
        .args(words.split_whitespace())
        .env("XDG_CONFIG_HOME", NO_CONFIG)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    server.log_with("begin", 1);
    assert!(std::process::Command::new("kill").args(["-INT", &client.id().to_string()]).status().unwrap().success());
    assert_eq!(error(&client.wait_with_output().unwrap()), (0, String::new()));
    let text = std::fs::read_to_string(file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["workload"]["duration"], &lines[0]["sample"]), (&"unlimited".into(), &"1s".into()));
    assert_eq!(lines.last().unwrap()["interrupted"], true);
}

#[test]
fn a_server_with_a_limit_refuses_a_run_without_one() {
    let server = Server::start("");
    let (code, text) = error(&fullpipe(&format!("measure {} --duration unlimited", server.address)));
    assert!(code == 4 && text.contains("and unlimited was asked for; ask for less"), "{code} {text}");
    let (code, text) = error(&fullpipe("measure lab:rtt=1ms,rate=1gbit --duration unlimited"));
    assert!(code == 2 && text.contains("--duration unlimited is for a host"), "{code} {text}");
}

/// A bottleneck of 50 Mb/s, whose queue of 1 MB takes 160 ms to drain, in a network of the test's own.
#[test]
fn probes_see_the_queue_that_a_run_fills() {
    firewall::behind("table inet t { }", || {
        // Packets as large as loopback's do not fit into the bucket.
        assert!(std::process::Command::new("ip").args("link set lo mtu 1500".split(' ')).status().unwrap().success());
        let shape = "qdisc add dev lo root tbf rate 50mbit burst 64kb limit 1000000";
        if !std::process::Command::new("tc").args(shape.split(' ')).status().is_ok_and(|status| status.success()) {
            return eprintln!("skipped: it needs tc with tbf");
        }
        let server = Server::start("");
        let record = measure(&server, "--duration 3s --streams 4 --probe=20ms");
        let probe = &record.last().unwrap()["probe"];
        let seconds = |of: &str, what: &str| probe[of][what].as_f64().unwrap();
        assert_eq!(probe["every_s"], 0.02);
        assert!(probe["idle"]["probes"].as_u64().unwrap() >= 10, "{probe}");
        assert!(seconds("idle", "p50_s") < 0.02 && seconds("loaded", "p95_s") > 0.03, "{probe}");
        let increase_s = seconds("loaded", "p95_s") - seconds("idle", "p50_s");
        assert!((probe["increase_s"].as_f64().unwrap() - increase_s).abs() < 1e-9, "{probe}");
        assert!(["A", "B", "C", "D"].contains(&probe["grade"].as_str().unwrap()), "{probe}");
        let out = fullpipe(&format!("measure {} --duration 2s --probe", server.address));
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let line = text.lines().find(|line| line.starts_with("latency ")).unwrap();
        assert!(line.contains(" idle; under load ") && line.contains("; bufferbloat "), "{line}");
    });
}

#[test]
fn probes_that_are_refused_or_too_few() {
    for (words, why) in [
        ("127.0.0.1:1 --probe=1ms", "--probe 1ms is too short"),
        ("127.0.0.1:1 --probe --bidir", "cannot be used with"),
    ] {
        let (code, text) = error(&fullpipe(&format!("measure {words}")));
        assert!(code == 2 && text.contains(why), "{code} {text}");
    }
    let server = Server::start("");
    let record = measure(&server, "--size 1MB --probe");
    let probe = &record.last().unwrap()["probe"];
    assert!(probe["idle"].is_object() && probe["loaded"].is_null() && probe["grade"].is_null(), "{probe}");
}

/// More streams than a copy has, and than a server lets in of unknown connections.
#[test]
fn many_streams_carry_exactly_what_was_asked_for() {
    for ports in ["", "--data-ports same"] {
        let server = Server::start(ports);
        for (streams, flags) in [(128, ""), (128, "--reverse"), (256, ""), (128, "--bidir"), (256, "--reverse")] {
            // Not a multiple of the number of streams.
            let lines = measure(&server, &format!("-n {streams} --size 40000007B {flags}"));
            let results: Vec<&Value> = lines.iter().filter(|line| line["kind"] == "result").collect();
            assert_eq!(results.len(), 1 + usize::from(flags == "--bidir"), "{streams} {flags} {ports}");
            for result in results {
                let parts: Vec<u64> =
                    result["streams"].as_array().unwrap().iter().map(|s| s["bytes"].as_u64().unwrap()).collect();
                assert_eq!((result["bytes"].as_u64(), parts.len()), (Some(40_000_007), streams), "{flags} {ports}");
                let share = 40_000_007 / streams as u64;
                assert!(parts.iter().all(|part| (share..=share + 1).contains(part)), "{parts:?}");
                assert_eq!(parts.iter().sum::<u64>(), 40_000_007);
            }
        }
    }
    let server = Server::start("");
    for flags in ["", "--reverse"] {
        let words = format!("-n 256 --transport udp --pacing 100mbit --datagram-size 1200 --duration 1s {flags}");
        let lines = measure(&server, &words);
        let result = &lines[lines.len() - 1];
        let parts = result["streams"].as_array().unwrap();
        assert!(parts.len() == 256 && parts.iter().all(|part| part["udp"]["received"].as_u64() > Some(20)), "{result}");
    }
    let (code, text) = error(&fullpipe(&format!("measure {} -n 65 --transport udt", server.address)));
    assert!(code == 2 && text.contains("65 streams: give from 1 to 64 over UDT"), "{code} {text}");
}
