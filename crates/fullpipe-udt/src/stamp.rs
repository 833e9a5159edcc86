//! Header fields that all packets of a connection have at one instant.

/// Time stamp and receiver of a packet (section 2).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    /// Time since the connection was set up, microseconds; it wraps.
    pub timestamp_us: u32,
    /// Socket of the other end.
    pub socket_id: u32,
}
