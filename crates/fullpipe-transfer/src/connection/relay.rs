//! The far end of a data stream that ssh carries: bytes go between ssh and a session's port on this host.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

use crate::error::TransferError;

/// Least port on which a session may listen (ip(7), `ip_local_port_range`).
const FIRST_USER_PORT: u16 = 1024;
/// Bytes that a relay reads at a time: as many as a pipe holds.
const RELAY_BUFFER: usize = 64 << 10;

/// Relays bytes between a client's ssh connection and a port of a session on this host, until both directions have ended.
/// The session believes nobody at its port who does not show its secret, and the client nobody without its certificate.
///
/// # Errors
/// Nothing listens on the port, or the connection broke.
pub fn relay(port: u16, input: OwnedFd, output: OwnedFd) -> Result<(), TransferError> {
    let (input, output) = (File::from(input), File::from(output));
    let failed = |source| TransferError::Lost { peer: "the client".into(), doing: "relaying a data stream", source };
    relayed(port, input, output).map_err(failed)
}

fn relayed(port: u16, mut input: File, mut output: File) -> io::Result<()> {
    if port < FIRST_USER_PORT {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "no session listens on a port of the system's services",
        ));
    }
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut socket = TcpStream::connect(to)?;
    socket.set_nodelay(true)?;
    let mut from = socket.try_clone()?;
    std::thread::scope(|scope| {
        let back = std::thread::Builder::new().spawn_scoped(scope, move || {
            // The output is closed at the end, which tells the client.
            copy(&mut from, &mut output)
        })?;
        let sent = copy(&mut input, &mut socket);
        let _ = socket.shutdown(if sent.is_ok() { Shutdown::Write } else { Shutdown::Both });
        let came = back.join().unwrap_or_else(|_| Err(io::Error::other("a relaying thread failed")));
        sent.and(came)
    })
}

/// Copies bytes until they end. `std::io::copy` would use splice(2), which holds a pipe's lock while it waits for a socket: sshd
/// at the pipe's other end would hang for as long, although it reads and writes without waiting.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; RELAY_BUFFER];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => to.write_all(&buffer[..n])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
