//! What can go wrong between two ends.

use std::io;

use fullpipe_path::transport::LINUX_CONGESTION_CONTROLS;
use fullpipe_path::{Classified, ExitClass, Size};
use serde::{Deserialize, Serialize};

/// The flags that choose what is listened on.
fn choosing(address: &str) -> &'static str {
    if address.contains("data ports") { "--data-ports" } else { "--port, --data-ports or --bind" }
}

/// Why a server turns a client away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// The reason, for the client and for the server's log.
    pub why: String,
    /// What the client's user can do about it: only the client is told.
    pub advice: Option<String>,
}

impl Denial {
    /// A reason, and what the client's user can do about it.
    pub fn new(why: impl Into<String>, advice: impl Into<String>) -> Denial {
        Denial { why: why.into(), advice: Some(advice.into()) }
    }
}

impl From<String> for Denial {
    fn from(why: String) -> Denial {
        Denial { why, advice: None }
    }
}

/// What the client is told.
impl std::fmt::Display for Denial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)?;
        self.advice.as_ref().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

/// Why a run did not happen or did not finish.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The far end cannot be reached.
    #[error("cannot connect to {host}: {source}; is 'fullpipe serve' running there, and the port open?")]
    Connect {
        /// As asked for.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// The name does not resolve.
    #[error("cannot resolve host '{host}': {source}; check the name")]
    Resolve {
        /// As asked for.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// The server's port cannot be taken.
    #[error("cannot listen on {address}: {source}; choose another with {}, or end what uses it", choosing(address))]
    Listen {
        /// Address and port.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The far end is no fullpipe.
    #[error("{peer} does not speak fullpipe's protocol ({why}); is another program on that port?")]
    Stranger {
        /// Who.
        peer: String,
        /// What came instead.
        why: String,
    },
    /// The far end has another version.
    #[error(
        "{peer} runs fullpipe {theirs} (protocol {their_protocol}), this is {ours} (protocol {our_protocol}); \
             install the same version on both ends"
    )]
    Version {
        /// Who.
        peer: String,
        /// Its version.
        theirs: String,
        /// Its protocol.
        their_protocol: u32,
        /// Ours.
        ours: &'static str,
        /// Our protocol.
        our_protocol: u32,
    },
    /// The far end says no.
    #[error("{peer} refused: {why}")]
    Refused {
        /// Who.
        peer: String,
        /// In its words.
        why: String,
    },
    /// What a server says to a client that it turns away.
    #[error("{0}")]
    Denied(Denial),
    /// The far end failed in the middle.
    #[error("the run failed at {peer}: {why}")]
    Remote {
        /// Who.
        peer: String,
        /// In its words.
        why: String,
    },
    /// The connection broke.
    #[error("lost {peer} while {doing}: {source}")]
    Lost {
        /// Who.
        peer: String,
        /// What was going on.
        doing: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Nothing moved for too long.
    #[error("no data moved for {seconds:.0} s: the path or the other end is stuck; raise --stall if it is only slow")]
    Stalled {
        /// How long.
        seconds: f64,
    },
    /// A run took longer than a client without a token may have.
    #[error(
        "cut off after {seconds:.0} s, this server's limit for a run; ask for less, or ask its operator to raise \
         --max-duration"
    )]
    TooLong {
        /// The limit.
        seconds: f64,
    },
    /// This kernel lacks the congestion control.
    #[error("this kernel has no congestion control '{name}'; it has: {available}{}", advice(.name))]
    NoSuchCc {
        /// As asked for.
        name: String,
        /// `tcp_available_congestion_control`.
        available: String,
    },
    /// This kernel has the congestion control, but not for this user.
    #[error(
        "this user may not use congestion control '{name}', only: {allowed}. As root: \
         sysctl -w net.ipv4.tcp_allowed_congestion_control=\"{allowed} {name}\""
    )]
    NotAllowedCc {
        /// As asked for.
        name: String,
        /// `tcp_allowed_congestion_control`.
        allowed: String,
    },
    /// A buffer that this machine cannot hold.
    #[error("a buffer of {buffer} is beyond this machine's memory ({memory}); choose a smaller --buffer")]
    Memory {
        /// As asked for.
        buffer: Size,
        /// What there is.
        memory: Size,
    },
    /// What was handed to somebody else failed there.
    #[error("{0}")]
    Other(String),
    /// A client could not be served by the process that it was handed to.
    #[error("{why}")]
    Served {
        /// In that process's words.
        why: String,
        /// Its kind.
        class: ExitClass,
    },
    /// A socket option or thread that the machine refuses.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
}

impl Classified for NetError {
    fn class(&self) -> ExitClass {
        match self {
            NetError::Served { class, .. } => *class,
            NetError::Resolve { .. } | NetError::Memory { .. } => ExitClass::Usage,
            NetError::Listen { .. }
            | NetError::NoSuchCc { .. }
            | NetError::NotAllowedCc { .. }
            | NetError::System { .. } => ExitClass::Missing,
            NetError::Stalled { .. } | NetError::TooLong { .. } => ExitClass::Failed,
            NetError::Connect { .. }
            | NetError::Stranger { .. }
            | NetError::Version { .. }
            | NetError::Refused { .. }
            | NetError::Denied(_)
            | NetError::Remote { .. }
            | NetError::Other(_)
            | NetError::Lost { .. } => ExitClass::Peer,
        }
    }
}

impl NetError {
    /// The same for a server's log, where the client's address stands before it: without that address, and without advice
    /// that only the client can follow.
    pub fn in_log(&self) -> String {
        match self {
            NetError::Denied(Denial { why, .. }) => format!("refused: {why}"),
            NetError::Stranger { why, .. } => format!("does not speak fullpipe's protocol ({why})"),
            NetError::Version { theirs, their_protocol, ours, our_protocol, .. } => {
                format!("runs fullpipe {theirs} (protocol {their_protocol}), this is {ours} (protocol {our_protocol})")
            }
            NetError::Lost { doing, source, .. } => format!("lost while {doing}: {source}"),
            NetError::Remote { why, .. } => format!("the run failed at the client: {why}"),
            NetError::TooLong { seconds } => {
                format!("cut off after {seconds:.0} s, the limit for a run (--max-duration)")
            }
            NetError::Memory { buffer, memory } => {
                format!("refused: a buffer of {buffer} is beyond this machine's memory ({memory})")
            }
            other => other.to_string(),
        }
    }

    /// The same for the client of a server at which it happened.
    pub fn for_client(&self) -> String {
        match self {
            NetError::Listen { source, .. } => {
                format!("it has no free port for data streams ({source}); ask its operator to widen --data-ports")
            }
            NetError::NoSuchCc { name, available } => {
                format!(
                    "its kernel has no congestion control '{name}'; it has: {available}. Ask its operator to load it"
                )
            }
            NetError::NotAllowedCc { name, allowed } => {
                format!("it may not use congestion control '{name}', only: {allowed}. Ask its operator to allow it")
            }
            other => other.to_string(),
        }
    }
}

/// What to do about a congestion control that this kernel has not: only Linux's own are loaded by their names
/// ([`crate::socket::check_known`]).
fn advice(name: &str) -> String {
    if LINUX_CONGESTION_CONTROLS.contains(&name) {
        format!(". As root: modprobe tcp_{name}, and add it to net.ipv4.tcp_allowed_congestion_control")
    } else {
        let known = LINUX_CONGESTION_CONTROLS.join(", ");
        format!("; nor has Linux, which has {known}. A module of another origin has to be loaded first")
    }
}

/// Shorthand for [`NetError::System`].
pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> NetError {
    move |source| NetError::System { what, source }
}
