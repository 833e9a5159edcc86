//! UDT, the UDP-based data transfer protocol, without I/O: no socket, no clock, no thread.
//!
//! It follows Yunhong Gu, *UDT: UDP-based Data Transfer Protocol* (draft-gg-udt-03, April 2010), to which "section" refers in this
//! crate, and libudt 4.11, the reference implementation, where that differs; each difference is named where it is. Only streams
//! of bytes are implemented, not the messaging mode.
//!
//! A shell owns the socket. An end begins as a [`Caller`] or a [`Listener`]; either gives a [`Connection`], which all later
//! datagrams go to:
//!
//! ```
//! # use fullpipe_udt::{Connection, Transmit};
//! # fn send(_: &[u8], _segment_bytes: usize) {}
//! # fn drive(connection: &mut Connection, now_ns: u64, received: &[u8], segment_bytes: usize) -> Option<u64> {
//! connection.handle_datagrams(now_ns, received, segment_bytes); // one recvmsg(2) with UDP_GRO
//! connection.handle_timeout(now_ns);
//! while let Some(transmit) = connection.poll_transmit(now_ns, 65_000) {
//!     match transmit {
//!         Transmit::Control(packet) => send(packet, packet.len()),
//!         Transmit::Data(run) => send(run.bytes, run.segment_bytes), // one sendmsg(2) with UDP_SEGMENT
//!     }
//! }
//! connection.next_timeout() // sleep until then, a datagram, or a write
//! # }
//! ```
//!
//! Instants are nanoseconds of one clock of the caller's. After a step backwards time goes on from where it was; a step forwards is
//! one expiration of each timer. Seeds are arguments: same seed and same datagrams, same behaviour.
//!
//! The sender's packets lie in its buffer as they go out, so a burst is one slice of equal packets (`UDP_SEGMENT`); the receiver
//! copies each payload once, to its place in the stream. Nothing is allocated per packet.
//!
//! Nothing that another host sends makes this crate panic, allocate without bound or loop for long. Loss lists hold ranges in
//! trees, numbers that cannot be are passed over, and a listener keeps nothing of a caller without a valid cookie.

mod ack_window;
mod arrival;
mod caller;
mod clock;
mod config;
pub mod congestion;
mod connection;
pub mod control;
mod control_queue;
mod cookie;
mod exp_timer;
pub mod handshake;
mod listener;
pub mod loss_report;
mod pacer;
pub mod packet;
mod perfmon;
mod receive_buffer;
mod receive_window;
mod receiver;
pub mod receiver_loss_list;
mod rtt;
mod send_buffer;
mod sender;
pub mod sender_loss_list;
pub mod seq;
mod slots;
mod stamp;

pub use caller::{CallError, Caller, Progress};
pub use clock::SYN_NS;
pub use config::{Config, RateControl, payload_bytes};
pub use connection::{Connection, End, Transmit};
pub use listener::{Listener, Request};
pub use perfmon::{Counters, Instant, PerfMon, Snapshot};
pub use sender::Segments;
