//! Paths `ssh:HOST`: this program starts the server of the measurement at the host, over ssh.

use std::ffi::OsString;
use std::sync::atomic::AtomicBool;

use fullpipe_net::NetError;
use fullpipe_path::{Classified, Host};
use fullpipe_transfer::client::far_server::FarServer;
use fullpipe_transfer::connection::endpoint::SshEndpoint;

use super::Args;
use crate::commands::cp;
use crate::config;
use crate::failure::{Failure, Result};
use crate::output::errln;

/// Begins a path over ssh.
const MARK: &str = "ssh:";

/// A host that is reached over ssh, and the server there.
pub(super) struct OverSsh {
    /// The host as the record names it: without the user, with the default port of a server.
    pub(super) described: Host,
    endpoint: SshEndpoint,
    /// The server, once it is started.
    pub(super) server: Option<FarServer>,
}

/// Returns how to reach the host of `ssh:HOST`, if the path is such a one.
///
/// # Errors
/// The host is none that ssh takes, or a flag has no effect there, or only there.
pub(super) fn asked(args: &Args, cli: &clap::Command) -> Result<Option<OverSsh>> {
    let Some(host) = args.path.strip_prefix(MARK) else {
        let given = [(args.ssh.is_some(), "--ssh"), (args.data_ports.is_some(), "--data-ports")];
        return match given.into_iter().find(|(given, _)| *given) {
            Some((_, flag)) => Err(Failure::usage(format!(
                "{flag} is for a host that is reached over ssh; write its name as ssh:HOST"
            ))),
            None => Ok(None),
        };
    };
    let name = config::host_name(host);
    let whole = host.rsplit_once('@').map_or(host, |(_, rest)| rest);
    if whole.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')) {
        let why = format!("'{}': give ssh's port in the command: --ssh 'ssh -p PORT' {MARK}{name}", args.path);
        return Err(Failure::usage(why));
    }
    let described: Host = Host { name: name.to_owned(), port: fullpipe_path::host::DEFAULT_PORT };
    // The record names it, and those who read the record read this name.
    if described.to_string().parse().ok().as_ref() != Some(&described) {
        return Err(Failure::usage(format!("'{}' is not a host that ssh reaches; give {MARK}HOST", args.path)));
    }
    if args.token_file.is_some() {
        let why =
            "--token-file is for a host that runs 'fullpipe serve'; over ssh the server needs no token, leave it out";
        return Err(Failure::usage(why));
    }
    let flags = [("--ssh", &args.ssh), ("--data-ports", &args.data_ports)];
    let flags = flags.into_iter().flat_map(|(flag, value)| value.iter().map(move |value| format!("{flag}={value}")));
    let endpoint = cp::over_ssh(host, flags.map(OsString::from).collect(), cli)?;
    Ok(Some(OverSsh { described, endpoint, server: None }))
}

impl OverSsh {
    /// Starts the server, unless it runs.
    pub(super) fn start(&mut self, args: &Args, interrupted: Option<&AtomicBool>) -> Result {
        if self.server.is_none() {
            let never = AtomicBool::new(false);
            let say = |words: &str| {
                if !args.quiet {
                    errln!("{words}");
                }
            };
            let stall = args.stall().duration();
            self.server = Some(FarServer::start(&self.endpoint, stall, interrupted.unwrap_or(&never), &say)?);
        }
        Ok(())
    }

    /// Ends the server.
    pub(super) fn end(&mut self) {
        self.server = None;
    }

    /// The error of a measurement. Where the server's port does not answer, it says so: ssh has reached the host.
    pub(super) fn explain(&self, error: NetError) -> Failure {
        match &error {
            NetError::Connect { host, source } => Failure::new(
                error.class(),
                format!(
                    "ssh reaches {}, but {host} does not answer ({source}); have ports there opened in the firewall, and name \
                     them with --data-ports FIRST-LAST",
                    self.endpoint.host
                ),
            ),
            _ => error.into(),
        }
    }
}
