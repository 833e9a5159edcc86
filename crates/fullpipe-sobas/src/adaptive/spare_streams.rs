//! How many streams send. The transfer starts on few, whose first windows harm no path. Others are connected by then, and
//! send as soon as that is of use: their first windows together fill a long path at once, and where losses hold each stream
//! back, many have more than few.

use super::mode::Mode;
use super::state::Adaptive;
use crate::network_model::NetworkModel;

/// Segments that a stream sends at once when it begins (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;
/// Least window of each of many streams, segments: with fewer in flight TCP sees no loss before its timer ends
/// (three duplicate acknowledgements, RFC 5681, section 3.2).
const LEAST_WINDOW: f64 = 3.0;
/// Losses after which a transfer counts as held back by them.
const LOSSES: u32 = 2;

impl Adaptive {
    /// Number of streams that are of use now, at least those that send already.
    fn wanted_streams(&self, model: &NetworkModel) -> u16 {
        let config = &model.config;
        let most = config.streams.saturating_add(config.spare);
        // What is aimed at, which leaves others theirs.
        let bps = self.rate.unwrap_or(0.0).min(self.capacity.trained);
        let in_flight = bps / 8.0 * model.probes.base_ns() as f64 * 1e-9;
        let segments = in_flight / f64::from(config.mss);
        // A sender that has changed to BBR, or that can start up again after losses, is not held back by them. Beside others
        // more streams would only take from them.
        let held_back = config.decrease > 0.0 && !config.restart && !self.others.present;
        let each = match self.mode {
            Mode::Lossy if held_back => LEAST_WINDOW,
            _ if held_back && self.losses.events >= LOSSES => LEAST_WINDOW,
            Mode::Start => INITIAL_WINDOW,
            _ => return config.streams,
        };
        ((segments / each) as u16).clamp(config.streams, most)
    }

    /// Counts the streams that are wanted as sending.
    pub fn take_spare_streams(&self, model: &mut NetworkModel) {
        let config = &mut model.config;
        if config.spare > 0 && config.pacing {
            let (before, wanted) = (config.streams, self.wanted_streams(model));
            model.config.spare -= wanted - before;
            model.config.streams = wanted;
        }
    }
}
