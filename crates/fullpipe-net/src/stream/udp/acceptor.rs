//! Takes streams of plain UDP on a port of their own. A caller costs no memory before it has proved its address.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use fullpipe_path::Transport;
use rand::RngExt;

use super::datagram::{self, COOKIE_BYTES};
use super::size::datagram_bytes;
use super::udp_stream::{Terms, UdpStream};
use crate::error::{NetError, system};
use crate::stream::datagrams::{Datagrams, RECEIVE_BYTES, Received};
use crate::stream::{Acceptor, DataStream, Expected, PreambleCheck};

/// Calls that are handled before the streams that have come are handed out.
const BATCH: usize = 256;

/// Takes streams of plain UDP on a port of their own.
pub struct UdpAcceptor<const N: usize> {
    datagrams: Datagrams,
    address: SocketAddr,
    transport: Transport,
    /// Whether this host will send data.
    sends: bool,
    check: PreambleCheck<N>,
    /// Makes cookies that nobody else can make.
    secret: [u8; 32],
    /// Numbers of the streams that have come.
    taken: BTreeSet<u16>,
    arriving: Vec<u8>,
}

impl<const N: usize> UdpAcceptor<N> {
    /// Listens on the first free port; see [`crate::stream::open::acceptor`].
    ///
    /// # Errors
    /// No port is free.
    pub fn new(
        local: SocketAddr,
        transport: &Transport,
        sends: bool,
        expected: Expected<N>,
    ) -> Result<UdpAcceptor<N>, NetError> {
        let datagrams = Datagrams::listen(local, expected.ports)?;
        let address = datagrams.local_address();
        let address = address.ok_or_else(|| system("watching the data port")(io::ErrorKind::NotFound.into()))?;
        Ok(UdpAcceptor {
            datagrams,
            address,
            transport: transport.clone(),
            sends,
            check: expected.check,
            secret: rand::rng().random(),
            taken: BTreeSet::new(),
            arriving: vec![0; RECEIVE_BYTES],
        })
    }

    /// The cookie that proves that a caller with this preamble receives what is sent to an address.
    fn cookie(&self, from: SocketAddr, preamble: &[u8; N]) -> [u8; COOKIE_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(from.to_string().as_bytes()).update(&[0]).update(preamble);
        let mut cookie = [0; COOKIE_BYTES];
        hasher.finalize_xof().fill(&mut cookie);
        cookie
    }

    /// Handles what has arrived; returns the stream that it opens, if it opens one.
    fn hear(&mut self, received: Received) -> Result<Option<(u16, UdpStream)>, NetError> {
        let Received { bytes, from, to } = received;
        let Some((preamble, shown)) = datagram::parse_call::<N>(&self.arriving[..bytes]) else { return Ok(None) };
        // A stranger costs this look, and gets nothing.
        let Some(stream) = (self.check)(preamble) else { return Ok(None) };
        let (cookie, tag) = (self.cookie(from, preamble), datagram::tag(preamble));
        if *shown != cookie {
            // An answer that cannot be sent is lost; the call comes again.
            let _ = self.datagrams.send_to(&datagram::cookie(tag, &cookie), from, to);
            return Ok(None);
        }
        if self.taken.contains(&stream) {
            return Ok(None);
        }
        let terms = Terms::new(&self.transport, datagram_bytes(&self.transport, from)?, tag, self.sends);
        let opened = self
            .datagrams
            .for_caller(from, to, self.transport.dscp)
            .and_then(|datagrams| UdpStream::new(datagrams, terms));
        let opened = opened.map_err(system("opening a data stream over UDP"))?;
        self.taken.insert(stream);
        Ok(Some((stream, opened)))
    }
}

impl<const N: usize> AsFd for UdpAcceptor<N> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.datagrams.as_fd()
    }
}

impl<const N: usize> Acceptor for UdpAcceptor<N> {
    fn address(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn accepted(&mut self) -> io::Result<Vec<(u16, Box<dyn DataStream>)>> {
        let mut streams: Vec<(u16, Box<dyn DataStream>)> = Vec::new();
        for _ in 0..BATCH {
            let Some(received) = self.datagrams.receive_from(&mut self.arriving)? else { break };
            if let Some((number, stream)) = self.hear(received).map_err(io::Error::other)? {
                streams.push((number, Box::new(stream)));
            }
        }
        Ok(streams)
    }
}
