//! Joins a selection with the storage of both ends: which of the three limits a copy, and what would help.

use std::path::Path;

use fullpipe_path::Protocol;
use fullpipe_path::storage::{Operation, binary};
use fullpipe_path::transport::MAX_STREAMS;
use fullpipe_profile::{
    Joint, Network, Remedy, Selection, Stage, StorageChoice, StoragePoint, join, parse_storage, read_text,
};
use fullpipe_transfer::protocol::name::one_line;
use fullpipe_transfer::sizes::BLOCKS;

use crate::failure::Result;
use crate::format;
use crate::output::outln;

/// Joins the selection with measurements of reading the source and of writing the destination, each in a file; `None` without
/// either. `size_bps` is the rate of a transfer of the size that was asked for.
///
/// # Errors
/// A file has no measurements of storage that fit.
pub fn join_with(
    selection: &Selection,
    size_bps: Option<f64>,
    from: Option<&Path>,
    to: Option<&Path>,
) -> Result<Option<Joint>> {
    if from.or(to).is_none() {
        return Ok(None);
    }
    let (source, destination) = (points(from, Operation::Read)?, points(to, Operation::Write)?);
    let network = Network {
        rate_bps: size_bps.unwrap_or(selection.choice.expected.mean_bps),
        streams: selection.choice.transport.streams,
        streams_stay: selection.choice.transport.protocol() == Protocol::Udt,
        capacity_bps: selection.capacity_bps,
    };
    Ok(Some(join(&source, network, &destination, selection.within)))
}

fn points(file: Option<&Path>, operation: Operation) -> Result<Vec<StoragePoint>> {
    let Some(file) = file else { return Ok(Vec::new()) };
    Ok(parse_storage(&read_text(file)?, file, operation)?)
}

/// Prints the storage of both ends, what limits a copy, and what would help.
pub fn print(joint: &Joint) {
    for (label, choice) in [("source", &joint.source), ("destination", &joint.destination)] {
        if let Some(choice) = choice {
            outln!("{label:<11} {}", described(choice));
        }
    }
    let stages = [
        (Stage::Source, joint.source.as_ref().map(|choice| choice.point.mean_bps)),
        (Stage::Network, Some(joint.network_bps)),
        (Stage::Destination, joint.destination.as_ref().map(|choice| choice.point.mean_bps)),
    ];
    let others: Vec<String> = stages
        .into_iter()
        .filter(|(stage, _)| *stage != joint.limit)
        .filter_map(|(stage, bps)| Some(format!("{} {}", name(stage), format::rate(bps?))))
        .collect();
    outln!(
        "copy        {}, limited by the {} ({} possible)",
        format::rate(joint.rate_bps),
        name(joint.limit),
        others.join(", ")
    );
    outln!("helps       {}", help(joint));
}

/// The flags of `cp` that storage decides, after those of the transport.
pub fn flags(joint: &Joint) -> String {
    let (least, most) = (u64::from(*BLOCKS.start()), u64::from(*BLOCKS.end()));
    let block =
        joint.block_bytes.map(|bytes| format!(" --block {}", binary(bytes.clamp(least, most)))).unwrap_or_default();
    let direct = joint.direct.map(|on| format!(" --direct {}", if on { "on" } else { "off" })).unwrap_or_default();
    block + &direct
}

fn name(stage: Stage) -> &'static str {
    match stage {
        Stage::Source => "source",
        Stage::Network => "network",
        Stage::Destination => "destination",
    }
}

/// A choice as a line: `4.200 Gb/s: write, 2 threads, blocks of 8MiB, direct I/O (dtn1:/data, n=3)`.
fn described(StorageChoice { point, .. }: &StorageChoice) -> String {
    format!(
        "{}: {}, {}, blocks of {}, {} ({}, n={})",
        format::rate(point.mean_bps),
        point.operation,
        format::count(point.threads.into(), "thread", "threads"),
        binary(point.block_bytes),
        if point.direct { "direct I/O" } else { "page cache" },
        one_line(point.place().as_bytes()),
        point.n
    )
}

/// What would make the limiting stage faster, as a sentence.
fn help(joint: &Joint) -> String {
    let choice = match joint.limit {
        Stage::Source => &joint.source,
        Stage::Network => &None,
        Stage::Destination => &joint.destination,
    };
    let threads = choice.as_ref().map_or(1, |choice| choice.point.threads);
    let target = choice.as_ref().map_or_else(|| "disk:FOLDER".to_owned(), |choice| choice.point.target());
    let target = format::quoted(&one_line(target.as_bytes()));
    let operation = if joint.limit == Stage::Source { "--read" } else { "--write" };
    match joint.remedy {
        Remedy::MoreThreads => format!(
            "perhaps more threads, as no more were measured: fullpipe measure {target} {operation} --threads {threads}-{}",
            threads.saturating_mul(4).min(MAX_STREAMS)
        ),
        Remedy::FasterStorage if threads >= MAX_STREAMS => {
            format!("only faster storage: a copy has at most {MAX_STREAMS} threads")
        }
        Remedy::FasterStorage => {
            let most = choice.as_ref().map_or(threads, |choice| choice.most_threads);
            format!("only faster storage: more threads are no faster (up to {most} were measured)")
        }
        Remedy::Processor => "a faster processor, or direct I/O if this was through the page cache".into(),
        Remedy::MeasureAgain => "a new measurement with a larger --size: this one read from the page cache".into(),
        Remedy::MoreCapacity => "only more capacity: the network is full".into(),
        Remedy::OtherTransport => {
            "another way to send, as the network is not full; for the ranking, add --explain".into()
        }
    }
}
