//! The EXP timer (sections 4 and 6.2): it notices that the other end has been silent, and for how long.

use crate::clock::SYN_NS;
use crate::rtt::Rtt;

/// Shortest EXP interval, nanoseconds (libudt; the draft suggests 0.5 s).
const MIN_INTERVAL_NS: u64 = 300_000_000;
/// Expirations after which a connection can be lost (section 5.3).
const MIN_EXPIRATIONS: u64 = 16;
/// Shortest silence after which a connection can be lost, nanoseconds (section 5.3).
const MIN_SILENCE_NS: u64 = 3_000_000_000;
/// Intervals in the silence after which a connection is lost, at least: one answer that is late loses none.
const MIN_INTERVALS: u64 = 4;

/// What an expiration means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expired {
    /// The timer has not expired.
    No,
    /// Lost packets are to be sent again, or a keep-alive.
    Once,
    /// The other end is gone.
    PeerLost,
}

/// The EXP timer. Its intervals grow: the n-th lasts n times RTT + 4 RTTVar, plus SYN, and at least n times 0.3 s.
#[derive(Debug)]
pub(crate) struct ExpTimer {
    /// Expirations since the other end was heard, plus one (ExpCount).
    count: u64,
    /// When the running interval began.
    since_ns: u64,
    /// Length of the intervals that have expired since the other end was heard. It is counted in intervals, so that a step of the
    /// clock, or a process that was stopped, counts as one interval.
    silent_ns: u64,
    /// Silence after which a connection is lost in any case (section 5.3: 30 s).
    peer_timeout_ns: u64,
}

impl ExpTimer {
    pub fn new(now_ns: u64, peer_timeout_ns: u64) -> ExpTimer {
        ExpTimer { count: 1, since_ns: now_ns, silent_ns: 0, peer_timeout_ns }
    }

    /// The other end has been heard. With `restart`, the running interval begins anew (section 6.2, step 3 of the receiver).
    pub fn heard(&mut self, now_ns: u64, restart: bool) {
        (self.count, self.silent_ns) = (1, 0);
        if restart {
            self.since_ns = now_ns;
        }
    }

    /// Data is written after a time without any: it has a whole interval to be acknowledged (libudt, `CUDT::send`).
    pub fn data_begins(&mut self, now_ns: u64) {
        self.since_ns = now_ns;
    }

    fn interval_ns(&self, rtt: &Rtt) -> u64 {
        let interval = self.count.saturating_mul(rtt.answer_ns()).saturating_add(SYN_NS);
        let interval = interval.max(self.count.saturating_mul(MIN_INTERVAL_NS));
        let left = self.peer_timeout_ns.saturating_sub(self.silent_ns).max(SYN_NS);
        interval.min(left).min(self.peer_timeout_ns / MIN_INTERVALS)
    }

    /// When the timer expires.
    pub fn next_ns(&self, rtt: &Rtt) -> u64 {
        self.since_ns.saturating_add(self.interval_ns(rtt))
    }

    /// Lets the timer expire if it is time (section 6.2, "EXP Event Processing"). One call is one expiration at most.
    pub fn expire(&mut self, now_ns: u64, rtt: &Rtt) -> Expired {
        if now_ns < self.next_ns(rtt) {
            return Expired::No;
        }
        self.silent_ns = self.silent_ns.saturating_add(self.interval_ns(rtt));
        self.since_ns = now_ns;
        let often = self.count > MIN_EXPIRATIONS && self.silent_ns >= MIN_SILENCE_NS;
        if often || self.silent_ns >= self.peer_timeout_ns {
            return Expired::PeerLost;
        }
        self.count += 1;
        Expired::Once
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_is_lost_after_thirty_seconds() {
        for rtt_ns in [100_000, 100_000_000, 2_000_000_000] {
            let (rtt, mut timer) = (Rtt::new(Some(rtt_ns)), ExpTimer::new(0, 30_000_000_000));
            let mut expirations = 1;
            while timer.expire(timer.next_ns(&rtt), &rtt) == Expired::Once {
                expirations += 1;
            }
            let now = timer.since_ns;
            assert!((3_000_000_000..=30_100_000_000).contains(&now), "{now}");
            assert!(expirations > 2);
        }
    }

    #[test]
    fn a_step_of_the_clock_is_one_expiration() {
        let (rtt, mut timer) = (Rtt::new(Some(1_000_000)), ExpTimer::new(0, 30_000_000_000));
        let day = 86_400_000_000_000;
        assert_eq!(timer.expire(day, &rtt), Expired::Once);
        assert_eq!(timer.expire(day, &rtt), Expired::No);
        timer.heard(day, true);
        assert_eq!(timer.expire(day + 299_999_999, &rtt), Expired::No);
        assert_eq!(timer.expire(day + 300_000_000, &rtt), Expired::Once);
    }
}
