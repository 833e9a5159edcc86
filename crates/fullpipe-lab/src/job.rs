//! What host and guest share: the job that the guest does, its report, and the names that both must know.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use fullpipe_path::lab_disk::{FileSystem, LabDisk};
use fullpipe_path::{LabPath, Size, Time};
use serde::{Deserialize, Serialize};

/// Environment variable that the kernel sets for its first process, from its own command line. It marks a guest.
pub(crate) const GUEST_VARIABLE: &str = "FULLPIPE_GUEST";

/// Name of the file in the guest's folder on the host that has the job.
pub(crate) const JOB_FILE: &str = "job.json";

/// The guest's own folder. Hosts hardly have one of this name: theirs is not seen, and nothing is copied there.
pub(crate) const OWN_FOLDER: &str = "/.fullpipe";
/// Where the guest sees the output folder that it shares with the host.
pub(crate) const OUT_FOLDER: &str = "/.fullpipe/out";
/// Where the guest sees this host's `/`, if a copy reads or writes there. Other folders are where they are on the host.
pub const TOP: &str = "/.fullpipe/top";
/// Where a copy in the guest writes its record: [`file::RECORD`] in `OUT_FOLDER`.
pub const RECORD: &str = "/.fullpipe/out/record.ndjson";

/// Where programs of an end see its disk, if the path gives it one.
pub const DISK: &str = "/disk";

/// Where programs of end a see the file system that the path mounts, if it does.
pub const MOUNT: &str = "/mount";
/// Where end b sees what it serves for that.
pub(crate) const EXPORT: &str = "/.fullpipe/export";

/// Address of end a.
pub(crate) const ADDRESS_A: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
/// Address of end b.
pub(crate) const ADDRESS_B: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);
/// `ADDRESS_B` as text: the server of a measurement or a copy runs there.
pub const SERVER_ADDRESS: &str = "10.0.2.1";

/// Folders in which the programs of the host are that make disks.
pub(crate) const TOOL_FOLDERS: &str = "/usr/sbin:/sbin:/usr/bin:/bin";
/// The program that makes an XFS, and its package.
pub(crate) const MKFS_XFS: (&str, &str) = ("mkfs.xfs", "xfsprogs");
/// The program that makes an ext4, and its package.
pub(crate) const MKFS_EXT4: (&str, &str) = ("mkfs.ext4", "e2fsprogs");
/// The program that stripes devices, and its package.
pub(crate) const DMSETUP: (&str, &str) = ("dmsetup", "dmsetup");

/// One of the two ends of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The end whose programs a scenario waits for. Clients run here.
    A,
    /// The other end. Servers run here.
    B,
}

impl End {
    /// Returns the end's name, which resolves in the guest.
    pub fn name(self) -> &'static str {
        match self {
            End::A => "a",
            End::B => "b",
        }
    }
}

/// A program that runs on one end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// End on which the program runs.
    pub end: End,
    /// Program and arguments. `fullpipe` is this program itself.
    pub run: Vec<String>,
    /// Virtual time at which the program starts.
    #[serde(default = "zero")]
    pub start: Time,
    /// Virtual time at which the program is asked to end (SIGTERM).
    #[serde(default)]
    pub stop: Option<Time>,
    /// Variables that are added to the program's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Whether the scenario lasts until the program ends. By default it does for programs on end a.
    #[serde(default)]
    pub wait: Option<bool>,
}

fn zero() -> Time {
    Time(0)
}

impl Program {
    /// Whether the scenario lasts until the program ends.
    pub fn waited(&self) -> bool {
        self.wait.unwrap_or(self.end == End::A)
    }
}

/// Everything that a guest does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The path between the ends, as it is at first.
    pub path: LabPath,
    /// Virtual times at which the path changes, in order, and the path from then on.
    #[serde(default)]
    pub changes: Vec<(Time, LabPath)>,
    /// Seed of all random numbers in the guest.
    pub seed: u64,
    /// The programs, in the order in which they are started when they start together.
    pub programs: Vec<Program>,
    /// Size of the memory-backed folder `/space` at each end, if any.
    pub space: Option<Size>,
    /// Folders of the host that an end sees under the same names, whatever else is there in the guest.
    #[serde(default)]
    pub folders: Vec<Folder>,
    /// Kernel settings of both ends besides the testbed's own, such as `net.ipv4.tcp_rmem`.
    pub sysctl: BTreeMap<String, String>,
    /// Time between two samples of the bottleneck's queue.
    pub sample: Time,
    /// Virtual time at which the scenario ends in any case.
    pub until: Option<Time>,
    /// Virtual time for which the other programs run on at the end: a last message may be on its way to them.
    pub linger: Time,
    /// Largest segment or datagram of a measurement, bytes, where one is asked for (`mss` of its transport).
    #[serde(default)]
    pub mss: Option<u16>,
}

impl Job {
    /// The path as it is at first, and as each change leaves it.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &LabPath> {
        std::iter::once(&self.path).chain(self.changes.iter().map(|(_, path)| path))
    }

    /// Returns the programs of the host that make the path's disks, and the packages that have them.
    pub(crate) fn disk_tools(&self) -> Vec<(&'static str, &'static str)> {
        let tools = |disk: &LabDisk| {
            let format = match disk.fs {
                FileSystem::Xfs => MKFS_XFS,
                FileSystem::Ext4 => MKFS_EXT4,
            };
            [Some(format), (disk.devices > 1).then_some(DMSETUP)].into_iter().flatten()
        };
        [&self.path.disk_a, &self.path.disk_b].into_iter().flatten().flat_map(tools).collect()
    }

    /// Start of the scenario's time on the guest's `CLOCK_MONOTONIC`, ns. It is fixed, and later than the end of any boot, so that
    /// the kernel's own timers have the same phase in every run. The slowest disks are formatted within a minute, and a server of
    /// NFS waits ten seconds for clients of its last life.
    pub fn zero_ns(&self) -> u64 {
        let mut zero_ns = if self.path.has_disk() { 60_000_000_000 } else { 1_000_000_000 };
        if self.path.mount.is_some() {
            // Mounting takes some round trips.
            zero_ns += 30_000_000_000 + 30 * self.path.rtt.0;
        }
        zero_ns
    }
}

/// A folder of the host as an end sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Folder {
    /// The end that sees the folder.
    pub end: End,
    /// Absolute name of the folder, the same on the host and in the guest.
    pub path: PathBuf,
    /// Whether the end may write to the folder.
    #[serde(default)]
    pub write: bool,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The program ended with this exit status.
    Exit(i32),
    /// This signal killed the program.
    Signal(i32),
    /// The program could not be started, for this reason.
    NotStarted(String),
}

/// The course of a program in a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgramReport {
    /// How the program ended.
    pub ended: Ended,
    /// Virtual time at which the program started, s.
    pub start_s: f64,
    /// Virtual time at which the program ended, s.
    pub end_s: f64,
    /// Whether the program was asked to end, because its time or the scenario was over.
    pub stopped: bool,
}

/// The bottleneck's queue at one time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct QueueSample {
    /// Time of the sample on the guest's `CLOCK_MONOTONIC`, ns.
    pub ns: u64,
    /// Bytes that have gone through the queue so far, Ethernet headers included.
    pub bytes: u64,
    /// Bytes in the queue.
    pub backlog_bytes: u32,
    /// Packets that the queue has dropped so far.
    pub drops: u32,
}

/// Totals of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueTotals {
    /// Bytes that went through the queue, Ethernet headers included.
    pub bytes: u64,
    /// Packets that went through the queue.
    pub packets: u32,
    /// Packets that the queue dropped.
    pub drops: u32,
}

/// A guest's report of its job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The reason if the guest could not do its job.
    pub error: Option<String>,
    /// Whether the job itself is the reason: it asks for a setting that the guest's kernel lacks or does not take.
    #[serde(default)]
    pub is_input: bool,
    /// The programs, in the job's order.
    pub programs: Vec<ProgramReport>,
    /// The bottleneck in the forward direction, from end a to end b.
    pub forward: QueueTotals,
    /// The bottleneck in the direction back, from end b to end a.
    pub back: QueueTotals,
    /// The queue that applies the path's impairments to forward packets. Its drops are the random losses.
    pub impaired: QueueTotals,
    /// The queue that applies the path's impairments on the way back.
    pub impaired_back: QueueTotals,
    /// Most bytes that a sample saw in the forward queue.
    pub deepest: u32,
    /// Samples of the forward queue.
    pub queue: Vec<QueueSample>,
    /// Most bytes that a sample saw in the queue on the way back.
    pub deepest_back: u32,
    /// Samples of the queue on the way back, taken at the same times.
    pub queue_back: Vec<QueueSample>,
    /// Length of the scenario in virtual time, s.
    pub seconds: f64,
}

/// Names of the files in the guest's output folder.
pub mod file {
    /// The guest's [`super::Report`] as JSON. It is written last.
    pub const REPORT: &str = "report.json";
    /// A copy's record.
    pub const RECORD: &str = "record.ndjson";
    /// Virtual time in ns, and bytes that went through the bottleneck, in the direction with more. It is rewritten while the guest runs.
    pub const PROGRESS: &str = "progress";
    /// Name of the file with the standard output of program `i`.
    pub fn stdout(i: usize) -> String {
        format!("{i}.out")
    }
    /// Name of the file with the standard error of program `i`.
    pub fn stderr(i: usize) -> String {
        format!("{i}.err")
    }
}
