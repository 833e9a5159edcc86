//! Writes into a file that the destination has, with `--inplace`, instead of into another one that takes its place.
//!
//! The file gets a second name, that of a partial file (a hard link): journal, resuming and the end of a copy treat it as one.
//! Its own name stays, so whoever opens the file under that name sees what has been written so far. As long as the second name
//! is there, the file counts as unfinished, for every command: its size and times say nothing of its content.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, SFlag};

use super::journal::Record;
use super::receiver::Receiver;
use super::unfinished::UnfinishedFiles;
use crate::error::Lack;
use crate::fs::{at, metadata, ownership, publish};
use crate::protocol::file::FileItem;
use crate::protocol::name::{self, Name, scratch};
use crate::threads::lock;

impl Receiver {
    /// Opens the file that stands under an offered file's name, to write into it, and gives it the name of a partial file too.
    /// Its content is gone then. Returns that name as well. Returns `None` if another file has to take the name: nothing stands
    /// there, or no regular file, or the source, or one with several names to which another content has been written.
    ///
    /// # Errors
    /// The file may not be written to, or cannot have a second name.
    pub(super) fn begin_in_place(
        &self,
        item: &FileItem,
        folder: &OwnedFd,
        name: &Name,
    ) -> io::Result<Option<(File, PathBuf)>> {
        let Some(file) = self.find_in_place(item, folder, name)? else { return Ok(None) };
        let partial = self.mark(&file, folder, name).map_err(no_second_name)?;
        begun(file, folder, partial, item)
    }

    /// As [`Receiver::begin_in_place`], for a small file. Where there are no hard links, another file has to take the name: nothing
    /// would tell after an interruption that this one is not whole.
    pub(super) fn begin_small_in_place(
        &self,
        item: &FileItem,
        folder: &OwnedFd,
        name: &Name,
    ) -> io::Result<Option<(File, PathBuf)>> {
        let Some(file) = self.find_in_place(item, folder, name)? else { return Ok(None) };
        let partial = match self.mark(&file, folder, name) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::EOPNOTSUPP | libc::ENOSYS)) => {
                return Ok(None);
            }
            marked => marked.map_err(no_second_name)?,
        };
        begun(file, folder, partial, item)
    }

    /// Gives a file its second name, which it may have already. The journal gets it first.
    fn mark(&self, file: &File, folder: &OwnedFd, name: &Name) -> io::Result<PathBuf> {
        let inode = file.metadata()?.ino();
        let link = |partial: &Path| {
            let number = name::partial_number(partial).unwrap_or_else(|| self.names.partial_number(name));
            let record = Record::BegunInPlace { name: name.clone(), partial: number, inode };
            lock(&self.journal).add(&record)?;
            match publish::link(file, folder, partial) {
                Err(e) if e.raw_os_error() == Some(libc::EEXIST) && inode_of(folder, partial) == Some(inode) => Ok(()),
                linked => linked,
            }
        };
        ownership::fresh(folder, self.names.partial(name), link).map(|((), partial)| partial)
    }

    fn find_in_place(&self, item: &FileItem, folder: &OwnedFd, name: &Name) -> io::Result<Option<File>> {
        let Some(file) = self.target_in_place(item, folder, name)? else { return Ok(None) };
        let now = file.metadata()?;
        let me = nix::unistd::geteuid();
        if now.uid() != me.as_raw() && !me.is_root() {
            let why = "it belongs to another user, so --inplace cannot set its permissions and times";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let own = u64::from(inode_of(folder, &self.names.partial(name)) == Some(now.ino()));
        if now.nlink() > 1 + own && !(self.sees_all && self.use_in_place(now.dev(), now.ino())) {
            return Ok(None);
        }
        Ok(Some(file))
    }

    /// Opens the file that is to be written to in place, as far as its kind and the options tell. A file in which an earlier
    /// attempt of this command was interrupted is written to again, also without `--inplace`: its other names show it, too.
    fn target_in_place(&self, item: &FileItem, folder: &OwnedFd, name: &Name) -> io::Result<Option<File>> {
        // What comes from standard input comes once.
        if !item.has_size() {
            return Ok(None);
        }
        let own = at::part(name.last());
        let there = at::look(folder, own);
        let is_wanted = |inode| self.options.inplace || self.was_begun_in_place(name, inode);
        if !there.is_ok_and(|stat| at::kind(&stat) == SFlag::S_IFREG && is_wanted(stat.st_ino)) {
            return Ok(None);
        }
        let file = File::from(at::open_part(folder, own, OFlag::O_RDWR | OFlag::O_NONBLOCK)?);
        let now = file.metadata()?;
        // Most likely it is the source itself, which is not to be emptied.
        let is_source = metadata::is_time(metadata::ctime(&now), item.changed) && now.len() == item.size;
        Ok(Some(file).filter(|_| now.is_file() && !is_source))
    }

    /// Takes note of a file with several names whose content is one of this copy's. Returns whether it was not one before.
    pub(super) fn use_in_place(&self, device: u64, inode: u64) -> bool {
        lock(&self.in_place).insert((device, inode))
    }

    /// Whether the partial file of a file may have other names: it is that file itself, which is written to in place.
    pub(super) fn is_partial_in_place(&self, folder: &OwnedFd, name: &Name) -> bool {
        let begun = |inode| self.was_begun_in_place(name, inode);
        self.options.inplace || inode_of(folder, &self.names.partial(name)).is_some_and(begun)
    }

    /// Whether the journal says that an earlier attempt wrote to a file in place.
    fn was_begun_in_place(&self, name: &Name, inode: u64) -> bool {
        let number = self.names.partial_number(name);
        lock(&self.resume).in_place.get(&(name.key(), inode)).is_some_and(|partials| partials.contains(&number))
    }

    /// Whether an earlier attempt has begun another file beside the one that `--inplace` is to write to. That one takes room, and
    /// is not continued.
    pub(super) fn is_begun_beside(&self, item: &FileItem, folder: &OwnedFd, name: &Name) -> bool {
        let Ok(Some(file)) = self.target_in_place(item, folder, name) else { return false };
        let Ok(now) = file.metadata() else { return false };
        let is_used = || lock(&self.in_place).contains(&(now.dev(), now.ino()));
        let may_be_used = now.nlink() == 1 || self.sees_all && !is_used();
        may_be_used && inode_of(folder, &self.names.partial(name)).is_some_and(|partial| partial != now.ino())
    }

    /// Whether a file with several names is one in which an interrupted copy has written in place, of whatever command.
    pub(super) fn is_unfinished(&self, name: &Name, inode: u64) -> io::Result<bool> {
        let folder = name.parent();
        let mut known = lock(&self.unfinished);
        let files = match known.take().filter(|known| known.is_of(folder.as_ref())) {
            Some(files) => files,
            None => UnfinishedFiles::in_folder(folder.clone(), self.root.folder(folder.as_ref())?)?,
        };
        Ok(known.insert(files).has(inode))
    }

    /// Takes the names of partial files from a file that is whole.
    pub(super) fn unmark(&self, folder: impl AsFd, name: &Name, inode: u64) -> io::Result<()> {
        let mut partials = lock(&self.resume).in_place.get(&(name.key(), inode)).cloned().unwrap_or_default();
        partials.push(self.names.partial_number(name));
        for partial in partials.into_iter().map(|number| scratch(number, "partial")) {
            if inode_of(&folder, &partial) == Some(inode) {
                publish::remove(&folder, &partial)?;
            }
        }
        Ok(())
    }

    /// Keeps the second name of an unfinished file where a new file is to be begun under it: gives it another number. Without it,
    /// nothing would tell that the file is unfinished if the new one does not become whole.
    pub(super) fn keep_mark(&self, folder: &OwnedFd, name: &Name) -> io::Result<()> {
        let partial = self.names.partial(name);
        let Some(inode) = inode_of(folder, &partial) else { return Ok(()) };
        if inode_of(folder, at::part(name.last())) != Some(inode) {
            return Ok(());
        }
        let number = rand::random();
        let record = Record::BegunInPlace { name: name.clone(), partial: number, inode };
        lock(&self.journal).add(&record)?;
        lock(&self.resume).take(record);
        Ok(nix::fcntl::renameat(folder, &partial, folder, &scratch(number, "partial"))?)
    }
}

/// Empties a file that has its second name. Returns `None` if the two names do not show one inode number, as on an overlay of two
/// file systems and over sshfs: nothing would tell later that they are names of one file, so another file has to take its place.
fn begun(file: File, folder: &OwnedFd, partial: PathBuf, item: &FileItem) -> io::Result<Option<(File, PathBuf)>> {
    if inode_of(folder, &partial) != Some(file.metadata()?.ino()) {
        publish::remove(folder, &partial)?;
        return Ok(None);
    }
    empty(&file, item)?;
    Ok(Some((file, partial)))
}

/// Removes the content of a file that has its second name.
fn empty(file: &File, item: &FileItem) -> io::Result<()> {
    // Nobody is to read the new content who could not read the source. What others may write to could not be resumed.
    let now = file.metadata()?.mode();
    let (before, kept) = (now & 0o7777, now & (item.meta.mode & 0o755 | 0o600));
    if kept != before {
        nix::sys::stat::fchmod(file, Mode::from_bits_truncate(kept))?;
    }
    file.set_len(0)
}

fn no_second_name(error: io::Error) -> io::Error {
    if Lack::of(&error).is_some() {
        return error;
    }
    io::Error::new(error.kind(), format!("--inplace needs a hard link beside it ({error})"))
}

fn inode_of(folder: impl AsFd, name: &Path) -> Option<u64> {
    at::look(folder, name).ok().map(|stat| stat.st_ino)
}
