//! `fullpipe serve --root` and `fullpipe cp` with it: tokens, places, confinement.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic; that is how it fails")]

mod capabilities;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/firewall.rs"]
mod firewall;
mod ports;

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{NO_CONFIG, Server, error};

/// A server with its token, and a client's place beside its root.
struct Stage {
    dir: tempfile::TempDir,
    server: Server,
}

impl Stage {
    fn new(flags: &str) -> Stage {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        let (root, token) = (dir.path().join("root"), dir.path().join("token"));
        let token =
            if flags.contains("--insecure") { String::new() } else { format!("--token-file {}", token.display()) };
        let server = Server::start(&format!("--root {} {token} {flags}", root.display()));
        Stage { dir, server }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn token(&self) -> String {
        fs::read_to_string(self.at("token")).unwrap().trim().to_owned()
    }

    fn cp(&self, words: &[&str], token: Option<&str>) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
        command.arg("cp").args(words).current_dir(self.dir.path()).stdin(Stdio::null());
        command.env_remove("FULLPIPE_TOKEN").env("XDG_CONFIG_HOME", NO_CONFIG);
        if let Some(token) = token {
            command.env("FULLPIPE_TOKEN", token);
        }
        command.output().unwrap()
    }

    fn url(&self, path: &str) -> String {
        format!("fullpipe://{}{path}", self.server.address)
    }
}

fn write(path: &Path, len: usize) {
    let bytes: Vec<u8> = (0..len).map(|i| (i * 31 + i / 251) as u8).collect();
    fs::write(path, bytes).unwrap();
}

/// Also with a token that may only write, and not out of the server's folder.
#[test]
fn a_pipe_to_a_server_and_back() {
    let stage = Stage::new("");
    let token = stage.token();
    let cp = |words: &[&str], input: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
        command.arg("cp").args(words).env("FULLPIPE_TOKEN", &token);
        command.stdin(fs::File::open(stage.at(input)).unwrap()).output().unwrap()
    };
    write(&stage.at("file"), 5_000_001);
    let (code, text) = error(&cp(&["-", &stage.url("/x")], "file"));
    assert_eq!(code, 0, "{text}");
    assert_eq!(fs::read(stage.at("root/x")).unwrap(), fs::read(stage.at("file")).unwrap());
    let back = cp(&[&stage.url("/x"), "-"], "file");
    assert_eq!(error(&back).0, 0, "{}", error(&back).1);
    assert!(back.stdout == fs::read(stage.at("file")).unwrap());
    for (to, why) in [("/../x", "may not have"), ("/none/x", "its folder does not exist")] {
        let (code, text) = error(&cp(&["-", &stage.url(to)], "file"));
        assert!(code == 2 && text.contains(why), "{to}: {code} {text}");
    }
    assert!(!stage.at("x").exists());
}

/// Other names of a file on a server may lie outside of its folder.
#[test]
fn in_place_on_a_server_only_where_a_file_has_no_other_name() {
    use std::os::unix::fs::MetadataExt;
    let stage = Stage::new("");
    let token = stage.token();
    for (name, len) in [("large", 5_000_001), ("small", 300)] {
        write(&stage.at(name), len);
        let there = stage.at("root").join(name);
        for linked in [false, true] {
            fs::write(&there, "old").unwrap();
            let outside = stage.at("outside");
            if linked {
                fs::hard_link(&there, &outside).unwrap();
            }
            let before = there.metadata().unwrap().ino();
            let (code, text) = error(&stage.cp(&["--inplace", name, &stage.url("/")], Some(&token)));
            assert_eq!(code, 0, "{text}");
            assert!(fs::read(&there).unwrap() == fs::read(stage.at(name)).unwrap(), "{name}");
            assert_eq!(there.metadata().unwrap().ino() == before, !linked, "{name}");
            if linked {
                assert_eq!(fs::read_to_string(&outside).unwrap(), "old");
                fs::remove_file(&outside).unwrap();
            }
        }
    }
}

/// A client deletes on a server what its source does not have, and nothing out of the folder.
#[test]
fn deleting_on_a_server() {
    let stage = Stage::new("");
    fs::create_dir_all(stage.at("source/sub")).unwrap();
    write(&stage.at("source/a"), 10);
    fs::create_dir_all(stage.at("root/in/sub/old")).unwrap();
    for name in ["root/in/x", "root/in/sub/old/y", "root/beside", "outside"] {
        write(&stage.at(name), 10);
    }
    std::os::unix::fs::symlink("../../outside", stage.at("root/in/link")).unwrap();
    let url = stage.url("/in");
    let token = stage.token();
    let planned = stage.cp(&["-r", "--delete", "--dry-run", "source/.", &url], Some(&token));
    assert_eq!(error(&planned).0, 0, "{}", error(&planned).1);
    assert!(stage.at("root/in/x").exists());
    let done = stage.cp(&["-rv", "--delete", "source/.", &url], Some(&token));
    assert_eq!(error(&done).0, 0, "{}", error(&done).1);
    for name in ["x", "sub/old", "sub/old/y", "link"] {
        assert!(String::from_utf8_lossy(&done.stdout).contains(&format!("deleted: {name}\n")), "{name}: {done:?}");
        assert!(
            String::from_utf8_lossy(&planned.stdout).contains(&format!("would delete  {name}\n")),
            "{name}: {planned:?}"
        );
        assert!(fs::symlink_metadata(stage.at("root/in").join(name)).is_err(), "{name}");
    }
    assert!(stage.at("outside").exists() && stage.at("root/beside").exists() && stage.at("root/in/a").exists());
}

#[test]
fn there_and_back_with_a_token() {
    let stage = Stage::new("");
    write(&stage.at("file"), 5_000_001);
    let token = stage.token();
    let (code, text) = error(&stage.cp(&["file", &stage.url("/in/")], Some(&token)));
    assert_eq!(code, 0, "{text}");
    assert_eq!(fs::read(stage.at("root/in/file")).unwrap(), fs::read(stage.at("file")).unwrap());
    let (code, text) = error(&stage.cp(&[&stage.url("/in/file"), "back"], Some(&token)));
    assert_eq!(code, 0, "{text}");
    assert_eq!(fs::read(stage.at("back")).unwrap(), fs::read(stage.at("file")).unwrap());
    // It still measures.
    let file = stage.at("token");
    let measured = format!("measure {} --size 1MB --token-file {}", stage.server.address, file.display());
    let measured = common::fullpipe(&measured);
    assert!(measured.status.success(), "{measured:?}");
}

#[test]
fn only_with_its_token() {
    let mut stage = Stage::new("");
    write(&stage.at("file"), 10);
    let token = stage.token();
    let last = if token.ends_with('0') { "1" } else { "0" };
    let other_server = format!("{}{last}", &token[..token.len() - 1]);
    let other_secret = format!("fp1-{}{}", if &token[4..5] == "0" { "1" } else { "0" }, &token[5..]);
    for (token, code, part) in [
        (None, 2, "without --root it serves no files"),
        (Some("nonsense"), 2, "not a valid token"),
        (Some(other_server.as_str()), 4, "Ask the server's operator for a new token"),
        (Some(other_secret.as_str()), 4, "ask this one's operator for a new token"),
    ] {
        let (got, text) = error(&stage.cp(&["file", &stage.url("/")], token));
        assert_eq!(got, code, "{text}");
        assert!(text.contains(part), "{text}");
        assert_eq!(text.trim().lines().count(), 1, "{text}");
        // What is only asked about is refused alike.
        let (got, text) = error(&stage.cp(&["--dry-run", "file", &stage.url("/")], token));
        assert!(got == code && text.contains(part), "{got}: {text}");
    }
    for words in [vec!["--insecure", "file"], vec!["--no-encrypt", "file"]] {
        let url = stage.url("/");
        let words: Vec<&str> = words.into_iter().chain([url.as_str()]).collect();
        let token = if words[0] == "--insecure" { None } else { Some(token.as_str()) };
        let (got, text) = error(&stage.cp(&words, token));
        assert_eq!(got, 4, "{words:?}: {text}");
        let asked: Vec<&str> = ["--dry-run"].into_iter().chain(words).collect();
        assert_eq!(error(&stage.cp(&asked, token)), (got, text), "{asked:?}");
    }
    assert_eq!(fs::read_dir(stage.at("root")).unwrap().count(), 0);
    assert!(stage.server.alive());
}

#[test]
fn the_one_client_is_one_that_shows_the_token() {
    let mut stage = Stage::new("--once");
    write(&stage.at("file"), 10);
    let token = stage.token();
    drop(TcpStream::connect(&stage.server.address).unwrap());
    let other_secret = format!("fp1-{}{}", if &token[4..5] == "0" { "1" } else { "0" }, &token[5..]);
    assert_eq!(error(&stage.cp(&["file", &stage.url("/")], Some(&other_secret))).0, 4);
    // Nor is it one that only asks.
    let (code, text) = error(&stage.cp(&["--dry-run", "file", &stage.url("/")], Some(&token)));
    assert_eq!(code, 0, "{text}");
    let (code, text) = error(&stage.cp(&["file", &stage.url("/")], Some(&token)));
    assert_eq!(code, 0, "{text}");
    let began = Instant::now();
    while stage.server.alive() {
        assert!(began.elapsed() < Duration::from_secs(30), "it has served its client");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nothing_leads_out_of_the_root() {
    let stage = Stage::new("--insecure");
    write(&stage.at("file"), 10);
    write(&stage.at("secret"), 10);
    fs::create_dir(stage.at("outside")).unwrap();
    std::os::unix::fs::symlink("..", stage.at("root/up")).unwrap();
    std::os::unix::fs::symlink(stage.at("outside"), stage.at("root/away")).unwrap();
    for to in ["/../outside/", "/up/outside/", "/away/", "/away/x/", "/up/new"] {
        let (code, text) = error(&stage.cp(&["--insecure", "file", &stage.url(to)], None));
        assert_ne!(code, 0, "{to}: {text}");
        // The name stands in the message once.
        assert!(text.matches("outside").count() <= 1, "{text}");
    }
    for from in ["/../secret", "/up/secret", "/away", "/../s*", "/u?/secret", "/up/*", "/*/secret", "/[a]way"] {
        let (code, text) = error(&stage.cp(&["--insecure", "-r", &stage.url(from), "got"], None));
        assert_ne!(code, 0, "{from}: {text}");
        assert!(!stage.at("got").exists(), "{from}");
        fs::create_dir(stage.at("got")).unwrap();
        let (code, text) = error(&stage.cp(&["--insecure", "-r", &stage.url(from), "got/"], None));
        assert_ne!(code, 0, "{from}: {text}");
        let got = fs::read_dir(stage.at("got")).unwrap().map(|it| it.unwrap().file_name());
        assert_eq!(got.filter(|name| !name.to_string_lossy().starts_with(".fullpipe.")).count(), 0, "{from}");
        fs::remove_dir_all(stage.at("got")).unwrap();
    }
    assert_eq!(fs::read_dir(stage.at("outside")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(stage.dir.path()).unwrap().count(), 4, "file, secret, outside, root");
    // A tree may hold a link that leads out; it stays a link, and nothing is written through it.
    fs::create_dir(stage.at("tree")).unwrap();
    std::os::unix::fs::symlink("/etc", stage.at("tree/etc")).unwrap();
    let (code, text) = error(&stage.cp(&["--insecure", "-r", "tree", &stage.url("/")], None));
    assert_eq!(code, 0, "{text}");
    assert_eq!(fs::read_link(stage.at("root/tree/etc")).unwrap(), Path::new("/etc"));
}

#[test]
fn a_link_that_is_named_as_destination_is_followed_within_the_root_only() {
    let stage = Stage::new("");
    write(&stage.at("a"), 3000);
    write(&stage.at("outside"), 10);
    fs::create_dir(stage.at("root/sub")).unwrap();
    write(&stage.at("root/sub/file"), 10);
    for (target, link) in [("sub/file", "in"), ("../outside", "out"), ("/etc/no-such-file", "absolute")] {
        std::os::unix::fs::symlink(target, stage.at("root").join(link)).unwrap();
    }
    let copy = |link: &str| stage.cp(&["a", &stage.url(&format!("/{link}"))], Some(&stage.token()));
    let (code, text) = error(&copy("in"));
    assert_eq!(code, 0, "{text}");
    assert_eq!(fs::read(stage.at("a")).unwrap(), fs::read(stage.at("root/sub/file")).unwrap());
    for link in ["out", "absolute"] {
        let (code, text) = error(&copy(link));
        assert_eq!(code, 2, "{text}");
        assert!(text.contains("it leads out of the server's folder"), "{text}");
    }
    assert_eq!(fs::metadata(stage.at("outside")).unwrap().len(), 10);
    for link in ["in", "out", "absolute"] {
        assert!(fs::symlink_metadata(stage.at("root").join(link)).unwrap().is_symlink(), "{link}");
    }
}

#[test]
fn its_log_says_who_copied_what() {
    let stage = Stage::new("--insecure");
    write(&stage.at("file"), 10);
    for words in [["file", &stage.url("/in/")], [&stage.url("/in/f*"), "back/"], [&stage.url("/none"), "back/"]] {
        stage.cp(&["--insecure", words[0], words[1]], None);
    }
    let log = stage.server.log(3);
    let of = |kind: &str| log.iter().filter(|line| line["kind"] == kind).collect::<Vec<_>>();
    let (begun, copied, ended) = (of("begin"), of("copied"), of("end"));
    assert_eq!(begun[0]["to"], serde_json::json!(["/in/"]));
    assert_eq!(begun[1]["from"], serde_json::json!(["/in/f*"]));
    assert_eq!(begun[2]["from"], serde_json::json!(["/none"]));
    assert_eq!(copied.len(), 2);
    assert!(copied.iter().all(|line| line["files"] == 1 && line["bytes"] == 10 && line["left_total"] == 0));
    assert_eq!(copied[0]["peer"], begun[0]["peer"]);
    assert!(copied[0]["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(ended[0]["error"].is_null() && ended[2]["error"].as_str().unwrap().contains("/none"), "{log:?}");
}

#[test]
fn its_log_says_whom_its_end_cuts_off() {
    let mut stage = Stage::new("--insecure");
    write(&stage.at("file"), 3_000_000);
    let id = nix::unistd::Pid::from_raw(stage.server.id() as i32);
    let (words, url) = (["--insecure", "--pacing", "8mbit", "--stall", "1s", "file"], stage.url("/"));
    let cut = std::thread::scope(|scope| {
        let copy = scope.spawn(|| stage.cp(&[&words[..], &[&url]].concat(), None));
        while fs::read_dir(stage.at("root")).unwrap().count() < 2 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
        copy.join().unwrap()
    });
    assert_eq!(error(&cut).0, 4, "{cut:?}");
    let log = stage.server.log(1);
    assert_eq!(log.last().unwrap()["error"], "cut off: SIGTERM has ended this server", "{log:?}");
    let begun = log.iter().find(|line| line["kind"] == "begin").unwrap();
    assert_eq!(log.last().unwrap()["peer"], begun["peer"]);
    assert!(!stage.server.alive());
}

#[test]
fn many_files_are_offered_over_tls() {
    let stage = Stage::new("");
    let token = stage.token();
    fs::create_dir(stage.at("tree")).unwrap();
    for i in 0..18_000 {
        // So long that an offer is a full record of TLS and a short one.
        fs::write(stage.at("tree").join(format!("a-name-of-some-length-{i:0>9}")), "").unwrap();
    }
    for skipped in [0, 18_000] {
        let done = lines(&stage.cp(&["-ru", "--json", "tree", &stage.url("/")], Some(&token)));
        assert_eq!(done[done.len() - 1]["skipped"], skipped, "{:?}", done[done.len() - 1]);
        let done = lines(&stage.cp(&["-ru", "--json", &stage.url("/tree"), "back/"], Some(&token)));
        assert_eq!(done[done.len() - 1]["skipped"], skipped, "{:?}", done[done.len() - 1]);
    }
}

#[test]
fn clients_that_vanish_leave_nothing_behind() {
    let stage = Stage::new("--insecure");
    write(&stage.at("root/data"), 40_000_000);
    let server = stage.server.id();
    // Those of the processes that serve its clients too.
    let threads = || -> usize {
        let processes = fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
            let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            status
                .lines()
                .any(|line| [format!("Pid:\t{server}"), format!("PPid:\t{server}")].contains(&line.to_owned()))
        });
        processes.map(|entry| fs::read_dir(entry.path().join("task")).map_or(0, Iterator::count)).sum()
    };
    let before = threads();
    for round in 0..3 {
        let got = stage.at(&format!("got{round}"));
        fs::create_dir(&got).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
        command.args(["cp", "-q", "--insecure", "-n", "3", "--pacing", "20mbit", &stage.url("/data")]).arg(&got);
        let mut child = command.current_dir(stage.dir.path()).stdin(Stdio::null()).spawn().unwrap();
        // It moves once its partial file is there.
        while fs::read_dir(&got).unwrap().next().is_none() {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        // The process that serves it may only be coming up.
        let serves = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            threads() > before
        });
        assert!(serves, "{} threads, {before} before", threads());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    for _ in 0..1000 {
        if threads() <= before {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{} threads, {before} before", threads());
}

#[test]
fn who_does_not_say_what_he_wants_takes_no_place() {
    let stage = Stage::new("--max-clients 1");
    write(&stage.at("file"), 10);
    let mut silent: Vec<_> = (0..3).map(|_| TcpStream::connect(&stage.server.address).unwrap()).collect();
    for socket in &mut silent {
        // TLS begins so; a byte now and then follows.
        socket.write_all(&[0x16]).unwrap();
    }
    let (code, text) = error(&stage.cp(&["file", &stage.url("/")], Some(&stage.token())));
    assert_eq!(code, 0, "{text}");
    let began = Instant::now();
    let mut first = silent.remove(0);
    first.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    loop {
        let _ = first.write_all(&[3]);
        match first.read(&mut [0; 100]) {
            Ok(0) => break,
            Err(e) if e.kind() == ErrorKind::ConnectionReset => break,
            _ => assert!(began.elapsed() < Duration::from_secs(40), "still heard"),
        }
    }
}

#[test]
fn a_client_waits_for_a_place() {
    let stage = Stage::new("--max-clients 1");
    write(&stage.at("large"), 6_000_000);
    write(&stage.at("file"), 10);
    let (token, url) = (stage.token(), stage.url("/"));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| stage.cp(&["--pacing", "16mbit", "large", &url], Some(&token)));
        std::thread::sleep(Duration::from_secs(1));
        let (code, text) = error(&stage.cp(&["file", &url], Some(&token)));
        assert!(code == 0 && text.contains("busy (its --max-clients is 1); try again later, or ask"), "{code} {text}");
        assert!(text.contains("connecting again"), "{text}");
        assert!(first.join().unwrap().status.success());
    });
    // Others of another kind are served meanwhile.
    std::thread::scope(|scope| {
        let first = scope.spawn(|| stage.cp(&["--pacing", "16mbit", "large", &stage.url("/other")], Some(&token)));
        std::thread::sleep(Duration::from_millis(500));
        let file = stage.at("token");
        let measured = format!("measure {} --size 1MB --token-file {}", stage.server.address, file.display());
        let measured = common::fullpipe(&measured);
        assert!(measured.status.success(), "{measured:?}");
        assert!(first.join().unwrap().status.success());
    });
}

#[test]
fn a_deep_destination_ends_no_server() {
    let mut stage = Stage::new("--insecure");
    write(&stage.at("file"), 10);
    let deep = "/a".repeat(2000);
    let (code, text) = error(&stage.cp(&["--insecure", "file", &stage.url(&format!("{deep}/"))], None));
    assert!(stage.server.alive());
    assert_eq!(code, 0, "{text}");
}

#[test]
fn a_server_started_wrongly_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let token = dir.path().join("token");
    fs::write(&token, "no token").unwrap();
    for (words, code, part) in [
        (format!("serve --root {}", file.display()), 2, "is not a folder"),
        ("serve --insecure".to_owned(), 2, "--root"),
        (format!("serve --root {} --token-file {}", dir.path().display(), token.display()), 2, "remove it to have"),
        ("serve --data-ports some".to_owned(), 2, "'some' is not a range of ports"),
    ] {
        let (got, text) = error(&common::fullpipe(&format!("{words} --port 0 --bind 127.0.0.1")));
        assert!(text.contains(part), "{words}: {text}");
        assert_eq!(got, code, "{words}: {text}");
    }
}

#[test]
fn a_token_below_the_root_is_warned_of() {
    for (token, warned) in [("root/token", true), ("token", false)] {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        let mut server = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
        server.args(["serve", "--bind", "127.0.0.1", "--port", "0", "--root", "root", "--token-file", token]);
        let mut server = server.current_dir(dir.path()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok);
        let said: Vec<String> = lines.take_while(|line| !line.starts_with("listening")).collect();
        server.kill().unwrap();
        server.wait().unwrap();
        assert_eq!(said.iter().any(|line| line.contains("keep them outside --root")), warned, "{said:?}");
    }
}

/// How a server's clients have ended, by its log.
fn ends(server: &Server, clients: usize) -> Vec<String> {
    let log = server.log(clients);
    let ends = log.iter().filter(|line| line["kind"] == "end");
    ends.map(|line| line["error"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_client_is_told_what_it_can_do_and_the_log_says_nothing_twice() {
    let stage = Stage::new("");
    write(&stage.at("file"), 10);
    let (code, text) = error(&stage.cp(&["--no-encrypt", "file", &stage.url("/")], Some(&stage.token())));
    assert!(code == 4 && text.contains("leave out --no-encrypt, or ask its operator to start it with --allow-plain"));
    assert_eq!(ends(&stage.server, 1), ["refused: it takes encrypted streams only"]);
    let mut stranger = TcpStream::connect(&stage.server.address).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let _ = stranger.read(&mut [0; 100]);
    drop(stranger);
    let said = ends(&stage.server, 2).remove(1);
    assert!(
        said.contains("does not speak") && !said.contains("127.0.0.1") && !said.contains("another program"),
        "{said}"
    );
    let server = Server::start("--max-duration 1s");
    let (code, text) = error(&common::fullpipe(&format!("measure {} --duration 2s", server.address)));
    assert!(code == 4 && text.contains("ask its operator to raise --max-duration"), "{text}");
    assert_eq!(text.matches("refused").count(), 1, "{text}");
    assert_eq!(ends(&server, 1), ["refused: a run may take 1 s here, and 2s was asked for"]);
}

#[test]
fn a_server_without_files_is_told_apart() {
    let stage = Stage::new("");
    write(&stage.at("file"), 10);
    let server = Server::start("");
    let url = format!("fullpipe://{}/", server.address);
    for (words, token) in [(vec![], Some(stage.token())), (vec!["--insecure"], None)] {
        let (code, text) = error(&stage.cp(&[&words[..], &["file", &url]].concat(), token.as_deref()));
        assert!(code == 4 && text.contains("'fullpipe serve' has no --root"), "{code}: {text}");
        assert!(!text.contains("stranger") && text.len() < 400, "{text}");
    }
}

#[test]
fn a_root_that_was_removed_is_named() {
    let stage = Stage::new("");
    write(&stage.at("file"), 10);
    for made_anew in [false, true] {
        let _ = fs::remove_dir_all(stage.at("root"));
        if made_anew {
            fs::create_dir(stage.at("root")).unwrap();
        }
        let (code, text) = error(&stage.cp(&["file", &stage.url("/")], Some(&stage.token())));
        assert!(code == 4 && text.contains("has been removed, so the server has to be restarted"), "{code}: {text}");
        assert!(text.contains("ask its operator"), "{text}");
    }
    assert!(ends(&stage.server, 2).iter().all(|why| why.contains("folder that this server serves has been removed")));
}

/// A tree below the server's root, with something in it that cannot be copied.
fn a_tree(stage: &Stage) {
    fs::create_dir_all(stage.at("root/tree/sub")).unwrap();
    write(&stage.at("root/tree/a"), 3000);
    write(&stage.at("root/tree/sub/b"), 40);
    nix::unistd::mkfifo(&stage.at("root/tree/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
}

fn lines(out: &Output) -> Vec<serde_json::Value> {
    String::from_utf8_lossy(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_dry_run_counts_what_would_come() {
    let stage = Stage::new("--insecure");
    a_tree(&stage);
    let out = stage.cp(&["--insecure", "--dry-run", "--json", "-r", &stage.url("/tree"), "here"], None);
    assert_eq!(error(&out).0, 1, "{out:?}");
    let said = lines(&out);
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!((&said[0]["files"], &said[0]["bytes"]), (&2.into(), &3040.into()));
    assert_eq!(said[0]["left_total"], 1);
    assert!(!stage.at("here").exists());
    let words = stage.cp(&["--insecure", "--dry-run", &stage.url("/tree/a"), "here"], None);
    assert!(String::from_utf8_lossy(&words.stdout).starts_with("would copy  1 file, 3.000 KB\n"), "{words:?}");
    let none = stage.cp(&["--insecure", "--dry-run", &stage.url("/nothing"), "here"], None);
    let (code, why) = error(&none);
    assert!(code == 2 && why.contains("/nothing: no such file"), "{code}: {why}");
}

#[test]
fn the_last_line_of_json_says_how_it_ended() {
    let stage = Stage::new("--insecure");
    a_tree(&stage);
    let run = |path: &str| stage.cp(&["--insecure", "--json", "-r", &stage.url(path), "here/"], None);
    let some = lines(&run("/tree"));
    assert_eq!((&some[some.len() - 1]["kind"], &some[some.len() - 1]["left_total"]), (&"done".into(), &1.into()));
    let none = lines(&run("/nothing"));
    assert_eq!((&none[none.len() - 1]["kind"], &none[none.len() - 1]["exit_code"]), (&"failed".into(), &2.into()));
    // Before anything is looked at, too.
    let wrong = lines(&stage.cp(&["--json", "--no-such-flag", "here"], None));
    assert_eq!((&wrong[0]["kind"], &wrong[0]["exit_code"], wrong.len()), (&"failed".into(), &2.into(), 1));
    assert!(wrong[0]["error"].as_str().unwrap().contains("'--no-such-flag'"), "{wrong:?}");
}

#[test]
fn of_what_cannot_be_written_no_more_is_sent() {
    let stage = Stage::new("--insecure");
    write(&stage.at("large"), 60_000_000);
    write(&stage.at("small"), 10);
    fs::create_dir(stage.at("root/large")).unwrap();
    let words = ["--insecure", "--no-encrypt", "--json", "-n", "1", "--pacing", "300mbit", "large", "small"];
    let out = stage.cp(&[&words[..], &[&stage.url("/")]].concat(), None);
    let said = lines(&out);
    let done = &said[said.len() - 1];
    assert_eq!((&done["files"], &done["left_total"]), (&1.into(), &1.into()), "{done}");
    assert_eq!((&done["left"][0]["name"], &done["left"][0]["for_good"]), (&"large".into(), &false.into()));
    assert_eq!(done["left"][0]["why"], "a folder stands where the file should be", "{done}");
    // What the sockets hold has been sent.
    assert!(done["bytes"].as_u64().unwrap() < 30_000_000, "{done}");
}

#[test]
fn an_interruption_ends_connecting_at_once() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("file"), 10);
    // Calls are accepted by the kernel, and never answered.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("fullpipe://{}/", silent.local_addr().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    command.args(["cp", "--insecure", "file", &url]).current_dir(dir.path()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let _call = silent.accept().unwrap();
    let begin = std::time::Instant::now();
    let id = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(begin.elapsed() < std::time::Duration::from_secs(10), "after {:?}", begin.elapsed());
}

#[test]
fn a_silent_server_is_not_waited_for() {
    let stage = Stage::new("--insecure");
    write(&stage.at("file"), 10);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("fullpipe://{}/", silent.local_addr().unwrap());
    for more in ["--dry-run", "--xattrs"] {
        let (code, text) = error(&stage.cp(&["--insecure", "--stall", "1s", more, "file", &url], None));
        assert_eq!(code, 4, "{text}");
        assert!(text.contains("127.0.0.1 has not answered for 1s"), "{text}");
    }
}

#[test]
fn each_transfer_has_a_record_of_its_own() {
    let stage = Stage::new("--insecure");
    write(&stage.at("file"), 5000);
    for _ in 0..2 {
        let out = stage.cp(&["--insecure", "--record", "records", "file", &stage.url("/")], None);
        assert!(out.status.success(), "{out:?}");
    }
    let records: Vec<_> = fs::read_dir(stage.at("records")).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(records.len(), 2);
    let text = fs::read_to_string(&records[0]).unwrap();
    let header: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(header["copy"], serde_json::json!({"over": "server", "encrypted": true}));
    // Of nothing there is none.
    let (code, text) = error(&stage.cp(&["--insecure", "--record", "records", "-u", "file", &stage.url("/")], None));
    assert!(code == 0 && text.contains("everything was there already"), "{code} {text}");
    assert_eq!(fs::read_dir(stage.at("records")).unwrap().count(), 2);
}
