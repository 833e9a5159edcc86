//! An interface: its link, its queues, its packets.

use crate::commands::doctor::finding::{FAST, Finding, SYSCTL_FILE, Yardstick};
use crate::commands::doctor::host::{Host, Interface};
use crate::format;

/// Bytes of a packet on an Ethernet besides those that its MTU counts: preamble, header, checksum, gap.
const FRAMING: f64 = 38.0;
/// Bytes of a packet that are headers of IPv4 and TCP with timestamps.
const HEADERS: f64 = 52.0;
/// Bytes of a packet from which on it is a large one: Google Cloud has 8896 at most, other networks 9000.
const LARGE: u64 = 8800;
/// Packets that fasterdata.es.net has wait in a queue of 10 Gb/s and more.
const QUEUE: u64 = 10_000;

pub(super) fn judge(host: &Host, interface: &Interface, wanted: &Yardstick) -> Vec<Finding> {
    // More than its link carries never goes through an interface, whatever others do.
    let rate_bps = interface.speed_bps.map_or(wanted.rate_bps, |speed| wanted.rate_bps.min(speed as f64));
    let by = &Yardstick { rate_bps, ..wanted.clone() };
    let mut findings = vec![packet(interface, by), queue(interface), queue_length(interface, by)];
    // Bridges, tunnels and the like have no link, no rings and nothing that loses packets.
    if interface.device {
        findings.extend([speed(interface, wanted), rings(interface, by), offloads(interface), lost(interface)]);
        findings.extend(pcie(interface, by));
        findings.extend(receive_queues(host, interface, by));
    }
    findings
}

/// What an interface's own speed leaves.
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
        let words = "only one end sends at a time: negotiation failed, look at the other end's port";
        return Finding::costs(&subject, format!("{}, half duplex", format::rate(speed)), words)
            .fix(format!("ethtool -s {name} autoneg on"));
    }
    // The parts of a bond share what should go through.
    if speed < by.rate_bps && by.asked && !interface.part {
        let words = format!("slower than the {} that should go through", format::rate(by.rate_bps));
        return Finding::costs(&subject, format::rate(speed), words).leaves(speed);
    }
    let words = if speed < by.rate_bps { "nothing asks more of it" } else { "as fast as what should go through" };
    Finding::ok(&subject, format::rate(speed), words)
}

/// What headers leave of a link. Recovery from loss goes by segments too: at one loss rate, throughput goes with
/// their size (Mathis et al., 1997).
fn packet(interface: &Interface, by: &Yardstick) -> Finding {
    let name = &interface.name;
    let subject = format!("{name} MTU");
    let Some(mtu) = interface.mtu else {
        return Finding::unseen(&subject, "could not see it", format!("ip link show dev {name}"));
    };
    let rate = by.rate_bps;
    let payload = |mtu: f64| rate * (mtu - HEADERS).max(0.0) / (mtu + FRAMING);
    let packets = format!("{} packets/s", format::thousands((rate / 8.0 / (mtu as f64 + FRAMING)) as u64));
    if mtu >= LARGE || rate < FAST || !interface.device {
        return Finding::ok(&subject, mtu, packets);
    }
    let (now, then) = (payload(mtu as f64), payload(9000.0));
    let words = format!(
        "{packets}; headers leave {} of {}, with 9000 {}, and recovery from loss would be {:.1} times as fast",
        format::rate(now),
        format::rate(rate),
        format::rate(then),
        (9000.0 - HEADERS) / (mtu as f64 - HEADERS).max(1.0)
    );
    Finding::costs(&subject, mtu, words)
        .leaves(now)
        .only_if(format!("every hop carries 9000 bytes, which 'ping -M do -s 8972 HOST' shows once {name} does"))
        .fix(format!("ip link set dev {name} mtu 9000"))
        .whenever(name, &format!("/sbin/ip link set dev {name} mtu 9000"))
}

fn queue(interface: &Interface) -> Finding {
    let name = &interface.name;
    let subject = format!("{name} qdisc");
    let Some(kinds) = &interface.qdiscs else {
        return Finding::unseen(&subject, "could not see it", format!("tc qdisc show dev {name}"));
    };
    let read = kinds.join(" ");
    if kinds.iter().all(|kind| kind == "fq") {
        return Finding::ok(&subject, read, "each stream is paced");
    }
    if kinds.iter().all(|kind| kind == "noqueue") {
        return Finding::ok(&subject, read, "packets do not wait here");
    }
    if !interface.device {
        return Finding::ok(&subject, read, "packets leave through another interface's queue");
    }
    let words =
        "only BBR and --pacing are paced, by timers of TCP's own; all else leaves in bursts, which shallow queues lose";
    let finding = Finding::costs(&subject, read, words);
    // mq makes one of net.core.default_qdisc for each of the card's queues.
    let finding = if interface.tx_queues > 1 {
        finding.fix("sysctl -w net.core.default_qdisc=fq").fix(format!("tc qdisc replace dev {name} root mq"))
    } else {
        finding.fix(format!("tc qdisc replace dev {name} root fq"))
    };
    finding.keep(SYSCTL_FILE, "net.core.default_qdisc = fq")
}

/// It bounds only queues without a limit of their own.
fn queue_length(interface: &Interface, by: &Yardstick) -> Finding {
    let name = &interface.name;
    let subject = format!("{name} txqueuelen");
    let Some(length) = interface.queue_len else {
        return Finding::unseen(&subject, "could not see it", format!("ip link show dev {name}"));
    };
    let bounds = interface.device
        && interface.qdiscs.as_ref().is_some_and(|kinds| kinds.iter().any(|kind| kind.starts_with("pfifo")));
    if !bounds || length >= QUEUE || by.rate_bps < FAST {
        let words = if bounds { "long enough" } else { "nothing waits in a queue of that length" };
        return Finding::ok(&subject, length, words);
    }
    let mtu = interface.mtu.unwrap_or(1500) as f64;
    let words = format!(
        "a burst of more than {} at {} is lost before it leaves; with fq it does not matter",
        format::bytes(length as f64 * mtu),
        format::rate(by.rate_bps)
    );
    Finding::costs(&subject, length, words)
        .fix(format!("ip link set dev {name} txqueuelen {QUEUE}"))
        .whenever(name, &format!("/sbin/ip link set dev {name} txqueuelen {QUEUE}"))
}

/// Packets that the card keeps until a processor comes.
fn rings(interface: &Interface, by: &Yardstick) -> Finding {
    let name = &interface.name;
    let subject = format!("{name} rings");
    let Some(rings) = interface.rings else {
        return Finding::unseen(&subject, "could not see them: its driver does not tell", format!("ethtool -g {name}"));
    };
    let read = format!("rx {} of {}, tx {} of {}", rings.rx, rings.rx_max, rings.tx, rings.tx_max);
    // What a second of packets is to one ring; several share where there are more queues.
    let packets = by.rate_bps / 8.0 / (interface.mtu.unwrap_or(1500) as f64 + FRAMING);
    let holds = format::seconds(f64::from(rings.rx) * interface.rx_queues.max(1) as f64 / packets.max(1.0));
    let words = format!("what arrives in {holds} at {} fits", format::rate(by.rate_bps));
    if rings.rx >= rings.rx_max && rings.tx >= rings.tx_max || by.rate_bps < FAST {
        return Finding::ok(&subject, read, words);
    }
    let command = format!("ethtool -G {name} rx {} tx {}", rings.rx_max, rings.tx_max);
    Finding::costs(&subject, read, format!("{words}; a processor busy for longer loses packets"))
        .whenever(name, &format!("/sbin/{command}"))
        .fix(command)
}

/// Software can gather what arrives and cut what leaves. All else is the card's, which may not be able to: only the
/// kernel's newer interface tells what is `[fixed]`.
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
    // The kernel takes no gso without sg.
    let software = |offload: &&str| *offload == "gro" || *offload == "gso" && !off.contains(&"sg");
    let software: Vec<&str> = off.iter().copied().filter(software).collect();
    if software.is_empty() {
        let words = "could not see whether the card can do it in place of the processor; not where it is [fixed]";
        return Finding::unseen(&subject, words, see).having_read(read);
    }
    let command = format!("ethtool -K {name} {} on", software.join(" on "));
    Finding::costs(&subject, read, "the processor does for each packet what it can do for many")
        .whenever(name, &format!("/sbin/{command}"))
        .fix(command)
}

/// What counts since boot does not tell whether it still happens.
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
        why.push("packets came broken: clean or replace fibre, cable or optics");
    }
    if count("rx_fifo_errors") || count("rx_missed_errors") {
        why.push("packets found the rings full: see rings, governor, interrupts");
    }
    let words = format!("since boot, {}; could not see whether it goes on", why.join("; "));
    Finding::unseen(&subject, words, see).having_read(some.join(", "))
}

/// The slot that the card is in.
fn pcie(interface: &Interface, by: &Yardstick) -> Option<Finding> {
    let (now, most) = interface.pcie_bps?;
    let subject = format!("{} PCIe", interface.name);
    let read = format!("{} of {}", format::rate(now), format::rate(most));
    if now >= by.rate_bps {
        return Some(Finding::ok(&subject, read, "carries what should go through"));
    }
    let words =
        format!("the slot is slower than the {} that should go through: move the card", format::rate(by.rate_bps));
    Some(Finding::costs(&subject, read, words).leaves(now))
}

/// Where interrupts of one queue go, one processor does all that comes.
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
        "one of {} processors takes all that arrives; could not see whether the card can do with more",
        host.cpus
    );
    Some(Finding::unseen(&subject, words, format!("ethtool -l {name}")).having_read(read))
}
