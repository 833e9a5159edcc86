//! Tells what a copy would do at its destination, and changes nothing there.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::fcntl::OFlag;

use super::delete::{Deleter, Progress, Rules};
use super::destination_names::DestinationNames;
use crate::error::{TransferError, is_gone};
use crate::fs::root::Root;
use crate::fs::{at, content_hash, metadata};
use crate::protocol::candidate::{Candidate, Change, Kind};
use crate::protocol::message::{Deleted, Listing, Options};
use crate::protocol::name::Name;
use crate::receive::unfinished::UnfinishedFiles;

/// The files of the last folder in which an interrupted copy has written in place.
#[derive(Default)]
struct UnfinishedFolder(Option<UnfinishedFiles>);

impl UnfinishedFolder {
    /// Whether a file is one of them. It is not if its folder cannot be read.
    fn has(&mut self, root: &Root, name: &Name, inode: u64) -> bool {
        let folder = name.parent();
        let path = folder.as_ref().map_or_else(|| Path::new("."), Name::path);
        if !self.0.as_ref().is_some_and(|known| known.is_of(folder.as_ref())) {
            let opened = root.open_at(path, OFlag::O_PATH | OFlag::O_DIRECTORY, 0);
            self.0 = opened.and_then(|fd| UnfinishedFiles::in_folder(folder.clone(), fd)).ok();
        }
        self.0.as_ref().is_some_and(|known| known.has(inode))
    }
}

/// Tells what a copy would do at its destination.
pub(crate) struct DryRun {
    /// The folder of the destination, and how the transfer would name files there; `None` if it does not exist.
    to: Option<(Root, DestinationNames)>,
    /// Which entries may be deleted, if any.
    rules: Option<Rules>,
    options: Options,
    /// Whether who asks may not know what is there.
    blind: bool,
    progress: Progress,
    unfinished: UnfinishedFolder,
}

impl DryRun {
    /// Prepares for a folder, if it exists, with the name that the one source gets there, if that is another name.
    pub(crate) fn new(
        to: Option<(Root, Option<Vec<u8>>)>,
        rules: Option<Rules>,
        transfer: u64,
        options: Options,
    ) -> DryRun {
        let to =
            to.map(|(root, rename)| (root, DestinationNames { rename, exact: false, only: None, number: transfer }));
        let (progress, unfinished) = (Progress::default(), UnfinishedFolder::default());
        DryRun { to, rules, options, blind: false, progress, unfinished }
    }

    /// For those who may not know what is there.
    pub(crate) fn blind(options: Options) -> DryRun {
        let (progress, unfinished) = (Progress::default(), UnfinishedFolder::default());
        DryRun { to: None, rules: None, options, blind: true, progress, unfinished }
    }

    /// Whether it tells what would be deleted.
    pub(crate) fn deletes(&self) -> bool {
        self.rules.is_some()
    }

    /// What a copy would do with a file or link. Calls `read` after each piece of a file whose content is compared. Partial files,
    /// of which a copy takes the blocks that are there, are not looked up.
    pub(crate) fn compare(&mut self, candidate: &Candidate, read: &mut dyn FnMut()) -> Change {
        if self.blind {
            return Change::Unknown;
        }
        let Some((root, names)) = &self.to else { return Change::New };
        // What may not be copied under its name is told by the copy.
        let Ok(name) = names.final_name(&candidate.name) else { return Change::New };
        let entry = match root.open_at(name.path(), OFlag::O_PATH | OFlag::O_NOFOLLOW, 0) {
            Ok(entry) => File::from(entry),
            // A file, or a link, stands where a folder is to be.
            Err(e) if is_gone(&e) && e.kind() != ErrorKind::NotFound => return Change::Blocked,
            Err(e) if is_gone(&e) => return Change::New,
            Err(_) => return Change::Unknown,
        };
        let Ok(now) = entry.metadata() else { return Change::Unknown };
        if !now.is_file() && !now.is_symlink() {
            return Change::Blocked;
        }
        // What an interrupted copy has written to in place is newer than its source, and may have its size and time.
        if !self.options.checksum && now.nlink() > 1 && self.unfinished.has(root, &name, now.ino()) {
            return Change::Replaced;
        }
        let keeps_same = self.options.keeps_same();
        let is_same = match &candidate.kind {
            Kind::Link { target } => keeps_same && at::is_link_to(&entry, target),
            Kind::File { .. } if !now.is_file() => false,
            Kind::File { size, mtime, .. }
                if self.options.update && !self.options.replace_newer && metadata::mtime(&now) > *mtime =>
            {
                return if now.len() == *size { Change::Present } else { Change::Newer };
            }
            Kind::File { size, content, .. } if self.options.checksum => {
                let mut hash = || {
                    let file = root.open_at(name.path(), OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK, 0);
                    file.and_then(|file| content_hash::of(&File::from(file), &mut |_| read())).ok()
                };
                now.len() == *size && content.is_some() && hash() == *content
            }
            Kind::File { size, mtime, .. } => keeps_same && metadata::unchanged(&entry, *size, *mtime).unwrap_or(false),
        };
        if is_same { Change::Present } else { Change::Replaced }
    }

    /// Takes in names of a folder. Returns what would be deleted in it, once all of its names have come.
    ///
    /// # Errors
    /// Those of [`Deleter::take`].
    pub(crate) fn take(&mut self, listing: Listing, goes_on: &dyn Fn() -> bool) -> Result<Vec<Name>, TransferError> {
        let (Some((root, names)), Some(rules)) = (&self.to, &self.rules) else { return Ok(Vec::new()) };
        Deleter { root, names, rules, dry: true, goes_on }.take(listing, &mut self.progress)
    }

    /// What would be deleted in all folders.
    pub(crate) fn deleted(self) -> Deleted {
        self.progress.deleted
    }
}
