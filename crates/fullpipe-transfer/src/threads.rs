//! Threads and the locks between them, as every part of the crate uses them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{TransferError, system};

/// A guard even if another thread failed while it held the lock: what is behind these locks is counters
/// and queues that every step leaves whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread.
///
/// # Errors
/// The system has no more.
pub(crate) fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), TransferError> {
    let builder = std::thread::Builder::new().name(name.into()).stack_size(512 << 10);
    builder.spawn(work).map(drop).map_err(system("starting a thread"))
}
