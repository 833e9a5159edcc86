//! Where the server of a transfer is, and how it is reached.

use crate::connection::token::Token;

/// How the far end is reached.
#[derive(Debug, Clone)]
pub enum Endpoint {
    /// It is started over ssh.
    Ssh {
        /// As ssh takes it: `user@host` or a name of its configuration.
        host: String,
        /// The program and its own options, `ssh` by default.
        ssh: Vec<std::ffi::OsString>,
        /// What is started there, `fullpipe` by default.
        program: String,
        /// Ports that its streams may use there.
        ports: Option<String>,
    },
    /// A standing server.
    Server {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
        /// What it wants to hear, and its certificate's fingerprint; none where it wants neither.
        token: Option<Token>,
    },
}

impl Endpoint {
    /// The far host, as typed.
    pub(crate) fn name(&self) -> &str {
        match self {
            Endpoint::Ssh { host, .. } | Endpoint::Server { host, .. } => host,
        }
    }
}
