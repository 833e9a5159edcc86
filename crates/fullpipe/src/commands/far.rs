//! `fullpipe far`: the far end of a copy or of measurements, which ssh starts and people do not.

use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;

use fullpipe_path::{Classified, ExitClass, Rate, Time};
use fullpipe_transfer::connection::relay::relay;
use fullpipe_transfer::protocol::hello;
use fullpipe_transfer::resolve::Realm;
use fullpipe_transfer::server::{self, ServerOptions, measurements};

use crate::failure::{Failure, Result};
use crate::output::outln;
use crate::ports::data_ports;
use crate::rlimit;

/// The arguments of `fullpipe far`.
#[derive(clap::Args)]
pub struct Args {
    /// Accept data streams on these ports, such as 7413-7476 [default: any free port]
    #[arg(long, value_name = "FIRST-LAST")]
    data_ports: Option<String>,
    /// Take relative paths below this folder [default: the current one]
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,
    /// Relay bytes to this port of a session that another ssh connection has begun: they are one of its data streams
    #[arg(long, value_name = "PORT")]
    relay: Option<u16>,
    /// Serve measurements until standard input ends
    #[arg(long, conflicts_with = "relay")]
    measure: bool,
    /// Only say whether this program speaks this version of the protocol
    #[arg(long, value_name = "VERSION")]
    speaks: Option<u32>,
}

/// The client's address and this host's, in ssh's own words (ssh(1), SSH_CONNECTION).
const CLIENT: usize = 0;
const SERVER: usize = 2;

/// One of the addresses between which ssh has connected, if ssh tells.
fn address_of(end: usize) -> Option<IpAddr> {
    std::env::var("SSH_CONNECTION").ok()?.split_whitespace().nth(end)?.parse().ok()
}

/// The wildcard address of the IP version that ssh was called by, or of both versions if ssh does not say.
fn wildcard() -> SocketAddr {
    match address_of(SERVER) {
        // Behind NAT the streams arrive at another address than that of ssh.
        Some(IpAddr::V4(_)) => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        _ => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
    }
}

/// Takes standard output away from the rest of the process, so that it can be closed.
fn take_stdout() -> std::io::Result<File> {
    let output = std::io::stdout().as_fd().try_clone_to_owned()?;
    nix::unistd::dup2_stdout(File::options().write(true).open("/dev/null")?)?;
    Ok(output.into())
}

/// Checks this host for a path with such a round-trip time and rate, to the address of another host if that is known; says in JSON
/// what it has found.
pub type Check = dyn Fn(Time, Rate, Option<IpAddr>) -> String;

/// Serves one client over standard input and output.
pub fn run(args: Args, check: &Check) -> Result {
    if let Some(version) = args.speaks {
        if version != hello::PROTOCOL {
            return Err(Failure::new(ExitClass::Peer, format!("this is fullpipe's protocol {}", hello::PROTOCOL)));
        }
        outln!("fullpipe {version}");
        return Ok(());
    }
    rlimit::raise_open_files();
    let ports = data_ports(args.data_ports.as_deref())?;
    let base = args.base.map_or_else(std::env::current_dir, Ok).map_err(|e| Failure::new(ExitClass::Missing, e))?;
    let options = ServerOptions {
        realm: Realm::User(base),
        listen: wildcard(),
        ports,
        plain_streams: true,
        special_bits: true,
        most_streams: fullpipe_path::transport::MAX_STREAMS,
        relays: true,
        stall: std::time::Duration::MAX,
        client: address_of(CLIENT),
    };
    let missing = |e| Failure::new(ExitClass::Peer, e);
    let (input, line) = (std::io::stdin().as_fd().try_clone_to_owned().map_err(missing)?, std::io::stdin());
    let line = line.as_fd().try_clone_to_owned().ok();
    let mut output = take_stdout().map_err(missing)?;
    output.write_all(hello::READY).map_err(missing)?;
    let ended = match args.relay {
        Some(port) => relay(port, input, output.into()),
        None if args.measure => measurements::serve(input, output.into(), (options.listen, ports), &|rtt, rate| {
            check(rtt, rate, address_of(CLIENT))
        }),
        None => server::serve(input, output.into(), "the client".into(), &options, line).map(drop),
    };
    ended.map_err(|error| Failure::new(error.class(), format!("far end: {error}")))
}
