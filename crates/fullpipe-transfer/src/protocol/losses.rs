//! The losses of a transfer, which the sending end reports.

use serde::{Deserialize, Serialize};

/// What went out over some time, all streams together.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Sent {
    /// Segments with payload (`tcpi_data_segs_out`), those that were sent again included.
    pub segments: u64,
    /// Of these, those that were sent again (`tcpi_total_retrans`).
    pub again: u64,
    /// Of those, the ones that had not been lost (`tcpi_dsack_dups`).
    pub needless: u64,
    /// Payload that has been acknowledged, bytes.
    pub bytes: u64,
    /// How long that took, nanoseconds.
    pub ns: u64,
    /// For so long streams waited for the receiver's window or for room in their buffer, nanoseconds, summed.
    pub window_ns: u64,
}

impl Sent {
    /// Segments that were lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.again.saturating_sub(self.needless)
    }

    /// Share of the segments that was lost.
    #[must_use]
    pub fn loss(&self) -> f64 {
        (self.lost() as f64 / self.segments.max(1) as f64).min(1.0)
    }

    /// Rate of the payload, bit/s.
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

/// Of a whole transfer.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Losses {
    /// All of it.
    pub all: Sent,
    /// Its second half, in time: what slow start overshot is not the path's.
    pub later: Sent,
    /// Streams.
    pub streams: u16,
    /// Instants of the second half at which the following was looked for.
    pub looks: u16,
    /// Longest time that packets waited in queues, nanoseconds: `tcpi_rtt` beyond `tcpi_min_rtt`, median of the streams.
    pub queue_ns: u64,
    /// Part of the streams that had more to send than TCP let go (`tcpi_notsent_bytes`), mean.
    pub held: f64,
    /// Variance of the losses between two instants, over their mean: 1 where each segment is lost by itself, more where
    /// queues overflow.
    pub bursts: f64,
}
