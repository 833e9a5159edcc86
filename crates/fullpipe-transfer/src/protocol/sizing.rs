//! The messages about window and pacing that the two ends exchange while SOBAS sizes them.

use fullpipe_sobas::{Event, Why};
use serde::{Deserialize, Serialize};

use crate::protocol::hello::Limits;

/// The control law of SOBAS, and the actuators that it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SizingMode {
    /// The paper's law. It sets the receiver's window once.
    Paper,
    /// The adaptive law. It controls only the receiver's window.
    Window,
    /// The adaptive law. It controls only the sender's pacing rate.
    Pacing,
    /// The adaptive law. It controls the receiver's window and the sender's pacing rate.
    Both,
    /// The adaptive law. It controls window and pacing rate, and restarts slow start if losses have left TCP far below the
    /// pacing rate.
    Restart,
    /// As [`SizingMode::Restart`]. It also changes the sender's congestion control to BBR if the path loses segments by itself.
    All,
}

impl SizingMode {
    /// Reduces the mode to what the sender's kernel supports. Restarting slow start needs BBR, too.
    pub(crate) fn with(self, sender: &Limits) -> SizingMode {
        if self.restarts() && !sender.ccs.iter().any(|cc| cc == BBR) { SizingMode::Both } else { self }
    }

    /// Whether this mode controls the sender's pacing rate.
    pub(crate) fn paces(self) -> bool {
        matches!(self, SizingMode::Pacing | SizingMode::Both) || self.restarts()
    }

    /// Whether this mode restarts slow start.
    pub(crate) fn restarts(self) -> bool {
        matches!(self, SizingMode::Restart | SizingMode::All)
    }
}

/// Name of the congestion control through which slow start is restarted.
pub(crate) const BBR: &str = "bbr";

/// Statistics of the sender's streams, all streams together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SenderStats {
    /// Number of retransmitted segments.
    pub retransmits: u64,
    /// Time during which the receiver's window limited sending, in microseconds, summed over the streams.
    pub window_limited_us: u64,
    /// Smallest of the streams' latest round-trip times as TCP measures them, in microseconds.
    pub rtt_us: u32,
}

/// An event of SOBAS for the transfer's record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SizingEvent {
    /// SOBAS began.
    Began {
        /// The control law and its actuators.
        law: SizingMode,
        /// Whether UDP passes between the ends. SOBAS needs UDP for probes and packet trains.
        udp: bool,
        /// TCP payload of a full segment, in bytes.
        mss: u32,
        /// Largest window, in bytes, all streams together.
        largest: u64,
    },
    /// A decision of the controller. Its time counts from the beginning of SOBAS.
    Decided(Event),
}

impl SizingEvent {
    /// Whether the controller has found that the path itself loses segments.
    #[must_use]
    pub fn shows_random_loss(&self) -> bool {
        matches!(self, SizingEvent::Decided(event) if event.why == Why::RandomLoss)
    }

    /// The decision, if it is one of the few that change how the transfer goes on, and none of those that follow the path.
    #[must_use]
    pub fn turn(&self) -> Option<&Event> {
        let SizingEvent::Decided(event) = self else { return None };
        let follows = matches!(
            event.why,
            Why::Flat
                | Why::ConstantThenDrop
                | Why::Drop
                | Why::Queue
                | Why::Drained
                | Why::Room
                | Why::Full
                | Why::Loss
                | Why::Capacity
        );
        (!follows).then_some(event)
    }

    /// Returns the event as a JSON object. The field `what` names the kind of event.
    ///
    /// # Errors
    /// Serializing the event fails. No case is known.
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
