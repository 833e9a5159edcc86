//! Errors between the two hosts of a run.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use fullpipe_path::transport::LINUX_CONGESTION_CONTROLS;
use fullpipe_path::{Classified, ExitClass, Size};
use serde::{Deserialize, Serialize};

/// The flags of `fullpipe serve` that choose the address of a listener.
fn choosing(address: &str) -> &'static str {
    if address.contains("data ports") { "--data-ports" } else { "--port, --data-ports or --bind" }
}

/// Why a port was not reached.
fn unreached(within: Duration, source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::TimedOut => format!("no answer within {within:?}, as if a firewall dropped it"),
        _ => source.to_string(),
    }
}

/// Says that buffers are too large.
pub(crate) fn too_large(count: u32, buffer: Size, memory: Size) -> String {
    if count == 1 {
        format!("a buffer of {buffer} is larger than the memory that there is for it ({memory})")
    } else {
        format!(
            "{count} buffers of {buffer} (UDT has two for each stream) are larger than the memory that there is for them \
             ({memory})"
        )
    }
}

/// Says that a run has too many samples.
pub(crate) fn too_many_samples(count: Option<u64>, most: u64) -> String {
    match count {
        Some(count) => format!("the run would take {count} samples, and at most {most} are kept"),
        None => format!("stopped: the run has taken the {most} samples that are kept of one"),
    }
}

/// The reason why a server refuses a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// The reason, for the client's user and the server's log.
    pub why: String,
    /// What the client's user can do. Only the client gets it.
    pub advice: Option<String>,
}

impl Denial {
    /// Makes a denial of a reason and what the client's user can do.
    pub fn new(why: impl Into<String>, advice: impl Into<String>) -> Denial {
        Denial { why: why.into(), advice: Some(advice.into()) }
    }
}

impl From<String> for Denial {
    fn from(why: String) -> Denial {
        Denial { why, advice: None }
    }
}

/// The text for the client.
impl std::fmt::Display for Denial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)?;
        self.advice.as_ref().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

/// The reason why a run did not start or did not finish.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The server cannot be reached.
    #[error("cannot connect to {host}: {source}; is 'fullpipe serve' running there, and the port open?")]
    Connect {
        /// The host as the user named it.
        host: String,
        /// The connection's error.
        source: io::Error,
    },
    /// The server has answered, and its port for data streams cannot be reached.
    #[error(
        "the server answers, but its port for data streams, {to}, does not ({}); ask its operator to open its --data-ports in \
         the firewall, or to serve data on the port that answers ('fullpipe serve --data-ports same')",
        unreached(*.within, .source)
    )]
    NoDataPort {
        /// Address and port of the data streams.
        to: SocketAddr,
        /// Time for which an answer was waited for.
        within: Duration,
        /// The connection's error.
        source: io::Error,
    },
    /// The server has answered over TCP, and not over UDP.
    #[error(
        "no answer over UDP from {to} within {} s, though TCP passes; let UDP through to the server's --data-ports, or measure \
             over TCP (--transport tcp)",
        within.as_secs_f64()
    )]
    NoUdp {
        /// Address and port that were called.
        to: SocketAddr,
        /// Time for which an answer was waited for.
        within: Duration,
    },
    /// A datagram of the size that was asked for does not fit into a packet.
    #[error(
        "datagrams of {asked} bytes do not fit into a packet here: give --datagram-size {most} or less (larger ones would be sent in \
             pieces, and lost with each piece)"
    )]
    Datagram {
        /// Payload that was asked for, bytes.
        asked: u32,
        /// Largest payload of a datagram, bytes.
        most: u32,
    },
    /// This host's end of a connection cannot be what the user chose.
    #[error("cannot bind to {end}: {source}; 'ip address' lists this host's addresses and interfaces (--bind)")]
    Bind {
        /// Address and interface as the user gave them.
        end: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The host has no address of the family of this host's end.
    #[error("host '{host}' has no {} address, which --bind {end} needs", if *.is_ipv4 { "IPv4" } else { "IPv6" })]
    OtherFamily {
        /// The host as the user named it.
        host: String,
        /// This host's end as the user gave it.
        end: String,
        /// Whether that has an IPv4 address.
        is_ipv4: bool,
    },
    /// The host's name does not resolve.
    #[error("cannot resolve host '{host}': {source}; {}", what_to_check(.host))]
    Resolve {
        /// The host as the user named it.
        host: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// A link-local address without the interface on which it is.
    #[error(
        "{address} is a link-local address, which says nothing without its interface; write {address}%eth0 for the one on eth0"
    )]
    NoZone {
        /// The address as the user gave it.
        address: String,
    },
    /// The server cannot listen on an address.
    #[error(
        "cannot listen on {address}: {source}; choose another one with {}, or stop the program that uses it",
        choosing(address)
    )]
    Listen {
        /// Address and port, or address and range of data ports.
        address: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The other end does not speak fullpipe's protocol.
    #[error("{peer} does not speak fullpipe's protocol ({why}); is another program on that port?")]
    Stranger {
        /// The other end's address.
        peer: String,
        /// What it sent instead.
        why: String,
    },
    /// The other end reports what cannot be.
    #[error("{peer} reports what cannot be ({why}), so there is no result; is its program damaged, or another one?")]
    Implausible {
        /// The other end's address.
        peer: String,
        /// What cannot be.
        why: String,
    },
    /// The other end has another version.
    #[error(
        "{peer} runs fullpipe {theirs} (protocol {their_protocol}), this is {ours} (protocol {our_protocol}); \
             install the same version on both ends"
    )]
    Version {
        /// The other end's address.
        peer: String,
        /// The version of fullpipe at the other end.
        theirs: String,
        /// The version of its protocol.
        their_protocol: u32,
        /// The version of this program.
        ours: &'static str,
        /// The version of this program's protocol.
        our_protocol: u32,
    },
    /// The other end refused the run.
    #[error("{peer} refused: {why}")]
    Refused {
        /// The other end's address.
        peer: String,
        /// The reason that it gave, made safe to show.
        why: String,
        /// If it may not use the congestion control that was asked for: the one that it offers, which this kernel knows.
        usable_cc: Option<String>,
    },
    /// This server refused a client.
    #[error("{0}")]
    Denied(Denial),
    /// The user ended it before it began.
    #[error("interrupted")]
    Interrupted,
    /// The run failed at the other end.
    #[error("the run failed at {peer}: {why}")]
    Remote {
        /// The other end's address.
        peer: String,
        /// The reason that it gave, made safe to show.
        why: String,
        /// Whether nothing moved for too long, so that neither end is at fault.
        is_stall: bool,
    },
    /// The connection to the other end broke.
    #[error("lost {peer} while {doing}: {source}")]
    Lost {
        /// The other end's address.
        peer: String,
        /// The step in which the connection broke.
        doing: &'static str,
        /// The connection's error.
        source: io::Error,
    },
    /// No data moved for the time that `--stall` allows.
    #[error(
        "no data moved for {seconds:.0} s: the path or the other end is stuck; raise --stall if the path is only slow"
    )]
    Stalled {
        /// Seconds without data.
        seconds: f64,
    },
    /// The run took longer than the server lets a client without a token run.
    #[error(
        "cut off after {seconds:.0} s, this server's limit for a run; ask for less, or ask its operator to raise \
         --max-duration"
    )]
    TooLong {
        /// The limit, seconds.
        seconds: f64,
    },
    /// This kernel does not have the congestion control.
    #[error("this kernel has no congestion control '{name}'; it has: {available}{}", advice(.name))]
    NoSuchCc {
        /// Its name as the user gave it.
        name: String,
        /// The congestion controls that are loaded (`tcp_available_congestion_control`).
        available: String,
    },
    /// The kernel has the congestion control and does not let this user set it.
    #[error(
        "this user may not use congestion control '{name}', only: {allowed}. As root: \
         sysctl -w net.ipv4.tcp_allowed_congestion_control=\"{allowed} {name}\""
    )]
    NotAllowedCc {
        /// Its name as the user gave it.
        name: String,
        /// The congestion controls that users may set (`tcp_allowed_congestion_control`).
        allowed: String,
    },
    /// Buffers larger than the memory that there is for them.
    #[error(
        "{}; choose a smaller --buffer{}",
        too_large(*.count, *.buffer, *.memory),
        if *.count > 2 { ", or fewer --streams" } else { "" }
    )]
    Memory {
        /// The buffer that was asked for.
        buffer: Size,
        /// How many such buffers were asked for.
        count: u32,
        /// Physical memory of this machine, or what a process may use of it.
        memory: Size,
    },
    /// More samples than a host keeps of a run.
    #[error("{}; give a longer --sample, or fewer --streams", too_many_samples(*.count, *.most))]
    TooManySamples {
        /// Number of samples of the whole run; `None` if it was not known before.
        count: Option<u64>,
        /// Most samples that are kept.
        most: u64,
    },
    /// Any other reason, as text.
    #[error("{0}")]
    Other(String),
    /// The process that served a client failed.
    #[error("{why}")]
    Served {
        /// The reason that the process gave.
        why: String,
        /// The class of its error.
        class: ExitClass,
    },
    /// The kernel refused a system call.
    #[error("{what}: {source}")]
    System {
        /// The step that failed.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl Classified for NetError {
    fn class(&self) -> ExitClass {
        match self {
            NetError::Served { class, .. } => *class,
            NetError::Interrupted => ExitClass::Interrupted,
            NetError::Resolve { .. }
            | NetError::NoZone { .. }
            | NetError::Bind { .. }
            | NetError::OtherFamily { .. }
            | NetError::Datagram { .. }
            | NetError::Memory { .. }
            | NetError::TooManySamples { .. } => ExitClass::Usage,
            NetError::Listen { .. }
            | NetError::NoSuchCc { .. }
            | NetError::NotAllowedCc { .. }
            | NetError::System { .. } => ExitClass::Missing,
            NetError::Stalled { .. } | NetError::TooLong { .. } | NetError::Remote { is_stall: true, .. } => {
                ExitClass::Failed
            }
            NetError::Connect { .. }
            | NetError::NoDataPort { .. }
            | NetError::NoUdp { .. }
            | NetError::Stranger { .. }
            | NetError::Implausible { .. }
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
    /// Returns the error to report of those with which the addresses of a host failed: the first that is about the host, or else the
    /// first. That this host has no IPv6, for one, explains nothing if the host has an IPv4 address, too.
    pub fn most_telling(mut errors: Vec<NetError>) -> Option<NetError> {
        let first = errors.iter().position(|error| !error.is_of_this_host()).unwrap_or(0);
        (first < errors.len()).then(|| errors.swap_remove(first))
    }

    /// Whether an address failed because this host cannot reach any such address.
    fn is_of_this_host(&self) -> bool {
        match self {
            NetError::NoZone { .. } => true,
            NetError::Connect { source, .. } | NetError::Bind { source, .. } | NetError::System { source, .. } => {
                matches!(source.raw_os_error(), Some(libc::ENETUNREACH | libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
            }
            _ => false,
        }
    }

    /// Returns the error's text for a server's log. It leaves out the client's address, which the log puts first, and advice
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
            other => other.to_string(),
        }
    }

    /// Returns the error's text for the client of the server at which it happened.
    pub fn for_client(&self) -> String {
        match self {
            NetError::Listen { address, source } => {
                format!(
                    "it has no free port for data streams at {address} ({source}); widen --data-ports: the one that you gave, or else its operator's"
                )
            }
            NetError::NoSuchCc { name, available } => {
                format!(
                    "its kernel has no congestion control '{name}'; it has: {available}. Ask its operator to load it"
                )
            }
            NetError::NotAllowedCc { name, allowed } => {
                format!(
                    "it may not use congestion control '{name}', only: {allowed}. Choose one of these with --cc, or ask its operator \
                     to allow it"
                )
            }
            other => other.to_string(),
        }
    }
}

/// What to check of a host that does not resolve.
fn what_to_check(host: &str) -> String {
    match host.rsplit_once('%') {
        Some((_, zone)) if nix::net::if_::if_nametoindex(zone).is_err() => {
            format!("this host has no interface {}", fullpipe_path::text::from_peer(zone))
        }
        _ => "check the name".into(),
    }
}

/// Advice for a congestion control that this kernel does not have. The kernel loads only Linux's own by their names
/// (see [`crate::socket::check_known`]).
fn advice(name: &str) -> String {
    if LINUX_CONGESTION_CONTROLS.contains(&name) {
        format!(". As root: modprobe tcp_{name}, and add it to net.ipv4.tcp_allowed_congestion_control")
    } else {
        let known = LINUX_CONGESTION_CONTROLS.join(", ");
        format!("; Linux has no such module, only {known}. Load the module first if it comes from elsewhere")
    }
}

/// Shorthand for [`NetError::System`].
pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> NetError {
    move |source| NetError::System { what, source }
}
