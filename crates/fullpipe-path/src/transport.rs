//! How to send, and what to send.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::units::{Rate, Size, Time, UnitError};
use crate::{Classified, ExitClass};

/// Most parallel streams of one transport.
pub const MAX_STREAMS: u16 = 64;

/// Slowest pacing: below it a packet takes longer than anybody waits, and a kernel takes none for no limit.
pub const LEAST_PACING: Rate = Rate(64_000);

/// Congestion controls of the testbed's kernels: the thirteen of the wide-area pool, and those for
/// data centres and background traffic. Real hosts may know others.
pub const LINUX_CONGESTION_CONTROLS: [&str; 17] = [
    "bbr",
    "bic",
    "cdg",
    "cubic",
    "dctcp",
    "highspeed",
    "htcp",
    "hybla",
    "illinois",
    "lp",
    "nv",
    "reno",
    "scalable",
    "vegas",
    "veno",
    "westwood",
    "yeah",
];

/// Why a transport or workload is not one.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TransportError {
    /// Number of streams.
    #[error("{0} streams: give from 1 to {MAX_STREAMS}")]
    Streams(u16),
    /// A congestion control's name that no kernel could have.
    #[error("'{0}' is not the name of a congestion control")]
    Name(String),
    /// A congestion control that the testbed lacks.
    #[error("congestion control '{name}' is not in the testbed's kernel; it has {known}")]
    NotInLab {
        /// As typed.
        name: String,
        /// Those there are.
        known: String,
    },
    /// Pacing that stands still.
    #[error("pacing at {0}: give at least {LEAST_PACING}")]
    Pacing(Rate),
    /// A quantity.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A buffer that cannot be set.
    #[error("a buffer of {0} cannot be set: give from 4KB to 1.073GB, or auto")]
    Buffer(Size),
    /// Nothing to send, or no time.
    #[error("a workload of {0} moves nothing: give a size of at least one byte per stream, or a duration")]
    Empty(String),
}

impl Classified for TransportError {
    fn class(&self) -> ExitClass {
        ExitClass::Usage
    }
}

/// Socket buffer B of the papers, the same at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Buffer {
    /// The kernel's autotuning decides (`tcp_rmem`, `tcp_wmem`).
    Auto,
    /// Passed to `SO_SNDBUF` and `SO_RCVBUF` before connecting. The kernel books twice as much,
    /// half of it for its own bookkeeping (`socket(7)`).
    Bytes(Size),
}

impl FromStr for Buffer {
    type Err = TransportError;
    fn from_str(text: &str) -> Result<Self, TransportError> {
        if text.eq_ignore_ascii_case("auto") {
            return Ok(Buffer::Auto);
        }
        let size: Size = text.parse()?;
        // The kernel takes at most INT_MAX / 2, and less than a page makes no sense.
        if size.0 < 4_000 || size.0 > (i32::MAX / 2) as u64 {
            return Err(TransportError::Buffer(size));
        }
        Ok(Buffer::Bytes(size))
    }
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Buffer::Auto => f.write_str("auto"),
            Buffer::Bytes(size) => size.fmt(f),
        }
    }
}

impl Serialize for Buffer {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Buffer {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        crate::units::from_text(d)
    }
}

/// How to send: congestion control V, streams n, buffer B, and a pacing rate, which may be none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transport {
    /// Congestion control, under the kernel's name.
    pub cc: String,
    /// Parallel streams.
    pub streams: u16,
    /// Socket buffer of each stream.
    pub buffer: Buffer,
    /// Pacing rate of all streams together, or none.
    #[serde(default)]
    pub pacing: Option<Rate>,
}

impl Transport {
    /// Checks what no parser of one field can.
    ///
    /// # Errors
    /// Streams out of range, or a congestion control's name that no kernel could have.
    pub fn validate(&self) -> Result<(), TransportError> {
        if self.streams == 0 || self.streams > MAX_STREAMS {
            return Err(TransportError::Streams(self.streams));
        }
        // TCP_CA_NAME_MAX is 16, the closing zero included (include/net/tcp.h).
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
        if self.cc.is_empty() || self.cc.len() > 15 || !self.cc.chars().all(plain) {
            return Err(TransportError::Name(self.cc.clone()));
        }
        match self.pacing {
            Some(rate) if rate < LEAST_PACING => Err(TransportError::Pacing(rate)),
            _ => Ok(()),
        }
    }

    /// Checks that the testbed's kernel has the congestion control.
    ///
    /// # Errors
    /// It has not.
    pub fn validate_for_lab(&self) -> Result<(), TransportError> {
        self.validate()?;
        if LINUX_CONGESTION_CONTROLS.contains(&self.cc.as_str()) {
            return Ok(());
        }
        Err(TransportError::NotInLab { name: self.cc.clone(), known: LINUX_CONGESTION_CONTROLS.join(", ") })
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}, buffer {}", self.cc, self.streams, self.buffer)?;
        self.pacing.map_or(Ok(()), |rate| write!(f, ", paced at {rate}"))
    }
}

/// What to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// So many bytes over all streams together, shared equally.
    Size(Size),
    /// As much as goes in this time, counted from the first byte's arrival.
    Duration(Time),
}

impl Workload {
    /// Checks that there is something to send.
    ///
    /// # Errors
    /// Less than a byte per stream, or no time.
    pub fn validate(&self, streams: u16) -> Result<(), TransportError> {
        match self {
            Workload::Size(size) if size.0 < u64::from(streams) => Err(TransportError::Empty(size.to_string())),
            Workload::Duration(time) if time.0 == 0 => Err(TransportError::Empty(time.to_string())),
            _ => Ok(()),
        }
    }

    /// Bytes of stream `i` of `n`, or none for a duration.
    pub fn share(&self, i: u16, n: u16) -> Option<u64> {
        let Workload::Size(Size(total)) = self else { return None };
        let n = u64::from(n);
        Some(total / n + u64::from(u64::from(i) < total % n))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::Size(size) => size.fmt(f),
            Workload::Duration(time) => time.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        let work = Workload::Size(Size(1_000_000_007));
        assert_eq!((0..10).filter_map(|i| work.share(i, 10)).sum::<u64>(), 1_000_000_007);
    }

    #[test]
    fn limits() {
        let mut t = Transport { cc: "cubic".into(), streams: 1, buffer: Buffer::Auto, pacing: None };
        assert!(t.validate_for_lab().is_ok());
        t.streams = 65;
        assert_eq!(t.validate(), Err(TransportError::Streams(65)));
        t.streams = 1;
        t.cc = "cubicc".into();
        assert!(t.validate().is_ok());
        assert!(t.validate_for_lab().unwrap_err().to_string().contains("scalable"));
        t.cc = "../x".into();
        assert!(t.validate().is_err());
        assert!("2GB".parse::<Buffer>().is_err());
        assert!("1GB".parse::<Buffer>().is_ok());
        assert!(Workload::Size(Size(3)).validate(4).is_err());
    }
}
