//! Gives whole files, small and large, their final names: what is synced first, what must be in the journal before, and
//! what happens where the name is taken. The calls themselves are in `fs/publish.rs`.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use super::receiver::Receiver;
use crate::fs::metadata::{self, Unset};
use crate::fs::{at, ownership, publish};
use crate::protocol::file::FileItem;
use crate::protocol::name::Name;

impl Receiver {
    /// Checks whether a file may take a name ([`publish::may_take`], [`publish::may_replace_link`]).
    ///
    /// # Errors
    /// Something stands there that a file must not replace.
    pub(super) fn may_take(&self, folder: &OwnedFd, name: &Path) -> io::Result<()> {
        let is_link = publish::may_take(folder, name)?;
        if is_link && self.sees_all { publish::may_replace_link(folder, name) } else { Ok(()) }
    }

    /// Gives a file without a name its final name. If another file has that name, this one gets a partial name first and
    /// is renamed over the other.
    pub(super) fn link_nameless(&self, file: &File, folder: &OwnedFd, name: &Name) -> io::Result<()> {
        match publish::link(file, folder, at::part(name.last())) {
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => {}
            other => return other,
        }
        self.may_take(folder, at::part(name.last()))?;
        self.keep_mark(folder, name)?;
        let link = |other: &Path| publish::link(file, folder, other);
        let ((), other) = ownership::fresh(folder, self.names.partial(name), link)?;
        let renamed = publish::rename(folder, &other, at::part(name.last()));
        if renamed.is_err() {
            let _ = publish::remove(folder, &other);
        }
        renamed
    }

    /// Gives a whole file the permissions, owner and times of its source, and then its final name.
    pub(super) fn give_name(
        &self,
        file: &File,
        folder: &OwnedFd,
        partial: &Path,
        name: &Name,
        item: &FileItem,
    ) -> io::Result<()> {
        if self.options.fsync {
            // The content first: with its final permissions, another attempt may not be able to open the file.
            file.sync_all()?;
        } else {
            self.write_back.check(file)?;
        }
        let unset = if item.has_size() {
            metadata::dress(file, &item.meta, self.of_file(), false, None)?
        } else {
            metadata::dress_as_new(file).map(|()| Unset::default())?
        };
        if self.options.fsync {
            file.sync_all()?;
        }
        self.journal_synced.wait();
        // Another user who may write to the folder may have replaced the partial file; so may a second copy of the same
        // files that found no journal.
        let now = nix::sys::stat::fstat(file)?;
        if now.st_ino != at::look(folder, partial)?.st_ino {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another file took its partial file's place"));
        }
        self.may_take(folder, at::part(name.last()))?;
        publish::rename(folder, partial, at::part(name.last()))?;
        if now.st_nlink > 1 {
            // Two names of one file both stay (rename(2)).
            publish::remove(folder, partial)?;
            self.unmark(folder, name, now.st_ino)?;
        }
        self.not_kept(&item.name, &unset);
        if self.options.fsync {
            metadata::sync_folder(folder, file)?;
        }
        Ok(())
    }
}
