//! The sending end: walks the sources or reads standard input, decides what goes next, and feeds the streams.

pub mod input;
mod input_blocks;
mod local_streams;
pub mod notsent;
mod outgoing;
mod portion;
mod removal;
pub mod schedule;
mod sender;
pub(crate) mod shared_rate;
mod streams;
mod turns;

pub use outgoing::Outgoing;
pub use sender::Sender;
