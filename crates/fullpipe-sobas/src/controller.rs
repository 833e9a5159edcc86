//! The controller of one transfer: feeds the network model, runs the algorithm, and turns its limits into actions.

use crate::adaptive::Adaptive;
use crate::config::{Algorithm, Config};
use crate::event::{Event, State, Why};
use crate::network_model::{MAX_RTT_NS, MIN_WINDOW_SEGMENTS, NetworkModel, RECORD_RATE_NS};
use crate::paper::Paper;
use crate::probes::PROBE_INTERVAL_NS;
use crate::signal::{Action, Observation};
use crate::trains::{self, Dispersion};

/// Latest instant that is told apart from later ones, nanoseconds (146 years), so that sums of instants fit 64 bits.
const MAX_INSTANT_NS: u64 = u64::MAX / 4;
/// Least time between two ticks, nanoseconds.
const MIN_TICK_NS: u64 = 1_000_000;
/// Least time between two packet trains, nanoseconds. At 97 Mb/s a train of 32 packets takes 4 ms.
const MIN_TRAIN_INTERVAL_NS: u64 = 4_000_000;

/// The algorithm that was chosen, with its state.
#[derive(Debug, Clone)]
enum Running {
    Paper(Paper),
    Adaptive(Box<Adaptive>),
}

/// The controller of one transfer.
#[derive(Debug, Clone)]
pub struct Sobas {
    model: NetworkModel,
    algorithm: Running,
    now: u64,
    next_probe: u64,
    next_train: u64,
    /// Window last asked for, bytes.
    window: Option<u64>,
    /// Pacing rate last asked for, bit/s.
    pacing: Option<u64>,
}

impl Sobas {
    /// Begins to control a transfer, given the RTT measured on connecting. Neither window nor pacing rate is limited until
    /// the first [`Action`] says so.
    pub fn new(config: Config, rtt_ns: u64, now_ns: u64) -> Sobas {
        let now_ns = now_ns.min(MAX_INSTANT_NS);
        let config = Config {
            mss: config.mss.max(1),
            packet: config.packet.max(config.mss).max(1),
            streams: config.streams.max(1),
            largest: config.largest.max(1),
            limit_bps: if config.limit_bps >= 1.0 { config.limit_bps } else { f64::INFINITY },
            ..config
        };
        let algorithm = match config.algorithm {
            Algorithm::Paper => Running::Paper(Paper::new(now_ns, config.largest)),
            Algorithm::Adaptive => Running::Adaptive(Box::new(Adaptive::new(now_ns))),
        };
        let model = NetworkModel::new(config, rtt_ns);
        Sobas { model, algorithm, now: now_ns, next_probe: now_ns, next_train: now_ns, window: None, pacing: None }
    }

    /// Takes in what the shell saw at an instant.
    pub fn observe(&mut self, at_ns: u64, observation: Observation) {
        let at_ns = at_ns.min(MAX_INSTANT_NS);
        self.now = self.now.max(at_ns);
        let model = &mut self.model;
        match observation {
            Observation::Probe { rtt_ns } => model.probes.back(self.now, rtt_ns.min(MAX_RTT_NS)),
            Observation::ProbeLost => model.probes.lost(),
            Observation::Train(train) => {
                let capacity_pps = match &self.algorithm {
                    Running::Paper(_) => None,
                    Running::Adaptive(adaptive) => adaptive.trained_pps(model),
                };
                let own = model.beside_train(self.now, capacity_pps);
                model.trains.add(&train, own);
            }
            Observation::Bytes(total) => model.bytes.add(at_ns, total),
            Observation::Retransmits(total) => model.retransmits = model.retransmits.max(total),
            Observation::BufferLimited(limited) => model.buffer_limited = Some(limited),
        }
    }

    /// Takes in whether UDP passes, so that packet trains can be sent. It may stop while the transfer runs, and come back.
    pub fn set_trains(&mut self, pass: bool) {
        self.model.config.trains = pass;
    }

    /// Instant of the next [`tick`](Sobas::tick), nanoseconds. An earlier tick does no harm.
    pub fn next_wake(&self) -> u64 {
        let algorithm = match &self.algorithm {
            Running::Paper(_) => u64::MAX,
            Running::Adaptive(adaptive) => adaptive.next_wake(),
        };
        let train = if self.is_training() || self.paced_train().is_some() { self.next_train } else { u64::MAX };
        algorithm.min(self.next_probe).min(train).max(self.now.saturating_add(MIN_TICK_NS))
    }

    /// What the shell is to do now, in this order.
    pub fn tick(&mut self, now_ns: u64) -> Vec<Action> {
        self.now = self.now.max(now_ns.min(MAX_INSTANT_NS));
        let (now, mut actions) = (self.now, Vec::new());
        self.send(now, &mut actions);
        let why = match &mut self.algorithm {
            Running::Paper(paper) => paper.step(now, &mut self.model),
            Running::Adaptive(adaptive) => adaptive.step(now, &mut self.model),
        };
        let streams = self.model.config.streams;
        if let Running::Adaptive(adaptive) = &self.algorithm {
            adaptive.choose_streams(now, &mut self.model);
        }
        self.limit(&mut actions);
        if self.model.config.streams != streams {
            // The pacing rate is in force when more of them begin.
            actions.push(Action::Streams(self.model.config.streams));
        }
        // Slow start may only begin once the pacing rate is in force.
        if let Running::Adaptive(adaptive) = &mut self.algorithm
            && adaptive.take_slow_start()
        {
            actions.push(Action::SlowStart);
        }
        if let Running::Adaptive(adaptive) = &mut self.algorithm
            && adaptive.take_change()
        {
            actions.push(Action::BearLosses);
        }
        if let Some(why) = why {
            actions.push(Action::Note(self.event(now, why)));
        }
        actions
    }

    /// The present state.
    pub fn state(&self) -> State {
        match &self.algorithm {
            Running::Paper(paper) => paper.state,
            Running::Adaptive(adaptive) => adaptive.state(),
        }
    }

    /// Whether back-to-back trains are wanted, which measure the capacity.
    fn is_training(&self) -> bool {
        let wanted = match &self.algorithm {
            Running::Paper(_) => self.state() == State::Estimate,
            Running::Adaptive(adaptive) => adaptive.is_training(),
        };
        self.model.config.trains && wanted
    }

    /// Sends the probes and trains that are due.
    fn send(&mut self, now: u64, actions: &mut Vec<Action>) {
        if now >= self.next_probe {
            actions.push(Action::SendProbe);
            // A shell that slept must not catch up with a burst of probes.
            self.next_probe = now.saturating_add(PROBE_INTERVAL_NS);
        }
        // All trains leave within one RTT.
        let interval = self.model.probes.base_ns() / trains::TRAIN_COUNT as u64;
        let (own, bytes) = (self.model.own_pps(now), self.model.train_packet());
        if self.is_training() && now >= self.next_train {
            if let Some(packets) = self.model.trains.next() {
                actions.push(Action::SendTrain { packets, bytes, over_ns: 0, question: self.model.trains.question() });
            }
            self.next_train = now.saturating_add(interval.max(MIN_TRAIN_INTERVAL_NS));
        } else if let Some((pps, asks)) = self.paced_train()
            && now >= self.next_train
            && let Some((packets, over_ns)) =
                if asks { self.model.trains.next_asking(pps) } else { self.model.trains.next_paced(pps, own) }
        {
            actions.push(Action::SendTrain { packets, bytes, over_ns, question: self.model.trains.question() });
            let apart = match &self.algorithm {
                Running::Paper(_) => 0,
                Running::Adaptive(adaptive) => adaptive.trains_apart_ns(&self.model),
            };
            // Trains are at most half of what the path carries meanwhile.
            self.next_train = now.saturating_add(interval.max(2 * over_ns).max(apart));
        }
    }

    /// The rate of the next paced train, packets per second, while such trains are wanted; and whether it asks for room
    /// beside the transfer.
    fn paced_train(&self) -> Option<(f64, bool)> {
        let Running::Adaptive(adaptive) = &self.algorithm else { return None };
        if !self.model.config.trains || !self.model.trains.wants_paced() {
            return None;
        }
        match adaptive.asking_bps() {
            Some(bps) => Some((bps / self.model.packet_bits(), true)),
            None if adaptive.state() == State::Start && !self.model.trains.start_is_over() => {
                adaptive.trained_pps(&self.model).map(|pps| (pps, false))
            }
            None => None,
        }
    }

    /// Asks for the window and the pacing rate that the algorithm wants, where the shell can set them and they have changed.
    fn limit(&mut self, actions: &mut Vec<Action>) {
        let config = self.model.config;
        let (window, pacing) = match &self.algorithm {
            Running::Paper(paper) => (paper.window, None),
            Running::Adaptive(adaptive) => (adaptive.window(&self.model), adaptive.pacing(&self.model)),
        };
        // Conversion to a float may have rounded up.
        let window = (window as u64).min(config.largest);
        if config.window && self.window.unwrap_or(config.largest) != window {
            self.window = Some(window);
            actions.push(Action::Window(window));
        }
        let least = MIN_WINDOW_SEGMENTS * self.model.segments() * 8e9 / self.model.probes.base_ns() as f64;
        let may_pace = config.pacing && config.algorithm == Algorithm::Adaptive;
        let wanted = pacing.map_or(f64::INFINITY, |bps| bps.max(least).max(1.0)).min(config.limit_bps);
        let pacing = (may_pace && wanted.is_finite()).then_some(wanted as u64);
        if self.pacing != pacing {
            self.pacing = pacing;
            actions.push(Action::Pacing(pacing));
        }
    }

    fn event(&self, now: u64, why: Why) -> Event {
        let model = &self.model;
        let recent = now.saturating_sub(RECORD_RATE_NS);
        Event {
            at_ns: now,
            state: self.state(),
            why,
            rate_bps: model.recent_bps(now).unwrap_or(0.0) as u64,
            rtt_ns: model.probes.base_ns(),
            queue_ns: model.probes.standing_ns(recent).unwrap_or(0),
            capacity_bps: match &self.algorithm {
                Running::Paper(_) => match model.trains.dispersion() {
                    Dispersion::Known { mean, .. } => Some(model.payload_bps(mean) as u64),
                    Dispersion::Unknown => None,
                },
                Running::Adaptive(adaptive) => adaptive.capacity_bps().map(|bps| bps as u64),
            },
            window: self.window.unwrap_or(model.config.largest),
            pacing_bps: self.pacing,
            streams: model.config.streams,
        }
    }
}
