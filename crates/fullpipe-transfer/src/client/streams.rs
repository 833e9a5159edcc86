//! Opens the data streams of a copy to or from this host: over TCP to the far end, over TCP from the far end to here, or through
//! ssh.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fullpipe_net::local_end;
use fullpipe_net::shared_port::{self, SAME_PORT};
use fullpipe_net::stream::open;
use fullpipe_path::{Protocol, text};

use crate::connection::dial::{ControlChannel, SshConnection};
use crate::connection::endpoint::Via;
use crate::connection::far_port::{self, Early, FarPort};
use crate::connection::join;
use crate::connection::session::Session;
use crate::connection::ssh::{DataConnections, SshPort};
use crate::connection::stop::Stop;
use crate::connection::stream::{Protection, Stream};
use crate::error::{self, TransferError};
use crate::protocol::frame;
use crate::protocol::message::{Connect, Dial, Message, Reach, Terms};
use crate::protocol::preamble::PREAMBLE;
use crate::server::data_listener::{DataListener, Place};
use crate::sobas::setup;
use crate::sobas::udp::Udp;

/// Least time that a connection to the far end gets before the other way round is tried, too.
const HEAD_START: Duration = Duration::from_millis(300);
/// Round trips that such a connection gets at least.
const HEAD_START_RTTS: u32 = 3;

/// Where the server waits for the streams ([`Message::Ready`]).
pub(super) struct DataPort {
    /// Port, of TCP or of UDP as the transport needs.
    pub(super) port: u16,
    /// Whether the port is that of the control connection.
    pub(super) is_shared: bool,
    /// Secret that each stream shows.
    pub(super) token: [u8; 32],
    /// Certificate of encrypted streams (DER); empty if they are not encrypted.
    pub(super) certificate: Vec<u8>,
    /// What the server asks for, if it receives.
    pub(super) terms: Option<Terms>,
    /// UDP port for probes; zero if there is none.
    pub(super) udp: u16,
}

/// Receives the next message, which may be a refusal.
pub(super) fn hear(session: &Session, input: &mut (dyn Read + Send)) -> Result<Message, TransferError> {
    session.heard(frame::receive(input).map_err(|e| session.lost("asking", e))?)
}

/// Receives where the server waits for the streams.
pub(super) fn ready(session: &Session, line: &mut ControlChannel) -> Result<DataPort, TransferError> {
    match probably_ready(session, line)? {
        Some(port) => Ok(port),
        None => Err(session.unexpected(&Message::NotReady)),
    }
}

/// Receives where the server waits for the streams of [`Setup::probably`]; `None` if it waits for another request.
///
/// [`Setup::probably`]: crate::protocol::message::Setup::probably
pub(super) fn probably_ready(session: &Session, line: &mut ControlChannel) -> Result<Option<DataPort>, TransferError> {
    match hear(session, &mut *line.input)? {
        Message::Ready { port, token, certificate, terms, udp } => {
            let control = line.addresses.first().filter(|_| port == SAME_PORT).map(SocketAddr::port);
            let (port, is_shared) = (control.unwrap_or(port), control.is_some());
            Ok(Some(DataPort { port, is_shared, token, certificate, terms, udp }))
        }
        Message::NotReady => Ok(None),
        other => Err(session.unexpected(&other)),
    }
}

/// The streams, and what belongs to them.
pub(super) struct Opened {
    pub(super) streams: Vec<Stream>,
    /// What the server asks for, if it receives.
    pub(super) terms: Option<Terms>,
    /// The ssh connections that carry the streams.
    pub(super) carriers: DataConnections,
    /// The socket for probes.
    pub(super) udp: Option<Udp>,
}

/// How the streams are to be opened.
pub(super) struct Opening<'a> {
    pub(super) session: &'a Arc<Session>,
    pub(super) via: Via,
    /// First and last port for streams to this host; zeros let the kernel choose.
    pub(super) ports: (u16, u16),
    pub(super) connect: &'a Connect,
    pub(super) encrypt: bool,
    /// Whether this end sends.
    pub(super) sends: bool,
    pub(super) stall: Duration,
    pub(super) stop: &'a Stop,
    /// Called if the far end connects to here, as this host cannot connect to it.
    pub(super) reversed: &'a dyn Fn(&TransferError),
}

impl Opening<'_> {
    /// Opens the streams. If the server has told before where it waits for them, that is in `early`, with the connections that
    /// are on their way there.
    pub(super) fn open(
        &self,
        line: &mut ControlChannel,
        early: Option<(DataPort, Option<Early>)>,
    ) -> Result<Opened, TransferError> {
        if self.sends {
            // Otherwise no stream would connect, as if the path were closed.
            fullpipe_net::socket::check_cc(&self.connect.transport)?;
        }
        match self.via {
            Via::Either if !self.is_udt() => return self.either_way(line, early),
            Via::Reverse if !self.is_udt() => {
                let DataPort { terms, .. } = self.listen_there(line)?;
                let (data, to) = self.listen_here(line, far_port::first_answer(self.stall, self.connect.rtt_ns))?;
                return self.let_in(line, (data, to), terms);
            }
            _ => {}
        }
        self.session.send(&Message::Connect(Box::new(self.connect.clone())))?;
        let (port, early) = match early {
            Some(early) => early,
            None => (ready(self.session, line)?, None),
        };
        if let (Via::Ssh, Some(SshConnection { ssh, .. })) = (self.via, &line.ssh) {
            line.await_nothing();
            let guard = Protection::of_data(&self.session.peer, self.encrypt, &port.certificate)?;
            let far = SshPort::new(ssh, port.port, self.connect, self.sends, self.stop);
            let n = self.connect.opened();
            let streams = join::connect(self.session, n, &|| far.open(), &guard, &port.token)?;
            return Ok(Opened { streams, terms: port.terms, carriers: far.into_connections(), udp: None });
        }
        line.await_nothing();
        if self.is_udt() {
            // Its buffers are in this program's memory.
            fullpipe_net::socket::check_memory(&self.connect.transport)?;
        }
        let connects =
            |to, time| open::connector(to, &local_end::ANY, &self.connect.transport, self.sends).connect(time).is_ok();
        let patience = far_port::first_answer(self.stall, self.connect.rtt_ns);
        let to = far_port::answering(&line.addresses, port.port, patience, &connects)?;
        self.call(to, port, early)
    }

    fn is_udt(&self) -> bool {
        self.connect.transport.protocol() == Protocol::Udt
    }

    /// Connects the streams to the far end.
    fn call(
        &self,
        (mut to, patience): (SocketAddr, Duration),
        port: DataPort,
        early: Option<Early>,
    ) -> Result<Opened, TransferError> {
        let DataPort { is_shared, token, certificate, terms, udp, .. } = port;
        let guard = Protection::of_data(&self.session.peer, self.encrypt, &certificate)?;
        let far = FarPort::new((to, patience), self.connect, self.sends, early);
        let open = || {
            let mut stream = far.open()?;
            if is_shared {
                let told = stream.write_all(&shared_port::head(PREAMBLE));
                told.map_err(|e| self.session.lost(error::CONNECTING, e))?;
            }
            Ok(stream)
        };
        let streams = join::connect(self.session, self.connect.opened(), &open, &guard, &token)?;
        to.set_port(udp);
        let udp = self.connect.sizing.and_then(|_| setup::call(&token, to));
        Ok(Opened { streams, terms, carriers: DataConnections::default(), udp })
    }

    /// Connects the streams to the far end, or has it connect them to here: the way that gets through. Both are tried within the
    /// time of one.
    fn either_way(
        &self,
        line: &mut ControlChannel,
        early: Option<(DataPort, Option<Early>)>,
    ) -> Result<Opened, TransferError> {
        let (port, knocked) = match early {
            Some(early) => early,
            None => self.knock(line)?,
        };
        let patience = far_port::first_answer(self.stall, self.connect.rtt_ns);
        let (began, rtt) = (Instant::now(), Duration::from_nanos(self.connect.rtt_ns));
        let left = || patience.saturating_sub(began.elapsed());
        let call = || Early::call(line.addresses.clone(), port.port, self.connect, self.sends, self.stall);
        let head_start = HEAD_START.max(rtt * HEAD_START_RTTS).min(patience / 2);
        let (mut early, came_early) = match knocked.filter(|_| port.port == self.connect.port) {
            Some(knocked) => (knocked, true),
            None => (call()?, false),
        };
        let mut there = early.first(head_start);
        if came_early && matches!(there, Some((_, Some(_)))) {
            // Perhaps too early: the port was not open yet.
            early = call()?;
            there = early.first(head_start);
        }
        let mut here = None;
        if !matches!(there, Some((_, None))) {
            let listened = self.listen_here(line, left());
            let more = if listened.is_ok() { Duration::ZERO } else { left() };
            there = there.or_else(|| early.first(more));
            here = Some(listened);
        }
        let error = match there {
            Some((to, None)) => {
                self.session.send(&Message::Connect(Box::new(self.connect.clone())))?;
                line.await_nothing();
                return self.call((to, join::JOIN), port, Some(early));
            }
            Some((_, Some(error))) => error,
            None => far_port::unanswered(&line.addresses, port.port, patience),
        };
        match here {
            Some(Ok(here)) => {
                (self.reversed)(&error);
                self.let_in(line, here, port.terms)
            }
            Some(Err(TransferError::NoReversePath { why: back, .. })) => Err(match error {
                TransferError::NoDataPort { to, why } => {
                    TransferError::NoDataPort { to, why: format!("{why}; nor can it connect to this host: {back}") }
                }
                other => other,
            }),
            Some(Err(other)) => Err(other),
            None => Err(error),
        }
    }

    /// Has the far end open a port for streams that may go either way, and connects to it meanwhile; `None` for streams that go
    /// one way only.
    pub(super) fn listen(&self, line: &mut ControlChannel) -> Result<Option<(DataPort, Option<Early>)>, TransferError> {
        match self.via {
            Via::Either if !self.is_udt() => self.knock(line).map(Some),
            _ => Ok(None),
        }
    }

    /// Has the far end open a port, and connects to it meanwhile.
    fn knock(&self, line: &mut ControlChannel) -> Result<(DataPort, Option<Early>), TransferError> {
        let knocked = line.addresses.first().and_then(|to| Early::knock(*to, self.connect, self.sends, self.stall));
        Ok((self.listen_there(line)?, knocked))
    }

    /// Has the far end open a port.
    fn listen_there(&self, line: &mut ControlChannel) -> Result<DataPort, TransferError> {
        self.session.send(&Message::Listen(Box::new(self.connect.clone())))?;
        ready(self.session, line)
    }

    /// Opens a port here, and finds out for so long whether the far end can connect to it. Returns the address that it has
    /// reached, too.
    fn listen_here(
        &self,
        line: &mut ControlChannel,
        within: Duration,
    ) -> Result<(DataListener, SocketAddr), TransferError> {
        let peer = &self.session.peer;
        let ipv4 = !line.addresses.is_empty() && line.addresses.iter().all(SocketAddr::is_ipv4);
        let any = if ipv4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let at = SocketAddr::new(any, 0);
        let data =
            DataListener::open(self.session, Place::Own(at, self.ports), self.connect, (self.encrypt, self.sends));
        let data = data.map_err(|e| TransferError::NoReversePath { peer: peer.clone(), why: e.to_string() })?;
        let reach = Reach {
            addresses: line.addresses.iter().filter_map(|to| address_towards(*to)).collect(),
            host: None,
            port: data.port,
            transport: self.connect.transport.clone(),
            within_ns: u64::try_from(within.as_nanos()).unwrap_or(u64::MAX),
        };
        self.session.send(&Message::Reach(Box::new(reach)))?;
        match hear(self.session, &mut *line.input)? {
            Message::Reached(Ok(reached)) => Ok((data, reached.to)),
            Message::Reached(Err(why)) => {
                Err(TransferError::NoReversePath { peer: peer.clone(), why: text::from_peer(&why) })
            }
            other => Err(self.session.unexpected(&other)),
        }
    }

    /// Has the far end connect the streams to the port here, and waits for them.
    fn let_in(
        &self,
        line: &mut ControlChannel,
        (data, to): (DataListener, SocketAddr),
        terms: Option<Terms>,
    ) -> Result<Opened, TransferError> {
        let (connect, certificate) = (self.connect.clone(), data.certificate.clone());
        let dial = Dial { connect, to, token: data.token, certificate, udp: data.udp_port };
        self.session.send(&Message::Dial(Box::new(dial)))?;
        line.await_nothing();
        line.watch_end(self.session);
        let (streams, udp) = data.accept(self.session, self.connect.opened(), join::JOIN)?;
        self.session.heard_on(None);
        Ok(Opened { streams, terms, carriers: DataConnections::default(), udp })
    }
}

/// The address of this host from which packets to `far` come. It sends nothing.
fn address_towards(far: SocketAddr) -> Option<SocketAddr> {
    /// The port of the discard service (RFC 863): any but zero will do.
    const PORT: u16 = 9;
    let any = if far.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    socket.connect(far_port::with_port(far, PORT)).ok()?;
    socket.local_addr().ok().map(|address| far_port::with_port(address, 0))
}
