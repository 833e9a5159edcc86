//! The record of a copy. It has the form of a measurement's record, so that what reads those reads it too.

use std::path::Path as FilePath;
use std::time::Duration;

use fullpipe_net::combine::Circumstances;
use fullpipe_net::sys;
use fullpipe_net::wire::Request;
use fullpipe_path::record::{Copied, Outcome, Over};
use fullpipe_path::{Direction, DiskAccess, ExitClass, Host, Path, Run, Size, Workload, record};
use fullpipe_transfer::client::{Finished, Way};
use fullpipe_transfer::connection::endpoint::Endpoint;
use fullpipe_transfer::protocol::sizing::SizingEvent;
use fullpipe_transfer::sizes::block_size;

use super::args::Args;
use super::bottleneck::{Bottleneck, Spent};
use super::transport::law_name;
use crate::failure::{Failure, Result};
use crate::run_record::{self, SobasTrace};

/// Writes the record of a copy that has ended, into the folder or file `to`.
pub fn write(
    args: &Args,
    to: &FilePath,
    endpoint: &Endpoint,
    way: &Way,
    finished: &Finished,
    took: Duration,
    (notes, spent): (&[SizingEvent], &Spent),
) -> Result {
    let Some(trace) = &finished.trace else {
        return Err(Failure::new(ExitClass::Record, "cannot write the record: the other end sent no samples"));
    };
    let path = match (&args.guest, endpoint) {
        (Some(path), _) => path.parse()?,
        (None, Endpoint::Server { host, port, .. }) => Path::Host(Host { name: host.clone(), port: *port }),
        (None, Endpoint::Ssh(ssh)) => {
            let host = &ssh.host;
            let name = host.rsplit('@').next().unwrap_or(host).to_owned();
            Path::Host(Host { name, port: fullpipe_path::host::DEFAULT_PORT })
        }
    };
    let direction = if way.sends() { Direction::Send } else { Direction::Receive };
    let transport = finished.transport.clone();
    // A workload of no bytes is not allowed; the record of an empty copy states one byte for each stream.
    let workload = Workload::Size(Size(finished.summary.bytes.max(u64::from(transport.streams))));
    let disks = match &path {
        Path::Lab(lab) if lab.has_disk() => {
            let asked = u32::try_from(args.block.0).unwrap_or(u32::MAX);
            let block = Size(block_size(asked, usize::from(transport.streams)));
            Some(DiskAccess { block, direct: args.direct })
        }
        _ => None,
    };
    let (seed, sample) = (args.seed, args.sample);
    let mut run = Run { path, transport, workload, direction, bidir: false, disks, seed, sample };
    let lab = match &run.path {
        Path::Lab(lab) => Some(lab),
        Path::Host(_) => None,
    };
    let request = Request { transport: run.transport.clone(), workload, direction, seed: run.seed, sample: run.sample };
    let known = Circumstances {
        capacity: lab.map(|lab| lab.capacity(&run.transport)),
        has_cross: lab.is_some_and(|lab| lab.cross.is_some()),
        zero_ns: trace.zero_ns,
        rtt_ns: (finished.rtt_s * 1e9) as u64,
        wall_s: took.as_secs_f64(),
        ..Circumstances::default()
    };
    let mut measured = fullpipe_net::combine::combine(&request, &known, trace.sender.clone(), trace.receiver.clone());
    let of_copy = full_disk(&run.path, measured.outcome.goodput_bps).or_else(|| spent.bottleneck());
    limit_by_disk(&mut measured.outcome, of_copy);
    if args.fsync && run.disks.is_some() {
        until_on_disk(&mut measured.outcome, sys::now_ns().saturating_sub(trace.zero_ns));
    }
    // A short copy may be over before its controller has begun.
    let began = notes.iter().find_map(|note| if let SizingEvent::Began { law, .. } = note { Some(*law) } else { None });
    let law = began.or(finished.sizing).map(law_name);
    let sized = law.map(|law| SobasTrace { law, decisions: notes.iter().filter_map(decision).collect() });
    let over = match (&args.guest, endpoint) {
        (Some(_), _) => Over::Lab,
        (None, Endpoint::Server { .. }) => Over::Server,
        (None, Endpoint::Ssh(_)) => Over::Ssh,
    };
    let copy = Copied { over, encrypted: finished.encrypted };
    // On real hosts the seed has no effect, so it can number copies of one description and keep their records apart.
    let mut file = run_record::file(to, &run_record::id(&run, sized.as_ref(), Some(&copy)));
    while matches!(run.path, Path::Host(_)) && !run_record::is_file(to) && file.exists() {
        run.seed = run.seed.wrapping_add(1);
        file = run_record::file(to, &run_record::id(&run, sized.as_ref(), Some(&copy)));
    }
    let mut text = Vec::new();
    run_record::render(&run, &measured, sized.as_ref(), Some(copy), &mut text)?;
    Ok(record::write_atomically(&file, &text)?)
}

/// Smallest part of an emulated disk's rate at which it counts as full.
const FULL_DISK: f64 = 0.9;

/// The slower disk of an emulated path, if a copy was as fast as it. A copy of less than a second shows this by nothing else.
fn full_disk(path: &Path, goodput_bps: Option<f64>) -> Option<Bottleneck> {
    let Path::Lab(lab) = path else { return None };
    let disks = [(&lab.disk_a, Bottleneck::DiskRead), (&lab.disk_b, Bottleneck::DiskWrite)];
    let rates = disks.into_iter().filter_map(|(disk, what)| Some((disk.as_ref()?.rate.0, what)));
    let (bytes_per_s, what) = rates.min_by_key(|(rate, _)| *rate)?;
    (goodput_bps? >= FULL_DISK * bytes_per_s as f64 * 8.0).then_some(what)
}

/// Names storage as the bottleneck of a run if it was that of the copy. A path that was full is none the less.
fn limit_by_disk(outcome: &mut Outcome, of_copy: Option<Bottleneck>) {
    use record::Bottleneck as Named;
    let full = matches!(outcome.bottleneck, None | Some(Named::Path | Named::Pacing));
    match of_copy {
        Some(Bottleneck::DiskRead) if !full => outcome.bottleneck = Some(Named::DiskRead),
        Some(Bottleneck::DiskWrite) if !full => outcome.bottleneck = Some(Named::DiskWrite),
        _ => {}
    }
}

/// Lets a run last until the sending end knew that everything is on the disk, `end_ns` on the run's clock.
fn until_on_disk(outcome: &mut Outcome, end_ns: u64) {
    let started = outcome.streams.iter().filter(|stream| stream.bytes > 0);
    let first_s = started.map(|stream| stream.first_s).fold(f64::INFINITY, f64::min);
    let seconds = end_ns as f64 / 1e9 - first_s;
    if seconds > outcome.seconds {
        outcome.goodput_bps = outcome.goodput_bps.map(|bps| bps * outcome.seconds / seconds);
        outcome.seconds = seconds;
    }
}

/// A note of the controller with its time, ns. The controller's clock and the run's start within a round trip of each other.
fn decision(note: &SizingEvent) -> Option<(u64, serde_json::Value)> {
    let mut fields = note.to_json().ok()?;
    let at_ns = fields.as_object_mut()?.remove("at_ns").and_then(|at| at.as_u64()).unwrap_or(0);
    Some((at_ns, fields))
}

/// Writes a record that the testbed has made.
pub fn write_text(to: &FilePath, text: &str) -> Result {
    #[derive(serde::Deserialize)]
    struct Head {
        id: String,
    }
    let head: Head = serde_json::from_str(text.lines().next().unwrap_or_default())
        .map_err(|e| Failure::new(ExitClass::Lab, format!("cannot read the record that the guest wrote: {e}")))?;
    Ok(record::write_atomically(&run_record::file(to, &head.id), text.as_bytes())?)
}
