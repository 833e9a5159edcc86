//! Survives that another process cuts a mapped file short. An access to the lost page raises SIGBUS (`mmap(2)`), which would
//! end this process and all transfers in it. The handler here puts empty memory in the page's place, so that only that file
//! fails.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::{MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE, c_int, c_void, siginfo_t};

use crate::sizes::HUGE_PAGE;

/// Most pages that are mapped at once in this process. Streams beyond that write in the usual way.
const MAX_WATCHED_PAGES: usize = 256;

/// A place in memory that may show a page of a file.
struct WatchedPage {
    /// Address of the page; 0 if this entry is free.
    at: AtomicUsize,
    /// Whether the page was lost since the last look.
    gone: AtomicBool,
}

static WATCHED_PAGES: [WatchedPage; MAX_WATCHED_PAGES] =
    [const { WatchedPage { at: AtomicUsize::new(0), gone: AtomicBool::new(false) } }; MAX_WATCHED_PAGES];
/// The action of SIGBUS before this handler was installed; `None` inside if it could not be installed.
static BEFORE: OnceLock<Option<libc::sigaction>> = OnceLock::new();

/// A page's addresses, as long as they are watched.
pub struct Guard(&'static WatchedPage);

impl Guard {
    /// Watches [`HUGE_PAGE`] bytes from `at` on; `None` if too many are watched already, or the handler cannot be installed.
    pub fn new(at: *mut c_void) -> Option<Guard> {
        BEFORE.get_or_init(install).as_ref()?;
        let free =
            |place: &&WatchedPage| place.at.compare_exchange(0, at.addr(), Ordering::AcqRel, Ordering::Relaxed).is_ok();
        WATCHED_PAGES.iter().find(free).map(Guard)
    }

    /// Whether the page was lost since the last call.
    pub fn gone(&self) -> bool {
        self.0.gone.swap(false, Ordering::AcqRel)
    }

    /// Puts empty memory in the page's place; returns whether that succeeded.
    pub fn put(&self) -> bool {
        put(self.0)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.at.store(0, Ordering::Release);
        self.0.gone.store(false, Ordering::Release);
    }
}

fn put(place: &WatchedPage) -> bool {
    let at = place.at.load(Ordering::Acquire);
    let how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    let address = ptr::with_exposed_provenance_mut(at);
    // SAFETY: these addresses are a window's own, and the part of the file that they showed is gone.
    let there = unsafe { libc::mmap(address, HUGE_PAGE, PROT_READ | PROT_WRITE, how, -1, 0) };
    place.gone.store(true, Ordering::Release);
    there != libc::MAP_FAILED
}

fn install() -> Option<libc::sigaction> {
    // SAFETY: all zeros is a valid action: the default one, with no signal blocked.
    let (mut ours, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = on_bus as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: both actions are valid; the handler only loads, stores and calls mmap and sigaction.
    let done = unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, &raw mut before) };
    (done == 0).then_some(before)
}

extern "C" fn on_bus(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a valid pointer.
    let fault = unsafe { (*info).si_addr() }.addr();
    let here = |place: &&WatchedPage| {
        let at = place.at.load(Ordering::Acquire);
        at != 0 && (at..at + HUGE_PAGE).contains(&fault)
    };
    if WATCHED_PAGES.iter().find(here).is_some_and(put) {
        return;
    }
    // The signal is not about a watched page. The old action is restored, and handles the signal when it is raised again.
    // SAFETY: all zeros is a valid action: the default one.
    let before = BEFORE.get().copied().flatten().unwrap_or(unsafe { std::mem::zeroed() });
    // SAFETY: this action was in force before.
    unsafe { libc::sigaction(signal, &raw const before, ptr::null_mut()) };
}
