//! Hosts `ssh:HOST`: this program starts a server for measurements there, over ssh. And the ssh command for a host.

use std::ffi::{OsStr, OsString};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Command;
use fullpipe_net::NetError;
use fullpipe_path::{Classified, ExitClass, Host, Rate, Time, host};
use fullpipe_transfer::client::far_server::FarServer;
use fullpipe_transfer::connection::endpoint::{FarProgram, SshEndpoint, Via};

use crate::config::{self, Config, Reached};
use crate::failure::{Failure, Result};
use crate::output::errln;
use crate::ports;

/// Begins the name of a host that is reached over ssh.
const MARK: &str = "ssh:";
/// The program that connects, unless another one is named.
pub const SSH: &str = "ssh";
/// Longest time for which a host may be silent while the server starts.
const SILENCE: Duration = Duration::from_secs(60);
/// Longest time to connect to the server.
const CONNECTS: Duration = Duration::from_secs(10);

/// A host that is reached over ssh, and the server there.
pub struct OverSsh {
    /// The host as a record names it: without the user, with the default port of a server.
    pub described: Host,
    endpoint: SshEndpoint,
    quiet: bool,
    /// The server, once it is started.
    pub server: Option<FarServer>,
}

impl OverSsh {
    /// Finds out how ssh reaches the host of `ssh:HOST`; `None` if the text is another one. `ssh` and `data_ports` are what was
    /// typed, which counts more than the configuration files. With `quiet`, what takes time is not said.
    ///
    /// # Errors
    /// The host is none that ssh takes, or a flag or a file is wrong.
    pub fn parse(
        text: &str,
        (ssh, data_ports): (Option<&str>, Option<&str>),
        quiet: bool,
        cli: &Command,
    ) -> Result<Option<OverSsh>> {
        let Some(host) = text.strip_prefix(MARK) else { return Ok(None) };
        let name = config::host_name(host);
        let place = host.rsplit_once('@').map_or(host, |(_, place)| place);
        if place.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')) {
            let why =
                format!("'{text}': give ssh's port in the command, as in --ssh 'ssh -p PORT', or in the configuration");
            return Err(Failure::usage(why));
        }
        let described = Host { name: name.to_owned(), port: host::DEFAULT_PORT };
        // The record names it, and those who read the record read this name.
        if described.to_string().parse().ok().as_ref() != Some(&described) {
            return Err(Failure::usage(format!("'{text}' is not a host that ssh reaches; give {MARK}HOST")));
        }
        let set = match cli.find_subcommand("cp") {
            Some(cp) => Config::read()?.settings(cp, name, Vec::new(), Some(Reached::OverSsh))?,
            None => Vec::new(),
        };
        let set = |flag: &str| set.iter().find(|setting| setting.flag == flag).and_then(|setting| setting.given());
        let command = ssh.or_else(|| set("ssh")).unwrap_or(SSH);
        let ssh = ssh_command(command, ["port", "identity", "jump"].map(|flag| set(flag).map(OsStr::new)))?;
        let ports = data_ports.or_else(|| set("data-ports"));
        let program = match set("far-program") {
            Some(program) => FarProgram::Named(program.to_owned()),
            None => FarProgram::Found { send: set("no-deploy").is_none(), file: set("far-binary").map(Into::into) },
        };
        let ports = ports.map(|text| ports::data_ports(Some(text))).transpose()?;
        // ssh takes an IPv6 address without brackets.
        let host = host.replace(['[', ']'], "");
        let endpoint = SshEndpoint { host, ssh, program, ports, via: Via::Tcp };
        Ok(Some(OverSsh { described, endpoint, quiet, server: None }))
    }

    /// Starts the server, unless it runs.
    ///
    /// # Errors
    /// It cannot be started, or the wait was interrupted.
    pub fn start(&mut self, interrupted: Option<&AtomicBool>) -> Result<&FarServer> {
        let server = match self.server.take() {
            Some(server) => server,
            None => {
                let never = AtomicBool::new(false);
                let say = |words: &str| {
                    if !self.quiet {
                        errln!("{words}");
                    }
                };
                FarServer::start(&self.endpoint, SILENCE, interrupted.unwrap_or(&never), &say)?
            }
        };
        Ok(self.server.insert(server))
    }

    /// Ends the server.
    pub fn end(&mut self) {
        self.server = None;
    }

    /// Measures the round-trip time to the host, seconds.
    ///
    /// # Errors
    /// The server cannot be started or reached.
    pub fn round_trip(&mut self) -> Result<f64> {
        let asked = fullpipe_net::measure::round_trip(&self.start(None)?.host, CONNECTS);
        asked.map_err(|error| self.explain(error))
    }

    /// Has the host checked for a path. Returns what it has found, in JSON that must not be believed.
    ///
    /// # Errors
    /// The server cannot be started, or its connection broke.
    pub fn check(&mut self, rtt: Time, rate: Rate) -> Result<String> {
        self.start(None)?;
        let server = self.server.as_mut().ok_or_else(|| Failure::new(ExitClass::Peer, "the server has ended"))?;
        Ok(server.check(rtt, rate)?)
    }

    /// The error of a measurement. Where the server's port does not answer, it says so: ssh has reached the host.
    pub fn explain(&self, error: NetError) -> Failure {
        match &error {
            NetError::Connect { host, source } => Failure::new(
                error.class(),
                format!(
                    "ssh reaches {}, but {host} does not answer ({source}); have ports there opened in the firewall, and name \
                     them with --data-ports FIRST-LAST, or in the configuration",
                    self.endpoint.host
                ),
            ),
            _ => error.into(),
        }
    }
}

/// The command that connects to a host, with its options: port, identity and jump hosts, as ssh takes them.
///
/// # Errors
/// The command is empty, or a quote in it does not end.
pub fn ssh_command(command: &str, options: [Option<&OsStr>; 3]) -> Result<Vec<OsString>> {
    let words = shlex::split(command).filter(|words| !words.is_empty()).ok_or_else(|| {
        Failure::usage(format!("--ssh '{command}' is not a command; it is empty, or a quote in it does not end"))
    })?;
    let options = ["-p", "-i", "-J"].into_iter().zip(options);
    let options = options.filter_map(|(letter, value)| Some([letter.into(), value?.into()])).flatten();
    Ok(words.into_iter().map(OsString::from).chain(options).collect())
}
