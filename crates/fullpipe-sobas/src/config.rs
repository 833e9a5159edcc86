//! The settings of a transfer. While it runs, the controller alters them where more or fewer streams send, where the sender
//! changes to BBR, and where UDP ceases to pass.

use serde::Serialize;

/// The algorithm that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// The paper's Figure 8: sets the window alone, once per transfer.
    Paper,
    /// Sets window and pacing rate, and follows the path for as long as the transfer runs.
    Adaptive,
}

/// The settings of one transfer: its TCP, and which actuators the controller may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// TCP payload of a full segment, bytes: `TCP_INFO`'s `tcpi_snd_mss` (1448 for 1,500-byte packets with timestamps).
    pub mss: u32,
    /// IP packet of a full segment, bytes. Packet trains use packets of this size, or of 1,500 bytes if that is smaller.
    pub packet: u32,
    /// Number of streams that share the controller and send.
    pub streams: u16,
    /// Number of streams besides that are connected and do not send until the controller says so. Without any, it leaves the number as
    /// it is.
    pub spare: u16,
    /// Largest window that the hosts grant, bytes, summed over all streams.
    pub largest: u64,
    /// Whether the controller may set the receiver's window.
    pub window: bool,
    /// Whether the controller may set the sender's pacing rate. [`Algorithm::Paper`] never does.
    pub pacing: bool,
    /// Whether the controller may make the sender's TCP restart slow start. It does so only under a pacing rate.
    pub restart: bool,
    /// Whether the controller may make the sender's TCP change to BBR, where the path loses segments by itself. It does so
    /// under a pacing rate, or where the path's own delay varies too much for one.
    pub change: bool,
    /// Whether UDP reaches the other end, so that packet trains can be sent.
    pub trains: bool,
    /// Rate that the path is assumed to have until trains have measured it, bit/s on the line. TCP begins no faster, where the controller
    /// may pace it; infinite where nothing is assumed.
    pub assumed_bps: f64,
    /// Rate that the transfer is not to exceed whatever the path carries, bit/s of payload; infinite where there is no such limit.
    pub limit_bps: f64,
    /// Fraction of its window that the sender's congestion control gives up at a loss: 0.5 for Reno, 0.125 for Scalable,
    /// 0 for BBR, which holds a rate of its own.
    pub decrease: f64,
    /// The algorithm that decides.
    pub algorithm: Algorithm,
}

#[cfg(test)]
impl Config {
    /// The settings of one stream over which the controller may decide everything.
    pub(crate) fn of_one_stream() -> Config {
        Config {
            mss: 1448,
            packet: 1500,
            streams: 1,
            spare: 0,
            largest: 1 << 30,
            window: true,
            pacing: true,
            restart: true,
            change: true,
            trains: true,
            assumed_bps: 1e10,
            limit_bps: f64::INFINITY,
            decrease: 0.5,
            algorithm: Algorithm::Adaptive,
        }
    }
}
