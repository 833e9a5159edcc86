//! Why a text is not a path.

use crate::exit::{Classified, ExitClass};
use crate::units::UnitError;

/// The reason why a text is not a path.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PathError {
    /// A value did not parse.
    #[error("path {key}: {source}")]
    Unit {
        /// The key of the value.
        key: String,
        /// The reason.
        source: UnitError,
    },
    /// A key is unknown.
    #[error("path: unknown key '{key}'; known keys: {known}")]
    Key {
        /// The key.
        key: String,
        /// The known keys.
        known: &'static str,
    },
    /// A key stands twice.
    #[error("path: '{key}' is given twice; leave one of them out")]
    Twice {
        /// The key.
        key: String,
    },
    /// A key has no value.
    #[error("path: '{part}' should be KEY=VALUE, as in rtt=45.6ms")]
    Pair {
        /// The text between two commas.
        part: String,
    },
    /// A value is impossible.
    #[error("path {key}: {why}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong with the value, and a right one.
        why: String,
    },
    /// A TOML table does not parse.
    #[error("path table: {0}")]
    Table(String),
    /// A text is not a host.
    #[error("'{0}' is not a host: write NAME, NAME:PORT, or [IPv6]:PORT, or a lab: path")]
    Host(String),
    /// An emulated path lacks the prefix `lab:`.
    #[error("'{0}' is not a host; did you mean lab:{0}?")]
    Unmarked(String),
}

impl Classified for PathError {
    fn class(&self) -> ExitClass {
        ExitClass::Usage
    }
}
