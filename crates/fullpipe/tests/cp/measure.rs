//! `fullpipe measure ssh:HOST`: the server of a measurement is started over ssh, and ends with it.

use std::fs;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use crate::firewall::behind;
use crate::host::{FULLPIPE, Host, ignores, until};

/// The command; the words come before the host, which is `far` unless they name another one.
fn measure(host: &Host, words: &str) -> Command {
    let mut command = Command::new(FULLPIPE);
    command.args(["measure", "--ssh", &host.ssh]).args(words.split_whitespace());
    if !words.contains("ssh:") {
        command.arg("ssh:far");
    }
    command.env("HOME", host.home()).env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME").stdin(Stdio::null());
    command
}

/// Lets logins find this program, so that it need not be sent.
fn install(host: &Host, text: &str) {
    let script = host.script("fullpipe", text);
    fs::rename(script, host.home().join("bin/fullpipe")).unwrap();
}

fn ok(host: &Host, words: &str) -> Output {
    let out = measure(host, words).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{words}: {out:?}");
    out
}

/// Runs it; it must fail with a code and one line that says this.
fn fails(host: &Host, words: &str, code: i32, part: &str) {
    let out = measure(host, words).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    // An ordinary user may not be allowed the congestion control that would be taken.
    let said = said.lines().filter(|line| !line.starts_with("this user cannot use ")).collect::<Vec<_>>().join("\n");
    assert!(said.contains(part) && said.trim_end().lines().count() == 1, "{words}: '{part}' expected: {said}");
    assert_eq!(out.status.code(), Some(code), "{words}: {said}");
}

/// The lines of one kind in what `--json` printed.
fn lines(out: &Output, kind: &str) -> Vec<Value> {
    let all = String::from_utf8_lossy(&out.stdout);
    let all = all.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line["kind"] == kind).collect()
}

/// The ids of far ends that have written them down.
fn ids(host: &Host) -> Vec<String> {
    let ids = fs::read_to_string(host.home().join("ids")).unwrap_or_default();
    ids.lines().map(str::to_owned).collect()
}

/// A far end that writes down its process id.
fn known_by_id(host: &Host) {
    let file = host.home().join("ids");
    let text = format!("[ $2 = --speaks ] || echo $$ >> {}\nexec {FULLPIPE} \"$@\"", file.display());
    install(host, &text);
}

fn assert_ended(ids: &[String]) {
    assert!(!ids.is_empty());
    until("the far ends are gone", || !ids.iter().any(|id| Path::new("/proc").join(id).exists()));
}

#[test]
fn nothing_is_installed_at_the_far_end() {
    let host = Host::start();
    let out = ok(&host, "--duration 300ms --json");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("far has no fullpipe of this version; sending this one"), "{said}");
    // The record names the host as it was typed, not the port that was free.
    assert_eq!(lines(&out, "run")[0]["path"], "far:7412");
    assert!(lines(&out, "result")[0]["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{out:?}");
    assert!(!String::from_utf8_lossy(&ok(&host, "--duration 100ms").stderr).contains("sending"));
}

#[test]
fn it_measures_as_to_a_server_and_ends_with_the_measurement() {
    let host = Host::start();
    known_by_id(&host);
    for words in [
        "--reverse",
        "--bidir --streams 2",
        "--transport udt --streams 2",
        "--transport udp --pacing 10mbit",
        "--probe",
        "--repeat 2 --data-ports 21300-21320",
    ] {
        let out = ok(&host, &format!("{words} --duration 300ms --json"));
        assert_eq!(
            lines(&out, "run").len(),
            if words.contains("--bidir") || words.contains("--repeat") { 2 } else { 1 }
        );
    }
    let ids = ids(&host);
    // One for a command, also for several measurements.
    assert_eq!(ids.len(), 6);
    assert_ended(&ids);
}

#[test]
fn what_ends_the_server_is_named() {
    let host = Host::start();
    known_by_id(&host);
    let mut command = measure(&host, "--duration 30s");
    let client = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the server runs", || !ids(&host).is_empty());
    std::thread::sleep(std::time::Duration::from_secs(1));
    kill(Pid::from_raw(ids(&host)[0].parse().unwrap()), Signal::SIGKILL).unwrap();
    let out = client.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(4) && said.contains("connection to far, or the server"), "{said}");
}

#[test]
fn a_far_program_of_another_version_is_named() {
    let host = Host::start();
    let old = "echo \"error: unexpected argument '$2' found\n\nUsage: fullpipe far [OPTIONS]\n\nFor more information, try '--help'.\" >&2; exit 2";
    configure(&host, &format!("far-program = \"{}\"\n", host.script("old", old).display()));
    fails(&host, "--duration 100ms", 4, "far has another version of fullpipe");
}

#[test]
fn the_server_ends_with_a_client_that_is_killed() {
    let host = Host::start();
    known_by_id(&host);
    let mut client = measure(&host, "--duration 60s --quiet").stderr(Stdio::null()).spawn().unwrap();
    until("the server runs", || !ids(&host).is_empty());
    std::thread::sleep(std::time::Duration::from_millis(500));
    kill(Pid::from_raw(client.id() as i32), Signal::SIGKILL).unwrap();
    client.wait().unwrap();
    assert_ended(&ids(&host));
}

#[test]
fn ctrl_c_ends_a_measurement_with_its_result() {
    let host = Host::start();
    install(&host, &format!("exec {FULLPIPE} \"$@\""));
    let mut command = measure(&host, "--duration unlimited --json --data-ports 21380-21389");
    // As on a terminal, where ssh is of the same process group.
    command.env("DISPLAY", ":0").process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let client = command.spawn().unwrap();
    until("the server listens", || TcpStream::connect("127.0.0.1:21380").is_ok());
    std::thread::sleep(std::time::Duration::from_secs(2));
    // Over a long path, an ssh that ended, too, would take the server away before its report is here.
    let ssh = fs::read_to_string(format!("/proc/{0}/task/{0}/children", client.id())).unwrap();
    let ssh = ssh.split_whitespace().next().unwrap();
    assert_eq!(fs::read_to_string(format!("/proc/{ssh}/comm")).unwrap(), "ssh\n");
    assert!(ignores(ssh, Signal::SIGINT));
    killpg(Pid::from_raw(client.id() as i32), Signal::SIGINT).unwrap();
    let out = client.wait_with_output().unwrap();
    // Nothing else ends such a run, so it has succeeded.
    assert_eq!((out.status.code(), lines(&out, "result").len()), (Some(0), 1), "{out:?}");
}

#[test]
fn the_server_serves_nobody_else() {
    let host = Host::start();
    known_by_id(&host);
    let mut client = measure(&host, "--duration 60s --quiet --data-ports 21330-21339").spawn().unwrap();
    until("the server listens", || TcpStream::connect("127.0.0.1:21330").is_ok());
    let other = Command::new(FULLPIPE).args(["measure", "127.0.0.1:21330", "--duration", "100ms"]).output().unwrap();
    let said = String::from_utf8_lossy(&other.stderr);
    assert!(!other.status.success() && said.contains("token"), "{said}");
    let copy = Command::new(FULLPIPE)
        .args(["cp", "--insecure", "/etc/hostname", "fullpipe://127.0.0.1:21330/x"])
        .output()
        .unwrap();
    assert!(!copy.status.success(), "{copy:?}");
    kill(Pid::from_raw(client.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(client.wait().unwrap().code(), Some(130));
    assert_ended(&ids(&host));
}

#[test]
fn a_repeated_measurement_starts_a_lost_server_again() {
    let host = Host::start();
    // The first far end is gone before the measurement, as after a reboot.
    let once = host.home().join("once");
    let text = format!(
        "[ $2 = --speaks ] || [ -e {0} ] || {{ touch {0}; echo fullpipe-far >&2; exit 1; }}\nexec {FULLPIPE} \"$@\"",
        once.display()
    );
    install(&host, &text);
    let out = measure(&host, "--repeat 2 --duration 100ms --json").output().unwrap();
    assert_eq!((out.status.code(), lines(&out, "run").len()), (Some(4), 1), "{out:?}");
    assert!(String::from_utf8_lossy(&out.stderr).contains("1 of 2 measurements failed"), "{out:?}");
}

#[test]
fn a_port_behind_a_firewall_is_named() {
    behind(
        "add table ip t; add chain ip t c { type filter hook input priority 0; }; add rule ip t c tcp dport 21340 drop",
        || {
            let host = Host::start();
            install(&host, &format!("exec {FULLPIPE} \"$@\""));
            let said = "127.0.0.1:21340 does not answer";
            fails(&host, "--data-ports 21340-21341 --duration 100ms", 4, said);
            fails(&host, "--data-ports 21340-21341 --duration 100ms", 4, "have 21340-21341 opened in the firewall");
            ok(&host, "--data-ports 21341-21342 --streams 4 --duration 100ms");
            // The round trip through ssh tells, too.
            configure(&host, &format!("ssh = \"{}\"\ndata-ports = \"21340\"\n", host.ssh));
            let mut select = Command::new(FULLPIPE);
            select.args(["select", "ssh:far"]).env("HOME", host.home()).env_remove("XDG_CONFIG_HOME");
            let out = select.output().unwrap();
            assert_eq!(out.status.code(), Some(0), "{out:?}");
        },
    );
}

#[test]
fn what_is_typed_wrong_is_one_line() {
    let host = Host::start();
    install(&host, &format!("exec {FULLPIPE} \"$@\""));
    for (words, code, part) in [
        ("ssh:far:22", 2, "--ssh 'ssh -p PORT'"),
        ("ssh:", 2, "'ssh:' is not a host"),
        ("ssh:-oProxyCommand=x", 2, "is not a host"),
        ("ssh:[::1]:22", 2, "--ssh 'ssh -p PORT'"),
        ("ssh:[::1", 2, "is not a host"),
        ("ssh:@far", 2, "is not a host"),
        ("ssh:far --token-file /etc/hostname", 2, "leave it out"),
        ("ssh:far --memory 1GB", 2, "--memory has no effect"),
        ("ssh:far --data-ports 7413", 2, "has too few ports: this takes 2"),
        ("ssh:far --bidir --data-ports 7413-7414", 2, "has too few ports: this takes 3"),
        ("ssh:far --data-ports 9-8", 2, "is not a range of ports"),
        ("ssh:closed --duration 100ms", 4, "ssh closed"),
        ("ssh:unknown --duration 100ms", 4, "Permission denied"),
    ] {
        fails(&host, words, code, part);
    }
    // Where ssh is not asked, its flags are refused.
    for words in [
        "measure 127.0.0.1 --data-ports 7413",
        "measure disk:/tmp --ssh ssh",
        "select --rtt 1ms --ssh ssh",
        "select lab:rtt=1ms,rate=1gbit --ssh ssh",
        "doctor --ssh ssh",
        "doctor mount:/ --data-ports 7413",
    ] {
        let out = Command::new(FULLPIPE).args(words.split_whitespace()).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        let is_named = said.contains("write its name as ssh:HOST") || said.contains("is for a path between hosts");
        assert!(is_named && out.status.code() == Some(2), "{words}: {said}");
    }
}

/// Writes the user's configuration for the host.
fn configure(host: &Host, text: &str) {
    let folder = host.home().join(".config/fullpipe");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), format!("[host.far]\n{text}")).unwrap();
}

#[test]
fn the_configuration_says_how_ssh_connects() {
    let host = Host::start();
    install(&host, "exit 3");
    configure(&host, &format!("far-program = \"{FULLPIPE}\"\ndata-ports = \"21350-21355\"\n"));
    ok(&host, "--duration 100ms");
    // What is typed counts more.
    fails(&host, "--duration 100ms --data-ports 9-8", 2, "is not a range of ports");
}

#[test]
fn select_and_doctor_ask_over_ssh() {
    let host = Host::start();
    known_by_id(&host);
    configure(&host, &format!("ssh = \"{}\"\n", host.ssh));
    let ask = |words: &str| {
        let mut command = Command::new(FULLPIPE);
        command.args(words.split_whitespace()).arg("ssh:far").env("HOME", host.home()).env_remove("XDG_CONFIG_HOME");
        let out = command.output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{words}: {out:?}");
        String::from_utf8(out.stdout).unwrap()
    };
    let selected: Value = serde_json::from_str(&ask("select --json")).unwrap();
    let path = selected["path"].as_str().unwrap_or_else(|| panic!("{selected}"));
    // Of loopback, whatever the machine.
    assert!(path.starts_with("lab:rtt=0.") || path.starts_with("lab:rtt=1."), "{path}");
    // Both ends are checked.
    let said = ask("doctor");
    assert!(said.contains("measured to ssh:far") && said.contains("\nat the other end, far (Linux "), "{said}");
    let said = ask("doctor --json --rtt 366ms --rate 400gbit");
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let hosts: Vec<_> = lines.iter().filter(|line| line["kind"] == "doctor").collect();
    assert!(hosts.len() == 2 && hosts[1]["host"] == "far" && hosts[1]["interfaces"][0] == "lo", "{hosts:?}");
    let windows = lines.iter().filter(|line| line["subject"] == "one stream" && line["state"] == "costs");
    assert_eq!(windows.count(), 2, "{said}");
    assert_eq!(ids(&host).len(), 3);
    assert_ended(&ids(&host));
}
