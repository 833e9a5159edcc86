//! `measure disk:`: what it reads and writes, and that it leaves a folder as it was.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::{error, fullpipe, fullpipe_args, json_lines};

/// A folder that is more likely than /tmp to be on a disk.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn measure(folder: &Path, flags: &str) -> Vec<Value> {
    json_lines(&fullpipe(&format!("measure disk:{} --json {flags}", folder.display())))
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn all_bytes_are_written_and_read_back() {
    let dir = folder();
    std::fs::write(dir.path().join("mine"), "keep").unwrap();
    // A size that is no multiple of a block, of a call, or of a sector.
    let lines = measure(dir.path(), "--size 20000001B --threads 3 --block 1MiB --direct on,off");
    let (headers, results): (Vec<_>, Vec<_>) =
        lines.iter().filter(|line| line["kind"] != "sample").partition(|line| line["kind"] == "storage");
    let described: Vec<_> = headers
        .iter()
        .map(|h| (h["storage"]["operation"].as_str().unwrap(), h["storage"]["direct"].as_bool().unwrap()))
        .collect();
    assert_eq!(described, [("write", true), ("read", true), ("write", false), ("read", false)]);
    for (header, result) in headers.iter().zip(&results) {
        assert_eq!(header["version"], 1);
        assert_eq!(result["bytes"], 20_000_001);
        let call: u64 = if header["storage"]["direct"] == true { 1 << 20 } else { 256 << 10 };
        assert_eq!(result["call_bytes"], call);
        assert_eq!(result["calls"], 20_000_001u64.div_ceil(call), "each byte once");
        let number = |name: &str| result[name].as_f64().unwrap();
        assert!(number("seconds") >= number("fsync_s"));
        assert_eq!(number("fsync_s") > 0.0, header["storage"]["operation"] == "write");
        let latency = |name: &str| result["latency"][name].as_f64().unwrap();
        // The calls of three threads fit into the time, and none of them is faster than memory.
        assert!(latency("mean_s") * 20.0 < 3.0 * number("seconds") && latency("p50_s") > 1e-6, "{result}");
        assert!(latency("p50_s") <= latency("p99_s") && latency("p99_s") <= latency("max_s"));
        assert!(number("cpu_user_s") + number("cpu_system_s") <= 3.0 * number("seconds") + 0.1);
    }
    assert_eq!(names(dir.path()), ["mine"]);
    assert_eq!(std::fs::read(dir.path().join("mine")).unwrap(), b"keep");
}

#[test]
fn a_dropped_file_is_read_from_storage() {
    let dir = folder();
    let lines = measure(dir.path(), "--read --size 50MB --direct off");
    let (header, result) = (&lines[0], lines.last().unwrap());
    if header["file_system"]["device"].is_null() {
        eprintln!("not tested: {} has no device", dir.path().display());
        return;
    }
    assert_eq!(result["cached_bytes"], 0);
    assert!(result["storage_bytes"].as_u64().unwrap() >= 50_000_000);
    assert_ne!(result["bottleneck"], "page_cache");
}

#[test]
fn what_stays_in_memory_is_named() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let lines = measure(dir.path(), "--size 20MB --block 4MiB");
    let result = lines.last().unwrap();
    assert_eq!(lines[0]["file_system"]["type"], "tmpfs");
    assert_eq!(lines[0]["storage"]["direct"], false, "as cp does");
    assert_eq!(result["cached_bytes"], 20_000_000);
    assert_eq!(names(dir.path()).len(), 0);
}

#[test]
fn a_grid_is_a_table_with_a_record_for_each_run() {
    let (dir, out) = (folder(), tempfile::tempdir().unwrap());
    let words = format!(
        "measure disk:{} --size 32MiB --threads 1-4 --block 1MiB,8MiB --out {}",
        dir.path().display(),
        out.path().display()
    );
    let done = fullpipe(&words);
    let (code, said) = error(&done);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("writes a file of 33.55 MB 6 times, one after the other, 201.3 MB in all, to "), "{said}");
    let text = String::from_utf8(done.stdout).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("write ") || line.starts_with("read ")).count();
    assert_eq!(rows, 12, "{text}");
    assert!(text.contains("fastest     write at ") && text.contains("fastest     read at "), "{text}");
    assert_eq!(names(out.path()).len(), 12);
    let again = fullpipe(&format!("{words} --write --quiet"));
    assert_eq!(error(&again), (0, String::new()));
    assert_eq!(names(out.path()).len(), 18, "no record takes the place of another");
}

#[test]
fn a_killed_measurement_leaves_nothing() {
    let dir = folder();
    for signal in ["INT", "TERM", "KILL"] {
        // A background job of a shell, such as this test may be, would ignore SIGINT.
        let mut child = Command::new("env")
            .args(["--default-signal=INT", env!("CARGO_BIN_EXE_fullpipe")])
            .args(["measure", &format!("disk:{}", dir.path().display()), "--write", "--size", "200MB"])
            .args(["--threads", "1-16", "--block", "1MiB-8MiB"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Until it writes.
        let opened = || {
            let files = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().flatten();
            files.filter_map(|file| file.path().metadata().ok()).any(|meta| meta.is_file() && meta.blocks() > 0)
        };
        // It has none open between two runs.
        let begun = (0..5000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            opened()
        });
        assert!(begun, "it has not begun");
        let kill = Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status().unwrap();
        assert!(kill.success());
        assert!(!child.wait().unwrap().success());
        assert_eq!(names(dir.path()).len(), 0, "after SIG{signal}");
    }
}

#[test]
fn an_interrupted_measurement_shows_what_it_has() {
    let (dir, out) = (folder(), folder());
    let child = Command::new("env")
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_fullpipe")])
        .args(["measure", &format!("disk:{}", dir.path().display()), "--write", "--size", "100MB"])
        .args(["--threads", "1-16", "--block", "1MiB-4MiB", "--out", out.path().to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let has_begun = (0..30_000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        names(out.path()).len() >= 2
    });
    assert!(has_begun);
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let done = child.wait_with_output().unwrap();
    let (text, (code, said)) = (String::from_utf8_lossy(&done.stdout).into_owned(), error(&done));
    let rows = text.lines().filter(|line| line.starts_with("write ")).count();
    assert!(code == 130 && (2..15).contains(&rows), "{code} {text}");
    assert!(said.contains(&format!("error: interrupted; {rows} runs had finished")), "{said}");
    assert_eq!(names(dir.path()).len(), 0);
}

#[test]
fn wrong_words_and_folders() {
    let dir = folder();
    let (at, file) = (format!("disk:{}", dir.path().display()), dir.path().join("file"));
    std::fs::write(&file, "x").unwrap();
    let in_memory = tempfile::tempdir_in("/dev/shm").unwrap();
    for (words, code, part) in [
        ("measure disk:".to_owned(), 2, "disk: names no folder"),
        ("measure disk:/no/such".into(), 2, "/no/such: no such file or directory; give a folder that exists"),
        (format!("measure disk:{}", file.display()), 2, "give a folder that exists"),
        ("measure disk:/proc".into(), 3, "cannot write to /proc"),
        (format!("measure {at} --streams 2"), 2, "--streams is for a path between hosts"),
        (format!("measure {at} --duration 1s"), 2, "--duration is for a path between hosts"),
        ("measure host --threads 2".into(), 2, "--threads is for storage; give disk:FOLDER instead of host"),
        ("measure host --block 1MiB".into(), 2, "give disk:FOLDER instead of host, or leave it out"),
        (format!("measure {at} --read --write"), 2, "cannot be used with '--write'"),
        (format!("measure {at} --threads 0"), 2, "'0' is no number of threads from 1 to 64"),
        (format!("measure {at} --threads 8-2"), 2, "write the smaller first"),
        (format!("measure {at} --block 1MB"), 2, "'1MB' is not a multiple of 4KiB"),
        (format!("measure {at} --direct maybe"), 2, "give on, off, auto, or on,off"),
        (format!("measure {at} --size 1MB"), 2, "it has no block of 8MiB for each of 1 thread"),
        (format!("measure {at} --size 900TB"), 5, "must stay free; give a smaller --size"),
        (
            format!("measure {at} --size 20MB --threads 1,2 --out {}/x.ndjson", dir.path().display()),
            2,
            "can hold one run, and these are 4",
        ),
        (format!("measure disk:{} --size 20MB --direct on", in_memory.path().display()), 3, "give --direct off"),
    ] {
        let (got, text) = error(&fullpipe_args(&words.split(' ').collect::<Vec<_>>()));
        assert!(got == code && text.contains(part), "{words}: {got}: {text}");
        assert!(!text.contains("its room is free again"), "{words}: {text}");
    }
    assert_eq!(names(dir.path()), ["file"]);
}
