//! What the network loses, as the sending end's TCP knows it while it sends.
//!
//! The few packets that are exchanged on connecting cannot tell a loss of one in a thousand, with which CUBIC leaves nine
//! tenths of a long path empty, from none. A transfer's own segments can.

use std::time::{Duration, Instant};

use fullpipe_net::tcp_info::TcpInfo;

use crate::protocol::losses::{Losses, Sent};

/// Between looks, at first.
const EVERY: Duration = Duration::from_millis(200);
/// Looks that are kept, at most: then every second one is dropped, and half as many taken from there on.
const MOST: usize = 64;

/// One look at the streams.
#[derive(Debug, Clone, Copy, Default)]
struct LossSample {
    sent: Sent,
    queue_ns: u64,
    held: f64,
}

/// Looks at the streams now and then.
pub(crate) struct LossWatch {
    began: Instant,
    every: Duration,
    looks: Vec<LossSample>,
}

impl LossWatch {
    /// From now on.
    pub fn new() -> LossWatch {
        LossWatch { began: Instant::now(), every: EVERY, looks: Vec::new() }
    }

    /// To be called often, with what the sending end's streams say.
    pub fn look(&mut self, infos: &[Option<TcpInfo>]) {
        let last = self.looks.last().map_or(0, |look| look.sent.ns);
        if u128::from(last) + self.every.as_nanos() > self.began.elapsed().as_nanos() {
            return;
        }
        self.looks.push(self.now(infos));
        if self.looks.len() > MOST {
            let mut kept = false;
            self.looks.retain(|_| {
                kept = !kept;
                kept
            });
            self.every *= 2;
        }
    }

    fn now(&self, infos: &[Option<TcpInfo>]) -> LossSample {
        let mut sent = Sent { ns: self.began.elapsed().as_nanos() as u64, ..Sent::default() };
        let (mut queues, mut held) = (Vec::new(), 0);
        for info in infos.iter().flatten() {
            let get = |name| info.get(name).unwrap_or(0);
            sent.segments += get("data_segs_out");
            let again = get("total_retrans");
            sent.again += again;
            // A network that duplicates makes more.
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
            held: f64::from(held) / infos.len().max(1) as f64,
        }
    }

    /// How it went until now.
    pub fn told(&self, infos: &[Option<TcpInfo>]) -> Losses {
        Losses { streams: infos.len() as u16, ..told(&self.looks, self.now(infos).sent) }
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
