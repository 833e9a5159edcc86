//! Opens UDT streams to an address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use fullpipe_path::Transport;
use fullpipe_udt::{CallError, Caller, Config, Connection, Progress};
use rand::RngExt;

use super::config::{config, rate};
use super::data_stream::UdtDataStream;
use super::driver::Driven;
use crate::error::{NetError, system};
use crate::local_end::LocalEnd;
use crate::stream::datagrams::{Datagrams, RECEIVE_BYTES};
use crate::stream::{Connector, DataStream};
use crate::{socket, sys};

/// Opens UDT streams to an address.
pub struct UdtConnector<'a> {
    to: SocketAddr,
    from: &'a LocalEnd,
    transport: &'a Transport,
}

impl<'a> UdtConnector<'a> {
    /// Connects to `to` with the transport's settings; see [`crate::stream::open::connector`].
    pub fn new(to: SocketAddr, from: &'a LocalEnd, transport: &'a Transport) -> UdtConnector<'a> {
        UdtConnector { to, from, transport }
    }
}

impl Connector for UdtConnector<'_> {
    fn connect(&self, timeout: Duration) -> Result<Box<dyn DataStream>, NetError> {
        let any = match self.to {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let datagrams = match self.from {
            LocalEnd { address: None, device: None } => {
                Datagrams::bind((any, 0).into()).map_err(system("opening a UDP socket"))?
            }
            from => Datagrams::bind_from(from, self.to)?,
        };
        if let Some(dscp) = self.transport.dscp {
            socket::set_dscp(datagrams.as_fd(), dscp).map_err(system("setting the DSCP"))?;
        }
        datagrams.connect(self.to).map_err(|source| self.failed(source))?;
        let connect_timeout_ns = timeout.as_nanos().try_into().unwrap_or(u64::MAX);
        let config = Config { connect_timeout_ns, ..config(self.transport, self.to) };
        let connection = call(&datagrams, self.to, config).map_err(|source| match source.kind() {
            io::ErrorKind::TimedOut => NetError::NoUdp { to: self.to, within: timeout },
            _ => self.failed(source),
        })?;
        let driven = Driven::start(connection, datagrams, rate(self.transport), None)
            .map_err(system("starting a thread for a stream"))?;
        Ok(Box::new(UdtDataStream::new(driven)))
    }
}

impl UdtConnector<'_> {
    fn failed(&self, source: io::Error) -> NetError {
        NetError::Connect { host: format!("{} (a data stream over UDT)", self.to), source }
    }
}

/// Runs the handshake.
fn call(datagrams: &Datagrams, to: SocketAddr, config: Config) -> io::Result<Connection> {
    let mut caller = Caller::new(sys::now_ns(), config, to, rand::rng().random());
    let mut buffer = vec![0; RECEIVE_BYTES];
    loop {
        if let Some(request) = caller.poll_transmit(sys::now_ns()) {
            let mut padded = request.to_vec();
            padded.resize(caller.request_bytes(), 0);
            if unless_too_long(datagrams.send(&padded, padded.len()), &mut caller)?.is_none() {
                continue;
            }
        }
        let wait = caller.next_timeout().saturating_sub(sys::now_ns());
        sys::wait_readable([datagrams.as_fd()], wait)?;
        let mut progress = caller.handle_timeout(sys::now_ns());
        let Some(arrived) = unless_too_long(datagrams.receive_or_too_long(&mut buffer), &mut caller)? else { continue };
        for (arrived, message) in arrived.zip(buffer.chunks(RECEIVE_BYTES)) {
            for datagram in message[..arrived.bytes].chunks(arrived.segment_bytes.max(1)) {
                if let Progress::Waiting = progress {
                    progress = caller.handle_datagram(sys::now_ns(), datagram);
                }
            }
        }
        match progress {
            Progress::Waiting => {}
            Progress::Connected(connection) => return Ok(*connection),
            Progress::Failed(CallError::Refused) => return Err(io::ErrorKind::ConnectionRefused.into()),
            Progress::Failed(CallError::TimedOut) => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// The result of a call of the socket; `None` if it was that a router has told this host that a request was too long.
fn unless_too_long<T>(result: io::Result<T>, caller: &mut Caller) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
            caller.too_long();
            Ok(None)
        }
        other => other.map(Some),
    }
}
