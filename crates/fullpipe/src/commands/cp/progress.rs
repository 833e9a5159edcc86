//! What a copy shows while it runs: a bar on a terminal, or NDJSON on standard output.

use std::cell::{Cell, RefCell};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fullpipe_transfer::client::Way;
use fullpipe_transfer::protocol::message::Times;
use fullpipe_transfer::protocol::name::{Name, Named};
use fullpipe_transfer::protocol::sizing::SizingEvent;
use fullpipe_transfer::telemetry::counters::Counters;
use indicatif::ProgressBar;
use serde_json::json;

use super::args::Args;
use super::bottleneck::{Bottleneck, Spent, Standard};
use super::names::Names;
use super::transport::Chosen;
use crate::failure::without_numbers;
use crate::output::{errln, log, outln};
use crate::{format, progress};

/// Most notes of the controller that a record keeps. The controller decides about ten times a second; a faulty other end
/// may send any number.
const MAX_NOTES: usize = 1 << 17;
/// Shortest time between two updates, seconds.
const UPDATE_S: f64 = 1.0;
/// Weight of the latest update in the smoothed rate that the ETA is computed from.
const PACE_WEIGHT: f64 = 0.3;
/// Shortest time between two lines about progress where standard error is no terminal, seconds.
const LINE_S: f64 = 60.0;
/// Longest ETA that is shown, seconds.
const MAX_ETA_S: f64 = 1e7;

/// The progress of a copy over all its attempts.
pub struct Watch {
    /// Hidden while an attempt connects, as ssh may ask for a password on the same terminal.
    bar: RefCell<ProgressBar>,
    json: bool,
    quiet: bool,
    /// Whether `--explain` prints how data is sent.
    explained: bool,
    /// Whether this end sends.
    sends: bool,
    /// Whether the size of the copy is known before its end.
    has_size: bool,
    /// Most bytes that any attempt has got done or sent.
    moved: Cell<u64>,
    /// Bytes sent over the network in this attempt.
    wire: Cell<u64>,
    /// Bytes that came over the network in this attempt, as far as the receiver has told.
    come: Cell<u64>,
    /// Bytes done in this attempt: written, there already, or holes.
    done: Cell<u64>,
    /// Bytes done as last shown; what is shown never goes back.
    shown: Cell<u64>,
    /// Smoothed rate, bit/s; none before the first update.
    pace: Cell<Option<f64>>,
    /// Bytes sent over the network in earlier attempts.
    earlier: Cell<u64>,
    /// The same as far as this end has sent it, or more: what was on its way, too.
    earlier_sent: Cell<u64>,
    /// Time, arrived bytes, and both ends' busy times at the last update.
    last: RefCell<Option<(Instant, u64, Times, Times)>>,
    /// Whether the transport has been printed.
    said: Cell<bool>,
    /// Whether the names of copied files are printed.
    verbose: bool,
    /// Prints names to a pipe or a file; none on a terminal, where they share the screen with the bar.
    names: Option<Names>,
    /// When a line about progress is due; none on a terminal, which has the bar.
    lines: Option<RefCell<Lines>>,
    /// The busy times of both ends, in all attempts, up to the last update.
    spent: RefCell<Spent>,
    /// The busy times of the sender and of the receiver since the last update.
    since_update: Cell<(Times, Times)>,
    /// The controller's notes, if a record wants them.
    notes: Option<RefCell<Vec<SizingEvent>>>,
}

/// How far a copy is.
struct Update {
    /// Bytes done.
    done: u64,
    /// Bytes of all files that were found so far.
    found: u64,
    /// Bytes that have come, in all attempts.
    come: u64,
    /// Rate since the last update, bit/s.
    rate: f64,
    /// Smoothed rate, bit/s: a slow path brings a block in one second and none in the next.
    pace: f64,
    /// What limits the copy.
    bottleneck: Bottleneck,
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Watch {
    /// Shows a bar, prints NDJSON or stays silent, as the flags say.
    pub fn new(args: &Args, way: &Way) -> Watch {
        Watch {
            bar: RefCell::new(ProgressBar::hidden()),
            json: args.json,
            quiet: args.quiet,
            explained: args.explain,
            sends: way.sends(),
            has_size: !matches!(way, Way::PushInput(..)),
            moved: Cell::new(0),
            wire: Cell::new(0),
            come: Cell::new(0),
            done: Cell::new(0),
            shown: Cell::new(0),
            pace: Cell::new(None),
            earlier: Cell::new(0),
            earlier_sent: Cell::new(0),
            last: RefCell::new(None),
            said: Cell::new(false),
            verbose: args.verbose,
            names: (args.verbose && (args.json || !std::io::stdout().is_terminal())).then(Names::new),
            lines: (!args.json && !args.quiet && !std::io::stderr().is_terminal())
                .then(|| RefCell::new(Lines { last: (Instant::now(), 0) })),
            spent: RefCell::new(Spent::new(args.how.limit_bps(), standard(way))),
            since_update: Cell::default(),
            notes: args.record.as_ref().map(|_| RefCell::default()),
        }
    }

    /// Takes the notes of the controller of window and pacing for the record.
    pub fn noted(&self) -> Vec<SizingEvent> {
        self.notes.as_ref().map(RefCell::take).unwrap_or_default()
    }

    /// Starts an attempt: hides the bar and counts anew.
    pub fn connecting(&self) {
        self.clear();
        self.earlier.set(self.earlier.get() + self.come.take());
        self.earlier_sent.set(self.earlier_sent.get() + self.wire.take());
        self.last.replace(None);
        self.shown.set(0);
        self.pace.set(None);
    }

    /// Bytes of content that earlier attempts brought over the network. What was on its way when they ended does not count.
    pub fn earlier(&self) -> u64 {
        self.earlier.get()
    }

    /// Bytes that this attempt did not have to send, because they were there already or are holes.
    pub fn spared(&self) -> u64 {
        self.done.get().saturating_sub(self.wire.get())
    }

    /// Bytes that were there before this command, or are holes.
    pub fn found(&self) -> u64 {
        self.spared().saturating_sub(self.earlier_sent.get())
    }

    /// Most bytes that any attempt has got done or sent so far.
    pub fn moved(&self) -> u64 {
        self.moved.get()
    }

    /// The busy times of both ends so far.
    pub fn spent(&self) -> Spent {
        let mut spent = self.spent.borrow().clone();
        let (sender, receiver) = self.since_update.get();
        spent.add_rest(&sender, &receiver);
        spent
    }

    /// Tells how the data will be sent, and shows the bar.
    pub fn chosen(&self, chosen: &Chosen, rtt_s: f64, encrypted: bool) {
        let t = &chosen.transport;
        if self.json {
            outln!(
                "{}",
                json!({"kind": "transport", "transport": t, "encrypted": encrypted, "rtt_s": rtt_s,
                       "expected_bps": chosen.expected_bps, "why": chosen.why})
            );
        } else if !self.quiet && !self.said.replace(true) && progress::watched(false) {
            errln!("{t}, over a round trip of {}", format::seconds(rtt_s));
            if let (Some(lacking), false) = (&chosen.lacking, self.explained) {
                errln!("{lacking}");
            }
        }
        self.bar.replace(progress::bar(0, "", self.quiet || self.json));
    }

    /// Tells of an event.
    pub fn say(&self, what: &str) {
        let what = without_numbers(what.to_owned());
        if self.json {
            outln!("{}", json!({"kind": "note", "note": what}));
        } else if !self.quiet {
            self.bar.borrow().suspend(|| errln!("{what}"));
            return;
        }
        log(format_args!("{what}"));
    }

    /// Tells of a decision of the controller of window and pacing.
    fn sized(&self, note: &SizingEvent) {
        if self.json {
            let mut line = json!({"kind": "sobas"});
            if let (Some(line), Ok(serde_json::Value::Object(fields))) = (line.as_object_mut(), note.to_json()) {
                line.extend(fields);
            }
            outln!("{line}");
        } else if let SizingEvent::Began { udp: false, .. } = note
            && self.explained
        {
            self.say("UDP does not get through, so the capacity is estimated from what arrives instead of from packet trains");
        } else if let Some(event) = note.turn()
            && self.explained
        {
            let capacity = event.capacity_bps.map(|bps| format!("; the path carries {}", format::rate(bps as f64)));
            let limit = event.pacing_bps.map(|bps| format!(", at most {}", format::rate(bps as f64)));
            self.say(&format!(
                "after {}: {}{}; {} {}{}",
                format::seconds(event.at_ns as f64 * 1e-9),
                event.why,
                capacity.unwrap_or_default(),
                format::count(u64::from(event.streams), "stream", "streams"),
                if event.streams == 1 { "sends" } else { "send" },
                limit.unwrap_or_default(),
            ));
        } else if note.shows_random_loss() {
            self.say(
                "packets are lost although no queue stands: the path loses them by itself, or its queue is too short to be seen",
            );
        }
    }

    /// Takes in what the counters say, and shows how far the copy is, at most once a second.
    pub fn show(&self, counters: &Counters) {
        self.take_notes(counters);
        self.show_names(counters);
        let (done, wire, come) = (read(&counters.done_bytes), read(&counters.wire_bytes), read(&counters.come_bytes));
        self.wire.set(wire);
        self.come.set(come);
        self.done.set(done);
        self.moved.set(self.moved.get().max(done.max(wire)));
        let now = Instant::now();
        let (ours, theirs) = (counters.times(), counters.other.lock().map(|t| *t).unwrap_or_default());
        let mut last = self.last.borrow_mut();
        let Some((then, before, our_before, their_before)) = *last else {
            *last = Some((now, come, ours, theirs));
            return;
        };
        let seconds = (now - then).as_secs_f64();
        let (our_times, their_times) = (since(ours, our_before), since(theirs, their_before));
        let (sender, receiver) = if self.sends { (our_times, their_times) } else { (their_times, our_times) };
        self.since_update.set((sender, receiver));
        if seconds < UPDATE_S {
            return;
        }
        *last = Some((now, come, ours, theirs));
        self.since_update.take();
        // Bytes that were there already have no rate.
        let rate = come.saturating_sub(before) as f64 * 8.0 / seconds;
        let bottleneck = self.spent.borrow_mut().add(&sender, &receiver, rate);
        // Only what is left to send takes time, at the smoothed rate.
        let pace = self.pace.get().map_or(rate, |before| before + PACE_WEIGHT * (rate - before));
        self.pace.set(Some(pace));
        // On a slow path a block takes long, so its arrived part counts as done. Between its arrival and its write it is in
        // neither counter, and what is shown must not go back.
        let found = read(&counters.found_bytes);
        let done = done.saturating_add(read(&counters.partial_bytes)).min(found.max(done)).max(self.shown.get());
        self.shown.set(done);
        let come = self.earlier.get() + come;
        self.show_update(counters, &Update { done, found, come, rate, pace, bottleneck });
    }

    /// Keeps the controller's notes, and shows them.
    fn take_notes(&self, counters: &Counters) {
        for note in counters.sizing_events.lock().map(|mut notes| std::mem::take(&mut *notes)).unwrap_or_default() {
            self.sized(&note);
            if let Some(notes) = &self.notes {
                if matches!(note, SizingEvent::Began { .. }) {
                    // The record is of the last attempt alone.
                    notes.borrow_mut().clear();
                }
                if notes.borrow().len() < MAX_NOTES {
                    notes.borrow_mut().push(note);
                }
            }
        }
    }

    /// Prints the names of files that have begun or ended.
    fn show_names(&self, counters: &Counters) {
        for named in counters.take_names() {
            let name = match named {
                Named::Copied(name) => {
                    // What is sent may still fail at the destination; then the report says so.
                    log(format_args!("{}: {name}", if self.sends { "sent" } else { "copied" }));
                    if !self.verbose {
                        continue;
                    }
                    name
                }
                Named::Newer(name) => {
                    self.kept(&name);
                    continue;
                }
                Named::Deleted(name) => {
                    log(format_args!("deleted: {name}"));
                    if self.verbose {
                        self.print(format!("deleted: {name}"), json!({"kind": "deleted", "name": name.to_string()}));
                    }
                    continue;
                }
            };
            self.print(name.to_string(), json!({"kind": "file", "name": name.to_string()}));
        }
    }

    /// Prints a line about a file on standard output, or its object for programs.
    fn print(&self, line: String, object: serde_json::Value) {
        match &self.names {
            None => self.bar.borrow().suspend(|| outln!("{line}")),
            Some(names) if self.json => names.say(object.to_string()),
            Some(names) => names.say(line),
        }
    }

    /// Names a file that stays at the destination, as it is newer there.
    fn kept(&self, name: &Name) {
        let line = kept(name, self.json);
        match &self.names {
            _ if !self.json => self.say(&line),
            None => outln!("{line}"),
            Some(names) => names.say(line),
        }
    }

    /// Shows an update: a line for programs, and the bar.
    fn show_update(&self, counters: &Counters, update: &Update) {
        let &Update { done, found, come, rate, pace, bottleneck } = update;
        let files = read(&counters.found_files);
        if self.json {
            outln!(
                "{}",
                json!({"kind": "progress", "bytes": done, "files": read(&counters.done_files), "found_bytes": found,
                       "found_files": files, "found_all": read(&counters.found_all) > 0, "rate_bps": rate,
                       "bottleneck": bottleneck.key()})
            );
        }
        let many = if files > 1 {
            format!(", {} of {} files", format::thousands(read(&counters.done_files)), format::thousands(files))
        } else {
            String::new()
        };
        // The sender finds files while it sends. Until it has found all, nobody knows how much is left.
        let found_all = read(&counters.found_all) > 0;
        let of = match format::bytes(found as f64) {
            found if self.has_size && found_all => format!(" of {found}"),
            found if self.has_size => format!(" of at least {found}"),
            _ => String::new(),
        };
        let message = |rate: f64| {
            let eta = match found.saturating_sub(done) as f64 * 8.0 / rate {
                seconds if self.has_size && found_all && seconds <= MAX_ETA_S => {
                    format!(", ETA {}", indicatif::HumanDuration(Duration::from_secs_f64(seconds.ceil())))
                }
                _ => String::new(),
            };
            format!("{}{of}{many}, {}, {bottleneck}{eta}", format::bytes(done as f64), format::rate(rate))
        };
        if let Some(rate) = self.lines.as_ref().and_then(|lines| lines.borrow_mut().due(Instant::now(), come)) {
            errln!("{}", message(rate));
        }
        let bar = self.bar.borrow();
        bar.set_position(done);
        bar.set_message(message(pace));
        if found > 0 && self.has_size && found_all {
            progress::known(&bar, found);
        }
    }

    /// Ends the display: removes the bar, and waits until all names have been printed.
    pub fn finish(&self) {
        self.clear();
        if let Some(names) = &self.names {
            names.finish();
        }
    }

    /// Removes the bar.
    fn clear(&self) {
        self.bar.replace(ProgressBar::hidden()).finish_and_clear();
    }
}

/// Lines about progress, at a distance.
struct Lines {
    /// Time of the last one, and the bytes that had come by then.
    last: (Instant, u64),
}

impl Lines {
    /// If a line is due now, which then counts as printed: the mean rate since the last one, bit/s.
    fn due(&mut self, now: Instant, come: u64) -> Option<f64> {
        let seconds = (now - self.last.0).as_secs_f64();
        if seconds < LINE_S {
            return None;
        }
        let (_, before) = std::mem::replace(&mut self.last, (now, come));
        Some(come.saturating_sub(before) as f64 * 8.0 / seconds)
    }
}

/// What is no file at this end.
fn standard(way: &Way) -> Option<Standard> {
    match way {
        Way::PushInput(..) => Some(Standard::Input),
        Way::PullOutput(..) => Some(Standard::Output),
        _ => None,
    }
}

/// Busy times between two instants.
fn since(now: Times, before: Times) -> Times {
    Times {
        disk: now.disk.saturating_sub(before.disk),
        hash: now.hash.saturating_sub(before.hash),
        net: now.net.saturating_sub(before.net),
    }
}

/// Tells of a file that stays at the destination although it is not the source's, for people or for programs.
pub fn kept(name: &Name, json: bool) -> String {
    if json {
        return json!({"kind": "kept", "name": name.to_string(), "why": "newer, of another size"}).to_string();
    }
    format!("kept: {name} is newer at the destination, and of another size; --checksum compares contents")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_minute() {
        let begin = Instant::now();
        let mut lines = Lines { last: (begin, 0) };
        // 1 kB in each of the first hundred seconds.
        let due: Vec<_> = (0..200)
            .filter_map(|second| {
                Some((second, lines.due(begin + Duration::from_secs(second), 1000 * second.min(100))?))
            })
            .collect();
        assert_eq!(due, [(60, 8000.0), (120, 40.0 / 60.0 * 8000.0), (180, 0.0)]);
    }
}
