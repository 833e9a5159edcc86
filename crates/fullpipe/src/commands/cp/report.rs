//! What `fullpipe cp` prints at its end.

use std::time::Duration;

use fullpipe_path::{ExitClass, Protocol};
use fullpipe_transfer::Skipped;
use fullpipe_transfer::client::Finished;
use fullpipe_transfer::protocol::message::{Deleted, Removed};
use fullpipe_transfer::protocol::name::one_line;
use serde_json::json;

use super::args::Args;
use super::bottleneck::Spent;
use super::loss_advice;
use crate::failure::{Failure, Result};
use crate::format;
use crate::output::{errln, log_failed, outln, tell};

/// Bytes from which on a copy has a rate, however short it was.
const MIN_RATE_BYTES: u64 = 1_000_000;
/// Time from which on a copy has a rate, however little it moved, seconds.
const MIN_RATE_S: f64 = 1.0;
/// Most lines about files that were not copied.
const SHOWN: usize = 20;

/// Prints the last line of `--json` for a copy that failed before it could report.
pub fn print_failed(error: &str, code: u8) {
    outln!("{}", json!({"kind": "failed", "error": error, "exit_code": code}));
}

/// What a copy moved over all its attempts.
pub struct Moved {
    /// Bytes that came in attempts before the last one.
    pub earlier: u64,
    /// Bytes that were there before the command, or are holes.
    pub found: u64,
    /// Bytes that the last attempt did not have to send.
    pub spared: u64,
    /// The busy times of both ends.
    pub spent: Spent,
    /// Time of the whole command.
    pub took: Duration,
}

/// Prints how the copy went, what limited it, with `--explain` what would help, and how its record was written.
///
/// # Errors
/// Something was not copied, or the record was not written.
pub fn report(args: &Args, finished: &Finished, moved: &Moved, recorded: Result) -> Result {
    let &Moved { earlier, spared, ref spent, took, .. } = moved;
    let summary = &finished.summary;
    let bytes = summary.bytes.saturating_add(earlier);
    let left = finished.skipped.clone().with(&summary.skipped);
    let seconds = took.as_secs_f64();
    let line = summed_up(args, finished, moved);
    tell(!args.json && !args.quiet, format_args!("{line}"));
    let recorded = recorded.and(logged(args));
    if let Some(bottleneck) = spent.told().filter(|by| (args.explain || by.is_of_a_host()) && !args.json && !args.quiet)
    {
        outln!("faster      {}", bottleneck.help());
    }
    if !args.json && !args.quiet {
        for file in told(&summary.distrusted) {
            errln!(
                "not trusted: {file}; it was left alone, and what it was for was copied anew; remove .fullpipe.* there if nobody \
                 copies to that folder now"
            );
        }
    }
    if summary.unfinished > 0 && !args.json && !args.quiet {
        let (what, finish) = match summary.unfinished {
            1 => ("unfinished copy of another command", "repeat that command to finish it"),
            _ => ("unfinished copies of other commands", "repeat each command to finish its copy"),
        };
        errln!(
            "{} {what} in the destination folder (.fullpipe.*.journal there): {finish}, or, if nobody copies to that folder \
             now, remove .fullpipe.* there to give up",
            format::thousands(summary.unfinished)
        );
    }
    let lacking = summary.not_kept.asked_for();
    if (!args.json && !args.quiet) || lacking > 0 {
        format::not_kept_lines(&summary.not_kept).iter().take(SHOWN).for_each(|line| errln!("not kept: {line}"));
    }
    let mut what = Vec::new();
    if left.total > 0 {
        what.push(format::count(left.total, "file or folder was", "files or folders were") + " not copied");
    }
    if lacking > 0 {
        let files = format::count(lacking, "file or folder was", "files or folders were");
        what.push(format!("{files} copied without all of the attributes that were asked for"));
    }
    let stays = args.delete.then(|| not_deleted(summary.deleted.as_ref())).flatten();
    let sources_stay = args.remove_source_files.then(|| not_removed(finished.removed.as_ref())).flatten();
    let more = lacking > 0 || stays.is_some() || sources_stay.is_some();
    what.extend(stays.into_iter().chain(sources_stay));
    let result = self::left(&left, &what.join(", and "), more).and(recorded);
    if args.json {
        let rate = bytes as f64 * 8.0 / seconds.max(1e-9);
        outln!(
            "{}",
            json!({"kind": "done", "files": summary.files, "skipped": summary.present, "newer": summary.newer, "bytes": bytes,
                   "spared_bytes": spared, "encrypted": finished.encrypted, "seconds": seconds, "rate_bps": rate,
                   "transport": finished.transport, "rtt_s": finished.rtt_s,
                   "retransmits": finished.losses.map(|l| l.all.again),
                   "loss": finished.losses.and_then(|l| loss_advice::share(&l, finished.rtt_s)),
                   "verified": args.verify.then(|| format::verified(&summary.verified)),
                   "unfinished_others": summary.unfinished, "distrusted": told(&summary.distrusted),
                   "not_kept": format::not_kept(&summary.not_kept),
                   "deleted": summary.deleted.as_ref().map(|deleted| deleted.entries),
                   "not_deleted": summary.deleted.as_ref().map(|deleted| format::left(&deleted.failed)),
                   "removed_sources": finished.removed.as_ref().map(|removed| removed.files),
                   "not_removed": finished.removed.as_ref().map(|removed| format::left(&removed.failed)),
                   "left": format::left(&left), "left_total": left.total,
                   "bottleneck": spent.bottleneck().map(|one| one.key()),
                   "error": result.as_ref().err().map(ToString::to_string),
                   "exit_code": result.as_ref().err().map_or(0, Failure::code)})
        );
    }
    result.map_err(Failure::said)
}

/// Names what should have been deleted and was not, and counts it for the error; `None` if all of it was deleted. `deleted` is
/// `None` if something had not arrived.
pub fn not_deleted(deleted: Option<&Deleted>) -> Option<String> {
    let Some(Deleted { over_limit, failed, .. }) = deleted else { return Some("so nothing was deleted".to_owned()) };
    for one in failed.named.iter().take(SHOWN) {
        errln!("not deleted: {one}");
    }
    if *over_limit > 0 {
        errln!("not deleted: {}: --max-delete is reached", format::count(*over_limit, "more entry", "more entries"));
    }
    let total = failed.total.saturating_add(*over_limit);
    (total > 0).then(|| format::count(total, "file or folder was", "files or folders were") + " not deleted")
}

/// Names sources that should have been removed and were not, and counts them for the error; `None` if all were. `removed` is `None`
/// if the far end has not said what it has removed.
fn not_removed(removed: Option<&Removed>) -> Option<String> {
    let Some(Removed { failed, .. }) = removed else {
        return Some("the far end has not said which sources it has removed".to_owned());
    };
    for one in failed.named.iter().take(SHOWN) {
        errln!("not removed: {one}");
    }
    let total = failed.total;
    (total > 0).then(|| format::count(total, "source file was", "source files were") + " copied and not removed")
}

/// The last line for people: how many files, bytes and seconds, and what limited the copy.
fn summed_up(args: &Args, finished: &Finished, moved: &Moved) -> String {
    let &Moved { earlier, found, ref spent, took, .. } = moved;
    let seconds = took.as_secs_f64();
    let summary = &finished.summary;
    let bytes = summary.bytes.saturating_add(earlier);
    let rate = bytes as f64 * 8.0 / seconds.max(1e-9);
    let skipped = match summary.present {
        // What an earlier attempt of this command sent counts as copied, not as found.
        0 if found > 0 && bytes > 0 => {
            format!(" ({} of it already there, or holes)", format::bytes(found as f64))
        }
        0 => String::new(),
        n if args.updates() && !args.quick_check => format!(" ({} already there, or newer)", format::thousands(n)),
        n => format!(" ({} already there)", format::thousands(n)),
    };
    let encryption = if !finished.encrypted { "; not encrypted" } else { "" };
    let over = if finished.transport.protocol() == Protocol::Udt { " over UDT" } else { "" };
    let deleted = match &summary.deleted {
        Some(deleted) if deleted.entries > 0 => format!(", {} deleted", format::thousands(deleted.entries)),
        _ => String::new(),
    };
    let removed = match &finished.removed {
        Some(removed) if removed.files > 0 => format!(", {} removed at the source", format::thousands(removed.files)),
        _ => String::new(),
    };
    let limited = spent.told().map(|by| format!("; limited by {by}")).unwrap_or_default();
    let moved = match has_rate(bytes, seconds) {
        true => format!(" ({}{over}{limited}{encryption})", format::rate(rate)),
        false if bytes > 0 && !finished.encrypted => " (not encrypted)".to_owned(),
        false => String::new(),
    };
    let verified = if args.verify { format::verified_line(&summary.verified) } else { String::new() };
    format!(
        "{}{skipped}{deleted}{removed}, {} in {}{moved}{verified}",
        format::count(summary.files, "file", "files"),
        format::bytes(bytes as f64),
        format::seconds(seconds),
    )
}

/// Checks that the log has all that it was to have.
///
/// # Errors
/// A line could not be written to it.
fn logged(args: &Args) -> Result {
    let (Some(path), Some(error)) = (&args.log_file, log_failed()) else { return Ok(()) };
    let why = format!("--log-file {}: {error}; lines of the log are missing", path.display());
    Err(Failure::new(ExitClass::Record, why))
}

/// Whether the rate of a copy says something of the path. That of a few bytes in less than a second says only how long the
/// command took to start.
fn has_rate(bytes: u64, seconds: f64) -> bool {
    bytes >= MIN_RATE_BYTES || bytes > 0 && seconds >= MIN_RATE_S
}

/// Files at the destination that the receiver did not trust, as it describes them.
fn told(distrusted: &[String]) -> Vec<String> {
    distrusted.iter().take(SHOWN).map(|text| one_line(text.as_bytes())).collect()
}

/// Names what was not copied, or would not be. `what` counts it, for the error; `more` says whether `what` has other failures.
///
/// # Errors
/// Something was not copied, or there are other failures.
pub fn left(left: &Skipped, what: &str, more: bool) -> Result {
    for (number, one) in left.named.iter().enumerate() {
        tell(number < SHOWN, format_args!("not copied: {one}"));
    }
    if left.total == 0 && !more {
        return Ok(());
    }
    let more = if left.total > SHOWN as u64 { " (the first are listed above)" } else { "" };
    let again = match left.to_do() {
        0 => "",
        _ => "; remove the cause and run the same command again, it copies only the rest",
    };
    Err(Failure::new(ExitClass::Failed, format!("{what}{more}{again}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_copy_has_no_rate() {
        assert!(!has_rate(0, 5.0) && !has_rate(6, 0.02) && has_rate(6, 2.0) && has_rate(5_000_000, 0.02));
    }
}
