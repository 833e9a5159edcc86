//! Makes the queue disciplines of an emulated path: the bottleneck's queue (tbf), delay and impairments (netem), the pacing of
//! cross traffic (fq). Each is packed as the kernel's netlink wants it; `topology.rs` puts it on a link. The length of the
//! bottleneck's queue in bytes comes with the path (`path.rs` of fullpipe-path, by default one BDP).

use fullpipe_path::LabPath;
use fullpipe_path::units::{Probability, Rate, Size};

use super::netlink::Qdisc;

/// Largest time by which a reordered packet overtakes others, ns.
const REORDER_NS: u64 = 1_000_000;

/// Largest delay of user-mode Linux's timers, ns: its clock steps by 256 ns, and no timer is set for less than 500 ns ahead
/// (arch/um/kernel/time.c).
const TIMER_DELAY_NS: u64 = 1_000;

/// Makes the bottleneck: tbf with a drop-tail queue that counts bytes (`bfifo`, its own child). Its burst is one packet and
/// the bytes that the line sends while a timer is late. With a smaller burst, each late timer would waste capacity (5% at
/// 10 Gb/s).
pub(super) fn bottleneck(path: &LabPath) -> Qdisc {
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

/// Makes the queue of a host that spaces its packets: fq as the kernel has it (`tc-fq(8)`).
pub(super) fn host_fq() -> Qdisc {
    Qdisc { kind: "fq", options: Vec::new() }
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

/// Makes a delay of whole packets, without a limit.
pub(super) fn delay(delay_ns: u64) -> Qdisc {
    Netem { delay_ns, ..Netem::default() }.qdisc()
}

/// Makes the impairments of the forward direction. Returns them and the part of the one-way delay that they include, ns.
pub(super) fn impairments(path: &LabPath, forward_ns: u64, seed: u64) -> (Qdisc, u64) {
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
    (netem.qdisc(), delay_ns)
}

/// Makes the impairment of the backward direction: random loss.
pub(super) fn impairment_back(path: &LabPath, seed: u64) -> Qdisc {
    Netem { loss: path.loss_back, seed: seed ^ 0x6261_636b, ..Netem::default() }.qdisc()
}

/// Makes the queue of a source of UDP cross traffic: fq, which sends each packet at the socket's pacing rate, to the
/// nanosecond. Its limits, total and per flow, must never be reached: a source whose packets are dropped never waits, and a
/// process that never waits stops virtual time.
pub(super) fn pacing(path: &LabPath) -> Qdisc {
    let many = 1_000_000_u32.to_ne_bytes();
    // No timer slack: the default of 10 us is several packets at 10 Gb/s.
    let slack = attribute(13, &0_u32.to_ne_bytes());
    // One packet at a time; at high rates as many as take 2 us, since timers, which are no finer than 1 us, would fall behind.
    let frame = path.mtu + fullpipe_path::path::ETHERNET_HEADER as u32;
    let together = (path.rate.0 / 8 * 2 / 1_000_000).div_ceil(u64::from(frame)).max(1);
    let quantum = (frame * together as u32).to_ne_bytes();
    let quanta = [attribute(3, &quantum), attribute(4, &quantum)].concat();
    Qdisc { kind: "fq", options: [attribute(1, &many), attribute(2, &many), quanta, slack].concat() }
}

impl Netem {
    /// Packs these settings.
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
        // What is not sent would stay as it is when a queue changes (netem_change).
        let zero = 0u32.to_ne_bytes();
        options.extend(attribute(3, &[fraction(self.reorder), zero].concat()));
        options.extend(attribute(4, &[fraction(self.corrupt), zero].concat()));
        // struct tc_netem_rate: rate, packet_overhead, cell_size, cell_overhead. Rates of over 32 bits stand in one more attribute.
        let rate = if self.in_order { u32::MAX.to_ne_bytes() } else { zero };
        options.extend(attribute(6, &[rate, zero, zero, zero].concat()));
        if self.in_order {
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
