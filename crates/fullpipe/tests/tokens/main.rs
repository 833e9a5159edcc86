//! `fullpipe token`, `serve` with several tokens, and what a server lets those do that have none.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic; that is how it fails")]

#[path = "../common/mod.rs"]
mod common;
mod measuring;

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Server, error, fullpipe, fullpipe_args};
use serde_json::json;

/// A server whose root holds the folders `a` and `b`, each with a file of its name, and a client's folder beside it.
struct Stage {
    dir: tempfile::TempDir,
    server: Server,
}

impl Stage {
    fn new(flags: &str) -> Stage {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            fs::create_dir_all(dir.path().join("root").join(name)).unwrap();
            fs::write(dir.path().join("root").join(name).join(name), name).unwrap();
        }
        fs::write(dir.path().join("file"), "content").unwrap();
        let (root, token) = (dir.path().join("root"), dir.path().join("token"));
        let server = Server::start(&format!("--root {} --token-file {} {flags}", root.display(), token.display()));
        Stage { dir, server }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn token(&self, words: &[&str]) -> Output {
        let file = self.at("token");
        let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
        command.arg("token").args(words).arg("--token-file").arg(file).current_dir(self.dir.path());
        command.output().unwrap()
    }

    /// Makes a token.
    fn new_token(&self, words: &[&str]) -> String {
        let made = self.token(&[&["new"], words].concat());
        let (code, text) = error(&made);
        assert_eq!(code, 0, "{text}");
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    }

    fn run(&self, words: &[&str], token: &str) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
        command.args(words).current_dir(self.dir.path()).stdin(Stdio::null()).env("FULLPIPE_TOKEN", token);
        error(&command.output().unwrap())
    }

    fn push(&self, token: &str) -> (i32, String) {
        self.run(&["cp", "file", &self.url("/")], token)
    }

    fn pull(&self, path: &str, token: &str) -> (i32, String) {
        let _ = fs::remove_file(self.at("got"));
        self.run(&["cp", &self.url(path), "got"], token)
    }

    fn measure(&self, token: &str) -> (i32, String) {
        self.run(&["measure", &self.server.address, "--size", "1MB"], token)
    }

    fn url(&self, path: &str) -> String {
        format!("fullpipe://{}{path}", self.server.address)
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.server.id() as i32), signal).unwrap();
    }
}

fn refused((code, text): (i32, String), part: &str) {
    assert!(code == 4 && text.contains(part), "{code}: {text}");
    assert_eq!(text.trim().lines().count(), 1, "{text}");
}

fn fine((code, text): (i32, String)) {
    assert_eq!(code, 0, "{text}");
}

#[test]
fn tokens_come_go_and_are_named_in_the_log_without_a_restart() {
    let mut stage = Stage::new("");
    let alice = stage.new_token(&["--name", "alice"]);
    fine(stage.push(&alice));
    fine(stage.measure(&alice));
    let log = stage.server.log(2);
    for kind in ["begin", "copied", "end"] {
        let lines: Vec<_> = log.iter().filter(|line| line["kind"] == kind).collect();
        assert!(!lines.is_empty() && lines.iter().all(|line| line["token"] == "alice"), "{kind}: {log:?}");
    }
    let listed = common::json_lines(&stage.token(&["list", "--json"]));
    let names: Vec<_> = listed.iter().map(|line| line["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["default", "alice"]);
    let text = stage.token(&["list"]);
    assert!(!String::from_utf8_lossy(&text.stdout).contains(&alice[4..20]), "no secrets: {text:?}");
    let revoked = common::json_lines(&stage.token(&["revoke", "alice", "--json"]));
    assert_eq!(revoked, [json!({"kind": "revoked", "name": "alice"})]);
    refused(stage.push(&alice), "the token is not this server's; it is mistyped, revoked");
    refused(stage.measure(&alice), "the token is not this server's; it is mistyped, revoked");
    let first = fs::read_to_string(stage.at("token")).unwrap();
    fine(stage.push(first.trim()));
    // One that is revoked again is not known, nor is another.
    let (code, text) = error(&stage.token(&["revoke", "alice"]));
    assert!(code == 2 && text.contains("there are: default"), "{code}: {text}");
    fine(error(&stage.token(&["revoke", "default"])));
    refused(stage.push(first.trim()), "the token is not this server's");
    assert!(stage.server.alive());
}

#[test]
fn a_hangup_signal_reads_the_tokens_again() {
    let mut stage = Stage::new("");
    for _ in 0..3 {
        stage.signal(nix::sys::signal::Signal::SIGHUP);
        std::thread::sleep(Duration::from_millis(50));
    }
    let alice = stage.new_token(&["--name", "alice"]);
    stage.signal(nix::sys::signal::Signal::SIGHUP);
    let began = Instant::now();
    // Nobody has called yet, so it is the signal that has had it read.
    while !stage.server.log(0).iter().any(|line| line["kind"] == "tokens" && line["tokens"] == 2) {
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", stage.server.log(0));
        std::thread::sleep(Duration::from_millis(20));
    }
    fine(stage.push(&alice));
    assert!(stage.server.alive());
    // One without tokens has nothing to read, and goes on.
    let mut other = Server::start("");
    let id = nix::unistd::Pid::from_raw(other.id() as i32);
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGHUP).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(other.alive());
    fine(error(&fullpipe(&format!("measure {} --size 1MB", other.address))));
}

#[test]
fn rights_are_kept() {
    let stage = Stage::new("");
    let (reads, writes) = (stage.new_token(&["--read-only"]), stage.new_token(&["--write-only"]));
    fine(stage.pull("/a/a", &reads));
    fine(stage.run(&["cp", "--dry-run", &stage.url("/a/a"), "got"], &reads));
    refused(stage.push(&reads), "is read-only");
    refused(stage.run(&["cp", "--dry-run", "file", &stage.url("/")], &reads), "is read-only");
    assert!(!stage.at("root/file").exists());
    fine(stage.push(&writes));
    // It is not told what is there, not even whether the folder is.
    for to in ["/", "/a/a", "/none/at/all"] {
        fine(stage.run(&["cp", "--dry-run", "-u", "file", &stage.url(to)], &writes));
    }
    refused(stage.run(&["cp", "--dry-run", "-c", "file", &stage.url("/")], &writes), "leave out --checksum");
    refused(stage.pull("/a/a", &writes), "is write-only");
    // Whether a file was sent would tell whether the content there was guessed.
    refused(stage.run(&["cp", "--checksum", "file", &stage.url("/")], &writes), "leave out --checksum");
    refused(stage.run(&["cp", "--dry-run", &stage.url("/a/a"), "got"], &writes), "is write-only");
    // What is deleted has names, which the client would be told.
    fs::create_dir(stage.at("empty")).unwrap();
    for dry in ["-q", "--dry-run"] {
        let cp = ["cp", "-r", "--delete", dry, "empty/.", &stage.url("/a")];
        refused(stage.run(&cp, &writes), "leave out --delete");
        refused(stage.run(&cp, &reads), "is read-only");
    }
    for dry in ["-q", "--dry-run"] {
        let cp = ["cp", "--remove-source-files", dry, &stage.url("/a/a"), "got"];
        refused(stage.run(&cp, &reads), "leave out --remove-source-files");
        refused(stage.run(&cp, &writes), "is write-only");
    }
    assert!(stage.at("root/a/a").exists());
    assert!(!stage.at("got").exists());
    let both = stage.new_token(&[]);
    fine(stage.run(&["cp", "-q", "--remove-source-files", &stage.url("/b/b"), "got"], &both));
    assert!(stage.at("got").exists() && !stage.at("root/b/b").exists());
    fs::remove_file(stage.at("got")).unwrap();
    fine(stage.measure(&reads));
    fine(stage.measure(&writes));
    let (code, text) = error(&stage.token(&["new", "--read-only", "--write-only"]));
    assert_eq!(code, 2, "{text}");
}

#[test]
fn an_expired_token_is_told_so_and_a_stranger_is_not() {
    let stage = Stage::new("");
    let token = stage.new_token(&["--name", "short", "--expires", "2s"]);
    fine(stage.push(&token));
    std::thread::sleep(Duration::from_millis(2_100));
    refused(stage.push(&token), "the token 'short' has expired");
    refused(stage.measure(&token), "the token 'short' has expired");
    let digit = if &token[4..5] == "0" { "1" } else { "0" };
    refused(stage.push(&format!("fp1-{digit}{}", &token[5..])), "the token is not this server's");
    let listed = common::json_lines(&stage.token(&["list", "--json"]));
    assert!(listed[1]["expired"] == true && listed[0]["expired"] == false, "{listed:?}");
}

#[test]
fn a_token_is_kept_in_its_folder() {
    let stage = Stage::new("");
    let a = stage.new_token(&["--root", "root/a"]);
    fs::create_dir(stage.at("away")).unwrap();
    let away = stage.new_token(&["--root", "away"]);
    fine(stage.push(&a));
    assert_eq!(fs::read(stage.at("root/a/file")).unwrap(), b"content");
    fine(stage.pull("/a", &a));
    // Links may not lead to another's folder, though it is below the server's root.
    std::os::unix::fs::symlink("../b", stage.at("root/a/link")).unwrap();
    for path in ["/../b/b", "/link/b", "/b/b", "/a/a"] {
        let (code, text) = stage.pull(path, &a);
        assert!(code != 0 && !stage.at("got").exists(), "{path}: {code}: {text}");
    }
    for path in ["/../b/", "/link/"] {
        let (code, text) = stage.run(&["cp", "file", &stage.url(path)], &a);
        assert!(code != 0 && !stage.at("root/b/file").exists(), "{path}: {code}: {text}");
    }
    refused(stage.push(&away), "is for a folder that this server does not serve");
    // Nor may the folder itself become a link.
    fs::rename(stage.at("root/a"), stage.at("root/was")).unwrap();
    std::os::unix::fs::symlink("b", stage.at("root/a")).unwrap();
    let (code, text) = stage.pull("/b", &a);
    assert!(code != 0 && !stage.at("got").exists(), "{code}: {text}");
    let (code, text) = stage.push(&a);
    assert!(code != 0 && !stage.at("root/b/file").exists(), "{code}: {text}");
}

#[test]
fn a_token_that_opens_nothing_here_is_told_of_once() {
    let stage = Stage::new("");
    fs::create_dir(stage.at("away")).unwrap();
    let (code, text) = error(&stage.token(&["new", "--name", "away", "--root", "away"]));
    let served = format!("serves {} or a folder above it", stage.at("away").canonicalize().unwrap().display());
    assert!(code == 0 && text.contains(&served), "{code}: {text}");
    let (code, text) = error(&stage.token(&["new", "--root", "nowhere"]));
    assert!(code == 2 && text.contains("--root nowhere: there is no such folder"), "{code}: {text}");
    fs::create_dir(stage.at("root/c")).unwrap();
    stage.new_token(&["--name", "gone", "--root", "root/c"]);
    fs::remove_dir(stage.at("root/c")).unwrap();
    let reload = |n: usize| {
        stage.signal(nix::sys::signal::Signal::SIGHUP);
        let began = Instant::now();
        while stage.server.log(0).iter().filter(|line| line["kind"] == "tokens").count() < n {
            assert!(began.elapsed() < Duration::from_secs(30), "{:?}", stage.server.log(0));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    (1..4).for_each(reload);
    std::thread::sleep(Duration::from_millis(100));
    let warnings = |log: &[serde_json::Value], part: &str| {
        let is_it =
            |line: &&serde_json::Value| line["kind"] == "warning" && line["text"].as_str().unwrap().contains(part);
        log.iter().filter(is_it).count()
    };
    let log = stage.server.log(0);
    assert_eq!(warnings(&log, "token away is for"), 1, "{log:?}");
    assert_eq!(warnings(&log, "token gone is for"), 1, "{log:?}");
    assert!(log.iter().all(|line| line["time"].is_string()), "{log:?}");
}

#[test]
fn a_token_can_be_written_to_a_new_file() {
    let stage = Stage::new("");
    let (code, text) = error(&stage.token(&["new", "--out", "mine"]));
    assert!(code == 0 && text.contains("it is in mine"), "{code}: {text}");
    assert_eq!(fs::metadata(stage.at("mine")).unwrap().permissions().mode() & 0o777, 0o600);
    fine(stage.push(fs::read_to_string(stage.at("mine")).unwrap().trim()));
    let (code, text) = error(&stage.token(&["new", "--out", "mine", "--name", "other"]));
    assert!(code == 5 && text.contains("--out mine: file exists; remove it first, or choose"), "{code}: {text}");
    assert_eq!(common::json_lines(&stage.token(&["list", "--json"])).len(), 2, "none for which there was no file");
}

#[test]
fn a_file_that_cannot_be_written_is_named_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let fails = |words: &[&str], part: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
        let (code, text) = error(
            &command.args(["token", "new", "--new-server"]).args(words).current_dir(dir.path()).output().unwrap(),
        );
        assert!(code == 5 && text.contains(part) && !text.contains("at the destination"), "{words:?}: {code}: {text}");
        assert_eq!(text.trim().lines().count(), 1, "{text}");
    };
    let folder = "cannot make nodir/tok.lock: no such file or directory; make its folder first";
    fails(&["--token-file", "nodir/tok"], folder);
    fails(&["--token-file", "tok", "--out", "nodir/mine"], "--out nodir/mine: no such file or directory; make its");
    let small = dir.path().join("small");
    fs::create_dir(&small).unwrap();
    let mount = |size: &str| {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", size, "fullpipe-test"]).arg(&small).status().is_ok_and(|done| done.success())
    };
    if !nix::unistd::geteuid().is_root() || !mount("size=4k") {
        eprintln!("not tested: no small file system can be mounted here");
        return;
    }
    let full = || {
        fails(&["--token-file", "tok", "--out", "small/mine"], "--out small/mine: no space left on device; make room");
        assert!(!small.join("mine").exists());
        fails(&["--token-file", "small/tok"], "cannot write small/tok.key: no space left on device; make room");
        assert!(!small.join("tok.key.new").exists());
    };
    fs::write(small.join("all"), [0; 4096]).unwrap();
    let tested = std::panic::catch_unwind(std::panic::AssertUnwindSafe(full));
    assert!(Command::new("umount").arg("-l").arg(&small).status().unwrap().success());
    tested.unwrap();
}

#[test]
fn many_tokens_made_at_once_are_all_kept() {
    let stage = Stage::new("");
    let made: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(|| stage.new_token(&[]))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(common::json_lines(&stage.token(&["list", "--json"])).len(), 17);
    fine(stage.push(&made[0]));
    fine(stage.push(&made[15]));
}

#[test]
fn tokens_may_come_before_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let (file, root) = (dir.path().join("token"), dir.path().join("root"));
    fs::create_dir(&root).unwrap();
    let (file, root) = (file.to_str().unwrap(), root.to_str().unwrap());
    // A mistyped name of the server's file makes nothing.
    let (code, text) = error(&fullpipe_args(&["token", "new", "--token-file", file]));
    assert!(code == 2 && text.contains("no server has its tokens there") && text.contains("--new-server"), "{text}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let made = fullpipe_args(&["token", "new", "--new-server", "--read-only", "--root", root, "--token-file", file]);
    assert_eq!(error(&made).0, 0, "{made:?}");
    let _server = Server::start(&format!("--root {root} --token-file {file}"));
    let listed = common::json_lines(&fullpipe_args(&["token", "list", "--json", "--token-file", file]));
    assert!(listed.len() == 1 && listed[0]["rights"] == "read-only", "no first token that may do all: {listed:?}");
}

/// What a server says on standard error before it listens, and how it ends where it does not.
fn said_at_start(words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    command.args(["serve", "--bind", "127.0.0.1", "--port", "0"]).args(words).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let lines = BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok);
    let said: Vec<String> = lines.take_while(|line| !line.starts_with("listening")).collect();
    std::thread::sleep(Duration::from_millis(50));
    let code = server.try_wait().unwrap().and_then(|status| status.code());
    let _ = server.kill();
    server.wait().unwrap();
    (code, said.join("\n"))
}

#[test]
fn a_server_says_who_may_do_what() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    let (token, root) = (dir.path().join("token"), root.to_str().unwrap());
    let (_, text) = said_at_start(&[]);
    assert!(text.contains("ANYONE may measure: runs of at most 600s") && text.contains("nobody may copy"), "{text}");
    let (_, text) = said_at_start(&["--root", root, "--insecure", "--max-duration", "5s"]);
    assert!(text.contains("ANYONE may copy") && text.contains("ANYONE may measure: runs of at most 5s"), "{text}");
    let (_, text) = said_at_start(&["--max-duration", "unlimited"]);
    assert!(text.contains("ANYONE may measure: runs of any length (--max-duration)"), "{text}");
    let (_, text) = said_at_start(&["--root", root, "--token-file", token.to_str().unwrap()]);
    assert!(text.contains("nobody else may") && text.contains("token, made just now (1 token"), "{text}");
    assert!(!text.contains("ANYONE"), "{text}");
    // A program reads the same in the log, behind the line that says where the server listens.
    let server = Server::start("--max-duration 5s");
    let began = Instant::now();
    while server.log(0).is_empty() && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let log = server.log(0);
    assert!(log[0]["kind"] == "note" && log[0]["text"].as_str().unwrap().contains("ANYONE may measure"), "{log:?}");
    assert!(log[0]["time"].is_string() && server.listening["time"].is_string(), "{log:?} {}", server.listening);
}

#[test]
fn limits_without_an_effect_are_told_of_or_refused() {
    for (words, part) in [
        ("--max-clients 0", "give a number from 1 on"),
        ("--max-clients-per-address 0", "give a number from 1 on"),
        ("--stall 0s", "give a time above 0s"),
        ("--max-duration 0s", "give a time above 0s"),
    ] {
        let (code, text) = error(&fullpipe(&format!("serve --bind 127.0.0.1 --port 0 {words}")));
        assert!(code == 2 && text.contains(part), "{words}: {code}: {text}");
    }
    let dir = tempfile::tempdir().unwrap();
    let (token, root) = (dir.path().join("token"), dir.path().to_str().unwrap());
    let words = ["--root", root, "--token-file", token.to_str().unwrap()];
    let told = "warning: --max-duration and --max-clients-per-address limit clients without a token";
    let (_, text) = said_at_start(&[&words[..], &["--max-duration", "5s"]].concat());
    assert!(text.contains(told), "{text}");
    let (_, text) = said_at_start(&words);
    assert!(!text.contains(told), "{text}");
}

#[test]
fn the_log_counts_what_was_copied_apart_from_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("root")).unwrap();
    fs::write(dir.path().join("file"), "content").unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    server.args(["serve", "--bind", "127.0.0.1", "--port", "0", "--insecure", "--root", "root"]);
    let mut server = server.current_dir(dir.path()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok);
    let listening = lines.find(|line| line.starts_with("listening on ")).unwrap();
    let url = format!("fullpipe://{}/", listening.trim_start_matches("listening on "));
    for _ in 0..2 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
        command.args(["cp", "-q", "-u", "--insecure", "file", &url]).current_dir(dir.path());
        fine(error(&command.output().unwrap()));
    }
    let said: Vec<String> = lines.filter(|line| line.contains(" copied")).take(2).collect();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(said[0].contains(": 1 file copied; 7 B in"), "{said:?}");
    assert!(said[1].contains(": 0 files copied, 1 already there; 0 B in"), "{said:?}");
}

#[test]
fn state_that_others_may_have_written_is_refused_and_what_they_may_read_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let (root, file) = (dir.path().join("root"), dir.path().join("token"));
    fs::create_dir(&root).unwrap();
    let words = ["--root", root.to_str().unwrap(), "--token-file", file.to_str().unwrap()];
    assert_eq!(error(&fullpipe_args(&["token", "new", "--new-server", "--token-file", words[3]])).0, 0);
    fs::remove_file(dir.path().join("token.lock")).unwrap();
    // With a first token too.
    let made = fullpipe_args(&["token", "new", "--token-file", words[3], "--out", words[3]]);
    assert_eq!(error(&made).0, 0, "{made:?}");
    for name in ["token", "token.key", "token.store"] {
        let file = dir.path().join(name);
        let mode = |bits| fs::set_permissions(&file, Permissions::from_mode(bits)).unwrap();
        for (bits, reader) in [(0o640, "its group"), (0o644, "ANYONE on this host")] {
            mode(bits);
            let (code, text) = said_at_start(&words);
            let told = format!("{} can be read by {reader}", file.display());
            assert!(code.is_none() && text.contains(&told), "{name}: {code:?}: {text}");
        }
        for (bits, writer) in [(0o620, "its group"), (0o602, "anyone on this host")] {
            mode(bits);
            let (code, text) = said_at_start(&words);
            let told = format!("{} can be written by {writer}", file.display());
            assert!(code == Some(2) && text.contains(&told), "{name}: {code:?}: {text}");
        }
        mode(0o600);
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(12345), None).unwrap();
            let (code, text) = said_at_start(&words);
            assert!(code == Some(2) && text.contains("belongs to user 12345"), "{name}: {code:?}: {text}");
            std::os::unix::fs::chown(&file, Some(0), None).unwrap();
        }
        let (code, text) = said_at_start(&words);
        assert!(code.is_none() && !text.contains("can be"), "{name}: {code:?}: {text}");
    }
}

#[test]
fn a_folder_in_which_others_can_replace_tokens_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let (root, keys) = (dir.path().join("root"), dir.path().join("keys"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&keys).unwrap();
    let file = keys.join("token");
    let words = ["--root", root.to_str().unwrap(), "--token-file", file.to_str().unwrap()];
    for (mode, who) in [(0o700, None), (0o1777, None), (0o770, Some("its group")), (0o777, Some("ANYONE on this host"))]
    {
        fs::set_permissions(&keys, Permissions::from_mode(mode)).unwrap();
        let told = |text: &str| match who {
            None => !text.contains("can be written"),
            Some(who) => text.contains(&format!("warning: {} can be written by {who} (mode", keys.display())),
        };
        let (code, text) = said_at_start(&words);
        assert!(code.is_none() && told(&text), "{mode:o}: {text}");
        let (code, text) = error(&fullpipe_args(&["token", "new", words[2], words[3]]));
        assert!(code == 0 && told(&text), "{mode:o}: {text}");
        // The client's copy of a token, too: whoever replaces it chooses the server.
        let (_, text) = error(&fullpipe_args(&["measure", "127.0.0.1:1", "--size", "1MB", words[2], words[3]]));
        assert!(told(&text), "{mode:o}: {text}");
    }
}

#[test]
fn the_exit_code_tells_a_wrong_store_from_one_that_cannot_be_reached() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    let list = || error(&fullpipe_args(&["token", "list", "--token-file", file.to_str().unwrap()]));
    assert_eq!(error(&fullpipe_args(&["token", "new", "--new-server", "--token-file", file.to_str().unwrap()])).0, 0);
    let store = dir.path().join("token.store");
    fs::set_permissions(&store, Permissions::from_mode(0o666)).unwrap();
    let (code, text) = list();
    assert!(code == 2 && text.contains("can be written by"), "{code}: {text}");
    fs::set_permissions(&store, Permissions::from_mode(0o600)).unwrap();
    fs::write(&store, "{").unwrap();
    let (code, text) = list();
    assert!(code == 2 && text.contains("is not a token store"), "{code}: {text}");
    fs::remove_file(&store).unwrap();
    fs::create_dir(&store).unwrap();
    let (code, text) = list();
    assert!(code == 5 && text.contains("cannot read"), "{code}: {text}");
}

#[test]
fn a_clients_token_file_is_looked_at_too() {
    let stage = Stage::new("");
    fs::copy(stage.at("token"), stage.at("mine")).unwrap();
    let mode = |bits| fs::set_permissions(stage.at("mine"), Permissions::from_mode(bits)).unwrap();
    let words = ["--token-file", "mine"];
    let url = stage.url("/");
    let cp = [&["cp", "file", &url], &words[..]].concat();
    let measure = [&["measure", &stage.server.address, "--size", "1MB"], &words[..]].concat();
    for command in [cp, measure] {
        mode(0o640);
        let (code, text) = stage.run(&command, "");
        assert!(code == 0 && text.contains("mine can be read by its group (mode 0640)"), "{code}: {text}");
        mode(0o660);
        let (code, text) = stage.run(&command, "");
        assert!(code == 2 && text.contains("mine can be written by its group"), "{code}: {text}");
        mode(0o600);
        let (code, text) = stage.run(&command, "");
        assert!(code == 0 && !text.contains("can be"), "{code}: {text}");
    }
}
