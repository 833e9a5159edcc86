//! `fullpipe measure` between the disks of an emulated path.

use crate::common::{error, fullpipe, json_lines};

/// The first and the last line of the record of a run of 100 MB over 2 ms.
fn measure(disks: &str, flags: &str) -> (serde_json::Value, serde_json::Value) {
    let command = format!("measure lab:rtt=2ms,rate=10gbit,{disks} --size 100MB --buffer 16MB --json {flags}");
    let mut lines = json_lines(&fullpipe(&command));
    let last = lines.pop().unwrap();
    (lines.remove(0), last)
}

#[test]
fn a_run_between_disks_takes_as_long_as_the_slower_and_names_it() {
    // A disk of 50 MB/s lets 50.3 pass, and its first 20 ms at once.
    let least_s = 100e6 / 50.3e6 - 0.05;
    for (disks, flags, (block, direct), bottleneck) in [
        ("disk_a=50MB/s,disk_b=1GB/s", "", ("8.388608MB", "auto"), "disk_read"),
        // All streams together have blocks of at most 64 MiB.
        ("disk_a=1GB/s,disk_b=50MB/s", "--direct on --streams 16", ("4.194304MB", "on"), "disk_write"),
        // Whole pieces, which can begin where direct I/O does.
        ("disk_a=1GB/s,disk_b=50MB/s", "--direct on --streams 10", ("6.5536MB", "on"), "disk_write"),
        // Through the page cache, the time until everything is on the disk counts.
        ("disk_a=1GB/s,disk_b=50MB/s", "--direct off --streams 2 --block 1MiB", ("1.048576MB", "off"), "disk_write"),
    ] {
        let (header, result) = measure(disks, flags);
        let seconds = result["seconds"].as_f64().unwrap();
        assert!((least_s..1.2 * least_s + 0.1).contains(&seconds), "{disks} {flags}: {seconds} s");
        let rate = result["bytes"].as_f64().unwrap() * 8.0 / seconds / result["goodput_bps"].as_f64().unwrap();
        assert!((rate - 1.0).abs() < 1e-9, "{result}");
        assert_eq!(result["bottleneck"], bottleneck, "{disks} {flags}");
        assert_eq!(header["disks"], serde_json::json!({"block": block, "direct": direct}), "{flags}");
        // As a file would be named.
        assert!(!header["id"].as_str().unwrap().ends_with("-plain"), "{header}");
        assert!(header["path"]["disk_a"].is_string() && header["path"]["disk_b"].is_string(), "{header}");
    }
}

#[test]
fn a_run_of_a_fraction_of_a_second_names_its_disk() {
    for (disks, bottleneck) in
        [("disk_a=400MB/s,disk_b=1GB/s", "disk_read"), ("disk_a=1GB/s,disk_b=400MB/s", "disk_write")]
    {
        let (_, result) = measure(disks, "");
        assert!(result["seconds"].as_f64().unwrap() < 0.5 && result["bottleneck"] == bottleneck, "{disks}: {result}");
    }
}

#[test]
fn what_no_run_between_disks_can_be_is_refused() {
    for (path, flags, why) in [
        ("disk=1GB/s", "", "give --size"),
        ("disk_a=1GB/s", "--size 1GB", "the path has no disk_b"),
        ("disk_b=1GB/s", "--size 1GB", "the path has no disk_a"),
        ("disk=1GB/s", "--size 2GB", "add +size:3GB"),
        ("disk=1GB/s", "--size 1GB --direct on,off", "--direct: give one value"),
        ("disk=1GB/s", "--size 1GB --block 1MiB,8MiB", "--block: give one value"),
        ("disk=1GB/s", "--size 1GB --block 4KiB", "64KiB to 64MiB"),
        ("disk=1GB/s", "--size 1GB --threads 4", "each of --streams has a thread"),
        ("disk=1GB/s", "--size 1GB --reverse", "exchange the two disks"),
        ("disk=1GB/s", "--size 1GB --omit 1s", "leave it out"),
        ("disk=1GB/s", "--size 1GB --mss 1000", "smaller mtu"),
        ("disk=1GB/s", "--size 1GB --bidir", "--bidir and --probe are for runs from memory"),
        ("disk=1GB/s", "--size 1GB --probe", "--bidir and --probe are for runs from memory"),
        ("disk=1GB/s", "--size 1GB --transport udp --pacing 100mbit", "a copy cannot use it"),
        ("loss=0", "--size 1GB --block 1MiB", "add mount=nfs or disk=1GB/s to the path"),
    ] {
        let (code, text) = error(&fullpipe(&format!("measure lab:rtt=2ms,rate=10gbit,{path} {flags}")));
        assert!(code == 2 && text.contains(why), "{path} {flags}: {text}");
    }
}
