//! Others whom only the trains of the start have shown. The first windows of many streams are longer than a train, which then
//! meets them and takes them for others' traffic. Once the transfer has what these trains left it and no queue stands, trains
//! ask whether the rest is free.

use super::first_trains::FirstTrains;
use super::mode::Mode;
use super::params::RATE;
use super::question::Question;
use super::state::Adaptive;
use crate::event::Why;
use crate::network_model::NetworkModel;

impl Adaptive {
    /// Asks whether the others are there whom the start's trains have shown; returns a reason if they are not. No queue stands.
    pub(super) fn doubt_others(&mut self, now: u64, model: &mut NetworkModel) -> Option<Why> {
        let (rate, capacity) = (self.rate?, self.capacity.bps?);
        match self.first_trains {
            FirstTrains::Unasked if !FirstTrains::may_err(model) || !model.config.trains => {
                self.first_trains = FirstTrains::Believed;
                None
            }
            FirstTrains::Unasked => {
                let already = self.random_loss.asking_bps().or_else(|| self.slow_start.asking_bps()).is_some();
                if !already && model.recent_bps(now)? >= RATE.sender_limited * rate {
                    self.others.search_is_over = true;
                    let question = Question::ask(now, model, RATE.of_capacity * capacity - rate, rate);
                    self.first_trains = FirstTrains::Asked(question);
                }
                None
            }
            FirstTrains::Asked(question) if question.is_answered(now, model) => {
                self.first_trains = FirstTrains::Believed;
                if !question.finds_nobody(model, capacity) {
                    return None;
                }
                self.others.present = false;
                self.rate = Some(self.capacity.cap().min(RATE.of_capacity * capacity));
                self.enter(Mode::Start, Why::Room)
            }
            FirstTrains::Asked(_) | FirstTrains::Believed => None,
        }
    }
}
