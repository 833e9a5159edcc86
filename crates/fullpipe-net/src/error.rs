//! What can go wrong between two ends.

use std::io;

use fullpipe_path::transport::LINUX_CONGESTION_CONTROLS;
use fullpipe_path::{Classified, ExitClass, Size};

/// The flags that choose what is listened on.
fn choosing(address: &str) -> &'static str {
    if address.contains("data ports") { "--data-ports" } else { "--port, --data-ports or --bind" }
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
    #[error("cut off after {seconds:.0} s, this server's limit for a run (its --max-duration)")]
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
            | NetError::Remote { .. }
            | NetError::Other(_)
            | NetError::Lost { .. } => ExitClass::Peer,
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
