//! `fullpipe serve`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use fullpipe_net::serve::Event;
use fullpipe_net::{ServeOptions, Server};
use fullpipe_path::{ExitClass, Time, path};
use serde_json::json;

use crate::Result;
use crate::failure::Failure;
use crate::output::{errln, outln};

/// Command line.
#[derive(clap::Args)]
pub struct Args {
    /// Address to listen on; all by default
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Port of control connections
    #[arg(long, default_value_t = path::DEFAULT_PORT)]
    port: u16,
    /// Ports for data streams, FIRST-LAST; the kernel chooses if not given
    #[arg(long, value_name = "FIRST-LAST")]
    data_ports: Option<String>,
    /// Clients measured at once; more are refused
    #[arg(long, default_value_t = 8)]
    max_clients: usize,
    /// Give a run up when nothing moved for so long
    #[arg(long, default_value = "60s", value_name = "TIME")]
    stall: Time,
    /// End after one client
    #[arg(long)]
    once: bool,
    /// Events as NDJSON on stdout
    #[arg(long)]
    json: bool,
    /// Say nothing but errors
    #[arg(long)]
    quiet: bool,
    /// Runs in the testbed's guest, whose memory does not hold what is in its buffers
    #[arg(long, hide = true)]
    guest: bool,
}

fn ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first > 0 && first <= last).then_some((first, last))
}

/// The ports of `--data-ports`; 0 and 0 where the kernel chooses.
pub fn data_ports(text: Option<&str>) -> Result<(u16, u16)> {
    let Some(text) = text else { return Ok((0, 0)) };
    ports(text).ok_or_else(|| {
        Failure::new(ExitClass::Usage, format!("--data-ports '{text}' is not a range; write for example 7413-7476"))
    })
}

/// Serves until killed.
pub fn run(args: Args) -> Result {
    let data_ports = data_ports(args.data_ports.as_deref())?;
    let options = |address| ServeOptions {
        bind: SocketAddr::new(address, args.port),
        data_ports,
        max_clients: args.max_clients,
        stall: Duration::from_nanos(args.stall.0),
        once: args.once,
        check_memory: !args.guest,
    };
    let server = match args.bind {
        Some(address) => Server::bind(options(address))?,
        // A host without IPv6 refuses its wildcard address; then IPv4's serves.
        None => Server::bind(options(Ipv6Addr::UNSPECIFIED.into()))
            .or_else(|_| Server::bind(options(IpAddr::from([0, 0, 0, 0]))))?,
    };
    let address = server.address().map_err(|e| Failure::new(ExitClass::Missing, e))?;
    let (json, quiet) = (args.json, args.quiet);
    if json {
        outln!("{}", json!({"kind": "listening", "address": address.to_string()}));
    } else if !quiet {
        errln!("listening on {address}");
    }
    server.run(move |event| log(event, json, quiet))?;
    Ok(())
}

fn log(event: &Event<'_>, json: bool, quiet: bool) {
    match event {
        Event::Begin { peer, request } if json => {
            outln!("{}", json!({"kind": "begin", "peer": peer, "request": request}));
        }
        Event::Begin { peer, request } if !quiet => errln!("{peer}: {}, {}", request.transport, request.workload),
        Event::End { peer, result } if json => {
            let error = result.as_ref().err().map(ToString::to_string);
            outln!("{}", json!({"kind": "end", "peer": peer, "error": error}));
        }
        Event::End { peer, result: Err(error) } => errln!("{peer}: {error}"),
        Event::End { peer, result: Ok(()) } if !quiet => errln!("{peer}: done"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::ports;

    #[test]
    fn port_ranges() {
        assert_eq!(ports("7413-7476"), Some((7413, 7476)));
        assert_eq!(ports("7413"), Some((7413, 7413)));
        for bad in ["0-9", "9-8", "", "a-b", "1-70000"] {
            assert_eq!(ports(bad), None, "{bad}");
        }
    }
}
