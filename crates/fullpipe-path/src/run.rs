//! The complete description of a run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::path::Path;
use crate::transport::{Transport, Workload};
use crate::units::{Size, Time};

/// Direction of the data, from the client's point of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the client to the server.
    #[default]
    Send,
    /// From the server to the client.
    Receive,
}

impl Direction {
    /// The direction in a table, as records spell it, too.
    pub fn word(self) -> &'static str {
        match self {
            Direction::Send => "send",
            Direction::Receive => "receive",
        }
    }
}

/// Whether files are read and written past the page cache (O_DIRECT).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum DirectIo {
    /// For large files on disks.
    #[default]
    Auto,
    /// For all files whose file system supports it.
    On,
    /// Never.
    Off,
}

impl FromStr for DirectIo {
    type Err = String;
    fn from_str(text: &str) -> Result<DirectIo, String> {
        match text {
            "auto" => Ok(DirectIo::Auto),
            "on" => Ok(DirectIo::On),
            "off" => Ok(DirectIo::Off),
            _ => Err("give auto, on or off".to_owned()),
        }
    }
}

impl fmt::Display for DirectIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DirectIo::Auto => "auto",
            DirectIo::On => "on",
            DirectIo::Off => "off",
        })
    }
}

/// How a run reads the disk of the sending end and writes that of the receiving end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskAccess {
    /// Size of a block: what a stream reads, sends and writes before it takes the next part of the file.
    pub block: Size,
    /// Whether the page cache is bypassed.
    pub direct: DirectIo,
}

/// A run: path, transport, workload, seed, and time between samples. A record depends on nothing else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Path between the hosts.
    pub path: Path,
    /// How to send.
    pub transport: Transport,
    /// What to send.
    pub workload: Workload,
    /// Direction of the data.
    #[serde(default)]
    pub direction: Direction,
    /// Whether the same transport carried the same workload the other way at the same time, in a run of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bidir: bool,
    /// How files on the path's disks are read and written; `None` for a run from memory to memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disks: Option<DiskAccess>,
    /// Seed of the streams' start times and, in the testbed, of all random numbers.
    pub seed: u64,
    /// Time between samples.
    pub sample: Time,
}

impl Run {
    /// Returns a readable name for the run's record. Different descriptions have different names.
    pub fn id(&self) -> String {
        let json = serde_json::to_vec(self).unwrap_or_default();
        let digest = Sha256::digest(&json);
        let hash: String = digest.iter().take(5).map(|b| format!("{b:02x}")).collect();
        let place = match &self.path {
            Path::Lab(lab) if lab.loss.is_zero() => format!("rtt{}", lab.rtt),
            Path::Lab(lab) => format!("rtt{}-loss{}", lab.rtt, lab.loss),
            Path::Host(host) => host.name.replace([':', '%'], "_"),
        };
        let t = &self.transport;
        format!("{}-n{}-b{}-{place}-s{}-{hash}", t.cc, t.streams, t.buffer, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Buffer;

    #[test]
    fn the_id_tells_runs_apart() {
        let mut run = Run {
            path: "lab:rtt=183ms,rate=10gbit".parse().unwrap(),
            transport: Transport {
                cc: "scalable".into(),
                streams: 10,
                buffer: Buffer::Auto,
                pacing: None,
                dscp: None,
                mss: None,
            },
            workload: Workload::Size(Size(1_000_000_000)),
            direction: Direction::Send,
            bidir: false,
            disks: None,
            seed: 7,
            sample: Time(100_000_000),
        };
        let first = run.id();
        assert!(first.starts_with("scalable-n10-bauto-rtt183ms-s7-"), "{first}");
        run.path = "lab:rtt=183ms,rate=10gbit,loss=1e-5".parse().unwrap();
        assert!(run.id().starts_with("scalable-n10-bauto-rtt183ms-loss1e-5-s7-"), "{}", run.id());
        run.path = "lab:rtt=183ms,rate=10gbit".parse().unwrap();
        run.sample = Time(10_000_000);
        assert_ne!(run.id(), first);
        let from_memory = run.id();
        run.disks = Some(DiskAccess { block: Size(8_000_000), direct: DirectIo::On });
        assert_ne!(run.id(), from_memory);
        let json = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<Run>(&json).unwrap(), run);
    }
}
