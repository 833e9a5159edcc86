//! The far end of a transfer as the command line names it: a host to reach over ssh, or a server.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::connection::token::Token;
use crate::protocol::name::printable;

/// A far end, and how it is reached.
#[derive(Debug, Clone)]
pub enum Endpoint {
    /// A far end that is started over ssh.
    Ssh(SshEndpoint),
    /// A server that is running already.
    Server {
        /// Name or address of the host.
        host: String,
        /// The server's port.
        port: u16,
        /// The server's token, which has its certificate's fingerprint; `None` if it takes clients without one.
        token: Option<Token>,
    },
}

/// A far end that is started over ssh.
#[derive(Debug, Clone)]
pub struct SshEndpoint {
    /// The host in ssh's form: `user@host`, or a name from ssh's configuration.
    pub host: String,
    /// The ssh program and its own options, `ssh` by default.
    pub ssh: Vec<OsString>,
    /// The program that is started on the host.
    pub program: FarProgram,
    /// First and last of the ports that the data streams may use at the end that they connect to; `None` for any.
    pub ports: Option<(u16, u16)>,
    /// What carries the data streams.
    pub via: Via,
}

/// Begins what ssh prints if a host's name is unknown.
pub const NAME_UNKNOWN: &str = "Could not resolve hostname";

/// The command that tries a host as ssh is called for it, quoted for a shell, with `rest` behind it. Of another command than ssh,
/// in which a password may stand, only its place is named.
pub fn command_to_try(ssh: &[OsString], host: &str, rest: &str) -> String {
    let is_ssh = |program: &OsString| Path::new(program).file_name().is_some_and(|name| name == "ssh");
    let quoted = |word: &str| shlex::try_quote(word).map_or_else(|_| word.to_owned(), Cow::into_owned);
    let program = match ssh.first() {
        Some(program) if is_ssh(program) => {
            ssh.iter().map(|word| quoted(&printable(word.as_bytes()))).collect::<Vec<_>>().join(" ")
        }
        _ => "the command of --ssh, with".to_owned(),
    };
    format!("{program} {}{rest}", quoted(host))
}

/// The program that is started on a far host.
#[derive(Debug, Clone)]
pub enum FarProgram {
    /// A program of the host, as its shell finds it.
    Named(String),
    /// A fullpipe of this version: the one on the PATH, or one that was sent before.
    Found {
        /// Whether one is sent if the host has none.
        send: bool,
        /// The file to send; the program that runs if there is none.
        file: Option<std::path::PathBuf>,
    },
}

/// What carries the data streams of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// Connections to a port of the far host: TCP's, or UDT's if the transport is that.
    Tcp,
    /// Connections of the far host to a port here, over TCP.
    Reverse,
    /// [`Via::Tcp`], or [`Via::Reverse`] where that gets through and the former does not.
    Either,
    /// Connections of the user's ssh, one for each stream.
    Ssh,
}

impl Endpoint {
    /// The far host, as the user typed it.
    pub(crate) fn name(&self) -> &str {
        match self {
            Endpoint::Ssh(SshEndpoint { host, .. }) | Endpoint::Server { host, .. } => host,
        }
    }

    /// What carries the data streams.
    #[must_use]
    pub fn via(&self) -> Via {
        match self {
            Endpoint::Ssh(ssh) => ssh.via,
            Endpoint::Server { .. } => Via::Tcp,
        }
    }
}
