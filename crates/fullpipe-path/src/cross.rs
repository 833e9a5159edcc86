//! Traffic of others on an emulated path.

use std::fmt;
use std::str::FromStr;

use crate::path_error::PathError;
use crate::units::{Rate, Size, serde_as_text};

/// Cross traffic: other traffic through the same bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cross {
    /// Unresponsive: UDP at a constant rate, counted in Ethernet frames. Text: `udp:400mbit`.
    Udp(Rate),
    /// TCP flows, each limited to a window. Text: `tcp:4x64KB`.
    Tcp {
        /// Number of flows.
        flows: u8,
        /// Window of each flow: most bytes that it has in flight.
        window: Size,
    },
}

impl FromStr for Cross {
    type Err = PathError;
    fn from_str(text: &str) -> Result<Self, PathError> {
        let bad = || PathError::Value {
            key: "cross",
            why: format!("'{text}' is not cross traffic; write udp:400mbit or tcp:4x64KB"),
        };
        let (kind, rest) = text.split_once(':').ok_or_else(bad)?;
        match kind {
            "udp" => rest.parse().map(Cross::Udp).map_err(|_| bad()),
            "tcp" => {
                let (flows, window) = rest.split_once('x').ok_or_else(bad)?;
                let flows: u8 = flows.parse().map_err(|_| bad())?;
                let window: Size = window.parse().map_err(|_| bad())?;
                if flows == 0 || flows > 64 || window.0 == 0 {
                    return Err(bad());
                }
                Ok(Cross::Tcp { flows, window })
            }
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Cross {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cross::Udp(rate) => write!(f, "udp:{rate}"),
            Cross::Tcp { flows, window } => write!(f, "tcp:{flows}x{window}"),
        }
    }
}

serde_as_text!(Cross);
