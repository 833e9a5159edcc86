//! What `fullpipe measure` shows while it measures and of a part of a run: intervals, what is omitted, interruption, repetition.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{NO_CONFIG, Server, error, fullpipe, json_lines};

#[test]
fn intervals_come_while_the_run_goes_on() {
    let server = Server::start("");
    for flags in ["", "--reverse", "--transport udt"] {
        let begun = Instant::now();
        let words = format!("measure {} --duration 2s --interval 0.5s --pacing 200mbit --json {flags}", server.address);
        let mut child = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
            .args(words.split_whitespace())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let seen = begun.elapsed();
        assert!(first["kind"] == "interval" && seen < Duration::from_millis(1_900), "{seen:?}: {first}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert!((now - first["unix_s"].as_f64().unwrap()).abs() < 1.5, "{first}");
        let rest: Vec<serde_json::Value> = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
        assert!(child.wait().unwrap().success());
        let mut intervals = vec![first];
        intervals.extend(rest.iter().filter(|line| line["kind"] == "interval").cloned());
        assert!((4..=5).contains(&intervals.len()), "{flags}: {intervals:?}");
        // Each has its time of day, also the last.
        for interval in &intervals {
            let of_zero = |interval: &serde_json::Value| {
                interval["unix_s"].as_f64().unwrap() - interval["end_s"].as_f64().unwrap()
            };
            assert!((of_zero(interval) - of_zero(&intervals[0])).abs() < 0.3, "{flags}: {intervals:?}");
        }
        // They tell of the same bytes as the record's last samples of this side, and join each other.
        let end = if flags == "--reverse" { "receiver" } else { "sender" };
        let last = rest.iter().rev().find(|line| line["kind"] == "sample" && line["end"] == end).unwrap();
        let sum: u64 = intervals.iter().map(|interval| interval["bytes"].as_u64().unwrap()).sum();
        let all = last["bytes"].as_u64().unwrap();
        assert_eq!(sum, all, "{flags}");
        assert!(intervals.windows(2).all(|two| two[0]["end_s"] == two[1]["begin_s"]), "{intervals:?}");
        assert_eq!(intervals[0]["retransmits"].is_u64(), end == "sender", "{flags}");
        assert_eq!(intervals[0]["rtt_s"].is_f64(), end == "sender", "{flags}");
    }
}

#[test]
fn intervals_are_lines_of_a_table() {
    let server = Server::start("");
    let out = fullpipe(&format!("measure {} --duration 1s --interval 250ms --pacing 100mbit", server.address));
    let text = String::from_utf8(out.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].trim_start().starts_with("seconds") && lines[0].ends_with("window"), "{text}");
    assert!(lines[1].contains("0.00-0.25") && lines[1].contains("b/s") && lines[1].ends_with('B'), "{text}");
    assert!(lines.iter().any(|line| line.starts_with("goodput ")), "{text}");
}

/// What is printed beside a rate gives that rate.
#[test]
fn printed_bytes_and_seconds_give_the_printed_rate() {
    let server = Server::start("");
    for flags in ["", "-n 3 --reverse", "--transport udt", "--pacing 50mbit"] {
        let text = fullpipe(&format!("measure {} --duration 700ms {flags}", server.address)).stdout;
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("goodput     ")).unwrap();
        let (rate, rest) = line.split_once(" (").unwrap();
        let (bytes, time) = rest.split_once(" bytes in ").unwrap();
        let value = |words: &str, units: &[(&str, f64)]| {
            let (number, unit) = words.split_once(' ').unwrap();
            let factor = units.iter().find(|(name, _)| *name == unit).unwrap().1;
            number.parse::<f64>().unwrap() * factor
        };
        let bps = value(rate, &[("Gb/s", 1e9), ("Mb/s", 1e6), ("kb/s", 1e3)]);
        let seconds = value(time.split([',', ')']).next().unwrap(), &[("s", 1.0), ("ms", 1e-3)]);
        let bytes: f64 = bytes.replace(',', "").parse().unwrap();
        // Rate and time have four digits.
        assert!((bytes * 8.0 / seconds / bps - 1.0).abs() < 2e-3, "{text}");
    }
}

/// A line of CSV by its columns.
type CsvRow = BTreeMap<String, String>;

/// Lines of CSV, by the names of the first line.
fn csv_rows(text: &str) -> Vec<CsvRow> {
    let mut lines = text.split_terminator("\r\n").map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let row = |fields: Vec<&str>| {
        assert_eq!(fields.len(), names.len(), "{fields:?}");
        names.iter().zip(fields).map(|(name, field)| ((*name).to_owned(), field.to_owned())).collect()
    };
    lines.map(row).collect()
}

fn csv_number(row: &CsvRow, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|e| panic!("{column} {e}: {row:?}"))
}

#[test]
fn csv_has_a_row_for_each_interval_and_one_for_the_run() {
    let server = Server::start("");
    for (flags, streams) in [
        ("-n 3", 3),
        ("--reverse", 1),
        ("--transport udt -n 2", 2),
        ("--transport udp -n 2", 2),
        ("--transport udp --reverse", 1),
        ("--bidir -n 2", 2),
        ("--bidir --transport udt", 1),
    ] {
        let words = format!("measure {} --duration 1500ms -i 500ms --pacing 100mbit --csv {flags}", server.address);
        let out = fullpipe(&words);
        let (code, told) = error(&out);
        assert_eq!(code, 0, "{flags}: {told}");
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(text.ends_with("\r\n") && text.matches('\n').count() == text.matches("\r\n").count(), "{text}");
        let rows = csv_rows(&text);
        let directions: &[&str] = match flags {
            _ if flags.contains("--bidir") => &["send", "receive"],
            _ if flags.contains("--reverse") => &["receive"],
            _ => &["send"],
        };
        for direction in directions {
            let rows: Vec<&CsvRow> = rows.iter().filter(|row| row["direction"] == *direction).collect();
            let of = |kind: &str, stream: &str| -> Vec<&CsvRow> {
                rows.iter().filter(|row| row["kind"] == kind && row["stream"] == stream).copied().collect()
            };
            let (all, results) = (of("interval", "all"), of("result", "all"));
            // A busy machine may take samples late.
            assert!((2..=4).contains(&all.len()) && results.len() == 1, "{flags}: {text}");
            let (result, first) = (results[0], all[0]);
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
            assert!((now - csv_number(all[0], "unix_s")).abs() < 20.0, "{flags}: {text}");
            for two in all.windows(2) {
                assert_eq!(two[0]["end_s"], two[1]["start_s"], "{flags}");
            }
            let total: f64 = all.iter().map(|row| csv_number(row, "bytes")).sum();
            let bytes = csv_number(result, "bytes");
            assert!(total <= bytes * 1.1 && total > bytes * 0.5, "{flags}: {total} of {bytes}\n{text}");
            let seconds = csv_number(result, "end_s") - csv_number(result, "start_s");
            assert!((1.3..1.9).contains(&seconds), "{flags}: {result:?}");
            let goodput = csv_number(result, "bits_per_second");
            assert!((goodput / (bytes * 8.0 / seconds) - 1.0).abs() < 1e-4, "{flags}: {result:?}");
            for row in &all {
                let seconds = csv_number(row, "end_s") - csv_number(row, "start_s");
                let rate = csv_number(row, "bytes") * 8.0 / seconds;
                assert!((csv_number(row, "bits_per_second") / rate - 1.0).abs() < 1e-3, "{row:?}");
            }
            // A stream has rows of its own, and they add up.
            for (i, row) in all.iter().enumerate() {
                let parts: f64 = (0..streams)
                    .filter_map(|stream| of("interval", &stream.to_string()).get(i).map(|row| csv_number(row, "bytes")))
                    .sum();
                let wanted = if streams > 1 { csv_number(row, "bytes") } else { 0.0 };
                assert!((parts - wanted).abs() < 0.5, "{flags}: {text}");
            }
            let (udp, sends) = (flags.contains("udp"), *direction == "send");
            assert_eq!(first["retransmits"].is_empty(), udp || !sends, "{flags}: {first:?}");
            assert_eq!(first["rtt_ms"].is_empty(), udp || !sends, "{flags}: {first:?}");
            assert_eq!(first["cwnd_bytes"].is_empty(), !sends || flags.contains("ud"), "{flags}: {first:?}");
            assert_eq!(first["datagrams_received"].is_empty(), !udp, "{flags}: {first:?}");
            assert_eq!(result["jitter_ms"].is_empty(), !udp, "{flags}: {result:?}");
        }
    }
}

#[test]
fn csv_comes_while_the_run_goes_on_and_counts_repeated_runs() {
    let server = Server::start("");
    let words = format!("measure {} --duration 3s --csv --pacing 50mbit --omit 1s --repeat 2", server.address);
    let begun = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
        .args(words.split_whitespace())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let header = lines.next().unwrap().unwrap();
    let first = lines.next().unwrap().unwrap();
    // All of it takes 6 s.
    assert!(
        first.starts_with("interval,1,send,all,0.000000,1.") && begun.elapsed() < Duration::from_secs(5),
        "{first}"
    );
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success());
    let rows = csv_rows(
        &[&[header, first][..], &rest].concat().iter().map(|l| format!("{}\r\n", l.trim_end())).collect::<String>(),
    );
    for run in ["1", "2"] {
        let of = |kind: &str| rows.iter().filter(|row| row["run"] == run && row["kind"] == kind).collect::<Vec<_>>();
        assert_eq!((of("result").len(), of("after_omitted").len()), (1, 1), "{rows:?}");
        assert!((4..=5).contains(&of("interval").len()), "{rows:?}");
        assert!(csv_number(of("after_omitted")[0], "start_s") >= 1.0);
    }
}

/// Width of the terminals here.
const COLUMNS: u16 = 100;

/// Runs `fullpipe` with a terminal of this many rows as its standard error. Returns what the terminal got, and standard output.
fn on_terminal(rows: u16, words: &str) -> (String, String) {
    let size = Winsize { ws_row: rows, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
    let OpenptyResult { master, slave } = openpty(Some(&size), None).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    command.args(words.split_whitespace()).env("XDG_CONFIG_HOME", NO_CONFIG).env("TERM", "xterm");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(slave).spawn().unwrap();
    // What holds the other side of the terminal would keep it open.
    drop(command);
    let reader = std::thread::spawn(move || {
        let (mut shown, mut chunk) = (Vec::new(), [0; 4096]);
        // A terminal ends with an error once the other side is closed.
        while let Ok(n) = nix::unistd::read(&master, &mut chunk)
            && n > 0
        {
            shown.extend_from_slice(&chunk[..n]);
        }
        String::from_utf8(shown).unwrap()
    });
    let out = child.wait_with_output().unwrap();
    let shown = reader.join().unwrap();
    assert!(out.status.success(), "{words}: {shown}");
    (shown, String::from_utf8(out.stdout).unwrap())
}

/// The tables that a terminal got, without control sequences, each from its title to its sum.
fn tables(shown: &str) -> Vec<Vec<String>> {
    let mut tables: Vec<Vec<String>> = Vec::new();
    for part in shown.split("\u{1b}[") {
        let text = part.trim_start_matches(|c: char| c.is_ascii_digit());
        // A control sequence ends with a letter. Lines are filled up to the terminal's width.
        let text: Vec<char> = text.chars().skip(usize::from(part != shown && !shown.starts_with(part))).collect();
        let lines = text.chunks(COLUMNS.into()).map(|line| line.iter().collect::<String>().trim().to_owned());
        for line in lines.filter(|line| !line.is_empty()) {
            if line.starts_with("sent, ") || line.starts_with("received, ") {
                tables.push(Vec::new());
            }
            tables.last_mut().unwrap().push(line);
        }
    }
    tables
}

#[test]
fn a_terminal_shows_each_stream_while_the_run_goes_on() {
    let server = Server::start("");
    let words = format!("measure {} -n 3 --duration 2s --pacing 100mbit --watch", server.address);
    let (shown, out) = on_terminal(40, &format!("{words} -i 500ms"));
    let seen = tables(&shown);
    assert!((3..=5).contains(&seen.len()), "{shown:?}");
    for (i, table) in seen.iter().enumerate() {
        assert!(table[0].starts_with(&format!("sent, {:.1}-", i as f64 / 2.0)), "{table:?}");
        assert!(table[1].starts_with("stream") && table[1].ends_with("window"), "{table:?}");
        let firsts: Vec<&str> = table[2..6].iter().map(|line| line.split_whitespace().next().unwrap()).collect();
        assert_eq!(firsts, ["0", "1", "2", "all"], "{table:?}");
        assert!(table[2..6].iter().all(|line| line.contains("b/s") && line.ends_with('B')), "{table:?}");
    }
    // The last one is taken away, and the usual result follows.
    let (_, after_sum) = shown.rsplit_once("all  ").unwrap();
    assert!(after_sum.matches("\u{1b}[2K").count() == 6, "{shown:?}");
    assert!(out.starts_with("path  ") && out.contains("goodput  ") && !out.contains("seconds"), "{out}");
    // Few lines have room for some streams only; both directions have half of them each.
    let (shown, _) = on_terminal(9, &words.replace("-n 3", "-n 30"));
    for table in tables(&shown) {
        assert!(table.len() == 8 && table[6].ends_with("26 faster streams"), "{table:?}");
    }
    let (shown, out) = on_terminal(20, &format!("{words} --bidir --csv"));
    let seen = tables(&shown);
    assert!(seen.iter().any(|table| table[0].starts_with("sent")), "{shown:?}");
    assert!(seen.iter().any(|table| table[0].starts_with("received")), "{shown:?}");
    assert!(csv_rows(&out).iter().filter(|row| row["kind"] == "result").count() == 2, "{out}");
    let (shown, _) =
        on_terminal(20, &format!("measure {} --transport udp --pacing 10mbit --duration 2s --watch", server.address));
    assert!(tables(&shown)[0][1].ends_with("jitter"), "{shown:?}");
}

#[test]
fn what_cannot_be_watched_is_refused() {
    for (words, why) in [
        ("127.0.0.1:1 --watch", "--watch needs a terminal on standard error; --interval prints lines anywhere"),
        ("lab:rtt=1ms,rate=1gbit --watch", "--watch is for a host that runs 'fullpipe serve'"),
        ("127.0.0.1:1 --watch --quiet", "cannot be used with"),
        ("disk:/tmp --watch", "--watch is for a path between hosts"),
        ("disk:/tmp --csv", "--csv is for a path between hosts"),
    ] {
        let (code, text) = error(&fullpipe(&format!("measure {words}")));
        assert!(code == 2 && text.contains(why), "{words}: {code} {text}");
    }
}

#[test]
fn the_beginning_can_be_left_out() {
    let server = Server::start("");
    for flags in ["", "--reverse"] {
        let words = format!("measure {} --duration 1s --omit 1s --pacing 100mbit {flags}", server.address);
        let record = json_lines(&fullpipe(&format!("{words} --json")));
        let result = &record[record.len() - 1];
        let later = &result["after_omitted"];
        let (seconds, all_s) = (later["seconds"].as_f64().unwrap(), result["seconds"].as_f64().unwrap());
        assert!((0.8..1.2).contains(&seconds) && (1.9..2.4).contains(&all_s), "{result}");
        let (bytes, goodput) = (later["bytes"].as_f64().unwrap(), later["goodput_bps"].as_f64().unwrap());
        assert!((goodput * seconds / 8.0 / bytes - 1.0).abs() < 1e-9 && goodput < 103e6, "{result}");
        assert!(bytes < result["bytes"].as_f64().unwrap() * 0.7, "{result}");
        assert_eq!(later["omit_s"], 1.0);
        let text = String::from_utf8(fullpipe(&words).stdout).unwrap();
        assert!(text.contains(" after the first 1.000 s ("), "{text}");
    }
    let record = json_lines(&fullpipe(&format!("measure {} --size 1MB --omit 9s --json", server.address)));
    let later = &record[record.len() - 1]["after_omitted"];
    // Without a beginning, there is one rate.
    let record_of_all = json_lines(&fullpipe(&format!("measure {} --size 1MB --omit 0s --json", server.address)));
    assert!(record_of_all[record_of_all.len() - 1].get("after_omitted").is_none());
    assert!(later["goodput_bps"].is_null() && later["no_rate"].as_str().unwrap().contains("omit less"), "{later}");
}

#[test]
fn an_interrupted_measurement_tells_what_it_has_seen() {
    let server = Server::start("");
    let dir = tempfile::tempdir().unwrap();
    for (number, flags) in ["", "--reverse", "--transport udt", "--size 100GB"].iter().enumerate() {
        let out = dir.path().join(format!("{number}.ndjson"));
        let time = if flags.contains("--size") { "" } else { "--duration 60s" };
        let words = format!("measure {} --pacing 200mbit {time} {flags} --out", server.address);
        let child = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
            .args(words.split_whitespace())
            .arg(&out)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_secs(2));
        let stopped = Instant::now();
        kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
        let done = child.wait_with_output().unwrap();
        assert!(stopped.elapsed() < Duration::from_secs(5), "{flags}");
        let (code, text) = error(&done);
        assert!(code == 130 && text.contains("interrupted; the result is of what had been sent"), "{flags}: {text}");
        assert!(String::from_utf8_lossy(&done.stdout).contains("goodput  "), "{flags}");
        let record = std::fs::read_to_string(out).unwrap();
        let result: serde_json::Value = serde_json::from_str(record.lines().last().unwrap()).unwrap();
        assert_eq!(result["interrupted"], true, "{flags}");
        let (seconds, goodput) = (result["seconds"].as_f64().unwrap(), result["goodput_bps"].as_f64().unwrap());
        assert!((0.5..4.0).contains(&seconds) && (100e6..230e6).contains(&goodput), "{flags}: {result}");
    }
    // Before data move there is nothing to tell: ten probes, one a second, come first.
    let child = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
        .args(["measure", &server.address, "--duration", "2s", "--probe=1s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let stopped = Instant::now();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(stopped.elapsed() < Duration::from_secs(4));
    let (code, text) = error(&done);
    assert!(code == 130 && text.contains("interrupted"), "{code} {text}");
    assert!(!String::from_utf8_lossy(&done.stdout).contains("goodput"));
    // The server is well.
    let record = json_lines(&fullpipe(&format!("measure {} --size 1MB --json", server.address)));
    assert!(record[record.len() - 1].get("interrupted").is_none());
}

#[test]
fn a_measurement_is_repeated() {
    let server = Server::start("");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let begun = Instant::now();
    let words = format!("measure {} --size 20MB --repeat 3 --every 1s --out {out}", server.address);
    let done = fullpipe(&words);
    assert_eq!(error(&done), (0, String::new()));
    assert!(begun.elapsed() >= Duration::from_secs(2));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    assert_eq!(String::from_utf8(done.stdout).unwrap().matches("record  ").count(), 3);
    // A server that is gone for a while does not end the series.
    let address = server.address.clone();
    drop(server);
    let (code, text) = error(&fullpipe(&format!("measure {address} --size 1MB --repeat 2")));
    assert!(code == 4 && text.ends_with("error: 2 of 2 measurements failed\n"), "{text}");
    for (flags, why) in [
        ("--every 1s", "--repeat"),
        ("--repeat 2 --every 1s", "is shorter than a measurement, 10s"),
        ("--repeat 0", "0 is not in 1.."),
        ("--repeat 2 --out x.ndjson", "give a folder instead of x.ndjson"),
        ("--interval 50ms --sample 100ms", "is no multiple of --sample 100ms"),
        ("--omit 50ms", "is shorter than --sample 100ms"),
        ("--interval 1ms", "too short"),
    ] {
        let (code, text) = error(&fullpipe(&format!("measure {address} {flags}")));
        assert!(code == 2 && text.contains(why), "{flags}: {text}");
    }
}
