//! Names of what moves, on standard output, for whoever reads them, at his own pace: a transfer does not wait for a
//! reader that pauses.

use std::cell::{Cell, RefCell};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread::JoinHandle;

use crate::output::{errln, outln};

/// Lines that wait for their reader; further ones are counted only.
const WAITING: usize = 1 << 16;

/// Lines on their way.
pub struct Names {
    to: RefCell<Option<(SyncSender<String>, JoinHandle<()>)>>,
    dropped: Cell<u64>,
}

impl Names {
    /// Starts the thread that prints.
    pub fn new() -> Names {
        let (to, from) = mpsc::sync_channel::<String>(WAITING);
        let print = move || from.into_iter().for_each(|line| outln!("{line}"));
        let thread = std::thread::Builder::new().name("names".into()).spawn(print);
        Names { to: RefCell::new(thread.ok().map(|thread| (to, thread))), dropped: Cell::new(0) }
    }

    /// Prints a line, soon.
    pub fn say(&self, line: String) {
        let to = self.to.borrow();
        let sent = to.as_ref().map(|(to, _)| to.try_send(line));
        if matches!(sent, Some(Err(TrySendError::Full(_)))) {
            self.dropped.set(self.dropped.get() + 1);
        }
    }

    /// Waits until all has been read.
    pub fn finish(&self) {
        if let Some((to, thread)) = self.to.take() {
            drop(to);
            // It only prints.
            let _ = thread.join();
        }
        let dropped = self.dropped.take();
        if dropped > 0 {
            errln!("{dropped} names more were not printed: nobody read them in time");
        }
    }
}
