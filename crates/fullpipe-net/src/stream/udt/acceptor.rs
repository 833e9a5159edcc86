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

use super::config::{config, rate};
use super::data_stream::UdtDataStream;
use super::datagrams::{Datagrams, RECEIVE_BYTES, packet_bytes};
use super::driver::Driven;
use crate::error::{NetError, system};
use crate::stream::{Acceptor, DataStream, Expected, PreambleCheck};
use crate::sys;

/// Connections at once, those included that have not shown the token yet.
const MAX_CONNECTIONS: usize = 256;
/// Time within which a connection must show the token, ns.
const PREAMBLE_NS: u64 = 10_000_000_000;
/// Connections that have not shown the token yet, at most; the one that has waited longest makes room.
const MAX_WAITING: usize = 128;

/// A connection that has not shown the token yet.
struct Caller {
    driven: Arc<Driven>,
    /// The caller's socket.
    peer_id: u32,
    /// Until when it may show the token, ns.
    until_ns: u64,
}

/// Takes UDT streams on a port of their own.
pub struct UdtAcceptor<const N: usize> {
    datagrams: Datagrams,
    address: SocketAddr,
    listener: Listener,
    /// Connections that have not shown the token yet, by the caller's address.
    callers: HashMap<SocketAddr, Caller>,
    check: PreambleCheck<N>,
    rate: Option<f64>,
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
        // The caller's packets may be smaller; ours must be as small as the way to it needs.
        let mss = packet_bytes(expected.peer.map_or(address, |peer| SocketAddr::new(peer, address.port())));
        let listener = Listener::new(config(transport, mss), MAX_CONNECTIONS, rand::rng().random());
        Ok(UdtAcceptor {
            datagrams,
            address,
            listener,
            callers: HashMap::new(),
            check: expected.check,
            rate: rate(transport),
            arrived,
            epoll,
        })
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
                    // An address has one connection: the kernel could not tell the datagrams of two apart.
                    self.drop_caller(&from);
                    if self.callers.len() >= MAX_WAITING
                        && let Some(oldest) = self.callers.iter().min_by_key(|(_, caller)| caller.until_ns)
                    {
                        self.drop_caller(&oldest.0.clone());
                    }
                    let (peer_id, until_ns) = (connection.peer_id(), sys::now_ns() + PREAMBLE_NS);
                    match self.start(*connection, from) {
                        Ok(driven) => {
                            self.callers.insert(from, Caller { driven, peer_id, until_ns });
                            drop(self.datagrams.send_to(&answer, from));
                        }
                        // This host has no socket or no thread for it. The request comes again.
                        Err(_) => self.listener.forget(from, peer_id),
                    }
                }
            }
        }
        Ok(())
    }

    fn drop_caller(&mut self, from: &SocketAddr) {
        if let Some(caller) = self.callers.remove(from) {
            caller.driven.abort();
            self.listener.forget(*from, caller.peer_id);
        }
    }

    /// Gives a connection a socket of its own on the same port. The kernel prefers it to the listener's for datagrams from the
    /// caller's address.
    fn start(&self, connection: Connection, from: SocketAddr) -> io::Result<Arc<Driven>> {
        let datagrams = Datagrams::bind(self.address)?;
        datagrams.connect(from)?;
        Driven::start(connection, datagrams, self.rate, Some(self.arrived.clone()))
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
        let (now, mut streams, mut over) = (sys::now_ns(), Vec::new(), Vec::new());
        for (from, caller) in &self.callers {
            match caller.driven.try_read::<N>() {
                None if now < caller.until_ns => {}
                come => over.push((*from, come.flatten().and_then(|preamble| (self.check)(&preamble)))),
            }
        }
        for (from, number) in over {
            match number {
                Some(number) => {
                    let driven = self.callers.remove(&from).map(|caller| caller.driven);
                    let stream = |driven| Box::new(UdtDataStream::new(driven)) as Box<dyn DataStream>;
                    streams.extend(driven.map(|driven| (number, stream(driven))));
                }
                None => self.drop_caller(&from),
            }
        }
        Ok(streams)
    }
}
