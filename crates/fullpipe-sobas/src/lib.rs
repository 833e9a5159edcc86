//! Socket-buffer auto-sizing (SOBAS), as a state machine without I/O: it has no socket, no clock and no thread.
//!
//! The algorithm is from Prasad, Jain and Dovrolis, *Socket Buffer Auto-Sizing for High-Performance Data Transfers*
//! (J. Grid Computing 2003); "section" and "Figure" in this crate refer to that paper. It limits the window of a TCP
//! transfer to what fills the path, so that the transfer does not overflow the bottleneck's queue. [`Algorithm::Paper`] is the
//! published algorithm. [`Algorithm::Adaptive`] also sets the sender's pacing rate, because a shallow queue cannot hold TCP's
//! bursts; restarts slow start where losses have left TCP below that rate; has the sender change to BBR where the path loses
//! segments by itself; and keeps adjusting until the transfer ends.
//!
//! A shell owns the sockets. It opens the streams with the largest buffers (the window scale is fixed at the handshake),
//! then turns what it sees into [`Observation`]s, and the [`Action`]s that it gets back into system calls:
//!
//! ```
//! # use fullpipe_sobas::{Action, Config, Algorithm, Observation, Sobas};
//! # let config = Config { mss: 1448, packet: 1500, streams: 4, largest: 1 << 30, window: true, pacing: true,
//! #                       restart: true, change: true, trains: true, decrease: 0.5, spare: 0, assumed_bps: 10e9,
//! #                       limit_bps: f64::INFINITY,
//! #                       algorithm: Algorithm::Adaptive };
//! let mut sobas = Sobas::new(config, 20_000_000, 0);
//! sobas.observe(5_000_000, Observation::Bytes(14_480));
//! for action in sobas.tick(5_000_000) {
//!     match action {
//!         Action::Window(bytes) => { /* each stream's share: bytes / streams */ }
//!         Action::Pacing(bps) => { /* SO_MAX_PACING_RATE, in bytes per second, each stream's share */ }
//!         Action::Streams(sending) => { /* that many of the open streams may send */ }
//!         Action::SlowStart => { /* the sender's TCP, from its present window */ }
//!         Action::BearLosses => { /* TCP_CONGESTION, bbr */ }
//!         Action::SendProbe | Action::SendTrain { .. } => { /* UDP, to the other end */ }
//!         Action::Note(event) => { /* the record */ }
//!     }
//! }
//! assert!(sobas.next_wake() > 5_000_000);
//! ```
//!
//! Instants are nanoseconds of one monotonic clock of the caller's; an instant before the latest one counts as the latest
//! one. Rates are bits of TCP payload per second and windows are bytes of payload, both summed over all streams.

mod adaptive;
mod config;
mod controller;
mod event;
mod network_model;
mod paper;
mod probes;
mod signal;
mod throughput;
mod trains;

pub use adaptive::{MAX_BURST_BYTES, first_pacing_bps};
pub use config::{Algorithm, Config};
pub use controller::Sobas;
pub use event::{Event, State, Why};
pub use network_model::{MAX_RTT_NS, MAX_TRAIN_PACKET_BYTES};
pub use probes::{PROBE_BYTES, PROBE_INTERVAL_NS};
pub use signal::{Action, Observation};
pub use trains::{FIRST_TRAIN_PACKETS, MAX_TRAIN_PACKETS, Train};
