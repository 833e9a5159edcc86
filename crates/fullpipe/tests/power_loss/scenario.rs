//! What a seed stands for: what is copied, how, onto which file system, and when the receiving machine loses power.
//! Pure: the same seed, the same scenario, on every machine.

use std::time::Duration;

use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_pcg::Pcg64;

use crate::device::Speed;
use crate::image::Kept;
use crate::plan::{INPLACE, Kind, Node, older_versions, tree};

/// Bytes of data in the tree, and bytes of its files with their holes, at most: each is copied several times.
const MOST_DATA: u64 = 20 << 20;
const MOST_BYTES: u64 = 60 << 20;

/// The file system of the receiving machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FileSystem {
    Xfs,
    Ext4,
}

/// When power is lost, while the command runs or after it has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Moment {
    /// At this fraction of the device's requests until the command's end.
    Request(f64),
    /// At this fraction of the command's duration.
    Time(f64),
    /// So long after the command's end.
    After(Duration),
}

/// A loss of power.
#[derive(Debug, Clone, Copy)]
pub struct Loss {
    pub moment: Moment,
    /// What of the writes in its cache the device still keeps.
    pub kept: Kept,
    /// Of the choice which writes those are.
    pub seed: u64,
}

/// One scenario.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub seed: u64,
    pub rtt: Duration,
    /// Of the bottleneck.
    pub mbits: u64,
    /// Whether the command runs at the sending machine, a, and not at the receiving one.
    pub push: bool,
    pub file_system: FileSystem,
    pub speed: Speed,
    /// How long the kernel leaves changes in memory before it writes them, where it is not the default of 30 s.
    pub write_back: Option<Duration>,
    /// How often another program on that machine has a file of its own written to disk, and with it the file system's
    /// log: names of files then are there whose content is not.
    pub neighbour: Option<Duration>,
    pub streams: u16,
    pub block_kib: u64,
    pub fsync: bool,
    pub update: bool,
    /// Whether the copy writes into the files that are there (`--inplace`).
    pub inplace: bool,
    /// In the first boot the command runs without --fsync before, and is killed after this part of the time that it
    /// needs, if it has not ended.
    pub before: Option<f64>,
    /// The command's other flags.
    pub flags: Vec<&'static str>,
    /// Whether the copy gets a name of its own, a folder that is not there before.
    pub renamed: bool,
    /// What is copied.
    pub tree: Vec<Node>,
    /// What is under its names before: folders, and older versions or copies of some of its files.
    pub old: Vec<Node>,
    /// One after the other, each while or after the command is run on what the one before has left.
    pub losses: Vec<Loss>,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn new(seed: u64) -> Scenario {
        let rng = &mut Pcg64::seed_from_u64(seed);
        let tree = loop {
            let mut tree = tree(rng);
            let bytes: u64 = tree.iter().map(Node::bytes).sum();
            let whole: u64 = tree.iter().map(whole_size).sum();
            if (1 << 20..MOST_DATA).contains(&bytes) && whole < MOST_BYTES {
                // Times before the guest's own, so that an older version is not taken for a newer one.
                tree.iter_mut().for_each(|node| node.mtime_s = 1_000_000_000 + node.mtime_s % 400_000_000);
                break tree;
            }
        };
        let renamed = rng.random_bool(0.2);
        let old = if renamed || rng.random_bool(0.3) { Vec::new() } else { older_versions(&tree, rng) };
        let mut flags = Vec::new();
        match rng.random_range(0..4) {
            0 => flags.push("--direct=on"),
            1 => flags.push("--direct=off"),
            _ => {}
        }
        if rng.random_bool(0.5) {
            flags.push("--no-encrypt");
        }
        let fsync = rng.random_bool(0.55);
        let file_system = if rng.random_bool(0.75) { FileSystem::Xfs } else { FileSystem::Ext4 };
        let mut scenario = Scenario {
            seed,
            rtt: Duration::from_secs_f64(log_uniform(rng, 0.2e-3, 20e-3)),
            // The copy takes seconds, so that the kernel writes back meanwhile.
            mbits: *[5, 20, 50, 200].choose(rng).unwrap(),
            push: rng.random_bool(0.6),
            file_system,
            speed: Speed {
                flush: *[Duration::ZERO, Duration::from_millis(1), Duration::from_millis(8)].choose(rng).unwrap(),
                write: *[20_000_000, 200_000_000, 2_000_000_000].choose(rng).unwrap(),
            },
            write_back: rng.random_bool(0.6).then(|| Duration::from_secs_f64(log_uniform(rng, 0.05, 2.0))),
            neighbour: rng.random_bool(0.5).then(|| Duration::from_secs_f64(log_uniform(rng, 5e-3, 3.0))),
            streams: rng.random_range(1..=6),
            block_kib: *[64, 256, 1024, 8192].choose(rng).unwrap(),
            fsync,
            update: rng.random_bool(0.45),
            inplace: false,
            // A copy that is finished and not renamed is a new one within the first.
            before: (fsync && !renamed && rng.random_bool(0.3)).then(|| rng.random_range(0.0..2.0)),
            flags,
            renamed,
            losses: (0..rng.random_range(2..=3)).map(|_| loss(rng, renamed)).collect(),
            tree,
            old,
        };
        if scenario.update && scenario.before.is_some() {
            // What --update finds there was never written to disk, and --fsync promises that it is.
            scenario.before = Some(20.0);
            scenario.losses[0].moment = Moment::After(Duration::from_secs_f64(log_uniform(rng, 1e-3, 10.0)));
        }
        // From numbers of its own, so that seeds keep what they had.
        let rng = &mut Pcg64::seed_from_u64(seed ^ INPLACE);
        if !renamed && rng.random_bool(0.3) {
            scenario.inplace = true;
            scenario.flags.push("--inplace");
            if scenario.old.is_empty() {
                scenario.old = older_versions(&scenario.tree, rng);
            }
        }
        scenario
    }

    /// The path between the machines.
    pub fn path(&self) -> String {
        format!("lab:rtt={}us,rate={}mbit", self.rtt.as_micros(), self.mbits)
    }

    /// How long the command needs, more or less.
    pub fn usual(&self) -> Duration {
        let bytes: u64 = self.tree.iter().map(Node::bytes).sum();
        8 * self.rtt + Duration::from_secs_f64(bytes as f64 * 8e-6 / self.mbits as f64)
    }

    /// In words.
    pub fn told(&self) -> String {
        let Scenario { seed, rtt, mbits, push, file_system, speed, write_back, .. } = self;
        let Scenario { neighbour, streams, block_kib, fsync, update, before, flags, renamed, .. } = self;
        let mut lines = vec![
            format!(
                "seed {seed}: {rtt:?}, {mbits} Mb/s, push {push}; {file_system:?}, {speed:?}, {write_back:?}, {neighbour:?}"
            ),
            format!(
                "  {streams} streams, blocks of {block_kib} KiB, {flags:?}; fsync {fsync}, update {update}, before {before:?}, renamed {renamed}"
            ),
        ];
        for (kind, nodes) in [("", &self.tree), ("old ", &self.old)] {
            for node in nodes {
                lines.push(format!("  {kind}{} {:?} {:o}", node.name.escape_ascii(), node.kind, node.mode));
            }
        }
        lines.extend(self.losses.iter().map(|loss| format!("  {loss:?}")));
        lines.join("\n")
    }
}

fn log_uniform(rng: &mut Pcg64, from: f64, to: f64) -> f64 {
    rng.random_range(from.ln()..to.ln()).exp()
}

/// Bytes of a file with its holes.
fn whole_size(node: &Node) -> u64 {
    match &node.kind {
        Kind::Data(size) | Kind::Sparse(size, _) => *size,
        _ => 0,
    }
}

fn loss(rng: &mut Pcg64, renamed: bool) -> Loss {
    let moment = match rng.random_range(0..10) {
        0..=4 => Moment::Request(rng.random_range(0.0..1.0)),
        5..=7 => Moment::Time(rng.random_range(0.0..1.0)),
        _ if renamed => Moment::Request(rng.random_range(0.0..1.0)),
        _ => Moment::After(Duration::from_secs_f64(log_uniform(rng, 1e-3, 60.0))),
    };
    let kept = match rng.random_range(0..6) {
        0 => Kept::Nothing,
        1 => Kept::Prefix,
        2 | 3 => Kept::Each(rng.random_range(0.0..1.0)),
        _ => Kept::Blocks(rng.random_range(0.0..1.0)),
    };
    Loss { moment, kept, seed: rng.random() }
}
