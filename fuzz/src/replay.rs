//! Stored inputs once more, each with mutants that are drawn from it: the same ones every time.
//!
//! A corpus that keeps only what reaches new code is small. Most hostile inputs are near one of it, so they are derived when
//! they are needed: the seed is the stored input's checksum and the mutant's number.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Most bytes that a mutant of bytes may have more than its origin.
const MOST_MORE: usize = 64;

/// What `scripts/fuzz --replay` asks for.
struct Order {
    /// Mutants of each stored input.
    mutants: u64,
    /// Beginning of the names of two files: `-count` tells how many inputs were run, `-input` holds the last one.
    files: PathBuf,
}

fn order() -> Option<&'static Order> {
    static ORDER: OnceLock<Option<Order>> = OnceLock::new();
    let read = || {
        let mutants = std::env::var("FULLPIPE_FUZZ_MUTANTS").ok()?.parse().ok()?;
        Some(Order { mutants, files: std::env::var_os("FULLPIPE_FUZZ_STATE")?.into() })
    };
    ORDER.get_or_init(read).as_ref()
}

/// Runs an input and, where a replay is asked for, its mutants. `mutant` draws one from the input and a seed.
///
/// # Panics
/// Inputs cannot be counted; or as `run` does.
pub fn replay(data: &[u8], mutant: impl Fn(&[u8], u64) -> Vec<u8>, run: impl Fn(&[u8])) {
    let Some(order) = order() else { return run(data) };
    static DONE: AtomicU64 = AtomicU64::new(0);
    let file = |suffix: &str| {
        let mut name = order.files.clone().into_os_string();
        name.push(suffix);
        name
    };
    let seed = u64::from(crc32fast::hash(data)) << 32;
    let mutants = (0..order.mutants).map(|i| mutant(data, seed | i));
    // A run that fails leaves its input there. Emptied and closed for each input, the file would be brought to disk each time.
    let last = std::fs::File::create(file("-input")).expect("the input can be kept");
    for input in std::iter::once(data.to_vec()).chain(mutants) {
        let kept = last.set_len(input.len() as u64).and_then(|()| last.write_all_at(&input, 0));
        kept.expect("the input is kept");
        run(&input);
        DONE.fetch_add(1, Ordering::Relaxed);
    }
    std::fs::write(file("-count"), DONE.load(Ordering::Relaxed).to_string()).expect("inputs are counted");
}

/// Changes bytes that are no script: bits, bytes, and parts that are left out, repeated or new.
pub fn mutant_of_bytes(data: &[u8], seed: u64) -> Vec<u8> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut bytes = data.to_vec();
    for _ in 0..rng.random_range(1..5) {
        let n = bytes.len();
        let at = rng.random_range(0..n.max(1));
        match rng.random_range(0..5) {
            0 if n > 0 => bytes[at] ^= 1 << rng.random_range(0..8),
            1 if n > 0 => bytes[at] = rng.random(),
            2 if n > 0 => drop(bytes.drain(at..n.min(at + rng.random_range(1..9)))),
            3 if n > 0 => {
                let part = bytes[at..n.min(at + rng.random_range(1..MOST_MORE))].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let part: Vec<u8> = (0..rng.random_range(1..9)).map(|_| rng.random()).collect();
                bytes.splice(at.min(n)..at.min(n), part);
            }
        }
    }
    bytes
}
