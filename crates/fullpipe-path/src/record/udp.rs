//! What a run over plain UDP counts: in its samples and its result.

use serde::{Deserialize, Serialize};

/// What is known of the datagrams of one stream since the run's start. The receiver counts; the sender knows the counts from the
/// receiver's reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UdpCounts {
    /// At the sender, datagrams handed to the kernel; at the receiver, those that it knows to have been sent.
    pub datagrams: u64,
    /// Datagrams that arrived, each counted once.
    pub datagrams_received: u64,
    /// Datagrams that did not arrive though a later one did.
    pub datagrams_lost: u64,
    /// Datagrams that arrived after a later one (RFC 4737).
    pub datagrams_out_of_order: u64,
    /// Further copies of datagrams that had arrived.
    pub datagrams_duplicate: u64,
    /// Jitter of the arrivals so far (RFC 3550, section 6.4.1), ns.
    pub jitter_ns: u64,
}

impl UdpCounts {
    /// The counts since an earlier time of the same stream. The jitter is the present one.
    #[must_use]
    pub fn since(&self, before: &UdpCounts) -> UdpCounts {
        let less = |now: u64, then: u64| now.saturating_sub(then);
        UdpCounts {
            datagrams: less(self.datagrams, before.datagrams),
            datagrams_received: less(self.datagrams_received, before.datagrams_received),
            datagrams_lost: less(self.datagrams_lost, before.datagrams_lost),
            datagrams_out_of_order: less(self.datagrams_out_of_order, before.datagrams_out_of_order),
            datagrams_duplicate: less(self.datagrams_duplicate, before.datagrams_duplicate),
            jitter_ns: self.jitter_ns,
        }
    }
}

/// What happened to the datagrams of a run or of one of its streams, as the receiver counted.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct UdpOutcome {
    /// Payload of each datagram, bytes.
    pub datagram_bytes: u32,
    /// Datagrams that the sender handed to its kernel. Those still on their way at the end are neither received nor lost.
    pub sent: u64,
    /// Datagrams that arrived, each counted once.
    pub received: u64,
    /// Datagrams that did not arrive though a later one did.
    pub lost: u64,
    /// `lost` as a fraction of `received` and `lost`.
    pub loss: f64,
    /// Datagrams that arrived after a later one (RFC 4737).
    pub out_of_order: u64,
    /// Further copies of datagrams that had arrived.
    pub duplicates: u64,
    /// Jitter at the end (RFC 3550, section 6.4.1), mean of the streams, s.
    pub jitter_s: f64,
}

impl UdpOutcome {
    /// Combines streams: what the receiver counted on each, and how many datagrams the sender sent on all.
    #[must_use]
    pub fn of(datagram_bytes: u32, sent: u64, received: &[UdpCounts]) -> UdpOutcome {
        let sum = |value: fn(&UdpCounts) -> u64| received.iter().map(value).fold(0, u64::saturating_add);
        let (arrived, lost) = (sum(|counts| counts.datagrams_received), sum(|counts| counts.datagrams_lost));
        let jitter_ns: f64 = received.iter().map(|counts| counts.jitter_ns as f64).sum();
        UdpOutcome {
            datagram_bytes,
            sent,
            received: arrived,
            lost,
            loss: lost as f64 / (lost as f64 + arrived as f64).max(1.0),
            out_of_order: sum(|counts| counts.datagrams_out_of_order),
            duplicates: sum(|counts| counts.datagrams_duplicate),
            jitter_s: jitter_ns / 1e9 / received.len().max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_add_up_and_share_their_jitter() {
        let stream = |lost, jitter_ns| UdpCounts {
            datagrams: 100,
            datagrams_received: 100 - lost,
            datagrams_lost: lost,
            datagrams_out_of_order: 1,
            datagrams_duplicate: 2,
            jitter_ns,
        };
        let outcome = UdpOutcome::of(1_000, 210, &[stream(10, 1_000), stream(0, 3_000)]);
        assert_eq!((outcome.received, outcome.lost, outcome.loss), (190, 10, 0.05));
        assert_eq!((outcome.sent, outcome.out_of_order, outcome.duplicates), (210, 2, 4));
        assert!((outcome.jitter_s - 2e-6).abs() < 1e-12, "{outcome:?}");
        assert_eq!(UdpOutcome::of(1_000, 0, &[]).loss, 0.0);
        assert_eq!(stream(10, 5).since(&stream(4, 9)).datagrams_lost, 6);
    }
}
