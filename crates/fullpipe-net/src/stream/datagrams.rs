//! A UDP socket that sends and receives many datagrams with one call: `UDP_SEGMENT` and `UDP_GRO` (`udp(7)`), `sendmmsg(2)`
//! and `recvmmsg(2)`.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use fullpipe_path::{Dscp, Size};
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::error::{NetError, system};
use crate::local_end::LocalEnd;
use crate::sys::{Arrived, Leaving};
use crate::{socket, sys};

/// Most segments that the kernel cuts one buffer into (UDP_MAX_SEGMENTS of Linux before 6.9).
pub(super) const MAX_SEGMENTS: usize = 64;
/// Most bytes of one message: what UDP over IPv4 carries.
pub(super) const MAX_SEND_BYTES: usize = 65_507;
/// Bytes of a buffer that holds whatever one message brings.
pub(super) const RECEIVE_BYTES: usize = 1 << 16;
/// MTU of a path that this kernel does not know, bytes.
pub(super) const DEFAULT_MTU: u32 = 1500;
/// Largest packet that is used, bytes: jumbo frames.
pub(super) const MAX_PACKET_BYTES: u32 = 9000;
const IPV4_HEADER_BYTES: u32 = 20;
const IPV6_HEADER_BYTES: u32 = 40;
const UDP_HEADER_BYTES: u32 = 8;
/// Bytes that the kernel holds of calls which wait to be handled, its bookkeeping not included: a thousand short ones, or fifty
/// long ones.
const CALLS_BUFFER_BYTES: i32 = 512 << 10;
/// The kernel's buffers of a UDP socket. A receiver's must hold what arrives while its thread waits for a processor.
pub const UDP_BUFFER: Size = Size(16_000_000);

/// A UDP socket.
pub(super) struct Datagrams {
    socket: UdpSocket,
    /// Whether the kernel cuts buffers into datagrams. Found out by trying.
    segments: AtomicBool,
    /// Whether messages may have a time at which they leave.
    has_departures: bool,
}

/// When datagrams of one length leave, if the interface's queue waits for that (the fq qdisc does).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Departure {
    /// When the first one leaves, ns of `CLOCK_MONOTONIC`; 0 for at once.
    pub(super) first_ns: u64,
    /// Time from one to the next, ns.
    pub(super) period_ns: f64,
}

impl Departure {
    /// The departure of the datagrams from the `n`th on.
    pub(super) fn after(self, n: usize) -> Departure {
        if self.first_ns == 0 {
            return self;
        }
        Departure { first_ns: self.first_ns.saturating_add((n as f64 * self.period_ns) as u64), ..self }
    }
}

impl Datagrams {
    /// Binds a socket to an address that nobody else has, nor can get while the socket is there.
    pub(super) fn bind(address: SocketAddr) -> io::Result<Datagrams> {
        let datagrams = Datagrams::unbound(address)?;
        SockRef::from(&datagrams.socket).bind(&address.into())?;
        Ok(datagrams)
    }

    /// Binds a socket to the first port of a range that is free, where callers call. Port 0 lets the kernel choose.
    pub(super) fn listen(local: SocketAddr, (first, last): (u16, u16)) -> Result<Datagrams, NetError> {
        let local = socket::unmapped(local);
        let mut bound = Err(io::ErrorKind::AddrInUse.into());
        for port in first..=last {
            let mut at = local;
            at.set_port(port);
            bound = Datagrams::bind(at);
            if bound.is_ok() {
                break;
            }
        }
        let listening = bound.and_then(|bound| {
            // Only now: two listeners of a user must not have one port.
            SockRef::from(&bound.socket).set_reuse_port(true)?;
            // Calls are short. In a flood of them, those that wait must not be seconds old.
            sys::set_int_option(bound.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, CALLS_BUFFER_BYTES)?;
            Ok(bound)
        });
        let address = || format!("{}, data ports {first} to {last} over UDP", local.ip());
        listening.map_err(|source| NetError::Listen { address: address(), source })
    }

    /// Opens another socket on the port of this one, which listens, and on the address `to` that a caller has called. It hears that
    /// caller alone: the kernel prefers it to this one for datagrams from the caller's address. Both share the port by
    /// `SO_REUSEPORT`, which lets nobody else share it but this user: `SO_REUSEADDR` lets any (`udp_lib_lport_inuse`,
    /// net/ipv4/udp.c).
    pub(super) fn for_caller(&self, from: SocketAddr, to: Option<IpAddr>, dscp: Option<Dscp>) -> io::Result<Datagrams> {
        let own = self.local_address().ok_or(io::ErrorKind::NotFound)?;
        let local = match (to, from) {
            // An address of a link alone needs its interface.
            (Some(IpAddr::V6(to)), SocketAddr::V6(from)) => {
                SocketAddrV6::new(to, own.port(), 0, from.scope_id()).into()
            }
            (Some(to), _) => SocketAddr::new(to, own.port()),
            (None, _) => own,
        };
        let datagrams = Datagrams::unbound(local)?;
        if let Some(dscp) = dscp {
            socket::set_dscp(datagrams.as_fd(), dscp)?;
        }
        let socket = SockRef::from(&datagrams.socket);
        socket.set_reuse_port(true)?;
        // Until it is connected it may hear other callers.
        socket.bind(&local.into())?;
        datagrams.connect(from)?;
        Ok(datagrams)
    }

    /// Binds a socket that will connect to `to` to this host's end.
    pub(super) fn bind_from(from: &LocalEnd, to: SocketAddr) -> Result<Datagrams, NetError> {
        let datagrams = Datagrams::unbound(to).map_err(system("opening a UDP socket"))?;
        from.bind(&SockRef::from(&datagrams.socket), to)?;
        Ok(datagrams)
    }

    /// Opens a socket of an address's family, with all that these sockets have in common.
    fn unbound(address: SocketAddr) -> io::Result<Datagrams> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from(socket);
        // An answer that arrives in pieces would not show that the path carries packets of its size.
        let (v4, v6) = ((libc::IPPROTO_IP, libc::IP_MTU_DISCOVER), (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER));
        for (level, option) in
            if address.is_ipv6() { [Some(v4), Some(v6)] } else { [Some(v4), None] }.into_iter().flatten()
        {
            // Of a socket for IPv6 alone, the first one may be refused.
            let _ = sys::set_int_option(socket.as_fd(), level, option, libc::IP_PMTUDISC_DO);
        }
        // Kernels before 5.0 deliver each datagram alone.
        let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
        // A listener learns which of this host's addresses was called.
        let _ = match address {
            SocketAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4PacketInfo, &true),
            SocketAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true),
        };
        // Packet pairs need the times of arrival; a driver sees many datagrams at once.
        let _ = setsockopt(&socket, sockopt::ReceiveTimestampns, &true);
        ask_for_buffers(socket.as_fd())?;
        let has_departures = sys::allow_departure_times(socket.as_fd()).is_ok();
        Ok(Datagrams { socket, segments: AtomicBool::new(true), has_departures })
    }

    /// Class of service of the datagrams, if it is not the default.
    pub(super) fn dscp(&self) -> Option<Dscp> {
        self.peer_address().and_then(|peer| socket::dscp(self.socket.as_fd(), peer))
    }

    /// Sends to, and receives from, one address alone.
    pub(super) fn connect(&self, to: SocketAddr) -> io::Result<()> {
        self.socket.connect(to)?;
        // A socket for both families sends IPv4 to a mapped address.
        let (level, discover, no_fragments) = match to.ip().to_canonical() {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO),
        };
        sys::set_int_option(self.socket.as_fd(), level, discover, no_fragments)
    }

    /// Sends a buffer as datagrams of `segment_bytes`, the last of which may be shorter, without waiting. Returns the bytes of
    /// the datagrams that the kernel had room for.
    pub(super) fn send(&self, bytes: &[u8], segment_bytes: usize) -> io::Result<usize> {
        self.send_at(bytes, segment_bytes, Departure::default())
    }

    /// Sends a buffer as [`Datagrams::send`] does, with the times at which the datagrams leave. Those that the kernel cuts from one
    /// message leave together.
    pub(super) fn send_at(&self, bytes: &[u8], segment_bytes: usize, departure: Departure) -> io::Result<usize> {
        let size = u16::try_from(segment_bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let departure = if self.has_departures { departure } else { Departure::default() };
        let mut sent = 0;
        // One datagram needs no cutting; but if it left at once, it would overtake those before it.
        let alone = if departure.first_ns > 0 { 0 } else { segment_bytes };
        while bytes.len() > sent + alone && self.segments.load(Ordering::Relaxed) {
            let mut some = [Leaving::default(); sys::MAX_MESSAGES];
            let (mut count, mut before) = (0, sent / segment_bytes);
            for (slot, bytes) in some.iter_mut().zip(bytes[sent..].chunks(message_bytes(segment_bytes))) {
                *slot = Leaving { bytes, at_ns: departure.after(before).first_ns };
                (count, before) = (count + 1, before + bytes.len() / segment_bytes);
            }
            let send = || sys::send_datagrams(self.socket.as_fd(), &some[..count], size);
            let handed_over = match past_icmp(send) {
                Ok(messages) => messages.max(1),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(sent),
                // The kernel or the route cannot cut (EIO without checksums, EINVAL before 4.18).
                Err(error) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::ENOPROTOOPT)) => {
                    self.segments.store(false, Ordering::Relaxed);
                    0
                }
                Err(error) => lost_or(error).map(|()| 1)?,
            };
            sent += some[..handed_over].iter().map(|message| message.bytes.len()).sum::<usize>();
        }
        for datagram in bytes[sent..].chunks(segment_bytes) {
            match past_icmp(|| self.socket.send(datagram)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(sent),
                other => other.map(drop).or_else(lost_or)?,
            }
            sent += datagram.len();
        }
        Ok(sent)
    }

    /// Sends one datagram to an address, from one of this host's, from a socket that is not connected.
    pub(super) fn send_to(&self, bytes: &[u8], to: SocketAddr, from: Option<IpAddr>) -> io::Result<()> {
        let (v4, v6);
        let mut source = Vec::new();
        match from {
            Some(IpAddr::V4(from)) => {
                let address = libc::in_addr { s_addr: u32::from_ne_bytes(from.octets()) };
                v4 = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: address, ipi_addr: libc::in_addr { s_addr: 0 } };
                source.push(ControlMessage::Ipv4PacketInfo(&v4));
            }
            Some(IpAddr::V6(from)) => {
                let address = libc::in6_addr { s6_addr: from.octets() };
                v6 = libc::in6_pktinfo { ipi6_addr: address, ipi6_ifindex: 0 };
                source.push(ControlMessage::Ipv6PacketInfo(&v6));
            }
            None => {}
        }
        let to = SockaddrStorage::from(to);
        sendmsg(self.socket.as_raw_fd(), &[IoSlice::new(bytes)], &source, MsgFlags::empty(), Some(&to))?;
        Ok(())
    }

    /// Receives what is there, without waiting: [`sys::MAX_MESSAGES`] messages at most. Message i lies in `into` from i times
    /// [`RECEIVE_BYTES`] on.
    pub(super) fn receive(&self, into: &mut [u8]) -> io::Result<impl Iterator<Item = Arrived> + use<>> {
        loop {
            match self.receive_or_too_long(into) {
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {}
                other => return other,
            }
        }
    }

    /// Receives as [`Datagrams::receive`] does. The error `EMSGSIZE` tells that, as an ICMP message has it, an earlier datagram was
    /// too long for the path.
    pub(super) fn receive_or_too_long(&self, into: &mut [u8]) -> io::Result<impl Iterator<Item = Arrived> + use<>> {
        loop {
            match sys::receive_datagrams(self.socket.as_fd(), into, RECEIVE_BYTES) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A peer that is really gone is noticed by its silence.
                Err(error) if is_of_icmp(&error) && error.raw_os_error() != Some(libc::EMSGSIZE) => {}
                other => return other,
            }
        }
    }

    /// Receives one datagram, without waiting. `None`: nothing is there.
    pub(super) fn receive_from(&self, into: &mut [u8]) -> io::Result<Option<Received>> {
        let mut control = nix::cmsg_space!(libc::in6_pktinfo, libc::in_pktinfo, libc::timespec, libc::c_int);
        let mut parts = [IoSliceMut::new(into)];
        let fd = self.socket.as_raw_fd();
        let got = match recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut control), MsgFlags::empty()) {
            Ok(got) => got,
            Err(Errno::EAGAIN) => return Ok(None),
            // Of an earlier answer.
            Err(error) if is_of_icmp(&error.into()) => return Ok(Some(Received::default())),
            Err(error) => return Err(error.into()),
        };
        let to = got.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::Ipv4PacketInfo(info) => Some(IpAddr::from(info.ipi_spec_dst.s_addr.to_ne_bytes())),
            ControlMessageOwned::Ipv6PacketInfo(info) => Some(IpAddr::from(info.ipi6_addr.s6_addr)),
            _ => None,
        });
        let from = got.address.as_ref().and_then(socket_address);
        Ok(Some(Received { bytes: got.bytes, from: from.unwrap_or(Received::default().from), to }))
    }

    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        self.socket.peer_addr().ok()
    }

    /// Sizes of the kernel's buffers for sending and receiving, bytes.
    pub(super) fn buffer_sizes(&self) -> (Option<u64>, Option<u64>) {
        let socket = SockRef::from(&self.socket);
        (socket.send_buffer_size().ok().map(|n| n as u64), socket.recv_buffer_size().ok().map(|n| n as u64))
    }
}

/// Asks for [`UDP_BUFFER`] in both directions.
fn ask_for_buffers(socket: BorrowedFd<'_>) -> io::Result<()> {
    for (force, plain) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        let set = |name| sys::set_int_option(socket, libc::SOL_SOCKET, name, UDP_BUFFER.0 as i32);
        // Without the privilege the kernel grants what its limits allow.
        if set(force).is_err() {
            set(plain)?;
        }
    }
    Ok(())
}

/// Returns how many bytes the kernel lets a UDP socket of this user hold on arrival, at most [`UDP_BUFFER`]: root's may be larger
/// than `net.core.rmem_max`. 0 if there are no UDP sockets.
#[must_use]
pub fn udp_buffer() -> u64 {
    let granted = || {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        ask_for_buffers(socket.as_fd())?;
        // The kernel doubles it, for its bookkeeping (socket(7)).
        socket.recv_buffer_size().map(|doubled| doubled as u64 / 2)
    };
    granted().unwrap_or(0)
}

/// A datagram that came to a socket that is not connected.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received {
    pub(super) bytes: usize,
    pub(super) from: SocketAddr,
    /// The address of this host that it was sent to: answers come from there. A host may have several.
    pub(super) to: Option<IpAddr>,
}

impl Default for Received {
    /// Nothing, from nobody.
    fn default() -> Received {
        Received { bytes: 0, from: SocketAddr::from(([0; 4], 0)), to: None }
    }
}

/// An address as the standard library has it.
fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::from(std::net::SocketAddrV4::from(*v4)));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::from(std::net::SocketAddrV6::from(*v6))))
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Largest packet for a host, bytes as UDT counts them: see [`uncounted_bytes`].
pub(super) fn packet_bytes(to: SocketAddr) -> u16 {
    let mtu = socket::path_mtu(to).unwrap_or(DEFAULT_MTU).min(MAX_PACKET_BYTES);
    (mtu - uncounted_bytes(to)) as u16
}

/// Bytes of a packet to a host that UDT does not count: it takes every IP header for one of IPv4.
pub(super) fn uncounted_bytes(to: SocketAddr) -> u32 {
    ip_header_bytes(to) - IPV4_HEADER_BYTES
}

/// Bytes of the headers of IP and UDP in a packet to a host.
pub(super) fn headers_bytes(to: SocketAddr) -> u32 {
    ip_header_bytes(to) + UDP_HEADER_BYTES
}

fn ip_header_bytes(to: SocketAddr) -> u32 {
    // A socket for both families sends IPv4 to a mapped address.
    if to.ip().to_canonical().is_ipv6() { IPV6_HEADER_BYTES } else { IPV4_HEADER_BYTES }
}

/// Bytes of a message that the kernel cuts into datagrams of `segment_bytes`.
fn message_bytes(segment_bytes: usize) -> usize {
    let segment_bytes = segment_bytes.max(1);
    segment_bytes * (MAX_SEND_BYTES / segment_bytes).clamp(1, MAX_SEGMENTS)
}

/// Whether an error is one that an ICMP message may have left at the socket (icmp_err_convert, net/ipv4/icmp.c;
/// icmpv6_err_convert, net/ipv6/icmp.c; EMSGSIZE is of a packet that was too long). The next call reports it, and is no more than
/// that; anybody who knows the ports may have sent the message, which says nothing about the call.
fn is_of_icmp(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EACCES
                | libc::ECONNREFUSED
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::EMSGSIZE
                | libc::ENETUNREACH
                | libc::ENONET
                | libc::ENOPROTOOPT
                | libc::EOPNOTSUPP
                | libc::EPROTO
        )
    )
}

/// Makes a call that sends, and makes it again if it may only have reported an ICMP message.
fn past_icmp<T>(send: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match send() {
        Err(error) if is_of_icmp(&error) => send(),
        other => other,
    }
}

/// A datagram that could not be sent for a reason that may pass is one that the path has lost.
fn lost_or(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ENOBUFS | libc::ENOMEM | libc::EINTR | libc::EPERM | libc::ENETDOWN) => Ok(()),
        // Reported twice, it is of this very datagram.
        Some(libc::EMSGSIZE) => Err(error),
        _ if is_of_icmp(&error) => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_address_is_listened_on_over_ipv4() {
        let listening = Datagrams::listen("[::ffff:127.0.0.1]:0".parse().unwrap(), (0, 0)).unwrap();
        assert_eq!(listening.local_address().unwrap().ip(), IpAddr::from([127, 0, 0, 1]));
    }

    #[test]
    fn packets_over_ipv6_have_a_longer_header() {
        for (to, bytes) in [("127.0.0.1:9", 9000), ("[::ffff:127.0.0.1]:9", 9000), ("[::1]:9", 8980)] {
            let to = to.parse().unwrap();
            assert_eq!(packet_bytes(to), bytes, "{to}");
            assert_eq!(u32::from(bytes) + uncounted_bytes(to), 9000, "{to}");
            assert_eq!(headers_bytes(to), 28 + uncounted_bytes(to), "{to}");
        }
    }

    #[test]
    fn packets_are_not_cut_on_their_way_to_an_ipv4_address_in_ipv6() {
        let datagrams = Datagrams::bind("[::]:0".parse().unwrap()).unwrap();
        datagrams.connect("[::ffff:127.0.0.1]:9".parse().unwrap()).unwrap();
        let discover = sys::int_option(datagrams.as_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER).unwrap();
        assert_eq!(discover, libc::IP_PMTUDISC_DO);
    }

    /// Sends the ICMP message that a router would send about a datagram of `about`, which is connected.
    fn forge_icmp(about: &Datagrams, (kind, code): (u8, u8)) -> io::Result<()> {
        let ends = [about.local_address(), about.peer_address()];
        let [Some(SocketAddr::V4(from)), Some(SocketAddr::V4(to))] = ends else { panic!("{ends:?}") };
        let mut message = vec![kind, code, 0, 0, 0, 0, 0xff, 0xff];
        // The datagram's headers: IPv4, DF, UDP.
        message.extend([0x45, 0, 0, 128, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        message.extend(from.ip().octets());
        message.extend(to.ip().octets());
        message.extend([from.port().to_be_bytes(), to.port().to_be_bytes(), 108_u16.to_be_bytes(), [0, 0]].concat());
        let sum = message.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum::<u32>();
        message[2..4].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
        raw.bind(&SocketAddr::from((*to.ip(), 0)).into())?;
        raw.send_to(&message, &SocketAddr::from((*from.ip(), 0)).into()).map(drop)
    }

    /// Who knows two ports can forge such messages, and a firewall that rejects for a moment sends them. To forge takes root.
    #[test]
    fn what_icmp_messages_say_ends_nothing() {
        let [ours, theirs] = ["127.0.0.77:0", "127.0.0.78:0"].map(|at| Datagrams::bind(at.parse().unwrap()).unwrap());
        ours.connect(theirs.local_address().unwrap()).unwrap();
        let mut buffer = vec![0; 4 * RECEIVE_BYTES];
        for (message, error) in [
            ((3, 2), libc::ENOPROTOOPT),
            ((3, 3), libc::ECONNREFUSED),
            ((3, 4), libc::EMSGSIZE),
            ((3, 7), libc::EHOSTDOWN),
            ((3, 13), libc::EHOSTUNREACH),
            ((12, 0), libc::EPROTO),
        ] {
            let forge = || forge_icmp(&ours, message);
            if forge().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
                return eprintln!("skipped: it needs root");
            }
            let reported = sys::int_option(ours.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR).unwrap();
            assert_eq!(reported, error, "{message:?}: forged");
            forge().unwrap();
            assert_eq!(ours.receive(&mut buffer).unwrap().count(), 0, "{message:?}");
            for datagrams in [1, 2] {
                forge().unwrap();
                assert_eq!(ours.send(&[5; 200][..100 * datagrams], 100).unwrap(), 100 * datagrams, "{message:?}");
                let arrived = theirs.receive(&mut buffer).unwrap().map(|one| one.bytes).sum::<usize>();
                assert_eq!(arrived, 100 * datagrams, "{message:?}");
            }
            assert!(ours.segments.load(Ordering::Relaxed), "{message:?}");
        }
    }

    #[test]
    fn what_a_socket_had_no_room_for_is_counted() {
        let datagrams = Datagrams::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        assert!((1..=UDP_BUFFER.0).contains(&udp_buffer()));
        sys::set_int_option(datagrams.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, 4096).unwrap();
        assert_eq!(sys::dropped(datagrams.as_fd()).unwrap(), 0);
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..20 {
            sender.send_to(&[0; 1000], datagrams.local_address().unwrap()).unwrap();
        }
        assert!((1..=20).contains(&sys::dropped(datagrams.as_fd()).unwrap()));
    }
}
