//! A rate that is given, for paths that nobody else uses.

use super::interface::{CongestionControl, Path};

/// Slowest rate, bytes per second: a rate of zero would stop the stream.
const MIN_BYTES_PER_S: f64 = 1.0;

/// Sends at a given rate, whatever is lost; only the receiver's window limits what is in flight.
#[derive(Debug)]
pub struct FixedRate {
    mss: u16,
    period_ns: f64,
}

impl FixedRate {
    /// A control that sends packets of `mss` bytes at `bytes_per_s`, both counted with the IP and UDP headers.
    pub fn new(mss: u16, bytes_per_s: f64) -> FixedRate {
        let mut control = FixedRate { mss, period_ns: 1e9 };
        control.set_rate(bytes_per_s);
        control
    }
}

impl CongestionControl for FixedRate {
    fn on_ack(&mut self, _now_ns: u64, _acked: u64, _path: &Path) {}

    fn on_loss(&mut self, _now_ns: u64, _first_lost: u64, _path: &Path) {}

    fn on_timeout(&mut self, _now_ns: u64, _path: &Path) {}

    fn sending_period_ns(&self) -> f64 {
        self.period_ns
    }

    fn window_packets(&self) -> f64 {
        f64::from(u32::MAX)
    }

    fn set_rate(&mut self, bytes_per_s: f64) -> bool {
        // Not `max`: a rate that is no number becomes the slowest one.
        let rate = if bytes_per_s > MIN_BYTES_PER_S { bytes_per_s.min(1e15) } else { MIN_BYTES_PER_S };
        self.period_ns = f64::from(self.mss) * 1e9 / rate;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_is_the_packet_over_the_rate() {
        let mut control = FixedRate::new(1500, 1.25e9);
        assert_eq!(control.sending_period_ns(), 1_200.0);
        assert!(control.set_rate(1.25e8));
        assert_eq!(control.sending_period_ns(), 12_000.0);
        for odd in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            control.set_rate(odd);
            assert!(control.sending_period_ns() > 0.0 && control.sending_period_ns().is_finite(), "{odd}");
        }
    }
}
