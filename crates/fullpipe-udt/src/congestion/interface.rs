//! What a congestion control learns, and what it decides (section 7.1).

/// Packets that a sender may send before it has heard of the receiver's window (draft-gg-udt-03, section 6.3). Each buffer has
/// room for them.
pub const INITIAL_WINDOW_PACKETS: usize = 16;

/// What a congestion control learns of the path and of the sender (section 7.1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// Smoothed RTT, nanoseconds.
    pub rtt_ns: u64,
    /// Largest packet, bytes, with the IP and UDP headers.
    pub mss: u16,
    /// Capacity of the path by packet pairs, packets per second; 0 before the first measurement.
    pub capacity_pps: f64,
    /// Rate at which packets arrive at the receiver, packets per second; 0 before the first measurement.
    pub arrival_pps: f64,
    /// Largest index that has been sent.
    pub largest_sent: u64,
    /// Largest window that the receiver allows, packets.
    pub max_window: u64,
}

/// A congestion control: it sets the time between packets and the congestion window. Instants are nanoseconds.
pub trait CongestionControl: Send + std::fmt::Debug {
    /// A full ACK has arrived: all packets below `acked` are there (onACK).
    fn on_ack(&mut self, now_ns: u64, acked: u64, path: &Path);

    /// A NAK has arrived whose first lost packet is `first_lost` (onLOSS).
    fn on_loss(&mut self, now_ns: u64, first_lost: u64, path: &Path);

    /// The EXP timer has expired while packets were unacknowledged (onTimeout).
    fn on_timeout(&mut self, now_ns: u64, path: &Path);

    /// Time between two packets (SND), nanoseconds; positive and finite.
    fn sending_period_ns(&self) -> f64;

    /// Congestion window, packets.
    fn window_packets(&self) -> f64;

    /// Sets the rate, bytes per second of packets with their IP and UDP headers; false if this control chooses its rate itself.
    fn set_rate(&mut self, bytes_per_s: f64) -> bool {
        let _ = bytes_per_s;
        false
    }
}
