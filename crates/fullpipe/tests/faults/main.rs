//! Faults in virtual time: scenarios drawn from a seed, in each of which a copy is disturbed again and
//! again, and in the end is whole.
//!
//! Each seed is a guest of its own, whose first process is this very program; in it this program is also the
//! driver, and `fullpipe` what is tested. `FULLPIPE_FAULT_SEEDS=1-500` runs others than the usual 40,
//! `FULLPIPE_FAULT_SEEDS=17` one and tells all that happened; `FULLPIPE_FAULT_GUESTS=4` so many at once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "a test may panic")]

mod adversary;
mod drive;
mod host;
mod plan;
mod relay;
mod tree;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fullpipe_lab::Lab;
use fullpipe_lab::job::{End, Ended, Job, Program, file};
use fullpipe_path::{Path, Size, Time};

/// Real time after which a guest is given up: something in it does not let time pass.
const LIMIT: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    if fullpipe_lab::guest::is_guest() {
        return fullpipe_lab::guest::init();
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["drive", seed, program] => drive::main(seed.parse().unwrap(), program),
        ["--list", ..] => ExitCode::SUCCESS,
        _ if words.iter().any(|word| !word.starts_with('-') && !"faults".contains(word.as_str())) => ExitCode::SUCCESS,
        _ => all(),
    }
}

/// Seeds that once found something, and are not among the first.
const REGRESSIONS: [u64; 7] = [65, 236, 303, 317, 338, 422, 460];

fn seeds() -> Vec<u64> {
    let number = |text: &str| text.trim().parse::<u64>().expect("FULLPIPE_FAULT_SEEDS=FIRST-LAST,SEED,...");
    match std::env::var("FULLPIPE_FAULT_SEEDS") {
        Err(_) => (1..=40 - REGRESSIONS.len() as u64).chain(REGRESSIONS).collect(),
        Ok(text) => text
            .split(',')
            .flat_map(|part| {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                number(first)..=number(last)
            })
            .collect(),
    }
}

/// Runs all seeds; says which failed, and how.
fn all() -> ExitCode {
    let seeds = seeds();
    let guests = std::env::var("FULLPIPE_FAULT_GUESTS").map_or(1, |text| text.parse().expect("a number of guests"));
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..guests {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let began = Instant::now();
                    let result = one(*seed);
                    if seeds.len() == 1 || result.is_err() {
                        let (Ok(log) | Err(log)) = &result;
                        println!("{log}seed {seed}: {:.1} s", began.elapsed().as_secs_f64());
                    }
                    if let Err(log) = result {
                        failed.lock().unwrap().insert(*seed, log.lines().last().unwrap_or_default().to_owned());
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    for (seed, why) in &failed {
        println!(
            "FAULT SEED {seed}: {why}\n  FULLPIPE_FAULT_SEEDS={seed} cargo test --release -p fullpipe --test faults"
        );
    }
    let (all, seconds) = (seeds.len(), began.elapsed().as_secs_f64());
    println!("faults: {} of {all} seeds passed in {seconds:.0} s", all - failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Where a guest sees a program of this host.
fn in_guest(program: &str) -> String {
    let hidden = ["/tmp/", "/run/"].iter().any(|folder| program.starts_with(folder));
    if hidden { format!("/host{program}") } else { program.to_owned() }
}

/// Runs a seed; gives what happened, well or not.
fn one(seed: u64) -> Result<String, String> {
    let plan = plan::Plan::new(seed);
    // Probabilities that never strike, so that there is something to set later.
    let path = format!("lab:rtt={}us,rate={}mbit,loss=1e-9,loss_back=1e-9", plan.rtt.as_micros(), plan.mbits);
    let Ok(Path::Lab(path)) = path.parse::<Path>() else { panic!("{path}") };
    let run = ["fullpipe", "drive", &seed.to_string(), &in_guest(env!("CARGO_BIN_EXE_fullpipe"))].map(str::to_owned);
    let program =
        Program { end: End::A, run: run.to_vec(), start: Time(0), stop: None, env: BTreeMap::new(), wait: None };
    let job = Job {
        path: *path,
        seed,
        programs: vec![program],
        space: Some(Size(400_000_000)),
        folders: Vec::new(),
        sysctl: BTreeMap::new(),
        sample: Time(10_000_000_000),
        until: Some(Time(4 * 3600 * 1_000_000_000)),
        linger: Time(0),
    };
    let lab = Lab::open(None).map_err(|e| e.to_string())?.with_memory(Some(Size(1_500_000_000)));
    let done = lab.run(&job, LIMIT, &|_, _| {}).map_err(|e| format!("{}\n{e}\n", plan.told()))?;
    let mut log = String::from_utf8_lossy(&std::fs::read(done.out(&file::stdout(0))).unwrap_or_default()).into_owned();
    log += &String::from_utf8_lossy(&std::fs::read(done.out(&file::stderr(0))).unwrap_or_default());
    match &done.report.programs[0].ended {
        Ended::Exit(0) => Ok(log),
        Ended::Exit(1) => Err(log),
        other => Err(format!("{log}the driver ended: {other:?}\n")),
    }
}
