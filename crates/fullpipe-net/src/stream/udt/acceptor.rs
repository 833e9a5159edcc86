//! Takes UDT streams on a port of their own.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use fullpipe_path::Transport;
use fullpipe_udt::{Connection, Listener, Request};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use rand::RngExt;

use super::datagrams::{Datagrams, RECEIVE_BYTES};
use super::driver::Driven;
use super::{UdtDataStream, config};
use crate::error::{NetError, system};
use crate::stream::{Acceptor, DataStream, Expected, PreambleCheck};
use crate::sys;

/// Connections at once, those included that have not shown the token yet.
const MAX_CONNECTIONS: usize = 256;
/// Time within which a connection must show the token, ns.
const PREAMBLE_NS: u64 = 10_000_000_000;
/// Packet size of a listener without a route, bytes: jumbo frames, if the caller has them.
const LISTENER_MSS: u16 = 9000;

/// Takes UDT streams on a port of their own.
pub struct UdtAcceptor<const N: usize> {
    datagrams: Datagrams,
    address: SocketAddr,
    listener: Listener,
    /// Connections that have not shown the token yet, by the caller's address, and until when they may.
    callers: HashMap<SocketAddr, (Arc<Driven>, u64)>,
    check: PreambleCheck<N>,
    /// Written by the drivers of `callers` when data arrives.
    arrived: Arc<EventFd>,
    /// Readable when a request or data has arrived.
    epoll: Epoll,
}

impl<const N: usize> UdtAcceptor<N> {
    /// Listens on the first free port; see [`crate::stream::open::acceptor`].
    ///
    /// # Errors
    /// No port is free.
    pub fn new(local: SocketAddr, transport: &Transport, expected: Expected<N>) -> Result<UdtAcceptor<N>, NetError> {
        let (first, last) = expected.ports;
        let mut bound = Err(io::ErrorKind::AddrInUse.into());
        for port in first..=last {
            let mut at = local;
            at.set_port(port);
            // SO_REUSEADDR lets two listeners share a port: a socket without it finds out whether one is there.
            bound = match port {
                0 => Datagrams::bind(at),
                _ => std::net::UdpSocket::bind(at).map(drop).and_then(|()| Datagrams::bind(at)),
            };
            if bound.is_ok() {
                break;
            }
        }
        let listen =
            |source| NetError::Listen { address: format!("{} (data ports {first} to {last})", local.ip()), source };
        let datagrams = bound.map_err(listen)?;
        let doing = "watching the data port";
        let address = datagrams.local_address().ok_or_else(|| system(doing)(io::ErrorKind::NotFound.into()))?;
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let arrived = Arc::new(EventFd::from_value_and_flags(0, flags).map_err(|e| system(doing)(e.into()))?);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|e| system(doing)(e.into()))?;
        for (fd, number) in [(datagrams.as_fd(), 0), (arrived.as_fd(), 1)] {
            epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, number)).map_err(|e| system(doing)(e.into()))?;
        }
        let listener = Listener::new(config(transport, LISTENER_MSS), MAX_CONNECTIONS, rand::rng().random());
        Ok(UdtAcceptor { datagrams, address, listener, callers: HashMap::new(), check: expected.check, arrived, epoll })
    }

    /// Handles the requests that have arrived.
    fn hear(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; RECEIVE_BYTES];
        while let Some((bytes, from)) = self.datagrams.receive_from(&mut buffer)? {
            match self.listener.handle_datagram(sys::now_ns(), from, &buffer[..bytes]) {
                Request::Ignored => {}
                // An answer that cannot be sent is lost; the request comes again.
                Request::Answer(answer) => drop(self.datagrams.send_to(&answer, from)),
                Request::Accepted(connection, answer) => {
                    // A socket that fails is this host's trouble, and the caller's request comes again.
                    if let Ok(driven) = self.start(*connection, from) {
                        self.callers.insert(from, (driven, sys::now_ns() + PREAMBLE_NS));
                        drop(self.datagrams.send_to(&answer, from));
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives a connection a socket of its own on the same port. The kernel prefers it to the listener's for datagrams from the
    /// caller's address.
    fn start(&self, connection: Connection, from: SocketAddr) -> io::Result<Arc<Driven>> {
        let datagrams = Datagrams::bind(self.address)?;
        datagrams.connect(from)?;
        Driven::start(connection, datagrams, Some(self.arrived.clone()))
    }
}

impl<const N: usize> AsFd for UdtAcceptor<N> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

impl<const N: usize> Acceptor for UdtAcceptor<N> {
    fn address(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn accepted(&mut self) -> io::Result<Vec<(u16, Box<dyn DataStream>)>> {
        let _ = self.arrived.read();
        self.hear()?;
        let (now, mut streams) = (sys::now_ns(), Vec::new());
        let check = &self.check;
        self.callers.retain(|_, (driven, until_ns)| match driven.try_read::<N>() {
            None if now < *until_ns => true,
            come => {
                match come.flatten().and_then(|preamble| check(&preamble)) {
                    Some(number) => {
                        let stream: Box<dyn DataStream> = Box::new(UdtDataStream::new(driven.clone()));
                        streams.push((number, stream));
                    }
                    None => driven.abort(),
                }
                false
            }
        });
        Ok(streams)
    }
}
