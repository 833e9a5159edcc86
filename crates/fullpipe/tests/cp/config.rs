//! What configuration files set for a host.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::host::{Cp, FULLPIPE, Host};
use crate::tree::write;

/// Writes the user's configuration.
fn configure(host: &Host, text: &str) {
    let folder = host.home().join(".config/fullpipe");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), text).unwrap();
    fs::set_permissions(folder.join("config.toml"), fs::Permissions::from_mode(0o600)).unwrap();
}

/// What a copy needs to reach the host.
fn reach(host: &Host) -> String {
    format!("ssh = \"{}\"\nfar-program = \"{FULLPIPE}\"\n", host.ssh)
}

/// `fullpipe cp` with no flag that says how the host is reached.
fn plain(host: &Host) -> Cp {
    let mut cp = host.cp();
    cp.without_flags();
    cp
}

#[test]
fn a_host_has_its_flags() {
    let host = Host::start();
    write(host.file("a"), "1");
    let all = format!("[host.\"F*\"]\n{}via = \"ssh\"\n", reach(&host));
    for (of_far, through_ssh) in [("", true), ("[host.far]\nvia = \"tcp\"", false)] {
        configure(&host, &format!("{all}{of_far}"));
        let done = plain(&host).arg("--explain").arg(host.file("a")).arg(host.far("b")).ok();
        assert_eq!(done.out.contains("ssh connection"), through_ssh, "{}", done.out);
    }
    assert_eq!(fs::read(host.file("b")).unwrap(), b"1");
    // The same from there, and for a user of that name.
    let from = format!("{}@far:{}", whoami(), host.file("a").display());
    plain(&host).arg(from).arg(host.file("c")).ok();
    // A wrong file matters to no copy that reads none.
    configure(&host, "wrong");
    plain(&host).arg(host.file("a")).arg(host.far("e")).fails_at_once(2, "config.toml");
    host.cp().arg("--no-config").arg(host.file("a")).arg(host.far("e")).ok();
    configure(&host, &all);
    // Another host has none of them.
    let other = format!("other:{}", host.file("d").display());
    plain(&host).words("--ssh false").arg(host.file("a")).arg(other).fails(4, "other");
}

fn whoami() -> String {
    String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap().trim().to_owned()
}

#[test]
fn a_host_may_be_reached_over_ssh_and_as_a_server() {
    let host = Host::start();
    write(host.file("a"), "1");
    let both = "data-ports = \"21360-21370\"\ntoken-file = \"~/none\"\n";
    configure(&host, &format!("[host.far]\n{}{both}[host.\"127.0.0.1\"]\n{both}", reach(&host)));
    plain(&host).arg(host.file("a")).arg(host.far("b")).ok();
    // The token's file is looked for, and nothing is said of the ports.
    plain(&host).arg(host.file("a")).arg("fullpipe://127.0.0.1:1/b").fails_at_once(2, "none");
}

#[test]
fn what_is_typed_counts_more() {
    let host = Host::start();
    write(host.file("a"), "1");
    let text = format!("[host.far]\n{}no-deploy = true\nstall = \"1h\"\nvia = \"tcp\"", reach(&host));
    configure(&host, &text);
    let explained = |words: &str| {
        let done = plain(&host).words("--explain").words(words).arg(host.file("a")).arg(host.far("b")).ok();
        done.out + &done.err
    };
    let (as_set, typed) = (explained(""), explained("--via ssh"));
    assert!(!as_set.contains("ssh connections") && typed.contains("ssh connections"), "{as_set} {typed}");
    // Flags of TCP and UDT exclude each other.
    let set = |more: &str| configure(&host, &format!("[host.far]\n{}{more}", reach(&host)));
    set("via = \"ssh\"\ncc = \"reno\"\nrate = \"1gbit\"");
    assert!(explained("--transport udt").contains("udt × 1"));
    set("transport = \"udt\"");
    assert!(explained("").contains("udt × 1") && explained("--cc reno").contains("reno ×"));
    // Those with a longer name count more, and what is typed most: what it leaves out leaves nothing else out.
    configure(&host, &format!("[host.\"*\"]\n{}cc = \"reno\"\n[host.far]\ntransport = \"udt\"", reach(&host)));
    assert!(explained("").contains("udt × 1"));
    assert!(explained("--rate 1gbit -n 2").contains("reno × 2"));
    configure(&host, &format!("[host.\"*\"]\n{}pacing = \"1gbit\"\n[host.far]\npacing = false", reach(&host)));
    let plan = explained("--buffer sobas");
    assert!(plan.contains("window and pacing follow the path"), "{plan}");
    configure(&host, &text);
    // A program that is sent excludes one that is there, and --no-deploy.
    let mut cp = plain(&host);
    cp.arg("--far-binary").arg(host.file("none")).arg(host.file("a")).arg(host.far("c"));
    cp.fails_at_once(2, "there is no such file");
}

#[test]
fn what_is_wrong_in_a_file_is_named() {
    let host = Host::start();
    write(host.file("a"), "1");
    let file = host.home().join(".config/fullpipe/config.toml");
    let copy = || {
        let mut cp = plain(&host);
        cp.arg(host.file("a")).arg(host.far("b"));
        cp
    };
    for (text, part) in [
        ("[host.far]\nvia = \"pigeon\"", "[host.\"far\"]: invalid value 'pigeon' for '--via"),
        ("[host.far]\nport = 70000", "[host.\"far\"]: invalid value '70000' for '--port"),
        ("[host.far]\nno-deploy = \"perhaps\"", "[host.\"far\"]"),
        (
            "[host.far]\nfar-program = \"a\"\nfar-binary = \"b\"",
            "far-program' and 'far-binary', which exclude each other",
        ),
        ("[host.far]\ncc = \"cubic\"\ntransport = \"udt\"", "'transport' and 'cc', which exclude each other"),
        ("[host.far]\nbuffer = \"sobas\"\npacing = \"1gbit\"", "[host.\"far\"] sets 'pacing' and 'buffer'"),
        ("[host.far]\nno-deploy = \"true\"", "[host.\"far\"]: unexpected value 'true' for '--no-deploy'"),
        ("[host.far]\nvia = true", "[host.\"far\"]: a value is required for '--via"),
        ("[host.far]\ntransport = \"true\"", "[host.\"far\"]: invalid value 'true' for '--transport"),
        ("[host.far]\nverbose = true", "sets 'verbose', which is none of via"),
        ("[host.far\n", "line 1"),
    ] {
        configure(&host, text);
        let done = copy().fails_at_once(2, part);
        assert!(done.err.contains("config") && done.err.lines().count() == 1, "{}", done.err);
    }
    configure(&host, &format!("[host.far]\n{}", reach(&host)));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o620)).unwrap();
    copy().fails_at_once(2, "can be written by its group");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    copy().fails_at_once(2, "it is no file");
}

#[test]
fn what_sets_a_flag_is_shown() {
    let host = Host::start();
    let show = |words: &[&str]| {
        let mut command = Command::new(FULLPIPE);
        command.args(["config", "show"]).args(words).env("HOME", host.home()).env_remove("XDG_CONFIG_HOME");
        command.env("FULLPIPE_TOKEN", "a secret").output().unwrap()
    };
    configure(&host, "[host.\"*.example.org\"]\nstall = \"30s\"\nno-deploy = true\n[host.\"*\"]\ntoken-file = \"~/t\"");
    let text = String::from_utf8(show(&["a.example.org"]).stdout).unwrap();
    let line = |flag: &str| text.lines().find(|line| line.starts_with(flag)).unwrap_or_else(|| panic!("{text}"));
    assert!(
        line("stall").contains("30s") && line("stall").ends_with("config.toml, [host.\"*.example.org\"]"),
        "{text}"
    );
    assert!(
        line("no-deploy").contains("true") && line("via").contains("auto") && line("via").ends_with("default"),
        "{text}"
    );
    assert!(line("token-file").contains("FULLPIPE_TOKEN") && !text.contains("secret"), "{text}");
    let json = show(&["elsewhere", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["stall"]["value"], &json["stall"]["from"]), (&"60s".into(), &"default".into()));
    configure(&host, "[host.a]\nvia = \"pigeon\"");
    assert_eq!(show(&["a"]).status.code(), Some(2));
    assert_eq!(show(&["b"]).status.code(), Some(0));
}
