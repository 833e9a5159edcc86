//! Settings of TCP, and what the kernel can do.

use crate::commands::doctor::finding::{Finding, MAX_WINDOW, MODULES_FILE, State, Yardstick};
use crate::commands::doctor::host::Host;
use crate::format;

/// Most that the kernel lets `SO_SNDBUF` and `SO_RCVBUF` ask for: it books twice of that in an `int`
/// (net/core/sock.c, sk_setsockopt).
const MOST_ASKED: u64 = i32::MAX as u64 / 2;
/// Most that it lets a buffer grow to by itself.
const MOST_GROWN: u64 = i32::MAX as u64;
/// Payload of a segment in packets of 1500 bytes, with timestamps.
const MSS: f64 = 1448.0;
/// Segments that a stream starts with (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;

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

/// A buffer asked for with `--buffer`. The kernel takes no more than this, and books twice of it, of which the
/// half that `socket(7)` leaves for data is the window. In the testbed (Linux 6.12), windows are 1.04 of it.
fn asked(host: &Host, by: &Yardstick, key: &str) -> Finding {
    let Some(most) = host.number(key) else { return Finding::unseen_sysctl(key) };
    let most = most.max(0) as f64;
    let holds = format::bytes(most);
    if most >= by.window() {
        return Finding::ok(key, most, format!("--buffer is had up to {holds}"));
    }
    let bps = by.through(most);
    Finding::costs(key, most, format!("a --buffer is at most {holds}: one stream with it does {}", by.says(bps)))
        .leaves(bps)
        .set(key, by.target(MOST_ASKED))
}

/// What a send buffer grows to by itself (`tcp(7)`). A writer that found it full is woken when a third is free
/// (sk_stream_min_wspace, include/net/sock.h), so two thirds are in flight. In the testbed (Linux 6.12), 0.66 of
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
    Finding::costs(KEY, read, format!("{holds}: without --buffer one stream does {}", by.says(bps)))
        .leaves(bps)
        .set(KEY, format!("{least} {first} {}", by.target(MOST_GROWN)))
}

/// What a receive buffer grows to by itself. The window is the part of it that is not kept for bookkeeping.
fn receive_buffer(host: &Host, by: &Yardstick) -> Finding {
    const KEY: &str = "net.ipv4.tcp_rmem";
    let Some([least, first, most]) = host.three(KEY) else { return Finding::unseen_sysctl(KEY) };
    let read = format!("{least} {first} {most}");
    let (low, high) = window_share(host);
    let window = most as f64 * low;
    let holds = format!("a receive window grows to {} by itself", format::bytes(window));
    if window >= by.window() {
        return Finding::ok(KEY, read, holds);
    }
    let bps = by.through(window);
    let better = match by.through(most as f64 * high) {
        high if high > bps => format!(", with large packets up to {}", format::rate(high.min(by.rate_bps))),
        _ => String::new(),
    };
    Finding::costs(KEY, read, format!("{holds}: without --buffer one stream does {}{better}", by.says(bps)))
        .leaves(bps)
        .set(KEY, format!("{least} {first} {}", by.target(MOST_GROWN)))
}

/// Part of a receive buffer that the kernel offers as window, at least and at most: by tcp_adv_win_scale, and from
/// 6.6 on half to begin with, then what packets really take (scaling_ratio, net/ipv4/tcp_input.c). In the testbed
/// (Linux 6.12), where packets come many at a time, 0.91.
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

fn receive_autotuning(host: &Host, by: &Yardstick) -> Finding {
    const KEY: &str = "net.ipv4.tcp_moderate_rcvbuf";
    let Some(on) = host.number(KEY) else { return Finding::unseen_sysctl(KEY) };
    if on != 0 {
        return Finding::ok(KEY, on, "receive buffers grow by themselves");
    }
    let window = host.three("net.ipv4.tcp_rmem").map(|[_, first, _]| first as f64 * window_share(host).0);
    let bps = window.map(|window| by.through(window)).filter(|bps| *bps < by.rate_bps);
    let says = bps.map_or_else(String::new, |bps| format!(": without --buffer one stream does {}", by.says(bps)));
    let finding = Finding::costs(KEY, on, format!("receive buffers stay as they begin{says}")).set(KEY, 1);
    bps.into_iter().fold(finding, Finding::leaves)
}

/// Pages that all of TCP may hold. From the second value on the kernel stops growing windows, and both data and
/// bookkeeping count.
fn memory(host: &Host, by: &Yardstick) -> Finding {
    const KEY: &str = "net.ipv4.tcp_mem";
    let (Some([low, pressure, high]), Some(page)) = (host.three(KEY), host.page) else {
        return Finding::unseen_sysctl(KEY);
    };
    let page = page as f64;
    let read = format!("{low} {pressure} {high}");
    let held = pressure as f64 * page;
    let bps = by.through(held / 2.0);
    let says = format!("all streams together hold {}", format::bytes(held));
    if bps >= by.rate_bps {
        return Finding::ok(KEY, read, says);
    }
    let finding = Finding::costs(KEY, read, format!("{says}, half of it data: {}", by.says(bps))).leaves(bps);
    let needed = 4.0 * by.bdp();
    if host.memory.is_some_and(|memory| needed > memory as f64 / 2.0) {
        let mut finding = finding;
        finding.words += &format!("; this path takes {}, more than this machine can give", format::bytes(needed));
        return finding;
    }
    let pages = (needed / page).ceil() as u64;
    finding.set(KEY, format!("{} {pages} {}", pages / 4 * 3, pages / 2 * 3))
}

/// Without it a window is 16 bits wide (RFC 7323, 2).
fn window_scaling(host: &Host, by: &Yardstick) -> Finding {
    const KEY: &str = "net.ipv4.tcp_window_scaling";
    let Some(on) = host.number(KEY) else { return Finding::unseen_sysctl(KEY) };
    let bps = by.through(65_535.0);
    if on != 0 || bps >= by.rate_bps {
        return Finding::ok(KEY, on, "windows may be larger than 64 KB");
    }
    Finding::costs(KEY, on, format!("no window is larger than 64 KB: one stream does {}", by.says(bps)))
        .leaves(bps)
        .set(KEY, 1)
}

/// They tell old segments from new ones when sequence numbers, 32 bits, come round (RFC 7323, 5).
fn timestamps(host: &Host, by: &Yardstick) -> Finding {
    const KEY: &str = "net.ipv4.tcp_timestamps";
    let Some(on) = host.number(KEY) else { return Finding::unseen_sysctl(KEY) };
    if on != 0 {
        return Finding::ok(KEY, on, "every segment's round trip is measured");
    }
    let round = format::seconds(8.0 * 2f64.powi(32) / by.rate_bps.max(1.0));
    let words = format!(
        "sequence numbers come round every {round} at {}, and nothing tells old segments from new ones",
        format::rate(by.rate_bps)
    );
    Finding::costs(KEY, on, words).set(KEY, 1)
}

/// Without it one lost segment is found out about in a round trip (RFC 6582), with it all of a window (RFC 6675).
fn sack(host: &Host, by: &Yardstick) -> Finding {
    const KEY: &str = "net.ipv4.tcp_sack";
    let Some(on) = host.number(KEY) else { return Finding::unseen_sysctl(KEY) };
    if on != 0 {
        return Finding::ok(KEY, on, "all that was lost of a window is sent again at once");
    }
    let words = format!("each lost segment takes a round trip, {} ms, of its own", format::ms(by.rtt_s * 1e3));
    Finding::costs(KEY, on, words).set(KEY, 1)
}

/// After a pause longer than the retransmission timeout the window starts anew (RFC 2861). To a BDP it then takes
/// as many round trips as doublings (RFC 5681, 3.1).
fn idle(host: &Host, by: &Yardstick) -> Finding {
    const KEY: &str = "net.ipv4.tcp_slow_start_after_idle";
    let Some(on) = host.number(KEY) else { return Finding::unseen_sysctl(KEY) };
    let doublings = (by.window() / (INITIAL_WINDOW * MSS)).log2().ceil().max(0.0);
    if on == 0 || doublings == 0.0 {
        return Finding::ok(KEY, on, "a pause costs no new start");
    }
    let words = format!(
        "after each pause, between files say, ramping up again takes {}",
        format::seconds(doublings * by.rtt_s)
    );
    Finding::costs(KEY, on, words).set(KEY, 0)
}

/// Of what is saved, ssthresh alone costs; from 5.6 on it has a setting of its own, and is not saved by default.
fn metrics(host: &Host) -> Finding {
    const KEY: &str = "net.ipv4.tcp_no_metrics_save";
    let Some(on) = host.number(KEY) else { return Finding::unseen_sysctl(KEY) };
    if on != 0 || host.number("net.ipv4.tcp_no_ssthresh_metrics_save").is_some_and(|on| on != 0) {
        return Finding::ok(KEY, on, "a connection's loss says nothing to the next one");
    }
    let words =
        "a connection that met loss leaves its ssthresh to the next ones to that host: they leave slow start early";
    Finding::costs(KEY, on, words).set(KEY, 1)
}

/// Packetization Layer Path MTU Discovery (RFC 4821).
fn mtu_probing(host: &Host) -> Finding {
    const KEY: &str = "net.ipv4.tcp_mtu_probing";
    let Some(on) = host.number(KEY) else { return Finding::unseen_sysctl(KEY) };
    let jumbo = host.interfaces.iter().find(|i| i.name != "lo" && i.mtu.is_some_and(|mtu| mtu > 1500));
    match jumbo {
        Some(interface) if on == 0 => {
            let words = format!(
                "{} sends {} bytes at once: a path that carries less, and says so in ICMP that is filtered, stops a stream",
                interface.name,
                interface.mtu.unwrap_or_default()
            );
            Finding::costs(KEY, on, words).set(KEY, 1)
        }
        Some(_) => Finding::ok(KEY, on, "a path of smaller packets is found out"),
        None => Finding::ok(KEY, on, "no interface sends more than 1500 bytes at once"),
    }
}

fn default_queue(host: &Host) -> Finding {
    const KEY: &str = "net.core.default_qdisc";
    let Some(kind) = host.sysctl(KEY) else { return Finding::unseen_sysctl(KEY) };
    if kind == "fq" {
        return Finding::ok(KEY, kind, "new interfaces pace each stream");
    }
    Finding::costs(KEY, kind, "the queue that interfaces get at boot; it does not pace streams as fq does")
        .set(KEY, "fq")
}

/// What came when: BBR 4.9, pacing within TCP 4.13, earliest departure time and pacing limits of 64 bits 4.20.
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
        lacks.push("paces only where the interface's queue is fq".to_owned());
    }
    // SO_MAX_PACING_RATE was 32 bits of bytes per second.
    let pacing = 8.0 * f64::from(u32::MAX);
    if version < (4, 20) {
        lacks.push("paces by rate, not by departure time: unevenly".to_owned());
        if by.rate_bps > pacing {
            lacks.push(format!("takes no --pacing over {} a stream", format::rate(pacing)));
        }
    }
    if lacks.is_empty() {
        return Finding::ok(SUBJECT, release, "new enough to pace by departure time");
    }
    let words = format!("older than 4.20: it {}; install a newer kernel", lacks.join(", "));
    Finding::costs(SUBJECT, release, words)
}

/// What it costs not to have a congestion control is what the shipped profile expects of the best there is, and
/// of the best that this kernel has.
fn congestion_controls(host: &Host, by: &Yardstick) -> Finding {
    const SUBJECT: &str = "congestion controls";
    const KEY: &str = "net.ipv4.tcp_available_congestion_control";
    let Some(has) = host.list(KEY) else { return Finding::unseen_sysctl(KEY) };
    let read = has.join(" ");
    let Some((_, best)) = by.ranking.first() else {
        let why = "the shipped profile says nothing of this path, so what another would do is not known";
        return Finding::new(State::Unknown, SUBJECT, read, why);
    };
    let here = by.ranking.iter().find(|(cc, _)| has.contains(&cc.as_str()));
    let rate = here.map_or(0.0, |(_, bps)| *bps);
    let better = better(host, by);
    if better.is_empty() {
        let name = here.map_or("", |(cc, _)| cc.as_str());
        return Finding::ok(SUBJECT, read, format!("{name} does as well here as any that was measured"));
    }
    let names = better.join(", ");
    let expected = match here {
        Some((cc, bps)) => format!("{cc} is the best of these, {} expected", format::rate(*bps)),
        None => "none of these was measured".into(),
    };
    let words = format!("{expected}, {} of what it lacks: {names}", format::rate(*best));
    let mut finding = Finding::costs(SUBJECT, read, words);
    if here.is_some() {
        finding = finding.leaves(rate);
    }
    let release = host.sysctl("kernel.osrelease").unwrap_or("$(uname -r)");
    let there = loadable(host, by);
    if there.is_empty() {
        finding.words += &match &host.modules {
            Some(_) => format!(
                "; no modules of them in /lib/modules/{release}; Ubuntu has them in linux-modules-extra-{release}"
            ),
            None => {
                format!("; there is no /lib/modules/{release} to load them from: a container, or a kernel built whole")
            }
        };
        return finding;
    }
    for cc in there {
        finding = finding.fix(format!("modprobe tcp_{cc}")).keep(MODULES_FILE, format!("tcp_{cc}"));
    }
    finding
}

/// Up to four congestion controls that this kernel has not, and that are expected to do better than those it has:
/// none where one of those is within 1% of the best, as `fullpipe select` has it.
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

/// Those of them that are modules.
fn loadable<'a>(host: &Host, by: &'a Yardstick) -> Vec<&'a str> {
    let Some(modules) = &host.modules else { return Vec::new() };
    better(host, by).into_iter().filter(|cc| modules.contains(*cc)).collect()
}

/// Without CAP_NET_ADMIN a program may use only these (`tcp(7)`).
fn allowed(host: &Host, by: &Yardstick) -> Finding {
    const KEY: &str = "net.ipv4.tcp_allowed_congestion_control";
    let Some(may) = host.list(KEY) else { return Finding::unseen_sysctl(KEY) };
    let has = host.list("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
    // What is loaded later is root's alone, too.
    let kept: Vec<&str> = has.into_iter().chain(loadable(host, by)).filter(|cc| !may.contains(cc)).collect();
    let read = may.join(" ");
    if kept.is_empty() {
        return Finding::ok(KEY, read, "everyone may use all that the kernel has");
    }
    let all: Vec<&str> = may.iter().chain(&kept).copied().collect();
    Finding::costs(KEY, read, format!("{} for root alone", kept.join(", "))).set(KEY, all.join(" "))
}

/// No window of TCP is large enough.
fn one_stream(by: &Yardstick) -> Finding {
    let bps = by.through(MAX_WINDOW);
    let streams = (by.rate_bps / bps).ceil();
    let words = format!("no window of TCP is larger (RFC 7323): {}; use --streams {streams} or more", by.says(bps));
    let read = format!("{} of window", format::bytes(MAX_WINDOW));
    Finding::costs("one stream", read, words).leaves(bps)
}
