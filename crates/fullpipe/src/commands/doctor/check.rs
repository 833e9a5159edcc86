//! Checks a host for a path. A pure function of the two: what was read of the host, and what should go over the path.

mod link;
mod machine;
mod tcp;

use super::finding::{Finding, Yardstick};
use super::host::Host;

/// Checks every limit of a host for a path. Findings that leave the least rate come first, then those that are unknown, then
/// those that are fine.
pub fn all(host: &Host, by: &Yardstick) -> Vec<Finding> {
    let mut findings = tcp::check(host, by);
    if host.interfaces.is_empty() {
        findings.push(Finding::unseen("interfaces", "could not see any that is up", "ip link"));
    }
    for interface in &host.interfaces {
        findings.extend(link::check(host, interface, by));
    }
    findings.extend(machine::check(host, by));
    let most = |finding: &Finding| finding.leaves_bps.unwrap_or(f64::INFINITY);
    findings.sort_by(|a, b| a.state.cmp(&b.state).then(most(a).total_cmp(&most(b))));
    findings
}

#[cfg(test)]
mod tests;
