//! A question that packet trains ask beside the transfer: whether a further rate is free.

use super::params::SIGHT;
use crate::network_model::NetworkModel;
use crate::trains::{MAX_ASKING_PACKETS, MIN_ASKING_PPS};

/// Trains that find this fraction of the capacity free, the transfer's own rate included, find nobody else.
const FREE: f64 = 0.9;

/// What trains ask for, and beside what. Rates are of payload, bit/s.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question {
    /// Additional rate that is asked for.
    pub more: f64,
    /// Rate of the transfer.
    pub has: f64,
    /// Until when answers are awaited, nanoseconds.
    until: u64,
}

impl Question {
    /// Has trains ask for `more` beside a transfer that has `has`, or for the least that a train can ask for.
    pub fn ask(now: u64, model: &mut NetworkModel, more: f64, has: f64) -> Question {
        model.trains.ask(MAX_ASKING_PACKETS);
        let more = more.max(MIN_ASKING_PPS * model.packet_bits());
        Question { more, has, until: now + 3 * model.probes.base_ns() + 2 * SIGHT.standing_ns }
    }

    /// Whether all trains have arrived, or should have.
    pub fn is_answered(&self, now: u64, model: &NetworkModel) -> bool {
        model.trains.all_paced_arrived() || now >= self.until
    }

    /// What is free of a capacity in bit/s, the transfer's own rate included. None if most trains are missing.
    pub fn free_bps(&self, model: &NetworkModel, capacity: f64) -> Option<f64> {
        let packet = model.packet_bits();
        model.trains.free_beside(capacity / packet, self.has / packet).map(|pps| pps * packet)
    }

    /// Whether the trains have found that nobody else uses a path of this capacity, bit/s.
    pub fn finds_nobody(&self, model: &NetworkModel, capacity: f64) -> bool {
        self.free_bps(model, capacity).is_some_and(|free| free >= FREE * capacity)
    }
}
