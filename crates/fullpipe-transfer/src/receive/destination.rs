//! Where a transfer writes, found and locked before anything is sent.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use rand::RngExt;

use crate::error::{TransferError, local};
use crate::fs::ownership::{self, Trust};
use crate::fs::root::Root;
use crate::fs::{at, publish};
use crate::protocol::digest::Key;
use crate::protocol::message::{Target, Terms};
use crate::protocol::name::{journal_number, scratch};
use crate::receive::journal::{Journal, ResumeState};
use crate::source::glob::Part;

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
    pub(super) past: ResumeState,
    /// Number in the names of the transfer's own files here: the transfer's, unless somebody else has taken those names.
    pub(super) number: u64,
    /// Files under the transfer's own names that are not this user's, and why they do not count.
    pub(super) distrusted: Vec<String>,
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

/// Name of the file that asks the holder of a destination to let go: in it is the number of the process that has come again.
pub(super) fn request(number: u64) -> PathBuf {
    scratch(number, "next")
}

/// Name of the file that tells the same command what has been finished there.
fn journal(number: u64) -> PathBuf {
    scratch(number, "journal")
}

/// What is in a destination before the transfer begins.
struct Survey {
    /// Number in the name of the transfer's journal, if there is one that can be believed.
    ours: Option<u64>,
    /// Journals of this user's other copies that nobody holds, as far as a glance tells.
    unfinished: u64,
}

impl Survey {
    fn of(root: &Root, transfer: u64) -> Survey {
        let mut survey = Survey { ours: None, unfinished: 0 };
        let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let Ok(entries) = root.open_at(Path::new("."), how, 0).and_then(|fd| Ok(Dir::from_fd(fd)?)) else {
            return survey;
        };
        for entry in entries.into_iter().take(GLANCE).map_while(Result::ok) {
            let name = entry.file_name().to_bytes();
            let Some(number) = journal_number(name) else { continue };
            // Another user's is that user's to know of.
            let Ok(Trust::Trusted(file)) = ownership::open(root, at::part(name), OFlag::O_RDONLY) else { continue };
            // Where there are two, the one that has the transfer's own number: one of an earlier version, perhaps.
            if number == transfer || Journal::transfer(&file) == Some(transfer) {
                survey.ours = if survey.ours == Some(transfer) { survey.ours } else { Some(number) };
            } else if Flock::lock(file, FlockArg::LockSharedNonblock).is_ok() {
                survey.unfinished += 1;
            }
        }
        survey
    }
}

/// The journal of a transfer as it stands in a folder, made where there is none; and the number in its name. What stands under
/// its name and cannot be believed is told to `distrusted`, and another name serves.
fn find(root: &Root, transfer: u64, found: Option<u64>, distrusted: &mut Vec<String>) -> std::io::Result<(File, u64)> {
    let mut number = found.unwrap_or(transfer);
    loop {
        match ownership::open(root, &journal(number), OFlag::O_RDWR)? {
            Trust::Trusted(file) => return Ok((file, number)),
            Trust::Missing => match ownership::create(root, &journal(number)) {
                // Another process was faster, or has removed it meanwhile.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => return made.map(|file| (file, number)),
            },
            Trust::Distrusted(why) => {
                let text = format!("{}: {why}", journal(number).display());
                if !distrusted.contains(&text) {
                    distrusted.push(text);
                }
                number = rand::rng().random();
            }
        }
    }
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
        let failed = || local(format!("cannot write to {shown}"));
        let begin = Instant::now();
        let mut distrusted = Vec::new();
        let survey = Survey::of(&root, transfer);
        // The number in its name, once it is known whose it is.
        let mut known = survey.ours;
        let mut asked = None;
        let lock = loop {
            let (file, number) = find(&root, transfer, known, &mut distrusted).map_err(failed())?;
            known = Some(number);
            let unlocked = || local(format!("cannot lock the journal in {shown}"));
            let holder = match lock(file).map_err(unlocked())? {
                Lock::Ours(lock) => break lock,
                Lock::Theirs(holder) => holder,
            };
            if holder == Some(process) && asked.is_none() {
                let ask = |name: &Path| ownership::create(&root, name);
                let (file, name) = ownership::fresh(&root, request(number), ask).map_err(failed())?;
                file.write_all_at(&process.to_le_bytes(), 0).map_err(failed())?;
                asked = Some(name);
            }
            if gone() || begin.elapsed() > if asked.is_some() { MINE } else { PATIENCE } {
                if let Some(name) = asked {
                    let _ = publish::remove(&root, &name);
                }
                return Err(TransferError::Busy(shown.to_owned()));
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        if let Some(name) = asked {
            publish::remove(&root, &name).map_err(failed())?;
        }
        let number = known.unwrap_or(transfer);
        let journal_name = journal(number);
        let kept = lock.try_clone().map_err(local("opening the journal"))?;
        let (journal, past) = Journal::open(kept, transfer, process).map_err(|e| {
            // Where there is no room to begin it, nothing is left behind that says that it was.
            if lock.metadata().is_ok_and(|it| it.len() == 0) {
                let _ = publish::remove(&root, &journal_name);
            }
            local(format!("cannot keep a journal in {shown}"))(e)
        })?;
        Ok(Destination(Some(Parts {
            unfinished: survey.unfinished,
            distrusted,
            root,
            rename,
            only: None,
            journal,
            tags: Key::random(),
            journal_name,
            past,
            number,
            process,
            lock,
            near: false,
        })))
    }

    /// Whether an earlier attempt of a transfer wrote to this folder, and did not finish.
    pub(crate) fn begun(folder: &Root, transfer: u64) -> bool {
        match ownership::open(folder, &journal(transfer), OFlag::O_RDONLY) {
            Ok(Trust::Trusted(_)) => true,
            Ok(Trust::Missing) | Err(_) => false,
            Ok(Trust::Distrusted(_)) => Survey::of(folder, transfer).ours.is_some(),
        }
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
            let _ = publish::remove(parts.root.as_fd(), &parts.journal_name);
        }
    }
}

/// Whether what comes is called otherwise here, and is a folder by now. Only a journal tells then that the same command
/// means this name, and not a place in that folder.
pub(super) fn renamed_folder(root: &Root, rename: Option<&[u8]>) -> bool {
    let how = OFlag::O_PATH | OFlag::O_DIRECTORY;
    rename.is_some_and(|name| root.open_at(at::part(name), how, 0).is_ok())
}
