//! Whether the others are there whom the trains of the start have shown.

use crate::network_model::{MIN_WINDOW_SEGMENTS, NetworkModel};
use crate::trains::MAX_PACED_PACKETS;

/// Whether the trains of the start were right.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum FirstTrains {
    /// Nobody has asked.
    #[default]
    Unasked,
    /// Trains ask for `more` beside a transfer that has `has`, bit/s, until an instant.
    Asking { until: u64, more: f64, has: f64 },
    /// They were right, or there is no reason to doubt them.
    Believed,
}

impl FirstTrains {
    /// Whether the first windows of the streams together are longer than a train.
    pub fn may_err(model: &NetworkModel) -> bool {
        MIN_WINDOW_SEGMENTS * f64::from(model.config.streams) > f64::from(MAX_PACED_PACKETS)
    }

    /// Whether nobody has looked whether they were right.
    pub fn are_doubtful(&self, model: &NetworkModel) -> bool {
        matches!(self, FirstTrains::Unasked) && FirstTrains::may_err(model)
    }

    /// Rate of the trains that ask, bit/s, while they ask.
    pub fn asking_bps(&self) -> Option<f64> {
        if let FirstTrains::Asking { more, .. } = self { Some(*more) } else { None }
    }
}
