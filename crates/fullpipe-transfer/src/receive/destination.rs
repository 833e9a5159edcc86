//! The destination of a transfer: its folder, its journal and the lock on it, all taken before anything is sent.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::stat::UtimensatFlags;
use nix::sys::time::TimeSpec;
use rand::RngExt;

use crate::error::{TransferError, local};
use crate::fs::ownership::{self, NewFileOwner, Trust};
use crate::fs::root::Root;
use crate::fs::{at, publish};
use crate::protocol::changes::Resolved;
use crate::protocol::digest::Key;
use crate::protocol::message::{Target, Terms};
use crate::protocol::name::journal_number;
use crate::receive::delete::Rules;
use crate::receive::destination_names::{DestinationNames, journal, request};
use crate::receive::journal::{Journal, ResumeState};
use crate::source::glob::Part;

/// A destination folder that is open and locked. If it is dropped unused, nothing stays behind but a folder that had to
/// be made.
pub struct Destination(pub(super) Option<Parts>);

/// What a [`Destination`] hands to the receiver.
pub(super) struct Parts {
    /// The destination folder.
    pub(super) root: Root,
    /// How the transfer names files here.
    pub(super) names: DestinationNames,
    pub(super) journal: Journal,
    /// Key of the tags of this attempt's chunks.
    pub(super) tags: Key,
    /// What earlier attempts have finished.
    pub(super) resume: ResumeState,
    /// Files under the transfer's own names that another user may have written, and why each is ignored.
    pub(super) distrusted: Vec<String>,
    /// Number of the process that asks for the transfer.
    pub(super) process: u64,
    /// What may be deleted once everything has arrived.
    pub(super) rules: Option<Rules>,
    /// What is changed of the files' attributes.
    pub(super) changes: Resolved,
    /// The lock on the journal's file.
    pub(super) lock: Held,
    /// Number of other commands that were interrupted here and can be resumed.
    pub(super) unfinished: u64,
    /// The folder's time, to be kept if nothing else changes in it.
    pub(super) folder_time: Option<FolderTime>,
    /// Whether the person who waits for the copy waits at this end, not at the sender.
    pub(super) near: bool,
    /// Whether the receiver may look at what lies outside of the destination.
    pub(super) sees_all: bool,
}

/// How long to wait for a destination that another process writes to, since it may be about to end.
const BUSY_PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait for a destination that this same process held before its connection broke. The old receiver is asked
/// to release it, and looks for that request whenever it reports progress.
const OWN_PATIENCE: Duration = Duration::from_secs(20);
/// Most names in a destination that are searched for journals.
const MAX_SURVEYED_NAMES: usize = 1 << 16;

/// When a destination folder was last changed, before the journal was made in it. It is set again as soon as the journal is there:
/// whatever else changes the folder from then on shows, however coarse the clock of its file system is.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct FolderTime(TimeSpec);

impl FolderTime {
    fn of(folder: &Root) -> Option<FolderTime> {
        let stat = nix::sys::stat::fstat(folder).ok()?;
        Some(FolderTime(TimeSpec::new(stat.st_mtime, stat.st_mtime_nsec)))
    }

    /// Sets it again. Returns whether this user may.
    fn set(&self, folder: &Root) -> bool {
        let how = UtimensatFlags::NoFollowSymlink;
        nix::sys::stat::utimensat(folder, Path::new("."), &TimeSpec::UTIME_OMIT, &self.0, how).is_ok()
    }
}

/// Removes the transfer's own files from a folder with `remove`. If nothing else has changed there, the folder keeps its time.
pub(super) fn clear(folder: &Root, time: Option<FolderTime>, remove: impl FnOnce()) {
    let untouched = time.filter(|time| FolderTime::of(folder) == Some(*time));
    remove();
    // Only its owner may set it.
    untouched.map(|time| time.set(folder));
}

/// What is in a destination before the transfer begins.
struct Survey {
    /// Number in the name of the transfer's journal, if there is one that can be trusted.
    ours: Option<u64>,
    /// Number of journals of this user's other transfers that no process holds.
    unfinished: u64,
}

impl Survey {
    fn of(root: &Root, transfer: u64) -> Survey {
        let mut survey = Survey { ours: None, unfinished: 0 };
        let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let Ok(entries) = root.open_at(Path::new("."), how, 0).and_then(|fd| Ok(Dir::from_fd(fd)?)) else {
            return survey;
        };
        let owner = NewFileOwner::default();
        for entry in entries.into_iter().take(MAX_SURVEYED_NAMES).map_while(Result::ok) {
            let name = entry.file_name().to_bytes();
            let Some(number) = journal_number(name) else { continue };
            // Another user's journal is that user's business.
            let opened = ownership::open_one_of_many(root, at::part(name), OFlag::O_RDONLY, &owner);
            let Ok(Trust::Trusted(file)) = opened else { continue };
            // If there are two, the one under the transfer's own number counts; an earlier version of fullpipe may have
            // written the other.
            if Journal::transfer(&file) == Some(transfer) {
                survey.ours = if survey.ours == Some(transfer) { survey.ours } else { Some(number) };
            } else if number != transfer && Flock::lock(file, FlockArg::LockSharedNonblock).is_ok() {
                survey.unfinished += 1;
            }
        }
        survey
    }
}

/// Opens the journal of a transfer, or makes it, and returns it with the number in its name. If a file under that name
/// cannot be trusted, it is added to `distrusted`, and the journal gets another name.
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

/// A journal that no other process may write to as long as this exists.
pub(super) enum Held {
    Locked(Flock<File>),
    /// Its file system has no locks, as Lustre mounted with `noflock`, or NFSv3 without lockd. Nothing keeps others out.
    Unlocked(File),
}

impl std::ops::Deref for Held {
    type Target = File;

    fn deref(&self) -> &File {
        match self {
            Held::Locked(file) => file,
            Held::Unlocked(file) => file,
        }
    }
}

/// Who holds the lock on a journal.
enum Lock {
    /// This process, now.
    Ours(Held),
    /// Another process, with its number if that can be read.
    Theirs(Option<u64>),
}

/// Takes the lock on a journal, unless another process has it.
fn lock(file: File) -> std::io::Result<Lock> {
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        // The process that held it has finished and removed the file: this file is no journal any more.
        Ok(lock) if lock.metadata()?.nlink() == 0 => Ok(Lock::Theirs(None)),
        Ok(lock) => Ok(Lock::Ours(Held::Locked(lock))),
        Err((file, Errno::EWOULDBLOCK)) => Ok(Lock::Theirs(Journal::holder(&file))),
        Err((file, Errno::ENOSYS | Errno::ENOLCK | Errno::EOPNOTSUPP)) => Ok(Lock::Ours(Held::Unlocked(file))),
        Err((_, e)) => Err(e.into()),
    }
}

/// Says that a destination cannot be written to. Where it is a file, what counts is its folder.
pub(crate) fn cannot_write(shown: &str, is_file: bool) -> String {
    if is_file { format!("cannot write to the folder of {shown}") } else { format!("cannot write to {shown}") }
}

impl Destination {
    /// Opens a folder as a destination and locks it. `rename` is the name that the one source gets there; `shown` is the
    /// folder's name in errors; `gone` says whether the client has gone, which ends the waiting for the lock.
    ///
    /// # Errors
    /// The folder cannot be written to, or the same transfer is running already.
    pub fn open(
        root: Root,
        rename: Option<Vec<u8>>,
        target: &Target,
        shown: &str,
        gone: &dyn Fn() -> bool,
    ) -> Result<Destination, TransferError> {
        let Target { transfer, process, .. } = *target;
        let rules = target.delete.as_ref().map(|deletion| Rules::new(deletion, target.content)).transpose()?;
        let begin = Instant::now();
        let mut distrusted = Vec::new();
        let survey = Survey::of(&root, transfer);
        let local = |what: String| {
            move |e| match local(what)(e) {
                TransferError::Full { lack, what, .. } => {
                    TransferError::Full { lack, what, unfinished: survey.unfinished }
                }
                other => other,
            }
        };
        let failed = || local(cannot_write(shown, rename.is_some()));
        // The number in the journal's name, once the journal was found.
        let mut known = survey.ours;
        let mut asked = None;
        let (lock, time) = loop {
            let time = FolderTime::of(&root);
            let (file, number) = find(&root, transfer, known, &mut distrusted).map_err(failed())?;
            known = Some(number);
            let unlocked = || local(format!("cannot lock the journal in {shown}"));
            let holder = match lock(file).map_err(unlocked())? {
                Lock::Ours(lock) => break (lock, time.filter(|_| asked.is_none())),
                Lock::Theirs(holder) => holder,
            };
            if holder == Some(process) && asked.is_none() {
                let ask = |name: &Path| ownership::create(&root, name);
                let (file, name) = ownership::fresh(&root, request(number), ask).map_err(failed())?;
                file.write_all_at(&process.to_le_bytes(), 0).map_err(failed())?;
                asked = Some(name);
            }
            if gone() || begin.elapsed() > if asked.is_some() { OWN_PATIENCE } else { BUSY_PATIENCE } {
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
        let names = DestinationNames { rename, exact: target.exact, only: None, number: known.unwrap_or(transfer) };
        let kept = lock.try_clone().map_err(local("opening the journal".to_owned()))?;
        let (journal, resume) = Journal::open(kept, transfer, process).map_err(|e| {
            // If there is no room for a first record, the empty file must not stay.
            if lock.metadata().is_ok_and(|it| it.len() == 0) {
                let _ = publish::remove(&root, &names.journal());
            }
            local(format!("cannot keep a journal in {shown}"))(e)
        })?;
        let folder_time = time.filter(|time| time.set(&root));
        Ok(Destination(Some(Parts {
            folder_time,
            unfinished: survey.unfinished,
            distrusted,
            root,
            names,
            journal,
            tags: Key::random(),
            resume,
            process,
            rules,
            changes: Resolved::default(),
            lock,
            near: false,
            sees_all: false,
        })))
    }

    /// Whether an earlier attempt of a transfer wrote to this folder and did not finish.
    pub(crate) fn begun(folder: &Root, transfer: u64) -> bool {
        match ownership::open(folder, &journal(transfer), OFlag::O_RDONLY) {
            Ok(Trust::Missing) | Err(_) => false,
            // In a folder that others may write to, another user may have renamed any file of this user.
            Ok(Trust::Trusted(file)) if Journal::transfer(&file) == Some(transfer) => true,
            Ok(Trust::Trusted(_) | Trust::Distrusted(_)) => Survey::of(folder, transfer).ours.is_some(),
        }
    }

    /// Accepts only these names at the top level, since the server is not trusted to send what was asked for.
    pub(crate) fn only(&mut self, names: Vec<Part>) {
        if let Some(parts) = &mut self.0 {
            parts.names.only = Some(names);
        }
    }

    /// Notes that the receiver may look at what lies outside of the destination. A server's may not: what it does with a name
    /// would tell its client where a link leads.
    pub(crate) fn sees_all(&mut self) {
        if let Some(parts) = &mut self.0 {
            parts.sees_all = true;
        }
    }

    /// Sets what is changed of the files' attributes.
    pub(crate) fn change(&mut self, changes: Resolved) {
        if let Some(parts) = &mut self.0 {
            parts.changes = changes;
        }
    }

    /// Notes that the person who waits for the copy waits at this end.
    pub(crate) fn near(&mut self) {
        if let Some(parts) = &mut self.0 {
            parts.near = true;
        }
    }

    /// Files under the transfer's own names that are ignored, and why, as `NAME: WHY`.
    pub(crate) fn distrusted(&self) -> &[String] {
        self.0.as_ref().map_or(&[], |parts| &parts.distrusted)
    }

    /// What this end asks of the sender.
    pub fn terms(&self) -> Option<Terms> {
        self.0.as_ref().map(|parts| Terms {
            offer: !parts.resume.is_empty(),
            key: parts.journal.key(),
            tags: parts.tags,
            journal: Some(parts.names.number).filter(|_| parts.names.rename.is_none()),
        })
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        // Partial files without a block are removed when an attempt that knows their names ends.
        let done = |parts: &Parts| {
            parts.journal.is_empty() && !parts.resume.begun && !parts.names.is_renamed_folder(&parts.root)
        };
        if let Some(parts) = self.0.take().filter(done) {
            clear(&parts.root, parts.folder_time, || {
                let _ = publish::remove(parts.root.as_fd(), &parts.names.journal());
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::ownership::tests::PROBES;
    use crate::fs::root::Within;

    #[test]
    fn only_its_own_journal_says_that_a_transfer_has_begun() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path(), Within::Beneath).unwrap();
        drop(Journal::open(ownership::create(&root, &journal(3)).unwrap(), 3, 1).unwrap());
        assert!(Destination::begun(&root, 3));
        std::fs::rename(dir.path().join(journal(3)), dir.path().join(journal(4))).unwrap();
        assert!(!Destination::begun(&root, 4));
        // Under another number, the journal of transfer 3 is still its own; under the number of 4 it says nothing of 4.
        assert_eq!((Survey::of(&root, 3).ours, Survey::of(&root, 4).ours), (Some(4), None));
        drop(Journal::open(ownership::create(&root, &journal(5)).unwrap(), 4, 1).unwrap());
        assert_eq!(Survey::of(&root, 4).ours, Some(5));
        assert!(Destination::begun(&root, 4));
        std::fs::remove_file(dir.path().join(journal(5))).unwrap();
        std::fs::write(dir.path().join(journal(4)), "not a journal").unwrap();
        assert!(!Destination::begun(&root, 4));
    }

    #[test]
    fn a_folder_keeps_its_time_unless_something_else_changes_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path(), Within::Beneath).unwrap();
        for changes in [false, true] {
            assert!(FolderTime(TimeSpec::new(1_000_000_000, 5)).set(&root));
            let time = FolderTime::of(&root).unwrap();
            let own = dir.path().join("journal");
            std::fs::write(&own, "").unwrap();
            assert!(time.set(&root));
            if changes {
                // Within the tick of the clock in which the journal was made.
                std::fs::write(dir.path().join("a"), "").unwrap();
            }
            clear(&root, Some(time), || std::fs::remove_file(&own).unwrap());
            assert_eq!(FolderTime::of(&root) == Some(time), !changes);
        }
    }

    #[test]
    fn planted_journals_cost_one_file_together() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: only root can give files to other users");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        for number in 0..100 {
            let path = dir.path().join(journal(number));
            std::fs::write(&path, "x").unwrap();
            std::os::unix::fs::chown(path, Some(12_345), None).unwrap();
        }
        let root = Root::open(dir.path(), Within::Beneath).unwrap();
        let before = PROBES.get();
        let survey = Survey::of(&root, 7);
        assert_eq!((survey.ours, survey.unfinished), (None, 0));
        assert_eq!(PROBES.get() - before, 1);
    }
}
