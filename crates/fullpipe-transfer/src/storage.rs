//! Measures the storage of a folder, with the readers and writers of a copy ([`crate::fs::large_file`]).
//!
//! A measurement works in files of its own that never keep a name in the folder. So it touches nothing that is there, and
//! whatever ends the program, the kernel frees their room.

mod bottleneck;
mod folder;
mod host_load;
mod run;

pub use folder::{StorageError, StorageFolder};
pub use run::{Measured, ScratchFile, read, write, write_named};
