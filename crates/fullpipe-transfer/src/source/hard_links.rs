//! Finds files that are hard links to a file that was found before.

use std::collections::HashMap;

use crate::protocol::name::Name;

/// Device and number of an inode.
pub type Inode = (u64, u64);

/// Most inodes that are remembered if links are only counted. Further links count as files.
const MAX_COUNTED_INODES: usize = 1 << 20;

/// The inodes with several names that were found so far.
#[derive(Debug, Default)]
pub(crate) struct HardLinks {
    /// Whether the links are to be kept, which takes all names in memory.
    keep: bool,
    found: HashMap<Inode, Option<Name>>,
}

/// What is known of an inode that is found under one more name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing: this is its first name.
    No,
    /// It was found before. The links are not kept.
    Counted,
    /// It was found before, first under this name.
    Under(Name),
}

impl HardLinks {
    pub(crate) fn new(keep: bool) -> HardLinks {
        HardLinks { keep, found: HashMap::new() }
    }

    /// Takes in a file that has several names; `inode` is `None` if it has only one.
    pub(crate) fn find(&mut self, inode: Option<Inode>, name: &Name) -> Known {
        let Some(inode) = inode else { return Known::No };
        match self.found.get(&inode) {
            Some(Some(first)) => Known::Under(first.clone()),
            Some(None) => Known::Counted,
            None => {
                if self.keep || self.found.len() < MAX_COUNTED_INODES {
                    self.found.insert(inode, self.keep.then(|| name.clone()));
                }
                Known::No
            }
        }
    }
}
