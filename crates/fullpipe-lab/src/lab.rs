//! The testbed as the rest of fullpipe uses it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fullpipe_path::record::Outcome;
use fullpipe_path::{Buffer, ExitClass, LabPath, Run, Size, Time, Workload};
use serde_json::{Value, json};

use crate::boot::{self, Boot, Done};
use crate::error::LabError;
use crate::job::{End, Ended, Folder, Job, Program, file};
use crate::{kernel, record};

/// With less the guest's kernel does not come up, and spins.
const LEAST_MEMORY: Size = Size(64_000_000);

/// A kernel that is ready to boot.
pub struct Lab {
    kernel: kernel::Kernel,
    cache: PathBuf,
    memory: Option<Size>,
}

/// A run's record.
pub struct LabMeasured {
    /// NDJSON.
    pub text: String,
    /// Its last line.
    pub outcome: Outcome,
}

impl Lab {
    /// Finds the newest kernel that was built, or the newest of a version.
    ///
    /// # Errors
    /// There is none, or this is not x86-64.
    pub fn open(version: Option<&str>) -> Result<Lab, LabError> {
        let cache = kernel::cache_folder()?;
        let kernel = kernel::find(&cache, version)?;
        Ok(Lab { kernel, cache, memory: None })
    }

    /// Gives guests this much memory instead of what the path needs.
    pub fn with_memory(mut self, memory: Option<Size>) -> Lab {
        self.memory = memory;
        self
    }

    /// Boots a guest and runs a job to its end. `progress` is told virtual seconds and bytes through
    /// the bottleneck.
    ///
    /// # Errors
    /// The guest's.
    pub fn run(&self, job: &Job, limit: Duration, progress: &dyn Fn(f64, u64)) -> Result<Done, LabError> {
        self.run_in(memory(job), job, limit, progress)
    }

    fn run_in(&self, memory: u64, job: &Job, limit: Duration, progress: &dyn Fn(f64, u64)) -> Result<Done, LabError> {
        if let Some(given) = self.memory.filter(|given| *given < LEAST_MEMORY) {
            return Err(LabError::TooLittleMemory { given, least: LEAST_MEMORY });
        }
        let memory = self.memory.map_or(memory, |Size(bytes)| bytes);
        let seats = self.cache.join("seats");
        boot::boot(&Boot { kernel: &self.kernel.executable, memory, limit, seats: &seats }, job, progress)
    }

    /// Measures one run with these programs at the ends; the client prints the record. `progress` is told the fraction done,
    /// and the rate in words.
    ///
    /// # Errors
    /// The guest's, or that of either program in it.
    pub fn measure(
        &self,
        run: &Run,
        path: &LabPath,
        commands: &Commands,
        limit: Duration,
        progress: &dyn Fn(f64, &str),
    ) -> Result<LabMeasured, LabError> {
        let job = commands.job(path, run.seed, run.sample);
        let memory = memory(&job) + samples(run, path) * SAMPLE + u64::from(run.transport.streams) * STREAM;
        let done = self.run_in(memory, &job, limit, &|seconds, bytes| {
            let fraction = match run.workload {
                Workload::Size(Size(total)) => bytes as f64 / total as f64,
                Workload::Duration(time) => seconds / time.seconds(),
            };
            progress(fraction.min(1.0), &format!("{:.2} Gb/s", bytes as f64 * 8e-9 / seconds.max(1e-9)));
        })?;
        check_programs(&job, &done)?;
        let text = fs::read_to_string(done.out(&file::stdout(1)))
            .map_err(|source| LabError::Host { what: "reading the guest's record".into(), source })?;
        let (text, outcome) = record::merge(&text, &done.report, &real(&done)).map_err(LabError::Guest)?;
        Ok(LabMeasured { text, outcome })
    }
}

/// What of a run is of the host, not of the guest.
fn real(done: &Done) -> BTreeMap<String, Value> {
    let mut real: BTreeMap<String, Value> = BTreeMap::new();
    let ended = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    real.insert("ended_unix_s".into(), json!(ended.as_secs()));
    real.insert("wall_s".into(), json!(done.wall_s));
    real.insert("memory_bytes".into(), json!(done.memory_peak));
    if let Ok(host) = nix::unistd::gethostname() {
        real.insert("host".into(), json!(host.to_string_lossy()));
    }
    real
}

/// A copy in the testbed.
pub struct LabCopy<'a> {
    /// The path between the ends.
    pub path: &'a LabPath,
    /// Seeds everything random.
    pub seed: u64,
    /// The server that writes the files, and the copy that sends them.
    pub commands: Commands,
    /// Folders of the host that the near end reads.
    pub sources: Vec<PathBuf>,
    /// The folder of the host that the far end writes to.
    pub target: PathBuf,
}

/// What a copy in the testbed printed.
pub struct LabCopied {
    /// On standard output.
    pub stdout: String,
    /// On standard error.
    pub stderr: String,
    /// How the copy ended, as an exit code.
    pub code: i32,
    /// What the path saw.
    pub report: crate::job::Report,
    /// The record, if the copy was to write one to [`RECORD`].
    pub record: Option<String>,
}

/// Where a copy in the testbed writes its record.
pub const RECORD: &str = "/.fullpipe/out/record.ndjson";

/// Where the guest sees this host's `/`, if a copy reads or writes there. Other folders are where they are here.
pub const TOP: &str = "/.fullpipe/top";

/// Address of the end at which the server runs.
pub const SERVER_ADDRESS: &str = "10.0.2.1";

/// Command lines of a server and of its client, each at its end of the path.
pub struct Commands {
    /// The server's, which listens at [`SERVER_ADDRESS`].
    pub server: Vec<String>,
    /// The client's.
    pub client: Vec<String>,
}

impl Commands {
    /// The job that runs both. The client starts when the server listens.
    fn job(&self, path: &LabPath, seed: u64, sample: Time) -> Job {
        let program = |end, run: &[String], start| Program {
            end,
            run: run.to_vec(),
            start,
            stop: None,
            env: BTreeMap::new(),
            wait: None,
        };
        Job {
            path: path.clone(),
            seed,
            programs: vec![program(End::B, &self.server, Time(0)), program(End::A, &self.client, Time(10_000_000))],
            space: None,
            folders: Vec::new(),
            sysctl: BTreeMap::new(),
            sample,
            until: None,
            linger: Time(0),
        }
    }
}

impl Lab {
    /// Copies files of this host over an emulated path into another folder of it, with this program at both
    /// ends.
    ///
    /// # Errors
    /// The guest's.
    pub fn copy(
        &self,
        copy: &LabCopy<'_>,
        limit: Duration,
        progress: &dyn Fn(f64, u64),
    ) -> Result<LabCopied, LabError> {
        let folder = |end, path: &PathBuf, write| Folder { end, path: path.clone(), write };
        let mut folders: Vec<Folder> = copy.sources.iter().map(|path| folder(End::A, path, false)).collect();
        folders.push(folder(End::B, &copy.target, true));
        let mut job = copy.commands.job(copy.path, copy.seed, Time(100_000_000));
        job.folders = folders;
        job.linger = Time(2 * copy.path.rtt.0);
        // Pages of the source that are in flight stay in memory, and slow start may send several times what
        // the path holds. Memory that is not touched costs nothing.
        let held = (job.path.bdp() + job.path.queue.0) * 8;
        let done = self.run_in(memory(&job) + COPY + held, &job, limit, progress)?;
        let read = |name: String| fs::read_to_string(done.out(&name)).unwrap_or_default();
        let code = match done.report.programs.get(1).map(|report| &report.ended) {
            Some(Ended::Exit(code)) => *code,
            _ => ExitClass::Lab as i32,
        };
        let record = match read("record.ndjson".into()) {
            text if text.is_empty() => None,
            text => Some(record::merge(&text, &done.report, &real(&done)).map_err(LabError::Guest)?.0),
        };
        Ok(LabCopied {
            record,
            stdout: read(file::stdout(1)),
            stderr: read(file::stderr(1)),
            code,
            report: done.report,
        })
    }
}

/// Bytes that both ends of a copy take: blocks in memory, and pages of files until they are written.
const COPY: u64 = 768 << 20;

/// An error of the first program that failed and was not asked to end; of the one that was waited for
/// before the others, since these may only have lost it.
pub(crate) fn check_programs(job: &Job, done: &Done) -> Result<(), LabError> {
    let mut order: Vec<usize> = (0..job.programs.len()).collect();
    order.sort_by_key(|&i| !job.programs[i].waited());
    for i in order {
        let (program, Some(report)) = (&job.programs[i], done.report.programs.get(i)) else { continue };
        let (how, class) = match &report.ended {
            Ended::Exit(0) => continue,
            _ if report.stopped => continue,
            Ended::Exit(code) => (format!("failed with status {code}"), ExitClass::from_code(*code)),
            Ended::Signal(signal) => (format!("was killed by signal {signal}"), None),
            Ended::NotStarted(why) => (format!("could not be started: {why}"), None),
        };
        let is_ours = program.run.first().is_some_and(|name| name == "fullpipe");
        return Err(LabError::Program {
            program: program.run.join(" "),
            end: program.end.name(),
            how,
            output: tail(&done.out(&file::stderr(i))),
            class: class.filter(|_| is_ours).unwrap_or(ExitClass::Lab),
        });
    }
    Ok(())
}

/// The end of a program's output, as one line.
fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(3)..];
    last.join(" | ").trim_start_matches("error: ").to_owned()
}

/// Bytes of memory that a job's guest may use: what is in flight and queued, at the size that it has
/// in the kernel, and room for the kernel, the programs and their files. Packets sent by reference hold
/// no payload of their own, but other programs' do.
fn memory(job: &Job) -> u64 {
    let path = &job.path;
    let in_flight = path.bdp() + path.queue.0 * 2;
    let per_byte = if path.mtu == 9000 { 1.3 } else { 2.2 };
    let files = job.space.map_or(0, |Size(bytes)| bytes * 2);
    let base = 192 << 20;
    base + (in_flight as f64 * per_byte) as u64 + files
}

/// Bytes that a sample may take in the guest: at both ends, on the way between them, and in the record
/// until the host has it.
const SAMPLE: u64 = 4096;

/// Bytes that a stream takes beyond what is in flight: what waits to be sent is there by reference, but
/// each packet of it has a description.
const STREAM: u64 = 3 << 20;

/// How many samples a run takes, both ends and all streams, if nothing but the window limits it.
fn samples(run: &Run, path: &LabPath) -> u64 {
    let streams = u64::from(run.transport.streams);
    let seconds = match (run.workload, run.transport.buffer) {
        (Workload::Duration(time), _) => time.seconds(),
        (Workload::Size(Size(size)), buffer) => {
            let window = match buffer {
                Buffer::Bytes(Size(bytes)) => (bytes * streams) as f64 * 8.0 / path.rtt.seconds().max(1e-6),
                Buffer::Auto => f64::INFINITY,
            };
            size as f64 * 8.0 / window.min(path.rate.0 as f64)
        }
    };
    (seconds / run.sample.seconds()) as u64 * streams * 2
}
