//! What the two ends say to each other, and the types that both sides of a message share.

pub mod chunk;
pub mod digest;
pub mod file;
pub mod frame;
pub mod hello;
pub mod losses;
pub mod message;
pub mod name;
pub mod preamble;
pub mod sizing;
pub mod skipped;
