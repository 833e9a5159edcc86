//! Processors, limits of processes, and what stands between this system and the hardware.

use crate::commands::doctor::finding::{Finding, State, Yardstick};
use crate::commands::doctor::host::Host;
use crate::format;

/// Rates from here on want interrupts bound by hand (fasterdata.es.net, 100G tuning), bit/s.
const BOUND: f64 = 40e9;
/// Descriptors that a session of 64 streams wants at both ends, with those of others and of files.
const FILES: u64 = 1024;
/// Packets that fasterdata.es.net has wait for a processor.
const BACKLOG: i64 = 250_000;

pub(super) fn judge(host: &Host, by: &Yardstick) -> Vec<Finding> {
    let mut findings = vec![governor(host), aes(host), interrupts(host, by), backlog(host)];
    findings.extend([open_files(host), permission(host)]);
    findings.extend(virtual_machine(host));
    findings.extend(container(host));
    findings
}

fn governor(host: &Host) -> Finding {
    const SUBJECT: &str = "CPU governor";
    const FILES: &str = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor";
    if host.governors.is_empty() {
        let why = if host.hypervisor.is_some() {
            "could not see it: frequencies are the hypervisor's; on its host"
        } else {
            "could not see it: this kernel does not set frequencies, the firmware may"
        };
        return Finding::unseen(SUBJECT, why, "cpupower frequency-info");
    }
    let read: Vec<String> = host.governors.iter().map(|(name, n)| format!("{name} on {n}")).collect();
    if host.governors.keys().all(|name| name == "performance") {
        return Finding::ok(SUBJECT, read.join(", "), "processors do not slow down between packets");
    }
    let words = "processors slow down while a stream waits, and packets come faster than they speed up again";
    Finding::costs(SUBJECT, read.join(", "), words)
        .fix(format!("echo performance | tee {FILES}"))
        .keep("/etc/tmpfiles.d/fullpipe.conf", format!("w {FILES} - - - - performance"))
}

fn aes(host: &Host) -> Finding {
    const SUBJECT: &str = "AES instructions";
    match host.aes {
        Some(true) => Finding::ok(SUBJECT, "there", "copies are checked at 50 Gb/s and more by each processor"),
        Some(false) => {
            let mend =
                if host.hypervisor.is_some() { "; its host may pass them on (as CPU model 'host' does)" } else { "" };
            let words = format!("each processor checks and encrypts copies at no more than 1 to 2 Gb/s{mend}");
            Finding::costs(SUBJECT, "none", words)
        }
        None => Finding::unseen(SUBJECT, "could not see what processors can do", "cat /proc/cpuinfo"),
    }
}

fn interrupts(host: &Host, by: &Yardstick) -> Finding {
    const SUBJECT: &str = "irqbalance";
    const COMMAND: &str = "grep . /proc/irq/*/smp_affinity_list";
    if host.cpus == 1 {
        return Finding::ok(SUBJECT, "one processor", "there is nothing to share");
    }
    let Some(runs) = host.irqbalance else { return Finding::unseen(SUBJECT, "could not see processes", COMMAND) };
    if by.rate_bps >= BOUND {
        if runs {
            let words = "moves interrupts away from the card's own memory; at 40 Gb/s and more bind them by hand";
            return Finding::costs(SUBJECT, "runs", words).fix("systemctl disable --now irqbalance");
        }
        let why = "does not run, as it should be; could not see whether interrupts are on the card's NUMA node";
        return Finding::unseen(SUBJECT, why, COMMAND);
    }
    if runs {
        return Finding::ok(SUBJECT, "runs", "interrupts are shared among processors");
    }
    Finding::unseen(SUBJECT, "does not run here; could not see whether something else shares interrupts", COMMAND)
}

/// Only proof counts: most cards' packets never wait there. It stays until the next boot, so a backlog that is long
/// enough by now is fine.
fn backlog(host: &Host) -> Finding {
    const KEY: &str = "net.core.netdev_max_backlog";
    let (Some(length), Some(drops)) = (host.number(KEY), host.backlog_drops) else {
        return Finding::unseen(KEY, "could not see it", "cat /proc/net/softnet_stat");
    };
    if drops == 0 {
        return Finding::ok(KEY, length, "no packet found it full since boot");
    }
    let words = format!("{} found it full since boot", format::count(drops, "packet", "packets"));
    if length >= BACKLOG {
        return Finding::ok(KEY, length, format!("{words}; it is long enough"));
    }
    Finding::costs(KEY, length, words).set(KEY, BACKLOG)
}

fn open_files(host: &Host) -> Finding {
    const SUBJECT: &str = "open files";
    let Some((soft, hard)) = host.open_files else {
        return Finding::unseen(SUBJECT, "could not see the limit", "ulimit -n");
    };
    let read = count(soft);
    if soft >= FILES {
        return Finding::ok(SUBJECT, read, "enough for many streams");
    }
    // The soft limit alone, where that will do: a hard one that was lowered stays so.
    let (flag, kind) = if hard >= FILES { ("-S ", "soft") } else { ("", "-") };
    let mut finding = Finding::costs(SUBJECT, read, "too few for many streams and clients at once")
        .fix(format!("ulimit {flag}-n {FILES}"))
        .keep("/etc/security/limits.d/90-fullpipe.conf", format!("* {kind} nofile {FILES}"));
    finding.root = hard < FILES;
    finding
}

fn permission(host: &Host) -> Finding {
    const SUBJECT: &str = "permission";
    if host.sysctls_read_only {
        let words = "settings cannot be changed in here, /proc/sys is read-only; what is to be typed as root belongs on the host";
        return Finding::new(State::Unknown, SUBJECT, "read-only", words);
    }
    match host.net_admin {
        Some(true) => Finding::ok(SUBJECT, "CAP_NET_ADMIN", "the lines can be typed as they are"),
        Some(false) => Finding::ok(SUBJECT, "no CAP_NET_ADMIN", "fullpipe needs none; the lines do"),
        None => Finding::unseen(SUBJECT, "could not see capabilities", "grep Cap /proc/self/status"),
    }
}

fn virtual_machine(host: &Host) -> Option<Finding> {
    let whose = host.hypervisor.as_ref()?;
    let words =
        "a virtual machine: could not see what its host's network, processors and other guests cost; on that host";
    Some(Finding::unseen("virtualisation", words, "fullpipe doctor").having_read(whose))
}

fn container(host: &Host) -> Option<Finding> {
    let kind = host.container.as_ref()?;
    let words = "a container: could not see the host's own interfaces, modules and processes; on that host";
    Some(Finding::unseen("container", words, "fullpipe doctor").having_read(kind))
}

fn count(n: u64) -> String {
    if n == u64::MAX { "unlimited".into() } else { format::thousands(n) }
}
