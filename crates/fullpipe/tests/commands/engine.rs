//! The engine over loopback: real sockets, real processes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Server, error, fullpipe, json_lines};

fn measure(server: &Server, flags: &str) -> Vec<serde_json::Value> {
    json_lines(&fullpipe(&format!("measure {} --json {flags}", server.address)))
}

#[test]
fn a_size_arrives_whole_in_either_direction() {
    let server = Server::start("");
    for direction in ["", "--reverse"] {
        let record = measure(&server, &format!("--size 300MB --streams 3 --buffer 1MB --sample 10ms {direction}"));
        let (header, result) = (&record[0], &record[record.len() - 1]);
        assert_eq!(header["kind"], "run");
        assert_eq!(result["kind"], "result");
        assert_eq!(result["bytes"], 300_000_000);
        assert_eq!(result["streams"].as_array().unwrap().len(), 3);
        assert!(result["goodput_bps"].as_f64().unwrap() > 1e6);
        // The kernel books twice of what was asked.
        assert_eq!(header["sender"]["sndbuf"], 2_000_000);
        assert_eq!(header["receiver"]["rcvbuf"], 2_000_000);
        for end in ["sender", "receiver"] {
            let samples: Vec<_> = record.iter().filter(|l| l["kind"] == "sample" && l["end"] == end).collect();
            assert!(samples.len() >= 3, "{} samples of the {end}", samples.len());
            let sum: u64 = samples[samples.len() - 3..].iter().map(|s| s["bytes"].as_u64().unwrap()).sum();
            assert_eq!(sum, 300_000_000, "the {end}'s last samples");
            for field in ["busy_time", "rwnd_limited", "sndbuf_limited", "delivery_rate", "min_rtt", "snd_cwnd"] {
                assert!(samples[0][field].is_u64(), "{field}");
            }
        }
    }
}

#[test]
fn a_duration_is_kept_and_samples_come_at_the_interval() {
    let server = Server::start("");
    let record = measure(&server, "--duration 1s --sample 100ms --cc reno");
    let result = &record[record.len() - 1];
    assert!((0.99..1.2).contains(&result["seconds"].as_f64().unwrap()), "{result}");
    assert_eq!(record[0]["sender"]["cc"], "reno");
    let times: Vec<f64> = record.iter().filter(|l| l["end"] == "receiver").map(|l| l["t"].as_f64().unwrap()).collect();
    // One at each tenth of a second, and one at the end.
    let ticks = times.last().unwrap() * 10.0;
    assert!(ticks > 9.9 && (times.len() as f64 - ticks).abs() <= 2.0, "{times:?}");
}

#[test]
fn pacing_holds() {
    let server = Server::start("");
    let record = measure(&server, "--duration 2s --streams 2 --pacing 400mbit");
    let result = &record[record.len() - 1];
    let goodput = result["goodput_bps"].as_f64().unwrap();
    assert!((300e6..=404e6).contains(&goodput), "{goodput}");
    assert_eq!(result["bottleneck"], "pacing");
    assert_eq!(record[0]["sender"]["pacing"], "200mbit");
}

/// No result exceeds what the bytes and the wall clock allow.
fn assert_possible(result: &serde_json::Value) {
    let (bytes, wall_s) = (result["bytes"].as_f64().unwrap(), result["real"]["wall_s"].as_f64().unwrap());
    match result["goodput_bps"].as_f64() {
        Some(goodput) => {
            let seconds = result["seconds"].as_f64().unwrap();
            assert!(seconds <= wall_s && goodput >= bytes * 8.0 / wall_s * 0.5, "{result}");
            assert!(goodput <= bytes * 8.0 / seconds * (1.0 + 1e-9) && goodput < 1e13, "{result}");
            assert!(result["no_rate"].is_null() && result["bottleneck"].is_string(), "{result}");
        }
        None => assert!(result["no_rate"].is_string() && result["bottleneck"].is_null(), "{result}"),
    }
}

#[test]
fn what_arrives_at_once_has_no_rate() {
    let server = Server::start("");
    for direction in ["", "--reverse"] {
        let record = measure(&server, &format!("--size 10KB {direction}"));
        let result = &record[record.len() - 1];
        assert!(result["goodput_bps"].is_null(), "{result}");
        assert_possible(result);
    }
    let out = fullpipe(&format!("measure {} --size 10KB", server.address));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("goodput     none: ") && text.contains("send") && !text.contains("bottleneck"), "{text}");
    for flags in ["--size 100KB --streams 4", "--size 1MB", "--size 3MB --streams 64", "--size 64B --streams 64"] {
        let record = measure(&server, flags);
        assert_possible(&record[record.len() - 1]);
    }
}

#[test]
fn slow_pacing_holds_over_the_whole_time() {
    let server = Server::start("");
    for (streams, direction) in [(8, ""), (1, "--reverse"), (64, "")] {
        let record = measure(&server, &format!("--pacing 64kbit --streams {streams} --duration 3s {direction}"));
        let result = &record[record.len() - 1];
        let seconds = result["seconds"].as_f64().unwrap();
        assert!((3.0..3.5).contains(&seconds), "{result}");
        let goodput = result["goodput_bps"].as_f64().unwrap();
        assert!((50e3..66e3).contains(&goodput), "{goodput}");
        assert_possible(result);
    }
}

/// Measures with `--stall 2s` over a path whose far end stops, and returns how long it took after that, and its error.
fn after_a_stop(flags: &str) -> (Duration, (i32, String)) {
    let server = Server::start("--stall 60s");
    let words = format!("measure {} --duration 60s --pacing 100mbit --stall 2s {flags}", server.address);
    let client = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
        .args(words.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(1));
    // Each client has a process of its own at the server.
    let children = Command::new("pgrep").args(["-P", &server.id().to_string()]).output().unwrap();
    let child = String::from_utf8(children.stdout).unwrap().trim().to_owned();
    Command::new("kill").args(["-STOP", &child]).status().unwrap();
    let stopped = std::time::Instant::now();
    let output = client.wait_with_output().unwrap();
    Command::new("kill").args(["-KILL", &child]).status().unwrap();
    (stopped.elapsed(), error(&output))
}

#[test]
fn a_stall_ends_the_run_after_the_time_that_the_client_allows() {
    // UDT itself would wait for 30 s.
    for flags in ["", "--reverse", "--transport udt", "--transport udt --reverse"] {
        let (took, (code, text)) = after_a_stop(flags);
        assert_eq!(code, 1, "{text}");
        assert!(text.contains("no data moved for 2 s") && took < Duration::from_secs(6), "{took:?}: {text}");
    }
}

#[test]
fn a_repeated_measurement_keeps_both_records() {
    let server = Server::start("");
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let out = dir.path().to_str().unwrap();
        let done = fullpipe(&format!("measure {} --size 50MB --quiet --out {out}", server.address));
        assert_eq!(error(&done), (0, String::new()));
    }
    let mut ids: Vec<(String, String)> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let header: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
            assert!(header["real"]["boot"].is_string(), "{header}");
            (path.file_stem().unwrap().to_str().unwrap().to_owned(), header["id"].as_str().unwrap().to_owned())
        })
        .collect();
    ids.sort();
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|(file, id)| file == id), "{ids:?}");
    assert!(ids[1].0 == format!("{}-2", ids[0].0) && ids[2].0.ends_with("-3"), "{ids:?}");
}

#[test]
fn the_interface_of_an_ipv4_client_at_a_server_for_both_families_is_known() {
    let server = Server::start("--bind ::");
    let port = server.address.rsplit(':').next().unwrap();
    for host in ["127.0.0.1", "[::1]"] {
        for direction in ["", "--reverse"] {
            let record = json_lines(&fullpipe(&format!("measure {host}:{port} --size 50MB --json {direction}")));
            for end in ["sender", "receiver"] {
                assert_eq!(record[0][end]["interface"]["name"], "lo", "{host} {direction}");
                assert!(record[0][end]["mtu"].is_u64(), "{host} {direction}: {}", record[0][end]);
            }
        }
    }
}

#[test]
fn udt_carries_a_run_in_either_direction() {
    let server = Server::start("");
    for direction in ["", "--reverse"] {
        let flags = format!("--transport udt --size 100MB --streams 2 --buffer 8MB --sample 10ms {direction}");
        let record = measure(&server, &flags);
        let (header, result) = (&record[0], &record[record.len() - 1]);
        assert_eq!((&result["bytes"], &header["transport"]["cc"]), (&100_000_000.into(), &"udt".into()));
        assert_eq!(header["sender"]["cc"], "udt");
        for (end, counts) in [("sender", "pktSent"), ("receiver", "pktRecv")] {
            let samples: Vec<_> = record.iter().filter(|l| l["kind"] == "sample" && l["end"] == end).collect();
            let sum: u64 = samples[samples.len() - 2..].iter().map(|s| s["bytes"].as_u64().unwrap()).sum();
            // The last ACK may still be on its way to the sender when the run is over.
            let least = if end == "receiver" { 100_000_000 } else { 90_000_000 };
            assert!((least..=100_000_000).contains(&sum), "{sum} at the {end}");
            // 100 MB in packets of 9,000 bytes, as loopback lets them be.
            let packets: u64 = samples.iter().map(|s| s[counts].as_u64().unwrap()).sum();
            assert!(packets >= 11_000, "{packets} packets at the {end}");
            for field in ["rtt", "snd_cwnd", "bytes_acked"] {
                assert!(samples[0].get(field).is_none(), "{field} is TCP's");
            }
        }
    }
}

#[test]
fn udt_keeps_to_a_rate() {
    let server = Server::start("");
    let record = measure(&server, "--transport udt --duration 2s --streams 2 --pacing 80mbit");
    let result = &record[record.len() - 1];
    let goodput = result["goodput_bps"].as_f64().unwrap();
    assert!((60e6..=80.8e6).contains(&goodput), "{goodput}");
    assert_eq!((&result["cwnd_max"], &result["retransmits"]), (&0.into(), &0.into()));
    assert_eq!(result["bottleneck"], "pacing");
    assert_eq!(record[0]["sender"]["pacing"], "40mbit");
}

/// Runs a test in a network namespace of its own, where loopback is up. It needs root; without it, it says so and does nothing.
fn in_own_network(test: impl FnOnce() + Send) {
    if !nix::unistd::geteuid().is_root() {
        return eprintln!("skipped: it needs root");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            ip("link set lo up");
            test();
        });
    });
}

fn ip(words: &str) {
    assert!(Command::new("ip").args(words.split_whitespace()).status().unwrap().success(), "ip {words}");
}

/// The interface takes packets of 9,000 bytes until the run has begun, and then of 1,500 at most.
#[test]
fn a_sender_over_udt_whose_packets_no_longer_pass_says_so() {
    in_own_network(|| {
        let server = Server::start("");
        let runs = [("", "while sending data: packets of"), ("--reverse", "the run failed at")];
        for (number, (direction, why)) in (1..).zip(runs) {
            ip("link set lo mtu 65536");
            let words =
                format!("measure {} --transport udt --pacing 100mbit --duration 20s {direction}", server.address);
            let begun = std::time::Instant::now();
            let client = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
                .args(words.split_whitespace())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            server.log_with("begin", number);
            std::thread::sleep(Duration::from_millis(500));
            ip("link set lo mtu 1500");
            let (code, text) = error(&client.wait_with_output().unwrap());
            assert_eq!(code, 4, "{text}");
            assert!(text.contains(why) && text.contains("packets of 9000 bytes do not pass the path"), "{text}");
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        }
    });
}

#[test]
fn udt_brings_its_own_congestion_control() {
    for (flags, advice) in
        [("--transport udt --cc htcp", "leave one of them out"), ("--cc udt", "give --transport udt instead")]
    {
        let (code, text) = error(&fullpipe(&format!("measure 127.0.0.1:1 {flags}")));
        assert_eq!(code, 2, "{text}");
        assert!(text.contains(advice), "{text}");
    }
}

#[test]
fn a_server_that_only_tcp_reaches_says_so_of_udt() {
    let server = Server::start("");
    // The server's data port is on its own address, and this relay on another one passes TCP alone.
    let relay = TcpListener::bind("127.0.0.2:0").unwrap();
    let (here, there) = (relay.local_addr().unwrap(), server.address.clone());
    std::thread::spawn(move || {
        for client in relay.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(&there).unwrap());
            let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || std::io::copy(&mut client, &mut server));
        }
    });
    let (code, text) = error(&fullpipe(&format!("measure {here} --transport udt --duration 1s")));
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("no answer over UDP from 127.0.0.2:") && text.contains("within 3 s"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn many_clients_at_once_each_with_its_own_result() {
    let server = Server::start("--max-clients 4 --max-clients-per-address 4");
    std::thread::scope(|scope| {
        let runs: Vec<_> = (1..=4)
            .map(|i| {
                (
                    i,
                    scope.spawn({
                        let server = &server;
                        move || measure(server, &format!("--size {i}00MB"))
                    }),
                )
            })
            .collect();
        for (i, run) in runs {
            let record = run.join().unwrap();
            assert_eq!(record[record.len() - 1]["bytes"], i * 100_000_000);
        }
    });
}

/// Each asks for another size at another rate, with which it takes 8 s, in one or the other direction.
#[test]
fn of_a_hundred_clients_at_once_none_gets_a_wrong_result() {
    let server = Server::start("--max-clients 100 --max-clients-per-address 100");
    let (size, pacing) = (|i: u64| i * 100_000, |i: u64| i * 100_000);
    let streams = |i: u64| 1 + i % 3;
    let reverse = |i: u64| i.is_multiple_of(2);
    std::thread::scope(|scope| {
        let run = |i: u64| {
            let reverse = if reverse(i) { "--reverse" } else { "" };
            let flags = format!("--size {}B --pacing {}bit -n {} {reverse}", size(i), pacing(i), streams(i));
            measure(&server, &flags)
        };
        let runs: Vec<_> = (1..=100).map(|i| (i, scope.spawn(move || run(i)))).collect();
        for (i, run) in runs {
            let record = run.join().unwrap();
            let (header, result) = (&record[0], record.last().unwrap());
            assert_eq!(header["direction"], if reverse(i) { "receive" } else { "send" }, "{i}: {header}");
            assert_eq!(result["bytes"], size(i), "{i}: {result}");
            let bytes = result["streams"].as_array().unwrap().iter().map(|stream| stream["bytes"].as_u64().unwrap());
            assert_eq!((bytes.clone().count() as u64, bytes.sum()), (streams(i), size(i)), "{i}: {result}");
            assert_possible(result);
            // The least is for a machine that does much else meanwhile.
            let share = result["goodput_bps"].as_f64().unwrap() / pacing(i) as f64;
            assert!((0.3..1.05).contains(&share), "{i}: {share} of its rate: {result}");
        }
    });
    let log = server.log(100);
    let kinds: Vec<&str> = log.iter().filter_map(|line| line["kind"].as_str()).filter(|kind| *kind != "note").collect();
    assert_eq!(kinds.iter().take_while(|kind| **kind == "begin").count(), 100, "all at once: {kinds:?}");
    let mut asked: Vec<String> =
        log.iter().filter(|line| line["kind"] == "begin").map(|line| line["request"]["workload"].to_string()).collect();
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len(), 100);
}

#[test]
fn a_full_server_refuses_clearly() {
    let server = Server::start("--max-clients 1");
    let mut first = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
        .args(["measure", &server.address, "--duration", "5s", "--quiet", "--pacing", "100mbit"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let (code, text) = error(&fullpipe(&format!("measure {} --size 1MB", server.address)));
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("its --max-clients-per-address is 1"), "{text}");
}

#[test]
fn a_server_survives_garbage_silence_and_vanishing() {
    let mut server = Server::start("--stall 2s");
    for garbage in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0xff; 4096], b"\0\x05\0\0\0hello", b""] {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(garbage).unwrap();
    }
    // One that says hello properly and then nothing at all.
    let silent = TcpStream::connect(&server.address).unwrap();
    // One that is killed in the middle, and one that stops reading.
    for (signal, wait) in [("-KILL", 0), ("-STOP", 3_000)] {
        let mut client = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
            .args(["measure", &server.address, "--duration", "20s", "--quiet", "--reverse"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(500));
        Command::new("kill").args([signal, &client.id().to_string()]).status().unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        assert!(server.alive());
        let record = measure(&server, "--size 50MB");
        assert_eq!(record[record.len() - 1]["bytes"], 50_000_000);
        client.kill().unwrap();
        client.wait().unwrap();
    }
    drop(silent);
    assert!(server.alive());
}

#[test]
fn a_client_tells_what_is_wrong_with_the_far_end() {
    // Nobody listens.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, text) = error(&fullpipe(&format!("measure {free}")));
    assert_eq!(code, 4);
    assert!(text.contains("fullpipe serve"), "{text}");
    // A web server, say.
    let (code, text) = answered_with(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    assert_eq!(code, 4);
    assert!(text.contains("does not speak fullpipe's protocol"), "{text}");
    // Another version.
    let hello = br#"{"kind":"hello","magic":"fullpipe","protocol":99,"program":"9.9.9"}"#;
    let mut frame = vec![0];
    frame.extend_from_slice(&(hello.len() as u32).to_le_bytes());
    frame.extend_from_slice(hello);
    let (code, text) = answered_with(&frame);
    assert_eq!(code, 4);
    assert!(text.contains("9.9.9") && text.contains("same version on both ends"), "{text}");
}

/// What `measure` says of a server that answers with these bytes.
fn answered_with(answer: &[u8]) -> (i32, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = answer.to_vec();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut hello = [0; 16];
        stream.read_exact(&mut hello).unwrap();
        stream.write_all(&answer).unwrap();
        // Kept open until the client has gone.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let result = error(&fullpipe(&format!("measure {address}")));
    server.join().unwrap();
    result
}

#[test]
fn a_port_in_use_says_so() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (code, text) = error(&fullpipe(&format!("serve --bind 127.0.0.1 --port {port}")));
    assert_eq!(code, 3);
    assert!(text.contains(&port.to_string()) && text.contains("--port"), "{text}");
}

#[test]
fn data_ports_are_those_of_the_range() {
    let first = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = first.local_addr().unwrap().port();
    let server = Server::start(&format!("--data-ports {port}-{port}"));
    let (code, text) = error(&fullpipe(&format!("measure {} --size 1MB", server.address)));
    assert_eq!(code, 4);
    assert!(text.contains("no free port for data streams"), "{text}");
    drop(first);
    let record = measure(&server, "--size 1MB");
    assert_eq!(record[record.len() - 1]["bytes"], 1_000_000);
}

#[test]
fn select_measures_a_hosts_round_trip_time() {
    let server = Server::start("");
    let dir = tempfile::tempdir().unwrap();
    let profile = dir.path().join("profile.json");
    let text = r#"{"kind":"profile","version":2,"confidence":0.95,"paths":[{"rate_bps":1e10,"loss":0.0}],
        "workloads":[{"size":"1GB"}],"entries":[{"path":0,"workload":0,
        "transport":{"cc":"htcp","streams":2,"buffer":"1GB"},"rtt_ms":[0.0001,100],"n":[2,2],
        "mean_bps":[9e9,5e9],"sd_bps":[1e8,1e9]}]}"#;
    std::fs::write(&profile, text).unwrap();
    let words = format!("select {} --json --profile {}", server.address, profile.display());
    let answer = json_lines(&fullpipe(&words)).remove(0);
    let best = &answer["choice"];
    assert_eq!(best["transport"]["cc"], "htcp");
    assert_eq!(best["expected"]["outside"], false, "between the two RTTs: {best}");
    assert!((5e9..9e9).contains(&best["expected"]["mean_bps"].as_f64().unwrap()));
    let words = format!("select --rtt 200ms --profile {}", profile.display());
    assert!(String::from_utf8_lossy(&fullpipe(&words).stdout).contains("outside the measured range"));
}
