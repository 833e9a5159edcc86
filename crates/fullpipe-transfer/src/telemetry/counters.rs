//! Counts how far an end is, for displays and for the other end.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::protocol::message::Times;
use crate::protocol::name::{Name, Named};
use crate::protocol::sizing::SizingEvent;
use crate::threads::lock;

/// Counters that a display reads.
#[derive(Debug, Default)]
pub struct Counters {
    /// Bytes of the files that the walk has found.
    pub found_bytes: AtomicU64,
    /// Files that the walk has found.
    pub found_files: AtomicU64,
    /// Bytes that the receiver has written, or had already. The sender knows them from the receiver.
    pub done_bytes: AtomicU64,
    /// Files that have their final names.
    pub done_files: AtomicU64,
    /// Bytes of content that went over the network in complete blocks and packs.
    pub wire_bytes: AtomicU64,
    /// Bytes of content that the receiver got from the network. The sender knows them from the receiver.
    pub come_bytes: AtomicU64,
    /// The part of `come_bytes` that belongs to blocks that are not complete yet.
    pub partial_bytes: AtomicU64,
    /// 1 once the walk is over, else 0.
    pub found_all: AtomicU64,
    /// Time in which this end's threads read or wrote files, nanoseconds.
    pub disk_ns: AtomicU64,
    /// Time in which this end's threads hashed, nanoseconds.
    pub hash_ns: AtomicU64,
    /// Time that this end's threads spent in calls to the network, nanoseconds.
    pub net_ns: AtomicU64,
    /// Guards the other end's times, as last reported.
    pub other: Mutex<Times>,
    /// Guards the events of SOBAS that no display has taken yet.
    pub sizing_events: Mutex<Vec<SizingEvent>>,
    /// Guards the names of files that began to be sent, or got their names here, until a display takes them; `None` if no
    /// display wants them.
    names: Option<Mutex<Vec<Named>>>,
}

impl Counters {
    /// Makes counters that are all zero. `names`: whether names are collected for a display.
    pub(crate) fn new(names: bool) -> Counters {
        Counters { names: names.then(Mutex::default), ..Counters::default() }
    }

    /// Adds the name of a file that begins to be sent, or got its name here.
    pub(crate) fn named(&self, name: &Name) {
        if let Some(names) = &self.names {
            lock(names).push(Named::Copied(name.clone()));
        }
    }

    /// Adds the name of a file that stays at the destination because it is newer there, although it has another size.
    pub(crate) fn kept(&self, name: &Name) {
        if let Some(names) = &self.names {
            lock(names).push(Named::Newer(name.clone()));
        }
    }

    /// Adds the name of a file or folder that was deleted at the destination.
    pub(crate) fn deleted(&self, name: Name) {
        if let Some(names) = &self.names {
            lock(names).push(Named::Deleted(name));
        }
    }

    /// Takes the names that were added since the last call.
    pub fn take_names(&self) -> Vec<Named> {
        self.names.as_ref().map(|names| std::mem::take(&mut *lock(names))).unwrap_or_default()
    }

    /// Takes in how much the sender's walk has found.
    pub(crate) fn found(&self, bytes: u64, files: u64, all: bool) {
        self.found_bytes.store(bytes, Ordering::Relaxed);
        self.found_files.store(files, Ordering::Relaxed);
        self.found_all.store(u64::from(all), Ordering::Relaxed);
    }

    /// Counts received bytes of a block.
    pub(crate) fn came(&self, bytes: u64) {
        self.come_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.partial_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a block as complete, good or bad.
    pub(crate) fn whole(&self, bytes: u64) {
        self.partial_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The times that this end's threads spent so far.
    pub fn times(&self) -> Times {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Times { disk: read(&self.disk_ns), hash: read(&self.hash_ns), net: read(&self.net_ns) }
    }
}

/// Makes a call and adds its duration to a counter, nanoseconds.
pub(crate) fn timed<T>(counter: &AtomicU64, call: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = call();
    counter.fetch_add(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
    result
}
