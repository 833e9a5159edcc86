//! Makes folders and symbolic links, and gives folders their permissions and times when everything is in them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use nix::fcntl::OFlag;

use super::journal::Record;
use super::receiver::Receiver;
use crate::error::{TransferError, is_gone, local, why};
use crate::fs::metadata::{Attributes, Unset};
use crate::fs::{at, metadata, ownership, publish};
use crate::protocol::file::{Meta, link_key};
use crate::protocol::message::Message;
use crate::protocol::name::{Name, printable};
use crate::protocol::skipped::SkippedEntry;
use crate::threads::lock;

impl Receiver {
    /// Makes a folder. Its permissions and times are set at the end, when all is in it; the journal keeps them until then.
    pub(super) fn folder(&self, name: &Name, meta: Meta) -> Result<(), TransferError> {
        let mut unset = Unset::default();
        let made = self.names.final_name(name).and_then(|name| {
            let folder = self.root.folder(Some(&name))?;
            let kinds = Attributes::of(&self.options);
            if !kinds.is_none() {
                metadata::open_up(&folder)?;
            }
            let inode = nix::sys::stat::fstat(&folder)?.st_ino;
            metadata::set_xattrs(&File::from(folder), &meta, kinds, &mut unset).map(|()| inode)
        });
        self.not_kept(name, &unset);
        match made {
            Ok(inode) => {
                // Extended attributes are set already, and may be longer than a record of the journal.
                let meta = Meta { xattrs: Vec::new(), mode: unset.mode(meta.mode), ..meta };
                let record = Record::Folder { name: name.clone(), inode, meta };
                lock(&self.journal).add(&record).map_err(local("writing the journal"))
            }
            // This folder is all that the transfer copies, so nothing of it can be written.
            Err(e)
                if e.raw_os_error() == Some(libc::ENOTDIR)
                    && self.names.rename.is_some()
                    && name.parent().is_none() =>
            {
                let shown = printable(self.names.rename.as_deref().unwrap_or_default());
                Err(TransferError::Usage(format!("destination {shown}: a file stands where a folder is needed")))
            }
            Err(e) => self.skip(name.bytes(), &e),
        }
    }

    /// Makes a symbolic link, or skips it; one with the same target stays if files that are the same stay. With the target comes
    /// the time of the source's last change.
    pub(super) fn link(
        &self,
        name: &Name,
        (target, changed): (&[u8], (i64, u32)),
        meta: &Meta,
    ) -> Result<(), TransferError> {
        if self.options.keeps_same()
            && let Some(is_copy) = self.same_link(name, target, changed)
        {
            if is_copy {
                self.link_named(name, link_key(name, target, changed));
            }
            return Ok(());
        }
        let make = || -> io::Result<Unset> {
            let name = self.names.final_name(name)?;
            let folder = self.parent(&name)?;
            self.keep_mark(&folder, &name)?;
            let make = |partial: &Path| Ok(nix::unistd::symlinkat(at::part(target), &folder, partial)?);
            let ((), partial) = ownership::fresh(&folder, self.names.partial(&name), make)?;
            let named = metadata::dress_link(&folder, &partial, meta)
                .and_then(|unset| publish::rename(&folder, &partial, at::part(name.last())).map(|()| unset));
            if named.is_err() {
                let _ = publish::remove(&folder, &partial);
            }
            named
        };
        match make() {
            Ok(unset) => {
                self.not_kept(name, &unset);
                self.counters.named(name);
                if self.options.keeps_same() {
                    self.session.send(&Message::Linked(name.clone()))?;
                }
                self.link_named(name, link_key(name, target, changed));
            }
            Err(e) => self.skip(name.bytes(), &e)?,
        }
        Ok(())
    }

    /// Whether the link with this target that is here is a copy, not the source itself on a file system that both ends see. `None` if
    /// no such link is here.
    fn same_link(&self, name: &Name, target: &[u8], changed: (i64, u32)) -> Option<bool> {
        let name = self.names.final_name(name).ok()?;
        let link = File::from(self.root.open_at(name.path(), OFlag::O_PATH | OFlag::O_NOFOLLOW, 0).ok()?);
        let now = link.metadata().ok()?;
        at::is_link_to(&link, target).then(|| !metadata::is_time(metadata::ctime(&now), changed))
    }

    /// Gives all folders the permissions and times of their sources.
    pub(super) fn dress_folders(&self) -> Result<(), TransferError> {
        let complete = self.is_complete();
        let journal =
            if self.options.fsync { Some(self.journal_file().map_err(local("opening the journal"))?) } else { None };
        // Sorted by name, so that a folder comes after the one that it lies in.
        let mut closed = BTreeMap::new();
        // One entry for each folder, however many attempts have seen it.
        let mut failed = BTreeMap::new();
        let mut dress = |name: Name, inode: u64, meta: &Meta, now: bool| {
            self.session.moved(1);
            let done = self.names.final_name(&name).and_then(|name| {
                let folder = self.root.enter(name.path())?;
                if nix::sys::stat::fstat(&folder)?.st_ino != inode {
                    // Another user may have put it there, and must not get these permissions for it.
                    return Err(io::Error::new(io::ErrorKind::NotFound, "another folder took its place meanwhile"));
                }
                metadata::dress_folder(folder, meta, self.options.special, journal.as_ref())
            });
            let done = done.map(|unset| self.not_kept(&name, &unset));
            match done {
                Err(e) if now || !is_gone(&e) => drop(failed.insert(name.bytes().to_vec(), e)),
                _ => drop(failed.remove(name.bytes())),
            }
        };
        let mut each = |record, now: bool| match record {
            // A folder that its owner may not enter must wait until all folders below it are done.
            Record::Folder { name, inode, meta } if meta.mode & 0o700 == 0o700 => {
                closed.remove(name.bytes());
                dress(name, inode, &meta, now);
            }
            Record::Folder { name, inode, meta } => {
                closed.insert(name.bytes().to_vec(), (name, inode, meta, now));
            }
            _ => {}
        };
        // The journal's lock is not held while records are read: this may take long, and progress must be reported.
        let reader = || lock(&self.journal).reader().map_err(local("reading the journal"));
        // When the copy is complete, folders of earlier attempts get their permissions too, even if they are no longer
        // part of the source. This attempt has added those that are.
        if complete {
            reader()?.of_earlier_attempts(|record| each(record, false)).map_err(local("reading the journal"))?;
        }
        reader()?.of_this_attempt(|record| each(record, true)).map_err(local("reading the journal"))?;
        for (name, inode, meta, now) in closed.into_values().rev() {
            dress(name, inode, &meta, now);
        }
        failed.into_iter().try_for_each(|(name, e)| {
            if e.raw_os_error() != Some(libc::EPERM) {
                return self.skip(&name, &e);
            }
            // The file system may refuse, as for an immutable folder: the content has arrived.
            let why = format!("its permissions and times cannot be set: {}", why(&e));
            lock(&self.summary).skipped.add(SkippedEntry::for_good(name, why));
            Ok(())
        })
    }
}
