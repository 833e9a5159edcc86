//! Reads what this host is like: from files in /proc, /sys and /lib, and from the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use fullpipe_lab::guest::{InstalledQdisc, installed_qdiscs};
use fullpipe_net::sys::{self, Offload, Rings};
use nix::unistd::{SysconfVar, sysconf};

/// Settings that bear on throughput, and the names of host and kernel.
const SYSCTLS: [&str; 20] = [
    "net.core.default_qdisc",
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_adv_win_scale",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_no_ssthresh_metrics_save",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "kernel.osrelease",
    "kernel.hostname",
];
const OFFLOADS: [(Offload, &str); 6] = [
    (Offload::RxChecksum, "rx"),
    (Offload::TxChecksum, "tx"),
    (Offload::ScatterGather, "sg"),
    (Offload::Tso, "tso"),
    (Offload::Gso, "gso"),
    (Offload::Gro, "gro"),
];
/// Flags of an interface (include/uapi/linux/if.h).
const IFF_UP: u64 = 0x1;
const IFF_LOOPBACK: u64 = 0x8;

/// A host as it was found. `None` stands for what could not be read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Host {
    /// Settings by name, without those that could not be read.
    pub sysctls: BTreeMap<String, String>,
    /// Whether /proc/sys is mounted read-only, as in a container.
    pub sysctls_read_only: bool,
    /// Whether this is a network namespace of its own, in which the kernel neither shows nor takes what is one setting for all.
    pub own_namespace: bool,
    /// Congestion controls that are modules of the running kernel, loaded or not.
    pub modules: Option<BTreeSet<String>>,
    /// The interfaces that data may go through.
    pub interfaces: Vec<Interface>,
    /// Number of processors.
    pub cpus: usize,
    /// Whether processors have instructions for AES, and on x86 also AVX, which the encryption needs too.
    pub aes: Option<bool>,
    /// Frequency governors, each with the number of its processors.
    pub governors: BTreeMap<String, usize>,
    /// Whether a process named irqbalance runs.
    pub irqbalance: Option<bool>,
    /// Packets dropped since boot because the backlog of a processor was full.
    pub backlog_drops: Option<u64>,
    /// Soft and hard limit on open files (RLIMIT_NOFILE).
    pub open_files: Option<(u64, u64)>,
    /// Physical memory, bytes.
    pub memory: Option<u64>,
    /// Size of a memory page, bytes: 4 KiB, on Arm and POWER up to 64 KiB.
    pub page: Option<u64>,
    /// Name of the hypervisor, in a virtual machine.
    pub hypervisor: Option<String>,
    /// Kind of container, in a container.
    pub container: Option<String>,
    /// Whether this process may change network settings (CAP_NET_ADMIN, `capabilities(7)`).
    pub net_admin: Option<bool>,
}

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Index in the kernel.
    pub index: u32,
    /// Largest packet, bytes.
    pub mtu: Option<u64>,
    /// Speed of the link, bit/s.
    pub speed_bps: Option<u64>,
    /// Duplex mode, `full` or `half`.
    pub duplex: Option<String>,
    /// Length of queues that have no limit of their own, packets.
    pub queue_len: Option<u64>,
    /// Number of queues for received packets.
    pub rx_queues: usize,
    /// Number of queues for packets to send.
    pub tx_queues: usize,
    /// Driver of the device, if there is one.
    pub driver: Option<String>,
    /// Whether the interface has a device, a card or a virtual one.
    pub device: bool,
    /// Whether the interface is part of a bond or a bridge.
    pub part: bool,
    /// Kind of a virtual interface, such as `bond` or `vlan`, under the kernel's name.
    pub kind: Option<String>,
    /// Names of the interfaces that it is made of.
    pub lower: Vec<String>,
    /// Rate of its PCI Express link each way, bit/s: the present one, and the highest possible.
    pub pcie_bps: Option<(f64, f64)>,
    /// Received packets that were lost here since boot, under the kernel's names of the counters.
    pub lost: BTreeMap<String, u64>,
    /// Kinds of the queueing disciplines that packets wait in.
    pub qdiscs: Option<Vec<String>>,
    /// Sizes of the ring buffers.
    pub rings: Option<Rings>,
    /// Offloads under ethtool's names, without those that could not be read.
    pub offloads: BTreeMap<String, bool>,
}

impl Host {
    /// Reads a host from files below `root`: `/` for this host, another folder in tests. Reads the interface `only` and those
    /// it is made of (a bond, a VLAN), else all that are up except loopback.
    pub fn read(root: &Path, only: Option<&str>) -> Host {
        let sysctls: BTreeMap<String, String> = SYSCTLS
            .iter()
            .filter_map(|name| Some((name.to_string(), text(&root.join("proc/sys").join(name.replace('.', "/")))?)))
            .collect();
        let release = sysctls.get("kernel.osrelease").cloned().unwrap_or_default();
        let limits = fs::read_to_string(root.join("proc/self/limits")).unwrap_or_default();
        let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
        Host {
            sysctls_read_only: read_only(root),
            // Of these two, net/ipv4/sysctl_net_ipv4.c has the first for each namespace, and the second once.
            own_namespace: sysctls.contains_key("net.ipv4.tcp_rmem")
                && !root.join("proc/sys/net/ipv4/tcp_mem").exists(),
            modules: modules(root, &release),
            interfaces: interfaces(root, only),
            cpus: processors(root).len(),
            aes: aes(root),
            governors: governors(root),
            irqbalance: irqbalance(root),
            backlog_drops: backlog_drops(root),
            open_files: limit(&limits, "Max open files"),
            memory: memory(root),
            page: sysconf(SysconfVar::PAGE_SIZE).ok().flatten().map(|bytes| bytes as u64),
            hypervisor: hypervisor(root),
            container: container(root),
            net_admin: net_admin(&status),
            sysctls,
        }
    }

    /// Asks the running kernel for what no file has: queueing disciplines, rings, offloads.
    pub fn ask(&mut self) {
        let standing = installed_qdiscs().ok();
        for interface in &mut self.interfaces {
            if let Some(standing) = &standing {
                // ingress and clsact only look at arriving packets; nothing waits there.
                let here = |q: &&InstalledQdisc| q.link == interface.index && q.kind != "ingress" && q.kind != "clsact";
                let kinds = |root| -> Vec<String> {
                    standing.iter().filter(here).filter(|q| q.root == root).map(|q| q.kind.clone()).collect()
                };
                let (roots, children) = (kinds(true), kinds(false));
                // mq only hands packets to its children; they wait there.
                let shares = roots.iter().any(|kind| kind.starts_with("mq")) && !children.is_empty();
                // mqprio also tells which queue a packet goes to. Only mq is another name for its children.
                let sorts = roots.iter().any(|kind| kind == "mqprio") && children.iter().any(|kind| kind != "fq");
                let mut waits = if shares { children } else { roots };
                waits.extend(sorts.then(|| "mqprio".to_owned()));
                waits.sort();
                waits.dedup();
                interface.qdiscs = Some(waits).filter(|kinds| !kinds.is_empty());
            }
            interface.rings = sys::rings(&interface.name).ok().filter(|rings| rings.rx_max > 0);
            for (offload, name) in OFFLOADS {
                if let Ok(on) = sys::offload(&interface.name, offload) {
                    interface.offloads.insert(name.into(), on);
                }
            }
        }
    }

    /// The value of a setting.
    pub fn sysctl(&self, name: &str) -> Option<&str> {
        self.sysctls.get(name).map(String::as_str)
    }

    /// The value of a setting that is one number.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.sysctl(name)?.parse().ok()
    }

    /// The values of a setting that is three numbers: min, default and max, or for tcp_mem low, pressure and high.
    pub fn three(&self, name: &str) -> Option<[u64; 3]> {
        let numbers: Vec<u64> = self.sysctl(name)?.split(' ').filter_map(|word| word.parse().ok()).collect();
        numbers.try_into().ok()
    }

    /// The values of a setting that is a list of words.
    pub fn list(&self, name: &str) -> Option<Vec<&str>> {
        Some(self.sysctl(name)?.split(' ').filter(|word| !word.is_empty()).collect())
    }

    /// The major and minor version of the kernel.
    pub fn kernel(&self) -> Option<(u32, u32)> {
        let mut parts = self.sysctl("kernel.osrelease")?.split(|c: char| !c.is_ascii_digit());
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }
}

/// The words of a file, with one space between them.
fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The number in a file.
fn number(path: &Path) -> Option<u64> {
    text(path)?.parse().ok()
}

/// The names in a folder, sorted; none if it cannot be read.
fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Whether /proc/sys is mounted read-only.
fn read_only(root: &Path) -> bool {
    // A later mount hides an earlier one.
    let mounts = fs::read_to_string(root.join("proc/self/mounts")).unwrap_or_default();
    let mut options = mounts.lines().rev().filter_map(|line| {
        let mut words = line.split(' ');
        let place = words.nth(1)?;
        matches!(place, "/proc/sys" | "/proc").then(|| words.nth(1).unwrap_or_default())
    });
    options.next().is_some_and(|options| options.split(',').any(|option| option == "ro"))
}

/// Congestion controls that are modules of the kernel, or built into it.
fn modules(root: &Path, release: &str) -> Option<BTreeSet<String>> {
    let folder = root.join("lib/modules").join(release);
    if release.is_empty() || !folder.is_dir() {
        return None;
    }
    let built_in = fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
    let built_in = built_in.lines().filter_map(|line| line.rsplit('/').next());
    let files = names(&folder.join("kernel/net/ipv4"));
    let files = files.iter().map(String::as_str).chain(built_in);
    Some(files.filter_map(|file| file.strip_prefix("tcp_")?.split_once(".ko").map(|(name, _)| name.into())).collect())
}

/// The interface `only` and those it is made of, else all that are up.
fn interfaces(root: &Path, only: Option<&str>) -> Vec<Interface> {
    let folder = root.join("sys/class/net");
    let mut wanted: Vec<String> = match only {
        Some(name) => vec![name.to_owned()],
        None => names(&folder).into_iter().filter(|name| up(&folder.join(name))).collect(),
    };
    let mut looked = 0;
    while only.is_some() && looked < wanted.len() {
        let parts = lower(&folder.join(&wanted[looked])).into_iter();
        let new: Vec<String> = parts.filter(|part| !wanted.contains(part)).collect();
        wanted.extend(new);
        looked += 1;
    }
    wanted.into_iter().map(|name| interface(&folder.join(&name), name)).collect()
}

/// Names of the interfaces that an interface is made of. It has a link `lower_NAME` to each: a VLAN to a bond, a bond to its
/// cards.
fn lower(folder: &Path) -> Vec<String> {
    names(folder).iter().filter_map(|name| name.strip_prefix("lower_").map(str::to_owned)).collect()
}

/// Whether an interface is up and not loopback.
fn up(folder: &Path) -> bool {
    let flags =
        text(&folder.join("flags")).and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok());
    flags.is_some_and(|flags| flags & IFF_UP != 0 && flags & IFF_LOOPBACK == 0)
        && text(&folder.join("operstate")).is_none_or(|state| matches!(state.as_str(), "up" | "unknown"))
}

/// Reads one interface.
fn interface(folder: &Path, name: String) -> Interface {
    let queues = names(&folder.join("queues"));
    let count = |prefix: &str| queues.iter().filter(|queue| queue.starts_with(prefix)).count();
    let lost = ["rx_crc_errors", "rx_fifo_errors", "rx_missed_errors"]
        .iter()
        .filter_map(|name| Some((name.to_string(), number(&folder.join("statistics").join(name))?)))
        .collect();
    Interface {
        index: number(&folder.join("ifindex")).unwrap_or(0) as u32,
        mtu: number(&folder.join("mtu")),
        // It reads -1 if the driver does not know.
        speed_bps: number(&folder.join("speed")).filter(|mbit| *mbit > 0).map(|mbit| mbit * 1_000_000),
        duplex: text(&folder.join("duplex")).filter(|duplex| duplex != "unknown"),
        queue_len: number(&folder.join("tx_queue_len")),
        rx_queues: count("rx-"),
        tx_queues: count("tx-"),
        driver: fs::read_link(folder.join("device/driver"))
            .ok()
            .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned())),
        device: folder.join("device").exists(),
        part: folder.join("master").exists(),
        kind: fs::read_to_string(folder.join("uevent"))
            .ok()
            .and_then(|text| text.lines().find_map(|line| line.strip_prefix("DEVTYPE=").map(str::to_owned))),
        lower: lower(folder),
        pcie_bps: pcie(folder, "current").zip(pcie(folder, "max")),
        lost,
        name,
        ..Interface::default()
    }
}

/// Rate of a PCI Express link each way, bit/s: transfers per second and lane, times lanes, less the line code. The code is
/// 8b/10b up to 5 GT/s, and 128b/130b from 8 GT/s on (PCI Express Base Specification, 4.2.1 and 4.2.2).
fn pcie(folder: &Path, which: &str) -> Option<f64> {
    let transfers = text(&folder.join(format!("device/{which}_link_speed")))?;
    let transfers: f64 = transfers.split(' ').next()?.parse().ok()?;
    let lanes = number(&folder.join(format!("device/{which}_link_width")))? as f64;
    let code = if transfers < 8.0 { 0.8 } else { 128.0 / 130.0 };
    Some(transfers * 1e9 * lanes * code).filter(|bps| *bps > 0.0)
}

/// Folders of the processors.
fn processors(root: &Path) -> Vec<PathBuf> {
    let folder = root.join("sys/devices/system/cpu");
    let is_one = |name: &String| {
        name.strip_prefix("cpu").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    names(&folder).iter().filter(|name| is_one(name)).map(|name| folder.join(name)).collect()
}

/// Frequency governors, each with the number of its processors.
fn governors(root: &Path) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for governor in processors(root).iter().filter_map(|cpu| text(&cpu.join("cpufreq/scaling_governor"))) {
        *found.entry(governor).or_default() += 1;
    }
    found
}

/// Whether a process named irqbalance runs; none if processes cannot be seen.
fn irqbalance(root: &Path) -> Option<bool> {
    let proc = root.join("proc");
    let names = names(&proc);
    let mut processes = names.iter().filter(|name| name.bytes().all(|b| b.is_ascii_digit())).peekable();
    processes.peek()?;
    Some(processes.any(|pid| text(&proc.join(pid).join("comm")).as_deref() == Some("irqbalance")))
}

/// Packets that all processors dropped from their backlogs.
fn backlog_drops(root: &Path) -> Option<u64> {
    // Each processor has a line, whose second column counts its drops (net/core/net-procfs.c).
    let text = fs::read_to_string(root.join("proc/net/softnet_stat")).ok()?;
    text.lines().map(|line| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok()).sum()
}

/// A limit of /proc/self/limits, soft and hard.
fn limit(limits: &str, name: &str) -> Option<(u64, u64)> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let value = |word: &str| if word == "unlimited" { Some(u64::MAX) } else { word.parse().ok() };
    let mut words = line.split_whitespace();
    Some((value(words.next()?)?, value(words.next()?)?))
}

/// Physical memory, bytes.
fn memory(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kb| kb * 1024)
}

/// Name of the hypervisor, in a virtual machine.
fn hypervisor(root: &Path) -> Option<String> {
    let says = |file: &str| text(&root.join(file)).filter(|text| !text.is_empty());
    if let Some(kind) = says("sys/hypervisor/type") {
        return Some(kind);
    }
    abilities(root, "flags")?
        .contains("hypervisor")
        .then(|| says("sys/class/dmi/id/sys_vendor").unwrap_or_else(|| "of unknown make".into()))
}

/// Whether processors have the instructions that encryption needs.
fn aes(root: &Path) -> Option<bool> {
    let all = |found: BTreeSet<String>, wanted: &[&str]| wanted.iter().all(|ability| found.contains(*ability));
    let x86 = abilities(root, "flags").map(|found| all(found, &["aes", "avx"]));
    x86.or_else(|| abilities(root, "Features").map(|found| all(found, &["aes"])))
}

/// Abilities of the first processor: `flags` on x86, `Features` on Arm.
fn abilities(root: &Path, title: &str) -> Option<BTreeSet<String>> {
    let cpuinfo = fs::read_to_string(root.join("proc/cpuinfo")).ok()?;
    let line = cpuinfo.lines().find(|line| line.starts_with(title))?;
    Some(line.split_whitespace().map(str::to_owned).collect())
}

/// Kind of container, in a container.
fn container(root: &Path) -> Option<String> {
    let systemd = text(&root.join("run/systemd/container")).filter(|kind| !kind.is_empty());
    let docker = || root.join(".dockerenv").exists().then(|| "docker".to_owned());
    let podman = || root.join("run/.containerenv").exists().then(|| "podman".to_owned());
    systemd.or_else(docker).or_else(podman)
}

/// Whether /proc/self/status shows CAP_NET_ADMIN.
fn net_admin(status: &str) -> Option<bool> {
    const CAP_NET_ADMIN: u64 = 12;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok().map(|set| set >> CAP_NET_ADMIN & 1 == 1)
}
