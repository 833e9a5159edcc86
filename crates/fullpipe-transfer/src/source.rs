//! The files to send: where each source stands, what is excluded, and the walk through its folders.

pub mod count;
pub mod exclude;
pub mod glob;
pub mod hard_links;
pub mod listing;
pub mod name_list;
pub(crate) mod removal;
pub mod tree;
pub mod walk;
