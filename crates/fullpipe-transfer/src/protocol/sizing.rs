//! What the two ends tell each other about window and pacing while SOBAS sizes them.

use fullpipe_sobas::Event;
use serde::{Deserialize, Serialize};

use crate::protocol::hello::Limits;

/// Which of the controller's laws decides, and by which means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SizingMode {
    /// The paper's: the receiver's window, set once.
    Paper,
    /// Adaptive, the receiver's window alone.
    Window,
    /// Adaptive, the sender's pacing rate alone.
    Pacing,
    /// Adaptive, both.
    Both,
    /// Adaptive, both, and slow start once more where losses have left TCP far below the pacing rate.
    All,
}

impl SizingMode {
    /// As far as the sender's kernel allows: it is through BBR that slow start begins once more.
    pub(crate) fn with(self, sender: &Limits) -> SizingMode {
        if self == SizingMode::All && !sender.ccs.iter().any(|cc| cc == BBR) { SizingMode::Both } else { self }
    }

    /// Whether the sender is paced.
    pub(crate) fn paces(self) -> bool {
        matches!(self, SizingMode::Pacing | SizingMode::Both | SizingMode::All)
    }
}

/// Slow start begins once more through it.
pub(crate) const BBR: &str = "bbr";

/// What the sending end has seen of its streams, all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SenderStats {
    /// Segments sent again.
    pub retransmits: u64,
    /// How long the receiver's window was the limit, microseconds, summed over the streams.
    pub window_limited_us: u64,
    /// Least of TCP's own latest round-trip times, microseconds.
    pub rtt_us: u32,
}

/// Something for the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SizingEvent {
    /// How it began.
    Began {
        /// Which law.
        law: SizingMode,
        /// Whether UDP passes, hence probes and trains.
        udp: bool,
        /// TCP payload of a full segment, bytes.
        mss: u32,
        /// Largest window, bytes, all streams together.
        largest: u64,
    },
    /// A decision. Its instant counts from the beginning.
    Decided(Event),
}

impl SizingEvent {
    /// Its fields; `what` says which it is.
    ///
    /// # Errors
    /// None that is known.
    pub fn to_json(&self) -> serde_json::Result<serde_json::Value> {
        #[derive(Serialize)]
        #[serde(tag = "what", rename_all = "snake_case")]
        enum Line<'a> {
            Began { law: SizingMode, udp: bool, mss: u32, largest: u64 },
            Decided(&'a Event),
        }
        serde_json::to_value(match self {
            SizingEvent::Began { law, udp, mss, largest } => {
                Line::Began { law: *law, udp: *udp, mss: *mss, largest: *largest }
            }
            SizingEvent::Decided(event) => Line::Decided(event),
        })
    }
}
