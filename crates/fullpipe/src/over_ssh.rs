//! Hosts `ssh:HOST`: this program starts a server for measurements there, over ssh. And the ssh command for a host.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Command;
use fullpipe_net::NetError;
use fullpipe_path::{Classified, Host, Rate, Time, host};
use fullpipe_transfer::TransferError;
use fullpipe_transfer::client::far_server::FarServer;
use fullpipe_transfer::connection::endpoint::{FarProgram, SshEndpoint, Via};

use crate::config::{self, Config, Reached};
use crate::failure::{Failure, Result};
use crate::format::quoted;
use crate::output::errln;
use crate::ports;

/// Begins the name of a host that is reached over ssh.
const MARK: &str = "ssh:";
/// The program that connects, unless another one is named.
pub const SSH: &str = "ssh";
/// [`OverSsh::stall`], unless it is given.
const SILENCE: Duration = Duration::from_secs(60);
/// Longest time to connect to the server.
const CONNECTS: Duration = Duration::from_secs(3);

/// A host that is reached over ssh, and the server there.
pub struct OverSsh {
    /// The host as a record names it: without the user, with the default port of a server.
    pub described: Host,
    endpoint: SshEndpoint,
    quiet: bool,
    /// Longest time for which the host may be silent while the server starts.
    stall: Duration,
    /// The server, once it is started.
    pub server: Option<FarServer>,
}

/// How ssh connects, and what is open there. The configuration files may say so, too.
#[derive(clap::Args)]
pub struct SshArgs {
    /// To ssh:HOST, connect with this command and its options [default: ssh]
    #[arg(long, value_name = "COMMAND")]
    ssh: Option<String>,
    /// To ssh:HOST, listen there on these ports alone, such as 7413-7414: one for the server, and one for the data of each direction
    /// [default: any free ports]
    #[arg(long, value_name = "FIRST-LAST")]
    data_ports: Option<String>,
}

impl SshArgs {
    /// The first flag that is given.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [(self.ssh.is_some(), "--ssh"), (self.data_ports.is_some(), "--data-ports")];
        flags.into_iter().find_map(|(given, flag)| given.then_some(flag))
    }

    /// Refuses these flags where they have no effect.
    ///
    /// # Errors
    /// One is given.
    pub fn refuse(&self) -> Result {
        let why = |flag| format!("{flag} is for a host that is reached over ssh; write its name as {MARK}HOST");
        self.given().map_or(Ok(()), |flag| Err(Failure::usage(why(flag))))
    }
}

impl OverSsh {
    /// Finds out how ssh reaches the host of `ssh:HOST`; `None` if the text is another one. What is typed counts more than the
    /// configuration files. With `quiet`, what takes time is not said. The server may be silent for `stall` while it starts, or for a
    /// minute. `needs` is the number of ports that the server and the data take.
    ///
    /// # Errors
    /// The host is none that ssh takes, or a flag or a file is wrong. A flag is given that has no effect without ssh.
    pub fn parse(
        text: &str,
        args: &SshArgs,
        (quiet, stall): (bool, Option<Time>),
        needs: u16,
        cli: &Command,
    ) -> Result<Option<OverSsh>> {
        let Some(host) = text.strip_prefix(MARK) else { return args.refuse().map(|()| None) };
        let name = config::host_name(host);
        let place = host.rsplit_once('@').map_or(host, |(_, place)| place);
        if place.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')) || place.contains("]:") {
            let why =
                format!("'{text}': give ssh's port in the command, as in --ssh 'ssh -p PORT', or in the configuration");
            return Err(Failure::usage(why));
        }
        let described = Host { name: name.to_owned(), port: host::DEFAULT_PORT };
        // The record names it, and those who read the record read this name.
        let is_name = described.to_string().parse().ok().as_ref() == Some(&described);
        let is_closed = place == name || place == format!("[{name}]");
        if !is_name || !is_closed || host.starts_with('@') {
            return Err(Failure::usage(format!("'{text}' is not a host that ssh reaches; give {MARK}HOST")));
        }
        let set = match cli.find_subcommand("cp") {
            Some(cp) => Config::read()?.settings(cp, name, Vec::new(), Some(Reached::OverSsh))?,
            None => Vec::new(),
        };
        let set = |flag: &str| set.iter().find(|setting| setting.flag == flag).and_then(|setting| setting.given());
        let command = args.ssh.as_deref().or_else(|| set("ssh")).unwrap_or(SSH);
        let ssh = ssh_command(command, ["port", "identity", "jump"].map(|flag| set(flag).map(OsStr::new)))?;
        let ports = args.data_ports.as_deref().or_else(|| set("data-ports"));
        let program = match set("far-program") {
            Some(program) => FarProgram::Named(program.to_owned()),
            None => FarProgram::Found { send: set("no-deploy").is_none(), file: set("far-binary").map(Into::into) },
        };
        let ports = ports.map(|text| ports::data_ports(Some(text))).transpose()?;
        if let Some((first, last)) = ports.filter(|(first, last)| last - first + 1 < needs) {
            let why = format!(
                "--data-ports {first}-{last} has too few ports: this takes {needs}, one for the server and one for the data of each \
                 direction"
            );
            return Err(Failure::usage(why));
        }
        // ssh takes an IPv6 address without brackets.
        let host = host.replace(['[', ']'], "");
        let endpoint = SshEndpoint { host, ssh, program, ports, via: Via::Tcp };
        let stall = stall.map_or(SILENCE, Time::duration);
        Ok(Some(OverSsh { described, endpoint, quiet, stall, server: None }))
    }

    /// The host as it was typed.
    pub fn typed(&self) -> String {
        format!("{MARK}{}", self.endpoint.host)
    }

    /// Starts the server, unless it runs.
    ///
    /// # Errors
    /// It cannot be started, or the wait was interrupted.
    pub fn start(&mut self, interrupted: Option<&AtomicBool>) -> Result<&mut FarServer> {
        let server = match self.server.take() {
            Some(server) => server,
            None => {
                let never = AtomicBool::new(false);
                let say = |words: &str| {
                    if !self.quiet {
                        errln!("{words}");
                    }
                };
                FarServer::start(&self.endpoint, self.stall, interrupted.unwrap_or(&never), &say)
                    .map_err(|error| self.not_started(error))?
            }
        };
        Ok(self.server.insert(server))
    }

    /// Ends the server.
    pub fn end(&mut self) {
        self.server = None;
    }

    /// Measures the round-trip time to the host, seconds; through ssh, if nothing else gets there.
    ///
    /// # Errors
    /// The server cannot be started or reached.
    pub fn round_trip(&mut self) -> Result<f64> {
        let server = self.start(None)?;
        match fullpipe_net::measure::round_trip(&server.host, CONNECTS) {
            Err(NetError::Connect { .. }) => Ok(server.round_trip()?),
            asked => asked.map_err(|error| self.explain(error)),
        }
    }

    /// Has the host checked for a path. Returns what it has found, in JSON that must not be believed.
    ///
    /// # Errors
    /// The server cannot be started, or its connection broke.
    pub fn check(&mut self, rtt: Time, rate: Rate) -> Result<String> {
        Ok(self.start(None)?.check(rtt, rate)?)
    }

    /// The error of a server that did not start.
    fn not_started(&self, error: TransferError) -> Failure {
        match &error {
            TransferError::NoDataPort { to, why } => Failure::new(
                error.class(),
                format!(
                    "ssh reaches {}, but the data of a measurement go straight to {to}, and {why}; measure from a host that \
                     has a way to it",
                    self.endpoint.host
                ),
            ),
            _ => error.into(),
        }
    }

    /// The error of a measurement. ssh has reached the host, so it says what else stands between.
    pub fn explain(&self, error: NetError) -> Failure {
        let host = &self.endpoint.host;
        let open = match self.endpoint.ports {
            Some((first, last)) => format!("have {first}-{last} opened in the firewall, for TCP and UDP"),
            None => "have ports there opened in the firewall, and name them with --data-ports FIRST-LAST".to_owned(),
        };
        match &error {
            NetError::Connect { host: port, source } => Failure::new(
                error.class(),
                format!("ssh reaches {host}, but {port} does not answer ({source}); {open}"),
            ),
            NetError::NoDataPort { .. } | NetError::NoUdp { .. } => {
                Failure::new(error.class(), format!("{error}; at {host}, {open}"))
            }
            NetError::Lost { .. } => Failure::new(
                error.class(),
                format!("{error}; ssh's connection to {host}, or the server that it has started there, may have ended"),
            ),
            _ => error.into(),
        }
    }
}

/// The command that connects to a host, with its options: port, identity and jump hosts, as ssh takes them.
///
/// # Errors
/// The command is empty, a quote in it does not end, or there is no such key.
pub fn ssh_command(command: &str, options: [Option<&OsStr>; 3]) -> Result<Vec<OsString>> {
    // ssh goes on with other keys, and its warning is lost where they let it in.
    if let Some(key) = options[1].filter(|key| is_missing(key)) {
        return Err(Failure::usage(format!("--identity {}: there is no such file", quoted(&key.to_string_lossy()))));
    }
    let words = shlex::split(command).filter(|words| !words.is_empty()).ok_or_else(|| {
        Failure::usage(format!("--ssh '{command}' is not a command; it is empty, or a quote in it does not end"))
    })?;
    let options = ["-p", "-i", "-J"].into_iter().zip(options);
    let options = options.filter_map(|(letter, value)| Some([letter.into(), value?.into()])).flatten();
    Ok(words.into_iter().map(OsString::from).chain(options).collect())
}

/// Whether neither a private key nor a public one, whose other half an agent has, is where `ssh -i` looks. What ssh itself expands
/// counts as there.
fn is_missing(key: &OsStr) -> bool {
    let typed = key.to_string_lossy();
    let mut public = key.to_owned();
    public.push(".pub");
    !typed.starts_with('~') && !typed.contains('%') && !Path::new(key).exists() && !Path::new(&public).exists()
}
