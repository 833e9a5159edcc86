//! The decisions of both laws on fixed sequences of observations, compared with a recorded hash.
//!
//! A change that is to leave decisions alone leaves the hashes alone. A change that is to alter decisions replaces them:
//! each failing test prints the new hash. The paths here use no function of the C library, whose last digits differ.

use std::collections::BTreeSet;

use fullpipe_sobas::{Action, Algorithm, Config, Observation, Sobas, State, Train};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// FNV-1a over the text of every decision and its instant.
struct Decisions {
    hash: u64,
    states: BTreeSet<String>,
}

impl Decisions {
    fn new() -> Decisions {
        Decisions { hash: 0xcbf2_9ce4_8422_2325, states: BTreeSet::new() }
    }

    fn add(&mut self, now: u64, wake: u64, actions: &[Action]) {
        for byte in format!("{now} {wake} {actions:?}").bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        for action in actions {
            if let Action::Note(event) = action {
                self.states.insert(format!("{:?}", event.state));
            }
        }
    }
}

/// One transfer over a bottleneck: rates in bit/s, times in seconds, queues in bits.
struct Link {
    capacity: f64,
    rtt: f64,
    depth: f64,
    backlog: f64,
    /// The rate of the others, whether they yield to a longer queue, and when that changes next.
    others: f64,
    yielding: bool,
    change: f64,
    /// The congestion window, in bits, and the window at which slow start ends.
    cwnd: f64,
    threshold: f64,
    window: f64,
    pacing: Option<f64>,
    received: f64,
    lost: u64,
    /// The chance that a probe is lost for no reason of ours.
    loss: f64,
    /// Segments lost by that chance, as far as they are no whole ones yet.
    chance: f64,
}

impl Link {
    /// What the others send, bit/s.
    fn others(&self) -> f64 {
        if self.yielding { self.others * self.rtt / (self.rtt + self.backlog / self.capacity) } else { self.others }
    }

    fn step(&mut self, dt: f64) {
        let delay = self.rtt + self.backlog / self.capacity;
        let own = (self.cwnd.min(self.window) / delay).min(self.pacing.unwrap_or(f64::INFINITY));
        let others = self.others();
        let served = if self.backlog > 0.0 || own + others > self.capacity {
            self.capacity * own / (own + others).max(1.0)
        } else {
            own
        };
        self.received += served * dt / 8.0;
        self.chance += self.loss * served * dt / 12_000.0;
        self.lost += self.chance as u64;
        self.chance = self.chance.fract();
        self.backlog = (self.backlog + (own + others - self.capacity) * dt).max(0.0);
        if self.backlog > self.depth {
            self.backlog = self.depth;
            self.lost += 1 + (own * dt / 12_000.0) as u64 / 10;
            self.threshold = (self.cwnd / 2.0).max(23_168.0);
            self.cwnd = self.threshold;
        }
        let grown = if self.cwnd < self.threshold { self.cwnd } else { 11_584.0 };
        self.cwnd += if own * delay >= 0.9 * self.cwnd { grown * dt / delay } else { 0.0 };
    }
}

fn train(link: &Link, now: u64, packets: u16, (over_ns, question): (u64, u32), random: &mut Pcg64Mcg) -> Train {
    let least = if over_ns > 0 { over_ns as f64 / f64::from(packets) } else { 100.0 };
    let gap = (12_000.0 * 1e9 / link.capacity).max(least);
    let beside = 1.0 + link.others() / link.capacity;
    let count = if random.random_ratio(1, 8) { packets / 2 } else { packets };
    let arrivals_ns = (0..count).map(|i| now + (f64::from(i) * gap * beside) as u64).collect();
    Train { sent_span_ns: (least * f64::from(packets - 1)) as u64, sent: packets, over_ns, question, arrivals_ns }
}

/// A transfer over a path that changes at random; its orders take effect at once.
fn closed_loop(seed: u64, decisions: &mut Decisions) {
    let random = &mut Pcg64Mcg::seed_from_u64(seed);
    let pick = |random: &mut Pcg64Mcg, from: &[f64]| from[random.random_range(0..from.len())];
    let config = Config {
        mss: 1448,
        packet: 1500,
        streams: random.random_range(1..5),
        spare: 0,
        largest: 1 << 30,
        window: random.random_ratio(3, 4),
        pacing: random.random_ratio(3, 4),
        restart: random.random_ratio(3, 4),
        change: true,
        trains: random.random_ratio(3, 4),
        assumed_bps: 10e9,
        limit_bps: f64::INFINITY,
        decrease: pick(random, &[0.0, 0.125, 0.5]),
        algorithm: if random.random_ratio(1, 8) { Algorithm::Paper } else { Algorithm::Adaptive },
    };
    let capacity = pick(random, &[97e6, 620e6, 970e6, 10e9]);
    let rtt = pick(random, &[0.01, 0.02, 0.06, 0.15]);
    let mut link = Link {
        capacity,
        rtt,
        depth: (capacity * rtt * pick(random, &[0.05, 0.2, 0.5, 2.0])).max(500_000.0),
        backlog: 0.0,
        others: if random.random() { 0.0 } else { 0.3 * capacity },
        yielding: random.random(),
        change: 4.0,
        cwnd: 115_840.0 * f64::from(config.streams),
        threshold: f64::INFINITY,
        window: (1u64 << 33) as f64,
        pacing: None,
        received: 0.0,
        lost: 0,
        chance: 0.0,
        loss: 0.0,
    };
    let mut sobas = Sobas::new(config, (rtt * 1e9) as u64, 0);
    let mut now = 0;
    let mut later: Vec<(u64, Observation)> = Vec::new();
    while now < 24_000_000_000 {
        now += 1_000_000;
        link.step(1e-3);
        if now as f64 * 1e-9 >= link.change {
            link.change += 4.0;
            match random.random_range(0..6) {
                0 => link.others = 0.0,
                1 => link.others = pick(random, &[0.2, 0.4, 0.7]) * capacity,
                2 => link.rtt = rtt * pick(random, &[1.0, 1.5, 3.0]),
                3 => link.loss = pick(random, &[0.0, 0.0, 0.05]),
                4 => link.cwnd /= 8.0,
                _ => link.yielding = !link.yielding,
            }
        }
        later.sort_by_key(|(at, _)| *at);
        while later.first().is_some_and(|(at, _)| *at <= now) {
            sobas.observe(now, later.remove(0).1);
        }
        if now < sobas.next_wake() {
            continue;
        }
        sobas.observe(now, Observation::Bytes(link.received as u64));
        sobas.observe(now, Observation::Retransmits(link.lost));
        if random.random_ratio(1, 20) {
            sobas.observe(now, Observation::BufferLimited(link.window < link.cwnd));
        }
        let actions = sobas.tick(now);
        for action in &actions {
            let delay = link.rtt + link.backlog / link.capacity;
            let back = now + (delay * 1e9) as u64 + random.random_range(0..20_000);
            match action {
                Action::Window(bytes) => link.window = *bytes as f64 * 8.0,
                Action::Pacing(bps) => link.pacing = bps.map(|bps| bps as f64),
                Action::SlowStart | Action::BearLosses => link.threshold = f64::INFINITY,
                Action::SendProbe if random.random::<f64>() < link.loss => later.push((back, Observation::ProbeLost)),
                Action::SendProbe => later.push((back, Observation::Probe { rtt_ns: back - now })),
                Action::SendTrain { packets, over_ns, question, .. } => {
                    let train = train(&link, back, *packets, (*over_ns, *question), random);
                    later.push((train.arrivals_ns.last().copied().unwrap_or(back), Observation::Train(train)));
                }
                Action::Streams(_) | Action::Note(_) => {}
            }
        }
        decisions.add(now, sobas.next_wake(), &actions);
    }
}

#[test]
fn transfers_over_changing_paths_are_steered_as_recorded() {
    let mut decisions = Decisions::new();
    for seed in 0..300 {
        closed_loop(seed, &mut decisions);
    }
    let states = [
        State::SlowStart,
        State::Growing,
        State::Sized,
        State::Disabled,
        State::Start,
        State::Hold,
        State::Follow,
        State::Drain,
        State::Yield,
        State::Free,
    ];
    let missing: Vec<_> = states.iter().filter(|state| !decisions.states.contains(&format!("{state:?}"))).collect();
    assert!(missing.is_empty(), "no path leads to {missing:?}");
    assert_eq!(decisions.hash, 0x606d_3184_de92_45ed, "{:#x}", decisions.hash);
}

#[test]
fn arbitrary_observations_are_answered_as_recorded() {
    let mut decisions = Decisions::new();
    for seed in 0..300 {
        let random = &mut Pcg64Mcg::seed_from_u64(seed);
        let config = Config {
            mss: random.random_range(1..9_000),
            packet: random.random_range(1..9_000),
            streams: random.random_range(1..64),
            spare: 0,
            largest: random.random_range(1..1 << 34),
            window: random.random(),
            pacing: random.random(),
            restart: random.random(),
            change: true,
            trains: random.random(),
            assumed_bps: 10e9,
            limit_bps: f64::INFINITY,
            decrease: [0.0, 0.125, 0.5][random.random_range(0..3)],
            algorithm: if random.random_ratio(1, 4) { Algorithm::Paper } else { Algorithm::Adaptive },
        };
        let base = random.random_range(1_000..100_000_000);
        let (mut now, mut bytes, mut lost) = (0, 0, 0);
        let mut sobas = Sobas::new(config, base, now);
        for _ in 0..2_000 {
            now += random.random_range(0..12_000_000u64);
            bytes += random.random_range(0..2_000_000u64);
            lost += u64::from(random.random_ratio(1, 200));
            let observation = match random.random_range(0..10) {
                0..=3 => Observation::Bytes(bytes),
                4..=6 => Observation::Probe { rtt_ns: base + random.random_range(0..3_000_000) },
                7 => Observation::Retransmits(lost),
                8 => Observation::BufferLimited(random.random()),
                _ if random.random_ratio(1, 20) => Observation::ProbeLost,
                _ => {
                    let packets = random.random_range(2..70);
                    let gap = random.random_range(1_000..200_000);
                    let over_ns = if random.random() { 0 } else { u64::from(packets) * gap };
                    let arrivals_ns = (0..packets).map(|i| now + u64::from(i) * gap).collect();
                    Observation::Train(Train {
                        sent_span_ns: over_ns,
                        sent: packets,
                        over_ns,
                        question: 0,
                        arrivals_ns,
                    })
                }
            };
            sobas.observe(now, observation);
            let actions = sobas.tick(now);
            decisions.add(now, sobas.next_wake(), &actions);
        }
    }
    assert_eq!(decisions.hash, 0xb219_622b_d85b_f9d2, "{:#x}", decisions.hash);
}
