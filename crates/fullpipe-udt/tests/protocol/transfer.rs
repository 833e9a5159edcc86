//! Transfers over simulated paths end equal, whatever the path does.

use fullpipe_udt::{Config, End, RateControl};

use crate::sim::gaps::Gaps;
use crate::sim::{Link, MS, Pair, SECOND};

fn links(rate: f64, rtt_ns: u64, queue: f64) -> (Link, Link) {
    (Link::new(Some(rate), rtt_ns / 2, queue, 1), Link::new(Some(rate), rtt_ns / 2, queue, 2))
}

fn pair(control: RateControl, rate: f64, rtt_ns: u64, queue: f64, seed: u64) -> Pair {
    let (ab, ba) = links(rate, rtt_ns, queue);
    let config = Config { control, ..Config::default() };
    Pair::connect(config.clone(), config, ab, ba, seed)
}

#[test]
fn a_clean_path() {
    let mut pair = pair(RateControl::Native, 1.25e8, 10 * MS, 1e6, 1);
    pair.transfer(20_000_000, 60 * SECOND);
    assert!(pair.a.connection.is_over() && pair.b.connection.is_over());
}

/// The other end has been silent before there was anything to acknowledge. That is no reason to take data for lost.
#[test]
fn data_after_a_pause_is_sent_once() {
    for pause_ms in (0..1_000).step_by(20) {
        let mut pair = pair(RateControl::Native, 1.25e8, 46 * MS, 6e6, 1);
        pair.now_ns += pause_ms * MS;
        pair.transfer(300_000, 60 * SECOND);
        let counters = pair.a.connection.snapshot(pair.now_ns).counters;
        assert_eq!((counters.pkt_retrans, counters.pkt_snd_loss, pair.ab.dropped), (0, 0, 0), "{pause_ms} ms");
    }
}

/// The handshake's requests have been repeated by then, and the listener has measured nothing. UDT's slow start would end with the
/// first timeout.
#[test]
fn nothing_is_taken_for_lost_over_a_long_path() {
    for rtt_ms in [366, 700] {
        let mut pair = pair(RateControl::Native, 1.25e8, rtt_ms * MS, 1e8, 1);
        (pair.a.to_write, pair.b.to_write) = (100_000, 100_000);
        pair.run_to(pair.now_ns + 4 * SECOND);
        for (host, other) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
            let counters = host.connection.snapshot(pair.now_ns).counters;
            assert_eq!((counters.pkt_retrans, other.read), (0, 100_000), "{rtt_ms} ms");
        }
    }
}

#[test]
fn lengths_that_fill_no_packet() {
    for bytes in [0, 1, 1455, 1456, 1457, 100_001] {
        pair(RateControl::Native, 1.25e8, MS, 1e6, bytes).transfer(bytes, 60 * SECOND);
    }
}

#[test]
fn losses_reordering_and_duplicates_in_both_directions() {
    for seed in 0..6 {
        for control in [RateControl::Native, RateControl::Fixed(1e7)] {
            let mut pair = pair(control, 1.25e7, 20 * MS, 3e5, seed);
            for link in [&mut pair.ab, &mut pair.ba] {
                (link.loss, link.duplicate, link.reorder, link.reorder_ns) = (0.02, 0.02, 0.02, 3 * MS);
            }
            pair.b.to_write = 500_000;
            pair.transfer(3_000_000, 200 * SECOND);
        }
    }
}

#[test]
fn half_of_all_datagrams_lost() {
    let mut pair = pair(RateControl::Fixed(1e6), 1.25e7, 20 * MS, 3e5, 3);
    (pair.ab.loss, pair.ba.loss) = (0.5, 0.5);
    pair.transfer(300_000, 600 * SECOND);
}

/// One NAK holds 180 of them.
#[test]
fn all_losses_are_reported_again_once_they_are_due() {
    let mut gaps = Gaps::new(1000);
    // What has never been reported, and then all of them again.
    gaps.reported(1000, 0);
    gaps.reported(0, SECOND);
    assert_eq!(gaps.reported(0, 10 * SECOND), 1000);
}

#[test]
fn sequence_numbers_wrap() {
    // Seeds are tried until the first number is within the transfer's length of the wrap.
    let (ab, ba) = links(1.25e8, 2 * MS, 1e6);
    let config = Config::default();
    let mut pair = Pair::connect_near_wrap(config, ab, ba, 3_000);
    (pair.ab.loss, pair.ab.reorder, pair.ab.reorder_ns) = (0.01, 0.01, MS);
    pair.transfer(10_000_000, 60 * SECOND);
}

#[test]
fn steps_of_either_clock() {
    for step_s in [3600i64, -3600, 20, -1] {
        for at_a in [true, false] {
            let mut pair = pair(RateControl::Native, 1.25e7, 20 * MS, 3e5, 9);
            pair.ab.loss = 0.01;
            pair.a.to_write = 4_000_000;
            pair.a.finishes = true;
            for _ in 0..3 {
                pair.run_to(pair.now_ns + 100 * MS);
                let host = if at_a { &mut pair.a } else { &mut pair.b };
                host.clock_ahead_ns += step_s * SECOND as i64;
            }
            let from = pair.now_ns;
            pair.transfer(4_000_000, 30 * SECOND);
            assert!(pair.now_ns - from < 10 * SECOND, "{step_s} s: {} ms", (pair.now_ns - from) / MS);
        }
    }
}

#[test]
fn a_reader_that_stops_for_a_while() {
    let mut pair = pair(RateControl::Native, 1.25e8, 10 * MS, 1e6, 5);
    pair.b.reads = false;
    pair.a.to_write = 40_000_000;
    pair.run_to(pair.now_ns + 3 * SECOND);
    // The buffer holds 8,192 packets; nothing beyond it was taken.
    assert!(pair.b.connection.snapshot(0).received_bytes <= 8_192 * 1_456);
    pair.b.reads = true;
    let from = pair.now_ns;
    pair.transfer(40_000_000, 60 * SECOND);
    assert!(pair.now_ns - from < 6 * SECOND, "{} ms", (pair.now_ns - from) / MS);
}

/// A window of 1 MB would hold the rate to a tenth. It grows with what is read, and UDT's slow start does not end at it. The queue
/// takes all that slow start sends, since UDT would need seconds to recover from its losses.
#[test]
fn a_window_that_may_grow_is_no_limit_on_a_long_path() {
    let (rate, rtt_ns) = (1.25e8, 80 * MS);
    for control in [RateControl::Native, RateControl::Fixed(0.98 * rate)] {
        let (ab, ba) = links(rate, rtt_ns, 1e8);
        let most = 50_000_000;
        let config = Config {
            control,
            send_buffer_bytes: most,
            receive_buffer_bytes: most,
            first_window_bytes: 1_000_000,
            ..Config::default()
        };
        let mut pair = Pair::connect(config.clone(), config, ab, ba, 5);
        // Both ends were told of the first window, and no more is sent: nothing is refused.
        let told = [&pair.a, &pair.b].map(|host| host.connection.snapshot(0).instant.pkt_flow_window);
        assert_eq!(told, [1_000_000u64.div_ceil(1456); 2]);
        (pair.a.checks, pair.b.checks) = (false, false);
        pair.a.to_write = u64::MAX;
        pair.run_to(pair.now_ns + 10 * rtt_ns);
        assert_eq!(pair.a.connection.snapshot(0).counters.pkt_snd_loss, 0);
        let before = pair.b.read;
        let from = pair.now_ns;
        pair.run_to(from + 10 * rtt_ns);
        let goodput = (pair.b.read - before) as f64 / ((pair.now_ns - from) as f64 / 1e9);
        assert!(goodput > 0.85 * rate, "{control:?}: {:.3}", goodput / rate);
    }
}

/// The buffer may be large; a reader that takes little gets little.
#[test]
fn a_slow_reader_holds_four_times_what_it_reads_in_a_round_trip() {
    let (ab, ba) = links(1.25e8, 20 * MS, 1e7);
    let config = Config {
        control: RateControl::Fixed(1e8),
        send_buffer_bytes: 100_000_000,
        receive_buffer_bytes: 100_000_000,
        first_window_bytes: 500_000,
        ..Config::default()
    };
    let mut pair = Pair::connect(config.clone(), config, ab, ba, 5);
    (pair.a.checks, pair.b.checks) = (false, false);
    (pair.a.to_write, pair.b.reads) = (u64::MAX, false);
    for _ in 0..500 {
        pair.run_to(pair.now_ns + 2 * MS);
        let n = pair.b.connection.readable().len().min(30_000);
        pair.b.connection.consume(n);
        pair.b.read += n as u64;
    }
    // It reads 15 MB/s: 300 KB in a round trip.
    let held = pair.b.connection.snapshot(0).received_bytes - pair.b.read;
    assert!(pair.b.read > 10_000_000 && (500_000..1_500_000).contains(&held), "{} {held}", pair.b.read);
}

#[test]
fn packets_of_different_sizes_agree_on_the_smaller_one() {
    let (ab, ba) = links(1.25e8, 2 * MS, 1e6);
    let mut pair =
        Pair::connect(Config { mss: 9000, ..Config::default() }, Config { mss: 1400, ..Config::default() }, ab, ba, 7);
    assert_eq!((pair.a.connection.mss(), pair.b.connection.mss()), (1400, 1400));
    pair.transfer(1_000_000, 20 * SECOND);
}

#[test]
fn same_seed_same_behaviour() {
    let run = || {
        let mut pair = pair(RateControl::Native, 1.25e7, 20 * MS, 1e5, 4);
        pair.ab.loss = 0.01;
        pair.transfer(3_000_000, 100 * SECOND);
        (pair.now_ns, pair.a.connection.snapshot(0).counters, pair.b.connection.snapshot(0).counters)
    };
    assert_eq!(run(), run());
}

#[test]
fn an_abort_ends_the_other_side_as_incomplete() {
    let mut pair = pair(RateControl::Native, 1.25e7, 20 * MS, 1e5, 4);
    pair.a.to_write = 10_000_000;
    pair.ab.loss = 0.05;
    pair.run_to(pair.now_ns + 300 * MS);
    pair.a.connection.abort(pair.now_ns);
    pair.a.to_write = 0;
    pair.run_to_end(20 * SECOND);
    assert_eq!(pair.a.connection.ended(), Some(End::Aborted));
    assert!(matches!(pair.b.connection.ended(), Some(End::Incomplete | End::ByPeer)));
}
