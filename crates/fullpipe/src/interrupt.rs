//! What a command does when its user interrupts it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The signals that interrupt: Ctrl-C, SIGTERM, and SIGHUP (a terminal that is closed), unless whoever started the program has that
/// ignored, as nohup does.
pub fn signals() -> Vec<i32> {
    [SIGINT, SIGTERM].into_iter().chain((!is_ignored(SIGHUP)).then_some(SIGHUP)).collect()
}

/// A flag that the first of these signals sets; the second one ends the program.
pub fn flag() -> Arc<AtomicBool> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in signals() {
        // Without these handlers the first signal ends the program, which is what its sender wants.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, interrupted.clone());
        let _ = signal_hook::flag::register(signal, interrupted.clone());
    }
    interrupted
}

/// Whether a signal is ignored. The kernel shows it as a bit of a mask (proc(5), `SigIgn`).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
