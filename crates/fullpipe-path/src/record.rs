//! A run's record: NDJSON, `version` 1.
//!
//! First a [`Header`], then samples, last an [`Outcome`]. A record without its outcome is an
//! unfinished run. Whatever names real time or the host sits under `real`, so that two records of
//! one description are otherwise equal, byte for byte. Schema: `docs/reference/record.md`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path as FilePath, PathBuf};

use serde::{Deserialize, Serialize};

use crate::run::Run;
use crate::units::Rate;
use crate::{Classified, ExitClass, text};

/// The version that this program writes and reads.
pub const VERSION: u32 = 1;

/// Why a record cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file system said no.
    #[error("{}: {source}; {remedy}", .path.display())]
    Io {
        /// Which file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// A file stands where a folder should.
    #[error("{} is a file, not a folder; choose another (--out, --record)", .0.display())]
    NotFolder(PathBuf),
}

impl Classified for RecordError {
    fn class(&self) -> ExitClass {
        ExitClass::Record
    }
}

/// One end of a run: what it is, what was asked of its kernel and what the kernel gave.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndInfo {
    /// Version of fullpipe.
    pub program: String,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Congestion control of the streams, read back.
    pub cc: String,
    /// Its module's parameters.
    pub cc_params: BTreeMap<String, String>,
    /// `SO_SNDBUF` as the kernel gives it back for the first stream, bytes, its own doubling included.
    pub sndbuf: u64,
    /// `SO_RCVBUF` likewise.
    pub rcvbuf: u64,
    /// Pacing rate of one stream as the kernel gives it back, where one was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing: Option<Rate>,
    /// Largest segment that this end sends, bytes.
    pub mss: u32,
    /// MTU of the path, where the kernel knows it.
    pub mtu: Option<u32>,
    /// Interface that the streams use, and its offloads as far as they can be read.
    pub interface: Option<Interface>,
    /// Kernel settings that bear on throughput, as read.
    pub sysctls: BTreeMap<String, String>,
}

impl EndInfo {
    /// Escapes what is unsafe to show in every text that the other end has sent, and cuts texts that are too long.
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

/// A network interface as it bears on throughput.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its driver's link speed, bit/s, where it says one.
    pub speed_bps: Option<u64>,
    /// Most bytes that segmentation offload takes at once.
    pub gso_max_size: Option<u64>,
    /// Length of its transmit queue, packets.
    pub tx_queue_len: Option<u64>,
}

/// How files were copied, where the run was a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// How the far end was reached.
    pub over: Over,
    /// Whether its streams were encrypted.
    pub encrypted: bool,
}

/// How a copy's far end was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// It was started over ssh; the port in the run's path is then of no meaning.
    Ssh,
    /// A standing server.
    Server,
    /// In the testbed.
    Lab,
}

/// First line of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Always `run`.
    pub kind: String,
    /// Of the format.
    pub version: u32,
    /// The run's name, from its description.
    pub id: String,
    /// Version of fullpipe that wrote it.
    pub program: String,
    /// The description.
    #[serde(flatten)]
    pub run: Run,
    /// Round-trip time seen before the first byte of data, seconds.
    pub rtt_s: f64,
    /// The sending end.
    pub sender: EndInfo,
    /// The receiving end.
    pub receiver: EndInfo,
    /// The law that sized window and pacing while it ran, where one did; `transport.buffer` is the most it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sobas: Option<String>,
    /// How files were copied, where it was a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<Copied>,
    /// Real time and host; nothing else may differ between two records of one description.
    pub real: BTreeMap<String, serde_json::Value>,
}

/// What held the run back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bottleneck {
    /// The congestion window: ramping up, or recovering from loss.
    Cwnd,
    /// The receiver's window: its buffer, or an application that reads too slowly.
    Rwnd,
    /// The sender's buffer.
    Sndbuf,
    /// The path itself, full.
    Path,
    /// A processor of either end.
    Cpu,
    /// The pacing rate that was asked for.
    Pacing,
}

/// One stream's part of the outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamOutcome {
    /// Bytes that the receiving application read.
    pub bytes: u64,
    /// First byte's arrival, seconds on the run's clock.
    pub first_s: f64,
    /// Last byte's arrival.
    pub last_s: f64,
    /// Segments sent again.
    pub retransmits: u64,
}

/// Last line of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Always `result`.
    pub kind: String,
    /// Payload bits per second: `bytes` over `seconds`.
    pub goodput_bps: f64,
    /// Bytes that the receiving application read, all streams.
    pub bytes: u64,
    /// From the first byte's arrival to the last.
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
    /// Largest receive window that the sender saw, bytes, of any stream; where the kernel tells.
    pub window_max: Option<u64>,
    /// Largest congestion window, bytes, of any stream.
    pub cwnd_max: u64,
    /// What held the run back.
    pub bottleneck: Bottleneck,
    /// Each stream.
    pub streams: Vec<StreamOutcome>,
    /// Real time: wall seconds, processor seconds of each end.
    pub real: BTreeMap<String, serde_json::Value>,
}

fn io(path: &FilePath, remedy: &'static str) -> impl FnOnce(std::io::Error) -> RecordError {
    let path = path.to_owned();
    move |source| RecordError::Io { path, source, remedy }
}

/// Checks that records can be written to a folder, making it where it is missing.
///
/// # Errors
/// It cannot be made or written to.
pub fn check_folder(folder: &FilePath) -> Result<(), RecordError> {
    let remedy = "choose another folder (--out, --record)";
    if folder.is_file() {
        return Err(RecordError::NotFolder(folder.to_owned()));
    }
    fs::create_dir_all(folder).map_err(io(folder, remedy))?;
    let probe = folder.join(format!(".fullpipe-probe-{}", std::process::id()));
    fs::write(&probe, b"").map_err(io(folder, remedy))?;
    fs::remove_file(&probe).map_err(io(folder, remedy))
}

/// Writes a whole file under a name that it takes only when it is complete and on its way to disk.
///
/// # Errors
/// The file system says no; nothing is left under the name.
pub fn write_atomically(path: &FilePath, content: &[u8]) -> Result<(), RecordError> {
    let remedy = "check the folder's permissions and free space, or choose another (--out, --record)";
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    let partial = path.with_file_name(name);
    let written = fs::File::create(&partial).and_then(|mut file| {
        file.write_all(content)?;
        fs::rename(&partial, path)
    });
    written.map_err(|source| {
        // A leftover only wastes space; the error that matters is the first one.
        let _ = fs::remove_file(&partial);
        RecordError::Io { path: path.to_owned(), source, remedy }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_takes_its_name_only_when_it_is_whole() {
        let dir = std::env::temp_dir().join(format!("fullpipe-record-{}", std::process::id()));
        check_folder(&dir).unwrap();
        write_atomically(&dir.join("r.ndjson"), b"one\n").unwrap();
        write_atomically(&dir.join("r.ndjson"), b"two\n").unwrap();
        assert_eq!(fs::read(dir.join("r.ndjson")).unwrap(), b"two\n");
        // A folder stands where the file should be.
        fs::create_dir(dir.join("taken")).unwrap();
        let error = write_atomically(&dir.join("taken"), b"x").unwrap_err().to_string();
        assert!(error.contains("taken") && error.contains("--out"), "{error}");
        assert!(matches!(check_folder(&dir.join("r.ndjson")), Err(RecordError::NotFolder(_))));
        let left = fs::read_dir(&dir).unwrap().count();
        assert_eq!(left, 2, "the record and the folder, nothing partial");
        fs::remove_dir_all(&dir).unwrap();
    }
}
