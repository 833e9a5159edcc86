//! `--explain` and `--dry-run`: how a copy will be sent, and how long it will take.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use fullpipe_transfer::client::look::Tally;
use fullpipe_transfer::client::{self, Between, Way, look, third_party};
use fullpipe_transfer::connection::endpoint::{Endpoint, Via};
use fullpipe_transfer::protocol::candidate::Change;
use fullpipe_transfer::protocol::message::Options;
use fullpipe_transfer::protocol::name::Name;
use fullpipe_transfer::source::name_list::NameList;
use serde_json::json;

use super::args::Args;
use super::progress::kept;
use super::report::left;
use super::transport::{Chosen, TransportArgs};
use super::via::Choice;
use crate::failure::{Failure, Result};
use crate::format;
use crate::output::{errln, outln};
use crate::start_up::StartUp;

/// Round trips from the arrival of the last byte until this end knows of it.
const END_RTTS: f64 = 0.5;

/// The bytes of a copy, if they are known before it begins: all its sources are files of this host.
pub fn known_bytes(way: &Way) -> Option<u64> {
    let Way::Push(sources, _) = way else { return None };
    let size = |path: &Vec<u8>| std::fs::metadata(OsStr::from_bytes(path)).ok().filter(|file| file.is_file());
    sources.paths.iter().map(|path| size(path).map(|file| file.len())).sum()
}

/// Whether the data streams are encrypted, between the two ends or by ssh.
pub fn is_encrypted(args: &Args, between: &Between) -> bool {
    !args.no_encrypt || between.via == Via::Ssh
}

/// Seconds that a copy of so many bytes is expected to take from the command's start; none without an expected rate.
fn expected_seconds(chosen: &Chosen, between: &Between, options: Options, bytes: u64) -> Option<f64> {
    let (rtt_s, mtu) = (between.rtt_s, between.mtu);
    let start = StartUp { transport: &chosen.transport, rtt_s, mtu, loss: chosen.loss };
    let begun = (client::start_rtts(options, rtt_s) + END_RTTS) * rtt_s;
    Some(begun + start.seconds(bytes as f64, chosen.expected_bps?, chosen.over, chosen.capacity_bps))
}

/// Prints how the data will be sent and what a kernel lacks for a better way; with `why`, all reasons. With the copy's
/// `bytes`, prints the time and the rate to expect of it, too.
pub fn print(args: &Args, chosen: &Chosen, between: &Between, options: Options, bytes: Option<u64>, why: bool) {
    outln!("round trip  {}", format::seconds(between.rtt_s));
    outln!("transport   {}{}", chosen.transport, if is_encrypted(args, between) { "" } else { ", not encrypted" });
    if let Some(expected) = chosen.expected_bps {
        outln!(
            "expected    {} over {}; a shorter copy is slower, as it starts slowly",
            format::rate(expected),
            chosen.over
        );
    }
    if let Some(bytes) = bytes
        && let Some(seconds) = expected_seconds(chosen, between, options, bytes)
    {
        let rate =
            if bytes == 0 { String::new() } else { format!(" ({})", format::rate(bytes as f64 * 8.0 / seconds)) };
        outln!("takes about {} for {}{rate}", format::seconds(seconds), format::bytes(bytes as f64));
    }
    for told in chosen.why.iter().filter(|told| why || chosen.lacking.as_ref() == Some(*told)) {
        outln!("why         {told}");
    }
}

/// Tells what would become of a file or link, if names are asked for and it would not just stay: as a copy, for programs also of
/// those that stay since they are newer at the destination.
fn tell(args: &Args, name: &Name, change: Change) {
    let (word, does) = match change {
        Change::Newer if args.json => return outln!("{}", kept(name, true)),
        _ if !args.verbose => return,
        Change::Newer => return errln!("{}", kept(name, false)),
        Change::Present | Change::Blocked => return,
        Change::New => ("new", "would create"),
        Change::Replaced => ("replaced", "would replace"),
        Change::Unknown => ("unknown", "would copy"),
    };
    if args.json {
        outln!("{}", json!({"kind": "file", "name": name.to_string(), "change": word}));
    } else {
        outln!("{does}  {name}");
    }
}

/// What would be copied, and what not; `skips` if files that are there already may be left out.
fn would_copy(tally: &Tally, skips: bool) -> String {
    let files = |n| format::count(n, "file", "files");
    let mut text = format!("would copy  {}, {}", files(tally.files()), format::bytes(tally.bytes as f64));
    if tally.replaced > 0 {
        text += &match tally.files() {
            1 => ", in place of the one there".to_owned(),
            all if all == tally.replaced => ", all in place of others there".to_owned(),
            _ => format!(", {} of them in place of others there", tally.replaced),
        };
    }
    if tally.present > 0 {
        text += &format!("; {} {} there already", files(tally.present), if tally.present == 1 { "is" } else { "are" });
    }
    if tally.newer > 0 {
        text += &format!("; {} {} newer there", files(tally.newer), if tally.newer == 1 { "is" } else { "are" });
    }
    if tally.unknown > 0 && skips {
        text += ", or less: what is there cannot be looked up";
    }
    text
}

/// Prints what would be copied, how, and how long it would take. Nothing is copied. With the choice of what carries the data
/// comes what is to be said of it; with the direction, the list of names to which the copy is limited.
pub fn dry_run(
    (args, how): (&Args, &TransportArgs),
    endpoint: &mut Endpoint,
    (mut choice, note): (Choice, Option<String>),
    way: (&Way, Option<&Arc<NameList>>),
    options: Options,
) -> Result {
    let say = |note: String| {
        if args.json {
            outln!("{}", json!({"kind": "note", "note": note}));
        } else if !args.quiet {
            errln!("{note}");
        }
    };
    note.into_iter().for_each(say);
    let mut gone = |name: Name| {
        if args.json {
            outln!("{}", json!({"kind": "deleted", "name": name.to_string()}));
        } else if !args.quiet {
            outln!("would delete  {name}");
        }
    };
    let mut each = |name: &Name, change: Change| tell(args, name, change);
    let mut look = |endpoint: &Endpoint| match way.0 {
        Way::ThirdParty(..) => third_party::look(endpoint, options, way.0, &mut each, &mut gone),
        _ => look::look(endpoint, options, way, &mut each, &mut gone),
    };
    let looked = look(endpoint).or_else(|error| match choice.fall_back(&error, endpoint, false) {
        Some(note) => {
            say(note);
            look(endpoint)
        }
        None => Err(error),
    });
    let look::Looked { between, count, tally, deleted } = looked?;
    let known = match between {
        Some(between) => Some((how.choose(&between)?, between)),
        None => None,
    };
    if args.json {
        let known_of = |files: u64| (tally.unknown == 0).then_some(files);
        let known = known.as_ref();
        let expected_bps = known.and_then(|(chosen, _)| chosen.expected_bps);
        outln!(
            "{}",
            json!({"kind": "dry_run", "files": tally.files(), "bytes": tally.bytes,
                   "new": known_of(tally.new), "replaced": known_of(tally.replaced), "present": known_of(tally.present),
                   "newer": known_of(tally.newer),
                   "rtt_s": known.map(|(_, between)| between.rtt_s),
                   "transport": known.map(|(chosen, _)| &chosen.transport),
                   "encrypted": known.map_or(!args.no_encrypt, |(_, between)| is_encrypted(args, between)),
                   "expected_bps": expected_bps,
                   "expected_over": known.filter(|_| expected_bps.is_some()).map(|(chosen, _)| chosen.over),
                   "expected_s": known.and_then(|(chosen, between)| expected_seconds(chosen, between, options, tally.bytes)),
                   "deleted": deleted.as_ref().map(|deleted| deleted.entries),
                   "over_max_delete": deleted.as_ref().map(|deleted| deleted.over_limit),
                   "removed_sources": args.remove_source_files.then_some(tally.files() + tally.present),
                   "why": known.map_or(&[][..], |(chosen, _)| &chosen.why[..]),
                   "left": format::left(&count.skipped), "left_total": count.skipped.total})
        );
    } else {
        outln!("{}", would_copy(&tally, options.keeps_same()));
        if args.remove_source_files {
            outln!("removes     these files at the source, once the destination has them");
        }
        match &deleted {
            Some(deleted) => {
                let more = match deleted.over_limit {
                    0 => String::new(),
                    n => format!(
                        ", and leaves {}: --max-delete is reached",
                        format::count(n, "more entry", "more entries")
                    ),
                };
                outln!("deletes     {}{more}", format::count(deleted.entries, "file or folder", "files and folders"));
            }
            None if args.delete => outln!("deletes     nothing, as not everything can be copied"),
            None => {}
        }
        let known_bytes = (tally.files() > 0).then_some(tally.bytes);
        match &known {
            Some((chosen, between)) => print(args, chosen, between, options, known_bytes, args.explain),
            None => outln!("transport   chosen when the copy has measured the path between the two hosts"),
        }
    }
    let what = format::count(count.skipped.total, "file or folder", "files or folders") + " would not be copied";
    left(&count.skipped, &what, false).map_err(Failure::said)
}
