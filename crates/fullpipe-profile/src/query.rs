//! What a transport is selected for.

use fullpipe_path::{Protocol, Rate, Time, Workload};

/// The path and workload that a transport is selected for. A property that is `None` may have any value; the selection tells
/// which one it assumed.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// Round-trip time of the path, ms.
    pub rtt_ms: f64,
    /// Name of the real host.
    pub host: Option<String>,
    /// Capacity of the path.
    pub rate: Option<Rate>,
    /// Random loss of the path.
    pub loss: Option<f64>,
    /// Packet size of the path.
    pub mtu: Option<u32>,
    /// Queue of the path's bottleneck, in bytes and in bandwidth-delay products.
    pub queue: Option<(u64, f64)>,
    /// The disks of both ends, as a profile names them; `None` for memory.
    pub disks: [Option<String>; 2],
    /// The hosts of both ends, as a profile names them; `None` for tuned ones.
    pub hosts: [Option<String>; 2],
    /// The protocol to send over; with one, all else in the profile does not count.
    pub protocol: Option<Protocol>,
    /// The workload that will be sent.
    pub workload: Option<Workload>,
    /// Confidence level at which transports are compared; the profile's own if `None`.
    pub level: Option<f64>,
    /// Rates within this fraction of the best are as good as the best.
    pub within: f64,
}

/// Makes a query for a path of which only the round-trip time is known.
impl From<Time> for Query {
    fn from(rtt: Time) -> Query {
        Query {
            rtt_ms: rtt.0 as f64 / 1e6,
            host: None,
            rate: None,
            loss: None,
            mtu: None,
            queue: None,
            disks: [None, None],
            hosts: [None, None],
            protocol: None,
            workload: None,
            level: None,
            within: 0.01,
        }
    }
}
