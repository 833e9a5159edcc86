//! What goes in and what comes out.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::trains::Train;

/// Which law decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The paper's Figure 8: the window alone, set once per transfer.
    Paper,
    /// Beyond the paper: window and pacing rate, following the path for as long as the transfer runs.
    Adaptive,
}

/// What is fixed for a transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// TCP payload of a full segment, bytes: `TCP_INFO`'s `tcpi_snd_mss` (1448 for 1,500-byte packets with timestamps).
    pub mss: u32,
    /// IP packet of a full segment, bytes. Trains are of packets of this size, but of no larger than 1,500 bytes.
    pub packet: u32,
    /// Streams that share the controller.
    pub streams: u16,
    /// Largest window that the hosts grant, bytes, all streams together.
    pub largest: u64,
    /// Whether the receiver's window may be set.
    pub window: bool,
    /// Whether the sender's pacing rate may be set. The paper's law never does.
    pub pacing: bool,
    /// Whether the sender's TCP may be told to begin slow start once more. Beneath a pacing rate only.
    pub restart: bool,
    /// Whether UDP passes, so that packet trains can be sent.
    pub trains: bool,
    /// Part of its window that the sender's congestion control gives up at a loss: half (Reno), an eighth (Scalable), none
    /// (BBR, which holds a rate of its own).
    pub decrease: f64,
    /// Which law decides.
    pub mode: Mode,
}

/// Something that the shell saw.
#[derive(Debug, Clone, PartialEq)]
pub enum Observation {
    /// A probe came back. Where UDP does not pass, TCP's own samples (`tcpi_rtt`, least of the streams) do
    /// instead, at the same pace.
    Probe {
        /// From its sending to its return by one clock, nanoseconds.
        rtt_ns: u64,
    },
    /// A probe did not come back; the shell decides when that is certain (some RTTs).
    ProbeLost,
    /// A packet train arrived, in whole or in part.
    Train(Train),
    /// Payload that the receiving end has taken in since the start, bytes, all streams together. At
    /// least once per tick; best with the instant at which it was read.
    Bytes(u64),
    /// Segments that the sender has sent again since the start, all streams together
    /// (`TCP_INFO`'s `tcpi_total_retrans`).
    Retransmits(u64),
    /// Whether the window, not the congestion window, limits the sender (`TCP_INFO`'s
    /// `tcpi_rwnd_limited` grew by most of the time since). Where it is never told, it is inferred.
    BufferLimited(bool),
}

/// Something that the shell is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// The receiver is to offer this window, bytes of payload, all streams together.
    Window(u64),
    /// The sender is to send no faster than this, bit/s of TCP payload, all streams together; none: as fast as it
    /// likes. TCP's own pacing counts payload (`tcp_update_skb_after_send`), and since Linux 4.20 the fq
    /// qdisc keeps to the instants that TCP has computed so.
    Pacing(Option<u64>),
    /// The sender's TCP is to begin slow start once more, all streams: losses have left its windows far below the
    /// pacing rate, and congestion avoidance would take minutes to come back.
    SlowStart,
    /// Send one probe of [`PROBE_BYTES`](crate::PROBE_BYTES).
    SendProbe,
    /// Send, from the data's sender to its receiver, a train of so many packets back to back.
    SendTrain {
        /// Packets.
        packets: u16,
        /// IP bytes of each.
        bytes: u32,
        /// Spread evenly over this, nanoseconds; 0: as fast as they go.
        over_ns: u64,
    },
    /// For the record.
    Note(Event),
}

/// Named states. The paper's bear their number in Figure 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Both laws: trains are out, nothing is limited yet. Figure 8, state 1.
    Estimate,
    /// The paper's: initial slow start under S = 1.2·C'·T. Figure 8, state 2.
    SlowStart,
    /// The paper's: the rate dropped before the path was full. Figure 8, state 3.
    Avoidance,
    /// The paper's: limited by the window, which grows by a segment per RTT. Figure 8, state 4.
    Growing,
    /// The paper's: S = R·T, for good. Figure 8, state 5.
    Sized,
    /// Both laws: the path is congested by others, S = maximum. Figure 8, state 6; for good in the paper's law.
    Disabled,
    /// Adaptive: TCP starts up beneath pacing and window.
    Start,
    /// Adaptive: just below the capacity, no queue.
    Hold,
    /// Adaptive: below the capacity, what is available is followed by a small standing queue.
    Follow,
    /// Adaptive: a standing queue is let drain.
    Drain,
    /// Adaptive: probes were lost; sends less, to see whether that ends.
    Yield,
    /// Adaptive: BBR or Scalable beside others is not limited: for good where they yield to it, BBR on long paths too.
    Free,
}

/// Why something was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The trains gave a capacity.
    Trains,
    /// No trains: the capacity is learnt from the highest rate received.
    NoTrains,
    /// Trains at the path's own rate came slower: others use it too.
    Shared,
    /// The flat-rate condition.
    Flat,
    /// The const-rate-drop condition.
    ConstantThenDrop,
    /// A rate drop in slow start.
    Drop,
    /// The transfer is limited by the window.
    BufferLimited,
    /// A queue stands.
    Queue,
    /// The queue has gone.
    Drained,
    /// More is available: a pulse passed without raising a queue.
    Room,
    /// No more is available: a pulse raised a queue.
    Full,
    /// Segments were lost.
    Loss,
    /// More than one of the last hundred probes was lost.
    Congested,
    /// Probes are no longer lost.
    Clean,
    /// No more is lost, no queue stands, and yet far less arrives than would be free: slow start begins once more.
    Restart,
    /// The queue does not shrink whatever is sent: the path's own delay has changed.
    Rebased,
    /// The pacing rate has been the capacity for a while: nothing limits but the path.
    Capacity,
    /// Others give up what a longer queue, or a congestion control without a limit, makes them: it stays so.
    Yielded,
    /// They do not: as before.
    Unyielding,
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
        })
    }
}

/// One decision, for the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, nanoseconds, by the caller's clock.
    pub at_ns: u64,
    /// The state from then on.
    pub state: State,
    /// Why.
    pub why: Why,
    /// Payload rate received when it was decided, bit/s.
    pub rate_bps: u64,
    /// Least RTT, nanoseconds.
    pub rtt_ns: u64,
    /// Delay of the standing queue, nanoseconds.
    pub queue_ns: u64,
    /// Payload capacity believed in, bit/s.
    pub capacity_bps: Option<u64>,
    /// Window from then on, bytes.
    pub window: u64,
    /// Pacing rate from then on, bit/s.
    pub pacing_bps: Option<u64>,
}
