//! The far end of a transfer as the command line names it: a host to reach over ssh, or a server.

use crate::connection::token::Token;

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
    pub ssh: Vec<std::ffi::OsString>,
    /// The program that is started on the host.
    pub program: FarProgram,
    /// First and last of the ports that the data streams may use at the end that they connect to; `None` for any.
    pub ports: Option<(u16, u16)>,
    /// What carries the data streams.
    pub via: Via,
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
