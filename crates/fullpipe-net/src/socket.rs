//! TCP sockets with a transport's settings, and what this kernel allows them.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fullpipe_path::transport::LINUX_CONGESTION_CONTROLS;
use fullpipe_path::{Buffer, Dscp, Protocol, Size, Transport};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use socket2::{Domain, SockRef, Socket, Type};

use crate::error::{NetError, system};
use crate::local_end::LocalEnd;
use crate::preamble_listener::BACKLOG;
use crate::sys;

/// Most bytes that wait in a socket's buffer to be sent. The kernel wakes a writer when half of them are gone, so even at
/// 100 Gb/s it has over a millisecond to write more.
pub const UNSENT: u32 = 32 << 20;

/// Segments of messages, bytes: with headers, what every path of IPv6 carries (RFC 8200, section 5).
const MESSAGE_MSS: u32 = 1280 - 60;

/// The part of a process's memory, one over this, that all buffers over UDT may take if nobody gave their size.
const UDT_MEMORY_DIVISOR: u64 = 2;

/// Applies a transport's settings to a socket. The congestion control is set only if the socket `sends`: a receiver's has
/// no effect, and its kernel may not have it.
///
/// Sockets inherit the settings of the listener that accepts them. So buffers and congestion control are in force from the
/// handshake on, which fixes the window scale (RFC 7323).
///
/// # Errors
/// The congestion control is unknown ([`check_known`]) or not available, or the kernel refuses a setting.
pub fn apply(socket: &Socket, transport: &Transport, sends: bool) -> Result<(), NetError> {
    if sends {
        check_known(&transport.cc)?;
    }
    let set = if sends { socket.set_tcp_congestion(transport.cc.as_bytes()) } else { Ok(()) };
    set.map_err(|source| {
        let name = transport.cc.clone();
        // The kernel answers EPERM for one that only root may set, and ENOENT for one that it does not have.
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
    // Without this, gigabytes would wait in a large buffer for the window, and the kernel spends 40 MB on the
    // bookkeeping of each. Data in flight, which a buffer is to limit, are not affected (tcp(7), TCP_NOTSENT_LOWAT).
    socket.set_tcp_notsent_lowat(UNSENT).map_err(system("setting TCP_NOTSENT_LOWAT"))?;
    if let Some(rate) = transport.pacing {
        let each = rate.0 / 8 / u64::from(transport.streams);
        sys::set_max_pacing_rate(socket.as_fd(), each).map_err(system("setting SO_MAX_PACING_RATE"))?;
    }
    if let Some(dscp) = transport.dscp {
        set_dscp(socket.as_fd(), dscp).map_err(system("setting the DSCP"))?;
    }
    if let Some(mss) = transport.mss {
        socket.set_tcp_mss(u32::from(mss)).map_err(system("setting TCP_MAXSEG"))?;
    }
    Ok(())
}

/// Sets the class of service of a socket's packets. A socket for both families sends IPv4, too.
///
/// # Errors
/// The kernel refuses the setting.
pub(crate) fn set_dscp(fd: BorrowedFd<'_>, dscp: Dscp) -> io::Result<()> {
    let class = i32::from(dscp.traffic_class());
    if sys::int_option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)? == libc::AF_INET6 {
        sys::set_int_option(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class)?;
    }
    sys::set_int_option(fd, libc::IPPROTO_IP, libc::IP_TOS, class)
}

/// Returns the class of service of a socket's packets to an address, if it is not the default.
pub(crate) fn dscp(fd: BorrowedFd<'_>, to: SocketAddr) -> Option<Dscp> {
    let (level, name) = match to.ip().to_canonical() {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    };
    let class = u8::try_from(sys::int_option(fd, level, name).ok()?).ok()?;
    Some(Dscp::of_traffic_class(class)).filter(|dscp| dscp.traffic_class() > 0)
}

/// Applies a transport's settings to a connection that has been accepted.
///
/// # Errors
/// See [`apply`].
pub fn apply_to_accepted(stream: &TcpStream, transport: &Transport, sends: bool) -> Result<(), NetError> {
    apply(&SockRef::from(stream), transport, sends)
}

/// Returns the largest packet on the route to a host, bytes, if this kernel knows it (`IP_MTU`, ip(7)). It sends nothing.
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

/// Checks, before a server is asked for anything, that this user can set the congestion control on this host.
///
/// # Errors
/// This kernel does not have it, or does not let this user set it.
pub fn check_cc(transport: &Transport) -> Result<(), NetError> {
    if transport.protocol() != Protocol::Tcp {
        return Ok(());
    }
    let probe = Transport { buffer: Buffer::Auto, pacing: None, dscp: None, mss: None, ..transport.clone() };
    apply(&new(SocketAddr::from(([127, 0, 0, 1], 0)))?, &probe, true)
}

/// The congestion control of sockets that set none (`net.ipv4.tcp_congestion_control`), which any user may have.
pub fn system_cc() -> Option<String> {
    Some(std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").ok()?.trim().to_owned())
}

/// Checks that a congestion control is one of Linux's own, or is loaded in this kernel.
///
/// The name may come from the network, and the kernel runs modprobe for any unknown name if the process has
/// `CAP_NET_ADMIN` (net/ipv4/tcp_cong.c, `tcp_ca_find_autoload`).
///
/// # Errors
/// It is neither.
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

/// Checks that a transport's buffers fit into memory: one of TCP's, which the kernel fills only as far as its own limits, or
/// all of UDT's, which are in this process.
///
/// # Errors
/// The buffers are larger than physical memory, or than what a process may use.
pub fn check_memory(transport: &Transport) -> Result<(), NetError> {
    let machine = memory().map_or(u64::MAX, |size| size.0);
    check_buffers(transport, machine, process_memory())
}

/// Memory that the buffers of this process may take, bytes: the machine's, or less if the process has a limit.
fn process_memory() -> u64 {
    let machine = memory().map_or(u64::MAX, |size| size.0);
    // The rest of the process needs memory, too.
    let process = [Resource::RLIMIT_DATA, Resource::RLIMIT_AS].map(|limit| {
        getrlimit(limit).map_or(u64::MAX, |(soft, _)| if soft == RLIM_INFINITY { soft } else { soft / 4 * 3 })
    });
    process.into_iter().fold(machine, u64::min)
}

/// Largest size of each buffer of a stream over UDT in this process, bytes: what the transport gives or, without a given size, less
/// where memory is short.
pub fn udt_buffer_bytes(transport: &Transport) -> u64 {
    udt_buffer_within(transport, process_memory())
}

/// The size of such a buffer where a process may have `memory` bytes.
fn udt_buffer_within(transport: &Transport, memory: u64) -> u64 {
    let buffer = transport.udt_buffer_bytes();
    match transport.buffer {
        Buffer::Auto => buffer.min(memory / UDT_MEMORY_DIVISOR / 2 / u64::from(transport.streams.max(1))),
        Buffer::Bytes(_) => buffer,
    }
}

/// Checks buffers against the memory of the machine and of this process, bytes.
fn check_buffers(transport: &Transport, machine: u64, process: u64) -> Result<(), NetError> {
    let (buffer, count, memory) = match (transport.protocol(), transport.buffer) {
        (Protocol::Udt, Buffer::Auto) => return Ok(()),
        (Protocol::Udt, Buffer::Bytes(buffer)) => (buffer, 2 * u32::from(transport.streams), process),
        (Protocol::Tcp, Buffer::Bytes(buffer)) => (buffer, 1, machine),
        (Protocol::Tcp, Buffer::Auto) | (Protocol::Udp, _) => return Ok(()),
    };
    if buffer.0.saturating_mul(u64::from(count)) > memory {
        // No more digits than anybody reads.
        return Err(NetError::Memory { buffer, count, memory: Size(memory / 1_000_000 * 1_000_000) });
    }
    Ok(())
}

/// Returns the physical memory of this machine, if /proc shows it.
fn memory() -> Option<Size> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| Size(kb * 1024))
}

/// Opens a listener for one session's streams: on the address of the control connection, on the first free port of a
/// range. Port 0 lets the kernel choose.
///
/// # Errors
/// No port is free, or a setting of the transport cannot be applied.
pub fn listen(
    local: SocketAddr,
    ports: (u16, u16),
    transport: &Transport,
    sends: bool,
) -> Result<std::net::TcpListener, NetError> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    let local = unmapped(local);
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

/// Returns the IPv4 address that an IPv4-mapped IPv6 address stands for, and any other address as it is. A control connection that
/// came to a socket for both families has a mapped one, which a socket for IPv6 alone, the default with
/// `net.ipv6.bindv6only`, cannot be bound to.
pub(crate) fn unmapped(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// Connects one stream. The transport's settings are in force before the handshake.
///
/// # Errors
/// The connection fails, or a setting of the transport cannot be applied.
pub fn connect(
    to: SocketAddr,
    from: &LocalEnd,
    transport: &Transport,
    sends: bool,
    timeout: Duration,
) -> Result<TcpStream, NetError> {
    let socket = new(to)?;
    apply(&socket, transport, sends)?;
    from.bind(&socket, to)?;
    socket
        .connect_timeout(&to.into(), timeout)
        .map_err(|source| NetError::Connect { host: format!("{to} (a data stream)"), source })?;
    Ok(socket.into())
}

/// Opens a connection without a transport's settings, for messages. Both ends send them in small segments, which also pass where
/// a path drops larger packets without a word: there, data over UDT take smaller packets by themselves.
///
/// # Errors
/// This host does not have its end `from`, or the connection fails.
pub fn connect_plain(to: SocketAddr, from: &LocalEnd, timeout: Duration) -> Result<io::Result<TcpStream>, NetError> {
    let socket = new(to)?;
    socket.set_tcp_mss(MESSAGE_MSS).map_err(system("setting TCP_MAXSEG"))?;
    from.bind(&socket, to)?;
    Ok(socket.connect_timeout(&to.into(), timeout).map(|()| socket.into()))
}

/// Whether an address is link-local and does not name its interface, without which the kernel cannot use it.
pub fn lacks_zone(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0)
}

fn new(address: SocketAddr) -> Result<Socket, NetError> {
    Socket::new(Domain::for_address(address), Type::STREAM, Some(socket2::Protocol::TCP))
        .map_err(system("opening a socket"))
}

/// Returns what this kernel lets this user's sockets have: congestion controls, and the largest send and receive buffer,
/// bytes.
pub fn limits() -> (Vec<String>, u64, u64) {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/net/{name}")).unwrap_or_default();
    let number = |name| read(name).trim().parse().unwrap_or(0);
    let available = read("ipv4/tcp_available_congestion_control");
    // Capabilities and namespaces decide which ones a user may set; root in a container may lack both. So try each.
    let allowed = |cc: &&str| {
        let transport =
            Transport { cc: (*cc).into(), streams: 1, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None };
        check_cc(&transport).is_ok()
    };
    let mut ccs: Vec<String> = available.split_whitespace().filter(allowed).map(str::to_owned).collect();
    if may_load() {
        let more: Vec<String> = loadable().into_iter().filter(|cc| !ccs.contains(cc)).collect();
        ccs.extend(more);
    }
    (ccs, number("core/wmem_max"), number("core/rmem_max"))
}

/// Whether the kernel loads a module when this process sets a congestion control (net/ipv4/tcp_cong.c,
/// `tcp_ca_find_autoload`). It does for `CAP_NET_ADMIN` in the initial user namespace, unless modules are disabled.
fn may_load() -> bool {
    const CAP_NET_ADMIN: u32 = 12;
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{name}")).unwrap_or_default();
    let status = read("self/status");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let initial = read("self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]);
    effective >> CAP_NET_ADMIN & 1 == 1 && initial && read("sys/kernel/modules_disabled").trim() != "1"
}

/// Returns Linux's congestion controls whose modules are installed for this kernel.
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

/// Returns the largest send and receive buffer that this kernel's autotuning reaches, bytes, bookkeeping included
/// (`tcp_wmem`, `tcp_rmem`).
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
    fn a_mapped_address_is_listened_on_over_ipv4() {
        let transport =
            Transport { cc: "cubic".into(), streams: 1, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None };
        let listener = listen("[::ffff:127.0.0.1]:0".parse().unwrap(), (0, 0), &transport, false).unwrap();
        assert_eq!(listener.local_addr().unwrap().ip(), IpAddr::from([127, 0, 0, 1]));
        let other = "[fe80::1%3]:9".parse().unwrap();
        assert_eq!(unmapped(other), other);
    }

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
    fn the_buffers_of_all_streams_over_udt_fit_into_the_memory_of_a_process() {
        let check = |cc: &str, streams, buffer| {
            let transport = Transport { cc: cc.into(), streams, buffer, pacing: None, dscp: None, mss: None };
            check_buffers(&transport, 200_000_000, 150_000_000).map_err(|error| error.to_string())
        };
        let size = |bytes| Buffer::Bytes(Size(bytes));
        for (cc, streams, buffer) in
            [("cubic", 64, size(200_000_000)), ("udt", 2, size(37_000_000)), ("udt", 16, Buffer::Auto)]
        {
            assert_eq!(check(cc, streams, buffer), Ok(()), "{cc} {streams}");
        }
        let one = "a buffer of 201MB is larger than the memory that there is for it (200MB); choose a smaller --buffer";
        assert_eq!(check("cubic", 64, size(201_000_000)), Err(one.to_owned()));
        let all = "6 buffers of 50MB (UDT has two for each stream) are larger than the memory that there is for them (150MB); \
                   choose a smaller --buffer, or fewer --streams";
        assert_eq!(check("udt", 3, size(50_000_000)), Err(all.to_owned()));
        // Nobody asked for a size, so there is one that fits.
        let auto = |streams, memory| {
            let cc = "udt".into();
            udt_buffer_within(
                &Transport { cc, streams, buffer: Buffer::Auto, pacing: None, dscp: None, mss: None },
                memory,
            )
        };
        assert_eq!(
            [auto(1, u64::MAX), auto(1, 4_000_000_000), auto(1, 800_000_000)],
            [1_000_000_000, 1_000_000_000, 200_000_000]
        );
        assert_eq!([auto(10, u64::MAX), auto(10, 800_000_000)], [100_000_000, 20_000_000]);
    }

    #[test]
    fn the_largest_packet_of_a_route_is_known() {
        let lo = std::fs::read_to_string("/sys/class/net/lo/mtu").ok().and_then(|mtu| mtu.trim().parse().ok());
        // No IPv4 packet is longer than 65535 bytes.
        assert_eq!(path_mtu(([127, 0, 0, 1], 9).into()), lo.map(|mtu: u32| mtu.min(65535)));
    }
}
