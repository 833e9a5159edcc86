//! `fullpipe far`: what ssh starts at the other end of a transfer. Not for people.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use fullpipe_path::ExitClass;
use fullpipe_transfer::protocol::hello;
use fullpipe_transfer::resolve::Realm;
use fullpipe_transfer::server::{self, ServerOptions};

use crate::Result;
use crate::failure::Failure;

/// Command line.
#[derive(clap::Args)]
pub struct Args {
    /// Ports for data streams, FIRST-LAST; the kernel chooses if not given
    #[arg(long, value_name = "FIRST-LAST")]
    data_ports: Option<String>,
}

/// All addresses of the kind at which ssh was called; of both kinds where it does not say.
fn address() -> SocketAddr {
    let told = std::env::var("SSH_CONNECTION").ok();
    let ip = told.and_then(|text| text.split_whitespace().nth(2)?.parse::<IpAddr>().ok());
    match ip {
        // Behind a translating router the streams come to another address than ssh's.
        Some(IpAddr::V4(_)) => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        _ => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
    }
}

/// Lets this process open more files than the usual 1,024: a walk holds two for each level of its tree.
pub fn more_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Where that is refused, the deepest folders are told of as what was left.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.max(hard.min(65_536)), hard);
    }
}

/// Serves one client over standard input and output.
pub fn run(args: Args) -> Result {
    more_files();
    let ports = crate::serve::data_ports(args.data_ports.as_deref())?;
    let base = std::env::current_dir().map_err(|e| Failure::new(ExitClass::Missing, e))?;
    let options = ServerOptions {
        realm: Realm::User(base),
        listen: address(),
        ports,
        plain_streams: true,
        special_bits: true,
        most_streams: fullpipe_path::transport::MAX_STREAMS,
        stall: std::time::Duration::MAX,
    };
    let line = std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned().ok();
    let mut output = std::io::stdout();
    let greeted = output.write_all(hello::READY).and_then(|()| output.flush());
    greeted.map_err(|e| Failure::new(ExitClass::Peer, e))?;
    match server::serve(Box::new(std::io::stdin()), Box::new(output), "the client".into(), &options, line) {
        Ok(_) => Ok(()),
        Err(error) => {
            let class = fullpipe_path::Classified::class(&error);
            Err(Failure::new(class, format!("far end: {error}")))
        }
    }
}
