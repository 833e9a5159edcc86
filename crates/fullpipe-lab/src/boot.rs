//! Boots a guest, watches it, and tells how it ended.

use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nix::sys::personality::{self, Persona};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::cpu;
use crate::error::{LabError, host};
use crate::guest::MARK;
use crate::job::{Job, Report, file};

/// How often the guest's progress is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// How to boot.
pub struct Boot<'a> {
    /// The kernel's executable.
    pub kernel: &'a Path,
    /// Most memory that the guest may use, bytes.
    pub memory: u64,
    /// Real time after which it is killed.
    pub limit: Duration,
    /// Folder of locks that keep guests on different processors.
    pub seats: &'a Path,
}

/// A guest that has ended well.
pub struct Done {
    /// What it did.
    pub report: Report,
    /// Its folder: `out` holds what it wrote. Removed when dropped.
    pub folder: tempfile::TempDir,
    /// Real seconds from start to end.
    pub wall_s: f64,
    /// Most memory that any of its processes held, bytes.
    pub memory_peak: u64,
}

impl Done {
    /// A file that the guest wrote.
    pub fn out(&self, name: &str) -> PathBuf {
        self.folder.path().join("out").join(name)
    }
}

/// Set when the user wants to stop.
fn interrupted() -> &'static Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    FLAG.get_or_init(|| {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
            // Without the handler the default ends this process, and the guest with it.
            let _ = signal_hook::flag::register(signal, flag.clone());
        }
        flag
    })
}

/// Kills a guest's processes if its watcher leaves without having seen its end.
struct Guard(Option<Child>);

impl Guard {
    fn kill(&mut self) {
        if let Some(mut child) = self.0.take() {
            // All of them: the kernel's threads and its users' processes are one group.
            let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
            let _ = child.wait();
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Has what is started next use the same addresses each time, where that is allowed; gives what was
/// before. Kernel addresses order some of its tables.
fn no_address_randomness() -> Option<Persona> {
    let before = personality::get().ok()?;
    personality::set(before | Persona::ADDR_NO_RANDOMIZE).ok()
}

/// Where guests' memory lives: a memory file system, or every page would go to a disk.
fn memory_place() -> PathBuf {
    PathBuf::from("/dev/shm")
}

fn check_room(needed: u64) -> Result<(), LabError> {
    let place = memory_place();
    let stat = nix::sys::statvfs::statvfs(&place)
        .map_err(|e| host(format!("looking for room in {}", place.display()))(e.into()))?;
    let free = stat.blocks_available() * stat.fragment_size();
    // The guest touches what it uses, not all that it may.
    if free < needed / 2 {
        return Err(LabError::NoMemory { needed: needed >> 20, free: free >> 20, place });
    }
    Ok(())
}

/// Runs a job to its end. `progress` is told virtual seconds and bytes through the bottleneck.
///
/// # Errors
/// The guest could not be started, or did not end with a report.
pub fn boot(boot: &Boot<'_>, job: &Job, progress: &dyn Fn(f64, u64)) -> Result<Done, LabError> {
    check_room(boot.memory)?;
    let stop = interrupted();
    let folder = tempfile::Builder::new()
        .prefix("fullpipe-")
        .tempdir_in(memory_place())
        .map_err(host("making a folder for the guest"))?;
    let at = folder.path();
    let me = std::env::current_exe().map_err(host("finding this program"))?;
    let json = serde_json::to_vec(job).map_err(|e| host("describing the job")(e.into()))?;
    fs::create_dir(at.join("out"))
        .and_then(|()| fs::write(at.join("job.json"), json))
        .and_then(|()| std::os::unix::fs::symlink(&me, at.join("init")))
        .map_err(host("preparing the guest's folder"))?;

    let seat = cpu::take(boot.seats);
    let random = no_address_randomness();
    let started = Instant::now();
    let (output, writer) = std::io::pipe().map_err(host("opening a pipe"))?;
    let errors = writer.try_clone().map_err(host("opening a pipe"))?;
    let child = Command::new(boot.kernel)
        .arg(format!("mem={}K", boot.memory.div_ceil(1024)))
        .args(["time-travel=inf-cpu", "time-travel-start=1500000000000000000"])
        .args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"])
        .args(["con=null", "con0=null,fd:1", "quiet", "panic=-1"])
        // The kernel stirs its command line into its random numbers, so nothing in it may differ from
        // one run to the next: the guest finds its folder as the kernel process's working directory.
        .args(["umid=fullpipe", "init=/proc/self/cwd/init"])
        .arg(format!("{MARK}=1"))
        .current_dir(at)
        .env_clear()
        .env("HOME", at)
        .env("TMPDIR", memory_place())
        .env("FULLPIPE_SEED", job.seed.to_string())
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(errors)
        .process_group(0)
        .spawn()
        .map_err(host(format!("starting the guest kernel {}", boot.kernel.display())))?;
    let mut guard = Guard(Some(child));
    if let Some(random) = random {
        // Back to what it was; if that fails, only this process's own children are less random.
        let _ = personality::set(random);
    }
    if let Some(seat) = &seat {
        seat.leave_to_children();
    }
    let console = listen(output);
    let deadline = started + boot.limit;
    let mut seen = (0.0, 0);
    let printed = loop {
        match console.recv_timeout(LOOK) {
            Ok(printed) => break printed,
            Err(RecvTimeoutError::Disconnected) => break String::new(),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if stop.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
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
    let mut child = guard.0.take();
    let status = child.as_mut().map(Child::wait).transpose().map_err(host("waiting for the guest"))?;
    if stop.load(Ordering::Relaxed) {
        return Err(LabError::Interrupted);
    }
    let memory_peak = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN)
        .map_or(0, |usage| usage.max_rss() as u64 * 1024);
    let report = fs::read(at.join("out").join(file::REPORT)).ok();
    match report.and_then(|json| serde_json::from_slice::<Report>(&json).ok()) {
        Some(Report { error: Some(error), .. }) => Err(LabError::Guest(error)),
        Some(report) => Ok(Done { report, folder, wall_s: started.elapsed().as_secs_f64(), memory_peak }),
        None => Err(why_it_ended(status, &printed, boot.memory)),
    }
}

/// Collects what the guest prints; given when it has ended.
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
        // Nobody listens any more if the guest was given up.
        let _ = send.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receive
}

fn read_progress(path: &Path) -> Option<(f64, u64)> {
    let text = fs::read_to_string(path).ok()?;
    let mut words = text.split_whitespace();
    Some((words.next()?.parse::<u64>().ok()? as f64 * 1e-9, words.next()?.parse().ok()?))
}

/// Tells apart the ways in which a guest ends without a report.
fn why_it_ended(status: Option<ExitStatus>, console: &str, memory: u64) -> LabError {
    let line = |word: &str| console.lines().find(|line| line.contains(word)).map(|line| line.trim().to_owned());
    if line("Out of memory").or_else(|| line("out of memory")).or_else(|| line("oom-kill")).is_some() {
        return LabError::OutOfMemory { memory: memory >> 20 };
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

    #[test]
    fn ends_are_told_apart() {
        let oom = "x\nKernel panic - not syncing: Out of memory: compulsory panic_on_oom\n";
        assert!(matches!(why_it_ended(None, oom, 1 << 30), LabError::OutOfMemory { memory: 1024 }));
        let panic = "a\nKernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b\nb";
        assert!(matches!(why_it_ended(None, panic, 0), LabError::Panic { why } if why.contains("kill init")));
        let other = why_it_ended(Some(ExitStatus::from_raw(9)), "hello", 0);
        assert!(other.to_string().contains("signal 9") && other.to_string().contains("hello"), "{other}");
    }
}
