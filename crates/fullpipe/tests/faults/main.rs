//! Faults in virtual time: scenarios drawn from a seed, in each of which a copy is disturbed again and
//! again, and in the end is whole.
//!
//! Each seed is a guest of its own, whose first process is this very program; in it this program is also the
//! driver, and `fullpipe` what is tested. `FULLPIPE_FAULT_SEEDS=1-500` runs others than the first 40,
//! `FULLPIPE_FAULT_SEEDS=17` one and tells all that happened.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "a test may panic")]

mod drive;
mod host;
mod plan;
mod relay;
mod tree;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
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

fn seeds() -> (u64, u64) {
    let Ok(text) = std::env::var("FULLPIPE_FAULT_SEEDS") else { return (1, 40) };
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    (first.parse().expect("FULLPIPE_FAULT_SEEDS=FIRST-LAST"), last.parse().expect("FULLPIPE_FAULT_SEEDS=FIRST-LAST"))
}

/// Runs all seeds; says which failed, and how.
fn all() -> ExitCode {
    let (first, last) = seeds();
    let guests = std::env::var("FULLPIPE_FAULT_GUESTS").map_or(1, |text| text.parse().expect("a number of guests"));
    let (next, failed) = (AtomicU64::new(first), Mutex::new(BTreeMap::new()));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..guests {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed > last {
                        return;
                    }
                    let began = Instant::now();
                    let result = one(seed);
                    if first == last || result.is_err() || began.elapsed() > Duration::from_secs(20) {
                        let (Ok(log) | Err(log)) = &result;
                        println!("{log}seed {seed}: {:.1} s", began.elapsed().as_secs_f64());
                    }
                    if let Err(log) = result {
                        failed.lock().unwrap().insert(seed, log.lines().last().unwrap_or_default().to_owned());
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    for (seed, why) in &failed {
        println!("FAULT SEED {seed}: {why}\n  FULLPIPE_FAULT_SEEDS={seed} cargo test --release -p fullpipe --test faults");
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("faults: {} of {} seeds passed in {seconds:.0} s", last - first + 1 - failed.len() as u64, last - first + 1);
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
    let program = Program { end: End::A, run: run.to_vec(), start: Time(0), stop: None, env: BTreeMap::new(), wait: None };
    let job = Job {
        path: *path,
        seed,
        programs: vec![program],
        space: Some(Size(400_000_000)),
        folders: Vec::new(),
        sysctl: BTreeMap::new(),
        sample: Time(10_000_000_000),
        until: Some(Time(4 * 3600 * 1_000_000_000)),
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
