//! A server that reports what cannot be: no number of it becomes a result.

use std::net::{Shutdown, TcpListener, TcpStream};

use fullpipe_net::sample::Sample;
use fullpipe_net::wire::{self, Frame, Message, Report};

use crate::common::{Server, error, fullpipe};

/// Changes a report and the samples of a server.
type Lie = fn(&mut Report, &mut Vec<Sample>);

/// A relay between a client and a server that changes the server's report. Data streams go past it. Returns its address.
fn relay(server: &Server, lie: Lie) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, server) = (listener.local_addr().unwrap().to_string(), server.address.clone());
    std::thread::spawn(move || {
        let mut client = listener.accept().unwrap().0;
        let mut server = TcpStream::connect(server).unwrap();
        let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from_client, &mut to_server);
            let _ = to_server.shutdown(Shutdown::Write);
        });
        let (mut report, mut samples) = (None, Vec::new());
        while let Ok(frame) = wire::receive(&mut server) {
            match frame {
                Frame::Samples(mut batch) => samples.append(&mut batch),
                Frame::Message(message) => match *message {
                    Message::Report(theirs) => report = Some(*theirs),
                    Message::End => {
                        let mut report: Report = report.take().unwrap();
                        lie(&mut report, &mut samples);
                        wire::send(&mut client, &Message::Report(Box::new(report))).unwrap();
                        wire::send_samples(&mut client, &samples).unwrap();
                        wire::send(&mut client, &Message::End).unwrap();
                    }
                    other => wire::send(&mut client, &other).unwrap(),
                },
            }
        }
    });
    address
}

#[test]
fn an_honest_server_is_believed() {
    let server = Server::start("");
    for flags in [
        "",
        "--reverse",
        "--transport udt",
        "--transport udp --pacing 50mbit --reverse",
        "--transport udp --pacing 50mbit -n 3",
    ] {
        for workload in ["--size 3MB", "--duration 1s"] {
            let address = relay(&server, |_, _| ());
            let (code, text) = error(&fullpipe(&format!("measure {address} {flags} {workload}")));
            assert_eq!(code, 0, "{flags} {workload}: {text}");
        }
    }
}

#[test]
fn what_cannot_be_is_no_result() {
    let server = Server::start("");
    let lies: [(&str, Lie, &str); 13] = [
        (
            "-n 2",
            |report, _| report.received.iter_mut().for_each(|one| one.bytes = u64::MAX),
            "18446744073709551615 bytes",
        ),
        ("--duration 1s", |report, _| report.received[0].bytes = u64::MAX, "18446744073709551615 bytes"),
        ("", |report, _| report.received[0].bytes += 1, "3000001 bytes on stream 0, which can have carried 3000000"),
        ("", |report, _| report.received[0].bytes -= 1, "the run of 3000000 bytes ended with 2999999"),
        (
            "--duration 1s",
            |report, _| report.received[0].bytes = report.received[0].bytes * 2 + 1_000_000,
            "which can have carried",
        ),
        ("", |report, _| report.received[0].last_ns = u64::MAX, "ended at a time that was not in the run"),
        (
            "",
            |report, _| report.received[0].first_ns = report.received[0].last_ns + 1,
            "ended at a time that was not in the run",
        ),
        ("", |report, _| report.received.push(report.received[0]), "2 streams received, where 1 can have"),
        ("-n 2", |report, _| report.received.truncate(1), "1 streams received, where 2 can have"),
        ("--reverse", |report, _| report.end.mss = u32::MAX, "segments of 4294967295 bytes"),
        ("--reverse", |_, samples| samples[0].bytes = u64::MAX, "18446744073709551615 bytes on stream 0"),
        ("--reverse", |_, samples| samples[0].stream = 1, "a sample of another stream, side or time"),
        ("", |report, _| report.cpu_s = -1.0, "-1 s of a processor"),
    ];
    for (flags, lie, says) in lies {
        let size = if flags.contains("--duration") { "" } else { "--size 3MB" };
        for output in ["--json", "--iperf3-json"] {
            let address = relay(&server, lie);
            let out = fullpipe(&format!("measure {address} {size} {flags} {output}"));
            let (code, text) = error(&out);
            assert!(
                code == 4 && text.contains("reports what cannot be") && text.contains(says),
                "{says}: {code} {text}"
            );
            assert_eq!(text.lines().count(), 1, "{text}");
            if output == "--json" {
                assert!(out.stdout.is_empty(), "{says}");
                continue;
            }
            // iperf3 prints an object for every run; of one that failed it has the reason, and nothing measured.
            let all: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
            assert!(all["error"].as_str().unwrap().contains(says), "{all}");
            assert!(all["end"] == serde_json::json!({}) && all["intervals"] == serde_json::json!([]), "{all}");
        }
    }
    // Of datagrams, and of UDT's own counts.
    let lies: [(&str, Lie, &str); 4] = [
        (
            "udp --pacing 50mbit",
            |report, _| report.received[0].udp.as_mut().unwrap().datagrams_lost = u64::MAX,
            "more datagrams than",
        ),
        (
            "udp --pacing 50mbit",
            |report, _| report.received[0].udp.as_mut().unwrap().jitter_ns = u64::MAX,
            "a jitter that is longer",
        ),
        ("udp --pacing 50mbit", |report, _| report.received[0].udp = None, "the counts of another transport"),
        (
            "udt --reverse",
            |_, samples| samples[0].udt.as_mut().unwrap().pkt_retrans = u64::MAX,
            "packets were sent again",
        ),
    ];
    for (transport, lie, says) in lies {
        let address = relay(&server, lie);
        let (code, text) = error(&fullpipe(&format!("measure {address} --size 3MB --transport {transport}")));
        assert!(code == 4 && text.contains(says), "{says}: {code} {text}");
    }
}
