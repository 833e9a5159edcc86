//! Scenarios: any programs on the two ends of an emulated path, described in TOML.

use std::collections::BTreeMap;
use std::path::Path;

use fullpipe_path::{LabPath, PathChange, Size, Time};
use serde::{Deserialize, Serialize};

use crate::boot::Done;
use crate::error::LabError;
use crate::job::{Folder, Job, Program, ProgramReport, file};

/// A scenario file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The path between the ends, as it is at first.
    path: LabPath,
    /// What changes on it, and when.
    #[serde(default, rename = "change")]
    changes: Vec<PathChange>,
    /// When it changes, and the path from then on.
    #[serde(skip)]
    later: Vec<(Time, LabPath)>,
    /// Seed of all random numbers in the guest.
    #[serde(default = "one")]
    seed: u64,
    /// Size of the folder `/space` of each end, which is in memory.
    #[serde(default)]
    space: Option<Size>,
    /// Folders of the host that an end sees, and may write to if the folder says so.
    #[serde(default)]
    folders: Vec<Folder>,
    /// Virtual time at which the scenario ends in any case.
    #[serde(default)]
    until: Option<Time>,
    /// Time between two samples of the bottleneck's queue.
    #[serde(default = "tenth")]
    sample: Time,
    /// Memory of the guest, instead of what the path needs.
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
    /// Reads a scenario file.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML, has an unknown key or a value that does not parse, has no program, or would never
    /// end.
    pub fn read(file: &Path) -> Result<Scenario, LabError> {
        let wrong = |why: String| LabError::Scenario { file: file.to_owned(), why };
        let text = std::fs::read_to_string(file).map_err(|e| wrong(e.to_string()))?;
        // Users confuse files of paths with scenarios.
        if LabPath::from_toml(&text).is_ok() {
            let name = file.display();
            return Err(wrong(format!("it is a path without programs; measure it with 'fullpipe measure {name}'")));
        }
        let mut scenario: Scenario = toml::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        scenario.later = scenario.changed().map_err(wrong)?;
        if scenario.program.is_empty() {
            return Err(wrong("it has no [[program]]; give at least one".into()));
        }
        for program in &scenario.program {
            if program.run.is_empty() {
                return Err(wrong("a [[program]] with an empty 'run'".into()));
            }
            let ends = [("its stop", program.stop), ("until", scenario.until)];
            let late = ends.into_iter().find_map(|(what, end)| Some((what, end.filter(|end| *end <= program.start)?)));
            if let Some((what, end)) = late {
                let (run, start) = (program.run.join(" "), program.start);
                return Err(wrong(format!("'{run}' has start = {start}, and {what} is {end}; give an earlier start")));
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

    /// Returns the times at which the path changes, in order, and the path from each on.
    fn changed(&mut self) -> Result<Vec<(Time, LabPath)>, String> {
        self.changes.sort_by_key(|change| change.at);
        let mut path = self.path.clone();
        let change = |change: &PathChange| {
            path = change.apply(&path).map_err(|e| format!("the [[change]] at {}: {e}", change.at))?;
            Ok((change.at, path.clone()))
        };
        self.changes.iter().map(change).collect()
    }

    /// Returns the guest's job.
    pub fn into_job(self) -> Job {
        Job {
            path: self.path,
            changes: self.later,
            seed: self.seed,
            programs: self.program,
            space: self.space,
            folders: self.folders,
            sysctl: self.sysctl,
            sample: self.sample,
            until: self.until,
            linger: Time(0),
            mss: None,
        }
    }

    /// Returns the version of the kernel that the path asks for.
    pub fn kernel(&self) -> Option<&str> {
        self.path.kernel.as_deref()
    }
}

/// The result of one program of a scenario.
#[derive(Debug, Serialize)]
pub struct ProgramResult {
    /// End on which the program ran.
    pub end: &'static str,
    /// Command of the program.
    pub run: Vec<String>,
    /// How and when the program ended.
    #[serde(flatten)]
    pub report: ProgramReport,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// Returns the results of a job's programs, in the scenario's order.
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
