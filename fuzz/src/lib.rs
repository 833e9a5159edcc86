//! What the targets share: an end of a transfer that is played by the fuzzer, step by step, against a real one.

mod peer;
mod replay;
mod steps;
mod world;

pub use peer::{Door, Peer, Sent, drain, hear, hello, limits};
pub use replay::{mutant_of_bytes, replay};
pub use steps::{SECOND, Script, Step, mutant, mutate};
pub use world::World;
