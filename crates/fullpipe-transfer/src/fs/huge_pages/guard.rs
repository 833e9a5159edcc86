//! What somebody cuts off a file while it is seen in memory would end this process (SIGBUS, `mmap(2)`), and all the
//! transfers in it. Here it ends that file's: SIGBUS's handler puts empty memory where the file was.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::{MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE, c_int, c_void, siginfo_t};

use crate::limits::HUGE_PAGE;

/// Most pages that are seen at once, in all of the process; streams beyond write as ever.
const MOST: usize = 256;

/// Where a page may be seen; 0: nobody's.
struct WatchedPage {
    at: AtomicUsize,
    /// The file was not there any more.
    gone: AtomicBool,
}

static WATCHED_PAGES: [WatchedPage; MOST] =
    [const { WatchedPage { at: AtomicUsize::new(0), gone: AtomicBool::new(false) } }; MOST];
/// What SIGBUS did before.
static BEFORE: OnceLock<Option<libc::sigaction>> = OnceLock::new();

/// Addresses that are watched.
pub struct Guard(&'static WatchedPage);

impl Guard {
    /// Watches [`HUGE_PAGE`] bytes; none if there is no place left, or signals cannot be had.
    pub fn new(at: *mut c_void) -> Option<Guard> {
        BEFORE.get_or_init(install).as_ref()?;
        let free =
            |place: &&WatchedPage| place.at.compare_exchange(0, at.addr(), Ordering::AcqRel, Ordering::Relaxed).is_ok();
        WATCHED_PAGES.iter().find(free).map(Guard)
    }

    /// Whether the file was gone since this was asked last.
    pub fn gone(&self) -> bool {
        self.0.gone.swap(false, Ordering::AcqRel)
    }

    /// Puts empty memory there; whether that could be done.
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
    // SAFETY: a window's own addresses, which show a file of which nothing is left.
    let there = unsafe { libc::mmap(address, HUGE_PAGE, PROT_READ | PROT_WRITE, how, -1, 0) };
    place.gone.store(true, Ordering::Release);
    there != libc::MAP_FAILED
}

fn install() -> Option<libc::sigaction> {
    // SAFETY: all zeros is an action: the default one, and nothing blocked.
    let (mut ours, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = on_bus as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: valid actions; the handler only loads, stores and calls mmap and sigaction.
    let done = unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, &raw mut before) };
    (done == 0).then_some(before)
}

extern "C" fn on_bus(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel's, valid here.
    let fault = unsafe { (*info).si_addr() }.addr();
    let here = |place: &&WatchedPage| {
        let at = place.at.load(Ordering::Acquire);
        at != 0 && (at..at + HUGE_PAGE).contains(&fault)
    };
    if WATCHED_PAGES.iter().find(here).is_some_and(put) {
        return;
    }
    // Somebody else's: it comes again, and is dealt with as it would have been.
    // SAFETY: all zeros is the default action.
    let before = BEFORE.get().copied().flatten().unwrap_or(unsafe { std::mem::zeroed() });
    // SAFETY: an action that was in force before.
    unsafe { libc::sigaction(signal, &raw const before, ptr::null_mut()) };
}
