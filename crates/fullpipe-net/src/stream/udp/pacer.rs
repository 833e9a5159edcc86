//! Decides when the datagrams of a stream are sent. It does no I/O.

/// Time over which datagrams are sent at once, ns: a thread cannot wake for each of many.
const BURST_NS: f64 = 100_000.0;
/// Most of a late sender's datagrams that are sent at once, as time at the rate, ns.
const LATE_BURST_NS: f64 = 1_000_000.0;
/// Delay that a sender makes up for, ns. What it could not send for longer is not sent.
const MAX_BACKLOG_NS: f64 = 200_000_000.0;
/// Factor by which a sender that is late may exceed the rate.
const CATCH_UP: f64 = 2.0;

/// Spaces datagrams evenly. Instants are those of one clock, ns.
#[derive(Debug)]
pub(super) struct Pacer {
    /// Time between two datagrams at the rate, ns.
    interval_ns: f64,
    /// When the next datagram is due; `None` before the first.
    due_ns: Option<f64>,
    /// Earliest instant for the next datagram of a sender that is late.
    free_ns: f64,
}

impl Pacer {
    pub(super) fn new(bytes_per_s: f64, datagram_bytes: usize) -> Pacer {
        Pacer { interval_ns: datagram_bytes as f64 * 1e9 / bytes_per_s, due_ns: None, free_ns: 0.0 }
    }

    /// Datagrams to send at once now, at least one and at most `most`: what is due, and what will be in a moment.
    pub(super) fn burst(&self, now_ns: u64, most: u64) -> u64 {
        let late_ns = self.due_ns.map_or(0.0, |due| now_ns as f64 - due).clamp(0.0, LATE_BURST_NS);
        (late_ns.max(BURST_NS) / self.interval_ns).min(most as f64).max(1.0) as u64
    }

    /// The instant from which the next datagram may be sent.
    pub(super) fn next_ns(&mut self, now_ns: u64) -> u64 {
        let now = now_ns as f64;
        let due = self.due_ns.get_or_insert(now);
        *due = due.max(now - MAX_BACKLOG_NS);
        due.max(self.free_ns) as u64
    }

    /// Takes in that datagrams were sent.
    pub(super) fn sent(&mut self, datagrams: u64, now_ns: u64) {
        let took = datagrams as f64 * self.interval_ns;
        self.due_ns = self.due_ns.map(|due| due + took);
        self.free_ns = now_ns as f64 + took / CATCH_UP;
    }

    /// Starts again: nothing was due before the next datagram.
    pub(super) fn restart(&mut self) {
        self.due_ns = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends until an instant, with a thread that sleeps `late_ns` too long each time; returns how many datagrams, and the most in
    /// any millisecond.
    fn run(bytes_per_s: f64, until_ns: u64, late_ns: impl Fn(u64) -> u64) -> (u64, u64) {
        let mut pacer = Pacer::new(bytes_per_s, 1_000);
        let (mut now, mut sent, mut times) = (1_000_000, 0, Vec::new());
        while now < 1_000_000 + until_ns {
            let next = pacer.next_ns(now);
            if next > now {
                now = next + late_ns(next);
                continue;
            }
            let n = pacer.burst(now, 64);
            pacer.sent(n, now);
            times.extend((0..n).map(|_| now));
            sent += n;
        }
        let most = times.iter().map(|from| times.iter().filter(|t| (*from..from + 1_000_000).contains(t)).count());
        (sent, most.max().unwrap_or(0) as u64)
    }

    #[test]
    fn datagrams_are_evenly_spaced() {
        // 10 Mbyte/s: 10 datagrams in each millisecond, each at its time.
        let (sent, most) = run(10e6, 100_000_000, |_| 0);
        assert!((999..=1_001).contains(&sent) && most <= 11, "{sent} {most}");
        assert_eq!(Pacer::new(10e6, 1_000).burst(0, 64), 1);
        // 100 Mbyte/s: ten at once.
        assert_eq!(Pacer::new(100e6, 1_000).burst(0, 64), 10);
        assert_eq!(Pacer::new(100e6, 1_000).burst(0, 4), 4);
    }

    #[test]
    fn a_late_thread_keeps_the_rate_without_a_burst() {
        let (sent, most) = run(10e6, 100_000_000, |at| if at % 10_000_000 < 100_000 { 5_000_000 } else { 50_000 });
        assert!((980..=1_001).contains(&sent) && most <= 22, "{sent} {most}");
    }

    #[test]
    fn what_was_not_sent_for_long_is_not_sent() {
        let mut pacer = Pacer::new(10e6, 1_000);
        let begun = pacer.next_ns(1_000_000);
        pacer.sent(1, begun);
        assert_eq!(pacer.next_ns(10_000_000_000), 10_000_000_000 - MAX_BACKLOG_NS as u64);
        pacer.restart();
        assert_eq!(pacer.next_ns(20_000_000_000), 20_000_000_000);
    }
}
