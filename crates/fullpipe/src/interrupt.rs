//! What a command does when its user interrupts it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use fullpipe_lab::interrupt::signals;
use signal_hook::iterator::Signals;
use signal_hook::low_level;

/// Signals within this time of the first are one interruption: timeout(1) sends its signal to the program and again to the whole
/// process group, and when a terminal is closed, so may the shell and the kernel.
const ONE_INTERRUPTION: Duration = Duration::from_millis(200);
/// Bytes of stack of a thread that waits for signals.
const STACK: usize = 256 << 10;
/// The exit code of a program that the user has interrupted twice: 128 and the number of SIGINT.
const INTERRUPTED: i32 = 130;

/// A flag that the first of these signals sets; the second one ends the program.
pub fn flag() -> Arc<AtomicBool> {
    let interrupted = Arc::new(AtomicBool::new(false));
    // Without it the first signal ends the program, which is what its sender wants.
    let Ok(mut caught) = Signals::new(signals()) else { return interrupted };
    let first = interrupted.clone();
    let wait = move || {
        if caught.forever().next().is_some() {
            first.store(true, Ordering::SeqCst);
            end_at_second();
        }
    };
    let _ = std::thread::Builder::new().stack_size(STACK).spawn(wait);
    interrupted
}

/// Has the next of these signals end the program, when one has come.
pub fn end_at_second() {
    at_second(&signals(), |_| low_level::exit(INTERRUPTED));
}

/// Calls `each` with what comes of some signals, when one has come, and is not of the same interruption.
pub fn at_second(signals: &[i32], each: impl Fn(i32) + Send + 'static) {
    let Ok(mut signals) = Signals::new(signals) else { return };
    let begun = Instant::now();
    let wait = move || signals.forever().filter(|_| begun.elapsed() > ONE_INTERRUPTION).for_each(each);
    let _ = std::thread::Builder::new().stack_size(STACK).spawn(wait);
}
