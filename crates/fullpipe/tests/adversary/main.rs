//! Adversaries, played against the real program.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic; that is how it fails")]

#[path = "../common/mod.rs"]
mod common;
mod crash;
#[path = "../cp/host.rs"]
#[allow(dead_code, reason = "each adversary uses its part")]
mod host;
mod local_user;
mod replayer;
mod source_owner;
mod stranger;
