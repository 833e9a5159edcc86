//! Where a real end works: a root, and what is outside it and must stay as it is.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// What must never be read.
pub const SECRET: &[u8] = b"nobody may read this";
/// Longest file that any end may write: `/dev/shm` is memory.
const LONGEST: u64 = 64 << 20;

/// Two folders, made anew for each run.
pub struct World {
    all: tempfile::TempDir,
    before: BTreeMap<OsString, Vec<u8>>,
}

impl Default for World {
    fn default() -> World {
        World::new()
    }
}

impl World {
    /// With a file there, and links that lead out.
    ///
    /// # Panics
    /// There is no room.
    pub fn new() -> World {
        static LIMIT: Once = Once::new();
        LIMIT.call_once(|| {
            use nix::sys::resource::{Resource, setrlimit};
            use nix::sys::signal::{SigHandler, Signal, signal};
            setrlimit(Resource::RLIMIT_FSIZE, LONGEST, LONGEST).expect("a limit on files");
            // Rust's own main does the first; without one of the two the limit ends the process.
            for ignored in [Signal::SIGPIPE, Signal::SIGXFSZ] {
                // SAFETY: ignoring a signal runs no code.
                unsafe { signal(ignored, SigHandler::SigIgn) }.expect("a signal ignored");
            }
        });
        let all = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
        let world = World { before: BTreeMap::new(), all };
        for folder in ["root/in", "root/in/there", "outside"] {
            fs::create_dir_all(world.all.path().join(folder)).expect("a folder");
        }
        fs::write(world.outside().join("x"), SECRET).expect("a file");
        symlink("../../outside", world.root().join("in/out")).expect("a link");
        symlink("../../outside/x", world.root().join("in/link")).expect("a link");
        symlink("..", world.root().join("in/there/up")).expect("a link");
        let before = world.listed();
        World { before, ..world }
    }

    /// Where the end may work.
    pub fn root(&self) -> PathBuf {
        self.all.path().join("root")
    }

    /// Where it may not.
    pub fn outside(&self) -> PathBuf {
        self.all.path().join("outside")
    }

    fn listed(&self) -> BTreeMap<OsString, Vec<u8>> {
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(self.outside()).expect("the folder outside").flatten() {
            all.insert(entry.file_name(), fs::read(entry.path()).unwrap_or_default());
        }
        for entry in fs::read_dir(self.all.path()).expect("the folder of all").flatten() {
            all.insert(entry.path().into_os_string(), Vec::new());
        }
        all
    }

    /// Nothing outside the root is other than it was.
    ///
    /// # Panics
    /// It is.
    pub fn check(&self) {
        assert!(self.listed() == self.before, "something outside the root has changed");
    }

    /// The regular files below the root, but a transfer's own, with their content.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut all = BTreeMap::new();
        gather(&self.root(), &self.root(), &mut all);
        all
    }
}

fn gather(root: &Path, folder: &Path, into: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        let path = entry.path();
        let name = path.strip_prefix(root).unwrap_or(&path).to_owned();
        if kind.is_dir() {
            gather(root, &path, into);
        } else if kind.is_file() && !entry.file_name().to_string_lossy().starts_with(".fullpipe.") {
            into.insert(name, fs::read(&path).unwrap_or_default());
        }
    }
}
