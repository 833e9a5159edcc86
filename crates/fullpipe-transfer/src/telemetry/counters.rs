//! How far an end is, for displays and for the other end.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::protocol::message::Times;
use crate::protocol::name::Name;
use crate::protocol::sizing::SizingEvent;
use crate::threads::lock;

/// Counters that a display reads.
#[derive(Debug, Default)]
pub struct Counters {
    /// Bytes found.
    pub found_bytes: AtomicU64,
    /// Files found.
    pub found_files: AtomicU64,
    /// Bytes done with: at the receiver written or there already, at the sender as the receiver says.
    pub done_bytes: AtomicU64,
    /// Files under their names.
    pub done_files: AtomicU64,
    /// Bytes on the network, content only, of whole blocks and packs.
    pub wire_bytes: AtomicU64,
    /// Bytes that have come over the network, content only: at the receiver, or as it says.
    pub come_bytes: AtomicU64,
    /// Of these, those of blocks that are not whole yet.
    pub partial_bytes: AtomicU64,
    /// 1 when everything has been found.
    pub found_all: AtomicU64,
    /// This end's times.
    pub disk_ns: AtomicU64,
    /// Hashing.
    pub hash_ns: AtomicU64,
    /// In the network's calls.
    pub net_ns: AtomicU64,
    /// The other end's times, as it last told.
    pub other: Mutex<Times>,
    /// What the controller of window and pacing did, until a display takes it.
    pub notes: Mutex<Vec<SizingEvent>>,
    /// What has begun to be sent, or taken its name here, likewise; none where no display wants it.
    names: Option<Mutex<Vec<Name>>>,
}

impl Counters {
    /// All at zero.
    pub(crate) fn new(names: bool) -> Counters {
        Counters { names: names.then(Mutex::default), ..Counters::default() }
    }

    /// This is sent, or here.
    pub(crate) fn named(&self, name: &Name) {
        if let Some(names) = &self.names {
            lock(names).push(name.clone());
        }
    }

    /// What has moved since the last time.
    pub fn take_names(&self) -> Vec<Name> {
        self.names.as_ref().map(|names| std::mem::take(&mut *lock(names))).unwrap_or_default()
    }

    /// So many bytes of a block have come.
    pub(crate) fn came(&self, bytes: u64) {
        self.come_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.partial_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// All of a block has, good or bad.
    pub(crate) fn whole(&self, bytes: u64) {
        self.partial_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// This end's times.
    pub fn times(&self) -> Times {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Times { disk: read(&self.disk_ns), hash: read(&self.hash_ns), net: read(&self.net_ns) }
    }
}

/// Adds the time of a call to a counter.
pub(crate) fn timed<T>(counter: &AtomicU64, call: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = call();
    counter.fetch_add(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
    result
}
