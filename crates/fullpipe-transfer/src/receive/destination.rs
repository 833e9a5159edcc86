//! Where a transfer writes, found and locked before anything is sent.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};

use crate::digest::Key;
use crate::error::{TransferError, local};
use crate::files::{self, Root};
use crate::item::{is_journal, scratch};
use crate::journal::{Journal, Past};
use crate::pattern::Part;
use crate::proto::{Target, Terms};

/// Where to write, found and locked before anything is sent. One that is not used leaves nothing behind but a
/// folder that had to be made.
pub struct Destination(pub(super) Option<Parts>);

pub(super) struct Parts {
    pub(super) root: Root,
    /// The name of the one thing that comes, if another than at its source.
    pub(super) rename: Option<Vec<u8>>,
    /// What alone may come, at the top; anything if there is no list.
    pub(super) only: Option<Vec<Part>>,
    pub(super) journal: Journal,
    /// Key of the tags of this attempt's chunks.
    pub(super) tags: Key,
    pub(super) journal_name: PathBuf,
    pub(super) past: Past,
    pub(super) transfer: u64,
    pub(super) process: u64,
    pub(super) lock: Flock<File>,
    /// Copies of other commands that have left something here.
    pub(super) unfinished: u64,
    /// Whoever waits for the copy waits here, and not at the sender.
    pub(super) near: bool,
}

/// How long a destination that another process writes to is waited for: it may be about to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one is that this very process held before its connection broke. Its far end is asked to let go,
/// and looks for that whenever it tells how far it is.
const MINE: Duration = Duration::from_secs(20);
/// Names in a destination that are looked at for journals of others.
const GLANCE: usize = 1 << 16;

/// What asks the holder of a destination to let go: the number of the process that has come again.
pub(super) fn request(transfer: u64) -> PathBuf {
    scratch(transfer, "next")
}

/// What has been finished there, for the same command.
fn journal(transfer: u64) -> PathBuf {
    scratch(transfer, "journal")
}

/// Counts the journals of others that nobody holds, as far as a glance tells.
fn unfinished(root: &Root, ours: &Path) -> u64 {
    let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
    let Ok(entries) = root.open_at(Path::new("."), how, 0).and_then(|fd| Ok(Dir::from_fd(fd)?)) else { return 0 };
    let is_free = |name: &Path| {
        let how = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = root.open_at(name, how, 0).map(File::from);
        file.is_ok_and(|file| Flock::lock(file, FlockArg::LockSharedNonblock).is_ok())
    };
    let names = entries.into_iter().take(GLANCE).map_while(Result::ok).filter(|entry| {
        let name = entry.file_name().to_bytes();
        is_journal(name) && files::part(name) != ours && is_free(files::part(name))
    });
    names.count() as u64
}

/// Who has the lock.
enum Lock {
    /// This process, now.
    Ours(Flock<File>),
    /// Another; its number, as far as it can be read.
    Theirs(Option<u64>),
}

/// Takes the lock, if nobody else has it.
fn lock(file: File) -> std::io::Result<Lock> {
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        // The one that held it has finished and removed it: this is nobody's any more.
        Ok(lock) if lock.metadata()?.nlink() == 0 => Ok(Lock::Theirs(None)),
        Ok(lock) => Ok(Lock::Ours(lock)),
        Err((file, Errno::EWOULDBLOCK)) => Ok(Lock::Theirs(Journal::holder(&file))),
        Err((_, e)) => Err(e.into()),
    }
}

impl Destination {
    /// Takes a folder; `rename` is what the top of what comes is called there. `gone`: nobody waits for it
    /// any more.
    ///
    /// # Errors
    /// It cannot be written to, or another transfer of the same kind does.
    pub fn open(
        root: Root,
        rename: Option<Vec<u8>>,
        target: &Target,
        shown: &str,
        gone: &dyn Fn() -> bool,
    ) -> Result<Destination, TransferError> {
        let Target { transfer, process, .. } = *target;
        let journal_name = journal(transfer);
        let failed = || local(format!("cannot write to {shown}"));
        let begin = Instant::now();
        let mut asked = false;
        let lock = loop {
            let how = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW;
            let file = root.open_at(&journal_name, how, 0o600).map(File::from).map_err(failed())?;
            let unlocked = || local(format!("cannot lock the journal in {shown}"));
            let holder = match lock(file).map_err(unlocked())? {
                Lock::Ours(lock) => break lock,
                Lock::Theirs(holder) => holder,
            };
            if holder == Some(process) && !asked {
                let how = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_NOFOLLOW;
                let file = root.open_at(&request(transfer), how, 0o600).map(File::from).map_err(failed())?;
                file.write_all_at(&process.to_le_bytes(), 0).map_err(failed())?;
                asked = true;
            }
            if gone() || begin.elapsed() > if asked { MINE } else { PATIENCE } {
                if asked {
                    let _ = files::remove(&root, &request(transfer));
                }
                return Err(TransferError::Busy(shown.to_owned()));
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        if asked {
            files::remove(&root, &request(transfer)).map_err(failed())?;
        }
        let kept = lock.try_clone().map_err(local("opening the journal"))?;
        let (journal, past) = Journal::open(kept, process).map_err(|e| {
            // Where there is no room to begin it, nothing is left behind that says that it was.
            if lock.metadata().is_ok_and(|it| it.len() == 0) {
                let _ = files::remove(&root, &journal_name);
            }
            local(format!("cannot keep a journal in {shown}"))(e)
        })?;
        let unfinished = unfinished(&root, &journal_name);
        Ok(Destination(Some(Parts {
            unfinished,
            root,
            rename,
            only: None,
            journal,
            tags: Key::random(),
            journal_name,
            past,
            transfer,
            process,
            lock,
            near: false,
        })))
    }

    /// Whether an earlier attempt of a transfer wrote to this folder, and did not finish.
    pub(crate) fn begun(folder: &Root, transfer: u64) -> bool {
        folder.open_at(&journal(transfer), OFlag::O_PATH | OFlag::O_NOFOLLOW, 0).is_ok()
    }

    /// Takes nothing but these, at the top: a far end may be another than one takes it for.
    pub(crate) fn only(&mut self, names: Vec<Part>) {
        if let Some(parts) = &mut self.0 {
            parts.only = Some(names);
        }
    }

    /// Whoever waits for the copy waits here.
    pub(crate) fn near(&mut self) {
        if let Some(parts) = &mut self.0 {
            parts.near = true;
        }
    }

    /// What the sender is asked for.
    pub fn terms(&self) -> Option<Terms> {
        self.0.as_ref().map(|parts| Terms { offer: !parts.past.is_empty(), key: parts.journal.key(), tags: parts.tags })
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        // Partial files without a block go when an attempt that knows their names ends.
        let done = |parts: &Parts| {
            parts.journal.is_empty() && !parts.past.begun && !renamed_folder(&parts.root, parts.rename.as_deref())
        };
        if let Some(parts) = self.0.take().filter(done) {
            let _ = files::remove(parts.root.as_fd(), &parts.journal_name);
        }
    }
}

/// Whether what comes is called otherwise here, and is a folder by now. Only a journal tells then that the same command
/// means this name, and not a place in that folder.
pub(super) fn renamed_folder(root: &Root, rename: Option<&[u8]>) -> bool {
    let how = OFlag::O_PATH | OFlag::O_DIRECTORY;
    rename.is_some_and(|name| root.open_at(files::part(name), how, 0).is_ok())
}
