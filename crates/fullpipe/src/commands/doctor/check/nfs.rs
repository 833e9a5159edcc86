//! Checks an NFS mount for a path: what the client may have under way at once, divided by the round-trip time, bounds the rate.

use crate::commands::doctor::finding::{Finding, State, Yardstick};
use crate::commands::doctor::host::Host;
use crate::format;
use crate::mount::Mount;

/// Size of a request that servers take by default, bytes.
const REQUEST_BYTES: u64 = 1 << 20;
/// Most session slots that it makes sense to ask for (NFS4_MAX_SLOT_TABLE, fs/nfs/nfs4session.h).
const MOST_SLOTS: u64 = 1024;
/// Most connections of a mount (`nfs(5)`).
const MOST_CONNECTIONS: u64 = 16;
/// File of the settings of the module nfs (`modprobe.d(5)`).
const MODULE_FILE: &str = "/etc/modprobe.d/fullpipe.conf";
/// File of the settings of NFS clients; `nfsrahead(5)` sets the read-ahead of new mounts from it.
const NFS_FILE: &str = "/etc/nfs.conf";

/// Checks a mount for a path, on a host whose sysctls were read.
pub fn check(mount: &Mount, host: &Host, by: &Yardstick) -> Vec<Finding> {
    let small = |name: &str| is_small(mount, by, name).then(|| format!("{name}={REQUEST_BYTES}"));
    let more = connections_needed(mount, host, by).map(|count| format!("nconnect={count}"));
    let waits = mount.has("sync").then(|| "async".to_owned());
    let changes: Vec<String> = [small("rsize"), small("wsize"), more, waits].into_iter().flatten().collect();
    // One command for all, since each begins with what the mount has now.
    let again = remount(mount, &changes);
    let mut findings = vec![
        read_ahead(mount, by),
        request(mount, by, "rsize", &again),
        request(mount, by, "wsize", &again),
        slots(mount, by, &again),
        connections(mount, host, by, &again),
    ];
    if mount.has("sync") {
        let bps = by.through(mount.number("wsize").unwrap_or(REQUEST_BYTES) as f64);
        let words = format!("each write waits for the server; one program writes {}", by.says(bps));
        findings.push(mounts_again(Finding::costs("sync", "on", words).leaves(bps), &again));
    }
    findings
}

/// The command that mounts it again with other options.
fn remount(mount: &Mount, changes: &[String]) -> String {
    // Options that the kernel adds by itself.
    const OWN: [&str; 7] = ["addr", "clientaddr", "local_lock", "mountaddr", "relatime", "rw", "namlen"];
    let key = |option: &str| option.split('=').next().unwrap_or_default().to_owned();
    let is_changed =
        |given: &str| changes.iter().any(|change| key(change) == key(given) || change == "async" && given == "sync");
    let mut options: Vec<&str> = Vec::new();
    let kept =
        mount.options.iter().map(String::as_str).filter(|given| !OWN.contains(&&*key(given)) && !is_changed(given));
    for option in kept.chain(changes.iter().map(String::as_str)) {
        if !options.contains(&option) {
            options.push(option);
        }
    }
    let (folder, source) = (format::quoted(&mount.folder.to_string_lossy()), format::quoted(&mount.source));
    format!("umount {folder} && mount -t {} -o {} {source} {folder}", mount.kind, format::quoted(&options.join(",")))
}

/// A finding whose commands unmount the file system.
fn mounts_again(finding: Finding, command: &str) -> Finding {
    finding.fix(command).only_if("no program uses the mount; then also change its line in /etc/fstab")
}

/// Reading ahead: the kernel asks for the next window while the program reads the one before, so two are under way. A window
/// has at least one request (`ondemand_readahead` and `get_init_ra_size`, mm/readahead.c). In the testbed (Linux 6.12), 128 KiB
/// and requests of 1 MiB carry 35 MB/s over 45.6 ms, where this is 46.
fn read_ahead(mount: &Mount, by: &Yardstick) -> Finding {
    let subject = "read-ahead";
    let Some(bytes) = mount.read_ahead else {
        return Finding::unseen(subject, "could not see it", format!("cat {}", mount.read_ahead_file));
    };
    let shown = format!("{} KiB", bytes >> 10);
    let window = bytes.max(mount.number("rsize").unwrap_or(0)) as f64;
    let bps = by.through(2.0 * window);
    if window >= by.bdp() || bps >= 2.0 * by.rate_bps {
        return Finding::ok(subject, shown, "what is read next is asked for in time");
    }
    let wanted = (by.bdp() as u64).next_power_of_two().clamp(16 << 20, 256 << 20) >> 10;
    let least = mount.number("rsize").filter(|rsize| *rsize > bytes);
    let calls = least.map(|rsize| format!(", in calls of {} KiB or more,", rsize >> 10)).unwrap_or_default();
    let words = format!("a program that reads a file in order{calls} gets {}", by.says(bps));
    let finding = Finding::costs(subject, shown, words).leaves(bps);
    let key = if mount.kind == "nfs4" { "nfs4" } else { "nfs" };
    // Whatever device the mount has by then: another one after it was mounted again.
    let file =
        format!("/sys/class/bdi/$(mountpoint -d {})/read_ahead_kb", format::quoted(&mount.folder.to_string_lossy()));
    finding
        .fix(format!("echo {wanted} > {file}"))
        .keep(NFS_FILE, "[nfsrahead]")
        .keep(NFS_FILE, format!("{key} = {wanted}"))
}

/// Whether requests of this size are too small.
fn is_small(mount: &Mount, by: &Yardstick, name: &str) -> bool {
    let enough = |bytes: u64| bytes >= REQUEST_BYTES || carried(mount, by, bytes) >= 2.0 * by.rate_bps;
    mount.number(name).is_some_and(|bytes| !enough(bytes))
}

/// Rate of as many requests of this size as may be under way, bit/s.
fn carried(mount: &Mount, by: &Yardstick, bytes: u64) -> f64 {
    by.through(bytes.saturating_mul(slot_count(mount)) as f64)
}

/// The size of a request.
fn request(mount: &Mount, by: &Yardstick, name: &str, again: &str) -> Finding {
    let Some(bytes) = mount.number(name) else {
        return Finding::unseen(
            name,
            "the kernel does not tell it",
            format!("nfsstat -m {}", format::quoted(&mount.folder.to_string_lossy())),
        );
    };
    let shown = format::bytes(bytes as f64);
    if !is_small(mount, by, name) {
        return Finding::ok(name, shown, "requests are large enough");
    }
    let bps = carried(mount, by, bytes);
    let words = format!("{} requests of this size carry {}", slot_count(mount), by.says(bps));
    mounts_again(Finding::costs(name, shown, words).leaves(bps), again)
}

/// Most requests under way.
fn slot_count(mount: &Mount) -> u64 {
    // Without sessions the client adds slots as it needs them (tcp_max_slot_table_entries, 65,536).
    if mount.has_sessions() { mount.session_slots.unwrap_or(64) } else { 65_536 }
}

/// The session's slots, which all connections of the mount share.
fn slots(mount: &Mount, by: &Yardstick, again: &str) -> Finding {
    let subject = "session slots";
    if !mount.has_sessions() {
        return Finding::ok(subject, mount.option("vers").unwrap_or("?"), "this version has no sessions");
    }
    let Some(slots) = mount.session_slots else {
        let file = "/sys/module/nfs/parameters/max_session_slots";
        return Finding::unseen(subject, "could not see how many are asked for", format!("cat {file}"));
    };
    let request = mount.number("rsize").unwrap_or(REQUEST_BYTES).max(1);
    let bps = by.through(slots.saturating_mul(request) as f64);
    // Linux's server grants what its memory for replies allows (nfsd4_get_drc_mem, fs/nfsd/nfs4state.c): half of 64 in the testbed.
    let server = "the server may grant fewer, about half in the testbed, whatever is asked for";
    if bps >= by.rate_bps || slots >= MOST_SLOTS {
        let state = if bps >= 2.0 * by.rate_bps { State::Ok } else { State::Unknown };
        return Finding::new(state, subject, slots, format!("{slots} requests are asked for; {server}"));
    }
    let words = format!("{slots} requests under way carry {}; {server}", by.says(bps));
    let file = "/sys/module/nfs/parameters/max_session_slots";
    let finding = Finding::costs(subject, slots, words).leaves(bps).fix(format!("echo {MOST_SLOTS} > {file}"));
    mounts_again(finding, again).keep(MODULE_FILE, format!("options nfs max_session_slots={MOST_SLOTS}"))
}

/// Window of a connection, bytes: half of what a receive buffer may grow to (`tcp(7)`).
fn window(host: &Host) -> Option<f64> {
    host.three("net.ipv4.tcp_rmem").map(|[_, _, most]| most as f64 / 2.0)
}

/// Number of connections that the mount should have, if it should have more; four, if their windows should grow instead.
fn connections_needed(mount: &Mount, host: &Host, by: &Yardstick) -> Option<u64> {
    let count = mount.number("nconnect").unwrap_or(1);
    let needed = (by.rate_bps / by.through(window(host)?)).ceil() as u64;
    let wanted = if needed <= MOST_CONNECTIONS { needed } else { 4 };
    (needed > count && wanted > count).then_some(wanted)
}

/// The connections' windows.
fn connections(mount: &Mount, host: &Host, by: &Yardstick, again: &str) -> Finding {
    let subject = "connections";
    let count = mount.number("nconnect").unwrap_or(1);
    let Some(window) = window(host) else { return Finding::unseen_sysctl("net.ipv4.tcp_rmem") };
    let bps = by.through(window * count as f64);
    let shown = format!("{count} with windows of {}", format::bytes(window));
    if bps >= by.rate_bps {
        return Finding::ok(subject, shown, "their windows hold what is in flight");
    }
    let mut finding = Finding::costs(subject, shown, format!("they carry {}", by.says(bps))).leaves(bps);
    if let Some([least, first, _]) = host.three("net.ipv4.tcp_rmem")
        && by.rate_bps / by.through(window) > MOST_CONNECTIONS as f64
    {
        finding = finding.set("net.ipv4.tcp_rmem", format!("{least} {first} {}", by.target(i32::MAX as u64)));
    }
    mounts_again(finding, again)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(options: &str, read_ahead: u64, slots: u64) -> Mount {
        Mount {
            folder: "/mnt/far away".into(),
            kind: "nfs4".into(),
            source: "10.0.2.1:/data".into(),
            options: options.split(',').map(str::to_owned).collect(),
            read_ahead: Some(read_ahead),
            read_ahead_file: "/sys/class/bdi/0:30/read_ahead_kb".into(),
            session_slots: Some(slots),
        }
    }

    fn host(rmem: &str) -> Host {
        Host { sysctls: [("net.ipv4.tcp_rmem".to_owned(), rmem.to_owned())].into(), ..Host::default() }
    }

    fn by(rtt_s: f64) -> Yardstick {
        Yardstick { rtt_s, rate_bps: 10e9, asked: true, ranking: Vec::new() }
    }

    fn find<'a>(findings: &'a [Finding], subject: &str) -> &'a Finding {
        findings.iter().find(|finding| finding.subject == subject).unwrap()
    }

    #[test]
    fn a_mount_as_it_comes() {
        let usual = "rw,relatime,vers=4.2,rsize=1048576,wsize=262144,hard,nconnect=1,addr=10.0.2.1,clientaddr=10.0.1.1";
        let found = check(&mount(usual, 128 << 10, 64), &host("4096 131072 6291456"), &by(0.0456));
        let ahead = find(&found, "read-ahead");
        // Two requests of 1 MiB for each round trip.
        assert!((ahead.leaves_bps.unwrap() / (2.0 * 8.0 * 1_048_576.0 / 0.0456) - 1.0).abs() < 1e-9);
        assert_eq!(ahead.fix, ["echo 65536 > /sys/class/bdi/$(mountpoint -d '/mnt/far away')/read_ahead_kb"]);
        assert_eq!(ahead.keep.as_ref().unwrap().lines, ["[nfsrahead]", "nfs4 = 65536"]);
        assert_eq!(find(&found, "rsize").state, State::Ok);
        let wsize = find(&found, "wsize");
        assert!(wsize.state == State::Costs && wsize.only_if.as_ref().unwrap().contains("no program uses"));
        let again = "umount '/mnt/far away' && mount -t nfs4 -o 'vers=4.2,rsize=1048576,hard,wsize=1048576,nconnect=4' \
                     10.0.2.1:/data '/mnt/far away'";
        assert_eq!(wsize.fix, [again]);
        let slots = find(&found, "session slots");
        assert!(slots.state == State::Unknown && slots.words.contains("may grant fewer"), "{slots:?}");
        let far = check(&mount(usual, 128 << 10, 64), &host("4096 131072 6291456"), &by(0.183));
        let slots = find(&far, "session slots");
        assert!(slots.state == State::Costs && (slots.leaves_bps.unwrap() / 2.934e9 - 1.0).abs() < 1e-3, "{slots:?}");
        assert!(slots.fix[0].starts_with("echo 1024 > ") && slots.fix[1].starts_with("umount "), "{slots:?}");
        // 3 MB windows: 18 connections would be needed, more than there may be.
        let connections = find(&found, "connections");
        assert!(connections.fix[0].starts_with("sysctl -w net.ipv4.tcp_rmem="), "{connections:?}");
        assert_eq!(connections.fix[1], again);
        // Only the largest value is too small.
        let found = check(&mount(usual, 128 << 10, 64), &host("8192 1048576 6291456"), &by(0.0456));
        let tuned = &find(&found, "connections").fix[0];
        assert!(tuned.starts_with("sysctl -w net.ipv4.tcp_rmem=\"8192 1048576 "), "{tuned}");
    }

    #[test]
    fn a_mount_that_is_tuned() {
        let tuned = "rw,vers=4.2,rsize=1048576,wsize=1048576,nconnect=4";
        let found = check(&mount(tuned, 64 << 20, 1024), &host("4096 131072 268435456"), &by(0.0456));
        assert!(found.iter().all(|finding| finding.state == State::Ok), "{found:?}");
        // NFS 3 has no sessions, and a short path needs little.
        let old = Mount { kind: "nfs".into(), ..mount("vers=3,rsize=65536,wsize=65536,sync", 128 << 10, 64) };
        let found = check(&old, &host("4096 131072 6291456"), &by(0.0001));
        assert!(find(&found, "session slots").words.contains("no sessions"));
        let costs: Vec<&Finding> = found.iter().filter(|finding| finding.state == State::Costs).collect();
        assert_eq!(costs.len(), 1, "{costs:?}");
        assert!(costs[0].subject == "sync" && costs[0].fix[0].contains("wsize=65536,async' "), "{costs:?}");
    }
}
