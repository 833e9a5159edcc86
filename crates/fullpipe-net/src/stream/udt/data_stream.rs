//! A UDT connection as a stream: the two faces that the seam wants.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::driver::Driven;
use crate::stream::{DataStream, Observation, Settings, StreamHandle};

/// A UDT connection as a stream.
pub(super) struct UdtDataStream(Arc<UdtHandle>);

/// The shared face of a [`UdtDataStream`]. The connection is aborted when both are gone, unless it has finished.
struct UdtHandle(Arc<Driven>);

impl UdtDataStream {
    pub(super) fn new(driven: Arc<Driven>) -> UdtDataStream {
        UdtDataStream(Arc::new(UdtHandle(driven)))
    }
}

impl Read for UdtDataStream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.0.0.read(to)
    }
}

impl Write for UdtDataStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.0.0.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.0.flush()
    }
}

impl DataStream for UdtDataStream {
    fn handle(&self) -> Arc<dyn StreamHandle> {
        self.0.clone()
    }

    fn discard(&mut self, most: usize, full: bool) -> io::Result<usize> {
        self.0.0.discard(most, full)
    }

    /// Waits until everything has been acknowledged: UDT has no half-closed connections, and a process that ends takes what
    /// it has not sent with it.
    fn finish(&mut self) -> io::Result<()> {
        self.0.0.finish()
    }
}

impl StreamHandle for UdtHandle {
    fn observe(&self) -> io::Result<Observation> {
        let (snapshot, _) = self.0.observe()?;
        Ok(Observation {
            acked_bytes: Some(snapshot.acked_bytes),
            received_bytes: Some(snapshot.received_bytes),
            udt: Some(snapshot),
            ..Observation::default()
        })
    }

    fn close(&self) {
        self.0.abort();
    }

    fn unread_bytes(&self) -> Option<u64> {
        self.0.observe().ok().map(|(snapshot, read_bytes)| snapshot.received_bytes.saturating_sub(read_bytes))
    }

    fn settings(&self) -> Settings {
        self.0.settings()
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.0.datagrams().local_address()
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        self.0.datagrams().peer_address()
    }

    /// Changes the rate of a stream that was opened with one.
    fn set_pacing(&self, bytes_per_s: Option<u64>) -> io::Result<()> {
        self.0.set_rate(bytes_per_s)
    }

    fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(time)
    }
}

impl Drop for UdtHandle {
    fn drop(&mut self) {
        self.0.abort();
    }
}
