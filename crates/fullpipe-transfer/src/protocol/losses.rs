//! The losses of a transfer, which the sending end reports.

use serde::{Deserialize, Serialize};

/// The segments and bytes sent over some time, all streams together.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Sent {
    /// Segments with payload (`tcpi_data_segs_out`), or UDT's data packets (`pktSentTotal`), including retransmissions.
    pub segments: u64,
    /// Retransmitted segments (`tcpi_total_retrans`) or packets (`pktRetransTotal`).
    pub again: u64,
    /// Segments retransmitted although they had not been lost (`tcpi_dsack_dups`).
    pub needless: u64,
    /// Acknowledged payload, in bytes.
    pub bytes: u64,
    /// Duration of the time that this covers, in nanoseconds.
    pub ns: u64,
    /// Time for which streams waited for the receiver's window or for space in their send buffer, in nanoseconds, summed
    /// over the streams.
    pub window_ns: u64,
}

impl Sent {
    /// Number of lost segments.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.again.saturating_sub(self.needless)
    }

    /// Lost segments as a fraction of all segments.
    #[must_use]
    pub fn loss(&self) -> f64 {
        (self.lost() as f64 / self.segments.max(1) as f64).min(1.0)
    }

    /// Rate of acknowledged payload, in bit/s.
    #[must_use]
    pub fn bps(&self) -> f64 {
        self.bytes as f64 * 8e9 / self.ns.max(1) as f64
    }

    pub(crate) fn since(&self, before: &Sent) -> Sent {
        Sent {
            segments: self.segments.saturating_sub(before.segments),
            again: self.again.saturating_sub(before.again),
            needless: self.needless.saturating_sub(before.needless),
            bytes: self.bytes.saturating_sub(before.bytes),
            ns: self.ns.saturating_sub(before.ns),
            window_ns: self.window_ns.saturating_sub(before.window_ns),
        }
    }
}

/// The losses and queues of a whole transfer.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Losses {
    /// Everything sent.
    pub all: Sent,
    /// Everything sent in the second half of the time. It excludes the losses that slow start causes.
    pub later: Sent,
    /// Number of streams.
    pub streams: u16,
    /// Number of instants in the second half at which the following values were sampled.
    pub looks: u16,
    /// Longest queueing delay, in nanoseconds: the maximum over time of `tcpi_rtt` less `tcpi_min_rtt`, median of the
    /// streams.
    pub queue_ns: u64,
    /// Mean fraction of the streams that had unsent data which TCP held back (`tcpi_notsent_bytes`).
    pub held: f64,
    /// Variance of the losses between two instants divided by their mean: 1 if segments are lost independently, more if
    /// queues overflow.
    pub bursts: f64,
}
