//! Opens streams that carry every byte. Only this file chooses the transport that carries them.

use std::net::SocketAddr;
use std::time::Duration;

use fullpipe_path::{Protocol, Transport};

use super::tcp::{TcpAcceptor, TcpConnector};
use super::udt::{UdtAcceptor, UdtConnector};
use super::{Acceptor, Connector, DataStream, Expected};
use crate::error::NetError;
use crate::local_end::LocalEnd;

/// The connector of a transport that loses data.
struct Lossy;

impl Connector for Lossy {
    fn connect(&self, _: Duration) -> Result<Box<dyn DataStream>, NetError> {
        Err(lossy())
    }
}

fn lossy() -> NetError {
    NetError::Other("plain UDP loses data, so it serves measurements only".to_owned())
}

/// Returns the connector of a transport, for the host that calls, which uses its end `from`. `sends` tells whether this host will
/// send data, so that its congestion control matters.
pub fn connector<'a>(
    to: SocketAddr,
    from: &'a LocalEnd,
    transport: &'a Transport,
    sends: bool,
) -> Box<dyn Connector + 'a> {
    match transport.protocol() {
        Protocol::Tcp => Box::new(TcpConnector::new(to, from, transport, sends)),
        Protocol::Udt => Box::new(UdtConnector::new(to, from, transport)),
        Protocol::Udp => Box::new(Lossy),
    }
}

/// Returns the acceptor of a transport, for the host that is called. It listens on `local`'s address. The transport's settings
/// are in force from the handshake on. `sends` is as for [`connector`].
///
/// # Errors
/// No port is free, this host refuses a setting, or the transport loses data.
pub fn acceptor<const N: usize>(
    local: SocketAddr,
    transport: &Transport,
    sends: bool,
    expected: Expected<N>,
) -> Result<Box<dyn Acceptor>, NetError> {
    Ok(match transport.protocol() {
        Protocol::Tcp => Box::new(TcpAcceptor::new(local, transport, sends, expected)?),
        Protocol::Udt => Box::new(UdtAcceptor::new(local, transport, expected)?),
        Protocol::Udp => return Err(lossy()),
    })
}
