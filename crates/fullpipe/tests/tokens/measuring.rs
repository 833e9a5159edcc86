//! Measuring at a server with tokens and without: proofs, limits, and what the network may ask of the kernel.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fullpipe_path::{Buffer, Direction, Size, Time, Transport, Workload};
use fullpipe_transfer::protocol::{frame, hello, message, preamble};
use serde_json::json;

use super::common::{Server, error, fullpipe};
use super::{Stage, fine, refused};

/// A frame of the measuring protocol that holds a message.
fn frame(message: &serde_json::Value) -> Vec<u8> {
    let json = serde_json::to_vec(message).unwrap();
    [&[0][..], &(json.len() as u32).to_le_bytes(), &json].concat()
}

fn next(from: &mut impl Read) -> serde_json::Value {
    let mut head = [0; 5];
    from.read_exact(&mut head).unwrap();
    let mut json = vec![0; u32::from_le_bytes(head[1..].try_into().unwrap()) as usize];
    from.read_exact(&mut json).unwrap();
    serde_json::from_slice(&json).unwrap()
}

/// A connection to a server that measures, and its answer to the greeting.
fn greeted(address: &str) -> (TcpStream, serde_json::Value) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let protocol = fullpipe_net::wire::PROTOCOL;
    let hello = json!({"kind": "hello", "magic": "fullpipe", "protocol": protocol, "program": "x"});
    socket.write_all(&frame(&hello)).unwrap();
    let hello = next(&mut socket);
    (socket, hello)
}

fn request(cc: &str, direction: Direction) -> serde_json::Value {
    let transport = Transport { cc: cc.into(), streams: 1, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None };
    let workload = Workload::Size(Size(1000));
    let request = fullpipe_net::wire::Request { transport, workload, direction, seed: 1, sample: Time(100_000_000) };
    serde_json::to_value(fullpipe_net::wire::Message::Request(request)).unwrap()
}

#[test]
fn measuring_needs_the_token_where_there_is_one() {
    let stage = Stage::new("");
    let without = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
        error(&command.args(words).env_remove("FULLPIPE_TOKEN").output().unwrap())
    };
    let address = &stage.server.address;
    refused(without(&["measure", address, "--size", "1MB"]), "measures for holders of its token only");
    let token = fs::read_to_string(stage.at("token")).unwrap();
    let token = token.trim();
    fine(stage.measure(token));
    let digit = if &token[4..5] == "0" { "1" } else { "0" };
    refused(stage.measure(&format!("fp1-{digit}{}", &token[5..])), "the token is not this server's");
    // The round-trip time is no secret, and needs none.
    fine(without(&["select", address]));
    // Whoever asks without a proof, as an older program does, is told why not.
    let (mut socket, _) = greeted(address);
    socket.write_all(&frame(&request("cubic", Direction::Send))).unwrap();
    let answer = next(&mut socket);
    assert_eq!(answer["kind"], "refused", "{answer}");
    assert!(answer["why"].as_str().unwrap().contains("--token-file"), "{answer}");
    // Nor is anyone told the time.
    let (mut socket, _) = greeted(address);
    socket.write_all(&frame(&json!({"kind": "clock", "ns": 0}))).unwrap();
    assert_eq!(next(&mut socket)["kind"], "refused");
}

#[test]
fn the_log_names_what_was_refused_and_what_was_not_believed() {
    let stage = Stage::new("");
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    command.args(["measure", &stage.server.address, "--size", "1MB"]).env_remove("FULLPIPE_TOKEN");
    refused(error(&command.output().unwrap()), "measures for holders of its token only");
    let log = stage.server.log(1);
    let end = log.iter().find(|line| line["kind"] == "end").unwrap();
    assert!(end["error"].as_str().is_some_and(|why| why.contains("token")), "{log:?}");
    // An interrupted copy leaves a journal, into which anyone may write then.
    fs::write(stage.at("large"), vec![7; 30_000_000]).unwrap();
    let token = fs::read_to_string(stage.at("token")).unwrap();
    let url = stage.url("/");
    let words = ["cp", "-q", "--block", "64KiB", "large", &url];
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    command.args(words).args(["--pacing", "40mbit"]).current_dir(stage.dir.path()).env("FULLPIPE_TOKEN", token.trim());
    let mut copying = command.spawn().unwrap();
    let journal = || {
        let is_journal = |path: &PathBuf| path.extension().is_some_and(|end| end == "journal");
        fs::read_dir(stage.at("root")).unwrap().map(|entry| entry.unwrap().path()).find(is_journal)
    };
    let began = Instant::now();
    while journal().is_none_or(|journal| fs::metadata(journal).unwrap().len() < 2000) {
        assert!(began.elapsed() < Duration::from_secs(20), "there is no journal");
        std::thread::sleep(Duration::from_millis(20));
    }
    copying.kill().unwrap();
    copying.wait().unwrap();
    stage.server.log(2);
    fs::set_permissions(journal().unwrap(), Permissions::from_mode(0o666)).unwrap();
    fine(stage.run(&words, token.trim()));
    let log = stage.server.log(3);
    let told: Vec<_> = log.iter().filter(|line| line["kind"] == "distrusted").collect();
    assert!(told.len() == 1 && told[0]["token"] == "default" && told[0]["time"].is_string(), "{log:?}");
    assert!(told[0]["file"].as_str().unwrap().contains(".journal: "), "{log:?}");
}

#[test]
fn a_proof_does_not_tell_the_secret_and_is_good_once() {
    let stage = Stage::new("");
    let token = fs::read_to_string(stage.at("token")).unwrap();
    // Somebody in between hears all.
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let heard: Arc<Mutex<Vec<u8>>> = Arc::default();
    let (address, server, kept) = (between.local_addr().unwrap(), stage.server.address.clone(), heard.clone());
    std::thread::spawn(move || {
        let (mut near, _) = between.accept().unwrap();
        let mut far = TcpStream::connect(server).unwrap();
        let (mut back, mut to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back, &mut to));
        let mut bytes = [0; 4096];
        while let Ok(n @ 1..) = near.read(&mut bytes) {
            kept.lock().unwrap().extend_from_slice(&bytes[..n]);
            if far.write_all(&bytes[..n]).is_err() {
                break;
            }
        }
    });
    // The data port is the server's own: only what is said on the control connection passes here.
    let (code, text) = stage.run(&["measure", &address.to_string(), "--size", "1MB"], token.trim());
    assert_eq!(code, 0, "{text}");
    let heard = heard.lock().unwrap().clone();
    let secret: Vec<u8> = (0..32).map(|i| u8::from_str_radix(&token[4 + 2 * i..6 + 2 * i], 16).unwrap()).collect();
    let has = |part: &[u8]| heard.windows(part.len()).any(|window| window == part);
    assert!(has(b"\"proof\"") && !has(&secret) && !has(&token.as_bytes()[4..68]));
    assert!(!has(serde_json::to_string(&secret).unwrap().as_bytes()));
    // Said again, it opens nothing.
    let mut rest = &heard[fullpipe_net::preface::LEN..];
    let (hello, proof) = (next(&mut rest), next(&mut rest));
    assert_eq!((&hello["kind"], &proof["kind"]), (&json!("hello"), &json!("proof")));
    let (mut socket, _) = greeted(&stage.server.address);
    socket.write_all(&frame(&proof)).unwrap();
    let answer = next(&mut socket);
    assert!(
        answer["kind"] == "refused" && answer["why"].as_str().unwrap().starts_with("the token is not this server's; "),
        "{answer}"
    );
}

#[test]
fn strangers_have_limits_that_flags_raise() {
    let server = Server::start("--max-duration 2s --max-clients 4");
    let measure = |flags: &str| error(&fullpipe(&format!("measure {} {flags}", server.address)));
    refused(measure("--duration 5s"), "--max-duration");
    fine(measure("--duration 2s"));
    for direction in ["", "--reverse"] {
        let began = Instant::now();
        let (code, text) = measure(&format!("--size 100MB --pacing 64kbit {direction}"));
        assert!(code == 4 && text.contains("cut off after 2 s"), "{code}: {text}");
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
    // Half of the places are one address's.
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..2).map(|_| scope.spawn(|| measure("--duration 2s --pacing 10mbit"))).collect();
        std::thread::sleep(Duration::from_millis(700));
        refused(measure("--size 1MB"), "--max-clients-per-address");
        others.into_iter().for_each(|other| fine(other.join().unwrap()));
    });
    fine(measure("--size 1MB"));
}

#[test]
fn holders_of_a_token_have_no_such_limits() {
    let stage = Stage::new("--max-duration 1s --max-clients 2 --max-clients-per-address 1");
    let token = fs::read_to_string(stage.at("token")).unwrap();
    let words = ["measure", &stage.server.address, "--duration", "2s", "--pacing", "10mbit"];
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..2).map(|_| scope.spawn(|| stage.run(&words, token.trim()))).collect();
        runs.into_iter().for_each(|run| fine(run.join().unwrap()));
    });
}

/// Asks a server by both protocols to send with a congestion control, and tells what it answered.
fn ask_to_send_with(address: &str, cc: &str) -> [String; 2] {
    let (mut socket, _) = greeted(address);
    socket.write_all(&frame(&request(cc, Direction::Receive))).unwrap();
    let measured = next(&mut socket).to_string();
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.write_all(&[fullpipe_transfer::protocol::hello::PLAIN]).unwrap();
    let limits = hello::Limits::default();
    let (magic, protocol) = (hello::MAGIC, hello::PROTOCOL);
    let hello = hello::Hello { magic, protocol, program: "x".into(), limits };
    let options = message::Options {
        recursive: true,
        dereference: false,
        fsync: false,
        xattrs: false,
        acls: false,
        hard_links: false,
        remove_sources: false,
        encrypt: false,
        direct: fullpipe_path::DirectIo::Off,
        block: 1 << 20,
        special: false,
        verify: false,
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
    let paths = vec![b"/".to_vec()];
    let task = message::Task::Pull(message::Sources {
        paths,
        filter: message::Filter::default(),
        patterns: false,
        listed: false,
    });
    let transport = Transport { cc: cc.into(), streams: 1, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None };
    let terms = Some(message::Terms {
        offer: false,
        key: fullpipe_transfer::protocol::digest::Key([3; fullpipe_transfer::protocol::digest::Key::LEN]),
        tags: fullpipe_transfer::protocol::digest::Key([4; fullpipe_transfer::protocol::digest::Key::LEN]),
        journal: None,
    });
    let (sizing, rtt_ns, relays) = (None, 1_000_000, false);
    let connect = message::Connect { transport, spare: 0, sizing, assumed_bps: 0, rtt_ns, terms, port: 0, relays };
    let setup = message::Setup { task, options, probably: None };
    for message in [
        message::Message::Hello(hello),
        message::Message::Secret(Vec::new()),
        message::Message::Setup(Box::new(setup)),
        message::Message::Connect(Box::new(connect)),
    ] {
        frame::send(&mut socket, &message).unwrap();
    }
    loop {
        match frame::receive(&mut socket).unwrap() {
            message::Message::Hello(_) => {}
            // It waits for the stream before it prepares it.
            message::Message::Ready { port, token, .. } => {
                let mut stream = TcpStream::connect((socket.peer_addr().unwrap().ip(), port)).unwrap();
                stream.write_all(&preamble::preamble(&token, 0)).unwrap();
            }
            other => return [measured, format!("{other:?}")],
        }
    }
}

/// A program under strace, both ended when dropped.
struct Watched(Child);

impl Drop for Watched {
    fn drop(&mut self) {
        // strace ends once what it has started has ended, and not before.
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.0.id())).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(child), nix::sys::signal::Signal::SIGKILL);
        }
        let _ = self.0.wait();
    }
}

#[test]
fn a_congestion_control_from_the_network_that_linux_has_not_never_reaches_the_kernel() {
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("there is no strace here to watch system calls with");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let mut server = Command::new("strace");
    server.args(["-f", "-qq", "-e", "trace=setsockopt", "-o", trace.to_str().unwrap()]);
    server.args([
        env!("CARGO_BIN_EXE_fullpipe"),
        "serve",
        "--bind",
        "127.0.0.1",
        "--port",
        "0",
        "--json",
        "--insecure",
    ]);
    server.args(["--root", dir.path().to_str().unwrap()]).stdout(Stdio::piped());
    let mut server = Watched(server.spawn().unwrap());
    let mut line = String::new();
    let mut said = BufReader::new(server.0.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    let first: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = first["address"].as_str().unwrap();
    let answers = ask_to_send_with(address, "zz_evil");
    for answer in &answers {
        assert!(answer.contains("has no congestion control 'zz_evil'"), "{answer}");
    }
    // One that Linux has gets there, so the watch sees what it should.
    ask_to_send_with(address, "cubic");
    drop(server);
    let trace = fs::read_to_string(&trace).unwrap();
    assert_eq!(trace.lines().filter(|line| line.contains("zz_evil")).count(), 0, "{trace}");
    assert!(trace.lines().any(|line| line.contains("TCP_CONGESTION") && line.contains("cubic")), "{trace}");
}
