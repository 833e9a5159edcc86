//! Prints the names of files on standard output (`--verbose`) from a thread of its own, so that a reader that pauses does
//! not hold up the copy.

use std::cell::{Cell, RefCell};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread::JoinHandle;

use crate::output::{errln, outln};

/// Lines that may wait for their reader. More are dropped and counted.
const MAX_WAITING_LINES: usize = 1 << 16;

/// The thread that prints, and the lines on their way to it.
pub struct Names {
    to: RefCell<Option<(SyncSender<String>, JoinHandle<()>)>>,
    dropped: Cell<u64>,
}

impl Names {
    /// Starts the thread that prints.
    pub fn new() -> Names {
        let (to, from) = mpsc::sync_channel::<String>(MAX_WAITING_LINES);
        let print = move || from.into_iter().for_each(|line| outln!("{line}"));
        let thread = std::thread::Builder::new().name("names".into()).spawn(print);
        Names { to: RefCell::new(thread.ok().map(|thread| (to, thread))), dropped: Cell::new(0) }
    }

    /// Has a line printed; drops it if too many wait.
    pub fn say(&self, line: String) {
        let to = self.to.borrow();
        let sent = to.as_ref().map(|(to, _)| to.try_send(line));
        if matches!(sent, Some(Err(TrySendError::Full(_)))) {
            self.dropped.set(self.dropped.get() + 1);
        }
    }

    /// Waits until all lines have been printed, and tells how many were dropped.
    pub fn finish(&self) {
        if let Some((to, thread)) = self.to.take() {
            drop(to);
            // The thread only prints; if it panicked, nothing else is lost.
            let _ = thread.join();
        }
        let dropped = self.dropped.take();
        if dropped > 0 {
            errln!("{dropped} more names were not printed, as nobody read them in time");
        }
    }
}
