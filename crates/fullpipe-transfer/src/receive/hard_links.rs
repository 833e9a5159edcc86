//! Makes hard links once the files that they link to have their names.

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;

use nix::fcntl::OFlag;

use super::journal::Record;
use super::receiver::Receiver;
use crate::error::{TransferError, local};
use crate::fs::ownership::NewFileOwner;
use crate::fs::{at, metadata};
use crate::protocol::file::FileItem;
use crate::protocol::name::Name;
use crate::threads::lock;

impl Receiver {
    /// Takes in a hard link, which is made at the end. The journal keeps it until then.
    pub(super) fn hard_link(&self, item: FileItem, to: Name) -> Result<(), TransferError> {
        let size = item.size;
        let record = Record::HardLink { name: item.name, to, size, mtime: item.meta.mtime, uid: item.meta.uid };
        lock(&self.journal).add(&record).map_err(local("writing the journal"))
    }

    /// Makes the hard links of this attempt.
    pub(super) fn make_hard_links(&self) -> Result<(), TransferError> {
        if !self.options.hard_links {
            return Ok(());
        }
        let mut result = Ok(());
        let reader = lock(&self.journal).reader().map_err(local("reading the journal"))?;
        let owner = NewFileOwner::default();
        let each = |record| {
            if let Record::HardLink { name, to, size, mtime, uid } = record
                && result.is_ok()
            {
                self.session.moved(1);
                match self.make_hard_link(&name, &to, (size, mtime, uid), &owner) {
                    Ok(()) => {
                        lock(&self.summary).files += 1;
                        self.counters.done_files.fetch_add(1, Ordering::Relaxed);
                        self.counters.named(&name);
                    }
                    Err(e) => result = self.skip(name.bytes(), &e),
                }
            }
        };
        reader.of_this_attempt(each).map_err(local("reading the journal"))?;
        result
    }

    /// Makes a hard link to a file of the copy. In a folder that others may write to, another user may have put a file of
    /// their own there, or a link: so the file must have the size and time that were sent, and belong to this user or to the
    /// source's owner. It is linked by its descriptor, so that nothing can take its place.
    fn make_hard_link(
        &self,
        name: &Name,
        to: &Name,
        sent: (u64, (i64, u32), u32),
        owner: &NewFileOwner,
    ) -> io::Result<()> {
        let (size, mtime, uid) = sent;
        let (name, to) = (self.names.final_name(name)?, self.names.final_name(to)?);
        let missing = |_| io::Error::other("the file that it is a hard link to was not copied");
        let file = File::from(self.root.open_at(to.path(), OFlag::O_PATH | OFlag::O_NOFOLLOW, 0).map_err(missing)?);
        let stat = nix::sys::stat::fstat(&file)?;
        let is_ours = stat.st_uid == uid || owner.is(&self.root, stat.st_uid)?;
        if !file.metadata()?.is_file() || !metadata::unchanged(&file, size, mtime)? || !is_ours {
            return Err(io::Error::other("the file that it is a hard link to is another one at the destination"));
        }
        let folder = self.parent(&name)?;
        let there = at::look(&folder, at::part(name.last()));
        if there.is_ok_and(|there| (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino)) {
            return Ok(());
        }
        self.journal_synced.wait();
        self.link_nameless(&file, &folder, &name).map_err(|e| match e.raw_os_error() {
            Some(libc::EXDEV) => io::Error::other("the file that it is a hard link to is on another file system"),
            _ => e,
        })?;
        if self.options.fsync { metadata::sync_folder(&folder, self.journal_file()?) } else { Ok(()) }
    }
}
