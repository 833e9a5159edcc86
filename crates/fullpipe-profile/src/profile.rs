//! `profile.json`, version 1 (schema: `docs/profile.md`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fullpipe_path::{Classified, ExitClass, Probability, Rate, Size, Transport, Workload};
use serde::Deserialize;

/// The version that this program reads.
pub const VERSION: u32 = 1;

/// Why a profile does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// It cannot be read.
    #[error("cannot read profile {}: {source}; make one with 'fullpipe analyze DIR', or name another with --profile", .path.display())]
    Unreadable {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no profile.
    #[error("{} is not a profile: {why}", .path.display())]
    Malformed {
        /// Its file.
        path: PathBuf,
        /// Where and why.
        why: String,
    },
    /// Another version of the format.
    #[error("{}: profile version {found}; this program reads version {VERSION}", .path.display())]
    Version {
        /// Its file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// Nothing in it fits what was asked.
    #[error("the profile has nothing for {asked}; it has {has}")]
    NothingFits {
        /// As asked.
        asked: String,
        /// What there is of that kind.
        has: String,
    },
    /// More than one kind of path or workload fits.
    #[error("the profile has several {what}: {has}; say which with {flag}")]
    Ambiguous {
        /// Of what.
        what: &'static str,
        /// Those there are.
        has: String,
        /// How to say it.
        flag: &'static str,
    },
}

impl Classified for ProfileError {
    fn class(&self) -> ExitClass {
        match self {
            ProfileError::NothingFits { .. } | ProfileError::Ambiguous { .. } => ExitClass::Usage,
            _ => ExitClass::Record,
        }
    }
}

/// Throughput at one RTT, over the runs made there. Rates are bit/s of goodput.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Point {
    /// Round-trip time, milliseconds.
    pub rtt_ms: f64,
    /// Runs.
    pub n: u32,
    /// Their mean.
    pub mean_bps: f64,
    /// Lower end of the mean's confidence interval; none for a single run.
    pub low_bps: Option<f64>,
    /// Upper end.
    pub high_bps: Option<f64>,
}

/// What a path is besides its RTT.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Conditions {
    /// Bottleneck, bit/s; none for a real host.
    pub rate_bps: Option<f64>,
    /// Queue, bytes, where it was the same at all RTTs.
    pub queue: Option<Size>,
    /// Queue in bandwidth-delay products, where that was the same.
    pub queue_bdp: Option<f64>,
    /// Largest packet, bytes.
    pub mtu: Option<u32>,
    /// Random loss, forward.
    pub loss: Option<Probability>,
    /// Random loss on the way back.
    pub loss_back: Option<Probability>,
    /// Physical layer.
    pub modality: Option<String>,
    /// Kernel asked for.
    pub kernel: Option<String>,
    /// Cross traffic.
    pub cross: Option<String>,
    /// Real host.
    pub host: Option<String>,
}

impl Conditions {
    /// In words, for a person.
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                parts.push(format!("{name}={value}"));
            }
        };
        add("host", self.host.clone());
        add("rate", self.rate_bps.map(|bps| Rate(bps as u64).to_string()));
        add("queue", self.queue_bdp.map(|q| format!("{q}BDP")).or_else(|| self.queue.map(|q| q.to_string())));
        add("mtu", self.mtu.map(|mtu| mtu.to_string()));
        add("loss", self.loss.filter(|p| !p.is_zero()).map(|p| p.to_string()));
        add("loss_back", self.loss_back.filter(|p| !p.is_zero()).map(|p| p.to_string()));
        add("modality", self.modality.clone());
        add("kernel", self.kernel.clone());
        add("cross", self.cross.clone());
        parts.join(",")
    }
}

/// One transport's profile over paths of one kind.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Entry {
    /// The paths.
    pub path: Conditions,
    /// How it sent.
    pub transport: Transport,
    /// What it sent.
    pub workload: Workload,
    /// By RTT.
    pub points: Vec<Point>,
}

/// A profile.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Profile {
    /// Level of the intervals.
    pub confidence: f64,
    /// One per transport, kind of path and workload.
    pub entries: Vec<Entry>,
}

impl Profile {
    /// Reads a file.
    ///
    /// # Errors
    /// Unreadable, malformed, or of another version.
    pub fn read(path: &Path) -> Result<Profile, ProfileError> {
        let text = std::fs::read(path).map_err(|source| ProfileError::Unreadable { path: path.to_owned(), source })?;
        let malformed = |why: String| ProfileError::Malformed { path: path.to_owned(), why };
        #[derive(Deserialize)]
        struct Head {
            kind: String,
            version: u32,
        }
        let head: Head = serde_json::from_slice(&text).map_err(|e| malformed(e.to_string()))?;
        if head.kind != "profile" {
            return Err(malformed(format!("its kind is '{}'", head.kind)));
        }
        if head.version != VERSION {
            return Err(ProfileError::Version { path: path.to_owned(), found: head.version });
        }
        let mut profile: Profile = serde_json::from_slice(&text).map_err(|e| malformed(e.to_string()))?;
        for entry in &mut profile.entries {
            if entry.points.is_empty() || entry.points.iter().any(|p| !p.rtt_ms.is_finite() || !p.mean_bps.is_finite())
            {
                return Err(malformed(format!(
                    "an entry without points, or with one that is no number: {}",
                    entry.transport
                )));
            }
            entry.points.sort_by(|a, b| a.rtt_ms.total_cmp(&b.rtt_ms));
        }
        Ok(profile)
    }

    /// Distinct values of something over the entries, as a list in words.
    pub(crate) fn list(entries: &[&Entry], what: impl Fn(&Entry) -> String) -> String {
        let all: BTreeSet<String> = entries.iter().map(|entry| what(entry)).collect();
        all.into_iter().collect::<Vec<_>>().join("; ")
    }
}
