//! The ports of data streams: dropped by a firewall, a single one for everything, and those of UDP.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{self, Server, error, fullpipe};
use crate::{Stage, firewall, write};

#[test]
fn a_data_port_that_a_firewall_drops_is_named_soon() {
    let drop = "table inet test { chain in { type filter hook input priority 0; tcp dport 21000-21015 drop; }; }";
    firewall::behind(drop, || {
        let stage = Stage::new("--data-ports 21000-21015");
        write(&stage.at("file"), 1000);
        let began = Instant::now();
        for stall in ["60s", "5s"] {
            let copied = stage.cp(&["--stall", stall, "file", &stage.url("/in/")], Some(&stage.token()));
            let (code, text) = error(&copied);
            assert!(code == 4 && text.contains("for the data: no answer within 3s"), "{text}");
            assert!(text.contains("'fullpipe serve', where --data-ports same needs no further port"), "{text}");
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    });
}

/// Lets new connections to this port alone through, and no datagram.
fn pass_only(port: &str) {
    let rules = format!(
        "add rule inet test in tcp flags & (syn | ack) == syn tcp dport != {port} drop; \
         add rule inet test in meta l4proto udp drop"
    );
    assert!(Command::new("nft").arg(rules).status().unwrap().success());
}

/// Calls an address for as long as the test runs, from both of these, and begins as a data stream does, as TLS, or, from the second
/// one, not at all.
fn knock(to: std::net::SocketAddr, from: [u8; 2], done: &std::sync::atomic::AtomicBool) {
    let (mut held, strange) = (std::collections::VecDeque::new(), [&[0xf2, 34][..], &[7; 34]].concat());
    for n in 0_usize.. {
        if done.load(std::sync::atomic::Ordering::SeqCst) {
            return;
        }
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let from = std::net::SocketAddr::from(([127, 0, 0, from[n % 2]], 0));
        if socket.bind(&from.into()).is_ok() && socket.connect(&to.into()).is_ok() {
            let wrong: &[u8] = [&[0xf2, 34, 1, 0, 9][..], &strange, &[0x16, 3, 1, 0], &[]][n % 4];
            let _ = socket.send(wrong);
            held.push_back(socket);
        }
        if held.len() > 300 {
            held.pop_front();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Copies and measurements, in both directions, while strangers call that port, from the client's own address too.
#[test]
fn everything_goes_through_one_port() {
    firewall::behind("table inet test { chain in { type filter hook input priority 0; }; }", || {
        let stage = Stage::new("--data-ports same --allow-plain");
        pass_only(stage.server.address.rsplit(':').next().unwrap());
        write(&stage.at("file"), 5_000_001);
        let token = stage.token();
        let to = stage.server.address.parse().unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| knock(to, [1, 2], &done));
            let begun = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                std::thread::sleep(Duration::from_millis(700));
                for words in [&["-n", "1"][..], &["-n", "64"], &["-n", "4", "--no-encrypt"], &["--buffer", "1MB"], &[]]
                {
                    let (to, from) = (stage.url("/in/"), stage.url("/in/file"));
                    for files in [&["file", &to][..], &[&from, "back"]] {
                        let (code, text) = error(&stage.cp(&[words, files].concat(), Some(&token)));
                        assert!(code == 0 && !text.contains("again"), "{words:?}: {code} {text}");
                    }
                    assert_eq!(fs::read(stage.at("back")).unwrap(), fs::read(stage.at("file")).unwrap());
                    fs::remove_file(stage.at("back")).unwrap();
                    fs::remove_file(stage.at("root/in/file")).unwrap();
                }
                for flags in ["", "--reverse", "--bidir"] {
                    let words = format!(
                        "measure {} --size 10MB -n 3 --json {flags} --token-file {}",
                        stage.server.address,
                        stage.at("token").display()
                    );
                    let record = common::json_lines(&common::fullpipe(&words));
                    assert_eq!(record.last().unwrap()["bytes"], 10_000_000, "{flags}");
                }
            }));
            done.store(true, std::sync::atomic::Ordering::SeqCst);
            begun.unwrap();
        });
        let log = stage.server.log_with("copied", 10);
        assert!(log.iter().any(|line| line["error"] == "no session expects this data stream"), "{log:?}");
        // A stream has no line of its own. A stranger that has said nothing has one once it is gone.
        let silent = |line: &&serde_json::Value| {
            let is_streams = line["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:"));
            is_streams && line["kind"] == "end" && line["token"].is_null() && line["error"].is_null()
        };
        assert_eq!(log.iter().find(silent), None);
    });
}

/// A copy that chooses UDT by itself goes on over TCP.
#[test]
fn one_port_takes_no_udt() {
    let stage = Stage::new("--data-ports same");
    write(&stage.at("file"), 1000);
    let words = ["--transport", "udt", "file", &stage.url("/in/")];
    let (code, text) = error(&stage.cp(&words, Some(&stage.token())));
    assert!(
        code == 4 && text.contains("over TCP; copy without --transport udt") && text.lines().count() == 1,
        "{text}"
    );
    assert!(
        stage.server.log(1).iter().any(|line| line["error"].as_str().is_some_and(|e| e.contains("--data-ports same")))
    );
    let words =
        format!("measure {} --transport udt --token-file {}", stage.server.address, stage.at("token").display());
    let (code, text) = error(&common::fullpipe(&words));
    assert!(code == 4 && text.contains("measure over TCP, or ask its operator"), "{code} {text}");
}

#[test]
fn there_and_back_over_udt() {
    let stage = Stage::new("--data-ports 21200-21215 --allow-plain");
    write(&stage.at("file"), 5_000_001);
    let token = stage.token();
    for words in [&["--transport", "udt"][..], &["--transport", "udt", "-n", "3", "--no-encrypt"]] {
        let (to, from) = (stage.url("/in/"), stage.url("/in/file"));
        for files in [&["file", &to][..], &[&from, "back"]] {
            let (code, text) = error(&stage.cp(&[words, files].concat(), Some(&token)));
            assert_eq!(code, 0, "{text}");
        }
        assert_eq!(fs::read(stage.at("back")).unwrap(), fs::read(stage.at("file")).unwrap());
        fs::remove_file(stage.at("back")).unwrap();
        fs::remove_file(stage.at("root/in/file")).unwrap();
    }
    // Without the token nobody comes as far as the data.
    let (code, text) = error(&stage.cp(&["--transport", "udt", "--insecure", "file", &stage.url("/in/")], None));
    assert_eq!(code, 4, "{text}");
}

/// A process of a server has a limit on its memory.
#[test]
fn buffers_of_udt_that_a_server_has_no_memory_for() {
    let stage = Stage::new("");
    write(&stage.at("file"), 1000);
    let copy = |streams| {
        let words = ["--transport", "udt", "--buffer", "1GB", "-n", streams, "file", &stage.url("/in/")];
        error(&stage.cp(&words, Some(&stage.token())))
    };
    let (code, text) = copy("2");
    assert!(code == 2 && text.contains("4 buffers of 1GB (UDT has two for each stream) are larger than"), "{text}");
    assert!(text.contains("choose a smaller --buffer, or fewer --streams"), "{text}");
    assert_eq!(copy("1").0, 0);
}

#[test]
fn a_measurement_names_a_data_port_that_a_firewall_drops() {
    let drop = "table inet test { chain in { type filter hook input priority 0; tcp dport 21000-21015 drop; }; }";
    firewall::behind(drop, || {
        let server = Server::start("--data-ports 21000-21015");
        for flags in ["", "--streams 4 --reverse"] {
            let began = Instant::now();
            let (code, text) = error(&fullpipe(&format!("measure {} --size 1MB {flags}", server.address)));
            assert!(code == 4 && began.elapsed() < Duration::from_secs(9), "{:?} {code}: {text}", began.elapsed());
            let known =
                "the server answers, but its port for data streams, 127.0.0.1:21000, does not (no answer within 3s";
            assert!(text.contains(known), "{text}");
            assert!(
                text.contains("open its --data-ports in the firewall") && text.contains("--data-ports same"),
                "{text}"
            );
        }
    });
}

#[test]
fn udp_that_a_firewall_drops_is_named_soon() {
    let drop = "table inet test { chain in { type filter hook input priority 0; udp dport 21000-21015 drop; }; }";
    firewall::behind(drop, || {
        let stage = Stage::new("--data-ports 21000-21015");
        write(&stage.at("file"), 1000);
        let began = Instant::now();
        let words = ["--transport", "udt", "file", &stage.url("/in/")];
        let (code, text) = error(&stage.cp(&words, Some(&stage.token())));
        assert!(code == 4 && text.contains("no answer over UDP from 127.0.0.1:21000 within 3 s"), "{text}");
        assert!(text.contains("for a server, that of its 'fullpipe serve'"), "{text}");
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        assert_eq!(error(&stage.cp(&words[2..], Some(&stage.token()))).0, 0);
    });
}
