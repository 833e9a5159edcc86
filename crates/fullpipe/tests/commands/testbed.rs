//! The testbed with the real guest kernel, which the tests' command builds first.

use std::time::{Duration, Instant};

use fullpipe_path::{Buffer, LabPath, Transport};

use crate::common::{error, fullpipe, json_lines, without_real};

#[test]
fn udt_fills_a_path_and_repeats_itself() {
    let run = |flags: &str| {
        let words = format!("measure lab:rtt=11.8ms,rate=200mbit --transport udt --duration 2s --json {flags}");
        without_real(json_lines(&fullpipe(&words)))
    };
    let record = run("--pacing 198mbit");
    assert_eq!(record, run("--pacing 198mbit"));
    let result = &record[record.len() - 1];
    assert!(result["goodput_bps"].as_f64().unwrap() > 0.96 * 198e6, "{result}");
    assert_eq!((&result["bottleneck"], &result["retransmits"]), (&"pacing".into(), &0.into()));
    let own = run("");
    let result = &own[own.len() - 1];
    assert!(result["goodput_bps"].as_f64().unwrap() > 0.5 * 200e6, "{result}");
    // Kernel timestamps show the pairs, though the receiver gathers what arrives.
    let capacity = own.iter().rev().find_map(|line| line["mbpsBandwidth"].as_f64().filter(|mbps| *mbps > 0.0)).unwrap();
    assert!((180.0..220.0).contains(&capacity), "{capacity}");
}

#[test]
fn runs_that_measure_more_have_names_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    for flags in ["--duration 1s", "--duration 1s --probe", "--duration 600ms --omit 400ms", "--duration 1s"] {
        fullpipe(&format!("measure lab:rtt=5ms,rate=100mbit {flags} --out {out}"));
    }
    let names = std::fs::read_dir(out).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    let run = names.iter().find_map(|name| name.strip_suffix("-probe100ms.ndjson")).unwrap().to_owned();
    assert_eq!(names, ["-omit400ms", "-probe100ms", ""].map(|more| format!("{run}{more}.ndjson")));
    for name in names {
        let text = std::fs::read_to_string(folder.path().join(&name)).unwrap();
        let id = format!("\"id\":\"{}\"", name.trim_end_matches(".ndjson"));
        assert!(text.lines().next().unwrap().contains(&id), "{name}");
    }
}

/// The window of all streams over UDT is 67 MB at first. This path holds 92 MB, and with a given rate all of them are there at once.
#[test]
fn udt_without_a_given_buffer_fills_a_long_path() {
    let result = |flags: &str| {
        let words = format!("measure lab:rtt=366ms,rate=2gbit --transport udt --duration 4s --json {flags}");
        json_lines(&fullpipe(&words)).pop().unwrap()
    };
    let paced = result("--pacing 1980mbit");
    assert_eq!((&paced["bottleneck"], &paced["retransmits"]), (&"pacing".into(), &0.into()));
    assert!(paced["goodput_bps"].as_f64().unwrap() > 0.97 * 1.98e9, "{paced}");
    // UDT's slow start needs more than that window, which has grown.
    let own = result("");
    assert!(own["window_max"].as_u64().unwrap() > 200_000_000 && own["bottleneck"] != "rwnd", "{own}");
}

/// Over 91.6 ms half a millisecond's packets may be due at once: up to 560 kB, and the queue holds 200.
#[test]
fn a_host_with_fq_spaces_the_packets_of_a_burst() {
    let result = |host: &str| {
        let words = format!(
            "measure lab:rtt=91.6ms,rate=10gbit,queue=200KB{host} --transport udt --pacing 9gbit --duration 1s --json"
        );
        json_lines(&fullpipe(&words)).pop().unwrap()
    };
    let (fifo, fq) = (result(""), result(",host=tuned+qdisc:fq"));
    assert!(fifo["retransmits"].as_u64().unwrap() > 100, "{fifo}");
    assert_eq!((&fq["retransmits"], &fq["bottleneck"]), (&0.into(), &"pacing".into()), "{fq}");
    // Nor does its queue make the path longer, with or without a node that impairs it.
    for loss in ["", ",loss=0.001", ",loss=0.001,loss_back=0.001"] {
        let words = format!("measure lab:rtt=8ms,rate=100mbit{loss},host=stock+qdisc:fq --cc reno --size 2MB --json");
        let record = json_lines(&fullpipe(&words));
        let rtt_s = record[0]["rtt_s"].as_f64().unwrap();
        assert!((0.008..0.0082).contains(&rtt_s), "{loss}: {rtt_s}");
        assert_eq!(record[record.len() - 1]["bytes"], 2_000_000, "{loss}");
    }
}

#[test]
fn what_keeps_datagrams_below_their_rate_is_named() {
    let above = fullpipe("measure lab:rtt=20ms,rate=100mbit --transport udt --pacing 200mbit --duration 1s");
    let text = String::from_utf8(above.stdout).unwrap();
    assert!(text.contains("pacing: the rate that --pacing sets is above that of the path"), "{text}");
    let small = "rtt=20ms,rate=1gbit,host_b=stock+rmem_max:4608+user:user";
    let (code, text) = error(&fullpipe(&format!("measure lab:{small} --transport udt --duration 1s")));
    assert!(code == 0 && text.contains("granted SO_RCVBUF 4.608KB instead of 16MB"), "{text}");
    let (_, text) = error(&fullpipe("measure lab:rtt=20ms,rate=1gbit --transport udt --duration 1s"));
    assert!(!text.contains("SO_RCVBUF"), "{text}");
}

#[test]
fn one_description_one_record() {
    for path in [
        "lab:rtt=11.8ms,rate=1gbit",
        "lab:rtt=11.8ms,rate=1gbit,loss=1e-3,loss_back=1e-3,jitter=1ms,reorder=1e-3,duplicate=1e-3",
        "lab:rtt=11.8ms,rate=1gbit,mtu=1500,cross=udp:300mbit,host_noise=5ms",
    ] {
        let run = |seed: u32| {
            let words = format!("measure {path} --size 30MB --streams 3 --cc bbr --seed {seed} --sample 10ms --json");
            without_real(json_lines(&fullpipe(&words)))
        };
        let first = run(1);
        assert_eq!(first.last().unwrap()["bytes"], 30_000_000);
        assert!(first == run(1), "{path}: two runs of one seed differ");
        assert!(first.last() != run(2).last(), "{path}: two seeds agree");
    }
}

#[test]
fn both_directions_at_once_have_a_path_each() {
    let words = "measure lab:rtt=10ms,rate=200mbit --bidir --size 20MB --buffer 8MB --json";
    let run = || without_real(json_lines(&fullpipe(words)));
    let lines = run();
    let of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).collect::<Vec<_>>();
    let (headers, results) = (of("run"), of("result"));
    assert_eq!(headers.iter().map(|header| &header["direction"]).collect::<Vec<_>>(), ["send", "receive"]);
    assert!(headers.iter().all(|header| header["bidir"] == true && header["path"]["rate"] == "200mbit"));
    for result in &results {
        assert_eq!(result["bytes"], 20_000_000);
        // The acknowledgements of the other direction take a little of the rate.
        assert!((100e6..200e6).contains(&result["goodput_bps"].as_f64().unwrap()), "{result}");
    }
    assert_eq!((results.len(), &lines), (2, &run()));
}

#[test]
fn probes_show_the_queue_that_a_run_makes() {
    let words = "measure lab:rtt=10ms,rate=100mbit,queue=1MB --probe=20ms --duration 3s --buffer 8MB --json";
    let record = json_lines(&fullpipe(words));
    let probe = &record.last().unwrap()["probe"];
    let (idle, loaded) = (probe["idle"]["p50_s"].as_f64().unwrap(), probe["loaded"]["p95_s"].as_f64().unwrap());
    // The queue holds 80 ms.
    assert!((0.010..0.012).contains(&idle) && (0.05..0.11).contains(&loaded), "{probe}");
    assert!(probe["grade"] == "C" && probe.get("ended").is_none(), "{probe}");
}

#[test]
fn the_record_tells_what_the_path_did() {
    let record = json_lines(&fullpipe(
        "measure lab:rtt=45.6ms,rate=10gbit,queue=4MB --size 300MB --buffer 256MB --cc reno --json",
    ));
    let (header, result) = (&record[0], record.last().unwrap());
    assert!((header["rtt_s"].as_f64().unwrap() - 0.0456).abs() < 10e-6, "{}", header["rtt_s"]);
    assert_eq!(header["path"]["queue"], "4MB");
    assert_eq!(header["sender"]["mtu"], 9000);
    assert!(result["queue_drops"].as_u64().unwrap() > 0);
    assert_eq!(result["queue_drops"], result["retransmits"]);
    let deepest = result["queue_deepest"].as_u64().unwrap();
    assert!(deepest > 0 && deepest <= 4_000_000, "{deepest}");
    assert!(record.iter().any(|line| line["kind"] == "queue" && line["backlog_bytes"].as_u64() > Some(0)));
    assert_eq!(result["bottleneck"], "cwnd");
}

/// The bottleneck has a queue for each direction, and random losses are of one direction.
#[test]
fn queue_and_losses_are_those_of_the_direction_of_the_data() {
    let results = |words: &str| -> Vec<_> {
        let lines = json_lines(&fullpipe(&format!("measure {words} --duration 2s --json")));
        let queued = lines.iter().any(|line| line["kind"] == "queue" && line["backlog_bytes"].as_u64() > Some(20_000));
        assert!(queued, "{words}");
        lines.into_iter().filter(|line| line["kind"] == "result").collect()
    };
    for flag in ["", "--reverse", "--bidir"] {
        for result in results(&format!("lab:rtt=10ms,rate=100mbit {flag}")) {
            assert!(result["queue_drops"].as_u64() > Some(0), "{flag}: {result}");
            // Some duplicates of what SACK or a tail probe sent again are no drops.
            assert!(result["retransmits"].as_u64() >= result["queue_drops"].as_u64(), "{flag}: {result}");
            let deepest = result["queue_deepest"].as_u64().unwrap();
            assert!((20_000..=125_000).contains(&deepest), "{flag}: {result}");
        }
    }
    // `loss` is of the way to the server, where only acknowledgements are with --reverse.
    let lossy = |flag: &str, loss: &str| {
        let results = results(&format!("lab:rtt=10ms,rate=100mbit,{loss}=1e-2 {flag}"));
        results.iter().map(|result| result["random_losses"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert!(lossy("", "loss")[0] > 0);
    assert_eq!(lossy("--reverse", "loss"), [0]);
    assert!(lossy("--reverse", "loss_back")[0] > 0);
    let both = lossy("--bidir", "loss");
    assert!(both[0] > 0 && both[1] == 0, "{both:?}");
}

/// The text has the same losses as the record, of every transport.
#[test]
fn the_text_names_random_losses() {
    for flags in ["", "--transport udt", "--transport udp --pacing 50mbit"] {
        let words = format!("measure lab:rtt=10ms,rate=100mbit,loss=1e-2 --duration 2s {flags}");
        let record = json_lines(&fullpipe(&format!("{words} --json")));
        let result = record.last().unwrap();
        let [queue, random] = ["queue_drops", "random_losses"].map(|key| result[key].as_u64().unwrap());
        assert!(random > 0, "{result}");
        let text = String::from_utf8(fullpipe(&words).stdout).unwrap();
        let line = text.lines().find(|line| line.starts_with("loss ")).unwrap();
        let packets = if queue == 1 { "packet" } else { "packets" };
        let words = format!(", {queue} {packets} dropped by the bottleneck's queue, {random} lost at random");
        assert!(line.ends_with(&words), "{line} {result}");
    }
}

#[test]
fn segments_that_the_path_cannot_carry_are_warned_of() {
    for (mss, warned) in [(9_000, true), (1_460, false)] {
        let out = fullpipe(&format!("measure lab:rtt=10ms,rate=100mbit,mtu=1500 --mss {mss} --size 1MB"));
        let (code, text) = error(&out);
        assert_eq!((code, text.contains("MSS of 1448 instead of 9000")), (0, warned), "{text}");
    }
}

/// A stream that fills its queue of one BDP waits in it; one whose window is half a BDP finds none.
#[test]
fn the_record_tells_what_the_load_does_to_the_round_trip() {
    let rtt = |buffer: &str| {
        let words = format!("measure lab:rtt=20ms,rate=100mbit --cc reno --duration 3s --buffer {buffer} --json");
        let record = json_lines(&fullpipe(&words));
        let loaded = record[record.len() - 1]["loaded_rtt"].clone();
        let [least, median, high, most] = ["min_s", "p50_s", "p95_s", "max_s"].map(|key| loaded[key].as_f64().unwrap());
        assert!(least <= median && median <= high && high <= most, "{loaded}");
        assert!(loaded["samples"].as_u64().unwrap() > 20, "{loaded}");
        (record[0]["rtt_s"].as_f64().unwrap(), median, high)
    };
    let (idle, median, high) = rtt("2MB");
    assert!((0.0199..0.0202).contains(&idle) && median > 1.3 * idle && high > 1.5 * idle, "{median} {high}");
    assert!(high < 2.1 * idle, "{high}");
    let (_, median, high) = rtt("62KB");
    assert!(median < 1.1 * idle && high < 1.2 * idle, "{median} {high}");
}

/// The queue counts packets as the sender does, also where several would fit into its burst.
#[test]
fn small_packets_fill_the_path_and_are_counted_one_by_one() {
    let path = "lab:rtt=10ms,rate=100mbit,mtu=1500,queue=50KB";
    let last = |words: &str| json_lines(&fullpipe(&format!("{words} --json"))).pop().unwrap();
    let result = last(&format!("measure {path} --mss 536 --duration 3s"));
    assert_eq!(result["bottleneck"], "path", "{result}");
    let (dropped, resent) = (result["queue_drops"].as_u64().unwrap(), result["retransmits"].as_u64().unwrap());
    assert!(dropped > 5 && dropped == resent, "{result}");
    let words = format!("measure {path} --transport udp --datagram-size 100 --pacing 80mbit --duration 2s --omit 1s");
    let result = last(&words);
    assert_eq!(result["bottleneck"], "path", "{result}");
    let count = |udp: &serde_json::Value, name: &str| udp[name].as_u64().unwrap();
    let lost = count(&result["udp"], "lost");
    // Those that were dropped at the very end are not known to be lost.
    assert!(lost > 1_000 && (lost..lost + 1_000).contains(&result["queue_drops"].as_u64().unwrap()), "{result}");
    let later = &result["after_omitted"]["udp"];
    assert!(count(later, "sent") >= count(later, "received") + count(later, "lost"), "{later}");
}

/// Who waits for what was lost has nothing to send, whatever its buffer.
#[test]
fn heavy_loss_is_no_small_buffer() {
    let result =
        json_lines(&fullpipe("measure lab:rtt=10ms,rate=100mbit,loss=0.5 --duration 10s --json")).pop().unwrap();
    assert!(result["retransmits"].as_u64() > Some(10) && result["bottleneck"] == "cwnd", "{result}");
}

/// Others' traffic leaves a part of the path.
#[test]
fn a_path_that_is_shared_is_full_too() {
    let words = "measure lab:rtt=20ms,rate=100mbit,cross=udp:50mbit --duration 4s --json";
    let result = json_lines(&fullpipe(words)).pop().unwrap();
    assert!(result["goodput_bps"].as_f64() < Some(52e6) && result["bottleneck"] == "path", "{result}");
}

#[test]
fn no_rate_is_above_the_capacity_of_the_path() {
    let measure = |path: &str, flags: &str| {
        let record = json_lines(&fullpipe(&format!("measure lab:{path} {flags} --json")));
        record.last().unwrap().clone()
    };
    for (path, flags, has_rate) in [
        // One packet takes 9 s, and the bucket lets the first one pass at once.
        ("rtt=10ms,rate=8kbit", "--duration 3s", false),
        ("rtt=10ms,rate=100mbit", "--size 8KB", false),
        ("rtt=10ms,rate=100mbit", "--size 20KB --streams 2", false),
        ("rtt=10ms,rate=64kbit", "--duration 20s", true),
        ("rtt=1ms,rate=100mbit", "--size 200KB", true),
        ("rtt=1ms,rate=100mbit,jitter=500us", "--size 1MB --streams 3", true),
        ("rtt=20ms,rate=1gbit", "--duration 3s --pacing 1mbit --streams 64", true),
    ] {
        let result = measure(path, flags);
        let lab: LabPath = path.parse().unwrap();
        let cubic =
            Transport { cc: "cubic".into(), streams: 1, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None };
        let capacity = lab.capacity(&cubic);
        assert_eq!(result["goodput_bps"].is_f64(), has_rate, "{path} {flags}: {result}");
        assert_eq!(result["no_rate"].is_null(), has_rate);
        if let Some(goodput) = result["goodput_bps"].as_f64() {
            assert!(goodput <= capacity * 1.001, "{path} {flags}: {result}");
            let is_free = !flags.contains("--pacing") && !path.contains("jitter");
            assert!(!is_free || goodput > 0.5 * capacity, "{path} {flags}: {result}");
        }
        if flags.contains("--pacing") {
            assert!((0.9e6..1.05e6).contains(&result["goodput_bps"].as_f64().unwrap()), "{result}");
            assert_eq!(result["bottleneck"], "pacing");
        }
    }
}

#[test]
fn a_path_that_loses_nearly_all_says_so() {
    let (code, text) = error(&fullpipe("measure lab:rtt=50ms,rate=1gbit,loss=0.9 --duration 2s --seed 3"));
    assert!([1, 6].contains(&code), "{code}: {text}");
    assert!(text.starts_with("error: in the testbed, "), "{text}");
    assert!(!text.contains("temporarily unavailable") && !text.contains("--guest"), "{text}");
    assert!(text.trim_end().ends_with("; the path loses 90% of its packets"), "{text}");
}

#[test]
fn each_host_grants_what_its_kernel_does() {
    // The kernel doubles what is asked for, for its bookkeeping (socket(7)).
    let measure = |ends: &str, buffer: &str| {
        let record = json_lines(&fullpipe(&format!(
            "measure lab:rtt=91.6ms,rate=10gbit,{ends} --buffer {buffer} --duration 3s --json"
        )));
        let (header, result) = (&record[0], record.last().unwrap());
        let buffers = [&header["sender"]["sndbuf"], &header["receiver"]["rcvbuf"]].map(|bytes| bytes.as_u64().unwrap());
        (buffers, result["goodput_bps"].as_f64().unwrap(), result["window_max"].as_f64().unwrap())
    };
    let (both, of_two, window) = measure("host=stock", "16MB");
    assert_eq!(both, [425_984, 425_984]);
    // One window each round trip, of about what was granted.
    assert!(
        (200e3..270e3).contains(&window) && (of_two / (window * 8.0 / 0.0916) - 1.0).abs() < 0.05,
        "{of_two}, {window}"
    );
    assert_eq!(measure("host_a=tuned,host_b=stock", "16MB").0, [32_000_000, 425_984]);
    assert_eq!(measure("host_a=stock+wmem_max:1000000,host_b=stock", "16MB").0, [2_000_000, 425_984]);
    let autotuned = measure("host=stock,kernel=6.12", "auto").1;
    let larger = measure("host=stock+tcp_rmem:4096/131072/67108864+tcp_wmem:4096/16384/67108864", "auto").1;
    assert!(autotuned > 5.0 * of_two && larger > 3.0 * autotuned, "{of_two}, {autotuned}, {larger}");
}

#[test]
fn every_congestion_control_of_the_pool_is_there() {
    for cc in "bbr bic cubic highspeed htcp hybla illinois reno scalable vegas veno westwood yeah".split(' ') {
        let record = json_lines(&fullpipe(&format!("measure lab:rtt=1ms,rate=1gbit --size 10MB --cc {cc} --json")));
        assert_eq!(record[0]["sender"]["cc"], cc);
        assert_eq!(record.last().unwrap()["bytes"], 10_000_000);
    }
}

#[test]
fn both_directions_share_the_bottleneck_rate() {
    for flag in ["", "--reverse"] {
        let words = format!("measure lab:rtt=11.8ms,rate=1gbit --duration 5s --buffer 8MB --json {flag}");
        let goodput = json_lines(&fullpipe(&words)).last().unwrap()["goodput_bps"].as_f64().unwrap();
        assert!((0.90e9..0.993e9).contains(&goodput), "{goodput} {flag}");
    }
}

#[test]
fn cross_traffic_takes_its_share() {
    for (cross, least, most) in [("udp:400mbit", 0.5e9, 0.6e9), ("tcp:4x64KB", 0.75e9, 0.92e9)] {
        let words = format!("measure lab:rtt=11.8ms,rate=1gbit,cross={cross} --duration 10s --buffer 8MB --json");
        let goodput = json_lines(&fullpipe(&words)).last().unwrap()["goodput_bps"].as_f64().unwrap();
        assert!((least..most).contains(&goodput), "{cross}: {goodput}");
    }
}

#[test]
fn a_kernel_panic_is_told_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    let text = "path = { rtt = '1ms', rate = '1gbit' }\n[[program]]\nend='a'\nrun=['sh', '-c', 'while :; do :; done']";
    std::fs::write(&file, text).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    let child =
        command.args(["lab", "run", file.to_str().unwrap()]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    // A fault in the kernel itself, as a defect in it would make.
    let guest = std::process::Command::new("pgrep").args(["-P", &child.id().to_string()]).output().unwrap().stdout;
    let guest = String::from_utf8(guest).unwrap();
    assert!(std::process::Command::new("kill").args(["-SEGV", guest.trim()]).status().unwrap().success());
    let (code, text) = error(&child.wait_with_output().unwrap());
    assert_eq!(code, 6);
    assert!(text.contains("the guest's kernel panicked: Kernel panic"), "{text}");
}

#[test]
fn engine_errors_come_out_of_the_guest_as_they_are() {
    let (code, text) = error(&fullpipe("measure lab:rtt=1ms,rate=1gbit,loss=1 --size 1MB"));
    assert!(code == 6 || code == 1, "{code}: {text}");
    assert!(text.starts_with("error: in the testbed, ") && text.contains("10.0.2.1"), "{text}");
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_fullpipe"))
        .args(["measure", "lab:rtt=45.6ms,rate=10gbit", "--duration", "1000s", "--buffer", "256MB", "--out"])
        .arg(dir.path())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let id = child.id().to_string();
    assert!(running(&id), "the guest runs");
    std::process::Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!running(&id), "the guest is gone");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// A hangup that nohup has ignored ends nothing. In the pause after the first run, SIGTERM ends the program at once.
#[test]
fn signals_end_a_pause_and_a_hangup_ends_nothing_under_nohup() {
    let command = "measure lab:rtt=45.6ms,rate=10gbit --duration 10s --buffer 256MB --repeat 2 --every 1h --json";
    let mut child = std::process::Command::new("sh")
        .args(["-c", &format!("trap '' HUP; exec {} {command}", env!("CARGO_BIN_EXE_fullpipe"))])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let id = child.id().to_string();
    let signal = |name: &str| std::process::Command::new("kill").args([name, &id]).status().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert!(running(&id), "the guest runs");
    signal("-HUP");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert!(lines.any(|line| line.unwrap().contains(r#""kind":"result""#)), "the first run is over");
    // The next run is due in an hour.
    std::thread::sleep(Duration::from_millis(500));
    let asked = Instant::now();
    signal("-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(asked.elapsed() < Duration::from_secs(5));
}

/// Whether a guest of this process lives.
fn running(id: &str) -> bool {
    std::process::Command::new("pgrep").args(["-P", id]).output().unwrap().status.success()
}
