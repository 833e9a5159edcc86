//! Boots a guest, watches it, and finds out how it ended.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use landlock::{ABI, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr};
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, open, openat};
use nix::sys::personality::{self, Persona};
use nix::sys::prctl;
use nix::sys::signal::{Signal, killpg};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat};
use nix::unistd::{Pid, geteuid};

use crate::affinity;
use crate::error::{LabError, host};
use crate::interrupt::Watch;
use crate::job::{GUEST_VARIABLE, JOB_FILE, Job, Report, file};

/// Time between two looks at the guest's progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// What a guest is booted with.
pub struct Boot<'a> {
    /// Executable of the guest kernel.
    pub kernel: &'a Path,
    /// Memory of the guest, bytes.
    pub memory: u64,
    /// Real time after which the guest is killed.
    pub limit: Duration,
    /// Folder of the locks by which guests reserve processors.
    pub seats: &'a Path,
}

/// A guest that has done its job.
pub struct Done {
    /// The guest's report.
    pub report: Report,
    /// The guest's folder; `out` in it holds the files that the guest wrote. It is removed when this is dropped.
    pub folder: tempfile::TempDir,
    /// Real time from start to end, s.
    pub wall_s: f64,
    /// Most memory that any of the guest's processes held, bytes.
    pub memory_peak: u64,
}

impl Done {
    /// Returns the path of a file that the guest wrote.
    pub fn out(&self, name: &str) -> PathBuf {
        self.folder.path().join("out").join(name)
    }
}

/// The process of a guest's kernel. It is killed if this is dropped before the process has ended.
struct Guest {
    child: Option<Child>,
    /// The thread that started the process lasts until this is dropped. If it ended earlier, the kernel would take that for
    /// the parent's death and kill the guest.
    _starter: mpsc::Sender<()>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The guest kernel's threads and its users' processes are one group.
            let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
            let _ = child.wait();
        }
    }
}

/// Starts the kernel from a thread of its own, because a process inherits these from a thread: one processor; the same
/// addresses in every run, which order some of the kernel's tables; and permission to write only to the guest's folder and to
/// the folders that the job names. Each of them is set if this machine allows it.
fn spawn(
    mut command: Command,
    boot: &Boot<'_>,
    folder: &Path,
    written: Vec<PathBuf>,
) -> Result<(Guest, Option<affinity::ReservedCpu>), LabError> {
    let failed = host(format!("starting the guest kernel {}", boot.kernel.display()));
    let (seats, folder) = (boot.seats.to_owned(), folder.to_owned());
    let (report, started) = mpsc::channel();
    let (starter, until) = mpsc::channel::<()>();
    let start = move || {
        let seat = affinity::reserve(&seats);
        if let Ok(before) = personality::get() {
            let _ = personality::set(before | Persona::ADDR_NO_RANDOMIZE);
        }
        let _ = confine(&folder, &written);
        // A guest must not outlive its watcher, however that ends.
        // SAFETY: between fork and exec only an async-signal-safe system call is made.
        unsafe { command.pre_exec(|| prctl::set_pdeathsig(Signal::SIGKILL).map_err(Into::into)) };
        let child = command.spawn();
        // Now only the guest holds the pipe's other end, so the pipe ends with the guest.
        drop(command);
        let _ = report.send(child.map(|child| (child, seat)));
        // Returns when the guest's handle, which holds the sender, is dropped.
        let _ = until.recv();
    };
    std::thread::Builder::new().spawn(start).map_err(host("starting a thread"))?;
    let spawned = started.recv().unwrap_or_else(|_| Err(std::io::Error::other("its thread is gone")));
    spawned.map(|(child, seat)| (Guest { child: Some(child), _starter: starter }, seat)).map_err(failed)
}

/// Beginning of the names of guests' folders.
const FOLDER_PREFIX: &str = "fullpipe-guest-";
/// File in a guest's folder that is locked while the folder is in use.
const LOCK_FILE: &str = "lock";
/// Folders younger than this are not cleared away: they may not have their lock yet.
const LEAST_AGE: Duration = Duration::from_secs(60);

/// Marks a new folder as in use until the lock is dropped.
fn lock(folder: &Path) -> std::io::Result<Flock<fs::File>> {
    let file = fs::File::create_new(folder.join(LOCK_FILE))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| e.into())
}

/// Locks a folder that a killed program has left behind. Returns `None` if the folder is in use, or is not surely a guest's: every
/// user may make files of any name and kind in the place of guests' folders.
fn lock_stale(folder: &Path) -> Option<Flock<OwnedFd>> {
    let here = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let opened = open(folder, here | OFlag::O_DIRECTORY, Mode::empty()).ok()?;
    let of = fstat(&opened).ok()?;
    if of.st_uid != geteuid().as_raw() || of.st_mode & 0o7777 != 0o700 {
        return None;
    }
    let is_file = |name: &str| {
        let of = fstatat(&opened, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        of.is_ok_and(|of| SFlag::from_bits_truncate(of.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG)
    };
    if !is_file(LOCK_FILE) || !is_file(JOB_FILE) {
        return None;
    }
    let lock = openat(&opened, LOCK_FILE, here, Mode::empty()).ok()?;
    Flock::lock(lock, FlockArg::LockExclusiveNonblock).ok()
}

/// Removes the folders of guests that killed programs have left in a place.
fn clear_stale(place: &Path, least_age: Duration) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let is_named = entry.file_name().to_string_lossy().starts_with(FOLDER_PREFIX);
        let age = entry.metadata().and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
        if is_named
            && age.is_some_and(|age| age >= least_age)
            && let Some(_lock) = lock_stale(&entry.path())
        {
            // What cannot be removed only takes room.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Lets this thread and the processes that it starts write only below these folders (Landlock, kernels from 5.13). Root in
/// the guest may mount any folder of the host, but on the host it is only this process.
fn confine(folder: &Path, written: &[PathBuf]) -> Result<(), landlock::RulesetError> {
    let writes = AccessFs::from_write(ABI::V5);
    // User-mode Linux tries out terminals when it starts.
    let terminals = [Path::new("/dev/null"), Path::new("/dev/ptmx"), Path::new("/dev/pts")];
    let places = terminals.into_iter().chain([folder]).chain(written.iter().map(PathBuf::as_path));
    Ruleset::default()
        .handle_access(writes)?
        .create()?
        .add_rules(landlock::path_beneath_rules(places, writes))?
        .restrict_self()
        .map(drop)
}

/// The folder that holds guests' memory. It is a memory file system; else every page would go to a disk.
fn memory_place() -> PathBuf {
    PathBuf::from("/dev/shm")
}

/// Returns the free memory for guests, bytes.
fn room() -> Result<u64, LabError> {
    let place = memory_place();
    let stat = nix::sys::statvfs::statvfs(&place)
        .map_err(|e| host(format!("looking for room in {}", place.display()))(e.into()))?;
    Ok(stat.blocks_available() * stat.fragment_size())
}

/// Checks that there is room for a guest. Returns the free memory, bytes.
fn check_room(needed: u64) -> Result<u64, LabError> {
    let free = room()?;
    // The guest touches what it uses, not all that it may.
    if free < needed / 2 { Err(no_memory(needed, free)) } else { Ok(free) }
}

fn no_memory(needed: u64, free: u64) -> LabError {
    LabError::NoMemory { needed: needed >> 20, free: free >> 20, place: memory_place() }
}

/// Boots a guest and runs a job to its end. `progress` is called with seconds of virtual time and bytes that went through the
/// bottleneck.
///
/// # Errors
/// The guest cannot be started, or does not end with a report.
pub fn boot(boot: &Boot<'_>, job: &Job, progress: &dyn Fn(f64, u64)) -> Result<Done, LabError> {
    let watch = Watch::begin();
    clear_stale(&memory_place(), LEAST_AGE);
    let mut least_room = check_room(boot.memory)?;
    let folder = tempfile::Builder::new()
        .prefix(FOLDER_PREFIX)
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir_in(memory_place())
        .map_err(host("making a folder for the guest"))?;
    let at = folder.path();
    let _in_use = lock(at).map_err(host("locking the guest's folder"))?;
    let me = std::env::current_exe().map_err(host("finding this program"))?;
    let json = serde_json::to_vec(job).map_err(|e| host("describing the job")(e.into()))?;
    fs::create_dir(at.join("out"))
        .and_then(|()| fs::write(at.join(JOB_FILE), json))
        .and_then(|()| std::os::unix::fs::symlink(&me, at.join("init")))
        .map_err(host("preparing the guest's folder"))?;

    let started = Instant::now();
    let (output, writer) = std::io::pipe().map_err(host("opening a pipe"))?;
    let errors = writer.try_clone().map_err(host("opening a pipe"))?;
    let mut command = Command::new(boot.kernel);
    command
        .arg(format!("mem={}K", boot.memory.div_ceil(1024)))
        // Nothing in this crate advances the guest's clock: the guest's kernel does, to the next timer, whenever the guest has
        // nothing left to do.
        .args(["time-travel=inf-cpu", "time-travel-start=1500000000000000000"])
        .args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"])
        .args(["con=null", "con0=null,fd:1", "quiet", "panic=-1"])
        // The kernel mixes its command line into its random numbers, so the line must be the same in every run. The guest
        // finds its folder through the working directory of the kernel's process.
        .args(["umid=fullpipe", "init=/proc/self/cwd/init"])
        .arg(format!("{GUEST_VARIABLE}=1"))
        .current_dir(at)
        .env_clear()
        .env("HOME", at)
        .env("TMPDIR", at)
        .env("FULLPIPE_SEED", job.seed.to_string())
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(errors)
        .process_group(0);
    let (mut guest, _seat) =
        spawn(command, boot, at, job.folders.iter().filter(|f| f.write).map(|f| f.path.clone()).collect())?;
    let console = listen(output);
    let deadline = started + boot.limit;
    let mut seen = (0.0, 0);
    let printed = loop {
        match console.recv_timeout(PROGRESS_INTERVAL) {
            Ok(printed) => break printed,
            Err(RecvTimeoutError::Disconnected) => break String::new(),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if watch.is_interrupted() {
            return Err(LabError::Interrupted);
        }
        least_room = room().map_or(least_room, |room| room.min(least_room));
        if let Some(now) = read_progress(&at.join("out").join(file::PROGRESS)) {
            seen = now;
            progress(now.0, now.1);
        }
        if Instant::now() >= deadline {
            let at =
                if seen.0 > 0.0 { format!(" (it had come to {:.1} s of virtual time)", seen.0) } else { String::new() };
            return Err(LabError::Limit { seconds: boot.limit.as_secs_f64(), at });
        }
    };
    let mut child = guest.child.take();
    let status = child.as_mut().map(Child::wait).transpose().map_err(host("waiting for the guest"))?;
    if watch.is_interrupted() {
        return Err(LabError::Interrupted);
    }
    let memory_peak = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN)
        .map_or(0, |usage| usage.max_rss() as u64 * 1024);
    let report = fs::read(at.join("out").join(file::REPORT)).ok();
    match report.and_then(|json| serde_json::from_slice::<Report>(&json).ok()) {
        Some(Report { error: Some(error), is_input: true, .. }) => Err(LabError::Setting(error)),
        Some(Report { error: Some(error), .. }) => Err(LabError::Guest(error)),
        Some(report) => Ok(Done { report, folder, wall_s: started.elapsed().as_secs_f64(), memory_peak }),
        None => Err(why_it_ended(status, &printed, boot.memory, least_room)),
    }
}

/// Collects what the guest prints, and hands it over when the guest has ended.
fn listen(mut output: std::io::PipeReader) -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(n @ 1..) = output.read(&mut chunk) {
            bytes.extend_from_slice(&chunk[..n]);
            // A guest that prints for ever must not fill the host's memory.
            if bytes.len() > 1 << 20 {
                bytes.drain(..1 << 19);
            }
        }
        // If the guest was given up, nobody receives this.
        let _ = send.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receive
}

fn read_progress(path: &Path) -> Option<(f64, u64)> {
    let text = fs::read_to_string(path).ok()?;
    let mut words = text.split_whitespace();
    Some((words.next()?.parse::<u64>().ok()? as f64 * 1e-9, words.next()?.parse().ok()?))
}

/// What user-mode Linux prints at its end if it gets SIGBUS (arch/um/kernel/trap.c).
const BUS_ERROR: &str = "Kernel mode signal 7";

/// Finds out why a guest ended without a report. `memory` is what it may use, and `least_room` the least free memory of the host
/// that was seen while it ran, bytes.
fn why_it_ended(status: Option<ExitStatus>, console: &str, memory: u64, least_room: u64) -> LabError {
    let line = |word: &str| console.lines().find(|line| line.contains(word)).map(|line| line.trim().to_owned());
    if line("Out of memory").or_else(|| line("out of memory")).or_else(|| line("oom-kill")).is_some() {
        return LabError::OutOfMemory { memory: memory >> 20 };
    }
    // The host has no page for what the guest touches. The guest's memory is free again by now.
    let bus_error = status.and_then(|s| s.signal()) == Some(Signal::SIGBUS as i32) || line(BUS_ERROR).is_some();
    if bus_error && least_room < memory {
        return no_memory(memory, least_room);
    }
    if let Some(why) = line("Kernel panic") {
        return LabError::Panic { why };
    }
    let status = match status.map(|s| (s.code(), s.signal())) {
        Some((Some(code), _)) => format!("status {code}"),
        Some((None, Some(signal))) => format!("killed by signal {signal}"),
        _ => "status unknown".into(),
    };
    let tail: Vec<&str> = console.lines().rev().take(5).collect();
    let console = tail.into_iter().rev().collect::<Vec<_>>().join(" | ");
    LabError::Vanished { status, console }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder as a killed program leaves it, or one that lacks what a guest's folder has.
    fn left_behind(place: &Path, name: &str, mode: u32, files: &[&str]) -> PathBuf {
        let folder = place.join(name);
        fs::create_dir(&folder).unwrap();
        files.iter().for_each(|file| fs::write(folder.join(file), "x").unwrap());
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        folder
    }

    #[test]
    fn only_folders_of_ended_guests_are_cleared_away() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path();
        let both = [LOCK_FILE, JOB_FILE];
        let ended = left_behind(place, "fullpipe-guest-1", 0o700, &both);
        let data = [
            left_behind(place, "fullpipe-results", 0o700, &both),
            left_behind(place, "fullpipe-guest-no-lock", 0o700, &[JOB_FILE]),
            left_behind(place, "fullpipe-guest-no-job", 0o700, &[LOCK_FILE]),
            left_behind(place, "fullpipe-guest-open", 0o755, &both),
        ];
        let used = left_behind(place, "fullpipe-guest-2", 0o700, &[JOB_FILE]);
        let _in_use = lock(&used).unwrap();
        clear_stale(place, Duration::from_secs(60));
        assert!(ended.exists(), "it is too young");
        clear_stale(place, Duration::ZERO);
        assert!(!ended.exists() && used.exists());
        for folder in data {
            assert!(folder.exists(), "{}", folder.display());
        }
    }

    /// Other users may put links and pipes where guests' folders are.
    #[test]
    fn clearing_away_follows_no_links_and_waits_for_no_pipes() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path();
        let victim = place.join("victim");
        fs::write(&victim, "keep").unwrap();
        let linked = left_behind(place, "fullpipe-guest-1", 0o700, &[JOB_FILE]);
        std::os::unix::fs::symlink(&victim, linked.join(LOCK_FILE)).unwrap();
        let piped = left_behind(place, "fullpipe-guest-2", 0o700, &[JOB_FILE]);
        nix::unistd::mkfifo(&piped.join(LOCK_FILE), Mode::S_IRWXU).unwrap();
        let elsewhere = left_behind(place, "elsewhere", 0o700, &[LOCK_FILE, JOB_FILE]);
        std::os::unix::fs::symlink(&elsewhere, place.join("fullpipe-guest-3")).unwrap();
        let foreign = left_behind(place, "fullpipe-guest-4", 0o700, &[LOCK_FILE, JOB_FILE]);
        // Only root can give a folder away.
        let is_foreign = std::os::unix::fs::chown(&foreign, Some(65_534), None).is_ok();
        clear_stale(place, Duration::ZERO);
        assert_eq!(fs::read(&victim).unwrap(), b"keep");
        assert_eq!(fs::read(elsewhere.join(LOCK_FILE)).unwrap(), b"x");
        assert!(linked.exists() && piped.exists() && foreign.exists() == is_foreign);
    }

    #[test]
    fn ends_are_told_apart() {
        let oom = "x\nKernel panic - not syncing: Out of memory: compulsory panic_on_oom\n";
        assert!(matches!(why_it_ended(None, oom, 1 << 30, 0), LabError::OutOfMemory { memory: 1024 }));
        let panic = "a\nKernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b\nb";
        assert!(matches!(why_it_ended(None, panic, 0, 0), LabError::Panic { why } if why.contains("kill init")));
        let other = why_it_ended(Some(ExitStatus::from_raw(9)), "hello", 0, 0);
        // A guest of 1 GiB that had room for 900 MiB, and one that had enough.
        let bus = "Bus error\nKernel panic - not syncing: Kernel mode signal 7\n";
        for (status, console) in [(None, bus), (Some(ExitStatus::from_raw(7)), "")] {
            let full = why_it_ended(status, console, 1 << 30, 900 << 20);
            assert!(matches!(full, LabError::NoMemory { needed: 1024, free: 900, .. }), "{full}");
        }
        assert!(matches!(why_it_ended(None, bus, 1 << 30, 2 << 30), LabError::Panic { .. }));
        assert!(other.to_string().contains("signal 9") && other.to_string().contains("hello"), "{other}");
    }
}
