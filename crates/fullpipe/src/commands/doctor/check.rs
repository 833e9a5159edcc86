//! What a host's limits cost over a path: a pure function of both.

mod link;
mod machine;
mod tcp;

use super::finding::{Finding, Yardstick};
use super::host::Host;

/// What each limit of the host costs over the path: what costs most first, then what is not known.
pub fn judge(host: &Host, by: &Yardstick) -> Vec<Finding> {
    let mut findings = tcp::judge(host, by);
    if host.interfaces.is_empty() {
        findings.push(Finding::unseen("interfaces", "could not see any that is up", "ip link"));
    }
    for interface in &host.interfaces {
        findings.extend(link::judge(host, interface, by));
    }
    findings.extend(machine::judge(host, by));
    let most = |finding: &Finding| finding.leaves_bps.unwrap_or(f64::INFINITY);
    findings.sort_by(|a, b| a.state.cmp(&b.state).then(most(a).total_cmp(&most(b))));
    findings
}

#[cfg(test)]
mod tests;
