//! Files from one host to another.
//!
//! The sender walks its sources ([`source`]), cuts large files into blocks and gathers small ones into packs, and n
//! streams carry what is next ([`send`]). The receiver checks each by its digest, writes it beside its final name, and
//! gives a file its name when it is whole; what it has finished is in a journal, so that the same command goes on where
//! it was ([`receive`]). One more connection carries the two ends' words ([`connection`]).
//!
//! The modules are layers. Each imports only those below it:
//!
//! ```text
//! client, server
//! transfer, resolve
//! send, receive, sobas, storage
//! telemetry
//! fs, source, connection
//! protocol
//! sizes, threads, error
//! ```

pub mod client;
pub mod connection;
mod error;
pub mod fs;
pub mod protocol;
pub mod receive;
pub mod resolve;
pub mod send;
pub mod server;
pub mod sizes;
pub mod sobas;
pub mod source;
pub mod storage;
pub mod telemetry;
mod threads;
pub mod transfer;

pub use error::TransferError;
pub use protocol::losses::{Losses, Sent};
pub use protocol::skipped::{Skipped, SkippedEntry};
