//! A stranger who can reach the ports and knows no secret.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use fullpipe_net::wire::{self, MAGIC, Message, PROTOCOL, Request};
use fullpipe_path::{Buffer, Direction, Size, Time, Transport, Workload};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

use crate::common::{Server, error, fullpipe_args, json_lines};

/// Tells a test of this file to be the stranger in a guest: addresses, separated by commas.
const KNOCKS_AT: &str = "FULLPIPE_TEST_KNOCKS_AT";
/// Ports of the server and of its data streams in the guest.
const PORT: u16 = 7413;
const DATA_PORT: u16 = 7500;
const COPIES: usize = 20;

/// A server's token file in a folder, with its key.
fn token_in(folder: &Path) -> String {
    let file = folder.join("token");
    drop(Server::start(&format!("--root {} --token-file {}", folder.display(), file.display())));
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

/// Calls so many times a second, at each address, for ever. Of each three connections one stays silent, one sends
/// nonsense, one begins as TLS does.
fn knock(at: &[SocketAddr], each_second: u64) -> ! {
    const HELD: usize = 3000;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let held = HELD.min(hard as usize / 2);
    let (began, mut all) = (Instant::now(), VecDeque::new());
    for n in 0.. {
        let due = began + Duration::from_nanos(n * 1_000_000_000 / each_second);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        for to in at {
            let socket = Socket::new(Domain::for_address(*to), Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            let _ = socket.connect(&(*to).into());
            all.push_back(socket);
        }
        // Those that were called three round trips ago, or have been refused.
        let late = all.len().saturating_sub(300 * at.len());
        for socket in all.range(late..).take(at.len()) {
            let nonsense: &[u8] = [&[][..], &[0x33; 40], &[0x16, 3, 1, 0]][n as usize % 3];
            let _ = socket.send(nonsense);
        }
        while all.len() > held {
            all.pop_front();
        }
    }
    unreachable!()
}

/// No test of its own: [`copies_go_on_while_a_stranger_knocks`] runs it in a guest.
#[test]
fn the_stranger_itself() {
    if let Ok(at) = std::env::var(KNOCKS_AT) {
        knock(&at.split(',').map(|at| at.parse().unwrap()).collect::<Vec<_>>(), 1000);
    }
}

/// The stranger calls from the client's own address, so that nothing but what it shows tells it from the client.
#[test]
fn copies_go_on_while_a_stranger_knocks() {
    knocked_at(&DATA_PORT.to_string(), DATA_PORT);
}

#[test]
fn copies_go_on_while_a_stranger_knocks_at_the_only_port() {
    knocked_at("same", PORT);
}

/// Copies while a stranger calls the server's port and this one.
fn knocked_at(data_ports: &str, data_port: u16) {
    let dir = tempfile::tempdir().unwrap();
    let (folder, token) = (dir.path().display(), token_in(dir.path()));
    let me = std::env::current_exe().unwrap();
    // A guest has folders of its own where these are, and sees the host's below /host.
    let hidden = ["/tmp/", "/run/"].iter().any(|folder| me.starts_with(folder));
    let scenario = format!(
        r#"
        path = {{ rtt = "100ms", rate = "1gbit" }}
        space = "100MB"
        memory = "2GB"
        [[folders]]
        end = "b"
        path = "{folder}"
        [[program]]
        end = "b"
        run = ["fullpipe", "serve", "--guest", "--bind", "10.0.2.1", "--port", "{PORT}", "--data-ports", "{data_ports}",
               "--root", "/space", "--token-file", "{folder}/token"]
        [[program]]
        end = "a"
        wait = false
        run = ["{me}", "stranger::the_stranger_itself", "--exact"]
        env = {{ {KNOCKS_AT} = "10.0.2.1:{PORT},10.0.2.1:{data_port}" }}
        [[program]]
        end = "a"
        start = "1s"
        env = {{ FULLPIPE_TOKEN = "{token}" }}
        run = ["sh", "-c", '''
            head -c 1000000 /dev/urandom >/space/file
            for i in $(seq {COPIES}); do
                fullpipe cp -n 4 /space/file fullpipe://10.0.2.1:{PORT}/$i && echo copied
            done''']
        "#,
        me = if hidden { format!("/host{}", me.display()) } else { me.display().to_string() },
    );
    let file = dir.path().join("scenario.toml");
    std::fs::write(&file, scenario).unwrap();
    let done = json_lines(&fullpipe_args(&["lab", "run", file.to_str().unwrap(), "--quiet", "--json"]));
    let (copied, said) = (done[2]["stdout"].as_str().unwrap(), done[2]["stderr"].as_str().unwrap());
    assert_eq!(copied.matches("copied").count(), COPIES, "{said}");
    assert!(!said.contains("again"), "a copy had to begin again: {said}");
    // A stranger that had ended or had not got through would prove nothing.
    assert!(done[1]["ended"]["exit"].is_null(), "{}", done[1]);
    let log = done[0]["stderr"].as_str().unwrap();
    let closed = log.matches("too many connections that have not said what they want").count();
    assert!(closed > COPIES, "{closed}: {log}; {}", done[1]);
}

/// The strangers come from as many addresses as they need to have all places of today's lobby.
#[test]
fn idle_connections_shut_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("root")).unwrap();
    let (root, token) = (dir.path().join("root"), dir.path().join("token"));
    let server = Server::start(&format!("--root {} --token-file {}", root.display(), token.display()));
    let to: SocketAddr = server.address.parse().unwrap();
    let mut idle = Vec::new();
    for last in 1..=8 {
        for _ in 0..80 {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into()).unwrap();
            socket.connect(&to.into()).unwrap();
            idle.push(socket);
        }
    }
    let file = dir.path().join("file");
    std::fs::write(&file, [7; 1000]).unwrap();
    let (file, token) = (file.to_str().unwrap(), token.to_str().unwrap());
    let url = format!("fullpipe://{}/", server.address);
    let (code, text) = error(&fullpipe_args(&["cp", "--token-file", token, file, &url]));
    assert!(code == 0 && !text.contains("again"), "{code}: {text}");
    assert_eq!(std::fs::read(root.join("file")).unwrap(), [7; 1000]);
}

/// They come before the streams, as they do where a firewall passes one port that all know.
#[test]
fn a_measurement_waits_for_no_stranger() {
    let server = Server::start("");
    let mut control = TcpStream::connect(&server.address).unwrap();
    control.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    let hello =
        Message::Hello { magic: MAGIC.into(), protocol: PROTOCOL, program: "x".into(), nonce: None, measurement: None };
    wire::send(&mut control, &hello).unwrap();
    let Message::Hello { .. } = wire::receive_message(&mut control).unwrap() else { panic!("no greeting") };
    let transport =
        Transport { cc: "cubic".into(), streams: 2, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None };
    let (workload, sample) = (Workload::Size(Size(1000)), Time(100_000_000));
    let request = Request { transport, workload, direction: Direction::Send, seed: 1, sample };
    wire::send(&mut control, &Message::Request(request)).unwrap();
    let Message::Ready { port, token } = wire::receive_message(&mut control).unwrap() else { panic!("not ready") };
    let mut strangers: Vec<_> = (0..300).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    strangers[0].write_all(&token).unwrap();
    let streams = [0, 1].map(|i| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(&[&token[..], &[i, 0, 0, 0]].concat()).unwrap();
        stream
    });
    let began = Instant::now();
    let joined = wire::receive_message(&mut control).unwrap();
    assert_eq!(joined, Message::Joined);
    assert!(began.elapsed() < Duration::from_secs(3), "after {:?}", began.elapsed());
    drop(streams);
}
