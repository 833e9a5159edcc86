//! `fullpipe cp` into the testbed.

use std::fs;
use std::path::PathBuf;

use crate::common::{error, fullpipe, fullpipe_args, json_lines};

fn a_file_and_a_folder(bytes: usize) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (source, to) = (dir.path().join("file"), dir.path().join("to"));
    fs::write(&source, (0..bytes).map(|i| (i * 31 + i / 251) as u8).collect::<Vec<u8>>()).unwrap();
    fs::create_dir(&to).unwrap();
    (dir, source, to)
}

/// Removed when the test is over.
struct AtTheTop(PathBuf);

impl Drop for AtTheTop {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0).or_else(|_| fs::remove_file(&self.0));
    }
}

#[test]
fn the_testbed_reads_and_writes_at_the_top_too() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let (_dir, source, to) = a_file_and_a_folder(100_000);
    let top = AtTheTop(format!("/fullpipe-test-{}", std::process::id()).into());
    let name = top.0.display().to_string();
    // The folder is not there yet.
    for (from, to) in [(source.as_path(), format!("{name}/")), (&top.0.join("file"), format!("{}/", to.display()))] {
        let path = format!("lab:rtt=1ms,rate=1gbit:{to}");
        let (code, text) = error(&fullpipe_args(&["cp", from.to_str().unwrap(), &path]));
        assert_eq!(code, 0, "{text}");
    }
    assert_eq!(fs::read(to.join("file")).unwrap(), fs::read(&source).unwrap());
    fs::remove_dir_all(&top.0).unwrap();
    let words = ["cp", source.to_str().unwrap(), &format!("lab:rtt=1ms,rate=1gbit:{name}")];
    assert_eq!(error(&fullpipe_args(&words)).0, 0);
    assert_eq!(fs::read(&top.0).unwrap(), fs::read(&source).unwrap());
}

/// The longest round trip that the testbed has, beyond that to the Moon.
#[test]
fn over_a_round_trip_of_five_seconds() {
    for transport in ["tcp", "udt"] {
        let (_dir, source, to) = a_file_and_a_folder(100_000);
        let path = format!("lab:rtt=5s,rate=10mbit:{}/", to.display());
        let words = ["cp", "--transport", transport, source.to_str().unwrap(), &path];
        let (code, text) = error(&fullpipe_args(&words));
        assert_eq!(code, 0, "{transport}: {text}");
        assert_eq!(fs::read(to.join("file")).unwrap(), fs::read(&source).unwrap());
    }
    for transport in ["tcp", "udt"] {
        let words = format!("measure lab:rtt=5s,rate=10mbit --transport {transport} --duration 30s");
        let (code, text) = error(&fullpipe(&words));
        assert_eq!(code, 0, "{transport}: {text}");
    }
    let (code, text) = error(&fullpipe("measure lab:rtt=5001ms,rate=10mbit"));
    assert!(code == 2 && text.contains("is over 5s"), "{text}");
}

/// A file that is sent in one piece takes two minutes; it moves while it arrives.
#[test]
fn a_low_limit_is_no_stall() {
    let (_dir, source, to) = a_file_and_a_folder(1_000_000);
    let path = format!("lab:rtt=45.6ms,rate=1gbit,mtu=1500:{}/", to.display());
    let (code, text) = error(&fullpipe_args(&["cp", "--bwlimit", "64kbit", source.to_str().unwrap(), &path]));
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("limited by --bwlimit"), "{text}");
    assert_eq!(fs::read(to.join("file")).unwrap(), fs::read(&source).unwrap());
}

#[test]
fn into_the_testbed() {
    let (dir, source, to) = a_file_and_a_folder(3_000_000);
    let path = format!("lab:rtt=20ms,rate=1gbit:{}/", to.display());
    let record = dir.path().join("r.ndjson");
    let words = ["cp", "--seed", "7", "--record", record.to_str().unwrap(), source.to_str().unwrap(), &path];
    let (code, text) = error(&fullpipe_args(&words));
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("of virtual time"), "{text}");
    assert_eq!(fs::read(to.join("file")).unwrap(), fs::read(&source).unwrap());
    assert_eq!(fs::read_dir(&to).unwrap().count(), 1, "the far end has heard that all is done");
    // The guest shows folders, not the links that lead to them.
    std::os::unix::fs::symlink(&to, dir.path().join("link")).unwrap();
    for name in ["link/", "link/new"] {
        let path = format!("lab:rtt=1ms,rate=1gbit:{}/{name}", dir.path().display());
        assert_eq!(error(&fullpipe_args(&["cp", "-q", source.to_str().unwrap(), &path])), (0, String::new()));
    }
    assert_eq!(fs::read(to.join("new")).unwrap(), fs::read(&source).unwrap());
    let record = fs::read_to_string(record).unwrap();
    let lines: Vec<serde_json::Value> = record.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["path"]["rtt"], "20ms");
    assert_eq!(lines[0]["seed"], 7);
    assert!(!lines[0]["id"].as_str().unwrap().ends_with("-plain"));
    assert_eq!(lines.last().unwrap()["bytes"], 3_000_000);
    assert!(lines.iter().any(|line| line["kind"] == "queue"));
    let (code, text) = error(&fullpipe_args(&["cp", "/no/such", &path]));
    assert_eq!(code, 2, "{text}");
}

/// The receiver's window is small until the law has set it, since TCP takes no offer back.
#[test]
fn the_papers_law_loses_nothing_where_the_queue_holds_slow_start() {
    let (_dir, source, to) = a_file_and_a_folder(60_000_000);
    let path = format!("lab:rtt=20ms,rate=970mbit,queue=1MB,mtu=1500:{}/", to.display());
    let again = |buffer: &[&str]| {
        let flags = ["cp", "--json", "--no-encrypt", "--cc", "reno", "-n", "1"];
        let files = [source.to_str().unwrap(), &path];
        let done = json_lines(&fullpipe_args(&[&flags[..], buffer, &files].concat())).pop().unwrap();
        fs::remove_file(to.join("file")).unwrap();
        done["retransmits"].as_u64().unwrap()
    };
    assert_eq!(again(&["--buffer", "sobas", "--sobas", "paper"]), 0);
    assert!(again(&["--buffer", "1GB"]) > 1000);
}

/// Others' bursts hit the start on a shallow queue; Reno alone would grow by a segment per round trip.
#[test]
fn slow_start_begins_again_after_losses() {
    let (dir, source, to) = a_file_and_a_folder(60_000_000);
    let path = format!("lab:rtt=20ms,rate=970mbit,queue=100KB,mtu=1500,cross=tcp:19x64KB:{}/", to.display());
    let run = |law: &str| {
        let record = dir.path().join("r.ndjson");
        let flags = ["cp", "--json", "--no-encrypt", "--cc", "reno", "-n", "1", "--buffer", "sobas", "--sobas", law];
        let files = [source.to_str().unwrap(), &path];
        let recorded = ["--record", record.to_str().unwrap()];
        json_lines(&fullpipe_args(&[&flags[..], &recorded, &files].concat()));
        fs::remove_file(to.join("file")).unwrap();
        // Without samples, which move the instants at which others' bursts come.
        let lines = json_lines(&fullpipe_args(&[&flags[..], &files].concat()));
        let record = fs::read_to_string(record).unwrap();
        let record: Vec<serde_json::Value> = record.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(record[0]["sobas"], law);
        assert!(record[0]["id"].as_str().unwrap().ends_with(&format!("-sobas-{law}-plain")));
        assert!(record.iter().filter(|line| line["kind"] == "sobas").count() >= 2);
        let middle = &record[1..record.len() - 1];
        assert!(middle.iter().all(|line| line["t"].is_number()), "{middle:?}");
        fs::remove_file(to.join("file")).unwrap();
        let restarts = lines.iter().filter(|line| line["why"] == "restart").count();
        (restarts, lines.last().unwrap()["rate_bps"].as_f64().unwrap())
    };
    let (with, without) = (run("restart"), run("both"));
    assert!(with.0 > 0 && without.0 == 0, "{with:?}, {without:?}");
    assert!(with.1 > 1.2 * without.1, "{with:?}, {without:?}");
}

/// TCP takes each of them for a full queue, unless the controller sees that there is none.
#[test]
fn losses_of_the_path_itself_are_borne() {
    let (_dir, source, to) = a_file_and_a_folder(60_000_000);
    let path = format!("lab:rtt=20ms,rate=970mbit,queue=2MB,mtu=1500,loss=0.003:{}/", to.display());
    let run = |flags: &[&str]| {
        let words = [&["cp", "--json", "--no-encrypt"], flags, &[source.to_str().unwrap(), &path]].concat();
        let lines = json_lines(&fullpipe_args(&words));
        fs::remove_file(to.join("file")).unwrap();
        let seen = lines.iter().any(|line| line["why"] == "random_loss" && line["state"] == "lossy");
        (seen, lines.last().unwrap()["rate_bps"].as_f64().unwrap())
    };
    let (adjusted, steady) = (run(&["-n", "2"]), run(&["-n", "2", "--cc", "cubic", "--steady"]));
    assert!(adjusted.0 && !steady.0, "{adjusted:?}, {steady:?}");
    assert!(adjusted.1 > 4.0 * steady.1, "{adjusted:?}, {steady:?}");
    // A congestion control that is asked for stays, and with it what it does.
    let pinned = run(&["-n", "2", "--cc", "cubic"]);
    assert!(pinned.1 < adjusted.1 / 2.0, "{pinned:?}");
}

#[test]
fn over_udt_with_losses() {
    let (dir, source, to) = a_file_and_a_folder(20_000_000);
    let path = format!("lab:rtt=20ms,rate=200mbit,mtu=1500,loss=0.003:{}/", to.display());
    let record = dir.path().join("r.ndjson");
    for words in [&["-n", "2"][..], &["--pacing", "150mbit", "--no-encrypt"]] {
        let recorded = ["--record", record.to_str().unwrap(), source.to_str().unwrap(), &path];
        let words = [&["cp", "--json", "--transport", "udt"], words, &recorded].concat();
        let lines = json_lines(&fullpipe_args(&words));
        assert_eq!(fs::read(to.join("file")).unwrap(), fs::read(&source).unwrap());
        fs::remove_file(to.join("file")).unwrap();
        let last = lines.last().unwrap();
        assert_eq!(last["transport"]["cc"], "udt", "{last}");
        // Three in a thousand of 14,000 packets.
        let again = last["retransmits"].as_u64().unwrap();
        assert!((20..1000).contains(&again), "{last}");
        let record = fs::read_to_string(&record).unwrap();
        let record: Vec<serde_json::Value> = record.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let samples = record.iter().filter(|line| line["kind"] == "sample" && line["end"] == "sender");
        let counted: u64 = samples.map(|sample| sample["pktRetrans"].as_u64().unwrap()).sum();
        assert_eq!((record.last().unwrap()["retransmits"].as_u64(), counted), (Some(again), again));
    }
}

/// Each loss costs many streams little, so that their rate stays near the capacity for long.
#[test]
fn losses_of_the_path_itself_are_seen_by_many_streams_too() {
    let (_dir, source, to) = a_file_and_a_folder(120_000_000);
    let path = format!("lab:rtt=20ms,rate=970mbit,queue=2MB,mtu=1500,loss=0.001:{}/", to.display());
    let words = ["cp", "--json", "--no-encrypt", "-n", "64", source.to_str().unwrap(), &path];
    let lines = json_lines(&fullpipe_args(&words));
    assert!(lines.iter().any(|line| line["why"] == "random_loss" && line["state"] == "lossy"), "{lines:?}");
}

/// One to connect, one to agree while the streams connect, half of one each for the data and the word that it is
/// there: virtual time has no other that counts.
#[test]
fn a_small_file_takes_three_round_trips() {
    let dir = tempfile::tempdir().unwrap();
    let (source, to) = (dir.path().join("file"), dir.path().join("to"));
    fs::write(&source, "word").unwrap();
    fs::create_dir(&to).unwrap();
    for (flags, most) in [(&["--no-encrypt"][..], 3.2), (&[], 4.2)] {
        let path = format!("lab:rtt=366ms,rate=10gbit:{}/", to.display());
        let words = [&["cp", "--json"], flags, &[source.to_str().unwrap(), &path]].concat();
        let done = fullpipe_args(&words);
        let text = String::from_utf8(done.stdout).unwrap();
        let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let trips = last["seconds"].as_f64().unwrap() / 0.366;
        assert!(trips < most, "{flags:?}: {trips} round trips");
    }
}

/// Seconds of virtual time of a copy of 100 MB to an emulated disk, and what limited it.
fn onto_a_disk(source: &std::path::Path, disk: &str) -> (f64, serde_json::Value) {
    let path = format!("lab:rtt=2ms,rate=10gbit,disk_b={disk}:/disk/");
    let words = ["cp", "--json", "--fsync", source.to_str().unwrap(), &path];
    let last = json_lines(&fullpipe_args(&words)).pop().unwrap();
    (last["seconds"].as_f64().unwrap(), last["bottleneck"].clone())
}

#[test]
fn an_emulated_disk_limits_a_copy() {
    let (_dir, source, _) = a_file_and_a_folder(100_000_000);
    // What the driver rounds to, and its first 20 ms.
    for (disk, rate) in [("50MB/s", 50.3e6), ("400MB/s+devices:2+fs:ext4", 400.6e6)] {
        let (seconds, _) = onto_a_disk(&source, disk);
        let least = 100e6 / rate;
        assert!((least - 0.03..least * 1.1 + 0.1).contains(&seconds), "{disk}: {seconds} s, at least {least}");
    }
    assert_eq!(onto_a_disk(&source, "50MB/s").1, "disk write");
    let (seconds, bottleneck) = onto_a_disk(&source, "5GB/s+size:200GB+keep:no");
    assert!(seconds < 0.5 && bottleneck.is_null(), "{seconds} s, {bottleneck}");
    for (path, to, why) in [
        ("disk_b=1GB/s", "/tmp/", "copy to /disk/"),
        ("disk_b=1GB/s", "/disk/../tmp/", "copy to /disk/"),
        ("disk_a=1GB/s", "/tmp/", "leave it out"),
        ("disk=1MB/s", "/disk/", "outside 40MB/s"),
    ] {
        let path = format!("lab:rtt=2ms,rate=10gbit,{path}:{to}");
        let (code, text) = error(&fullpipe_args(&["cp", source.to_str().unwrap(), &path]));
        assert!(code == 2 && text.contains(why), "{path}: {text}");
    }
}

#[test]
fn a_copy_of_seconds_says_what_limited_it_and_what_would_help() {
    let (_dir, source, _) = a_file_and_a_folder(200_000_000);
    let copy = |flag: &str| {
        let words = ["cp", flag, source.to_str().unwrap(), "lab:rtt=2ms,rate=10gbit,disk_b=50MB/s:/disk/"];
        let done = fullpipe_args(&words);
        assert!(done.status.success(), "{done:?}");
        String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
    };
    let explained = copy("--explain");
    assert!(explained.contains("; limited by disk write"), "{explained}");
    assert!(explained.contains("faster      writing the destination limited the copy"), "{explained}");
    let plain = copy("--fsync");
    assert!(plain.contains("; limited by disk write") && plain.contains("faster      writing"), "{plain}");
}

/// What happens at end b, from 5.2 s on, while a file of 50 MB comes to its disk; and what end a then does. Returns what the
/// programs of end a print.
fn while_a_disk_fails(fault: &str, second: &str) -> String {
    let scenario = format!(
        r#"
path = {{ rtt = "10ms", rate = "1gbit", disk_b = "500MB/s" }}

[[program]]
end = "b"
run = ["fullpipe", "serve", "--root", "/disk", "--insecure", "--quiet", "--bind", "10.0.2.1"]

[[program]]
end = "b"
start = "5200ms"
wait = true
run = ["sh", "-ec", "{fault}"]

[[program]]
end = "a"
run = ["sh", "-c", """
head -c 50000000 /dev/urandom >/tmp/f; sleep 5
copy() {{ fullpipe cp --insecure --direct on /tmp/f fullpipe://b/ 2>&1; echo code $?; }}
copy
{second}
"""]

[[program]]
end = "b"
start = "1000s"
wait = true
run = ["sh", "-c", "sha256sum </disk/f; ls -A /disk"]

[[program]]
end = "a"
start = "1000s"
run = ["sh", "-c", "sha256sum </tmp/f"]
"#
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    std::fs::write(&file, scenario).unwrap();
    let done = fullpipe_args(&["lab", "run", file.to_str().unwrap(), "--quiet"]);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
    let digests: Vec<&str> = text.lines().filter(|line| line.ends_with("  -")).collect();
    assert!(digests.len() == 2 && digests[0] == digests[1], "{text}");
    assert!(text.contains("\nf\n--"), "the disk has the file and nothing else: {text}");
    text
}

/// `--stall` ends the connection. The process at the far end still waits for the disk and holds the destination's lock.
#[test]
fn a_copy_goes_on_after_its_disk_has_stalled() {
    let stall = |seconds: u32| format!("fsfreeze -f /disk; sleep {seconds}; fsfreeze -u /disk");
    let short = while_a_disk_fails(&stall(50), "");
    assert!(short.contains("code 0") && !short.contains("connecting again"), "{short}");
    // The second connection and the next ones wait for the first one's disk.
    let long = while_a_disk_fails(&stall(300), "");
    assert!(long.contains("nothing moved for 60 s") && long.contains("b has not answered for 60s"), "{long}");
    assert!(long.contains("code 0"), "{long}");
    let longest = while_a_disk_fails(&stall(600), "sleep 500; copy");
    let error = longest.lines().find(|line| line.starts_with("error: ")).unwrap();
    assert!(error.contains("b has not answered for 60s; if it is there and only slow, raise --stall"), "{longest}");
    assert!(longest.contains("code 4") && longest.contains("code 0"), "{longest}");
}

#[test]
fn a_copy_goes_on_after_its_disk_could_not_be_written() {
    let bad = "mount -t configfs none /sys/kernel/config; cd /sys/kernel/config/nullb/disk_b0; \
               echo +32768-65536 >badblocks; sleep 100; echo -32768-65536 >badblocks";
    let text = while_a_disk_fails(bad, "sleep 150; copy");
    assert!(text.contains("not copied: f: cannot be written at the destination: i/o error"), "{text}");
    assert!(text.contains("code 1") && text.contains("code 0"), "{text}");
    // What was written before the error is not sent again.
    assert!(text.contains(" of it already there, or holes)"), "{text}");
}

#[test]
fn a_disk_that_answers_late_gets_more_streams_in_a_local_network() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("file");
    fs::File::create(&source).unwrap().set_len(400_000_000).unwrap();
    // Two streams, as many as start there, write 1 MiB each 20 ms.
    let path = "lab:rtt=0.2ms,rate=10gbit,disk_b=1GB/s+latency:20ms+keep:no:/disk/";
    let seconds = |flags: &str| {
        let words = ["cp", "--json", "--no-encrypt", source.to_str().unwrap(), path];
        let words: Vec<&str> = words.into_iter().chain(flags.split_whitespace()).collect();
        let lines = json_lines(&fullpipe_args(&words));
        let done = lines.last().unwrap();
        assert_eq!(done["exit_code"], 0, "{done}");
        done["seconds"].as_f64().unwrap()
    };
    let (typed, two) = (seconds(""), seconds("-n 2"));
    assert!(two > 3.5 && typed < 0.5 * two, "{typed} s, and {two} s on two streams");
    let steady = seconds("--steady");
    assert!((steady / two - 1.0).abs() < 0.05, "{steady} s: nothing is adjusted");
}
