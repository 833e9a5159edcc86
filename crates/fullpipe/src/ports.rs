//! The range of ports for data streams, as `--data-ports` takes it.

use crate::failure::{Failure, Result};

/// First and last port of `--data-ports`; `(0, 0)` without the flag, which lets the kernel choose.
///
/// # Errors
/// The text is not a range of ports.
pub fn data_ports(text: Option<&str>) -> Result<(u16, u16)> {
    let Some(text) = text else { return Ok((0, 0)) };
    range(text).ok_or_else(|| {
        let why = format!("--data-ports '{text}' is not a range of ports; write it as FIRST-LAST, such as 7413-7476");
        Failure::usage(why)
    })
}

/// Reads `7413-7476`, or `7413` for a single port.
fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first > 0 && first <= last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_ranges() {
        assert_eq!(range("7413-7476"), Some((7413, 7476)));
        assert_eq!(range("7413"), Some((7413, 7413)));
        for bad in ["0-9", "9-8", "", "a-b", "1-70000"] {
            assert_eq!(range(bad), None, "{bad}");
        }
    }
}
