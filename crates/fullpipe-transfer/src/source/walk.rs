//! Walks source trees and reports each entry to send, in bounded memory: it holds only the folders on the current path.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::dir::{Dir, OwningIter};
use nix::fcntl::OFlag;
use nix::sys::stat::{FileStat, SFlag};

use crate::error::{TransferError, unreadable};
use crate::fs::root::{Root, Within};
use crate::fs::{at, metadata};
use crate::protocol::file::{FileItem, Meta};
use crate::protocol::name::{self, Name};
use crate::protocol::skipped::SkippedEntry;
use crate::source::hard_links::Inode;
use crate::source::name_list::NameList;
use crate::source::tree::{SourceTree, Verdict, WalkOptions};

/// The location of a file: an open folder, and a path below it through which the file is opened again.
///
/// A source's owner can replace any folder in it with a symbolic link during the copy. So files below a source are opened
/// from the source's own descriptor, through folders only ([`Within::BeneathWithoutLinks`]), unless the user asked to
/// follow links.
#[derive(Debug, Clone)]
pub struct FileLocation {
    /// The open folder.
    pub root: Arc<Root>,
    /// The path below `root`.
    pub path: PathBuf,
}

impl FileLocation {
    fn open(&self, how: OFlag) -> std::io::Result<std::os::fd::OwnedFd> {
        self.root.open_at(&self.path, how, 0)
    }

    /// Opens the file for reading ([`Root::read`]).
    ///
    /// # Errors
    /// Those of the file system.
    pub fn read(&self) -> std::io::Result<File> {
        self.root.read(&self.path)
    }

    fn join(&self, part: &[u8]) -> FileLocation {
        FileLocation { root: self.root.clone(), path: self.path.join(OsStr::from_bytes(part)) }
    }
}

/// One entry that a walk found.
#[derive(Debug)]
pub enum Found {
    /// A regular file.
    File {
        /// The file's name and metadata, as sent to the other end.
        item: FileItem,
        /// The location from which the file is opened.
        at: FileLocation,
        /// The file's inode, if it has several names.
        inode: Option<Inode>,
    },
    /// A folder. The walk reports its content afterwards.
    Folder {
        /// The folder's name.
        name: Name,
        /// The metadata that the receiver sets once the folder's content is complete.
        meta: Meta,
        /// Whether its content is walked, too. It is not if another file system is mounted there and is to be left out.
        entered: bool,
    },
    /// A symbolic link.
    Link {
        /// The link's name.
        name: Name,
        /// The path that the link points at.
        target: Vec<u8>,
        /// Time of the link's last change (ctime): seconds since 1970, and nanoseconds.
        changed: (i64, u32),
        /// The link's owner and times.
        meta: Meta,
    },
    /// A file that is left out because of its size. It does not count as missing.
    Omitted(Name),
    /// An entry that cannot be sent.
    Skipped(SkippedEntry),
    /// An extended attribute that cannot be sent, of an entry that can: the entry's name, and why.
    Attribute(Vec<u8>, String),
}

/// An open folder on the walk's current path.
struct Level {
    entries: OwningIter,
    /// A second descriptor of the folder, through which its entries are examined and opened.
    folder: OwnedFd,
    name: Option<Name>,
    /// The folder's path below the source. Exclude patterns match it, and messages show it for names that cannot be sent.
    below: PathBuf,
    at: FileLocation,
    /// Device and inode, by which the walk detects a loop of symbolic links.
    id: (u64, u64),
}

/// Walks a source tree from the top and calls `each` with every entry.
///
/// # Errors
/// Those of `each`. Entries that cannot be read are no error; `each` gets them as [`Found::Skipped`].
pub fn walk(
    place: &SourceTree,
    sight: WalkOptions,
    each: &mut dyn FnMut(Found) -> Result<(), TransferError>,
) -> Result<(), TransferError> {
    if let Some(error) = &place.error {
        return each(Found::Skipped(error.clone()));
    }
    let path = if place.path.as_os_str().is_empty() { Path::new(".") } else { &place.path };
    // A link that the user names as a source is followed, as in scp.
    let stat = match place.root.open_at(path, OFlag::O_PATH, 0).map(|fd| nix::sys::stat::fstat(&fd)) {
        Ok(Ok(stat)) => stat,
        Ok(Err(e)) => return each(Found::Skipped(SkippedEntry::new(shown(place), unreadable(&e.into())))),
        Err(e) => return each(Found::Skipped(SkippedEntry::new(shown(place), missing(&place.root, path, &e)))),
    };
    let id = (stat.st_dev, stat.st_ino);
    if *place.id.get_or_init(|| id) != id {
        return each(Found::Skipped(SkippedEntry::new(shown(place), "it was replaced, or is not mounted any more")));
    }
    if place.top.as_ref().is_some_and(|top| place.exclude.leaves_out_source(top.path(), is_folder(&stat))) {
        return Ok(());
    }
    if let Some(name) = &place.top {
        match place.judge(name, &stat, sight) {
            Verdict::Send => {}
            Verdict::Shadowed => return each(shadowed(name)),
            Verdict::SameFile => return Ok(()),
        }
    }
    let top = FileLocation { root: place.root.clone(), path: place.path.clone() };
    if !is_folder(&stat) {
        return match &place.top {
            Some(name) => each(place.one(name.clone(), top, &stat)),
            None => each(Found::Skipped(SkippedEntry::new(shown(place), "it is not a folder"))),
        };
    }
    if !sight.recursive && place.list.is_none() {
        return each(Found::Skipped(SkippedEntry::for_good(shown(place), "it is a folder; copy it with -r")));
    }
    let mut walk = Walk { place, sight, levels: Vec::new(), file_system: None, each };
    match top.open(OFlag::O_RDONLY | OFlag::O_DIRECTORY).and_then(|fd| Ok((fd.try_clone()?, fd))) {
        Ok((own, folder)) => {
            let root = Root::from_fd(own, Within::BeneathWithoutLinks);
            // With `dereference`, links may lead anywhere that the source's root allows.
            let at = if sight.dereference { top } else { FileLocation { root: Arc::new(root), path: PathBuf::new() } };
            walk.enter(place.top.clone(), PathBuf::new(), at, folder)?;
        }
        Err(e) => return walk.skip(shown(place), &e),
    }
    match &place.list {
        Some(list) => walk.listed(list),
        None => walk.all(0),
    }
}

/// A source's path as messages show it.
fn shown(place: &SourceTree) -> Vec<u8> {
    match place.path.as_os_str().as_bytes() {
        b"" => b".".to_vec(),
        path => path.to_vec(),
    }
}

/// Makes the report for an entry whose name an earlier source has, too.
fn shadowed(name: &Name) -> Found {
    Found::Skipped(SkippedEntry::for_good(
        name.bytes(),
        "an earlier source has an entry with the same name; only that one is copied",
    ))
}

/// Whether an entry is a folder.
fn is_folder(stat: &FileStat) -> bool {
    at::kind(stat) == SFlag::S_IFDIR
}

/// A walk through a source that is a folder.
struct Walk<'a> {
    place: &'a SourceTree,
    sight: WalkOptions,
    /// The open folders on the current path, the source's top first.
    levels: Vec<Level>,
    /// The device of the last folder that the source's name or its list led to: all that is found below it should be there.
    file_system: Option<u64>,
    each: &'a mut dyn FnMut(Found) -> Result<(), TransferError>,
}

impl Walk<'_> {
    /// Reports every entry of the folders that were entered, the first `above` excepted, and of all below them.
    fn all(&mut self, above: usize) -> Result<(), TransferError> {
        while let Some(level) = self.levels.get_mut(above..).and_then(<[Level]>::last_mut) {
            match level.entries.next() {
                None => drop(self.levels.pop()),
                Some(Err(e)) => {
                    let name = level.name.as_ref().map_or_else(|| shown(self.place), |name| name.bytes().to_vec());
                    self.levels.pop();
                    self.skip(name, &e.into())?;
                }
                Some(Ok(entry)) => self.entry(entry.file_name().to_bytes())?,
            }
        }
        Ok(())
    }

    /// Reports the entries that a list names, and the folders on the way to them. With `recursive`, reports all that is below
    /// them, too.
    fn listed(&mut self, list: &NameList) -> Result<(), TransferError> {
        // The folder that was last reported with all that is below it.
        let mut done: Option<&Path> = None;
        for name in list.names() {
            let path = Path::new(OsStr::from_bytes(name));
            if done.is_some_and(|done| path.starts_with(done)) {
                continue;
            }
            while self.levels.len() > 1 && self.levels.last().is_some_and(|level| !lies_in(path, &level.below)) {
                self.levels.pop();
            }
            let Some(level) = self.levels.last() else { return Ok(()) };
            let depth = self.levels.len();
            if name.is_empty() {
                // The source itself.
                if self.sight.recursive {
                    self.file_system = self.levels.first().map(|top| top.id.0);
                    return self.all(0);
                }
                continue;
            }
            if let Err(e) = Name::try_from(name.to_vec()) {
                (self.each)(Found::Skipped(SkippedEntry::for_good(name, e.to_string())))?;
                continue;
            }
            let way: Vec<Vec<u8>> = path
                .strip_prefix(&level.below)
                .unwrap_or(path)
                .components()
                .map(|part| part.as_os_str().as_bytes().to_vec())
                .collect();
            let Some((last, way)) = way.split_last() else { continue };
            let mut there = true;
            for part in way {
                there = there && self.pass(part, name)?;
            }
            if !there {
                continue;
            }
            let depth = depth + way.len();
            self.file_system = None;
            self.entry(last)?;
            if self.sight.recursive && self.levels.len() > depth {
                self.all(depth)?;
                done = Some(path);
            }
        }
        Ok(())
    }

    /// Enters a folder of the innermost one, on the way to an entry that a list names. Returns false if it is not entered.
    fn pass(&mut self, part: &[u8], listed: &[u8]) -> Result<bool, TransferError> {
        let Some(level) = self.levels.last() else { return Ok(false) };
        let (depth, below, at) = (self.levels.len(), level.below.join(OsStr::from_bytes(part)), level.at.join(part));
        let name = match &level.name {
            Some(name) => name.join(part),
            None => Name::try_from(part.to_vec()),
        };
        let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let opened =
            if self.sight.dereference { at.open(how) } else { at::open_part(&level.folder, at::part(part), how) };
        let entry = match (opened, name) {
            (Ok(folder), Ok(name)) => {
                self.file_system = None;
                self.enter(Some(name), below, at, folder)?;
                return Ok(self.levels.len() > depth);
            }
            (_, Err(e)) => SkippedEntry::for_good(listed, e.to_string()),
            (Err(_), _)
                if at::look(&level.folder, at::part(part)).is_ok_and(|stat| at::kind(&stat) == SFlag::S_IFLNK) =>
            {
                let why = format!(
                    "{} is a symbolic link, which only -L follows",
                    name::printable(below.as_os_str().as_bytes())
                );
                SkippedEntry::for_good(listed, why)
            }
            (Err(e), _) => unlisted(listed, &e, unreadable(&e)),
        };
        (self.each)(Found::Skipped(entry)).map(|()| false)
    }

    /// Reports one entry of the innermost folder, and enters it if it is a folder.
    fn entry(&mut self, part: &[u8]) -> Result<(), TransferError> {
        let WalkOptions { dereference, .. } = self.sight;
        let Some(level) = self.levels.last() else { return Ok(()) };
        if part == b"." || part == b".." || name::is_scratch(part) {
            return Ok(());
        }
        let below = level.below.join(OsStr::from_bytes(part));
        let at = level.at.join(part);
        let stat = if dereference {
            at.open(OFlag::O_PATH).and_then(|fd| Ok(nix::sys::stat::fstat(&fd)?))
        } else {
            at::look(&level.folder, at::part(part))
        };
        let is_dir = stat.as_ref().is_ok_and(is_folder);
        if self.place.exclude.leaves_out(&below, self.place.top.as_ref().map(Name::path), is_dir) {
            return Ok(());
        }
        let name = match &level.name {
            Some(name) => name.join(part),
            None => Name::try_from(part.to_vec()),
        };
        let name = match name {
            Ok(name) => name,
            Err(e) => {
                let path = self.place.path.join(below).as_os_str().as_bytes().to_vec();
                return (self.each)(Found::Skipped(SkippedEntry::for_good(path, e.to_string())));
            }
        };
        let stat = match stat {
            Ok(stat) => stat,
            Err(e) => {
                let why = missing(&at.root, &at.path, &e);
                let entry = match &self.place.list {
                    Some(_) => unlisted(name.bytes(), &e, why),
                    None => SkippedEntry::new(name.bytes(), why),
                };
                return (self.each)(Found::Skipped(entry));
            }
        };
        match self.place.judge(&name, &stat, self.sight) {
            Verdict::Send => {}
            Verdict::Shadowed => return (self.each)(shadowed(&name)),
            Verdict::SameFile => return Ok(()),
        }
        if !is_folder(&stat) {
            return (self.each)(self.place.one(name, at, &stat));
        }
        let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let opened = if dereference { at.open(how) } else { at::open_part(&level.folder, at::part(part), how) };
        match opened {
            Ok(folder) => self.enter(Some(name), below, at, folder),
            Err(e) => self.skip(name.bytes().to_vec(), &e),
        }
    }

    /// Enters an open folder: reports it to `each` and adds it to the levels.
    fn enter(
        &mut self,
        name: Option<Name>,
        below: PathBuf,
        at: FileLocation,
        folder: OwnedFd,
    ) -> Result<(), TransferError> {
        let shown = name.as_ref().map_or_else(|| at.path.as_os_str().as_bytes().to_vec(), |name| name.bytes().to_vec());
        let opened = || -> std::io::Result<_> {
            // Examines the open folder, not its name, which another process may have replaced.
            let stat = nix::sys::stat::fstat(&folder)?;
            Ok((stat, Dir::from_fd(folder.try_clone()?)?))
        };
        let (stat, dir) = match opened() {
            Ok(opened) => opened,
            Err(e) => return self.skip(shown, &e),
        };
        let id = (stat.st_dev, stat.st_ino);
        if self.levels.iter().any(|level| level.id == id) {
            return (self.each)(Found::Skipped(SkippedEntry::for_good(
                shown,
                "a symbolic link leads back to a folder that it is in",
            )));
        }
        let is_mount = *self.file_system.get_or_insert(stat.st_dev) != stat.st_dev;
        let entered = !(is_mount && self.place.exclude.one_file_system);
        if let Some(name) = &name {
            let mut meta = metadata::meta(&stat);
            let kinds = self.sight.attributes;
            if let Ok(folder) = folder.try_clone() {
                let folder = File::from(folder);
                if !kinds.access_lists {
                    meta.mode = metadata::mode_without_list(&folder, meta.mode);
                }
                let mut refused = Vec::new();
                if !kinds.is_none() {
                    meta.xattrs = metadata::xattrs(&folder, kinds, &mut |attribute, why| {
                        refused.push(format!("extended attribute {}: {why}", name::printable(attribute)));
                    });
                }
                refused.into_iter().try_for_each(|why| (self.each)(Found::Attribute(shown.clone(), why)))?;
            }
            (self.each)(Found::Folder { name: name.clone(), meta, entered })?;
        }
        if !entered {
            return Ok(());
        }
        self.levels.push(Level { entries: dir.into_iter(), folder, name, below, at, id });
        Ok(())
    }

    /// Reports an entry that cannot be read.
    fn skip(&mut self, name: Vec<u8>, error: &std::io::Error) -> Result<(), TransferError> {
        (self.each)(Found::Skipped(SkippedEntry::new(name, unreadable(error))))
    }
}

/// Whether a name below the source is that of something in a folder below the source.
fn lies_in(name: &Path, folder: &Path) -> bool {
    name != folder && name.starts_with(folder)
}

/// Makes the report for an entry that a list names and that cannot be read. What does not exist leaves nothing to do.
fn unlisted(name: &[u8], error: &std::io::Error, why: String) -> SkippedEntry {
    let for_good = matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR));
    SkippedEntry { for_good, ..SkippedEntry::new(name, why) }
}

/// Why a symbolic link that leads nowhere cannot be followed.
pub(crate) const LEADS_NOWHERE: &str = "this symbolic link points at a file that does not exist";

/// Whether a path that cannot be opened is a symbolic link that leads nowhere.
pub(crate) fn leads_nowhere(root: &Root, path: &Path, error: &std::io::Error) -> bool {
    let is_link = || root.open_at(path, OFlag::O_PATH | OFlag::O_NOFOLLOW, 0).is_ok();
    error.kind() == std::io::ErrorKind::NotFound && is_link()
}

/// Explains why a path that may end in a symbolic link cannot be opened.
fn missing(root: &Root, path: &Path, error: &std::io::Error) -> String {
    if leads_nowhere(root, path, error) { LEADS_NOWHERE.to_owned() } else { unreadable(error) }
}

impl SourceTree {
    /// Makes the report for an entry that is not a folder.
    fn one(&self, name: Name, at: FileLocation, stat: &FileStat) -> Found {
        let is_file = at::kind(stat) == SFlag::S_IFREG;
        if is_file && self.exclude.leaves_out_size(stat.st_size as u64) {
            Found::Omitted(name)
        } else {
            one(name, at, stat)
        }
    }
}

/// Makes the report for an entry that is not a folder. A file's extended attributes are read when it is sent.
fn one(name: Name, at: FileLocation, stat: &FileStat) -> Found {
    let skipped = |why: &str| Found::Skipped(SkippedEntry::new(name.bytes(), why));
    let special = |why: &str| Found::Skipped(SkippedEntry::for_good(name.bytes(), why));
    let meta = metadata::meta(stat);
    match at::kind(stat) {
        SFlag::S_IFREG => {
            let size = stat.st_size as u64;
            let full = |file: File| {
                let read = file.read_at(&mut [0], 0).is_ok_and(|n| n > 0);
                read && file.metadata().is_ok_and(|now| now.len() == 0)
            };
            if size == 0 && at.read().is_ok_and(full) {
                return special("it has content but reports a size of 0 bytes, as files in /proc do");
            }
            let sparse = (stat.st_blocks as u64).saturating_mul(512) < size;
            let inode = (stat.st_nlink > 1).then_some((stat.st_dev, stat.st_ino));
            let changed = (stat.st_ctime, stat.st_ctime_nsec as u32);
            Found::File { item: FileItem { name, size, sparse, changed, content: None, meta }, at, inode }
        }
        SFlag::S_IFLNK => {
            let target = at.open(OFlag::O_PATH | OFlag::O_NOFOLLOW).and_then(|fd| Ok(nix::fcntl::readlinkat(&fd, "")?));
            match target {
                Ok(target) => Found::Link {
                    target: target.as_bytes().to_vec(),
                    changed: (stat.st_ctime, stat.st_ctime_nsec as u32),
                    meta,
                    name,
                },
                Err(e) => skipped(&unreadable(&e)),
            }
        }
        SFlag::S_IFIFO => special("it is a FIFO; only files, folders and symbolic links are copied"),
        SFlag::S_IFSOCK => special("it is a socket"),
        _ => special("it is a device"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(dir: &Path, sight: WalkOptions) -> Vec<String> {
        let root = Arc::new(Root::open(dir.parent().unwrap(), Within::Anywhere).unwrap());
        let top = Name::try_from(dir.file_name().unwrap().as_bytes().to_vec()).unwrap();
        let path = PathBuf::from(dir.file_name().unwrap());
        let place = SourceTree {
            root,
            path,
            top: Some(Name::try_from(b"top".to_vec()).unwrap()),
            exclude: Arc::default(),
            list: None,
            error: None,
            id: Default::default(),
            overlaps: None,
        };
        assert_eq!(top.bytes(), place.path.as_os_str().as_bytes());
        let mut all = Vec::new();
        walk(&place, sight, &mut |found| {
            all.push(match found {
                Found::File { item, .. } => format!("{} {}", item.name, item.size),
                Found::Folder { name, .. } => format!("{name}/"),
                Found::Link { name, target, .. } => format!("{name} -> {}", String::from_utf8_lossy(&target)),
                Found::Omitted(name) => format!("{name} omitted"),
                Found::Skipped(entry) => entry.to_string(),
                Found::Attribute(name, why) => format!("{}: {why}", name::printable(&name)),
            });
            Ok(())
        })
        .unwrap();
        all.sort();
        all
    }

    /// As where a file system is not mounted any more: its empty folder must not count as the source.
    #[test]
    fn a_source_that_was_replaced_is_not_walked_again() {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(dir.path(), Within::Anywhere).unwrap());
        let (exclude, path) = (Arc::default(), PathBuf::from("top"));
        let (list, error, overlaps) = (None, None, None);
        let place = SourceTree { root, path, top: None, exclude, list, error, id: Default::default(), overlaps };
        let attributes = metadata::Attributes::default();
        let sight = WalkOptions { recursive: true, dereference: false, attributes, hard_links: false };
        let seen = || {
            let (mut files, mut skipped) = (0, Vec::new());
            let count = &mut |found: Found| {
                match found {
                    Found::Skipped(entry) => skipped.push(entry.to_string()),
                    _ => files += 1,
                }
                Ok(())
            };
            walk(&place, sight, count).unwrap();
            (files, skipped)
        };
        let make = || {
            std::fs::create_dir(dir.path().join("top")).unwrap();
            std::fs::write(dir.path().join("top/a"), "").unwrap();
        };
        make();
        assert_eq!((seen(), seen()), ((1, vec![]), (1, vec![])));
        std::fs::rename(dir.path().join("top"), dir.path().join("before")).unwrap();
        make();
        let (files, skipped) = seen();
        assert!(files == 0 && skipped.len() == 1 && skipped[0].contains("was replaced"), "{skipped:?}");
    }

    #[test]
    fn all_kinds() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        std::fs::create_dir_all(top.join("sub/empty")).unwrap();
        std::fs::write(top.join("a"), "abc").unwrap();
        std::fs::write(top.join("sub/b\n"), "").unwrap();
        std::fs::write(top.join("sub/.fullpipe.0123456789abcdef.partial"), "").unwrap();
        std::os::unix::fs::symlink("../a", top.join("sub/link")).unwrap();
        std::os::unix::fs::symlink("..", top.join("sub/loop")).unwrap();
        nix::unistd::mkfifo(&top.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let plain = WalkOptions {
            recursive: true,
            dereference: false,
            attributes: metadata::Attributes::default(),
            hard_links: false,
        };
        assert_eq!(
            found(&top, plain),
            [
                "$'top/sub/b\\n' 0",
                "top/",
                "top/a 3",
                "top/fifo: it is a FIFO; only files, folders and symbolic links are copied",
                "top/sub/",
                "top/sub/empty/",
                "top/sub/link -> ../a",
                "top/sub/loop -> ..",
            ]
        );
        let followed = found(&top, WalkOptions { dereference: true, ..plain });
        assert!(followed.contains(&"top/sub/link 3".to_owned()), "{followed:?}");
        assert!(followed.iter().any(|f| f.starts_with("top/sub/loop: a symbolic link leads back")), "{followed:?}");
        assert_eq!(found(&top, WalkOptions { recursive: false, ..plain }), ["top: it is a folder; copy it with -r"]);
    }
}
