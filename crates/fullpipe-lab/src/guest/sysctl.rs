//! Kernel settings of the calling thread's namespaces.

use std::fs;

use super::step::{Doing, Fallible};

/// Writes a file below /proc/sys.
pub(super) fn set(name: &str, value: &str) -> Fallible<()> {
    fs::write(format!("/proc/sys/{name}"), value).doing(|| format!("setting {} to {value}", name.replace('/', ".")))
}
