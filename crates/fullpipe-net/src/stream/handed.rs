//! Streams over TCP that another process has accepted, at a port that several sessions share.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use fullpipe_path::Transport;

use super::tcp::TcpDataStream;
use super::{Acceptor, DataStream};
use crate::shared_port::{self, SAME_PORT};
use crate::socket;

/// Takes the streams that are handed over ([`shared_port::receive`]). The transport's settings are in force from then on, not
/// from the handshake on: the kernel's own limits decide the window scale.
pub struct HandedAcceptor {
    line: UnixStream,
    transport: Transport,
    sends: bool,
}

impl HandedAcceptor {
    /// Takes the streams that come through `line`. `sends` tells whether this host will send data.
    #[must_use]
    pub fn new(line: UnixStream, transport: &Transport, sends: bool) -> HandedAcceptor {
        HandedAcceptor { line, transport: transport.clone(), sends }
    }
}

impl AsFd for HandedAcceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}

impl Acceptor for HandedAcceptor {
    fn address(&self) -> io::Result<SocketAddr> {
        Ok((Ipv6Addr::UNSPECIFIED, SAME_PORT).into())
    }

    fn accepted(&mut self) -> io::Result<Vec<(u16, Box<dyn DataStream>)>> {
        let mut all = Vec::new();
        while let Some((number, socket)) = shared_port::receive(&self.line)? {
            socket::apply_to_accepted(&socket, &self.transport, self.sends).map_err(io::Error::other)?;
            socket.set_nodelay(true)?;
            all.push((number, TcpDataStream::boxed(socket)));
        }
        Ok(all)
    }
}
