//! How a file is laid out over the storage targets of a Lustre file system.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::units::Size;

/// Stripe sizes are multiples of this, in bytes (`LOV_MIN_STRIPE_SIZE`, Lustre's `lustre_user.h`).
const SIZE_UNIT_BYTES: u64 = 64 << 10;
/// Largest number of stripes (`LOV_MAX_STRIPE_COUNT`, Lustre's `lustre_user.h`).
const MAX_COUNT: u16 = 2000;

/// Number and size of the stripes of a file on Lustre. Text: `8`, `8,4MiB`, `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stripes {
    /// Number of object storage targets; [`Stripes::ALL`] for as many as there are.
    pub count: u16,
    /// Size of a stripe, in bytes; 0 for the file system's own.
    pub size: u32,
}

impl Stripes {
    /// The `count` that stands for all targets (`LOV_ALL_STRIPES`, Lustre's `lustre_user.h`).
    pub const ALL: u16 = 0xffff;
}

impl FromStr for Stripes {
    type Err = String;
    fn from_str(text: &str) -> Result<Stripes, String> {
        let (count, size) = text.split_once(',').map_or((text, None), |(count, size)| (count, Some(size)));
        let count = match count {
            "all" => Stripes::ALL,
            _ => {
                let count = count.parse().ok().filter(|count| (1..=MAX_COUNT).contains(count));
                count.ok_or_else(|| {
                    format!("give COUNT or COUNT,SIZE, with a count of 1 to {MAX_COUNT} or 'all', such as 8,4MiB")
                })?
            }
        };
        let Some(size) = size else { return Ok(Stripes { count, size: 0 }) };
        let size: Size = size.parse().map_err(|e| format!("{e}"))?;
        match u32::try_from(size.0) {
            Ok(bytes) if bytes > 0 && size.0.is_multiple_of(SIZE_UNIT_BYTES) => Ok(Stripes { count, size: bytes }),
            _ => Err("a stripe's size is a multiple of 64KiB below 4GiB, such as 4MiB".to_owned()),
        }
    }
}

impl fmt::Display for Stripes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            Stripes::ALL => f.write_str("all")?,
            count => write!(f, "{count}")?,
        }
        if self.size > 0 {
            write!(f, ",{}B", self.size)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_are_read_as_they_are_written() {
        for (text, count, size) in
            [("1", 1, 0), ("8,4MiB", 8, 4 << 20), ("all", 0xffff, 0), ("2000,65536B", 2000, 1 << 16)]
        {
            let stripes: Stripes = text.parse().unwrap();
            assert_eq!(stripes, Stripes { count, size });
            assert_eq!(stripes.to_string().parse(), Ok(stripes));
        }
    }

    #[test]
    fn what_lustre_would_not_take_is_refused() {
        for text in ["", "0", "2001", "-1", "x", ",4MiB", "8,4MiB,2"] {
            assert!(text.parse::<Stripes>().is_err(), "{text}");
        }
        for text in ["8,", "8,4", "8,0B", "8,100KB", "8,1B", "8,4GiB"] {
            assert!(text.parse::<Stripes>().is_err(), "{text}");
        }
    }
}
