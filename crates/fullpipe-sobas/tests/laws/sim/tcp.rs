//! The sender: congestion control, pacing, bursts.

use super::{Ack, Cc, MSS, STEP};

/// The RTT for which Hybla grows as Reno does, seconds (`rtt0`, tcp_hybla.c).
const HYBLA_RTT_S: f64 = 25e-3;

/// Bytes throughout; `sent` and `gone` (acknowledged or known lost) count transmissions.
pub(super) struct Tcp {
    pub cc: Cc,
    pub cwnd: f64,
    pub ssthresh: f64,
    pub sent: f64,
    pub gone: f64,
    /// As far as the receiver allows.
    pub edge: f64,
    pub pacing: Option<f64>,
    /// What pacing has let go.
    pub credit: f64,
    /// Losses before this were of one event.
    pub recover: f64,
    /// Most in flight in the last round, as `tcp_is_cwnd_limited` looks at it.
    pub most: f64,
    pub most_next: f64,
    pub round: f64,
    /// CUBIC's: when the window was last cut, and what it was before.
    pub epoch: f64,
    pub top: f64,
    /// CUBIC's K, seconds: none after HyStart, which has cut nothing (`bictcp_update`).
    pub k: f64,
    pub lost: f64,
    pub burst: f64,
    /// HyStart's: acknowledgments of this round, and the least delay among the first eight.
    pub acks_of_round: u32,
    pub least: f64,
    /// `tcpi_rtt`: smoothed by an eighth (RFC 6298, 2.3).
    pub srtt: f64,
    /// BBR has taken over: a loss changes nothing, and it grows to its pacing rate.
    pub bears: bool,
}

impl Tcp {
    pub fn new(cc: Cc, edge: f64, burst: f64) -> Tcp {
        Tcp {
            cc,
            cwnd: 10.0 * MSS,
            ssthresh: f64::INFINITY,
            sent: 0.0,
            gone: 0.0,
            edge,
            pacing: None,
            credit: 0.0,
            recover: 0.0,
            most: 0.0,
            most_next: 0.0,
            round: 0.0,
            epoch: 0.0,
            top: 0.0,
            k: 0.0,
            lost: 0.0,
            burst,
            acks_of_round: 0,
            least: 0.0,
            srtt: 0.0,
            bears: false,
        }
    }

    pub fn ack(&mut self, now: f64, rtt: f64, ack: Ack) {
        self.srtt = if self.srtt > 0.0 { self.srtt + (rtt - self.srtt) / 8.0 } else { rtt };
        let flight = self.sent - self.gone;
        self.most_next = self.most_next.max(flight);
        if self.gone >= self.round {
            (self.most, self.most_next, self.round) = (self.most_next, 0.0, self.sent);
            self.acks_of_round = 0;
        }
        let most = self.most.max(self.most_next);
        self.gone += ack.own + ack.lost;
        self.edge = self.edge.max(ack.edge);
        self.lost += ack.lost;
        if ack.lost > 0.0 && !self.bears && self.gone > self.recover {
            self.recover = self.sent;
            let beta = match self.cc {
                Cc::Reno | Cc::Hybla => 0.5,
                Cc::Cubic => 0.7,
                Cc::Scalable => 0.875,
            };
            self.top = self.cwnd;
            self.k = (self.top / MSS * 0.3 / 0.4).cbrt();
            self.ssthresh = (self.cwnd * beta).max(2.0 * MSS);
            (self.cwnd, self.epoch) = (self.ssthresh, now);
            return;
        }
        if self.cwnd < self.ssthresh {
            // HyStart's delay signal (tcp_cubic.c).
            let rise = (rtt / 8.0).clamp(4e-3, 16e-3);
            if self.acks_of_round < 8 {
                self.least = if self.acks_of_round == 0 { ack.queued } else { self.least.min(ack.queued) };
                self.acks_of_round += 1;
            }
            if self.cc == Cc::Cubic && !self.bears && self.acks_of_round == 8 && self.least > rise {
                self.ssthresh = self.cwnd;
                (self.top, self.epoch, self.k) = (self.cwnd, now, 0.0);
            } else if self.cwnd < 2.0 * most {
                // `hybla_cong_avoid`.
                let hybla = || ((rtt / HYBLA_RTT_S).exp2() - 1.0).max(1.0);
                self.cwnd += ack.own * if self.cc == Cc::Hybla { hybla() } else { 1.0 };
            }
        } else if flight + 65_536.0 >= self.cwnd {
            let reno = MSS * ack.own / self.cwnd;
            self.cwnd += match self.cc {
                Cc::Reno => reno,
                Cc::Hybla => (rtt / HYBLA_RTT_S).max(1.0).powi(2) * reno,
                // `TCP_SCALABLE_AI_CNT`.
                Cc::Scalable => reno.max(ack.own / 100.0),
                Cc::Cubic => {
                    let (top, w) = (self.top / MSS, self.cwnd / MSS);
                    let aim = 0.4 * (now + rtt - self.epoch - self.k).powi(3) + top;
                    (((aim - w) / w).min(0.5) * ack.own).max(reno * 0.53)
                }
            };
        }
    }

    /// Of so many bytes that there are to send by now.
    pub fn send(&mut self, rtt: f64, there: f64) -> f64 {
        let room = (self.cwnd - (self.sent - self.gone)).min(self.edge.min(there) - self.sent).max(0.0);
        let Some(most) = self.pacing else {
            self.sent += room;
            return room;
        };
        let factor = if self.cwnd < self.ssthresh / 2.0 { 2.0 } else { 1.2 };
        let bps = most.min(factor * self.cwnd * 8.0 / rtt);
        self.credit += bps / 8.0 * STEP;
        let burst = self.credit.min(room);
        if burst < (1e-3 * bps / 8.0).min(self.burst).min(room) || burst < MSS {
            // What could not be sent in its time is not made up for.
            self.credit = self.credit.min(self.burst);
            return 0.0;
        }
        self.credit = (self.credit - burst).min(MSS);
        self.sent += burst;
        burst
    }
}
