//! Source trees, and which of two sources counts where both bring the same name: the first of them.
//!
//! Small files travel in no order, so it must be known before either is sent. The file system knows: who walks a later
//! source looks whether an earlier one has the same name. That takes no memory, however much there is.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag};
use nix::sys::stat::{FileStat, SFlag};

use crate::error::TransferError;
use crate::fs::root::Root;
use crate::protocol::message::Options;
use crate::protocol::name::Name;
use crate::protocol::skipped::SkippedEntry;
use crate::source::exclude::Exclude;

/// Most sources of which only the content is sent: each thing is looked for in all of those before its own.
const MOST: usize = 256;

/// What becomes of something that a source has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No source before has the name, or both are folders, whose content is merged.
    Send,
    /// One before has something else of this name.
    Shadowed,
    /// One before has the very same.
    SameFile,
}

/// All sources, by what they bring to the destination itself.
#[derive(Default)]
pub(crate) struct OverlappingSources {
    /// Those of which only the content is sent.
    contents: Vec<OverlappingSource>,
    /// Those that keep their name.
    tops: HashMap<Vec<u8>, OverlappingSource>,
}

struct OverlappingSource {
    number: usize,
    root: Arc<Root>,
    path: PathBuf,
    top: Option<Name>,
    exclude: Arc<Exclude>,
}

impl OverlappingSources {
    /// Tells each place of the others, if two can bring the same name.
    ///
    /// # Errors
    /// There are too many of those.
    pub(crate) fn introduce(places: &mut [SourceTree]) -> Result<(), TransferError> {
        let contents = places.iter().filter(|place| place.top.is_none()).count();
        if places.len() < 2 || contents == 0 {
            return Ok(());
        }
        if contents > MOST {
            let words = format!("give at most {MOST} sources of which only the content is copied");
            return Err(TransferError::Usage(words));
        }
        let mut all = OverlappingSources::default();
        for (number, place) in places.iter().enumerate().filter(|(_, place)| place.error.is_none()) {
            let SourceTree { root, path, top, exclude, .. } = place;
            let source = OverlappingSource {
                number,
                root: root.clone(),
                path: path.clone(),
                top: top.clone(),
                exclude: exclude.clone(),
            };
            match top {
                Some(top) => drop(all.tops.insert(top.bytes().to_vec(), source)),
                None => all.contents.push(source),
            }
        }
        let all = Arc::new(all);
        for (number, place) in places.iter_mut().enumerate() {
            place.overlaps = Some((number, all.clone()));
        }
        Ok(())
    }

    /// What becomes of something that the source of this number has, beside those before it.
    pub(crate) fn judge(&self, number: usize, name: &Name, entry: &FileStat, dereference: bool) -> Verdict {
        let bytes = name.bytes();
        let (first, rest) = match bytes.iter().position(|b| *b == b'/') {
            Some(at) => (&bytes[..at], &bytes[at + 1..]),
            None => (bytes, &b""[..]),
        };
        let contents = self.contents.iter().map(|source| (source, bytes));
        let top = self.tops.get(first).map(|source| (source, rest));
        let mut before: Vec<_> = contents.chain(top).filter(|(source, _)| source.number < number).collect();
        before.sort_by_key(|(source, _)| source.number);
        let mut found = before.into_iter().filter_map(|(source, below)| {
            let below = Path::new(OsStr::from_bytes(below));
            source.brings(below, dereference)
        });
        match found.next() {
            // It is the first that has the name whose thing is sent.
            None => Verdict::Send,
            Some(earlier) if kind(&earlier) == SFlag::S_IFDIR && kind(entry) == SFlag::S_IFDIR => Verdict::Send,
            Some(earlier) if (earlier.st_dev, earlier.st_ino) == (entry.st_dev, entry.st_ino) => Verdict::SameFile,
            Some(_) => Verdict::Shadowed,
        }
    }
}

impl OverlappingSource {
    fn brings(&self, below: &Path, dereference: bool) -> Option<FileStat> {
        let found = self.look(below, dereference).ok()?;
        // Nothing else is sent.
        let sent = matches!(kind(&found), SFlag::S_IFDIR | SFlag::S_IFREG | SFlag::S_IFLNK);
        (sent && !self.excluded(below)).then_some(found)
    }

    fn look(&self, below: &Path, dereference: bool) -> io::Result<FileStat> {
        let whole = below.as_os_str().is_empty();
        let fd = if whole {
            // What a person names is followed.
            self.root.open_at(&self.path, OFlag::O_PATH, 0)?
        } else if dereference {
            self.root.open_at(&self.path.join(below), OFlag::O_PATH, 0)?
        } else {
            let folder = self.root.open_at(&self.path, OFlag::O_PATH | OFlag::O_DIRECTORY, 0)?;
            let how = OpenHow::new()
                .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
                .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_BENEATH);
            nix::fcntl::openat2(&folder, below, how)?
        };
        Ok(nix::sys::stat::fstat(&fd)?)
    }

    fn excluded(&self, below: &Path) -> bool {
        let top = self.top.as_ref().map(Name::path);
        top.is_some_and(|top| self.exclude.leaves_out_source(top))
            || below
                .ancestors()
                .filter(|part| !part.as_os_str().is_empty())
                .any(|part| self.exclude.leaves_out(part, top))
    }
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

/// A place to send from.
pub struct SourceTree {
    /// Where its files are found.
    pub root: Arc<Root>,
    /// Below the root.
    pub path: PathBuf,
    /// Its name at the other end; none where only its content is sent.
    pub top: Option<Name>,
    /// What of it is left out.
    pub exclude: Arc<Exclude>,
    /// Not a place, but what kept a pattern from finding more.
    pub error: Option<SkippedEntry>,
    /// Its number among all, where others may bring the same names.
    pub(crate) overlaps: Option<(usize, Arc<OverlappingSources>)>,
}

impl SourceTree {
    /// What becomes of something here, beside the places before this one.
    pub(crate) fn judge(&self, name: &Name, stat: &FileStat, sight: WalkOptions) -> Verdict {
        match &self.overlaps {
            // Without it no content is sent.
            Some((number, all)) if sight.recursive => all.judge(*number, name, stat, sight.dereference),
            _ => Verdict::Send,
        }
    }
}

/// What the walk sees.
#[derive(Debug, Clone, Copy)]
pub struct WalkOptions {
    /// Folders too.
    pub recursive: bool,
    /// What symbolic links point at, not the links.
    pub dereference: bool,
    /// Extended attributes of folders and large files too; those of small ones are read with them.
    pub xattrs: bool,
}

impl From<&Options> for WalkOptions {
    fn from(options: &Options) -> WalkOptions {
        WalkOptions { recursive: options.recursive, dereference: options.dereference, xattrs: options.xattrs }
    }
}
