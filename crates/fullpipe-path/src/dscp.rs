//! The class of service that packets ask routers for: the differentiated services code point (DSCP, RFC 2474).

use std::fmt;
use std::str::FromStr;

use crate::units::serde_as_text;

/// Largest code point: it has six bits.
const MAX: u8 = 63;

/// Code points that have a name (IANA, "DSCP Pool 1 Codepoints").
const NAMES: [(&str, u8); 23] = [
    ("CS0", 0),
    ("LE", 1),
    ("CS1", 8),
    ("AF11", 10),
    ("AF12", 12),
    ("AF13", 14),
    ("CS2", 16),
    ("AF21", 18),
    ("AF22", 20),
    ("AF23", 22),
    ("CS3", 24),
    ("AF31", 26),
    ("AF32", 28),
    ("AF33", 30),
    ("CS4", 32),
    ("AF41", 34),
    ("AF42", 36),
    ("AF43", 38),
    ("CS5", 40),
    ("VOICE-ADMIT", 44),
    ("EF", 46),
    ("CS6", 48),
    ("CS7", 56),
];

/// A differentiated services code point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dscp(u8);

impl Dscp {
    /// The code point in the traffic class of an IPv6 header, or in the type of service of an IPv4 header.
    pub fn of_traffic_class(byte: u8) -> Dscp {
        Dscp(byte >> 2)
    }

    /// The byte of an IP header with this code point, and without a mark of congestion (ECN).
    pub fn traffic_class(self) -> u8 {
        self.0 << 2
    }
}

/// The reason why a text is no code point.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("'{0}' is no DSCP: give a name, such as CS1, LE, AF11 or EF, or a number from 0 to {MAX}")]
pub struct DscpError(String);

impl FromStr for Dscp {
    type Err = DscpError;
    fn from_str(text: &str) -> Result<Self, DscpError> {
        let named = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, value)| *value);
        let number = || match text.strip_prefix("0x") {
            Some(hex) => u8::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        };
        named.or_else(number).filter(|value| *value <= MAX).map(Dscp).ok_or_else(|| DscpError(text.to_owned()))
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, value)| *value == self.0) {
            Some((name, _)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

serde_as_text!(Dscp);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_code_points() {
        let class = |text: &str| text.parse::<Dscp>().map(Dscp::traffic_class).ok();
        for (text, byte) in [("CS1", 0x20), ("cs1", 0x20), ("8", 0x20), ("0x08", 0x20), ("EF", 0xb8), ("LE", 0x04)] {
            assert_eq!(class(text), Some(byte), "{text}");
        }
        for text in ["64", "CS8", "AF14", "", "-1", "0xff", "256"] {
            assert!(class(text).is_none(), "{text}");
        }
        // Assured forwarding: 8 times the class, and twice the drop precedence (RFC 2597).
        for (class, drop) in (1..=4).flat_map(|class| (1..=3).map(move |drop| (class, drop))) {
            assert_eq!(format!("AF{class}{drop}").parse(), Ok(Dscp(8 * class + 2 * drop)));
        }
        assert_eq!((Dscp(46).to_string(), Dscp(47).to_string()), ("EF".into(), "47".into()));
        assert_eq!(Dscp::of_traffic_class(0xb9), Dscp(46));
    }
}
