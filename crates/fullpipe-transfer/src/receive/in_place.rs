//! Writes into a file that the destination has, with `--inplace`, instead of into another one that takes its place.
//!
//! The file gets a second name, that of a partial file (a hard link): journal, resuming and the end of a copy treat it as one.
//! Its own name stays, so whoever opens the file under that name sees what has been written so far.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, SFlag};

use super::journal::Record;
use super::receiver::Receiver;
use crate::fs::{at, ownership, publish};
use crate::protocol::file::FileItem;
use crate::protocol::name::{self, Name};
use crate::threads::lock;

impl Receiver {
    /// Opens the file that stands under an offered file's name, to write into it. Its content is gone then. Returns `None` if
    /// another file has to take the name: nothing stands there, or no regular file, or the source, or one with several names to
    /// which another content has been written.
    ///
    /// # Errors
    /// The file may not be written to.
    pub(super) fn empty_in_place(&self, item: &FileItem, folder: &OwnedFd, name: &Name) -> io::Result<Option<File>> {
        let file = self.find_in_place(item, folder, name)?;
        file.map(|file| file.set_len(0).map(|()| file)).transpose()
    }

    /// As [`Receiver::empty_in_place`], for a large file, which gets the name of a partial file too. Returns that name.
    pub(super) fn begin_in_place(
        &self,
        item: &FileItem,
        folder: &OwnedFd,
        name: &Name,
    ) -> io::Result<Option<(File, PathBuf)>> {
        let Some(file) = self.find_in_place(item, folder, name)? else { return Ok(None) };
        let link = |partial: &Path| {
            let number = name::partial_number(partial).unwrap_or_else(|| self.names.partial_number(name));
            lock(&self.journal).add(&Record::Begun { name: name.clone(), partial: number })?;
            publish::link(&file, folder, partial)
        };
        let ((), partial) = ownership::fresh(folder, self.names.partial(name), link)
            .map_err(|e| io::Error::new(e.kind(), format!("--inplace needs a hard link beside it ({e})")))?;
        file.set_len(0)?;
        Ok(Some((file, partial)))
    }

    fn find_in_place(&self, item: &FileItem, folder: &OwnedFd, name: &Name) -> io::Result<Option<File>> {
        // What comes from standard input comes once.
        if !self.options.inplace || !item.has_size() {
            return Ok(None);
        }
        let own = at::part(name.last());
        if !at::look(folder, own).is_ok_and(|stat| at::kind(&stat) == SFlag::S_IFREG) {
            return Ok(None);
        }
        let file = File::from(at::open_part(folder, own, OFlag::O_RDWR | OFlag::O_NONBLOCK)?);
        let now = file.metadata()?;
        if !now.is_file() {
            return Ok(None);
        }
        if (now.ctime(), now.ctime_nsec() as u32) == item.changed && now.len() == item.size {
            // Most likely it is the source itself, which is not to be emptied.
            return Ok(None);
        }
        let me = nix::unistd::geteuid();
        if now.uid() != me.as_raw() && !me.is_root() {
            let why = "it belongs to another user, so --inplace cannot set its permissions and times";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        if now.nlink() > 1 && !(self.sees_all && self.use_in_place(now.dev(), now.ino())) {
            return Ok(None);
        }
        // Nobody is to read the new content who could not read the source.
        let (before, kept) = (now.mode() & 0o7777, now.mode() & (item.meta.mode & 0o777 | 0o600));
        if kept != before {
            nix::sys::stat::fchmod(&file, Mode::from_bits_truncate(kept))?;
        }
        Ok(Some(file))
    }

    /// Takes note of a file with several names whose content is one of this copy's. Returns whether it was not one before.
    pub(super) fn use_in_place(&self, device: u64, inode: u64) -> bool {
        lock(&self.in_place).insert((device, inode))
    }
}
