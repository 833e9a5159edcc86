//! TCP connections of child processes.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use socket2::SockRef;

use crate::tcp_info::TcpInfo;

/// Returns descriptors of the TCP sockets that a child has opened, which its standard input, output and error are not. There are
/// none if it has ended, or if this process may not have them: that takes Linux 5.6, and some containers forbid it
/// (pidfd_getfd(2)). A connection stays open for as long as one of its descriptors. The child must not have been waited for, as
/// its number may then be another process's.
#[must_use]
pub fn tcp_sockets(child: &Child) -> Vec<OwnedFd> {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", child.id()));
    let (Ok(process), Ok(descriptors)) = (pidfd_open(Pid::from_child(child), PidfdFlags::empty()), descriptors) else {
        return Vec::new();
    };
    let socket = |descriptor| pidfd_getfd(&process, descriptor, PidfdGetfdFlags::empty()).ok();
    let numbers = descriptors.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|number| *number > libc::STDERR_FILENO)
        .filter_map(socket)
        .filter(|socket| TcpInfo::read(socket.as_fd()).is_ok())
        .collect()
}

/// Returns TCP_INFO of the first TCP connection that a child has to one of these addresses, if [`tcp_sockets`] has one.
#[must_use]
pub fn tcp_info(child: &Child, to: &[IpAddr]) -> Option<TcpInfo> {
    let leads_there = |socket: &OwnedFd| {
        let peer = SockRef::from(socket).peer_addr().ok().and_then(|peer| peer.as_socket());
        peer.is_some_and(|peer| to.contains(&peer.ip().to_canonical()))
    };
    let socket = tcp_sockets(child).into_iter().find(leads_there)?;
    TcpInfo::read(socket.as_fd()).ok()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn what_a_child_is_given_is_no_connection_of_its_own() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let given = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (held, _) = listener.accept().unwrap();
        let mut child = Command::new("cat").stdin(OwnedFd::from(given)).stdout(Stdio::null()).spawn().unwrap();
        assert!(tcp_sockets(&child).is_empty());
        drop(held);
        child.wait().unwrap();
    }

    #[test]
    fn a_childs_connection_shows_its_round_trip_time() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        // A shell of its own opens the connection, and holds it until its input ends.
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo; read -r");
        let mut child =
            Command::new("bash").args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (_accepted, _) = listener.accept().unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let info = tcp_info(&child, &[Ipv4Addr::LOCALHOST.into()]).unwrap();
        assert!(info.get("min_rtt").is_some_and(|us| us < 1_000_000));
        assert!(tcp_info(&child, &[IpAddr::from([192, 0, 2, 1])]).is_none());
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
