//! What a transport is selected for.

use fullpipe_path::{Rate, Time, Workload};

/// For what a transport is wanted. What is none may be anything; the selection says what it assumed.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// Round-trip time, milliseconds.
    pub rtt_ms: f64,
    /// The real host.
    pub host: Option<String>,
    /// Capacity of the path.
    pub rate: Option<Rate>,
    /// Random loss of the path.
    pub loss: Option<f64>,
    /// Packet size of the path.
    pub mtu: Option<u32>,
    /// Queue of the path's bottleneck, bytes, and in bandwidth-delay products.
    pub queue: Option<(u64, f64)>,
    /// What will be sent.
    pub workload: Option<Workload>,
    /// How sure differences must be to count; the profile's own level where none is given.
    pub level: Option<f64>,
    /// Rates within this fraction of the best are as good as the best.
    pub within: f64,
}

/// A path of this round-trip time, of which nothing else is known.
impl From<Time> for Query {
    fn from(rtt: Time) -> Query {
        Query {
            rtt_ms: rtt.0 as f64 * 1e-6,
            host: None,
            rate: None,
            loss: None,
            mtu: None,
            queue: None,
            workload: None,
            level: None,
            within: 0.01,
        }
    }
}
