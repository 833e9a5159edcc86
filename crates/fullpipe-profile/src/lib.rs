//! Profiles and the selection of a transport from them. Plain functions: a profile and a path in, a
//! choice out.

mod profile;
mod select;

pub use profile::{Conditions, Entry, Point, Profile, ProfileError};
pub use select::{Choice, Estimate, Query, Selection, select};
