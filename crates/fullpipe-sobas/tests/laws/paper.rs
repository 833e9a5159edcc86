//! The paper's own algorithm: its states, and what it does on its own kind of path.

use fullpipe_sobas::{Action, Algorithm, Observation, Sobas, State, Train, Why};

use crate::sim::{Cc, MSS, Path, Sim, config, eight};

const MS: u64 = 1_000_000;

/// Feeds rates, one per measurement of 2 RTT = 40 ms, after five trains of 970 Mb/s.
struct Script {
    sobas: Sobas,
    now: u64,
    total: f64,
    window: u64,
    events: Vec<(State, Why)>,
}

impl Script {
    fn new() -> Script {
        let sobas = Sobas::new(config(Algorithm::Paper), 20 * MS, 0);
        let mut script = Script { sobas, now: 0, total: 0.0, window: 1 << 32, events: vec![] };
        let gap = MSS * 8.0 / 0.97;
        let arrivals_ns = (0..32).map(|i| (f64::from(i) * gap) as u64).collect();
        let train = Train { sent: 32, arrivals_ns, ..Train::default() };
        for _ in 0..5 {
            script.sobas.observe(0, Observation::Train(train.clone()));
        }
        script.rate(0.0, false);
        script
    }

    fn rate(&mut self, mbps: f64, limited: bool) {
        for _ in 0..40 {
            self.now += MS;
            self.total += mbps * 125.0;
            self.sobas.observe(self.now, Observation::Probe { rtt_ns: 20 * MS });
            self.sobas.observe(self.now, Observation::BufferLimited(limited));
            self.sobas.observe(self.now, Observation::Bytes(self.total as u64));
            for action in self.sobas.tick(self.now) {
                match action {
                    Action::Window(bytes) => self.window = bytes,
                    Action::Note(event) => self.events.push((event.state, event.why)),
                    other => assert!(!matches!(other, Action::Pacing(_)), "the paper does not pace"),
                }
            }
        }
    }
}

#[test]
fn figure_8_from_slow_start_to_the_final_state() {
    let mut s = Script::new();
    assert_eq!(s.events, [(State::SlowStart, Why::Trains)]);
    let start = 1.2 * 0.97e9 / 8.0 * 0.02;
    assert!((s.window as f64 / start - 1.0).abs() < 0.01, "{} {start}", s.window);
    for mbps in [100.0, 300.0, 700.0, 950.0, 952.0] {
        s.rate(mbps, false);
    }
    s.rate(500.0, false);
    assert_eq!(s.events[1..], [(State::Sized, Why::Flat)]);
    assert!((s.window as f64 / (0.952e9 / 8.0 * 0.02) - 1.0).abs() < 0.02, "{}", s.window);
}

#[test]
fn figure_8_over_avoidance_and_growth() {
    let mut s = Script::new();
    for mbps in [100.0, 300.0, 700.0, 400.0] {
        s.rate(mbps, false);
    }
    s.rate(440.0, false);
    assert_eq!(s.events[1..], [(State::Avoidance, Why::Drop)]);
    let before = s.window;
    s.rate(500.0, true);
    assert_eq!(s.events[2..], [(State::Growing, Why::BufferLimited)]);
    s.rate(600.0, true);
    // A segment on entering, then one per RTT.
    let segments = (s.window - before) as f64 / MSS;
    assert!((3.0..=5.0).contains(&segments), "{segments}");
    for mbps in [800.0, 801.0, 500.0] {
        s.rate(mbps, true);
    }
    s.rate(500.0, false);
    assert_eq!(s.events[3..], [(State::Sized, Why::ConstantThenDrop)]);
    assert!((s.window as f64 / (0.8005e9 / 8.0 * 0.02) - 1.0).abs() < 0.01, "{}", s.window);
}

#[test]
fn figure_8_on_a_congested_path() {
    let mut s = Script::new();
    s.rate(300.0, false);
    for _ in 0..12 {
        // Two of a hundred, at a probe per 10 ms; the script's probes come ten times as often.
        (0..20).for_each(|_| s.sobas.observe(s.now, Observation::ProbeLost));
        s.rate(301.0, false);
    }
    assert_eq!(s.events[1..], [(State::Disabled, Why::Congested)]);
    assert_eq!(s.window, 1 << 32);
}

#[test]
fn deep_queues_are_not_overflown() {
    for (name, mut path, available) in eight().into_iter().filter(|p| p.0 == "gigabit" || p.0 == "campus") {
        path.queue = path.bdp();
        let s = Sim::new(path, Cc::Reno, Some(config(Algorithm::Paper))).run(10.0);
        assert_eq!(s.state(), Some(State::Sized), "{name}");
        assert!(s.share(2.0, 10.0) >= 0.95 * available, "{name}: {}", s.share(2.0, 10.0));
        assert_eq!(s.dropped(0.0, 10.0), 0.0, "{name}");
        assert!(s.queue(2.0, 10.0) < 5e-3, "{name}: {}", s.queue(2.0, 10.0));
    }
}

#[test]
fn it_acts_once() {
    let s = Sim::new(Path::new(0.97, 20.0, 2.4e6), Cc::Reno, Some(config(Algorithm::Paper))).run(6.0);
    let sized = s.events.iter().position(|e| e.state == State::Sized).unwrap();
    assert_eq!(s.events.len(), sized + 1);
    assert!(s.events.iter().all(|e| e.pacing_bps.is_none()));
}
