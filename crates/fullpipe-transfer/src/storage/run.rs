//! Runs a measurement: threads take the blocks of a file in turn, and time each call.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use fullpipe_path::DirectIo;
use fullpipe_path::record::storage::{Latency, StorageOutcome, StorageSample};
use fullpipe_path::storage::{Operation, StorageRun};
use hdrhistogram::Histogram;
use nix::fcntl::PosixFadviseAdvice;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::unistd::SysconfVar;
use rand::RngExt;

use super::bottleneck::{self, Evidence};
use super::folder::{StorageError, StorageFolder};
use super::host_load::HostLoad;
use crate::fs::direct_io::{self, Aligned};
use crate::fs::large_file::{self, HugePages, SourceFile, TargetFile};
use crate::sizes::{ALIGN, HUGE_PAGE, PIECE};
use crate::threads::lock;

/// Time between two samples. Samples are further apart in a long run, so that it has at most [`MAX_SAMPLES`].
const SAMPLE: Duration = Duration::from_millis(100);
/// Most samples of a run.
const MAX_SAMPLES: usize = 10_000;

/// A complete file without a name, for measurements to read.
pub struct ScratchFile(File);

impl Drop for ScratchFile {
    /// Frees the room at once. XFS frees that of a file that is only closed a while later, when the next may need it.
    fn drop(&mut self) {
        // If this fails, the room is freed after the file is closed.
        let _ = self.0.set_len(0);
    }
}

/// The result of a measurement.
pub struct Measured {
    /// What the record says at its end.
    pub outcome: StorageOutcome,
    /// The progress of the calls.
    pub samples: Vec<StorageSample>,
}

/// Writes a new file of the folder and measures that, with `fsync(2)`. `shown` is told the bytes so far, ten times a second.
/// Returns the file, too.
///
/// # Errors
/// The file system becomes too full or fails, or has no direct I/O.
pub fn write(
    folder: &StorageFolder,
    run: &StorageRun,
    shown: &dyn Fn(u64),
) -> Result<(ScratchFile, Measured), StorageError> {
    folder.check_room(run.size_bytes)?;
    let (file, measured) = write_file(folder, folder.nameless()?, run, shown)?;
    Ok((ScratchFile(file), measured))
}

/// Writes a new file with a name in the folder, as [`write()`] does, and drops it from the page cache.
///
/// # Errors
/// The file is there already, or as for [`write()`].
pub fn write_named(
    folder: &StorageFolder,
    name: &str,
    run: &StorageRun,
    shown: &dyn Fn(u64),
) -> Result<Measured, StorageError> {
    folder.check_room(run.size_bytes)?;
    let file = File::create_new(folder.path().join(name)).map_err(|e| folder.error("create a file", e))?;
    let (file, measured) = write_file(folder, file, run, shown)?;
    drop_cache(&file, run.size_bytes).map_err(|e| folder.error("drop a file from the page cache", e))?;
    Ok(measured)
}

fn write_file(
    folder: &StorageFolder,
    file: File,
    run: &StorageRun,
    shown: &dyn Fn(u64),
) -> Result<(File, Measured), StorageError> {
    let failed = |e| folder.error("write", e);
    file.set_len(run.size_bytes).map_err(failed)?;
    large_file::reserve(&file, run.size_bytes, false).map_err(failed)?;
    let again = file.try_clone().map_err(failed)?;
    let target = TargetFile::new(again, how(run), run.size_bytes);
    if run.direct && !target.is_direct() {
        return Err(folder.no_direct());
    }
    let sync = || file.sync_all();
    let measured = measure(folder, run, &|| Writer::new(&target, run), Some(&sync), None, shown).map_err(failed)?;
    Ok((file, measured))
}

/// Drops a file from the page cache, reads it, and measures that. `shown` is told the bytes so far, ten times a second.
///
/// # Errors
/// The file system fails, or has no direct I/O.
pub fn read(
    folder: &StorageFolder,
    file: &ScratchFile,
    run: &StorageRun,
    shown: &dyn Fn(u64),
) -> Result<Measured, StorageError> {
    let failed = |e| folder.error("read", e);
    let source = SourceFile::new(file.0.try_clone().map_err(failed)?, how(run), run.size_bytes);
    if run.direct && !source.is_direct() {
        return Err(folder.no_direct());
    }
    let cached = drop_cache(&file.0, run.size_bytes).map_err(|e| folder.error("drop a file from the page cache", e))?;
    measure(folder, run, &|| Reader::new(&source, run), None, cached, shown).map_err(failed)
}

fn how(run: &StorageRun) -> DirectIo {
    if run.direct { DirectIo::On } else { DirectIo::Off }
}

/// Drops a file from the page cache (`posix_fadvise(2)`, POSIX_FADV_DONTNEED). Returns the bytes that are still there; `None` if
/// its file system maps no files, as FUSE without the page cache.
fn drop_cache(file: &File, size: u64) -> io::Result<Option<u64>> {
    file.sync_data()?;
    nix::fcntl::posix_fadvise(file.as_fd(), 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    match cached_bytes(file, size) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        bytes => bytes.map(Some),
    }
}

/// Bytes of a file that are in the page cache (`mincore(2)`).
fn cached_bytes(file: &File, size: u64) -> io::Result<u64> {
    /// Bytes that are mapped at a time.
    const WINDOW: u64 = 1 << 30;
    let page =
        nix::unistd::sysconf(SysconfVar::PAGE_SIZE)?.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(ALIGN);
    let mut pages = 0;
    for offset in (0..size).step_by(WINDOW as usize) {
        let len = WINDOW.min(size - offset) as usize;
        let (protection, sharing) = (libc::PROT_READ, libc::MAP_SHARED);
        let mut there = vec![0u8; len.div_ceil(page as usize)];
        // SAFETY: a new mapping at an address that the kernel chooses. It is never read, and unmapped at once; `there` has a
        // byte for each of its pages.
        let asked = unsafe {
            let at =
                libc::mmap(std::ptr::null_mut(), len, protection, sharing, file.as_raw_fd(), offset as libc::off_t);
            if at == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let asked = libc::mincore(at, len, there.as_mut_ptr());
            let result = if asked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
            libc::munmap(at, len);
            result
        };
        asked?;
        pages += there.iter().filter(|byte| **byte & 1 == 1).count() as u64;
    }
    Ok((pages * page).min(size))
}

/// What one thread does with a block.
trait Work {
    /// Handles the first bytes of `rest` that follow each other at `at` in one call. Returns how many.
    fn step(&mut self, at: u64, rest: u64, timed: &mut Timed) -> io::Result<u64>;
}

/// Times the calls of one thread.
struct Timed(Histogram<u64>);

impl Timed {
    fn call<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = call();
        self.0.saturating_record(begin.elapsed().as_nanos() as u64);
        result
    }
}

struct Reader<'a> {
    source: &'a SourceFile,
    buffer: Aligned,
    piece: usize,
}

impl<'a> Reader<'a> {
    fn new(source: &'a SourceFile, run: &StorageRun) -> Reader<'a> {
        let piece = call_bytes(run);
        Reader { source, buffer: Aligned::new(piece), piece }
    }
}

impl Work for Reader<'_> {
    fn step(&mut self, at: u64, rest: u64, timed: &mut Timed) -> io::Result<u64> {
        let len = rest.min(self.piece as u64) as usize;
        if self.source.is_direct() {
            timed.call(|| self.source.read_direct(&mut self.buffer, len, at))?;
        } else {
            timed.call(|| self.source.read_cached(self.buffer.first(len), at))?;
        }
        Ok(len as u64)
    }
}

/// Random bytes that a thread writes before it repeats them: more than storage looks back when it compresses.
const RANDOM_BYTES: usize = 4 << 20;
/// Most random bytes of all threads together.
const MAX_RANDOM_BYTES: usize = 256 << 20;

/// Number of different pieces that a thread writes in turn. At least one, however large it is.
fn random_pieces(run: &StorageRun, piece: usize) -> usize {
    let share = MAX_RANDOM_BYTES / usize::from(run.threads.max(1));
    let in_file = run.size_bytes.div_ceil(piece as u64).try_into().unwrap_or(usize::MAX);
    (RANDOM_BYTES.min(share) / piece).min(in_file).max(1)
}

struct Writer<'a> {
    target: &'a TargetFile,
    huge_pages: HugePages,
    /// Random pieces, which are written in turn.
    pieces: Vec<Aligned>,
    /// Number of pieces that were written.
    written: usize,
    piece: usize,
}

impl<'a> Writer<'a> {
    /// Its bytes are random, as storage may compress or share others.
    fn new(target: &'a TargetFile, run: &StorageRun) -> Writer<'a> {
        let piece = call_bytes(run);
        let random = |_| {
            let mut buffer = Aligned::new(piece);
            rand::rng().fill(buffer.first(piece));
            buffer
        };
        let pieces = (0..random_pieces(run, piece)).map(random).collect();
        Writer { target, huge_pages: HugePages::default(), pieces, written: 0, piece }
    }
}

impl Work for Writer<'_> {
    fn step(&mut self, at: u64, rest: u64, timed: &mut Timed) -> io::Result<u64> {
        let len = rest.min(self.piece as u64) as usize;
        let number = self.written % self.pieces.len();
        let buffer = &mut self.pieces[number];
        self.written += 1;
        // No two pages of the file are alike.
        let bytes = buffer.first(len);
        for (page, number) in bytes.chunks_mut(ALIGN as usize).zip(at / ALIGN..) {
            let mark = number.to_le_bytes();
            let len = mark.len().min(page.len());
            page[..len].copy_from_slice(&mark[..len]);
        }
        if self.target.is_direct() {
            timed.call(|| self.target.write_direct(buffer, len, at))?;
            return Ok(len as u64);
        }
        let (target, huge_pages) = (self.target, &mut self.huge_pages);
        let in_place = timed.call(|| {
            let Some(mut page) = huge_pages.page(target, at, rest) else {
                return target.write_cached(bytes, at).map(|()| None);
            };
            for piece in page.bytes().0.chunks_mut(len) {
                piece.copy_from_slice(&bytes[..piece.len()]);
            }
            page.end().map(|()| Some(HUGE_PAGE as u64))
        })?;
        Ok(in_place.unwrap_or(len as u64))
    }
}

/// Most bytes of one call, as in a copy.
fn call_bytes(run: &StorageRun) -> usize {
    if run.direct { direct_io::piece_bytes(run.block_bytes) } else { PIECE.min(run.block_bytes as usize) }
}

/// What the threads share.
struct Shared {
    /// Number of the next block.
    next: AtomicU64,
    /// Bytes that were read or written.
    bytes: AtomicU64,
    /// Whether a thread has failed.
    over: AtomicBool,
    /// Number of threads that have their memory.
    ready: AtomicU64,
    /// Whether the ready threads may begin.
    go: AtomicBool,
    /// Number of threads that have ended.
    ended: AtomicU64,
    /// Guards what the threads have counted. It is held alone.
    total: Mutex<Total>,
}

/// What the threads have counted.
struct Total {
    calls: Histogram<u64>,
    user_s: f64,
    system_s: f64,
    /// Processor time of the thread that used most, s.
    busiest_s: f64,
    error: Option<io::Error>,
}

/// Latencies in ns, with three digits.
fn histogram() -> io::Result<Histogram<u64>> {
    const LONGEST_NS: u64 = 3_600_000_000_000;
    Histogram::new_with_bounds(1, LONGEST_NS, 3).map_err(io::Error::other)
}

/// User and system time of the calling thread, s.
fn processor_time() -> (f64, f64) {
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    getrusage(UsageWho::RUSAGE_THREAD).map_or((0.0, 0.0), |u| (seconds(u.user_time()), seconds(u.system_time())))
}

/// Measures. `sync` comes after the last call of a write; `cached_bytes` are those that were in the page cache before a read.
fn measure<W: Work>(
    folder: &StorageFolder,
    run: &StorageRun,
    work: &(dyn Fn() -> W + Sync),
    sync: Option<&dyn Fn() -> io::Result<()>>,
    cached_bytes: Option<u64>,
    shown: &dyn Fn(u64),
) -> io::Result<Measured> {
    let total = Mutex::new(Total { calls: histogram()?, user_s: 0.0, system_s: 0.0, busiest_s: 0.0, error: None });
    let shared = Shared {
        next: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        over: AtomicBool::new(false),
        ready: AtomicU64::new(0),
        go: AtomicBool::new(false),
        ended: AtomicU64::new(0),
        total,
    };
    let mut samples = Vec::new();
    let watcher = std::thread::current();
    let (begin, load) = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut start = |number| {
            let thread = || {
                let result = one_thread(run, work, &shared, &watcher);
                if let Err(error) = result {
                    shared.over.store(true, Ordering::Relaxed);
                    lock(&shared.total).error.get_or_insert(error);
                }
                shared.ended.fetch_add(1, Ordering::Release);
                watcher.unpark();
            };
            threads.push(std::thread::Builder::new().name(format!("storage {number}")).spawn_scoped(scope, thread)?);
            Ok(())
        };
        let started: io::Result<()> = (0..run.threads).try_for_each(&mut start);
        // Without all threads, those that there are end at once.
        shared.over.store(started.is_err(), Ordering::Relaxed);
        while started.is_ok() && shared.ready.load(Ordering::Acquire) < u64::from(run.threads) {
            std::thread::park();
        }
        // Reading the counters takes time, which is none of the run's.
        let load = HostLoad::now(folder.device());
        let begin = (Instant::now(), load);
        shared.go.store(true, Ordering::Release);
        threads.iter().for_each(|thread| thread.thread().unpark());
        started?;
        let mut interval = SAMPLE;
        while shared.ended.load(Ordering::Acquire) < u64::from(run.threads) {
            std::thread::park_timeout(interval);
            let bytes = shared.bytes.load(Ordering::Relaxed);
            samples.push(StorageSample { t: begin.0.elapsed().as_secs_f64(), bytes });
            if samples.len() >= MAX_SAMPLES {
                let mut is_odd = false;
                samples.retain(|_| {
                    is_odd = !is_odd;
                    !is_odd
                });
                interval *= 2;
            }
            shown(bytes);
        }
        Ok::<_, io::Error>(begin)
    })?;
    let calls_s = begin.elapsed().as_secs_f64();
    let Total { calls, mut user_s, mut system_s, busiest_s, error } =
        shared.total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(error) = error {
        return Err(error);
    }
    if let Some(sync) = sync {
        let before = processor_time();
        sync()?;
        let after = processor_time();
        user_s += after.0 - before.0;
        system_s += after.1 - before.1;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let since = load.since(folder.device());
    let bytes = shared.bytes.into_inner();
    // Over the whole run, fsync included, as all other evidence.
    let cpu_busiest = (busiest_s / seconds).min(1.0);
    let is_read = run.operation == Operation::Read;
    let of_read = since.storage_bytes.filter(|_| is_read);
    let storage_bytes = of_read.and_then(|counted| bottleneck::counted(bytes, counted, cached_bytes));
    let from_storage = || bottleneck::from_storage(bytes, storage_bytes, cached_bytes);
    let evidence = Evidence {
        from_storage: (is_read && !folder.is_in_memory()).then(from_storage).flatten(),
        busiest_thread: cpu_busiest,
        processors: since.processors,
        device: since.device,
    };
    let outcome = StorageOutcome {
        kind: "result".into(),
        rate_bps: bytes as f64 * 8.0 / seconds,
        bytes,
        seconds,
        fsync_s: if sync.is_some() { seconds - calls_s } else { 0.0 },
        call_bytes: call_bytes(run) as u64,
        calls: calls.len(),
        latency: latency(&calls),
        cpu_user_s: user_s,
        cpu_system_s: system_s,
        cpu_busiest,
        cpu_host: since.processors,
        device_busy: since.device,
        storage_bytes,
        cached_bytes,
        bottleneck: bottleneck::name(&evidence),
    };
    Ok(Measured { outcome, samples })
}

/// Handles blocks until none is left, and adds what it has counted.
fn one_thread<W: Work>(
    run: &StorageRun,
    work: &(dyn Fn() -> W + Sync),
    shared: &Shared,
    watcher: &Thread,
) -> io::Result<()> {
    let (mut work, timed) = (work(), histogram());
    shared.ready.fetch_add(1, Ordering::Release);
    watcher.unpark();
    while !shared.go.load(Ordering::Acquire) {
        std::thread::park();
    }
    let mut timed = Timed(timed?);
    let before = processor_time();
    let mut blocks = || {
        loop {
            let number = shared.next.fetch_add(1, Ordering::Relaxed);
            let Some(mut at) = number.checked_mul(run.block_bytes).filter(|at| *at < run.size_bytes) else {
                return Ok(());
            };
            let end = run.size_bytes.min(at + run.block_bytes);
            while at < end {
                if shared.over.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let done = work.step(at, end - at, &mut timed)?;
                at += done;
                shared.bytes.fetch_add(done, Ordering::Relaxed);
            }
        }
    };
    let result = blocks();
    let after = processor_time();
    let (user, system) = (after.0 - before.0, after.1 - before.1);
    let mut total = lock(&shared.total);
    total.user_s += user;
    total.system_s += system;
    total.busiest_s = total.busiest_s.max(user + system);
    total.calls.add(&timed.0).map_err(io::Error::other)?;
    result
}

fn latency(calls: &Histogram<u64>) -> Latency {
    let s = |ns: u64| ns as f64 / 1e9;
    Latency {
        mean_s: calls.mean() / 1e9,
        p50_s: s(calls.value_at_quantile(0.5)),
        p90_s: s(calls.value_at_quantile(0.9)),
        p99_s: s(calls.value_at_quantile(0.99)),
        p999_s: s(calls.value_at_quantile(0.999)),
        max_s: s(calls.max()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(folder: &StorageFolder, threads: u16, block_bytes: u64, size_bytes: u64) -> StorageRun {
        let folder = folder.path().to_string_lossy().into_owned();
        StorageRun { folder, operation: Operation::Write, threads, block_bytes, direct: false, size_bytes }
    }

    #[test]
    fn small_blocks_do_not_repeat_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let folder = StorageFolder::open(dir.path()).unwrap();
        let (block, blocks) = (64 << 10, 32);
        let (file, _) = write(&folder, &run(&folder, 1, block, block * blocks), &|_| {}).unwrap();
        let mut known = std::collections::HashSet::new();
        for number in 0..blocks {
            // The first bytes of a page are its number.
            let mut bytes = [0; 4000];
            std::os::unix::fs::FileExt::read_exact_at(&file.0, &mut bytes, number * block + 8).unwrap();
            assert!(known.insert(bytes), "block {number}");
        }
    }

    #[test]
    fn the_random_bytes_of_all_threads_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let folder = StorageFolder::open(dir.path()).unwrap();
        for (threads, piece, pieces) in
            [(1, 64 << 10, 64), (1, 1 << 20, 4), (256, 64 << 10, 16), (u16::MAX, 1 << 20, 1)]
        {
            assert_eq!(random_pieces(&run(&folder, threads, 64 << 10, 1 << 40), piece), pieces, "{threads} {piece}");
        }
        assert_eq!(random_pieces(&run(&folder, 1, 64 << 10, 100_000), 64 << 10), 2);
    }
}
