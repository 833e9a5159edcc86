//! Others' traffic.

use std::collections::VecDeque;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::{Cross, MSS, Parcel};

/// State of one of the others.
pub(super) struct Other {
    pub what: Cross,
    pub next: f64,
    pub cwnd: f64,
    pub slow: bool,
    pub flight: f64,
    pub back: VecDeque<(f64, f64, f64)>,
    pub deaf: f64,
}

impl Other {
    pub fn new(what: Cross) -> Other {
        let next = match what {
            Cross::Udp { from, .. } => from,
            Cross::Tcp { .. } => 0.0,
        };
        Other { what, next, cwnd: 10.0 * MSS, slow: true, flight: 0.0, back: VecDeque::new(), deaf: 0.0 }
    }

    pub fn bps(&self, now: f64, rtt: f64) -> f64 {
        match self.what {
            Cross::Udp { bps, from, to } if (from..to).contains(&now) => bps,
            Cross::Udp { .. } => 0.0,
            Cross::Tcp { .. } => self.cwnd * 8.0 / rtt,
        }
    }

    pub fn send(&mut self, now: f64, arriving: &mut Parcel, random: &mut Pcg64Mcg) {
        match self.what {
            Cross::Udp { bps, to, .. } => {
                while self.next <= now && now < to {
                    arriving.udp += MSS;
                    self.next -= (1.0 - random.random::<f64>()).ln() * MSS * 8.0 / bps;
                }
            }
            Cross::Tcp { window } => {
                while self.back.front().is_some_and(|b| b.0 <= now) {
                    let Some((_, back, lost)) = self.back.pop_front() else { break };
                    self.flight -= back + lost;
                    if lost > 0.0 && now > self.deaf {
                        self.cwnd = (self.cwnd / 2.0).max(2.0 * MSS);
                        (self.deaf, self.slow) = (now + 0.05, false);
                    }
                    let growth = if self.slow { back } else { MSS * back / self.cwnd };
                    self.cwnd = (self.cwnd + growth).min(window);
                }
                let room = (self.cwnd - self.flight).max(0.0);
                self.flight += room;
                arriving.tcp += room;
            }
        }
    }
}
