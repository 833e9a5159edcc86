//! Ends without what the kernel lets an administrator of networks do.

use std::fs;
use std::process::Command;

use crate::common::{Server, error};
use crate::{Stage, write};

/// As in a container, whose root may not use what others may not use either.
#[test]
fn root_without_its_capabilities() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let stage = Stage::new("");
    write(&stage.at("file"), 1_000_000);
    let mut command = Command::new("setpriv");
    command.args([
        "--bounding-set=-net_admin",
        "--inh-caps=-net_admin",
        env!("CARGO_BIN_EXE_fullpipe"),
        "cp",
        "--json",
    ]);
    command.args(["file", &stage.url("/")]).env("FULLPIPE_TOKEN", stage.token()).current_dir(stage.dir.path());
    let done = command.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(fs::read(stage.at("root/file")).unwrap(), fs::read(stage.at("file")).unwrap());
    // What this kernel gives everybody.
    let allowed = fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let used = |cc: &&str| text.contains(&format!("\"cc\":\"{cc}\""));
    assert!(allowed.split_whitespace().any(|cc| used(&cc)), "{allowed}: {text}");
}

/// As a server of an ordinary user: the client takes a congestion control that the server may set, or says that it may not.
#[test]
fn pulled_from_a_server_without_its_capabilities() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("root")).unwrap();
    let flags = format!("--root {0}/root --token-file {0}/token", dir.path().display());
    let server = Server::start_without_capabilities(&flags);
    let stage = Stage { dir, server };
    write(&stage.at("root/file"), 3_000_000);
    let token = stage.token();
    let done = stage.cp(&[&stage.url("/file"), "file"], Some(&token));
    assert!(done.status.success(), "{done:?}");
    assert_eq!(fs::read(stage.at("root/file")).unwrap(), fs::read(stage.at("file")).unwrap());
    let allowed = fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap();
    if !allowed.split_whitespace().any(|cc| cc == "cubic") {
        let (code, text) = error(&stage.cp(&["--cc", "cubic", &stage.url("/file"), "again"], Some(&token)));
        assert!(
            code == 4 && text.contains("refused: it may not use congestion control 'cubic', only: "),
            "{code} {text}"
        );
    }
}
