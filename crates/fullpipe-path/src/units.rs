//! Quantities with the field's units, as users type them and as records hold them.
//!
//! `10gbit` is 10^10 bit/s, `256MB` is 256·10^6 bytes, `256MiB` is 2^28 bytes, `45.6ms` is a time.
//! Each quantity prints exactly, in the largest unit that fits, so that parsing the text gives the same value.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The reason why a quantity did not parse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The number before the unit is missing, negative, not finite or malformed.
    #[error("'{text}' is not a {what}: it should start with a number, as in '{example}'")]
    Number {
        /// What was expected: rate, size, time, probability.
        what: &'static str,
        /// What was typed.
        text: String,
        /// A right one.
        example: &'static str,
    },
    /// The unit is missing.
    #[error("'{text}' is not a {what}: its unit is missing; use one of {units}, as in '{example}'")]
    Missing {
        /// What was expected.
        what: &'static str,
        /// What was typed.
        text: String,
        /// Those that exist.
        units: String,
        /// A right one.
        example: &'static str,
    },
    /// The unit is unknown.
    #[error("'{text}' is not a {what}: unit '{unit}' is unknown; use one of {units}")]
    Unit {
        /// What was expected.
        what: &'static str,
        /// What was typed.
        text: String,
        /// The part read as the unit.
        unit: String,
        /// Those that exist.
        units: String,
    },
    /// The unit of a size ends in a small b, which may mean bits.
    #[error("'{text}' is not a size: '{unit}' may mean bits; write {bytes} for bytes")]
    Bits {
        /// What was typed.
        text: String,
        /// The part read as the unit.
        unit: String,
        /// The unit in bytes.
        bytes: &'static str,
    },
    /// The value does not fit, or is below the smallest unit.
    #[error("'{text}' is not a {what}: it is out of range (from {low} to {high})")]
    Range {
        /// What was expected.
        what: &'static str,
        /// What was typed.
        text: String,
        /// The least allowed.
        low: &'static str,
        /// The most allowed.
        high: &'static str,
    },
}

struct Quantity {
    what: &'static str,
    example: &'static str,
    /// Unit names and their factors, smallest first; names compare without case unless they
    /// would clash.
    units: &'static [(&'static str, f64)],
    high: &'static str,
}

const RATE: Quantity = Quantity {
    what: "rate",
    example: "10gbit",
    units: &[("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("tbit", 1e12)],
    high: "1tbit",
};
const SIZE: Quantity = Quantity {
    what: "size",
    example: "256MB",
    units: &[
        ("B", 1.0),
        ("KB", 1e3),
        ("KiB", 1024.0),
        ("MB", 1e6),
        ("MiB", 1048576.0),
        ("GB", 1e9),
        ("GiB", 1073741824.0),
        ("TB", 1e12),
        ("TiB", 1099511627776.0),
    ],
    high: "1000TB",
};
const TIME: Quantity = Quantity {
    what: "time",
    example: "45.6ms",
    units: &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 6e10), ("h", 3.6e12)],
    high: "1000h",
};

fn parse(kind: &Quantity, text: &str) -> Result<f64, UnitError> {
    let trimmed = text.trim();
    // 'e' belongs to the number only when digits follow it, as in 1e9bit.
    let bytes = trimmed.as_bytes();
    let mut end = 0;
    while end < bytes.len() {
        let c = bytes[end];
        let exponent = matches!(c, b'e' | b'E')
            && end > 0
            && bytes.get(end + 1).is_some_and(|n| n.is_ascii_digit() || matches!(n, b'-' | b'+'));
        let sign = matches!(c, b'+' | b'-') && end > 0 && matches!(bytes[end - 1], b'e' | b'E');
        if c.is_ascii_digit() || c == b'.' || exponent || sign {
            end += 1;
        } else {
            break;
        }
    }
    let (number, unit) = trimmed.split_at(end);
    let number: f64 = number.parse().map_err(|_| UnitError::Number {
        what: kind.what,
        text: text.to_owned(),
        example: kind.example,
    })?;
    let unit = unit.trim();
    let units = || kind.units.iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", ");
    if unit.is_empty() {
        return Err(UnitError::Missing {
            what: kind.what,
            text: text.to_owned(),
            units: units(),
            example: kind.example,
        });
    }
    if kind.what == SIZE.what
        && unit.ends_with('b')
        && let Some((bytes, _)) = kind.units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))
    {
        return Err(UnitError::Bits { text: text.to_owned(), unit: unit.to_owned(), bytes });
    }
    let known = if kind.what == RATE.what { bits(unit) } else { unit.to_owned() };
    kind.units.iter().find(|(name, _)| name.eq_ignore_ascii_case(&known)).map(|(_, factor)| number * factor).ok_or_else(
        || UnitError::Unit {
            what: kind.what,
            text: text.to_owned(),
            unit: unit.to_owned(),
            units: if kind.what == RATE.what { format!("{} (bits per second)", units()) } else { units() },
        },
    )
}

/// Returns fullpipe's name of a rate's unit that may be written `Gbit/s`, `Gb/s` or `Gbps`. A capital B is not accepted,
/// since some people mean bytes by it.
fn bits(unit: &str) -> String {
    let prefix = ["bit/s", "b/s", "bps"].into_iter().find_map(|suffix| unit.strip_suffix(suffix));
    prefix.map_or_else(|| unit.to_owned(), |prefix| format!("{prefix}bit"))
}

fn whole(kind: &Quantity, text: &str, high: f64) -> Result<u64, UnitError> {
    let value = parse(kind, text)?.round();
    if (0.0..=high).contains(&value) {
        Ok(value as u64)
    } else {
        Err(UnitError::Range { what: kind.what, text: text.to_owned(), low: "0", high: kind.high })
    }
}

/// Prints a value exactly, in the largest decimal unit that is not larger than the value.
fn print(value: u64, units: &[(&str, u32)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (name, digits) in units.iter().rev() {
        let factor = 10u64.pow(*digits);
        if value >= factor {
            let text = format!("{}.{:0width$}", value / factor, value % factor, width = *digits as usize);
            let text =
                if *digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text[..text.len() - 2] };
            return write!(f, "{text}{name}");
        }
    }
    write!(f, "{value}{}", units.first().map_or("", |u| u.0))
}

/// Implements serialization as text, by `Display` and `FromStr`.
macro_rules! serde_as_text {
    ($name:ident) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                $crate::units::from_text(d)
            }
        }
    };
}
pub(crate) use serde_as_text;

macro_rules! quantity {
    ($name:ident, $kind:expr, $high:expr, $units:expr) => {
        impl FromStr for $name {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                whole(&$kind, text, $high).map($name)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                print(self.0, $units, f)
            }
        }
        serde_as_text!($name);
    };
}

/// Deserializes a value from its text, without copying the text.
pub(crate) fn from_text<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(d: D) -> Result<T, D::Error> {
    struct Text<T>(PhantomData<T>);
    impl<T: FromStr<Err: fmt::Display>> de::Visitor<'_> for Text<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("a string")
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }
    d.deserialize_str(Text(PhantomData))
}

/// A rate in bit/s. Text: `10gbit`, `9.92gbit`, `970mbit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);
quantity!(Rate, RATE, 1e12, &[("bit", 0), ("kbit", 3), ("mbit", 6), ("gbit", 9)]);

/// A size in bytes. Text: `250KB`, `64MB`, `1GB`, `2GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);
quantity!(Size, SIZE, 1e15, &[("B", 0), ("KB", 3), ("MB", 6), ("GB", 9), ("TB", 12)]);

/// A time in nanoseconds. Text: `45.6ms`, `100s`, `250us`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);
quantity!(Time, TIME, 3.6e15, &[("ns", 0), ("us", 3), ("ms", 6), ("s", 9)]);

impl Time {
    /// Returns the time in seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// Returns the time as the standard library's type.
    pub fn duration(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }
}

/// A probability in [0, 1]. Text: `1e-3`, `0.1%`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Probability(f64);

impl Probability {
    /// Returns the value, 0 to 1.
    pub fn get(self) -> f64 {
        self.0
    }
    /// Whether the probability is zero.
    pub fn is_zero(&self) -> bool {
        self.0 == 0.0
    }
}

impl TryFrom<f64> for Probability {
    type Error = UnitError;
    fn try_from(value: f64) -> Result<Self, UnitError> {
        if (0.0..=1.0).contains(&value) {
            Ok(Probability(value))
        } else {
            Err(UnitError::Range { what: "probability", text: value.to_string(), low: "0", high: "1 or 100%" })
        }
    }
}

impl FromStr for Probability {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bad = || UnitError::Number { what: "probability", text: text.to_owned(), example: "1e-3" };
        let trimmed = text.trim();
        let value = match trimmed.strip_suffix('%') {
            Some(percent) => percent.trim().parse::<f64>().map_err(|_| bad())? / 100.0,
            None => trimmed.parse::<f64>().map_err(|_| bad())?,
        };
        let out_of_range = UnitError::Range { what: "probability", text: text.into(), low: "0", high: "1 or 100%" };
        Probability::try_from(value).map_err(|_| out_of_range)
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 != 0.0 && self.0 < 1e-3 { write!(f, "{:e}", self.0) } else { write!(f, "{}", self.0) }
    }
}

impl Serialize for Probability {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for Probability {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(f64),
            Text(String),
        }
        match Either::deserialize(d)? {
            Either::Number(value) => Probability::try_from(value),
            Either::Text(text) => text.parse(),
        }
        .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_units() {
        assert_eq!("10gbit".parse(), Ok(Rate(10_000_000_000)));
        assert_eq!("9.92Gbit".parse(), Ok(Rate(9_920_000_000)));
        for text in ["10Gb/s", "10Gbps", "10Gbit/s", "10 gbit/s", "10000Mbps", "10e9b/s", "10e9bps"] {
            assert_eq!(text.parse(), Ok(Rate(10_000_000_000)), "{text}");
        }
        assert_eq!("256MB".parse(), Ok(Size(256_000_000)));
        assert_eq!("256MiB".parse(), Ok(Size(1 << 28)));
        assert_eq!("1e9B".parse(), Ok(Size(1_000_000_000)));
        assert_eq!("45.6ms".parse(), Ok(Time(45_600_000)));
        assert_eq!("0.1%".parse::<Probability>().unwrap().get(), 0.001);
    }

    #[test]
    fn text_and_back() {
        for text in ["10gbit", "9.92gbit", "970mbit", "1bit", "0bit"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for text in ["11.8ms", "366ms", "100s", "0.4ms"] {
            let time: Time = text.parse().unwrap();
            assert_eq!(time.to_string().parse::<Time>().unwrap(), time);
        }
        assert_eq!("0.4ms".parse::<Time>().unwrap().to_string(), "400us");
        assert_eq!("2GiB".parse::<Size>().unwrap().to_string(), "2.147483648GB");
        for (bytes, text) in [(0, "0B"), (7, "7B"), (4_194_304, "4.194304MB"), (1_000_000_000_000, "1TB")] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }

    #[test]
    fn what_does_not_parse_says_why() {
        let error = |r: Result<Rate, UnitError>| r.unwrap_err().to_string();
        assert!(error("fast".parse()).contains("should start with a number"));
        assert!(error("10gb".parse()).contains("unit 'gb' is unknown; use one of bit"));
        assert!(error("10GB/s".parse()).contains("(bits per second)"));
        assert!(error("10GBps".parse()).contains("(bits per second)"));
        assert!(
            error("10".parse()).contains("unit is missing; use one of bit, kbit, mbit, gbit, tbit, as in '10gbit'")
        );
        for (text, unit) in
            [("1Mb", "write MB for bytes"), ("1mb", "write MB"), ("5kib", "write KiB"), ("7b", "write B")]
        {
            assert!(text.parse::<Size>().unwrap_err().to_string().contains(unit), "{text}");
        }
        assert_eq!("1mB".parse(), Ok(Size(1_000_000)));
        assert!("100".parse::<Size>().unwrap_err().to_string().contains("unit is missing"));
        assert!(error("99999tbit".parse()).contains("out of range"));
        assert!("-1s".parse::<Time>().is_err());
        assert!("1.5".parse::<Probability>().is_err());
        assert!("nan".parse::<Probability>().is_err());
        assert!("1e999s".parse::<Time>().is_err());
    }
}
