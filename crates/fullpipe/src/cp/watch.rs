//! What a person, or a program, sees of a transfer while it runs.

use std::cell::{Cell, RefCell};
use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fullpipe_transfer::protocol::message::Times;
use fullpipe_transfer::protocol::sizing::SizingEvent;
use fullpipe_transfer::telemetry::counters::Counters;
use indicatif::ProgressBar;
use serde_json::json;

use super::names::Names;
use super::transport::Chosen;
use crate::output::{errln, outln};
use crate::{progress, words};

/// Of the controller's decisions a record keeps so many: it decides some ten a second, the other end may say any number.
const MOST_NOTES: usize = 1 << 17;

/// How much of a second's rate is taken for the pace of what is to come.
const STEADY: f64 = 0.3;
/// Who would wait for longer does not want to know, seconds.
const LONGEST_ETA_S: f64 = 1e7;

/// Progress of all attempts together.
pub struct Watch {
    /// None while it connects: ssh may ask something on the same terminal.
    bar: RefCell<ProgressBar>,
    json: bool,
    quiet: bool,
    encrypted: bool,
    /// How it is sent is told elsewhere.
    explained: bool,
    /// This end sends.
    sends: bool,
    moved: Cell<u64>,
    /// Bytes on the network in this attempt, and in those before it.
    wire: Cell<u64>,
    done: Cell<u64>,
    /// What was last said to be done: it does not go back.
    shown: Cell<u64>,
    /// Rate over the last some seconds, bit/s.
    pace: Cell<Option<f64>>,
    earlier: Cell<u64>,
    last: RefCell<Option<(Instant, u64, Times, Times)>>,
    said: Cell<bool>,
    /// Where somebody else than a person at a terminal reads what moves.
    names: Option<Names>,
    /// For the record, where one is wanted.
    notes: Option<RefCell<Vec<SizingEvent>>>,
}

impl Watch {
    /// A bar on a terminal, NDJSON on stdout, or nothing.
    pub fn new(args: &super::Args, sends: bool) -> Watch {
        Watch {
            bar: RefCell::new(ProgressBar::hidden()),
            json: args.json,
            quiet: args.quiet,
            encrypted: !args.no_encrypt,
            explained: args.explain,
            sends,
            moved: Cell::new(0),
            wire: Cell::new(0),
            done: Cell::new(0),
            shown: Cell::new(0),
            pace: Cell::new(None),
            earlier: Cell::new(0),
            last: RefCell::new(None),
            said: Cell::new(false),
            names: (args.verbose && (args.json || !std::io::stdout().is_terminal())).then(Names::new),
            notes: args.record.as_ref().map(|_| RefCell::default()),
        }
    }

    /// What the controller of window and pacing did, as far as a record wants it.
    pub fn noted(&self) -> Vec<SizingEvent> {
        self.notes.as_ref().map(RefCell::take).unwrap_or_default()
    }

    /// An attempt begins.
    pub fn connecting(&self) {
        self.clear();
        self.earlier.set(self.earlier.get() + self.wire.take());
        self.last.replace(None);
        self.shown.set(0);
        self.pace.set(None);
    }

    /// Bytes of content that earlier attempts have brought onto the network.
    pub fn earlier(&self) -> u64 {
        self.earlier.get()
    }

    /// Bytes that did not have to be sent in this attempt: there already, or holes.
    pub fn spared(&self) -> u64 {
        self.done.get().saturating_sub(self.wire.get())
    }

    /// Bytes written so far, whoever asks.
    pub fn moved(&self) -> u64 {
        self.moved.get()
    }

    /// How it will be sent.
    pub fn chosen(&self, chosen: &Chosen, rtt_s: f64) {
        let t = &chosen.transport;
        if self.json {
            outln!(
                "{}",
                json!({"kind": "transport", "transport": t, "encrypted": self.encrypted, "rtt_s": rtt_s,
                       "expected_bps": chosen.expected_bps, "why": chosen.why})
            );
        } else if !self.quiet && !self.said.replace(true) && progress::watched(false) {
            errln!("{t}, at {} round trip", words::seconds(rtt_s));
            if let (Some(lacking), false) = (&chosen.lacking, self.explained) {
                errln!("{lacking}");
            }
        }
        self.bar.replace(progress::bar(0, "", self.quiet || self.json));
    }

    /// Something that happened.
    pub fn say(&self, what: &str) {
        if self.json {
            outln!("{}", json!({"kind": "note", "note": what}));
        } else if !self.quiet {
            self.bar.borrow().suspend(|| errln!("{what}"));
        }
    }

    /// What the controller of window and pacing did.
    fn sized(&self, note: &SizingEvent) {
        if self.json {
            let mut line = json!({"kind": "sobas"});
            if let (Some(line), Ok(serde_json::Value::Object(fields))) = (line.as_object_mut(), note.to_json()) {
                line.extend(fields);
            }
            outln!("{line}");
        } else if let SizingEvent::Began { udp: false, .. } = note {
            self.say("UDP does not get through: no packet trains, the capacity is learnt from what arrives");
        }
    }

    /// Shows how far it is.
    pub fn show(&self, counters: &Counters) {
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        for note in counters.sizing_events.lock().map(|mut notes| std::mem::take(&mut *notes)).unwrap_or_default() {
            self.sized(&note);
            if let Some(notes) = &self.notes {
                if matches!(note, SizingEvent::Began { .. }) {
                    // Of an attempt that failed nothing else is in the record either.
                    notes.borrow_mut().clear();
                }
                if notes.borrow().len() < MOST_NOTES {
                    notes.borrow_mut().push(note);
                }
            }
        }
        for name in counters.take_names() {
            match &self.names {
                // On one terminal with the bar.
                None => self.bar.borrow().suspend(|| outln!("{name}")),
                Some(names) if self.json => {
                    names.say(json!({"kind": "file", "name": name.to_string()}).to_string());
                }
                Some(names) => names.say(name.to_string()),
            }
        }
        let done = read(&counters.done_bytes);
        let wire = read(&counters.wire_bytes);
        let come = read(&counters.come_bytes);
        self.wire.set(wire);
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
        if seconds < 1.0 {
            return;
        }
        *last = Some((now, come, ours, theirs));
        // What was there already does not count.
        let rate = come.saturating_sub(before) as f64 * 8.0 / seconds;
        let (ours, theirs) = (since(ours, our_before), since(theirs, their_before));
        let limit = if self.sends { limit(&ours, &theirs) } else { limit(&theirs, &ours) };
        let (found, files) = (read(&counters.found_bytes), read(&counters.found_files));
        // On a slow path a block takes long. Between its arrival and its being written it is neither here nor there.
        let done = done.saturating_add(read(&counters.partial_bytes)).min(found.max(done)).max(self.shown.get());
        self.shown.set(done);
        if self.json {
            outln!(
                "{}",
                json!({"kind": "progress", "bytes": done, "files": read(&counters.done_files), "found_bytes": found,
                       "found_files": files, "found_all": read(&counters.found_all) > 0, "rate_bps": rate,
                       "bottleneck": limit})
            );
        }
        let many = if files > 1 {
            format!(", {} of {} files", words::thousands(read(&counters.done_files)), words::thousands(files))
        } else {
            String::new()
        };
        // What was there already and holes take no time: the rest at this pace does.
        let pace = self.pace.get().map_or(rate, |before| before + STEADY * (rate - before));
        self.pace.set(Some(pace));
        let eta = match found.saturating_sub(done) as f64 * 8.0 / pace {
            seconds if seconds <= LONGEST_ETA_S => {
                format!(", ETA {}", indicatif::HumanDuration(Duration::from_secs_f64(seconds.ceil())))
            }
            _ => String::new(),
        };
        let bar = self.bar.borrow();
        bar.set_position(done);
        bar.set_message(format!(
            "{} of {}{many}, {}, {limit}{eta}",
            words::bytes(done as f64),
            words::bytes(found as f64),
            words::rate(rate)
        ));
        if found > 0 {
            progress::known(&bar, found);
        }
    }

    /// Nothing more moves.
    pub fn finish(&self) {
        self.clear();
        if let Some(names) = &self.names {
            names.finish();
        }
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        self.bar.replace(ProgressBar::hidden()).finish_and_clear();
    }
}

fn since(now: Times, before: Times) -> Times {
    Times {
        disk: now.disk.saturating_sub(before.disk),
        hash: now.hash.saturating_sub(before.hash),
        net: now.net.saturating_sub(before.net),
    }
}

/// Names what holds it back: the end that does not wait for the other, and what it does meanwhile.
fn limit(sender: &Times, receiver: &Times) -> &'static str {
    let busy = |t: &Times| (t.disk + t.hash) as f64 / ((t.disk + t.hash + t.net).max(1)) as f64;
    let (most, disk) = if busy(sender) >= busy(receiver) { (sender, "disk read") } else { (receiver, "disk write") };
    if busy(most) < 0.5 {
        "network"
    } else if most.hash > most.disk {
        "cpu"
    } else {
        disk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_it_back() {
        let t = |disk, hash, net| Times { disk, hash, net };
        assert_eq!(limit(&t(1, 1, 98), &t(1, 1, 98)), "network");
        assert_eq!(limit(&t(90, 5, 5), &t(1, 1, 98)), "disk read");
        assert_eq!(limit(&t(1, 1, 98), &t(90, 5, 5)), "disk write");
        assert_eq!(limit(&t(1, 1, 98), &t(10, 80, 10)), "cpu");
    }
}
