//! Builds the path between the two ends from Linux's own parts: nodes, links, routes, and a queue on each link
//! (`queues.rs`).
//!
//! ```text
//! a ──── r ──── b          a0, b0: netem, half the RTT each
//!        │                 r1, r0: tbf, the bottleneck forward and back, drop-tail, counted in bytes
//!        x                 x: cross traffic, only where there is some
//! a ──── r ──── d ──── b   d1, d0: netem with what happens to packets, only where something does
//! a ─ e ─ r ─── d ─ f ─ b  a0, b0: the host's own queue, fq; e1, f1: its netem; at each end only where the host has such a queue
//! ```
//!
//! Each queue has one job. The delay stands at the ends. There TCP's packets are still whole (one GSO packet has up to seven
//! packets of 9000 bytes), so netem has the least work. netem also takes packets off the sender's account, so that TCP's own
//! limit on queued bytes (TSQ) does not take the path's delay for a queue. The bottleneck splits the packets, because its
//! burst is hardly larger than one packet. Everything after it happens to single packets.

use std::net::Ipv4Addr;

use fullpipe_path::{Cross, HostQueue, LabHost, LabPath};

use super::netlink::Plug;
use super::node::Node;
use super::step::Fallible;
use super::{host_limits, queues, sysctl};
use crate::job::{ADDRESS_A, ADDRESS_B, Job};

const A0: Plug = Plug { name: "a0", address: ADDRESS_A };
const R1_TO_D: Plug = Plug { name: "r1", address: Ipv4Addr::new(10, 0, 4, 1) };
const D0: Plug = Plug { name: "d0", address: Ipv4Addr::new(10, 0, 4, 2) };
const B0: Plug = Plug { name: "b0", address: ADDRESS_B };
const X0: Plug = Plug { name: "x0", address: Ipv4Addr::new(10, 0, 3, 1) };
const R2: Plug = Plug { name: "r2", address: Ipv4Addr::new(10, 0, 3, 2) };

/// The names and addresses that join an end to the path.
struct Access {
    end: Plug,
    /// Of what the end's packets come to first: the path, or the node with the delay.
    gateway: Ipv4Addr,
    /// Names of the links of the node with the delay, towards the end and towards the path.
    between: [&'static str; 2],
    /// Addresses of the link between the node with the delay and the path, in this order.
    inner: [Ipv4Addr; 2],
}

const ACCESS_A: Access = Access {
    end: A0,
    gateway: Ipv4Addr::new(10, 0, 1, 2),
    between: ["e0", "e1"],
    inner: [Ipv4Addr::new(10, 0, 5, 1), Ipv4Addr::new(10, 0, 5, 2)],
};
const ACCESS_B: Access = Access {
    end: B0,
    gateway: Ipv4Addr::new(10, 0, 2, 2),
    between: ["f0", "f1"],
    inner: [Ipv4Addr::new(10, 0, 6, 1), Ipv4Addr::new(10, 0, 6, 2)],
};

/// The nodes of a path: ends, routers, and the source of cross traffic.
pub(super) struct Net {
    pub(super) a: Node,
    pub(super) b: Node,
    pub(super) r: Node,
    pub(super) d: Option<Node>,
    pub(super) x: Option<Node>,
    /// The nodes with the delays of ends that have a queue of their own.
    e: Option<Node>,
    f: Option<Node>,
    /// Whether packets are ever lost on the way back.
    lossy_back: bool,
}

/// Builds the path of a job.
pub(super) fn build(job: &Job) -> Fallible<Net> {
    let net = connect(job)?;
    set_queues(&net, &job.path, job.seed)?;
    if job.mss.is_some() {
        // The bottleneck would take what is smaller than its burst for one packet, also where it drops it.
        net.a.run(|n| n.one_segment_at_a_time("a0"))?;
        net.b.run(|n| n.one_segment_at_a_time("b0"))?;
    }
    for router in [Some(&net.r), net.d.as_ref(), net.e.as_ref(), net.f.as_ref()].into_iter().flatten() {
        router.run(|_| sysctl::set("net/ipv4/ip_forward", "1"))?;
    }
    Ok(net)
}

/// Makes the nodes of a path, the links between them, and their routes.
fn connect(job: &Job) -> Fallible<Net> {
    let path = &job.path;
    let (a, b, r) = (Node::new("a", true)?, Node::new("b", true)?, Node::new("r", false)?);
    let impaired = job.paths().any(LabPath::impaired);
    let d = if impaired { Some(Node::new("d", false)?) } else { None };
    let x = if path.cross.is_some() { Some(Node::new("x", false)?) } else { None };
    let delaying = |name, host: &LabHost| match host.qdisc {
        HostQueue::Fifo => Ok(None),
        HostQueue::Fq => Node::new(name, false).map(Some),
    };
    let (e, f) = (delaying("e", &path.host_a)?, delaying("f", &path.host_b)?);

    let (window_a, window_b) = (path.host_a.initcwnd, path.host_b.initcwnd);
    access(&ACCESS_A, &a, e.as_ref(), (&r, "r0"), window_a, path.mtu)?;
    match &d {
        None => access(&ACCESS_B, &b, f.as_ref(), (&r, "r1"), window_b, path.mtu)?,
        Some(d) => {
            join(&r, R1_TO_D, d, D0, path.mtu)?;
            r.run(|n| n.route(network(B0), D0.address, None))?;
            d.run(|n| n.route(None, R1_TO_D.address, None))?;
            access(&ACCESS_B, &b, f.as_ref(), (d, "d1"), window_b, path.mtu)?;
        }
    }
    if let Some(x) = &x {
        join(x, X0, &r, R2, path.mtu)?;
        x.run(|n| n.route(None, R2.address, None))?;
    }
    Ok(Net { a, b, r, d, x, e, f, lossy_back: job.paths().any(|path| !path.loss_back.is_zero()) })
}

/// Puts the queues on the links, or changes those that are there. What is in a queue stays in it.
pub(super) fn set_queues(net: &Net, path: &LabPath, seed: u64) -> Fallible<()> {
    let (forward, back) = (queues::bottleneck(path), queues::bottleneck(path));
    net.r.run(move |n| {
        n.qdisc("r1", &forward)?;
        n.qdisc("r0", &back)?;
        // tbf does not split a GSO packet that is smaller than its burst; the links must.
        n.one_segment_at_a_time("r1")?;
        n.one_segment_at_a_time("r0")
    })?;
    let mut forward_ns = path.rtt.0 / 2;
    let back_ns = path.rtt.0 - forward_ns;
    if let Some(d) = &net.d {
        let (forward, taken_ns) = queues::impairments(path, forward_ns, seed);
        forward_ns -= taken_ns;
        let back = queues::impairment_back(path, seed);
        d.run(move |n| n.qdisc("d1", &forward))?;
        if net.lossy_back {
            d.run(move |n| n.qdisc("d0", &back))?;
            // Packets that are lost one by one must travel one by one, and no bottleneck has split them on the way back.
            net.b.run(|n| n.one_segment_at_a_time("b0"))?;
        }
    }
    let (near, far) = (queues::delay(forward_ns), queues::delay(back_ns));
    for (end, own, between, outer, delay) in
        [(&net.a, "a0", &net.e, ACCESS_A.between[1], near), (&net.b, "b0", &net.f, ACCESS_B.between[1], far)]
    {
        match between {
            None => end.run(move |n| n.qdisc(own, &delay))?,
            Some(between) => {
                end.run(move |n| n.qdisc(own, &queues::host_fq()))?;
                between.run(move |n| n.qdisc(outer, &delay))?;
            }
        }
    }
    if let Some(x) = &net.x {
        let queue = match path.cross {
            Some(Cross::Udp(_)) => queues::pacing(path),
            _ => queues::delay(path.rtt.0 / 2),
        };
        x.run(move |n| n.qdisc("x0", &queue))?;
    }
    Ok(())
}

/// Gives each host its kernel's settings. Fails where the job asks for one that this kernel lacks or does not take.
pub(super) fn set_hosts(net: &Net, job: &Job) -> Fallible<()> {
    let path = &job.path;
    host_limits::one_limit_for_both(&net.a, path)?;
    host_limits::allow_congestion_controls(path)?;
    host_limits::limit_memory(path)?;
    let tuned = LabHost::default();
    for (end, host) in [(Some(&net.a), &path.host_a), (Some(&net.b), &path.host_b), (net.x.as_ref(), &tuned)] {
        let Some(end) = end else { continue };
        let (host, more) = (host.clone(), job.sysctl.clone());
        end.run(move |_| {
            host_limits::grant(&host)?;
            // Each run starts as if nobody had ever used the path.
            sysctl::set("net/ipv4/tcp_no_metrics_save", "1")?;
            more.iter().try_for_each(|(name, value)| sysctl::set(&name.replace('.', "/"), value))
        })?;
    }
    Ok(())
}

/// Joins an end to a router of the path, whose link is called `name`: directly, or by the node with the delay.
fn access(
    by: &Access,
    end: &Node,
    between: Option<&Node>,
    (router, name): (&Node, &'static str),
    initcwnd: Option<u32>,
    mtu: u32,
) -> Fallible<()> {
    let gateway = by.gateway;
    match between {
        None => join(end, by.end, router, Plug { name, address: gateway }, mtu)?,
        Some(between) => {
            let ([near, far], [inner, outer]) = (by.between, by.inner);
            join(end, by.end, between, Plug { name: near, address: gateway }, mtu)?;
            join(between, Plug { name: far, address: inner }, router, Plug { name, address: outer }, mtu)?;
            let network = network(by.end);
            between.run(move |n| n.route(None, outer, None))?;
            router.run(move |n| n.route(network, inner, None))?;
        }
    }
    end.run(move |n| n.route(None, gateway, initcwnd))
}

/// The network of a plug.
fn network(plug: Plug) -> Option<Ipv4Addr> {
    let [a, b, c, _] = plug.address.octets();
    Some(Ipv4Addr::new(a, b, c, 0))
}

fn join(near: &Node, p: Plug, far: &Node, q: Plug, mtu: u32) -> Fallible<()> {
    let namespace = far.namespace();
    near.run(move |n| n.veth(&p, &q, namespace, mtu))?;
    near.run(move |n| n.plug(&p, &q))?;
    far.run(move |n| n.plug(&q, &p))
}
