//! Sources whose contents come together in one folder: of two things of one name the first source's is sent.
//!
//! Small files travel in no order, so it must be known before either is sent. The file system knows: who walks a later
//! source looks whether an earlier one has the same name. That takes no memory, however much there is.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::OFlag;
use nix::sys::stat::SFlag;

use crate::exclude::Exclude;
use crate::files::Root;
use crate::item::Name;
use crate::walk::Place;

/// All sources, by what they bring to the destination itself.
#[derive(Default)]
pub(crate) struct Sources {
    /// Those of which only the content is sent.
    contents: Vec<Source>,
    /// Those that keep their name.
    tops: HashMap<Vec<u8>, Source>,
}

struct Source {
    number: usize,
    root: Arc<Root>,
    path: PathBuf,
    top: Option<Name>,
    exclude: Arc<Exclude>,
}

impl Sources {
    /// Tells each place of the others, if two can bring the same name.
    pub(crate) fn introduce(places: &mut [Place]) {
        if places.len() < 2 || places.iter().all(|place| place.top.is_some()) {
            return;
        }
        let mut all = Sources::default();
        for (number, place) in places.iter().enumerate().filter(|(_, place)| place.left.is_none()) {
            let Place { root, path, top, exclude, .. } = place;
            let source =
                Source { number, root: root.clone(), path: path.clone(), top: top.clone(), exclude: exclude.clone() };
            match top {
                Some(top) => drop(all.tops.insert(top.bytes().to_vec(), source)),
                None => all.contents.push(source),
            }
        }
        let all = Arc::new(all);
        for (number, place) in places.iter_mut().enumerate() {
            place.beside = Some((number, all.clone()));
        }
    }

    /// Whether a source before this one brings something of a name; of two folders the content is merged.
    pub(crate) fn earlier(&self, number: usize, name: &Name, folder: bool, dereference: bool) -> bool {
        let bytes = name.bytes();
        let (first, rest) = match bytes.iter().position(|b| *b == b'/') {
            Some(at) => (&bytes[..at], &bytes[at + 1..]),
            None => (bytes, &b""[..]),
        };
        let contents = self.contents.iter().map(|source| (source, bytes));
        let top = self.tops.get(first).map(|source| (source, rest));
        let mut before = contents.chain(top).filter(|(source, _)| source.number < number);
        before.any(|(source, below)| source.brings(Path::new(OsStr::from_bytes(below)), folder, dereference))
    }
}

impl Source {
    fn brings(&self, below: &Path, folder: bool, dereference: bool) -> bool {
        let whole = below.as_os_str().is_empty();
        // What a person names is followed.
        let follow = if whole || dereference { OFlag::empty() } else { OFlag::O_NOFOLLOW };
        let path = if whole { self.path.clone() } else { self.path.join(below) };
        let found = self.root.open_at(&path, OFlag::O_PATH | follow, 0);
        let Ok(Ok(stat)) = found.map(|fd| nix::sys::stat::fstat(&fd)) else { return false };
        let same = match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFDIR => folder,
            SFlag::S_IFREG | SFlag::S_IFLNK => false,
            // Is not sent.
            _ => return false,
        };
        !same && !self.excluded(below)
    }

    fn excluded(&self, below: &Path) -> bool {
        let top = self.top.as_ref().map(Name::path);
        top.is_some_and(|top| self.exclude.leaves_out_source(top))
            || below
                .ancestors()
                .filter(|part| !part.as_os_str().is_empty())
                .any(|part| self.exclude.leaves_out(part, top))
    }
}
