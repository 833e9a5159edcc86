//! The clock of an end: the caller's, without its steps backwards.

/// SYN, the interval of rate control and of ACKs (section 4): 0.01 s.
pub const SYN_NS: u64 = 10_000_000;

/// Turns the caller's instants into ones that never go back. After a step backwards time goes on from where it was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// Latest instant that the caller has told, nanoseconds of its clock.
    told_ns: u64,
    /// What steps backwards have added up to, nanoseconds.
    behind_ns: u64,
}

impl Clock {
    pub fn new(now_ns: u64) -> Clock {
        Clock { told_ns: now_ns, behind_ns: 0 }
    }

    /// Takes an instant of the caller's clock; returns this end's.
    pub fn at(&mut self, now_ns: u64) -> u64 {
        self.behind_ns = self.behind_ns.saturating_add(self.told_ns.saturating_sub(now_ns));
        self.told_ns = now_ns;
        self.now_ns()
    }

    /// The latest instant, of this end's clock.
    pub fn now_ns(&self) -> u64 {
        self.told_ns.saturating_add(self.behind_ns)
    }

    /// Turns an instant of this end's clock into one of the caller's.
    pub fn caller_ns(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.behind_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_backwards_neither_stops_time_nor_turns_it() {
        let mut clock = Clock::new(1_000);
        assert_eq!(clock.at(1_500), 1_500);
        assert_eq!(clock.at(200), 1_500);
        assert_eq!(clock.at(300), 1_600);
        assert_eq!(clock.caller_ns(1_700), 400);
    }
}
