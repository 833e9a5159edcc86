//! What is known of a path whose own delay varies.

/// What is known of a path whose delay varies.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Noise {
    /// Whether the delay varies too much to show a queue.
    pub known: bool,
    /// Retransmissions seen so far.
    pub retransmits: u64,
    /// Rounds with losses before which no queue stood, since the last one with a queue.
    pub rounds: u32,
    /// When the first of these began, nanoseconds.
    pub first: u64,
    /// Until when further retransmissions belong to the same round.
    pub until: u64,
}
