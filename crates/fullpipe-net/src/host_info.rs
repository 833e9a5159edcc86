//! Describes a host for a record: its kernel, the settings of its streams, and whatever else may explain a result.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

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

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn kernel() -> String {
    read("/proc/sys/kernel/osrelease").unwrap_or_default()
}

/// Describes this host by its streams: by the first one, and the sizes of packets by the one with the smallest. What the streams'
/// transport does not have is zero or empty in the record. Without streams, all is.
pub fn describe(streams: &[&dyn StreamHandle]) -> EndInfo {
    let Some(stream) = streams.first() else { return EndInfo::default() };
    let settings = stream.settings();
    let others: Vec<Settings> = streams[1..].iter().map(|stream| stream.settings()).collect();
    let all = || std::iter::once(&settings).chain(&others);
    let smallest = all().min_by_key(|settings| settings.packet_bytes).unwrap_or(&settings);
    let (mss, mtu) = (smallest.segment_bytes.unwrap_or(0), smallest.packet_bytes);
    let differ = all().any(|settings| settings.packet_bytes != mtu);
    let stream_mtus =
        if differ { all().map(|settings| settings.packet_bytes.unwrap_or(0)).collect() } else { Vec::new() };
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
        dscp: settings.dscp,
        mss,
        mtu,
        stream_mtus,
        socket_drops: None,
        interface: stream.local_address().and_then(|local| interface(local.ip(), stream.peer_address()?.ip())),
        sysctls: SYSCTLS
            .iter()
            .filter_map(|name| Some((name.replace('/', "."), read(format!("/proc/sys/{name}"))?)))
            .collect(),
    }
}

/// Send and receive buffer as a record names them, bytes; zero where the transport has none.
pub(crate) fn buffers(settings: &Settings) -> (u64, u64) {
    (settings.send_buffer_bytes.unwrap_or(0), settings.receive_buffer_bytes.unwrap_or(0))
}

/// Messages that the streams' sockets have dropped, as they had no room for them; `None` for TCP, which drops none.
pub(crate) fn dropped(streams: &[&dyn StreamHandle]) -> Option<u64> {
    streams.iter().filter_map(|stream| stream.settings().dropped).map(u64::from).reduce(|sum, more| sum + more)
}

fn parameters(cc: &str) -> BTreeMap<String, String> {
    let Ok(folder) = fs::read_dir(format!("/sys/module/tcp_{cc}/parameters")) else { return BTreeMap::new() };
    folder
        .flatten()
        .filter_map(|entry| {
            let value = read(entry.path())?;
            Some((entry.file_name().into_string().ok()?, value))
        })
        .collect()
}

/// Name of the interface that has an address of this host.
fn interface_name(ip: IpAddr) -> Option<String> {
    // A socket for both families has an IPv4 connection's address as an IPv4-mapped IPv6 address.
    let ip = ip.to_canonical();
    nix::ifaddrs::getifaddrs().ok()?.find_map(|entry| {
        let address = entry.address?;
        let own = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
            (Some(v4), _) => IpAddr::V4(v4.ip()),
            (_, Some(v6)) => IpAddr::V6(v6.ip()),
            _ => return None,
        };
        (own == ip).then_some(entry.interface_name)
    })
}

/// Beginnings of the names of drivers whose interfaces carry more than the speed that they claim: those of virtual machines (`vif`
/// is Xen's) and tunnels.
const DRIVERS_WITHOUT_SPEED: [&str; 7] = ["hv_netvsc", "tun", "veth", "vif", "virtio_net", "vmxnet3", "xen"];
/// Largest number of interfaces that stand on each other.
const MAX_DEPTH: usize = 8;

/// Link speed of an interface below `root` (`/` for this host), bit/s. It counts only if all data below the interface go through
/// hardware whose driver knows its rate. A bridge of containers claims the speed of their ends, which is made up.
fn speed(root: &Path, name: &str) -> Option<u64> {
    let folder = root.join("sys/class/net");
    if !is_hardware(&folder, name, MAX_DEPTH) {
        return None;
    }
    // Drivers that do not know it give 0 or -1.
    let mbit: u64 = read(folder.join(name).join("speed"))?.parse().ok()?;
    (mbit > 0).then_some(mbit.saturating_mul(1_000_000))
}

/// Whether an interface is hardware whose driver knows its rate, or stands on such interfaces alone (`lower_NAME`: VLAN, bond).
fn is_hardware(folder: &Path, name: &str, depth: usize) -> bool {
    let own = folder.join(name);
    let entries = fs::read_dir(&own).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let lower: Vec<String> = names.filter_map(|name| name.strip_prefix("lower_").map(str::to_owned)).collect();
    if !lower.is_empty() {
        return depth > 0 && lower.iter().all(|lower| is_hardware(folder, lower, depth - 1));
    }
    let driver = fs::read_link(own.join("device/driver")).ok();
    let driver = driver.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy()).unwrap_or_default();
    own.join("device").exists() && !DRIVERS_WITHOUT_SPEED.iter().any(|without| driver.starts_with(without))
}

/// Describes the interface that carries a connection between two addresses.
fn interface(local: IpAddr, peer: IpAddr) -> Option<Interface> {
    // Connections within a host go over loopback, whichever of its addresses they use.
    let name = if interface_name(peer).is_some() { "lo".to_owned() } else { interface_name(local)? };
    let number = |file: &str| read(format!("/sys/class/net/{name}/{file}")).and_then(|text| text.parse().ok());
    Some(Interface {
        speed_bps: speed(Path::new("/"), &name),
        gso_max_size: number("gso_max_size"),
        tx_queue_len: number("tx_queue_len"),
        name,
    })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::stream::Observation;

    /// An interface in a folder that looks like /sys; its driver, if it has a device, and the interfaces that it stands on.
    fn add(root: &Path, name: &str, driver: Option<&str>, lower: &[&str]) {
        let folder = root.join("sys/class/net").join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("speed"), "10000\n").unwrap();
        if let Some(driver) = driver {
            fs::create_dir_all(folder.join("device")).unwrap();
            symlink(format!("/drivers/{driver}"), folder.join("device/driver")).unwrap();
        }
        for lower in lower {
            symlink(format!("../{lower}"), folder.join(format!("lower_{lower}"))).unwrap();
        }
    }

    #[test]
    fn only_hardware_has_a_speed_that_counts() {
        let root = std::env::temp_dir().join(format!("fullpipe-speed-{}", std::process::id()));
        add(&root, "ens1", Some("ice"), &[]);
        add(&root, "ens2", Some("ice"), &[]);
        add(&root, "bond0", None, &["ens1", "ens2"]);
        add(&root, "bond0.7", None, &["bond0"]);
        add(&root, "veth1", None, &[]);
        add(&root, "docker0", None, &["veth1"]);
        add(&root, "br0", None, &["ens1", "veth1"]);
        add(&root, "ens3", Some("vmxnet3"), &[]);
        add(&root, "eth0", Some("vif"), &[]);
        add(&root, "ens3.5", None, &["ens3"]);
        add(&root, "loop0", None, &["loop0"]);
        let counts = |name: &&str| speed(&root, name) == Some(10_000_000_000);
        let all = ["ens1", "bond0", "bond0.7", "veth1", "docker0", "br0", "ens3", "eth0", "ens3.5", "loop0", "none"];
        let counted: Vec<&str> = all.into_iter().filter(counts).collect();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(counted, ["ens1", "bond0", "bond0.7"]);
    }

    struct Packets(Option<u32>);

    impl StreamHandle for Packets {
        fn observe(&self) -> io::Result<Observation> {
            Ok(Observation::default())
        }
        fn close(&self) {}
        fn settings(&self) -> Settings {
            Settings { packet_bytes: self.0, segment_bytes: self.0.map(|bytes| bytes - 44), ..Settings::default() }
        }
    }

    #[test]
    fn the_smallest_packets_are_those_of_the_run_and_each_streams_are_told_if_they_differ() {
        let described = |sizes: &[Option<u32>]| {
            let streams: Vec<Packets> = sizes.iter().map(|size| Packets(*size)).collect();
            let end = describe(&streams.iter().map(|stream| stream as &dyn StreamHandle).collect::<Vec<_>>());
            (end.mss, end.mtu, end.stream_mtus)
        };
        assert_eq!(described(&[Some(9000), Some(9000)]), (8956, Some(9000), vec![]));
        assert_eq!(described(&[Some(9000), Some(1500)]), (1456, Some(1500), vec![9000, 1500]));
        assert_eq!(described(&[None, None]), (0, None, vec![]));
        assert_eq!(described(&[]), (0, None, vec![]));
    }
}
