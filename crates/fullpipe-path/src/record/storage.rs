//! The record of a measurement of storage. It has the same three kinds of lines as that of a run: a [`StorageHeader`], samples,
//! a [`StorageOutcome`].

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::lines::write_line;
use crate::path::LabPath;
use crate::storage::StorageRun;

/// First line of the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StorageHeader {
    /// Always `storage`.
    pub kind: String,
    /// Version of the format.
    pub version: u32,
    /// Name of the run: that of the record's file, or, if it was not written to a file, made from the run's description.
    pub id: String,
    /// Version of fullpipe that wrote the record.
    pub program: String,
    /// Description of the run.
    pub storage: StorageRun,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// The file system of the folder.
    pub file_system: FileSystemInfo,
    /// The emulated path that a file system of the testbed was mounted over; absent on real hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<LabPath>,
    /// Seed of all random numbers in the testbed; absent on real hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// How the file system is mounted over a network or by a program; absent for `disk:FOLDER`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<MountInfo>,
    /// Time of day, host, and other facts of this run only.
    pub real: BTreeMap<String, serde_json::Value>,
}

/// The file system of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileSystemInfo {
    /// Its type, as `/proc/self/mountinfo` has it: `xfs`, `tmpfs`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its size, bytes.
    pub total_bytes: u64,
    /// Bytes that were free for this user before the run.
    pub free_bytes: u64,
    /// Kernel's name of its block device, such as `nvme0n1p2`; `None` if it has none, or several.
    pub device: Option<String>,
}

/// The mount of a folder whose files are on another machine or come from a program (FUSE).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MountInfo {
    /// Where it is mounted: the folder that was measured, or one above it.
    pub folder: String,
    /// Its type, as `/proc/self/mountinfo` has it: `nfs4`, `fuse.sshfs`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What is mounted, such as `server:/export`.
    pub source: String,
    /// Options of the mount and of the file system, as `/proc/self/mountinfo` has them, each once: `rsize=1048576`.
    pub options: Vec<String>,
    /// Most bytes that the kernel reads ahead of a program (`read_ahead_kb` in `/sys/class/bdi`); `None` if it does not tell.
    pub read_ahead_bytes: Option<u64>,
    /// For NFS 4.1 and later, most requests under way that this host asks a server for (`max_session_slots` of the module nfs);
    /// `None` without sessions.
    pub session_slots: Option<u64>,
}

impl MountInfo {
    /// Whether this is a mount of NFS.
    pub fn is_nfs(&self) -> bool {
        is_nfs(&self.kind)
    }
}

/// Whether a type of file system, as `/proc/self/mountinfo` has it, is NFS.
pub fn is_nfs(kind: &str) -> bool {
    ["nfs", "nfs4"].contains(&kind)
}

/// What the run had done at one time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StorageSample {
    /// Seconds since the first call.
    pub t: f64,
    /// Bytes that the calls had read or written.
    pub bytes: u64,
}

/// Latency of the calls, in s.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Mean.
    pub mean_s: f64,
    /// Median.
    pub p50_s: f64,
    /// 90th percentile.
    pub p90_s: f64,
    /// 99th percentile.
    pub p99_s: f64,
    /// 99.9th percentile.
    pub p999_s: f64,
    /// Longest.
    pub max_s: f64,
}

/// What limited the rate of a measurement of storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StorageBottleneck {
    /// The page cache had most of the data: the storage was not measured.
    PageCache,
    /// A processor, or all of them.
    Cpu,
    /// The device had requests all the time.
    Device,
    /// The device was idle part of the time, and no processor was busy: too few requests at once.
    Requests,
}

/// Last line of the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StorageOutcome {
    /// Always `result`.
    pub kind: String,
    /// Rate, bit/s: `bytes` over `seconds`.
    pub rate_bps: f64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Time from the first call to the end of the last one; of a write, to the end of `fsync(2)`, s.
    pub seconds: f64,
    /// The part of `seconds` that `fsync(2)` took, after the last call; 0 for a read.
    pub fsync_s: f64,
    /// Most bytes of one call.
    pub call_bytes: u64,
    /// Number of calls.
    pub calls: u64,
    /// Latency of the calls. A `fsync(2)` is not among them.
    pub latency: Latency,
    /// Processor time of this process in user mode, s.
    pub cpu_user_s: f64,
    /// Processor time of this process in the kernel, s. The kernel's own threads are not in it.
    pub cpu_system_s: f64,
    /// Fraction of one processor that the busiest thread used, 0 to 1.
    pub cpu_busiest: f64,
    /// Fraction of all processors that was used by any program or by the kernel, 0 to 1.
    pub cpu_host: Option<f64>,
    /// Fraction of the time in which the device had at least one request of anybody, 0 to 1.
    pub device_busy: Option<f64>,
    /// Bytes that came from storage, not from the page cache; for a read. `None` also where the kernel does not count them.
    pub storage_bytes: Option<u64>,
    /// Bytes of the file that were in the page cache before a read, although they were to be dropped. `None` also where this
    /// cannot be seen.
    pub cached_bytes: Option<u64>,
    /// What limited the rate; `None` if no measurement shows it.
    pub bottleneck: Option<StorageBottleneck>,
}

#[derive(Serialize)]
struct SampleLine<'a> {
    kind: &'static str,
    #[serde(flatten)]
    sample: &'a StorageSample,
}

/// Writes a record.
///
/// # Errors
/// `to` cannot be written.
pub fn write(
    to: &mut impl Write,
    header: &StorageHeader,
    samples: &[StorageSample],
    outcome: &StorageOutcome,
) -> io::Result<()> {
    write_line(to, header)?;
    for sample in samples {
        write_line(to, &SampleLine { kind: "sample", sample })?;
    }
    write_line(to, outcome)
}
