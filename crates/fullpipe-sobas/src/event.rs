//! Decisions, as they appear in the record.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The states of both algorithms. The paper's states bear their number in Figure 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Both algorithms: packet trains are on their way, nothing is limited yet. Figure 8, state 1.
    Estimate,
    /// Paper: TCP is in its initial slow start under the window S = 1.2·C'·T. Figure 8, state 2.
    SlowStart,
    /// Paper: the rate dropped before the path was full. Figure 8, state 3.
    Avoidance,
    /// Paper: the window limits the transfer and grows by one segment per RTT. Figure 8, state 4.
    Growing,
    /// Paper: the window is S = R·T until the transfer ends. Figure 8, state 5.
    Sized,
    /// Both algorithms: other traffic congests the path, and the window is the maximum. Figure 8, state 6. The paper's
    /// algorithm never leaves it.
    Disabled,
    /// Adaptive: TCP starts up under a pacing rate and a window.
    Start,
    /// Adaptive: the transfer runs just below the capacity, without a queue.
    Hold,
    /// Adaptive: other traffic takes part of the capacity. The rate follows what is available, by a short standing queue.
    Follow,
    /// Adaptive: the rate is reduced until a standing queue has drained.
    Drain,
    /// Adaptive: probes were lost. The rate is reduced to see whether that ends the losses.
    Yield,
    /// Adaptive: nothing is limited. The path is faster than trains can tell, or BBR or Scalable runs beside other traffic. The
    /// latter stays so if that traffic yields to it, and for BBR on long paths in any case.
    Free,
    /// Adaptive: the path loses segments by itself. Losses no longer lower the rate.
    Lossy,
}

/// The reason for a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The packet trains gave a capacity.
    Trains,
    /// No packet train gave a capacity. It is learnt from the highest rate received.
    NoTrains,
    /// Packet trains sent at the path's own rate arrived more slowly: other traffic uses the path.
    Shared,
    /// The paper's flat-rate condition holds.
    Flat,
    /// The paper's const-rate-drop condition holds.
    ConstantThenDrop,
    /// The rate dropped during slow start.
    Drop,
    /// The window limits the transfer.
    BufferLimited,
    /// A queue stands at the bottleneck.
    Queue,
    /// The queue has drained.
    Drained,
    /// More of the path is free: a rate probe raised no queue.
    Room,
    /// No more of the path is free: a rate probe raised a queue.
    Full,
    /// Segments were lost.
    Loss,
    /// More than one of the last hundred probes was lost.
    Congested,
    /// Probes are no longer lost.
    Clean,
    /// Losses have ended and no queue stands, but far less arrives than is free: slow start restarts.
    Restart,
    /// The queue does not shrink whatever the rate, so the path's own delay has changed.
    Rebased,
    /// The rate has grown back to the capacity.
    Capacity,
    /// Other traffic gave up bandwidth to a longer queue or to an unlimited congestion control, which therefore stays.
    Yielded,
    /// Other traffic gave up nothing, so the earlier limits apply again.
    Unyielding,
    /// Packet trains arrived faster than hosts can be trusted to take them in, so they tell nothing of the path.
    TooFast,
    /// The path's own delay varies too much to show a queue.
    Noisy,
    /// Segments are lost far below the capacity, without a queue and without others: the path loses them by itself.
    RandomLoss,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Trains => "packet trains gave a capacity",
            Why::NoTrains => "no packet train told the capacity; it is learnt from the rate received",
            Why::Shared => "packet trains show others' traffic",
            Why::Flat => "the rate is flat",
            Why::ConstantThenDrop => "the rate dropped after having been constant",
            Why::Drop => "the rate dropped",
            Why::BufferLimited => "the window limits the transfer",
            Why::Queue => "a queue stands",
            Why::Drained => "the queue has drained",
            Why::Room => "more of the path is free",
            Why::Full => "no more of the path is free",
            Why::Loss => "segments were lost",
            Why::Congested => "probes are lost",
            Why::Clean => "probes are no longer lost",
            Why::Restart => "TCP has not come back from its losses: it starts up again",
            Why::Rebased => "the path's own delay has changed",
            Why::Capacity => "the capacity is reached again",
            Why::Yielded => "others yield",
            Why::Unyielding => "others do not yield",
            Why::TooFast => "the path is faster than packet trains can tell",
            Why::Noisy => "the path's own delay varies too much to show a queue",
            Why::RandomLoss => "the path loses segments by itself",
        })
    }
}

/// One decision, for the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Instant of the decision by the caller's clock, nanoseconds.
    pub at_ns: u64,
    /// State after the decision.
    pub state: State,
    /// Reason for the decision.
    pub why: Why,
    /// Payload rate received at the time of the decision, bit/s.
    pub rate_bps: u64,
    /// Least RTT so far, nanoseconds.
    pub rtt_ns: u64,
    /// Delay of the standing queue, nanoseconds.
    pub queue_ns: u64,
    /// Estimated capacity of the path, bit/s of payload.
    pub capacity_bps: Option<u64>,
    /// Window after the decision, bytes.
    pub window: u64,
    /// Pacing rate after the decision, bit/s.
    pub pacing_bps: Option<u64>,
    /// Number of streams that send.
    pub streams: u16,
}
