//! Describes a host for a record: its kernel, the settings of its streams, and whatever else may explain a result.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;

use fullpipe_path::Rate;
use fullpipe_path::record::{EndInfo, Interface};

use crate::stream::{Settings, StreamHandle};

/// Version of this program.
pub(crate) const PROGRAM: &str = env!("CARGO_PKG_VERSION");

/// Kernel settings that influence throughput, below /proc/sys.
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

/// Describes this host by one of its streams. What the stream's transport does not have is zero or empty in the record.
pub fn describe(stream: &dyn StreamHandle) -> EndInfo {
    let settings = stream.settings();
    let (sndbuf, rcvbuf) = buffers(&settings);
    let cc = settings.congestion_control.unwrap_or_default();
    EndInfo {
        program: PROGRAM.into(),
        kernel: kernel(),
        cc_params: parameters(&cc),
        cc,
        sndbuf,
        rcvbuf,
        pacing: settings.pacing_bytes_per_s.map(|bytes| Rate(bytes.saturating_mul(8))),
        mss: settings.segment_bytes.unwrap_or(0),
        mtu: settings.packet_bytes,
        interface: stream.local_address().and_then(|address| interface(address.ip())),
        sysctls: SYSCTLS
            .iter()
            .filter_map(|name| Some((name.replace('/', "."), read(&format!("/proc/sys/{name}"))?)))
            .collect(),
    }
}

/// Send and receive buffer as a record names them, bytes; zero where the transport has none.
pub(crate) fn buffers(settings: &Settings) -> (u64, u64) {
    (settings.send_buffer_bytes.unwrap_or(0), settings.receive_buffer_bytes.unwrap_or(0))
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
