//! How a transfer would go, before it does.

use fullpipe_path::{Transport, Workload};
use fullpipe_transfer::client::{self, Between, Way};
use fullpipe_transfer::connection::endpoint::Endpoint;
use fullpipe_transfer::protocol::message::Options;
use serde_json::json;

use super::transport::Chosen;
use crate::failure::Failure;
use crate::output::outln;
use crate::{Result, words};

/// Round trips after the last byte has come, until this end knows.
const END_RTTS: f64 = 0.5;
/// First window of a connection, segments (RFC 6928).
const FIRST_SEGMENTS: f64 = 10.0;
/// What of a packet is headers, with timestamps, and its usual size, bytes.
const HEADERS: f64 = 52.0;
const PACKET: u32 = 1500;
/// The round trip over which Hybla is as fast as others, seconds (`rtt0`, `tcp_hybla.c`), and the most that it makes of
/// a longer one.
const HYBLA_S: f64 = 0.025;
const HYBLA_MOST: f64 = 16.0;
/// The full rate is at most so many times the mean; found in so many steps.
const MOST_FULL: f64 = 2.0;
const BISECTIONS: usize = 40;

/// Seconds for so many bytes at so many a second, slow start included: the window doubles each round trip.
fn sending(bytes: f64, per_second: f64, between: &Between, transport: &Transport) -> f64 {
    let segment = f64::from(between.mtu.unwrap_or(PACKET)) - HEADERS;
    let longer = match transport.cc.as_str() {
        "hybla" => (between.rtt_s / HYBLA_S).clamp(1.0, HYBLA_MOST),
        _ => 1.0,
    };
    let first = f64::from(transport.streams) * FIRST_SEGMENTS * segment * longer;
    let factor = longer.exp2();
    // A geometric series: all that has been sent after so many round trips.
    let rounds = |sum: f64| (1.0 + sum * (factor - 1.0) / first).log(factor);
    let full = (per_second * between.rtt_s - first).max(0.0) / (factor - 1.0);
    let steady = (bytes - full).max(0.0) / per_second.max(1.0);
    rounds(bytes.min(full)) * between.rtt_s + steady
}

/// Bytes a second once started up, where so many were the mean over a workload from its start.
fn full_rate(mean: f64, over: Workload, between: &Between, transport: &Transport) -> f64 {
    let (bytes, seconds) = match over {
        Workload::Size(size) => (size.0 as f64, size.0 as f64 / mean.max(1.0)),
        Workload::Duration(time) => (mean * time.seconds(), time.seconds()),
    };
    // As slow a start as all of that tells nothing of what would have followed.
    let (mut low, mut high) = (mean, MOST_FULL * mean);
    for _ in 0..BISECTIONS {
        let middle = (low + high) / 2.0;
        if sending(bytes, middle, between, transport) > seconds { low = middle } else { high = middle }
    }
    low
}

/// How it will be sent, what a kernel lacks for better, and why if that is wanted.
pub fn print(args: &super::Args, chosen: &Chosen, rtt_s: f64, why: bool) {
    outln!("round trip  {}", words::seconds(rtt_s));
    outln!("transport   {}{}", chosen.transport, if args.no_encrypt { ", not encrypted" } else { "" });
    if let Some(expected) = chosen.expected_bps {
        outln!("expected    {}", words::rate(expected));
    }
    for told in chosen.why.iter().filter(|told| why || chosen.lacking.as_ref() == Some(*told)) {
        outln!("why         {told}");
    }
}

/// Looks at both ends, and moves nothing.
pub fn dry_run(args: &super::Args, endpoint: &Endpoint, way: &Way, options: Options) -> Result {
    let client::Looked { between, count } = client::look(endpoint, options, way)?;
    let rtt_s = between.rtt_s;
    let chosen = args.how.choose(&between)?;
    if args.json {
        outln!(
            "{}",
            json!({"kind": "dry_run", "files": count.files, "bytes": count.bytes, "rtt_s": rtt_s,
                   "transport": chosen.transport, "encrypted": !args.no_encrypt, "expected_bps": chosen.expected_bps,
                   "why": chosen.why, "left": words::left(&count.skipped), "left_total": count.skipped.total})
        );
    } else {
        let there = if options.update { "; less what is there already, which was not looked at" } else { "" };
        let bytes = words::bytes(count.bytes as f64);
        outln!("would copy  {}, {bytes}{there}", words::count(count.files, "file", "files"));
        print(args, &chosen, rtt_s, args.explain);
        if let Some(expected) = chosen.expected_bps {
            let begun = (client::start_rtts(options, rtt_s) + END_RTTS) * rtt_s;
            let full = full_rate(expected / 8.0, chosen.over, &between, &chosen.transport);
            let sent = sending(count.bytes as f64, full, &between, &chosen.transport);
            outln!("takes about {}", words::seconds(begun + sent));
        }
    }
    let what = words::count(count.skipped.total, "thing", "things") + " would not be copied";
    super::left(&count.skipped, &what).map_err(Failure::said)
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
        // 15 + 30 + 60 KB in three round trips; at 120 KB in the next one it is near what the path gives.
        assert!((sending(105e3, "cubic") - 0.3).abs() < 1e-9);
        // Then it is the path's: 150 KB each.
        assert!((sending(135e3 + 15e6, "cubic") - 10.33).abs() < 0.01, "{}", sending(135e3 + 15e6, "cubic"));
        assert!(sending(105e3, "hybla") < 0.15);
        assert_eq!(sending(0.0, "cubic"), 0.0);
        // What the profile's runs took is what as much is said to take.
        let transport = Transport { cc: "cubic".into(), streams: 1, buffer: fullpipe_path::Buffer::Auto, pacing: None };
        let full = |mean, over| full_rate(mean, over, &between, &transport);
        let ten: Workload = Workload::Duration("10s".parse().unwrap());
        let steady = full(1.5e6, ten);
        assert!(steady > 1.5e6 && (super::sending(15e6, steady, &between, &transport) - 10.0).abs() < 1e-6);
        assert_eq!(full(1.5e6, Workload::Size(fullpipe_path::Size(0))), 1.5e6);
    }
}
