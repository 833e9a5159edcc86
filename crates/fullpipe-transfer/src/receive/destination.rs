//! Where a transfer writes, found and locked before anything is sent.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nix::fcntl::{Flock, FlockArg, OFlag};

use crate::error::{TransferError, local};
use crate::files::{self, Root};
use crate::journal::{Journal, Past};

/// Where to write, found and locked before anything is sent. One that is not used leaves nothing behind.
pub struct Destination(pub(super) Option<Parts>);

pub(super) struct Parts {
    pub(super) root: Root,
    /// The name of the one thing that comes, if another than at its source.
    pub(super) rename: Option<Vec<u8>>,
    pub(super) journal: Journal,
    pub(super) journal_name: PathBuf,
    pub(super) past: Past,
    pub(super) transfer: u64,
    pub(super) lock: Flock<File>,
}

impl Destination {
    /// Takes a folder; `rename` is what the top of what comes is called there.
    ///
    /// # Errors
    /// It cannot be written to, or another transfer of the same kind does.
    pub fn open(root: Root, rename: Option<Vec<u8>>, transfer: u64, shown: &str) -> Result<Destination, TransferError> {
        let journal_name = PathBuf::from(format!(".fullpipe.{transfer:016x}.journal"));
        let how = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW;
        let file = root.open_at(&journal_name, how, 0o600).map(File::from);
        let file = file.map_err(local(format!("cannot write to {shown}")))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock);
        let lock = lock.map_err(|_| TransferError::Busy(shown.to_owned()))?;
        // The one that held it has finished and removed it: this is nobody's any more.
        if lock.metadata().is_ok_and(|file| file.nlink() == 0) {
            return Err(TransferError::Busy(shown.to_owned()));
        }
        let kept = lock.try_clone().map_err(local("opening the journal"))?;
        let (journal, past) = Journal::open(kept).map_err(local("reading the journal"))?;
        Ok(Destination(Some(Parts { root, rename, journal, journal_name, past, transfer, lock })))
    }

    /// Whether an earlier attempt has left something.
    pub fn has_past(&self) -> bool {
        self.0.as_ref().is_some_and(|parts| !parts.past.is_empty())
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        if let Some(parts) = self.0.take().filter(|parts| parts.journal.is_empty()) {
            let _ = files::remove(parts.root.as_fd(), &parts.journal_name);
        }
    }
}
