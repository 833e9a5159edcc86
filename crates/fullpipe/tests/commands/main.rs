//! Every command but `cp` between hosts, from end to end: the real binary over loopback and in the testbed.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test may panic; that is how it fails")]

mod bad_input;
#[path = "../common/mod.rs"]
mod common;
mod cp_lab;
mod doctor;
mod engine;
#[path = "../common/firewall.rs"]
mod firewall;
mod hostile_report;
mod hostile_text;
mod iperf3_json;
mod lab_disks;
mod measure_flags;
mod measure_mount;
mod measure_output;
mod measure_udp;
mod old_kernel;
mod pages;
mod scenarios;
mod select;
mod serve_http;
#[path = "../common/sshfs.rs"]
mod sshfs;
mod storage;
mod testbed;
