//! A client that pulls asks for anything of a real far end. The far end ends; nothing changes, and nothing outside the root
//! is told.
#![no_main]

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use fullpipe_fuzz::{Door, Peer, Script, Sent, World, drain, hear, hello, mutant, mutate, replay};
use fullpipe_path::{Buffer, Transport};
use fullpipe_transfer::protocol::digest::Key;
use fullpipe_transfer::protocol::frame;
use fullpipe_transfer::protocol::message::{Connect, Filter, Message, Options, Setup, Sources, Task, Terms};
use fullpipe_transfer::protocol::sizing::SizingMode;
use fullpipe_transfer::resolve::{Base, Realm};
use fullpipe_transfer::server::{self, ServerOptions};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| { mutate(data, size, max_size, seed) });
fuzz_target!(|data: &[u8]| replay(data, mutant, |data| run(Script::shown(data))));

/// What may be asked for.
const SOURCES: [&str; 8] = ["in", "/", "in/there/../out", "../outside", "in/link", "in/*", "in/out/x", "in/./l[a-z]nk"];

fn run(script: Script) {
    let world = World::new();
    let root = world.root();
    std::fs::write(root.join("in/small"), b"some").expect("a file");
    std::fs::write(root.join("in/there/large"), vec![7; 3 << 20]).expect("a file");
    let far = ServerOptions {
        realm: Realm::Below(Base::open(&root).unwrap()),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        ports: (0, 0),
        plain_streams: true,
        special_bits: true,
        most_streams: 8,
        relays: false,
        stall: Duration::from_secs(2),
        client: None,
    };
    let how = script.how;
    let bit = |n: u16| how >> n & 1 == 1;
    let options = Options {
        recursive: bit(0),
        dereference: bit(1),
        special: false,
        verify: false,
        fsync: false,
        xattrs: bit(2),
        acls: false,
        hard_links: bit(8),
        remove_sources: false,
        encrypt: false,
        direct: fullpipe_path::DirectIo::Off,
        block: 1 << 18,
        update: bit(3),
        checksum: false,
        sample_ns: if bit(7) { 10_000_000 } else { 0 },
        stall_ns: 2_000_000_000,
        inplace: false,
        growing: false,
        replace_newer: false,
        dense: false,
        stripes: None,
    };
    let streams = 1 + (how >> 8) % 3;
    let transport =
        Transport { cc: "cubic".into(), streams, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None };
    let terms = Terms { offer: bit(4), key: Key([3; Key::LEN]), tags: Key([4; Key::LEN]), journal: Some(7) };
    let connect = Connect {
        spare: 0,
        transport,
        sizing: bit(6).then_some(SizingMode::All),
        assumed_bps: 10_000_000_000,
        rtt_ns: 1_000_000,
        terms: Some(terms),
        port: 0,
        relays: false,
    };
    let paths = vec![SOURCES[usize::from(how >> 10) % SOURCES.len()].as_bytes().to_vec()];
    let task = Task::Pull(Sources { paths, filter: Filter::default(), patterns: bit(5), listed: false });
    let setup = Setup { task, options, probably: Some(connect.clone()) };
    let (mut ours, input) = UnixStream::pair().expect("a pair of sockets");
    let (output, heard) = UnixStream::pair().expect("a pair of sockets");
    let _ = ours.set_write_timeout(Some(Duration::from_millis(300)));
    let served = std::thread::spawn(move || server::serve(input.into(), output.into(), "fuzz".into(), &far, None));
    let messages = hear(heard);
    let secret = Message::Secret(Vec::new());
    for message in [hello(), secret, Message::Setup(Box::new(setup)), Message::Connect(Box::new(connect))] {
        // It may have refused.
        let _ = frame::send(&mut ours, &message);
    }
    let ready = messages.iter().find_map(|message| match message {
        Message::Ready { port, token, .. } => Some(Door { port, token }),
        _ => None,
    });
    if let Some(door) = ready {
        let streams = door.streams(streams);
        let drains: Vec<_> = streams.iter().filter_map(|stream| stream.try_clone().ok()).map(drain).collect();
        Peer::new(Box::new(ours), streams, Some(terms), Sent::default()).play(script);
        drains.into_iter().for_each(|drain| drain.join().expect("a stream is read"));
    } else {
        drop(ours);
    }
    let _ = served.join().expect("the far end ends");
    world.check();
    let whole = |name: &str, len: usize| std::fs::read(root.join(name)).is_ok_and(|content| content.len() == len);
    assert!(whole("in/small", 4) && whole("in/there/large", 3 << 20), "a source has changed");
    assert_eq!(world.files().len(), 2, "something is new among the sources");
}
