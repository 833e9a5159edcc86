//! Finds what there is to send, in bounded memory: the open folders from the top to here, and no more.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::dir::{Dir, OwningIter};
use nix::fcntl::OFlag;
use nix::sys::stat::{FileStat, SFlag};

use crate::error::{TransferError, why};
use crate::fs::root::{Root, Within};
use crate::fs::{at, metadata};
use crate::limits::SMALL;
use crate::protocol::file::{FileItem, Meta};
use crate::protocol::name::{self, Name};
use crate::protocol::skipped::{Skipped, SkippedEntry};
use crate::source::tree::{SourceTree, Verdict, WalkOptions};

/// Between words about how far a count is.
const TICK: Duration = Duration::from_secs(1);

/// Where something was found, and is opened again: below a folder that is held open.
///
/// Whoever owns a source may exchange any folder in it for a symbolic link while it is copied. So what lies below a source
/// is reached from that source's own descriptor, through folders alone ([`Within::BeneathWithoutLinks`]), unless its user
/// asked for links to be followed.
#[derive(Debug, Clone)]
pub struct FileLocation {
    /// The folder.
    pub root: Arc<Root>,
    /// Below it.
    pub path: PathBuf,
}

impl FileLocation {
    fn open(&self, how: OFlag) -> std::io::Result<std::os::fd::OwnedFd> {
        self.root.open_at(&self.path, how, 0)
    }

    /// Opens a file to read ([`Root::read`]).
    ///
    /// # Errors
    /// The file system's.
    pub fn read(&self) -> std::io::Result<File> {
        self.root.read(&self.path)
    }

    fn join(&self, part: &[u8]) -> FileLocation {
        FileLocation { root: self.root.clone(), path: self.path.join(OsStr::from_bytes(part)) }
    }
}

/// What was found.
#[derive(Debug)]
pub enum Found {
    /// A regular file.
    File {
        /// As the other end knows it.
        item: FileItem,
        /// Where it is opened.
        at: FileLocation,
    },
    /// A folder; what is in it follows.
    Folder {
        /// Its name.
        name: Name,
        /// What to set when all is in it.
        meta: Meta,
    },
    /// A symbolic link.
    Link {
        /// Its name.
        name: Name,
        /// What it contains.
        target: Vec<u8>,
        /// Owner and times.
        meta: Meta,
    },
    /// Something that cannot be sent.
    Skipped(SkippedEntry),
}

/// An open folder on the way.
struct Level {
    entries: OwningIter,
    /// The same folder, to look at what is in it.
    folder: OwnedFd,
    name: Option<Name>,
    /// Below the source: for patterns, and for messages about what has no name at the other end.
    below: PathBuf,
    at: FileLocation,
    /// Device and inode, which tell a loop.
    id: (u64, u64),
}

/// Tells `each` of everything at a place, top first.
///
/// # Errors
/// Those of `each`. What cannot be read is told to it as [`Found::Skipped`].
pub fn walk(
    place: &SourceTree,
    sight: WalkOptions,
    each: &mut dyn FnMut(Found) -> Result<(), TransferError>,
) -> Result<(), TransferError> {
    if let Some(error) = &place.error {
        return each(Found::Skipped(error.clone()));
    }
    if place.top.as_ref().is_some_and(|top| place.exclude.leaves_out_source(top.path())) {
        return Ok(());
    }
    let shown = || match place.path.as_os_str().as_bytes() {
        b"" => b".".to_vec(),
        path => path.to_vec(),
    };
    let path = if place.path.as_os_str().is_empty() { Path::new(".") } else { &place.path };
    // What a person names is followed, as scp does.
    let stat = match place.root.open_at(path, OFlag::O_PATH, 0).map(|fd| nix::sys::stat::fstat(&fd)) {
        Ok(Ok(stat)) => stat,
        Ok(Err(e)) => return each(Found::Skipped(SkippedEntry::new(shown(), why(&e.into())))),
        Err(e) => return each(Found::Skipped(SkippedEntry::new(shown(), missing(&place.root, path, &e)))),
    };
    let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    let beaten = |name: &Name| {
        Found::Skipped(SkippedEntry::for_good(name.bytes(), "an earlier source brings something of this name"))
    };
    if let Some(name) = &place.top {
        match place.judge(name, &stat, sight) {
            Verdict::Send => {}
            Verdict::Shadowed => return each(beaten(name)),
            Verdict::SameFile => return Ok(()),
        }
    }
    let top = FileLocation { root: place.root.clone(), path: place.path.clone() };
    if kind != SFlag::S_IFDIR {
        return match &place.top {
            Some(name) => each(one(sight, name.clone(), top, &stat)),
            None => each(Found::Skipped(SkippedEntry::new(shown(), "it is not a folder"))),
        };
    }
    if !sight.recursive {
        return each(Found::Skipped(SkippedEntry::for_good(shown(), "it is a folder; copy it with -r")));
    }
    let mut levels = Vec::new();
    match top.open(OFlag::O_RDONLY | OFlag::O_DIRECTORY).and_then(|fd| Ok((fd.try_clone()?, fd))) {
        Ok((own, folder)) => {
            let root = Root::from_fd(own, Within::BeneathWithoutLinks);
            // Links that are followed lead anywhere that the place's root allows.
            let at = if sight.dereference { top } else { FileLocation { root: Arc::new(root), path: PathBuf::new() } };
            enter(sight, place.top.clone(), PathBuf::new(), at, folder, &mut levels, each)?;
        }
        Err(e) => return each(Found::Skipped(SkippedEntry::new(shown(), why(&e)))),
    }
    while let Some(level) = levels.last_mut() {
        let entry = match level.entries.next() {
            None => {
                levels.pop();
                continue;
            }
            Some(Err(e)) => {
                let name = level.name.as_ref().map_or_else(shown, |name| name.bytes().to_vec());
                levels.pop();
                each(Found::Skipped(SkippedEntry::new(name, why(&e.into()))))?;
                continue;
            }
            Some(Ok(entry)) => entry,
        };
        let part = entry.file_name().to_bytes();
        if part == b"." || part == b".." || name::is_scratch(part) {
            continue;
        }
        let below = level.below.join(OsStr::from_bytes(part));
        let top = place.top.as_ref().map(Name::path);
        if place.exclude.leaves_out(&below, top) {
            continue;
        }
        let name = match &level.name {
            Some(name) => name.join(part),
            None => Name::try_from(part.to_vec()),
        };
        let name = match name {
            Ok(name) => name,
            Err(e) => {
                let path = place.path.join(below);
                each(Found::Skipped(SkippedEntry::for_good(path.as_os_str().as_bytes().to_vec(), e.to_string())))?;
                continue;
            }
        };
        let at = level.at.join(part);
        let stat = if sight.dereference {
            at.open(OFlag::O_PATH).and_then(|fd| Ok(nix::sys::stat::fstat(&fd)?))
        } else {
            at::look(&level.folder, at::part(part))
        };
        let stat = match stat {
            Ok(stat) => stat,
            Err(e) => {
                each(Found::Skipped(SkippedEntry::new(name.bytes().to_vec(), missing(&at.root, &at.path, &e))))?;
                continue;
            }
        };
        match place.judge(&name, &stat, sight) {
            Verdict::Send => {}
            Verdict::Shadowed => {
                each(beaten(&name))?;
                continue;
            }
            Verdict::SameFile => continue,
        }
        if SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFDIR {
            let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
            let opened =
                if sight.dereference { at.open(how) } else { at::open_part(&level.folder, at::part(part), how) };
            match opened {
                Ok(folder) => enter(sight, Some(name), below, at, folder, &mut levels, each)?,
                Err(e) => each(Found::Skipped(SkippedEntry::new(name.bytes(), why(&e))))?,
            }
        } else {
            each(one(sight, name, at, &stat))?;
        }
    }
    Ok(())
}

/// Why what should be followed cannot be.
fn missing(root: &Root, path: &Path, error: &std::io::Error) -> String {
    let is_link = || root.open_at(path, OFlag::O_PATH | OFlag::O_NOFOLLOW, 0).is_ok();
    if error.kind() == std::io::ErrorKind::NotFound && is_link() {
        return "what this symbolic link points at is not there".to_owned();
    }
    why(error)
}

/// What a walk has counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Count {
    /// Regular files.
    pub files: u64,
    /// The sum of their sizes.
    pub bytes: u64,
    /// What cannot be sent.
    pub skipped: Skipped,
}

/// Counts what is at some places; tells `tick` now and then how far it is.
///
/// # Errors
/// Those of `tick`.
pub fn count(
    places: &[SourceTree],
    sight: WalkOptions,
    tick: &mut dyn FnMut(&Count) -> Result<(), TransferError>,
) -> Result<Count, TransferError> {
    let mut count = Count::default();
    let mut told = Instant::now();
    for place in places {
        walk(place, sight, &mut |found| {
            match found {
                Found::File { item, .. } => {
                    count.files += 1;
                    count.bytes = count.bytes.saturating_add(item.size);
                }
                Found::Skipped(entry) => count.skipped.add(entry),
                Found::Folder { .. } | Found::Link { .. } => {}
            }
            if told.elapsed() >= TICK {
                told = Instant::now();
                tick(&count)?;
            }
            Ok(())
        })?;
    }
    Ok(count)
}

/// Goes into an open folder.
fn enter(
    sight: WalkOptions,
    name: Option<Name>,
    below: PathBuf,
    at: FileLocation,
    folder: OwnedFd,
    levels: &mut Vec<Level>,
    each: &mut dyn FnMut(Found) -> Result<(), TransferError>,
) -> Result<(), TransferError> {
    let shown = name.as_ref().map_or_else(|| at.path.as_os_str().as_bytes().to_vec(), |name| name.bytes().to_vec());
    let opened = || -> std::io::Result<_> {
        // Of the folder itself, not of its name, which may lead elsewhere by now.
        let stat = nix::sys::stat::fstat(&folder)?;
        Ok((stat, Dir::from_fd(folder.try_clone()?)?))
    };
    let (stat, dir) = match opened() {
        Ok(opened) => opened,
        Err(e) => return each(Found::Skipped(SkippedEntry::new(shown, why(&e)))),
    };
    let id = (stat.st_dev, stat.st_ino);
    if levels.iter().any(|level| level.id == id) {
        return each(Found::Skipped(SkippedEntry::for_good(
            shown,
            "a symbolic link leads back to a folder that it is in",
        )));
    }
    if let Some(name) = &name {
        let mut meta = metadata::meta(&stat);
        if sight.xattrs
            && let Ok(folder) = folder.try_clone()
        {
            match metadata::xattrs(&File::from(folder)) {
                Ok(list) => meta.xattrs = list,
                Err(e) => each(Found::Skipped(SkippedEntry::new(shown, why(&e))))?,
            }
        }
        each(Found::Folder { name: name.clone(), meta })?;
    }
    levels.push(Level { entries: dir.into_iter(), folder, name, below, at, id });
    Ok(())
}

/// What is no folder.
fn one(sight: WalkOptions, name: Name, at: FileLocation, stat: &FileStat) -> Found {
    let skipped = |why: &str| Found::Skipped(SkippedEntry::new(name.bytes(), why));
    let special = |why: &str| Found::Skipped(SkippedEntry::for_good(name.bytes(), why));
    let meta = metadata::meta(stat);
    match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG => {
            let size = stat.st_size as u64;
            let mut meta = meta;
            let full = |file: File| {
                let read = file.read_at(&mut [0], 0).is_ok_and(|n| n > 0);
                read && file.metadata().is_ok_and(|now| now.len() == 0)
            };
            if size == 0 && at.read().is_ok_and(full) {
                return special("it has content, but says that it has 0 bytes, as files of the kernel do");
            }
            // One that cannot be opened is told of when it is its turn.
            if sight.xattrs
                && size > SMALL
                && let Ok(file) = at.read()
            {
                match metadata::xattrs(&file) {
                    Ok(list) => meta.xattrs = list,
                    Err(e) => return skipped(&why(&e)),
                }
            }
            let sparse = (stat.st_blocks as u64).saturating_mul(512) < size;
            let changed = (stat.st_ctime, stat.st_ctime_nsec as u32);
            Found::File { item: FileItem { name, size, sparse, changed, meta }, at }
        }
        SFlag::S_IFLNK => {
            let target = at.open(OFlag::O_PATH | OFlag::O_NOFOLLOW).and_then(|fd| Ok(nix::fcntl::readlinkat(&fd, "")?));
            match target {
                Ok(target) => Found::Link { target: target.as_bytes().to_vec(), meta, name },
                Err(e) => skipped(&why(&e)),
            }
        }
        SFlag::S_IFIFO => special("it is a FIFO, whose content is no file's"),
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
            error: None,
            overlaps: None,
        };
        assert_eq!(top.bytes(), place.path.as_os_str().as_bytes());
        let mut all = Vec::new();
        walk(&place, sight, &mut |found| {
            all.push(match found {
                Found::File { item, .. } => format!("{} {}", item.name, item.size),
                Found::Folder { name, .. } => format!("{name}/"),
                Found::Link { name, target, .. } => format!("{name} -> {}", String::from_utf8_lossy(&target)),
                Found::Skipped(entry) => entry.to_string(),
            });
            Ok(())
        })
        .unwrap();
        all.sort();
        all
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
        let plain = WalkOptions { recursive: true, dereference: false, xattrs: false };
        assert_eq!(
            found(&top, plain),
            [
                "$'top/sub/b\\n' 0",
                "top/",
                "top/a 3",
                "top/fifo: it is a FIFO, whose content is no file's",
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
