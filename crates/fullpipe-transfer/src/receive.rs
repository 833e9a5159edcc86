//! The receiving end: takes what comes on the streams, checks it, writes it, and gives files their names when they are
//! whole.

mod blocks;
mod complete;
pub(crate) mod delete;
mod destination;
mod destination_names;
pub(crate) mod dry_run;
mod finish;
mod folders;
mod hard_links;
mod in_place;
mod incoming;
pub mod journal;
mod large;
mod naming;
mod offers;
mod output;
mod ranges;
mod receiver;
mod resume;
mod small;
mod streams;
mod unfinished;
mod verifier;
mod verify;

pub use destination::Destination;
pub(crate) use destination::cannot_write;
pub use output::Output;
pub(crate) use output::OutputReceiver;
pub use receiver::Receiver;
