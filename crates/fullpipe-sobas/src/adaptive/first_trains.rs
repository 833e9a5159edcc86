//! Whether the others are there whom the trains of the start have shown.

use super::question::Question;
use crate::network_model::{MIN_WINDOW_SEGMENTS, NetworkModel};
use crate::trains::MAX_PACED_PACKETS;

/// Whether the trains of the start were right.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum FirstTrains {
    /// Nobody has asked.
    #[default]
    Unasked,
    /// Trains ask.
    Asked(Question),
    /// They were right, or there is no reason to doubt them.
    Believed,
}

impl FirstTrains {
    /// Whether they may have taken the transfer for others: the first windows of its streams together are longer than a train.
    pub fn may_err(model: &NetworkModel) -> bool {
        MIN_WINDOW_SEGMENTS * f64::from(model.config.streams) > f64::from(MAX_PACED_PACKETS)
    }

    /// Whether they may have erred, and nobody has asked.
    pub fn are_doubtful(&self, model: &NetworkModel) -> bool {
        matches!(self, FirstTrains::Unasked) && FirstTrains::may_err(model)
    }

    /// Rate of the trains that ask, bit/s, while they ask.
    pub fn asking_bps(&self) -> Option<f64> {
        if let FirstTrains::Asked(question) = self { Some(question.more) } else { None }
    }

    /// The transfer is doing something else, so answers are no longer awaited.
    pub fn drop_question(&mut self) {
        if self.asking_bps().is_some() {
            *self = FirstTrains::Unasked;
        }
    }
}
