//! The port at which the data streams of a transfer arrive.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use fullpipe_net::NetError;
use fullpipe_net::shared_port::{SAME_PORT, SharedStreams};
use fullpipe_net::stream::handed::HandedAcceptor;
use fullpipe_net::stream::{Acceptor, DataStream, open};
use rand::RngExt;

use crate::connection::session::Session;
use crate::connection::stream::{Protection, Stream};
use crate::connection::tls::Identity;
use crate::connection::{far_port, join};
use crate::error::{TransferError, system};
use crate::protocol::message::{Connect, Message, Terms};
use crate::protocol::preamble::preamble;
use crate::sobas::setup;
use crate::sobas::udp::Udp;

/// Where streams are to arrive.
pub(crate) enum Place<'a> {
    /// At one of these ports of this address; zeros let the kernel choose.
    Own(SocketAddr, (u16, u16)),
    /// At the server's own port, over TCP.
    Shared(&'a dyn SharedStreams),
}

/// The port, open.
pub(crate) struct DataListener {
    acceptor: Box<dyn Acceptor>,
    guard: Protection,
    udp: Option<Udp>,
    /// The port, of TCP or of UDP as the transport needs.
    pub(crate) port: u16,
    /// Secret that each stream must show.
    pub(crate) token: [u8; 32],
    /// Certificate of encrypted streams (DER); empty if they are not encrypted.
    pub(crate) certificate: Vec<u8>,
    /// UDP port for probes; zero if there is none.
    pub(crate) udp_port: u16,
}

impl DataListener {
    /// Opens a port for the streams of a transfer. If any port will do, it is the one that the client would like, if that is free.
    pub(crate) fn open(
        session: &Session,
        place: Place<'_>,
        connect: &Connect,
        (encrypt, sends): (bool, bool),
    ) -> Result<DataListener, TransferError> {
        let transport = &connect.at_first(sends);
        let (guard, certificate) = if encrypt {
            let identity = Identity::new()?;
            (Protection::Server(identity.server()?), identity.certificate)
        } else {
            (Protection::None, Vec::new())
        };
        let token: [u8; 32] = rand::rng().random();
        let (at, ports) = match place {
            Place::Own(at, ports) => (at, ports),
            Place::Shared(shared) => {
                let preambles = (0..connect.opened()).map(|i| preamble(&token, i).to_vec()).collect();
                let line = shared.expect(preambles).map_err(TransferError::Denied)?;
                let acceptor = Box::new(HandedAcceptor::new(line, transport, sends));
                return Ok(DataListener {
                    acceptor,
                    guard,
                    udp: None,
                    port: SAME_PORT,
                    token,
                    certificate,
                    udp_port: 0,
                });
            }
        };
        let listen =
            |ports| open::acceptor(at, transport, sends, join::expected(session, ports, connect.opened(), token));
        let may_wish = !connect.relays && ports == (0, 0) && far_port::WISHES.contains(&connect.port);
        let wished = may_wish.then(|| listen((connect.port, connect.port)).ok()).flatten();
        let acceptor = wished.map_or_else(|| listen(ports), Ok).map_err(|error| match error {
            NetError::Listen { source, .. } if source.kind() == ErrorKind::AddrInUse => {
                TransferError::PortsTaken { peer: session.peer.clone(), first: ports.0, last: ports.1 }
            }
            other => other.into(),
        })?;
        let address = acceptor.address().map_err(system("reading the data port"))?;
        let (udp, udp_port) = match connect.sizing {
            Some(_) => setup::listen(&token, address, ports),
            None => (None, 0),
        };
        Ok(DataListener { acceptor, guard, udp, port: address.port(), token, certificate, udp_port })
    }

    /// What the other end is told of it.
    pub(crate) fn ready(&self, terms: Option<Terms>) -> Message {
        let (port, token, certificate) = (self.port, self.token, self.certificate.clone());
        Message::Ready { port, token, certificate, terms, udp: self.udp_port }
    }

    /// Waits for `n` streams, for `patience`, and closes the port. The probes' socket then hears the address alone from which the
    /// streams came.
    pub(crate) fn accept(
        self,
        session: &Session,
        n: u16,
        patience: Duration,
    ) -> Result<(Vec<Stream>, Option<Udp>), TransferError> {
        let DataListener { acceptor, guard, token, mut udp, .. } = self;
        let streams = join::accept(session, acceptor, n, (&guard, &token), patience)?;
        let client = streams.first().and_then(|stream| stream.handle().peer_address());
        if let (Some(udp), Some(client)) = (&mut udp, client) {
            udp.hear_only(client.ip());
        }
        Ok((streams, udp))
    }
}
