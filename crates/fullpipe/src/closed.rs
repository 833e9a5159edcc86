//! Tells which standard streams were closed when the program started. Rust's runtime opens `/dev/null` in their place before
//! `main`, so that a copy from or to them would seem to be done.

use std::sync::atomic::{AtomicBool, Ordering};

/// Standard input and output, in the order of their descriptors.
static CLOSED: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];

/// Whether there is no standard input.
pub fn stdin() -> bool {
    CLOSED[0].load(Ordering::Relaxed)
}

/// Whether there is no standard output.
pub fn stdout() -> bool {
    CLOSED[1].load(Ordering::Relaxed)
}

/// Called before Rust's runtime starts.
extern "C" fn look() {
    for (fd, closed) in (0..).zip(&CLOSED) {
        // SAFETY: F_GETFD takes no pointer, and changes nothing.
        let is_open = unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
        closed.store(!is_open, Ordering::Relaxed);
    }
}

// SAFETY: the section holds pointers to functions that are called once at the start (System V ABI, "Initialization and Termination
// Functions"). `look` needs nothing that is set up later.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;
