//! Streams over UDT: the shell around `fullpipe_udt`. Each stream has a UDP socket and a driver thread of its own.

mod acceptor;
mod connector;
mod datagrams;
mod driver;

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fullpipe_path::Transport;
use fullpipe_udt::{Config, RateControl};

pub use acceptor::UdtAcceptor;
pub use connector::UdtConnector;
pub use datagrams::UDP_BUFFER;
use driver::Driven;

use super::{DataStream, Observation, Settings, StreamHandle};

/// What an end of a stream is opened with. `mss` is the MTU of the path as far as the kernel knows it.
fn config(transport: &Transport, mss: u16) -> Config {
    let buffer = usize::try_from(transport.udt_buffer_bytes()).unwrap_or(usize::MAX);
    let control = rate(transport).map_or(RateControl::Native, RateControl::Fixed);
    Config { mss, send_buffer_bytes: buffer, receive_buffer_bytes: buffer, control, ..Config::default() }
}

/// The rate that a transport gives to each stream, bytes per second of packets with their IP and UDP headers.
fn rate(transport: &Transport) -> Option<f64> {
    transport.pacing.map(|rate| rate.0 as f64 / 8.0 / f64::from(transport.streams.max(1)))
}

/// A UDT connection as a stream.
pub struct UdtDataStream(Arc<UdtHandle>);

/// The shared face of a [`UdtDataStream`]. The connection is aborted when both are gone, unless it has finished.
struct UdtHandle(Arc<Driven>);

impl UdtDataStream {
    fn new(driven: Arc<Driven>) -> UdtDataStream {
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
        let (snapshot, read_bytes) = self.0.observe()?;
        Ok(Observation {
            acked_bytes: Some(snapshot.acked_bytes),
            received_bytes: Some(read_bytes),
            udt: Some(snapshot),
            ..Observation::default()
        })
    }

    fn close(&self) {
        self.0.abort();
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
        self.0.set_rate(bytes_per_s.map_or(f64::INFINITY, |rate| rate as f64))
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

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use fullpipe_path::{Buffer, Size};

    use super::*;
    use crate::stream::{Acceptor, Connector, Expected};
    use crate::sys;

    fn transport() -> Transport {
        Transport { cc: "udt".into(), streams: 2, buffer: Buffer::Bytes(Size(4_000_000)), pacing: None }
    }

    fn acceptor() -> UdtAcceptor<2> {
        let check = |preamble: &[u8; 2]| (preamble[0] == 7).then_some(u16::from(preamble[1]));
        let expected = Expected { ports: (0, 0), peer: None, check: Box::new(check) };
        UdtAcceptor::new(([127, 0, 0, 1], 0).into(), &transport(), expected).unwrap()
    }

    /// Calls with a preamble; returns the stream.
    fn call(to: SocketAddr, preamble: [u8; 2]) -> Box<dyn DataStream> {
        let mut stream = UdtConnector::new(to, &transport()).connect(Duration::from_secs(5)).unwrap();
        stream.write_all(&preamble).unwrap();
        stream.flush().unwrap();
        stream
    }

    /// Takes streams until so many have come.
    fn take(acceptor: &mut UdtAcceptor<2>, n: usize) -> Vec<(u16, Box<dyn DataStream>)> {
        let mut streams = Vec::new();
        while streams.len() < n {
            assert!(sys::wait_readable([acceptor.as_fd()], 10_000_000_000).unwrap()[0], "{} of {n}", streams.len());
            streams.extend(acceptor.accepted().unwrap());
        }
        streams
    }

    #[test]
    fn bytes_go_both_ways_and_end() {
        let mut acceptor = acceptor();
        let at = acceptor.address().unwrap();
        let data: Vec<u8> = (0..3_000_000u32).map(|i| (i ^ (i >> 9)) as u8).collect();
        let caller = std::thread::spawn({
            let data = data.clone();
            move || {
                let mut stream = call(at, [7, 1]);
                stream.write_all(&data).unwrap();
                let mut back = [0; 5];
                stream.read_exact(&mut back).unwrap();
                stream.finish().unwrap();
                back
            }
        });
        let (number, mut stream) = take(&mut acceptor, 1).remove(0);
        assert_eq!(number, 1);
        let mut first = vec![0; 1_000_000];
        stream.read_exact(&mut first).unwrap();
        assert!(first == data[..1_000_000]);
        let mut left = 2_000_000;
        while left > 0 {
            left -= stream.discard(left, true).unwrap();
        }
        stream.write_all(b"bytes").unwrap();
        stream.flush().unwrap();
        let seen = stream.handle().observe().unwrap();
        assert_eq!((seen.received_bytes, seen.tcp_info.is_none()), (Some(3_000_002), true));
        assert!(seen.udt.unwrap().counters.pkt_recv > 1);
        assert_eq!(&caller.join().unwrap(), b"bytes");
        assert_eq!(stream.read(&mut first).unwrap(), 0);
        assert_eq!(stream.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn callers_without_the_token_are_dropped() {
        let mut acceptor = acceptor();
        let at = acceptor.address().unwrap();
        let calls = std::thread::spawn(move || {
            let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
            stranger.send_to(&[0x80; 64], at).unwrap();
            let mut wrong = call(at, [8, 0]);
            let right = call(at, [7, 0]);
            (wrong.read(&mut [0]), right)
        });
        let taken = take(&mut acceptor, 1);
        assert_eq!(taken[0].0, 0);
        let (wrong, _right) = calls.join().unwrap();
        assert!(matches!(wrong, Ok(0)) || wrong.is_err());
    }

    #[test]
    fn a_stream_that_is_closed_lets_its_reader_go() {
        let mut acceptor = acceptor();
        let at = acceptor.address().unwrap();
        let calling = std::thread::spawn(move || call(at, [7, 0]));
        let (_, mut stream) = take(&mut acceptor, 1).remove(0);
        let handle = stream.handle();
        let reading = std::thread::spawn(move || stream.read(&mut [0]).map_err(|error| error.kind()));
        std::thread::sleep(Duration::from_millis(50));
        handle.close();
        assert_eq!(reading.join().unwrap(), Err(io::ErrorKind::BrokenPipe));
        // The other end learns of it at once.
        let mut other = calling.join().unwrap();
        assert_eq!(other.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn nobody_there_is_an_error_that_says_so() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (at, transport) = (silent.local_addr().unwrap(), transport());
        let begun = std::time::Instant::now();
        let error = UdtConnector::new(at, &transport).connect(Duration::from_millis(600)).err().unwrap();
        assert!(error.to_string().contains("within 0.6 s"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}
