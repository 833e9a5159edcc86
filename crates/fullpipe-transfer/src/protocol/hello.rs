//! The greeting: the first message of both ends, and what precedes it on the wire.

use serde::{Deserialize, Serialize};

/// First word of a conversation.
pub const MAGIC: [u8; 8] = *b"fullpipe";

/// Version of this protocol; both ends must speak the same.
pub const PROTOCOL: u32 = 13;

/// Who speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Version of fullpipe.
    pub program: String,
    /// What this end's kernel lets its sockets do.
    pub limits: Limits,
}

/// What a kernel lets this user's sockets do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Congestion controls that can be set.
    pub ccs: Vec<String>,
    /// Largest send buffer that a socket may ask for, bytes.
    pub send: u64,
    /// Largest receive buffer likewise.
    pub receive: u64,
    /// Where the kernel's own tuning of send buffers stops, bytes.
    pub tuned_send: u64,
    /// Of receive buffers.
    pub tuned_receive: u64,
}

/// What a far end that ssh has started says before its first frame: whatever a login script has printed
/// comes before it.
pub const READY: &[u8] = b"\0fullpipe far end\0";

/// First byte of a connection to a standing server that is not encrypted: neither TLS's nor a measurement's.
pub const PLAIN: u8 = b'T';
