//! What `fullpipe cp` prints when it has ended.

use std::time::Duration;

use fullpipe_path::ExitClass;
use fullpipe_transfer::Leftovers;
use fullpipe_transfer::client::Finished;
use fullpipe_transfer::item::one_line;
use serde_json::json;

use super::args::Args;
use super::loss_advice;
use crate::failure::{Failure, Result};
use crate::format;
use crate::output::{errln, outln};

/// Lines of what was left that a person reads.
const SHOWN: usize = 20;

/// The last line with `--json` where nothing was done.
pub fn print_failed(error: &str, code: u8) {
    outln!("{}", json!({"kind": "failed", "error": error, "exit_code": code}));
}

/// Says how it went; what was left makes the command fail. With the bytes that attempts have moved before the last, and
/// those that it did not have to move.
pub fn report(args: &Args, finished: &Finished, (earlier, spared): (u64, u64), took: Duration) -> Result {
    let summary = &finished.summary;
    let bytes = summary.bytes.saturating_add(earlier);
    let left = finished.left.clone().with(&summary.left);
    let seconds = took.as_secs_f64();
    let rate = bytes as f64 * 8.0 / seconds.max(1e-9);
    if args.json {
        outln!(
            "{}",
            json!({"kind": "done", "files": summary.files, "skipped": summary.skipped, "bytes": bytes,
                   "spared_bytes": spared, "encrypted": !args.no_encrypt, "seconds": seconds, "rate_bps": rate,
                   "transport": finished.transport, "rtt_s": finished.rtt_s,
                   "retransmits": finished.losses.map(|l| l.all.again),
                   "loss": finished.losses.and_then(|l| loss_advice::share(&l, finished.rtt_s)),
                   "verified": args.verify.then(|| format::verified(&summary.verified)),
                   "unfinished_others": summary.unfinished, "distrusted": told(&summary.distrusted),
                   "left": format::left(&left), "left_total": left.total})
        );
    } else if !args.quiet {
        let skipped = match summary.skipped {
            // What an earlier attempt of this command has moved counts as moved.
            0 if spared > earlier && bytes > 0 => {
                format!(" ({} of it were holes, or there already)", format::bytes((spared - earlier) as f64))
            }
            0 => String::new(),
            n if args.update => format!(" ({} there already, or newer)", format::thousands(n)),
            n => format!(" ({} there already)", format::thousands(n)),
        };
        let encryption = if args.no_encrypt { "; not encrypted" } else { "" };
        // Of nothing there is no rate.
        let moved = if bytes == 0 { String::new() } else { format!(" ({}{encryption})", format::rate(rate)) };
        let verified = if args.verify { format::verified_line(&summary.verified) } else { String::new() };
        errln!(
            "{}{skipped}, {} in {}{moved}{verified}",
            format::count(summary.files, "file", "files"),
            format::bytes(bytes as f64),
            format::seconds(seconds),
        );
    }
    if !args.json && !args.quiet {
        for file in told(&summary.distrusted) {
            errln!("not used: {file}; what an earlier attempt may have left there was copied again, under other names");
        }
    }
    if summary.unfinished > 0 && !args.json && !args.quiet {
        errln!(
            "{} of other commands in the destination: each goes on with its own command, 'rm .fullpipe.*' there gives up all",
            format::count(summary.unfinished, "unfinished copy", "unfinished copies")
        );
    }
    let what = format::count(left.total, "thing was", "things were") + " not copied";
    self::left(&left, &what).map_err(Failure::said)
}

/// Files at the destination that did not count, as the receiver tells of them.
fn told(distrusted: &[String]) -> Vec<String> {
    distrusted.iter().take(SHOWN).map(|text| one_line(text.as_bytes())).collect()
}

/// Names what was left, or would be; that makes the command fail.
pub fn left(left: &Leftovers, what: &str) -> Result {
    for one in left.named.iter().take(SHOWN) {
        errln!("left: {one}");
    }
    if left.total == 0 {
        return Ok(());
    }
    let more = if left.total > SHOWN as u64 { " (the first of them above)" } else { "" };
    let again = match left.to_do() {
        0 => "",
        _ => "; once the cause is mended, the same command copies the rest, and only that",
    };
    Err(Failure::new(ExitClass::Failed, format!("{what}{more}{again}")))
}
