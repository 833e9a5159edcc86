//! Runs a seeded suite: which seeds, how many guests at once, and what is printed about them.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// A suite of scenarios, each drawn from a seed and run in a guest of its own.
pub struct Suite {
    /// The name of its test target.
    pub name: &'static str,
    /// First part of the names of its environment variables: `_SEEDS` selects seeds, `_ONLY` those of them that have
    /// what it names, `_GUESTS` sets how many guests run at once.
    pub variables: &'static str,
    /// Without a selection, the seeds from 1 to this one are run.
    pub usual: u64,
    /// Further seeds that are run without a selection.
    pub more: &'static [u64],
    /// Guests that run at once unless the variable says otherwise.
    pub guests: usize,
    /// Whether the scenario of a seed has what the second argument names.
    pub has: fn(u64, &str) -> bool,
}

impl Suite {
    fn seeds(&self) -> Vec<u64> {
        let variable = format!("{}_SEEDS", self.variables);
        let number = |text: &str| {
            text.trim().parse::<u64>().unwrap_or_else(|_| panic!("{variable} is not of the form FIRST-LAST,SEED,..."))
        };
        let selected: Vec<u64> = match std::env::var(&variable) {
            Err(_) => (1..=self.usual).chain(self.more.iter().copied()).collect(),
            Ok(text) => text
                .split(',')
                .flat_map(|part| {
                    let (first, last) = part.split_once('-').unwrap_or((part, part));
                    number(first)..=number(last)
                })
                .collect(),
        };
        match std::env::var(format!("{}_ONLY", self.variables)) {
            Ok(what) => selected.into_iter().filter(|seed| (self.has)(*seed, &what)).collect(),
            Err(_) => selected,
        }
    }

    fn guests(&self) -> usize {
        let variable = std::env::var(format!("{}_GUESTS", self.variables));
        variable.map_or(self.guests, |text| text.parse().expect("a number of guests"))
    }
}

/// Runs all seeds of a suite, prints the log of each that failed, and how to run it again. `one` runs one seed and
/// returns its log.
pub fn run(suite: &Suite, one: impl Fn(u64) -> Result<String, String> + Sync) -> ExitCode {
    let seeds = suite.seeds();
    let (next, failed, slowest) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()), Mutex::new((0.0, 0)));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..suite.guests() {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let began = Instant::now();
                    let result = one(*seed);
                    let took = began.elapsed().as_secs_f64();
                    if seeds.len() == 1 || result.is_err() {
                        let (Ok(log) | Err(log)) = &result;
                        println!("{log}seed {seed}: {took:.1} s");
                    }
                    let mut slowest = slowest.lock().unwrap();
                    if took > slowest.0 {
                        *slowest = (took, *seed);
                    }
                    if let Err(log) = result {
                        failed.lock().unwrap().insert(*seed, log.lines().last().unwrap_or_default().to_owned());
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    let (name, variables) = (suite.name, suite.variables);
    for (seed, why) in &failed {
        println!(
            "{name} seed {seed}: {why}\n  {variables}_SEEDS={seed} cargo test --profile checks -p fullpipe --test {name}"
        );
    }
    let (all, seconds) = (seeds.len(), began.elapsed().as_secs_f64());
    let (slowest, seed) = slowest.into_inner().unwrap();
    println!(
        "{name}: {} of {all} seeds passed in {seconds:.0} s, the slowest ({seed}) in {slowest:.0} s",
        all - failed.len()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
