//! Faults in virtual time: scenarios drawn from a seed, in each of which a copy is disturbed again and
//! again, and in the end is whole.
//!
//! Each seed is a guest of its own, whose first process is this very program; in it this program is also the
//! driver, and `fullpipe` what is tested. `FULLPIPE_FAULT_SEEDS=1-500` runs others than the usual 40,
//! `FULLPIPE_FAULT_SEEDS=17` one and tells all that happened; `FULLPIPE_FAULT_GUESTS=4` so many at once,
//! `FULLPIPE_FAULT_ONLY=udt` those that copy over UDT, `=disks` from disk to disk, `=inplace` with `--inplace`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "a test may panic")]

mod adversary;
mod disk;
mod drive;
mod guest;
mod host;
mod plan;
mod relay;
mod seeds;
mod tree;

use std::process::ExitCode;

fn main() -> ExitCode {
    if fullpipe_lab::guest::is_guest() {
        return fullpipe_lab::guest::init();
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["drive", seed, program] => drive::main(seed.parse().unwrap(), program),
        ["--list", ..] => ExitCode::SUCCESS,
        _ if words.iter().any(|word| !word.starts_with('-') && !"faults".contains(word.as_str())) => ExitCode::SUCCESS,
        _ => seeds::run(&SEEDS, one),
    }
}

/// The seeds of this suite.
const SEEDS: seeds::Suite = seeds::Suite {
    name: "faults",
    variables: "FULLPIPE_FAULT",
    usual: 40 - REGRESSIONS.len() as u64,
    more: &REGRESSIONS,
    guests: 2,
    has: |seed, what| match what {
        "udt" => plan::Plan::new(seed).udt,
        "disks" => plan::Plan::new(seed).disks,
        "inplace" => plan::Plan::new(seed).inplace,
        _ => panic!("FULLPIPE_FAULT_ONLY is none of 'udt', 'disks', 'inplace'"),
    },
};

/// Seeds that once found something, or find that `-u` keeps what `--inplace` left half-written (51), and are not among the first.
const REGRESSIONS: [u64; 9] = [51, 59, 65, 236, 303, 317, 338, 422, 460];

/// Runs a seed; gives what happened, well or not.
fn one(seed: u64) -> Result<String, String> {
    let plan = plan::Plan::new(seed);
    // Probabilities that never strike, so that there is something to set later.
    let mut path = format!("lab:rtt={}us,rate={}mbit,loss=1e-9,loss_back=1e-9", plan.rtt.as_micros(), plan.mbits);
    if plan.disks {
        path += ",";
        path += disk::WORDS;
    }
    guest::drive(seed, &path, &plan.told())
}
