//! The messages between the two ends, their format on the wire, and the types that both ends share.

pub mod candidate;
pub mod changes;
pub mod chunk;
pub mod digest;
pub mod file;
pub mod frame;
pub mod hello;
pub mod losses;
pub mod message;
pub mod name;
pub mod not_kept;
pub mod preamble;
pub mod sizing;
pub mod skipped;
