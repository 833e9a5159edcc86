//! The limit on open files of this process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Open files that a process raises its soft limit to, if the hard limit allows it.
const WANTED_OPEN_FILES: u64 = 65_536;

/// Raises the soft limit on open files from the usual 1,024: a walk holds two files for each level of its tree, and a
/// measurement up to three for each stream.
pub fn raise_open_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // If this is refused, the copy reports the folders that are too deep as not copied, and a measurement with many streams
        // fails with the kernel's reason.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.max(hard.min(WANTED_OPEN_FILES)), hard);
    }
}
