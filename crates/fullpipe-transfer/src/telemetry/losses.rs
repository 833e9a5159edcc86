//! Measures the path's losses from the sending end's counters while it sends: the kernel's of TCP, or UDT's own.
//!
//! The few packets of the connection setup cannot distinguish a loss of one in a thousand from none, but at that loss CUBIC
//! leaves nine tenths of a long path empty. The transfer's own segments are enough to tell.

use std::time::{Duration, Instant};

use fullpipe_net::stream::Observation;

use crate::protocol::losses::{Losses, Sent};

/// First interval between samples.
const FIRST_INTERVAL: Duration = Duration::from_millis(200);
/// Most samples that are kept. Beyond that, every second one is dropped and the interval doubles.
const MAX_SAMPLES: usize = 64;

/// The counters of all streams at one instant.
#[derive(Debug, Clone, Copy, Default)]
struct LossSample {
    sent: Sent,
    queue_ns: u64,
    held: f64,
}

/// Segments of all streams of a sender together, so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Segments {
    /// Those that were sent.
    pub sent: u64,
    /// Those of them that were sent again.
    pub again: u64,
    /// Those that have not been acknowledged.
    pub in_flight: u64,
}

/// Samples the streams' counters while they send.
pub(crate) struct LossWatch {
    began: Instant,
    every: Duration,
    samples: Vec<LossSample>,
}

impl LossWatch {
    /// Starts now.
    pub fn new() -> LossWatch {
        LossWatch { began: Instant::now(), every: FIRST_INTERVAL, samples: Vec::new() }
    }

    /// Takes a sample if one is due; call it several times a second. `seen` is what the streams' transport
    /// tells. Returns what they have sent so far.
    pub fn sample(&mut self, seen: &[Option<Observation>]) -> Segments {
        let now = self.now(seen);
        let infos = seen.iter().flatten().filter_map(|one| one.tcp_info.as_ref());
        let in_flight = infos.map(|info| info.get("unacked").unwrap_or(0)).sum();
        let segments = Segments { sent: now.sent.segments, again: now.sent.again, in_flight };
        let last = self.samples.last().map_or(0, |look| look.sent.ns);
        if last + self.every.as_nanos() as u64 > now.sent.ns {
            return segments;
        }
        self.samples.push(now);
        if self.samples.len() > MAX_SAMPLES {
            let mut kept = false;
            self.samples.retain(|_| {
                kept = !kept;
                kept
            });
            self.every *= 2;
        }
        segments
    }

    fn now(&self, seen: &[Option<Observation>]) -> LossSample {
        let mut sent = Sent { ns: self.began.elapsed().as_nanos() as u64, ..Sent::default() };
        let (mut queues, mut held) = (Vec::new(), 0);
        for udt in seen.iter().flatten().filter_map(|one| one.udt) {
            sent.segments += udt.counters.pkt_sent;
            sent.again += udt.counters.pkt_retrans;
            sent.bytes += udt.acked_bytes;
        }
        for info in seen.iter().flatten().filter_map(|one| one.tcp_info.as_ref()) {
            let get = |name| info.get(name).unwrap_or(0);
            sent.segments += get("data_segs_out");
            let again = get("total_retrans");
            sent.again += again;
            // If the network duplicates packets, there are more of these than retransmissions.
            sent.needless += get("dsack_dups").min(again);
            sent.bytes += get("bytes_acked");
            sent.window_ns += 1000 * (get("rwnd_limited") + get("sndbuf_limited"));
            if get("notsent_bytes") > 0 {
                held += 1;
                queues.push(1000 * get("rtt").saturating_sub(get("min_rtt")));
            }
        }
        queues.sort_unstable();
        LossSample {
            sent,
            queue_ns: queues.get(queues.len() / 2).copied().unwrap_or(0),
            held: f64::from(held) / seen.len().max(1) as f64,
        }
    }

    /// The losses until now.
    pub fn told(&self, seen: &[Option<Observation>]) -> Losses {
        Losses { streams: seen.len() as u16, ..told(&self.samples, self.now(seen).sent) }
    }
}

fn told(looks: &[LossSample], all: Sent) -> Losses {
    let half = looks.iter().rposition(|look| look.sent.ns <= all.ns / 2);
    let begin = half.map_or(Sent::default(), |i| looks[i].sent);
    let later = &looks[half.map_or(0, |i| i + 1)..];
    let n = later.len().max(1) as f64;
    let before = std::iter::once(begin).chain(later.iter().map(|look| look.sent));
    let lost: Vec<f64> =
        later.iter().zip(before).map(|(look, before)| look.sent.since(&before).lost() as f64).collect();
    let mean = lost.iter().sum::<f64>() / n;
    let variance = lost.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    Losses {
        all,
        later: all.since(&begin),
        streams: 0,
        looks: later.len() as u16,
        queue_ns: later.iter().map(|look| look.queue_ns).max().unwrap_or(0),
        held: later.iter().map(|look| look.held).sum::<f64>() / n,
        bursts: if mean > 0.0 { variance / mean } else { 0.0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(s: u64, segments: u64, again: u64) -> LossSample {
        let sent = Sent { segments, again, bytes: 1000 * segments, ns: s * 1_000_000_000, ..Sent::default() };
        LossSample { sent, queue_ns: 1000 * s, held: 0.5 }
    }

    #[test]
    fn what_is_lost_at_first_is_not_in_the_second_half() {
        let losses = told(&[look(1, 1_000, 400), look(5, 5_000, 401), look(6, 6_000, 402)], look(10, 10_000, 405).sent);
        assert_eq!((losses.all.again, losses.later), (405, look(5, 5_000, 4).sent));
        assert_eq!((losses.looks, losses.queue_ns, losses.held), (1, 6_000, 0.5));
        assert!((losses.later.loss() - 8e-4).abs() < 1e-12 && (losses.later.bps() - 8e6).abs() < 1e-3);
    }

    #[test]
    fn queues_that_overflow_lose_in_bursts() {
        let looks = |again: &dyn Fn(u64) -> u64| -> Vec<LossSample> {
            (1..=20).map(|s| look(s, 1_000 * s, again(s))).collect()
        };
        let bursts = |again: &dyn Fn(u64) -> u64| told(&looks(again), look(20, 20_000, again(20)).sent).bursts;
        assert!(bursts(&|s| s * 3) < 0.1);
        assert!(bursts(&|s| s / 5 * 50) > 30.0);
        assert_eq!(bursts(&|_| 7), 0.0);
    }

    #[test]
    fn of_a_short_transfer_all_is_told() {
        let all = look(1, 10, 1).sent;
        assert_eq!((told(&[], all).later, told(&[], all).looks), (all, 0));
        assert_eq!((Sent::default().loss(), Sent { needless: 1, ..all }.loss()), (0.0, 0.0));
    }
}
