//! The far end of a transfer as the command line names it: a host to reach over ssh, or a server.

use crate::connection::token::Token;

/// A far end, and how it is reached.
#[derive(Debug, Clone)]
pub enum Endpoint {
    /// A far end that is started over ssh.
    Ssh {
        /// The host in ssh's form: `user@host`, or a name from ssh's configuration.
        host: String,
        /// The ssh program and its own options, `ssh` by default.
        ssh: Vec<std::ffi::OsString>,
        /// The program that is started on the host, `fullpipe` by default.
        program: String,
        /// The range of ports on the host that the data streams may use; `None` for any.
        ports: Option<String>,
    },
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

impl Endpoint {
    /// The far host, as the user typed it.
    pub(crate) fn name(&self) -> &str {
        match self {
            Endpoint::Ssh { host, .. } | Endpoint::Server { host, .. } => host,
        }
    }
}
