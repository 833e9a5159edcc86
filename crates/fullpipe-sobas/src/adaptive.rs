//! The adaptive algorithm: sets pacing rate and window from the capacity, then follows what the path has to give.
//!
//! - `Estimate`: packet trains measure the capacity C'. Meanwhile TCP is paced below the rate that the path is assumed to have,
//!   and below what the first trains say as soon as two of them agree.
//! - `Start`: TCP starts up under a pacing rate just below C' and under the paper's window S = 1.2·C'·T. Doubling under a
//!   pacing rate ends at that rate, without a burst.
//! - `Hold`: C' has been reached and no queue stands. The rate stays, because a queue of 64 KB would not forgive a higher one.
//!   Short trains ask now and then whether the path has become faster.
//! - `Drain`: a queue stands, so the rate received is exactly what the path has to give. Less is sent until the queue has
//!   gone.
//! - `Follow`: less than C' is to be had. A short queue is kept standing: while it stands, nothing is left free. Once it has
//!   gone, a *rate probe* adds a queue of the same size. If the queue comes back, the probe has refilled it; if not, others
//!   have left, and the rate grows by the probe's. Rates stay below one that has overflowed the queue until others are seen
//!   to have left.
//! - `Start`, again: losses have left TCP's window far below the rate, but have ended, and no queue stands. TCP alone would
//!   recover one segment per round trip.
//! - `Lossy`: the path loses segments by itself. Losses no longer lower the rate, and the sender bears them.
//! - `Unlimited` (`free` in the record): BBR or Scalable beside others. Where those yield to it, it has more than a limit
//!   would leave it. Also where the path's own delay varies so much that it shows no queue.
//! - `Yield`, `Disabled`: probes are lost. Less is sent for the length of a hundred probes. If probes are still lost, others
//!   congest the path, and limits would only give it to them (section III-B).
//!
//! Without trains C' is unknown. TCP then starts up unlimited until a queue stands or segments are lost, and C' is the rate
//! received at that time (a maximum filter on the delivery rate, as BBR's BtlBw).

mod capacity;
mod ceiling;
mod congestion;
mod drain;
mod first_trains;
mod follow;
mod loss;
mod lossy;
mod lost_lately;
mod measure;
mod mode;
mod noisy;
mod others;
mod params;
mod question;
mod queue;
mod queue_trial;
mod raise;
mod random_loss;
mod rate_probe;
mod remeasure;
mod repeated_drains;
mod slow_start;
mod spare_streams;
mod start;
mod state;
mod unlimited;

pub use params::{MAX_BURST_BYTES, first_pacing_bps};
pub(crate) use state::Adaptive;

use crate::event::{State, Why};
use crate::network_model::{NetworkModel, START_FACTOR};
use crate::trains::Dispersion;
use mode::{Follow, Mode};
use params::{BURSTS, RATE, SMOOTH_PACING_BPS};

impl Adaptive {
    /// Takes one step. Returns its reason if something was decided that belongs in the record.
    pub fn step(&mut self, now: u64, model: &mut NetworkModel) -> Option<Why> {
        if let Mode::Follow(Follow { probe: Some(probe), .. }) = &mut self.mode
            && now >= probe.until
        {
            probe.raised = false;
        }
        if model.retransmits > self.losses.retransmits {
            self.slow_start.lost(now);
        }
        self.lost_lately.observe(now, model);
        if !matches!(self.mode, Mode::Follow(_)) {
            self.first_trains.drop_question();
        }
        let noise = self.noise(now, model);
        let random = noise.or_else(|| self.random_loss(now, model));
        let urgent = random.or_else(|| self.congestion(now, model)).or_else(|| self.loss(now, model));
        if let Some(why) = urgent.or_else(|| self.restart_slow_start(now, model)) {
            return Some(why);
        }
        self.queue.observe(model, now);
        if !matches!(self.mode, Mode::Hold) {
            self.raise.pause();
        }
        if !matches!(self.mode, Mode::Hold | Mode::Lossy(_)) {
            self.remeasure.pause();
        }
        match self.mode {
            Mode::Estimate(estimate) => self.estimate(now, model, estimate),
            Mode::Start => self.start(now, model),
            Mode::Hold => self.hold(now, model),
            Mode::Drain(drain) => self.drain(now, model, drain),
            Mode::Follow(follow) => self.follow(now, model, follow),
            Mode::Lossy(lossy) => self.lossy(now, model, lossy),
            Mode::Unlimited(unlimited) => self.unlimited(now, model, unlimited),
            Mode::Yield(_) | Mode::Disabled(_) => None,
        }
    }

    /// The present state.
    pub fn state(&self) -> State {
        self.mode.state()
    }

    /// When the next step is wanted: a rate probe ends or is judged.
    pub fn next_wake(&self) -> u64 {
        match self.mode {
            Mode::Follow(Follow { probe: Some(probe), .. }) => {
                if probe.raised {
                    probe.until
                } else {
                    probe.judge
                }
            }
            _ => u64::MAX,
        }
    }

    /// Estimate of the path's capacity, bit/s.
    pub fn capacity_bps(&self) -> Option<f64> {
        self.capacity.bps
    }

    /// The trains' estimate of the capacity, packets per second.
    pub fn trained_pps(&self, model: &NetworkModel) -> Option<f64> {
        (self.capacity.trained > 0.0).then(|| self.capacity.trained / model.packet_bits())
    }

    /// Rate of the trains that ask whether more is free, bit/s, while they ask.
    pub fn asking_bps(&self) -> Option<f64> {
        let asking = self.random_loss.asking_bps().or_else(|| self.slow_start.asking_bps());
        asking.or_else(|| self.first_trains.asking_bps()).or_else(|| self.remeasure.asking_bps())
    }

    /// Least time between two trains that ask, nanoseconds.
    pub fn trains_apart_ns(&self, model: &NetworkModel) -> u64 {
        self.capacity.bps.map_or(0, |known| self.remeasure.apart_ns(model, known))
    }

    /// Whether trains back to back are wanted, which measure the capacity.
    pub fn is_training(&self) -> bool {
        matches!(self.mode, Mode::Estimate(_)) || self.remeasure.is_measuring()
    }

    /// Whether the sender is to restart slow start; tells so once.
    pub fn take_slow_start(&mut self) -> bool {
        std::mem::take(&mut self.restart_now)
    }

    /// Whether the sender is to change to a congestion control that bears losses; tells so once.
    pub fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.random_loss.change)
    }

    /// Pacing rate that is wanted, bit/s; `None` sets no limit.
    pub fn pacing(&self, model: &NetworkModel) -> Option<f64> {
        if matches!(self.mode, Mode::Disabled(_) | Mode::Unlimited(_)) {
            return None;
        }
        let Some(rate) = self.rate else {
            let estimating = matches!(self.mode, Mode::Estimate(_));
            return Some(if estimating { estimating_bps(model) } else { SMOOTH_PACING_BPS as f64 });
        };
        let extra = match self.mode {
            Mode::Follow(Follow { probe: Some(probe), .. }) if probe.raised => probe.extra,
            _ => 0.0,
        };
        Some(rate + extra)
    }

    /// Window that is wanted, bytes.
    pub fn window(&self, model: &NetworkModel) -> f64 {
        let config = &model.config;
        let largest = config.largest as f64;
        let Some(rate) = self.rate else { return largest };
        let mut t = model.probes.base_ns() as f64 * 1e-9;
        // A queue that drains do not shorten may be the path's own delay. A window for the old delay would itself lower the rate.
        if config.pacing
            && let Some(queue) = self.repeated_drains.standing()
        {
            t += queue;
        }
        let probe = match self.mode {
            Mode::Follow(Follow { probe: Some(probe), .. }) => probe.volume / 8.0,
            _ => 0.0,
        };
        model.fit(match self.mode {
            Mode::Disabled(_) | Mode::Estimate(_) | Mode::Unlimited(_) | Mode::Lossy(_) => largest,
            Mode::Start if self.others.present => START_FACTOR * rate / 8.0 * t,
            Mode::Start => START_FACTOR * self.capacity.bps.unwrap_or(rate) / 8.0 * t,
            // The window alone limits: what is in flight beyond rate·T is the queue.
            Mode::Hold if !config.pacing => rate / RATE.of_capacity / 8.0 * t,
            _ if !config.pacing => rate / 8.0 * (t + self.stand()) + probe,
            // Pacing limits. The window stops what would be sent if the path suddenly gave less.
            _ => {
                let delay = t + self.queue.window_slack(self.part());
                let bursts = BURSTS.unpaced_bytes * f64::from(config.streams);
                rate / RATE.of_capacity / 8.0 * delay + probe + bursts
            }
        })
    }
}

/// Pacing rate while trains measure the path, bit/s.
fn estimating_bps(model: &NetworkModel) -> f64 {
    let config = &model.config;
    let first = first_pacing_bps(config.assumed_bps, config.mss, config.packet);
    match model.trains.dispersion() {
        Dispersion::Known { capacity, .. } => first.min(RATE.of_capacity * model.payload_bps(capacity)),
        Dispersion::Unknown => first,
    }
}
