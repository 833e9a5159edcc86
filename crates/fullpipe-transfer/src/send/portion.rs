//! Decides how much a stream takes at once: less than `--block` where the path is slow. Pure.
//!
//! A block or a pack of small files counts only when all of it has come, so about one of each stream is sent again after an
//! interruption.

use std::time::Duration;

/// Time in which a portion is to come, seconds.
const TIME_S: f64 = 2.0;
/// Most bytes of the first portions, when no rate is known.
const FIRST_BYTES: u64 = 256 << 10;
/// Least bytes that a portion may have at any rate.
const LEAST_BYTES: u64 = 64 << 10;
/// Least time over which a rate is measured.
const WINDOW: Duration = Duration::from_millis(150);

/// How much a stream takes at once.
pub(super) struct Portion {
    most: u64,
    /// When the rate that is being measured began, and the bytes that had come by then.
    from: (Duration, u64),
}

impl Portion {
    pub(super) fn new() -> Portion {
        Portion { most: FIRST_BYTES, from: (Duration::ZERO, 0) }
    }

    /// Most bytes of the next block or pack.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// Takes in the time since the start, the bytes that have come to the receiver, and the streams that send.
    pub(super) fn see(&mut self, at: Duration, bytes: u64, streams: u16) {
        let (took, come) = (at.saturating_sub(self.from.0), bytes.saturating_sub(self.from.1));
        // As long as nothing comes, a disk or a loss has stopped it, and nothing shows a rate.
        if took < WINDOW || come == 0 {
            return;
        }
        self.from = (at, bytes);
        let each = come as f64 / took.as_secs_f64() / f64::from(streams.max(1));
        self.most = ((each * TIME_S) as u64).max(LEAST_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_portion_is_what_comes_in_two_seconds() {
        let mut portion = Portion::new();
        assert_eq!(portion.most(), FIRST_BYTES);
        // Nothing, too soon, 1 MB/s on two streams, 10 kB/s, and 10 GB/s.
        for (ms, bytes, most) in [
            (200, 0, FIRST_BYTES),
            (100, 50_000, FIRST_BYTES),
            (1000, 1_000_000, 1_000_000),
            (2000, 1_010_000, LEAST_BYTES),
            (3000, 10_001_010_000, 10_000_000_000),
        ] {
            portion.see(Duration::from_millis(ms), bytes, 2);
            assert_eq!(portion.most(), most, "{ms} ms");
        }
    }
}
