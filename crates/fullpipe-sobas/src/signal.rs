//! What the shell tells the controller, and what the controller asks of the shell.

use crate::event::Event;
use crate::trains::Train;

/// Something that the shell saw.
#[derive(Debug, Clone, PartialEq)]
pub enum Observation {
    /// A probe came back. Where UDP does not pass, TCP's own samples (the least `tcpi_rtt` of the streams) replace probes,
    /// at the same interval.
    Probe {
        /// Time from sending the probe to its return, by one clock, nanoseconds.
        rtt_ns: u64,
    },
    /// A probe did not come back. The shell decides when that is certain, some RTTs after sending it.
    ProbeLost,
    /// A packet train arrived, in whole or in part.
    Train(Train),
    /// Payload that the receiving end has taken in since the start, bytes, summed over all streams. The controller needs
    /// at least one per tick, best with the instant at which the count was read.
    Bytes(u64),
    /// Segments that the sender has retransmitted since the start, summed over all streams (`TCP_INFO`'s
    /// `tcpi_total_retrans`).
    Retransmits(u64),
    /// Whether the window, rather than the congestion window, limits the sender: `TCP_INFO`'s `tcpi_rwnd_limited` grew by
    /// most of the time since the last observation. Without these observations the controller infers it.
    BufferLimited(bool),
}

/// Something that the shell is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Make the receiver offer this window, bytes of payload, summed over all streams.
    Window(u64),
    /// Make the sender send no faster than this, bit/s of TCP payload, summed over all streams; `None` removes the limit.
    /// TCP's own pacing counts payload (`tcp_update_skb_after_send`), and since Linux 4.20 the fq qdisc keeps to the
    /// instants that TCP computed.
    Pacing(Option<u64>),
    /// Let this many streams send. The number only grows, up to the spare ones of [`Config`](crate::Config).
    Streams(u16),
    /// Make the sender's TCP restart slow start on all streams. Losses have left its windows far below the pacing rate, and
    /// congestion avoidance would take minutes to recover.
    SlowStart,
    /// Change the congestion control of the sender's TCP to BBR on all streams, for good: the path loses segments by itself,
    /// which the others take for a full queue. Comes only if [`Config::change`](crate::Config::change) allows
    /// it.
    BearLosses,
    /// Send one probe of [`PROBE_BYTES`](crate::PROBE_BYTES).
    SendProbe,
    /// Send a packet train from the data's sender to its receiver.
    SendTrain {
        /// Number of packets.
        packets: u16,
        /// Size of each packet, IP bytes.
        bytes: u32,
        /// Time over which to spread the packets evenly, nanoseconds; 0 sends them back to back.
        over_ns: u64,
        /// The question that the train is sent for. Its [`Train`] bears it too.
        question: u32,
    },
    /// Write this decision to the record.
    Note(Event),
}
