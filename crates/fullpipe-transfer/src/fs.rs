//! The file system of one end: opening, writing, naming and removing files inside one folder.

pub mod at;
pub(crate) mod content_hash;
pub mod direct_io;
pub mod huge_pages;
pub mod large_file;
pub(crate) mod lustre;
pub mod metadata;
pub mod mounted;
pub mod ownership;
pub mod publish;
pub mod root;
pub mod sparse;
pub(crate) mod symlinks;
pub(crate) mod users;
pub mod write_back;
