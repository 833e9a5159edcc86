//! `profile.json`, version 2 (schema: `docs/reference/profile.md`).

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use fullpipe_path::storage::Operation;
use fullpipe_path::{
    Classified, ExitClass, Host, Modality, Probability, Protocol, Rate, Size, Transport, Workload, payload_rate, text,
};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::ratio::ratio;

/// Version of the format that this program reads.
pub const VERSION: u32 = 2;

/// Largest mean or standard deviation of a point, bit/s.
const MAX_BPS: f64 = 1e15;
/// Longest round-trip time of a point, ms.
const MAX_RTT_MS: f64 = 1e6;

/// The reason why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file cannot be read.
    #[error("cannot read profile {}: {source}; make one with 'fullpipe analyze DIR', and name the file that it writes", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not a profile.
    #[error("{} is not a profile: {why}; 'fullpipe analyze' makes one", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        why: String,
    },
    /// The profile has another version of the format.
    #[error("{}: profile version {found}, and this program reads version {VERSION}; make it anew with 'fullpipe analyze DIR'", .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Version of the profile.
        found: u32,
    },
    /// The file has no measurements of storage that can be used.
    #[error("{} has no {operation}s of one folder's storage that can be used: {why}; 'fullpipe measure disk:FOLDER --out DIR' and 'fullpipe analyze DIR' make them", .path.display())]
    Storage {
        /// The file.
        path: PathBuf,
        /// The operation that was looked for.
        operation: Operation,
        /// What is wrong.
        why: String,
    },
    /// Nothing in the profile fits the query.
    #[error("the profile has nothing for {asked}; it has {has}")]
    NothingFits {
        /// What the query asks for.
        asked: String,
        /// What the profile has instead.
        has: String,
    },
}

impl ProfileError {
    /// Makes the error of a file that is not a profile. What is wrong may repeat texts of the file, so it is kept on one line.
    fn malformed(path: &Path, why: &str) -> ProfileError {
        ProfileError::Malformed { path: path.to_owned(), why: text::one_line(why.as_bytes()) }
    }
}

impl Classified for ProfileError {
    fn class(&self) -> ExitClass {
        // A profile is a file that the command line names, as a scenario and a token file are.
        ExitClass::Usage
    }
}

/// Throughput at one RTT, from the runs at that RTT. Rates are goodput, bit/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Round-trip time, ms.
    pub rtt_ms: f64,
    /// Number of runs.
    pub n: u32,
    /// Mean of the runs.
    pub mean_bps: f64,
    /// Standard deviation of the runs; `None` for a single run.
    pub sd_bps: Option<f64>,
}

/// Properties of a path other than its RTT.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Conditions {
    /// Rate of the bottleneck, bit/s; `None` for a real host.
    pub rate_bps: Option<f64>,
    /// Queue in bytes, if it was the same at all RTTs.
    pub queue: Option<Size>,
    /// Queue in bandwidth-delay products, if that was the same at all RTTs.
    pub queue_bdp: Option<f64>,
    /// Largest packet (MTU), bytes.
    pub mtu: Option<u32>,
    /// Probability of random loss in the forward direction.
    pub loss: Option<Probability>,
    /// Probability of random loss in the direction back.
    pub loss_back: Option<Probability>,
    /// Physical layer.
    pub modality: Option<String>,
    /// Version of the guest kernel that was asked for.
    pub kernel: Option<String>,
    /// Cross traffic.
    pub cross: Option<String>,
    /// Name of the real host.
    pub host: Option<String>,
    /// Jitter, ms.
    pub jitter_ms: Option<f64>,
    /// Probability of reordering.
    pub reorder: Option<Probability>,
    /// Probability of duplication.
    pub duplicate: Option<Probability>,
    /// Probability of corruption.
    pub corrupt: Option<Probability>,
    /// Mean length of the hosts' pauses, ms.
    pub host_noise_ms: Option<f64>,
    /// The emulated host at end a, if it is not the default.
    pub host_a: Option<String>,
    /// The emulated host at end b, if it is not the default.
    pub host_b: Option<String>,
    /// The disk at end a, for runs from disk to disk.
    pub disk_a: Option<String>,
    /// The disk at end b.
    pub disk_b: Option<String>,
    /// Size of the blocks in which files on disks were read and written, bytes.
    pub block_bytes: Option<u64>,
    /// Whether these bypassed the page cache: `on`, `off` or `auto`.
    pub direct: Option<String>,
    /// Class of service that the packets asked for.
    pub dscp: Option<String>,
    /// Largest segment that was asked for, bytes.
    pub mss: Option<u16>,
    /// `receive` if the client received the data.
    pub direction: Option<String>,
}

impl Conditions {
    /// Says what is wrong with the texts, if anything is: somebody else may have written the profile, and they are printed in
    /// commands that people paste.
    fn unsafe_text(&self) -> Option<String> {
        if self.host.as_ref().is_some_and(|host| host.parse::<Host>().is_err()) {
            return Some("has a host that is neither a name nor an address".into());
        }
        let texts = [
            ("modality", &self.modality),
            ("kernel", &self.kernel),
            ("cross", &self.cross),
            ("host_a", &self.host_a),
            ("host_b", &self.host_b),
            ("disk_a", &self.disk_a),
            ("disk_b", &self.disk_b),
            ("direct", &self.direct),
            ("dscp", &self.dscp),
            ("direction", &self.direction),
        ];
        let is_unsafe = |text: &str| text.is_empty() || text.chars().any(text::is_unsafe);
        let (name, _) = texts.iter().find(|(_, text)| text.as_deref().is_some_and(is_unsafe))?;
        Some(format!("has a value of {name} that is empty, or has a control or invisible character"))
    }

    /// Returns the properties as text for a user.
    pub fn describe(&self) -> String {
        let queue = self.queue_bdp.map(|q| format!("{q}BDP")).or_else(|| self.queue.map(|q| q.to_string()));
        let mut parts = self.parts(queue);
        parts.extend(self.block_bytes.map(|bytes| format!("block={}", Size(bytes))));
        parts.extend(self.direct.as_ref().map(|direct| format!("direct={direct}")));
        parts.extend(self.dscp.as_ref().map(|dscp| format!("dscp={dscp}")));
        parts.extend(self.mss.map(|mss| format!("mss={mss}")));
        if let Some(direction) = &self.direction {
            parts.push(format!("direction={direction}"));
        }
        parts.join(",")
    }

    /// Returns a path of this kind with this round-trip time, ms, as `fullpipe measure` takes it.
    pub fn path(&self, rtt_ms: f64) -> String {
        if let Some(host) = &self.host {
            return host.clone();
        }
        let bdp = self.rate_bps.map(|bps| bps * rtt_ms / 8e3);
        let queue = self.queue_bdp.zip(bdp).map(|(queue, bdp)| Size((queue * bdp).round() as u64)).or(self.queue);
        let rtt = format!("rtt={rtt_ms}ms");
        let parts: Vec<String> = [rtt].into_iter().chain(self.parts(queue.map(|q| q.to_string()))).collect();
        format!("lab:{}", parts.join(","))
    }

    /// Returns the largest rate of payload that a transport can carry over a line of `bps` here, bit/s: what the headers of its
    /// packets leave, or all of it where the packets' size is not known.
    pub fn payload_rate(&self, bps: f64, transport: &Transport) -> f64 {
        let Some(mtu) = self.mtu else { return bps };
        let modality = self.modality.as_deref().and_then(Modality::named);
        let mss = self.mss.or(transport.mss);
        payload_rate(bps, mtu, modality, &Transport { mss, ..transport.clone() })
    }

    /// The properties but for the direction, each as `name=value`, with this queue.
    fn parts(&self, queue: Option<String>) -> Vec<String> {
        let mut parts = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                parts.push(format!("{name}={value}"));
            }
        };
        add("host", self.host.clone());
        add("rate", self.rate_bps.map(|bps| Rate(bps as u64).to_string()));
        add("queue", queue);
        add("mtu", self.mtu.map(|mtu| mtu.to_string()));
        add("loss", self.loss.filter(|p| !p.is_zero()).map(|p| p.to_string()));
        add("loss_back", self.loss_back.filter(|p| !p.is_zero()).map(|p| p.to_string()));
        add("modality", self.modality.clone());
        add("kernel", self.kernel.clone());
        add("cross", self.cross.clone());
        add("jitter", self.jitter_ms.map(|ms| format!("{ms}ms")));
        add("reorder", self.reorder.map(|p| p.to_string()));
        add("duplicate", self.duplicate.map(|p| p.to_string()));
        add("corrupt", self.corrupt.map(|p| p.to_string()));
        add("host_noise", self.host_noise_ms.map(|ms| format!("{ms}ms")));
        add("host_a", self.host_a.clone());
        add("host_b", self.host_b.clone());
        add("disk_a", self.disk_a.clone());
        add("disk_b", self.disk_b.clone());
        parts
    }
}

/// The profile of one transport over paths of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The transport.
    pub transport: Transport,
    /// Points in ascending order of RTT; at least one.
    pub points: Vec<Point>,
}

/// A profile, which borrows its text.
#[derive(Debug)]
pub struct Profile<'a> {
    /// Confidence level of intervals.
    pub confidence: f64,
    /// Kinds of path, without their RTTs.
    pub paths: Vec<Conditions>,
    /// Workloads of the runs.
    pub workloads: Vec<Workload>,
    /// One entry for each transport, kind of path and workload; at least one.
    pub listed: Vec<Listed<'a>>,
    file: &'a Path,
}

/// An entry as it is in the file, with its points in columns, which take half the space of rows. Its columns are parsed only
/// when they are needed: parsing takes most of the time, and few entries are needed.
#[derive(Debug, Deserialize)]
pub struct Listed<'a> {
    /// Index of the kind of path in [`Profile::paths`].
    pub path: u32,
    /// Index of the workload in [`Profile::workloads`].
    pub workload: u32,
    #[serde(borrow)]
    transport: &'a RawValue,
    #[serde(borrow)]
    rtt_ms: &'a RawValue,
    #[serde(borrow)]
    n: &'a RawValue,
    #[serde(borrow)]
    mean_bps: &'a RawValue,
    #[serde(borrow)]
    sd_bps: &'a RawValue,
}

impl Listed<'_> {
    /// Ratio of an RTT, ms, to the nearest measured one, or the other way round; 1 within the measured range, and `None` if the
    /// entry has no list of RTTs.
    pub fn distance(&self, rtt_ms: f64) -> Option<f64> {
        let measured: Vec<f64> = serde_json::from_str(self.rtt_ms.get()).ok()?;
        let (first, last) = (measured.iter().copied().reduce(f64::min)?, measured.iter().copied().reduce(f64::max)?);
        Some(ratio(rtt_ms, rtt_ms.max(first).min(last)))
    }

    /// The protocol of the transport; `None` if the transport is malformed.
    pub fn protocol(&self) -> Option<Protocol> {
        #[derive(Deserialize)]
        struct Named<'a> {
            #[serde(borrow)]
            cc: Cow<'a, str>,
        }
        let named: Named = serde_json::from_str(self.transport.get()).ok()?;
        Some(Protocol::of(&named.cc))
    }
}

#[derive(Deserialize)]
struct File<'a> {
    kind: String,
    version: u32,
    confidence: f64,
    paths: Vec<Conditions>,
    workloads: Vec<Workload>,
    #[serde(borrow)]
    entries: Vec<Listed<'a>>,
}

/// Reads the text of a profile.
///
/// # Errors
/// The file cannot be read, or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String, ProfileError> {
    let text = std::fs::read(path).map_err(|source| ProfileError::Unreadable { path: path.to_owned(), source })?;
    String::from_utf8(text).map_err(|error| ProfileError::Malformed { path: path.to_owned(), why: error.to_string() })
}

impl<'a> Profile<'a> {
    /// Parses a profile. `path` names the file in errors.
    ///
    /// # Errors
    /// The text is not a profile, or one of another version.
    pub fn parse(text: &'a str, path: &'a Path) -> Result<Profile<'a>, ProfileError> {
        let malformed = |why: String| ProfileError::malformed(path, &why);
        let file: File = serde_json::from_str(text).map_err(|error| {
            // A profile of another version may not parse: its version is the better reason.
            #[derive(Deserialize)]
            struct Head {
                version: u32,
            }
            match serde_json::from_str::<Head>(text) {
                Ok(head) if head.version != VERSION => {
                    ProfileError::Version { path: path.to_owned(), found: head.version }
                }
                _ => malformed(error.to_string()),
            }
        })?;
        if file.kind != "profile" {
            return Err(malformed(format!("its kind is '{}'", file.kind)));
        }
        if file.version != VERSION {
            return Err(ProfileError::Version { path: path.to_owned(), found: file.version });
        }
        if !(file.confidence > 0.0 && file.confidence < 1.0) {
            return Err(malformed(format!("its confidence is {}", file.confidence)));
        }
        let File { confidence, paths, workloads, entries, .. } = file;
        if entries.is_empty() {
            return Err(malformed("it has no entries".into()));
        }
        if let Some((number, why)) = paths.iter().enumerate().find_map(|(i, path)| Some((i, path.unsafe_text()?))) {
            return Err(malformed(format!("its path {number} {why}")));
        }
        let is = |i: u32, n: usize| usize::try_from(i).is_ok_and(|i| i < n);
        if let Some(lost) = entries.iter().find(|e| !is(e.path, paths.len()) || !is(e.workload, workloads.len())) {
            let which = lost.transport;
            return Err(malformed(format!("the entry of {which} names a path or workload that is not there")));
        }
        Ok(Profile { confidence, paths, workloads, listed: entries, file: path })
    }

    /// Parses the entries for which `wanted` is true.
    ///
    /// # Errors
    /// One of them is malformed.
    pub fn entries(&self, wanted: impl Fn(&Listed) -> bool) -> Result<Vec<Entry>, ProfileError> {
        let mut columns = Columns::default();
        let read = |listed: &Listed| {
            let rate_bps = self.paths[listed.path as usize].rate_bps;
            columns.read(listed).and_then(|entry| believable(entry, rate_bps)).map_err(|what| {
                ProfileError::malformed(self.file, &format!("the entry of {} {what}", listed.transport))
            })
        };
        self.listed.iter().filter(|listed| wanted(listed)).map(read).collect()
    }
}

/// Returns the entry if none of its means is above the rate of its path, bit/s.
fn believable(entry: Entry, rate_bps: Option<f64>) -> Result<Entry, String> {
    match rate_bps.and_then(|rate| entry.points.iter().find(|p| p.mean_bps > rate).map(|p| (p, rate))) {
        Some((point, rate)) => Err(format!(
            "has {} at {} ms, above its path's {}",
            Rate(point.mean_bps as u64),
            point.rtt_ms,
            Rate(rate as u64)
        )),
        None => Ok(entry),
    }
}

/// Memory into which one entry after another is parsed. Allocating it for each entry would take long.
#[derive(Default)]
struct Columns {
    rtt_ms: Vec<f64>,
    n: Vec<u32>,
    mean_bps: Vec<f64>,
    sd_bps: Vec<Option<f64>>,
}

impl Columns {
    fn read(&mut self, listed: &Listed) -> Result<Entry, String> {
        let transport: Transport =
            serde_json::from_str(listed.transport.get()).map_err(|e| format!("has no transport: {e}"))?;
        // Its name goes into commands that people paste.
        transport.validate().map_err(|e| format!("has a transport that cannot be: {e}"))?;
        let Columns { rtt_ms, n, mean_bps, sd_bps } = self;
        numbers(listed.rtt_ms, rtt_ms)?;
        numbers(listed.n, n)?;
        numbers(listed.mean_bps, mean_bps)?;
        numbers(listed.sd_bps, sd_bps)?;
        if rtt_ms.is_empty() || [n.len(), mean_bps.len(), sd_bps.len()] != [rtt_ms.len(); 3] {
            return Err("has no points, or columns of different lengths".into());
        }
        let mut rates = mean_bps.iter().chain(sd_bps.iter().flatten());
        if n.contains(&0)
            || !rtt_ms.iter().all(|ms| (0.0..=MAX_RTT_MS).contains(ms))
            || !rates.all(|bps| (0.0..=MAX_BPS).contains(bps))
        {
            return Err("has a point without runs, or with a value that cannot be".into());
        }
        let mut points: Vec<Point> = (0..rtt_ms.len())
            .map(|i| Point { rtt_ms: rtt_ms[i], n: n[i], mean_bps: mean_bps[i], sd_bps: sd_bps[i] })
            .collect();
        points.sort_by(|a, b| a.rtt_ms.total_cmp(&b.rtt_ms));
        Ok(Entry { transport, points })
    }
}

/// Parses a column into `to`, in place of what it held.
fn numbers<'a, T: Deserialize<'a>>(from: &'a RawValue, to: &mut Vec<T>) -> Result<(), String> {
    struct Onto<'v, T>(&'v mut Vec<T>);
    impl<'a, T: Deserialize<'a>> Visitor<'a> for Onto<'_, T> {
        type Value = ();
        fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
            f.write_str("a list of numbers")
        }
        fn visit_seq<A: SeqAccess<'a>>(self, mut list: A) -> Result<(), A::Error> {
            while let Some(number) = list.next_element()? {
                self.0.push(number);
            }
            Ok(())
        }
    }
    to.clear();
    from.deserialize_seq(Onto(to)).map_err(|error| format!("has a column that is none: {error}"))
}
