//! `fullpipe measure lab:...,mount=nfs`: measures in the testbed's guest what end a has mounted over the path, with
//! `fullpipe measure mount:` there.

use std::time::Duration;

use fullpipe_lab::{Lab, MOUNT, records};
use fullpipe_path::record::storage::{StorageHeader, StorageOutcome};
use fullpipe_path::storage::binary;
use fullpipe_path::{ExitClass, LabPath, Size};

use super::args::{Common, DEFAULT_SIZE, StorageArgs};
use super::print;
use super::result::{Done, Place};
use crate::failure::{Failure, Result};
use crate::{output, progress, run_record};

/// The flags that only the testbed has.
pub struct LabFlags {
    /// Seed of all random numbers in the guest.
    pub seed: u64,
    /// Most real time that the guest may take.
    pub limit: Duration,
    /// The guest's memory, if it was given.
    pub memory: Option<Size>,
}

/// Measures each combination of the flags in one guest, writes the records, and prints the results.
///
/// # Errors
/// The path cannot be measured so, the guest or the measurement in it fails, or a record cannot be written.
pub fn run_in_lab(path: &LabPath, args: &StorageArgs, common: &Common, flags: &LabFlags) -> Result {
    if path.disk_a.is_some() {
        let why = "disk_a is at the end that mounts, where nothing reads or writes it; leave it out, and give disk_b for the \
                   disk that is served";
        return Err(Failure::usage(why));
    }
    let size = common.size.unwrap_or(DEFAULT_SIZE);
    let (key, has) = match (&path.disk_b, &path.mount) {
        (Some(disk), _) => ("disk_b", disk.size),
        (None, mount) => ("mount", mount.as_ref().map_or(Size(0), |mount| mount.size)),
    };
    // A tenth is the file system's own data, and what a measurement leaves free.
    let least = size.0.saturating_add(size.0 / 10).saturating_add(10_000_000);
    if has.0 < least {
        let gigabytes = least.div_ceil(1_000_000_000);
        let why = format!("{key} has {has}, too little for a file of {size}; add +size:{gigabytes}GB to it");
        return Err(Failure::usage(why));
    }
    let most = args.most_runs();
    common.check_out(most)?;
    let lab = Lab::open(path.kernel.as_deref())?.with_memory(flags.memory);
    let bar = progress::bar(size.0.saturating_mul(most), "mount", common.quiet || common.json);
    let printed = lab.run_at_a(path, flags.seed, args.program(size), flags.limit, &|bytes| bar.set_position(bytes))?;
    bar.finish_and_clear();
    let mut place = None;
    let mut done = Vec::new();
    for text in records(&printed.text, "storage") {
        let (header, rest) = text.split_once('\n').unwrap_or((text, ""));
        let unread = |e| Failure::new(ExitClass::Lab, format!("cannot read the guest's record: {e}"));
        let mut header: StorageHeader = serde_json::from_str(header).map_err(unread)?;
        let outcome: StorageOutcome =
            serde_json::from_str(rest.lines().next_back().unwrap_or_default()).map_err(unread)?;
        let here = Place {
            folder: header.storage.folder.clone(),
            file_system: header.file_system.clone(),
            in_memory: false,
            mount: header.mount.clone(),
            path: Some((path.clone(), flags.seed)),
        };
        header.id = here.id(&header.storage);
        header.path = Some(path.clone());
        header.seed = Some(flags.seed);
        header.real = printed.real.clone();
        let first = serde_json::to_string(&header).map_err(unread)?;
        let text = format!("{first}\n{rest}");
        let record = common.out.as_deref().map(|out| run_record::keep_same(out, &header.id, &text)).transpose()?;
        if common.json {
            output::out(format_args!("{text}"));
        }
        if !common.quiet {
            print::warn_of_cache(&here, &header.storage, &outcome);
        }
        done.push(Done { run: header.storage, outcome, record });
        place = Some(here);
    }
    if let Some(place) = place.filter(|_| !common.json && !common.quiet) {
        print::print(&place, &done);
    }
    Ok(())
}

impl StorageArgs {
    /// Number of runs that these flags ask for, or more if some of them are the same.
    fn most_runs(&self) -> u64 {
        let operations = if self.read || self.write { 1 } else { 2 };
        let lists = [&self.threads, &self.block].map(|list| list.as_ref().map_or(1, |list| list.0.len()));
        let directs = self.direct.as_ref().map_or(1, |list| list.0.len());
        (operations * lists[0] * lists[1] * directs) as u64
    }

    /// Spells these flags for a measurement of a file of `size` bytes in the guest.
    fn program(&self, size: Size) -> Vec<String> {
        let mut words = vec!["fullpipe".to_owned(), "measure".into(), format!("mount:{MOUNT}")];
        words.extend(["--json", "--quiet", "--size"].map(str::to_owned));
        words.push(size.to_string());
        for (given, flag) in [(self.read, "--read"), (self.write, "--write")] {
            words.extend(given.then(|| flag.to_owned()));
        }
        let mut add = |flag: &str, values: Vec<String>| words.extend([flag.to_owned(), values.join(",")]);
        if let Some(list) = &self.threads {
            add("--threads", list.0.iter().map(u64::to_string).collect());
        }
        if let Some(list) = &self.block {
            add("--block", list.0.iter().map(|bytes| binary(*bytes)).collect());
        }
        if let Some(list) = &self.direct {
            add("--direct", list.0.iter().map(ToString::to_string).collect());
        }
        words
    }
}
