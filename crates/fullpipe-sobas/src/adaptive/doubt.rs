//! Others whom only the trains of the start have shown. The first windows of many streams are longer than a train, which then
//! meets them and takes them for others' traffic. Once the transfer has what these trains left it and no queue stands, trains
//! ask whether the rest is free.

use super::first_trains::FirstTrains;
use super::mode::Mode;
use super::params::{RATE, SIGHT};
use super::state::Adaptive;
use crate::event::Why;
use crate::network_model::NetworkModel;
use crate::trains::{MAX_ASKING_PACKETS, MIN_ASKING_PPS};

/// Trains that find this fraction of the capacity free, the transfer's own rate included, find nobody else.
const FREE: f64 = 0.9;

impl Adaptive {
    /// Asks whether the others are there whom the start's trains have shown; returns a reason if they are not. No queue stands.
    pub(super) fn doubt_others(&mut self, now: u64, model: &mut NetworkModel) -> Option<Why> {
        let (rate, capacity) = (self.rate?, self.capacity.bps?);
        let packet = model.packet_bits();
        match self.first_trains {
            FirstTrains::Unasked => {
                let others_ask = self.random_loss.asking_bps().or_else(|| self.slow_start.asking_bps()).is_some();
                if !FirstTrains::may_err(model) || !model.config.trains {
                    self.first_trains = FirstTrains::Believed;
                } else if !others_ask && model.recent_bps(now)? >= RATE.sender_limited * rate {
                    model.trains.ask(MAX_ASKING_PACKETS);
                    self.others.search_is_over = true;
                    let more = (RATE.of_capacity * capacity - rate).max(MIN_ASKING_PPS * packet);
                    let until = now + 3 * model.probes.base_ns() + 2 * SIGHT.standing_ns;
                    self.first_trains = FirstTrains::Asking { until, more, has: rate };
                }
                None
            }
            FirstTrains::Asking { until, has, .. } => {
                if !model.trains.all_paced_arrived() && now < until {
                    return None;
                }
                self.first_trains = FirstTrains::Believed;
                let free = model.trains.free_beside(capacity / packet, has / packet)? * packet;
                if free < FREE * capacity {
                    return None;
                }
                self.others.present = false;
                self.rate = Some(self.capacity.cap().min(RATE.of_capacity * capacity));
                self.enter(Mode::Start, Why::Room)
            }
            FirstTrains::Believed => None,
        }
    }
}
