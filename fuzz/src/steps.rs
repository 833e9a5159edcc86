//! A script: what the fuzzer's end does, one step after the other. In bytes, as libFuzzer keeps it, it is postcard; it is
//! changed both as bytes and as steps, since few bytes that are drawn are a right message, and fewer a right sequence.

use fullpipe_transfer::Skipped;
use fullpipe_transfer::protocol::chunk::Chunk;
use fullpipe_transfer::protocol::file::{Extent, FileItem, Meta};
use fullpipe_transfer::protocol::message::{Listing, Message, Reading, Summary, Times, Want};
use fullpipe_transfer::protocol::name::{Name, Named};
use fullpipe_transfer::protocol::sizing::SenderStats;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

/// Most steps that are played.
pub const MOST: usize = 64;

/// Of [`Script::how`]: the second half of the steps is another run of the same command.
pub const SECOND: u16 = 1 << 7;

/// What the fuzzer's end does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Step {
    /// Says this.
    Say(Message),
    /// Says bytes that need not be a message.
    Bytes(Vec<u8>),
    /// Sends a chunk on a stream, and its data again and again until it is as long as announced; with the digest that it
    /// should have, or not.
    Chunk { stream: u8, chunk: Chunk, data: Vec<u8>, right: bool },
    /// Sends bytes on a stream.
    Spill { stream: u8, bytes: Vec<u8> },
    /// Closes a stream.
    Close { stream: u8 },
    /// Gives the other end so many milliseconds, few.
    Wait(u8),
}

/// What is played.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Script {
    /// Of the options, and how many streams: a bit, or a few, each.
    pub how: u16,
    pub steps: Vec<Step>,
}

impl Script {
    /// From bytes: as much of it as there is.
    pub fn read(bytes: &[u8]) -> Script {
        let mut script = Script::default();
        let Some((how, mut rest)) = bytes.split_at_checked(2) else { return script };
        script.how = u16::from_le_bytes([how[0], how[1]]);
        while let (Ok((step, after)), true) = (postcard::take_from_bytes(rest), script.steps.len() < MOST) {
            script.steps.push(step);
            rest = after;
        }
        script
    }

    /// The same; told where `FULLPIPE_FUZZ_SHOW` is set.
    pub fn shown(bytes: &[u8]) -> Script {
        let script = Script::read(bytes);
        if std::env::var_os("FULLPIPE_FUZZ_SHOW").is_some() {
            script.steps.iter().for_each(|step| eprintln!("{step:?}"));
        }
        script
    }

    fn write(&self) -> Vec<u8> {
        let mut bytes = self.how.to_le_bytes().to_vec();
        for step in &self.steps {
            bytes = postcard::to_extend(step, bytes).unwrap_or_default();
        }
        bytes
    }
}

/// Changes a script's bytes in place; gives how many there are then.
pub fn mutate(data: &mut [u8], size: usize, max: usize, seed: u32) -> usize {
    let mut rng = StdRng::seed_from_u64(u64::from(seed));
    if rng.random_ratio(1, 3) {
        return libfuzzer_sys::fuzzer_mutate(data, size, max);
    }
    let mut script = Script::read(&data[..size]);
    for _ in 0..rng.random_range(1..4) {
        change(&mut script, &mut rng);
    }
    let bytes = script.write();
    if bytes.len() > max {
        return libfuzzer_sys::fuzzer_mutate(data, size, max);
    }
    data[..bytes.len()].copy_from_slice(&bytes);
    bytes.len()
}

/// Changes a script's steps, by nothing but the seed.
pub fn mutant(data: &[u8], seed: u64) -> Vec<u8> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut script = Script::read(data);
    for _ in 0..rng.random_range(1..4) {
        change(&mut script, &mut rng);
    }
    script.write()
}

fn change(script: &mut Script, rng: &mut StdRng) {
    let steps = &mut script.steps;
    let n = steps.len();
    match rng.random_range(0..10) {
        0 => script.how = rng.random(),
        1 if n > 0 => drop(steps.remove(rng.random_range(0..n))),
        2 if n > 1 => {
            let (a, b) = (rng.random_range(0..n), rng.random_range(0..n));
            steps.swap(a, b);
        }
        3 if n > 0 => {
            let step = steps[rng.random_range(0..n)].clone();
            steps.insert(rng.random_range(0..=n), step);
        }
        4 if n > 0 => {
            // One step's bytes.
            let at = rng.random_range(0..n);
            let mut bytes = postcard::to_allocvec(&steps[at]).unwrap_or_default();
            let bit = rng.random_range(0..bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(step) = postcard::from_bytes(&bytes) {
                steps[at] = step;
            }
        }
        5 if n > 0 => again(script, rng),
        _ => {
            let at = if rng.random_ratio(1, 2) { n } else { rng.random_range(0..=n) };
            for step in right(rng).into_iter().rev() {
                steps.insert(at, step);
            }
        }
    }
    script.steps.truncate(MOST);
}

/// As many steps once more, for the second run of a command: what has come is offered, and some of it is sent.
fn again(script: &mut Script, rng: &mut StdRng) {
    script.how |= SECOND;
    let first = script.steps.clone();
    let mut files: Vec<FileItem> = Vec::new();
    for step in &first {
        if let Step::Chunk { chunk: Chunk::Block { file, .. }, .. } = step
            && !files.contains(file)
        {
            files.push(file.clone());
        }
    }
    let mut second = vec![Step::Say(Message::Offer(files)), Step::Wait(7)];
    second.extend(first.iter().filter(|_| rng.random_ratio(3, 4)).cloned());
    // The halves are as long as each other.
    second.resize_with(first.len(), || Step::Wait(1));
    script.steps.extend(second);
}

/// A name from few, so that things meet: folders, files in them, links, and what leads out of the root.
fn name(rng: &mut StdRng) -> Name {
    const NAMES: [&str; 12] = [
        "in",
        "in/a",
        "in/b",
        "in/a/c",
        "in/there",
        "in/out",
        "in/out/x",
        "in/link",
        "in/.fullpipe.0000000000000001.partial",
        "a",
        "b",
        "in/\u{1b}[2J\n",
    ];
    let name = NAMES.choose(rng).copied().unwrap_or("in");
    Name::try_from(name.as_bytes().to_vec()).unwrap_or_else(|_| unreachable!("{name:?} is one"))
}

fn meta(rng: &mut StdRng) -> Meta {
    let mode = *[0o644, 0o755, 0, 0o7777, u32::MAX].choose(rng).unwrap_or(&0);
    let mtime = *[(1, 1), (0, 0), (i64::MAX, u32::MAX), (-1, 999_999_999)].choose(rng).unwrap_or(&(0, 0));
    let xattrs = if rng.random_ratio(1, 8) { vec![(b"user.x".to_vec(), vec![1; 9])] } else { Vec::new() };
    Meta { mode, uid: rng.random_range(0..2), gid: 0, mtime, xattrs }
}

fn file(rng: &mut StdRng, size: u64) -> FileItem {
    FileItem {
        name: name(rng),
        size,
        sparse: rng.random(),
        changed: (1, rng.random_range(0..2)),
        content: None,
        meta: meta(rng),
    }
}

/// Steps that make sense at the right time.
fn right(rng: &mut StdRng) -> Vec<Step> {
    let (stream, right) = (rng.random_range(0..3), rng.random_ratio(7, 8));
    let id = rng.random_range(0..4);
    let say = |message| vec![Step::Say(message)];
    match rng.random_range(0..19) {
        0 => {
            let sizes = [0, 1, 100, 4096, 70_000, 1 << 20];
            let n = rng.random_range(1..4);
            let files = (0..n).map(|_| {
                let size = *sizes.choose(rng).unwrap_or(&0);
                file(rng, size)
            });
            let chunk = Chunk::Pack(files.collect());
            vec![Step::Chunk { stream, chunk, data: vec![rng.random(); rng.random_range(1..9)], right }]
        }
        1 | 2 => {
            // A large file, in as many blocks as there are, or not.
            let size = *[(1 << 20) + 1, 3 << 19, (1 << 20) + 4096, (2 << 20) + 1].choose(rng).unwrap_or(&0);
            let (mut file, block) = (file(rng, size), 1u64 << rng.random_range(19..22));
            let mut reading = Reading::Whole;
            if rng.random_ratio(1, 4) {
                file.size = FileItem::UNKNOWN_SIZE;
                reading = Reading::Ended { size };
            }
            let mut steps = Vec::new();
            for offset in (0..size).step_by(block as usize) {
                let extent = Extent { offset, len: block.min(size - offset) };
                let hole = rng.random_ratio(1, 5);
                let chunk = Chunk::Block { id, file: file.clone(), extent, hole };
                let stream = rng.random_range(0..3);
                steps.push(Step::Chunk { stream, chunk, data: vec![rng.random(); 5], right });
            }
            steps.push(Step::Say(Message::FileEnd { id, reading }));
            steps
        }
        3 => say(Message::FileEnd {
            id,
            reading: *[
                Reading::Whole,
                Reading::Partly { sent: rng.random_range(0..1 << 22) },
                Reading::Changed,
                Reading::Ended { size: rng.random_range(0..1 << 22) },
            ]
            .choose(rng)
            .unwrap_or(&Reading::Whole),
        }),
        4 => say(Message::Folder { name: name(rng), meta: meta(rng) }),
        5 => {
            let target = *[&b"a"[..], b"..", b"../outside", b"/", b"in/link", b""].choose(rng).unwrap_or(&&b"a"[..]);
            say(Message::Link { name: name(rng), target: target.to_vec(), changed: (1, 0), meta: meta(rng) })
        }
        6 => {
            let n = rng.random_range(0..4);
            say(Message::Offer((0..n).map(|_| file(rng, 2 << 20)).collect()))
        }
        7 => {
            let want = |rng: &mut StdRng| match rng.random_range(0..3) {
                0 => Want::All,
                1 => Want::Nothing,
                _ => {
                    Want::But(vec![Extent { offset: rng.random_range(0..2 << 20), len: rng.random_range(0..1 << 20) }])
                }
            };
            let n = rng.random_range(0..6);
            say(Message::Want((0..n).map(|_| want(rng)).collect()))
        }
        8 => (0..3).map(|stream| Step::Chunk { stream, chunk: Chunk::End, data: Vec::new(), right: true }).collect(),
        9 => say(Message::AllSent(Skipped::default())),
        10 => say(Message::AllDone(Summary::default())),
        11 => say(Message::Report { end: String::new(), samples: Vec::new(), last: true }),
        12 => say(Message::Totals { bytes: 1 << 20, files: 4, all: true }),
        13 => say(match rng.random_range(0..3) {
            0 => Message::FileDone { id },
            1 => Message::Unwanted { id },
            _ => Message::GivenUp { id },
        }),
        14 => vec![Step::Wait(rng.random_range(0..8))],
        15 => say(match rng.random_range(0..5) {
            0 => Message::Pace { bps: Some(rng.random()) },
            1 => Message::Pace { bps: None },
            2 => Message::SlowStart,
            3 => Message::Streams { sending: rng.random() },
            _ => {
                let (retransmits, window_limited_us) = (rng.random(), rng.random());
                Message::SenderStats(SenderStats { retransmits, window_limited_us, rtt_us: rng.random() })
            }
        }),
        16 => say(match rng.random_range(0..7) {
            0 => Message::List,
            4 => Message::SenderProgress {
                sent: rng.random(),
                times: Times::default(),
                names: vec![Named::Copied(name(rng))],
            },
            5 => Message::Reached(Err("no".to_owned())),
            1 => Message::Listed(Skipped::default()),
            2 => Message::Deleted(vec![name(rng)]),
            6 => Message::Linked(name(rng)),
            _ => {
                let all = [&b"a"[..], b"there", b"out", b"..", b""];
                let names = all.iter().filter(|_| rng.random()).map(|name| name.to_vec()).collect();
                let folder = rng.random_ratio(7, 8).then(|| name(rng));
                Message::Listing(Listing { folder, names, last: rng.random_ratio(7, 8) })
            }
        }),
        // All has come, and then what the folders have.
        17 => {
            let end = |stream| Step::Chunk { stream, chunk: Chunk::End, data: Vec::new(), right: true };
            let all = Step::Say(Message::AllSent(Skipped::default()));
            let mut steps = vec![end(0), end(1), end(2), all, Step::Wait(6)];
            for _ in 0..rng.random_range(0..3) {
                let folder = Some(name(rng));
                steps.push(Step::Say(Message::Listing(Listing { folder, names: Vec::new(), last: true })));
            }
            steps.push(Step::Say(Message::Listed(Skipped::default())));
            steps
        }
        // A whole conversation's end.
        _ => {
            let end = |stream| Step::Chunk { stream, chunk: Chunk::End, data: Vec::new(), right: true };
            let report = Message::Report { end: String::new(), samples: Vec::new(), last: true };
            let all = Step::Say(Message::AllSent(Skipped::default()));
            vec![end(0), end(1), end(2), all, Step::Wait(6), Step::Say(report), Step::Wait(2)]
        }
    }
}
