//! A limit below the rate at which the queue overflowed before it could be seen.
//!
//! Where the bottleneck holds less than the queue that is let stand, rate probes find what is free only by losing segments,
//! and each loss costs TCP half of its window. So a rate that overflowed the queue is remembered, and rates stay below it.
//! The longest delay of the probes shows whether other traffic has left: at 1 Gb/s it is 0.2 to 0.3 ms beside others, and
//! one of TCP's own bursts without them. The outcome of a single rate probe does not tell the two apart.
//!
//! Several such transfers would each stay below what they had when they met. So a transfer with a small share does not wait:
//! it raises its limit by a fraction of the capacity, the same for all, while losses lower limits by a fraction of
//! themselves, more for a transfer with a large share. Together these lead to even shares (Chiu and Jain, Computer Networks
//! and ISDN Systems 17, 1989). Where nobody gives way, it waits longer each time, up to as long as a transfer with a large
//! share does.

use super::params::RATE;

/// How the limit falls and rises.
struct Params {
    /// A queue of at least this delay shows before it overflows, so its overflow sets no limit, seconds.
    deep_s: f64,
    /// The delay must also be at least this fraction of the RTT.
    deep_rtts: f64,
    /// Limit as a fraction of the rate that overflowed the queue.
    beneath: f64,
    /// Least limit as a fraction of the first rate that overflowed. Losses below it are chance, however many there are.
    floor: f64,
    /// Rate probes in a row that must leave no queue but TCP's own bursts before the limit rises.
    clear_probes: usize,
    /// Time without a loss after which the limit rises although clocks are too coarse to show clear probes, nanoseconds.
    max_wait_ns: u64,
    /// First rise, as a fraction of the limit. Each further rise is twice as large.
    first_rise: f64,
    /// A rise of this fraction would be so large that the limit is dropped: others have left.
    last_rise: f64,
    /// Above this share of the capacity, overflows lower the floor.
    large_share: f64,
    /// Factor for the floor at such an overflow, if the queue was longer than it should be, so that the loss is no chance.
    wear: f64,
    /// Below this share of the capacity, a transfer pushes.
    small_share: f64,
    /// Rise of a push, as a fraction of the capacity.
    push: f64,
    /// Least time between pushes, nanoseconds. It doubles up to `max_wait_ns` after each push that gained nothing.
    min_wait_ns: u64,
    /// A push has gained something if the limit reaches this multiple of the highest one so far.
    gained: f64,
    /// Below this fraction of the highest limit so far, others have come and that limit no longer counts.
    others_came: f64,
    /// Time after a loss during which the limit needs no confirmation by packet trains, nanoseconds.
    fresh_ns: u64,
}

const PARAMS: Params = Params {
    deep_s: 4e-3,
    deep_rtts: 0.08,
    beneath: 0.98,
    floor: 0.95,
    clear_probes: 5,
    max_wait_ns: 10_000_000_000,
    first_rise: 0.02,
    last_rise: 0.16,
    large_share: 0.5,
    wear: 0.99,
    small_share: 0.4,
    push: 0.07,
    min_wait_ns: 1_500_000_000,
    gained: 1.03,
    others_came: 0.85,
    fresh_ns: 2_000_000_000,
};

/// A queue that overflowed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Overflow {
    /// Least RTT, nanoseconds.
    pub base_ns: u64,
    /// Longest delay that the queue had, seconds.
    pub delay: f64,
    /// Whether the queue was longer than it should have been.
    pub too_long: bool,
    /// Rate that was sent, bit/s; none if it was unlimited.
    pub rate: Option<f64>,
    /// Rate that the path gave, bit/s.
    pub given: f64,
    /// Estimate of the path's capacity, bit/s.
    pub capacity: Option<f64>,
}

/// The limit, and how patiently it is raised.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ceiling {
    limit: Option<Limit>,
    patience: Patience,
}

impl Ceiling {
    /// The limit, bit/s.
    pub fn bps(&self) -> Option<f64> {
        self.limit.map(|limit| limit.bps)
    }

    /// Whether a loss has confirmed so lately that nothing is free above `rate` that packet trains need not ask.
    pub fn is_fresh_above(&self, now: u64, rate: f64) -> bool {
        self.limit.is_some_and(|limit| rate <= limit.bps && now < limit.lost.saturating_add(PARAMS.fresh_ns))
    }

    /// Sets the limit after an overflow, if the sender filled its rate and the queue was too shallow to show first.
    pub fn overflowed(&mut self, now: u64, overflow: Overflow) {
        let Overflow { base_ns, delay, too_long, rate, given, capacity } = overflow;
        if delay >= PARAMS.deep_s.max(PARAMS.deep_rtts * base_ns as f64 * 1e-9) {
            return;
        }
        let Some(rate) = rate.filter(|rate| given > RATE.sender_limited * rate) else { return };
        // A sender that exceeds what is left pushes others aside in the queue: sending p beside x, it gets p·C'/(p + x).
        let others = capacity.map_or(0.0, |capacity| capacity / given - 1.0).clamp(0.0, 1.0);
        let taken = (rate / given - 1.0).max(0.0) * others;
        let wear = too_long && capacity.is_none_or(|capacity| given.min(rate) > PARAMS.large_share * capacity);
        let limit = Limit::beneath((1.0 - taken) * given.min(rate), wear, self.limit, now);
        self.patience = self.patience.lost(limit.bps);
        self.limit = Some(limit);
    }

    /// Takes in a rate probe at the limit that left no queue (`clear`) or left one. Returns whether others have left, so
    /// that the limit is gone; nothing if there was none.
    pub fn probed(&mut self, now: u64, clear: bool, capacity: Option<f64>) -> Option<bool> {
        let (limit, capacity) = (self.limit?, capacity?);
        let small = limit.bps < PARAMS.small_share * capacity;
        let (wait, push) = if small { (self.patience.wait, PARAMS.push * capacity) } else { (PARAMS.max_wait_ns, 0.0) };
        self.limit = limit.probed(now, clear, wait, push);
        // A smaller rise came from clear probes, not from a push.
        self.patience.pushed |= small && self.limit.is_none_or(|raised| raised.bps >= limit.bps + push);
        Some(clear && self.limit.is_none())
    }
}

/// The limit.
#[derive(Debug, Clone, Copy)]
struct Limit {
    /// bit/s.
    bps: f64,
    /// First rate that overflowed, which the floor is a fraction of, bit/s.
    first: f64,
    /// Next rise, as a fraction of the limit.
    rise: f64,
    /// Rate probes in a row that left no queue.
    clear: usize,
    /// When the limit last changed.
    since: u64,
    /// When segments were last lost.
    lost: u64,
}

impl Limit {
    /// A limit beneath a rate that overflowed the queue, after an earlier limit. `wear` lowers the floor.
    fn beneath(bps: f64, wear: bool, earlier: Option<Limit>, now: u64) -> Limit {
        // At a rate far below the earlier limit, others take more than they did, and that limit no longer applies.
        let same = earlier.filter(|earlier| bps > PARAMS.beneath * PARAMS.floor * earlier.first);
        let first = same.map_or(bps, |earlier| if wear { PARAMS.wear * earlier.first } else { earlier.first });
        let beneath = (PARAMS.beneath * bps).max(PARAMS.floor * first);
        // Losses that do not lower the limit, and wear, do not keep it from being raised.
        let least = if wear { PARAMS.wear * PARAMS.wear } else { 1.0 };
        let since = same.filter(|earlier| least * earlier.bps <= beneath).map_or(now, |earlier| earlier.since);
        Limit { bps: beneath, first, rise: PARAMS.first_rise, clear: 0, since, lost: now }
    }

    /// The limit after a rate probe; none if others have left. Where probes do not show that, the limit rises after `wait`
    /// nanoseconds by at least `push` bit/s.
    fn probed(self, now: u64, clear: bool, wait: u64, push: f64) -> Option<Limit> {
        let clear = if clear { self.clear + 1 } else { 0 };
        if clear < PARAMS.clear_probes && now < self.since.saturating_add(wait) {
            return Some(Limit { clear, ..self });
        }
        let push = if clear < PARAMS.clear_probes { push } else { 0.0 };
        let bps = self.bps + (self.rise * self.bps).max(push);
        let raised = Limit { bps, rise: 2.0 * self.rise, clear: 0, since: now, ..self };
        (raised.rise < PARAMS.last_rise).then_some(raised)
    }
}

/// How long a transfer with a small share waits before it pushes.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// Time for which the limit stays, nanoseconds.
    wait: u64,
    /// Whether the limit was raised by a push since the last loss.
    pushed: bool,
    /// Highest limit so far, bit/s.
    most: f64,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { wait: PARAMS.min_wait_ns, pushed: false, most: 0.0 }
    }
}

impl Patience {
    /// A queue overflowed, and the limit is now `bps`.
    fn lost(self, bps: f64) -> Patience {
        let wait = match self.pushed {
            true if bps >= PARAMS.gained * self.most => PARAMS.min_wait_ns,
            true => (2 * self.wait).min(PARAMS.max_wait_ns),
            false => self.wait,
        };
        let most = if bps < PARAMS.others_came * self.most { bps } else { self.most.max(bps) };
        Patience { wait, pushed: false, most }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_at_the_limit_lower_it_to_a_floor_only() {
        let mut limit = Limit::beneath(100.0, false, None, 0);
        assert_eq!(limit.bps, 98.0);
        for second in 1..20 {
            limit = Limit::beneath(limit.bps, false, Some(limit), second * 1_000_000_000);
        }
        assert_eq!(limit.bps, 95.0);
        // It falls further where the losses are known to be no chance.
        assert!(Limit::beneath(95.0, true, Some(limit), 0).bps < 94.1);
        // Losses that do not lower it do not keep it from being raised.
        assert!(limit.probed(19_000_000_000, false, PARAMS.max_wait_ns, 0.0).unwrap().bps > 96.0);
        // A loss at a far lower rate means that others take more: it replaces the limit.
        assert_eq!(Limit::beneath(60.0, false, Some(limit), 20_000_000_000).bps, 58.8);
    }

    #[test]
    fn clear_probes_raise_the_limit_away() {
        let mut limit = Some(Limit::beneath(100.0, false, None, 0));
        for _ in 0..2 {
            limit = limit.unwrap().probed(1, true, PARAMS.max_wait_ns, 0.0);
        }
        limit = limit.unwrap().probed(1, false, PARAMS.max_wait_ns, 0.0);
        let mut probes = 0;
        while let Some(now) = limit {
            assert!(now.bps >= 98.0 && probes < 20, "{now:?}");
            limit = now.probed(1, true, PARAMS.max_wait_ns, 0.0);
            probes += 1;
        }
        assert_eq!(probes, 15);
    }

    #[test]
    fn a_small_share_pushes_ever_less_often_where_it_gains_nothing() {
        let mut patience = Patience::default().lost(100.0);
        assert_eq!(patience.wait, PARAMS.min_wait_ns);
        let pushed = |patience: Patience| Patience { pushed: true, ..patience };
        for _ in 0..9 {
            patience = pushed(patience).lost(102.0);
        }
        assert_eq!(patience.wait, PARAMS.max_wait_ns);
        // A gain without a push changes nothing.
        assert_eq!(patience.lost(120.0).wait, PARAMS.max_wait_ns);
        assert_eq!(pushed(patience).lost(110.0).wait, PARAMS.min_wait_ns);
        // After others have come, less is a gain.
        let fewer = pushed(patience).lost(60.0);
        assert_eq!((fewer.wait, pushed(fewer).lost(65.0).wait), (PARAMS.max_wait_ns, PARAMS.min_wait_ns));
        let limit = Limit::beneath(100.0, false, None, 0);
        assert_eq!(limit.probed(PARAMS.min_wait_ns - 1, false, PARAMS.min_wait_ns, 70.0).unwrap().bps, 98.0);
        assert_eq!(limit.probed(PARAMS.min_wait_ns, false, PARAMS.min_wait_ns, 70.0).unwrap().bps, 168.0);
    }
}
