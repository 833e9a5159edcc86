//! Runs one end of a transfer once the two ends have agreed and their streams are connected.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use fullpipe_net::Observed;
use fullpipe_path::{Protocol, Transport};

use crate::connection::session::Session;
use crate::connection::stream::{self, Stream};
use crate::error::TransferError;
use crate::protocol::losses::Losses;
use crate::protocol::message::{Message, Options, Removed, Summary, Terms};
use crate::protocol::skipped::Skipped;
use crate::receive::{Destination, Output, OutputReceiver, Receiver};
use crate::send::notsent::NotsentLimit;
use crate::send::{Outgoing, Sender, shared_rate};
use crate::sobas;
use crate::sobas::setup::SizingSetup;
use crate::telemetry::counters::Counters;
use crate::telemetry::losses;

/// What an end does in a transfer.
pub(crate) enum Role {
    /// It sends this.
    Send(Outgoing),
    /// It writes to this destination.
    Receive(Box<Destination>),
    /// It writes to standard output.
    Print(Arc<Output>),
}

impl Role {
    pub(crate) fn sends(&self) -> bool {
        matches!(self, Role::Send(_))
    }

    /// What this end asks of the sender, if it receives.
    pub(crate) fn terms(&self) -> Option<Terms> {
        match self {
            Role::Send(_) => None,
            Role::Receive(to) => to.terms(),
            Role::Print(output) => Some(output.terms()),
        }
    }
}

/// All that an end needs for a transfer after the two ends have agreed on it.
pub(crate) struct Negotiated {
    /// What this end does.
    pub(crate) role: Role,
    /// How files are treated.
    pub(crate) options: Options,
    /// What the other end asks of this one, if the other receives.
    pub(crate) terms: Option<Terms>,
    /// The data streams, connected.
    pub(crate) streams: Vec<Stream>,
    /// Number of streams that send from the start.
    pub(crate) sending: u16,
    /// The rate that the streams share, bit/s, where each is paced by its kernel.
    pub(crate) shared_bps: Option<u64>,
    /// What SOBAS needs, if it sizes the sockets.
    pub(crate) sizing: Option<SizingSetup>,
}

/// The rate that the streams of a transport share, bit/s, where each is paced by its kernel: over TCP.
pub(crate) fn shared_bps(transport: &Transport) -> Option<u64> {
    transport.pacing.filter(|_| transport.protocol() == Protocol::Tcp).map(|rate| rate.0)
}

/// The result of a transfer at one end.
#[derive(Debug)]
pub struct Outcome {
    /// The receiver's result.
    pub summary: Summary,
    /// What the sender skipped.
    pub skipped: Skipped,
    /// What the sender has removed of its sources, if it was to, and if this end knows.
    pub removed: Option<Removed>,
    /// The losses that the sender measured.
    pub losses: Option<Losses>,
    /// When this end began to sample, nanoseconds of `CLOCK_MONOTONIC`, and its samples, if samples were asked for.
    pub(crate) samples: Option<(u64, Observed)>,
    /// The other end's samples, if samples were asked for.
    pub(crate) peer_samples: Option<Observed>,
}

/// Sends or receives until the transfer ends. `tick` is called several times a second.
///
/// # Errors
/// The transfer's.
pub(crate) fn run(
    session: &Arc<Session>,
    input: Box<dyn Read + Send>,
    met: Negotiated,
    counters: Arc<Counters>,
    tick: &mut dyn FnMut(),
) -> Result<Outcome, TransferError> {
    let all = || {
        let Negotiated { role, options, terms, streams, sending, shared_bps, sizing } = met;
        let stall = Duration::from_nanos(options.stall_ns);
        let (sends, rtt) = (role.sends(), sizing.as_ref().map(|setup| Duration::from_nanos(setup.rtt_ns)));
        // SOBAS shares the rate itself.
        let shared_bps = shared_bps.filter(|_| !sizing.as_ref().is_some_and(SizingSetup::paces));
        sobas::start(session, sizing, (&streams, sending), sends, &counters)?;
        let ((summary, skipped), (trace, peer_samples), losses, removed) = match role {
            Role::Send(from) => {
                let why = "it does not say how it receives";
                let no_terms = || TransferError::Stranger { peer: session.peer.clone(), why: why.to_owned() };
                let terms = terms.ok_or_else(no_terms)?;
                let handles = stream::handles(&streams);
                if let Some(bps) = shared_bps {
                    shared_rate::start(session, handles.clone(), bps)?;
                }
                let observe = || -> Vec<_> { handles.iter().map(|stream| stream.observe().ok()).collect() };
                let (mut ahead, mut watch) = (NotsentLimit::new(&handles), losses::LossWatch::new());
                let sender = Sender::start(session.clone(), options, from, (streams, sending), rtt, terms, counters)?;
                session.listen(input, sender.clone())?;
                session.watch(stall, &*sender, &mut || {
                    let seen = observe();
                    ahead.adjust(&handles, &seen, sender.rest());
                    sender.has_sent(watch.sample(&seen));
                    tick();
                })?;
                let losses = watch.told(&observe());
                let (trace, peer_samples) = sender.trace();
                // The receiver waits for these messages, but everything is done even if they are lost.
                let _ = trace.as_ref().map(|trace| trace.tell(session));
                let removed = sender.removed();
                let _ = removed.as_ref().map(|removed| session.send(&Message::Removed(removed.clone())));
                let _ = session.send(&Message::Losses(losses));
                let _ = session.send(&Message::Report { end: String::new(), samples: Vec::new(), last: true });
                (sender.summary(), (trace, peer_samples), Some(losses), removed)
            }
            Role::Receive(to) => {
                let receiver = Receiver::start(session.clone(), options, *to, streams, counters)?;
                session.listen(input, receiver.clone())?;
                let ended = session.watch(stall, &*receiver, &mut || {
                    receiver.tell_progress();
                    tick();
                });
                receiver.release();
                ended?;
                (receiver.summary(), receiver.trace(), receiver.losses(), receiver.removed())
            }
            Role::Print(output) => {
                let receiver = OutputReceiver::start(session.clone(), options, output, streams, counters)?;
                session.listen(input, receiver.clone())?;
                session.watch(stall, &*receiver, &mut || {
                    receiver.tell_progress();
                    tick();
                })?;
                (receiver.summary(), receiver.trace(), receiver.losses(), None)
            }
        };
        let samples = trace.map(|trace| (trace.zero_ns(), trace.seen()));
        Ok(Outcome { summary, skipped, removed, losses, samples, peer_samples })
    };
    // If this fails before the session watches the transfer, nobody else tells the other end.
    all().inspect_err(|error| session.tell(error))
}
