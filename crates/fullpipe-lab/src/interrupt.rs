//! Notices that the user interrupts the program while a guest runs. Between guests an interruption ends the program at once.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

/// Signals within this time of the first are one interruption: timeout(1) sends its signal to the program and again to the
/// whole process group.
const ONE_INTERRUPTION: Duration = Duration::from_millis(200);
/// Exit code of a program that is interrupted between guests, or a second time: 128 and the number of SIGINT.
const INTERRUPTED: i32 = 130;
/// Bytes of stack of the thread that waits for signals.
const STACK: usize = 256 << 10;

/// Number of guests that run.
static GUESTS: AtomicUsize = AtomicUsize::new(0);
/// Whether the user has interrupted the program while a guest ran.
static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Watches for an interruption until this is dropped.
pub(crate) struct Watch(());

impl Watch {
    /// Begins to watch: the first signal sets the flag, a second one ends the program.
    pub(crate) fn begin() -> Watch {
        static HANDLER: Once = Once::new();
        GUESTS.fetch_add(1, Ordering::SeqCst);
        HANDLER.call_once(wait_for_signals);
        Watch(())
    }

    /// Whether the user has interrupted the program.
    pub(crate) fn is_interrupted(&self) -> bool {
        IS_INTERRUPTED.load(Ordering::SeqCst)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        GUESTS.fetch_sub(1, Ordering::SeqCst);
    }
}

fn wait_for_signals() {
    // Without it the first signal ends this process, and the guest with it.
    let Ok(mut signals) = Signals::new(signals()) else { return };
    let wait = move || {
        let mut first: Option<Instant> = None;
        for _ in signals.forever() {
            match first {
                Some(at) if at.elapsed() <= ONE_INTERRUPTION => {}
                None if GUESTS.load(Ordering::SeqCst) > 0 => {
                    first = Some(Instant::now());
                    IS_INTERRUPTED.store(true, Ordering::SeqCst);
                }
                _ => low_level::exit(INTERRUPTED),
            }
        }
    };
    let _ = std::thread::Builder::new().stack_size(STACK).spawn(wait);
}

/// The signals that interrupt: Ctrl-C, SIGTERM, and SIGHUP (a terminal that is closed), unless whoever started the program has that
/// ignored, as nohup does.
pub fn signals() -> Vec<i32> {
    [SIGINT, SIGTERM].into_iter().chain((!is_ignored(SIGHUP)).then_some(SIGHUP)).collect()
}

/// Whether a signal is ignored. The kernel shows it as a bit of a mask (proc(5), `SigIgn`).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
