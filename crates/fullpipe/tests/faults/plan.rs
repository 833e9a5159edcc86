//! What a seed stands for: a path, a tree, how it is copied, and what goes wrong when. Pure: the same seed,
//! the same plan, on every machine.

use std::time::Duration;

use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_pcg::Pcg64;

/// Makes the random numbers of a seed for `--inplace` others than those for all else.
pub const INPLACE: u64 = 0x696e_706c_6163_6500;

/// One scenario.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Its number.
    pub seed: u64,
    /// Round-trip time.
    pub rtt: Duration,
    /// Of the bottleneck, Mb/s.
    pub mbits: u64,
    /// What the path does to packets all along.
    pub path: Trouble,
    /// From a, where the command runs, to b; else the other way.
    pub push: bool,
    /// The server wants a token, and speaks TLS.
    pub tls: bool,
    /// The data streams are not encrypted.
    pub plain: bool,
    /// The data go over UDT.
    pub udt: bool,
    /// Parallel streams.
    pub streams: u16,
    /// Largest block, KiB.
    pub block_kib: u64,
    /// More flags of the command.
    pub flags: Vec<&'static str>,
    /// Its --stall.
    pub stall: Duration,
    /// Between the ends stands a relay of TCP connections, which damages, holds up and cuts.
    pub relay: bool,
    /// Room at the destination, of what is needed, until it is made.
    pub room: Option<f64>,
    /// A file of these cannot be read until the last round.
    pub unreadable: Option<usize>,
    /// Source and destination are on disks, which have faults too.
    pub disks: bool,
    /// The copy writes into the files that the destination has (`--inplace`).
    pub inplace: bool,
    /// What is copied.
    pub tree: Vec<Node>,
    /// What the destination has under the same names before, for a copy in place.
    pub old: Vec<Node>,
    /// In each the command is run once, and this goes wrong meanwhile, counted from its start.
    pub rounds: Vec<Vec<(Duration, Fault)>>,
    /// Who works against the copy until all that is broken is mended, and how often.
    pub adversaries: Vec<(Adversary, Duration)>,
}

/// Somebody who works against a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adversary {
    /// Another user of the receiving host puts files of their own under the transfer's own names.
    LocalUser,
    /// The owner of the source exchanges a folder in it, given by its place in the tree, for a link for a moment.
    SourceOwner(usize),
    /// A stranger calls the control port and the data ports, and says nothing, or nonsense.
    Stranger,
    /// A client finds a flaw that ends the process which serves it.
    Crasher,
}

/// Something of the source's tree.
#[derive(Debug, Clone)]
pub struct Node {
    /// Below the top.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Permissions.
    pub mode: u32,
    /// Last change, seconds since 1970.
    pub mtime_s: i64,
    /// And nanoseconds.
    pub mtime_ns: u32,
}

/// What something of a tree is.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// Random bytes, so many.
    Data(u64),
    /// So many, of which only the given parts are there.
    Sparse(u64, Vec<(u64, u64)>),
    /// A folder.
    Folder,
    /// A symbolic link.
    Link(&'static str),
}

/// What a path does to packets.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Trouble {
    /// Lost, forward.
    pub loss: f64,
    /// And back.
    pub loss_back: f64,
    /// Overtaking others.
    pub reorder: f64,
    /// Arriving twice.
    pub duplicate: f64,
    /// With a bit flipped, which TCP sees.
    pub corrupt: f64,
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// kill -9 of the command.
    KillClient,
    /// kill -9 of the server, and its start after so long.
    KillServer(Duration),
    /// Ctrl-C.
    Interrupt,
    /// The command stands still.
    PauseClient(Duration),
    /// The server does.
    PauseServer(Duration),
    /// Every clock jumps, seconds.
    Clock(i64),
    /// The same command once more, beside the first.
    Twice,
    /// The path, for so long or for good.
    Link(Trouble, Option<Duration>),
    /// A source file, given by its place in the tree.
    Change(usize, Change),
    /// A byte of what goes through the relay: on the control connection or a stream, back or forward.
    Flip { control: bool, back: bool },
    /// Nobody reads what goes through the relay any more.
    Hold(Duration),
    /// All connections through the relay break.
    Reset,
    /// The disk of the source, or of the destination, stands still.
    StallDisk { source: bool, time: Duration },
    /// The first block of a source file, given by its place in the tree, cannot be read any more.
    SpoilFile(usize),
    /// The destination's disk is full, for so long or for good.
    FillDisk(Option<Duration>),
}

/// What happens to a source file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// Some bytes at this part of it.
    Overwrite(f64),
    /// Longer.
    Append,
    /// Cut to this part.
    Truncate(f64),
    /// Another takes its name.
    Replace,
    /// Gone.
    Remove,
}

fn log_uniform(rng: &mut Pcg64, from: f64, to: f64) -> f64 {
    (rng.random_range(from.ln()..to.ln())).exp()
}

fn seconds(rng: &mut Pcg64, from: f64, to: f64) -> Duration {
    Duration::from_secs_f64(log_uniform(rng, from, to))
}

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64) -> Plan {
        let rng = &mut Pcg64::seed_from_u64(seed);
        let rtt = seconds(rng, 0.2e-3, 0.2);
        let mbits = *[100, 300, 1000, 1000, 10_000].choose(rng).unwrap();
        let tree = tree(rng);
        let bytes: u64 = tree.iter().map(Node::bytes).sum();
        // How long it takes when nothing goes wrong, more or less.
        let usual = 8.0 * rtt.as_secs_f64() + bytes as f64 * 8e-6 / mbits as f64;
        let relay = rng.random_bool(0.3);
        let mut plan = Plan {
            seed,
            rtt,
            mbits,
            path: if rng.random_bool(0.3) { weather(rng, 0.01) } else { Trouble::default() },
            push: rng.random_bool(0.6),
            tls: rng.random_bool(0.3),
            plain: false,
            udt: false,
            streams: rng.random_range(1..=6),
            block_kib: *[64, 256, 1024, 8192].choose(rng).unwrap(),
            flags: Vec::new(),
            stall: seconds(rng, 5.0, 60.0),
            relay,
            room: rng.random_bool(0.12).then(|| rng.random_range(0.05..0.95)),
            unreadable: None,
            disks: false,
            inplace: false,
            rounds: Vec::new(),
            adversaries: Vec::new(),
            tree,
            old: Vec::new(),
        };
        plan.plain = !plan.tls && rng.random_bool(0.6);
        for (chance, flag) in [(0.2, "--fsync"), (0.2, "--update"), (0.2, "--direct=off"), (0.1, "--json")] {
            if rng.random_bool(chance) {
                plan.flags.push(flag);
            }
        }
        if plan.flags.contains(&"--update") {
            // Before the guest's own time: what is changed becomes newer, by which --update goes.
            plan.tree.iter_mut().for_each(|node| node.mtime_s %= 1_400_000_000);
        }
        let files = plan.files();
        if rng.random_bool(0.08) {
            let small: Vec<usize> = files.iter().copied().filter(|i| plan.tree[*i].bytes() < 1 << 20).collect();
            plan.unreadable = small.choose(rng).copied();
        }
        for _ in 0..rng.random_range(1..=3) {
            let mut faults: Vec<(Duration, Fault)> = (0..rng.random_range(1..=3))
                .map(|_| {
                    // Mostly while something moves; sometimes at once, or late.
                    let at = match rng.random_range(0..10) {
                        0 => log_uniform(rng, 1e-4, 0.1),
                        1 => usual * rng.random_range(1.0..20.0),
                        _ => usual * rng.random_range(0.0..1.1),
                    };
                    (Duration::from_secs_f64(at), fault(rng, relay, &files))
                })
                .collect();
            faults.sort_by_key(|(at, _)| *at);
            plan.rounds.push(faults);
        }
        // Behind all else, so that seeds keep what they had.
        if rng.random_bool(0.45) {
            for _ in 0..rng.random_range(1..=2) {
                let every = usual * rng.random_range(0.02..0.5);
                let adversary = plan.adversary(rng);
                // The driver holds both ends of a stranger's calls for a while, and has 1,024 descriptors.
                let least = if adversary == Adversary::Stranger { 0.1 } else { 1e-3 };
                plan.adversaries.push((adversary, Duration::from_secs_f64(every.max(least))));
            }
        }
        // The relay is of TCP.
        plan.udt = !relay && rng.random_bool(0.3);
        plan.disks = plan.room.is_none() && plan.unreadable.is_none() && rng.random_bool(0.2);
        if plan.disks {
            let large: Vec<usize> = files.into_iter().filter(|i| plan.tree[*i].bytes() > 1 << 14).collect();
            for round in &mut plan.rounds {
                let at = usual * rng.random_range(0.0..0.8);
                round.push((Duration::from_secs_f64(at), disk_fault(rng, &large)));
                round.sort_by_key(|(at, _)| *at);
            }
        }
        plan.draw_inplace();
        plan
    }

    /// Draws from numbers of its own, so that seeds keep what they had, whether the copy is in place. A local user who removes
    /// files of the destination's folder removes what marks a file as unfinished, too.
    fn draw_inplace(&mut self) {
        let rng = &mut Pcg64::seed_from_u64(self.seed ^ INPLACE);
        let is_local = |(adversary, _): &(Adversary, Duration)| *adversary == Adversary::LocalUser;
        if rng.random_bool(0.25) && !self.adversaries.iter().any(is_local) {
            self.inplace = true;
            self.flags.push("--inplace");
            self.old = older_versions(&self.tree, rng);
        }
    }

    fn adversary(&self, rng: &mut Pcg64) -> Adversary {
        let folders: Vec<usize> = (0..self.tree.len()).filter(|i| self.tree[*i].kind == Kind::Folder).collect();
        match rng.random_range(0..6) {
            0 | 1 => Adversary::LocalUser,
            2 | 3 => folders.choose(rng).map_or(Adversary::LocalUser, |i| Adversary::SourceOwner(*i)),
            4 => Adversary::Stranger,
            _ => Adversary::Crasher,
        }
    }

    /// In words.
    pub fn told(&self) -> String {
        let Plan { seed, rtt, mbits, path, push, tls, plain, udt, streams, block_kib, flags, stall, relay, .. } = self;
        let mut lines = vec![
            format!(
                "seed {seed}: {rtt:?}, {mbits} Mb/s, {path:?}; push {push}, tls {tls}, plain {plain}, udt {udt}, relay {relay}"
            ),
            format!("  {streams} streams, blocks of {block_kib} KiB, {flags:?}, stall {stall:?}"),
            format!("  room {:?}, unreadable {:?}, disks {}", self.room, self.unreadable, self.disks),
        ];
        for (i, node) in self.tree.iter().enumerate() {
            lines.push(format!("  {i}: {} {:?} {:o}", node.name.escape_ascii(), node.kind, node.mode));
        }
        lines.extend(self.adversaries.iter().map(|(adversary, every)| format!("  {adversary:?} every {every:?}")));
        for (i, round) in self.rounds.iter().enumerate() {
            let faults: Vec<String> = round.iter().map(|(at, fault)| format!("{at:?} {fault:?}")).collect();
            lines.push(format!("  round {i}: {}", faults.join("; ")));
        }
        lines.join("\n")
    }

    /// Places of regular files in the tree.
    pub fn files(&self) -> Vec<usize> {
        let is_file = |node: &Node| matches!(node.kind, Kind::Data(_) | Kind::Sparse(..));
        (0..self.tree.len()).filter(|i| is_file(&self.tree[*i])).collect()
    }

    /// Bytes that the tree occupies.
    pub fn bytes(&self) -> u64 {
        self.tree.iter().map(Node::bytes).sum()
    }
}

impl Node {
    /// Bytes that are there.
    pub fn bytes(&self) -> u64 {
        match &self.kind {
            Kind::Data(bytes) => *bytes,
            Kind::Sparse(_, parts) => parts.iter().map(|(_, len)| len).sum(),
            _ => 0,
        }
    }
}

fn weather(rng: &mut Pcg64, most: f64) -> Trouble {
    let mut some = |chance: f64| if rng.random_bool(chance) { log_uniform(rng, 1e-4, most) } else { 0.0 };
    Trouble { loss: some(0.5), loss_back: some(0.3), reorder: some(0.4), duplicate: some(0.4), corrupt: some(0.4) }
}

fn disk_fault(rng: &mut Pcg64, large: &[usize]) -> Fault {
    match rng.random_range(0..4) {
        0 | 1 => Fault::StallDisk { source: rng.random_bool(0.5), time: Duration::from_secs(60) },
        2 if !large.is_empty() => Fault::SpoilFile(*large.choose(rng).unwrap()),
        _ => Fault::FillDisk(rng.random_bool(0.5).then(|| seconds(rng, 0.01, 30.0))),
    }
}

fn fault(rng: &mut Pcg64, relay: bool, files: &[usize]) -> Fault {
    if relay && rng.random_bool(0.5) {
        return match rng.random_range(0..6) {
            0..=2 => Fault::Flip { control: rng.random_bool(0.3), back: rng.random_bool(0.3) },
            3 | 4 => Fault::Reset,
            _ => Fault::Hold(seconds(rng, 0.1, 200.0)),
        };
    }
    match rng.random_range(0..20) {
        0..=3 => Fault::KillClient,
        4..=6 => Fault::KillServer(seconds(rng, 1e-3, 30.0)),
        7 => Fault::Interrupt,
        8 => Fault::PauseClient(seconds(rng, 0.01, 150.0)),
        9 => Fault::PauseServer(seconds(rng, 0.01, 150.0)),
        10 => Fault::Clock((log_uniform(rng, 1.0, 1e8)) as i64 * if rng.random_bool(0.5) { 1 } else { -1 }),
        11 | 12 => Fault::Twice,
        13 | 14 => {
            let cut = Trouble { loss: 1.0, loss_back: 1.0, ..Trouble::default() };
            Fault::Link(cut, rng.random_bool(0.8).then(|| seconds(rng, 0.05, 300.0)))
        }
        15 => {
            // A link that carries one way only.
            let back = rng.random_bool(0.5);
            let half = Trouble { loss: f64::from(!back), loss_back: f64::from(back), ..Trouble::default() };
            Fault::Link(half, Some(seconds(rng, 0.05, 300.0)))
        }
        16 => Fault::Link(weather(rng, 0.5), Some(seconds(rng, 0.01, 10.0))),
        _ => {
            let how = match rng.random_range(0..6) {
                0 | 1 => Change::Overwrite(rng.random_range(0.0..1.0)),
                2 => Change::Append,
                3 => Change::Truncate(rng.random_range(0.0..1.0)),
                4 => Change::Replace,
                _ => Change::Remove,
            };
            Fault::Change(*files.choose(rng).unwrap(), how)
        }
    }
}

/// A few files of every kind that the engine treats apart: none, small, at the limit between small and
/// large, large, with holes; names that are hard.
pub fn tree(rng: &mut Pcg64) -> Vec<Node> {
    const MIB: u64 = 1 << 20;
    let mut folders: Vec<Vec<u8>> = vec![Vec::new()];
    let mut tree: Vec<Node> = Vec::new();
    let add = |rng: &mut Pcg64, tree: &mut Vec<Node>, name: Vec<u8>, kind: Kind| {
        let mode = match kind {
            Kind::Folder => *[0o755, 0o700, 0o2775, 0o555].choose(rng).unwrap(),
            _ => *[0o644, 0o600, 0o755, 0o400, 0o444, 0o664].choose(rng).unwrap(),
        };
        let mtime_s = rng.random_range(0..1_900_000_000);
        tree.push(Node { name, kind, mode, mtime_s, mtime_ns: rng.random_range(0..1_000_000_000) });
    };
    for i in 0..rng.random_range(0..4) {
        let mut name = folders.choose(rng).unwrap().clone();
        name.extend_from_slice(format!("folder {i}").as_bytes());
        add(rng, &mut tree, name.clone(), Kind::Folder);
        name.push(b'/');
        folders.push(name);
    }
    let odd: [&[u8]; 5] = [b"new\nline", b"\xff\xfe not text", &[b'n'; 255], b" ", b"-r"];
    for i in 0..rng.random_range(2..24) {
        let size = match rng.random_range(0..12) {
            0 => 0,
            1 => 1,
            2..=6 => log_uniform(rng, 2.0, 200e3) as u64,
            7 => MIB + rng.random_range(0..3) - 1,
            8 => rng.random_range(1..12) * MIB,
            9 => log_uniform(rng, 1e6, 16e6) as u64,
            _ => log_uniform(rng, 2e5, 3e6) as u64,
        };
        let mut name = folders.choose(rng).unwrap().clone();
        match odd.get(i) {
            Some(odd) if rng.random_bool(0.2) => name.extend_from_slice(odd),
            _ => name.extend_from_slice(format!("file{i}").as_bytes()),
        }
        let kind = if rng.random_bool(0.15) {
            let size = size * 4;
            let parts = (0..rng.random_range(0..4)).filter_map(|_| {
                let at = rng.random_range(0..size.max(1));
                let len = rng.random_range(0..=(size - at).min(2 * MIB));
                (len > 0).then_some((at, len))
            });
            Kind::Sparse(size, parts.collect())
        } else {
            Kind::Data(size)
        };
        add(rng, &mut tree, name, kind);
    }
    if rng.random_bool(0.3) {
        add(rng, &mut tree, b"link".to_vec(), Kind::Link("no/where"));
    }
    tree
}

/// Folders of the tree, and older versions of some of its files, or those files themselves.
pub fn older_versions(tree: &[Node], rng: &mut Pcg64) -> Vec<Node> {
    let mut old = Vec::new();
    for node in tree {
        let Node { name, mode, mtime_s, mtime_ns, .. } = node.clone();
        match &node.kind {
            Kind::Folder => old.push(node.clone()),
            Kind::Link(_) => {}
            Kind::Data(_) | Kind::Sparse(..) if rng.random_bool(0.4) => {}
            Kind::Data(size) | Kind::Sparse(size, _) => {
                let size = match rng.random_range(0..3) {
                    // Size and time decide what is the same, so another version has another time.
                    0 => *size,
                    _ => log_uniform(rng, 1.0, 2e6) as u64,
                };
                let mtime_s = mtime_s - rng.random_range(1..100_000_000);
                old.push(Node { name, kind: Kind::Data(size), mode, mtime_s, mtime_ns });
            }
        }
    }
    old
}
