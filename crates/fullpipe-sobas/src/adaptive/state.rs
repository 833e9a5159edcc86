//! What the adaptive algorithm knows: its mode and what it has learnt of the path. The files beside this one act on it.

use super::capacity::Capacity;
use super::ceiling::Ceiling;
use super::first_trains::FirstTrains;
use super::lost_lately::LostLately;
use super::measure::round_ns;
use super::mode::{Estimate, Follow, Mode};
use super::params::{ALONE, BURSTS, MAX_BURST_BYTES, RATE};
use super::queue::Queue;
use super::queue_trial::QueueTrial;
use super::raise::Raise;
use super::random_loss::RandomLoss;
use super::remeasure::Remeasure;
use super::repeated_drains::RepeatedDrains;
use super::slow_start::SlowStart;
use crate::event::Why;
use crate::network_model::NetworkModel;

/// The adaptive algorithm. A decision returns its reason if it belongs in the record.
#[derive(Debug, Clone)]
pub(crate) struct Adaptive {
    /// When the transfer began.
    pub(super) began: u64,
    pub(super) mode: Mode,
    /// Rate that is aimed at, bit/s; `None` sets no limit.
    pub(super) rate: Option<f64>,
    pub(super) capacity: Capacity,
    pub(super) raise: Raise,
    pub(super) remeasure: Remeasure,
    pub(super) queue: Queue,
    pub(super) ceiling: Ceiling,
    pub(super) others: Others,
    pub(super) first_trains: FirstTrains,
    pub(super) losses: Losses,
    pub(super) lost_lately: LostLately,
    pub(super) random_loss: RandomLoss,
    /// Whether the path's own delay varies too much to show a queue.
    pub(super) noisy: bool,
    pub(super) repeated_drains: RepeatedDrains,
    pub(super) queue_trial: QueueTrial,
    pub(super) slow_start: SlowStart,
    /// Whether the sender is to restart slow start now.
    pub(super) restart_now: bool,
}

/// What is known of other traffic.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Others {
    /// Whether the search for other traffic by the paced trains of the start is over.
    pub search_is_over: bool,
    /// Whether others use the path.
    pub present: bool,
    /// Whether others did use the path, and rate probes have shown that they left.
    pub left: bool,
    /// Whether running without a limit beside them has been tried, which happens once per transfer.
    pub tried_unlimited: bool,
}

/// The losses that have been dealt with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Losses {
    /// Retransmissions dealt with.
    pub retransmits: u64,
    /// Until when further retransmissions belong to the same event.
    pub ignored_until: u64,
    /// Losses while TCP started up.
    pub while_starting: u32,
    /// When the latest two losses were seen, the later one first; those of two rounds are one.
    pub latest: [Option<u64>; 2],
}

impl Adaptive {
    pub fn new(now: u64) -> Adaptive {
        Adaptive {
            began: now,
            mode: Mode::Estimate(Estimate { began: now }),
            rate: None,
            capacity: Capacity::default(),
            raise: Raise::default(),
            remeasure: Remeasure::default(),
            queue: Queue::new(),
            ceiling: Ceiling::default(),
            others: Others::default(),
            first_trains: FirstTrains::default(),
            losses: Losses { retransmits: 0, ignored_until: now, while_starting: 0, latest: [None; 2] },
            lost_lately: LostLately::default(),
            random_loss: RandomLoss::default(),
            noisy: false,
            repeated_drains: RepeatedDrains::default(),
            queue_trial: QueueTrial::default(),
            slow_start: SlowStart::new(now),
            restart_now: false,
        }
    }

    pub(super) fn enter(&mut self, mode: Mode, why: Why) -> Option<Why> {
        if matches!(self.mode, Mode::Start) && !matches!(mode, Mode::Start) {
            // A later start must not take the trains of the first for news.
            self.others.search_is_over = true;
        }
        self.mode = mode;
        Some(why)
    }

    /// Starts to follow, and decides next once the effect of this decision is seen.
    pub(super) fn enter_follow(&mut self, now: u64, model: &NetworkModel, why: Why) -> Option<Why> {
        self.enter(Mode::Follow(Follow::new(now + round_ns(model))), why)
    }

    /// Ends what a following transfer is trying. The next decision stays due when it was.
    pub(super) fn end_probing(&mut self) {
        if let Mode::Follow(follow) = &mut self.mode {
            *follow = Follow::new(follow.next);
        }
    }

    /// Whether others are known to use the path: trains have shown them, or they leave less than a part of the capacity.
    pub(super) fn is_beside_others(&self) -> bool {
        let follows = matches!(self.mode, Mode::Follow(_) | Mode::Drain(_) | Mode::Yield(_));
        self.others.present || follows && self.rate.is_some_and(|rate| rate < ALONE * self.capacity.trained)
    }

    /// Highest rate to aim at, bit/s.
    pub(super) fn top(&self) -> f64 {
        self.ceiling.bps().map_or(self.capacity.cap(), |bps| bps.min(self.capacity.cap()))
    }

    /// Fraction of the capacity that is aimed at.
    pub(super) fn part(&self) -> f64 {
        self.capacity.part(self.rate)
    }

    /// Duration of one of TCP's own bursts, seconds.
    pub(super) fn burst(&self, model: &NetworkModel) -> f64 {
        let bytes = if model.config.pacing { f64::from(MAX_BURST_BYTES) } else { BURSTS.unpaced_bytes };
        self.capacity.bps.map_or(0.0, |bps| (bytes * 8.0 / bps.max(1.0)).min(BURSTS.max_s))
    }

    /// Queue that is aimed at, seconds.
    pub(super) fn stand(&self) -> f64 {
        self.queue.stand(self.part())
    }

    /// A longer queue than this is too long, seconds.
    pub(super) fn high(&self, model: &NetworkModel) -> f64 {
        self.queue.high(self.part(), self.burst(model))
    }

    /// The same while trains ask whether the path has become faster, which may queue themselves, seconds.
    pub(super) fn high_beside_trains(&self, now: u64, model: &NetworkModel) -> f64 {
        let trains = self.capacity.bps.map_or(0.0, |known| self.remeasure.queue_s(now, model, known));
        self.high(model) + trains
    }

    /// A shorter queue than this has gone, seconds.
    pub(super) fn low(&self, model: &NetworkModel) -> f64 {
        self.queue.low(self.burst(model))
    }

    /// Delay of the queue that stood for `over_ns` nanoseconds, seconds.
    pub(super) fn standing_queue(&self, model: &NetworkModel, now: u64, over_ns: u64) -> Option<f64> {
        let standing = model.probes.standing_ns(now.saturating_sub(over_ns))? as f64 * 1e-9;
        // TCP's own RTT samples are means over its bursts, each of which waits for itself.
        let own = if model.config.trains { 0.0 } else { self.burst(model) / 2.0 };
        Some((standing - own).max(0.0))
    }

    /// Whether the rate has reached a limit above which the queue overflows.
    pub(super) fn is_at_ceiling(&self) -> bool {
        self.ceiling.bps().is_some_and(|bps| self.rate >= Some(RATE.filled * bps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_start_takes_no_trains_of_the_first_for_news() {
        let mut adaptive = Adaptive::new(0);
        adaptive.enter(Mode::Start, Why::Trains);
        assert!(!adaptive.others.search_is_over);
        adaptive.enter(Mode::Hold, Why::Flat);
        adaptive.enter(Mode::Start, Why::Restart);
        assert!(adaptive.others.search_is_over);
    }
}
