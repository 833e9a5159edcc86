//! Checks the settings of TCP, and what the kernel can do.

use crate::commands::doctor::finding::{Finding, MAX_WINDOW, MODULES_FILE, State, Yardstick};
use crate::commands::doctor::host::Host;
use crate::format;

/// Largest value of `SO_SNDBUF` and `SO_RCVBUF`, bytes: the kernel keeps twice of it in an `int` (net/core/sock.c,
/// sk_setsockopt).
const MAX_ASKED_BYTES: u64 = i32::MAX as u64 / 2;
/// Largest size to which the kernel lets a buffer grow by itself, bytes.
const MAX_TUNED_BYTES: u64 = i32::MAX as u64;
/// Payload of a packet of 1500 bytes with TCP timestamps, bytes.
const MSS_BYTES: f64 = 1448.0;
/// First window of a stream, segments (RFC 6928).
const INITIAL_WINDOW_SEGMENTS: f64 = 10.0;
/// Time to ramp up again after a pause that nobody notices, s.
const SHORT_RAMP_S: f64 = 1e-3;

pub(super) fn check(host: &Host, by: &Yardstick) -> Vec<Finding> {
    let mut findings = vec![
        asked(host, by, "net.core.wmem_max"),
        asked(host, by, "net.core.rmem_max"),
        send_buffer(host, by),
        receive_buffer(host, by),
        receive_autotuning(host, by),
        memory(host, by),
        window_scaling(host, by),
        timestamps(host, by),
        sack(host, by),
        idle(host, by),
        metrics(host),
        mtu_probing(host),
        default_queue(host),
        kernel(host, by),
        congestion_controls(host, by),
        allowed(host, by),
    ];
    if by.bdp() > MAX_WINDOW {
        findings.push(one_stream(by));
    }
    findings
}

/// Checks the largest buffer that `--buffer` can ask for. The kernel doubles it, and `socket(7)` leaves half of that for data,
/// so the window is as large as what was asked for. In the testbed (Linux 6.12) it is 1.04 times as large.
fn asked(host: &Host, by: &Yardstick, key: &str) -> Finding {
    let Some(most) = host.number(key) else { return Finding::unseen_sysctl(key) };
    let most = most.max(0) as f64;
    let holds = format::bytes(most);
    if most >= by.window() {
        return Finding::ok(key, most, format!("--buffer can be up to {holds}"));
    }
    let bps = by.through(most);
    Finding::costs(key, most, format!("--buffer can be at most {holds}; with it one stream reaches {}", by.says(bps)))
        .leaves(bps)
        .set(key, by.target(MAX_ASKED_BYTES))
}

/// Checks how far a send buffer grows by itself (`tcp(7)`). A writer that found it full is woken when a third is free
/// (sk_stream_min_wspace, include/net/sock.h), so two thirds are in flight. In the testbed (Linux 6.12) it is 0.66 of
/// 16 MB and 0.68 of 4 MB.
fn send_buffer(host: &Host, by: &Yardstick) -> Finding {
    const KEY: &str = "net.ipv4.tcp_wmem";
    let Some([least, first, most]) = host.three(KEY) else { return Finding::unseen_sysctl(KEY) };
    let read = format!("{least} {first} {most}");
    let window = most as f64 * 2.0 / 3.0;
    let holds = format!("a send buffer grows by itself until {} are in flight", format::bytes(window));
    if window >= by.window() {
        return Finding::ok(KEY, read, holds);
    }
    let bps = by.through(window);
    Finding::costs(KEY, read, format!("{holds}; without --buffer one stream reaches {}", by.says(bps)))
        .leaves(bps)
        .set(KEY, format!("{least} {first} {}", by.target(MAX_TUNED_BYTES)))
}

/// Checks how far a receive buffer grows by itself. The window is the part that is not kept for bookkeeping.
fn receive_buffer(host: &Host, by: &Yardstick) -> Finding {
    const KEY: &str = "net.ipv4.tcp_rmem";
    let Some([least, first, most]) = host.three(KEY) else { return Finding::unseen_sysctl(KEY) };
    let read = format!("{least} {first} {most}");
    let (low, high) = window_share(host);
    let window = most as f64 * low;
    let holds = format!("a receive window grows by itself to {}", format::bytes(window));
    if window >= by.window() {
        return Finding::ok(KEY, read, holds);
    }
    let bps = by.through(window);
    let better = match by.through(most as f64 * high) {
        high if high > bps => format!(", with large packets up to {}", format::rate(high.min(by.rate_bps))),
        _ => String::new(),
    };
    Finding::costs(KEY, read, format!("{holds}; without --buffer one stream reaches {}{better}", by.says(bps)))
        .leaves(bps)
        .set(KEY, format!("{least} {first} {}", by.target(MAX_TUNED_BYTES)))
}

/// Fractions of a receive buffer that the kernel offers as window, smallest and largest. Before Linux 6.6 tcp_adv_win_scale sets
/// it. Since then it starts at one half and follows the overhead of the packets that arrive (scaling_ratio,
/// net/ipv4/tcp_input.c). In the testbed (Linux 6.12), where packets arrive many at a time, it is 0.91.
fn window_share(host: &Host) -> (f64, f64) {
    if host.kernel().is_some_and(|version| version >= (6, 6)) {
        return (0.5, 0.9);
    }
    let share = match host.number("net.ipv4.tcp_adv_win_scale").unwrap_or(1).clamp(-31, 31) {
        scale if scale > 0 => 1.0 - 0.5f64.powi(scale as i32),
        scale => 2.0f64.powi(scale as i32),
    };
    (share, share)
}

/// Checks that receive buffers grow by themselves.
fn receive_autotuning(host: &Host, by: &Yardstick) -> Finding {
    const KEY: &str = "net.ipv4.tcp_moderate_rcvbuf";
    let Some(on) = host.number(KEY) else { return Finding::unseen_sysctl(KEY) };
    if on != 0 {
        return Finding::ok(KEY, on, "receive buffers grow by themselves");
    }
    let window = host.three("net.ipv4.tcp_rmem").map(|[_, first, _]| first as f64 * window_share(host).0);
    let bps = window.map(|window| by.through(window)).filter(|bps| *bps < by.rate_bps);
    let says = bps.map_or_else(String::new, |bps| format!("; without --buffer one stream reaches {}", by.says(bps)));
    let finding = Finding::costs(KEY, on, format!("receive buffers do not grow{says}")).set(KEY, 1);
    bps.into_iter().fold(finding, Finding::leaves)
}

/// Checks the memory of all TCP sockets together, data and bookkeeping. Above the second value, in pages, the kernel stops
/// growing windows.
fn memory(host: &Host, by: &Yardstick) -> Finding {
    const KEY: &str = "net.ipv4.tcp_mem";
    let (Some([low, pressure, high]), Some(page)) = (host.three(KEY), host.page) else {
        return Finding::unseen_sysctl(KEY);
    };
    let page = page as f64;
    let read = format!("{low} {pressure} {high}");
    let held = pressure as f64 * page;
    let bps = by.through(held / 2.0);
    let says = format!("all streams together may hold {}", format::bytes(held));
    if bps >= by.rate_bps {
        return Finding::ok(KEY, read, says);
    }
    let finding = Finding::costs(KEY, read, format!("{says}, half of it data: {}", by.says(bps))).leaves(bps);
    let needed = 4.0 * by.bdp();
    if host.memory.is_some_and(|memory| needed > memory as f64 / 2.0) {
        let mut finding = finding;
        finding.words += &format!("; this path needs {}, more than this machine can give", format::bytes(needed));
        return finding;
    }
    let pages = (needed / page).ceil() as u64;
    finding.set(KEY, format!("{} {pages} {}", pages / 4 * 3, pages / 2 * 3))
}

/// Checks window scaling. Without it a window has 16 bits (RFC 7323, 2).
fn window_scaling(host: &Host, by: &Yardstick) -> Finding {
    const KEY: &str = "net.ipv4.tcp_window_scaling";
    let Some(on) = host.number(KEY) else { return Finding::unseen_sysctl(KEY) };
    let bps = by.through(65_535.0);
    if on != 0 || bps >= by.rate_bps {
        return Finding::ok(KEY, on, "windows may be larger than 64 KB");
    }
    Finding::costs(KEY, on, format!("no window is larger than 64 KB; one stream reaches {}", by.says(bps)))
        .leaves(bps)
        .set(KEY, 1)
}

/// Checks timestamps. They tell old segments from new ones after the 32 bits of sequence numbers wrap (RFC 7323, 5).
fn timestamps(host: &Host, by: &Yardstick) -> Finding {
    const KEY: &str = "net.ipv4.tcp_timestamps";
    let Some(on) = host.number(KEY) else { return Finding::unseen_sysctl(KEY) };
    if on != 0 {
        return Finding::ok(KEY, on, "every segment's round trip is measured");
    }
    let round = format::seconds(8.0 * 2f64.powi(32) / by.rate_bps.max(1.0));
    let words = format!(
        "sequence numbers wrap every {round} at {}, and nothing tells old segments from new ones",
        format::rate(by.rate_bps)
    );
    Finding::costs(KEY, on, words).set(KEY, 1)
}

/// Checks selective acknowledgements. Without them the sender learns of one lost segment per round trip (RFC 6582), with them
/// of all that a window lost (RFC 6675).
fn sack(host: &Host, by: &Yardstick) -> Finding {
    const KEY: &str = "net.ipv4.tcp_sack";
    let Some(on) = host.number(KEY) else { return Finding::unseen_sysctl(KEY) };
    if on != 0 {
        return Finding::ok(KEY, on, "all lost segments of a window are retransmitted at once");
    }
    let words = format!("each lost segment takes a round trip of its own, {} ms", format::ms(by.rtt_s * 1e3));
    Finding::costs(KEY, on, words).set(KEY, 1)
}

/// Checks slow start after idle. After a pause longer than the retransmission timeout the window starts small again (RFC
/// 2861). It then takes as many round trips to a BDP as doublings (RFC 5681, 3.1).
fn idle(host: &Host, by: &Yardstick) -> Finding {
    const KEY: &str = "net.ipv4.tcp_slow_start_after_idle";
    let Some(on) = host.number(KEY) else { return Finding::unseen_sysctl(KEY) };
    let doublings = (by.window() / (INITIAL_WINDOW_SEGMENTS * MSS_BYTES)).log2().ceil().max(0.0);
    if on == 0 || doublings == 0.0 {
        return Finding::ok(KEY, on, "the window stays as it is over a pause");
    }
    let seconds = doublings * by.rtt_s;
    let words = format!("after each pause, such as between files, ramping up again takes {}", format::seconds(seconds));
    if seconds < SHORT_RAMP_S {
        return Finding::ok(KEY, on, words);
    }
    Finding::costs(KEY, on, words).set(KEY, 0)
}

/// Checks what a connection leaves to the next ones to the same host. Only its ssthresh costs; since Linux 5.6 that has a
/// setting of its own, and is not saved by default.
fn metrics(host: &Host) -> Finding {
    const KEY: &str = "net.ipv4.tcp_no_metrics_save";
    let Some(on) = host.number(KEY) else { return Finding::unseen_sysctl(KEY) };
    if on != 0 || host.number("net.ipv4.tcp_no_ssthresh_metrics_save").is_some_and(|on| on != 0) {
        return Finding::ok(KEY, on, "loss on a connection does not slow down the next one");
    }
    let words = "after loss, later connections to the same host inherit ssthresh and leave slow start early";
    Finding::costs(KEY, on, words).set(KEY, 1)
}

/// Checks Packetization Layer Path MTU Discovery (RFC 4821).
fn mtu_probing(host: &Host) -> Finding {
    const KEY: &str = "net.ipv4.tcp_mtu_probing";
    let Some(on) = host.number(KEY) else { return Finding::unseen_sysctl(KEY) };
    let jumbo = host.interfaces.iter().find(|i| i.name != "lo" && i.mtu.is_some_and(|mtu| mtu > 1500));
    match jumbo {
        Some(interface) if on == 0 => {
            let words = format!(
                "{} sends packets of {} bytes: on a path of smaller packets whose ICMP is filtered, a stream stalls",
                interface.name,
                interface.mtu.unwrap_or_default()
            );
            Finding::costs(KEY, on, words).set(KEY, 1)
        }
        Some(_) => Finding::ok(KEY, on, "TCP finds out if a path needs smaller packets"),
        None => Finding::ok(KEY, on, "no interface sends packets over 1500 bytes"),
    }
}

/// Checks the queueing discipline that interfaces get at boot.
fn default_queue(host: &Host) -> Finding {
    const KEY: &str = "net.core.default_qdisc";
    let Some(kind) = host.sysctl(KEY) else { return Finding::unseen_sysctl(KEY) };
    if kind == "fq" {
        return Finding::ok(KEY, kind, "new interfaces pace each stream");
    }
    Finding::costs(KEY, kind, "interfaces get this queue at boot; unlike fq it does not pace streams").set(KEY, "fq")
}

/// Checks the age of the kernel. Linux 4.9 brought BBR, 4.13 pacing within TCP, 4.20 earliest departure time and pacing rates of
/// 64 bits.
fn kernel(host: &Host, by: &Yardstick) -> Finding {
    const SUBJECT: &str = "kernel";
    let (Some(release), Some(version)) = (host.sysctl("kernel.osrelease"), host.kernel()) else {
        return Finding::unseen(SUBJECT, "could not see its version", "uname -r");
    };
    let mut lacks = Vec::new();
    if version < (4, 9) {
        lacks.push("has no BBR".to_owned());
    }
    if version < (4, 13) {
        lacks.push("paces only if the interface's queue is fq".to_owned());
    }
    // SO_MAX_PACING_RATE had 32 bits, in bytes per second.
    let pacing = 8.0 * f64::from(u32::MAX);
    if version < (4, 20) {
        lacks.push("paces by rate instead of departure time, which is uneven".to_owned());
        if by.rate_bps > pacing {
            lacks.push(format!("allows no --pacing above {} a stream", format::rate(pacing)));
        }
    }
    if lacks.is_empty() {
        return Finding::ok(SUBJECT, release, "new enough to pace by departure time");
    }
    let words = format!("older than 4.20: it {}; install a newer kernel", lacks.join(", "));
    Finding::costs(SUBJECT, release, words)
}

/// Checks for better congestion controls than this kernel has. The cost is the difference between the best in the shipped
/// profile and the best that this kernel has.
fn congestion_controls(host: &Host, by: &Yardstick) -> Finding {
    const SUBJECT: &str = "congestion controls";
    const KEY: &str = "net.ipv4.tcp_available_congestion_control";
    let Some(has) = host.list(KEY) else { return Finding::unseen_sysctl(KEY) };
    let read = has.join(" ");
    let Some((_, best)) = by.ranking.first() else {
        let why = "the shipped profile does not cover this path, so whether another would be faster is not known";
        return Finding::new(State::Unknown, SUBJECT, read, why);
    };
    let here = by.ranking.iter().find(|(cc, _)| has.contains(&cc.as_str()));
    let rate = here.map_or(0.0, |(_, bps)| *bps);
    let better = better(host, by);
    if better.is_empty() {
        let name = here.map_or("", |(cc, _)| cc.as_str());
        return Finding::ok(SUBJECT, read, format!("{name} is as fast on this path as any that was measured"));
    }
    let names = better.join(", ");
    let expected = match here {
        Some((cc, bps)) => format!("of these {cc} is the best, with {} expected", format::rate(*bps)),
        None => "none of these was measured".into(),
    };
    let words = format!("{expected}; it lacks {names}, with up to {}", format::rate(*best));
    let mut finding = Finding::costs(SUBJECT, read, words);
    if here.is_some() {
        finding = finding.leaves(rate);
    }
    let release = host.sysctl("kernel.osrelease").unwrap_or("$(uname -r)");
    let there = loadable(host, by);
    if there.is_empty() {
        finding.words += &match &host.modules {
            Some(_) => format!(
                "; /lib/modules/{release} has no modules of them; Ubuntu has them in linux-modules-extra-{release}"
            ),
            None => {
                format!(
                    "; there is no /lib/modules/{release} to load them from, as in a container or with a kernel without modules"
                )
            }
        };
        return finding;
    }
    for cc in there {
        finding = finding.fix(format!("modprobe tcp_{cc}")).keep(MODULES_FILE, format!("tcp_{cc}"));
    }
    finding
}

/// Up to four congestion controls that this kernel lacks and that are expected to be faster than those it has. There are none
/// if one that it has is within 1% of the best, the default of `fullpipe select --within`.
fn better<'a>(host: &Host, by: &'a Yardstick) -> Vec<&'a str> {
    let has = host.list("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
    let here = by.ranking.iter().position(|(cc, _)| has.contains(&cc.as_str()));
    let (lacking, here) = by.ranking.split_at(here.unwrap_or(by.ranking.len()));
    let Some((_, best)) = lacking.first() else { return Vec::new() };
    if here.first().is_some_and(|(_, bps)| *bps >= 0.99 * best) {
        return Vec::new();
    }
    lacking.iter().map(|(cc, _)| cc.as_str()).take(4).collect()
}

/// Those of [`better`] that this kernel has as modules.
fn loadable<'a>(host: &Host, by: &'a Yardstick) -> Vec<&'a str> {
    let Some(modules) = &host.modules else { return Vec::new() };
    better(host, by).into_iter().filter(|cc| modules.contains(*cc)).collect()
}

/// Checks which congestion controls a program may use without CAP_NET_ADMIN (`tcp(7)`).
fn allowed(host: &Host, by: &Yardstick) -> Finding {
    const KEY: &str = "net.ipv4.tcp_allowed_congestion_control";
    let Some(may) = host.list(KEY) else { return Finding::unseen_sysctl(KEY) };
    let has = host.list("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
    // Modules that are loaded later are for root alone too.
    let kept: Vec<&str> = has.into_iter().chain(loadable(host, by)).filter(|cc| !may.contains(cc)).collect();
    let read = may.join(" ");
    if kept.is_empty() {
        return Finding::ok(KEY, read, "every user may use all that the kernel has");
    }
    let all: Vec<&str> = may.iter().chain(&kept).copied().collect();
    let finding = Finding::costs(KEY, read, format!("only root may use {}", kept.join(", "))).set(KEY, all.join(" "));
    // At boot the kernel refuses the whole line if one of them is not loaded yet (net/ipv4/tcp_cong.c,
    // `tcp_set_allowed_congestion_control`).
    let is_module = |cc: &&str| host.modules.as_ref().is_some_and(|modules| modules.contains(*cc));
    all.into_iter().filter(is_module).fold(finding, |finding, cc| finding.also_keep(MODULES_FILE, format!("tcp_{cc}")))
}

/// Reports a path on which even the largest window of TCP is too small.
fn one_stream(by: &Yardstick) -> Finding {
    let bps = by.through(MAX_WINDOW);
    let streams = (by.rate_bps / bps).ceil();
    let words = format!(
        "TCP has no larger window (RFC 7323): one stream reaches {}; use --streams {streams} or more",
        by.says(bps)
    );
    let read = format!("{} of window", format::bytes(MAX_WINDOW));
    Finding::costs("one stream", read, words).leaves(bps)
}
