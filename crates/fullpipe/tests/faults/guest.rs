//! Boots a guest in which this program carries a seed's plan out.

use std::collections::BTreeMap;
use std::time::Duration;

use fullpipe_lab::Lab;
use fullpipe_lab::job::{End, Ended, Job, Program, file};
use fullpipe_path::{Path, Size, Time};

/// Real time after which a guest is given up: something in it does not let time pass.
const LIMIT: Duration = Duration::from_secs(600);

/// Where a guest sees a program of this host.
fn in_guest(program: &str) -> String {
    let hidden = ["/tmp/", "/run/"].iter().any(|folder| program.starts_with(folder));
    if hidden { format!("/host{program}") } else { program.to_owned() }
}

/// Runs `drive SEED FULLPIPE` of this program at end a of a `lab:` path. Returns what it printed; as an error if it
/// failed, or if the guest did; then `told`, the plan in words, precedes the guest's error.
pub fn drive(seed: u64, path: &str, told: &str) -> Result<String, String> {
    let Ok(Path::Lab(path)) = path.parse::<Path>() else { panic!("{path}") };
    let run = ["fullpipe", "drive", &seed.to_string(), &in_guest(env!("CARGO_BIN_EXE_fullpipe"))].map(str::to_owned);
    let program =
        Program { end: End::A, run: run.to_vec(), start: Time(0), stop: None, env: BTreeMap::new(), wait: None };
    let job = Job {
        path: *path,
        changes: Vec::new(),
        seed,
        programs: vec![program],
        space: Some(Size(400_000_000)),
        folders: Vec::new(),
        sysctl: BTreeMap::new(),
        sample: Time(10_000_000_000),
        until: Some(Time(4 * 3600 * 1_000_000_000)),
        linger: Time(0),
        mss: None,
    };
    let lab = Lab::open(None).map_err(|e| format!("{e}\n"))?.with_memory(Some(Size(1_500_000_000)));
    let done = lab.run(&job, LIMIT, &|_, _| {}).map_err(|e| format!("{told}\n{e}\n"))?;
    let mut log = String::from_utf8_lossy(&std::fs::read(done.out(&file::stdout(0))).unwrap_or_default()).into_owned();
    log += &String::from_utf8_lossy(&std::fs::read(done.out(&file::stderr(0))).unwrap_or_default());
    match &done.report.programs[0].ended {
        Ended::Exit(0) => Ok(log),
        Ended::Exit(1) => Err(log),
        other => Err(format!("{log}the driver ended: {other:?}\n")),
    }
}
