//! Self-sizing socket buffers: the part that does I/O for [`fullpipe_sobas`], which decides.
//!
//! The controller runs at the receiving end (`controller`), which sees what arrives. The sending end (`responder`) echoes
//! probes, sends packet trains when asked, reports TCP's retransmissions, and paces its streams. Probes and trains are UDP
//! datagrams beside the streams (`datagram`, `udp`); everything else goes over the control connection. If UDP does not
//! pass, TCP's own round-trip times serve as probes, and there are no trains.

mod actuators;
mod controller;
mod datagram;
mod replay;
mod responder;
pub(crate) mod setup;
pub(crate) mod udp;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::connection::session::Session;
use crate::connection::stream::{self, Stream};
use crate::error::TransferError;
use crate::telemetry::counters::Counters;
use crate::threads::thread;
use setup::{SizingSetup, segment};

/// Most bytes that TCP sends at once while it is paced: a quarter of the shallowest queue that SOBAS expects. BBR paces
/// itself, so its streams always send in parts.
const MAX_BURST_BYTES: usize = fullpipe_sobas::MAX_BURST_BYTES as usize;

/// Starts the controller or the responder in a thread of its own, which ends with the session.
///
/// # Errors
/// The thread cannot be started, or a descriptor not duplicated.
pub(crate) fn start(
    session: &Arc<Session>,
    setup: Option<SizingSetup>,
    streams: &mut [Stream],
    sends: bool,
    counters: &Arc<Counters>,
) -> Result<(), TransferError> {
    let Some(setup) = setup else { return Ok(()) };
    let sockets = Arc::new(stream::sockets(streams)?);
    let session = session.clone();
    if sends {
        let parts = Arc::new(AtomicBool::new(true));
        if setup.law.paces() {
            for stream in streams {
                let (segment, _) = segment(stream.socket());
                stream.in_parts(MAX_BURST_BYTES, segment, parts.clone());
            }
        }
        let responder = responder::Responder::new(&session, setup, sockets, parts, counters.clone());
        thread("sobas", move || responder.run())
    } else {
        let controller = controller::Controller::new(&session, setup, sockets, counters.clone());
        thread("sobas", move || controller.run())
    }
}
