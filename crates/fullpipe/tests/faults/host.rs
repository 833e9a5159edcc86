//! The hosts of a path from inside the guest: a thread for each, in that host's namespaces. What it does is
//! done there, and processes that it starts are of that host.

use std::fs::File;
use std::path::Path;
use std::sync::mpsc;

use nix::sched::{CloneFlags, setns, unshare};

type Task = Box<dyn FnOnce() + Send>;

/// A host.
#[derive(Clone)]
pub struct Host(mpsc::Sender<Task>);

impl Host {
    /// The host of which the guest's first process has a thread of this name.
    pub fn enter(name: &'static str) -> Host {
        let found = std::fs::read_dir("/proc/1/task").unwrap().flatten().map(|entry| entry.path()).find(|task| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name)
        });
        let task = found.unwrap_or_else(|| panic!("the guest has no host {name}"));
        let (sender, tasks) = mpsc::channel::<Task>();
        let work = move || {
            // A mount namespace is entered by whoever shares no working directory.
            unshare(CloneFlags::CLONE_FS).unwrap();
            for (kind, flag) in [("net", CloneFlags::CLONE_NEWNET), ("mnt", CloneFlags::CLONE_NEWNS)] {
                setns(File::open(Path::new(&task).join("ns").join(kind)).unwrap(), flag).unwrap();
            }
            tasks.into_iter().for_each(|task| task());
        };
        std::thread::Builder::new().name(format!("at-{name}")).spawn(work).unwrap();
        Host(sender)
    }

    /// Does something there, and waits for it.
    pub fn run<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        self.0.send(Box::new(move || drop(done.send(task())))).unwrap();
        result.recv().expect("what was done there failed")
    }
}
