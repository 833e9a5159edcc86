//! Lists the names in each folder of source trees, so that the receiver can tell what it has besides (`--delete`).

use crate::error::TransferError;
use crate::protocol::message::Listing;
use crate::protocol::name::Name;
use crate::protocol::skipped::{Skipped, SkippedEntry};
use crate::source::tree::{SourceTree, WalkOptions};
use crate::source::walk::{self, Found};

/// Bytes of names after which a part of a list is handed on, so that it fits a frame.
const MAX_PART_BYTES: usize = 1 << 20;

/// The folder whose names are collected.
struct Level {
    folder: Option<Name>,
    names: Vec<Vec<u8>>,
    bytes: usize,
}

impl Level {
    fn new(folder: Option<Name>) -> Level {
        Level { folder, names: Vec::new(), bytes: 0 }
    }

    /// The names so far, which this forgets.
    fn part(&mut self, last: bool) -> Listing {
        self.bytes = 0;
        Listing { folder: self.folder.clone(), names: std::mem::take(&mut self.names), last }
    }
}

/// Refuses several sources of which one goes straight into the destination: there, it lacks what the others have. Two that go to
/// the same folder in it are refused when sources are found.
fn check_apart(places: &[SourceTree]) -> Result<(), TransferError> {
    if places.len() < 2 || places.iter().all(|place| place.top.is_some()) {
        return Ok(());
    }
    let why = "several sources go to the same folder, so --delete would delete what the others brought: nothing was \
               deleted; copy one folder at a time";
    Err(TransferError::Usage(why.into()))
}

/// Walks the sources, and calls `each` with the names in every folder, in as many parts as they need. Of several folders whose
/// parts are handed on in turns, each is complete with its last part. Returns what could not be read; then some folders are not
/// complete, and `each` does not get their last part.
///
/// # Errors
/// Those of `each`; two sources go to the same folder.
pub(crate) fn list(
    places: &[SourceTree],
    sight: WalkOptions,
    each: &mut dyn FnMut(Listing) -> Result<(), TransferError>,
) -> Result<Skipped, TransferError> {
    check_apart(places)?;
    let mut unreadable = Skipped::default();
    for place in places {
        // If only the content of a source is copied, its folder is the destination itself.
        let mut levels: Vec<Level> = place.top.is_none().then(|| Level::new(None)).into_iter().collect();
        walk::walk(place, sight, &mut |found| {
            let (name, folder) = match found {
                Found::File { item, .. } => (item.name, false),
                Found::Link { name, .. } => (name, false),
                Found::Folder { name, entered, .. } => (name, entered),
                Found::Omitted(name) => (name, false),
                // What is never copied is at the source all the same.
                Found::Skipped(SkippedEntry { name, for_good: true, .. }) => match Name::try_from(name) {
                    Ok(name) => (name, false),
                    Err(_) => return Ok(()),
                },
                Found::Skipped(entry) => {
                    unreadable.add(entry);
                    return Ok(());
                }
                Found::Attribute(..) => return Ok(()),
            };
            // The walk goes down into each folder before it goes on with the next name.
            while levels.last().is_some_and(|level| level.folder.as_ref().map(Name::bytes) != name.above())
                && let Some(mut done) = levels.pop()
            {
                if unreadable.total == 0 {
                    each(done.part(true))?;
                }
            }
            if let Some(level) = levels.last_mut() {
                level.bytes += name.last().len();
                level.names.push(name.last().to_vec());
                if level.bytes > MAX_PART_BYTES {
                    each(level.part(false))?;
                }
            }
            if folder {
                levels.push(Level::new(Some(name)));
            }
            Ok(())
        })?;
        while let Some(mut done) = levels.pop() {
            if unreadable.total == 0 {
                each(done.part(true))?;
            }
        }
    }
    Ok(unreadable)
}
