//! Files from one host to another.
//!
//! The sender walks its sources ([`walk`]), cuts large files into blocks and gathers small ones into packs
//! ([`plan`]), and n streams carry what is next ([`send`]). The receiver checks each by its digest ([`digest`]), writes
//! it beside its final name, and gives a file its name when it is whole ([`receive`]); what it has finished is
//! in a journal ([`journal`]), so that the same command goes on where it was. One more connection carries
//! the two ends' words ([`proto`], [`session`]).

mod ahead;
pub mod client;
pub mod counters;
pub mod digest;
pub mod direct;
pub mod end;
mod error;
pub mod exclude;
pub mod far;
pub mod files;
mod follow;
pub mod greeting;
mod huge;
pub mod item;
mod join;
pub mod journal;
pub mod keys;
mod left;
mod losses;
mod merge;
mod ownership;
pub mod pattern;
pub mod place;
pub mod plan;
pub mod proto;
mod reach;
pub mod receive;
pub mod secure;
pub mod send;
pub mod session;
pub mod sobas;
pub mod tokens;
mod trace;
pub mod walk;

pub use error::TransferError;
pub use left::{Left, Leftovers};
pub use losses::{Losses, Sent};
