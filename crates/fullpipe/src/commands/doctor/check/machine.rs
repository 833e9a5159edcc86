//! Checks processors, limits of processes, and whether a hypervisor or container hides the hardware.

use crate::commands::doctor::finding::{Finding, State, Yardstick};
use crate::commands::doctor::host::Host;
use crate::format;

/// Rate from which interrupts should be bound by hand, bit/s (fasterdata.es.net, 100G tuning).
const BIND_INTERRUPTS_BPS: f64 = 40e9;
/// Open files that 64 streams need, with some for other clients and for files.
const MIN_OPEN_FILES: u64 = 1024;
/// Backlog that fasterdata.es.net recommends, packets.
const BACKLOG_PACKETS: i64 = 250_000;

pub(super) fn check(host: &Host, by: &Yardstick) -> Vec<Finding> {
    let mut findings = vec![governor(host), aes(host), interrupts(host, by), backlog(host)];
    findings.extend([open_files(host), permission(host)]);
    findings.extend(virtual_machine(host));
    findings.extend(container(host));
    findings
}

/// Checks that processors do not save power.
fn governor(host: &Host) -> Finding {
    const SUBJECT: &str = "CPU governor";
    const FILES: &str = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor";
    if host.governors.is_empty() {
        let why = if host.hypervisor.is_some() {
            "could not see it: the hypervisor sets frequencies (look on its host)"
        } else {
            "could not see it: this kernel does not set frequencies, the firmware may"
        };
        return Finding::unseen(SUBJECT, why, "cpupower frequency-info");
    }
    let read: Vec<String> = host.governors.iter().map(|(name, n)| format!("{name} on {n}")).collect();
    if host.governors.keys().all(|name| name == "performance") {
        return Finding::ok(SUBJECT, read.join(", "), "processors do not slow down between packets");
    }
    let words = "processors slow down while a stream waits, and speed up again too late for its packets";
    Finding::costs(SUBJECT, read.join(", "), words)
        .fix(format!("echo performance | tee {FILES}"))
        .keep("/etc/tmpfiles.d/fullpipe.conf", format!("w {FILES} - - - - performance"))
}

/// Checks for the instructions that encryption and checksums need.
fn aes(host: &Host) -> Finding {
    const SUBJECT: &str = "AES instructions";
    match host.aes {
        Some(true) => Finding::ok(SUBJECT, "there", "each processor checks copies at 50 Gb/s and more"),
        Some(false) => {
            let mend =
                if host.hypervisor.is_some() { "; its host may pass them on (CPU model 'host' does)" } else { "" };
            let words = format!("each processor encrypts and checks copies at only 1 to 2 Gb/s{mend}");
            Finding::costs(SUBJECT, "none", words)
        }
        None => Finding::unseen(SUBJECT, "could not see what processors can do", "cat /proc/cpuinfo"),
    }
}

/// Checks who distributes interrupts among processors.
fn interrupts(host: &Host, by: &Yardstick) -> Finding {
    const SUBJECT: &str = "irqbalance";
    const COMMAND: &str = "grep . /proc/irq/*/smp_affinity_list";
    if host.cpus == 1 {
        return Finding::ok(SUBJECT, "one processor", "there is nothing to share");
    }
    let Some(runs) = host.irqbalance else { return Finding::unseen(SUBJECT, "could not see processes", COMMAND) };
    if by.rate_bps >= BIND_INTERRUPTS_BPS {
        if runs {
            let words = "it moves interrupts away from the card's NUMA node; at 40 Gb/s and more bind them by hand";
            return Finding::costs(SUBJECT, "runs", words).fix("systemctl disable --now irqbalance");
        }
        let why = "it does not run, which is right here; could not see whether interrupts are on the card's NUMA node";
        return Finding::unseen(SUBJECT, why, COMMAND);
    }
    if runs {
        return Finding::ok(SUBJECT, "runs", "interrupts are shared among processors");
    }
    Finding::unseen(
        SUBJECT,
        "it does not run; could not see whether something else shares interrupts among processors",
        COMMAND,
    )
}

/// Checks the backlog of received packets. Only counted drops are proof, as packets of most cards never wait there. The
/// counter runs since boot, so a backlog that is long enough by now is fine.
fn backlog(host: &Host) -> Finding {
    const KEY: &str = "net.core.netdev_max_backlog";
    let (Some(length), Some(drops)) = (host.number(KEY), host.backlog_drops) else {
        return Finding::unseen(KEY, "could not see it", "cat /proc/net/softnet_stat");
    };
    if drops == 0 {
        return Finding::ok(KEY, length, "no packet found it full since boot");
    }
    let words = format!("{} found it full since boot", format::count(drops, "packet", "packets"));
    if length >= BACKLOG_PACKETS {
        return Finding::ok(KEY, length, format!("{words}; it is long enough"));
    }
    Finding::costs(KEY, length, words).set(KEY, BACKLOG_PACKETS)
}

/// Checks the limit on open files.
fn open_files(host: &Host) -> Finding {
    const SUBJECT: &str = "open files";
    let Some((soft, hard)) = host.open_files else {
        return Finding::unseen(SUBJECT, "could not see the limit", "ulimit -n");
    };
    let read = count(soft);
    if soft >= MIN_OPEN_FILES {
        return Finding::ok(SUBJECT, read, "enough for many streams");
    }
    // Changes the soft limit alone if that suffices, as a hard limit once lowered cannot be raised again.
    let (flag, kind) = if hard >= MIN_OPEN_FILES { ("-S ", "soft") } else { ("", "-") };
    let mut finding = Finding::costs(SUBJECT, read, "too few for many streams and clients at once")
        .fix(format!("ulimit {flag}-n {MIN_OPEN_FILES}"))
        .keep("/etc/security/limits.d/90-fullpipe.conf", format!("* {kind} nofile {MIN_OPEN_FILES}"));
    finding.root = hard < MIN_OPEN_FILES;
    finding
}

/// Tells whether this process could change settings.
fn permission(host: &Host) -> Finding {
    const SUBJECT: &str = "permission";
    if host.sysctls_read_only {
        let words =
            "/proc/sys is read-only, so settings cannot be changed in here; type the commands for root on the host";
        return Finding::new(State::Unknown, SUBJECT, "read-only", words);
    }
    match host.net_admin {
        Some(true) => Finding::ok(SUBJECT, "CAP_NET_ADMIN", "the commands can be typed as they are"),
        Some(false) => Finding::ok(SUBJECT, "no CAP_NET_ADMIN", "fullpipe does not need it; the commands do"),
        None => Finding::unseen(SUBJECT, "could not see capabilities", "grep Cap /proc/self/status"),
    }
}

/// Tells of a hypervisor, which hides what limits the hardware.
fn virtual_machine(host: &Host) -> Option<Finding> {
    let whose = host.hypervisor.as_ref()?;
    let words = "in a virtual machine; could not see what its host's network, processors and other guests cost";
    Some(Finding::unseen("virtualisation", words, "fullpipe doctor   # on its host").having_read(whose))
}

/// Tells of a container, which hides part of the host.
fn container(host: &Host) -> Option<Finding> {
    let kind = host.container.as_ref()?;
    let words = "in a container; could not see its host's interfaces, modules and processes";
    Some(Finding::unseen("container", words, "fullpipe doctor   # on its host").having_read(kind))
}

/// A limit as text.
fn count(n: u64) -> String {
    if n == u64::MAX { "unlimited".into() } else { format::thousands(n) }
}
