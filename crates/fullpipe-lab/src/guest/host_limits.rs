//! Sets what the kernels of the emulated hosts grant their programs: the sizes of socket buffers, and congestion controls.

use std::os::unix::fs::PermissionsExt;

use fullpipe_path::{LabHost, LabPath};

use super::node::Node;
use super::step::Fallible;
use super::sysctl;

/// Sets what a host's kernel grants the sockets of its namespace.
pub(super) fn grant(host: &LabHost) -> Fallible<()> {
    for (name, [least, first, most]) in [("tcp_rmem", host.tcp_rmem), ("tcp_wmem", host.tcp_wmem)] {
        sysctl::set(&format!("net/ipv4/{name}"), &format!("{least} {first} {most}"))?;
    }
    if own_buffer_limits() { set_buffer_limits(host) } else { Ok(()) }
}

fn set_buffer_limits(host: &LabHost) -> Fallible<()> {
    sysctl::set("net/core/rmem_max", &host.rmem_max.to_string())?;
    sysctl::set("net/core/wmem_max", &host.wmem_max.to_string())
}

/// Whether this thread's namespace has `rmem_max` and `wmem_max` of its own: the testbed's kernels do from 6.12 on.
fn own_buffer_limits() -> bool {
    // Root may write whatever its mode; only the mode tells a setting that is here to be read.
    std::fs::metadata("/proc/sys/net/core/rmem_max").is_ok_and(|file| file.permissions().mode() & 0o200 != 0)
}

/// Sets the congestion controls that ordinary users may take: a kernel has one list for both ends.
pub(super) fn allow_congestion_controls(path: &LabPath) -> Fallible<()> {
    let (a, b) = (&path.host_a.ccs, &path.host_b.ccs);
    if a != b {
        return Err(
            "the kernel has one list of allowed congestion controls for both hosts; give both the same ccs".into()
        );
    }
    if a.is_empty() {
        return Ok(());
    }
    let names = a.join(" ");
    sysctl::set("net/ipv4/tcp_allowed_congestion_control", &names)
        .map_err(|_| format!("host: ccs: this kernel lacks one of '{names}'"))
}

/// Sets the memory of all TCP sockets, of which a kernel has one for both ends.
pub(super) fn limit_memory(path: &LabPath) -> Fallible<()> {
    let (a, b) = (path.host_a.tcp_mem, path.host_b.tcp_mem);
    if a != b {
        return Err("the kernel has one tcp_mem for both hosts; give both the same".into());
    }
    let Some([low, pressure, most]) = a else { return Ok(()) };
    sysctl::set("net/ipv4/tcp_mem", &format!("{low} {pressure} {most}"))
}

/// Sets the limits of both ends in an older kernel, which has only one of each.
pub(super) fn one_limit_for_both(a: &Node, path: &LabPath) -> Fallible<()> {
    if a.run(|_| Ok(own_buffer_limits()))? {
        return Ok(());
    }
    let limits = |host: &LabHost| (host.rmem_max, host.wmem_max);
    if limits(&path.host_a) != limits(&path.host_b) {
        return Err(
            "this kernel has one rmem_max and one wmem_max for both hosts; give both the same, or take a kernel \
                    from 6.12 on"
                .into(),
        );
    }
    set_buffer_limits(&path.host_a)
}
