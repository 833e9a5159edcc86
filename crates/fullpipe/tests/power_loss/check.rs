//! What may be under the destination's names, after a loss of power and after the command has succeeded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::tree::{self, Seen, Tree};

/// A file's name within the copy, and its bytes.
pub type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// What is known of the copy: its names are those below its top, which has the empty name.
pub struct Known {
    /// What is copied.
    pub source: Tree,
    /// The bytes of its files.
    pub contents: Contents,
    /// What was there before the first command, on stable storage.
    pub old: Tree,
    /// Names that were on stable storage when the machine last booted. None of them may go.
    pub present: BTreeSet<Vec<u8>>,
    /// Files whose content was only in memory may lack it after a loss of power: the command ran without --fsync.
    pub may_lack: bool,
}

/// How a file under its final name differs from what the documentation promises.
#[derive(Debug, Default)]
pub struct Found {
    /// Files that lack content.
    pub lacking: BTreeSet<Vec<u8>>,
    /// Files that are partly old or not there yet, and marked as such.
    pub unfinished: BTreeSet<Vec<u8>>,
    /// Names of the program's own files.
    pub scratch: BTreeSet<Vec<u8>>,
}

impl Known {
    /// Looks at the whole destination. `bytes` reads a file of the copy, and `is_unfinished` says whether one is marked as written to
    /// in place and not whole.
    ///
    /// # Panics
    /// Something is there that may never be.
    pub fn check(
        &self,
        target: &Tree,
        copy: &[u8],
        bytes: impl Fn(&[u8]) -> Vec<u8>,
        is_unfinished: impl Fn(&[u8]) -> bool,
    ) -> Found {
        let mut found = Found::default();
        for (name, seen) in target {
            if is_scratch(name) {
                found.scratch.insert(name.clone());
                continue;
            }
            if name.is_empty() {
                continue;
            }
            let Some(inner) = inside(name, copy) else { panic!("nobody has made {}", name.escape_ascii()) };
            let (new, old) = (self.source.get(inner), self.old.get(inner));
            let fine = match seen {
                // Permissions and times come last.
                Seen::Folder { .. } => matches!(new, Some(Seen::Folder { .. })),
                _ => new == Some(seen) || old == Some(seen),
            };
            if !fine && is_unfinished(inner) {
                found.unfinished.insert(inner.to_vec());
                continue;
            }
            if !fine && self.may_lack && self.lacks(inner, seen, || bytes(inner)) {
                found.lacking.insert(inner.to_vec());
                continue;
            }
            assert!(fine, "a wrong file under the name {}: {seen:?}; new {new:?}, old {old:?}", name.escape_ascii());
        }
        for name in &self.present {
            let there = target.contains_key(&[copy, if name.is_empty() { b"" } else { b"/" }, name].concat());
            assert!(there, "{} was there before the loss of power, and is gone", name.escape_ascii());
        }
        found
    }

    /// Whether a file is what is copied but for bytes that are missing at its end, or zero.
    fn lacks(&self, name: &[u8], seen: &Seen, bytes: impl FnOnce() -> Vec<u8>) -> bool {
        let (Some(whole), Seen::File { mode, mtime, .. }) = (self.contents.get(name), seen) else { return false };
        let dressed = matches!(&self.source[name], Seen::File { mode: m, mtime: t, .. } if (m, t) == (mode, mtime));
        let bytes = bytes();
        dressed && bytes.len() <= whole.len() && bytes.iter().zip(whole).all(|(is, right)| is == right || *is == 0)
    }

    /// Checks that all is copied, but for files of which that is not expected.
    ///
    /// # Panics
    /// Something is not there, or not what it should be.
    pub fn check_whole(&self, target: &Tree, copy: &[u8], but: &BTreeSet<Vec<u8>>) {
        for (name, should) in self.source.iter().filter(|(name, _)| !but.contains(*name)) {
            let there = target.get(&[copy, if name.is_empty() { b"" } else { b"/" }, name].concat());
            assert!(there == Some(should), "{} should be {should:?}, is {there:?}", name.escape_ascii());
        }
    }
}

/// Whether it is a file of the program's own, not yet under its final name.
pub fn is_scratch(name: &[u8]) -> bool {
    name.rsplit(|byte| *byte == b'/').next().is_some_and(|last| last.starts_with(b".fullpipe."))
}

/// A name of the destination as one within the copy.
pub fn inside<'a>(name: &'a [u8], copy: &[u8]) -> Option<&'a [u8]> {
    match name.strip_prefix(copy)? {
        b"" => Some(b""),
        rest => rest.strip_prefix(b"/"),
    }
}

/// The bytes of all regular files of a tree.
pub fn contents(top: &Path, tree: &Tree) -> Contents {
    let files = tree.iter().filter(|(_, seen)| matches!(seen, Seen::File { .. }));
    files.map(|(name, _)| (name.clone(), std::fs::read(tree::at(top, name)).unwrap())).collect()
}
