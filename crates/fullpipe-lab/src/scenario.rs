//! Scenarios: any programs on the two ends of an emulated path, described in TOML.

use std::collections::BTreeMap;
use std::path::Path;

use fullpipe_path::{LabPath, Size, Time};
use serde::{Deserialize, Serialize};

use crate::boot::Done;
use crate::error::LabError;
use crate::job::{Folder, Job, Program, ProgramReport, file};

/// A scenario file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The path between the ends.
    path: LabPath,
    /// Seeds everything random.
    #[serde(default = "one")]
    seed: u64,
    /// Size of the memory-backed folder `/space` of each end.
    #[serde(default)]
    space: Option<Size>,
    /// Folders of the host that the ends see, and may write to where it says so.
    #[serde(default)]
    folders: Vec<Folder>,
    /// Virtual time after which the scenario is over in any case.
    #[serde(default)]
    until: Option<Time>,
    /// Between looks at the bottleneck's queue.
    #[serde(default = "tenth")]
    sample: Time,
    /// Memory of the guest, if what the path needs is not enough.
    #[serde(default)]
    pub memory: Option<Size>,
    /// Kernel settings of both ends.
    #[serde(default)]
    sysctl: BTreeMap<String, String>,
    /// The programs.
    program: Vec<Program>,
}

fn one() -> u64 {
    1
}

fn tenth() -> Time {
    Time(100_000_000)
}

impl Scenario {
    /// Reads a file.
    ///
    /// # Errors
    /// Unreadable, not TOML, an unknown key, a value that does not parse, no program.
    pub fn read(file: &Path) -> Result<Scenario, LabError> {
        let wrong = |why: String| LabError::Scenario { file: file.to_owned(), why };
        let text = std::fs::read_to_string(file).map_err(|e| wrong(e.to_string()))?;
        // The two kinds of file are easily confused.
        if LabPath::from_toml(&text).is_ok() {
            let name = file.display();
            return Err(wrong(format!("it is a path without programs; measure it with 'fullpipe measure {name}'")));
        }
        let scenario: Scenario = toml::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        if scenario.program.is_empty() {
            return Err(wrong("it has no [[program]]; give at least one".into()));
        }
        for program in &scenario.program {
            if program.run.is_empty() {
                return Err(wrong("a [[program]] with an empty 'run'".into()));
            }
        }
        if !scenario.program.iter().any(Program::waited) && scenario.until.is_none() {
            return Err(wrong("nothing ends it: give a program on end a, one with wait = true, or 'until'".into()));
        }
        if scenario.sample < Time(1_000_000) {
            return Err(wrong(format!("sample = {}: the least is 1ms", scenario.sample)));
        }
        Ok(scenario)
    }

    /// What the guest is to do.
    pub fn into_job(self) -> Job {
        Job {
            path: self.path,
            seed: self.seed,
            programs: self.program,
            space: self.space,
            folders: self.folders,
            sysctl: self.sysctl,
            sample: self.sample,
            until: self.until,
            linger: Time(0),
        }
    }

    /// The kernel that the path asks for.
    pub fn kernel(&self) -> Option<&str> {
        self.path.kernel.as_deref()
    }
}

/// One program's part of a scenario's result.
#[derive(Debug, Serialize)]
pub struct ProgramResult {
    /// Where it ran.
    pub end: &'static str,
    /// Its command.
    pub run: Vec<String>,
    /// How and when it ended.
    #[serde(flatten)]
    pub report: ProgramReport,
    /// What it printed.
    pub stdout: String,
    /// What it printed to stderr.
    pub stderr: String,
}

/// Each program's result, in the scenario's order.
pub fn results(job: &Job, done: &Done) -> Vec<ProgramResult> {
    let read = |name: String| {
        std::fs::read(done.out(&name)).map_or_else(|_| String::new(), |b| String::from_utf8_lossy(&b).into_owned())
    };
    job.programs
        .iter()
        .zip(&done.report.programs)
        .enumerate()
        .map(|(i, (program, report))| ProgramResult {
            end: program.end.name(),
            run: program.run.clone(),
            report: report.clone(),
            stdout: read(file::stdout(i)),
            stderr: read(file::stderr(i)),
        })
        .collect()
}
