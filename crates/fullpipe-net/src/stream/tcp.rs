//! Streams over TCP.

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fullpipe_path::Transport;
use nix::sys::socket::{MsgFlags, recv, sendmsg};
use socket2::SockRef;

use super::{Acceptor, Connector, DataStream, Expected, Observation, PreambleCheck, Settings, StreamHandle};
use crate::error::{NetError, system};
use crate::local_end::LocalEnd;
use crate::preamble_listener::PreambleListener;
use crate::tcp_info::TcpInfo;
use crate::{socket, sys};

/// The kernel counts the SYN of the host that connects as one acknowledged byte (`tcpi_bytes_acked`).
const SYN_BYTES: u64 = 1;
/// [`TcpHandle::burst_bytes`] of a stream whose bursts were never limited.
const NEVER_LIMITED: usize = 0;
/// [`TcpHandle::burst_bytes`] of a stream whose limit has been lifted.
const LIFTED: usize = usize::MAX;
/// Congestion control whose taking over lets slow start begin again.
const BBR: &[u8] = b"bbr";

/// A TCP connection as a stream.
pub struct TcpDataStream(Arc<TcpHandle>);

/// The shared face of a [`TcpDataStream`].
///
/// TCP hands up to 64 KB at once to the line (`tcp_tso_autosize`), paced or not: more than a shallow queue holds. Data
/// that ends a record (`MSG_EOR`) is never joined to what follows it (`tcp_skb_can_collapse_to`). So a stream whose
/// bursts are limited sends each part as a record, and each part waits for its own pacing.
struct TcpHandle {
    socket: TcpStream,
    /// Bytes of one part, or [`NEVER_LIMITED`] or [`LIFTED`].
    burst_bytes: AtomicUsize,
}

impl TcpDataStream {
    /// Makes a stream of a connection. Its settings have been applied.
    pub fn new(socket: TcpStream) -> TcpDataStream {
        TcpDataStream(Arc::new(TcpHandle { socket, burst_bytes: AtomicUsize::new(NEVER_LIMITED) }))
    }

    /// The connection, for what only TCP has: a handshake, or options that are set before data moves.
    pub fn socket(&self) -> &TcpStream {
        &self.0.socket
    }

    /// Makes a boxed stream of a connection.
    pub fn boxed(socket: TcpStream) -> Box<dyn DataStream> {
        Box::new(TcpDataStream::new(socket))
    }
}

impl Read for TcpDataStream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        (&self.0.socket).read(to)
    }
}

impl Write for TcpDataStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(from)])
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut room = match self.0.burst_bytes.load(Ordering::Relaxed) {
            NEVER_LIMITED | LIFTED => return (&self.0.socket).write_vectored(from),
            bytes => bytes,
        };
        let mut parts = Vec::with_capacity(from.len());
        for slice in from {
            let part = &slice[..slice.len().min(room)];
            room -= part.len();
            parts.push(IoSlice::new(part));
        }
        let flags = MsgFlags::MSG_EOR | MsgFlags::MSG_NOSIGNAL;
        Ok(sendmsg::<()>(self.0.socket.as_raw_fd(), &parts, &[], flags, None)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl DataStream for TcpDataStream {
    fn handle(&self) -> Arc<dyn StreamHandle> {
        self.0.clone()
    }

    fn read_full(&mut self, to: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.0.socket.as_raw_fd(), to, MsgFlags::MSG_WAITALL)?)
    }

    fn discard(&mut self, most: usize, full: bool) -> io::Result<usize> {
        sys::discard(self.0.socket.as_fd(), most, full)
    }

    /// False once bursts have been limited: `sendfile(2)` cannot end a record.
    fn sends_files(&self) -> bool {
        self.0.burst_bytes.load(Ordering::Relaxed) == NEVER_LIMITED
    }

    fn send_file(&mut self, file: BorrowedFd<'_>, offset: u64, most: usize) -> io::Result<usize> {
        sys::send_from(self.0.socket.as_fd(), file, offset, most)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.socket.shutdown(Shutdown::Write)
    }
}

impl TcpHandle {
    /// Largest packet of the path as this host knows it, bytes.
    fn packet_bytes(&self) -> Option<i32> {
        // An IPv4 connection may use a socket for both families.
        let (level, name) = match self.socket.peer_addr().ok()?.ip().to_canonical() {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        };
        sys::int_option(self.socket.as_fd(), level, name).ok()
    }
}

impl StreamHandle for TcpHandle {
    fn observe(&self) -> io::Result<Observation> {
        let info = TcpInfo::read(self.socket.as_fd())?;
        Ok(Observation {
            acked_bytes: info.get("bytes_acked"),
            received_bytes: info.get("bytes_received"),
            delivery_bytes_per_s: info.get("delivery_rate"),
            tcp_info: Some(info),
            udt: None,
            udp: None,
        })
    }

    fn close(&self) {
        // A connection that is closed already needs no shutting down.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn unread_bytes(&self) -> Option<u64> {
        sys::unread(self.socket.as_fd()).ok()
    }

    fn settings(&self) -> Settings {
        let (socket, fd) = (SockRef::from(&self.socket), self.socket.as_fd());
        let positive = |n: i32| u32::try_from(n).ok();
        Settings {
            congestion_control: congestion_control(&socket).map(|name| String::from_utf8_lossy(&name).into_owned()),
            send_buffer_bytes: socket.send_buffer_size().ok().map(|n| n as u64),
            receive_buffer_bytes: socket.recv_buffer_size().ok().map(|n| n as u64),
            // Without a limit the kernel gives all ones, 32 or 64 bits wide.
            pacing_bytes_per_s: sys::max_pacing_rate(fd).ok().filter(|n| *n != u64::MAX && *n != u64::from(u32::MAX)),
            dscp: self.peer_address().and_then(|peer| socket::dscp(fd, peer)),
            segment_bytes: sys::int_option(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG).ok().and_then(positive),
            packet_bytes: self.packet_bytes().and_then(positive),
            dropped: None,
        }
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        self.socket.peer_addr().ok()
    }

    fn set_pacing(&self, bytes_per_s: Option<u64>) -> io::Result<()> {
        // All ones lifts the limit (net/core/sock.c). A rate of zero would stop the stream.
        sys::set_max_pacing_rate(self.socket.as_fd(), bytes_per_s.map_or(u64::MAX, |rate| rate.max(1)))
    }

    fn set_receive_window(&self, bytes: Option<u32>) -> io::Result<()> {
        let bytes = bytes.map_or(i32::MAX, |bytes| i32::try_from(bytes).unwrap_or(i32::MAX));
        sys::set_int_option(self.socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, bytes.max(1))
    }

    fn fix_receive_buffer(&self, bytes: u64) -> io::Result<()> {
        // The kernel would shrink the buffer to what it grants.
        if socket::limits().2 < bytes {
            return Err(io::ErrorKind::Unsupported.into());
        }
        SockRef::from(&self.socket).set_recv_buffer_size(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    fn receive_window(&self) -> Option<u32> {
        let clamp = sys::int_option(self.socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP).ok()?;
        u32::try_from(clamp).ok()
    }

    fn set_max_unsent(&self, bytes: u32) -> io::Result<()> {
        SockRef::from(&self.socket).set_tcp_notsent_lowat(bytes)
    }

    fn set_max_burst(&self, bytes: Option<usize>) -> io::Result<()> {
        let limit = match bytes {
            Some(bytes) => bytes.clamp(1, LIFTED - 1),
            None if self.burst_bytes.load(Ordering::Relaxed) == NEVER_LIMITED => NEVER_LIMITED,
            None => LIFTED,
        };
        self.burst_bytes.store(limit, Ordering::Relaxed);
        Ok(())
    }

    /// Linux has no call for this, but BBR forgets the threshold where slow start ends when it takes a connection over
    /// (`bbr_init` in `tcp_bbr.c`), and hands the connection back as it is.
    fn restart_slow_start(&self) -> io::Result<()> {
        let socket = SockRef::from(&self.socket);
        let name = congestion_control(&socket).ok_or(io::ErrorKind::Unsupported)?;
        if name == BBR {
            return Err(io::ErrorKind::Unsupported.into());
        }
        socket.set_tcp_congestion(BBR)?;
        socket.set_tcp_congestion(&name)
    }

    fn set_congestion_control(&self, name: &str) -> io::Result<()> {
        SockRef::from(&self.socket).set_tcp_congestion(name.as_bytes())
    }

    fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(time)
    }
}

/// Name of a socket's congestion control. The kernel pads it with zeros.
fn congestion_control(socket: &SockRef<'_>) -> Option<Vec<u8>> {
    let name = socket.tcp_congestion().ok()?;
    Some(name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec())
}

/// Opens TCP streams to an address.
pub struct TcpConnector<'a> {
    to: SocketAddr,
    from: &'a LocalEnd,
    transport: &'a Transport,
    sends: bool,
}

impl<'a> TcpConnector<'a> {
    /// Connects to `to` with the transport's settings; see [`super::open::connector`].
    pub fn new(to: SocketAddr, from: &'a LocalEnd, transport: &'a Transport, sends: bool) -> TcpConnector<'a> {
        TcpConnector { to, from, transport, sends }
    }
}

impl Connector for TcpConnector<'_> {
    fn connect(&self, timeout: Duration) -> Result<Box<dyn DataStream>, NetError> {
        let socket = socket::connect(self.to, self.from, self.transport, self.sends, timeout)?;
        // The end of a message must not wait for an acknowledgement (RFC 896).
        socket.set_nodelay(true).map_err(system("setting TCP_NODELAY"))?;
        Ok(TcpDataStream::boxed(socket))
    }

    fn overhead_bytes(&self) -> u64 {
        SYN_BYTES
    }
}

/// Takes TCP streams on a port of their own.
pub struct TcpAcceptor<const N: usize> {
    listener: TcpListener,
    callers: PreambleListener<N>,
    check: PreambleCheck<N>,
}

impl<const N: usize> TcpAcceptor<N> {
    /// Listens on the first free port; see [`super::open::acceptor`].
    ///
    /// # Errors
    /// No port is free, or this host refuses a setting.
    pub fn new(
        local: SocketAddr,
        transport: &Transport,
        sends: bool,
        expected: Expected<N>,
    ) -> Result<TcpAcceptor<N>, NetError> {
        let listener = socket::listen(local, expected.ports, transport, sends)?;
        let callers = PreambleListener::new(&listener, expected.peer).map_err(system("watching the data port"))?;
        Ok(TcpAcceptor { listener, callers, check: expected.check })
    }
}

impl<const N: usize> AsFd for TcpAcceptor<N> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.callers.as_fd()
    }
}

impl<const N: usize> Acceptor for TcpAcceptor<N> {
    fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    fn accepted(&mut self) -> io::Result<Vec<(u16, Box<dyn DataStream>)>> {
        let accepted = self.callers.accepted(&self.check)?;
        let stream = |(number, socket): (u16, TcpStream)| {
            socket.set_nodelay(true)?;
            Ok((number, TcpDataStream::boxed(socket)))
        };
        accepted.into_iter().map(stream).collect()
    }
}
