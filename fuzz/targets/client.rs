//! A server says anything, and sends anything, to a real client. The client ends; nothing outside its folder changes, and
//! what comes is what was asked for, as it was sent.
#![no_main]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fullpipe_fuzz::{Peer, Script, Sent, World, drain, hear, hello, mutant, mutate, replay};
use fullpipe_path::{Buffer, Transport};
use fullpipe_transfer::client::{self, Order, Sending, Way};
use fullpipe_transfer::connection::endpoint::Endpoint;
use fullpipe_transfer::protocol::digest::Key;
use fullpipe_transfer::protocol::frame;
use fullpipe_transfer::protocol::message::{Filter, Message, Options, Sources, Target, Terms};
use fullpipe_transfer::protocol::sizing::SizingMode;
use fullpipe_transfer::receive::Output;
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| { mutate(data, size, max_size, seed) });
fuzz_target!(|data: &[u8]| replay(data, mutant, |data| run(Script::shown(data))));

fn run(script: Script) {
    let world = World::new();
    let how = script.how;
    let bit = |n: u16| how >> n & 1 == 1;
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
    let port = listener.local_addr().expect("its number").port();
    let options = Options {
        recursive: true,
        dereference: false,
        special: false,
        verify: false,
        fsync: false,
        xattrs: bit(0),
        acls: false,
        hard_links: bit(7),
        remove_sources: false,
        encrypt: false,
        direct: fullpipe_path::DirectIo::Off,
        block: 1 << 20,
        update: bit(1),
        checksum: false,
        sample_ns: if bit(6) { 10_000_000 } else { 0 },
        stall_ns: 2_000_000_000,
        inplace: false,
        growing: false,
        replace_newer: false,
        dense: false,
        stripes: None,
    };
    let pulls = bit(2);
    let streams = 1 + (how >> 8) % 3;
    let root = world.root();
    let local = root.as_os_str().as_bytes().to_vec();
    let target = |path| Target {
        path,
        folder: true,
        exact: false,
        file: false,
        content: false,
        transfer: 7,
        process: 7,
        delete: None,
        changes: Default::default(),
    };
    let printed =
        tempfile::NamedTempFile::new_in("/dev/shm").or_else(|_| tempfile::NamedTempFile::new()).expect("a file");
    let way = if pulls {
        let sources =
            Sources { paths: vec![b"/far/in".to_vec()], filter: Filter::default(), patterns: bit(3), listed: false };
        if bit(12) {
            let output = printed.as_file().try_clone().expect("a descriptor");
            Way::PullOutput(sources, Arc::new(Output::new(output)))
        } else {
            Way::Pull(sources, target(local))
        }
    } else {
        let paths = vec![[&local[..], b"/in"].concat()];
        Way::Push(
            Sources { paths, filter: Filter::default(), patterns: false, listed: false },
            target(b"/far".to_vec()),
        )
    };
    if !pulls {
        std::fs::write(root.join("in/there/large"), vec![7; 3 << 20]).expect("a file");
    }
    let served = std::thread::spawn(move || serve(&listener, streams, script));
    let transport =
        Transport { cc: "cubic".into(), streams, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None };
    let endpoint = Endpoint::Server { host: "127.0.0.1".into(), port, token: None };
    let result = client::run(&mut Order {
        endpoint: &endpoint,
        way,
        list: None,
        options,
        // A law that no kernel reduces: the server here is ready once.
        choose: &|_| {
            Ok(Sending {
                transport: transport.clone(),
                sizing: bit(5).then_some(SizingMode::Both),
                assumed_bps: 10_000_000_000,
                spare: 0,
            })
        },
        chosen: &|| (),
        reversed: &|_| (),
        say: &|_| (),
        names: false,
        show: &mut |_| (),
        interrupted: &AtomicBool::new(false),
    });
    drop(result);
    let sent = served.join().expect("the server ends");
    world.check();
    let files = world.files();
    if let (Some(sent), true) = (sent, pulls) {
        assert!(files.keys().all(|name| name.starts_with("in")), "what was not asked for");
        sent.explain(&files);
        sent.explain_printed(&std::fs::read(printed.path()).expect("what was printed"));
    } else if !pulls {
        assert_eq!(files.values().map(Vec::len).sum::<usize>(), 3 << 20, "a source has changed");
    }
}

/// Closed when it is dropped, whoever else has a descriptor.
struct Line(TcpStream);

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// The server's part.
fn serve(listener: &TcpListener, streams: u16, script: Script) -> Option<Sent> {
    let (mut control, _) = listener.accept().ok()?;
    let wait = Some(Duration::from_millis(300));
    control.set_write_timeout(wait).and_then(|()| control.set_read_timeout(wait)).ok()?;
    control.read_exact(&mut [0]).ok()?;
    let said = hear(control.try_clone().ok()?);
    let door = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).ok()?;
    let (key, tags) = (Key([3; Key::LEN]), Key([4; Key::LEN]));
    let terms = Some(Terms { offer: script.how >> 4 & 1 == 1, key, tags, journal: Some(7) });
    let port = door.local_addr().ok()?.port();
    frame::send(&mut control, &hello()).ok()?;
    frame::send(&mut control, &Message::Ready { port, token: [5; 32], certificate: Vec::new(), terms, udp: 0 }).ok()?;
    let theirs = said.iter().find_map(|message| match message {
        Message::Connect(connect) => Some(connect.terms),
        _ => None,
    })?;
    // Each says first, behind the token, which it is: tags are of one stream.
    let mut come: Vec<(u16, TcpStream)> = (0..streams)
        .filter_map(|_| {
            let (mut stream, _) = door.accept().ok()?;
            let mut preamble = [0; 34];
            stream.set_read_timeout(wait).and_then(|()| stream.read_exact(&mut preamble)).ok()?;
            stream.set_read_timeout(None).ok()?;
            Some((u16::from_le_bytes([preamble[32], preamble[33]]), stream))
        })
        .collect();
    come.sort_by_key(|(i, _)| *i);
    let come: Vec<TcpStream> = come.into_iter().map(|(_, stream)| stream).collect();
    let drains: Vec<_> = come.iter().filter_map(|stream| stream.try_clone().ok()).map(drain).collect();
    let sent = Peer::new(Box::new(Line(control)), come, theirs.or(terms), Sent::default()).play(script);
    drains.into_iter().for_each(|drain| drain.join().expect("a stream is read"));
    Some(sent)
}
