//! A large file, copied slowly enough to be met in the middle.

use std::fs;
use std::path::Path;

use crate::host::{Cp, Host, Running, journalled, until};
use crate::tree::{bytes, write};

pub const MIB: usize = 1 << 20;
/// Of the files that are cut off in the middle.
pub const LARGE: usize = 48 * MIB;
/// So that there is a middle.
pub const SLOW: &str = "--pacing 150mbit --block 1MiB";

/// Both ways at once: push, or not.
pub fn both_ways(test: impl Fn(bool) + Sync) {
    std::thread::scope(|scope| {
        let pull = scope.spawn(|| test(false));
        test(true);
        pull.join().unwrap();
    });
}

/// Waits until some blocks are finished, and few.
pub fn some_blocks(folder: &Path) {
    // The first ones of each stream are smaller than asked for.
    until("blocks in the journal", || journalled(folder) > 800);
}

/// A copy of a large file that runs, some blocks done; and the same command again, to be run.
pub fn slow(host: &Host, push: bool) -> Running {
    write(host.file("large"), bytes(LARGE, 7));
    fs::create_dir_all(host.file("to")).unwrap();
    let running = repeat(host, push, SLOW).start();
    some_blocks(&host.file("to"));
    running
}

pub fn repeat(host: &Host, push: bool, how: &str) -> Cp {
    host.copy(push, &format!("--json {how}"), "large", "to/")
}
