//! A host that was made up, in a folder that looks like its /proc, /sys and /lib.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use fullpipe_net::sys::Rings;

use super::*;
use crate::commands::doctor::finding::{MODULES_FILE, SYSCTL_FILE, State};

fn write(root: &Path, files: &[(&str, &str)]) {
    for (file, text) in files {
        let file = root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
}

/// As a distribution leaves it, with a card of 10 Gb/s.
fn as_installed() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        &[
            ("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"),
            ("proc/sys/net/core/default_qdisc", "pfifo_fast\n"),
            ("proc/sys/net/core/netdev_max_backlog", "1000\n"),
            ("proc/sys/net/core/rmem_max", "212992\n"),
            ("proc/sys/net/core/wmem_max", "212992\n"),
            ("proc/sys/net/ipv4/tcp_adv_win_scale", "1\n"),
            ("proc/sys/net/ipv4/tcp_allowed_congestion_control", "reno cubic\n"),
            ("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic bbr\n"),
            ("proc/sys/net/ipv4/tcp_mem", "189264\t252353\t378528\n"),
            ("proc/sys/net/ipv4/tcp_moderate_rcvbuf", "1\n"),
            ("proc/sys/net/ipv4/tcp_mtu_probing", "0\n"),
            ("proc/sys/net/ipv4/tcp_no_metrics_save", "0\n"),
            ("proc/sys/net/ipv4/tcp_no_ssthresh_metrics_save", "1\n"),
            ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
            ("proc/sys/net/ipv4/tcp_sack", "1\n"),
            ("proc/sys/net/ipv4/tcp_slow_start_after_idle", "1\n"),
            ("proc/sys/net/ipv4/tcp_timestamps", "1\n"),
            ("proc/sys/net/ipv4/tcp_window_scaling", "1\n"),
            ("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n"),
            ("proc/self/limits", "Max open files            1024                 1048576              files     \n"),
            ("proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\n"),
            ("proc/self/mounts", "proc /proc proc rw,nosuid 0 0\n"),
            ("proc/net/softnet_stat", "0000000e 00000000 0\n0000000e 0000000a 0\n"),
            ("proc/meminfo", "MemTotal:       65536000 kB\n"),
            ("proc/1/comm", "systemd\n"),
            ("proc/812/comm", "irqbalance\n"),
            ("lib/modules/6.1.0-18-amd64/kernel/net/ipv4/tcp_htcp.ko.xz", ""),
            ("lib/modules/6.1.0-18-amd64/modules.builtin", "kernel/net/ipv4/tcp_scalable.ko\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n"),
            ("sys/class/net/lo/flags", "0x9\n"),
            ("sys/class/net/ens1/flags", "0x1003\n"),
            ("sys/class/net/ens1/operstate", "up\n"),
            ("sys/class/net/ens1/mtu", "1500\n"),
            ("sys/class/net/ens1/speed", "10000\n"),
            ("sys/class/net/ens1/duplex", "full\n"),
            ("sys/class/net/ens1/tx_queue_len", "1000\n"),
            ("sys/class/net/ens1/ifindex", "2\n"),
            ("sys/class/net/ens1/queues/rx-0/x", ""),
            ("sys/class/net/ens1/queues/tx-0/x", ""),
            ("sys/class/net/ens1/device/current_link_speed", "5.0 GT/s PCIe\n"),
            ("sys/class/net/ens1/device/current_link_width", "1\n"),
            ("sys/class/net/ens1/device/max_link_speed", "8.0 GT/s PCIe\n"),
            ("sys/class/net/ens1/device/max_link_width", "8\n"),
            ("sys/class/net/ens1/statistics/rx_missed_errors", "7\n"),
            ("sys/class/net/ens2/flags", "0x1002\n"),
        ],
    );
    dir
}

fn read(root: &Path) -> Host {
    let mut host = Host::read(root, None);
    host.page = Some(4096);
    for interface in &mut host.interfaces {
        interface.qdiscs = Some(vec!["pfifo_fast".into()]);
        interface.rings = Some(Rings { rx: 512, rx_max: 4096, tx: 512, tx_max: 4096 });
        interface.offloads = [("gro".to_owned(), false), ("tso".to_owned(), false)].into();
    }
    host
}

fn by(rtt_s: f64, rate_bps: f64) -> Yardstick {
    let ranking = [("htcp", 9.1e9), ("scalable", 9.0e9), ("bbr", 7.0e9), ("cubic", 5.0e9)];
    Yardstick { rtt_s, rate_bps, asked: true, ranking: ranking.map(|(cc, bps)| (cc.to_owned(), bps)).into() }
}

fn find(findings: &[Finding], subject: &str) -> Finding {
    findings.iter().find(|finding| finding.subject == subject).cloned().unwrap_or_else(|| panic!("no {subject}"))
}

#[test]
fn a_host_as_installed() {
    let dir = as_installed();
    let host = read(dir.path());
    assert_eq!(host.interfaces.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["ens1"]);
    assert_eq!(host.cpus, 2);
    let findings = all(&host, &by(0.1, 10e9));
    for (subject, leaves, fix, keep) in [
        ("net.core.wmem_max", Some(17.04e6), "sysctl -w net.core.wmem_max=268435456", "net.core.wmem_max = 268435456"),
        ("net.core.rmem_max", Some(17.04e6), "sysctl -w net.core.rmem_max=268435456", "net.core.rmem_max = 268435456"),
        (
            "net.ipv4.tcp_wmem",
            Some(223.7e6),
            "sysctl -w net.ipv4.tcp_wmem=\"4096 16384 268435456\"",
            "net.ipv4.tcp_wmem = 4096 16384 268435456",
        ),
        // Half of it is window.
        (
            "net.ipv4.tcp_rmem",
            Some(251.7e6),
            "sysctl -w net.ipv4.tcp_rmem=\"4096 131072 268435456\"",
            "net.ipv4.tcp_rmem = 4096 131072 268435456",
        ),
        (
            "ens1 MTU",
            Some(9.415e9),
            "ip link set dev ens1 mtu 9000",
            "ACTION==\"add|move\", SUBSYSTEM==\"net\", KERNEL==\"ens1\", RUN+=\"/sbin/ip link set dev ens1 mtu 9000\"",
        ),
        ("ens1 PCIe", Some(4.0e9), "", ""),
        ("ens1 rings", None, "ethtool -G ens1 rx 4096 tx 4096", "RUN+=\"/sbin/ethtool -G ens1 rx 4096 tx 4096\""),
        ("ens1 offloads", None, "ethtool -K ens1 gro on", "/sbin/ethtool -K ens1 gro on"),
        ("ens1 qdisc", None, "tc qdisc replace dev ens1 root fq", "net.core.default_qdisc = fq"),
        ("ens1 txqueuelen", None, "ip link set dev ens1 txqueuelen 10000", "txqueuelen 10000"),
        ("congestion controls", Some(7.0e9), "modprobe tcp_htcp", "tcp_htcp"),
        (
            "net.ipv4.tcp_allowed_congestion_control",
            None,
            "sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr htcp scalable\"",
            "= reno cubic bbr htcp scalable",
        ),
        ("net.ipv4.tcp_slow_start_after_idle", None, "sysctl -w net.ipv4.tcp_slow_start_after_idle=0", "= 0"),
        ("net.core.netdev_max_backlog", None, "sysctl -w net.core.netdev_max_backlog=250000", "= 250000"),
        ("CPU governor", None, "echo performance | tee", "w /sys/devices/system/cpu/"),
    ] {
        let finding = find(&findings, subject);
        assert_eq!(finding.state, State::Costs, "{finding:?}");
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-3;
        assert!(
            match (finding.leaves_bps, leaves) {
                (Some(is), Some(should)) => near(is, should),
                (is, should) => is == should,
            },
            "{finding:?}"
        );
        assert!(finding.fix.concat().starts_with(fix), "{finding:?}");
        assert_eq!(finding.root, !fix.is_empty(), "{finding:?}");
        let kept = finding.keep.as_ref().map(|keep| keep.lines.concat()).unwrap_or_default();
        assert!(kept.contains(keep), "{finding:?}");
    }
    // Packets were lost once, and nobody knows when.
    let lost = find(&findings, "ens1 receive errors");
    assert_eq!((lost.state, lost.read.as_deref()), (State::Unknown, Some("rx_missed_errors 7")));
    assert!(lost.words.contains("rings full") && lost.see.is_some(), "{lost:?}");
    // What could cut the host off stands apart.
    let unsure: Vec<&str> = findings.iter().filter(|f| f.only_if.is_some()).map(|f| f.subject.as_str()).collect();
    assert_eq!(unsure, ["ens1 MTU"]);
    let wmem = find(&findings, "net.core.wmem_max").words;
    assert!(wmem.contains("about 17.04 Mb/s of 10.00 Gb/s over 100 ms"), "{wmem}");
    for subject in [
        "net.ipv4.tcp_sack",
        "net.ipv4.tcp_mtu_probing",
        "net.ipv4.tcp_mem",
        "net.ipv4.tcp_no_metrics_save",
        "irqbalance",
        "kernel",
        "ens1 link",
    ] {
        assert_eq!(find(&findings, subject).state, State::Ok, "{subject}");
    }
    // What costs most comes first, what is well last.
    assert_eq!(findings[0].subject, "net.core.wmem_max");
    assert!(findings.is_sorted_by_key(|finding| finding.state));
    let at = |subject: &str| findings.iter().position(|finding| finding.subject == subject).unwrap();
    assert!(at("net.ipv4.tcp_wmem") < at("ens1 qdisc") && at("ens1 qdisc") < at("net.ipv4.tcp_slow_start_after_idle"));
    assert!(at("net.ipv4.tcp_slow_start_after_idle") < at("net.core.default_qdisc"));
}

#[test]
fn processors_without_aes_check_slowly() {
    let dir = as_installed();
    let aes = |cpuinfo: &str| {
        write(dir.path(), &[("proc/cpuinfo", cpuinfo)]);
        find(&all(&read(dir.path()), &by(0.1, 10e9)), "AES instructions")
    };
    assert_eq!(find(&all(&read(dir.path()), &by(0.1, 10e9)), "AES instructions").state, State::Unknown);
    let server = aes("processor\t: 0\nflags\t\t: fpu sse2 aes avx avx2\n");
    let small = aes("processor\t: 0\nFeatures\t: fp asimd crc32\n");
    let large = aes("processor\t: 0\nFeatures\t: fp asimd aes pmull\n");
    let guest = aes("processor\t: 0\nflags\t\t: fpu sse2 aes hypervisor\n");
    assert_eq!([server.state, small.state, large.state], [State::Ok, State::Costs, State::Ok]);
    assert!(guest.state == State::Costs && guest.words.contains("its host may pass them on"), "{guest:?}");
    assert!(!small.words.contains("its host"), "{small:?}");
}

#[test]
fn mended_it_costs_nothing() {
    let dir = as_installed();
    // What was said for 10 Gb/s over 100 ms, put where it was said.
    for finding in all(&read(dir.path()), &by(0.1, 10e9)) {
        for line in finding.keep.filter(|keep| keep.file == SYSCTL_FILE).iter().flat_map(|keep| &keep.lines) {
            let (key, value) = line.split_once(" = ").unwrap();
            write(dir.path(), &[(&format!("proc/sys/{}", key.replace('.', "/")), value)]);
        }
    }
    for finding in all(&read(dir.path()), &by(0.1, 10e9)) {
        assert!(!finding.subject.starts_with("net.") || finding.state == State::Ok, "{finding:?}");
    }
}

#[test]
fn nothing_is_seen_of_an_empty_host() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::read(dir.path(), None);
    let findings = all(&host, &by(0.1, 10e9));
    for finding in &findings {
        assert_eq!(finding.state, State::Unknown, "{finding:?}");
        assert!(finding.see.is_some() && finding.fix.is_empty(), "{finding:?}");
        assert!(finding.words.contains("could not see"), "{finding:?}");
        assert!(!finding.root, "{finding:?}");
    }
    assert!(findings.len() > 15);
    assert!(Host::read(dir.path(), Some("bond0")).interfaces.len() == 1);
}

#[test]
fn a_short_or_slow_path_needs_little() {
    let dir = as_installed();
    let findings = all(&read(dir.path()), &by(0.0002, 1e9));
    for subject in ["net.core.wmem_max", "net.ipv4.tcp_wmem", "net.ipv4.tcp_rmem", "ens1 MTU", "ens1 rings"] {
        assert_eq!(find(&findings, subject).state, State::Ok, "{subject}");
    }
}

#[test]
fn no_window_is_beyond_what_tcp_has() {
    let dir = as_installed();
    let by = by(0.366, 100e9);
    let findings = all(&read(dir.path()), &by);
    let one = find(&findings, "one stream");
    assert_eq!(one.state, State::Costs);
    assert!(one.words.contains("--streams 5"), "{}", one.words);
    // What is asked for is what the kernel can do, and then enough for what a stream can.
    let asked = find(&findings, "net.core.rmem_max");
    assert_eq!(asked.fix, ["sysctl -w net.core.rmem_max=1073741823"]);
    write(
        dir.path(),
        &[("proc/sys/net/core/rmem_max", "1073741823"), ("proc/sys/net/ipv4/tcp_rmem", "1 2 2147483647")],
    );
    let findings = all(&read(dir.path()), &by);
    assert_eq!(find(&findings, "net.core.rmem_max").state, State::Ok);
    assert_eq!(find(&findings, "net.ipv4.tcp_rmem").state, State::Ok);
    assert!(find(&findings, "irqbalance").fix.contains(&"systemctl disable --now irqbalance".to_owned()));
    // 18 GB of buffers is fine with 64 GB of memory, not with 16.
    assert!(!find(&findings, "net.ipv4.tcp_mem").fix.is_empty());
    // Pages of 64 KiB hold as much in fewer.
    let mut host = read(dir.path());
    host.page = Some(65_536);
    assert_eq!(find(&all(&host, &by), "net.ipv4.tcp_mem").state, State::Ok);
    write(dir.path(), &[("proc/meminfo", "MemTotal: 16000000 kB\n")]);
    let memory = find(&all(&read(dir.path()), &by), "net.ipv4.tcp_mem");
    assert!(memory.fix.is_empty() && memory.words.contains("more than this machine can give"), "{memory:?}");
}

#[test]
fn what_is_switched_off() {
    let dir = as_installed();
    write(
        dir.path(),
        &[
            ("proc/sys/net/ipv4/tcp_window_scaling", "0"),
            ("proc/sys/net/ipv4/tcp_timestamps", "0"),
            ("proc/sys/net/ipv4/tcp_sack", "0"),
            ("proc/sys/net/ipv4/tcp_moderate_rcvbuf", "0"),
            ("sys/class/net/ens1/mtu", "9000"),
            ("sys/class/net/ens1/duplex", "half"),
        ],
    );
    let findings = all(&read(dir.path()), &by(0.1, 10e9));
    for (subject, part) in [
        ("net.ipv4.tcp_window_scaling", "about 5.243 Mb/s"),
        ("net.ipv4.tcp_timestamps", "every 3.436 s"),
        ("net.ipv4.tcp_sack", "100 ms"),
        ("net.ipv4.tcp_moderate_rcvbuf", "about 5.243 Mb/s"),
        ("net.ipv4.tcp_mtu_probing", "ens1 sends packets of 9000 bytes"),
        ("ens1 link", "only one end sends"),
    ] {
        let finding = find(&findings, subject);
        assert_eq!(finding.state, State::Costs, "{finding:?}");
        assert!(finding.words.contains(part), "{finding:?}");
    }
    assert_eq!(find(&findings, "ens1 MTU").state, State::Ok);
}

#[test]
fn loss_is_remembered_unless_a_setting_says_not_to() {
    let dir = as_installed();
    let metrics = || find(&all(&read(dir.path()), &by(0.1, 10e9)), "net.ipv4.tcp_no_metrics_save");
    write(dir.path(), &[("proc/sys/net/ipv4/tcp_no_ssthresh_metrics_save", "0")]);
    assert_eq!(metrics().fix, ["sysctl -w net.ipv4.tcp_no_metrics_save=1"]);
    // As before 5.6.
    fs::remove_file(dir.path().join("proc/sys/net/ipv4/tcp_no_ssthresh_metrics_save")).unwrap();
    assert_eq!(metrics().state, State::Costs);
    write(dir.path(), &[("proc/sys/net/ipv4/tcp_no_metrics_save", "1")]);
    assert_eq!(metrics().state, State::Ok);
}

#[test]
fn what_a_card_cannot_do_is_not_asked_of_it() {
    let dir = as_installed();
    let mut host = read(dir.path());
    for (off, state, fix) in [
        (vec![], State::Ok, ""),
        (vec!["rx", "tso"], State::Unknown, ""),
        (vec!["gso", "sg"], State::Unknown, ""),
        (vec!["gro", "gso", "rx"], State::Costs, "ethtool -K ens1 gro on gso on"),
    ] {
        let offloads = ["gro", "gso", "rx", "sg", "tso"].map(|name| (name.to_owned(), !off.contains(&name)));
        host.interfaces[0].offloads = offloads.into();
        let finding = find(&all(&host, &by(0.1, 10e9)), "ens1 offloads");
        assert_eq!((finding.state, finding.fix.concat().as_str()), (state, fix), "{finding:?}");
    }
}

#[test]
fn a_shaper_is_left_as_it_is() {
    let dir = as_installed();
    let mut host = read(dir.path());
    for (kinds, state, fix) in [
        (vec!["fq"], State::Ok, ""),
        (vec!["fq", "fq_codel"], State::Costs, "tc qdisc replace dev ens1 root fq"),
        (vec!["sfq"], State::Costs, "tc qdisc replace dev ens1 root fq"),
        (vec!["htb"], State::Unknown, ""),
        (vec!["cake"], State::Unknown, ""),
        (vec!["mqprio", "pfifo_fast"], State::Unknown, ""),
    ] {
        host.interfaces[0].qdiscs = Some(kinds.iter().map(|kind| (*kind).to_owned()).collect());
        let finding = find(&all(&host, &by(0.1, 10e9)), "ens1 qdisc");
        assert_eq!((finding.state, finding.fix.concat().as_str()), (state, fix), "{finding:?}");
        assert_eq!(finding.keep.is_some(), state == State::Costs, "{finding:?}");
    }
}

/// The kernel refuses the setting at boot if one of its congestion controls is not loaded.
#[test]
fn allowed_congestion_controls_are_loaded_at_boot() {
    let dir = as_installed();
    write(
        dir.path(),
        &[
            ("lib/modules/6.1.0-18-amd64/kernel/net/ipv4/tcp_bbr.ko.xz", ""),
            ("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic bbr htcp scalable\n"),
        ],
    );
    let allowed = find(&all(&read(dir.path()), &by(0.1, 10e9)), "net.ipv4.tcp_allowed_congestion_control");
    assert_eq!(allowed.keep.unwrap().file, SYSCTL_FILE);
    let modules = allowed.also_keep.unwrap();
    assert_eq!(modules.file, MODULES_FILE);
    assert_eq!(modules.lines, ["tcp_bbr", "tcp_htcp", "tcp_scalable"]);
}

#[test]
fn a_hard_limit_is_never_lowered() {
    let dir = as_installed();
    for (hard, fix, keep, root) in [
        ("1048576", "ulimit -S -n 1024", "* soft nofile 1024", false),
        ("512", "ulimit -n 1024", "* - nofile 1024", true),
    ] {
        let limits = format!("Max open files            512                  {hard}              files     \n");
        write(dir.path(), &[("proc/self/limits", &limits)]);
        let finding = find(&all(&read(dir.path()), &by(0.1, 10e9)), "open files");
        assert_eq!((finding.fix.concat().as_str(), finding.root), (fix, root));
        assert_eq!(finding.keep.unwrap().lines, [keep]);
    }
}

#[test]
fn old_kernels() {
    for (release, parts) in [
        ("3.10.0-1160.el7.x86_64", vec!["no BBR", "queue is fq", "departure time"]),
        ("4.9.0-19-amd64", vec!["queue is fq", "departure time"]),
        ("4.19.0-26-amd64", vec!["departure time", "34.36 Gb/s"]),
        ("4.20.0", vec![]),
        ("nonsense", vec!["could not see"]),
    ] {
        let dir = as_installed();
        write(dir.path(), &[("proc/sys/kernel/osrelease", release)]);
        let finding = find(&all(&read(dir.path()), &by(0.1, 100e9)), "kernel");
        assert_eq!(finding.state == State::Ok, parts.is_empty(), "{finding:?}");
        for part in parts {
            assert!(finding.words.contains(part), "{finding:?}");
        }
    }
}

#[test]
fn a_container_in_a_virtual_machine() {
    let dir = as_installed();
    write(
        dir.path(),
        &[
            ("proc/self/mounts", "proc /proc proc rw 0 0\nproc /proc/sys proc ro,relatime 0 0\n"),
            ("proc/cpuinfo", "flags\t\t: fpu hypervisor\n"),
            ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
            ("run/systemd/container", "lxc\n"),
        ],
    );
    fs::remove_dir_all(dir.path().join("lib")).unwrap();
    let findings = all(&read(dir.path()), &by(0.1, 10e9));
    assert!(find(&findings, "permission").words.contains("read-only"));
    assert_eq!(find(&findings, "virtualisation").read.as_deref(), Some("QEMU"));
    assert_eq!(find(&findings, "container").read.as_deref(), Some("lxc"));
    let cc = find(&findings, "congestion controls");
    assert!(cc.fix.is_empty() && cc.words.contains("no /lib/modules/6.1.0-18-amd64"), "{cc:?}");
}

#[test]
fn a_bond_is_judged_with_its_parts() {
    let dir = as_installed();
    write(dir.path(), &[("sys/class/net/bond0/mtu", "1500"), ("sys/class/net/bond0/flags", "0x1403")]);
    symlink("../ens1", dir.path().join("sys/class/net/bond0/lower_ens1")).unwrap();
    let host = Host::read(dir.path(), Some("bond0"));
    assert_eq!(host.interfaces.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["bond0", "ens1"]);
    let findings = all(&host, &by(0.1, 10e9));
    assert!(findings.iter().any(|f| f.subject == "ens1 rings"));
    // A bond has no rings of its own.
    assert!(findings.iter().all(|f| f.subject != "bond0 rings"));
    // A VLAN on it is made of both.
    write(dir.path(), &[("sys/class/net/bond0.7/mtu", "1500")]);
    symlink("../bond0", dir.path().join("sys/class/net/bond0.7/lower_bond0")).unwrap();
    let host = Host::read(dir.path(), Some("bond0.7"));
    assert_eq!(host.interfaces.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["bond0.7", "bond0", "ens1"]);
}

#[test]
fn the_mtu_is_set_where_it_has_effect() {
    let dir = as_installed();
    write(
        dir.path(),
        &[
            ("sys/class/net/bond0/mtu", "1500"),
            ("sys/class/net/bond0/uevent", "DEVTYPE=bond\nINTERFACE=bond0\n"),
            ("sys/class/net/bond0.7/mtu", "1500"),
            ("sys/class/net/bond0.7/uevent", "DEVTYPE=vlan\nINTERFACE=bond0.7\n"),
        ],
    );
    symlink("../ens1", dir.path().join("sys/class/net/bond0/lower_ens1")).unwrap();
    symlink("../bond0", dir.path().join("sys/class/net/ens1/master")).unwrap();
    symlink("../bond0", dir.path().join("sys/class/net/bond0.7/lower_bond0")).unwrap();
    let fixes = |only: Option<&str>| -> Vec<String> {
        let findings = all(&Host::read(dir.path(), only), &by(0.1, 10e9));
        findings.iter().filter(|finding| finding.subject.ends_with("MTU")).flat_map(|f| f.fix.clone()).collect()
    };
    // A part follows its bond.
    assert!(fixes(Some("ens1")).is_empty());
    assert_eq!(fixes(Some("bond0")), ["ip link set dev bond0 mtu 9000"]);
    assert_eq!(fixes(Some("bond0.7")), ["ip link set dev bond0 mtu 9000", "ip link set dev bond0.7 mtu 9000"]);
    let findings = all(&Host::read(dir.path(), Some("bond0.7")), &by(0.1, 10e9));
    let keep = find(&findings, "bond0.7 MTU").keep.unwrap().lines;
    assert!(keep[0].contains("KERNEL==\"bond0\"") && keep[1].contains("KERNEL==\"bond0.7\""), "{keep:?}");
    write(dir.path(), &[("sys/class/net/bond0/mtu", "9000")]);
    assert_eq!(fixes(Some("bond0.7")), ["ip link set dev bond0.7 mtu 9000"]);
}

#[test]
fn a_slow_link_beside_a_fast_one_is_fine() {
    let dir = as_installed();
    write(dir.path(), &[("sys/class/net/ens1/speed", "1000"), ("sys/class/net/bond0/mtu", "1500")]);
    let mut by = by(0.1, 100e9);
    let speed = |by: &Yardstick| find(&all(&read(dir.path()), by), "ens1 link").state;
    assert_eq!(speed(&by), State::Costs);
    by.asked = false;
    let findings = all(&read(dir.path()), &by);
    for part in ["link", "PCIe", "MTU", "rings", "txqueuelen"] {
        let finding = find(&findings, &format!("ens1 {part}"));
        assert_eq!(finding.state, State::Ok, "{finding:?}");
    }
    // Nor is each part of a bond as fast as the whole.
    by.asked = true;
    symlink("../bond0", dir.path().join("sys/class/net/ens1/master")).unwrap();
    assert_eq!(speed(&by), State::Ok);
}

#[test]
fn the_window_is_what_each_kernel_makes_of_the_buffer() {
    let dir = as_installed();
    let rmem = |release: &str, scale: &str| {
        write(dir.path(), &[("proc/sys/kernel/osrelease", release), ("proc/sys/net/ipv4/tcp_adv_win_scale", scale)]);
        find(&all(&read(dir.path()), &by(0.1, 10e9)), "net.ipv4.tcp_rmem")
    };
    for (scale, part) in [("1", "about 251.7 Mb/s of"), ("2", "about 377.5 Mb/s of"), ("-2", "about 125.8 Mb/s of")] {
        let words = rmem("5.15.0", scale).words;
        assert!(words.contains(part) && !words.contains("up to"), "{words}");
    }
    // From 6.6 on the setting says nothing.
    let words = rmem("6.12.0", "-2").words;
    assert!(
        words.contains("about 251.7 Mb/s of 10.00 Gb/s over 100 ms, with large packets up to 453.0 Mb/s"),
        "{words}"
    );
}

#[test]
fn what_is_one_for_all_namespaces_is_set_outside() {
    let dir = as_installed();
    let by = by(0.1, 10e9);
    assert!(!read(dir.path()).own_namespace);
    for gone in ["ipv4/tcp_mem", "core/default_qdisc", "core/netdev_max_backlog"] {
        fs::remove_file(dir.path().join("proc/sys/net").join(gone)).unwrap();
    }
    let findings = all(&read(dir.path()), &by);
    for subject in ["net.core.rmem_max", "net.core.wmem_max", "net.ipv4.tcp_allowed_congestion_control"] {
        let finding = find(&findings, subject);
        assert!(finding.state == State::Costs && finding.fix.is_empty() && finding.keep.is_none(), "{finding:?}");
        assert!(finding.words.ends_with("it can be set only outside this network namespace, on the host itself"));
    }
    let memory = find(&findings, "net.ipv4.tcp_mem");
    assert!(memory.state == State::Unknown && memory.words.contains("one for the whole kernel"), "{memory:?}");
    // Each namespace has its own of these.
    assert!(!find(&findings, "net.ipv4.tcp_wmem").fix.is_empty());
}

#[test]
fn a_pause_that_costs_microseconds_is_no_finding() {
    let host = read(as_installed().path());
    let idle = |rtt_s| find(&all(&host, &by(rtt_s, 10e9)), "net.ipv4.tcp_slow_start_after_idle").state;
    assert_eq!((idle(20e-6), idle(0.1)), (State::Ok, State::Costs));
}
