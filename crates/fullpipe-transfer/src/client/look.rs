//! A dry run: asks about the path and the sources, and copies nothing.

use std::io::Read;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::round_trip::far_away;
use super::streams::hear;
use super::{Between, NOT_HERE, Way, between, call, greet, here, limited, tell_list, unless_stopped};
use crate::connection::dial;
use crate::connection::endpoint::Endpoint;
use crate::connection::join;
use crate::connection::session::Session;
use crate::connection::stop::Stop;
use crate::error::TransferError;
use crate::protocol::candidate::{Candidate, Change, Kind};
use crate::protocol::message::{Deleted, Listing, Message, Options, Sources, Task};
use crate::protocol::name::Name;
use crate::protocol::skipped::{Skipped, SkippedEntry};
use crate::receive::dry_run::DryRun;
use crate::resolve;
use crate::source::count::{self, Count, Told};
use crate::source::listing;
use crate::source::name_list::NameList;
use crate::source::tree::WalkOptions;

/// Most parts of what there is at the source that wait to be compared. Each may take as much memory as a frame.
const MAX_WAITING: usize = 16;

/// Why something would not be copied.
const BLOCKED: &str = "a folder or special file stands where it should be, or a file where its folder should";

/// What is told if a thread of a dry run ends without a reason.
const BROKEN: &str = "the answers of the far end cannot be read";

/// The result of [`look`].
pub struct Looked {
    /// The path and the kernels; `None` if the path is between two other hosts, which only a copy connects.
    pub between: Option<Between>,
    /// How much there is at the source.
    pub count: Count,
    /// What would become of it.
    pub tally: Tally,
    /// What would be deleted, if anything may be. `None` if not everything can be copied, too: then nothing is deleted.
    pub deleted: Option<Deleted>,
}

/// What a copy would do with the files that it finds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Files that would be new at the destination.
    pub new: u64,
    /// Files that would take the place of others.
    pub replaced: u64,
    /// Files that the destination has.
    pub present: u64,
    /// Files that are newer at the destination, and of another size.
    pub newer: u64,
    /// Files of which nobody may know whether they are there; they would be copied.
    pub unknown: u64,
    /// Bytes that the copy would send.
    pub bytes: u64,
    /// What could not be put in its place.
    pub blocked: Skipped,
}

impl Tally {
    /// Files that would be copied.
    pub fn files(&self) -> u64 {
        self.new + self.replaced + self.unknown
    }

    fn add(&mut self, candidate: &Candidate, change: Change) {
        if change == Change::Blocked {
            self.blocked.add(SkippedEntry::new(candidate.name.bytes(), BLOCKED));
        }
        let is_sent = !matches!(change, Change::Present | Change::Newer | Change::Blocked);
        self.bytes = self.bytes.saturating_add(if is_sent { candidate.bytes } else { 0 });
        if matches!(candidate.kind, Kind::Link { .. }) {
            return;
        }
        match change {
            Change::New => self.new += 1,
            Change::Replaced => self.replaced += 1,
            Change::Present => self.present += 1,
            Change::Newer => self.newer += 1,
            Change::Unknown => self.unknown += 1,
            Change::Blocked => {}
        }
    }
}

/// Takes what would become of a file or link.
pub type Each<'a> = &'a mut (dyn FnMut(&Name, Change) + Send);

/// Hands on parts of what there is at the source.
type Sink<'a> = &'a mut dyn FnMut(Vec<Candidate>) -> Result<(), TransferError>;

/// Asks the server about the path, compares the sources, limited to a list of names if there is one, with the destination, and
/// copies nothing. Calls `each` for all files and links, and `gone` with the names of what would be deleted.
///
/// # Errors
/// The server cannot be reached or refuses, or a source does not exist.
pub fn look(
    endpoint: &Endpoint,
    options: Options,
    (way, list): (&Way, Option<&Arc<NameList>>),
    each: Each<'_>,
    gone: &mut (dyn FnMut(Name) + Send),
) -> Result<Looked, TransferError> {
    let (here, task) = match way {
        Way::Push(sources, target) => {
            (Some(limited(resolve::places(&here(way)?, sources)?, list)), Task::Compare(target.clone()))
        }
        Way::PushInput(..) => (Some(Vec::new()), Task::Look(Sources::default())),
        Way::Pull(sources, _) | Way::PullOutput(sources, _) => (None, Task::Look(sources.clone())),
        Way::ThirdParty(..) => return Err(TransferError::Usage(NOT_HERE.into())),
    };
    let deletes = match way {
        Way::Push(_, target) | Way::Pull(_, target) => target.delete.is_some(),
        _ => false,
    };
    let mut dry_run = match way {
        Way::Pull(_, target) => Some(resolve::dry_run(&self::here(way)?, target, options)?),
        _ => None,
    };
    let sight = WalkOptions::from(&options);
    let (stop, stall) = (Stop::default(), Duration::from_nanos(options.stall_ns));
    let (between, (count, tally), deleted) =
        unless_stopped(&AtomicBool::new(false), stall, endpoint.name(), &stop, || {
            let (mut line, session) = call(endpoint, &stop)?;
            let mut look = || {
                let theirs = greet(endpoint, options, task.clone(), None, (&session, &mut line), &|_| {}, None)?;
                let trip = far_away(&session, &mut line)?;
                if let Some(list) = list.filter(|_| here.is_none()) {
                    tell_list(&session, &mut line, list)?;
                }
                let found = match (&here, &mut dry_run) {
                    (Some(places), _) if matches!(task, Task::Compare(_)) => {
                        compared_there(&session, &mut *line.input, each, |sink| {
                            stop.work(|| {
                                count::count(places, &options, &mut |told| match told {
                                    Told::Candidates(part) => sink(part),
                                    Told::Totals(_) => sink(Vec::new()),
                                })
                            })
                        })?
                    }
                    (Some(_), _) => (Count::default(), Tally::default()),
                    (None, Some(dry_run)) => compared_here(&session, &mut *line.input, &stop, each, dry_run)?,
                    (None, None) => {
                        compared_here(&session, &mut *line.input, &stop, each, &mut DryRun::blind(options))?
                    }
                };
                let found = unblocked(found);
                let deleted = match (dry_run.take(), &here) {
                    _ if !deletes || found.0.skipped.to_do() > 0 => None,
                    (Some(dry_run), _) => deleted_here(&session, &mut *line.input, &stop, dry_run, gone)?,
                    (None, Some(places)) => {
                        let list = |each: &mut dyn FnMut(Listing) -> Result<(), TransferError>| {
                            stop.work(|| listing::list(places, sight, each))
                        };
                        deleted_there(&session, &mut *line.input, list, gone)?
                    }
                    _ => None,
                };
                Ok((between(endpoint, &line, trip, way.sends(), join::hello().limits, theirs), found, deleted))
            };
            let looked = look();
            looked.map_err(|error| dial::explain(&line, error))
        })?;
    Ok(Looked { between: Some(between), count, tally, deleted })
}

/// Counts what could not be put in its place with what cannot be sent.
pub(super) fn unblocked((count, tally): (Count, Tally)) -> (Count, Tally) {
    (Count { skipped: count.skipped.with(&tally.blocked), ..count }, tally)
}

/// Tells the far end what there is at the source, which `walk` hands over, and takes from it what would become of that.
pub(super) fn compared_there(
    session: &Session,
    input: &mut (dyn Read + Send),
    each: Each<'_>,
    walk: impl FnOnce(Sink<'_>) -> Result<Count, TransferError>,
) -> Result<(Count, Tally), TransferError> {
    let (told, asked) = mpsc::sync_channel::<Vec<Candidate>>(MAX_WAITING);
    std::thread::scope(|scope| {
        // The far end answers meanwhile: if nobody read that, both ends would wait for each other.
        let answers = scope.spawn(move || {
            let mut tally = Tally::default();
            for part in asked {
                let mut part = part.into_iter().peekable();
                while part.peek().is_some() {
                    let changes = match hear(session, input)? {
                        Message::Compared(changes) => changes,
                        other => return Err(session.unexpected(&other)),
                    };
                    for change in changes {
                        let Some(candidate) = part.next() else {
                            return Err(TransferError::Usage("the far end has answered what nobody asked".into()));
                        };
                        tally.add(&candidate, change);
                        each(&candidate.name, change);
                    }
                }
            }
            Ok(tally)
        });
        let walked = walk(&mut |part| {
            session.send(&Message::Candidates(part.clone()))?;
            // Whoever takes the answers has given up for a reason of its own.
            told.send(part).map_err(|_| TransferError::Usage(BROKEN.into()))
        });
        drop(told);
        // The far end's reason, if it has one.
        let tally = answers.join().map_err(|_| TransferError::Usage(BROKEN.into()))??;
        Ok((walked?, tally))
    })
}

/// Asks the far end what there is at the source, and compares that with what is here.
fn compared_here(
    session: &Session,
    input: &mut (dyn Read + Send),
    stop: &Stop,
    each: Each<'_>,
    dry_run: &mut DryRun,
) -> Result<(Count, Tally), TransferError> {
    let (told, found) = mpsc::sync_channel::<Vec<Candidate>>(MAX_WAITING);
    std::thread::scope(|scope| {
        // The far end does not wait while contents are read here, unless it is far ahead.
        let compared = scope.spawn(move || {
            let mut tally = Tally::default();
            for candidate in found.into_iter().flatten() {
                let change = dry_run.compare(&candidate, &mut || {});
                tally.add(&candidate, change);
                each(&candidate.name, change);
            }
            tally
        });
        let broken = || TransferError::Usage(BROKEN.into());
        let count = counted(session, input, &mut |part| stop.work(|| told.send(part)).map_err(|_| broken()));
        drop(told);
        let tally = stop.work(|| compared.join()).map_err(|_| broken())?;
        Ok((count?, tally))
    })
}

/// Asks the server for the names at the source, and compares them with what is here. Returns what a copy would delete.
fn deleted_here(
    session: &Session,
    input: &mut (dyn Read + Send),
    stop: &Stop,
    mut dry_run: DryRun,
    gone: &mut dyn FnMut(Name),
) -> Result<Option<Deleted>, TransferError> {
    session.send(&Message::List)?;
    loop {
        match hear(session, input)? {
            Message::Listing(listing) => {
                let found = stop.work(|| dry_run.take(listing, &|| true))?;
                found.into_iter().for_each(&mut *gone);
            }
            Message::Listed(unreadable) => return Ok((unreadable.total == 0).then(|| dry_run.deleted())),
            other => return Err(session.unexpected(&other)),
        }
    }
}

/// Tells the server the names at the source, which `list` hands over one after the other, to return what cannot be read. Returns
/// what the server says that a copy would delete there.
pub(super) fn deleted_there(
    session: &Session,
    input: &mut (dyn Read + Send),
    list: impl FnOnce(&mut dyn FnMut(Listing) -> Result<(), TransferError>) -> Result<Skipped, TransferError>,
    gone: &mut (dyn FnMut(Name) + Send),
) -> Result<Option<Deleted>, TransferError> {
    std::thread::scope(|scope| {
        // The server answers meanwhile: if nobody read that, both ends would wait for each other.
        let answers = scope.spawn(|| {
            loop {
                match hear(session, input)? {
                    Message::Deleted(names) => names.into_iter().for_each(&mut *gone),
                    Message::AllDone(summary) => return Ok(summary.deleted),
                    other => return Err(session.unexpected(&other)),
                }
            }
        });
        let unreadable = list(&mut |part| session.send(&Message::Listing(part)));
        let told = unreadable.and_then(|unreadable| {
            session.send(&Message::Listed(unreadable.clone()))?;
            Ok(unreadable.total == 0)
        });
        // The server's reason, if it has one.
        let deleted = answers.join().map_err(|_| TransferError::Usage(BROKEN.into()))??;
        Ok(deleted.filter(|_| told.as_ref().is_ok_and(|all| *all)))
    })
}

/// Asks the server what there is to send, and hands it on.
pub(super) fn counted(
    session: &Session,
    input: &mut (dyn Read + Send),
    sink: Sink<'_>,
) -> Result<Count, TransferError> {
    session.send(&Message::Count)?;
    let mut count = Count::default();
    loop {
        match hear(session, input)? {
            Message::Totals { bytes, files, .. } => (count.bytes, count.files) = (bytes, files),
            Message::Candidates(part) => sink(part)?,
            Message::AllSent(skipped) => return Ok(Count { skipped, ..count }),
            other => return Err(session.unexpected(&other)),
        }
    }
}
