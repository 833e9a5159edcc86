//! Queues are let drain; and what cannot be drained is no queue.

use super::ceiling::Patience;
use super::{Adaptive, STANDING_NS};
use crate::event::{State, Why};
use crate::network_model::NetworkModel;

/// Pacing below what a standing queue shows to be available.
const BELOW_SEEN: f64 = 0.99;
/// A queue at no less than this part of what the trains said corrects it; at less there is cross traffic.
const CORRECTS: f64 = 0.97;
/// Drains that change nothing before the path's delay is taken for changed.
pub(super) const STUCK: u32 = 4;
/// Below this part of what it was, a queue has shrunk.
pub(super) const SHRUNK: f64 = 0.7;
/// Part of what was seen before that is aimed at after each drain that has changed nothing.
const SHY: f64 = 0.97;
/// Rounds that a drain lasts at most, whatever the queue.
const DRAIN_ROUNDS: u64 = 4;

/// Drains that change nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stuck {
    pub drains: u32,
    /// The queue that the first of them found, seconds.
    pub queue: f64,
    /// What was aimed at before, bit/s.
    rate: Option<f64>,
    /// What came through before, bit/s.
    seen: f64,
}

impl Adaptive {
    /// What looked like a queue was the path's own delay: what was done against it is taken back.
    pub(super) fn rebase(&mut self, now: u64, s: &mut NetworkModel) -> Option<Why> {
        s.probes.rebase(now.saturating_sub(STANDING_NS));
        // A window that opens at once lets a burst go, unless it is paced.
        self.rate = self.stuck.rate.filter(|_| s.config.pacing).or(self.rate);
        (self.depth, self.ceiling, self.patience) = (0.0, None, Patience::default());
        self.lower(now);
        self.lift_anew();
        self.unsteady(now, s);
        self.target = self.target_at(s, self.capacity.unwrap_or(f64::INFINITY));
        self.stuck = Stuck::default();
        self.judge = now + Self::round(s);
        Some(Why::Rebased)
    }

    /// A queue stands, and so much comes through.
    pub(super) fn reduce(&mut self, now: u64, s: &NetworkModel, seen: f64, queue: f64, why: Why) -> Option<Why> {
        // A queue that has shrunk is ours, and is being dealt with.
        if self.stuck.drains == 0 || queue < SHRUNK * self.stuck.queue {
            self.stuck = Stuck { drains: 0, queue, rate: self.rate, seen };
        } else if self.stuck.queue < SHRUNK * queue {
            // Somebody has come meanwhile, or the first look was too early.
            self.stuck = Stuck { drains: 0, queue, seen, ..self.stuck };
        }
        self.stuck.drains += 1;
        // What has come since is what the drains let through, not what the path has to give.
        // But it was a little much, if a drain that aimed at it has not helped.
        let seen = seen.max(self.stuck.seen * SHY.powi(self.stuck.drains.saturating_sub(1) as i32));
        match self.capacity {
            // The trains were a little high, and what is left of it is no cross traffic.
            Some(capacity) if self.sure && seen >= CORRECTS * self.trained => self.capacity = Some(capacity.min(seen)),
            Some(_) if self.sure => {}
            known => self.capacity = Some(known.unwrap_or(0.0).max(seen)),
        }
        let capacity = self.capacity.unwrap_or(seen).max(1.0);
        self.after = (BELOW_SEEN * seen).min(self.top());
        let over = (s.probes.base_ns().max(STANDING_NS)) as f64 * 1e-9;
        // A window alone drains the queue by itself: what is in flight beyond it stops.
        let cut = if s.config.pacing { ((queue - self.stand()) * capacity / over).clamp(0.0, 0.5 * seen) } else { 0.0 };
        self.rate = Some(self.after - cut);
        let length = if cut > 0.0 { (queue - self.stand()).max(0.0) * capacity / cut } else { 0.0 };
        self.judge = now.saturating_add(((length * 1e9) as u64).min(DRAIN_ROUNDS * Self::round(s)));
        self.calm();
        self.left = false;
        self.lower(now);
        self.enter(State::Drain, why)
    }

    pub(super) fn drain(&mut self, now: u64, s: &mut NetworkModel) -> Option<Why> {
        if now < self.judge {
            return None;
        }
        // Drained at the bottleneck; the probes will show it an RTT later.
        self.rate = Some(self.after);
        self.judge = now + Self::round(s);
        self.unsteady(now, s);
        self.enter(State::Follow, Why::Drained)
    }
}
