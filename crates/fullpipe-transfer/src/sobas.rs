//! Socket buffers that size themselves: the shell of [`fullpipe_sobas`], which decides.
//!
//! The controller runs at the receiving end (`controller`), which knows what arrives. The sending end (`responder`)
//! echoes its probes, sends packet trains when asked, says what TCP has sent again, and paces its streams.
//! Probes and trains are UDP beside the streams (`datagram`, `udp`); everything else goes over the control
//! connection. Where UDP does not pass, TCP's own round-trip times serve as probes and there are no trains.

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

/// What TCP sends at once while it is paced, and BBR, which paces itself, always, bytes: a quarter of the shallowest queue that is thought of.
const PART: usize = fullpipe_sobas::BURST as usize;

/// Starts this end's part, which ends with the session.
///
/// # Errors
/// Threads cannot be started, or descriptors not doubled.
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
                stream.in_parts(PART, segment, parts.clone());
            }
        }
        let responder = responder::Responder::new(&session, setup, sockets, parts, counters.clone());
        thread("sobas", move || responder.run())
    } else {
        let controller = controller::Controller::new(&session, setup, sockets, counters.clone());
        thread("sobas", move || controller.run())
    }
}
