//! Small files: whole packs in memory, each file written and named at once.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use super::receiver::Receiver;
use crate::error::{TransferError, local};
use crate::fs::metadata::{self, Special};
use crate::fs::{at, ownership, publish};
use crate::limits::SMALL;
use crate::protocol::file::{FileItem, Meta};
use crate::protocol::name::Name;
use crate::receive::journal::Record;
use crate::threads::lock;

/// A folder of small files.
pub(super) struct Folder {
    pub(super) name: Option<Name>,
    pub(super) fd: OwnedFd,
    /// Its files get its group (`inode(7)`, S_ISGID).
    pub(super) gives_group: bool,
    /// Permissions with which a file was made here, and those that it then had: the process's mask may have taken from
    /// them, or an access list of the folder's, as it will of the next.
    pub(super) made: Option<(u32, u32)>,
}

impl Receiver {
    pub(super) fn small(
        &self,
        item: &FileItem,
        content: &[u8],
        last: &mut Option<Folder>,
    ) -> Result<(), TransferError> {
        match self.write_small(item, content, last) {
            Ok(()) => self.small_named(item, content),
            Err(e) => self.leave(item.name.bytes(), &e),
        }
    }

    pub(super) fn write_small(&self, item: &FileItem, content: &[u8], last: &mut Option<Folder>) -> io::Result<()> {
        let name = self.named(&item.name)?;
        let mut folder = match last.take().filter(|folder| folder.name.as_ref().map(Name::bytes) == name.above()) {
            Some(known) => known,
            None => {
                let fd = self.parent(&name)?;
                let gives_group = nix::sys::stat::fstat(&fd)?.st_mode & libc::S_ISGID != 0;
                Folder { name: name.parent(), fd, gives_group, made: None }
            }
        };
        let written = self.write_whole(item, content, &mut folder, &name);
        *last = Some(folder);
        written
    }

    /// Writes a small file: without a name until it is whole where the file system can, since a name less is
    /// half the work for its folder.
    fn write_whole(&self, item: &FileItem, content: &[u8], folder: &mut Folder, name: &Name) -> io::Result<()> {
        if self.nameless.load(Ordering::Relaxed) {
            let mode = metadata::first_mode(&item.meta);
            match publish::nameless(&folder.fd, mode) {
                Some(file) => {
                    file.write_all_at(content, 0)?;
                    let now = match folder.made.filter(|(asked, _)| *asked == mode) {
                        Some((_, now)) => now,
                        None => folder.made.insert((mode, metadata::permissions(&file)?)).1,
                    };
                    let special = Special::of_file(self.options.special);
                    metadata::dress(&file, &item.meta, special, !folder.gives_group, Some(now))?;
                    if self.options.fsync {
                        file.sync_all()?;
                    }
                    self.journal_synced.wait();
                    self.link_nameless(&file, folder, name)?;
                    return if self.options.fsync { Ok(nix::unistd::fsync(&folder.fd)?) } else { Ok(()) };
                }
                None => self.nameless.store(false, Ordering::Relaxed),
            }
        }
        let create = |name: &Path| ownership::create(&folder.fd, name);
        let (file, partial) = ownership::fresh(&folder.fd, self.partial(name), create)?;
        let written = file.write_all_at(content, 0);
        let written = written.and_then(|()| self.name(&file, &folder.fd, &partial, name, &item.meta));
        if written.is_err() {
            let _ = publish::remove(&folder.fd, &partial);
        }
        written
    }

    /// Gives a nameless file its name. Where the name is taken, it takes it over by way of another.
    fn link_nameless(&self, file: &File, folder: &Folder, name: &Name) -> io::Result<()> {
        match publish::link(file, &folder.fd, at::part(name.last())) {
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => {}
            other => return other,
        }
        let link = |other: &Path| publish::link(file, &folder.fd, other);
        let ((), other) = ownership::fresh(&folder.fd, self.partial(name), link)?;
        let renamed = publish::rename(&folder.fd, &other, at::part(name.last()));
        if renamed.is_err() {
            let _ = publish::remove(&folder.fd, &other);
        }
        renamed
    }

    /// Gives a whole file what it had at its source, and its name.
    pub(super) fn name(
        &self,
        file: &File,
        folder: &OwnedFd,
        partial: &Path,
        name: &Name,
        meta: &Meta,
    ) -> io::Result<()> {
        if self.options.fsync {
            // Before it gets other permissions, with which another attempt could not go on in it.
            file.sync_all()?;
        }
        metadata::dress(file, meta, Special::of_file(self.options.special), false, None)?;
        if self.options.fsync {
            file.sync_all()?;
        }
        self.journal_synced.wait();
        // Whoever may write to the folder may have put another file there, or a second copy that found no journal.
        if nix::sys::stat::fstat(file)?.st_ino != at::look(folder, partial)?.st_ino {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another file took its partial file's place"));
        }
        publish::rename(folder, partial, at::part(name.last()))?;
        if self.options.fsync {
            nix::unistd::fsync(folder)?;
        }
        Ok(())
    }

    /// A file is under its name.
    pub(super) fn done(&self, item: &FileItem) -> Result<(), TransferError> {
        lock(&self.journal)
            .add(&Record::Done { file: item.key(), synced: self.options.fsync })
            .map_err(local("writing the journal"))?;
        lock(&self.summary).files += 1;
        self.counters.done_files.fetch_add(1, Ordering::Relaxed);
        self.counters.named(&item.name);
        if item.size <= SMALL {
            self.counters.done_bytes.fetch_add(item.size, Ordering::Relaxed);
        }
        Ok(())
    }
}
