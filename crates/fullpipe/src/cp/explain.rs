//! How a transfer would go, before it does.

use fullpipe_transfer::client::{self, Endpoint, Way};
use fullpipe_transfer::proto::Options;
use serde_json::json;

use super::transport::Chosen;
use crate::failure::Failure;
use crate::output::outln;
use crate::{Result, words};

/// How it will be sent, and why if that is wanted.
pub fn print(args: &super::Args, chosen: &Chosen, rtt_s: f64, why: bool) {
    outln!("round trip  {}", words::seconds(rtt_s));
    outln!("transport   {}{}", chosen.transport, if args.no_encrypt { ", not encrypted" } else { "" });
    if let Some(expected) = chosen.expected_bps {
        outln!("expected    {}", words::rate(expected));
    }
    for why in chosen.why.iter().filter(|_| why) {
        outln!("why         {why}");
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
                   "why": chosen.why, "left": words::left(&count.left), "left_total": count.left.total})
        );
    } else {
        let there = if options.update { "; less what is there already, which was not looked at" } else { "" };
        let bytes = words::bytes(count.bytes as f64);
        outln!("would copy  {}, {bytes}{there}", words::count(count.files, "file", "files"));
        print(args, &chosen, rtt_s, args.explain);
        if let Some(expected) = chosen.expected_bps {
            let seconds = count.bytes as f64 * 8.0 / expected.max(1.0) + client::start_rtts(options, rtt_s) * rtt_s;
            outln!("takes about {}", words::seconds(seconds));
        }
    }
    let what = words::count(count.left.total, "thing", "things") + " would not be copied";
    super::left(&count.left, &what).map_err(Failure::said)
}
