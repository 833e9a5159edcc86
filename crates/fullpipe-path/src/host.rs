//! Real hosts.

use std::fmt;
use std::str::FromStr;

use crate::path_error::PathError;

/// Default port of `fullpipe serve`.
pub const DEFAULT_PORT: u16 = 7412;

/// A real host and the port of its `fullpipe serve`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name or address of the host.
    pub name: String,
    /// TCP port of the control connection.
    pub port: u16,
}

impl FromStr for Host {
    type Err = PathError;
    fn from_str(text: &str) -> Result<Self, PathError> {
        let bad = || PathError::Host(text.to_owned());
        let (name, port) = if let Some(rest) = text.strip_prefix('[') {
            let (name, rest) = rest.split_once(']').ok_or_else(bad)?;
            (name, if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or_else(bad)?) })
        } else if text.matches(':').count() > 1 {
            (text, None)
        } else {
            text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)))
        };
        let port = match port {
            Some(port) => port.parse().map_err(|_| bad())?,
            None => DEFAULT_PORT,
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
        if name.is_empty() || name.starts_with('-') || !name.chars().all(plain) {
            return Err(bad());
        }
        Ok(Host { name: name.to_owned(), port })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `lab:` begins an emulated path.
        if self.name.contains(':') || self.name == "lab" {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        let host: Host = "dtn1.example.org".parse().unwrap();
        assert_eq!((host.name.as_str(), host.port), ("dtn1.example.org", DEFAULT_PORT));
        assert_eq!("[::1]:99".parse::<Host>().unwrap().to_string(), "[::1]:99");
        assert_eq!("::1".parse::<Host>().unwrap().port, DEFAULT_PORT);
        assert_eq!("[lab]".parse::<Host>().unwrap().to_string(), "[lab]:7412");
        for bad in ["", "a:b", "a b", "[::1", "[::1]9000", "[::1]x", "[::1]:", "-x", "host:70000"] {
            assert!(bad.parse::<Host>().is_err(), "{bad}");
        }
    }
}
