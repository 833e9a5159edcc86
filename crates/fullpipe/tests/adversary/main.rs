//! Adversaries, played against the real program.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic; that is how it fails")]

#[path = "../common/mod.rs"]
mod common;
mod replayer;
mod stranger;
