//! How many streams send. The transfer starts on few, whose first windows harm no path. Others are connected by then, and
//! send as soon as that is of use: their first windows together fill a long path at once, and where losses hold each stream
//! back, many have more than few.

use super::mode::Mode;
use super::params::RATE;
use super::state::Adaptive;
use crate::network_model::NetworkModel;

/// Segments that a stream sends at once when it begins (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;
/// Least window of each of many streams, segments: with fewer in flight TCP sees no loss before its timer ends
/// (three duplicate acknowledgements, RFC 5681, section 3.2).
const LEAST_WINDOW: f64 = 3.0;
/// Two losses within this time hold a transfer back, if it does not reach its rate either, nanoseconds.
const LOSSES_NS: u64 = 60_000_000_000;

impl Adaptive {
    /// Number of streams that are of use now, at least those that send already.
    fn wanted_streams(&self, now: u64, model: &NetworkModel) -> u16 {
        let config = &model.config;
        let most = config.streams.saturating_add(config.spare);
        // What is aimed at, which leaves others theirs.
        let bps = self.rate.unwrap_or(0.0).min(self.capacity.trained);
        let in_flight = bps / 8.0 * model.probes.base_ns() as f64 * 1e-9;
        let segments = in_flight / f64::from(config.mss);
        // A sender that has changed to BBR, or that can start up again after losses, is not held back by them. Beside others
        // more streams would only take from them.
        let may = config.decrease > 0.0 && !config.restart && !self.is_beside_others();
        let each = match self.mode {
            Mode::Lossy(_) if may => LEAST_WINDOW,
            _ if may && self.is_held_back(now, model) => LEAST_WINDOW,
            Mode::Start => INITIAL_WINDOW,
            _ => return config.streams,
        };
        ((segments / each) as u16).clamp(config.streams, most)
    }

    /// Whether losses of late keep the transfer below its rate.
    fn is_held_back(&self, now: u64, model: &NetworkModel) -> bool {
        let lately = self.losses.latest[1].is_some_and(|at| now.saturating_sub(at) <= LOSSES_NS);
        let (Some(received), Some(rate)) = (model.recent_bps(now), self.rate) else { return false };
        lately && received < RATE.started * rate
    }

    /// Counts the streams that are wanted as sending.
    pub fn take_spare_streams(&self, now: u64, model: &mut NetworkModel) {
        let config = &mut model.config;
        if config.spare > 0 && config.pacing {
            let (before, wanted) = (config.streams, self.wanted_streams(now, model));
            model.config.spare -= wanted - before;
            model.config.streams = wanted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adaptive::capacity::Capacity;
    use crate::adaptive::mode::Follow;
    use crate::config::Config;

    #[test]
    fn losses_add_streams_only_where_nobody_else_uses_the_path() {
        let config = Config { spare: 63, restart: false, change: false, ..Config::of_one_stream() };
        let mut model = NetworkModel::new(config, 20_000_000);
        let now = 3_000_000_000;
        for at in (0..=now).step_by(10_000_000) {
            model.bytes.add(at, at / 8 / 4);
        }
        // The path gives 1 Gb/s, and a quarter of that arrives.
        let capacity = Capacity::measured(1e9, true);
        let mut adaptive = Adaptive { capacity, mode: Mode::Follow(Follow::new(now)), ..Adaptive::new(0) };
        adaptive.losses.latest = [Some(now), Some(now - 1_000_000_000)];
        for (rate, more) in [(0.95e9, true), (0.5e9, false)] {
            adaptive.rate = Some(rate);
            assert_eq!(adaptive.wanted_streams(now, &model) > 1, more, "{rate}");
        }
        // One loss is chance.
        adaptive.rate = Some(0.95e9);
        adaptive.losses.latest = [Some(now), None];
        assert_eq!(adaptive.wanted_streams(now, &model), 1);
    }
}
