//! A run's record: NDJSON, `version` 1.
//!
//! The first line is a [`Header`], the last one an [`Outcome`]; lines with samples stand between them ([`lines`]). A record
//! without an outcome is of an unfinished run. Facts that depend on real time or on the host stand under `real`. So two
//! records of one description are equal byte for byte, but for `real`. Schema: `docs/reference/record.md`.

pub mod lines;
pub mod storage;
pub mod udp;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path as FilePath, PathBuf};

use serde::{Deserialize, Serialize};

use self::udp::UdpOutcome;
use crate::dscp::Dscp;
use crate::exit::{Classified, ExitClass};
use crate::run::Run;
use crate::text;
use crate::units::Rate;

/// Version of the format that this program writes and reads.
pub const VERSION: u32 = 1;

/// The reason why a record cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A file or folder cannot be written.
    #[error("{}: {source}; {remedy}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The file system's error.
        source: std::io::Error,
        /// Advice for the user.
        remedy: &'static str,
    },
    /// The path of a folder is that of a file.
    #[error("{} is a file, not a folder; choose another (--out, --record)", .0.display())]
    NotFolder(PathBuf),
}

impl Classified for RecordError {
    fn class(&self) -> ExitClass {
        ExitClass::Record
    }
}

/// One host of a run: its software, and the settings that its kernel has granted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndInfo {
    /// Version of fullpipe.
    pub program: String,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Congestion control of the first stream, as the kernel has it.
    pub cc: String,
    /// Parameters of the congestion control's module.
    pub cc_params: BTreeMap<String, String>,
    /// Send buffer of the first stream (`SO_SNDBUF`), bytes. The kernel doubles what was asked for.
    pub sndbuf: u64,
    /// Receive buffer of the first stream (`SO_RCVBUF`), bytes. The kernel doubles what was asked for.
    pub rcvbuf: u64,
    /// Pacing rate of one stream as the kernel has it, if one was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing: Option<Rate>,
    /// Class of service of the packets that this host sends, as the kernel has it, if it is not the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Dscp>,
    /// Payload of the largest segment that this host sends, bytes; of the stream with the smallest packets.
    pub mss: u32,
    /// MTU of the path, bytes, if the kernel knows it; the smallest of the streams.
    pub mtu: Option<u32>,
    /// MTU of the path as each stream has it, bytes, if they differ: a stream of UDT that loses its first requests takes smaller
    /// packets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stream_mtus: Vec<u32>,
    /// Messages that the streams' sockets have dropped, over UDT and UDP, if the kernel tells: there was no room for them, or their
    /// checksum was wrong. Segments that it has joined count as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_drops: Option<u64>,
    /// Network interface that the streams use.
    pub interface: Option<Interface>,
    /// Kernel settings that influence throughput.
    pub sysctls: BTreeMap<String, String>,
}

impl Outcome {
    /// Bytes that count for the rate: those that arrived in `seconds`, without those that had arrived before.
    pub fn counted_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.early_bytes)
    }
}

impl EndInfo {
    /// Escapes unsafe characters in all texts, and cuts texts that are too long. For a description from another host.
    pub fn make_printable(&mut self) {
        for text in [&mut self.program, &mut self.kernel, &mut self.cc] {
            *text = text::from_peer(text);
        }
        for map in [&mut self.cc_params, &mut self.sysctls] {
            let safe = std::mem::take(map).into_iter().map(|(k, v)| (text::from_peer(&k), text::from_peer(&v)));
            *map = safe.collect();
        }
        if let Some(interface) = &mut self.interface {
            interface.name = text::from_peer(&interface.name);
        }
    }
}

/// Properties of a network interface that influence throughput.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// Link speed, bit/s, if the driver tells.
    pub speed_bps: Option<u64>,
    /// Most bytes that segmentation offload handles at once.
    pub gso_max_size: Option<u64>,
    /// Length of the transmit queue, packets.
    pub tx_queue_len: Option<u64>,
}

/// How files were copied, for a run that was a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// How the copy reached the other end.
    pub over: Over,
    /// Whether the data streams were encrypted.
    pub encrypted: bool,
}

/// How a copy reached its other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// The other end was started over ssh. The port in the run's path has no meaning then.
    Ssh,
    /// A server was running there.
    Server,
    /// Both ends ran in the testbed.
    Lab,
}

/// First line of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Always `run`.
    pub kind: String,
    /// Version of the format.
    pub version: u32,
    /// Name of the run: that of the record's file, or, if it was not written to a file, made from the run's description.
    pub id: String,
    /// Version of fullpipe that wrote the record.
    pub program: String,
    /// Description of the run.
    #[serde(flatten)]
    pub run: Run,
    /// Round-trip time before the first byte of data, s.
    pub rtt_s: f64,
    /// The sending host.
    pub sender: EndInfo,
    /// The receiving host.
    pub receiver: EndInfo,
    /// The law by which SOBAS set window and pacing during the run, if it did. `transport.buffer` is the largest window then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sobas: Option<String>,
    /// How files were copied, if the run was a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<Copied>,
    /// Facts that depend on real time and on the host. Nothing else may differ between two records of one description.
    pub real: BTreeMap<String, serde_json::Value>,
}

/// The bottleneck of a run: what limited its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// The congestion window, while it grows or recovers from loss.
    Cwnd,
    /// The receiver's window: its buffer is small, or its application reads slowly.
    Rwnd,
    /// The sender's buffer.
    Sndbuf,
    /// The capacity of the path.
    Path,
    /// A processor of either host.
    Cpu,
    /// The pacing rate that was asked for.
    Pacing,
    /// Reading at the source of a copy.
    DiskRead,
    /// Writing at the destination of a copy.
    DiskWrite,
}

/// The outcome of one stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamOutcome {
    /// Bytes that the receiving application read.
    pub bytes: u64,
    /// Arrival of the first byte on the run's clock, s.
    pub first_s: f64,
    /// Arrival of the last byte on the run's clock, s.
    pub last_s: f64,
    /// Segments that were sent again.
    pub retransmits: u64,
    /// What happened to the datagrams, over plain UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<UdpOutcome>,
}

/// Round-trip times while data were in flight, as the transport smooths them (RFC 6298), over all samples and streams, s.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoadedRtt {
    /// Least of them.
    pub min_s: f64,
    /// Median.
    pub p50_s: f64,
    /// 95th percentile.
    pub p95_s: f64,
    /// Largest of them.
    pub max_s: f64,
    /// Number of samples.
    pub samples: u64,
}

impl LoadedRtt {
    /// Describes round-trip times, s; `None` for fewer than ten, which say little of a percentile.
    pub fn of(mut rtts_s: Vec<f64>) -> Option<LoadedRtt> {
        if rtts_s.len() < LEAST_FOR_PERCENTILES {
            return None;
        }
        rtts_s.sort_unstable_by(f64::total_cmp);
        let at = |fraction| nearest_rank(&rtts_s, fraction);
        let samples = rtts_s.len() as u64;
        Some(LoadedRtt { min_s: at(0.0), p50_s: at(0.5), p95_s: at(0.95), max_s: at(1.0), samples })
    }
}

/// Round-trip times of probes, s.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Least of them.
    pub min_s: f64,
    /// Median.
    pub p50_s: f64,
    /// 95th percentile.
    pub p95_s: f64,
    /// 99th percentile; `None` for fewer than 100 probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_s: Option<f64>,
    /// Largest of them.
    pub max_s: f64,
    /// Number of probes.
    pub probes: u64,
}

impl Latency {
    /// Describes round-trip times, s; `None` for fewer than ten, which say little of a percentile.
    pub fn of(mut rtts_s: Vec<f64>) -> Option<Latency> {
        if rtts_s.len() < LEAST_FOR_PERCENTILES {
            return None;
        }
        rtts_s.sort_unstable_by(f64::total_cmp);
        let at = |fraction| nearest_rank(&rtts_s, fraction);
        let p99_s = (rtts_s.len() >= 100).then(|| at(0.99));
        let probes = rtts_s.len() as u64;
        Some(Latency { min_s: at(0.0), p50_s: at(0.5), p95_s: at(0.95), p99_s, max_s: at(1.0), probes })
    }
}

/// Fewest values of which percentiles are given.
const LEAST_FOR_PERCENTILES: usize = 10;

/// The value below which this fraction of sorted values lies.
fn nearest_rank(sorted: &[f64], fraction: f64) -> f64 {
    let last = sorted.len() - 1;
    sorted[((last as f64 * fraction).round() as usize).min(last)]
}

/// Grades of bufferbloat: the largest increase of the latency under load, ms, that still has the grade.
const GRADES: [(&str, f64); 5] = [("A+", 5.0), ("A", 30.0), ("B", 60.0), ("C", 200.0), ("D", 400.0)];

/// What probes beside a run showed (`--probe`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Probed {
    /// Time between two probes, s.
    pub every_s: f64,
    /// Before the run; `None` for too few probes.
    pub idle: Option<Latency>,
    /// While data moved; `None` for too few probes.
    pub loaded: Option<Latency>,
    /// 95th percentile under load less the idle median, s; `None` if either is missing.
    pub increase_s: Option<f64>,
    /// Grade of the increase, from A+ to F.
    pub grade: Option<String>,
    /// Why the probes ended before the run did, if they did; `loaded` is then `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

impl Probed {
    /// Grades what probes showed.
    pub fn new(every_s: f64, idle: Option<Latency>, loaded: Option<Latency>) -> Probed {
        let increase_s = idle.zip(loaded).map(|(idle, loaded)| (loaded.p95_s - idle.p50_s).max(0.0));
        let grade_of = |s: f64| GRADES.iter().find(|(_, most_ms)| s * 1e3 <= *most_ms).map_or("F", |(grade, _)| grade);
        let grade = increase_s.map(|s| grade_of(s).to_owned());
        Probed { every_s, idle, loaded, increase_s, grade, ended: None }
    }
}

/// What a run carried after its beginning, which is left out: there, the rate still grows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AfterOmitted {
    /// Time from the first byte's arrival that is left out, s.
    pub omit_s: f64,
    /// Rate of the payload, bit/s: `bytes` over `seconds`. `None` if the rest of the run has no rate.
    pub goodput_bps: Option<f64>,
    /// The reason why it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_rate: Option<String>,
    /// Bytes that the receiving application read.
    pub bytes: u64,
    /// Time until the end of the run, s. It begins with the first sample after `omit_s`.
    pub seconds: f64,
    /// Segments that the sender sent again.
    pub retransmits: u64,
    /// What happened to the datagrams, over plain UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<UdpOutcome>,
}

/// Last line of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Always `result`.
    pub kind: String,
    /// Rate of the payload, bit/s: `bytes` without `early_bytes`, over `seconds`. `None` if the run has no rate.
    pub goodput_bps: Option<f64>,
    /// The reason why the run has no rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_rate: Option<String>,
    /// Bytes that the receiving application read on all streams.
    pub bytes: u64,
    /// Bytes of these that had arrived when the first was read, and so before `seconds` began.
    #[serde(default)]
    pub early_bytes: u64,
    /// Time from the first byte's arrival to the end of the run, s. A run of a size ends with the last byte's arrival, a run
    /// of a duration when its time is over.
    pub seconds: f64,
    /// Packets that the bottleneck's queue dropped; testbed only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_drops: Option<u64>,
    /// Most bytes that were seen in the bottleneck's queue; testbed only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_deepest: Option<u64>,
    /// Packets lost by the path's random loss; testbed only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_losses: Option<u64>,
    /// Segments that the sender sent again.
    pub retransmits: u64,
    /// What happened to the datagrams, over plain UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<UdpOutcome>,
    /// Largest receive window of any stream that the sender saw, bytes, if the kernel tells.
    pub window_max: Option<u64>,
    /// Largest congestion window of any stream, bytes.
    pub cwnd_max: u64,
    /// Whether the user ended the run before its time or size.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// The rate without the beginning of the run, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_omitted: Option<AfterOmitted>,
    /// Round-trip times under the run's load; `None` if there are too few samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_rtt: Option<LoadedRtt>,
    /// What probes beside the run showed, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probed>,
    /// What limited the rate of the run; `None` if the run has no rate.
    pub bottleneck: Option<Bottleneck>,
    /// Outcome of each stream.
    pub streams: Vec<StreamOutcome>,
    /// Facts that depend on real time: its length in s, and the processor time of each host in s.
    pub real: BTreeMap<String, serde_json::Value>,
}

fn io(path: &FilePath, remedy: &'static str) -> impl FnOnce(std::io::Error) -> RecordError {
    let path = path.to_owned();
    move |source| RecordError::Io { path, source, remedy }
}

/// Checks that records can be written to a folder. Makes the folder if it is missing.
///
/// # Errors
/// The folder cannot be made or written to.
pub fn check_folder(folder: &FilePath) -> Result<(), RecordError> {
    let remedy = "choose another folder (--out, --record)";
    if folder.is_file() {
        return Err(RecordError::NotFolder(folder.to_owned()));
    }
    fs::create_dir_all(folder).map_err(io(folder, remedy))?;
    // The name can be guessed: what another user put there is neither followed nor removed.
    let probe = |n: u32| {
        let probe = folder.join(format!(".fullpipe-probe-{}-{n}", std::process::id()));
        fs::File::create_new(&probe).map(|_| probe)
    };
    let is_taken = |error: &std::io::Error| error.kind() == std::io::ErrorKind::AlreadyExists;
    let made = (0..PROBE_NAMES).map(probe).find(|made| !made.as_ref().is_err_and(is_taken));
    let made = made.unwrap_or_else(|| Err(std::io::ErrorKind::AlreadyExists.into()));
    made.and_then(fs::remove_file).map_err(io(folder, remedy))
}

/// Number of names that are tried for the file that shows whether a folder can be written to.
const PROBE_NAMES: u32 = 100;

/// Writes a file that gets its name only when it is complete.
///
/// # Errors
/// The file cannot be written. No incomplete file has the name then.
pub fn write_atomically(path: &FilePath, content: &[u8]) -> Result<(), RecordError> {
    write_partial(path, content, |partial| fs::rename(partial, path))
}

/// Writes a file as [`write_atomically`] does, unless the name is taken. Returns whether it was written.
///
/// # Errors
/// The file cannot be written.
pub fn write_new(path: &FilePath, content: &[u8]) -> Result<bool, RecordError> {
    use std::io::ErrorKind;
    write_partial(path, content, |partial| match fs::hard_link(partial, path) {
        Ok(()) => fs::remove_file(partial).map(|()| true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => fs::remove_file(partial).map(|()| false),
        // Some file systems have no second names for a file.
        Err(_) if !path.exists() => fs::rename(partial, path).map(|()| true),
        Err(_) => fs::remove_file(partial).map(|()| false),
    })
}

/// Writes a file beside `path`, and lets `publish` give it its name.
fn write_partial<T>(
    path: &FilePath,
    content: &[u8],
    publish: impl FnOnce(&FilePath) -> std::io::Result<T>,
) -> Result<T, RecordError> {
    let remedy = "check the folder's permissions and free space, or choose another (--out, --record)";
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    let partial = path.with_file_name(name);
    // The name can be guessed: a link that another user put there is not followed. What is there is left from a crash.
    let _ = fs::remove_file(&partial);
    let written = fs::File::create_new(&partial).and_then(|mut file| {
        file.write_all(content)?;
        publish(&partial)
    });
    written.map_err(|source| {
        // A file that stays only takes space; the first error matters.
        let _ = fs::remove_file(&partial);
        RecordError::Io { path: path.to_owned(), source, remedy }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_load_adds_to_latency_is_graded() {
        let latency = |median_ms: u32| {
            let rtts_s = (0..100).map(|i| f64::from(median_ms) / 1e3 + f64::from(i) * 1e-6).collect();
            Latency::of(rtts_s)
        };
        let idle = latency(20).unwrap();
        assert!((idle.min_s - 0.02).abs() < 1e-9 && (idle.p99_s.unwrap() - 0.020_098).abs() < 1e-9, "{idle:?}");
        for (loaded_ms, grade) in [(20, "A+"), (24, "A+"), (49, "A"), (79, "B"), (219, "C"), (419, "D"), (500, "F")] {
            let probed = Probed::new(0.1, Some(idle), latency(loaded_ms));
            assert_eq!(probed.grade.as_deref(), Some(grade), "{probed:?}");
        }
        let few = Latency::of(vec![0.02; 9]);
        assert_eq!(Probed::new(0.1, Some(idle), few).grade, None);
        assert_eq!(Latency::of(vec![0.02; 99]).unwrap().p99_s, None);
    }

    #[test]
    fn the_check_of_a_folder_touches_nothing_of_others() {
        let dir = std::env::temp_dir().join(format!("fullpipe-check-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let victim = dir.join("victim");
        fs::write(&victim, "keep").unwrap();
        // The names that the check has used, and uses first.
        let planted = ["", "-0"].map(|end| dir.join(format!(".fullpipe-probe-{}{end}", std::process::id())));
        for link in &planted {
            std::os::unix::fs::symlink("victim", link).unwrap();
        }
        check_folder(&dir).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"keep");
        assert!(planted.iter().all(|link| link.is_symlink()));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 3, "nothing of its own is left");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_file_takes_its_name_only_when_it_is_whole() {
        let dir = std::env::temp_dir().join(format!("fullpipe-record-{}", std::process::id()));
        check_folder(&dir).unwrap();
        write_atomically(&dir.join("r.ndjson"), b"one\n").unwrap();
        write_atomically(&dir.join("r.ndjson"), b"two\n").unwrap();
        assert_eq!(fs::read(dir.join("r.ndjson")).unwrap(), b"two\n");
        assert!(!write_new(&dir.join("r.ndjson"), b"three\n").unwrap(), "its name is taken");
        assert_eq!(fs::read(dir.join("r.ndjson")).unwrap(), b"two\n");
        assert!(write_new(&dir.join("r-2.ndjson"), b"three\n").unwrap());
        assert_eq!(fs::read(dir.join("r-2.ndjson")).unwrap(), b"three\n");
        // A link under the partial file's name leads nowhere.
        fs::write(dir.join("elsewhere"), "keep").unwrap();
        let planted = dir.join(format!("r.ndjson.{}.partial", std::process::id()));
        std::os::unix::fs::symlink("elsewhere", planted).unwrap();
        write_atomically(&dir.join("r.ndjson"), b"four\n").unwrap();
        assert_eq!(fs::read(dir.join("elsewhere")).unwrap(), b"keep");
        assert_eq!(fs::read(dir.join("r.ndjson")).unwrap(), b"four\n");
        fs::remove_file(dir.join("elsewhere")).unwrap();
        // A folder stands where the file should be.
        fs::create_dir(dir.join("taken")).unwrap();
        let error = write_atomically(&dir.join("taken"), b"x").unwrap_err().to_string();
        assert!(error.contains("taken") && error.contains("--out"), "{error}");
        assert!(matches!(check_folder(&dir.join("r.ndjson")), Err(RecordError::NotFolder(_))));
        let left = fs::read_dir(&dir).unwrap().count();
        assert_eq!(left, 3, "two records and the folder, nothing partial");
        fs::remove_dir_all(&dir).unwrap();
    }
}
