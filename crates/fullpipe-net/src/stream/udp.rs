//! Plain UDP: datagrams at a given rate, and a receiver that counts what becomes of them. For measurements alone, as nothing that
//! is lost is sent again.
//!
//! A server must not send to an address that somebody else has named. So a caller shows the session's token, which it got over
//! TCP, in a datagram from its address, and then a cookie that the server has sent there. Nothing but the cookie is sent before,
//! and that only to a datagram with the token, which is larger. The server says over TCP when it has taken all streams.

mod acceptor;
mod arrivals;
mod connector;
pub mod datagram;
mod pacer;
mod udp_stream;

use std::net::SocketAddr;

pub use acceptor::UdpAcceptor;
pub use connector::connect;
use fullpipe_path::Transport;

use super::datagrams;
use crate::error::NetError;
use crate::socket;

/// Bytes of the headers of UDP and IPv4, and of UDP and IPv6.
const HEADERS_BYTES: [u32; 2] = [28, 48];

/// Bytes of the headers below UDP's payload in a packet to an address.
fn headers_bytes(to: SocketAddr) -> u32 {
    HEADERS_BYTES[usize::from(to.ip().to_canonical().is_ipv6())]
}

/// The payload of each datagram to an address, bytes: what was asked for or, without that, what fills a packet.
fn datagram_bytes(transport: &Transport, to: SocketAddr) -> Result<usize, NetError> {
    let known = socket::path_mtu(to);
    let most = |mtu: u32| mtu.saturating_sub(headers_bytes(to)).min(datagrams::MAX_SEND_BYTES as u32);
    match (transport.mss.map(u32::from), known.map(most)) {
        (Some(asked), Some(most)) if asked > most => Err(NetError::Datagram { asked, most }),
        (Some(asked), _) => Ok(asked as usize),
        (None, _) => {
            let mtu = known.unwrap_or(datagrams::DEFAULT_MTU).min(datagrams::MAX_PACKET_BYTES);
            Ok(most(mtu).max(datagram::HEADER_BYTES as u32) as usize)
        }
    }
}

#[cfg(test)]
mod tests;
