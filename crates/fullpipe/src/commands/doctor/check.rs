//! Checks a host for a path. A pure function of the two: what was read of the host, and what should go over the path.

mod link;
mod machine;
pub(super) mod nfs;
mod tcp;

use super::finding::{Finding, Yardstick};
use super::host::Host;

/// Largest fraction of the wanted rate at which a limit that leaves it comes before everything else.
const SLOW: f64 = 0.9;
/// Ends of the subjects that lose packets or much of the rate, though the rate that they leave cannot be computed.
const GRAVE: [&str; 8] = [
    " link",
    " rings",
    " txqueuelen",
    " qdisc",
    "netdev_max_backlog",
    "tcp_sack",
    "tcp_timestamps",
    "tcp_moderate_rcvbuf",
];
/// Ends of the subjects that matter only now and then: after a boot, for some users, or on some paths.
const MINOR: [&str; 4] = ["default_qdisc", "tcp_allowed_congestion_control", "open files", "tcp_mtu_probing"];

/// Settings that a kernel has once for all network namespaces, and takes in its first one only.
const OF_THE_KERNEL: [&str; 6] = [
    "net.core.default_qdisc",
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_mem",
];

/// Checks every limit of a host for a path. What costs comes first, in the order of what it costs, then what is unknown, then
/// what is fine.
pub fn all(host: &Host, by: &Yardstick) -> Vec<Finding> {
    let mut findings = tcp::check(host, by);
    if host.interfaces.is_empty() {
        findings.push(Finding::unseen("interfaces", "could not see any that is up", "ip link"));
    }
    for interface in &host.interfaces {
        findings.extend(link::check(host, interface, by));
    }
    findings.extend(machine::check(host, by));
    if host.own_namespace {
        findings
            .iter_mut()
            .filter(|finding| OF_THE_KERNEL.contains(&finding.subject.as_str()))
            .for_each(Finding::outside);
    }
    sort(&mut findings, by);
    findings
}

/// Sorts findings: what costs comes first, in the order of what it costs, then what is unknown, then what is fine.
pub fn sort(findings: &mut [Finding], by: &Yardstick) {
    let leaves = |finding: &Finding| finding.leaves_bps.unwrap_or(f64::INFINITY);
    findings.sort_by(|a, b| {
        let weights = weight(a, by).cmp(&weight(b, by));
        a.state.cmp(&b.state).then(weights).then(leaves(a).total_cmp(&leaves(b)))
    });
}

/// How much a finding matters: 0 most.
fn weight(finding: &Finding, by: &Yardstick) -> u8 {
    let is_one_of = |ends: &[&str]| ends.iter().any(|end| finding.subject.ends_with(end));
    match finding.leaves_bps {
        Some(bps) if bps < SLOW * by.rate_bps => 0,
        _ if is_one_of(&GRAVE) => 1,
        _ if is_one_of(&MINOR) => 3,
        _ => 2,
    }
}

#[cfg(test)]
mod tests;
