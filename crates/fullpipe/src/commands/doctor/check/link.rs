//! Checks an interface: its link, its queues, its packets.

use crate::commands::doctor::finding::{FAST, Finding, SYSCTL_FILE, State, Yardstick};
use crate::commands::doctor::host::{Host, Interface};
use crate::format;

/// Bytes that an Ethernet adds to each packet: preamble, header, checksum, gap.
const FRAMING_BYTES: f64 = 38.0;
/// Headers of IPv4 and TCP in a packet, timestamps included, bytes.
const HEADER_BYTES: f64 = 52.0;
/// MTU from which packets count as large, bytes: Google Cloud allows 8896, other networks 9000.
const LARGE_MTU: u64 = 8800;
/// Queue length that fasterdata.es.net recommends for 10 Gb/s and more, packets.
const QUEUE_PACKETS: u64 = 10_000;

pub(super) fn check(host: &Host, interface: &Interface, wanted: &Yardstick) -> Vec<Finding> {
    // An interface never has to carry more than its link can.
    let rate_bps = interface.speed_bps.map_or(wanted.rate_bps, |speed| wanted.rate_bps.min(speed as f64));
    let by = &Yardstick { rate_bps, ..wanted.clone() };
    let mut findings = vec![packet(host, interface, by), queue(interface), queue_length(interface, by)];
    // Bridges, tunnels and the like have no link and no rings, and lose no packets.
    if interface.device {
        findings.extend([speed(interface, wanted), rings(interface, by), offloads(interface), lost(interface)]);
        findings.extend(pcie(interface, by));
        findings.extend(receive_queues(host, interface, by));
    }
    findings
}

/// Compares the speed of the link with the rate that is wanted.
fn speed(interface: &Interface, by: &Yardstick) -> Finding {
    let name = &interface.name;
    let subject = format!("{name} link");
    let Some(speed) = interface.speed_bps.map(|bps| bps as f64) else {
        let why = match &interface.driver {
            Some(driver) => format!("could not see its rate: its driver, {driver}, does not tell"),
            None => "could not see its rate: its driver does not tell".into(),
        };
        return Finding::unseen(&subject, why, format!("ethtool {name}"));
    };
    if interface.duplex.as_deref() == Some("half") {
        let words = "only one end sends at a time: negotiation failed; check the port at the other end of the cable";
        return Finding::costs(&subject, format!("{}, half duplex", format::rate(speed)), words)
            .fix(format!("ethtool -s {name} autoneg on"));
    }
    // The parts of a bond share the load, so each may be slower.
    if speed < by.rate_bps && by.asked && !interface.part {
        let words = format!("slower than the {} wanted", format::rate(by.rate_bps));
        return Finding::costs(&subject, format::rate(speed), words).leaves(speed);
    }
    let words = if speed < by.rate_bps { "nothing needs more of it" } else { "fast enough" };
    Finding::ok(&subject, format::rate(speed), words)
}

/// Computes what headers leave of a link. Recovery from loss depends on the size of segments too: at the same loss rate,
/// throughput is proportional to it (Mathis et al., 1997).
fn packet(host: &Host, interface: &Interface, by: &Yardstick) -> Finding {
    let name = &interface.name;
    let subject = format!("{name} MTU");
    let Some(mtu) = interface.mtu else {
        return Finding::unseen(&subject, "could not see it", format!("ip link show dev {name}"));
    };
    let rate = by.rate_bps;
    let payload = |mtu: f64| rate * (mtu - HEADER_BYTES).max(0.0) / (mtu + FRAMING_BYTES);
    let packets = format!("{} packets/s", format::thousands((rate / 8.0 / (mtu as f64 + FRAMING_BYTES)) as u64));
    // The MTU of what stands on it counts, and comes with commands for both.
    let is_below = host.interfaces.iter().any(|other| other.lower.contains(&interface.name));
    let with_mtu = with_mtu(host, interface);
    if mtu >= LARGE_MTU || rate < FAST || is_below || with_mtu.is_empty() {
        return Finding::ok(&subject, mtu, packets);
    }
    let (now, then) = (payload(mtu as f64), payload(9000.0));
    let words = format!(
        "{packets}; headers leave {} of {}; an MTU of 9000 would leave {}, and recover from loss {:.1} times as fast",
        format::rate(now),
        format::rate(rate),
        format::rate(then),
        (9000.0 - HEADER_BYTES) / (mtu as f64 - HEADER_BYTES).max(1.0)
    );
    let finding = Finding::costs(&subject, mtu, words)
        .leaves(now)
        .only_if("every hop carries 9000 bytes; set it, then check with 'ping -M do -s 8972 HOST'");
    let small = with_mtu.into_iter().filter(|one| one.mtu.is_none_or(|mtu| mtu < LARGE_MTU));
    small.fold(finding, |finding, Interface { name, .. }| {
        finding
            .fix(format!("ip link set dev {name} mtu 9000"))
            .whenever(name, &format!("/sbin/ip link set dev {name} mtu 9000"))
    })
}

/// Returns the interfaces whose MTU must be set for that of an interface, in this order: a VLAN's is at most that of the interface
/// below, and a bond sets that of its parts. There are none for a part, nor for bridges, tunnels and the like.
fn with_mtu<'a>(host: &'a Host, interface: &'a Interface) -> Vec<&'a Interface> {
    match interface.kind.as_deref() {
        Some("vlan") => {
            let below = |name: &String| host.interfaces.iter().find(|other| other.name == *name);
            let mut all = interface.lower.iter().find_map(below).map_or_else(Vec::new, |below| with_mtu(host, below));
            all.push(interface);
            all
        }
        Some("bond") => vec![interface],
        _ if interface.device && !interface.part => vec![interface],
        _ => Vec::new(),
    }
}

/// Queueing disciplines that only hold packets: the kernel's defaults and plain queues. Others were set up to shape or to sort
/// traffic, which replacing them would end.
const PLAIN_QUEUES: [&str; 6] = ["bfifo", "fq_codel", "mq", "pfifo", "pfifo_fast", "sfq"];

/// Checks that the queueing discipline paces streams.
fn queue(interface: &Interface) -> Finding {
    let name = &interface.name;
    let subject = format!("{name} qdisc");
    let Some(kinds) = &interface.qdiscs else {
        return Finding::unseen(&subject, "could not see it", format!("tc qdisc show dev {name}"));
    };
    let read = kinds.join(" ");
    if kinds.iter().all(|kind| kind == "fq") {
        return Finding::ok(&subject, read, "it paces each stream");
    }
    if kinds.iter().all(|kind| kind == "noqueue") {
        return Finding::ok(&subject, read, "packets do not wait here");
    }
    if !interface.device {
        return Finding::ok(&subject, read, "packets leave through another interface's queue");
    }
    let is_plain = |kind: &String| kind == "fq" || PLAIN_QUEUES.contains(&kind.as_str());
    if !kinds.iter().all(is_plain) {
        let words = "something shapes or sorts traffic here; whether it paces each stream is not known";
        return Finding::new(State::Unknown, &subject, read, words);
    }
    let words = "it does not pace; only BBR and --pacing are paced, by TCP's own timers; all else leaves in bursts, which shallow queues drop";
    let finding = Finding::costs(&subject, read, words);
    // mq creates a net.core.default_qdisc for each queue of the card.
    let finding = if interface.tx_queues > 1 {
        finding.fix("sysctl -w net.core.default_qdisc=fq").fix(format!("tc qdisc replace dev {name} root mq"))
    } else {
        finding.fix(format!("tc qdisc replace dev {name} root fq"))
    };
    finding.keep(SYSCTL_FILE, "net.core.default_qdisc = fq")
}

/// Checks the length of queues that have no limit of their own.
fn queue_length(interface: &Interface, by: &Yardstick) -> Finding {
    let name = &interface.name;
    let subject = format!("{name} txqueuelen");
    let Some(length) = interface.queue_len else {
        return Finding::unseen(&subject, "could not see it", format!("ip link show dev {name}"));
    };
    let bounds = interface.device
        && interface.qdiscs.as_ref().is_some_and(|kinds| kinds.iter().any(|kind| kind.starts_with("pfifo")));
    if !bounds || length >= QUEUE_PACKETS || by.rate_bps < FAST {
        let words = if bounds { "long enough" } else { "no queue here has that limit" };
        return Finding::ok(&subject, length, words);
    }
    let mtu = interface.mtu.unwrap_or(1500) as f64;
    let words = format!(
        "a burst of more than {} at {} is dropped before it leaves; with fq the length has no effect",
        format::bytes(length as f64 * mtu),
        format::rate(by.rate_bps)
    );
    Finding::costs(&subject, length, words)
        .fix(format!("ip link set dev {name} txqueuelen {QUEUE_PACKETS}"))
        .whenever(name, &format!("/sbin/ip link set dev {name} txqueuelen {QUEUE_PACKETS}"))
}

/// Checks how many packets the card keeps until a processor takes them.
fn rings(interface: &Interface, by: &Yardstick) -> Finding {
    let name = &interface.name;
    let subject = format!("{name} rings");
    let Some(rings) = interface.rings else {
        return Finding::unseen(&subject, "could not see them: its driver does not tell", format!("ethtool -g {name}"));
    };
    let read = format!("rx {} of {}, tx {} of {}", rings.rx, rings.rx_max, rings.tx, rings.tx_max);
    // Packets per second; they are shared among the rings of all queues.
    let packets = by.rate_bps / 8.0 / (interface.mtu.unwrap_or(1500) as f64 + FRAMING_BYTES);
    let holds = format::seconds(f64::from(rings.rx) * interface.rx_queues.max(1) as f64 / packets.max(1.0));
    let words = format!("they hold what arrives in {holds} at {}", format::rate(by.rate_bps));
    if rings.rx >= rings.rx_max && rings.tx >= rings.tx_max || by.rate_bps < FAST {
        return Finding::ok(&subject, read, words);
    }
    let command = format!("ethtool -G {name} rx {} tx {}", rings.rx_max, rings.tx_max);
    Finding::costs(&subject, read, format!("{words}; if a processor is busy for longer, packets are lost"))
        .whenever(name, &format!("/sbin/{command}"))
        .fix(command)
}

/// Checks offloads. Software can merge arriving packets (gro) and split leaving ones (gso). The others need the card, and only
/// a newer interface of the kernel tells which of them are `[fixed]`.
fn offloads(interface: &Interface) -> Finding {
    let name = &interface.name;
    let subject = format!("{name} offloads");
    let see = format!("ethtool -k {name}");
    if interface.offloads.is_empty() {
        return Finding::unseen(&subject, "could not see them", see);
    }
    let show = |on: bool| -> Vec<&str> {
        interface.offloads.iter().filter(|(_, is)| **is == on).map(|(name, _)| name.as_str()).collect()
    };
    let (on, off) = (show(true), show(false));
    if off.is_empty() {
        return Finding::ok(&subject, on.join(" "), "packets are handled many at a time");
    }
    let read = format!("off: {}", off.join(" "));
    // The kernel refuses gso without sg.
    let software = |offload: &&str| *offload == "gro" || *offload == "gso" && !off.contains(&"sg");
    let software: Vec<&str> = off.iter().copied().filter(software).collect();
    if software.is_empty() {
        let words = "could not see whether the card can do these for the processor; it cannot where they are [fixed]";
        return Finding::unseen(&subject, words, see).having_read(read);
    }
    let command = format!("ethtool -K {name} {} on", software.join(" on "));
    Finding::costs(&subject, read, "the processor handles packets one by one, not many at a time")
        .whenever(name, &format!("/sbin/{command}"))
        .fix(command)
}

/// Reports packets that were lost. The counters run since boot, and cannot tell whether packets are still lost.
fn lost(interface: &Interface) -> Finding {
    let name = &interface.name;
    let subject = format!("{name} receive errors");
    let see = format!("ip -s -s link show dev {name}");
    if interface.lost.is_empty() {
        return Finding::unseen(&subject, "could not see them", see);
    }
    let some: Vec<String> =
        interface.lost.iter().filter(|(_, n)| **n > 0).map(|(name, n)| format!("{name} {n}")).collect();
    if some.is_empty() {
        return Finding::ok(&subject, "0", "no packet was lost here since boot");
    }
    let count = |name: &str| interface.lost.get(name).is_some_and(|n| *n > 0);
    let mut why = Vec::new();
    if count("rx_crc_errors") {
        why.push("packets arrived damaged: clean or replace fibre, cable or optics");
    }
    if count("rx_fifo_errors") || count("rx_missed_errors") {
        why.push("packets found the rings full: check rings, governor and interrupts");
    }
    let words = format!("since boot, {}; could not see whether that goes on", why.join("; "));
    Finding::unseen(&subject, words, see).having_read(some.join(", "))
}

/// Compares the slot of the card with the rate that is wanted.
fn pcie(interface: &Interface, by: &Yardstick) -> Option<Finding> {
    let (now, most) = interface.pcie_bps?;
    let subject = format!("{} PCIe", interface.name);
    let read = format!("{} of {}", format::rate(now), format::rate(most));
    if now >= by.rate_bps {
        return Some(Finding::ok(&subject, read, "fast enough"));
    }
    let words =
        format!("the slot is slower than the {} wanted: move the card to a faster one", format::rate(by.rate_bps));
    Some(Finding::costs(&subject, read, words).leaves(now))
}

/// Checks that several processors share arriving packets: the interrupts of one queue go to one processor.
fn receive_queues(host: &Host, interface: &Interface, by: &Yardstick) -> Option<Finding> {
    if interface.rx_queues == 0 {
        return None;
    }
    let name = &interface.name;
    let subject = format!("{name} queues");
    let read = format!("{} rx, {} tx", interface.rx_queues, interface.tx_queues);
    if interface.rx_queues > 1 || host.cpus < 2 || by.rate_bps < FAST {
        return Some(Finding::ok(&subject, read, "packets are shared among processors"));
    }
    let words = format!(
        "one of {} processors takes all arriving packets; could not see whether the card can have more queues",
        host.cpus
    );
    Some(Finding::unseen(&subject, words, format!("ethtool -l {name}")).having_read(read))
}
