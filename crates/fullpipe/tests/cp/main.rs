//! `fullpipe cp`, and `measure` and `bench` over ssh, from end to end: the real binary on both ends, over a real sshd.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic; that is how it fails")]

mod attributes;
mod bad_input;
mod bench;
mod changes;
mod config;
mod content;
mod delete;
mod deploy;
mod disks;
mod dry_run;
mod far_input;
mod faults;
mod files_from;
mod filters;
#[path = "../common/firewall.rs"]
mod firewall;
mod host;
mod in_place;
mod large;
mod measure;
mod names;
mod patterns;
mod reach;
mod remove_sources;
mod rights;
mod sobas;
#[path = "../common/sshfs.rs"]
mod sshfs;
mod standard;
mod third_party;
mod tree;
mod udt;
mod verify;
