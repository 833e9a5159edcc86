//! What the two ends say to each other, and the types that both sides of a message share.

pub mod digest;
pub mod file;
pub mod message;
pub mod skipped;
