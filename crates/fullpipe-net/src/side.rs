//! The two sides of a run.

/// A side of a run: the one that sends data, or the one that receives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Sends.
    Sender,
    /// Receives.
    Receiver,
}
