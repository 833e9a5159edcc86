//! Builds the path between the two ends from Linux's own parts.
//!
//! ```text
//! a ──── r ──── b          a0, b0: netem, half the RTT each
//!        │                 r1, r0: tbf, the bottleneck forward and back, drop-tail, counted in bytes
//!        x                 x: cross traffic, only where there is some
//! a ──── r ──── d ──── b   d1, d0: netem with what happens to packets, only where something does
//! ```
//!
//! Each queue has one job. The delay stands at the ends. There TCP's packets are still whole (one GSO packet has up to seven
//! packets of 9000 bytes), so netem has the least work. netem also takes packets off the sender's account, so that TCP's own
//! limit on queued bytes (TSQ) does not take the path's delay for a queue. The bottleneck splits the packets, because its
//! burst is hardly larger than one packet. Everything after it happens to single packets.

use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;

use fullpipe_path::units::{Probability, Rate, Size};
use fullpipe_path::{Cross, LabHost, LabPath};

use super::netlink::{Plug, Qdisc};
use super::node::Node;
use super::step::Fallible;
use super::sysctl;
use crate::job::{ADDRESS_A, ADDRESS_B, Job};

const A0: Plug = Plug { name: "a0", address: ADDRESS_A };
const R0: Plug = Plug { name: "r0", address: Ipv4Addr::new(10, 0, 1, 2) };
const R1_TO_B: Plug = Plug { name: "r1", address: Ipv4Addr::new(10, 0, 2, 2) };
const R1_TO_D: Plug = Plug { name: "r1", address: Ipv4Addr::new(10, 0, 4, 1) };
const D0: Plug = Plug { name: "d0", address: Ipv4Addr::new(10, 0, 4, 2) };
const D1: Plug = Plug { name: "d1", address: Ipv4Addr::new(10, 0, 2, 2) };
const B0: Plug = Plug { name: "b0", address: ADDRESS_B };
const X0: Plug = Plug { name: "x0", address: Ipv4Addr::new(10, 0, 3, 1) };
const R2: Plug = Plug { name: "r2", address: Ipv4Addr::new(10, 0, 3, 2) };

/// Largest time by which a reordered packet overtakes others, ns.
const REORDER_NS: u64 = 1_000_000;

/// The nodes of a path: ends, routers, and the source of cross traffic.
pub(super) struct Net {
    pub(super) a: Node,
    pub(super) b: Node,
    pub(super) r: Node,
    pub(super) d: Option<Node>,
    pub(super) x: Option<Node>,
}

/// Builds the path of a job.
pub(super) fn build(job: &Job) -> Fallible<Net> {
    let path = &job.path;
    let (a, b, r) = (Node::new("a", true)?, Node::new("b", true)?, Node::new("r", false)?);
    let impaired = path.impaired_forward() || !path.loss_back.is_zero();
    let d = if impaired { Some(Node::new("d", false)?) } else { None };
    let x = if path.cross.is_some() { Some(Node::new("x", false)?) } else { None };

    join(&a, A0, &r, R0, path.mtu)?;
    match &d {
        None => join(&r, R1_TO_B, &b, B0, path.mtu)?,
        Some(d) => {
            join(&r, R1_TO_D, d, D0, path.mtu)?;
            join(d, D1, &b, B0, path.mtu)?;
        }
    }
    if let Some(x) = &x {
        join(x, X0, &r, R2, path.mtu)?;
        x.run(|n| n.route(None, R2.address, None))?;
    }
    let (window_a, window_b) = (path.host_a.initcwnd, path.host_b.initcwnd);
    a.run(move |n| n.route(None, R0.address, window_a))?;
    let network = |plug: Plug| {
        let [a, b, c, _] = plug.address.octets();
        Some(Ipv4Addr::new(a, b, c, 0))
    };
    if let Some(d) = &d {
        r.run(move |n| n.route(network(B0), D0.address, None))?;
        d.run(|n| n.route(None, R1_TO_D.address, None))?;
        b.run(move |n| n.route(None, D1.address, window_b))?;
    } else {
        b.run(move |n| n.route(None, R1_TO_B.address, window_b))?;
    }

    let tbf = bottleneck(path);
    let back = bottleneck(path);
    r.run(move |n| {
        n.qdisc("r1", &tbf)?;
        n.qdisc("r0", &back)?;
        // tbf does not split a GSO packet that is smaller than its burst; the links must.
        n.one_segment_at_a_time("r1")?;
        n.one_segment_at_a_time("r0")
    })?;
    let mut forward_ns = path.rtt.0 / 2;
    let back_ns = path.rtt.0 - forward_ns;
    if let Some(d) = &d {
        let (forward, taken) = impairments(path, forward_ns, job.seed);
        forward_ns -= taken;
        let back = Netem { loss: path.loss_back, seed: job.seed ^ 0x6261_636b, ..Netem::default() };
        let back_needed = !path.loss_back.is_zero();
        d.run(move |n| {
            n.qdisc("d1", &forward.qdisc())?;
            if back_needed { n.qdisc("d0", &back.qdisc()) } else { Ok(()) }
        })?;
        if back_needed {
            // Packets that are lost one by one must travel one by one, and no bottleneck has split them on the way back.
            b.run(|n| n.one_segment_at_a_time("b0"))?;
        }
    }
    let delay = |ns| Netem { delay_ns: ns, ..Netem::default() }.qdisc();
    let (near, far) = (delay(forward_ns), delay(back_ns));
    a.run(move |n| n.qdisc("a0", &near))?;
    b.run(move |n| n.qdisc("b0", &far))?;
    if let Some(x) = &x {
        let queue = match path.cross {
            // fq sends each packet at the socket's pacing rate, to the nanosecond. Its limits, total and per flow, must
            // never be reached: a source whose packets are dropped never waits, and a process that never waits stops
            // virtual time.
            Some(Cross::Udp(_)) => {
                let many = 1_000_000_u32.to_ne_bytes();
                // No timer slack: the default of 10 us is several packets at 10 Gb/s.
                let slack = attribute(13, &0_u32.to_ne_bytes());
                // One packet at a time; at high rates as many as take 2 us, since timers, which are no finer than 1 us,
                // would fall behind.
                let frame = path.mtu + fullpipe_path::path::ETHERNET_HEADER as u32;
                let together = (path.rate.0 / 8 * 2 / 1_000_000).div_ceil(u64::from(frame)).max(1);
                let quantum = (frame * together as u32).to_ne_bytes();
                let quanta = [attribute(3, &quantum), attribute(4, &quantum)].concat();
                Qdisc { kind: "fq", options: [attribute(1, &many), attribute(2, &many), quanta, slack].concat() }
            }
            _ => delay(path.rtt.0 / 2),
        };
        x.run(move |n| n.qdisc("x0", &queue))?;
    }
    for end in [Some(&r), d.as_ref()].into_iter().flatten() {
        end.run(|_| sysctl::set("net/ipv4/ip_forward", "1"))?;
    }
    one_limit_for_both(&a, path)?;
    let tuned = LabHost::default();
    for (end, host) in [(Some(&a), &path.host_a), (Some(&b), &path.host_b), (x.as_ref(), &tuned)] {
        let Some(end) = end else { continue };
        let (host, more) = (host.clone(), job.sysctl.clone());
        end.run(move |_| {
            grant(&host)?;
            // Each run starts as if nobody had ever used the path.
            sysctl::set("net/ipv4/tcp_no_metrics_save", "1")?;
            more.iter().try_for_each(|(name, value)| sysctl::set(&name.replace('.', "/"), value))
        })?;
    }
    Ok(Net { a, b, r, d, x })
}

/// Sets what a host's kernel grants the sockets of its namespace.
fn grant(host: &LabHost) -> Fallible<()> {
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

/// Sets the limits of both ends in an older kernel, which has only one of each.
fn one_limit_for_both(a: &Node, path: &LabPath) -> Fallible<()> {
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

fn join(near: &Node, p: Plug, far: &Node, q: Plug, mtu: u32) -> Fallible<()> {
    let namespace = far.namespace();
    near.run(move |n| n.veth(&p, &q, namespace, mtu))?;
    near.run(move |n| n.plug(&p, &q))?;
    far.run(move |n| n.plug(&q, &p))
}

/// Packs a netlink attribute: length, kind, value, padding to four bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().div_ceil(4) * 4, 0);
    bytes
}

/// Packs `struct tc_ratespec` for an Ethernet link layer, for which the kernel needs no rate table.
fn ratespec(rate: Rate, overhead: u64) -> Vec<u8> {
    let mut bytes = vec![0, 1];
    bytes.extend_from_slice(&(overhead as u16).to_ne_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&u32::try_from(rate.0 / 8).unwrap_or(u32::MAX).to_ne_bytes());
    bytes
}

/// Largest delay of user-mode Linux's timers, ns: its clock steps by 256 ns, and no timer is set for less than 500 ns ahead
/// (arch/um/kernel/time.c).
const TIMER_DELAY_NS: u64 = 1_000;

/// Makes the bottleneck: tbf with a drop-tail queue that counts bytes (`bfifo`, its own child). Its burst is one packet and
/// the bytes that the line sends while a timer is late. With a smaller burst, each late timer would waste capacity (5% at
/// 10 Gb/s).
fn bottleneck(path: &LabPath) -> Qdisc {
    let overhead = path.modality.map_or(0, fullpipe_path::Modality::overhead);
    let frame = path.mtu + fullpipe_path::path::ETHERNET_HEADER as u32;
    let Size(queue) = path.queue;
    let mut parms = ratespec(path.rate, overhead);
    parms.extend_from_slice(&ratespec(Rate(0), 0));
    parms.extend_from_slice(&(queue as u32).to_ne_bytes());
    // The burst below overrides buffer and mtu, which are in clock ticks.
    parms.extend_from_slice(&[0; 8]);
    let mut options = attribute(1, &parms);
    options.extend(attribute(4, &(path.rate.0 / 8).to_ne_bytes()));
    let burst = frame + overhead as u32 + (path.rate.0 * TIMER_DELAY_NS / 8_000_000_000) as u32;
    options.extend(attribute(6, &burst.to_ne_bytes()));
    Qdisc { kind: "tbf", options }
}

/// Settings of netem.
#[derive(Default)]
struct Netem {
    delay_ns: u64,
    jitter_ns: u64,
    loss: Probability,
    duplicate: Probability,
    corrupt: Probability,
    reorder: Probability,
    /// Whether jitter keeps the order of packets. A rate far above the path's makes netem send each packet after the one
    /// before.
    in_order: bool,
    seed: u64,
}

/// Returns the impairments of the forward direction, and the part of the one-way delay that they include, ns.
fn impairments(path: &LabPath, forward_ns: u64, seed: u64) -> (Netem, u64) {
    let jitter_ns = path.jitter.map_or(0, |j| j.0.min(forward_ns));
    let jump_ns = if path.reorder.is_zero() { 0 } else { REORDER_NS.min(forward_ns) };
    let delay_ns = jitter_ns.max(jump_ns);
    let netem = Netem {
        delay_ns,
        jitter_ns,
        loss: path.loss,
        duplicate: path.duplicate,
        corrupt: path.corrupt,
        reorder: path.reorder,
        in_order: jitter_ns > 0,
        seed: seed ^ 0x666f_7277,
    };
    (netem, delay_ns)
}

impl Netem {
    fn qdisc(&self) -> Qdisc {
        // A probability is a fraction of 2^32 - 1, as in tc(8).
        let fraction = |p: Probability| ((p.get() * f64::from(u32::MAX)).round() as u32).to_ne_bytes();
        let mut options = Vec::new();
        // struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter. netem's limit also counts packets in flight,
        // so it must never be reached.
        options.extend_from_slice(&0u32.to_ne_bytes());
        options.extend_from_slice(&(i32::MAX as u32).to_ne_bytes());
        options.extend_from_slice(&fraction(self.loss));
        options.extend_from_slice(&u32::from(!self.reorder.is_zero()).to_ne_bytes());
        options.extend_from_slice(&fraction(self.duplicate));
        options.extend_from_slice(&0u32.to_ne_bytes());
        let zero = 0u32.to_ne_bytes();
        if !self.reorder.is_zero() {
            options.extend(attribute(3, &[fraction(self.reorder), zero].concat()));
        }
        if !self.corrupt.is_zero() {
            options.extend(attribute(4, &[fraction(self.corrupt), zero].concat()));
        }
        if self.in_order {
            // struct tc_netem_rate: rate, packet_overhead, cell_size, cell_overhead.
            options.extend(attribute(6, &[u32::MAX.to_ne_bytes(), zero, zero, zero].concat()));
            options.extend(attribute(8, &1_000_000_000_000_u64.to_ne_bytes()));
        }
        options.extend(attribute(10, &(self.delay_ns as i64).to_ne_bytes()));
        options.extend(attribute(11, &(self.jitter_ns as i64).to_ne_bytes()));
        if self.seed != 0 {
            // Kernels before 6.7 ignore it; their netem draws from the kernel's own generator, which the testbed seeds.
            options.extend(attribute(14, &self.seed.to_ne_bytes()));
        }
        Qdisc { kind: "netem", options }
    }
}
