//! What the receiver has, complete and on disk, so that the sender may remove its sources (`--remove-source-files`).

use crate::protocol::name::Name;

/// What is complete, each with the number of the version that was copied.
#[derive(Default)]
pub(super) struct Complete {
    /// Files that the sender has not been told of.
    pub(super) ready: Vec<(Name, u64)>,
    /// Symbolic links, whose names are on disk when all folders are.
    pub(super) links: Vec<(Name, u64)>,
}
