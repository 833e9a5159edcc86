//! What the targets share: an end of a transfer that is played by the fuzzer, step by step, against a real one.

mod peer;
mod steps;
mod world;

pub use peer::{Door, Peer, Sent, drain, hear, hello, limits};
pub use steps::{SECOND, Script, Step, mutate};
pub use world::World;
