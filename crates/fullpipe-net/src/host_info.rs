//! What one end is: everything that could explain a result.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::fd::AsFd;

use fullpipe_path::Rate;
use fullpipe_path::record::{EndInfo, Interface};
use socket2::SockRef;

use crate::sys;

/// Version of this program.
pub(crate) const PROGRAM: &str = env!("CARGO_PKG_VERSION");

/// Settings that bear on throughput, below /proc/sys.
const SYSCTLS: [&str; 17] = [
    "net/core/default_qdisc",
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/ipv4/tcp_adv_win_scale",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_ecn",
    "net/ipv4/tcp_limit_output_bytes",
    "net/ipv4/tcp_mem",
    "net/ipv4/tcp_moderate_rcvbuf",
    "net/ipv4/tcp_no_metrics_save",
    "net/ipv4/tcp_notsent_lowat",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_sack",
    "net/ipv4/tcp_slow_start_after_idle",
    "net/ipv4/tcp_timestamps",
    "net/ipv4/tcp_window_scaling",
    "net/ipv4/tcp_wmem",
];

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn kernel() -> String {
    read("/proc/sys/kernel/osrelease").unwrap_or_default()
}

/// Describes this end by its first stream.
pub fn describe(stream: &std::net::TcpStream) -> EndInfo {
    let socket = SockRef::from(stream);
    let fd = stream.as_fd();
    let cc = socket.tcp_congestion().unwrap_or_default();
    let cc: String = cc.iter().take_while(|b| **b != 0).map(|b| char::from(*b)).collect();
    let pacing = sys::max_pacing_rate(fd).ok().filter(|&rate| rate != u64::MAX && rate != u64::from(u32::MAX));
    let (sndbuf, rcvbuf) = buffers(stream);
    EndInfo {
        program: PROGRAM.into(),
        kernel: kernel(),
        cc_params: parameters(&cc),
        cc,
        sndbuf,
        rcvbuf,
        pacing: pacing.map(|bytes| Rate(bytes.saturating_mul(8))),
        mss: sys::int_option(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG).unwrap_or(0) as u32,
        mtu: sys::int_option(fd, libc::IPPROTO_IP, libc::IP_MTU).ok().map(|mtu| mtu as u32),
        interface: stream.local_addr().ok().and_then(|address| interface(address.ip())),
        sysctls: SYSCTLS
            .iter()
            .filter_map(|name| Some((name.replace('/', "."), read(&format!("/proc/sys/{name}"))?)))
            .collect(),
    }
}

/// Send and receive buffer as the kernel has them now; autotuning changes them.
pub fn buffers(stream: &std::net::TcpStream) -> (u64, u64) {
    let socket = SockRef::from(stream);
    (socket.send_buffer_size().unwrap_or(0) as u64, socket.recv_buffer_size().unwrap_or(0) as u64)
}

fn parameters(cc: &str) -> BTreeMap<String, String> {
    let Ok(folder) = fs::read_dir(format!("/sys/module/tcp_{cc}/parameters")) else { return BTreeMap::new() };
    folder
        .flatten()
        .filter_map(|entry| {
            let value = read(entry.path().to_str()?)?;
            Some((entry.file_name().into_string().ok()?, value))
        })
        .collect()
}

fn interface(local: IpAddr) -> Option<Interface> {
    let name = nix::ifaddrs::getifaddrs().ok()?.find_map(|entry| {
        let address = entry.address?;
        let ip = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
            (Some(v4), _) => IpAddr::V4(v4.ip()),
            (_, Some(v6)) => IpAddr::V6(v6.ip()),
            _ => return None,
        };
        (ip == local).then_some(entry.interface_name)
    })?;
    let number = |file: &str| read(&format!("/sys/class/net/{name}/{file}")).and_then(|text| text.parse().ok());
    Some(Interface {
        speed_bps: number("speed").map(|mbit: u64| mbit * 1_000_000),
        gso_max_size: number("gso_max_size"),
        tx_queue_len: number("tx_queue_len"),
        name,
    })
}
