//! One bottleneck with a drop-tail queue, one TCP, others' traffic: a deterministic fluid in steps of 0.1 ms.
//!
//! Bytes are payload. The sender is before the queue, all of the path's delay behind it; the controller
//! sits at the receiver, and orders to the sender take half an RTT. TCP is paced once a pacing rate is set, and
//! then sends in bursts as Linux does; unpaced, each acknowledgment releases what it lets go at once.

mod others;
mod tcp;

use std::collections::VecDeque;

use fullpipe_sobas::{Action, Algorithm, Config, Event, Observation, Sobas, State, Train};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use others::Other;
use tcp::Tcp;

const STEP: f64 = 1e-4;
/// Sender's line rate, as a multiple of the capacity.
const LINE: f64 = 1e3;
/// Without UDP, between the sender's words, seconds: `answer.rs` tells at the probes' pace.
const TELL: f64 = 0.01;
pub const MSS: f64 = 1448.0;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Cc {
    Reno,
    Cubic,
    Scalable,
    Hybla,
}

/// Others' traffic.
#[derive(Clone, Copy, Debug)]
pub enum Cross {
    /// Unresponsive packets of 1,500 bytes at random instants, bit/s, while it lasts.
    Udp { bps: f64, from: f64, to: f64 },
    /// One TCP that its window of so many bytes limits.
    Tcp { window: f64 },
}

#[derive(Clone, Debug)]
pub struct Path {
    /// bit/s of payload.
    pub bps: f64,
    /// Seconds.
    pub rtt: f64,
    /// Bytes.
    pub queue: f64,
    pub cross: Vec<Cross>,
    /// Rate at which the receiver's host takes in single packets, bit/s.
    pub host_bps: f64,
    /// Others' congestion: a packet's chance of being dropped.
    pub loss: f64,
    /// TCP's bursts when paced, bytes.
    pub burst: f64,
    /// Most of what the probes' timestamps err by, seconds.
    pub jitter: f64,
    /// A probe's chance of being lost on the way back.
    pub loss_back: f64,
    /// Most by which the path's own delay varies from packet to packet, which stay in order; seconds.
    pub varies: f64,
    /// Rate at which the first windows of many streams meet the trains of the start, bit/s, and until when, seconds.
    pub first_windows: (f64, f64),
    /// Window that the receiver offers at first, bytes.
    pub offered: f64,
    /// Of all that is random.
    pub seed: u64,
}

impl Path {
    pub fn new(gbps: f64, rtt_ms: f64, queue: f64) -> Path {
        Path {
            bps: gbps * 1e9,
            rtt: rtt_ms * 1e-3,
            queue,
            cross: vec![],
            host_bps: f64::INFINITY,
            loss: 0.0,
            burst: f64::from(fullpipe_sobas::MAX_BURST_BYTES),
            jitter: 2e-5,
            loss_back: 0.0,
            varies: 0.0,
            first_windows: (0.0, 0.0),
            offered: 65_535.0,
            seed: 1,
        }
    }

    pub fn bdp(&self) -> f64 {
        self.bps * self.rtt / 8.0
    }

    pub fn cross(mut self, cross: Cross) -> Path {
        self.cross.push(cross);
        self
    }
}

/// The paper's eight paths (section V), and what of the capacity is available.
pub fn eight() -> Vec<(&'static str, Path, f64)> {
    let of = |name, mbps: f64, rtt: f64, cross: f64| {
        let path = Path::new(mbps * 1e-3, rtt, mbps * 1e6 * rtt * 1e-3 / 8.0);
        let path = if cross > 0.0 { path.cross(Cross::Udp { bps: cross * 1e6, from: 0.0, to: 1e9 }) } else { path };
        (name, path, 1.0 - cross / mbps)
    };
    let mut tcp = of("tcp", 970.0, 20.0, 0.0);
    tcp.1.cross.push(Cross::Tcp { window: 500e6 * 0.02 / 8.0 });
    tcp.2 = 470.0 / 970.0;
    vec![
        of("gigabit", 970.0, 20.0, 0.0),
        of("unresponsive", 970.0, 20.0, 400.0),
        tcp,
        of("campus", 620.0, 10.0, 20.0),
        of("LBNL", 620.0, 60.0, 190.0),
        of("NYU", 97.0, 40.0, 7.0),
        of("NYU later", 97.0, 40.0, 17.0),
        of("Lulea", 97.0, 150.0, 57.0),
    ]
}

pub fn config(algorithm: Algorithm) -> Config {
    Config {
        mss: MSS as u32,
        packet: 1500,
        streams: 1,
        spare: 0,
        largest: 1 << 32,
        window: true,
        pacing: true,
        restart: true,
        change: true,
        trains: true,
        assumed_bps: f64::INFINITY,
        limit_bps: f64::INFINITY,
        decrease: 0.5,
        algorithm,
    }
}

#[derive(Clone, Copy, Default)]
struct Parcel {
    own: f64,
    tcp: f64,
    udp: f64,
    /// Own bytes dropped just before.
    lost: f64,
    tcp_lost: f64,
    entered: f64,
}

#[derive(Clone, Copy)]
struct Ack {
    at: f64,
    own: f64,
    lost: f64,
    edge: f64,
    queued: f64,
}

enum Later {
    Probe { sent: f64 },
    Train { packets: u16, over_ns: u64, question: u32 },
    Pacing(Option<u64>),
    SlowStart,
    BearLosses,
    Seen(Observation),
}

/// A transfer that runs for as long as it is stepped.
pub struct Sim {
    pub path: Path,
    pub now: f64,
    pub sobas: Option<Sobas>,
    pub events: Vec<Event>,
    /// Numbers of streams that were to send. The simulated TCP stays one.
    pub sending: Vec<u16>,
    /// Per step: bytes received so far, queue in seconds, own bytes dropped so far.
    pub trace: Vec<(f64, f64, f64)>,
    tcp: Tcp,
    queue: VecDeque<Parcel>,
    backlog: f64,
    data: VecDeque<(f64, Parcel)>,
    acks: VecDeque<Ack>,
    received: f64,
    missed: f64,
    edge: f64,
    window: f64,
    dropped: f64,
    later: Vec<(f64, Later)>,
    others: Vec<Other>,
    told: f64,
    /// Whether probes and trains get through; else what the sender tells of its TCP stands in for probes.
    pub udp: bool,
    full: bool,
    /// What the transfer sent over the last 10 ms or so, bit/s.
    own: f64,
    /// What the sender's disk gives, bit/s.
    pub limit: Option<f64>,
    /// What there is to send by now, bytes.
    there: f64,
    /// Whether no train comes back any more.
    pub deaf: bool,
    /// What it and its trains put into the queue in the last step, and what others like it put there in this one, bytes.
    put: f64,
    beside: f64,
    /// The latter over the last 10 ms or so, bit/s.
    beside_bps: f64,
    random: Pcg64Mcg,
}

impl Sim {
    pub fn new(path: Path, cc: Cc, config: Option<Config>) -> Sim {
        let sobas = config.map(|c| Sobas::new(c, (path.rtt * 1e9) as u64, 0));
        let window = config.map_or(f64::from(u32::MAX), |c| c.largest as f64);
        let random = Pcg64Mcg::seed_from_u64(path.seed);
        Sim {
            others: path.cross.iter().map(|&what| Other::new(what)).collect(),
            tcp: Tcp::new(cc, path.offered, path.burst),
            edge: path.offered,
            path,
            now: 0.0,
            sobas,
            events: vec![],
            sending: vec![],
            trace: vec![],
            queue: VecDeque::new(),
            backlog: 0.0,
            data: VecDeque::new(),
            acks: VecDeque::new(),
            received: 0.0,
            missed: 0.0,
            window,
            dropped: 0.0,
            later: vec![],
            told: 0.0,
            udp: config.is_none_or(|c| c.trains),
            full: false,
            own: 0.0,
            limit: None,
            there: 0.0,
            deaf: false,
            put: 0.0,
            beside: 0.0,
            beside_bps: 0.0,
            random,
        }
    }

    pub fn run(mut self, seconds: f64) -> Sim {
        while self.now < seconds {
            self.step();
        }
        self
    }

    /// Transfers over one queue, each from an instant on. Each has that queue for itself, into which the others' bytes
    /// come a step late: as all come into all of them, the queues are the same.
    pub fn together(mut all: Vec<(f64, Sim)>, seconds: f64) -> Vec<Sim> {
        let mut now = 0.0;
        while now < seconds {
            now += STEP;
            let put: Vec<f64> = all.iter_mut().map(|(_, sim)| std::mem::take(&mut sim.put)).collect();
            let backlog = all[0].1.backlog;
            for (i, (from, sim)) in all.iter_mut().enumerate().filter(|(_, (from, _))| *from < now) {
                if sim.now == 0.0 && *from > 0.0 {
                    sim.backlog = backlog;
                    sim.queue.push_back(Parcel { udp: backlog, ..Parcel::default() });
                }
                sim.beside = put.iter().sum::<f64>() - put[i];
                sim.step();
            }
        }
        all.into_iter().map(|(_, sim)| sim).collect()
    }

    fn step(&mut self) {
        let half = self.path.rtt / 2.0;
        self.now += STEP;
        let now = self.now;
        while self.acks.front().is_some_and(|a| a.at <= now) {
            let Some(ack) = self.acks.pop_front() else { break };
            self.tcp.ack(now, self.path.rtt + ack.queued, ack);
        }
        self.there = match self.limit {
            None => f64::INFINITY,
            Some(bps) => self.there.min(self.tcp.sent + 65_536.0) + bps / 8.0 * STEP,
        };
        let mut arriving = Parcel { own: self.tcp.send(self.path.rtt, self.there), entered: now, ..Parcel::default() };
        self.own += (arriving.own * 8.0 / STEP - self.own) * STEP / 0.01;
        self.put += arriving.own;
        self.beside_bps += (self.beside * 8.0 / STEP - self.beside_bps) * STEP / 0.01;
        arriving.udp += std::mem::take(&mut self.beside);
        for other in &mut self.others {
            other.send(now, &mut arriving, &mut self.random);
        }
        self.enqueue(arriving);
        self.serve(now + half);
        while self.data.front().is_some_and(|d| d.0 <= now) {
            let Some((_, p)) = self.data.pop_front() else { break };
            self.received += p.own;
            self.missed += p.lost;
            // Linux opens the window at most so fast (tcp_grow_window), and never takes back what it has offered.
            let seen = self.received + self.missed;
            self.edge = self.edge.max(seen + self.window.min(self.path.offered + 2.0 * seen));
            let queued = (now - half - p.entered).max(0.0);
            self.acks.push_back(Ack { at: now + half, own: p.own, lost: p.lost, edge: self.edge, queued });
        }
        self.control(now, half);
        self.trace.push((self.received, self.backlog * 8.0 / self.path.bps, self.dropped));
    }

    fn enqueue(&mut self, mut p: Parcel) {
        let all = p.own + p.tcp + p.udp;
        let served = self.path.bps / 8.0 * STEP;
        let over = (self.backlog + all - served - self.path.queue).max(0.0).min(all);
        self.full = over > 0.0;
        let mut drop = if all > 0.0 { over / all } else { 0.0 };
        // Others' congestion hits single packets.
        if self.path.loss > 0.0 && self.random.random::<f64>() < self.path.loss * all / MSS {
            drop = (drop + MSS / all).min(1.0);
        }
        p.lost = p.own * drop;
        p.tcp_lost = p.tcp * drop;
        self.dropped += p.lost;
        (p.own, p.tcp, p.udp) = (p.own * (1.0 - drop), p.tcp * (1.0 - drop), p.udp * (1.0 - drop));
        self.backlog += p.own + p.tcp + p.udp;
        self.queue.push_back(p);
    }

    fn serve(&mut self, at: f64) {
        let mut room = self.path.bps / 8.0 * STEP;
        let mut out = Parcel { entered: self.now, ..Parcel::default() };
        while let Some(p) = self.queue.front_mut() {
            let all = p.own + p.tcp + p.udp;
            let part = if all <= room { 1.0 } else { room / all };
            out.entered = p.entered;
            out.own += p.own * part;
            out.tcp += p.tcp * part;
            out.lost += p.lost;
            out.tcp_lost += p.tcp_lost;
            self.backlog -= all * part;
            (p.lost, p.tcp_lost) = (0.0, 0.0);
            if part < 1.0 {
                (p.own, p.tcp, p.udp) = (p.own * (1.0 - part), p.tcp * (1.0 - part), p.udp * (1.0 - part));
                break;
            }
            room -= all;
            self.queue.pop_front();
        }
        self.backlog = self.backlog.max(0.0);
        for other in self.others.iter_mut().filter(|o| matches!(o.what, Cross::Tcp { .. })) {
            other.back.push_back((at + self.path.rtt / 2.0, out.tcp, out.tcp_lost));
        }
        if out.own + out.lost > 0.0 {
            self.data.push_back((at, out));
        }
    }

    fn control(&mut self, now: f64, half: f64) {
        let Some(mut sobas) = self.sobas.take() else { return };
        let ns = (now * 1e9) as u64;
        let due: Vec<Later>;
        (due, self.later) = {
            let (due, rest): (Vec<_>, Vec<_>) = self.later.drain(..).partition(|l| l.0 <= now);
            (due.into_iter().map(|l| l.1).collect(), rest)
        };
        for later in due {
            match later {
                Later::Pacing(bps) => self.tcp.pacing = bps.map(|b| b as f64),
                Later::SlowStart => self.tcp.ssthresh = f64::INFINITY,
                Later::BearLosses => (self.tcp.bears, self.tcp.ssthresh) = (true, f64::INFINITY),
                Later::Seen(observation) => sobas.observe(ns, observation),
                Later::Probe { .. } | Later::Train { .. } if !self.udp => {}
                Later::Probe { sent } => self.echo(now, half, sent),
                Later::Train { .. } if self.deaf => {}
                Later::Train { packets, over_ns, question } => self.train((now, half), packets, over_ns, question),
            }
        }
        if now - self.told > if self.udp { 0.05 } else { TELL } {
            self.told = now;
            let lost = Observation::Retransmits((self.tcp.lost / MSS).ceil() as u64);
            self.later.push((now + half, Later::Seen(lost)));
            if !self.udp && self.tcp.srtt > 0.0 {
                let rtt_ns = (self.tcp.srtt * 1e9) as u64;
                self.later.push((now + half, Later::Seen(Observation::Probe { rtt_ns })));
            }
        }
        if ns >= sobas.next_wake() {
            sobas.observe(ns, Observation::Bytes(self.received as u64));
            for action in sobas.tick(ns) {
                match action {
                    Action::Window(bytes) => self.window = bytes as f64,
                    Action::Pacing(bps) => self.later.push((now + half, Later::Pacing(bps))),
                    Action::Streams(sending) => self.sending.push(sending),
                    Action::SlowStart => self.later.push((now + half, Later::SlowStart)),
                    Action::BearLosses => self.later.push((now + half, Later::BearLosses)),
                    Action::SendProbe if !self.udp => {}
                    Action::SendProbe => self.later.push((now + half, Later::Probe { sent: now })),
                    Action::SendTrain { packets, over_ns, question, .. } => {
                        self.later.push((now + half, Later::Train { packets, over_ns, question }));
                    }
                    Action::Note(event) => self.events.push(event),
                }
            }
        }
        self.sobas = Some(sobas);
    }

    fn echo(&mut self, now: f64, half: f64, sent: f64) {
        let lost = self.full || self.random.random::<f64>() < self.path.loss;
        if lost || self.path.loss_back > 0.0 && self.random.random::<f64>() < self.path.loss_back {
            self.later.push((now + half + 0.1, Later::Seen(Observation::ProbeLost)));
            return;
        }
        let back = now + self.backlog * 8.0 / self.path.bps + half;
        let varies = if self.path.varies > 0.0 { self.random.random::<f64>() * self.path.varies } else { 0.0 };
        let rtt = back - sent + self.random.random::<f64>() * self.path.jitter + varies;
        self.later.push((back, Later::Seen(Observation::Probe { rtt_ns: (rtt * 1e9) as u64 })));
    }

    fn train(&mut self, (now, half): (f64, f64), packets: u16, over_ns: u64, question: u32) {
        let asked = f64::from(packets) * MSS * 8.0 / (over_ns as f64 * 1e-9);
        let line = (self.path.bps * LINE).min(asked);
        let others: f64 = self.others.iter().map(|o| o.bps(now, self.path.rtt)).sum::<f64>() + self.beside_bps;
        // What the transfer itself sends meanwhile is among what a train meets, if the train is at its pace.
        let first = if now < self.path.first_windows.1 { self.path.first_windows.0 } else { 0.0 };
        let beside = others + if over_ns > 0 { self.own + first } else { 0.0 };
        let gap = (MSS * 8.0 / line.min(self.path.host_bps)).max(MSS * 8.0 / self.path.bps * (1.0 + beside / line));
        let start = now + self.backlog * 8.0 / self.path.bps + half;
        let room = ((self.path.queue - self.backlog).max(0.0) / MSS / (1.0 - 1.0 / LINE)) as usize;
        let count = usize::from(packets).min(room);
        let mut arrivals_ns: Vec<u64> = (0..count).map(|i| ((start + gap * i as f64) * 1e9) as u64).collect();
        if self.path.varies > 0.0 {
            let mut latest = 0;
            for at in &mut arrivals_ns {
                latest = latest.max(*at + (self.random.random::<f64>() * self.path.varies * 1e9) as u64);
                *at = latest;
            }
        }
        self.enqueue(Parcel { udp: count as f64 * MSS, entered: now, ..Parcel::default() });
        self.put += count as f64 * MSS;
        let sent_span_ns = (f64::from(packets - 1) * MSS * 8.0 / line * 1e9) as u64;
        let train = Train { sent_span_ns, sent: packets, over_ns, question, arrivals_ns };
        self.later.push((start + gap * count as f64, Later::Seen(Observation::Train(train))));
    }

    fn at(&self, seconds: f64) -> usize {
        ((seconds / STEP) as usize).min(self.trace.len() - 1)
    }

    /// Goodput, as a part of the capacity.
    pub fn share(&self, from: f64, to: f64) -> f64 {
        (self.trace[self.at(to)].0 - self.trace[self.at(from)].0) * 8.0 / (to - from) / self.path.bps
    }

    /// Longest queue delay, seconds.
    pub fn queue(&self, from: f64, to: f64) -> f64 {
        self.trace[self.at(from)..=self.at(to)].iter().map(|t| t.1).fold(0.0, f64::max)
    }

    /// Mean queue delay, seconds.
    pub fn mean_queue(&self, from: f64, to: f64) -> f64 {
        let all = &self.trace[self.at(from)..=self.at(to)];
        all.iter().map(|t| t.1).sum::<f64>() / all.len() as f64
    }

    /// Segments of this transfer dropped.
    pub fn dropped(&self, from: f64, to: f64) -> f64 {
        (self.trace[self.at(to)].2 - self.trace[self.at(from)].2) / MSS
    }

    /// When an RTT's throughput was first this part of the capacity, after an instant.
    pub fn reaches(&self, part: f64, after: f64) -> Option<f64> {
        let over = self.path.rtt.max(0.01);
        let mut t = after.max(over);
        while t < self.now {
            if self.share(t - over, t) >= part {
                return Some(t);
            }
            t += 1e-3;
        }
        None
    }

    pub fn state(&self) -> Option<State> {
        self.sobas.as_ref().map(Sobas::state)
    }

    /// RTTs and seconds that doubling from the initial window takes.
    pub fn doubling(&self) -> f64 {
        (self.path.bdp() / (10.0 * MSS)).log2().max(1.0) * self.path.rtt
    }
}
