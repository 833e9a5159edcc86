//! Reads profiles of paths and of storage, selects a transport, and joins it with the storage of both ends. Plain functions: a
//! profile and a query in, a selection out.

mod estimate;
mod joint;
mod matching;
mod profile;
mod query;
mod ratio;
mod select;
mod storage;

pub use estimate::Estimate;
pub use joint::{Joint, Network, Remedy, Stage, StorageChoice, join};
pub use profile::{Conditions, Entry, Listed, Point, Profile, ProfileError, read_text};
pub use query::Query;
pub use select::{Choice, Needed, Selection, select};
pub use storage::{StoragePoint, parse_storage};
