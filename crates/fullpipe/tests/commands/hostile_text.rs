//! Text that another host sends is shown with its control, bidirectional and invisible characters escaped.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use fullpipe_transfer::protocol::frame;
use fullpipe_transfer::protocol::hello::{Hello, Limits, MAGIC, PLAIN, PROTOCOL};
use fullpipe_transfer::protocol::message::{Message, Options, Setup, Target, Task};

use crate::common::{Server, error, fullpipe, fullpipe_args};

/// Sets a terminal's title, moves its cursor (both as ESC and as C1), reorders, hides and ends lines.
const HOSTILE: &str =
    "\x1b]0;owned\x07\x1b[2J\u{9b}31m\u{202e}txt.exe\u{2066}\u{200b}\u{feff}\u{ad}\u{2028}\u{e0041}\r\nfake: line";

/// Whether all of a text may be shown on a terminal.
fn assert_harmless(text: &str) {
    let bad = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
                | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
    };
    let found: Vec<char> = text.chars().filter(|c| bad(*c)).collect();
    assert!(found.is_empty(), "{found:?} in {text:?}");
    assert!(!text.lines().any(|line| line.starts_with("fake: line")), "a line of its own: {text:?}");
}

/// A host that answers each of `clients` connections with these bytes; gives its address.
fn answers(clients: usize, answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for _ in 0..clients {
            let (mut stream, _) = listener.accept().unwrap();
            let answer = answer.clone();
            std::thread::spawn(move || {
                stream.read_exact(&mut [0; 16]).unwrap();
                stream.write_all(&answer).unwrap();
                // Kept open until the client has gone.
                let _ = stream.read_to_end(&mut Vec::new());
            });
        }
    });
    address
}

/// A frame of a measurement.
fn frame(message: &serde_json::Value) -> Vec<u8> {
    let content = message.to_string().into_bytes();
    [&[0][..], &(content.len() as u32).to_le_bytes(), &content].concat()
}

#[test]
fn a_server_of_measurements() {
    let protocol = fullpipe_net::wire::PROTOCOL;
    let hello =
        frame(&serde_json::json!({"kind": "hello", "magic": "fullpipe", "protocol": protocol, "program": HOSTILE}));
    let long = HOSTILE.repeat(4000);
    for answer in [
        frame(&serde_json::json!({"kind": "hello", "magic": "fullpipe", "protocol": 9, "program": HOSTILE})),
        frame(&serde_json::json!({"kind": HOSTILE})),
        frame(&serde_json::json!({"kind": "hello", "magic": HOSTILE, "protocol": protocol, "program": long})),
        [hello.clone(), frame(&serde_json::json!({"kind": "refused", "why": HOSTILE}))].concat(),
        [hello.clone(), frame(&serde_json::json!({"kind": "refused", "why": long}))].concat(),
        [hello, frame(&serde_json::json!({"kind": "failed", "why": HOSTILE, "is_stall": false}))].concat(),
    ] {
        let to = answers(2, answer);
        let (code, text) = error(&fullpipe(&format!("measure {to}")));
        assert_eq!(code, 4, "{text}");
        assert_harmless(&text);
        assert!(text.lines().count() == 1 && text.len() < 8192, "{} bytes", text.len());
        let out = fullpipe(&format!("doctor {to} --json"));
        assert_harmless(&String::from_utf8(out.stdout).unwrap());
        assert_harmless(&String::from_utf8(out.stderr).unwrap());
    }
}

#[test]
fn a_server_of_files() {
    let hello = |program: &str, protocol| {
        let hello = Hello { magic: MAGIC, protocol, program: program.to_owned(), limits: Limits::default() };
        frame::pack(&Message::Hello(hello)).unwrap()
    };
    let refused = |why: &str| frame::pack(&Message::Refused { why: why.to_owned(), retry: false, class: 4 }).unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "1").unwrap();
    let file = dir.path().join("file");
    for answer in [
        hello(HOSTILE, PROTOCOL + 1),
        [hello("x", PROTOCOL), refused(HOSTILE)].concat(),
        [hello("x", PROTOCOL), refused(&HOSTILE.repeat(4000))].concat(),
    ] {
        let to = answers(2, answer);
        for json in ["--json", "--quiet"] {
            let url = format!("fullpipe://{to}/");
            let out = fullpipe_args(&["cp", "--insecure", json, file.to_str().unwrap(), &url]);
            assert_eq!(error(&out).0, 4, "{out:?}");
            assert_harmless(&String::from_utf8(out.stdout).unwrap());
            let text = String::from_utf8(out.stderr).unwrap();
            assert_harmless(&text);
            assert!(text.lines().count() == 1 && text.len() < 8192, "{} bytes", text.len());
        }
    }
}

#[test]
fn what_ssh_says() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("said"), HOSTILE.replace(['\n', '\r'], "")).unwrap();
    let ssh = dir.path().join("ssh");
    fs::write(&ssh, "#!/bin/sh\ncat \"$(dirname \"$0\")/said\" >&2\nexit 255\n").unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    for json in ["--json", "--quiet"] {
        let out = fullpipe_args(&["cp", json, "--ssh", ssh.to_str().unwrap(), "/etc/hostname", "host:/tmp/"]);
        let text = String::from_utf8(out.stderr).unwrap();
        assert!(text.contains("txt.exe"), "{text}");
        assert_harmless(&text);
        assert_harmless(&String::from_utf8(out.stdout).unwrap());
    }
}

/// Asks a server for a copy to this path, and goes.
fn ask(address: &str, path: Vec<u8>) {
    let options = Options {
        recursive: true,
        dereference: false,
        special: false,
        verify: false,
        fsync: false,
        xattrs: false,
        acls: false,
        hard_links: false,
        remove_sources: false,
        encrypt: false,
        direct: fullpipe_path::DirectIo::Off,
        block: 4 << 20,
        update: false,
        checksum: false,
        sample_ns: 0,
        stall_ns: 1_000_000_000,
        inplace: false,
        growing: false,
        replace_newer: false,
        dense: false,
        stripes: None,
    };
    let hello = Hello { magic: MAGIC, protocol: PROTOCOL, program: HOSTILE.into(), limits: Limits::default() };
    let task = Task::Push(Target {
        path,
        folder: true,
        exact: false,
        file: false,
        content: false,
        transfer: 7,
        process: 7,
        delete: None,
        changes: Default::default(),
    });
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&[PLAIN]).unwrap();
    for message in [
        Message::Hello(hello),
        Message::Secret(Vec::new()),
        Message::Setup(Box::new(Setup { task, options, probably: None })),
        Message::Failed { why: HOSTILE.repeat(1000), retry: false, class: 1 },
    ] {
        stream.write_all(&frame::pack(&message).unwrap()).unwrap();
    }
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn the_log_of_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    let flags = format!("--root {} --insecure", root.display());
    let server = Server::start(&flags);
    let paths =
        [HOSTILE.as_bytes().to_vec(), HOSTILE.repeat(3).into_bytes(), vec![b'\x1b'; 1 << 20], b"\xff".repeat(4000)];
    for path in &paths {
        ask(&server.address, path.clone());
    }
    for line in server.log(paths.len()) {
        // As it was on the log's line: with what JSON itself escapes.
        let text = line.to_string();
        assert!(text.len() <= 4096, "{} bytes", text.len());
    }
    drop(server);
    // As a person reads it, and as it is on the wire.
    for json in ["--json", "--once"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fullpipe"))
            .args(["serve", "--bind", "127.0.0.1", "--port", "0", json])
            .args(flags.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log: Box<dyn Read> = if json == "--json" {
            Box::new(child.stdout.take().unwrap())
        } else {
            Box::new(child.stderr.take().unwrap())
        };
        let mut lines = BufReader::new(log).lines().map(Result::unwrap);
        let listening = lines.find(|line| line.contains("listening")).unwrap();
        let port = listening.rsplit(':').next().unwrap().trim_end_matches(['"', '}']).to_owned();
        let mut seen = Vec::new();
        for path in &paths[..if json == "--json" { paths.len() } else { 1 }] {
            ask(&format!("127.0.0.1:{port}"), path.clone());
            // What the client wants, and how it ended.
            seen.extend(lines.by_ref().take(if json == "--json" { 2 } else { 1 }));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        seen.extend(lines);
        assert!(seen.len() >= 2 || json == "--once", "{seen:?}");
        for line in seen {
            assert_harmless(&line);
            assert!(line.len() <= 4096, "{} bytes: {line}", line.len());
        }
    }
}
