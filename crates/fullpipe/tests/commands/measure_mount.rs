//! `measure mount:` on real mounts: sshfs (FUSE) on this host, NFS between the ends of an emulated path.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::{error, fullpipe, json_lines, without_real};
use crate::sshfs::Sshfs;

impl Sshfs {
    fn measure(&self, flags: &str) -> std::process::Output {
        fullpipe(&format!("measure mount:{} --size 20MB {flags}", self.at().display()))
    }

    /// Fails if anything stays in the folder. A program of FUSE removes a file a moment after it was closed.
    fn assert_empty(&self) {
        let count = || fs::read_dir(self.far()).unwrap().count();
        let is_empty = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            count() == 0
        });
        assert!(is_empty, "{:?}", fs::read_dir(self.far()).unwrap().collect::<Vec<_>>());
    }
}

/// The first and the last lines of records.
fn ends(lines: &[Value]) -> (Vec<&Value>, Vec<&Value>) {
    lines.iter().filter(|line| line["kind"] != "sample").partition(|line| line["kind"] == "storage")
}

#[test]
fn a_fuse_mount_is_measured_and_named() {
    let Some(mount) = Sshfs::mount(&[]) else { return };
    let lines = json_lines(&mount.measure("--direct on,off --threads 2 --block 1MiB --json"));
    let (headers, results) = ends(&lines);
    assert_eq!((headers.len(), results.len()), (4, 4));
    for (header, result) in headers.iter().zip(&results) {
        let (at, named) = (mount.at(), &header["mount"]);
        assert_eq!(header["storage"]["folder"], at.to_str().unwrap());
        assert_eq!(named["folder"], at.to_str().unwrap());
        assert_eq!((&named["type"], &header["file_system"]["type"]), (&"fuse.sshfs".into(), &"fuse.sshfs".into()));
        assert_eq!(named["source"], format!("far:{}", mount.far().display()));
        let options = named["options"].as_array().unwrap();
        assert!(options.contains(&"rw".into()) && options.contains(&"user_id=0".into()), "{named}");
        assert_eq!(options.iter().filter(|option| *option == "rw").count(), 1);
        assert_eq!(named["read_ahead_bytes"], 128 << 10);
        assert!(named["session_slots"].is_null());
        assert!(header["id"].as_str().unwrap().starts_with("mount-"), "{header}");
        assert_eq!(result["bytes"], 20_000_000);
        // The kernel does not count what FUSE reads, and that does not make the page cache its source.
        assert!(result["storage_bytes"].is_null());
        assert_ne!(result["bottleneck"], "page_cache");
        let is_read = header["storage"]["operation"] == "read";
        assert_eq!(result["cached_bytes"], if is_read { Value::from(0) } else { Value::Null });
    }
    let text = String::from_utf8(mount.measure("--write").stdout).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("mount ")).collect();
    let expected = format!("mount       far:{} at {}, fuse.sshfs: rw,", mount.far().display(), mount.at().display());
    assert!(lines.len() == 1 && lines[0].starts_with(&expected), "{text}");
    assert!(lines[0].ends_with("; read-ahead 128KiB"), "{text}");
    // The same folder as a disk: no mount in the record.
    let disk = json_lines(&fullpipe(&format!("measure disk:{} --size 20MB --write --json", mount.at().display())));
    assert!(disk[0].get("mount").is_none() && disk[0]["id"].as_str().unwrap().starts_with("write-"), "{}", disk[0]);
    mount.assert_empty();
}

#[test]
fn a_page_cache_that_cannot_be_seen_is_said() {
    let Some(mount) = Sshfs::mount(&["-o", "direct_io"]) else { return };
    let done = mount.measure("--direct off --json");
    let (code, text) = error(&done);
    assert!(code == 0 && text.contains("does not show whether the page cache had part of the file"), "{text}");
    let lines = json_lines(&done);
    let read = lines.last().unwrap();
    assert!(read["cached_bytes"].is_null() && read["bottleneck"] != "page_cache", "{read}");
    let (_, text) = error(&mount.measure("--direct on --json"));
    assert!(!text.contains("page cache"), "{text}");
}

#[test]
fn a_killed_measurement_of_a_mount_leaves_nothing() {
    let Some(mount) = Sshfs::mount(&[]) else { return };
    let mut child = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
        .args([
            "measure",
            &format!("mount:{}", mount.at().display()),
            "--write",
            "--size",
            "200MB",
            "--threads",
            "1-16",
            "--block",
            "1MiB-8MiB",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Until its file has data, and so no name of its own any more.
    let size = |file: std::io::Result<fs::DirEntry>| file.and_then(|file| file.metadata()).map_or(0, |meta| meta.len());
    let has_file = || fs::read_dir(mount.far()).unwrap().any(|file| size(file) > 0);
    let begun = (0..5000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        has_file()
    });
    assert!(begun, "it has not begun");
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    mount.assert_empty();
}

#[test]
fn what_is_no_mount_or_cannot_be_written_is_refused() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = dir.path().display();
    for (words, code, part) in [
        ("measure mount:".to_owned(), 2, "mount: names no folder; give one, as in mount:/mnt/far"),
        ("measure mount:/no/such".into(), 2, "mount:/no/such: No such file"),
        ("measure mount:/dev/shm".into(), 2, "(tmpfs), which is not mounted over a network or by FUSE"),
        (format!("measure mount:{at}"), 2, &*format!("or measure the disk that is there: disk:{at}")),
        (format!("measure mount:{at} --streams 2"), 2, "--streams is for a path between hosts"),
        (format!("measure mount:{at} --read --write"), 2, "cannot be used with '--write'"),
    ] {
        let (got, text) = error(&fullpipe(&words));
        assert!(got == code && text.contains(part) && text.lines().count() <= 5, "{words}: {got}: {text}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let Some(mount) = Sshfs::mount(&["-o", "ro"]) else { return };
    let (code, text) = error(&mount.measure(""));
    assert!(
        code == 3 && text.contains("read-only file system; choose a folder that you may write to"),
        "{code} {text}"
    );
    fs::write(mount.far().join("file"), "x").unwrap();
    let (code, text) = error(&fullpipe(&format!("measure mount:{}/file", mount.at().display())));
    assert!(code == 2 && text.contains("is no folder"), "{code} {text}");
    // A mount of FUSE is its user's own.
    fs::set_permissions(mount.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let done = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_fullpipe"), "measure"])
        .arg(format!("mount:{}", mount.at().display()))
        .output()
        .unwrap();
    let (code, text) = error(&done);
    assert!(code == 3 && text.contains("only for the user who made it"), "{code} {text}");
}

/// The server's end: the kernel's own, which needs no program of its own if it is told what it would ask `rpc.mountd(8)`: the
/// domain of an address, the export of a path there, the path of a file handle.
const NFS_SERVER: &str = r#"
mkdir /tmp/export
mount -t tmpfs -o size=200m tmpfs /tmp/export
mount -t nfsd nfsd /proc/fs/nfsd
mount -t tmpfs tmpfs /var/lib && mkdir -p /var/lib/nfs/v4recovery
cd /proc/fs/nfsd
echo 10 >nfsv4gracetime; echo 10 >nfsv4leasetime
echo '-2 -3 +4 +4.1 +4.2' >versions
never=2147483647
# An insecure port is fine, async, no_subtree_check, fsid=0.
flags=$((0x2 + 0x10 + 0x400 + 0x2000))
echo "nfsd 10.0.1.1 $never far" >/proc/net/rpc/auth.unix.ip/channel
echo "far /tmp/export $never $flags 65534 65534 0" >/proc/net/rpc/nfsd.export/channel
echo "far 1 \x00000000 $never /tmp/export" >/proc/net/rpc/nfsd.fh/channel
echo 'tcp 2049' >portlist
echo 8 >threads
sleep 1000
"#;

/// The client's end.
const NFS_CLIENT: &str = "
mkdir /tmp/mnt; sleep 1
options=vers=4.2,proto=tcp,nconnect=2,rsize=65536,wsize=131072,addr=10.0.2.1,clientaddr=10.0.1.1
mount -i -t nfs4 -o $options 10.0.2.1:/ /tmp/mnt || exit 1
mkdir /tmp/mnt/in || exit 1
fullpipe measure mount:/tmp/mnt/in --size 20MB --threads 2 --block 1MiB --direct on,off --json || exit 1
ls -A /tmp/mnt/in
";

#[test]
fn an_nfs_mount_over_a_path_is_measured_at_the_rate_of_the_path() {
    // Programs of the guest see this host's /tmp below /host.
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    for (name, text) in [("server", NFS_SERVER), ("client", NFS_CLIENT)] {
        fs::write(dir.path().join(name), format!("export PATH=$PATH:/usr/sbin:/sbin\n{text}")).unwrap();
    }
    let scenario = dir.path().join("nfs.toml");
    let run = |name: &str| format!("run = [\"/bin/sh\", \"/host{}/{name}\"]", dir.path().display());
    let text = format!(
        "path = {{ rtt = \"10ms\", rate = \"1gbit\" }}\nmemory = \"1GB\"\n[[program]]\nend = \"b\"\n{}\n\
         [[program]]\nend = \"a\"\nstart = \"100ms\"\n{}\n",
        run("server"),
        run("client")
    );
    fs::write(&scenario, text).unwrap();
    let done = fullpipe(&format!("lab run --quiet {}", scenario.display()));
    let (code, said) = error(&done);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(code, 0, "{said} {text}");
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let (headers, results) = ends(&lines);
    assert_eq!((headers.len(), results.len()), (4, 4), "{text}");
    for (header, result) in headers.iter().zip(&results) {
        let mount = &header["mount"];
        assert_eq!((&mount["type"], &mount["source"]), (&"nfs4".into(), &"10.0.2.1:/".into()), "{text}");
        assert_eq!((&header["storage"]["folder"], &mount["folder"]), (&"/tmp/mnt/in".into(), &"/tmp/mnt".into()));
        let options = mount["options"].as_array().unwrap();
        for option in ["vers=4.2", "nconnect=2", "rsize=65536", "wsize=131072", "addr=10.0.2.1"] {
            assert!(options.contains(&option.into()), "no {option} in {mount}");
        }
        assert_eq!((&mount["read_ahead_bytes"], &mount["session_slots"]), (&(128 << 10).into(), &64.into()));
        // In virtual time, what comes from the client's page cache takes no time at all.
        let rate = result["rate_bps"].as_f64().unwrap();
        assert!((50e6..1e9).contains(&rate), "{} at {rate}", header["storage"]);
        let is_read = header["storage"]["operation"] == "read";
        assert_eq!(result["cached_bytes"], if is_read { Value::from(0) } else { Value::Null });
    }
    assert!(!text.contains(".nfs"), "{text}");
}

/// The first and the last lines of the records of a measurement over an emulated path, with `real` left out.
fn in_lab(path: &str, flags: &str) -> Vec<Value> {
    without_real(
        json_lines(&fullpipe(&format!("measure lab:{path} --json {flags}")))
            .into_iter()
            .filter(|line| line["kind"] != "sample")
            .map(|mut line| {
                // Only the first line of a record has it.
                line.as_object_mut().unwrap().entry("real").or_insert(Value::Null);
                line
            })
            .collect(),
    )
}

#[test]
fn the_testbed_mounts_with_the_options_of_the_path() {
    let path = "rtt=10ms,rate=1gbit,mount=nfs+vers:4.1+nconnect:2+rsize:64KiB+wsize:128KiB+read_ahead:1MiB+slots:8";
    let flags = "--size 20MB --direct on,off";
    let lines = in_lab(path, flags);
    let (headers, results) = ends(&lines);
    assert_eq!((headers.len(), results.len()), (4, 4));
    for (header, result) in headers.iter().zip(&results) {
        let mount = &header["mount"];
        let options = mount["options"].as_array().unwrap();
        for option in ["vers=4.1", "nconnect=2", "rsize=65536", "wsize=131072"] {
            assert!(options.contains(&option.into()), "no {option} in {mount}");
        }
        assert_eq!((&mount["read_ahead_bytes"], &mount["session_slots"]), (&(1 << 20).into(), &8.into()));
        assert_eq!((&header["path"]["rtt"], &header["seed"]), (&"10ms".into(), &1.into()));
        assert_eq!(header["path"]["mount"], path.split_once("mount=").unwrap().1);
        assert!(header["id"].as_str().unwrap().starts_with("mount-rtt10ms-"), "{header}");
        let rate = result["rate_bps"].as_f64().unwrap();
        assert!((20e6..1e9).contains(&rate), "{} at {rate}", header["storage"]);
    }
    assert_eq!(lines, in_lab(path, flags), "the same again");
}

#[test]
fn the_slots_and_the_read_ahead_of_a_mount_limit_its_reads() {
    let rate = |mount: &str, flags: &str| {
        let path = format!(
            "rtt=20ms,rate=10gbit,host=tuned+tcp_rmem:4096/131072/67108864+tcp_wmem:4096/16384/67108864,mount={mount}"
        );
        let lines = in_lab(&path, &format!("--direct off {flags}"));
        lines.last().unwrap()["rate_bps"].as_f64().unwrap()
    };
    // Eight requests of 1 MiB per round trip, and what the last of them take on the way.
    let slots = rate("nfs+slots:8+read_ahead:64MiB", "--read --size 200MB");
    assert!((0.5..1.0).contains(&(slots / (8.0 * 8.0 * 1048576.0 / 0.02))), "{slots}");
    assert!(rate("nfs+read_ahead:64MiB", "--read --size 200MB") > 1.5 * slots);
    assert!(rate("nfs", "--read --size 50MB") < 0.3 * slots, "two windows of 128 KiB per round trip");
    // Each call waits a round trip.
    let sync = rate("nfs+sync:yes", "--write --size 20MB");
    assert!((0.7..1.05).contains(&(sync / (8.0 * 262144.0 / 0.02))), "{sync}");
}

/// In the testbed only the path takes time.
#[test]
fn what_takes_no_time_in_the_testbed_is_no_rate() {
    let measured = |flags: &str| {
        let output = fullpipe(&format!("measure lab:rtt=10ms,rate=1gbit,mount=nfs --size 20MB --write {flags}"));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let table = measured("--direct on,off");
    let row = |direct: &str| -> Vec<String> {
        let line = table.lines().find(|line| line.split_whitespace().nth(3) == Some(direct)).unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    };
    let (past, through) = (row("on"), row("off"));
    assert!(past[5..=8].iter().all(|cell| cell.parse::<f64>().is_ok_and(|n| n > 0.0)), "{table}");
    assert!(through[4].parse::<f64>().is_ok_and(|gbps| gbps < 1.0), "{table}");
    assert!(through[5..=8].iter().all(|cell| cell == "-"), "{table}");
    assert!(table.contains("\nnote        copying to the page cache takes no time in the testbed"), "{table}");
    let one = measured("--direct off");
    assert!(one.contains("\nnote        copying to") && !one.contains("without it"), "{one}");
    assert!(one.contains("try more --threads, nconnect or slots") && !one.contains("doctor"), "{one}");
    assert!(!one.contains("\nlatency "), "{one}");
    let one = measured("--direct on");
    assert!(!one.contains("\nnote ") && one.contains("\nlatency "), "{one}");
    assert!(one.contains("each thread waits a round trip for each call: try more --threads"), "{one}");
}

#[test]
fn a_mount_that_the_testbed_cannot_measure_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("x"), "x").unwrap();
    let path = "lab:rtt=10ms,rate=1gbit";
    for (words, code, part) in [
        (format!("measure {path},mount=lustre"), 2, "'lustre' is not nfs, which alone the testbed mounts"),
        (format!("measure {path},mount=nfs+nconnect:17"), 2, "nconnect: '17' is not a number from 1 to 16"),
        (format!("measure {path},mount=nfs --streams 2"), 2, "--streams is for a path that carries streams"),
        (format!("measure {path},mount=nfs --token-file x"), 2, "--token-file is for a path that carries streams"),
        (format!("measure {path},disk=1GB/s,mount=nfs"), 2, "disk_a is at the end that mounts"),
        (
            format!("measure {path},mount=nfs --size 3GB"),
            2,
            "mount has 2GB, too little for a file of 3GB; add +size:4GB",
        ),
        (format!("measure {path},mount=nfs --size 1MB"), 2, "it has no block of 8MiB for each of 1 thread"),
        (
            format!("measure {path},mount=nfs --out {}/x.ndjson", dir.path().display()),
            2,
            "these are 2; give --out a folder",
        ),
        (format!("measure {path} --threads 2"), 2, "--threads is for storage"),
        (format!("cp {}/x {path},mount=nfs:/tmp/", dir.path().display()), 2, "not through a mount; leave mount out"),
    ] {
        let (got, text) = error(&fullpipe(&words));
        assert!(got == code && text.contains(part), "{words}: {got}: {text}");
    }
}
