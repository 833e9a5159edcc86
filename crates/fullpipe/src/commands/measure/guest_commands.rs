//! The command lines of a measurement in the testbed: this program at both ends of the emulated path.

use fullpipe_lab::{Commands, SERVER_ADDRESS};
use fullpipe_path::{Direction, LabPath, Protocol, Run, Time, Workload};

/// Spells a run as flags of `serve` and `measure`. Both ends give up after `stall` of virtual time without progress. `omit` is part
/// of the run's duration. `probe` is the time between two probes.
pub fn guest_commands(run: &Run, path: &LabPath, stall: Time, omit: Option<Time>, probe: Option<Time>) -> Commands {
    let words = |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).to_owned()).collect() };
    let stall = stall.to_string();
    let mut server = words(&["fullpipe", "serve", "--guest", "--quiet", "--bind", SERVER_ADDRESS, "--stall", &stall]);
    // Probes, and each direction, are a client of their own; a server of several ends when the run has.
    if probe.is_none() && !run.bidir {
        server.push("--once".into());
    }
    let mut client = words(&["fullpipe", "measure", SERVER_ADDRESS, "--json", "--stall", &stall]);
    let t = &run.transport;
    let (kind, amount) = match run.workload {
        Workload::Size(size) => ("--size", size.to_string()),
        // `measure` adds what is omitted.
        Workload::Duration(time) => {
            ("--duration", Time(time.0.saturating_sub(omit.map_or(0, |omit| omit.0))).to_string())
        }
    };
    for (flag, value) in [
        ("--guest", path.to_string()),
        match t.protocol() {
            Protocol::Tcp => ("--cc", t.cc.clone()),
            protocol => ("--transport", protocol.to_string()),
        },
        ("--streams", t.streams.to_string()),
        ("--buffer", t.buffer.to_string()),
        (kind, amount),
        ("--seed", run.seed.to_string()),
        ("--sample", run.sample.to_string()),
    ] {
        client.extend([flag.to_owned(), value]);
    }
    if let Some(omit) = omit {
        client.extend(["--omit".to_owned(), omit.to_string()]);
    }
    if let Some(pacing) = t.pacing {
        client.extend(["--pacing".to_owned(), pacing.to_string()]);
    }
    if let Some(dscp) = t.dscp {
        client.extend(["--dscp".to_owned(), dscp.to_string()]);
    }
    if let Some(mss) = t.mss {
        let flag = if t.protocol() == Protocol::Udp { "--datagram-size" } else { "--mss" };
        client.extend([flag.to_owned(), mss.to_string()]);
    }
    if let Some(probe) = probe {
        client.push(format!("--probe={probe}"));
    }
    if run.bidir {
        client.push("--bidir".into());
    }
    if run.direction == Direction::Receive {
        client.push("--reverse".into());
    }
    Commands { server, client }
}
