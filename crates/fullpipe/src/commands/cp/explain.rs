//! `--explain` and `--dry-run`: how a copy will be sent, and how long it will take.

use fullpipe_path::{Transport, Workload};
use fullpipe_transfer::client::{self, Between, Way};
use fullpipe_transfer::connection::endpoint::Endpoint;
use fullpipe_transfer::protocol::message::Options;
use serde_json::json;

use super::args::Args;
use super::report::left;
use super::transport::Chosen;
use crate::failure::{Failure, Result};
use crate::format;
use crate::output::outln;

/// Round trips from the arrival of the last byte until this end knows of it.
const END_RTTS: f64 = 0.5;
/// First window of a connection, segments (RFC 6928).
const INITIAL_WINDOW_SEGMENTS: f64 = 10.0;
/// Headers of IPv4 and TCP in a packet, timestamps included, bytes.
const HEADER_BYTES: f64 = 52.0;
/// Usual packet size, bytes, where the kernel does not know that of the path.
const DEFAULT_MTU: u32 = 1500;
/// Round trip at which Hybla is as fast as other congestion controls, seconds (`rtt0`, `tcp_hybla.c`).
const HYBLA_RTT_S: f64 = 0.025;
/// Largest factor by which Hybla makes up for a longer round trip.
const HYBLA_MAX_FACTOR: f64 = 16.0;
/// Largest ratio of full rate to mean rate that is looked for.
const MAX_FULL_TO_MEAN: f64 = 2.0;
/// Steps of the search for the full rate.
const BISECTIONS: usize = 40;

/// Seconds to send `bytes` at a full rate of `per_second` bytes a second, slow start included.
fn sending(bytes: f64, per_second: f64, between: &Between, transport: &Transport) -> f64 {
    let segment = f64::from(between.mtu.unwrap_or(DEFAULT_MTU)) - HEADER_BYTES;
    let hybla = match transport.cc.as_str() {
        "hybla" => (between.rtt_s / HYBLA_RTT_S).clamp(1.0, HYBLA_MAX_FACTOR),
        _ => 1.0,
    };
    let first = f64::from(transport.streams) * INITIAL_WINDOW_SEGMENTS * segment * hybla;
    // The window doubles each round trip, with Hybla faster; what has been sent is the sum of a geometric series.
    let factor = hybla.exp2();
    let rounds = |sum: f64| (1.0 + sum * (factor - 1.0) / first).log(factor);
    let full = (per_second * between.rtt_s - first).max(0.0) / (factor - 1.0);
    let steady = (bytes - full).max(0.0) / per_second.max(1.0);
    rounds(bytes.min(full)) * between.rtt_s + steady
}

/// The full rate after slow start, bytes a second, of a workload `over` whose mean rate from its start was `mean`.
fn full_rate(mean: f64, over: Workload, between: &Between, transport: &Transport) -> f64 {
    let (bytes, seconds) = match over {
        Workload::Size(size) => (size.0 as f64, size.0 as f64 / mean.max(1.0)),
        Workload::Duration(time) => (mean * time.seconds(), time.seconds()),
    };
    // If slow start took most of the workload, its mean tells little about the full rate, so the search is bounded.
    let (mut low, mut high) = (mean, MAX_FULL_TO_MEAN * mean);
    for _ in 0..BISECTIONS {
        let middle = (low + high) / 2.0;
        if sending(bytes, middle, between, transport) > seconds { low = middle } else { high = middle }
    }
    low
}

/// Prints how the data will be sent and what a kernel lacks for a better way; with `why`, all reasons.
pub fn print(args: &Args, chosen: &Chosen, rtt_s: f64, why: bool) {
    outln!("round trip  {}", format::seconds(rtt_s));
    outln!("transport   {}{}", chosen.transport, if args.no_encrypt { ", not encrypted" } else { "" });
    if let Some(expected) = chosen.expected_bps {
        outln!("expected    {}", format::rate(expected));
    }
    for told in chosen.why.iter().filter(|told| why || chosen.lacking.as_ref() == Some(*told)) {
        outln!("why         {told}");
    }
}

/// Prints what would be copied, how, and how long it would take. Nothing is copied.
pub fn dry_run(args: &Args, endpoint: &Endpoint, way: &Way, options: Options) -> Result {
    let client::Looked { between, count } = client::look(endpoint, options, way)?;
    let rtt_s = between.rtt_s;
    let chosen = args.how.choose(&between)?;
    if args.json {
        outln!(
            "{}",
            json!({"kind": "dry_run", "files": count.files, "bytes": count.bytes, "rtt_s": rtt_s,
                   "transport": chosen.transport, "encrypted": !args.no_encrypt, "expected_bps": chosen.expected_bps,
                   "why": chosen.why, "left": format::left(&count.skipped), "left_total": count.skipped.total})
        );
    } else {
        let there = if options.update { ", or less: files there already are not looked up" } else { "" };
        let bytes = format::bytes(count.bytes as f64);
        outln!("would copy  {}, {bytes}{there}", format::count(count.files, "file", "files"));
        print(args, &chosen, rtt_s, args.explain);
        if let Some(expected) = chosen.expected_bps {
            let begun = (client::start_rtts(options, rtt_s) + END_RTTS) * rtt_s;
            let full = full_rate(expected / 8.0, chosen.over, &between, &chosen.transport);
            let sent = sending(count.bytes as f64, full, &between, &chosen.transport);
            outln!("takes about {}", format::seconds(begun + sent));
        }
    }
    let what = format::count(count.skipped.total, "thing", "things") + " would not be copied";
    left(&count.skipped, &what).map_err(Failure::said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_start_is_counted() {
        let limits = fullpipe_transfer::protocol::hello::Limits::default();
        let between = Between { rtt_s: 0.1, mtu: Some(1552), sender: limits.clone(), receiver: limits };
        let sending = |bytes: f64, cc: &str| {
            let transport = Transport { cc: cc.into(), streams: 1, buffer: fullpipe_path::Buffer::Auto, pacing: None };
            sending(bytes, 1.5e6, &between, &transport)
        };
        // 15 + 30 + 60 KB in three round trips; the next one, of 120 KB, nearly fills the path.
        assert!((sending(105e3, "cubic") - 0.3).abs() < 1e-9);
        // From then on each round trip sends what the path carries, 150 KB.
        assert!((sending(135e3 + 15e6, "cubic") - 10.33).abs() < 0.01, "{}", sending(135e3 + 15e6, "cubic"));
        assert!(sending(105e3, "hybla") < 0.15);
        assert_eq!(sending(0.0, "cubic"), 0.0);
        // A copy as large as the profile's runs is expected to take as long as they took.
        let transport = Transport { cc: "cubic".into(), streams: 1, buffer: fullpipe_path::Buffer::Auto, pacing: None };
        let full = |mean, over| full_rate(mean, over, &between, &transport);
        let ten: Workload = Workload::Duration("10s".parse().unwrap());
        let steady = full(1.5e6, ten);
        assert!(steady > 1.5e6 && (super::sending(15e6, steady, &between, &transport) - 10.0).abs() < 1e-6);
        assert_eq!(full(1.5e6, Workload::Size(fullpipe_path::Size(0))), 1.5e6);
    }
}
