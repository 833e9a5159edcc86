//! What both ends do once they have met.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use fullpipe_net::Seen;

use crate::connection::session::Session;
use crate::connection::stream::{self, Stream};
use crate::error::TransferError;
use crate::protocol::losses::Losses;
use crate::protocol::message::{Message, Options, Summary, Terms};
use crate::protocol::skipped::Skipped;
use crate::receive::{Destination, Receiver};
use crate::send::Sender;
use crate::send::notsent::NotsentLimit;
use crate::sobas;
use crate::sobas::setup::SizingSetup;
use crate::source::tree::SourceTree;
use crate::telemetry::counters::Counters;
use crate::telemetry::losses;

/// What an end does.
pub(crate) enum Role {
    /// It sends these.
    Send(Vec<SourceTree>),
    /// It writes there.
    Receive(Box<Destination>),
}

impl Role {
    pub(crate) fn sends(&self) -> bool {
        matches!(self, Role::Send(_))
    }

    /// What this end asks of the other, if it receives.
    pub(crate) fn terms(&self) -> Option<Terms> {
        match self {
            Role::Send(_) => None,
            Role::Receive(to) => to.terms(),
        }
    }
}

/// An end that has met the other.
pub(crate) struct Negotiated {
    pub(crate) role: Role,
    pub(crate) options: Options,
    /// What the other end asks for, if it receives.
    pub(crate) terms: Option<Terms>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) sizing: Option<SizingSetup>,
}

/// How a transfer went.
#[derive(Debug)]
pub struct Outcome {
    /// At the receiver.
    pub summary: Summary,
    /// What the sender could not read.
    pub skipped: Skipped,
    /// What the network has lost, as the sender knows.
    pub losses: Option<Losses>,
    /// What this end has seen, and when it began, where samples were wanted.
    pub(crate) seen: Option<(u64, Seen)>,
    /// What the other has told.
    pub(crate) told: Option<Seen>,
}

/// Sends or receives until the end. `tick` is called now and then.
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
        let Negotiated { role, options, terms, mut streams, sizing } = met;
        let stall = Duration::from_nanos(options.stall_ns);
        let sends = role.sends();
        sobas::start(session, sizing, &mut streams, sends, &counters)?;
        let ((summary, skipped), (trace, told), losses) = match role {
            Role::Send(places) => {
                let why = "it does not say how it receives";
                let no_terms = || TransferError::Stranger { peer: session.peer.clone(), why: why.to_owned() };
                let terms = terms.ok_or_else(no_terms)?;
                let sockets = stream::sockets(&streams)?;
                let infos = || -> Vec<_> { sockets.iter().map(stream::tcp_info).collect() };
                let (mut ahead, mut watch) = (NotsentLimit::new(&sockets), losses::LossWatch::new());
                let sender = Sender::start(session.clone(), options, places, streams, terms, counters)?;
                session.listen(input, sender.clone())?;
                session.watch(stall, &mut || {
                    let infos = infos();
                    ahead.adjust(&sockets, &infos, sender.rest());
                    watch.sample(&infos);
                    tick();
                })?;
                let losses = watch.told(&infos());
                let (trace, told) = sender.trace();
                // The receiver's end waits for these words, but without them all is done too.
                let _ = trace.as_ref().map(|trace| trace.tell(session));
                let _ = session.send(&Message::Losses(losses));
                let _ = session.send(&Message::Report { end: String::new(), samples: Vec::new(), last: true });
                (sender.summary(), (trace, told), Some(losses))
            }
            Role::Receive(to) => {
                let receiver = Receiver::start(session.clone(), options, *to, streams, counters)?;
                session.listen(input, receiver.clone())?;
                let ended = session.watch(stall, &mut || {
                    receiver.tell_progress();
                    tick();
                });
                receiver.release();
                ended?;
                (receiver.summary(), receiver.trace(), receiver.losses())
            }
        };
        let seen = trace.map(|trace| (trace.zero_ns(), trace.seen()));
        Ok(Outcome { summary, skipped, losses, seen, told })
    };
    // Where it ends before the session watches over it, the other is told here.
    all().inspect_err(|error| session.tell(error))
}
