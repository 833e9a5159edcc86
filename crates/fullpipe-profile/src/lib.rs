//! Reads profiles, and selects a transport from one. Plain functions: a profile and a query in, a selection out.

mod estimate;
mod matching;
mod profile;
mod query;
mod select;

pub use estimate::Estimate;
pub use profile::{Conditions, Entry, Listed, Point, Profile, ProfileError, read_text};
pub use query::Query;
pub use select::{Choice, Needed, Selection, select};
