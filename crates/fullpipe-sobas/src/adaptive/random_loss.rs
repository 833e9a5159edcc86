//! Losses that no queue explains, counted, and what packet trains say of the rest of the capacity.

use super::question::Question;
use crate::network_model::NetworkModel;

/// When losses count as the path's own.
struct Params {
    /// Losses without a queue, in rounds of their own, from which they count as the path's.
    rounds: u32,
    /// RTTs, and nanoseconds besides, within which these losses must come, and after which trains ask again.
    within_rtts: u64,
    within_ns: u64,
}

const PARAMS: Params = Params { rounds: 2, within_rtts: 20, within_ns: 2_000_000_000 };

/// The losses that no queue explains.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RandomLoss {
    /// Retransmissions seen so far.
    retransmits: u64,
    /// Rounds with such losses, since the last one that a queue explains.
    rounds: u32,
    /// When the first of these began, nanoseconds.
    first: u64,
    /// Until when further retransmissions belong to the same round.
    until: u64,
    /// What packet trains say of the rest of the capacity.
    rest: Rest,
    /// Whether the path has shown that it loses segments by itself.
    pub known: bool,
    /// Whether the sender is to change to a congestion control that bears losses, and has not been told yet.
    pub change: bool,
}

/// Whether the rest of the capacity is free.
#[derive(Debug, Clone, Copy, Default)]
enum Rest {
    /// Nobody has asked.
    #[default]
    Unasked,
    /// Trains are on their way.
    Asked(Question),
    /// It is free.
    Free,
    /// It is not, or trains were lost. They ask again from this instant on.
    Taken { again: u64 },
}

impl RandomLoss {
    /// Rate of the trains that ask for the rest of the capacity, bit/s, while they ask.
    pub fn asking_bps(&self) -> Option<f64> {
        if let Rest::Asked(question) = self.rest { Some(question.more) } else { None }
    }

    /// Takes in how many segments have been retransmitted since the start. Returns whether there are more than before.
    pub fn retransmitted(&mut self, retransmits: u64) -> bool {
        let more = retransmits > self.retransmits;
        self.retransmits = retransmits;
        more
    }

    /// Whether losses still belong to the round of the last one; otherwise a new round of `round_ns` nanoseconds begins.
    pub fn is_same_round(&mut self, now: u64, round_ns: u64) -> bool {
        let same = now < self.until;
        if !same {
            self.until = now + round_ns;
        }
        same
    }

    /// A queue, others or a full path explain the losses.
    pub fn explained(&mut self) {
        self.rounds = 0;
        self.rest = Rest::Unasked;
    }

    /// Nothing explains the losses of this round. Returns how many such rounds there have been lately.
    pub fn unexplained(&mut self, now: u64, model: &NetworkModel) -> u32 {
        if self.rounds == 0 || now > self.first.saturating_add(within_ns(model)) {
            (self.rounds, self.first) = (0, now);
            // What was free then may have been taken since.
            if matches!(self.rest, Rest::Free) {
                self.rest = Rest::Unasked;
            }
        }
        self.rounds += 1;
        self.rounds
    }

    /// Whether trains should ask whether others are there.
    pub fn should_ask(&self, now: u64) -> bool {
        match self.rest {
            Rest::Unasked => true,
            Rest::Taken { again } => now >= again,
            Rest::Asked(..) | Rest::Free => false,
        }
    }

    /// Trains are asking.
    pub fn asks(&mut self, question: Question) {
        self.rest = Rest::Asked(question);
    }

    /// Takes in what the trains say of a path of this capacity, bit/s, once they have arrived or should have.
    pub fn hear(&mut self, now: u64, model: &NetworkModel, capacity: f64) {
        let Rest::Asked(question) = self.rest else { return };
        if !question.is_answered(now, model) {
            return;
        }
        let is_free = question.finds_nobody(model, capacity);
        self.rest = if is_free { Rest::Free } else { Rest::Taken { again: now + within_ns(model) } };
    }

    /// Whether the losses are the path's own. Tells so once.
    pub fn take_proof(&mut self) -> bool {
        let proven = self.rounds >= PARAMS.rounds && matches!(self.rest, Rest::Free);
        if proven {
            self.explained();
            self.known = true;
        }
        proven
    }
}

fn within_ns(model: &NetworkModel) -> u64 {
    PARAMS.within_rtts * model.probes.base_ns() + PARAMS.within_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn what_was_free_an_hour_ago_proves_nothing() {
        let model = NetworkModel::new(Config::of_one_stream(), 20_000_000);
        let mut losses = RandomLoss::default();
        losses.unexplained(0, &model);
        losses.rest = Rest::Free;
        let hour = 3_600_000_000_000;
        for at in [hour, hour + 100_000_000] {
            losses.unexplained(at, &model);
            assert!(!losses.take_proof() && losses.should_ask(at));
        }
        // Within a second it does.
        losses.rest = Rest::Free;
        losses.unexplained(hour + 200_000_000, &model);
        assert!(losses.take_proof());
    }
}
