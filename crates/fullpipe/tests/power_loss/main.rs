//! Loss of power in virtual time: scenarios drawn from a seed, in each of which the receiving machine loses power
//! again and again while or after a copy runs, and with it all that was in memory and in its disk's write cache.
//!
//! Each seed is a guest of its own, whose first process is this very program; in it this program is also the driver and
//! the disk, and `fullpipe` what is tested. A command is run to its end while the disk records every write and flush;
//! what a loss of power at some instant would have left is made from that record, mounted, checked, and the command
//! repeated on it. `FULLPIPE_POWER_SEEDS=1-100` runs others than the usual seeds, `FULLPIPE_POWER_SEEDS=17` one and
//! tells all that happened; `FULLPIPE_POWER_GUESTS=4` so many at once, `FULLPIPE_POWER_ONLY=inplace` those that copy in place.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "a test may panic")]

mod check;
mod device;
mod drive;
#[path = "../faults/guest.rs"]
mod guest;
#[path = "../faults/host.rs"]
mod host;
mod image;
mod machine;
#[allow(dead_code, reason = "of it only the tree is used")]
#[path = "../faults/plan.rs"]
mod plan;
mod scenario;
#[path = "../faults/seeds.rs"]
mod seeds;
#[allow(dead_code, reason = "nothing changes the source here")]
#[path = "../faults/tree.rs"]
mod tree;

use std::process::ExitCode;

/// The seeds of this suite; the last ones once found something.
const SEEDS: seeds::Suite = seeds::Suite {
    name: "power_loss",
    variables: "FULLPIPE_POWER",
    usual: 36,
    more: &[72, 76, 160, 395],
    guests: 2,
    has: |seed, what| match what {
        "inplace" => scenario::Scenario::new(seed).inplace,
        _ => panic!("FULLPIPE_POWER_ONLY is not 'inplace'"),
    },
};

fn main() -> ExitCode {
    if fullpipe_lab::guest::is_guest() {
        return fullpipe_lab::guest::init();
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["drive", seed, program] => drive::main(seed.parse().unwrap(), program),
        ["--list", ..] => ExitCode::SUCCESS,
        _ if words.iter().any(|word| !word.starts_with('-') && !"power_loss".contains(word.as_str())) => {
            ExitCode::SUCCESS
        }
        _ => {
            image::check();
            seeds::run(&SEEDS, one)
        }
    }
}

/// Runs a seed; gives what happened, well or not.
fn one(seed: u64) -> Result<String, String> {
    let scenario = scenario::Scenario::new(seed);
    guest::drive(seed, &scenario.path(), &scenario.told())
}
