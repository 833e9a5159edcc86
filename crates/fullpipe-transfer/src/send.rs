//! The sending end: walks the sources, decides what goes next, and feeds the streams.

pub mod notsent;
pub mod schedule;
mod sender;
mod streams;

pub use sender::Sender;
