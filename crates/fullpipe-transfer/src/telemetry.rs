//! What a running transfer counts and reports: bytes, times, TCP samples and losses.

pub mod counters;
pub mod losses;
pub mod trace;
