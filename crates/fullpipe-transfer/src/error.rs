//! The errors that end a transfer. What concerns one file only is a [`SkippedEntry`](crate::SkippedEntry) instead.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use fullpipe_net::{Denial, NetError};
use fullpipe_path::{Classified, ExitClass};

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The command is wrong.
    #[error("{0}")]
    Usage(String),
    /// A local file or folder that the transfer needs cannot be used.
    #[error("{what}: {}", why(.source))]
    Local {
        /// What was tried, with the name of the file.
        what: String,
        /// The error.
        source: io::Error,
    },
    /// The destination is full. What has arrived stays there for the same command.
    #[error("{lack} at the destination ({what}); make room and repeat the command{}", others(*.unfinished))]
    Full {
        /// What the destination has run out of.
        lack: Lack,
        /// The file that was being written.
        what: String,
        /// Number of other commands that were interrupted there and can be resumed.
        unfinished: u64,
    },
    /// The program that should connect the two ends cannot be run.
    #[error("cannot run {tool}: {source}; install it, or name it with --ssh")]
    NoTool {
        /// The program's name.
        tool: String,
        /// The error.
        source: io::Error,
    },
    /// Another transfer holds the destination.
    #[error("another fullpipe is writing to {0}; wait for its end")]
    Busy(String),
    /// The other end is not fullpipe, or sent what fullpipe does not send.
    #[error("{peer} does not speak fullpipe's protocol ({why})")]
    Stranger {
        /// The other end.
        peer: String,
        /// What it sent instead.
        why: String,
    },
    /// The other end has another version of the protocol.
    #[error("{peer} has fullpipe {theirs}, this is {ours}; install the same version on both ends")]
    Version {
        /// The other end.
        peer: String,
        /// The version of the other end.
        theirs: String,
        /// The version of this end.
        ours: String,
    },
    /// The other end refused the transfer.
    #[error("{peer} refused: {why}")]
    Refused {
        /// The other end.
        peer: String,
        /// The reason, in its own words.
        why: String,
        /// Whether a later attempt may succeed.
        retry: bool,
        /// The class of the error at the other end.
        class: ExitClass,
    },
    /// A server refuses a client because it serves as many as it may.
    #[error("it is busy (its --max-clients is {0}); try again later, or ask its operator to raise that")]
    Busied(usize),
    /// All data ports of the server are taken. Each copy keeps one to itself: over TCP until its streams have come, over UDT to
    /// its end.
    #[error(
        "{peer} refused: its data ports {first} to {last} are all in use; try again later, or allow more ports (--data-ports)"
    )]
    PortsTaken {
        /// The server.
        peer: String,
        /// Its first data port.
        first: u16,
        /// Its last data port.
        last: u16,
    },
    /// A server refuses a client for good.
    #[error("{0}")]
    Denied(Denial),
    /// The other end failed.
    #[error("the transfer failed at {peer}: {why}")]
    Remote {
        /// The other end.
        peer: String,
        /// The reason, in its own words.
        why: String,
        /// Whether another attempt may succeed.
        retry: bool,
        /// The class of the error at the other end.
        class: ExitClass,
    },
    /// The connection broke.
    #[error("lost {peer} while {doing}: {source}")]
    Lost {
        /// The other end.
        peer: String,
        /// What this end was doing.
        doing: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Data were damaged on the way.
    #[error(
        "data from {peer} was damaged on the way ({what}); the path, a machine on it, or the far end itself is at fault"
    )]
    Damaged {
        /// The other end.
        peer: String,
        /// Which data.
        what: String,
    },
    /// The transfer made no progress for too long.
    #[error(
        "nothing moved for {seconds:.0} s: the path, a disk or the other end is stuck; raise --stall if it is only slow"
    )]
    Stalled {
        /// Time without progress, seconds.
        seconds: f64,
    },
    /// The user interrupted the transfer.
    #[error("interrupted; the same command goes on where it was")]
    Interrupted,
    /// The server could not be started or reached.
    #[error("{0}")]
    Unreachable(String),
    /// The far host can be reached, but not its port for the data streams.
    #[error(
        "cannot connect to {to} for the data: {why}; open a data port there (--data-ports; for a server, that of its \
         'fullpipe serve', where --data-ports same needs no further port), or copy over ssh alone (HOST:PATH, --via ssh)"
    )]
    NoDataPort {
        /// The host, and its port if that is known.
        to: String,
        /// What happened instead.
        why: String,
    },
    /// The far host can be reached, but it cannot reach this host's port for the data streams.
    #[error(
        "{peer} cannot connect to this host for the data ({why}); open a port here (--data-ports), or copy without \
         --via reverse"
    )]
    NoReversePath {
        /// The far host.
        peer: String,
        /// What happened instead, in its own words.
        why: String,
    },
    /// Two far hosts can be reached, but neither can reach the other's port for the data streams.
    #[error(
        "{from} and {to} cannot connect to each other for the data ({why}); open a data port at one of them (--data-ports), or \
         copy without --via tcp, so that the data go through this host"
    )]
    NoDirectPath {
        /// The host with the sources.
        from: String,
        /// The host with the destination.
        to: String,
        /// What happened instead, at both hosts.
        why: String,
    },
    /// The far host can be reached, but not over UDP.
    #[error(
        "no answer over UDP from {to} within {} s, as if a firewall dropped it; let UDP through to a data port there \
         (--data-ports; for a server, that of its 'fullpipe serve'), or copy without --transport udt",
        within.as_secs_f64()
    )]
    NoUdp {
        /// Address and port that were called.
        to: SocketAddr,
        /// Time for which an answer was waited for.
        within: Duration,
    },
    /// The server takes streams at its control port alone, which is TCP's.
    #[error("{0} takes data at the port of control connections alone, over TCP; copy without --transport udt")]
    TcpOnly(String),
    /// One end does not trust the other.
    #[error("{peer}: {why}")]
    Trust {
        /// The other end.
        peer: String,
        /// Why this end does not trust the other, or the other this one.
        why: String,
    },
    /// A socket or a measurement failed.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The operating system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The error.
        source: io::Error,
    },
}

impl TransferError {
    /// The error for a server's log, where the client's address stands before it: without that address, and without advice
    /// that only the client can follow.
    pub fn in_log(&self) -> String {
        match self {
            TransferError::Denied(Denial { why, .. }) => format!("refused: {why}"),
            TransferError::Busied(most) => format!("refused: busy (--max-clients {most})"),
            TransferError::PortsTaken { first, last, .. } => {
                format!("refused: data ports {first} to {last} are all in use")
            }
            TransferError::Full { lack, what, .. } => format!("{lack} ({what})"),
            TransferError::Busy(place) => format!("refused: another fullpipe is writing to {place}"),
            TransferError::Stranger { why, .. } => format!("does not speak fullpipe's protocol ({why})"),
            TransferError::Version { theirs, ours, .. } => format!("has fullpipe {theirs}, this is {ours}"),
            TransferError::Remote { why, .. } => format!("the transfer failed at the client: {why}"),
            TransferError::Lost { doing, source, .. } => format!("lost while {doing}: {source}"),
            TransferError::Damaged { what, .. } => format!("data were damaged on the way ({what})"),
            TransferError::Trust { why, .. } => why.clone(),
            TransferError::TcpOnly(_) => {
                "refused: UDT, but data streams come to the control port (--data-ports same)".to_owned()
            }
            TransferError::Net(error) => error.in_log(),
            other => other.to_string(),
        }
    }

    /// The error for the client of the server at which it happened.
    pub(crate) fn for_client(&self) -> String {
        match self {
            TransferError::Net(error) => error.for_client(),
            other => other.to_string(),
        }
    }

    /// The error of writing a file that belongs to no destination, such as a token file, with what to do about it.
    pub fn of_file(what: impl Into<String>, source: &io::Error) -> TransferError {
        let remedy = match source.kind() {
            io::ErrorKind::NotFound => "; make its folder first",
            io::ErrorKind::NotADirectory => "; a file stands where its folder should be",
            io::ErrorKind::AlreadyExists => "; remove it first, or choose a new name",
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room there and run the command again",
            io::ErrorKind::PermissionDenied => "; run it as a user who may write there",
            io::ErrorKind::ReadOnlyFilesystem => "; choose a place that can be written to",
            _ => "",
        };
        let source = io::Error::new(source.kind(), format!("{}{remedy}", why(source)));
        TransferError::Local { what: what.into(), source }
    }

    /// Returns what the data streams could not reach and why, if that is the error: the far host itself was reached.
    pub fn no_data_path(&self) -> Option<(&str, String)> {
        match self {
            TransferError::NoDataPort { to, why } | TransferError::NoDirectPath { to, why, .. } => {
                Some((to.as_str(), why.clone()))
            }
            TransferError::NoReversePath { peer, why } => Some((peer.as_str(), why.clone())),
            TransferError::PortsTaken { peer, first, last } => {
                Some((peer.as_str(), format!("its data ports {first} to {last} are all in use")))
            }
            TransferError::Lost { peer, doing: CONNECTING, source } => Some((peer.as_str(), why(source))),
            _ => None,
        }
    }

    /// Whether another transfer holds the destination. After a lost connection, the process at its far end may still hold it, as
    /// while a disk stalls.
    pub fn is_locked(&self) -> bool {
        matches!(self, TransferError::Busy(_) | TransferError::Refused { retry: true, class: ExitClass::Record, .. })
    }

    /// Whether another attempt may succeed without a change by the user. A lock is not waited for, unless this copy may hold it
    /// itself ([`TransferError::is_locked`]).
    pub fn may_retry(&self) -> bool {
        match self {
            TransferError::Lost { .. } | TransferError::Damaged { .. } | TransferError::Stalled { .. } => true,
            // While the network is down, names do not resolve, and ssh fails with messages of its own.
            TransferError::Unreachable(_)
            | TransferError::NoDataPort { .. }
            | TransferError::NoReversePath { .. }
            | TransferError::NoDirectPath { .. }
            | TransferError::NoUdp { .. } => true,
            TransferError::Busied(_) | TransferError::PortsTaken { .. } => true,
            TransferError::Remote { retry, .. } => *retry,
            TransferError::Refused { retry, .. } => *retry && !self.is_locked(),
            TransferError::Net(error) => {
                matches!(error, NetError::Lost { .. } | NetError::Connect { .. } | NetError::Resolve { .. })
            }
            _ => false,
        }
    }
}

/// The advice on what else takes room at a destination: the unfinished copies of other commands.
fn others(unfinished: u64) -> String {
    match unfinished {
        0 => String::new(),
        1 => "; an unfinished copy of another command takes room there (.fullpipe.*): finish or remove it".to_owned(),
        n => format!("; {n} unfinished copies of other commands take room there (.fullpipe.*): finish or remove them"),
    }
}

/// What a destination has run out of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    /// Space on the disk.
    #[error("no space left")]
    Space,
    /// The user's quota.
    #[error("the user's quota is used up")]
    Quota,
    /// Inodes: no more files can be made, however small.
    #[error("no inodes left (df -i)")]
    Inodes,
}

impl Lack {
    /// What an error means; `None` if it is another error. It cannot distinguish inodes from space.
    pub(crate) fn of(error: &io::Error) -> Option<Lack> {
        match error.raw_os_error()? {
            libc::ENOSPC => Some(Lack::Space),
            libc::EDQUOT => Some(Lack::Quota),
            _ => None,
        }
    }
}

impl Classified for TransferError {
    fn class(&self) -> ExitClass {
        match self {
            TransferError::Usage(_) => ExitClass::Usage,
            TransferError::Local { .. } | TransferError::Full { .. } | TransferError::Busy(_) => ExitClass::Record,
            TransferError::NoTool { .. } | TransferError::System { .. } => ExitClass::Missing,
            TransferError::Stalled { .. } => ExitClass::Failed,
            TransferError::Interrupted => ExitClass::Interrupted,
            TransferError::Net(error) => error.class(),
            TransferError::Refused { class, .. } | TransferError::Remote { class, .. } => *class,
            TransferError::Stranger { .. }
            | TransferError::Version { .. }
            | TransferError::Denied(_)
            | TransferError::Busied(_)
            | TransferError::PortsTaken { .. }
            | TransferError::Lost { .. }
            | TransferError::Damaged { .. }
            | TransferError::Unreachable(_)
            | TransferError::NoDataPort { .. }
            | TransferError::NoReversePath { .. }
            | TransferError::NoDirectPath { .. }
            | TransferError::NoUdp { .. }
            | TransferError::TcpOnly(_)
            | TransferError::Trust { .. } => ExitClass::Peer,
        }
    }
}

/// What this end does while the data streams are opened, for errors.
pub(crate) const CONNECTING: &str = "connecting the streams";

/// The text for an end that does not answer.
pub(crate) const LATE: &str = "it did not answer in time";

/// The text for a file that ended before its size.
pub(crate) const SHORTER: &str = "it became shorter while it was read";

/// The text of an error for a person, without the error's number.
pub(crate) fn why(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        // What a socket with a timeout returns when the time is over.
        _ if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => LATE.into(),
        // A name leads out of a folder that must not be left (openat2(2)).
        Some(libc::EXDEV) => "it leads out of the server's folder".into(),
        Some(libc::EMFILE) => "too many open files; raise its limit (ulimit -n)".into(),
        Some(code) => nix::errno::Errno::from_raw(code).desc().to_lowercase(),
        None if error.kind() == std::io::ErrorKind::UnexpectedEof => SHORTER.into(),
        None => error.to_string(),
    }
}

/// Whether an error of opening a folder means that it is gone, or that a file or a symbolic link stands in its place.
pub(crate) fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ELOOP))
        || matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// The text of an error of reading a source, with what failed and where. It goes to both ends, so it names neither as "here".
pub(crate) fn unreadable(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        // These texts say of themselves what was read.
        None | Some(libc::EXDEV) => why(error),
        _ => format!("cannot be read at the source: {}", why(error)),
    }
}

/// The class that a number from the network means. A number without a class counts as the peer's error, and so does what the peer's
/// host lacks.
pub(crate) fn class(code: u8) -> ExitClass {
    match ExitClass::from_code(code.into()) {
        None | Some(ExitClass::Missing) => ExitClass::Peer,
        Some(class) => class,
    }
}

/// Turns an error into [`TransferError::System`].
pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> TransferError {
    move |source| TransferError::System { what, source }
}

/// Turns an error into [`TransferError::Local`], or into [`TransferError::Full`] if the destination is full.
pub(crate) fn local(what: impl Into<String>) -> impl FnOnce(io::Error) -> TransferError {
    let what = what.into();
    move |source| match Lack::of(&source) {
        Some(lack) => TransferError::Full { lack, what, unfinished: 0 },
        None => TransferError::Local { what, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_told_from_other_refusals_to_write() {
        let refused = |retry, class| TransferError::Refused { peer: "far".into(), why: "no".into(), retry, class };
        let held = refused(true, ExitClass::Record);
        assert!(held.is_locked() && !held.may_retry());
        let full = refused(false, ExitClass::Record);
        assert!(!full.is_locked() && !full.may_retry());
        let busy = refused(true, ExitClass::Peer);
        assert!(!busy.is_locked() && busy.may_retry());
    }
}
