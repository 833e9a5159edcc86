//! Prints measurements of storage for people.

use fullpipe_path::Size;
use fullpipe_path::record::storage::{MountInfo, StorageBottleneck, StorageOutcome};
use fullpipe_path::storage::{Operation, StorageRun, binary};
use fullpipe_transfer::protocol::name::one_line;

use super::args::MAX_THREADS;
use super::result::{Done, Place};
use crate::format;
use crate::output::{errln, outln};

/// Says how much will be written, before anything is.
pub(super) fn announce(place: &Place, grid: &[StorageRun], size: Size) {
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
    let kind = place.file_system.kind.as_str();
    let name = if place.mount.is_some() || kind.starts_with("nfs") || kind.starts_with("fuse") {
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

/// Warns if a read through the page cache found part of the file there, although it was to be dropped.
pub(super) fn warn_of_cache(place: &Place, run: &StorageRun, outcome: &StorageOutcome) {
    if place.in_memory || run.direct || run.operation == Operation::Write {
        return;
    }
    match outcome.cached_bytes {
        Some(0) => {}
        Some(bytes) => errln!(
            "warning: {} of the file stayed in the page cache, and were read from there",
            format::bytes(bytes as f64)
        ),
        None => errln!("warning: this file system does not show whether the page cache had part of the file"),
    }
}

/// A run in words: `write, 4 threads, blocks of 8MiB, direct I/O`.
pub(super) fn name(run: &StorageRun) -> String {
    let threads = format::count(run.threads.into(), "thread", "threads");
    let how = if run.direct { "direct I/O" } else { "through the page cache" };
    format!("{}, {threads}, blocks of {}, {how}", run.operation, binary(run.block_bytes))
}

/// A mount as a line: `server:/data at /mnt/far, nfs4: rw,vers=4.2; read-ahead 128KiB, 64 session slots asked for`.
fn mounted(info: &MountInfo) -> String {
    let more = [
        info.read_ahead_bytes.map(|bytes| format!("read-ahead {}", binary(bytes))),
        info.session_slots.map(|slots| format!("{slots} session slots asked for")),
    ];
    let more: Vec<String> = more.into_iter().flatten().collect();
    let line = format!("{} at {}, {}: {}", info.source, info.folder, info.kind, info.options.join(","));
    let parts = if more.is_empty() { vec![line] } else { vec![line, more.join(", ")] };
    one_line(parts.join("; ").as_bytes())
}

/// Prints the results of runs, and where their records are.
pub(super) fn print(place: &Place, done: &[Done]) {
    let device = match (&place.file_system.device, place.in_memory) {
        (_, true) => ", in memory".to_owned(),
        (Some(device), _) => format!(" on {device}"),
        (None, _) => String::new(),
    };
    if let Some((path, _)) = &place.path {
        outln!("path        {path}");
    }
    outln!("folder      {} ({}{device})", place.folder, place.file_system.kind);
    if let Some(mount) = &place.mount {
        outln!("mount       {}", mounted(mount));
    }
    match done {
        [one] => print_one(one, place),
        all => print_table(all, place),
    }
    say_what_costs_nothing(place, done);
    let records: Vec<_> = done.iter().filter_map(|done| done.record.as_deref()).collect();
    match records[..] {
        [] => {}
        [one] => outln!("record      {}", one.display()),
        [one, ..] => outln!(
            "records     {} in {}",
            format::thousands(records.len() as u64),
            one.parent().unwrap_or(one).display()
        ),
    }
}

fn print_one(done: &Done, place: &Place) {
    let outcome = &done.outcome;
    outln!("storage     {}", name(&done.run));
    let fsync = match done.run.operation {
        Operation::Write => {
            let without = before_fsync(done, place).map(|bps| format!("; {} without it", format::rate(bps)));
            format!(", of which fsync took {}{}", format::seconds(outcome.fsync_s), without.unwrap_or_default())
        }
        Operation::Read => String::new(),
    };
    outln!(
        "rate        {} ({} bytes in {}{fsync})",
        format::rate(outcome.rate_bps),
        format::thousands(outcome.bytes),
        format::seconds(outcome.seconds)
    );
    let latency = outcome.latency;
    if !is_untimed(done, place) {
        outln!(
            "latency     p50 {}, p90 {}, p99 {}, longest {} of {} of at most {}",
            format::seconds(latency.p50_s),
            format::seconds(latency.p90_s),
            format::seconds(latency.p99_s),
            format::seconds(latency.max_s),
            format::count(outcome.calls, "call", "calls"),
            binary(outcome.call_bytes)
        );
    }
    outln!(
        "processor   {} in the program, {} in the kernel for it; the busiest thread used {:.0}% of a processor",
        format::seconds(outcome.cpu_user_s),
        format::seconds(outcome.cpu_system_s),
        outcome.cpu_busiest * 100.0
    );
    outln!("bottleneck  {}", bottleneck(&done.run, outcome, place));
}

/// Rate of a write without its `fsync(2)`, bit/s. In the testbed, `None` for a rate beyond the path's: it is only that of copying
/// to the page cache, which takes no time of the guest's clock.
fn before_fsync(done: &Done, place: &Place) -> Option<f64> {
    let outcome = &done.outcome;
    let bps = outcome.bytes as f64 * 8.0 / (outcome.seconds - outcome.fsync_s);
    place.path.as_ref().is_none_or(|(path, _)| bps <= path.rate.0 as f64).then_some(bps)
}

/// Whether a run wrote into the testbed's page cache, where its calls take no time.
fn is_untimed(done: &Done, place: &Place) -> bool {
    done.run.operation == Operation::Write && before_fsync(done, place).is_none()
}

/// Says what a write through the page cache leaves out in the testbed, if there was one.
fn say_what_costs_nothing(place: &Place, all: &[Done]) {
    if all.iter().any(|done| is_untimed(done, place)) {
        outln!(
            "note        copying to the page cache takes no time in the testbed: the calls of a buffered write have no latency there, and \
             only the rate with fsync counts"
        );
    }
}

/// What limited a run, and what to try.
fn bottleneck(run: &StorageRun, outcome: &StorageOutcome, place: &Place) -> String {
    let device = place.file_system.device.as_deref().unwrap_or("the device");
    let busy = format!("{:.0}%", outcome.device_busy.unwrap_or_default() * 100.0);
    match outcome.bottleneck {
        Some(StorageBottleneck::PageCache) => {
            "page_cache: it had most of the data; the storage was not measured".into()
        }
        Some(StorageBottleneck::Cpu) if outcome.cpu_busiest > 0.9 => {
            "cpu: a thread used a whole processor; try more --threads".into()
        }
        Some(StorageBottleneck::Cpu) => {
            let own = (outcome.cpu_user_s + outcome.cpu_system_s) / outcome.seconds;
            format!("cpu: all processors of the host were busy; this program used {own:.2} of them")
        }
        Some(StorageBottleneck::Device) => {
            format!(
                "device: {device} had requests {busy} of the time; one that serves several at once may gain from more --threads"
            )
        }
        Some(StorageBottleneck::Requests) => {
            format!(
                "requests: {device} had requests only {busy} of the time, and no processor was busy; try {}",
                if u64::from(run.threads) < MAX_THREADS { "more --threads" } else { "a larger --block" }
            )
        }
        None if place.path.is_some() && run.direct => {
            "not known: no processor was busy; with direct I/O each thread waits a round trip for each call: try more --threads, or \
             --direct off"
                .into()
        }
        None if place.path.is_some() => {
            let has_disk = place.path.as_ref().is_some_and(|(path, _)| path.disk_b.is_some());
            let first = match run.operation {
                Operation::Read => "a larger read_ahead of mount=, ",
                Operation::Write if has_disk => "a faster disk_b, ",
                Operation::Write => "",
            };
            format!(
                "not known: no processor was busy; try {first}more --threads, nconnect or slots, or larger tcp_rmem and tcp_wmem of host="
            )
        }
        None if place.mount.as_ref().is_some_and(MountInfo::is_nfs) => {
            "not known: no processor was busy; 'fullpipe doctor mount:FOLDER' says what the mount allows over its path"
                .into()
        }
        None => "not known: no processor was busy, and the kernel counts no device's load for this file system".into(),
    }
}

fn print_table(all: &[Done], place: &Place) {
    let headings = [
        "",
        "threads",
        "block",
        "direct",
        "Gb/s",
        "without fsync",
        "p50 ms",
        "p99 ms",
        "longest",
        "cpu s",
        "bottleneck",
    ];
    let row = |done: &Done| {
        let (run, outcome) = (&done.run, &done.outcome);
        let without_fsync = (run.operation == Operation::Write).then(|| before_fsync(done, place));
        let is_untimed = without_fsync == Some(None);
        let fsync = without_fsync.flatten().map_or_else(|| "-".to_owned(), |bps| format!("{:.3}", bps / 1e9));
        // Half a microsecond prints as zero.
        let ms = |s: f64| if is_untimed && s < 5e-7 { "-".to_owned() } else { format!("{:.3}", s * 1e3) };
        let bottleneck = outcome.bottleneck.and_then(|what| serde_json::to_value(what).ok());
        [
            run.operation.to_string(),
            run.threads.to_string(),
            binary(run.block_bytes),
            if run.direct { "on" } else { "off" }.into(),
            format!("{:.3}", outcome.rate_bps / 1e9),
            fsync,
            ms(outcome.latency.p50_s),
            ms(outcome.latency.p99_s),
            ms(outcome.latency.max_s),
            format!("{:.3}", outcome.cpu_user_s + outcome.cpu_system_s),
            bottleneck.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_else(|| "not known".into()),
        ]
    };
    let rows: Vec<_> = std::iter::once(headings.map(str::to_owned)).chain(all.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
    let last = headings.len() - 1;
    for row in &rows {
        let cells = row.iter().enumerate().map(|(i, cell)| match i {
            0 => format!("{cell:<width$}", width = width(i)),
            i if i == last => cell.clone(),
            i => format!("{cell:>width$}", width = width(i)),
        });
        outln!("{}", cells.collect::<Vec<_>>().join("  "));
    }
    for operation in [Operation::Write, Operation::Read] {
        let of_it = all.iter().filter(|done| done.run.operation == operation);
        let Some(best) = of_it.max_by(|a, b| a.outcome.rate_bps.total_cmp(&b.outcome.rate_bps)) else { continue };
        let run = &best.run;
        outln!(
            "fastest     {operation} at {}: --threads {} --block {} --direct {}",
            format::rate(best.outcome.rate_bps),
            run.threads,
            binary(run.block_bytes),
            if run.direct { "on" } else { "off" }
        );
    }
}
