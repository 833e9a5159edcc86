//! The greeting, which is the first message of both ends, and the bytes that precede it on the wire.

use serde::{Deserialize, Serialize};

/// Bytes by which an end recognises the greeting.
pub const MAGIC: [u8; 8] = *b"fullpipe";

/// Version of the protocol. Both ends must have the same version.
pub const PROTOCOL: u32 = 30;

/// The greeting of one end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Version of fullpipe.
    pub program: String,
    /// Limits of this end's kernel for its sockets.
    pub limits: Limits,
}

/// Limits of a kernel for this user's sockets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Congestion controls that the user may set.
    pub ccs: Vec<String>,
    /// Maximum send buffer that a socket may set, in bytes.
    pub send: u64,
    /// Maximum receive buffer that a socket may set, in bytes.
    pub receive: u64,
    /// Bytes that a UDP socket may hold on arrival.
    pub udp_receive: u64,
    /// Maximum send buffer of the kernel's autotuning, in bytes.
    pub tuned_send: u64,
    /// Maximum receive buffer of the kernel's autotuning, in bytes.
    pub tuned_receive: u64,
}

/// Bytes that a far end started by ssh sends before its first frame. The client ignores everything before them, such as
/// the output of a login script.
pub const READY: &[u8] = b"\0fullpipe far end\0";

/// First byte of an unencrypted connection to a server. Neither TLS nor a measurement begins with it.
pub const PLAIN: u8 = b'T';
