//! The receiving end: what arrives goes into the controller, what it decides into the kernels.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fullpipe_net::sys;
use fullpipe_sobas::{Action, Config, Mode, Observation, PROBE_BYTES, Sobas, Train};

use super::actuators;
use super::datagram::Datagram;
use super::setup::{self, GREET_EVERY_NS, LOOK_NS, PATIENCE, SizingSetup, keep, segment};
use super::udp::{ReceivedDatagram, Udp};
use crate::connection::session::Session;
use crate::connection::stream::tcp_info;
use crate::protocol::message::Message;
use crate::protocol::sizing::{SenderStats, SizingEvent, SizingMode};
use crate::telemetry::counters::Counters;

/// So many later probes must be back before one is lost.
const LATER: u32 = 3;
/// Or so long, besides two round trips, nanoseconds.
const LOST_NS: u64 = 1_000_000_000;
/// A train is over that long after its last packet, nanoseconds.
const TRAIN_OVER_NS: u64 = 20_000_000;
/// Between looks at the clamps, nanoseconds.
const KEEP_NS: u64 = 100_000_000;
/// Share of the time that makes the window the limit.
const MOSTLY: f64 = 0.5;
/// And over at least this, nanoseconds.
const LIMITED_OVER_NS: u64 = 20_000_000;
/// A stream of which nothing has come for so long, besides a round trip, has nothing to move, nanoseconds.
const BUSY_NS: u64 = 30_000_000;

#[derive(Default)]
struct Coming {
    arrivals_ns: Vec<u64>,
    last_ns: u64,
    sent: Option<(u16, u64)>,
    asked: u16,
    over_ns: u64,
}

pub(super) struct Controller {
    session: Arc<Session>,
    setup: SizingSetup,
    sockets: Arc<Vec<TcpStream>>,
    counters: Arc<Counters>,
    told: mpsc::Receiver<SenderStats>,
    windows: actuators::Windows,
    /// Probes that are out, and when they left.
    out: BTreeMap<u32, u64>,
    next: u32,
    trains: BTreeMap<u32, Coming>,
    next_train: u32,
    /// Since when so much of the time was limited by the window.
    limited: Option<(u64, u64)>,
    began: u64,
    largest: u64,
    arrived: Arrived,
}

/// Payload that has arrived, in order or not. The kernel counts bytes only once all before them are there, so that
/// each loss would look like a pause and a rush; segments it counts as they come (`tcpi_data_segs_in`).
#[derive(Default)]
struct Arrived {
    /// Segments as last read, of 32 bits, and all of them.
    segments: Vec<(u32, u64)>,
    /// When each stream's last came, nanoseconds.
    when: Vec<u64>,
    /// Payload of a segment: the most that it has been on average.
    payload: f64,
}

impl Arrived {
    /// Streams whose segments have come since an instant.
    fn busy(&self, since: u64) -> usize {
        self.when.iter().filter(|at| **at >= since).count()
    }

    fn look(&mut self, sockets: &[TcpStream], at: u64) -> u64 {
        self.segments.resize(sockets.len(), (0, 0));
        self.when.resize(sockets.len(), 0);
        let (mut bytes, mut all) = (0, 0);
        for ((socket, (last, total)), when) in sockets.iter().zip(&mut self.segments).zip(&mut self.when) {
            let Some(info) = tcp_info(socket) else { continue };
            let now = info.get("data_segs_in").unwrap_or(0) as u32;
            if now != *last {
                *when = at;
            }
            *total += u64::from(now.wrapping_sub(*last));
            *last = now;
            all += *total;
            bytes += info.get("bytes_received").unwrap_or(0);
        }
        if all == 0 {
            return bytes;
        }
        self.payload = self.payload.max(bytes as f64 / all as f64);
        (all as f64 * self.payload) as u64
    }
}

impl Controller {
    pub fn new(
        session: &Arc<Session>,
        setup: SizingSetup,
        sockets: Arc<Vec<TcpStream>>,
        counters: Arc<Counters>,
    ) -> Controller {
        let (tell, told) = mpsc::channel();
        session.on_sizing(move |message| {
            if let Message::SenderStats(seen) = message {
                // Whoever listens may be gone already.
                let _ = tell.send(seen);
            }
        });
        let largest = setup::largest(setup.buffer).saturating_mul(sockets.len() as u64);
        Controller {
            session: session.clone(),
            largest,
            arrived: Arrived::default(),
            setup,
            windows: actuators::Windows::default(),
            sockets,
            counters,
            told,
            out: BTreeMap::new(),
            next: 0,
            trains: BTreeMap::new(),
            next_train: 0,
            limited: None,
            began: sys::now_ns(),
        }
    }

    fn note(&self, note: SizingEvent) {
        keep(&self.counters, note.clone());
        // Should the connection have ended, others say so.
        let _ = self.session.send(&Message::Sized(note));
    }

    fn say(&self, word: &Datagram) {
        if let Some(udp) = &self.setup.udp {
            udp.send(word, PROBE_BYTES);
        }
    }

    /// Waits for the other end's first datagram; gives its segments.
    fn meet(&mut self) -> Option<(u32, u32)> {
        let patience = self.began + PATIENCE.as_nanos() as u64 + 2 * self.setup.rtt_ns;
        let mut greeted = 0;
        loop {
            let now = sys::now_ns();
            if now >= patience || self.session.is_over() {
                return None;
            }
            if now >= greeted + GREET_EVERY_NS {
                greeted = now;
                self.say(&Datagram::Hello { mss: 0, packet: 0 });
            }
            let udp = self.setup.udp.as_mut()?;
            udp.wait(GREET_EVERY_NS);
            while let Some(came) = udp.next() {
                if let Datagram::Hello { mss, packet } = came.word
                    && mss > 0
                {
                    return Some((mss, packet));
                }
            }
        }
    }

    /// Until the session is over.
    pub fn run(mut self) {
        let met = self.meet();
        let (mss, packet) = met.or_else(|| self.sockets.first().map(segment)).unwrap_or((1448, 1500));
        if met.is_none() {
            self.setup.udp = None;
        }
        let largest = self.largest;
        let law = self.setup.law;
        let config = Config {
            mss,
            packet,
            streams: u16::try_from(self.sockets.len()).unwrap_or(u16::MAX),
            largest,
            window: law != SizingMode::Pacing,
            pacing: law.paces(),
            restart: law == SizingMode::All,
            trains: met.is_some(),
            decrease: self.setup.decrease,
            mode: if law == SizingMode::Paper { Mode::Paper } else { Mode::Adaptive },
        };
        self.note(SizingEvent::Began { law, udp: met.is_some(), mss, largest });
        let mut sobas = Sobas::new(config, self.setup.rtt_ns, sys::now_ns());
        let mut kept = self.began;
        while !self.session.is_over() {
            let now = sys::now_ns();
            let wait = sobas.next_wake().saturating_sub(now).min(LOOK_NS);
            self.listen(&mut sobas, wait, met.is_some());
            let now = sys::now_ns();
            self.look(&mut sobas, now);
            for action in sobas.tick(now) {
                self.act(action);
            }
            if now >= kept + KEEP_NS {
                kept = now;
                self.windows.keep(&self.sockets);
            }
        }
    }

    /// Takes in what comes within this time.
    fn listen(&mut self, sobas: &mut Sobas, wait: u64, udp: bool) {
        if udp {
            if let Some(udp) = &self.setup.udp {
                udp.wait(wait);
            }
            while let Some(came) = self.setup.udp.as_mut().and_then(Udp::next) {
                self.heard(sobas, came);
            }
            while let Ok(seen) = self.told.try_recv() {
                self.streams(sobas, sys::now_ns(), seen);
            }
            return;
        }
        match self.told.recv_timeout(Duration::from_nanos(wait)) {
            Ok(seen) => {
                let now = sys::now_ns();
                if seen.rtt_us > 0 && seen.rtt_us < u32::MAX {
                    sobas.observe(now, Observation::Probe { rtt_ns: u64::from(seen.rtt_us) * 1000 });
                }
                self.streams(sobas, now, seen);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            // The session ends, and this thread with it.
            Err(mpsc::RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_nanos(wait)),
        }
    }

    fn heard(&mut self, sobas: &mut Sobas, came: ReceivedDatagram) {
        let now = sys::now_ns();
        match came.word {
            Datagram::Echo { n, sent_ns, held_ns, seen } => {
                // Its own word for when it left is taken only for a probe that is out.
                if self.out.remove(&n) != Some(sent_ns) {
                    return;
                }
                let rtt_ns = now.saturating_sub(sent_ns).saturating_sub(held_ns).saturating_sub(came.waited_ns);
                while let Some((&first, _)) = self.out.first_key_value()
                    && first.saturating_add(LATER) <= n
                {
                    self.out.remove(&first);
                    sobas.observe(now, Observation::ProbeLost);
                }
                sobas.observe(now, Observation::Probe { rtt_ns });
                self.streams(sobas, now, seen);
            }
            Datagram::Packet { id } => {
                if let Some(train) = self.trains.get_mut(&id)
                    && train.arrivals_ns.len() < usize::from(train.asked)
                {
                    train.arrivals_ns.push(came.stamp_ns);
                    train.last_ns = now;
                }
            }
            Datagram::TrainEnd { id, sent, span_ns } => {
                if let Some(train) = self.trains.get_mut(&id) {
                    train.sent = Some((sent, span_ns));
                }
            }
            _ => {}
        }
    }

    /// What the sender says of its streams.
    fn streams(&mut self, sobas: &mut Sobas, now: u64, seen: SenderStats) {
        sobas.observe(now, Observation::Retransmits(seen.retransmits));
        let Some((since, before)) = self.limited else {
            self.limited = Some((now, seen.window_limited_us));
            return;
        };
        let over = now.saturating_sub(since);
        if over >= LIMITED_OVER_NS.max(self.setup.rtt_ns) {
            let limited = seen.window_limited_us.saturating_sub(before) as f64 * 1000.0;
            let limited = limited > MOSTLY * over as f64 * self.sockets.len() as f64;
            sobas.observe(now, Observation::BufferLimited(limited));
            self.limited = Some((now, seen.window_limited_us));
        }
    }

    /// What this end sees for itself, and what has not come.
    fn look(&mut self, sobas: &mut Sobas, now: u64) {
        let bytes = self.arrived.look(&self.sockets, now);
        self.windows.busy(&self.sockets, self.arrived.busy(now.saturating_sub(BUSY_NS + self.setup.rtt_ns)));
        sobas.observe(now, Observation::Bytes(bytes));
        let late = LOST_NS + 2 * self.setup.rtt_ns;
        while let Some((&first, &sent)) = self.out.first_key_value()
            && now.saturating_sub(sent) > late
        {
            self.out.remove(&first);
            sobas.observe(now, Observation::ProbeLost);
        }
        let over = |train: &Coming| {
            train.sent.is_some_and(|(sent, _)| train.arrivals_ns.len() >= usize::from(sent))
                || now.saturating_sub(train.last_ns)
                    > TRAIN_OVER_NS + if train.arrivals_ns.is_empty() { late } else { 0 }
        };
        let done: Vec<u32> = self.trains.iter().filter(|(_, train)| over(train)).map(|(id, _)| *id).collect();
        for id in done {
            let Some(train) = self.trains.remove(&id) else { continue };
            let (sent, sent_span_ns) = train.sent.unwrap_or((train.asked, 0));
            let (over_ns, arrivals_ns) = (train.over_ns, train.arrivals_ns);
            sobas.observe(now, Observation::Train(Train { sent_span_ns, sent, over_ns, arrivals_ns }));
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Window(bytes) => {
                let limit = (bytes < self.largest).then_some(bytes);
                self.windows.set(&self.sockets, limit);
            }
            Action::Pacing(bps) => {
                // Should the connection have ended, others say so.
                let _ = self.session.send(&Message::Pace { bps });
            }
            Action::SlowStart => {
                let _ = self.session.send(&Message::SlowStart);
            }
            Action::SendProbe => {
                if self.setup.udp.is_some() {
                    // What was read of the streams meanwhile is no part of the round trip.
                    let (n, now) = (self.next, sys::now_ns());
                    self.next = self.next.wrapping_add(1);
                    self.out.insert(n, now);
                    self.say(&Datagram::Probe { n, sent_ns: now });
                }
            }
            Action::SendTrain { packets, bytes, over_ns } => {
                let (id, last_ns) = (self.next_train, sys::now_ns());
                self.next_train = self.next_train.wrapping_add(1);
                self.trains.insert(id, Coming { asked: packets, over_ns, last_ns, ..Coming::default() });
                self.say(&Datagram::Train { id, packets, bytes, over_ns });
            }
            Action::Note(mut event) => {
                event.at_ns = event.at_ns.saturating_sub(self.began);
                self.note(SizingEvent::Decided(event));
            }
        }
    }
}
