//! Wrong input: one clear error that names the thing and the remedy, the documented exit code, and no
//! file that looks whole.

use crate::common::{error, fullpipe, fullpipe_args};

const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/scenarios/ping.toml");

#[test]
fn wrong_words_name_the_thing() {
    let lab = "lab:rtt=1ms,rate=1gbit";
    for (words, code, part) in [
        (format!("measure {lab} --cc cubicc --size 1MB"), 2, "'cubicc' is not in the testbed's kernel"),
        (format!("measure {lab} --cc ../../x --size 1MB"), 2, "not the name of a congestion control"),
        ("measure lab:rtt=45.6,rate=10gbit".into(), 2, "unit is missing; use one of ns, us, ms"),
        ("measure rtt=45.6ms,rate=10gbit".into(), 2, "did you mean lab:rtt=45.6ms,rate=10gbit?"),
        (format!("measure {SCENARIO}"), 2, "is a scenario, not a path"),
        ("measure lab:rtt=1ms,rate=1gbit,kernel=5.15".into(), 2, "use 6.1 or later"),
        ("select".into(), 2, "give its RTT as --rtt 91.6ms"),
        ("select --rtt 1ms --certain 0.3".into(), 2, "above 0.5 and below 1"),
        (format!("measure {lab} --size 1MB --out {SCENARIO}"), 5, "is a file, not a folder"),
        ("measure lab:rtt=50ms,rate=100mbit,rtt=10ms".into(), 2, "'rtt' is given twice; leave one of them out"),
        ("measure lab:rtt=1ms,rate=1gbit,queue=1Mb".into(), 2, "'Mb' may mean bits; write MB for bytes"),
        (format!("measure {lab} --size 1mb"), 2, "'mb' may mean bits; write MB for bytes"),
        (format!("measure {lab} --size 1MB --out /tmp/x.json"), 2, "/tmp/x.json: a record's name ends in .ndjson"),
        ("measure fe80::1 --size 1MB".into(), 2, "link-local address, which says nothing without its interface"),
        ("serve --bind fe80::1".into(), 2, "write fe80::1%eth0"),
        ("serve --bind somewhere".into(), 2, "give an address of this host"),
        ("serve --bind fe80::1%nosuch0".into(), 2, "give an address of this host"),
        ("measure lab:rtt=45.6ms,rate=10gigabit".into(), 2, "unit 'gigabit' is unknown"),
        ("measure lab:rtt=45.6ms".into(), 2, "rate: is missing"),
        ("measure lab:rtt=1ms,rate=1gbit,queue=8KB".into(), 2, "smaller than one packet"),
        ("measure lab:rtt=1ms,rate=1gbit,colour=red".into(), 2, "unknown key 'colour'; known keys: rtt"),
        (format!("measure {lab} --streams 257"), 2, "257 streams: give from 1 to 256"),
        (format!("measure {lab} --streams 65 --transport udt"), 2, "65 streams: give from 1 to 64 over UDT"),
        (format!("measure {lab},disk=1GB/s --streams 65 --size 1GB"), 2, "65 streams: give from 1 to 64"),
        (format!("measure {lab} --buffer 1TB"), 2, "buffer of 1TB cannot be set"),
        (format!("measure {lab} --size 0B"), 2, "moves nothing"),
        (format!("measure {lab} --sample 1ms"), 2, "give at least 10ms"),
        (format!("measure {lab} --size 1MB --out /proc/nowhere"), 5, "/proc/nowhere"),
        ("measure lab:rtt=1ms,rate=1gbit,kernel=9.99 --size 1MB".into(), 3, "fullpipe lab kernel --version 9.99"),
        ("measure no-such-host.invalid --size 1MB".into(), 2, "cannot resolve host 'no-such-host.invalid'"),
        ("measure fe80::1%nosuch0".into(), 2, "this host has no interface nosuch0"),
        ("select --rtt 1ms --within 150%".into(), 2, "'150%' is not a probability: it is out of range"),
        ("measure host:99999".into(), 2, "is not a host"),
        ("measure /no/such/path.toml".into(), 2, "cannot read path file /no/such/path.toml"),
        ("measure 127.0.0.1:1 --cc nosuchcc".into(), 3, "has no congestion control 'nosuchcc'"),
        ("doctor no-such-host.invalid".into(), 2, "cannot resolve host 'no-such-host.invalid'"),
        (
            "measure no-such-host --size 1MB".into(),
            2,
            "check the name: write a name of ssh's configuration as ssh:NAME",
        ),
        ("select no-such-host".into(), 2, "check the name: write a name of ssh's configuration as ssh:NAME"),
        ("doctor no-such-host".into(), 2, "check the name: write a name of ssh's configuration as ssh:NAME"),
        ("measure ./tests".into(), 2, "'./tests' is not a host but a folder: measure its storage as disk:./tests"),
        ("measure tests".into(), 2, "for the folder 'tests', measure its storage as disk:tests"),
        ("measure ./no-such-folder".into(), 2, "is not a host: write NAME, NAME:PORT"),
        ("doctor disk:tests".into(), 2, "doctor checks no disks; if it is mounted by NFS, give mount:tests"),
        ("doctor ./tests".into(), 2, "give mount:./tests"),
        ("select disk:tests".into(), 2, "'fullpipe measure disk:tests'), and give the record with --from-storage"),
        (
            format!("measure {lab} --threads 4"),
            2,
            "add mount=nfs to the path, give disk:FOLDER for a folder of this host",
        ),
        (format!("measure {lab} --block 1MiB"), 2, "add mount=nfs or disk=1GB/s to the path"),
        ("doctor --rtt 0s".into(), 2, "--rtt 0 is no value to check for"),
        ("doctor --rate 10gb".into(), 2, "unit 'gb' is unknown"),
        ("serve --data-ports 9-1".into(), 2, "is not a range"),
        ("serve --data-ports Same".into(), 2, "such as 7413-7476, or as same for the port of control connections"),
        ("serve --port 7420 --data-ports 7420".into(), 2, "give --data-ports same to share it"),
        ("serve --data-ports 7412-7412".into(), 2, "give --data-ports same to share it"),
        ("select --rtt 1ms --profile /no/profile.json".into(), 2, "/no/profile.json"),
        (format!("select --rtt 1ms --profile {SCENARIO}"), 2, "is not a profile"),
        ("measure h --size 1MB --token-file /no/token".into(), 2, "cannot read /no/token: no such file"),
        ("lab run /no/scenario.toml".into(), 2, "/no/scenario.toml"),
        ("lab kernel --source /no/linux.tar.xz".into(), 3, "/no/linux.tar.xz"),
        ("lab kernel --version 9.99".into(), 3, "apt-get install linux-source-9.99"),
        ("cp Cargo.toml h: --ssh ssh'".into(), 2, "a quote in it does not end"),
        ("cp Cargo.toml fullpipe://h/ -P 1".into(), 2, "a server's port in its name"),
        ("cp Cargo.toml h: --memory 1GB".into(), 2, "--memory has an effect only on copies into the testbed"),
        ("frobnicate".into(), 2, "fullpipe has no verb 'frobnicate'"),
    ] {
        let (got, text) = error(&fullpipe(&words));
        assert!(text.contains(part), "{words}: {text}");
        assert_eq!(got, code, "{words}: {text}");
        // One line; where the command line itself is wrong, a hint at --help follows.
        let lines = text.trim().trim_end_matches("For more information, try '--help'.").trim().lines().count();
        assert_eq!(lines, 1, "{words}: {text}");
    }
}

#[test]
fn what_ssh_says_of_its_configuration() {
    let words = ["cp", "--ssh", "ssh -F '/no/such config'", "Cargo.toml", "no-such-host:"];
    let (code, text) = error(&fullpipe_args(&words));
    assert!(code == 4 && text.contains("/no/such config"), "{code}: {text}");
}

#[test]
fn scenario_files() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    for (text, part) in [
        ("path = { rtt = '1ms', rate = '1gbit' }", "program"),
        ("path = { rtt = '1ms', rate = '1gbit' }\nprogram = []", "has no [[program]]"),
        ("path = { rtt = '1ms', rate = '1gbit', x = 1 }\n[[program]]\nend='a'\nrun=['true']", "unknown field `x`"),
        ("path = { rtt = '1ms', rate = '1gbit' }\n[[program]]\nend='c'\nrun=['true']", "unknown variant `c`"),
        ("path = { rtt = '1ms', rate = '1gbit' }\n[[program]]\nend='a'\nrun=[]", "empty 'run'"),
        ("path = { rtt = '1ms', rate = '1gbit' }\n[[program]]\nend='b'\nrun=['true']", "nothing ends it"),
        (
            "path = { rtt = '1ms', rate = '1gbit' }\n[[program]]\nend='a'\nrun=['true']\nstart='3s'\nstop='2s'",
            "'true' has start = 3s, and its stop is 2s",
        ),
        (
            "until = '1s'\npath = { rtt = '1ms', rate = '1gbit' }\n[[program]]\nend='a'\nrun=['true']\nstart='1s'",
            "'true' has start = 1s, and until is 1s",
        ),
        (
            "path = { rtt = '1ms', rate = '1gbit' }\n[[change]]\nat='1s'\nmtu=1500\n[[program]]\nend='a'\nrun=['true']",
            "unknown field `mtu`",
        ),
        (
            "path = { rtt = '1ms', rate = '1gbit' }\n[[change]]\nat='1s'\nqueue='1KB'\n[[program]]\nend='a'\nrun=['true']",
            "the [[change]] at 1s: path queue: 1KB is smaller than one packet",
        ),
        ("path = ", "s.toml"),
    ] {
        std::fs::write(&file, text).unwrap();
        let (code, got) = error(&fullpipe_args(&["lab", "run", file.to_str().unwrap()]));
        assert_eq!(code, 2, "{got}");
        assert!(got.contains(part), "{text}: {got}");
    }
}

#[test]
fn an_output_folder_that_is_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let out = file.join("runs");
    let (code, text) =
        error(&fullpipe_args(&["measure", "127.0.0.1:1", "--size", "1MB", "--out", out.to_str().unwrap()]));
    assert_eq!(code, 5, "{text}");
    assert!(text.contains("choose another folder (--out, --record)"), "{text}");
}

#[test]
fn a_failed_run_leaves_no_record() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("r.ndjson");
    let (code, _) = error(&fullpipe_args(&["measure", "127.0.0.1:1", "--size", "1MB", "--out", out.to_str().unwrap()]));
    assert_eq!(code, 4);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn output_that_nobody_reads_is_no_failure() {
    use std::process::{Command, Stdio};
    let program = || Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    for words in ["select --rtt 91.6ms --explain", "select --rtt 91.6ms --json", "lab kernel --recipe"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = program().args(words.split(' ')).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{words}: {:?}", done.status);
        assert_eq!(String::from_utf8_lossy(&done.stderr), "", "{words}");
    }
    // A full disk is one.
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let done = program().args(["select", "--rtt", "91.6ms"]).stdout(full).output().unwrap();
    assert_eq!(done.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&done.stderr).contains("cannot write to standard output"));
}

#[test]
fn an_unknown_flag_is_not_taken_for_a_value() {
    for words in ["measure host --wach", "serve --wach", "cp --wach a b", "select --wach"] {
        let (code, text) = error(&fullpipe(words));
        assert!(code == 2 && text.contains("--wach") && !text.contains("as a value"), "{words}: {text}");
    }
    assert!(error(&fullpipe("measure host --wach")).1.contains("a similar argument exists: '--watch'"));
}
