//! A transfer's record: the same as a measurement's, so that all that reads those reads it too.

use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use fullpipe_net::wire::Request;
use fullpipe_path::record::{Copied, Over};
use fullpipe_path::{Direction, ExitClass, Host, LabPath, Path, Run, Size, Workload, record};
use fullpipe_transfer::client::{Finished, Way};
use fullpipe_transfer::connection::endpoint::Endpoint;

use fullpipe_transfer::protocol::sizing::SizingEvent;

use super::transport;
use crate::Result;
use crate::failure::Failure;
use crate::measure::{self, Sized};

/// Whether one file is meant, not a folder of them.
fn is_file(to: &FilePath) -> bool {
    to.extension().is_some_and(|e| e == "ndjson")
}

/// Checks that a record can be written there.
pub fn check(to: &FilePath) -> Result {
    let folder = if is_file(to) { to.parent().filter(|p| !p.as_os_str().is_empty()) } else { Some(to) };
    Ok(record::check_folder(folder.unwrap_or(FilePath::new(".")))?)
}

fn target(to: &FilePath, id: &str) -> PathBuf {
    if is_file(to) { to.to_owned() } else { to.join(format!("{id}.ndjson")) }
}

/// Writes it.
pub fn write(
    args: &super::Args,
    to: &FilePath,
    endpoint: &Endpoint,
    way: &Way,
    finished: &Finished,
    took: Duration,
    notes: &[SizingEvent],
) -> Result {
    let Some(trace) = &finished.trace else {
        return Err(Failure::new(ExitClass::Record, "the far end told nothing for the record"));
    };
    let path = match (&args.guest, endpoint) {
        (Some(path), _) => path.parse()?,
        (None, Endpoint::Server { host, port, .. }) => Path::Host(Host { name: host.clone(), port: *port }),
        (None, Endpoint::Ssh { host, .. }) => {
            let name = host.rsplit('@').next().unwrap_or(host).to_owned();
            Path::Host(Host { name, port: fullpipe_path::path::DEFAULT_PORT })
        }
    };
    let direction = if matches!(way, Way::Push(..)) { Direction::Send } else { Direction::Receive };
    let transport = finished.transport.clone();
    // Nothing to send is no workload; a record of it says one byte for every stream.
    let workload = Workload::Size(Size(finished.summary.bytes.max(u64::from(transport.streams))));
    let mut run = Run { path, transport, workload, direction, seed: args.seed, sample: args.sample };
    let capacity = match &run.path {
        Path::Lab(lab) => Some(LabPath::tcp_capacity(lab)),
        Path::Host(_) => None,
    };
    let request = Request { transport: run.transport.clone(), workload, direction, seed: run.seed, sample: run.sample };
    let clock = (trace.zero_ns, (finished.rtt_s * 1e9) as u64);
    let ends = (trace.sender.clone(), trace.receiver.clone());
    let measured = fullpipe_net::measure::combine(&request, capacity, clock, took.as_secs_f64(), ends.0, ends.1);
    // A short transfer may be over before its controller has begun.
    let began = notes.iter().find_map(|note| if let SizingEvent::Began { law, .. } = note { Some(*law) } else { None });
    let law = began.or(args.how.sobas()).map(transport::name);
    let sized = law.map(|law| Sized { law, lines: notes.iter().filter_map(line).collect() });
    let over = match (&args.guest, endpoint) {
        (Some(_), _) => Over::Lab,
        (None, Endpoint::Server { .. }) => Over::Server,
        (None, Endpoint::Ssh { .. }) => Over::Ssh,
    };
    let copy = Copied { over, encrypted: !args.no_encrypt };
    // A real host draws nothing: there a seed tells transfers apart that are otherwise alike.
    let mut file = target(to, &measure::id(&run, sized.as_ref(), Some(&copy)));
    while matches!(run.path, Path::Host(_)) && !is_file(to) && file.exists() {
        run.seed = run.seed.wrapping_add(1);
        file = target(to, &measure::id(&run, sized.as_ref(), Some(&copy)));
    }
    let mut text = Vec::new();
    measure::render(&run, &measured, sized.as_ref(), Some(copy), &mut text)?;
    Ok(record::write_atomically(&file, &text)?)
}

/// A note with its instant. The controller's clock and the run's begin within a round trip of each other.
fn line(note: &SizingEvent) -> Option<(u64, serde_json::Value)> {
    let mut fields = note.to_json().ok()?;
    let at_ns = fields.as_object_mut()?.remove("at_ns").and_then(|at| at.as_u64()).unwrap_or(0);
    Some((at_ns, fields))
}

/// Writes one that the testbed has made.
pub fn write_text(to: &FilePath, text: &str) -> Result {
    #[derive(serde::Deserialize)]
    struct Head {
        id: String,
    }
    let head: Head = serde_json::from_str(text.lines().next().unwrap_or_default())
        .map_err(|e| Failure::new(ExitClass::Lab, format!("the guest's record: {e}")))?;
    Ok(record::write_atomically(&target(to, &head.id), text.as_bytes())?)
}
