//! `fullpipe bench`: every program's copy is checked, and nothing is left at either end.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::host::{FULLPIPE, Host};

/// A folder for each end, and one for programs that stand before all others here.
fn stage(host: &Host) {
    for folder in ["here", "there", "bin"] {
        fs::create_dir(host.file(folder)).unwrap();
    }
}

fn bench(host: &Host, words: &str) -> Command {
    let mut command = Command::new(FULLPIPE);
    let path = std::env::var("PATH").unwrap();
    command.args(["bench", "--ssh", &host.ssh, "--here"]).arg(host.file("here")).args(words.split_whitespace());
    command.arg(format!("far:{}", host.file("there").display())).args(["--", "--far-program", FULLPIPE]);
    command.env("PATH", format!("{}:{path}", host.file("bin").display())).env("HOME", host.home());
    command.env("XDG_CONFIG_HOME", "/nonexistent").stdin(Stdio::null());
    command
}

/// A program that stands before all others of its name here.
fn program(host: &Host, name: &str, text: &str) {
    let file = host.file("bin").join(name);
    fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

fn assert_nothing_is_left(host: &Host) {
    for folder in ["here", "there"] {
        let left: Vec<_> = fs::read_dir(host.file(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn result<'a>(lines: &'a [Value], program: &str) -> &'a Value {
    lines.iter().find(|line| line["program"] == program).unwrap_or_else(|| panic!("no {program}: {lines:?}"))
}

fn lines(out: &Output) -> Vec<Value> {
    String::from_utf8_lossy(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_program_copies_the_same_in_both_directions() {
    let host = Host::start();
    stage(&host);
    for words in ["--size 3MB --json", "--size 3MB --json --reverse --repeat 2"] {
        let out = bench(&host, words).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{out:?}");
        let lines = lines(&out);
        assert_eq!((&lines[0]["kind"], &lines[0]["bytes"]), (&"start".into(), &3_000_000.into()));
        for program in ["fullpipe", "scp", "ssh-cat"] {
            let result = result(&lines, program);
            assert_eq!((&result["checked"], &result["error"]), (&"sha256".into(), &Value::Null), "{result}");
            let (rate, seconds) = (result["rate_bps"].as_f64().unwrap(), result["seconds"].as_f64().unwrap());
            assert!((rate * seconds - 24e6).abs() < 1.0 && result["cpu_s"].as_f64().unwrap() > 0.0, "{result}");
            assert_eq!(result["times_s"].as_array().unwrap().len(), if words.contains("--repeat") { 2 } else { 1 });
        }
        assert_eq!(result(&lines, "fullpipe")["ratio"], 1.0);
        // Without the user's own ssh it would be run.
        assert!(
            ["not on this host", "it takes no other ssh"].contains(&result(&lines, "mscp")["why"].as_str().unwrap())
        );
        assert_eq!(lines.last().unwrap()["kind"], "end");
        assert_nothing_is_left(&host);
    }
}

/// Where this machine has a program; where it has none, that is said.
fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    if found.is_none() {
        eprintln!("not tested: {name} is not installed");
    }
    found
}

/// The login needs the key, whose name has a space: each program has to hand on ssh's options.
fn copies_with(name: &str, needed_there: &str) {
    let Some(there) = installed(name).and_then(|_| installed(needed_there)) else { return };
    let host = Host::start();
    stage(&host);
    symlink(there, host.home().join("bin").join(needed_there)).unwrap();
    let (key, config) = (host.file("my key"), host.home().join("ssh_config").display().to_string());
    fs::copy(host.key(), &key).unwrap();
    for words in ["--size 3MB", "--size 3MB --reverse --repeat 2"] {
        let mut command = Command::new(FULLPIPE);
        command.args(["bench", "--json", "--only", name, "--ssh", &format!("ssh -F {config}"), "-i"]).arg(&key);
        command.args(words.split(' ')).arg("--here").arg(host.file("here"));
        command.arg(format!("unknown:{}", host.file("there").display())).args(["--", "--far-program", FULLPIPE]);
        command.env("HOME", host.home()).env("XDG_CONFIG_HOME", "/nonexistent").env_remove("XDG_CACHE_HOME");
        let out = command.stdin(Stdio::null()).output().unwrap();
        let lines = lines(&out);
        if let Some(line) = lines.iter().find(|line| line["kind"] == "missing") {
            assert!(line["why"].as_str().unwrap().starts_with("before 1.64"), "{line}");
            eprintln!("not tested: {name} is too old: {}", line["why"]);
            return;
        }
        let result = result(&lines, name);
        assert_eq!((&result["error"], &result["checked"]), (&Value::Null, &"sha256".into()), "{result}");
        assert!(result["ratio"].as_f64().unwrap() > 0.0 && result["cpu_s"].as_f64().unwrap() > 0.0, "{result}");
        assert_eq!(out.status.code(), Some(0), "{out:?}");
        assert_nothing_is_left(&host);
    }
}

#[test]
fn rsync_copies() {
    copies_with("rsync", "rsync");
}

#[test]
fn rclone_copies() {
    copies_with("rclone", "rclone");
}

#[test]
fn syq_copies() {
    copies_with("syq", "syq");
}

#[test]
fn rcp_copies() {
    copies_with("rcp", "rcpd");
}

#[test]
fn bbcp_copies() {
    copies_with("bbcp", "bbcp");
}

#[test]
fn the_table_names_what_fails_and_what_is_missing() {
    let host = Host::start();
    stage(&host);
    // The same size, and other bytes.
    program(&host, "scp", "for to; do :; done\nexec dd if=/dev/zero of=\"${to#far:}\" bs=1000 count=1 2>/dev/null");
    program(&host, "rsync", "echo 'no,'; echo thanks >&2; exit 3");
    program(&host, "bbcp", "exit 0");
    program(&host, "rclone", "exit 0");
    // On some systems it is scp.
    program(&host, "rcp", "exit 1");
    symlink("/bin/true", host.home().join("bin/rcpd")).unwrap();
    let out = bench(&host, "--size 1MB --only rsync,scp,bbcp,rclone,rcp").output().unwrap();
    let (table, told) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(1), "{table} {told}");
    let row =
        |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {table}"));
    assert!(row("fullpipe").contains(" 1.000 ") && row("fullpipe").contains("b/s"), "{table}");
    assert!(row("scp").contains("failed: its copy has other content"), "{table}");
    // Where the other host has no rsync, it is left out.
    assert!(table.contains("failed: no,; thanks") || row("left out").contains("rsync (not on far)"), "{table}");
    assert!(
        row("left out").contains("bbcp (not on far)") && row("left out").contains("rclone (before 1.64"),
        "{table}"
    );
    assert!(row("left out").contains("rcp (not the one of rcp-tools)"), "{table}");
    assert!(!table.contains("syq") && !table.contains("ssh-cat"), "{table}");
    assert!(told.contains("writes 1.000 MB of random data below") && told.contains("error: not copied by "), "{told}");
    assert!(told.contains("\nfullpipe ...\n"), "{told}");
    assert_nothing_is_left(&host);
}

/// Before anything is written, and in one line.
#[test]
fn what_is_wrong_is_said_at_once() {
    let host = Host::start();
    stage(&host);
    let fails = |command: &mut Command, code: i32, part: &str| {
        let out = command.output().unwrap();
        let told = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(told.contains(part) && told.lines().count() == 1, "{told}");
        assert_eq!(out.status.code(), Some(code), "{told}");
        assert_nothing_is_left(&host);
    };
    let wrong = "error: behind --, for 'fullpipe cp': invalid value 'foo' for '--transport";
    fails(bench(&host, "").args(["--transport", "foo"]), 2, wrong);
    fails(bench(&host, "").arg("data"), 2, "behind --, for 'fullpipe cp': data is no flag");
    let bare = |words: &[&str]| {
        let mut command = Command::new(FULLPIPE);
        command.arg("bench").args(words).env("HOME", host.home()).env("XDG_CONFIG_HOME", "/nonexistent");
        command.stdin(Stdio::null());
        command
    };
    let here = ["--ssh", &host.ssh, "--here", "/nosuch", "far"];
    fails(&mut bare(&here), 5, "error: --here /nosuch: no such file or directory; give a folder");
    let config = host.ssh.strip_prefix("ssh ").unwrap();
    let unknown = ["--ssh", &host.ssh, "-i", "~/my key", "-P", "1", "far"];
    fails(&mut bare(&unknown), 4, &format!("; to try it, run: ssh {config} -p 1 -i '~/my key' far true"));
    fails(&mut bare(&["nosuchhost.invalid"]), 2, "Could not resolve hostname nosuchhost.invalid");
    let mut cp = host.cp();
    cp.without_flags().ssh(&host.ssh).words("-r -P 1").arg(host.file("here")).arg(host.far("x"));
    cp.fails(4, &format!("; to see all of it, run: ssh {config} -p 1 far"));
    // ssh is the one that knows names, also of two other hosts.
    let mut cp = host.cp();
    cp.arg(host.far("here")).arg("nosuchhost.invalid:x").arg("-r").fails(2, "cannot resolve host 'nosuchhost.invalid'");
}

/// Waits until this holds.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A comparison that waits for scp.
fn waiting(host: &Host) -> Child {
    stage(host);
    program(host, "scp", &format!("touch {}\nexec sleep 50", host.file("runs").display()));
    let mut command = bench(host, "--size 1MB --only scp --quiet");
    let child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("scp runs", || host.file("runs").exists());
    assert!(!is_empty(&host.file("here")) && !is_empty(&host.file("there")));
    child
}

/// Sends a signal to a process, or to all of its group.
fn send(child: &Child, signal: Signal, all: bool) {
    let id: i32 = child.id().try_into().unwrap();
    kill(Pid::from_raw(if all { -id } else { id }), signal).unwrap();
}

#[test]
fn an_interruption_leaves_nothing() {
    // A terminal's Ctrl-C goes to all processes in the foreground.
    for (signal, all) in [(Signal::SIGINT, true), (Signal::SIGINT, false), (Signal::SIGTERM, false)] {
        let host = Host::start();
        let child = waiting(&host);
        send(&child, signal, all);
        let out = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(130), "{told}");
        assert_eq!(told.trim(), "error: interrupted; what was written has been removed");
        assert_nothing_is_left(&host);
    }
}

#[test]
fn a_killed_comparison_leaves_nothing_at_the_other_host() {
    let host = Host::start();
    let mut child = waiting(&host);
    send(&child, Signal::SIGKILL, false);
    child.wait().unwrap();
    eventually("the other host's folder goes", || is_empty(&host.file("there")));
}

#[test]
fn what_cannot_be_compared_is_said_in_one_line() {
    let host = Host::start();
    stage(&host);
    let here = host.file("here").display().to_string();
    for (words, code, part) in [
        (&["fullpipe://host/"][..], 2, "give HOST or HOST:FOLDER"),
        (&["far", "--only", "cp"], 2, "'cp' is no program that is known; give some of fullpipe, rsync, scp"),
        (&["far", "--size", "0B"], 2, "copies nothing"),
        (
            &["closed"],
            4,
            "ssh closed: ssh: connect to host 127.0.0.1 port 1: Connection refused; to try it, run: ssh -F ",
        ),
        (&["unknown"], 4, "Permission denied"),
        (&["far:/no/such"], 4, "no folder can be made in /no/such"),
        (&["far", "--here", "/no/such"], 5, "/no/such"),
        (&["far", "--size", "1000TB"], 5, "too little for 1000"),
    ] {
        let mut command = Command::new(FULLPIPE);
        command.args(["bench", "--ssh", &host.ssh, "--here", &here].into_iter().filter(|_| !words.contains(&"--here")));
        if words.contains(&"--here") {
            command.args(["bench", "--ssh", &host.ssh]);
        }
        let out = command.args(words).env("XDG_CONFIG_HOME", "/nonexistent").stdin(Stdio::null()).output().unwrap();
        let told = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(code) && told.contains(part), "{words:?}: {:?} {told}", out.status);
        assert_eq!(told.lines().count(), 1, "{told}");
        assert_nothing_is_left(&host);
    }
}
