//! Small files: they arrive whole, many in a pack, and each is written and named at once.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::Ordering;

use super::receiver::Receiver;
use crate::error::{TransferError, local};
use crate::fs::write_back::WriteBack;
use crate::fs::{metadata, ownership, publish, sparse};
use crate::protocol::file::FileItem;
use crate::protocol::name::Name;
use crate::receive::journal::Record;
use crate::sizes::SMALL;
use crate::threads::lock;

/// The folder that a stream wrote its last small file to. The next one mostly lies in the same folder.
pub(super) struct Folder {
    pub(super) name: Option<Name>,
    pub(super) fd: OwnedFd,
    /// Whether new files in the folder get the folder's group (`inode(7)`, S_ISGID).
    pub(super) gives_group: bool,
    /// Permissions that were asked for when a file was last made here, and those that it got. The process's umask or an
    /// access control list of the folder may take some away, and does so from the next file too.
    pub(super) made: Option<(u32, u32)>,
}

impl Receiver {
    /// Writes a small file and gives it its name, or skips it.
    pub(super) fn small(
        &self,
        item: &FileItem,
        content: &[u8],
        last: &mut Option<Folder>,
    ) -> Result<(), TransferError> {
        match self.write_small(item, content, last) {
            Ok(()) => self.small_named(item, content),
            Err(e) => self.skip(item.name.bytes(), &e),
        }
    }

    /// Writes a small file into its folder, which is opened unless it is the same as for the file before.
    pub(super) fn write_small(&self, item: &FileItem, content: &[u8], last: &mut Option<Folder>) -> io::Result<()> {
        let name = self.names.final_name(&item.name)?;
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

    /// Writes a small file. Where the file system can, the file has no name until it is whole (O_TMPFILE): without a
    /// partial name, its folder changes once instead of twice, which halves the work.
    fn write_whole(&self, item: &FileItem, content: &[u8], folder: &mut Folder, name: &Name) -> io::Result<()> {
        if let Some((file, partial)) = self.begin_small_in_place(item, &folder.fd, name)? {
            file.write_all_at(content, 0)?;
            self.write_back.check(&file)?;
            let unset = metadata::dress(&file, &item.meta, self.of_file(), false, None)?;
            if self.options.fsync {
                file.sync_all()?;
            }
            self.journal_synced.wait();
            publish::remove(&folder.fd, &partial)?;
            self.unmark(&folder.fd, name, file.metadata()?.ino())?;
            self.not_kept(&item.name, &unset);
            return Ok(());
        }
        if self.nameless.load(Ordering::Relaxed) {
            let mode = metadata::first_mode(&item.meta);
            match publish::nameless(&folder.fd, mode) {
                Some(file) => {
                    sparse::write_new(&file, content, self.options.dense)?;
                    self.write_back.check(&file)?;
                    let now = match folder.made.filter(|(asked, _)| *asked == mode) {
                        Some((_, now)) => now,
                        None => folder.made.insert((mode, metadata::permissions(&file)?)).1,
                    };
                    let unset = metadata::dress(&file, &item.meta, self.of_file(), !folder.gives_group, Some(now))?;
                    if self.options.fsync {
                        file.sync_all()?;
                    }
                    self.journal_synced.wait();
                    self.link_nameless(&file, &folder.fd, name)?;
                    self.not_kept(&item.name, &unset);
                    return if self.options.fsync { metadata::sync_folder(&folder.fd, &file) } else { Ok(()) };
                }
                None => self.nameless.store(false, Ordering::Relaxed),
            }
        }
        self.keep_mark(&folder.fd, name)?;
        let create = |name: &Path| ownership::create(&folder.fd, name);
        let (file, partial) = ownership::fresh(&folder.fd, self.names.partial(name), create)?;
        let written = sparse::write_new(&file, content, self.options.dense);
        let written = written.and_then(|()| self.give_name(&file, &folder.fd, &partial, name, item));
        if written.is_err() {
            let _ = publish::remove(&folder.fd, &partial);
        }
        written
    }

    /// Whether files are on the destination's disk, or at its server, when they get their names.
    fn is_synced(&self) -> bool {
        self.options.fsync || self.write_back == WriteBack::AtSync
    }

    /// Counts a file that has its final name, and adds it to the journal.
    pub(super) fn done(&self, item: &FileItem) -> Result<(), TransferError> {
        lock(&self.journal)
            .add(&Record::Done { file: item.key(), synced: self.is_synced() })
            .map_err(local("writing the journal"))?;
        lock(&self.summary).files += 1;
        self.counters.done_files.fetch_add(1, Ordering::Relaxed);
        self.counters.named(&item.name);
        if item.size <= SMALL {
            self.counters.done_bytes.fetch_add(item.size, Ordering::Relaxed);
        }
        self.complete(&item.name, item.key())
    }
}
