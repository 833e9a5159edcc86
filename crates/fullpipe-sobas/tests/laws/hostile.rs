//! Whatever is seen, in whatever order: no panic, and only orders that can be carried out.

use fullpipe_sobas::{Action, Algorithm, Config, Observation, Sobas, Train};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::sim::config;

/// Over all magnitudes, the ends included.
fn any(random: &mut Pcg64Mcg) -> u64 {
    match random.random_range(0..8) {
        0 => 0,
        1 => u64::MAX,
        _ => random.random::<u64>() >> random.random_range(0..64),
    }
}

fn train(random: &mut Pcg64Mcg) -> Train {
    let mut arrivals_ns: Vec<u64> = (0..random.random_range(0..200)).map(|_| any(random)).collect();
    if random.random() {
        arrivals_ns.sort_unstable();
    }
    let over_ns = if random.random_bool(0.5) { 0 } else { any(random) };
    let question = random.random_range(0..4);
    Train { sent_span_ns: any(random), sent: any(random) as u16, over_ns, question, arrivals_ns }
}

fn one(seed: u64) {
    let random = &mut Pcg64Mcg::seed_from_u64(seed);
    let tame = random.random::<bool>();
    let any = |random: &mut Pcg64Mcg, most: u64| if tame { random.random_range(0..most) } else { any(random) };
    let config = Config {
        mss: any(random, 9_000) as u32,
        packet: any(random, 9_000) as u32,
        streams: any(random, 64) as u16,
        spare: random.random_range(0..64),
        largest: any(random, 1 << 32),
        window: random.random(),
        pacing: random.random(),
        restart: random.random(),
        change: random.random(),
        trains: random.random(),
        decrease: [0.0, 0.125, 0.5][random.random_range(0..3)],
        algorithm: if random.random() { Algorithm::Paper } else { Algorithm::Adaptive },
        assumed_bps: f64::from_bits(random.random()),
        limit_bps: f64::from_bits(random.random()),
    };
    let mut now = any(random, 1 << 40);
    let mut sobas = Sobas::new(config, any(random, 400_000_000), now);
    let (mut bytes, mut lost, mut streams) = (0, 0, config.streams.max(1));
    for _ in 0..400 {
        if tame {
            now += random.random_range(0..20_000_000);
            bytes += random.random_range(0..20_000_000);
            lost += u64::from(random.random_ratio(1, 50));
        } else {
            (now, bytes, lost) = (any(random, 0), any(random, 0), any(random, 0));
        }
        let observation = match random.random_range(0..8) {
            0 | 1 => Observation::Bytes(bytes),
            2 | 3 => Observation::Probe { rtt_ns: any(random, 400_000_000) },
            4 => Observation::ProbeLost,
            5 => Observation::Train(train(random)),
            6 => Observation::Retransmits(lost),
            _ => Observation::BufferLimited(random.random()),
        };
        sobas.observe(now, observation);
        for action in sobas.tick(now) {
            match action {
                Action::Window(bytes) => assert!(bytes >= 1 && bytes <= config.largest.max(1), "{seed}: {bytes}"),
                Action::Pacing(bps) => assert!(bps.is_none_or(|bps| bps > 0), "{seed}"),
                Action::SendTrain { packets, bytes, .. } => assert!(packets > 1 && bytes > 0),
                Action::Streams(sending) => {
                    assert!((1..=config.streams.saturating_add(config.spare).max(1)).contains(&sending), "{seed}");
                    assert_ne!(sending, std::mem::replace(&mut streams, sending), "{seed}: no change");
                }
                Action::SlowStart | Action::BearLosses | Action::SendProbe | Action::Note(_) => {}
            }
        }
        let _ = sobas.next_wake();
    }
}

#[test]
fn nothing_seen_makes_it_fall() {
    for seed in 0..500 {
        one(seed);
    }
}

#[test]
fn nothing_seen_at_all_is_no_reason_to_limit() {
    let many = Config { streams: 4, spare: 60, largest: 1 << 30, ..config(Algorithm::Adaptive) };
    let mut sobas = Sobas::new(many, 20_000_000, 0);
    let mut now = 0;
    while now < 5_000_000_000 {
        for action in sobas.tick(now) {
            assert!(!matches!(action, Action::Window(_)), "{action:?}");
            assert!(!matches!(action, Action::Pacing(Some(bps)) if bps < 1_000_000_000_000), "{action:?}");
        }
        assert!(sobas.next_wake() > now);
        now = sobas.next_wake();
    }
}
