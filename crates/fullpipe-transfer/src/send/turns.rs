//! Decides when streams begin to send. Pure.
//!
//! Linux paces no connection's first ten segments (`tcp_update_skb_after_send`, tcp_output.c). Those of many streams at once are more
//! than a short queue holds, and the losses keep each stream slow for seconds.

use std::time::{Duration, Instant};

/// Least number of streams that begin one after the other although nothing is known of the path.
const MANY: u16 = 16;
/// Segments of a connection that are not paced (RFC 6928).
const FIRST_SEGMENTS: f64 = 10.0;

/// Streams that may send from the same instant on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turns {
    first: u16,
    n: u16,
    from: Instant,
    /// Whether the path's rate is known, at which the streams are paced.
    is_paced: bool,
}

impl Turns {
    /// The `n` streams on which a copy begins.
    pub(super) fn new(n: u16, from: Instant) -> Turns {
        Turns { first: 0, n, from, is_paced: false }
    }

    /// Those from `sending` on until `n`, which follow once the path has been measured.
    pub(super) fn of_more(sending: u16, n: u16, from: Instant) -> Turns {
        Turns { first: sending, n: n.saturating_sub(sending), from, is_paced: true }
    }

    /// When stream `i` begins, over a path with this round-trip time. `segment` has its bytes and `pace` the bytes per second that the
    /// stream may send, once the path's rate is known.
    pub(super) fn begins(&self, i: u16, rtt: Duration, segment: f64, pace: f64) -> Instant {
        let over = match self.is_paced {
            false if self.n < MANY => Duration::ZERO,
            false => rtt / 2,
            true => Duration::try_from_secs_f64(FIRST_SEGMENTS * segment / pace).unwrap_or(rtt).min(rtt),
        };
        self.from + over.mul_f64(f64::from(i.saturating_sub(self.first)) / f64::from(self.n.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_windows_follow_each_other_at_the_paths_rate() {
        let (from, rtt) = (Instant::now(), Duration::from_millis(60));
        let after = |turns: Turns, i, pace| (turns.begins(i, rtt, 1448.0, pace) - from).as_micros();
        // Nothing is known: within half a round trip, unless they are few.
        assert_eq!([0, 32, 63].map(|i| after(Turns::new(64, from), i, 1e12)), [0, 15_000, 29_531]);
        assert_eq!([0, 7].map(|i| after(Turns::new(8, from), i, 1e12)), [0, 0]);
        // 40 more have 300 Mb/s together with 24: 14,480 bytes of each take 24.7 ms.
        let more = Turns::of_more(24, 64, from);
        assert_eq!([0, 24, 44].map(|i| after(more, i, 300e6 / 8.0 / 64.0)), [0, 0, 12_356]);
        // A slow path takes no longer than a round trip, one without a limit no time.
        assert_eq!([1e3, 0.0, f64::INFINITY].map(|pace| after(more, 44, pace)), [30_000, 30_000, 0]);
    }
}
