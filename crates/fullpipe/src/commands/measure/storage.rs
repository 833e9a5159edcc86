//! `fullpipe measure disk:FOLDER` and `mount:FOLDER`: measures how fast a copy can read and write in a folder.

mod in_lab;
mod print;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use fullpipe_path::record::storage::{FileSystemInfo, MountInfo, StorageHeader, StorageOutcome};
use fullpipe_path::record::{self, storage as lines};
use fullpipe_path::storage::{Operation, StorageRun, binary};
use fullpipe_path::{DirectIo, DiskAccess, ExitClass, LabPath, Size};
use fullpipe_transfer::protocol::name::one_line;
use fullpipe_transfer::storage::{Measured, ScratchFile, StorageFolder, read, write};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::mount::Mount;
use crate::output::{self, errln};
use crate::{format, progress, run_record};

/// Most threads.
const MAX_THREADS: u64 = 64;
/// Blocks may have these sizes, and must be multiples of the smaller: direct I/O needs whole sectors.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 4096..=1 << 30;
/// Size of the file without `--size`.
const DEFAULT_SIZE: Size = Size(1_000_000_000);
/// Size of a block without `--block`.
const DEFAULT_BLOCK: Size = Size(8 << 20);
/// How a file is written that is only read: by this many threads, in blocks of this many bytes.
const UNMEASURED_WRITE: (u16, u64) = (4, 8 << 20);

/// The flags that only storage has.
#[derive(clap::Args)]
pub struct StorageArgs {
    /// Only read; the file is written first and dropped from the page cache [default: write, then read]
    #[arg(long, conflicts_with = "write", help_heading = HEADING)]
    read: bool,
    /// Only write
    #[arg(long, help_heading = HEADING)]
    write: bool,
    /// Read or write with this many threads, 1 to 64: a number, a list (1,4,16), or a range of doubles (1-16) [default: 1]
    #[arg(long, value_name = "LIST", value_parser = threads, help_heading = HEADING)]
    threads: Option<List>,
    /// Give each thread blocks of this size in turn, 4KiB to 1GiB: a size, a list, or a range (1MiB-128MiB); between the disks of a
    /// path, give each stream such blocks, one size from 64KiB to 64MiB [default: 8MiB]
    #[arg(long, value_name = "LIST", value_parser = blocks, help_heading = HEADING)]
    block: Option<List>,
    /// Bypass the page cache (on), use it (off), measure both (on,off), or do as cp does (auto) [default: auto]
    #[arg(long, value_name = "on|off|auto", value_parser = direct, help_heading = HEADING)]
    direct: Option<DirectList>,
}

/// The flags that have a meaning for storage, too.
pub struct Common {
    /// Size of the file.
    pub size: Option<Size>,
    /// Where the records go.
    pub out: Option<PathBuf>,
    /// Whether the records are printed.
    pub json: bool,
    /// Whether only errors are printed.
    pub quiet: bool,
}

/// Heading of these flags in the help text.
const HEADING: &str = "Storage (disk:FOLDER, mount:FOLDER, or a path with mount, or with disk_a and disk_b)";

pub use in_lab::{LabFlags, run_in_lab};

/// Values of which each is measured.
#[derive(Clone)]
struct List(Vec<u64>);

/// Whether the page cache is bypassed: each of these is measured. `None` stands for what `cp` does.
#[derive(Clone)]
struct DirectList(Vec<Option<bool>>);

impl StorageArgs {
    /// The first of these flags that was given.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [
            (self.read, "--read"),
            (self.write, "--write"),
            (self.threads.is_some(), "--threads"),
            (self.block.is_some(), "--block"),
            (self.direct.is_some(), "--direct"),
        ];
        flags.into_iter().find_map(|(given, flag)| given.then_some(flag))
    }
}

impl StorageArgs {
    /// How these flags want files on emulated disks to be read and written.
    ///
    /// # Errors
    /// A flag has several values, or none for such a run.
    pub fn disk_access(&self) -> Result<DiskAccess> {
        let given = [(self.read, "--read"), (self.write, "--write"), (self.threads.is_some(), "--threads")];
        if let Some((_, flag)) = given.iter().find(|(given, _)| *given) {
            let why = format!(
                "{flag} is for disk:FOLDER, mount:FOLDER, and a path with mount; between the disks of a path, each of --streams has a thread at both ends"
            );
            return Err(Failure::usage(why));
        }
        let one = |flag: &str| Failure::usage(format!("{flag}: give one value for a run between the disks of a path"));
        let block = match self.block.as_ref().map(|list| &list.0[..]) {
            None => DEFAULT_BLOCK,
            Some([bytes]) => Size(*bytes),
            Some(_) => return Err(one("--block")),
        };
        let direct = match self.direct.as_ref().map(|list| &list.0[..]) {
            None | Some([None]) => DirectIo::Auto,
            Some([Some(true)]) => DirectIo::On,
            Some([Some(false)]) => DirectIo::Off,
            Some(_) => return Err(one("--direct")),
        };
        Ok(DiskAccess { block, direct })
    }
}

fn threads(text: &str) -> Result<List, String> {
    let parse = |one: &str| match one.parse() {
        Ok(n) if (1..=MAX_THREADS).contains(&n) => Ok(n),
        _ => Err(format!("'{one}' is no number of threads from 1 to {MAX_THREADS}")),
    };
    list(text, parse)
}

fn blocks(text: &str) -> Result<List, String> {
    let parse = |one: &str| {
        let size: Size = one.parse().map_err(|e| format!("{e}"))?;
        if !BLOCK_BYTES.contains(&size.0) || !size.0.is_multiple_of(*BLOCK_BYTES.start()) {
            return Err(format!("'{one}' is not a multiple of 4KiB from 4KiB to 1GiB, such as 8MiB"));
        }
        Ok(size.0)
    };
    list(text, parse)
}

/// Reads numbers with commas between them, and ranges: `2-16` is 2, 4, 8, 16, and `2-12` is 2, 4, 8, 12.
fn list(text: &str, parse: impl Fn(&str) -> Result<u64, String>) -> Result<List, String> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (parse(first)?, parse(last)?);
        if first > last {
            return Err(format!("'{part}' ends before it begins; write the smaller first"));
        }
        let doubles = std::iter::successors(Some(first), |n| n.checked_mul(2)).take_while(|n| *n < last);
        all.extend(doubles.chain([last]));
    }
    let mut seen = std::collections::HashSet::new();
    all.retain(|n| seen.insert(*n));
    Ok(List(all))
}

fn direct(text: &str) -> Result<DirectList, String> {
    let one = |word: &str| match word {
        "on" => Ok(Some(true)),
        "off" => Ok(Some(false)),
        "auto" => Ok(None),
        _ => Err("give on, off, auto, or on,off".to_owned()),
    };
    text.split(',').map(one).collect::<Result<_, _>>().map(DirectList)
}

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
                        "mount:{folder}: {} ({}) is not mounted over a network or by FUSE; measure it as a disk: disk:{folder}",
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
    if let Some(out) = &common.out {
        if run_record::is_file(out) && grid.len() > 1 {
            let why = format!("{} can hold one run, and these are {}; give --out a folder", out.display(), grid.len());
            return Err(Failure::usage(why));
        }
        run_record::check_target(out)?;
    }
    folder.check_room(size.0)?;
    let place = Place {
        folder: folder.path().to_string_lossy().into_owned(),
        file_system: folder.file_system()?,
        in_memory: folder.is_in_memory(),
        mount: mount.as_ref().map(Mount::info),
        path: None,
    };
    if !common.quiet {
        announce(&place, &grid, size);
    }
    let mut done = Vec::new();
    let mut file = None;
    for run in grid {
        let measured = one(&folder, &run, &mut file, common.quiet || common.json)?;
        let text = render(&run, &place, &measured)?;
        let record = match &common.out {
            Some(out) => Some(run_record::keep_new(out, &place.id(&run), &text)?),
            None => None,
        };
        if common.json {
            output::out(format_args!("{text}"));
        }
        if !common.quiet {
            print::warn_of_cache(&place, &run, &measured.outcome);
        }
        done.push(Done { run, outcome: measured.outcome, record });
    }
    if !common.json && !common.quiet {
        print::print(&place, &done);
    }
    Ok(())
}

/// The folder that is measured, and what is there.
struct Place {
    /// The folder.
    folder: String,
    /// Its file system, before the runs.
    file_system: FileSystemInfo,
    /// Whether its files are in memory.
    in_memory: bool,
    /// The mount of a folder that was given as one.
    mount: Option<MountInfo>,
    /// In the testbed, the path that it is mounted over, and the seed.
    path: Option<(LabPath, u64)>,
}

impl Place {
    /// The name of a run's record.
    fn id(&self, run: &StorageRun) -> String {
        match (&self.path, &self.mount) {
            (Some((path, seed)), _) => run.id_in_lab(path, *seed),
            (None, Some(_)) => format!("mount-{}", run.id()),
            (None, None) => run.id(),
        }
    }
}

/// A run and its result.
struct Done {
    run: StorageRun,
    outcome: StorageOutcome,
    record: Option<PathBuf>,
}

/// All runs, in their order: the file that a run writes is read by the next.
fn grid(folder: &StorageFolder, args: &StorageArgs, size: Size) -> Result<Vec<StorageRun>> {
    let values = |list: &Option<List>, default: u64| list.as_ref().map_or_else(|| vec![default], |list| list.0.clone());
    let mut directs = Vec::new();
    for direct in args.direct.as_ref().map_or(&[None][..], |list| &list.0) {
        let direct = match direct {
            Some(true) => folder.check_direct().map(|()| true)?,
            Some(false) => false,
            None => folder.is_direct_by_default(size.0)?,
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
                    let why = format!("--size {size} is too small: it has no block of {block} for each of {what}");
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

/// Says how much will be written, before anything is.
fn announce(place: &Place, grid: &[StorageRun], size: Size) {
    let writes = grid.iter().filter(|run| run.operation == Operation::Write).count().max(1) as u64;
    let times = match writes {
        1 => String::new(),
        n => format!(" {n} times, one after the other, {} in all,", format::bytes((n * size.0) as f64)),
    };
    let free = match (place.file_system.total_bytes, place.file_system.free_bytes) {
        (0, _) => "free room not known".to_owned(),
        (_, bytes) => format!("{} free", format::bytes(bytes as f64)),
    };
    // Clients of NFS and programs of FUSE keep a removed file that is open under a name such as .nfs0001.
    let name = if place.mount.is_some() {
        "it has no name there, or a hidden one until it is closed"
    } else {
        "it has no name there"
    };
    errln!(
        "writes a file of {}{times} to {} ({}, {free}); {name}, and its room is free again at the end",
        format::bytes(size.0 as f64),
        place.folder,
        place.file_system.kind,
    );
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges() {
        let ok = |text| threads(text).ok().map(|list| list.0);
        assert_eq!(ok("4"), Some(vec![4]));
        assert_eq!(ok("1,4,16"), Some(vec![1, 4, 16]));
        assert_eq!(ok("1-16"), Some(vec![1, 2, 4, 8, 16]));
        assert_eq!(ok("3-20,1,6"), Some(vec![3, 6, 12, 20, 1]));
        for bad in ["", "0", "65", "1-", "-1", "16-1", "x", "1,,2"] {
            assert_eq!(ok(bad), None, "{bad}");
        }
        assert_eq!(blocks("1MiB-4MiB").ok().map(|list| list.0), Some(vec![1 << 20, 2 << 20, 4 << 20]));
        for bad in ["1000", "1MB", "2GiB", "1KiB"] {
            assert!(blocks(bad).is_err(), "{bad}");
        }
    }
}
