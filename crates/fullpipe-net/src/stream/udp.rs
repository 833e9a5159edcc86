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
mod size;
mod udp_stream;

pub use acceptor::UdpAcceptor;
pub use connector::connect;

#[cfg(test)]
mod tests;
