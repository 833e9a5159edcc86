//! Runs measurements, copies and scenarios in the testbed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fullpipe_path::record::Outcome;
use fullpipe_path::record::lines::{DirectionView, PathView, add_path};
use fullpipe_path::{Buffer, ExitClass, LabPath, Protocol, Run, Size, Time, Transport, Workload};
use serde_json::{Value, json};

use crate::boot::{self, Boot, Done};
use crate::error::LabError;
use crate::job::{End, Ended, Folder, Job, Program, QueueSample, TOOL_FOLDERS, file};
use crate::kernel;

/// Least memory of a guest. With less, its kernel does not boot, and spins.
const MIN_MEMORY: Size = Size(64_000_000);

/// The testbed: a guest kernel that is ready to boot.
pub struct Lab {
    kernel: kernel::Kernel,
    cache: PathBuf,
    /// Memory of every guest; `None` for what its path needs.
    memory: Option<Size>,
}

/// Checks that this host has the programs that make the disks of a job.
fn check_disk_tools(job: &Job, folders: &str) -> Result<(), LabError> {
    let is_here = |tool: &str| std::env::split_paths(folders).any(|folder| folder.join(tool).is_file());
    match job.disk_tools().into_iter().find(|(tool, _)| !is_here(tool)) {
        Some((tool, package)) => Err(LabError::NoDiskTool { tool, package }),
        None => Ok(()),
    }
}

/// The record of a measurement in the testbed.
pub struct LabMeasured {
    /// The whole record, NDJSON.
    pub text: String,
    /// Its result, which is its last line.
    pub outcome: Outcome,
}

impl Lab {
    /// Finds the newest kernel that has been built, or the newest of a version.
    ///
    /// # Errors
    /// There is no such kernel, or this machine is not x86-64.
    pub fn open(version: Option<&str>) -> Result<Lab, LabError> {
        let cache = kernel::cache_folder()?;
        let kernel = kernel::find(&cache, version)?;
        Ok(Lab { kernel, cache, memory: None })
    }

    /// Sets the memory of guests, instead of what their paths need.
    pub fn with_memory(mut self, memory: Option<Size>) -> Lab {
        self.memory = memory;
        self
    }

    /// Boots a guest and runs a job to its end. `limit` is real time. `progress` is called with seconds of virtual time and
    /// bytes that went through the bottleneck.
    ///
    /// # Errors
    /// The guest cannot boot, or ends without a report.
    pub fn run(&self, job: &Job, limit: Duration, progress: &dyn Fn(f64, u64)) -> Result<Done, LabError> {
        self.run_in(memory(job), job, limit, progress)
    }

    fn run_in(&self, memory: u64, job: &Job, limit: Duration, progress: &dyn Fn(f64, u64)) -> Result<Done, LabError> {
        if let Some(given) = self.memory.filter(|given| *given < MIN_MEMORY) {
            return Err(LabError::TooLittleMemory { given, least: MIN_MEMORY });
        }
        check_disk_tools(job, TOOL_FOLDERS)?;
        let memory = self.memory.map_or(memory, |Size(bytes)| bytes);
        let seats = self.cache.join("seats");
        boot::boot(&Boot { kernel: &self.kernel.executable, memory, limit, seats: &seats }, job, progress)
    }

    /// Measures with these programs at the ends. The client prints the record of a run, or with [`Run::bidir`] one of each
    /// direction; in a run between disks it writes the record to [`RECORD`](crate::job::RECORD). Returns the records in the order
    /// in which they were printed. `progress` is called with the fraction done and the rate as text.
    ///
    /// # Errors
    /// The guest or one of the programs fails.
    pub fn measure(
        &self,
        run: &Run,
        path: &LabPath,
        commands: &Commands,
        limit: Duration,
        progress: &dyn Fn(f64, &str),
    ) -> Result<Vec<LabMeasured>, LabError> {
        let mut job = commands.job(path, run.seed, run.sample);
        job.mss = run.transport.mss;
        let directions = if run.bidir { 2 } else { 1 };
        let of_run = samples(run, path) * SAMPLE_BYTES + streams_bytes(&run.transport, path);
        let mut memory = memory(&job) + directions * of_run;
        if run.disks.is_some() {
            job.linger = Time(2 * path.rtt.0);
            memory += COPY_BYTES + most_in_flight(path);
        }
        let done = self.run_in(memory, &job, limit, &|seconds, bytes| {
            let fraction = match run.workload {
                Workload::Size(Size(total)) => bytes as f64 / total as f64,
                Workload::Duration(time) => seconds / time.seconds(),
            };
            progress(fraction.min(1.0), &format!("{:.2} Gb/s", bytes as f64 * 8e-9 / seconds.max(1e-9)));
        })?;
        // The user has typed no command of the guest's, so the error leaves it out.
        check_programs(&job, &done).map_err(|error| with_losses(without_command(error), path))?;
        let record = if run.disks.is_some() { file::RECORD.to_owned() } else { file::stdout(1) };
        let text = fs::read_to_string(done.out(&record))
            .map_err(|source| LabError::Host { what: "reading the guest's record".into(), source })?;
        let whole = |text: &str| whole_record(text, &done).map(|(text, outcome)| LabMeasured { text, outcome });
        records(&text, "run").into_iter().map(whole).collect()
    }
}

/// What a program in the testbed has printed.
pub struct LabPrinted {
    /// Its standard output.
    pub text: String,
    /// Facts of the run that depend on the host and on real time.
    pub real: BTreeMap<String, Value>,
}

impl Lab {
    /// Runs one program at end a. `progress` is called with the bytes that went through the bottleneck, either way.
    ///
    /// # Errors
    /// The guest or the program fails.
    pub fn run_at_a(
        &self,
        path: &LabPath,
        seed: u64,
        program: Vec<String>,
        limit: Duration,
        progress: &dyn Fn(u64),
    ) -> Result<LabPrinted, LabError> {
        let commands = Commands { server: Vec::new(), client: program };
        let mut job = commands.job(path, seed, Time(100_000_000));
        job.programs.remove(0);
        let done = self.run_in(memory(&job), &job, limit, &|_, bytes| progress(bytes))?;
        // The user has typed no command of the guest's, so the error leaves it out.
        check_programs(&job, &done).map_err(without_command)?;
        let text = fs::read_to_string(done.out(&file::stdout(0)))
            .map_err(|source| LabError::Host { what: "reading the guest's output".into(), source })?;
        Ok(LabPrinted { text, real: real(&done) })
    }
}

/// An error of a program of ours as that program said it.
fn without_command(error: LabError) -> LabError {
    match error {
        LabError::Program { output, class, .. } if !output.is_empty() => LabError::Run { why: output, class },
        other => other,
    }
}

/// Least random loss that may be why two programs lose each other.
const HEAVY_LOSS: f64 = 0.1;

/// An error of a run, with the losses of its path if they may be the reason.
fn with_losses(error: LabError, path: &LabPath) -> LabError {
    let (loss, way) = [(path.loss.get(), ""), (path.loss_back.get(), " on the way back")]
        .into_iter()
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .unwrap_or_default();
    match error {
        LabError::Run { why, class: class @ (ExitClass::Peer | ExitClass::Failed) } if loss >= HEAVY_LOSS => {
            let percent = (loss * 1e3).round() / 10.0;
            LabError::Run { why: format!("{why}; the path loses {percent}% of its packets{way}"), class }
        }
        other => other,
    }
}

/// Splits what a program has printed into records: each begins with its line of this kind. What is wrong with a text that has
/// none is said when it is read.
pub fn records<'a>(text: &'a str, kind: &str) -> Vec<&'a str> {
    let begin = format!(r#"{{"kind":"{kind}""#);
    let begins = |at: &usize| *at == 0 || text.as_bytes()[at - 1] == b'\n';
    let starts: Vec<usize> = text.match_indices(&begin).map(|(at, _)| at).filter(begins).collect();
    match starts.split_first() {
        Some((_, later)) => {
            let ends = later.iter().copied().chain([text.len()]);
            starts.iter().zip(ends).map(|(from, to)| &text[*from..to]).collect()
        }
        None => vec![text],
    }
}

/// Facts of a run that depend on the host and on real time, for the record's `real`.
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

/// Adds what the testbed saw of the path to a record that the guest has written.
fn whole_record(text: &str, done: &Done) -> Result<(String, Outcome), LabError> {
    let report = &done.report;
    let of_sample = |sample: &QueueSample| (sample.ns, sample.backlog_bytes, sample.drops);
    let (mut forward, mut back) = (report.queue.iter().map(of_sample), report.queue_back.iter().map(of_sample));
    let path = PathView {
        forward: DirectionView {
            queue_drops: u64::from(report.forward.drops),
            queue_deepest_bytes: u64::from(report.deepest),
            random_losses: u64::from(report.impaired.drops),
            queue: &mut forward,
        },
        back: DirectionView {
            queue_drops: u64::from(report.back.drops),
            queue_deepest_bytes: u64::from(report.deepest_back),
            random_losses: u64::from(report.impaired_back.drops),
            queue: &mut back,
        },
        real: &real(done),
    };
    add_path(text, path).map_err(LabError::Guest)
}

/// A copy in the testbed.
pub struct LabCopy<'a> {
    /// Path between the two ends.
    pub path: &'a LabPath,
    /// Seed of all random numbers in the guest.
    pub seed: u64,
    /// The commands: a server that writes the files, and a copy that sends them.
    pub commands: Commands,
    /// Folders of the host that end a reads.
    pub sources: Vec<PathBuf>,
    /// Folder of the host that end b writes to; `None` if it writes to its emulated disk.
    pub target: Option<PathBuf>,
    /// The transport, if it is UDT, whose buffers take memory at both ends.
    pub udt: Option<Transport>,
}

/// The result of a copy in the testbed.
pub struct LabCopied {
    /// What the copy printed on standard output.
    pub stdout: String,
    /// What the copy printed on standard error.
    pub stderr: String,
    /// Exit code of the copy.
    pub code: i32,
    /// What the guest reports of the path and the programs.
    pub report: crate::job::Report,
    /// The record, if the copy was to write one to [`crate::job::RECORD`].
    pub record: Option<String>,
}

/// Command lines of a server and of its client.
pub struct Commands {
    /// The server, which runs on end b and listens at [`SERVER_ADDRESS`](crate::SERVER_ADDRESS).
    pub server: Vec<String>,
    /// The client, which runs on end a.
    pub client: Vec<String>,
}

impl Commands {
    /// Makes the job that runs both. The client starts 10 ms after the server, when that listens.
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
            changes: Vec::new(),
            seed,
            programs: vec![program(End::B, &self.server, Time(0)), program(End::A, &self.client, Time(10_000_000))],
            space: None,
            folders: Vec::new(),
            sysctl: BTreeMap::new(),
            sample,
            until: None,
            linger: Time(0),
            mss: None,
        }
    }
}

impl Lab {
    /// Copies files of this host over an emulated path into another folder of this host.
    ///
    /// # Errors
    /// The guest fails. If only the copy fails, [`LabCopied::code`] tells.
    pub fn copy(
        &self,
        copy: &LabCopy<'_>,
        limit: Duration,
        progress: &dyn Fn(f64, u64),
    ) -> Result<LabCopied, LabError> {
        let folder = |end, path: &PathBuf, write| Folder { end, path: path.clone(), write };
        let mut folders: Vec<Folder> = copy.sources.iter().map(|path| folder(End::A, path, false)).collect();
        folders.extend(copy.target.iter().map(|path| folder(End::B, path, true)));
        let mut job = copy.commands.job(copy.path, copy.seed, Time(100_000_000));
        job.folders = folders;
        job.linger = Time(2 * copy.path.rtt.0);
        let held = most_in_flight(&job.path);
        let buffers = copy.udt.as_ref().map_or(0, |udt| streams_bytes(udt, copy.path));
        let done = self.run_in(memory(&job) + COPY_BYTES + held + buffers, &job, limit, progress)?;
        let read = |name: String| fs::read_to_string(done.out(&name)).unwrap_or_default();
        let code = match done.report.programs.get(1).map(|report| &report.ended) {
            Some(Ended::Exit(code)) => *code,
            _ => ExitClass::Lab as i32,
        };
        let record = match read(file::RECORD.into()) {
            text if text.is_empty() => None,
            text => Some(whole_record(&text, &done)?.0),
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

/// Bytes that may be in flight: slow start may send several times what the path holds. A copy's source takes so much memory in the
/// guest, and a buffer of UDT. Memory that is not touched costs nothing.
fn most_in_flight(path: &LabPath) -> u64 {
    (path.bdp() + path.queue.0) * 8
}

/// Memory that both ends of a copy need: blocks, and pages of files until they are written.
const COPY_BYTES: u64 = 768 << 20;

/// Checks that every program of a job ended well, or was asked to end.
///
/// # Errors
/// The first program that failed. Programs that the scenario waits for come first: the others may have failed only because
/// they lost their partner.
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

/// Returns the last three lines of a program's output, as one line.
fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(3)..];
    last.join(" | ").trim_start_matches("error: ").to_owned()
}

/// Returns the memory that a job's guest may need, bytes: packets in flight and in queues at the size that they have in the
/// kernel, and room for the kernel, the programs and their files. Packets that fullpipe sends by reference hold no payload of
/// their own; packets of other programs do.
fn memory(job: &Job) -> u64 {
    let path = &job.path;
    let in_flight = job.paths().map(|path| path.bdp() + path.queue.0 * 2).max().unwrap_or(0);
    let packet = job.mss.map_or(path.mtu, |mss| path.mtu.min(mss.into()));
    let per_byte = if packet == 9000 { 1.3 } else { 1.0 + 1_800.0 / f64::from(packet) };
    let files = job.space.map_or(0, |Size(bytes)| bytes * 2);
    let base = 192 << 20;
    let disks: u64 =
        [&path.disk_a, &path.disk_b].into_iter().flatten().map(|disk| disk.memory() + PAGE_CACHE_BYTES).sum();
    let mount = path.mount.as_ref().map_or(0, |mount| {
        let served = if path.disk_b.is_some() { 0 } else { mount.size.0 };
        served + PAGE_CACHE_BYTES + SERVER_BYTES
    });
    base + (in_flight as f64 * per_byte) as u64 + files + disks + mount
}

/// Memory of the server of a mount, for the requests of its threads.
const SERVER_BYTES: u64 = 256 << 20;

/// Memory for each disk and mount in which the guest's kernel caches what is read and written. With more, it would write later.
const PAGE_CACHE_BYTES: u64 = 1 << 30;

/// Memory that a sample may take in the guest: on both ends, on its way between them, and in the record until the host has
/// read it.
const SAMPLE_BYTES: u64 = 4096;

/// Memory of a stream besides packets in flight. Bytes that wait to be sent are held by reference, but the kernel describes
/// each of their packets.
const STREAM_BYTES: u64 = 3 << 20;

/// Memory of a stream over plain UDP, and of one over UDT besides its two buffers: those of its sockets, and the messages that
/// it receives at once.
const UDP_STREAM_BYTES: u64 = 64 << 20;

/// Returns the memory that the streams of a transport may need besides packets in flight, bytes. UDT copies data into a buffer
/// at either end.
fn streams_bytes(transport: &Transport, path: &LabPath) -> u64 {
    let streams = u64::from(transport.streams);
    match transport.protocol() {
        Protocol::Tcp => streams * STREAM_BYTES,
        Protocol::Udp => streams * UDP_STREAM_BYTES,
        Protocol::Udt => {
            let most = streams * transport.udt_buffer_bytes();
            let buffers = match transport.buffer {
                // They grow with what the path carries in a round trip.
                Buffer::Auto => most.min(streams * transport.udt_first_window_bytes() + most_in_flight(path)),
                Buffer::Bytes(_) => most,
            };
            streams * UDP_STREAM_BYTES + 2 * buffers
        }
    }
}

/// Returns the number of samples of a run, both ends and all streams together, if only the window limits its rate.
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

#[cfg(test)]
mod tests {
    use fullpipe_path::{Classified, Path};

    use super::*;

    #[test]
    fn a_missing_tool_is_named_before_anything_boots() {
        let dir = tempfile::tempdir().unwrap();
        let check = |path: &str| {
            let Ok(Path::Lab(path)) = path.parse() else { panic!("{path}") };
            let commands = Commands { server: Vec::new(), client: Vec::new() };
            check_disk_tools(&commands.job(&path, 1, Time(1)), dir.path().to_str().unwrap())
        };
        assert!(check("lab:rtt=1ms,rate=1gbit").is_ok());
        let missing = |path: &str, what: &str| {
            let error = check(path).unwrap_err();
            assert_eq!(error.class(), ExitClass::Missing);
            assert_eq!(error.to_string(), what);
        };
        let disk = "lab:rtt=1ms,rate=1gbit,disk_b=1GB/s";
        missing(disk, "a disk needs mkfs.xfs on this host; as root: apt-get install xfsprogs");
        missing(
            "lab:rtt=1ms,rate=1gbit,disk=1GB/s+fs:ext4",
            "a disk needs mkfs.ext4 on this host; as root: apt-get install e2fsprogs",
        );
        fs::write(dir.path().join("mkfs.xfs"), "").unwrap();
        assert!(check(disk).is_ok());
        missing(&format!("{disk}+devices:4"), "a disk needs dmsetup on this host; as root: apt-get install dmsetup");
    }
}
