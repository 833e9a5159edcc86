//! A dry run: asks about the path and the sources, and copies nothing.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::streams::hear;
use super::{Between, NOT_HERE, Way, between, call, far_away, greet, here, limited, tell_list, unless_stopped};
use crate::connection::dial;
use crate::connection::endpoint::Endpoint;
use crate::connection::join;
use crate::connection::session::Session;
use crate::connection::stop::Stop;
use crate::error::TransferError;
use crate::protocol::message::{Deleted, Listing, Message, Options, Sources, Target, Task};
use crate::protocol::name::Name;
use crate::protocol::skipped::Skipped;
use crate::receive::delete::DryRun;
use crate::resolve;
use crate::source::listing;
use crate::source::name_list::NameList;
use crate::source::tree::WalkOptions;
use crate::source::walk::{self, Count};

/// The result of [`look`].
pub struct Looked {
    /// The path and the kernels; `None` if the path is between two other hosts, which only a copy connects.
    pub between: Option<Between>,
    /// How much there is to send.
    pub count: Count,
    /// What would be deleted, if anything may be. `None` if not everything can be read, too: then nothing is deleted.
    pub deleted: Option<Deleted>,
}

/// Asks the server about the path and counts the sources, limited to a list of names if there is one, and copies nothing. Calls
/// `each` with the names of all files and links that would be copied, if `names` asks for them, and `gone` with those of what would
/// be deleted.
///
/// # Errors
/// The server cannot be reached or refuses, or a source does not exist.
pub fn look(
    endpoint: &Endpoint,
    options: Options,
    (way, list): (&Way, Option<&Arc<NameList>>),
    (names, each): (bool, &mut dyn FnMut(Name)),
    gone: &mut (dyn FnMut(Name) + Send),
) -> Result<Looked, TransferError> {
    let (here, task) = match way {
        Way::Push(sources, target) if target.delete.is_some() => {
            (Some(resolve::places(&here(way)?, sources)?), Task::Compare(target.clone()))
        }
        Way::Push(sources, _) => {
            (Some(limited(resolve::places(&here(way)?, sources)?, list)), Task::Look(Sources::default()))
        }
        Way::PushInput(..) => (Some(Vec::new()), Task::Look(Sources::default())),
        Way::Pull(sources, _) | Way::PullOutput(sources, _) => (None, Task::Look(sources.clone())),
        Way::ThirdParty(..) => return Err(TransferError::Usage(NOT_HERE.into())),
    };
    let mut dry_run = match way {
        Way::Pull(_, target @ Target { delete: Some(deletion), .. }) => {
            Some(resolve::dry_run(&self::here(way)?, target, deletion)?)
        }
        _ => None,
    };
    let sight = WalkOptions::from(&options);
    let (stop, stall) = (Stop::default(), Duration::from_nanos(options.stall_ns));
    let (between, count, deleted) = unless_stopped(&AtomicBool::new(false), stall, endpoint.name(), &stop, || {
        let (mut line, session) = call(endpoint, &stop)?;
        let mut look = || {
            let theirs = greet(endpoint, options, task.clone(), None, (&session, &mut line), &|_| {}, None)?;
            let trip = far_away(&session, &mut line)?;
            if let Some(list) = list.filter(|_| here.is_none()) {
                tell_list(&session, &mut line, list)?;
            }
            let count =
                if here.is_none() { Some(counted(&session, &mut *line.input, (names, &mut *each))?) } else { None };
            let deleted = match (dry_run.take(), &here) {
                (Some(dry_run), _) => deleted_here(&session, &mut *line.input, dry_run, gone)?,
                (None, Some(places)) if matches!(task, Task::Compare(_)) => {
                    deleted_there(&session, &mut *line.input, |each| listing::list(places, sight, each), gone)?
                }
                _ => None,
            };
            Ok((between(endpoint, &line, trip, way.sends(), join::hello().limits, theirs), count, deleted))
        };
        let looked = look();
        looked.map_err(|error| dial::explain(&line, error))
    })?;
    // Local sources are counted after the connection is closed, so that the server does not wait.
    let count = match (count, here) {
        (None, Some(places)) => {
            let mut each = |name: &Name| {
                if names {
                    each(name.clone());
                }
                Ok(())
            };
            walk::count(&places, sight, &mut each, &mut |_| Ok(()))?
        }
        (count, _) => count.unwrap_or_default(),
    };
    let deleted = deleted.filter(|_| count.skipped.to_do() == 0);
    Ok(Looked { between: Some(between), count, deleted })
}

/// Asks the server for the names at the source, and compares them with what is here. Returns what a copy would delete.
fn deleted_here(
    session: &Session,
    input: &mut (dyn Read + Send),
    mut dry_run: DryRun,
    gone: &mut dyn FnMut(Name),
) -> Result<Option<Deleted>, TransferError> {
    session.send(&Message::List)?;
    loop {
        match hear(session, input)? {
            Message::Listing(listing) => dry_run.take(listing, &|| true)?.into_iter().for_each(&mut *gone),
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
        let broken = || TransferError::Usage("the answers of the far end cannot be read".into());
        // The server's reason, if it has one.
        let deleted = answers.join().map_err(|_| broken())??;
        Ok(deleted.filter(|_| told.as_ref().is_ok_and(|all| *all)))
    })
}

/// Asks the server how much there is to send, and for its names if `names` says so.
pub(super) fn counted(
    session: &Session,
    input: &mut (dyn Read + Send),
    (names, each): (bool, &mut dyn FnMut(Name)),
) -> Result<Count, TransferError> {
    session.send(&Message::Count { names })?;
    let mut count = Count::default();
    loop {
        match hear(session, input)? {
            Message::Totals { bytes, files, .. } => (count.bytes, count.files) = (bytes, files),
            Message::Names(part) if names => {
                let named = part.split(|byte| *byte == 0).filter_map(|name| Name::try_from(name.to_vec()).ok());
                named.for_each(&mut *each);
            }
            Message::AllSent(skipped) => return Ok(Count { skipped, ..count }),
            other => return Err(session.unexpected(&other)),
        }
    }
}
