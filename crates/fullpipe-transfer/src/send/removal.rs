//! Removes sources once the receiver has them, complete and on disk (`--remove-source-files`).
//!
//! The receiver names what it has, with the number of the version that was copied. What has another version by then stays. So
//! this end keeps no list of what it has sent, and a repeated copy removes what an interrupted one has not.

use super::sender::Sender;
use crate::error::why;
use crate::protocol::message::Removed;
use crate::protocol::name::Name;
use crate::protocol::skipped::SkippedEntry;
use crate::source::removal::Removal;
use crate::threads::lock;

impl Sender {
    /// Removes what the receiver has. A source that the user named stays until the end, because another attempt would miss
    /// it, and so does a file with several names: when one is removed, the others look changed.
    pub(super) fn remove_complete(&self, complete: Vec<(Name, u64)>) {
        complete.into_iter().for_each(|(name, key)| self.remove_one(name, key, false));
    }

    /// Removes the rest, when everything is done.
    pub(super) fn remove_late(&self) {
        let late = std::mem::take(&mut lock(&self.removals).late);
        late.into_iter().for_each(|(name, key)| self.remove_one(name, key, true));
    }

    /// What was removed.
    pub(crate) fn removed(&self) -> Option<Removed> {
        self.options.remove_sources.then(|| lock(&self.removals).removed.clone())
    }

    fn remove_one(&self, name: Name, key: u64, at_end: bool) {
        self.session.moved(1);
        let mut removals = lock(&self.removals);
        // There is one source (`resolve::check_removed`).
        let Some(tree) = self.from.trees().first() else { return };
        if *removals.is_destination.get_or_insert_with(|| self.journal.is_some_and(|number| tree.has_journal(number))) {
            let why = "the destination is this very folder, so it is the copy";
            removals.removed.failed.add(SkippedEntry::new(name.bytes(), why));
            return;
        }
        match tree.remove(&name, key, at_end, &mut removals.changed) {
            Ok(Removal::Removed) => removals.removed.files += 1,
            Ok(Removal::Later) => drop(removals.late.insert(name, key)),
            Ok(Removal::Gone) => {}
            Err(e) => removals.removed.failed.add(SkippedEntry::new(name.bytes(), why(&e))),
        }
    }
}
