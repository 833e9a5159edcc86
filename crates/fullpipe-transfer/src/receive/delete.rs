//! Deletes what the folders of the destination have and those of the sources do not (`--delete`).
//!
//! The receiver asks for the sources' names only if its own side wants something deleted, and only once everything has arrived.
//! It follows no link and enters no other file system. What is excluded from the copy stays, and so do fullpipe's own files.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::SFlag;
use nix::unistd::UnlinkatFlags;

use super::destination_names::DestinationNames;
use crate::connection::session::Session;
use crate::error::{TransferError, is_gone, why};
use crate::fs::root::Root;
use crate::fs::{at, metadata};
use crate::protocol::message::{Deleted, Deletion, Listing, Message};
use crate::protocol::name::{self, Name, number};
use crate::protocol::skipped::SkippedEntry;
use crate::source::exclude::Exclude;

/// Most names of folders that are not complete, at both ends together. Each takes 8 bytes.
const MAX_NAMES: usize = 1 << 25;

/// Most folders that are not complete at once: those on one path, as a sender lists them.
const MAX_OPEN: usize = 4096;

/// Bytes of names after which a message about them is closed, so that it fits a frame.
const MAX_TOLD_BYTES: usize = 1 << 20;

/// Why a folder's content stays.
const MOUNTED: &str = "another file system is mounted there";

/// Device and inode.
type Inode = (u64, u64);

/// Why nothing is deleted in a folder.
const FOLDED: &str = "nothing was deleted in it: its file system shows other names than those that were copied to it";

/// The names in a folder of the sources, in 8 bytes each: a name of the same hash stays, which does no harm.
#[derive(Debug, Default)]
struct Names {
    listed: Vec<u64>,
    /// The names that the folder of the destination had when the first ones came, sorted.
    there: Vec<u64>,
    /// What stands under a listed name that the destination's folder shows in another form: its file system does not tell cases
    /// or Unicode forms apart.
    folded: Vec<Inode>,
}

impl Names {
    /// Begins with what is in the folder of the destination.
    fn new(there: &[Vec<u8>]) -> Names {
        let mut there: Vec<u64> = there.iter().map(|name| hash(name)).collect();
        there.sort_unstable();
        Names { there, ..Names::default() }
    }

    /// Adds names of the source. `look` finds what stands under a name in the destination's folder.
    fn add(&mut self, names: &[Vec<u8>], look: &dyn Fn(&[u8]) -> Option<Inode>) {
        for name in names {
            let hash = hash(name);
            self.listed.push(hash);
            if self.there.binary_search(&hash).is_err() {
                self.folded.extend(look(name));
            }
        }
    }

    fn count(&self) -> usize {
        self.listed.len() + self.there.len() + self.folded.len()
    }

    /// Of what is in the destination's folder, that which the source lacks. `None` if the folder does not show all that stands
    /// under the source's names.
    fn lacks(mut self, there: Vec<Vec<u8>>, look: &dyn Fn(&[u8]) -> Option<Inode>) -> Option<Vec<Vec<u8>>> {
        self.listed.sort_unstable();
        let stay: HashSet<Inode> = self.folded.iter().copied().collect();
        if !stay.is_empty() {
            let all: HashSet<Inode> = there.iter().filter_map(|name| look(name)).collect();
            if !stay.is_subset(&all) {
                return None;
            }
        }
        let stays = |name: &[u8]| {
            self.listed.binary_search(&hash(name)).is_ok()
                || !stay.is_empty() && look(name).is_none_or(|inode| stay.contains(&inode))
        };
        Some(there.into_iter().filter(|name| !stays(name)).collect())
    }
}

fn hash(name: &[u8]) -> u64 {
    number(&blake3::hash(name))
}

/// Which entries may be deleted.
#[derive(Debug)]
pub(crate) struct Rules {
    exclude: Exclude,
    most: Option<u64>,
    /// Whether the content of the source goes to the destination itself, so that names do not begin with the source's.
    content: bool,
}

impl Rules {
    /// Reads the rules.
    ///
    /// # Errors
    /// A pattern is invalid.
    pub(crate) fn new(deletion: &Deletion, content: bool) -> Result<Rules, TransferError> {
        Ok(Rules { exclude: Exclude::new(&deletion.filter)?, most: deletion.most, content })
    }

    /// Whether an entry stays since it, or a folder that it lies in, is excluded from the copy.
    fn protects(&self, name: &Name, is_folder: bool) -> bool {
        let first = at::part(name.first());
        let (top, below) = match name.path().strip_prefix(first) {
            Ok(below) if !self.content => (Some(first), below),
            _ => (None, name.path()),
        };
        self.exclude.leaves_out_all(below, top, is_folder)
    }
}

/// What was deleted so far, and the names that came of folders that are not complete.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) deleted: Deleted,
    names: HashMap<Option<Name>, Names>,
}

/// Deletes in one folder after the other.
pub(super) struct Deleter<'a> {
    pub(super) root: &'a Root,
    pub(super) names: &'a DestinationNames,
    pub(super) rules: &'a Rules,
    /// Whether nothing is deleted, only counted.
    pub(super) dry: bool,
    /// Called for every entry. Returns whether to go on.
    pub(super) goes_on: &'a dyn Fn() -> bool,
}

/// A folder that is being deleted.
struct Level {
    folder: OwnedFd,
    name: Name,
    /// Names in it that are not dealt with yet.
    rest: Vec<Vec<u8>>,
    /// Whether all that was dealt with is gone.
    empty: bool,
}

/// What is to be done with an entry.
enum Step {
    /// It stays, or is gone.
    Done { gone: bool },
    /// It is a folder, whose content goes first.
    Enter(Level),
}

impl Deleter<'_> {
    /// Takes in names of a folder. With the last ones of it, deletes what the destination's folder has besides. Returns what was
    /// deleted, or would be.
    ///
    /// # Errors
    /// The names are of a folder that was not asked for, or too many.
    pub(super) fn take(&self, listing: Listing, progress: &mut Progress) -> Result<Vec<Name>, TransferError> {
        let Listing { folder, names, last } = listing;
        // The other end is not trusted to name only what was asked for.
        if folder.is_none() && !self.rules.content {
            return Err(TransferError::Usage("the sender lists a folder that was not asked for".into()));
        }
        let mut gone = Vec::new();
        if folder.as_ref().is_some_and(|folder| self.rules.protects(folder, true)) {
            return Ok(gone);
        }
        let opened = self.open(folder.as_ref());
        let look = |part: &[u8]| -> Option<Inode> {
            let folder = opened.as_ref().ok().filter(|_| !part.contains(&b'/'))?;
            at::look(folder, at::part(part)).ok().map(|stat| (stat.st_dev, stat.st_ino))
        };
        let known = match progress.names.entry(folder.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let there = opened.as_ref().ok().and_then(|folder| names_in(folder).ok()).unwrap_or_default();
                new.insert(Names::new(&there))
            }
        };
        known.add(&names, &look);
        if !last {
            let all: usize = progress.names.values().map(Names::count).sum();
            if progress.names.len() > MAX_OPEN {
                return Err(TransferError::Usage("the sender lists too many folders at once".into()));
            }
            if all > MAX_NAMES {
                return Err(TransferError::Usage(format!(
                    "a folder has more than {} names; copy without --delete",
                    MAX_NAMES / 2
                )));
            }
            return Ok(Vec::new());
        }
        let known = progress.names.remove(&folder).unwrap_or_default();
        let mut failed = |e: &io::Error| {
            let name = folder.as_ref().map_or(&b"."[..], Name::bytes);
            progress.deleted.failed.add(SkippedEntry::new(name, why(e)));
        };
        let fd = match &opened {
            Ok(fd) => fd,
            // Nothing stands there; with --dry-run it may not have been copied yet.
            Err(e) if is_gone(e) => return Ok(gone),
            Err(e) => {
                failed(e);
                return Ok(gone);
            }
        };
        let there = match names_in(fd) {
            Ok(there) => there,
            Err(e) => {
                failed(&e);
                return Ok(gone);
            }
        };
        let Some(rest) = known.lacks(there, &look) else {
            failed(&io::Error::other(FOLDED));
            return Ok(gone);
        };
        let mut rest = rest.into_iter().peekable();
        if let Some(name) = folder.as_ref().filter(|_| rest.peek().is_some())
            && let Err(e) = self.same_file_system(name, fd)
        {
            progress.deleted.failed.add(SkippedEntry::new(name.bytes(), why(&e)));
            return Ok(gone);
        }
        for part in rest {
            let name = match &folder {
                Some(folder) => folder.join(&part),
                None => Name::try_from(part.clone()),
            };
            // What cannot be named cannot have been copied either.
            let Ok(name) = name else { continue };
            self.delete(fd, name, progress, &mut gone);
            if !(self.goes_on)() {
                break;
            }
        }
        Ok(gone)
    }

    /// Checks that a folder is on the file system of the one that the sources' content goes to, which itself may be mounted.
    fn same_file_system(&self, folder: &Name, opened: &OwnedFd) -> io::Result<()> {
        let top = match self.rules.content {
            true => None,
            false => Some(Name::try_from(folder.first().to_vec()).map_err(io::Error::other)?),
        };
        let device = |folder: &OwnedFd| nix::sys::stat::fstat(folder).map(|stat| stat.st_dev);
        if device(&self.open(top.as_ref())?)? == device(opened)? {
            return Ok(());
        }
        Err(io::Error::other(MOUNTED))
    }

    fn open(&self, folder: Option<&Name>) -> io::Result<OwnedFd> {
        let name = folder.map(|name| self.names.final_name(name)).transpose()?;
        let path = name.as_ref().map_or_else(|| Path::new("."), |name| name.path());
        if self.dry || folder.is_none() {
            return self.root.open_at(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY, 0);
        }
        self.root.enter(path)
    }

    /// Deletes an entry of a folder, with all that is in it.
    fn delete(&self, folder: &OwnedFd, name: Name, progress: &mut Progress, gone: &mut Vec<Name>) {
        let mut levels: Vec<Level> = Vec::new();
        let mut next = Some(name);
        while (self.goes_on)() {
            let done = match next.take() {
                Some(name) => {
                    let parent = levels.last().map_or(folder, |level| &level.folder);
                    match self.step(parent, name, progress, gone) {
                        Step::Enter(level) => {
                            levels.push(level);
                            None
                        }
                        Step::Done { gone } => Some(gone),
                    }
                }
                None => match levels.pop() {
                    Some(Level { name, empty, .. }) => {
                        let parent = levels.last().map_or(folder, |level| &level.folder);
                        Some(empty && self.unlink(parent, name, UnlinkatFlags::RemoveDir, progress, gone))
                    }
                    None => return,
                },
            };
            let Some(level) = levels.last_mut() else { return };
            level.empty &= done.unwrap_or(true);
            if let Some(part) = level.rest.pop() {
                match level.name.join(&part) {
                    Ok(name) => next = Some(name),
                    Err(_) => level.empty = false,
                }
            }
        }
    }

    /// Deletes an entry, or finds that it is a folder.
    fn step(&self, parent: &OwnedFd, name: Name, progress: &mut Progress, gone: &mut Vec<Name>) -> Step {
        let part = at::part(name.last());
        let stat = match at::look(parent, part) {
            Ok(stat) => stat,
            Err(e) => return Step::Done { gone: e.kind() == io::ErrorKind::NotFound },
        };
        let is_folder = at::kind(&stat) == SFlag::S_IFDIR;
        if self.rules.protects(&name, is_folder) {
            return Step::Done { gone: false };
        }
        if !is_folder {
            return Step::Done { gone: self.unlink(parent, name, UnlinkatFlags::NoRemoveDir, progress, gone) };
        }
        let opened = nix::sys::stat::fstat(parent).map_err(io::Error::from).and_then(|above| {
            if above.st_dev != stat.st_dev {
                return Err(io::Error::other(MOUNTED));
            }
            // Opening may mount a file system there, and others may have exchanged the folder.
            let check = |folder: &OwnedFd| {
                let opened = nix::sys::stat::fstat(folder)?;
                if (opened.st_dev, opened.st_ino) == (stat.st_dev, stat.st_ino) {
                    return Ok(());
                }
                Err(io::Error::other("another folder or file system has come in its place"))
            };
            if !self.dry
                && let Ok(folder) = at::open_part(parent, part, OFlag::O_PATH | OFlag::O_DIRECTORY)
            {
                check(&folder)?;
                metadata::open_up(&folder)?;
            }
            let folder = at::open_part(parent, part, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
            check(&folder)?;
            let rest = names_in(&folder)?;
            Ok((folder, rest))
        });
        match opened {
            Ok((folder, rest)) => Step::Enter(Level { folder, name, rest, empty: true }),
            Err(e) => {
                progress.deleted.failed.add(SkippedEntry::new(name.bytes(), why(&e)));
                Step::Done { gone: false }
            }
        }
    }

    /// Deletes a file, or a folder that is empty. Returns whether it is gone.
    fn unlink(
        &self,
        parent: &OwnedFd,
        name: Name,
        how: UnlinkatFlags,
        progress: &mut Progress,
        gone: &mut Vec<Name>,
    ) -> bool {
        let deleted = &mut progress.deleted;
        if self.rules.most.is_some_and(|most| deleted.entries >= most) {
            deleted.over_limit += 1;
            return false;
        }
        let done = if self.dry { Ok(()) } else { nix::unistd::unlinkat(parent, at::part(name.last()), how) };
        match done {
            Ok(()) => {
                deleted.entries += 1;
                gone.push(name);
                true
            }
            Err(Errno::ENOENT) => true,
            // fullpipe's own files are in it.
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => false,
            Err(e) => {
                deleted.failed.add(SkippedEntry::new(name.bytes(), why(&e.into())));
                false
            }
        }
    }
}

/// Tells the other end what was deleted, in as many messages as that needs.
pub(crate) fn tell(session: &Session, gone: Vec<Name>) -> Result<(), TransferError> {
    let (mut part, mut bytes) = (Vec::new(), 0);
    for name in gone {
        bytes += name.bytes().len();
        part.push(name);
        if bytes > MAX_TOLD_BYTES {
            session.send(&Message::Deleted(std::mem::take(&mut part)))?;
            bytes = 0;
        }
    }
    if part.is_empty() { Ok(()) } else { session.send(&Message::Deleted(part)) }
}

/// The names in a folder, but for those of fullpipe's own files.
fn names_in(folder: &impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    let fd = nix::fcntl::openat(
        folder,
        ".",
        OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        nix::sys::stat::Mode::empty(),
    )?;
    let mut names = Vec::new();
    for entry in Dir::from_fd(fd)? {
        let entry = entry?;
        let part = entry.file_name().to_bytes();
        if part != b"." && part != b".." && !name::is_scratch(part) {
            names.push(part.to_vec());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::root::Within;
    use crate::protocol::message::{Filter, Rule};

    fn listing(folder: Option<&str>, names: &[&str]) -> Listing {
        let folder = folder.map(|folder| Name::try_from(folder.as_bytes().to_vec()).unwrap());
        Listing { folder, names: names.iter().map(|name| name.as_bytes().to_vec()).collect(), last: true }
    }

    /// As on a file system that does not tell cases apart.
    #[test]
    fn what_stands_under_another_form_of_a_copied_name_stays() {
        let there = ["Data", "same", "old"].map(|name| name.as_bytes().to_vec());
        let inode = |name: &[u8]| match &name.to_ascii_lowercase()[..] {
            b"data" => Some((1, 7)),
            b"same" => Some((1, 8)),
            b"old" => Some((1, 9)),
            _ => None,
        };
        let lacks = |listed: &[&str], look: &dyn Fn(&[u8]) -> Option<Inode>| {
            let mut names = Names::new(&there);
            names.add(&listed.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>(), look);
            names.lacks(there.to_vec(), look)
        };
        assert_eq!(lacks(&["data", "same"], &inode), Some(vec![b"old".to_vec()]));
        assert_eq!(lacks(&["same", "new"], &inode), Some(vec![b"Data".to_vec(), b"old".to_vec()]));
        assert_eq!(lacks(&["DATA", "SAME", "OLD"], &inode), Some(vec![]));
        // A file system that numbers names, not files.
        let by_name = |name: &[u8]| inode(name).map(|_| (1, hash(name)));
        assert_eq!(lacks(&["data", "same"], &by_name), None);
        assert_eq!(lacks(&["Data", "same"], &by_name), Some(vec![b"old".to_vec()]));
    }

    /// Whatever the sender lists.
    #[test]
    fn nobody_deletes_what_was_not_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["to/top/a", "to/top/kept/b", "to/top/sub/c", "to/beside/d", "outside/e"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink("../../outside", dir.path().join("to/top/link")).unwrap();
        let root = Root::open(&dir.path().join("to"), Within::BeneathWithoutLinks).unwrap();
        let only = vec![crate::source::glob::Part::exactly(b"top")];
        let names = DestinationNames { rename: None, exact: false, only: Some(only), number: 1 };
        let rule = Rule { includes: false, pattern: "kept".to_owned() };
        let filter = Filter { rules: vec![rule], ..Filter::default() };
        let deletion = Deletion { filter, most: None };
        let rules = Rules::new(&deletion, false).unwrap();
        let deleter = Deleter { root: &root, names: &names, rules: &rules, dry: false, goes_on: &|| true };
        let mut progress = Progress::default();
        assert!(deleter.take(listing(None, &[]), &mut progress).is_err());
        for folder in ["beside", "top/kept", "top/link", "top/none"] {
            assert!(deleter.take(listing(Some(folder), &[]), &mut progress).unwrap().is_empty(), "{folder}");
        }
        // A part of the names is not all of them.
        let part = Listing { last: false, ..listing(Some("top"), &["sub"]) };
        assert!(deleter.take(part, &mut progress).unwrap().is_empty());
        assert_eq!(progress.deleted.entries, 0);
        let gone = deleter.take(listing(Some("top"), &["a"]), &mut progress).unwrap();
        assert_eq!(gone.iter().map(|name| name.bytes()).collect::<Vec<_>>(), [b"top/link"]);
        for name in ["to/top/a", "to/top/kept/b", "to/top/sub/c", "to/beside/d", "outside/e"] {
            assert!(dir.path().join(name).exists(), "{name}");
        }
    }
}
