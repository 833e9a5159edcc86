//! The seam between a run or a transfer and the transport that carries its bytes.
//!
//! `measure` and `cp` move data and observe streams only through this module, whether a stream is TCP, TLS over TCP, or a
//! transport that comes later. A stream has two faces:
//!
//! - [`DataStream`] belongs to the one thread that moves the stream's data. It sends, receives and ends.
//! - [`StreamHandle`] is shared. Other threads observe the stream through it, change its settings and close it.
//!
//! [`Connector`] and [`Acceptor`] open the streams on the two hosts. A layer that changes the bytes on their way, such as TLS,
//! owns an inner [`DataStream`], is one itself, and passes on the inner stream's handle.
//!
//! All calls take whole buffers, 16 KB and more, so a call through a trait object costs nothing that can be measured.
//! What a transport does without copying stays without copying: [`DataStream::send_file`] is `sendfile(2)` for TCP, and
//! [`DataStream::discard`] is `recv(2)` with `MSG_TRUNC`.
//!
//! # Adding a transport
//!
//! `stream/tcp.rs` and `stream/udt.rs` are the examples.
//!
//! 1. Write a module (or a crate, if it brings dependencies) with two types: one implements [`DataStream`], the other
//!    [`StreamHandle`]. Only reading, writing, [`DataStream::finish`], [`DataStream::handle`], [`StreamHandle::observe`]
//!    and [`StreamHandle::close`] are required; every other method has a default that says "not available". Where the
//!    transport cannot tell a quantity, leave it `None`: a zero is a measurement.
//! 2. Implement [`Connector`] and [`Acceptor`]. The acceptor hands out only streams that have shown the session's token:
//!    anyone may call a port.
//! 3. Give the transport its word: a [`fullpipe_path::Protocol`], and a branch in
//!    [`open::connector`] and [`open::acceptor`], the only places that choose.
//! 4. Give it a way onto the command lines: `--transport` of `measure` and of `cp`.
//! 5. Add the transport to the test at the end of `traffic.rs`, which runs the engine over a stream that can do nothing
//!    but read and write.
//!
//! Samplers, SOBAS's actuators, records and both engines then work as far as the transport's handle allows.

mod datagrams;
pub mod handed;
pub mod open;
pub mod tcp;
pub mod udp;
pub mod udt;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use fullpipe_path::Dscp;
use fullpipe_path::record::udp::UdpCounts;

use crate::error::NetError;
use crate::tcp_info::TcpInfo;

/// Bytes that [`DataStream::discard`] reads at a time where a transport cannot drop bytes without copying them.
const DISCARD_BYTES: usize = 256 << 10;

/// A stream of bytes to another host, as the thread that moves its data sees it.
///
/// Writing and reading are [`io::Write`] and [`io::Read`]; both wait. `read` returns zero only at the stream's end.
pub trait DataStream: io::Read + io::Write + Send {
    /// The handle for all other threads. It stays valid when the stream itself is dropped; the connection ends when both
    /// are gone.
    fn handle(&self) -> Arc<dyn StreamHandle>;

    /// Reads as [`io::Read::read`] does, but waits until `to` is full or the stream ends, where the transport can wait
    /// for that in one call.
    ///
    /// # Errors
    /// The transport's.
    fn read_full(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.read(to)
    }

    /// Receives up to `most` bytes and drops them. With `full`, it waits until `most` bytes have come or the stream ends,
    /// where the transport can drop bytes without copying them; else it returns after one read.
    ///
    /// # Errors
    /// The transport's.
    fn discard(&mut self, most: usize, full: bool) -> io::Result<usize> {
        let _ = full;
        self.read(&mut vec![0; most.min(DISCARD_BYTES)])
    }

    /// Whether data may be lost on the way. The stream's end is then the end of what was sent, whatever has arrived.
    fn may_lose(&self) -> bool {
        false
    }

    /// Whether [`DataStream::send_file`] works for this stream now.
    fn sends_files(&self) -> bool {
        false
    }

    /// Sends up to `most` bytes of a file from `offset` by reference, without copying them; returns how many. Zero means
    /// that the file ends at `offset`.
    ///
    /// # Errors
    /// The transport's; `Unsupported` where [`DataStream::sends_files`] is false.
    fn send_file(&mut self, file: BorrowedFd<'_>, offset: u64, most: usize) -> io::Result<usize> {
        let _ = (file, offset, most);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Ends the sending direction: the other end reads all that was written, then the stream's end.
    ///
    /// # Errors
    /// The transport's.
    fn finish(&mut self) -> io::Result<()>;
}

impl<S: DataStream + ?Sized> DataStream for Box<S> {
    fn handle(&self) -> Arc<dyn StreamHandle> {
        (**self).handle()
    }

    fn read_full(&mut self, to: &mut [u8]) -> io::Result<usize> {
        (**self).read_full(to)
    }

    fn discard(&mut self, most: usize, full: bool) -> io::Result<usize> {
        (**self).discard(most, full)
    }

    fn may_lose(&self) -> bool {
        (**self).may_lose()
    }

    fn sends_files(&self) -> bool {
        (**self).sends_files()
    }

    fn send_file(&mut self, file: BorrowedFd<'_>, offset: u64, most: usize) -> io::Result<usize> {
        (**self).send_file(file, offset, most)
    }

    fn finish(&mut self) -> io::Result<()> {
        (**self).finish()
    }
}

/// A stream as all other threads see it: what can be observed, what can be set, and closing.
///
/// A setting that the transport does not have fails with [`io::ErrorKind::Unsupported`].
pub trait StreamHandle: Send + Sync {
    /// What the transport tells of the stream now. For TCP this is one `getsockopt(TCP_INFO)`.
    ///
    /// # Errors
    /// The connection is gone.
    fn observe(&self) -> io::Result<Observation>;

    /// Closes both directions. A thread that waits in the stream's `read` or `write` returns.
    fn close(&self);

    /// Bytes that have arrived and that the application has not read yet, where the transport tells.
    fn unread_bytes(&self) -> Option<u64> {
        None
    }

    /// The settings in force.
    fn settings(&self) -> Settings {
        Settings::default()
    }

    /// This host's address of the connection.
    fn local_address(&self) -> Option<SocketAddr> {
        None
    }

    /// The other host's address of the connection.
    fn peer_address(&self) -> Option<SocketAddr> {
        None
    }

    /// Limits the rate at which the transport sends, bytes of payload per second; `None` lifts the limit.
    ///
    /// # Errors
    /// The transport has no such setting, or refuses the rate.
    fn set_pacing(&self, bytes_per_s: Option<u64>) -> io::Result<()> {
        let _ = bytes_per_s;
        unsupported()
    }

    /// Limits the window that this host grants the sender, bytes; `None` lifts the limit.
    ///
    /// # Errors
    /// The transport has no such setting, or refuses the window.
    fn set_receive_window(&self, bytes: Option<u32>) -> io::Result<()> {
        let _ = bytes;
        unsupported()
    }

    /// Ends the kernel's tuning of the receive buffer, and gives it this size, bytes, where the kernel grants that.
    ///
    /// # Errors
    /// The transport has no such setting, or the kernel grants less.
    fn fix_receive_buffer(&self, bytes: u64) -> io::Result<()> {
        let _ = bytes;
        unsupported()
    }

    /// The limit that [`StreamHandle::set_receive_window`] has set, or that the kernel has put in its place, bytes.
    fn receive_window(&self) -> Option<u32> {
        None
    }

    /// Limits how many bytes may wait on this host to be sent.
    ///
    /// # Errors
    /// The transport has no such setting, or refuses the number.
    fn set_max_unsent(&self, bytes: u32) -> io::Result<()> {
        let _ = bytes;
        unsupported()
    }

    /// Limits how many bytes the transport hands to the line at once; `None` lifts the limit.
    ///
    /// # Errors
    /// The transport has no such setting.
    fn set_max_burst(&self, bytes: Option<usize>) -> io::Result<()> {
        let _ = bytes;
        unsupported()
    }

    /// Lets slow start begin again from the present window.
    ///
    /// # Errors
    /// The transport cannot do that.
    fn restart_slow_start(&self) -> io::Result<()> {
        unsupported()
    }

    /// Changes the congestion control of the stream while it sends.
    ///
    /// # Errors
    /// The transport has no such setting, or lacks this congestion control.
    fn set_congestion_control(&self, name: &str) -> io::Result<()> {
        let _ = name;
        unsupported()
    }

    /// Limits how long a `read` waits for the first byte; `None` lets it wait without end.
    ///
    /// # Errors
    /// The transport has no such setting, or refuses the time.
    fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        let _ = time;
        unsupported()
    }
}

fn unsupported() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A transport's view of one stream at one instant. A quantity that the transport does not tell is `None`, never zero.
#[derive(Debug, Clone, Default)]
pub struct Observation {
    /// Bytes that the other host's transport has acknowledged. What the transport itself adds to the data counts too:
    /// see [`Connector::overhead_bytes`].
    pub acked_bytes: Option<u64>,
    /// Bytes that have arrived, read by the application or not.
    pub received_bytes: Option<u64>,
    /// Rate at which data arrived at the other host of late, bytes per second.
    pub delivery_bytes_per_s: Option<u64>,
    /// The kernel's own view, for TCP.
    pub tcp_info: Option<TcpInfo>,
    /// The protocol's own view, for UDT.
    pub udt: Option<fullpipe_udt::Snapshot>,
    /// What became of the datagrams so far, for plain UDP.
    pub udp: Option<UdpCounts>,
}

/// Settings of a stream as the transport gives them back. A setting that the transport does not have is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Name of the congestion control.
    pub congestion_control: Option<String>,
    /// Send buffer (`SO_SNDBUF`, bookkeeping included), bytes.
    pub send_buffer_bytes: Option<u64>,
    /// Receive buffer (`SO_RCVBUF`, bookkeeping included), bytes.
    pub receive_buffer_bytes: Option<u64>,
    /// Limit of the sending rate, bytes per second; `None` also where no limit is set.
    pub pacing_bytes_per_s: Option<u64>,
    /// Class of service of the packets that this host sends; `None` also for the default.
    pub dscp: Option<Dscp>,
    /// Payload of the largest segment that this host sends, bytes.
    pub segment_bytes: Option<u32>,
    /// Largest packet of the path as this host knows it, bytes.
    pub packet_bytes: Option<u32>,
    /// Messages of datagrams that the socket has dropped, mostly as it had no room for them; see [`crate::sys::dropped`].
    pub dropped: Option<u32>,
}

/// Opens streams from the host that calls.
pub trait Connector: Sync {
    /// Opens one stream, with the transport's settings applied. It may be called from several threads at once.
    ///
    /// # Errors
    /// The other host cannot be reached, or this one refuses a setting.
    fn connect(&self, timeout: Duration) -> Result<Box<dyn DataStream>, NetError>;

    /// Bytes that [`Observation::acked_bytes`] of a stream from this connector counts before any data.
    fn overhead_bytes(&self) -> u64 {
        0
    }
}

/// Takes streams on the host that is called. Its descriptor is readable when [`Acceptor::accepted`] may have a stream.
pub trait Acceptor: AsFd {
    /// Where streams are expected.
    ///
    /// # Errors
    /// The kernel does not tell.
    fn address(&self) -> io::Result<SocketAddr>;

    /// Streams that have shown the session's token since the last call, each with its number. It does not wait. Callers
    /// without the token are dropped; they cause no error.
    ///
    /// # Errors
    /// This host's own descriptors fail.
    fn accepted(&mut self) -> io::Result<Vec<(u16, Box<dyn DataStream>)>>;
}

/// Returns the number of a stream for a preamble with the session's token, and `None` for any other preamble.
pub type PreambleCheck<const N: usize> = Box<dyn Fn(&[u8; N]) -> Option<u16> + Send>;

/// What an [`Acceptor`] is opened with.
pub struct Expected<const N: usize> {
    /// First and last port to try; 0 lets the kernel choose.
    pub ports: (u16, u16),
    /// The other host, where it is known. When there are too many callers, those from there are dropped last.
    pub peer: Option<std::net::IpAddr>,
    /// Recognizes the session's streams.
    pub check: PreambleCheck<N>,
}
