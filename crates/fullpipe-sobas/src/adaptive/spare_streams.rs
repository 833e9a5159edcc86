//! How many streams send. The transfer starts on few, whose first windows harm no path. Others are connected by then, and
//! send as soon as that is of use: their first windows together fill a long path at once, and where losses hold each stream
//! back, many have more than few. Where hosts grant small windows it starts on as many as a fast path would need. If trains
//! then show a slow one, most of them are spare: each would have a few segments in flight, and lose them to a short queue.

use super::mode::Mode;
use super::params::RATE;
use super::state::Adaptive;
use crate::network_model::NetworkModel;

/// Segments that a stream sends at once when it begins (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;
/// Least window of each of many streams, segments: with fewer in flight TCP sees no loss before its timer ends
/// (three duplicate acknowledgements, RFC 5681, section 3.2).
const LEAST_WINDOW: f64 = 3.0;
/// Times as many streams as are of use from which on some become spare.
const TOO_MANY: u16 = 2;
/// Times as much as a path has in flight that the windows of the streams are to hold together: a window's size includes what the
/// receiver has not read.
const WINDOWS: f64 = 2.0;
/// Two losses within this time hold a transfer back, if it does not reach its rate either, nanoseconds.
const LOSSES_NS: u64 = 60_000_000_000;

impl Adaptive {
    /// Number of streams that are of use now: at least those that send already, or less than half of them.
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
        let wanted = ((segments / each) as u16).min(most);
        if matches!(self.mode, Mode::Start) && self.capacity.trained > 0.0 && self.rate.is_some() {
            let window = config.largest as f64 / f64::from(most);
            let least = wanted.max((WINDOWS * in_flight / window).ceil() as u16).max(1);
            if least.saturating_mul(TOO_MANY) <= config.streams {
                return least;
            }
        }
        wanted.max(config.streams)
    }

    /// Whether losses of late keep the transfer below its rate.
    fn is_held_back(&self, now: u64, model: &NetworkModel) -> bool {
        let lately = self.losses.latest[1].is_some_and(|at| now.saturating_sub(at) <= LOSSES_NS);
        let (Some(received), Some(rate)) = (model.recent_bps(now), self.rate) else { return false };
        lately && received < RATE.started * rate
    }

    /// Counts the streams that are wanted as sending, and the others as spare. Without a spare one, the number is not to change.
    pub fn choose_streams(&self, now: u64, model: &mut NetworkModel) {
        let config = &mut model.config;
        if config.spare > 0 && config.pacing {
            let most = config.streams.saturating_add(config.spare);
            let wanted = self.wanted_streams(now, model);
            model.config.spare = most - wanted;
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
    fn many_streams_become_spare_where_trains_show_a_slow_path() {
        // 60 streams of stock hosts, jumbograms, 96.5 ms: 10 Gb/s would have 13,500 segments in flight, 168 Mb/s have 226.
        let config = Config { streams: 60, spare: 4, mss: 8948, largest: 64 * 3_145_728, ..Config::of_one_stream() };
        let sending = |bps: f64, trained: f64, config: Config| {
            let mut model = NetworkModel::new(config, 96_500_000);
            let mut adaptive =
                Adaptive { capacity: Capacity::measured(trained, true), rate: Some(bps), ..Adaptive::new(0) };
            adaptive.mode = Mode::Start;
            adaptive.choose_streams(0, &mut model);
            assert_eq!(model.config.streams + model.config.spare, config.streams + config.spare);
            model.config.streams
        };
        assert_eq!(sending(168e6, 168e6, config), 22);
        assert_eq!([4e8, 1e9, 1e10].map(|bps| sending(bps, bps, config)), [60, 64, 64]);
        // Small windows need more of them.
        assert_eq!(sending(168e6, 168e6, Config { largest: 64 * 150_000, ..config }), 28);
        // Nothing is known, -n gives the number, or it is not worth the while.
        assert_eq!(sending(168e6, 0.0, config), 60);
        assert_eq!(sending(168e6, 168e6, Config { spare: 0, ..config }), 60);
        assert_eq!(sending(168e6, 168e6, Config { streams: 43, spare: 21, ..config }), 43);
    }

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
