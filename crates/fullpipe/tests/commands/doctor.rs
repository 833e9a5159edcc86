//! What this host's limits cost, asked as a person asks.

use crate::common::{Server, error, fullpipe, json_lines};

#[test]
fn this_host() {
    let lines = json_lines(&fullpipe("doctor --json --rtt 366ms --rate 400gbit"));
    assert_eq!(lines[0]["kind"], "doctor");
    assert_eq!(lines[0]["version"], 1);
    assert_eq!(lines[0]["bdp_bytes"], 18.3e9);
    let findings = &lines[1..];
    assert!(findings.iter().all(|finding| finding["kind"] == "finding"));
    // No window is that large, on any host.
    let one = findings.iter().find(|finding| finding["subject"] == "one stream").unwrap();
    assert_eq!(one["state"], "costs");
    assert!((one["leaves_bps"].as_f64().unwrap() / 23.47e9 - 1.0).abs() < 1e-3, "{one}");
    let (code, text) = error(&fullpipe("doctor --strict --rtt 366ms --rate 400gbit"));
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("rate, time or processor"), "{text}");
    let output = fullpipe("doctor --all --rtt 366ms --rate 400gbit");
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("checked for 400.0 Gb/s (as given) over 366 ms (as given)"), "{text}");
    for finding in findings {
        assert!(text.contains(finding["subject"].as_str().unwrap()), "{finding}");
    }
}

#[test]
fn what_it_leaves_out_of_a_path_is_said() {
    let output = fullpipe("doctor lab:rtt=10ms,rate=1gbit,loss_back=1e-3,disk_b=1GB/s");
    assert_eq!(output.status.code(), Some(0));
    let note = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(note, "note: doctor uses the path's rtt and rate, and ignores loss_back, disk_b\n");
    let (code, text) = error(&fullpipe("doctor lab:rtt=10ms,rate=1gbit,mount=nfs"));
    assert!(code == 2 && text.contains("give mount:FOLDER for a mount of this host"), "{code}: {text}");
}

#[test]
fn towards_a_host() {
    let server = Server::start("");
    let lines = json_lines(&fullpipe(&format!("doctor {} --json", server.address)));
    assert_eq!(lines[0]["interfaces"], serde_json::json!(["lo"]));
    assert_eq!(lines[0]["rtt_from"], format!("measured to {}", server.address));
    assert!(lines[0]["rtt_s"].as_f64().unwrap() < 0.1, "{}", lines[0]);
    let queue = lines.iter().find(|line| line["subject"] == "lo qdisc").unwrap();
    assert_eq!(queue["read"], "noqueue");
    // Nobody serves there: said, and judged all the same, as a path within this host.
    let lines = json_lines(&fullpipe("doctor 127.0.0.1:1 --json"));
    assert_eq!(lines[0]["rtt_s"], 5e-5);
    let far = lines.iter().find(|line| line["subject"] == "far end").unwrap();
    assert_eq!(far["state"], "unknown");
}
