//! What a command does when its user interrupts it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

/// Signals within this time of the first are one interruption: timeout(1) sends its signal to the program and again to the whole
/// process group, and when a terminal is closed, so may the shell and the kernel.
const ONE_INTERRUPTION: Duration = Duration::from_millis(200);
/// The exit code of a program that the user has interrupted twice: 128 and the number of SIGINT.
const INTERRUPTED: i32 = 130;

/// The signals that interrupt: Ctrl-C, SIGTERM, and SIGHUP (a terminal that is closed), unless whoever started the program has that
/// ignored, as nohup does.
pub fn signals() -> Vec<i32> {
    [SIGINT, SIGTERM].into_iter().chain((!is_ignored(SIGHUP)).then_some(SIGHUP)).collect()
}

/// A flag that the first of these signals sets; the second one ends the program.
pub fn flag() -> Arc<AtomicBool> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let first = interrupted.clone();
    // Without it the first signal ends the program, which is what its sender wants.
    let _ = on_two(&signals(), move || first.store(true, Ordering::SeqCst), |_| low_level::exit(INTERRUPTED));
    interrupted
}

/// Calls `first` at the first of some signals, and `second` at the second interruption.
///
/// # Errors
/// The handlers or the thread that calls cannot be set up.
pub fn on_two(
    signals: &[i32],
    first: impl FnOnce() + Send + 'static,
    second: impl Fn(i32) + Send + 'static,
) -> io::Result<()> {
    let mut signals = Signals::new(signals)?;
    let wait = move || {
        let mut signals = signals.forever();
        if signals.next().is_none() {
            return;
        }
        let begun = Instant::now();
        first();
        signals.filter(|_| begun.elapsed() > ONE_INTERRUPTION).for_each(second);
    };
    std::thread::Builder::new().stack_size(256 << 10).spawn(wait)?;
    Ok(())
}

/// Whether a signal is ignored. The kernel shows it as a bit of a mask (proc(5), `SigIgn`).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
