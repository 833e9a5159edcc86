//! What host and guest share: the job that the guest does, its report, and the names that both must know.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use fullpipe_path::{LabPath, Size, Time};
use serde::{Deserialize, Serialize};

/// Environment variable that the kernel sets for its first process, from its own command line. It marks a guest.
pub(crate) const GUEST_VARIABLE: &str = "FULLPIPE_GUEST";

/// The guest's own folder. Hosts hardly have one of this name: theirs is not seen, and nothing is copied there.
pub(crate) const OWN_FOLDER: &str = "/.fullpipe";
/// Where the guest sees the output folder that it shares with the host.
pub(crate) const OUT_FOLDER: &str = "/.fullpipe/out";
/// Where the guest sees this host's `/`, if a copy reads or writes there. Other folders are where they are on the host.
pub const TOP: &str = "/.fullpipe/top";
/// Where a copy in the guest writes its record: [`file::RECORD`] in [`OUT_FOLDER`].
pub const RECORD: &str = "/.fullpipe/out/record.ndjson";

/// Address of end a.
pub(crate) const ADDRESS_A: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
/// Address of end b.
pub(crate) const ADDRESS_B: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);
/// [`ADDRESS_B`] as text: the server of a measurement or a copy runs there.
pub const SERVER_ADDRESS: &str = "10.0.2.1";

/// One of the two ends of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The near end; data goes from here unless told otherwise.
    A,
    /// The far end.
    B,
}

impl End {
    /// Its name, which resolves in the guest.
    pub fn name(self) -> &'static str {
        match self {
            End::A => "a",
            End::B => "b",
        }
    }
}

/// A program on one end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Where it runs.
    pub end: End,
    /// Program and arguments. `fullpipe` is this very program.
    pub run: Vec<String>,
    /// When it starts, virtual time.
    #[serde(default = "zero")]
    pub start: Time,
    /// When it is asked to end (SIGTERM), if it has not by itself.
    #[serde(default)]
    pub stop: Option<Time>,
    /// Added to its environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Whether the scenario goes on until it ends. By default on end a, not on end b.
    #[serde(default)]
    pub wait: Option<bool>,
}

fn zero() -> Time {
    Time(0)
}

impl Program {
    /// Whether the scenario waits for it.
    pub fn waited(&self) -> bool {
        self.wait.unwrap_or(self.end == End::A)
    }
}

/// Everything that a guest does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The path between the ends.
    pub path: LabPath,
    /// Seeds every random number of the guest.
    pub seed: u64,
    /// The programs, in the order in which they are started when they start together.
    pub programs: Vec<Program>,
    /// Size of the memory-backed folder `/space` at each end, if any.
    pub space: Option<Size>,
    /// Folders of the host that an end sees where the host has them, whatever else is there in the guest.
    #[serde(default)]
    pub folders: Vec<Folder>,
    /// Kernel settings of both ends besides the testbed's own, `net.ipv4.tcp_rmem` and its like.
    pub sysctl: BTreeMap<String, String>,
    /// Between looks at the bottleneck's queue.
    pub sample: Time,
    /// Virtual time after which the scenario is over in any case.
    pub until: Option<Time>,
    /// For so long those that are not waited for run on: a last word may be on its way to them.
    pub linger: Time,
}

/// A folder of the host as an end sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Folder {
    /// Which end.
    pub end: End,
    /// Its absolute name, the same on both sides.
    pub path: PathBuf,
    /// Whether the end may write to it.
    #[serde(default)]
    pub write: bool,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// By itself, with this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It could not be started.
    NotStarted(String),
}

/// What a program did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgramReport {
    /// How it ended.
    pub ended: Ended,
    /// When it started, seconds of virtual time.
    pub start_s: f64,
    /// When it ended.
    pub end_s: f64,
    /// Whether it was asked to end, because its time or the scenario was over.
    pub stopped: bool,
}

/// The bottleneck's queue at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct QueueSample {
    /// Nanoseconds of the guest's `CLOCK_MONOTONIC`.
    pub ns: u64,
    /// Bytes in it.
    pub backlog_bytes: u32,
    /// Packets that it dropped so far.
    pub drops: u32,
}

/// A queue's totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueTotals {
    /// Bytes that went through, Ethernet headers included.
    pub bytes: u64,
    /// Packets that went through.
    pub packets: u32,
    /// Packets dropped.
    pub drops: u32,
}

/// What a guest did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Why the guest could not do its job, if it could not.
    pub error: Option<String>,
    /// Each program, in the job's order.
    pub programs: Vec<ProgramReport>,
    /// The forward bottleneck, from a to b.
    pub forward: QueueTotals,
    /// The bottleneck from b to a.
    pub back: QueueTotals,
    /// What the path's impairments did to forward packets; drops are random losses.
    pub impaired: QueueTotals,
    /// The same on the way back.
    pub impaired_back: QueueTotals,
    /// Most bytes seen in the forward queue.
    pub deepest: u32,
    /// The forward queue over time.
    pub queue: Vec<QueueSample>,
    /// Length of the scenario, seconds of virtual time.
    pub seconds: f64,
}

/// The guest's instant at which a scenario's time starts, nanoseconds of its `CLOCK_MONOTONIC`. Fixed,
/// and later than any boot, so that a kernel's own timers stand alike in every run.
pub const ZERO_NS: u64 = 1_000_000_000;

/// Names of the files in the guest's output folder.
pub mod file {
    /// [`super::Report`], JSON; written last.
    pub const REPORT: &str = "report.json";
    /// A copy's record.
    pub const RECORD: &str = "record.ndjson";
    /// Virtual nanoseconds and bytes through the bottleneck, while the guest runs.
    pub const PROGRESS: &str = "progress";
    /// Standard output of program `i`.
    pub fn stdout(i: usize) -> String {
        format!("{i}.out")
    }
    /// Standard error of program `i`.
    pub fn stderr(i: usize) -> String {
        format!("{i}.err")
    }
}
