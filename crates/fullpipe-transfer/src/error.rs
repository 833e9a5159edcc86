//! What can go wrong with a transfer as a whole. What concerns one file is a [`Left`](crate::SkippedEntry) instead.

use std::io;

use fullpipe_net::NetError;
use fullpipe_path::{Classified, ExitClass};
/// Why a transfer did not happen or did not end.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// Something in the command is wrong.
    #[error("{0}")]
    Usage(String),
    /// A local file or folder without which there is no transfer.
    #[error("{what}: {source}")]
    Local {
        /// What was tried, with the file's name.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// The destination is full; what is there waits for the same command.
    #[error("{lack} at the destination ({what}); make room and repeat the command, it goes on where it was")]
    Full {
        /// Of what.
        lack: Lack,
        /// What was being written.
        what: String,
    },
    /// What should connect the ends is not there.
    #[error("cannot run {tool}: {source}; install it, or name it with --ssh")]
    NoTool {
        /// Its name.
        tool: String,
        /// Why not.
        source: io::Error,
    },
    /// Another transfer writes there.
    #[error("another fullpipe is writing to {0}; wait for its end")]
    Busy(String),
    /// The far end is no fullpipe, or what came from it was damaged.
    #[error("{peer} does not speak fullpipe's protocol ({why})")]
    Stranger {
        /// Who.
        peer: String,
        /// What came instead.
        why: String,
    },
    /// The far end has another version.
    #[error("{peer} has fullpipe {theirs}, this is {ours}; install the same version on both ends")]
    Version {
        /// Who.
        peer: String,
        /// Its version.
        theirs: String,
        /// Ours.
        ours: &'static str,
    },
    /// The far end says no.
    #[error("{peer} refused: {why}")]
    Refused {
        /// Who.
        peer: String,
        /// In its words.
        why: String,
        /// Whether it may go better later.
        again: bool,
        /// What kind of error it was there.
        class: ExitClass,
    },
    /// What a server says to a client for whom it has no place just now.
    #[error("it is busy with {0} clients, its most; try again later, or raise its --max-clients")]
    Busied(usize),
    /// What a far end says to a client that it does not want.
    #[error("{0}")]
    Denied(String),
    /// The far end failed in the middle.
    #[error("the transfer failed at {peer}: {why}")]
    Remote {
        /// Who.
        peer: String,
        /// In its words.
        why: String,
        /// Whether it may go better the next time.
        again: bool,
        /// What kind of error it was there.
        class: ExitClass,
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
    /// What arrived is not what was sent.
    #[error("data from {peer} was damaged on the way ({what}); the path or a machine on it is at fault")]
    Damaged {
        /// Who.
        peer: String,
        /// What.
        what: String,
    },
    /// Nothing moved.
    #[error(
        "nothing moved for {seconds:.0} s: the path, a disk or the other end is stuck; raise --stall if it is only slow"
    )]
    Stalled {
        /// How long.
        seconds: f64,
    },
    /// Ctrl-C.
    #[error("interrupted; the same command goes on where it was")]
    Interrupted,
    /// The far end could not be started or reached.
    #[error("{0}")]
    Unreachable(String),
    /// TLS.
    #[error("{peer}: {why}")]
    Trust {
        /// Who.
        peer: String,
        /// Why it is not trusted, or does not trust us.
        why: String,
    },
    /// Sockets and measurements.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The machine refuses something.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
}

impl TransferError {
    /// Whether connecting anew and going on may help.
    pub fn again(&self) -> bool {
        match self {
            TransferError::Lost { .. } | TransferError::Damaged { .. } | TransferError::Stalled { .. } => true,
            // Where the network is away for a while, so is the resolver, and ssh fails in words of its own.
            TransferError::Unreachable(_) => true,
            TransferError::Busied(_) => true,
            TransferError::Remote { again, .. } | TransferError::Refused { again, .. } => *again,
            TransferError::Net(error) => {
                matches!(error, NetError::Lost { .. } | NetError::Connect { .. } | NetError::Resolve { .. })
            }
            _ => false,
        }
    }
}

/// What a destination has none left of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    /// Bytes.
    #[error("no space left")]
    Space,
    /// What this user may use.
    #[error("the user's quota is used up")]
    Quota,
    /// Room for more files, however small.
    #[error("no inodes left (df -i)")]
    Inodes,
}

impl Lack {
    /// What an error says; of inodes it does not tell.
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
            | TransferError::Lost { .. }
            | TransferError::Damaged { .. }
            | TransferError::Unreachable(_)
            | TransferError::Trust { .. } => ExitClass::Peer,
        }
    }
}

/// Of a far end that is silent.
pub(crate) const LATE: &str = "it did not answer in time";

/// An error as a person reads it, without the number.
pub(crate) fn why(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        // What a socket with a timeout says when it is over.
        _ if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => LATE.into(),
        // Of a name below a folder that must not be left (openat2(2)).
        Some(libc::EXDEV) => "it leads out of the server's folder".into(),
        Some(libc::EMFILE) => "too many open files; raise its limit (ulimit -n)".into(),
        Some(code) => nix::errno::Errno::from_raw(code).desc().to_lowercase(),
        None if error.kind() == std::io::ErrorKind::UnexpectedEof => "it became shorter while it was read".into(),
        None => error.to_string(),
    }
}

/// What a number from the network means; anything else is the peer's fault.
pub(crate) fn class(code: u8) -> ExitClass {
    ExitClass::from_code(code.into()).unwrap_or(ExitClass::Peer)
}

/// Shorthand for [`TransferError::System`].
pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> TransferError {
    move |source| TransferError::System { what, source }
}

/// Shorthand for [`TransferError::Local`].
pub(crate) fn local(what: impl Into<String>) -> impl FnOnce(io::Error) -> TransferError {
    let what = what.into();
    move |source| match Lack::of(&source) {
        Some(lack) => TransferError::Full { lack, what },
        None => TransferError::Local { what, source },
    }
}
