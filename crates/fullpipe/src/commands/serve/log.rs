//! The log of a server: one line for each event, for people on standard error or with `--json` on standard output.

use std::cell::OnceCell;
use std::time::Instant;

use fullpipe_net::serve::Event;
use fullpipe_path::text;
use fullpipe_transfer::SkippedEntry;
use fullpipe_transfer::protocol::message::{Summary, Task, Verified};
use fullpipe_transfer::protocol::name::{one_line, printable};
use serde_json::{Value, json};

use super::channel::Copied;
use crate::format::{self, now};
use crate::output::{errln, outln};

/// Most sources, or files not copied, that the log names for one client.
const SHOWN: usize = 3;
/// Room in a line of the log for fields other than the client's lists, bytes.
const OTHER_FIELDS: usize = 512;
/// Longest name in the log, bytes. As JSON it may take twice as many.
const MAX_NAME: usize = 1024;

/// The form of the log.
#[derive(Clone, Copy)]
pub struct Told {
    /// Whether the log is NDJSON on standard output.
    pub json: bool,
    /// Whether people get errors only.
    pub quiet: bool,
}

/// A message to the operator of the server that is about no client.
pub enum Notice {
    /// States who may do what.
    Note(String),
    /// Warns of something to change.
    Warning(String),
}

impl Told {
    /// Prints a notice on standard error.
    pub fn operator(self, notice: &Notice) {
        if self.quiet {
            return;
        }
        match notice {
            Notice::Note(text) => errln!("{}", one_line(text.as_bytes())),
            Notice::Warning(text) => errln!("warning: {}", one_line(text.as_bytes())),
        }
    }

    /// Writes a notice to the log of `--json`.
    pub fn log(self, notice: &Notice) {
        if self.json {
            let (kind, text) = match notice {
                Notice::Note(text) => ("note", text),
                Notice::Warning(text) => ("warning", text),
            };
            outln!("{}", json!({"kind": kind, "time": now(), "text": one_line(text.as_bytes())}));
        }
    }

    /// Does both.
    pub fn say(self, notice: &Notice) {
        self.operator(notice);
        self.log(notice);
    }
}

/// A client's copy, as the log tells of it.
pub struct Copy<'a> {
    peer: &'a str,
    /// Name of the client's token, once it has shown one.
    token: OnceCell<String>,
    begin: Instant,
}

impl<'a> Copy<'a> {
    /// The copy of the client with this address, which begins now.
    pub fn new(peer: &'a str) -> Copy<'a> {
        Copy { peer, token: OnceCell::new(), begin: Instant::now() }
    }

    /// Notes the token of the client.
    pub fn holds(&self, token: &str) {
        // A client shows only one token.
        let _ = self.token.set(token.to_owned());
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        say(self.peer, self.token.get().map(String::as_str), what);
    }

    /// Logs what the client asks for.
    pub fn begins(&self, task: &Task, told: Told) {
        let shown = |paths: &[Vec<u8>]| -> Vec<String> {
            paths.iter().map(|path| text::cut(printable(path), MAX_NAME)).collect()
        };
        let (field, does, places) = match task {
            Task::Push(target) => ("to", "copies to", shown(std::slice::from_ref(&target.path))),
            Task::Pull(sources) => ("from", "copies from", shown(&sources.paths)),
            Task::Look(sources) if sources.paths.is_empty() => ("look", "asks whether it may copy here", Vec::new()),
            Task::Compare(target) => {
                ("look", "asks what a copy would do at", shown(std::slice::from_ref(&target.path)))
            }
            Task::Look(sources) => ("look", "asks what would be copied from", shown(&sources.paths)),
        };
        if told.json {
            let total = places.len();
            let places = fitting(places.into_iter().map(Value::from));
            outln!(
                "{}",
                json!({"kind": "begin", "time": now(), "peer": self.peer, "token": self.token.get(), field: places,
                       "total": total})
            );
        } else if !told.quiet {
            let more = match places.len().saturating_sub(SHOWN) {
                0 => String::new(),
                n => format!(" and {}", format::count(n as u64, "other", "others")),
            };
            let places = places[..places.len().min(SHOWN)].join(", ");
            let space = if places.is_empty() { "" } else { " " };
            self.say(format_args!("{does}{space}{places}{more}"));
        }
    }

    /// Tells of a file at the destination that an earlier attempt could have left, and that others may have changed.
    pub fn distrusts(&self, file: &str, told: Told) {
        let file = text::cut(one_line(file.as_bytes()), MAX_NAME);
        if told.json {
            outln!(
                "{}",
                json!({"kind": "distrusted", "time": now(), "peer": self.peer, "token": self.token.get(), "file": file})
            );
        } else if !told.quiet {
            self.say(format_args!("not trusted: {file}; what it holds is copied again"));
        }
    }

    /// Logs what was copied, and what was not.
    pub fn ends(&self, outcome: &Copied, told: Told) {
        let Summary { files, present, bytes, verified, .. } = outcome.summary;
        // All zeros unless the client asked for --verify.
        let verified = (verified != Verified::default()).then_some(verified);
        let skipped = outcome.skipped.clone().with(&outcome.summary.skipped);
        let seconds = self.begin.elapsed().as_secs_f64();
        if told.json {
            outln!(
                "{}",
                json!({"kind": "copied", "time": now(), "peer": self.peer, "token": self.token.get(),
                       "files": files, "skipped": present, "bytes": bytes,
                       "left": fitting(skipped.named.iter().map(shortened)), "left_total": skipped.total,
                       "seconds": seconds, "verified": verified.as_ref().map(format::verified)})
            );
        } else if !told.quiet {
            let files = format::count(files.saturating_sub(present), "file", "files");
            let rate = format::rate(bytes as f64 * 8.0 / seconds.max(1e-9));
            let (bytes, seconds) = (format::bytes(bytes as f64), format::seconds(seconds));
            let present =
                if present > 0 { format!(", {} already there", format::thousands(present)) } else { String::new() };
            for one in skipped.named.iter().take(SHOWN) {
                self.say(format_args!("not copied: {one}"));
            }
            for line in format::not_kept_lines(&outcome.summary.not_kept).iter().take(SHOWN) {
                self.say(format_args!("not kept: {line}"));
            }
            let left =
                if skipped.total > 0 { format!(", {} not", format::thousands(skipped.total)) } else { String::new() };
            let verified = verified.as_ref().map(format::verified_line).unwrap_or_default();
            self.say(format_args!("{files} copied{present}{left}; {bytes} in {seconds} ({rate}){verified}"));
        }
    }
}

/// Writes one line to the log. It has at most [`text::MAX_LOG_LINE`] bytes, as clients determine part of it.
pub fn say(peer: &str, token: Option<&str>, what: impl std::fmt::Display) {
    let token = token.map_or_else(String::new, |token| format!(", token {token}"));
    let line = format!("{} {peer}{token}: {}", now(), one_line(what.to_string().as_bytes()));
    errln!("{}", text::cut(line, text::MAX_LOG_LINE));
}

/// As many of the first values as fit into a line of the log beside its other fields. Another field has the total.
fn fitting(values: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut room = text::MAX_LOG_LINE - OTHER_FIELDS;
    let fits = |value: &Value| {
        let len = text::json(&value.to_string()).len() + 1;
        let fits = len <= room;
        room = room.saturating_sub(len);
        fits
    };
    values.take_while(fits).collect()
}

/// Something that was not copied, as JSON that fits into a line of the log.
fn shortened(left: &SkippedEntry) -> Value {
    let name = text::cut(printable(&left.name), MAX_NAME);
    let why = text::cut(text::from_peer(&left.why), MAX_NAME / 2);
    json!({"name": name, "why": why, "for_good": left.for_good})
}

/// Logs the beginning or end of a connection. `token` is the name of the client's token.
pub fn log(event: &Event<'_>, token: Option<&str>, Told { json, quiet }: Told) {
    match event {
        Event::Begin { peer, request } if json => {
            outln!("{}", json!({"kind": "begin", "time": now(), "peer": peer, "token": token, "request": request}));
        }
        Event::Begin { peer, request } if !quiet => {
            say(peer, token, format_args!("{}, {}", request.transport, request.workload))
        }
        Event::End { peer, result, .. } if json => {
            let error = result.as_ref().err().map(|error| text::from_peer(&error.in_log()));
            outln!("{}", json!({"kind": "end", "time": now(), "peer": peer, "token": token, "error": error}));
        }
        Event::End { peer, result: Err(error), .. } => say(peer, token, error.in_log()),
        Event::End { peer, result: Ok(()), measured: true, .. } if !quiet => say(peer, token, "done"),
        _ => {}
    }
}
