//! A server for measurements that this client starts at another host over ssh, as it starts the far end of a copy.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fullpipe_net::wire::ProofKey;
use fullpipe_path::{Host, Rate, Time};

use super::round_trip::round_trip;
use super::streams::hear;
use super::{hear_greeting, unless_stopped};
use crate::connection::dial::{self, ControlChannel};
use crate::connection::endpoint::SshEndpoint;
use crate::connection::session::Session;
use crate::connection::ssh::FarTask;
use crate::connection::stop::Stop;
use crate::error::TransferError;
use crate::protocol::message::Message;

/// A server at a far host. It ends when this is dropped.
pub struct FarServer {
    /// Where it listens: the host's name by ssh's configuration, and the port.
    pub host: Host,
    /// The key by which this client proves that it may measure.
    pub key: ProofKey,
    session: Arc<Session>,
    line: ControlChannel,
    /// The longest time for which the host may be silent.
    stall: Duration,
    stop: Arc<Stop>,
}

impl FarServer {
    /// Starts a server. `stall` is the longest time for which the host may be silent, and `say` tells the user what takes time.
    ///
    /// # Errors
    /// ssh does not reach the host, the host cannot run this program, or the wait was interrupted.
    pub fn start(
        endpoint: &SshEndpoint,
        stall: Duration,
        interrupted: &AtomicBool,
        say: &dyn Fn(&str),
    ) -> Result<FarServer, TransferError> {
        let stop = Arc::new(Stop::default());
        unless_stopped(interrupted, stall, &endpoint.host, &stop, || {
            let mut line = dial::start(endpoint, FarTask::Measurements, &stop)?;
            let output = std::mem::replace(&mut line.output, Box::new(std::io::sink()));
            let session = Session::new(line.peer.clone(), output);
            let told = listening(&mut line, &session, say);
            let (port, key) = told.map_err(|error| dial::explain(&line, error))?;
            line.await_nothing();
            let (name, _) = dial::name_and_addresses(&line);
            Ok(FarServer { host: Host { name, port }, key: ProofKey(key), session, line, stall, stop: stop.clone() })
        })
    }

    /// Measures the round-trip time through ssh, seconds.
    ///
    /// # Errors
    /// The connection broke, or the host does not answer.
    pub fn round_trip(&mut self) -> Result<f64, TransferError> {
        self.asked(|session, line| round_trip(session, &mut *line.input))
    }

    /// Has the host checked for a path with such a round-trip time and rate. Returns what was found, in JSON that this end must not
    /// believe.
    ///
    /// # Errors
    /// The connection broke, or the host does not answer.
    pub fn check(&mut self, rtt: Time, rate: Rate) -> Result<String, TransferError> {
        self.asked(|session, line| {
            session.send(&Message::Check { rtt_ns: rtt.0, rate_bps: rate.0 })?;
            match hear(session, &mut *line.input)? {
                Message::Checked(found) => Ok(found),
                other => Err(session.unexpected(&other)),
            }
        })
    }

    /// Asks the host, which must not be silent for too long.
    fn asked<R>(
        &mut self,
        ask: impl FnOnce(&Session, &mut ControlChannel) -> Result<R, TransferError>,
    ) -> Result<R, TransferError> {
        let FarServer { host, session, line, stall, stop, .. } = self;
        let name = host.name.clone();
        unless_stopped(&AtomicBool::new(false), *stall, &name, stop, || {
            line.await_later();
            let asked = ask(session, line).map_err(|error| dial::explain(line, error));
            line.await_nothing();
            asked
        })
    }
}

/// Waits until the server listens; returns its port and key.
fn listening(
    line: &mut ControlChannel,
    session: &Session,
    say: &dyn Fn(&str),
) -> Result<(u16, [u8; 32]), TransferError> {
    line.await_far_end(&|bytes| session.send_raw(bytes), say)?;
    hear_greeting(session, line)?;
    match hear(session, &mut *line.input)? {
        Message::Measures { port, key } => Ok((port, key)),
        other => Err(session.unexpected(&other)),
    }
}
