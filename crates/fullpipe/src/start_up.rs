//! How long a transfer takes, its start-up included: TCP and UDT begin with a small window and double it each round trip.

use fullpipe_path::{Protocol, Transport, Workload};

/// First window of a connection, segments (RFC 6928).
const INITIAL_WINDOW_SEGMENTS: f64 = 10.0;
/// First window of a connection over UDT, packets (draft-gg-udt-03, section 6.1).
const UDT_INITIAL_WINDOW_PACKETS: f64 = 16.0;
/// Headers of IPv4 and TCP in a packet, timestamps included, bytes; those of UDT are 8 bytes less.
const HEADER_BYTES: f64 = 52.0;
/// Header of Ethernet before an IP packet, bytes.
const ETHERNET_BYTES: f64 = 14.0;
/// Usual packet size, bytes, where that of the path is not known.
const DEFAULT_MTU: u32 = 1500;
/// Round trip at which Hybla is as fast as other congestion controls, seconds (`rtt0`, `tcp_hybla.c`).
const HYBLA_RTT_S: f64 = 0.025;
/// Largest factor by which Hybla makes up for a longer round trip.
const HYBLA_MAX_FACTOR: f64 = 16.0;
/// Random loss from which it, rather than the start, is what a mean rate lacks.
const LOSSY: f64 = 1e-4;
/// Smallest ratio of mean rate to capacity at which the capacity counts as the full rate.
const NEAR_CAPACITY: f64 = 0.8;
/// Largest ratio of full rate to mean rate that is looked for.
const MAX_FULL_TO_MEAN: f64 = 2.0;
/// Steps of the search for the full rate.
const BISECTIONS: usize = 40;

/// A transport over a path.
pub struct StartUp<'a> {
    /// How data is sent.
    pub transport: &'a Transport,
    /// Round-trip time, seconds.
    pub rtt_s: f64,
    /// Packet size of the path, bytes, if it is known.
    pub mtu: Option<u32>,
    /// Probability that the path loses a packet at random, if it is known.
    pub loss: Option<f64>,
}

impl StartUp<'_> {
    /// Predicts the seconds that `bytes` take, if the mean rate of a workload `over` from its start was `mean_bps`, bit/s.
    /// The path carries no more than `capacity_bps`, headers included, if that is known.
    ///
    /// If the mean is near the capacity, what it lacks was lost in slow start, and after it, when TCP recovered from the
    /// overflow of the queue: the recovery counts as a pause. Otherwise, and where the path loses packets at random, the full
    /// rate is lower than the capacity, and is computed from the mean.
    pub fn seconds(&self, bytes: f64, mean_bps: f64, over: Workload, capacity_bps: Option<f64>) -> f64 {
        let mtu = f64::from(self.mtu.unwrap_or(DEFAULT_MTU));
        let payload = (mtu - HEADER_BYTES) / (mtu + ETHERNET_BYTES);
        let capacity = payload * capacity_bps.unwrap_or(f64::INFINITY) / 8.0;
        let mean = mean_bps / 8.0;
        let lossy = self.loss.is_some_and(|loss| loss >= LOSSY);
        if lossy || mean < NEAR_CAPACITY * capacity {
            return self.sending(bytes, self.full_rate(mean, over).min(capacity));
        }
        let (sent, took) = amount(over, mean);
        // It is below zero where the start took less than is assumed here. A mean above the capacity is of another path, or of larger
        // packets, and tells nothing of either.
        let recovery = if mean < capacity { took - self.sending(sent, capacity) } else { 0.0 };
        let after_slow_start = bytes > self.slow_start_bytes(capacity);
        self.sending(bytes, capacity) + if after_slow_start { recovery } else { 0.0 }
    }

    /// The first windows of all streams together, bytes, and the factor by which they grow in each round trip.
    fn slow_start(&self) -> (f64, f64) {
        let segment = f64::from(self.mtu.unwrap_or(DEFAULT_MTU)) - HEADER_BYTES;
        let hybla = match self.transport.cc.as_str() {
            "hybla" => (self.rtt_s / HYBLA_RTT_S).clamp(1.0, HYBLA_MAX_FACTOR),
            _ => 1.0,
        };
        let window = match (self.transport.protocol(), self.transport.pacing) {
            (Protocol::Tcp, _) => INITIAL_WINDOW_SEGMENTS,
            (Protocol::Udt, None) => UDT_INITIAL_WINDOW_PACKETS,
            // UDP and UDT send at a given rate from the first packet on.
            (Protocol::Udt, Some(_)) | (Protocol::Udp, _) => f64::INFINITY,
        };
        let first = f64::from(self.transport.streams) * window * segment * hybla;
        // The window doubles each round trip, with Hybla faster.
        (first, hybla.exp2())
    }

    /// Bytes that slow start sends until it reaches a full rate of `per_second` bytes a second: a geometric series' sum.
    fn slow_start_bytes(&self, per_second: f64) -> f64 {
        let (first, factor) = self.slow_start();
        (per_second * self.rtt_s - first).max(0.0) / (factor - 1.0)
    }

    /// Seconds to send `bytes` at a full rate of `per_second` bytes a second, slow start included.
    fn sending(&self, bytes: f64, per_second: f64) -> f64 {
        let (first, factor) = self.slow_start();
        let rounds = |sum: f64| (1.0 + sum * (factor - 1.0) / first).log(factor);
        let full = self.slow_start_bytes(per_second);
        let steady = (bytes - full).max(0.0) / per_second.max(1.0);
        rounds(bytes.min(full)) * self.rtt_s + steady
    }

    /// The full rate after slow start, bytes a second, of a workload `over` whose mean rate from its start was `mean`.
    fn full_rate(&self, mean: f64, over: Workload) -> f64 {
        let (bytes, seconds) = amount(over, mean);
        // If slow start took most of the workload, its mean tells little about the full rate, so the search is bounded.
        let (mut low, mut high) = (mean, MAX_FULL_TO_MEAN * mean);
        for _ in 0..BISECTIONS {
            let middle = (low + high) / 2.0;
            if self.sending(bytes, middle) > seconds { low = middle } else { high = middle }
        }
        low
    }
}

/// The bytes and the seconds of a workload that had this mean rate, bytes a second.
fn amount(workload: Workload, mean: f64) -> (f64, f64) {
    match workload {
        Workload::Size(size) => (size.0 as f64, size.0 as f64 / mean.max(1.0)),
        Workload::Duration(time) => (mean * time.seconds(), time.seconds()),
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_path::{Buffer, Size};

    use super::*;

    fn transport(cc: &str, streams: u16) -> Transport {
        Transport { cc: cc.into(), streams, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None }
    }

    #[test]
    fn slow_start_is_counted() {
        let (cubic, hybla) = (transport("cubic", 1), transport("hybla", 1));
        let over = |transport| StartUp { transport, rtt_s: 0.1, mtu: Some(1552), loss: None };
        let sending = |bytes: f64| over(&cubic).sending(bytes, 1.5e6);
        // 15 + 30 + 60 KB in three round trips; the next one, of 120 KB, nearly fills the path.
        assert!((sending(105e3) - 0.3).abs() < 1e-9);
        // From then on each round trip sends what the path carries, 150 KB.
        assert!((sending(135e3 + 15e6) - 10.33).abs() < 0.01, "{}", sending(135e3 + 15e6));
        assert!(over(&hybla).sending(105e3, 1.5e6) < 0.15);
        assert_eq!(sending(0.0), 0.0);
        // UDT begins with 16 packets, and at a given rate with that.
        let udt = transport("udt", 1);
        let paced = Transport { pacing: Some(fullpipe_path::Rate(12_000_000)), ..udt.clone() };
        assert!((over(&udt).sending(72e3, 1.5e6) - 0.2).abs() < 1e-9);
        assert!((over(&paced).sending(1.5e6, 1.5e6) - 1.0).abs() < 1e-9);
        // A copy as large as the profile's runs is expected to take as long as they took.
        let ten: Workload = Workload::Duration("10s".parse().unwrap());
        let steady = over(&cubic).full_rate(1.5e6, ten);
        assert!(steady > 1.5e6 && (over(&cubic).sending(15e6, steady) - 10.0).abs() < 1e-6);
        assert_eq!(over(&cubic).full_rate(1.5e6, Workload::Size(Size(0))), 1.5e6);
    }

    #[test]
    fn no_transfer_is_faster_than_its_path() {
        let ten: Workload = Workload::Duration("10s".parse().unwrap());
        let rate = |mtu: u32, mean_bps: f64, loss: f64| {
            let start = StartUp { transport: &transport("bbr", 8), rtt_s: 0.0916, mtu: Some(mtu), loss: Some(loss) };
            1e12 * 8.0 / start.seconds(1e12, mean_bps, ten, Some(1e10))
        };
        // Payload of full packets in frames.
        assert!(rate(1500, 8.2e9, 0.0) <= 1e10 * 1448.0 / 1514.0 && rate(9000, 9.5e9, 1e-5) <= 1e10 * 8948.0 / 9014.0);
        // What was measured with larger packets: 302 MB in a run of 10 s that these could not have made.
        let start = StartUp { transport: &transport("cubic", 1), rtt_s: 0.001, mtu: Some(1500), loss: None };
        let seconds = start.seconds(302e6, 9.92e9, ten, Some(1e10));
        assert!(seconds > 302e6 * 8.0 / (1e10 * 1448.0 / 1514.0) - 1e-6 && seconds < 0.3, "{seconds}");
        // Profiles have no path of 500 Mb/s: 50 MB over 300 ms take 0.84 s without their start-up, which doubles a window of 15 kB.
        let start = StartUp { transport: &transport("cubic", 1), rtt_s: 0.3, mtu: Some(1500), loss: None };
        let seconds = start.seconds(50e6, 9.6e8, ten, Some(5e8));
        assert!((3.5..5.0).contains(&seconds), "{seconds}");
        // Random losses last as long as the transfer.
        let lossy = rate(1500, 8.2e9, 1e-2);
        assert!((8.2e9..9.0e9).contains(&lossy), "{lossy}");
    }

    #[test]
    fn a_short_transfer_is_slower_than_the_profiles_runs() {
        let ten: Workload = Workload::Duration("10s".parse().unwrap());
        let rate = |bytes: f64, cc: &str, streams: u16, mean_bps: f64| {
            let start = StartUp { transport: &transport(cc, streams), rtt_s: 0.0916, mtu: Some(9000), loss: None };
            bytes * 8.0 / start.seconds(bytes, mean_bps, ten, Some(1e10))
        };
        // The testbed moves 1 GB over 10 Gb/s and 91.6 ms at 5.41 and, with Hybla, at 6.71 Gb/s.
        let (cubic, hybla) = (rate(1e9, "cubic", 8, 9.38e9), rate(1e9, "hybla", 2, 9.635e9));
        assert!((cubic / 5.41e9 - 1.0).abs() < 0.1 && (hybla / 6.71e9 - 1.0).abs() < 0.1, "{cubic} {hybla}");
        // Ten seconds take ten seconds, and less than a round trip needs no recovery.
        assert!((rate(9.38e9 * 10.0 / 8.0, "cubic", 8, 9.38e9) / 9.38e9 - 1.0).abs() < 1e-9);
        assert!(1e5 * 8.0 / rate(1e5, "cubic", 8, 9.38e9) < 0.0916);
        // If random losses limit the rate, the full rate is near the mean.
        assert!((rate(1e9, "reno", 1, 1e9) / 1e9 - 1.0).abs() < 0.1, "{}", rate(1e9, "reno", 1, 1e9));
    }
}
