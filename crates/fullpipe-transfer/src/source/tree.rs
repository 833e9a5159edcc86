//! Source trees, and the rule for names that several sources share: the entry of the first source is sent.
//!
//! Small files arrive in any order, so the sender must apply the rule before it sends either entry. The walk of a later
//! source looks up each name in the earlier sources' file systems. So the rule needs no memory, however large the trees
//! are.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use nix::fcntl::OFlag;
use nix::sys::stat::{FileStat, Mode, SFlag};

use crate::error::TransferError;
use crate::fs::at::kind;
use crate::fs::metadata::Attributes;
use crate::fs::root::{self, Root, Within};
use crate::protocol::message::Options;
use crate::protocol::name::Name;
use crate::protocol::skipped::SkippedEntry;
use crate::source::exclude::Exclude;
use crate::source::name_list::NameList;

/// Maximum number of sources of which only the content is sent. Each entry is looked up in all earlier ones.
const MAX_CONTENT_SOURCES: usize = 256;

/// The decision on an entry of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Send the entry. No earlier source has the name, or both entries are folders, whose contents are merged.
    Send,
    /// Skip the entry. An earlier source has a different entry with this name.
    Shadowed,
    /// Skip the entry silently. An earlier source has the same file or folder under this name.
    SameFile,
}

/// All sources of a transfer, grouped by whether they keep their names at the destination.
#[derive(Default)]
pub(crate) struct OverlappingSources {
    /// Sources of which only the content is sent.
    contents: Vec<OverlappingSource>,
    /// Sources that keep their names at the destination, by name.
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
    /// Gives each source tree a reference to all others, if two of them can have entries with the same name.
    ///
    /// # Errors
    /// There are too many sources of which only the content is sent.
    pub(crate) fn introduce(places: &mut [SourceTree]) -> Result<(), TransferError> {
        let contents = places.iter().filter(|place| place.top.is_none()).count();
        if places.len() < 2 || contents == 0 {
            return Ok(());
        }
        if contents > MAX_CONTENT_SOURCES {
            let words = format!("give at most {MAX_CONTENT_SOURCES} sources of which only the content is copied");
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

    /// Decides on the entry `name` of source number `number`, by what the earlier sources have.
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
            // No earlier source has the name, so this source's entry is sent.
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
        // Only folders, regular files and links are sent.
        let sent = matches!(kind(&found), SFlag::S_IFDIR | SFlag::S_IFREG | SFlag::S_IFLNK);
        let is_folder = kind(&found) == SFlag::S_IFDIR;
        let out = self.excluded(below, is_folder) || !is_folder && self.exclude.leaves_out_size(found.st_size as u64);
        (sent && !out).then_some(found)
    }

    fn look(&self, below: &Path, dereference: bool) -> io::Result<FileStat> {
        let whole = below.as_os_str().is_empty();
        let fd = if whole {
            // A link that the user names as a source is followed.
            self.root.open_at(&self.path, OFlag::O_PATH, 0)?
        } else if dereference {
            self.root.open_at(&self.path.join(below), OFlag::O_PATH, 0)?
        } else {
            let folder = self.root.open_at(&self.path, OFlag::O_PATH | OFlag::O_DIRECTORY, 0)?;
            let how = OFlag::O_PATH | OFlag::O_NOFOLLOW;
            root::open_below(&folder, below, how, Mode::empty(), Within::BeneathWithoutLinks)?
        };
        Ok(nix::sys::stat::fstat(&fd)?)
    }

    fn excluded(&self, below: &Path, is_folder: bool) -> bool {
        let top = self.top.as_ref().map(Name::path);
        self.exclude.leaves_out_all(below, top, is_folder)
    }
}

/// A file or folder to send, with all of its content.
pub struct SourceTree {
    /// The open folder from which the source's files are opened.
    pub root: Arc<Root>,
    /// The source's path below `root`.
    pub path: PathBuf,
    /// The source's name at the destination. `None` if only its content is sent.
    pub top: Option<Name>,
    /// What is left out.
    pub exclude: Arc<Exclude>,
    /// The names below the source to which the copy is limited, if it is.
    pub list: Option<Arc<NameList>>,
    /// If set, this is not a source but the error that kept a pattern from finding more.
    pub error: Option<SkippedEntry>,
    /// Device and inode of the source when it was walked first. Later it must be the same: a file system that is not mounted
    /// any more leaves an empty folder.
    pub(crate) id: OnceLock<(u64, u64)>,
    /// The source's number among all sources, and these, if sources may share names.
    pub(crate) overlaps: Option<(usize, Arc<OverlappingSources>)>,
}

impl SourceTree {
    /// Limits source trees to a list of names, if there is one.
    pub(crate) fn limit(trees: &mut [SourceTree], list: Option<Arc<NameList>>) {
        trees.iter_mut().for_each(|tree| tree.list = list.clone());
    }

    /// Decides on the entry `name` of this source, by what the earlier sources have.
    pub(crate) fn judge(&self, name: &Name, stat: &FileStat, sight: WalkOptions) -> Verdict {
        match &self.overlaps {
            // Without `recursive`, the content of folders is not sent.
            Some((number, all)) if sight.recursive => all.judge(*number, name, stat, sight.dereference),
            _ => Verdict::Send,
        }
    }
}

/// The options of a walk.
#[derive(Debug, Clone, Copy)]
pub struct WalkOptions {
    /// Walk into folders.
    pub recursive: bool,
    /// Follow symbolic links instead of reporting them.
    pub dereference: bool,
    /// The kinds of extended attributes to read of folders. Those of files are read when they are sent.
    pub attributes: Attributes,
    /// Keep hard links among the files.
    pub hard_links: bool,
}

impl From<&Options> for WalkOptions {
    fn from(options: &Options) -> WalkOptions {
        let Options { recursive, dereference, hard_links, .. } = *options;
        WalkOptions { recursive, dereference, attributes: Attributes::of(options), hard_links }
    }
}
