//! The rates of both controls: UDT's law against its closed form, and a fixed rate that fills a path.

use std::cell::Cell;
use std::rc::Rc;

use fullpipe_udt::congestion::{CongestionControl, Native, Path};
use fullpipe_udt::{Config, RateControl, SYN_NS};

use crate::sim::{Link, MS, Pair, SECOND};

/// Three capacities: bytes per second, and the packet size.
const PATHS: [(f64, u16); 3] = [(1.25e7, 1500), (1.25e8, 1500), (1.25e9, 9000)];

/// Packets per second by which the rate grows in a second while `free_bps` are free: section 7.2, step 3 of "On ACK".
fn growth(free_bps: f64, mss: u16) -> f64 {
    let mut decade = 1.0;
    while decade < free_bps {
        decade *= 10.0;
    }
    let per_syn = (decade * 0.000_001_5 / f64::from(mss)).max(0.01);
    let syns_per_s = 1e9 / SYN_NS as f64;
    per_syn * syns_per_s * syns_per_s
}

/// Closed form: seconds in which the rate grows from `from` to `to`, parts of a capacity of `pps` packets per second. Within a
/// decade of the free capacity the rate grows linearly.
fn rise_s(from: f64, to: f64, pps: f64, mss: u16) -> f64 {
    let bits = f64::from(mss) * 8.0;
    let (mut rate, end, mut time) = (from * pps, to * pps, 0.0);
    while rate < end {
        let free = (pps - rate) * bits;
        let growth = growth(free, mss);
        let mut below = 1.0;
        while below * 10.0 < free {
            below *= 10.0;
        }
        let next = (pps - below / bits).min(end).max(rate + 1e-6);
        time += (next - rate) / growth;
        rate = next;
    }
    time
}

fn links(rate: f64, rtt_ns: u64, queue: f64) -> (Link, Link) {
    (Link::new(Some(rate), rtt_ns / 2, queue, 1), Link::new(None, rtt_ns / 2, 0.0, 2))
}

/// Two ends, the first of which sends without end.
fn streaming(config: Config, ab: Link, ba: Link) -> Pair {
    let mut pair = Pair::connect(config.clone(), config, ab, ba, 3);
    pair.a.to_write = u64::MAX;
    (pair.a.checks, pair.b.checks) = (false, false);
    pair
}

/// A given rate, bytes per second, with buffers of so many bytes.
fn fixed(rate: f64, mss: u16, buffer: usize) -> Config {
    let (send_buffer_bytes, receive_buffer_bytes) = (buffer, buffer);
    Config { mss, control: RateControl::Fixed(rate), send_buffer_bytes, receive_buffer_bytes, ..Config::default() }
}

fn path(pps: f64, mss: u16) -> Path {
    Path { rtt_ns: 20 * MS, mss, capacity_pps: pps, arrival_pps: 0.0, largest_sent: 1000, max_window: 1_000_000 }
}

#[test]
fn the_increase_of_the_control_follows_the_closed_form() {
    for (rate, mss) in PATHS {
        let pps = rate / f64::from(mss);
        let mut control = Native::new(0, 1 << 31, 1);
        // Slow start ends at a tenth of the capacity.
        control.on_timeout(0, &Path { arrival_pps: pps / 10.0, ..path(pps, mss) });
        let (mut now, mut wanted) = (0, 0.3);
        while 1e9 / control.sending_period_ns() < 0.98 * pps {
            now += SYN_NS;
            control.on_ack(now, 1 << 31, &path(pps, mss));
            if 1e9 / control.sending_period_ns() >= wanted * pps {
                let expected = rise_s(0.1, wanted, pps, mss);
                let seconds = now as f64 / 1e9;
                assert!((seconds / expected - 1.0).abs() < 0.02, "{rate} to {wanted}: {seconds} s, not {expected}");
                wanted += 0.2;
            }
        }
        assert!(wanted > 0.98);
    }
}

#[test]
fn the_decrease_of_the_control_follows_the_closed_form() {
    for (rate, mss) in PATHS {
        let pps = rate / f64::from(mss);
        let mut control = Native::new(0, 1 << 31, 1);
        control.on_timeout(0, &Path { arrival_pps: pps, ..path(pps, mss) });
        // Each NAK begins a congestion period: the rate falls by a ninth.
        for n in 1u32..=8 {
            let sent = (1 << 31) + u64::from(n) * 1000;
            control.on_loss(0, sent - 500, &Path { largest_sent: sent, ..path(pps, mss) });
            let expected = pps / 1.125f64.powi(n as i32);
            let got = 1e9 / control.sending_period_ns();
            assert!((got / expected - 1.0).abs() < 0.02, "{rate}, {n} NAKs: {got} not {expected}");
        }
        // NAKs of one period decrease it at most five times, however many there are.
        let before = control.sending_period_ns();
        let sent = (1 << 31) + 1_000_000;
        for _ in 0..1000 {
            control.on_loss(0, sent - 500, &Path { largest_sent: sent, ..path(pps, mss) });
        }
        let factor = control.sending_period_ns() / before;
        assert!((1.125..=1.125f64.powi(5) + 1e-9).contains(&factor), "{factor}");
    }
}

#[test]
fn the_rate_of_a_connection_follows_the_closed_form() {
    for (rate, mss) in PATHS {
        let pps = rate / f64::from(mss);
        let rtt_ns = 20 * MS;
        let (ab, ba) = links(rate, rtt_ns, 3e5);
        let buffer = (rate * 0.2) as usize + 1_000_000;
        let config = Config { mss, send_buffer_bytes: buffer, receive_buffer_bytes: buffer, ..Config::default() };
        let mut pair = streaming(config, ab, ba);
        // Losses, one at a time, bring the rate down.
        let lose = Rc::new(Cell::new(false));
        let lose_next = lose.clone();
        pair.ab.lose = Box::new(move |packet| packet[0] & 0x80 == 0 && lose_next.replace(false));
        let rate_of = |pair: &Pair| 1e6 / pair.a.connection.snapshot(0).instant.us_pkt_snd_period / pps;
        pair.run_to(pair.now_ns + 500 * MS);
        while rate_of(&pair) > 0.25 {
            lose.set(true);
            pair.run_to(pair.now_ns + 60 * MS);
        }
        let (from, start, sent) = (rate_of(&pair), pair.now_ns, pair.a.connection.snapshot(0).counters.pkt_sent);
        let estimate = pair.a.connection.snapshot(0).instant.mbps_bandwidth * 1e6 / 8.0 / f64::from(mss - 44) / pps;
        assert!((estimate - 1.0).abs() < 0.01, "capacity {estimate}");
        while rate_of(&pair) < 0.6 {
            assert!(pair.step());
        }
        let (seconds, expected) = ((pair.now_ns - start) as f64 / 1e9, rise_s(from, rate_of(&pair), pps, mss));
        assert!((seconds / expected - 1.0).abs() < 0.02, "{rate}: {seconds} s, not {expected}");
        // The packets that went out are the integral of the rate: a trapezoid within one decade of the free capacity.
        let packets = (pair.a.connection.snapshot(0).counters.pkt_sent - sent) as f64;
        let integral = (from + rate_of(&pair)) / 2.0 * pps * seconds;
        assert!((packets / integral - 1.0).abs() < 0.02, "{rate}: {packets} packets, not {integral}");
        // One more loss: the rate falls by a ninth.
        let (before, naks) = (rate_of(&pair), pair.a.connection.snapshot(0).counters.pkt_recv_nak);
        lose.set(true);
        while pair.a.connection.snapshot(0).counters.pkt_recv_nak == naks {
            assert!(pair.step());
        }
        let factor = before / rate_of(&pair);
        assert!((factor / 1.125 - 1.0).abs() < 0.02, "{rate}: {factor}");
    }
}

#[test]
fn a_fixed_rate_fills_a_clean_path_without_losses() {
    for rtt_ns in [400_000, 11_800_000, 91_600_000, 366_000_000] {
        let (rate, mss) = (1.25e9, 9000);
        let (ab, ba) = links(rate, rtt_ns, 1e6);
        let buffer = (rate * rtt_ns as f64 / 1e9 * 1.5) as usize + 100_000_000;
        let mut pair = streaming(fixed(0.99 * rate, mss, buffer), ab, ba);
        let start = pair.now_ns;
        pair.run_to(start + 3 * rtt_ns);
        let before = pair.b.read;
        let from = pair.now_ns;
        pair.run_to(from + SECOND / 10);
        assert_eq!(pair.ab.dropped, 0);
        let goodput = (pair.b.read - before) as f64 / ((pair.now_ns - from) as f64 / 1e9);
        let capacity = rate * f64::from(mss - 44) / f64::from(mss);
        assert!(goodput > 0.97 * capacity, "{rtt_ns}: {:.4}", goodput / capacity);
        // A burst lasts a hundredth of the RTT within its bounds, but for the second packet of a pair.
        let burst_ns = pair.a.largest_burst as f64 * f64::from(mss) / rate * 1e9;
        let most_ns = (rtt_ns / 100).clamp(200_000, 500_000) as f64;
        assert!(burst_ns <= most_ns + 2.0 * 7_200.0, "{} packets", pair.a.largest_burst);
    }
}

/// Over this path half a burst has 31 packets. The queue holds 14, so of each burst many are lost, until bursts are shorter.
#[test]
fn bursts_are_as_short_as_a_queue_needs_them() {
    let (rate, mss) = (1.25e9, 9000);
    let (ab, ba) = links(rate, 91_600_000, 14.0 * 9000.0);
    let buffer = 250_000_000;
    let mut pair = streaming(fixed(0.9 * rate, mss, buffer), ab, ba);
    pair.run_to(pair.now_ns + SECOND);
    assert!(pair.ab.dropped > 1_000, "{}", pair.ab.dropped);
    let (lost, sent) = (pair.ab.dropped, pair.ab.sent);
    pair.run_to(pair.now_ns + SECOND);
    let (lost, sent) = (pair.ab.dropped - lost, pair.ab.sent - sent);
    assert!(sent > 120_000 && lost < sent / 1_000, "{lost} of {sent}");
}

#[test]
fn a_fixed_rate_can_change_on_the_way() {
    let (ab, ba) = links(1.25e8, 10 * MS, 1e6);
    let config = Config { control: RateControl::Fixed(1e7), ..Config::default() };
    let mut pair = streaming(config, ab, ba);
    for rate in [1e7, 1e8, 2e6] {
        assert!(pair.a.connection.congestion_control().set_rate(rate));
        pair.run_to(pair.now_ns + SECOND / 2);
        let sent = |pair: &Pair| pair.a.connection.snapshot(0).counters.pkt_sent;
        let (before, from) = (sent(&pair), pair.now_ns);
        pair.run_to(from + SECOND);
        let got = (sent(&pair) - before) as f64 * 1500.0 / ((pair.now_ns - from) as f64 / 1e9);
        assert!((got / rate - 1.0).abs() < 0.02, "{got} not {rate}");
    }
}

#[test]
fn the_native_control_fills_a_clean_path() {
    let (ab, ba) = links(1.25e8, 10 * MS, 1.25e6);
    let config = Config::default();
    let mut pair = streaming(config, ab, ba);
    pair.run_to(pair.now_ns + 3 * SECOND);
    let (before, from) = (pair.b.read, pair.now_ns);
    pair.run_to(from + SECOND);
    let part = (pair.b.read - before) as f64 / 1.25e8 / ((pair.now_ns - from) as f64 / 1e9);
    assert!(part > 0.8, "{part}");
}
