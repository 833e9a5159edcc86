//! Takes UDT streams on a port of their own.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use fullpipe_path::{Dscp, Transport};
use fullpipe_udt::congestion::INITIAL_WINDOW_PACKETS;
use fullpipe_udt::{Connection, Listener, Request};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use rand::RngExt;

use super::config::{config, rate};
use super::data_stream::UdtDataStream;
use super::driver::Driven;
use crate::callers::{CallerLimits, Callers, Verdict};
use crate::error::{NetError, system};
use crate::stream::datagrams::{Datagrams, MAX_PACKET_BYTES, RECEIVE_BYTES, Received};
use crate::stream::{Acceptor, DataStream, Expected, PreambleCheck};
use crate::{socket, sys};

/// Connections at once, those included that have not shown the token yet.
const MAX_CONNECTIONS: usize = 256;
/// Connections that have not shown the token yet, and the time that they have for it. Each has a thread.
const LIMITS: CallerLimits = CallerLimits { callers: 128, deadline_ns: 10_000_000_000 };
/// Packets that a connection may send before it has shown the token. It has no memory for more.
const UNPROVEN_PACKETS: u64 = INITIAL_WINDOW_PACKETS as u64;
/// The longest of datagrams that belong to another caller, bytes: requests may try packets as long as this.
const STRAY_BYTES: usize = MAX_PACKET_BYTES as usize;
/// Requests that are handled before the streams that have come are handed out.
const BATCH: usize = 256;

/// A connection that has not shown the token yet.
struct Caller {
    driven: Arc<Driven>,
    from: SocketAddr,
    /// The caller's socket.
    peer_id: u32,
}

/// Takes UDT streams on a port of their own.
pub struct UdtAcceptor<const N: usize> {
    datagrams: Datagrams,
    address: SocketAddr,
    listener: Listener,
    /// Decides which connections are kept that have not shown the token yet.
    callers: Callers<N>,
    /// These connections, by their numbers.
    waiting: BTreeMap<u64, Caller>,
    /// Datagrams that came to the socket of another caller before it was connected.
    strays: VecDeque<(Vec<u8>, Received)>,
    check: PreambleCheck<N>,
    rate: Option<f64>,
    dscp: Option<Dscp>,
    /// Written by the drivers of `waiting` when data arrives.
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
        UdtAcceptor::with_limits(local, transport, expected, LIMITS)
    }

    fn with_limits(
        local: SocketAddr,
        transport: &Transport,
        expected: Expected<N>,
        limits: CallerLimits,
    ) -> Result<UdtAcceptor<N>, NetError> {
        let datagrams = Datagrams::listen(local, expected.ports)?;
        if let Some(dscp) = transport.dscp {
            socket::set_dscp(datagrams.as_fd(), dscp).map_err(system("setting the DSCP"))?;
        }
        let doing = "watching the data port";
        let address = datagrams.local_address().ok_or_else(|| system(doing)(io::ErrorKind::NotFound.into()))?;
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let arrived = Arc::new(EventFd::from_value_and_flags(0, flags).map_err(|e| system(doing)(e.into()))?);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|e| system(doing)(e.into()))?;
        for (fd, number) in [(datagrams.as_fd(), 0), (arrived.as_fd(), 1)] {
            epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, number)).map_err(|e| system(doing)(e.into()))?;
        }
        // The caller's packets may be smaller; ours must be as small as the way to it needs.
        let to = expected.peer.map_or(address, |peer| SocketAddr::new(peer, address.port()));
        let listener = Listener::new(config(transport, to), MAX_CONNECTIONS, rand::rng().random());
        Ok(UdtAcceptor {
            datagrams,
            address,
            listener,
            callers: Callers::new(limits, expected.peer),
            waiting: BTreeMap::new(),
            strays: VecDeque::new(),
            check: expected.check,
            rate: rate(transport),
            dscp: transport.dscp,
            arrived,
            epoll,
        })
    }

    /// Handles requests that have arrived.
    fn hear(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; RECEIVE_BYTES];
        for _ in 0..BATCH {
            let (datagram, Received { bytes, from, to }) = match self.strays.pop_front() {
                Some(stray) => stray,
                None => match self.datagrams.receive_from(&mut buffer)? {
                    Some(received) => (buffer[..received.bytes].to_vec(), received),
                    None => break,
                },
            };
            match self.listener.handle_datagram(sys::now_ns(), from, &datagram) {
                Request::Ignored => {}
                // An answer that cannot be sent is lost; the request comes again.
                Request::Answer(answer) => {
                    let mut padded = answer.to_vec();
                    padded.resize(bytes.max(answer.len()), 0);
                    drop(self.datagrams.send_to(&padded, from, to));
                }
                Request::Accepted(connection, answer) => {
                    if self.take_in(*connection, from, to) {
                        drop(self.datagrams.send_to(&answer, from, to));
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets a connection wait for its token; returns whether it does. If not, its request comes again.
    fn take_in(&mut self, mut connection: Connection, from: SocketAddr, to: Option<IpAddr>) -> bool {
        // An address has one connection: the kernel could not tell the datagrams of two apart.
        let earlier = self.waiting.iter().find(|(_, caller)| caller.from == from).map(|(number, _)| *number);
        let (number, victim) = self.callers.enter(from.ip(), sys::now_ns());
        for dropped in [earlier, victim].into_iter().flatten() {
            self.drop_caller(dropped);
        }
        let peer_id = connection.peer_id();
        connection.limit_packets(Some(UNPROVEN_PACKETS));
        // This host may have no socket or no thread for it.
        let driven = if victim == Some(number) { None } else { self.start(connection, from, to).ok() };
        let Some(driven) = driven else {
            self.callers.forget(number);
            self.listener.forget(from, peer_id);
            return false;
        };
        self.waiting.insert(number, Caller { driven, from, peer_id });
        true
    }

    fn drop_caller(&mut self, number: u64) {
        self.callers.forget(number);
        if let Some(caller) = self.waiting.remove(&number) {
            caller.driven.reset();
            self.listener.forget(caller.from, caller.peer_id);
        }
    }

    /// Gives a connection a socket and a driver of its own.
    fn start(&mut self, connection: Connection, from: SocketAddr, to: Option<IpAddr>) -> io::Result<Arc<Driven>> {
        let datagrams = self.datagrams.for_caller(from, to, self.dscp)?;
        let mut buffer = [0; STRAY_BYTES];
        for _ in 0..BATCH {
            let Some(received) = datagrams.receive_from(&mut buffer)? else { break };
            if received.from != from {
                self.strays.push_back((buffer[..received.bytes].to_vec(), received));
            }
        }
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
        let mut streams: Vec<(u16, Box<dyn DataStream>)> = Vec::new();
        // Callers that have sent something go first: a newcomer must not take their place.
        let come = self.waiting.iter().filter_map(|(number, caller)| Some((*number, caller.driven.try_read::<N>()?)));
        for (number, preamble) in come.collect::<Vec<_>>() {
            let verdict = preamble.map(|preamble| self.callers.heard(number, &preamble, &*self.check));
            match verdict {
                Some(Verdict::Stream(stream)) => {
                    let Some(caller) = self.waiting.remove(&number) else { continue };
                    caller.driven.take_all_packets();
                    streams.push((stream, Box::new(UdtDataStream::new(caller.driven))));
                }
                _ => self.drop_caller(number),
            }
        }
        for late in self.callers.late(sys::now_ns()) {
            self.drop_caller(late);
        }
        self.hear()?;
        Ok(streams)
    }
}

impl<const N: usize> Drop for UdtAcceptor<N> {
    fn drop(&mut self) {
        self.waiting.values().for_each(|caller| caller.driven.reset());
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::Weak;
    use std::time::{Duration, Instant};

    use fullpipe_path::Buffer;
    use fullpipe_udt::{Config, Progress, RateControl, Transmit};

    use super::*;

    /// A small crowd, and time enough on a busy machine.
    const FEW: CallerLimits = CallerLimits { callers: 8, deadline_ns: u64::MAX };

    fn acceptor() -> UdtAcceptor<2> {
        acceptor_on([127, 0, 0, 1].into())
    }

    fn acceptor_on(address: IpAddr) -> UdtAcceptor<2> {
        let transport =
            Transport { cc: "udt".into(), streams: 1, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None };
        let peer = Some([127, 0, 0, 1].into());
        let check = Box::new(|preamble: &[u8; 2]| (preamble[0] == 7).then_some(u16::from(preamble[1])));
        let expected = Expected { ports: (0, 0), peer, check };
        UdtAcceptor::with_limits((address, 0).into(), &transport, expected, FEW).unwrap()
    }

    /// Sets a connection up from an address of loopback. It has not shown the token.
    fn call(acceptor: &mut UdtAcceptor<2>, from: [u8; 4]) -> (UdpSocket, Connection) {
        call_at(acceptor, acceptor.address.ip(), from.into())
    }

    /// The same, at one of the acceptor's addresses.
    fn call_at(acceptor: &mut UdtAcceptor<2>, to: IpAddr, from: IpAddr) -> (UdpSocket, Connection) {
        let socket = UdpSocket::bind(SocketAddr::from((from, 0))).unwrap();
        socket.connect((to, acceptor.address.port())).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let config = Config { control: RateControl::Fixed(1e9), ..Config::default() };
        let mut caller = fullpipe_udt::Caller::new(sys::now_ns(), config, acceptor.address, rand::rng().random());
        let mut answer = [0; 1500];
        loop {
            if let Some(request) = caller.poll_transmit(sys::now_ns()) {
                socket.send(&request).unwrap();
            }
            sys::wait_readable([acceptor.as_fd()], 1_000_000_000).unwrap();
            acceptor.accepted().unwrap();
            let n = socket.recv(&mut answer).unwrap();
            match caller.handle_datagram(sys::now_ns(), &answer[..n]) {
                Progress::Waiting => {}
                Progress::Connected(connection) => return (socket, *connection),
                Progress::Failed(error) => panic!("{error:?}"),
            }
        }
    }

    /// A caller hears answers only from the address that it called.
    #[test]
    fn each_address_of_the_host_can_be_called() {
        let local = |text: &str| text.parse::<IpAddr>().unwrap();
        for (all, to, from) in [
            ("0.0.0.0", "127.0.0.5", "127.0.0.1"),
            ("::", "::ffff:127.0.0.5", "::ffff:127.0.0.1"),
            ("::", "127.0.0.5", "127.0.0.1"),
        ] {
            let mut acceptor = acceptor_on(local(all));
            let (socket, mut connection) = call_at(&mut acceptor, local(to), local(from));
            connection.write(sys::now_ns(), &[7, 3]);
            let deadline = Instant::now() + Duration::from_secs(5);
            let stream = loop {
                assert!(Instant::now() < deadline, "{all} {to}");
                if let Some(Transmit::Data(run)) = connection.poll_transmit(sys::now_ns(), 1 << 16) {
                    socket.send(run.bytes).unwrap();
                }
                if let Some((number, stream)) = acceptor.accepted().unwrap().pop() {
                    assert_eq!(number, 3);
                    break stream;
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            assert_eq!(stream.handle().local_address().unwrap().ip().to_canonical(), local(to).to_canonical(), "{all}");
        }
    }

    /// Binds a socket that shares its port with whoever else does, by both options or by one.
    fn share(at: SocketAddr, port_as_well: bool) -> io::Result<()> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(port_as_well)?;
        socket.bind(&at.into())
    }

    /// Another user would get what is sent to a port that is shared. To be another user takes root.
    #[test]
    fn nobody_else_can_share_the_port() {
        let mut acceptor = acceptor_on([0, 0, 0, 0].into());
        let port = acceptor.address.port();
        let _connected = call_at(&mut acceptor, [127, 0, 0, 1].into(), [127, 0, 0, 1].into());
        let caller = acceptor.waiting.pop_first().unwrap().1;
        let nobody_shares = |addresses: &[[u8; 4]]| {
            for address in addresses {
                let at = SocketAddr::from((*address, port));
                assert_eq!(share(at, false).map_err(|e| e.kind()), Err(io::ErrorKind::AddrInUse), "{at}");
                let another = std::thread::spawn(move || {
                    // SAFETY: the call has no memory; it changes the user of this thread alone, which ends.
                    let changed = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) } == 0;
                    changed.then(|| share(at, true).map_err(|e| e.kind()))
                });
                assert!(matches!(another.join().unwrap(), None | Some(Err(io::ErrorKind::AddrInUse))), "{at}");
            }
        };
        nobody_shares(&[[0, 0, 0, 0], [127, 0, 0, 1], [127, 0, 0, 9]]);
        // All streams have come.
        drop(acceptor);
        nobody_shares(&[[0, 0, 0, 0], [127, 0, 0, 1]]);
        caller.driven.reset();
    }

    /// Two sessions of one user never listen on one port.
    #[test]
    fn two_acceptors_have_two_ports() {
        let first = acceptor();
        let taken = (first.address.port(), first.address.port());
        assert!(Datagrams::listen(SocketAddr::from(([127, 0, 0, 1], 0)), taken).is_err());
    }

    #[test]
    fn strangers_do_not_crowd_out_the_sessions_peer() {
        let mut acceptor = acceptor();
        // Most are the peer's, and the oldest, too.
        let ours = FEW.callers - 2;
        for _ in 0..ours {
            call(&mut acceptor, [127, 0, 0, 1]);
        }
        for _ in 0..FEW.callers {
            call(&mut acceptor, [127, 0, 0, 2]);
        }
        let from =
            |ip: [u8; 4]| acceptor.waiting.values().filter(|caller| caller.from.ip() == IpAddr::from(ip)).count();
        assert_eq!((from([127, 0, 0, 1]), from([127, 0, 0, 2])), (ours, 2));
    }

    #[test]
    fn who_is_dropped_leaves_no_thread() {
        let mut acceptor = acceptor();
        let (first, _) = call(&mut acceptor, [127, 0, 0, 2]);
        let _second = call(&mut acceptor, [127, 0, 0, 2]);
        let drivers: Vec<Weak<Driven>> = acceptor.waiting.values().map(|it| Arc::downgrade(&it.driven)).collect();
        let gone = |driver: &Weak<Driven>| {
            let begun = Instant::now();
            while driver.strong_count() > 0 && begun.elapsed() < Duration::from_secs(1) {
                std::thread::sleep(Duration::from_millis(10));
            }
            driver.strong_count() == 0
        };
        let number = *acceptor.waiting.keys().next().unwrap();
        acceptor.drop_caller(number);
        assert!(gone(&drivers[0]), "one that was dropped");
        // It is told so: a shutdown (type 5) comes.
        let mut datagram = [0; 1500];
        while first.recv(&mut datagram).unwrap() < 4 || datagram[..2] != [0x80, 5] {}
        drop(acceptor);
        assert!(gone(&drivers[1]), "one that waited when the acceptor ended");
    }

    #[test]
    fn who_has_not_shown_the_token_gets_little_memory() {
        let mut acceptor = acceptor();
        let (socket, mut connection) = call(&mut acceptor, [127, 0, 0, 1]);
        let packets = 4 * UNPROVEN_PACKETS;
        connection.write(sys::now_ns(), &[9; 200_000]);
        let mut sent = 0;
        while sent < packets {
            match connection.poll_transmit(sys::now_ns(), 1 << 16) {
                Some(Transmit::Data(run)) => run.bytes.chunks(run.segment_bytes).for_each(|packet| {
                    socket.send(packet).unwrap();
                    sent += 1;
                }),
                _ => std::thread::sleep(Duration::from_micros(100)),
            }
        }
        let driven = acceptor.waiting.values().next().unwrap().driven.clone();
        let seen = || driven.observe().unwrap().0;
        while seen().counters.pkt_recv < packets {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(seen().received_bytes, UNPROVEN_PACKETS * u64::from(seen().payload_bytes));
        assert!(acceptor.accepted().unwrap().is_empty(), "its token is wrong");
    }

    #[test]
    fn a_flood_of_requests_does_not_keep_the_acceptor() {
        let mut acceptor = acceptor();
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..BATCH + 1 {
            stranger.send_to(&[0; 64], acceptor.address).unwrap();
        }
        let waits = |acceptor: &UdtAcceptor<2>| sys::wait_readable([acceptor.datagrams.as_fd()], 0).unwrap()[0];
        for more in [true, false] {
            acceptor.accepted().unwrap();
            assert_eq!(waits(&acceptor), more);
        }
    }
}
