//! `fullpipe measure disk:FOLDER` and `mount:FOLDER`: measures how fast a copy can read and write in a folder.

mod args;
mod in_lab;
mod print;
mod result;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use fullpipe_path::record::storage::StorageHeader;
use fullpipe_path::record::{self, storage as lines};
use fullpipe_path::storage::{Operation, StorageRun, binary};
use fullpipe_path::{DirectIo, ExitClass, Size};
use fullpipe_transfer::protocol::name::one_line;
use fullpipe_transfer::storage::{Measured, ScratchFile, StorageFolder, read, write};
use serde_json::{Value, json};
use signal_hook::iterator::Signals;

pub use self::args::{Common, StorageArgs};
use self::args::{DEFAULT_BLOCK, DEFAULT_SIZE, List};
pub use self::in_lab::{LabFlags, run_in_lab};
use self::result::{Done, Place};
use crate::failure::{Failure, Result};
use crate::mount::Mount;
use crate::output;
use crate::{format, interrupt, progress, run_record};

/// How a file is written that is only read: by this many threads, in blocks of this many bytes.
const UNMEASURED_WRITE: (u16, u64) = (4, 8 << 20);

/// What storage is measured.
pub enum Target<'a> {
    /// That of a folder, whatever its file system is: `disk:FOLDER`.
    Disk(&'a str),
    /// That of a folder on a file system that is mounted over a network or by a program: `mount:FOLDER`.
    Mount(&'a str),
}

impl Target<'_> {
    /// Reads `disk:FOLDER` and `mount:FOLDER`; `None` for everything else.
    pub fn parse(path: &str) -> Option<Target<'_>> {
        let disk = path.strip_prefix("disk:").map(Target::Disk);
        disk.or_else(|| path.strip_prefix("mount:").map(Target::Mount))
    }

    /// Opens the folder, and reads its mount if it must be one.
    ///
    /// # Errors
    /// There is no such folder, it is on no such mount, or this user cannot write to it.
    fn open(&self) -> Result<(StorageFolder, Option<Mount>)> {
        match *self {
            Target::Disk("") => Err(Failure::usage("disk: names no folder; give one, as in disk:/scratch")),
            Target::Mount("") => Err(Failure::usage("mount: names no folder; give one, as in mount:/mnt/far")),
            Target::Disk(folder) => Ok((StorageFolder::open(Path::new(folder))?, None)),
            Target::Mount(folder) => {
                let mount = Mount::read(Path::new("/"), folder)?;
                if !mount.is_remote() {
                    let why = format!(
                        "mount:{folder}: it is on {} ({}), which is not mounted over a network or by FUSE; mount what is meant first \
                         (findmnt shows what is), or measure the disk that is there: disk:{folder}",
                        one_line(mount.folder.as_os_str().as_encoded_bytes()),
                        mount.kind
                    );
                    return Err(Failure::usage(why));
                }
                if !Path::new(folder).is_dir() {
                    return Err(Failure::usage(format!("mount:{folder}: is no folder; give one of the mount")));
                }
                Ok((StorageFolder::open(Path::new(folder))?, Some(mount)))
            }
        }
    }
}

/// Measures each combination of the flags, writes the records, and prints the results.
pub fn run(target: &Target<'_>, args: &StorageArgs, common: &Common) -> Result {
    let size = common.size.unwrap_or(DEFAULT_SIZE);
    let (folder, mount) = target.open()?;
    let grid = grid(&folder, args, size)?;
    common.check_out(grid.len() as u64)?;
    folder.check_room(size.0)?;
    let place = Place {
        folder: folder.path().to_string_lossy().into_owned(),
        file_system: folder.file_system()?,
        in_memory: folder.is_in_memory(),
        mount: mount.as_ref().map(Mount::info),
        path: None,
    };
    if !common.quiet {
        print::announce(&place, &grid, size);
    }
    let finished = Finished { place, done: Mutex::default(), is_printed: !common.json && !common.quiet };
    let finished = Arc::new(finished);
    on_interrupt(finished.clone())?;
    let place = &finished.place;
    let mut file = None;
    for run in grid {
        let measured = match one(&folder, &run, &mut file, common.quiet || common.json) {
            Ok(measured) => measured,
            Err(failure) => {
                finished.print_early(&finished.done());
                return Err(failure);
            }
        };
        let text = render(&run, place, &measured)?;
        let record = match &common.out {
            Some(out) => Some(run_record::keep_new(out, &place.id(&run), &text)?),
            None => None,
        };
        if common.json {
            output::out(format_args!("{text}"));
        }
        if !common.quiet {
            print::warn_of_cache(place, &run, &measured.outcome);
        }
        finished.done().push(Done { run, outcome: measured.outcome, record });
    }
    let done = finished.done();
    if finished.is_printed {
        print::print(place, &done);
    }
    Ok(())
}

/// The runs that have finished.
struct Finished {
    place: Place,
    /// Nothing is done while it is locked but to print it at the end.
    done: Mutex<Vec<Done>>,
    /// Whether a table of them is printed.
    is_printed: bool,
}

impl Finished {
    fn done(&self) -> MutexGuard<'_, Vec<Done>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints a table of the runs that have finished before the program ends early.
    fn print_early(&self, done: &[Done]) {
        if self.is_printed {
            progress::end_line();
            if !done.is_empty() {
                print::print(&self.place, done);
            }
        }
    }
}

/// Has an interruption end the program with the results that there are. The file that it writes goes with it.
fn on_interrupt(finished: Arc<Finished>) -> Result {
    let failed = |e| Failure::new(ExitClass::Missing, format!("cannot wait for signals: {e}"));
    let mut signals = Signals::new(interrupt::signals()).map_err(failed)?;
    let wait = move || {
        if signals.forever().next().is_none() {
            return;
        }
        // A second signal ends the program where nobody takes what it prints.
        interrupt::end_at_second();
        // Held to the end: nothing more is printed.
        let done = finished.done();
        finished.print_early(&done);
        let results = format::count(done.len() as u64, "run had finished", "runs had finished");
        let failure = Failure::new(ExitClass::Interrupted, format!("interrupted; {results}"));
        let code = failure.code();
        failure.report();
        std::process::exit(code.into());
    };
    std::thread::Builder::new().stack_size(256 << 10).spawn(wait).map_err(failed)?;
    Ok(())
}

/// All runs, in their order: the file that a run writes is read by the next.
fn grid(folder: &StorageFolder, args: &StorageArgs, size: Size) -> Result<Vec<StorageRun>> {
    let values = |list: &Option<List>, default: u64| list.as_ref().map_or_else(|| vec![default], |list| list.0.clone());
    let mut directs = Vec::new();
    for direct in args.direct.as_ref().map_or(&[DirectIo::Auto][..], |list| &list.0) {
        let direct = match direct {
            DirectIo::On => folder.check_direct().map(|()| true)?,
            DirectIo::Off => false,
            DirectIo::Auto => folder.is_direct_by_default(size.0)?,
        };
        if !directs.contains(&direct) {
            directs.push(direct);
        }
    }
    let operations = [(Operation::Write, !args.read), (Operation::Read, !args.write)];
    let mut runs = Vec::new();
    for &direct in &directs {
        for &block_bytes in &values(&args.block, DEFAULT_BLOCK.0) {
            for &threads in &values(&args.threads, 1) {
                if block_bytes.saturating_mul(threads) > size.0 {
                    let (what, block) = (format::count(threads, "thread", "threads"), binary(block_bytes));
                    let why = format!(
                        "--size {size} is too small: it has no block of {block} for each of {what}; give a larger --size, or a smaller \
                         --block"
                    );
                    return Err(Failure::usage(why));
                }
                runs.extend(operations.iter().filter(|(_, wanted)| *wanted).map(|&(operation, _)| StorageRun {
                    folder: folder.path().to_string_lossy().into_owned(),
                    operation,
                    threads: threads as u16,
                    block_bytes,
                    direct,
                    size_bytes: size.0,
                }));
            }
        }
    }
    Ok(runs)
}

/// Measures one run. `file` is the file that the last one wrote.
fn one(folder: &StorageFolder, run: &StorageRun, file: &mut Option<ScratchFile>, quiet: bool) -> Result<Measured> {
    let bar = |run: &StorageRun| progress::bar(run.size_bytes, &print::name(run), quiet);
    if run.operation == Operation::Write {
        // Its room is free before the next is written.
        *file = None;
        let bar = bar(run);
        let (written, measured) = write(folder, run, &|bytes| bar.set_position(bytes))?;
        bar.finish_and_clear();
        *file = Some(written);
        return Ok(measured);
    }
    let written = match file.take() {
        Some(written) => written,
        None => {
            let (threads, block) = UNMEASURED_WRITE;
            let direct = folder.is_direct_by_default(run.size_bytes)?;
            let first = StorageRun { operation: Operation::Write, threads, block_bytes: block, direct, ..run.clone() };
            let bar = bar(&first);
            let (written, _) = write(folder, &first, &|bytes| bar.set_position(bytes))?;
            bar.finish_and_clear();
            written
        }
    };
    let bar = bar(run);
    let measured = read(folder, &written, run, &|bytes| bar.set_position(bytes))?;
    bar.finish_and_clear();
    *file = Some(written);
    Ok(measured)
}

/// The record of a run, as NDJSON.
fn render(run: &StorageRun, place: &Place, measured: &Measured) -> Result<String> {
    let mut real: BTreeMap<String, Value> = BTreeMap::new();
    let ended = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    real.insert("ended_unix_s".into(), json!(ended.as_secs()));
    run_record::add_host(&mut real);
    let kernel =
        nix::sys::utsname::uname().map_or_else(|_| String::new(), |name| name.release().to_string_lossy().into());
    let header = StorageHeader {
        kind: "storage".into(),
        version: record::VERSION,
        id: place.id(run),
        program: env!("CARGO_PKG_VERSION").into(),
        storage: run.clone(),
        kernel,
        file_system: place.file_system.clone(),
        path: None,
        seed: None,
        mount: place.mount.clone(),
        real,
    };
    let failed = |e: &dyn std::fmt::Display| Failure::new(ExitClass::Record, format!("cannot write the record: {e}"));
    let mut text = Vec::new();
    lines::write(&mut text, &header, &measured.samples, &measured.outcome).map_err(|e| failed(&e))?;
    String::from_utf8(text).map_err(|e| failed(&e))
}
