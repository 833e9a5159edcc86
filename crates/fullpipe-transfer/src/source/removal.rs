//! Removes an entry of a source if it is still what was copied (`--remove-source-files`).

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::sys::stat::{FileStat, Mode, SFlag};
use nix::unistd::UnlinkatFlags;

use crate::fs::at;
use crate::fs::root::{Root, Within, open_below};
use crate::protocol::file::{file_key, link_key};
use crate::protocol::name::{self, Name};
use crate::source::tree::SourceTree;

/// The times of the last change (ctime) of files with several names, of which one was removed: before and after that. They are
/// found by device and inode.
#[derive(Default)]
pub(crate) struct Changed(HashMap<(u64, u64), (Time, Time)>);

/// Seconds, and nanoseconds within the second.
type Time = (i64, u32);

/// What became of an entry.
pub(crate) enum Removal {
    /// It was removed.
    Removed,
    /// It is to be removed when everything is done.
    Later,
    /// It is gone.
    Gone,
}

impl SourceTree {
    /// The path below this source of an entry with this name at the destination; `None` if it is not of this source.
    fn below(&self, name: &Name) -> Option<PathBuf> {
        match &self.top {
            Some(top) => name.path().strip_prefix(top.path()).ok().map(Path::to_owned),
            None => Some(name.path().to_owned()),
        }
    }

    /// Whether the journal of this number is in the folder in which the names of this source begin. If the destination keeps the
    /// names, it then is this source, perhaps through another file system (sshfs, NFS), which shows other times of the same files.
    pub(crate) fn has_journal(&self, number: u64) -> bool {
        let above = self.top.as_ref().map_or(0, |top| top.path().components().count());
        let folder = self.path.ancestors().nth(above).filter(|path| !path.as_os_str().is_empty());
        let opened = self.root.open_at(folder.unwrap_or(Path::new(".")), OFlag::O_PATH | OFlag::O_DIRECTORY, 0);
        opened.is_ok_and(|folder| at::look(&folder, &name::scratch(number, "journal")).is_ok())
    }

    /// Removes an entry of this version ([`file_key`], [`link_key`]). With `at_end`, all else is done.
    ///
    /// # Errors
    /// The entry has changed, or cannot be removed.
    pub(crate) fn remove(&self, name: &Name, key: u64, at_end: bool, changed: &mut Changed) -> io::Result<Removal> {
        let Some(below) = self.below(name) else { return Ok(Removal::Gone) };
        let is_named = below.as_os_str().is_empty();
        let (folder, last) = match self.folder_of(&below) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Removal::Gone),
            found => found?,
        };
        let last = last.as_path();
        // By its descriptor, so that the times after the removal are this file's, too.
        let file = match at::open_part(&folder, last, OFlag::O_PATH) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Removal::Gone),
            file => file?,
        };
        let stat = nix::sys::stat::fstat(&file)?;
        let inode = (stat.st_dev, stat.st_ino);
        let is_same = match at::kind(&stat) {
            SFlag::S_IFREG => {
                let ctime = match changed.0.get(&inode) {
                    Some((before, after)) if ctime(&stat) == *after => *before,
                    _ => ctime(&stat),
                };
                let mtime = (stat.st_mtime, stat.st_mtime_nsec as u32);
                let same = |ctime| file_key(name, stat.st_size as u64, mtime, ctime) == key;
                same(ctime) || same(self::ctime(&stat))
            }
            SFlag::S_IFLNK if is_named => {
                return Err(io::Error::other("it is a symbolic link to what was copied; both stay"));
            }
            SFlag::S_IFLNK => link_key(name, nix::fcntl::readlinkat(&file, "")?.as_bytes(), ctime(&stat)) == key,
            _ => false,
        };
        if !is_same {
            return Err(io::Error::other("it has changed since it was copied, or it is the copy"));
        }
        let has_names = at::kind(&stat) == SFlag::S_IFREG && stat.st_nlink > 1;
        if (is_named || has_names) && !at_end {
            return Ok(Removal::Later);
        }
        nix::unistd::unlinkat(&folder, last, UnlinkatFlags::NoRemoveDir)?;
        if has_names {
            let first = changed.0.get(&inode).map_or_else(|| ctime(&stat), |(before, _)| *before);
            changed.0.insert(inode, (first, ctime(&nix::sys::stat::fstat(&file)?)));
        }
        Ok(Removal::Removed)
    }

    /// Opens the folder of an entry below this source, through folders only, and returns the entry's name in it.
    fn folder_of(&self, below: &Path) -> io::Result<(Root, PathBuf)> {
        let how = OFlag::O_PATH | OFlag::O_DIRECTORY;
        let or_here = |path: &Path| if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_owned() };
        let name =
            |path: &Path| path.file_name().map(PathBuf::from).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
        let parent = |path: &Path| or_here(path.parent().unwrap_or(Path::new("")));
        if below.as_os_str().is_empty() {
            let folder = self.root.open_at(&parent(&self.path), how, 0)?;
            return Ok((Root::from_fd(folder, Within::BeneathWithoutLinks), name(&self.path)?));
        }
        let top = self.root.open_at(&or_here(&self.path), how, 0)?;
        let folder = open_below(top.as_fd(), &parent(below), how, Mode::empty(), Within::BeneathWithoutLinks)?;
        Ok((Root::from_fd(folder, Within::BeneathWithoutLinks), name(below)?))
    }
}

fn ctime(stat: &FileStat) -> Time {
    (stat.st_ctime, stat.st_ctime_nsec as u32)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::sync::Arc;

    use super::*;

    fn tree(dir: &Path, top: Option<&str>) -> SourceTree {
        SourceTree {
            root: Arc::new(Root::open(dir, Within::Anywhere).unwrap()),
            path: PathBuf::from("tree"),
            top: top.map(name),
            exclude: Arc::default(),
            list: None,
            error: None,
            id: Default::default(),
            overlaps: None,
        }
    }

    fn name(text: &str) -> Name {
        Name::try_from(text.as_bytes().to_vec()).unwrap()
    }

    fn key(file: &Path, shown: &str) -> u64 {
        let meta = fs::symlink_metadata(file).unwrap();
        let time = |seconds, nanos: i64| (seconds, nanos as u32);
        let (mtime, ctime) = (time(meta.mtime(), meta.mtime_nsec()), time(meta.ctime(), meta.ctime_nsec()));
        file_key(&name(shown), meta.len(), mtime, ctime)
    }

    #[test]
    fn only_the_version_that_was_copied_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |file: &str| dir.path().join("tree").join(file);
        fs::create_dir_all(at("sub")).unwrap();
        let copied = |file: &str| {
            fs::write(at(file), "content").unwrap();
            key(&at(file), file)
        };
        let tree = tree(dir.path(), None);
        let remove = |file: &str, key| tree.remove(&name(file), key, true, &mut Changed::default());
        let old = copied("sub/a");
        assert!(remove("sub/a", old ^ 1).is_err() && at("sub/a").exists());
        // Another file of the same size and time has another inode, and so another time of its last change.
        let mtime = fs::metadata(at("sub/a")).unwrap().modified().unwrap();
        // The kernel's clock may not have moved meanwhile.
        while key(&at("sub/a"), "sub/a") == old {
            fs::write(at("new"), "CONTENT").unwrap();
            fs::File::open(at("new")).unwrap().set_modified(mtime).unwrap();
            fs::rename(at("new"), at("sub/a")).unwrap();
        }
        assert!(remove("sub/a", old).is_err() && at("sub/a").exists());
        let now = key(&at("sub/a"), "sub/a");
        assert!(matches!(remove("sub/a", now), Ok(Removal::Removed)) && !at("sub/a").exists());
        assert!(matches!(remove("sub/a", now), Ok(Removal::Gone)));
        // Neither a folder, nor what lies behind a link, nor a link to elsewhere.
        assert!(remove("sub", now).is_err() && at("sub").is_dir());
        let b = copied("sub/b");
        std::os::unix::fs::symlink("sub", at("link")).unwrap();
        assert!(remove("link/b", b).is_err() && at("sub/b").exists());
        let meta = fs::symlink_metadata(at("link")).unwrap();
        let version = |target: &[u8], nanos| link_key(&name("link"), target, (meta.ctime(), nanos));
        let nanos = meta.ctime_nsec() as u32;
        // Nor one that was made anew, as by a copy onto itself.
        assert!(remove("link", version(b"elsewhere", nanos)).is_err() && at("link").is_symlink());
        assert!(remove("link", version(b"sub", nanos ^ 1)).is_err() && at("link").is_symlink());
        assert!(matches!(remove("link", version(b"sub", nanos)), Ok(Removal::Removed)));
    }

    #[test]
    fn all_names_of_a_file_are_removed_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let at = |file: &str| dir.path().join("tree").join(file);
        fs::create_dir_all(at("")).unwrap();
        fs::write(at("a"), "content").unwrap();
        fs::hard_link(at("a"), at("b")).unwrap();
        fs::hard_link(at("a"), at("c")).unwrap();
        let tree = tree(dir.path(), Some("top"));
        let keys = ["a", "b", "c"].map(|file| (format!("top/{file}"), key(&at(file), &format!("top/{file}"))));
        let mut changed = Changed::default();
        assert!(matches!(tree.remove(&name(&keys[0].0), keys[0].1, false, &mut changed), Ok(Removal::Later)));
        for (file, key) in &keys {
            assert!(matches!(tree.remove(&name(file), *key, true, &mut changed), Ok(Removal::Removed)), "{file}");
        }
        assert_eq!(fs::read_dir(at("")).unwrap().count(), 0);
        assert!(matches!(tree.remove(&name("other/a"), 0, true, &mut changed), Ok(Removal::Gone)));
    }
}
