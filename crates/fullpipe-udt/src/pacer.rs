//! Pacing: how many packets may be sent now, and when the next ones may be.
//!
//! Section 6.1 waits SND between two packets, and libudt spins until that time. Here packets become due at that rate and leave in
//! bursts: the sender waits until half a burst is due, and sends at most one burst at once. So a timer that is late by up to
//! half a burst costs no rate. Where a queue on the path does not hold that half, the sender waits for less. Each packet of a burst
//! has an instant at which it leaves if the kernel spaces them, one period after the one before it.

/// Shortest time that a sender waits for packets to become due, nanoseconds: one message of the kernel at 20 Gb/s.
const MIN_WAIT_NS: u64 = 25_000;
/// After a pause, a burst has at most what becomes due in this number of waits.
const WAITS_AFTER_PAUSE: u64 = 3;
/// Divisor of a shortened wait by which it grows with each call of [`Pacer::set_burst_ns`]: twice as long after 7 s of ACKs.
const LENGTHENING: u64 = 1_000;
/// Longest time that a packet waits in the kernel, nanoseconds. The fq qdisc drops what is to leave after 10 s (`tc-fq(8)`).
const MAX_WAIT_NS: u64 = 1_000_000_000;

/// A pacer. The period between packets is given with each call, since congestion control changes it.
#[derive(Debug)]
pub struct Pacer {
    /// Time that a burst lasts at the present rate, nanoseconds.
    burst_ns: u64,
    /// Packets of a burst, at most.
    max_packets: u64,
    /// Time in which become due what begins a burst, nanoseconds: half a burst, unless it was shortened.
    wait_ns: u64,
    /// Before this instant it is not shortened again.
    shortened_until_ns: u64,
    /// When the next packet is due.
    due_ns: u64,
    /// Part of a nanosecond by which it is due later.
    due_fraction: f64,
    /// When the last burst began: at that instant packets go on until none is due.
    burst_began_ns: Option<u64>,
    /// When the kernel lets the next packet leave, if it spaces them.
    leaves_ns: u64,
}

impl Pacer {
    /// Bursts last `burst_ns` at the present rate, and have between 2 and `max_packets` packets. The first one is due at once.
    pub fn new(now_ns: u64, burst_ns: u64, max_packets: u64) -> Pacer {
        Pacer {
            burst_ns,
            max_packets: max_packets.max(2),
            wait_ns: burst_ns / 2,
            shortened_until_ns: now_ns,
            due_ns: now_ns.saturating_sub(burst_ns),
            due_fraction: 0.0,
            burst_began_ns: None,
            leaves_ns: now_ns,
        }
    }

    /// Changes the time that bursts last at the present rate. A wait that was shortened grows a little towards half of it.
    pub fn set_burst_ns(&mut self, burst_ns: u64) {
        self.wait_ns = if self.wait_ns >= self.burst_ns / 2 {
            burst_ns / 2
        } else {
            (self.wait_ns + self.wait_ns.div_ceil(LENGTHENING)).min(burst_ns / 2)
        };
        self.burst_ns = burst_ns;
    }

    /// Halves the time that the sender waits, since a queue on the path did not hold what became due meanwhile. What is sent before
    /// it can be known whether that helps counts no more: one round trip.
    pub fn shorten(&mut self, now_ns: u64, rtt_ns: u64) {
        if now_ns >= self.shortened_until_ns {
            self.wait_ns = (self.wait_ns / 2).max(MIN_WAIT_NS.min(self.wait_ns));
            self.shortened_until_ns = now_ns.saturating_add(rtt_ns);
        }
    }

    /// Packets of a burst, at most, when they are `period_ns` apart.
    pub fn burst(&self, period_ns: f64) -> u64 {
        ((self.burst_ns as f64 / period_ns) as u64).clamp(2, self.max_packets)
    }

    /// Packets that begin a burst when they are `period_ns` apart.
    fn beginning(&self, period_ns: f64) -> u64 {
        ((self.wait_ns as f64 / period_ns) as u64).clamp(1, self.burst(period_ns) / 2)
    }

    /// Packets that may be sent now. A burst begins when half of it is due, or what a shorter wait brings.
    pub fn allowance(&mut self, now_ns: u64, period_ns: f64) -> u64 {
        // No timer is late by more than a burst, so a longer gap is a pause. It is not made up for: a wait that was shortened has
        // shown that a queue on the path does not hold a burst.
        let paused = now_ns.saturating_sub(self.due_ns) > self.burst_ns;
        let after_pause = (WAITS_AFTER_PAUSE * self.wait_ns) as f64 / period_ns;
        let burst = if paused { self.burst(period_ns).min((after_pause as u64).max(2)) } else { self.burst(period_ns) };
        let earliest = now_ns.saturating_sub(((burst - 1) as f64 * period_ns) as u64);
        if self.due_ns < earliest {
            (self.due_ns, self.due_fraction) = (earliest, 0.0);
        }
        if now_ns < self.due_ns {
            return 0;
        }
        let due = (((now_ns - self.due_ns) as f64 / period_ns) as u64).saturating_add(1).min(burst);
        if due < self.beginning(period_ns) && self.burst_began_ns != Some(now_ns) {
            return 0;
        }
        self.burst_began_ns = Some(now_ns);
        due
    }

    /// Counts packets as sent.
    pub fn sent(&mut self, packets: u64, period_ns: f64) {
        let time = packets as f64 * period_ns + self.due_fraction;
        self.due_ns = self.due_ns.saturating_add(time as u64);
        self.due_fraction = time.fract();
    }

    /// Has packets leave one behind the other, a period apart; the first one when the packet before it has its turn, if `joined`.
    /// Returns how long the first one waits in a kernel that spaces them, nanoseconds.
    pub fn leave(&mut self, now_ns: u64, packets: u64, joined: bool, period_ns: f64) -> u64 {
        let first = if joined { self.leaves_ns.saturating_sub(period_ns as u64) } else { self.leaves_ns };
        let first = first.max(now_ns);
        self.leaves_ns = first.saturating_add((packets as f64 * period_ns) as u64);
        (first - now_ns).min(MAX_WAIT_NS)
    }

    /// When a burst may begin, nanoseconds.
    pub fn next_ns(&self, period_ns: f64) -> u64 {
        let wait = (self.beginning(period_ns) - 1) as f64 * period_ns;
        // A nanosecond more than rounding can take: at this instant a burst must be due, or a sender would spin.
        self.due_ns.saturating_add((wait + self.due_fraction).ceil() as u64).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtt::Rtt;

    /// A pacer as it is over a short path, with an RTT of 0.1 ms.
    fn pacer(now_ns: u64, max_packets: u64) -> Pacer {
        Pacer::new(now_ns, Rtt::new(Some(100_000)).burst_ns(), max_packets)
    }

    /// Sends for a second with a timer that is `late_ns` late; returns the packets sent and the largest burst.
    fn second(period_ns: f64, late_ns: u64) -> (u64, u64) {
        let (mut pacer, mut now, mut sent, mut largest) = (pacer(0, 1_000), 0, 0, 0);
        while now < 1_000_000_000 {
            let n = pacer.allowance(now, period_ns);
            pacer.sent(n, period_ns);
            (sent, largest) = (sent + n, largest.max(n));
            now = pacer.next_ns(period_ns).max(now) + late_ns;
        }
        (sent, largest)
    }

    #[test]
    fn the_rate_is_exact_even_with_late_timers() {
        for (period_ns, packets) in
            [(1_200.0, 833_333u64), (1_234.567, 810_000), (120_000.0, 8_333), (7_000.0, 142_857)]
        {
            for late_ns in [0, 50_000, 90_000] {
                let (sent, largest) = second(period_ns, late_ns);
                assert!(sent.abs_diff(packets) <= packets / 1_000 + 2, "{period_ns} ns, {late_ns} late: {sent}");
                assert!(largest as f64 * period_ns <= 200_000.0_f64.max(2.0 * period_ns), "{period_ns}: {largest}");
            }
        }
    }

    #[test]
    fn a_kernel_that_spaces_packets_has_them_a_period_apart_and_holds_none_for_longer_than_a_burst() {
        let period_ns = 1_200.0;
        for late_ns in [0, 50_000, 90_000] {
            let (mut pacer, mut now, mut before) = (pacer(0, 1_000), 1_000_000, 0);
            while now < 1_000_000_000 {
                let n = pacer.allowance(now, period_ns);
                let wait = pacer.leave(now, n, false, period_ns);
                pacer.sent(n, period_ns);
                assert!(now + wait >= before, "{late_ns}: {now} + {wait} < {before}");
                assert!(wait <= 200_000, "{late_ns}: {wait}");
                before = now + wait + (n as f64 * period_ns) as u64;
                now = pacer.next_ns(period_ns).max(now) + late_ns;
            }
        }
    }

    #[test]
    fn a_wait_that_was_not_shortened_follows_the_round_trip() {
        let mut pacer = pacer(0, 64);
        for burst_ns in [200_001, 300_000, 499_999, 200_000] {
            pacer.set_burst_ns(burst_ns);
            assert_eq!(pacer.wait_ns, burst_ns / 2);
        }
    }

    #[test]
    fn the_second_packet_of_a_pair_leaves_with_the_first() {
        let mut pacer = pacer(0, 64);
        assert_eq!(pacer.leave(0, 10, false, 1_000.0), 0);
        assert_eq!(pacer.leave(0, 1, true, 1_000.0), 9_000);
        assert_eq!(pacer.leave(0, 1, false, 1_000.0), 10_000);
        assert_eq!(pacer.leave(1_000_000, 1, true, 1_000.0), 0, "the first one has left long ago");
    }

    #[test]
    fn a_shortened_wait_makes_bursts_small_costs_no_rate_and_grows_again() {
        let period_ns = 1_200.0;
        for late_ns in [0, 20_000, 100_000] {
            let (mut pacer, mut now, mut sent, mut largest) = (pacer(0, 1_000), 0, 0, 0);
            for n in 0..10 {
                pacer.shorten(n * 1_000, 5_000);
            }
            assert_eq!(
                pacer.wait_ns, MIN_WAIT_NS,
                "100 us, halved twice: the other calls were within an RTT of one before"
            );
            while now < 1_000_000_000 {
                let n = pacer.allowance(now, period_ns);
                pacer.sent(n, period_ns);
                (sent, largest) = (sent + n, largest.max(n));
                now = pacer.next_ns(period_ns).max(now) + late_ns;
            }
            assert!(sent >= 832_000, "{late_ns}: {sent}");
            assert!(largest <= (MIN_WAIT_NS + late_ns) / 1_200 + 2, "{late_ns}: {largest}");
            assert_eq!(pacer.allowance(2 * now, period_ns), 62, "nor does a pause make a longer one");
            for _ in 0..2 * LENGTHENING {
                pacer.set_burst_ns(200_000);
            }
            assert_eq!(pacer.wait_ns, 100_000);
        }
    }

    #[test]
    fn idle_time_is_not_made_up_for() {
        let mut pacer = pacer(0, 64);
        assert_eq!(pacer.allowance(3_600_000_000_000, 1_000.0), 64);
        pacer.sent(64, 1_000.0);
        assert_eq!(pacer.allowance(3_600_000_000_000, 1_000.0), 0);
    }

    proptest::proptest! {
        #[test]
        fn at_the_instant_that_it_names_packets_may_be_sent(period_ns in 1.0..1e6f64, start in 0u64..1 << 50, sent in 1u64..300) {
            let mut pacer = pacer(start, 256);
            pacer.allowance(start, period_ns);
            pacer.sent(sent, period_ns);
            for _ in 0..20 {
                let now = pacer.next_ns(period_ns).max(start);
                let n = pacer.allowance(now, period_ns);
                proptest::prop_assert!(n > 0, "{} ns", now);
                pacer.sent(n, period_ns);
            }
        }
    }

    #[test]
    fn no_period_is_too_short_or_too_long() {
        let mut pacer = pacer(0, 64);
        for period_ns in [f64::MIN_POSITIVE, 1e-3, 1e18, f64::MAX] {
            let n = pacer.allowance(5, period_ns);
            assert!(n <= 64);
            assert!(pacer.leave(5, n, false, period_ns) <= MAX_WAIT_NS);
            pacer.sent(n, period_ns);
            assert!(pacer.next_ns(period_ns) >= pacer.due_ns);
        }
    }
}
