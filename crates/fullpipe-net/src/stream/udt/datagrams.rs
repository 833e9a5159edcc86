//! A UDP socket that sends and receives many datagrams with one call: `UDP_SEGMENT` and `UDP_GRO` (`udp(7)`).

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg, setsockopt, sockopt};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::{socket, sys};

/// Most segments that the kernel cuts one buffer into (UDP_MAX_SEGMENTS of Linux before 6.9).
pub(super) const MAX_SEGMENTS: usize = 64;
/// Most bytes that one call sends: what UDP over IPv4 carries.
pub(super) const MAX_SEND_BYTES: usize = 65_507;
/// Bytes of a buffer that holds whatever one call receives.
pub(super) const RECEIVE_BYTES: usize = 1 << 16;
/// MTU of a path that this kernel does not know, bytes.
const DEFAULT_MTU: u32 = 1500;
/// Largest packet that is used, bytes: jumbo frames.
const MAX_PACKET_BYTES: u32 = 9000;
const IPV4_HEADER_BYTES: u32 = 20;
const IPV6_HEADER_BYTES: u32 = 40;
/// Socket buffers, bytes. A receiver's must hold what arrives while its thread waits for a processor.
const SOCKET_BUFFER_BYTES: usize = 16 << 20;

/// A UDP socket.
pub(super) struct Datagrams {
    socket: UdpSocket,
    /// Whether the kernel cuts buffers into datagrams. Found out by trying.
    segments: AtomicBool,
}

impl Datagrams {
    /// Binds a socket. Others may bind the same address, as connections of one listener do.
    pub(super) fn bind(address: SocketAddr) -> io::Result<Datagrams> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        let socket = UdpSocket::from(socket);
        // Kernels before 5.0 deliver each datagram alone.
        let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
        for (force, plain) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
            let set = |name| sys::set_int_option(socket.as_fd(), libc::SOL_SOCKET, name, SOCKET_BUFFER_BYTES as i32);
            // Without the privilege the kernel grants what its limits allow.
            if set(force).is_err() {
                set(plain)?;
            }
        }
        Ok(Datagrams { socket, segments: AtomicBool::new(true) })
    }

    /// Sends to, and receives from, one address alone. Returns the largest packet for it, see [`packet_bytes`].
    pub(super) fn connect(&self, to: SocketAddr) -> io::Result<u16> {
        self.socket.connect(to)?;
        let (level, discover, no_fragments) = match to {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO),
        };
        sys::set_int_option(self.socket.as_fd(), level, discover, no_fragments)?;
        Ok(packet_bytes(to))
    }

    /// Sends a buffer as datagrams of `segment_bytes`, the last of which may be shorter. It waits for room in the kernel.
    pub(super) fn send(&self, bytes: &[u8], segment_bytes: usize) -> io::Result<()> {
        if bytes.len() <= segment_bytes {
            return self.send_one(bytes);
        }
        let size = u16::try_from(segment_bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        if self.segments.load(Ordering::Relaxed) {
            for part in bytes.chunks(segment_bytes * MAX_SEGMENTS) {
                let control = [ControlMessage::UdpGsoSegments(&size)];
                match sendmsg::<()>(self.socket.as_raw_fd(), &[IoSlice::new(part)], &control, MsgFlags::empty(), None) {
                    Ok(_) => {}
                    // The kernel or the route cannot cut (EIO without checksums, EINVAL before 4.18).
                    Err(Errno::EIO | Errno::EINVAL | Errno::ENOPROTOOPT) => {
                        self.segments.store(false, Ordering::Relaxed);
                        part.chunks(segment_bytes).try_for_each(|one| self.send_one(one))?;
                    }
                    Err(error) => lost_or(error)?,
                }
            }
            return Ok(());
        }
        bytes.chunks(segment_bytes).try_for_each(|one| self.send_one(one))
    }

    fn send_one(&self, bytes: &[u8]) -> io::Result<()> {
        match sendmsg::<()>(self.socket.as_raw_fd(), &[IoSlice::new(bytes)], &[], MsgFlags::empty(), None) {
            Ok(_) => Ok(()),
            Err(error) => lost_or(error),
        }
    }

    /// Sends one datagram to an address, from a socket that is not connected.
    pub(super) fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        self.socket.send_to(bytes, to).map(drop)
    }

    /// Receives what one call gives, without waiting: how many bytes, and how long each datagram is. `None`: nothing is there.
    pub(super) fn receive(&self, into: &mut [u8], control: &mut Vec<u8>) -> io::Result<Option<(usize, usize)>> {
        let mut parts = [IoSliceMut::new(into)];
        match recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, Some(control), MsgFlags::MSG_DONTWAIT) {
            Ok(got) => {
                let mut segment_bytes = got.bytes;
                for message in got.cmsgs().map_err(io::Error::from)? {
                    if let ControlMessageOwned::UdpGroSegments(bytes) = message {
                        segment_bytes = usize::try_from(bytes).unwrap_or(got.bytes);
                    }
                }
                Ok(Some((got.bytes, segment_bytes)))
            }
            Err(Errno::EAGAIN) => Ok(None),
            // An ICMP message to an earlier datagram. A peer that is really gone is noticed by its silence.
            Err(Errno::EINTR | Errno::ECONNREFUSED | Errno::EHOSTUNREACH | Errno::ENETUNREACH) => Ok(Some((0, 0))),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives one datagram and its sender, without waiting. `None`: nothing is there.
    pub(super) fn receive_from(&self, into: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        self.socket.set_nonblocking(true)?;
        let got = self.socket.recv_from(into);
        self.socket.set_nonblocking(false)?;
        match got {
            Ok(got) => Ok(Some(got)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Ok(Some((0, SocketAddr::from(([0; 4], 0)))))
            }
            Err(error) => Err(error),
        }
    }

    /// Memory for the control messages of [`Datagrams::receive`].
    pub(super) fn control_buffer() -> Vec<u8> {
        nix::cmsg_space!(i32)
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

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Largest packet for a host, bytes as UDT counts them. UDT counts a header of IPv4, so packets over IPv6 are to be smaller by
/// the difference.
pub(super) fn packet_bytes(to: SocketAddr) -> u16 {
    // A socket for both families sends IPv4 to a mapped address.
    let longer = if to.ip().to_canonical().is_ipv6() { IPV6_HEADER_BYTES - IPV4_HEADER_BYTES } else { 0 };
    let mtu = socket::path_mtu(to).unwrap_or(DEFAULT_MTU).min(MAX_PACKET_BYTES) - longer;
    mtu as u16
}

/// A datagram that could not be sent for a reason that may pass is one that the path has lost.
fn lost_or(error: Errno) -> io::Result<()> {
    match error {
        Errno::ENOBUFS | Errno::ENOMEM | Errno::ECONNREFUSED | Errno::EINTR | Errno::EPERM => Ok(()),
        Errno::EHOSTUNREACH | Errno::ENETUNREACH | Errno::ENETDOWN => Ok(()),
        other => Err(other.into()),
    }
}
