//! The far end of a transfer, told nonsense: it says so and ends; it never hangs, never panics.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use fullpipe_path::{Buffer, DirectIo, Transport};
use fullpipe_transfer::Skipped;
use fullpipe_transfer::protocol::candidate::{Candidate, Change, Kind};
use fullpipe_transfer::protocol::chunk::{Chunk, Trailer};
use fullpipe_transfer::protocol::digest::{Key, Tagger};
use fullpipe_transfer::protocol::file::{Extent, FileItem, Meta};
use fullpipe_transfer::protocol::frame::{self, FRAME_HEAD};
use fullpipe_transfer::protocol::hello::{Hello, Limits, MAGIC, PROTOCOL, READY};
use fullpipe_transfer::protocol::message::{self, Connect, Listing, Message, Options, Reading, Setup, Target};
use fullpipe_transfer::protocol::name::Name;
use fullpipe_transfer::protocol::preamble;
use fullpipe_transfer::protocol::sizing::SizingMode;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::tree::leftovers;

const RUNS: u64 = 200;
/// Far more than it needs.
const LONGEST: Duration = Duration::from_secs(60);

fn frame(message: &Message) -> Vec<u8> {
    frame::pack(message).unwrap()
}

fn hello() -> Vec<u8> {
    frame(&Message::Hello(Hello { magic: MAGIC, protocol: PROTOCOL, program: "x".into(), limits: Limits::default() }))
}

fn setup(dir: &Path, push: bool) -> Vec<u8> {
    setup_for(dir, push, DirectIo::Off)
}

fn setup_for(dir: &Path, push: bool, direct: DirectIo) -> Vec<u8> {
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
        direct,
        block: 4 << 20,
        update: false,
        checksum: false,
        sample_ns: 0,
        stall_ns: 3_000_000_000,
        inplace: false,
        growing: false,
        replace_newer: false,
        dense: false,
        stripes: None,
    };
    let path = dir.to_str().unwrap().as_bytes().to_vec();
    let target = Target {
        path: path.clone(),
        folder: true,
        exact: false,
        file: false,
        content: false,
        transfer: 7,
        process: 7,
        delete: None,
        changes: Default::default(),
    };
    let task = if push {
        message::Task::Push(target)
    } else {
        message::Task::Pull(message::Sources {
            paths: vec![path],
            filter: message::Filter::default(),
            patterns: true,
            listed: false,
        })
    };
    [frame(&Message::Secret(vec![])), frame(&Message::Setup(Box::new(Setup { task, options, probably: None })))]
        .concat()
}

/// What says that the other end is a third host.
fn third_party() -> message::ThirdParty {
    message::ThirdParty { peer: "\x1b[2J".repeat(1000), asked: Some(message::Sources::default()), names: true }
}

/// How to send: rarely in a way that is possible.
fn connect(rng: &mut StdRng) -> Connect {
    let cc = if rng.random() { "../../x" } else { "cubic" };
    let streams = if rng.random() { rng.random() } else { 1 };
    Connect {
        spare: 0,
        transport: Transport { cc: cc.into(), streams, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None },
        sizing: rng.random::<bool>().then_some(SizingMode::All),
        assumed_bps: rng.random(),
        rtt_ns: rng.random(),
        terms: rng.random::<bool>().then(|| message::Terms {
            offer: rng.random(),
            key: Key(rng.random()),
            tags: Key(rng.random()),
            journal: rng.random::<bool>().then(|| rng.random()),
        }),
        port: rng.random(),
        relays: rng.random(),
    }
}

/// Any message, at a time when it may make no sense.
fn message(rng: &mut StdRng) -> Message {
    let name = Name::try_from(b"../x".to_vec()).or_else(|_| Name::try_from(b"x".to_vec())).unwrap();
    let meta = Meta { mode: 0o644, uid: 0, gid: 0, mtime: (i64::MIN, u32::MAX), xattrs: vec![] };
    match rng.random_range(0..27) {
        0 => Message::Ping { n: rng.random() },
        1 => Message::Pong { n: rng.random() },
        2 => Message::Connect(Box::new(connect(rng))),
        3 => Message::Offer(vec![]),
        4 => Message::Want(vec![message::Want::All; rng.random_range(0..100)]),
        5 => Message::Folder { name, meta },
        6 => Message::Link { name, target: vec![0; 5000], changed: (1, 0), meta },
        7 => Message::FileEnd { id: rng.random(), reading: Reading::Whole },
        8 => {
            let mut left = Skipped::default();
            (left.total, left.for_good) = (rng.random(), rng.random());
            Message::AllSent(left)
        }
        9 => Message::Totals { bytes: u64::MAX, files: u64::MAX, all: true },
        10 => Message::Unwanted { id: rng.random() },
        11 => Message::Count,
        13 => Message::Refused { why: String::new(), retry: false, class: 0 },
        14 => Message::GivenUp { id: rng.random() },
        15 => Message::List,
        16 => Message::Listed(Skipped::default()),
        17 => Message::Listing(Listing { folder: Some(name), names: vec![b"..".to_vec(), vec![]], last: rng.random() }),
        18 => Message::ThirdParty(Box::new(third_party())),
        19 => Message::Listen(Box::new(connect(rng))),
        20 => {
            let addresses = vec![([127, 0, 0, 1], 0).into(); rng.random_range(0..3)];
            let (host, port) = (rng.random::<bool>().then(|| "127.0.0.1".to_owned()), rng.random_range(1..3));
            let (transport, within_ns) = (connect(rng).transport, rng.random());
            Message::Reach(Box::new(message::Reach { addresses, host, port, transport, within_ns }))
        }
        21 => Message::Dial(Box::new(message::Dial {
            connect: connect(rng),
            to: ([127, 0, 0, 1], rng.random_range(1..3)).into(),
            token: [7; 32],
            certificate: vec![0; rng.random_range(0..9)],
            udp: rng.random(),
        })),
        22 => Message::Reached(Err("\x1b[2J".repeat(1000))),
        12 => Message::Failed { why: "\x1b[2J".repeat(1000), retry: true, class: 7 },
        23 => {
            let kind = Kind::Link { target: vec![b'/'; 5000] };
            Message::Candidates(vec![Candidate { name, bytes: u64::MAX, kind }; rng.random_range(0..100)])
        }
        24 => Message::Compared(vec![Change::Newer; rng.random_range(0..100)]),
        25 => Message::Linked(name),
        _ => Message::Deleted(vec![name; 100]),
    }
}

fn garbage(rng: &mut StdRng) -> Vec<u8> {
    let mut bytes = vec![0; rng.random_range(0..2000)];
    rng.fill(&mut bytes[..]);
    bytes
}

/// What a client says first, right or not quite.
fn words(seed: u64, dir: &Path) -> Vec<u8> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut all = Vec::new();
    let right = rng.random_range(0..4);
    if rng.random_ratio(1, 3) {
        all.extend(frame(&Message::ThirdParty(Box::new(third_party()))));
    }
    if right > 0 {
        all.extend(hello());
    }
    if right > 1 {
        all.extend(setup(dir, rng.random()));
    }
    match rng.random_range(0..4) {
        0 => all.extend(garbage(&mut rng)),
        1 => (0..rng.random_range(1..20)).for_each(|_| all.extend(frame(&message(&mut rng)))),
        // A right frame with damage, of which a whole one follows.
        2 => {
            let mut bytes = [hello(), setup(dir, true), frame(&message(&mut rng))].concat();
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..bytes.len());
                bytes[at] ^= 1 << rng.random_range(0..8);
            }
            all.extend(bytes);
        }
        // Cut off.
        _ => all.truncate(rng.random_range(0..=all.len())),
    }
    all
}

fn start(answers: Stdio) -> Child {
    let mut far = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    far.arg("far").stdin(Stdio::piped()).stdout(answers).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs the far end on these words; gives its exit code and what it said.
fn far(words: &[u8], close: bool) -> (Option<i32>, String) {
    let mut child = start(Stdio::null());
    let mut input = child.stdin.take().unwrap();
    // It may have heard enough before the end.
    let _ = input.write_all(words);
    let kept = Some(input).filter(|_| !close);
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if began.elapsed() > LONGEST {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    drop(kept);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (status.and_then(|status| status.code()), said)
}

#[test]
fn anything_may_be_said_to_it() {
    let dir = tempfile::tempdir().unwrap();
    for seed in 0..RUNS {
        let (code, said) = far(&words(seed, dir.path()), true);
        assert!(matches!(code, Some(2..=5)), "seed {seed}: {code:?}: {said}");
        assert!(said.starts_with("error: far end: ") && !said.contains("panicked"), "seed {seed}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "seed {seed}: {said}");
        assert!(!said.contains('\x1b'), "seed {seed}: {said:?}");
    }
    // No more than a journal is there.
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name.starts_with(".fullpipe.") && name.ends_with(".journal"), "{name}");
    }
}

#[test]
fn nonsense_is_not_waited_out() {
    // The client goes on holding the line.
    let dir = tempfile::tempdir().unwrap();
    let pong = frame(&Message::AllSent(Skipped::default()));
    for words in [
        b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
        vec![0xff; 100],
        pong.clone(),
        [hello(), pong.clone()].concat(),
        [hello(), setup(dir.path(), true), pong.clone()].concat(),
        [hello(), setup(dir.path(), false), pong].concat(),
        [hello(), setup(Path::new("/no/such/place/at/all"), false)].concat(),
        [hello(), setup(Path::new("/proc/no/such/place"), true)].concat(),
    ] {
        let (code, said) = far(&words, false);
        assert!(matches!(code, Some(2..=5)), "{code:?}: {said}");
    }
}

/// A client that has said all that comes before the first file, with one stream, not encrypted; it asks for nothing.
struct Client {
    far: Child,
    to: ChildStdin,
    from: ChildStdout,
    stream: TcpStream,
    terms: Option<message::Terms>,
}

impl Client {
    fn meet(dir: &Path, push: bool, direct: DirectIo) -> Client {
        let mut far = start(Stdio::piped());
        let (mut to, mut from) = (far.stdin.take().unwrap(), far.stdout.take().unwrap());
        from.read_exact(&mut [0; READY.len()]).unwrap();
        let transport =
            Transport { cc: "reno".into(), streams: 1, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None };
        let connect = Message::Connect(Box::new(Connect {
            transport,
            spare: 0,
            sizing: None,
            assumed_bps: 0,
            rtt_ns: 0,
            terms: None,
            port: 0,
            relays: false,
        }));
        to.write_all(&[hello(), setup_for(dir, push, direct), frame(&connect)].concat()).unwrap();
        let Message::Hello(_) = frame::receive(&mut from).unwrap() else { panic!("no greeting") };
        let Message::Ready { port, token, terms, .. } = frame::receive(&mut from).unwrap() else { panic!("not ready") };
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(&preamble::preamble(&token, 0)).unwrap();
        Client { far, to, from, stream, terms }
    }

    /// Waits for the far end to end; gives what it said to people.
    fn end(mut self) -> String {
        let mut said = String::new();
        let _ = self.from.read_to_end(&mut Vec::new());
        self.far.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        self.far.wait().unwrap();
        said
    }
}

/// Chunks of stream 0 as a sender makes them.
struct Line {
    terms: message::Terms,
    tagger: Tagger,
}

impl Line {
    fn new(terms: message::Terms) -> Line {
        Line { terms, tagger: Tagger::new(terms.tags, 0) }
    }

    /// The next chunk with its data and its tag.
    fn chunk(&mut self, chunk: &Chunk, content: &[u8]) -> Vec<u8> {
        let digest = match chunk {
            Chunk::Block { file, extent, hole: false, .. } => {
                let mut mac = self.terms.key.block(file.key(), *extent);
                mac.update(content);
                Some(mac.finish())
            }
            Chunk::Pack(_) => Some(self.terms.key.pack(content)),
            Chunk::Block { hole: true, .. } | Chunk::End => None,
        };
        let header = frame::pack(chunk).unwrap();
        let tag = self.tagger.next(&header[FRAME_HEAD..], digest.as_ref());
        [&header[..], content, &Trailer(Some(tag)).pack()].concat()
    }
}

/// Parts of a chunk on the wire: header, data, tag.
type Parts = [Vec<u8>; 3];

/// Has the far end receive two large files of two blocks each, a hole, and two packs of a small file each, on one stream
/// that a man in the middle changes; gives which files are there, and what the far end said.
fn through_the_middle(change: impl FnOnce(&mut Vec<Parts>)) -> (Vec<String>, String) {
    const HALF: u64 = 2 << 20;
    let dir = tempfile::tempdir().unwrap();
    let mut client = Client::meet(dir.path(), true, DirectIo::Off);
    let mut line = Line::new(client.terms.unwrap());
    let file = |name: &str, size| {
        let meta = Meta { mode: 0o644, uid: 0, gid: 0, mtime: (1, 0), xattrs: vec![] };
        let name = Name::try_from(name.as_bytes().to_vec()).unwrap();
        FileItem { name, size, sparse: true, changed: (1, 0), content: None, meta }
    };
    let block = |id: u64, name: &str, i: u64, hole| {
        let extent = Extent { offset: i * HALF, len: HALF };
        Chunk::Block { id, file: file(name, 2 * HALF), extent, hole }
    };
    let all = [
        (block(1, "a", 0, false), 1),
        (block(1, "a", 1, false), 2),
        (block(2, "b", 0, false), 3),
        (block(2, "b", 1, true), 0),
        (Chunk::Pack(vec![file("c", 1000)]), 4),
        (Chunk::Pack(vec![file("d", 1000)]), 5),
        (Chunk::End, 0),
    ];
    let mut parts: Vec<Parts> = all
        .iter()
        .map(|(chunk, byte)| {
            let data = vec![*byte; chunk.data_len().unwrap() as usize];
            let whole = line.chunk(chunk, &data);
            let header = frame::pack(chunk).unwrap();
            [header, data, whole[whole.len() - Trailer::LEN..].to_vec()]
        })
        .collect();
    change(&mut parts);
    // Of an end that has given up nobody hears.
    let _ = client.stream.write_all(&parts.concat().concat());
    let _ = client.stream.shutdown(std::net::Shutdown::Write);
    let mut say = |message: &Message| drop(client.to.write_all(&frame(message)));
    say(&Message::FileEnd { id: 1, reading: Reading::Whole });
    say(&Message::FileEnd { id: 2, reading: Reading::Whole });
    say(&Message::AllSent(Skipped::default()));
    say(&Message::Report { end: String::new(), samples: Vec::new(), last: true });
    let said = client.end();
    let names = ["a", "b", "c", "d"].iter().filter(|name| dir.path().join(name).exists());
    (names.map(|name| (*name).to_owned()).collect(), said)
}

/// As `--no-encrypt` has it: the streams are plain, and the keys are known to the two ends alone.
#[test]
fn nobody_in_the_middle_exchanges_blocks() {
    let (there, said) = through_the_middle(|_| {});
    assert_eq!(there, ["a", "b", "c", "d"], "{said}");
    let swap = |parts: &mut Vec<Parts>, i: usize, j: usize, part: usize| {
        let one = std::mem::take(&mut parts[i][part]);
        parts[i][part] = std::mem::replace(&mut parts[j][part], one);
    };
    let content = |i, j| {
        move |parts: &mut Vec<Parts>| {
            swap(parts, i, j, 1);
            swap(parts, i, j, 2);
        }
    };
    let hole = |parts: &mut Vec<Parts>| {
        let Chunk::Block { id, file, extent, .. } = frame::receive(&mut &parts[0][0][..]).unwrap() else { panic!() };
        parts[0][0] = frame::pack(&Chunk::Block { id, file, extent, hole: true }).unwrap();
        parts[0][1].clear();
        parts[0][2] = parts[3][2].clone();
    };
    let renamed = |parts: &mut Vec<Parts>| {
        let Chunk::Pack(mut files) = frame::receive(&mut &parts[4][0][..]).unwrap() else { panic!() };
        files[0].meta.mode = 0o777;
        parts[4][0] = frame::pack(&Chunk::Pack(files)).unwrap();
    };
    type Change<'a> = &'a dyn Fn(&mut Vec<Parts>);
    let changes: [(&str, Change<'_>); 9] = [
        ("two blocks of a file", &content(0, 1)),
        ("blocks of two files", &content(0, 2)),
        ("headers of two blocks", &|parts| swap(parts, 0, 1, 0)),
        ("two packs", &content(4, 5)),
        ("two chunks", &|parts| parts.swap(4, 5)),
        ("a pack for another", &|parts| parts[5] = parts[4].clone()),
        ("a pack for nothing", &|parts| drop(parts.remove(5))),
        ("a block for a hole", &hole),
        ("permissions of a file", &renamed),
    ];
    for (what, change) in changes {
        let (there, said) = through_the_middle(change);
        assert!(there.len() < 4 && said.contains("was damaged on the way"), "{what}: {there:?} {said}");
        if what.contains("block") {
            assert!(!there.contains(&"a".to_owned()), "{what}: {said}");
        }
    }
}

/// Has the far end receive one small file, or a large one as one block, past the cache where it can, closed by what
/// `close` makes of the right tag; gives whether the file is there, and what the far end said.
fn received(large: bool, direct: DirectIo, close: impl Fn([u8; 32]) -> Trailer) -> (bool, String) {
    // On a disk where there is one: target/ of the workspace.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).or_else(|_| tempfile::tempdir()).unwrap();
    let mut client = Client::meet(dir.path(), true, direct);
    // Past the cache a block of this length goes in several pieces.
    let content = vec![5; if large { (3 << 20) + 5 } else { 5000 }];
    let size = content.len() as u64;
    let meta = Meta { mode: 0o644, uid: 0, gid: 0, mtime: (1, 0), xattrs: vec![] };
    let file = FileItem {
        name: Name::try_from(b"file".to_vec()).unwrap(),
        size,
        sparse: false,
        changed: (1, 0),
        content: None,
        meta,
    };
    let whole = Extent { offset: 0, len: size };
    let chunk = if large { Chunk::Block { id: 1, file, extent: whole, hole: false } } else { Chunk::Pack(vec![file]) };
    let mut line = Line::new(client.terms.unwrap());
    let mut sent = line.chunk(&chunk, &content);
    let tag: [u8; 32] = sent.split_off(sent.len() - 32).try_into().unwrap();
    sent.extend_from_slice(&close(tag).pack());
    sent.extend_from_slice(&line.chunk(&Chunk::End, &[]));
    client.stream.write_all(&sent).unwrap();
    // Of an end that has given up nobody hears.
    let mut say = |message: &Message| drop(client.to.write_all(&frame(message)));
    if large {
        say(&Message::FileEnd { id: 1, reading: Reading::Whole });
    }
    say(&Message::AllSent(Skipped::default()));
    say(&Message::Report { end: String::new(), samples: Vec::new(), last: true });
    let said = client.end();
    (dir.path().join("file").exists(), said)
}

#[test]
fn only_what_has_its_tag_takes_its_name() {
    for (large, direct) in [(false, DirectIo::Off), (true, DirectIo::Off), (true, DirectIo::On)] {
        let (there, said) = received(large, direct, |digest| Trailer(Some(digest)));
        assert!(there, "{said}");
        let flipped = |digest: [u8; 32]| Trailer(Some([&[digest[0] ^ 1], &digest[1..]].concat().try_into().unwrap()));
        for (what, close) in [("another", &flipped as &dyn Fn(_) -> _), ("none", &|_| Trailer(None))] {
            let (there, said) = received(large, direct, close);
            assert!(!there && said.contains("was damaged on the way"), "{large} {direct:?} {what}: {said}");
        }
    }
}

/// All is done; unless the sender has heard of it, it may ask again, and has to be told so.
#[test]
fn what_the_sender_may_not_know_is_remembered() {
    for heard in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let Client { mut far, mut to, mut from, mut stream, terms } = Client::meet(dir.path(), true, DirectIo::Off);
        let content = vec![5; 5000];
        let meta = Meta { mode: 0o644, uid: 0, gid: 0, mtime: (1, 0), xattrs: vec![] };
        let name = Name::try_from(b"file".to_vec()).unwrap();
        let pack =
            Chunk::Pack(vec![FileItem { name, size: 5000, sparse: false, changed: (1, 0), content: None, meta }]);
        let mut line = Line::new(terms.unwrap());
        stream.write_all(&[line.chunk(&pack, &content), line.chunk(&Chunk::End, &[])].concat()).unwrap();
        to.write_all(&frame(&Message::AllSent(Skipped::default()))).unwrap();
        while !matches!(frame::receive(&mut from).unwrap(), Message::AllDone(_)) {}
        if heard {
            to.write_all(&frame(&Message::Report { end: String::new(), samples: vec![], last: true })).unwrap();
        }
        drop(to);
        far.wait().unwrap();
        assert_eq!(leftovers(dir.path()).len(), usize::from(!heard), "the journal");
        let again = Client::meet(dir.path(), true, DirectIo::Off);
        assert_eq!(again.terms.unwrap().offer, !heard, "what is there is offered first");
    }
}

/// Without `-H`, no file gets another name because the sender says so.
#[test]
fn hard_links_that_nobody_asked_for_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("there"), "1").unwrap();
    let there = std::fs::metadata(dir.path().join("there")).unwrap();
    let mut client = Client::meet(dir.path(), true, DirectIo::Off);
    let name = |name: &str| Name::try_from(name.as_bytes().to_vec()).unwrap();
    let mtime = (there.mtime(), there.mtime_nsec() as u32);
    let meta = Meta { mode: 0o644, uid: there.uid(), gid: there.gid(), mtime, xattrs: vec![] };
    let item = FileItem { name: name("second"), size: 1, sparse: false, changed: (1, 0), content: None, meta };
    let end = Line::new(client.terms.unwrap()).chunk(&Chunk::End, &[]);
    client.stream.write_all(&end).unwrap();
    // Of an end that has given up nobody hears.
    let mut say = |message: &Message| drop(client.to.write_all(&frame(message)));
    say(&Message::HardLink { item, to: name("there") });
    say(&Message::AllSent(Skipped::default()));
    say(&Message::Report { end: String::new(), samples: Vec::new(), last: true });
    let said = client.end();
    assert!(said.contains("out of turn: HardLink"), "{said}");
    assert!(!dir.path().join("second").exists());
}

#[test]
fn nobody_deletes_what_was_not_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("precious"), "stays").unwrap();
    let mut client = Client::meet(dir.path(), true, DirectIo::Off);
    let mut line = Line::new(client.terms.unwrap());
    let _ = client.stream.write_all(&line.chunk(&Chunk::End, &[]));
    let mut say = |message: &Message| drop(client.to.write_all(&frame(message)));
    say(&Message::AllSent(Skipped::default()));
    say(&Message::Listing(message::Listing { folder: None, names: vec![], last: true }));
    let said = client.end();
    assert!(said.contains("out of turn: Listing"), "{said}");
    assert!(dir.path().join("precious").exists());
}

/// Two blocks under one number: whether a file takes its name, and what the far end said.
fn two_blocks(blocks: [(&str, u64, Extent); 2]) -> (bool, String) {
    two_blocks_of(blocks, Reading::Whole)
}

fn two_blocks_of(blocks: [(&str, u64, Extent); 2], reading: Reading) -> (bool, String) {
    let dir = tempfile::tempdir().unwrap();
    let mut client = Client::meet(dir.path(), true, DirectIo::Off);
    let mut line = Line::new(client.terms.unwrap());
    for (name, size, extent) in blocks {
        let meta = Meta { mode: 0o644, uid: 0, gid: 0, mtime: (1, 0), xattrs: vec![] };
        let name = Name::try_from(name.as_bytes().to_vec()).unwrap();
        let file = FileItem { name, size, sparse: true, changed: (1, 0), content: None, meta };
        let content = vec![5; extent.len as usize];
        let chunk = Chunk::Block { id: 1, file, extent, hole: false };
        // Of an end that has given up nobody hears.
        let _ = client.stream.write_all(&line.chunk(&chunk, &content));
    }
    let _ = client.stream.write_all(&line.chunk(&Chunk::End, &[]));
    let mut say = |message: &Message| drop(client.to.write_all(&frame(message)));
    say(&Message::FileEnd { id: 1, reading });
    say(&Message::AllSent(Skipped::default()));
    say(&Message::Report { end: String::new(), samples: Vec::new(), last: true });
    let said = client.end();
    (["a", "b"].iter().any(|name| dir.path().join(name).exists()), said)
}

#[test]
fn a_file_is_not_mixed_from_two_nor_counted_twice() {
    const SIZE: u64 = 2 << 20;
    let half = |i: u64| Extent { offset: i * SIZE / 2, len: SIZE / 2 };
    for (what, blocks) in [
        ("two files under one number", [("a", SIZE, half(0)), ("b", SIZE, half(1))]),
        ("two files under one number", [("a", SIZE, half(0)), ("a", SIZE + 1, half(1))]),
        ("a block that has come already", [("a", SIZE, half(0)), ("a", SIZE, half(0))]),
        ("a block that has come already", [("a", SIZE, half(0)), ("a", SIZE, Extent { offset: 1, len: SIZE / 2 })]),
    ] {
        let (there, said) = two_blocks(blocks);
        assert!(!there && said.contains(what), "{blocks:?}: {there} {said}");
    }
    let (there, said) = two_blocks([("a", SIZE, half(1)), ("a", SIZE, half(0))]);
    assert!(there, "{said}");
}

/// What comes from standard input is whole if all of its first bytes have come, up to where its sender says that it ends.
#[test]
fn a_file_of_unknown_size_ends_where_its_sender_says() {
    const HALF: u64 = 1 << 20;
    let unknown = FileItem::UNKNOWN_SIZE;
    let half = |i: u64| Extent { offset: i * HALF, len: HALF };
    let ended = |size| Reading::Ended { size };
    let (there, said) = two_blocks_of([("a", unknown, half(1)), ("a", unknown, half(0))], ended(2 * HALF));
    assert!(there, "{said}");
    for (size, second, reading) in [
        (unknown, half(2), ended(2 * HALF)),
        (unknown, half(1), ended(2 * HALF - 1)),
        (unknown, half(1), ended(0)),
        (unknown, half(1), Reading::Whole),
        (2 * HALF, half(1), ended(2 * HALF)),
    ] {
        let (there, said) = two_blocks_of([("a", size, half(0)), ("a", size, second)], reading);
        assert!(!there && said.contains("was damaged on the way"), "{size} {second:?} {reading:?}: {said}");
    }
    // More must come, but nothing does.
    let (there, said) = two_blocks_of([("a", unknown, half(0)), ("a", unknown, half(1))], ended(2 * HALF + 1));
    assert!(!there && said.contains("nothing moved for"), "{said}");
    let (there, said) = two_blocks_of([("a", unknown, half(0)), ("a", unknown, half(1))], Reading::Changed);
    assert!(!there, "{said}");
}

#[test]
fn a_receiver_without_terms_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = Client::meet(dir.path(), false, DirectIo::Off);
    assert_eq!(client.terms, None);
    let Message::Failed { why, retry: false, .. } = frame::receive(&mut client.from).unwrap() else {
        panic!("it goes on")
    };
    assert!(why.contains("it does not say how it receives"), "{why}");
    assert!(client.end().contains(&why));
}
