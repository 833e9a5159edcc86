//! `fullpipe measure lab:...,disk_a=...,disk_b=...`: a copy of one file from the disk of end a to that of end b. On the host, this
//! spells the two programs of the guest; in the guest, it writes the file and starts the copy.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use fullpipe_lab::{Commands, DISK, RECORD, SERVER_ADDRESS};
use fullpipe_path::storage::{Operation, StorageRun, binary};
use fullpipe_path::{Direction, DiskAccess, ExitClass, LabPath, Protocol, Run, Size, Time, Workload};
use fullpipe_transfer::sizes::{BLOCKS, block_size};
use fullpipe_transfer::storage::{StorageFolder, write_named};

use super::guest_commands::guest_commands;
use crate::failure::{Failure, Result};

/// The file that is copied, in the folder that an end sees as its disk.
const SOURCE: &str = "source";
/// How the file is written before the copy: by this many threads, in blocks of this many bytes.
const SOURCE_THREADS: u16 = 4;
const SOURCE_BLOCK_BYTES: u64 = 8 << 20;

/// Sets the size of a block to what a copy with so many streams uses.
///
/// # Errors
/// No copy has such blocks.
pub fn with_block_of_copy(access: DiskAccess, streams: u16) -> Result<DiskAccess> {
    match u32::try_from(access.block.0) {
        Ok(asked) if BLOCKS.contains(&asked) => {
            Ok(DiskAccess { block: Size(block_size(asked, usize::from(streams))), ..access })
        }
        _ => Err(Failure::usage(format!("--block {}: between disks, give 64KiB to 64MiB", binary(access.block.0)))),
    }
}

/// Refuses a run that a copy between the path's disks cannot be.
///
/// # Errors
/// A disk is missing or too small, or the run has what a copy lacks.
pub fn check(run: &Run, path: &LabPath, omit: Option<Time>, probes: bool) -> Result {
    let Workload::Size(size) = run.workload else {
        return Err(Failure::usage(
            "give --size: between disks, a file of that size is copied, and no time is set (--duration)",
        ));
    };
    if run.direction == Direction::Receive {
        return Err(Failure::usage("--reverse: files go from disk_a to disk_b; exchange the two disks instead"));
    }
    if omit.is_some() {
        return Err(Failure::usage("--omit is for runs from memory to memory; between disks, leave it out"));
    }
    if run.bidir || probes {
        return Err(Failure::usage(
            "--bidir and --probe are for runs from memory to memory; between disks, leave them out",
        ));
    }
    if run.transport.protocol() == Protocol::Udp {
        return Err(Failure::usage("--transport udp carries no files; between disks, give tcp or udt"));
    }
    if run.transport.mss.is_some() {
        return Err(Failure::usage("--mss is for runs from memory to memory; between disks, give a smaller mtu"));
    }
    for (key, disk) in [("disk_a", &path.disk_a), ("disk_b", &path.disk_b)] {
        let Some(disk) = disk else {
            let why = format!("the path has no {key}; a copy between disks needs both, or disk=... for two equal ones");
            return Err(Failure::usage(why));
        };
        // A tenth is the file system's own data, and what a measurement of storage leaves free.
        let least = size.0.saturating_add(size.0 / 10).saturating_add(200_000_000);
        if disk.size.0 < least {
            let gigabytes = least.div_ceil(1_000_000_000);
            let why =
                format!("{key} has {}, too little for a file of {size}; add +size:{gigabytes}GB to it", disk.size);
            return Err(Failure::usage(why));
        }
    }
    Ok(())
}

/// Spells a run as a server that writes to its disk, and as this verb on the other end.
pub fn commands(run: &Run, path: &LabPath, access: &DiskAccess, stall: Time) -> Commands {
    let server = ["fullpipe", "serve", "--guest", "--quiet", "--bind", SERVER_ADDRESS, "--root", DISK, "--insecure"];
    let mut commands = guest_commands(run, path, stall, None, None);
    commands.server = server.map(str::to_owned).to_vec();
    let (block, direct) = (access.block.to_string(), access.direct.to_string());
    commands.client.extend(["--block".to_owned(), block, "--direct".to_owned(), direct]);
    commands
}

/// In the guest: writes the file to this end's disk, and becomes the `fullpipe cp` that copies it to the other end's and writes the
/// run's record. Returns only if that fails.
pub fn copy(run: &Run, path: &str, access: &DiskAccess, stall: Time) -> Failure {
    let Workload::Size(Size(size_bytes)) = run.workload else { return Failure::usage("--size is missing") };
    let source = StorageRun {
        folder: DISK.to_owned(),
        operation: Operation::Write,
        threads: SOURCE_THREADS,
        block_bytes: SOURCE_BLOCK_BYTES,
        direct: true,
        size_bytes,
    };
    let written =
        StorageFolder::open(Path::new(DISK)).and_then(|folder| write_named(&folder, SOURCE, &source, &|_| ()));
    if let Err(error) = written {
        return error.into();
    }
    let t = &run.transport;
    let mut words = ["cp", "--insecure", "--no-encrypt", "--no-config", "--quiet", "--steady", "--fsync"]
        .map(str::to_owned)
        .to_vec();
    let mut add = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    add("--transport", t.protocol().to_string());
    if t.protocol() == Protocol::Tcp {
        add("--cc", t.cc.clone());
    }
    add("--streams", t.streams.to_string());
    add("--buffer", t.buffer.to_string());
    if let Some(pacing) = t.pacing {
        add("--pacing", pacing.to_string());
    }
    if let Some(dscp) = t.dscp {
        add("--dscp", dscp.to_string());
    }
    add("--block", access.block.to_string());
    add("--direct", access.direct.to_string());
    add("--stall", stall.to_string());
    add("--seed", run.seed.to_string());
    add("--sample", run.sample.to_string());
    add("--record", RECORD.to_owned());
    add("--guest", path.to_owned());
    words.extend([format!("{DISK}/{SOURCE}"), format!("fullpipe://{SERVER_ADDRESS}/copy")]);
    let error = Command::new("fullpipe").args(&words).exec();
    Failure::new(ExitClass::Missing, format!("cannot start fullpipe cp: {error}"))
}
