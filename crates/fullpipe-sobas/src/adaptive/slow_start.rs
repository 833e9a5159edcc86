//! TCP that losses have left below the rate starts up once more.
//!
//! Congestion avoidance makes up a segment per round trip (RFC 5681, 3.1): seconds for half of a window at 20 ms,
//! minutes at 200. Where packet trains show that what is missing is free, slow start up to there does no harm: the
//! pacing rate is where it ends. Without trains it is tried, ever less often where it does not help.

use super::{Adaptive, BELOW_SHARED, STANDING_NS, STANDING_START_NS, STARTED};
use crate::event::{State, Why};
use crate::network_model::NetworkModel;
use crate::trains::ASKING_PPS;

/// Without a loss for so many round trips.
const CALM_RTTS: u64 = 2;
/// A first start-up takes so many round trips at most,
const START_RTTS: u64 = 20;
/// a further one, from a window of some size, these;
const AGAIN_RTTS: u64 = 6;
/// and this besides, nanoseconds.
const PATIENCE_NS: u64 = 300_000_000;
/// It has helped if so many times as much is received as before.
const HELPED: f64 = 1.1;
/// Where it has not, the sender has no more to send: the next try waits twice as long, up to this, nanoseconds.
const LONGEST_NS: u64 = 30_000_000_000;
/// Less than this part more is not worth it.
const WORTH: f64 = 1.03;

/// When to try, and whether it helps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Restart {
    /// The sender is to be told.
    pub wanted: bool,
    /// What trains ask for now.
    asks: Option<Asks>,
    /// When a segment was last seen to have been lost.
    lost: u64,
    /// Since when less has come than would be free.
    below: Option<u64>,
    /// Not before this.
    after: u64,
    /// Between tries.
    wait: u64,
    /// What was received at the last one, and at most since, bit/s.
    from: f64,
    most: f64,
}

/// Trains are on their way.
#[derive(Debug, Clone, Copy)]
struct Asks {
    /// Until then they are waited for.
    until: u64,
    /// What is asked for, and what the transfer has, bit/s.
    more: f64,
    has: f64,
}

impl Restart {
    pub fn lost(&mut self, now: u64) {
        self.lost = now;
        self.asks = None;
    }

    /// The rate has changed.
    pub fn anew(&mut self) {
        self.below = None;
    }

    /// The rate of trains, bit/s of payload, while they ask.
    pub fn asks_bps(&self) -> Option<f64> {
        self.asks.map(|asks| asks.more)
    }
}

impl Adaptive {
    pub(super) fn start_again(&mut self, now: u64, s: &mut NetworkModel) -> Option<Why> {
        let may = s.config.restart && s.config.pacing && s.buffer_limited != Some(true) && self.pulse.is_none();
        if !may || !matches!(self.state, State::Start | State::Hold | State::Follow) {
            self.restart.asks = None;
            return None;
        }
        let rate = self.rate?;
        if let Some(asks) = self.restart.asks {
            return if s.trains.all_spread() || now >= asks.until { self.answer(now, s, asks, rate) } else { None };
        }
        let t = s.probes.base_ns();
        let over = (CALM_RTTS * t).max(2 * STANDING_NS);
        let received = s.bytes.between(now.saturating_sub(over), now)?;
        let queue = self.queue(s, now, STANDING_START_NS)?;
        self.restart.most = self.restart.most.max(received);
        if received >= STARTED * rate || queue > self.low(s) {
            self.restart.below = None;
            return None;
        }
        // Who has just come shows in what is received before the queue is seen to stand.
        let below = *self.restart.below.get_or_insert(now);
        let first = self.began + START_RTTS * t + PATIENCE_NS;
        if now < self.restart.after.max(first).max(self.restart.lost + over).max(below + over / 2) {
            return None;
        }
        if !s.config.trains || self.ceiling.is_some_and(|ceiling| rate <= ceiling.bps && ceiling.fresh(now)) {
            return self.again(now, s, received, rate);
        }
        s.trains.ask();
        self.asked_others = true;
        let least = ASKING_PPS * s.packet_bits();
        let until = now + 3 * t + 2 * STANDING_NS;
        self.restart.asks = Some(Asks { until, more: (rate - received).max(least), has: received });
        None
    }

    /// The trains have said what is free.
    fn answer(&mut self, now: u64, s: &NetworkModel, asks: Asks, rate: f64) -> Option<Why> {
        self.restart.asks = None;
        // TCP may have grown meanwhile.
        let lately = now.saturating_sub(s.probes.base_ns().max(STANDING_NS));
        let has = s.bytes.between(lately, now)?.max(asks.has);
        if has >= STARTED * rate {
            return None;
        }
        let packet = s.packet_bits();
        let capacity = self.capacity.unwrap_or(rate).max(rate);
        let left = s.trains.left(capacity / packet, has / packet).map(|pps| pps * packet);
        let Some(left) = left else {
            // Lost, or not sent: they say nothing.
            self.patience(now, s, has);
            return None;
        };
        let free = if left < rate { rate.min(BELOW_SHARED * left) } else { rate };
        if free < WORTH * has {
            self.rate = Some(rate.min(has.max(free)));
            self.calm();
            self.lower(now);
            self.unsteady(now, s);
            self.judge = now + Self::round(s);
            self.patience(now, s, has);
            // From where it rises again when others have left.
            return self.enter(State::Follow, Why::Shared);
        }
        self.again(now, s, has, free)
    }

    fn again(&mut self, now: u64, s: &NetworkModel, received: f64, rate: f64) -> Option<Why> {
        self.patience(now, s, received);
        self.rate = Some(rate);
        self.restart.wanted = true;
        self.start_losses = 0;
        self.calm();
        self.lower(now);
        self.enter(State::Start, Why::Restart)
    }

    /// When to try next.
    fn patience(&mut self, now: u64, s: &NetworkModel, received: f64) {
        let short = AGAIN_RTTS * s.probes.base_ns() + PATIENCE_NS;
        let helped = self.restart.most >= HELPED * self.restart.from;
        let wait = if helped { short } else { (2 * self.restart.wait).clamp(short, LONGEST_NS.max(short)) };
        self.restart = Restart { below: None, after: now + wait, wait, from: received, most: received, ..self.restart };
    }
}
