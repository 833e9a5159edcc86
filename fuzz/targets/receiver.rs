//! A client that pushes says anything, and sends anything, to a real far end. The far end ends; nothing outside the root
//! changes; and every file is one that was sent.
#![no_main]

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use fullpipe_fuzz::{Door, Peer, SECOND, Script, Sent, World, hear, hello, mutant, mutate, replay};
use fullpipe_path::{Buffer, Transport};
use fullpipe_transfer::protocol::frame;
use fullpipe_transfer::protocol::message::{Connect, Deletion, Filter, Message, Options, Rule, Setup, Target, Task};
use fullpipe_transfer::protocol::sizing::SizingMode;
use fullpipe_transfer::resolve::{Base, Realm};
use fullpipe_transfer::server::{self, ServerOptions};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| { mutate(data, size, max_size, seed) });
fuzz_target!(|data: &[u8]| replay(data, mutant, |data| run(Script::shown(data))));

fn run(script: Script) {
    let world = World::new();
    let mut sent = Sent::default();
    // In half of the runs the command is given again: what the first has left is gone on from.
    let mut steps = script.steps;
    let behind = if script.how & SECOND != 0 { steps.split_off(steps.len() / 2) } else { Vec::new() };
    for steps in [steps, behind] {
        sent = session(&world, Script { how: script.how, steps }, sent);
        world.check();
        sent.explain(&world.files());
    }
}

/// One run of the command; gives what has been sent.
fn session(world: &World, script: Script, sent: Sent) -> Sent {
    let far = ServerOptions {
        realm: Realm::Below(Base::open(&world.root()).unwrap()),
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
        recursive: true,
        dereference: false,
        special: false,
        verify: false,
        fsync: false,
        xattrs: bit(0),
        acls: false,
        hard_links: bit(3),
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
    let streams = 1 + (how >> 8) % 3;
    let transport =
        Transport { cc: "cubic".into(), streams, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None };
    let connect = Connect {
        transport,
        spare: 0,
        sizing: bit(5).then_some(SizingMode::All),
        assumed_bps: 10_000_000_000,
        rtt_ns: 1_000_000,
        terms: None,
        port: 0,
        relays: false,
    };
    let rule = Rule { includes: false, pattern: "there".to_owned() };
    let filter = Filter { rules: vec![rule], ..Filter::default() };
    let delete = bit(13).then_some(Deletion { filter, most: bit(14).then_some(1) });
    let deletes = delete.is_some();
    let target = Target {
        path: b"/".to_vec(),
        folder: true,
        exact: false,
        file: false,
        content: bit(2),
        transfer: 7,
        process: 7,
        delete,
        changes: Default::default(),
    };
    let setup = Setup { task: Task::Push(target), options, probably: Some(connect.clone()) };
    let (mut ours, input) = UnixStream::pair().expect("a pair of sockets");
    let (output, heard) = UnixStream::pair().expect("a pair of sockets");
    let _ = ours.set_write_timeout(Some(Duration::from_millis(300)));
    let served = std::thread::spawn(move || server::serve(input.into(), output.into(), "fuzz".into(), &far, None));
    let messages = hear(heard);
    let secret = Message::Secret(Vec::new());
    for message in [hello(), secret, Message::Setup(Box::new(setup)), Message::Connect(Box::new(connect))] {
        frame::send(&mut ours, &message).expect("a word to the far end");
    }
    let ready = messages.iter().find_map(|message| match message {
        Message::Ready { port, token, terms, .. } => Some((Door { port, token }, terms)),
        _ => None,
    });
    let (door, terms) = ready.expect("the far end is ready");
    let sent = Peer::new(Box::new(ours), door.streams(streams), terms, sent).play(script);
    let _ = served.join().expect("the far end ends");
    if deletes {
        let excluded = world.root().join("in/there/up");
        assert!(excluded.symlink_metadata().is_ok(), "what is excluded was deleted");
    }
    sent
}
