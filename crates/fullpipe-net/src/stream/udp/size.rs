//! The size of a stream's datagrams.

use std::net::SocketAddr;

use fullpipe_path::Transport;

use super::datagram;
use crate::error::NetError;
use crate::socket;
use crate::stream::datagrams;

/// The payload of each datagram to an address, bytes: what was asked for or, without that, what fills a packet.
pub(super) fn datagram_bytes(transport: &Transport, to: SocketAddr) -> Result<usize, NetError> {
    let known = socket::path_mtu(to);
    let most = |mtu: u32| mtu.saturating_sub(datagrams::headers_bytes(to)).min(datagrams::MAX_SEND_BYTES as u32);
    match (transport.mss.map(u32::from), known.map(most)) {
        (Some(asked), Some(most)) if asked > most => Err(NetError::Datagram { asked, most }),
        (Some(asked), _) => Ok(asked as usize),
        (None, _) => {
            let mtu = known.unwrap_or(datagrams::DEFAULT_MTU).min(datagrams::MAX_PACKET_BYTES);
            Ok(most(mtu).max(datagram::HEADER_BYTES as u32) as usize)
        }
    }
}
