//! Sockets with a transport's settings.

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use fullpipe_path::transport::LINUX_CONGESTION_CONTROLS;
use fullpipe_path::{Buffer, Size, Transport};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::error::{NetError, system};
use crate::preamble_listener::BACKLOG;
use crate::sys;

/// Most bytes that wait in a socket's buffer to be sent: a writer is woken when half are gone, so even at
/// 100 Gb/s it has over a millisecond to bring more.
pub const UNSENT: u32 = 32 << 20;

/// Applies a transport to a socket; the congestion control only where `sends`, since a receiver's decides
/// nothing and its kernel may lack it. On a listener, accepted sockets inherit it, so that buffers and
/// congestion control are in force from the handshake on, which fixes the window scale (RFC 7323).
///
/// # Errors
/// The congestion control is unknown ([`check_known`]), the kernel lacks it, or refuses a setting.
pub fn apply(socket: &Socket, transport: &Transport, sends: bool) -> Result<(), NetError> {
    if sends {
        check_known(&transport.cc)?;
    }
    let set = if sends { socket.set_tcp_congestion(transport.cc.as_bytes()) } else { Ok(()) };
    set.map_err(|source| {
        let name = transport.cc.clone();
        // Unprivileged, the kernel says EPERM of what it knows and keeps for root, ENOENT of what it does not know.
        match source.kind() {
            io::ErrorKind::NotFound => NetError::NoSuchCc { name, available: available() },
            io::ErrorKind::PermissionDenied => NetError::NotAllowedCc { name, allowed: allowed() },
            _ => NetError::System { what: "setting TCP_CONGESTION", source },
        }
    })?;
    if let Buffer::Bytes(Size(bytes)) = transport.buffer {
        socket.set_send_buffer_size(bytes as usize).map_err(system("setting SO_SNDBUF"))?;
        socket.set_recv_buffer_size(bytes as usize).map_err(system("setting SO_RCVBUF"))?;
    }
    // A large buffer would otherwise be filled with gigabytes that wait for the window, and the kernel
    // spends 40 MB on the bookkeeping of each. In-flight data, which is what a buffer limits, is not
    // touched (tcp(7), TCP_NOTSENT_LOWAT).
    socket.set_tcp_notsent_lowat(UNSENT).map_err(system("setting TCP_NOTSENT_LOWAT"))?;
    if let Some(rate) = transport.pacing {
        let each = rate.0 / 8 / u64::from(transport.streams);
        sys::set_max_pacing_rate(socket.as_fd(), each).map_err(system("setting SO_MAX_PACING_RATE"))?;
    }
    Ok(())
}

/// The same for a connection that has been accepted.
///
/// # Errors
/// As with [`apply`].
pub fn apply_to_accepted(stream: &TcpStream, transport: &Transport, sends: bool) -> Result<(), NetError> {
    apply(&SockRef::from(stream), transport, sends)
}

/// Sets how much may wait in a connection's buffer to be sent, bytes (`TCP_NOTSENT_LOWAT`).
///
/// # Errors
/// The kernel refuses.
pub fn set_unsent(stream: &TcpStream, bytes: u32) -> io::Result<()> {
    SockRef::from(stream).set_tcp_notsent_lowat(bytes)
}

/// Largest packet on the route to a host, bytes, as far as this kernel knows it (`IP_MTU`, ip(7)). Nothing is sent.
pub fn path_mtu(to: SocketAddr) -> Option<u32> {
    let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
    let (level, name) = match to {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let probe = UdpSocket::bind(any).ok()?;
    probe.connect(to).ok()?;
    sys::int_option(probe.as_fd(), level, name).ok().and_then(|mtu| u32::try_from(mtu).ok())
}

/// Refuses a congestion control that this kernel lacks, or does not give this user, before anyone is asked anything.
///
/// # Errors
/// That.
pub fn check_cc(transport: &Transport) -> Result<(), NetError> {
    let probe = Transport { buffer: Buffer::Auto, pacing: None, ..transport.clone() };
    apply(&new(SocketAddr::from(([127, 0, 0, 1], 0)))?, &probe, true)
}

/// Refuses a congestion control that is neither one of Linux's own nor loaded in this kernel. The name may come from the
/// network, and for a process with `CAP_NET_ADMIN` the kernel runs modprobe for any name that it does not know
/// (net/ipv4/tcp_cong.c, `tcp_ca_find_autoload`).
///
/// # Errors
/// It is unknown.
pub fn check_known(name: &str) -> Result<(), NetError> {
    if LINUX_CONGESTION_CONTROLS.contains(&name) {
        return Ok(());
    }
    let available = available();
    if available.split(", ").any(|loaded| loaded == name) {
        return Ok(());
    }
    Err(NetError::NoSuchCc { name: name.to_owned(), available })
}

fn available() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .map_or_else(|_| "(unreadable)".into(), |text| text.trim().replace(' ', ", "))
}

fn allowed() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
        .map_or_else(|_| "(unreadable)".into(), |text| text.trim().to_owned())
}

/// Refuses a buffer that the machine could never hold.
///
/// # Errors
/// It is larger than physical memory.
pub fn check_memory(transport: &Transport) -> Result<(), NetError> {
    let Buffer::Bytes(buffer) = transport.buffer else { return Ok(()) };
    let memory = memory();
    match memory {
        Some(memory) if buffer > memory => Err(NetError::Memory { buffer, memory }),
        _ => Ok(()),
    }
}

/// Physical memory, where /proc tells.
pub fn memory() -> Option<Size> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| Size(kb * 1024))
}

/// A listener for one session's streams, on the same address as the control connection, on the
/// first free port of a range; 0 lets the kernel choose.
///
/// # Errors
/// No free port, or the transport does not apply.
pub fn listen(
    local: SocketAddr,
    ports: (u16, u16),
    transport: &Transport,
    sends: bool,
) -> Result<std::net::TcpListener, NetError> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for port in ports.0..=ports.1 {
        let mut address = local;
        address.set_port(port);
        let socket = new(address)?;
        socket.set_reuse_address(true).map_err(system("setting SO_REUSEADDR"))?;
        apply(&socket, transport, sends)?;
        match socket.bind(&address.into()).and_then(|()| socket.listen(BACKLOG)) {
            Ok(()) => return Ok(socket.into()),
            Err(error) => last = error,
        }
    }
    let address = format!("{}, data ports {} to {}", local.ip(), ports.0, ports.1);
    Err(NetError::Listen { address, source: last })
}

/// Connects one stream, its settings applied before.
///
/// # Errors
/// The connection's, or the transport does not apply.
pub fn connect(to: SocketAddr, transport: &Transport, sends: bool, timeout: Duration) -> Result<TcpStream, NetError> {
    let socket = new(to)?;
    apply(&socket, transport, sends)?;
    socket
        .connect_timeout(&to.into(), timeout)
        .map_err(|source| NetError::Connect { host: format!("{to} (a data stream)"), source })?;
    Ok(socket.into())
}

fn new(address: SocketAddr) -> Result<Socket, NetError> {
    Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP)).map_err(system("opening a socket"))
}

/// What this kernel lets this user's sockets do: congestion controls, largest send and receive buffer.
pub fn limits() -> (Vec<String>, u64, u64) {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/net/{name}")).unwrap_or_default();
    let number = |name| read(name).trim().parse().unwrap_or(0);
    let available = read("ipv4/tcp_available_congestion_control");
    // Who may use which hangs on capabilities and namespaces (in a container root may have neither): the kernel is asked.
    let allowed = |cc: &&str| {
        let transport = Transport { cc: (*cc).into(), streams: 1, buffer: Buffer::Auto, pacing: None };
        check_cc(&transport).is_ok()
    };
    let mut ccs: Vec<String> = available.split_whitespace().filter(allowed).map(str::to_owned).collect();
    if may_load() {
        let more: Vec<String> = loadable().into_iter().filter(|cc| !ccs.contains(cc)).collect();
        ccs.extend(more);
    }
    (ccs, number("core/wmem_max"), number("core/rmem_max"))
}

/// Whether this process's socket option loads a module (net/ipv4/tcp_cong.c, `tcp_ca_find_autoload`): with
/// `CAP_NET_ADMIN` where the kernel's own user namespace gives it, and if the kernel takes modules at all.
fn may_load() -> bool {
    const CAP_NET_ADMIN: u32 = 12;
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{name}")).unwrap_or_default();
    let status = read("self/status");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let initial = read("self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]);
    effective >> CAP_NET_ADMIN & 1 == 1 && initial && read("sys/kernel/modules_disabled").trim() != "1"
}

/// Congestion controls whose modules lie ready for this kernel.
fn loadable() -> Vec<String> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let folder = format!("/lib/modules/{}/kernel/net/ipv4", release.trim());
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |file: std::fs::DirEntry| {
        let name = file.file_name().into_string().ok()?;
        let cc = name.strip_prefix("tcp_")?.split('.').next()?.to_owned();
        LINUX_CONGESTION_CONTROLS.contains(&cc.as_str()).then_some(cc)
    };
    files.filter_map(name).collect()
}

/// Where this kernel's own tuning stops: send and receive buffer, bytes, bookkeeping included (`tcp_wmem`,
/// `tcp_rmem`).
pub fn tuned() -> (u64, u64) {
    let most = |name: &str| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
        text.split_whitespace().nth(2)?.parse().ok()
    };
    (most("tcp_wmem").unwrap_or(4 << 20), most("tcp_rmem").unwrap_or(6 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_congestion_controls_are_set() {
        for cc in ["cubic", "htcp", "reno"] {
            assert!(check_known(cc).is_ok(), "{cc}");
        }
        for cc in ["nosuchcc", "", "cubic, reno", "reno,", "(unreadable)"] {
            assert!(matches!(check_known(cc), Err(NetError::NoSuchCc { .. })), "{cc}");
        }
    }

    #[test]
    fn the_largest_packet_of_a_route_is_known() {
        let lo = std::fs::read_to_string("/sys/class/net/lo/mtu").ok().and_then(|mtu| mtu.trim().parse().ok());
        // No packet of version 4 is longer.
        assert_eq!(path_mtu(([127, 0, 0, 1], 9).into()), lo.map(|mtu: u32| mtu.min(65535)));
    }
}
