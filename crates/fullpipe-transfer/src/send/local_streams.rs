//! Decides how many streams send where disks, or losses, limit a copy over a local network. Pure.
//!
//! Each stream has one read and one write under way. A disk that answers late, or that works on many requests at once, then gives
//! more the more streams there are; one whose rate is the limit does not. Likewise, where the network loses packets by itself,
//! each stream has as much as its losses leave it; where a queue overflows, all have what the network gives. Nobody can tell these
//! apart but by trying.

use crate::protocol::message::Times;
use crate::telemetry::losses::Segments;

/// Least bytes and nanoseconds over which a rate is measured: several reads of each stream.
const WINDOW_BYTES: u64 = 16 << 20;
const WINDOW_NS: u64 = 150_000_000;
/// Least fraction of its time for which each stream waits for the disk of an end that limits a copy. Streams that copy to and from
/// memory share their time with hashing and the network.
const BUSY: f64 = 0.7;
/// Least part of the segments that are sent again where losses may limit a copy. At 0.4 ms and with packets of 9,000 bytes, one
/// CUBIC stream that loses so many has 20 Gb/s (as Reno, RFC 9438, section 4.3).
const LOST: f64 = 1e-4;
/// Least segments that each stream has in flight where losses may limit it. With fewer, all streams fill the path, and the last
/// segments of more of them would wait for timeouts.
const MIN_FLIGHT: u64 = 6;
/// Times as many streams are tried.
const STEP: u16 = 4;
/// Least gain in rate for which more streams stay.
const GAIN: f64 = 1.1;

/// How far a copy is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// The time, nanoseconds.
    pub(super) at_ns: u64,
    /// Bytes of content that have come.
    pub(super) bytes: u64,
    /// Times of the streams of both ends so far.
    pub(super) sender: Times,
    pub(super) receiver: Times,
}

/// The number of streams of a copy, as disks or losses call for it.
pub(super) struct LocalStreams {
    /// What the streams have sent so far.
    pub(super) segments: Segments,
    sending: u16,
    most: u16,
    /// Where the rate that is being measured began.
    from: Option<(Seen, Segments)>,
    /// The streams and the rate before more were tried.
    before: Option<(u16, f64)>,
    /// Whether nothing more is tried.
    over: bool,
}

impl LocalStreams {
    /// For a copy on `sending` streams at first, and on `most` at most.
    pub(super) fn new(sending: u16, most: u16) -> LocalStreams {
        LocalStreams { segments: Segments::default(), sending, most, from: None, before: None, over: sending >= most }
    }

    /// Takes in how far the copy is. Returns how many streams are to send from now on, if that changes.
    pub(super) fn see(&mut self, seen: Seen) -> Option<u16> {
        let Some((from, then)) = self.from else {
            self.from = (seen.bytes > 0).then_some((seen, self.segments));
            return None;
        };
        let (bytes, ns) = (seen.bytes.saturating_sub(from.bytes), seen.at_ns.saturating_sub(from.at_ns));
        if self.over || bytes < WINDOW_BYTES || ns < WINDOW_NS {
            return None;
        }
        self.from = Some((seen, self.segments));
        let rate = bytes as f64 / ns as f64;
        let wait = |now: Times, then: Times| now.disk.saturating_sub(then.disk) as f64 / ns as f64;
        let waits = wait(seen.sender, from.sender).max(wait(seen.receiver, from.receiver));
        if let Some((streams, before)) = self.before.take()
            && rate < GAIN * before
        {
            (self.sending, self.over) = (streams, true);
            return Some(streams);
        }
        self.over = self.sending >= self.most;
        let Segments { sent, again, in_flight } = self.segments;
        let lost = again.saturating_sub(then.again) as f64 / sent.saturating_sub(then.sent).max(1) as f64;
        let is_lossy = lost >= LOST && in_flight >= MIN_FLIGHT * u64::from(self.sending);
        if self.over || waits < BUSY * f64::from(self.sending) && !is_lossy {
            return None;
        }
        self.before = Some((self.sending, rate));
        self.sending = self.sending.saturating_mul(STEP).min(self.most);
        Some(self.sending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(stage: impl Fn(f64) -> (f64, f64)) -> Vec<u16> {
        copy_with_losses(0.0, 20, stage)
    }

    /// Copies for some seconds, with `each` segments of each stream in flight; `stage` gives, for a number of streams, the rate in
    /// bytes per ns and the fraction of its time that each stream waits for the disk of the receiver. Returns the numbers of streams,
    /// one for each change.
    fn copy_with_losses(lost: f64, each: u64, stage: impl Fn(f64) -> (f64, f64)) -> Vec<u16> {
        let (mut streams, mut seen) = (LocalStreams::new(2, 16), Vec::new());
        let (mut sending, mut bytes, mut disk) = (2_u16, 1.0, 0.0);
        for tick in 1..=50 {
            let (rate, waits) = stage(f64::from(sending));
            bytes += rate * 2e8;
            disk += waits * 2e8 * f64::from(sending);
            let receiver = Times { disk: disk as u64, ..Times::default() };
            let (segments, again) = (bytes as u64 / 1000, (lost * bytes / 1000.0) as u64);
            let at_ns = tick * 200_000_000;
            let now = Seen { at_ns, bytes: bytes as u64, sender: Times::default(), receiver };
            streams.segments = Segments { sent: segments, again, in_flight: each * u64::from(sending) };
            if let Some(more) = streams.see(now) {
                seen.push(more);
                sending = more;
            }
        }
        seen
    }

    #[test]
    fn a_disk_that_answers_late_gets_more_streams() {
        // 1 MiB each 5 ms for each stream, 1.2 GB/s at most.
        assert_eq!(copy(|n| ((0.21 * n).min(1.2), 0.95)), [8, 16, 8], "16 are no faster than 8");
        assert_eq!(copy(|n| (0.05 * n, 0.95)), [8, 16]);
    }

    #[test]
    fn a_disk_whose_rate_is_the_limit_keeps_its_streams_after_one_trial() {
        assert_eq!(copy(|_| (0.5, 0.98)), [8, 2]);
        // Many places make it slower.
        assert_eq!(copy(|n| (0.2 / n, 0.98)), [8, 2]);
    }

    #[test]
    fn losses_that_hold_each_stream_get_more_of_them() {
        assert_eq!(copy_with_losses(3e-3, 20, |n| ((0.1 * n).min(1.2), 0.1)), [8, 16], "16 have a fifth more than 8");
        // A queue that overflows gives no more to more.
        assert_eq!(copy_with_losses(3e-3, 20, |_| (0.5, 0.1)), [8, 2]);
        // Few segments are all that the path holds.
        assert!(copy_with_losses(3e-3, 4, |n| (0.1 * n, 0.1)).is_empty());
        assert!(copy_with_losses(3e-5, 20, |n| (0.1 * n, 0.1)).is_empty());
    }

    #[test]
    fn nothing_is_tried_where_no_disk_limits_or_too_little_comes() {
        assert!(copy(|n| (1.2, 0.6 / n)).is_empty());
        assert!(copy(|_| (0.0001, 0.98)).is_empty());
    }
}
