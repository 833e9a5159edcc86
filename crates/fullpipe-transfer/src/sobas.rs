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

use crate::connection::session::Session;
use crate::connection::stream::{self, Stream};
use crate::error::TransferError;
use crate::telemetry::counters::Counters;
use crate::threads::thread;
use setup::SizingSetup;

/// Starts the controller or the responder in a thread of its own, which ends with the session. Of the streams, the given
/// number send from the start.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start(
    session: &Arc<Session>,
    setup: Option<SizingSetup>,
    (streams, sending): (&[Stream], u16),
    sends: bool,
    counters: &Arc<Counters>,
) -> Result<(), TransferError> {
    let Some(setup) = setup else { return Ok(()) };
    let streams = stream::handles(streams);
    let session = session.clone();
    if sends {
        let responder = responder::Responder::new(&session, setup, (streams.into(), sending), counters.clone());
        thread("sobas", move || responder.run())
    } else {
        let controller = controller::Controller::new(&session, setup, (streams.into(), sending), counters.clone());
        thread("sobas", move || controller.run())
    }
}
