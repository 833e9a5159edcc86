//! Socket-buffer auto-sizing (SOBAS), as a state machine without I/O: no socket, no clock, no thread.
//!
//! After Prasad, Jain and Dovrolis, *Socket Buffer Auto-Sizing for High-Performance Data Transfers*
//! (J. Grid Computing 2003); "section" and "Figure" are its own. The window of a TCP transfer is limited to what fills the
//! path, so that the transfer does not overflow the bottleneck's queue. [`Mode::Paper`] is that
//! algorithm; [`Mode::Adaptive`] adds the sender's pacing rate, which a queue shallower than TCP's bursts
//! needs, and its slow start, once more, where losses have left TCP below that; and goes on watching for as long as
//! the transfer runs.
//!
//! A shell owns the sockets. It opens the streams with the largest buffers (the window scale is fixed at the
//! handshake), then turns what it sees into [`Observation`]s and what comes back into system calls:
//!
//! ```
//! # use fullpipe_sobas::{Action, Config, Mode, Observation, Sobas};
//! # let config = Config { mss: 1448, packet: 1500, streams: 4, largest: 1 << 30, window: true, pacing: true,
//! #                       restart: true, trains: true, decrease: 0.5, mode: Mode::Adaptive };
//! let mut sobas = Sobas::new(config, 20_000_000, 0);
//! sobas.observe(5_000_000, Observation::Bytes(14_480));
//! for action in sobas.tick(5_000_000) {
//!     match action {
//!         Action::Window(bytes) => { /* each stream's share: bytes / streams */ }
//!         Action::Pacing(bps) => { /* SO_MAX_PACING_RATE, bytes per second, each stream's share */ }
//!         Action::SlowStart => { /* the sender's TCP, from where it is */ }
//!         Action::SendProbe | Action::SendTrain { .. } => { /* UDP, to the other end */ }
//!         Action::Note(event) => { /* the record */ }
//!     }
//! }
//! assert!(sobas.next_wake() > 5_000_000);
//! ```
//!
//! Instants are nanoseconds of one monotonic clock of the caller's; what goes backwards is ignored.
//! Rates are bits of TCP payload per second, windows bytes of payload, both of all streams together.

mod adaptive;
mod event;
mod paper;
mod probes;
mod throughput;
mod trains;

pub use adaptive::{BURST, SMOOTH_BPS};
pub use event::{Action, Config, Event, Mode, Observation, State, Why};
pub use probes::{PROBE_BYTES, PROBE_EVERY_NS};
pub use trains::{Dispersion, MOST_PACKETS, Train};

use adaptive::Follow;
use paper::Paper;
use probes::Probes;
use throughput::{Bytes, Windows};
use trains::Trains;

/// Least window per stream, segments: TCP's initial window (RFC 6928).
const LEAST_SEGMENTS: f64 = 10.0;
/// RTTs beyond this are not the network's, nanoseconds.
pub const LONGEST_RTT_NS: u64 = 10_000_000_000;
/// Instants beyond this (146 years) stand still, nanoseconds: sums of them stay within 64 bits.
const LAST_NS: u64 = u64::MAX / 4;
/// Ticks are no closer than this, nanoseconds.
const LEAST_TICK_NS: u64 = 1_000_000;
/// All trains leave within one RTT, but not closer than this, nanoseconds: 32 packets take 4 ms at 97 Mb/s.
const TRAIN_APART_NS: u64 = 4_000_000;
/// Largest packet of a train, IP bytes: 32 of them fit a queue of 64 KB.
const TRAIN_BYTES: u32 = 1500;
/// Bytes of a frame beside its IP packet: Ethernet's header.
const FRAMING: f64 = 14.0;
/// Rate is told over at least this in the record, nanoseconds.
const NOTED_NS: u64 = 50_000_000;

/// What has been seen.
#[derive(Debug, Clone)]
pub(crate) struct Senses {
    pub config: Config,
    pub probes: Probes,
    pub bytes: Bytes,
    pub windows: Windows,
    pub trains: Trains,
    pub buffer_limited: Option<bool>,
    pub retransmits: u64,
}

impl Senses {
    /// IP bytes of a train's packets: a train of larger ones would fill a shallow queue.
    fn train_packet(&self) -> u32 {
        self.config.packet.min(TRAIN_BYTES)
    }

    /// TCP payload, in full segments, that takes the path as long as one packet of a train, bits.
    fn packet_bits(&self) -> f64 {
        let line = |packet: u32| f64::from(packet) + FRAMING;
        f64::from(self.config.mss) * 8.0 * line(self.train_packet()) / line(self.config.packet)
    }

    /// Payload rate of full segments where so many packets per second of a train pass, bit/s.
    fn payload_bps(&self, packets_per_second: f64) -> f64 {
        packets_per_second * self.packet_bits()
    }

    /// One segment per stream, bytes.
    fn segments(&self) -> f64 {
        f64::from(self.config.mss) * f64::from(self.config.streams)
    }

    /// A window within what is possible.
    fn fit(&self, window: f64) -> f64 {
        let largest = self.config.largest as f64;
        window.max((LEAST_SEGMENTS * self.segments()).min(largest)).min(largest)
    }

    /// What comes of the transfer, over the last round trip, in packets of a train per second.
    fn own_pps(&self, now: u64) -> f64 {
        let lately = now.saturating_sub(self.probes.base_ns().max(PROBE_EVERY_NS));
        self.bytes.between(lately, now).unwrap_or(0.0) / self.packet_bits()
    }

    /// Payload rate received over at least 50 ms and an RTT, bit/s.
    fn recent_bps(&self, now: u64) -> Option<f64> {
        self.bytes.between(now.saturating_sub(self.probes.base_ns().max(NOTED_NS)), now)
    }
}

#[derive(Debug, Clone)]
enum Law {
    Paper(Paper),
    Follow(Box<Follow>),
}

/// The controller of one transfer.
#[derive(Debug, Clone)]
pub struct Sobas {
    senses: Senses,
    law: Law,
    now: u64,
    next_probe: u64,
    next_train: u64,
    window: Option<u64>,
    pacing: Option<u64>,
}

impl Sobas {
    /// At the transfer's start, with the RTT measured on connecting. Neither window nor pacing is limited
    /// until the first [`Action`] says so.
    pub fn new(config: Config, rtt_ns: u64, now_ns: u64) -> Sobas {
        let now_ns = now_ns.min(LAST_NS);
        let config = Config {
            mss: config.mss.max(1),
            packet: config.packet.max(config.mss).max(1),
            streams: config.streams.max(1),
            largest: config.largest.max(1),
            ..config
        };
        let law = match config.mode {
            Mode::Paper => Law::Paper(Paper::new(now_ns, config.largest)),
            Mode::Adaptive => Law::Follow(Box::new(Follow::new(now_ns))),
        };
        let senses = Senses {
            config,
            probes: Probes::new(rtt_ns.min(LONGEST_RTT_NS)),
            bytes: Bytes::default(),
            windows: Windows::default(),
            trains: Trains::default(),
            buffer_limited: None,
            retransmits: 0,
        };
        Sobas { senses, law, now: now_ns, next_probe: now_ns, next_train: now_ns, window: None, pacing: None }
    }

    /// Takes in what was seen at an instant.
    pub fn observe(&mut self, at_ns: u64, observation: Observation) {
        let at_ns = at_ns.min(LAST_NS);
        self.now = self.now.max(at_ns);
        let s = &mut self.senses;
        match observation {
            Observation::Probe { rtt_ns } => s.probes.back(self.now, rtt_ns.min(LONGEST_RTT_NS)),
            Observation::ProbeLost => s.probes.lost(),
            Observation::Train(train) => {
                let own = trains::DOUBLING * s.own_pps(self.now);
                s.trains.add(&train, own);
            }
            Observation::Bytes(total) => s.bytes.add(at_ns, total),
            Observation::Retransmits(total) => s.retransmits = s.retransmits.max(total),
            Observation::BufferLimited(limited) => s.buffer_limited = Some(limited),
        }
    }

    /// When [`tick`](Sobas::tick) is wanted next, nanoseconds. Sooner does no harm.
    pub fn next_wake(&self) -> u64 {
        let law = match &self.law {
            Law::Paper(_) => u64::MAX,
            Law::Follow(follow) => follow.wake(),
        };
        let train = if self.training() || self.spread_pps().is_some() { self.next_train } else { u64::MAX };
        law.min(self.next_probe).min(train).max(self.now.saturating_add(LEAST_TICK_NS))
    }

    /// What to do now, in this order.
    pub fn tick(&mut self, now_ns: u64) -> Vec<Action> {
        self.now = self.now.max(now_ns.min(LAST_NS));
        let (now, mut actions) = (self.now, Vec::new());
        self.send(now, &mut actions);
        let why = match &mut self.law {
            Law::Paper(paper) => paper.step(now, &mut self.senses),
            Law::Follow(follow) => follow.step(now, &mut self.senses),
        };
        self.act(&mut actions);
        // Once the pacing rate is in force.
        if let Law::Follow(follow) = &mut self.law
            && std::mem::take(&mut follow.restart.wanted)
        {
            actions.push(Action::SlowStart);
        }
        if let Some(why) = why {
            actions.push(Action::Note(self.event(now, why)));
        }
        actions
    }

    /// The state that it is in.
    pub fn state(&self) -> State {
        match &self.law {
            Law::Paper(paper) => paper.state,
            Law::Follow(follow) => follow.state,
        }
    }

    fn training(&self) -> bool {
        self.senses.config.trains && self.state() == State::Estimate
    }

    fn send(&mut self, now: u64, actions: &mut Vec<Action>) {
        if now >= self.next_probe {
            actions.push(Action::SendProbe);
            // A shell that slept does not catch up with a burst.
            self.next_probe = now.saturating_add(PROBE_EVERY_NS);
        }
        let apart = self.senses.probes.base_ns() / trains::TRAINS as u64;
        let own = self.senses.own_pps(now);
        if self.training() && now >= self.next_train {
            if let Some(packets) = self.senses.trains.next() {
                actions.push(Action::SendTrain { packets, bytes: self.senses.train_packet(), over_ns: 0 });
            }
            self.next_train = now.saturating_add(apart.max(TRAIN_APART_NS));
        } else if let Some((pps, asks)) = self.spread_pps()
            && now >= self.next_train
            && let Some((packets, over_ns)) =
                if asks { self.senses.trains.next_asking(pps) } else { self.senses.trains.next_spread(pps, own) }
        {
            actions.push(Action::SendTrain { packets, bytes: self.senses.train_packet(), over_ns });
            // They are half of what the path carries meanwhile.
            self.next_train = now.saturating_add(apart.max(2 * over_ns));
        }
    }

    /// The rate for trains that look for others' traffic, packets per second, while such are wanted; and whether they ask
    /// for room beside the transfer.
    fn spread_pps(&self) -> Option<(f64, bool)> {
        let Law::Follow(follow) = &self.law else { return None };
        if !self.senses.config.trains || !self.senses.trains.spreading() {
            return None;
        }
        let packet = self.senses.packet_bits();
        match follow.restart.asks_bps() {
            Some(bps) => Some((bps / packet, true)),
            None if follow.state == State::Start && !self.senses.trains.start_is_over() => {
                follow.trained_pps(&self.senses).map(|pps| (pps, false))
            }
            None => None,
        }
    }

    /// Actuators, where they are on and have moved.
    fn act(&mut self, actions: &mut Vec<Action>) {
        let config = self.senses.config;
        let (window, pacing) = match &self.law {
            Law::Paper(paper) => (paper.window, None),
            Law::Follow(follow) => (follow.window(&self.senses), follow.pacing()),
        };
        // A float may be rounded beyond the largest.
        let window = (window as u64).min(config.largest);
        if config.window && self.window.unwrap_or(config.largest) != window {
            self.window = Some(window);
            actions.push(Action::Window(window));
        }
        // An initial window per RTT, as for the window: at less, ACKs stall.
        let least = LEAST_SEGMENTS * self.senses.segments() * 8e9 / self.senses.probes.base_ns() as f64;
        let paced = config.pacing && config.mode == Mode::Adaptive;
        let pacing = pacing.filter(|_| paced).map(|p| p.max(least).max(1.0) as u64);
        if self.pacing != pacing {
            self.pacing = pacing;
            actions.push(Action::Pacing(pacing));
        }
    }

    fn event(&self, now: u64, why: Why) -> Event {
        let s = &self.senses;
        let recent = now.saturating_sub(NOTED_NS);
        Event {
            at_ns: now,
            state: self.state(),
            why,
            rate_bps: s.recent_bps(now).unwrap_or(0.0) as u64,
            rtt_ns: s.probes.base_ns(),
            queue_ns: s.probes.standing_ns(recent).unwrap_or(0),
            capacity_bps: match &self.law {
                Law::Paper(_) => match s.trains.dispersion() {
                    Dispersion::Known { mean, .. } => Some(s.payload_bps(mean) as u64),
                    Dispersion::Unknown => None,
                },
                Law::Follow(follow) => follow.capacity().map(|c| c as u64),
            },
            window: self.window.unwrap_or(s.config.largest),
            pacing_bps: self.pacing,
        }
    }
}
