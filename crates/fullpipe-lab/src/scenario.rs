//! Scenarios: any programs on the two ends of an emulated path, described in TOML.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fullpipe_path::{LabPath, PathChange, Size, Time};
use serde::{Deserialize, Serialize, Serializer};

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
    /// Folders of the host that an end sees, and may write to if the folder and the user say so.
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
    /// Reads a scenario file. Its programs may write to folders of this host only below `writable`: the file may be another
    /// user's.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML, has an unknown key or a value that does not parse, has no program, would never
    /// end, or asks for a folder to write to that is not below `writable`.
    pub fn read(file: &Path, writable: &[PathBuf]) -> Result<Scenario, LabError> {
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
        scenario.check_folders(writable).map_err(wrong)?;
        Ok(scenario)
    }

    /// Checks the folders of the host.
    fn check_folders(&self, writable: &[PathBuf]) -> Result<(), String> {
        let cannot = |path: &Path, error| format!("the folder {}: {error}; give one that exists", path.display());
        for Folder { path, write, .. } in &self.folders {
            if !path.is_absolute() {
                return Err(format!("a [[folders]] has path = {path:?}; give an absolute path"));
            }
            if !write {
                continue;
            }
            // Without links and `..`, by which a folder may be elsewhere than its name says.
            let real = path.canonicalize().map_err(|error| cannot(path, error))?;
            let may_write = |above: &PathBuf| above.canonicalize().is_ok_and(|above| real.starts_with(above));
            if !writable.iter().any(may_write) {
                let real = real.display();
                return Err(format!("its programs want to write to {real}; if they may, add --write {real}"));
            }
        }
        Ok(())
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
    /// Its standard output, as text in JSON.
    #[serde(serialize_with = "as_text")]
    pub stdout: Vec<u8>,
    /// Its standard error, as text in JSON.
    #[serde(serialize_with = "as_text")]
    pub stderr: Vec<u8>,
}

/// Writes bytes as text. What is not UTF-8 becomes the replacement character.
fn as_text<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&String::from_utf8_lossy(bytes))
}

/// Returns the results of a job's programs, in the scenario's order.
pub fn results(job: &Job, done: &Done) -> Vec<ProgramResult> {
    let read = |name: String| std::fs::read(done.out(&name)).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_text_for_bytes() {
        let report = ProgramReport { ended: crate::job::Ended::Exit(0), start_s: 0.0, end_s: 1.0, stopped: false };
        let result = ProgramResult { end: "a", run: Vec::new(), report, stdout: b"\xffok".into(), stderr: Vec::new() };
        let json = serde_json::to_value(result).unwrap();
        assert_eq!((&json["stdout"], &json["stderr"]), (&"\u{fffd}ok".into(), &"".into()));
    }

    #[test]
    fn a_file_cannot_write_where_the_user_has_not_said_so() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s.toml");
        let [given, beside] = ["given", "beside"].map(|name| dir.path().join(name));
        let (inner, link) = (given.join("inner"), given.join("link"));
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::create_dir(&beside).unwrap();
        std::os::unix::fs::symlink(&beside, &link).unwrap();
        let read = |folder: &Path, write: bool, writable: &[PathBuf]| {
            let text = format!(
                "path = {{ rtt = '1ms', rate = '1gbit' }}\n[[folders]]\nend = 'b'\npath = {folder:?}\nwrite = {write}\n\
                 [[program]]\nend = 'a'\nrun = ['true']\n"
            );
            std::fs::write(&file, text).unwrap();
            Scenario::read(&file, writable).map(drop).map_err(|error| error.to_string())
        };
        let given = [given];
        assert_eq!(read(&given[0], false, &[]), Ok(()));
        let refused = read(&given[0], true, &[]).unwrap_err();
        assert!(refused.ends_with(&format!("add --write {}", given[0].display())), "{refused}");
        assert_eq!(read(&given[0], true, &given), Ok(()));
        assert_eq!(read(&inner, true, &given), Ok(()));
        for outside in [&link, &given[0].join("../beside"), dir.path()] {
            assert!(read(outside, true, &given).unwrap_err().contains("--write"), "{}", outside.display());
        }
        assert!(read(Path::new("given"), false, &[]).unwrap_err().contains("give an absolute path"));
        assert!(read(Path::new("/no/such"), true, &given).unwrap_err().contains("give one that exists"));
    }
}
