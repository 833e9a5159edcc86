//! Keeps each guest on one processor.
//!
//! A guest is a kernel process and one process per address space, which take turns through ptrace. On
//! one processor a turn costs a context switch; across two it wakes an idle one each time, which on
//! virtual machines costs many times that (boot to halt: 0.9 s unpinned, 0.55 s pinned). So each guest
//! is kept on one processor, and guests that run together on different ones.

use std::fs::{self, File};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// A processor that is reserved for one guest until this value is dropped.
pub(crate) struct ReservedCpu {
    _lock: Flock<File>,
}

/// Reserves a free processor of those that this thread may use, and moves the thread to it; processes that the thread starts
/// stay there. Returns `None` if all are reserved: the scheduler decides then. `folder` holds one lock file per processor.
pub(crate) fn reserve(folder: &Path) -> Option<ReservedCpu> {
    let me = Pid::from_raw(0);
    let before = sched_getaffinity(me).ok()?;
    fs::create_dir_all(folder).ok()?;
    for cpu in (0..CpuSet::count()).filter(|cpu| before.is_set(*cpu).unwrap_or(false)) {
        let Ok(file) = File::create(folder.join(format!("cpu{cpu}"))) else { continue };
        let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { continue };
        let mut only = CpuSet::new();
        only.set(cpu).ok()?;
        sched_setaffinity(me, &only).ok()?;
        return Some(ReservedCpu { _lock: lock });
    }
    None
}
