//! What must hold whatever goes wrong: no wrong file, no unexplained end, nothing left behind.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{Ended, NEVER, SOURCE, Stage, TARGET, errors, stacks};
use crate::tree::{self, Seen, Tree};

impl Stage {
    pub(super) fn ended(&mut self, ended: &Ended) {
        use std::os::unix::process::ExitStatusExt;
        let which = ended.which;
        self.clients.remove(&which);
        let said = errors("client", which);
        self.say(format_args!("command {which}: {}; {said}", ended.status));
        assert!(!said.contains("panicked"), "{said}");
        match (ended.status.code(), ended.status.signal()) {
            (Some(0), _) => self.succeeded(which),
            (Some(code), _) => {
                assert!(said.contains("error: "), "it failed without a word");
                let may = |kinds: &[&str]| kinds.iter().any(|kind| self.seen.contains(kind));
                const PATH: [&str; 8] = ["link", "pause", "hold", "reset", "flip", "server", "weather", "adversary"];
                let explained = match code {
                    1 => may(&["change", "unreadable"]) || may(&PATH),
                    3 | 4 => may(&PATH),
                    5 if said.contains("another fullpipe is writing") => may(&["twice"]) || may(&PATH),
                    5 => may(&["full"]),
                    130 => may(&["interrupt"]),
                    _ => false,
                };
                if !explained {
                    self.server_pid().iter().for_each(|pid| println!("{}", stacks(*pid)));
                    panic!("nothing that happened explains it");
                }
            }
            (None, Some(signal)) if self.killed.get(&which) == Some(&signal) => {}
            // Before it has begun to listen for signals.
            (None, Some(2)) if self.seen.contains("interrupt") => {}
            _ => panic!("it ended by a signal that nobody sent"),
        }
        self.check_target();
        self.check_server();
    }

    /// Adds what the source is now to what it was.
    pub(super) fn note_versions(&mut self) {
        let now = self.source().run(|| tree::look(Path::new(SOURCE)));
        let gone: Vec<Vec<u8>> = self.versions.keys().filter(|name| !now.contains_key(*name)).cloned().collect();
        for name in gone {
            self.changed.insert(name, Instant::now());
        }
        for (name, seen) in now {
            let known = self.versions.entry(name.clone()).or_default();
            if known.last() != Some(&seen) {
                known.push(seen);
                self.changed.insert(name, Instant::now());
            }
        }
    }

    /// Under every final name is all of a file that the source once was. A copy in place leaves a file as it was before, or marked
    /// as unfinished.
    pub(super) fn check_target(&self) -> Tree {
        let target = self.target().run(|| tree::look(Path::new(TARGET)));
        for (name, seen) in &target {
            if is_ours(name) || name.is_empty() {
                continue;
            }
            let below = below_top(name);
            let known = below.and_then(|below| self.versions.get(below)).map_or(&[][..], Vec::as_slice);
            let fine = match seen {
                // Its permissions and time come last.
                Seen::Folder { .. } => known.iter().any(|version| matches!(version, Seen::Folder { .. })),
                seen => {
                    known.contains(seen) || below.is_some_and(|below| self.is_old_or_unfinished(below, seen, known))
                }
            };
            assert!(
                fine,
                "a wrong file under the name {}: {seen:?}; it should be one of {known:?}",
                name.escape_ascii()
            );
        }
        target
    }

    /// Whether a file of the destination is not one of this copy's, or not yet. A copy that still runs may finish the file just now.
    fn is_old_or_unfinished(&self, below: &[u8], seen: &Seen, known: &[Seen]) -> bool {
        if !self.plan.inplace {
            return false;
        }
        let path = tree::at(&Path::new(TARGET).join("source"), below);
        let mut seen = Some(seen.clone());
        for _ in 0..5 {
            let marked = path.clone();
            let is_unfinished = self.target().run(move || tree::is_unfinished(&marked));
            let is_fine = |seen: &Seen| self.old.get(below) == Some(seen) || known.contains(seen);
            if is_unfinished || seen.as_ref().is_none_or(is_fine) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
            let again = path.clone();
            seen = self.target().run(move || tree::look_at(&again));
        }
        false
    }

    /// A command says that all is copied.
    pub(super) fn succeeded(&mut self, which: usize) {
        let target = self.check_target();
        let source = self.source().run(|| tree::look(Path::new(SOURCE)));
        let alone = self.clients.is_empty();
        let since = self.since[&which];
        for (name, seen) in source {
            let at_rest = self.changed.get(&name).is_none_or(|changed| *changed < since);
            let is_folder = matches!(seen, Seen::Folder { .. });
            if !at_rest || (is_folder && !alone) {
                continue;
            }
            let whole = if name.is_empty() { b"source".to_vec() } else { [b"source/", name.as_slice()].concat() };
            let there = target.get(&whole);
            assert!(there == Some(&seen), "{} should be {seen:?}, is {there:?}", name.escape_ascii());
        }
        self.succeeded = Some(which);
    }

    /// Nothing of its own stays. Its last word takes half a round trip, and may have been lost: then the same command, given
    /// again, hears that all is there.
    pub(super) fn tidy(&mut self) {
        let left = |stage: &mut Stage| -> Vec<String> {
            let names = stage.check_target();
            names.keys().filter(|name| is_ours(name)).map(|name| name.escape_ascii().to_string()).collect()
        };
        loop {
            self.sleep(Duration::from_secs(3));
            let left = left(self);
            if left.is_empty() {
                return;
            }
            assert!(!self.seen.is_empty() && self.began.elapsed() < NEVER, "it left {left:?} behind");
            self.say(format_args!("it left {left:?} behind"));
            self.complete();
        }
    }
}

/// A file of fullpipe's own, not yet under its final name.
fn is_ours(name: &[u8]) -> bool {
    name.rsplit(|b| *b == b'/').next().is_some_and(|last| last.starts_with(b".fullpipe."))
}

/// A name in the target as one in the source.
fn below_top(name: &[u8]) -> Option<&[u8]> {
    match name.strip_prefix(b"source")? {
        b"" => Some(b""),
        rest => rest.strip_prefix(b"/"),
    }
}
