//! What a hostile peer or a stranger may send: it neither breaks a connection nor costs much.

use fullpipe_udt::control::Ack;
use fullpipe_udt::packet::{ControlHeader, DataHeader, HEADER_BYTES};
use fullpipe_udt::{Config, Transmit};

use crate::sim::gaps::Gaps;
use crate::sim::{Link, MS, Pair, SECOND};

fn pair() -> Pair {
    let link = || Link::new(Some(1.25e7), 5 * MS, 1e6, 1);
    Pair::connect(Config::default(), Config::default(), link(), link(), 2)
}

fn control(pair: &Pair, kind: u16, info: u32, body: &[u8]) -> Vec<u8> {
    let mut head = [0; HEADER_BYTES];
    let socket_id = pair.a.connection.local_id();
    ControlHeader { kind, info, timestamp_us: 0, socket_id }.write(&mut head);
    [&head[..], body].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Gives a datagram to the sending end in the middle of a transfer; the transfer must end equal all the same.
fn survives(datagrams: impl Fn(&Pair, u32) -> Vec<Vec<u8>>) {
    let mut pair = pair();
    pair.a.to_write = 3_000_000;
    pair.run_to(pair.now_ns + 200 * MS);
    let sent = pair.a.connection.snapshot(0).counters.pkt_sent;
    assert!(sent > 100);
    // The next packet that would be sent.
    let next = {
        let mut next = 0;
        while pair.step() {
            if let Some(Transmit::Data(run)) = pair.a.connection.poll_transmit(pair.now_ns, 65_000) {
                next = u32::from_be_bytes(*run.bytes.first_chunk().unwrap());
                run.bytes.chunks(run.segment_bytes).for_each(|packet| pair.ab.send(pair.now_ns, packet));
                break;
            }
        }
        next
    };
    for datagram in datagrams(&pair, next) {
        pair.a.connection.handle_datagrams(pair.now_ns, &datagram, datagram.len());
    }
    pair.transfer(3_000_000, 60 * SECOND);
}

#[test]
fn acks_of_packets_that_were_never_sent_count_for_nothing() {
    survives(|pair, next| {
        let ack = |data_seq| {
            let mut body = Vec::new();
            let rates = None;
            Ack { ack_seq: 1, data_seq, rtt_us: 1, rtt_variance_us: 1, available_packets: 2, rates }.append(&mut body);
            control(pair, 2, 1, &body)
        };
        let far = (next + 1_000_000) & 0x7fff_ffff;
        let mut all: Vec<_> = [far, next ^ 0x4000_0000, 0, 0x7fff_ffff].into_iter().map(ack).collect();
        all.extend([far, next ^ 0x4000_0000].map(|seq| control(pair, 2, 0, &words(&[seq]))));
        all
    });
}

#[test]
fn naks_of_packets_that_were_never_sent_count_for_nothing() {
    survives(|pair, next| {
        let nak = |list: &[u32]| control(pair, 3, 0, &words(list));
        vec![
            nak(&[0x8000_0000, 0x7fff_ffff]),
            nak(&[next | 0x8000_0000, (next + 1000) & 0x7fff_ffff]),
            nak(&[next | 0x8000_0000, next.wrapping_sub(1000) & 0x7fff_ffff]),
            nak(&[(next + 5000) & 0x7fff_ffff]),
            nak(&[0x8000_0001]),
            nak(&[]),
            control(pair, 3, 0, &[1, 2, 3]),
        ]
    });
}

#[test]
fn other_packets_with_odd_contents_count_for_nothing() {
    survives(|pair, next| {
        let data = |seq, len| {
            let mut head = [0; HEADER_BYTES];
            let socket_id = pair.a.connection.local_id();
            DataHeader { seq, message: 1, timestamp_us: 0, socket_id }.write(&mut head);
            [&head[..], &vec![7; len][..]].concat()
        };
        let mut all = vec![data(next ^ 0x4000_0000, 10), data(next, 9_000), vec![], vec![0x80], vec![0xff; 2000]];
        all.extend((0..0x20).map(|kind| control(pair, kind, u32::MAX, &[0xff; 48])).filter(|packet| packet[1] != 5));
        all
    });
}

#[test]
fn strangers_end_nothing() {
    let mut pair = pair();
    pair.a.to_write = 1_000_000;
    pair.run_to(pair.now_ns + 50 * MS);
    let before = pair.a.connection.snapshot(0);
    let mut shutdown = control(&pair, 5, 0, &[]);
    shutdown[15] ^= 1;
    pair.a.connection.handle_datagrams(pair.now_ns, &shutdown, shutdown.len());
    assert_eq!(pair.a.connection.ended(), None);
    assert_eq!(pair.a.connection.snapshot(0), before);
    pair.transfer(1_000_000, 30 * SECOND);
}

#[test]
fn an_end_that_does_not_know_the_other_one_takes_few_packets_of_it() {
    let mut pair = pair();
    pair.b.connection.limit_packets(Some(16));
    pair.a.to_write = 3_000_000;
    pair.run_to(pair.now_ns + SECOND);
    let seen = pair.b.connection.snapshot(0);
    assert_eq!(seen.received_bytes, 16 * u64::from(seen.payload_bytes));
    assert!(seen.counters.pkt_recv > 16);
    pair.b.connection.limit_packets(None);
    pair.transfer(3_000_000, 60 * SECOND);
}

/// One packet at the end of a large buffer would have memory taken for all that could come before it.
#[test]
fn a_packet_beyond_the_window_takes_no_room_however_large_the_buffer_may_become() {
    let link = || Link::new(Some(1.25e7), 5 * MS, 1e6, 1);
    let big = Config {
        send_buffer_bytes: 1 << 30,
        receive_buffer_bytes: 1 << 30,
        first_window_bytes: 100 * 1456,
        ..Config::default()
    };
    let mut pair = Pair::connect(big.clone(), big, link(), link(), 2);
    pair.a.to_write = 1456;
    let mut first = 0;
    pair.a.connection.write(pair.now_ns, &[0; 1456]);
    while let Some(transmit) = pair.a.connection.poll_transmit(pair.now_ns, 65_000) {
        if let Transmit::Data(run) = transmit {
            first = u32::from_be_bytes(*run.bytes.first_chunk().unwrap());
        }
    }
    let mut came = |offset: u32| {
        let mut head = [0; HEADER_BYTES];
        let (seq, socket_id) = (first.wrapping_add(offset) & 0x7fff_ffff, pair.b.connection.local_id());
        DataHeader { seq, message: 1, timestamp_us: 0, socket_id }.write(&mut head);
        let packet = [&head[..], &[7; 100][..]].concat();
        pair.b.connection.handle_datagrams(pair.now_ns, &packet, packet.len());
        pair.b.connection.snapshot(0).received_bytes
    };
    assert_eq!([100, 600_000, 99].map(&mut came), [0, 0, 100]);
}

#[test]
fn a_reset_is_sent_once_and_ends_at_once() {
    let mut pair = pair();
    let now_ns = pair.now_ns;
    pair.b.connection.reset(now_ns);
    assert!(!pair.b.connection.is_over(), "the other end is to be told");
    assert!(matches!(pair.b.connection.poll_transmit(now_ns, 0), Some(Transmit::Control(_))));
    assert!(pair.b.connection.is_over() && pair.b.connection.poll_transmit(now_ns, 0).is_none());
}

/// Every second packet of a wide window, then what is missing from the middle outwards: each a range of its own in the loss
/// list. `cargo bench -p fullpipe-udt` checks what that costs, as a part of `bench/run`.
#[test]
fn a_connection_with_100_000_gaps_is_as_good_as_new_once_they_are_filled() {
    let mut worst = Gaps::new(100_000);
    worst.handle_all();
    assert_eq!(worst.received_bytes(), 200_000);
}
