//! The transfer's own losses of late, to compare with those of probes.

use crate::network_model::NetworkModel;

/// Time over which losses are counted, nanoseconds, up to twice as long: that of two hundred probes.
const SHARE_NS: u64 = 2_000_000_000;

/// What the transfer has sent and lost until an instant.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    at: u64,
    retransmits: u64,
    bytes: u64,
}

/// The transfer's own losses of late: counts that lie a while back, and those that follow them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LostLately {
    from: Count,
    next: Count,
}

impl LostLately {
    /// Takes in what has been sent and lost until now.
    pub fn observe(&mut self, now: u64, model: &NetworkModel) {
        if now >= self.next.at + SHARE_NS {
            self.from = self.next;
            self.next = Count { at: now, retransmits: model.retransmits, bytes: model.bytes.total() };
        }
    }

    /// Fraction of the segments that have been lost of late.
    pub fn share(&self, model: &NetworkModel) -> f64 {
        let bytes = model.bytes.total().saturating_sub(self.from.bytes);
        let segments = bytes as f64 / f64::from(model.config.mss);
        model.retransmits.saturating_sub(self.from.retransmits) as f64 / segments.max(1.0)
    }
}
