//! The transport of a measurement, from its flags.

use fullpipe_path::{Buffer, Path, Protocol, Transport};

use super::args::Args;
use crate::failure::{Failure, Result};
use crate::output::errln;

/// The congestion control without --cc: Linux's default.
const DEFAULT_CC: &str = "cubic";

/// The transport that the flags ask for.
///
/// # Errors
/// Flags contradict each other, or no such transport exists.
pub fn asked(args: &Args) -> Result<Transport> {
    let protocol = args.transport.unwrap_or(Protocol::Tcp);
    let cc = match (protocol, &args.cc) {
        (Protocol::Tcp, Some(cc)) if Protocol::of(cc) != Protocol::Tcp => {
            return Err(Failure::usage(format!(
                "{cc} is no congestion control of TCP; give --transport {cc} instead of --cc {cc}"
            )));
        }
        (Protocol::Tcp, cc) => cc.clone().unwrap_or_else(|| DEFAULT_CC.into()),
        (Protocol::Udt | Protocol::Udp, None) => protocol.to_string(),
        (Protocol::Udt, Some(_)) => {
            return Err(Failure::usage("--cc is for TCP, and --transport udt brings its own; leave one of them out"));
        }
        (Protocol::Udp, Some(_)) => {
            return Err(Failure::usage(
                "--cc is for TCP, and plain UDP has no congestion control; leave one of them out",
            ));
        }
    };
    if args.datagram_size.is_some() && protocol != Protocol::Udp {
        return Err(Failure::usage(
            "--datagram-size is for --transport udp; TCP has --mss, and the packets of UDT are as large as the route's MTU",
        ));
    }
    if args.mss.is_some() && protocol == Protocol::Udp {
        return Err(Failure::usage("--mss is for TCP; for plain UDP there is --datagram-size"));
    }
    let transport = Transport {
        cc,
        streams: args.streams.unwrap_or(1),
        buffer: args.buffer.unwrap_or(Buffer::Auto),
        pacing: args.pacing,
        dscp: args.dscp,
        mss: args.mss.or(args.datagram_size),
    };
    transport.validate()?;
    Ok(transport)
}

/// The transport, with the system's congestion control if nobody named one and this user may not take the usual one.
pub fn allowed(transport: Transport, path: &Path, args: &Args) -> Transport {
    let chosen = args.cc.is_some() || args.reverse || args.guest.is_some() || matches!(path, Path::Lab(_));
    if chosen || transport.protocol() != Protocol::Tcp || fullpipe_net::socket::check_cc(&transport).is_ok() {
        return transport;
    }
    let Some(cc) = fullpipe_net::socket::system_cc() else { return transport };
    if !args.quiet {
        errln!("this user cannot use {}: measuring with {cc}, this system's own (--cc chooses another)", transport.cc);
    }
    Transport { cc, ..transport }
}

/// The transport with the congestion control that a server offers, as it may not use the usual one and nobody named that.
pub fn instead(transport: &Transport, cc: &str, args: &Args) -> Option<Transport> {
    if args.cc.is_some() || transport.cc != DEFAULT_CC || cc == DEFAULT_CC {
        return None;
    }
    if !args.quiet {
        errln!("the server cannot use {DEFAULT_CC}: measuring with {cc}, its system's own (--cc chooses another)");
    }
    Some(Transport { cc: cc.to_owned(), ..transport.clone() })
}
