//! The receiving end's part of SOBAS: passes what it observes to the controller, and applies what the controller decides.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fullpipe_net::sys;
use fullpipe_sobas::{Action, Algorithm, Config, FIRST_TRAIN_PACKETS, Observation, PROBE_BYTES, Sobas, Train};

use super::actuators::{self, Streams};
use super::datagram::Datagram;
use super::setup::{
    self, GREET_EVERY_NS, PATIENCE, SESSION_CHECK_NS, SizingSetup, UNASKED_TRAINS, keep_event, segment,
};
use super::udp::{ReceivedDatagram, Udp};
use crate::connection::session::Session;
use crate::connection::stream::tcp_info;
use crate::protocol::message::Message;
use crate::protocol::sizing::{SenderStats, SizingEvent, SizingMode};
use crate::telemetry::counters::Counters;

/// Limits by which this end judges what it observes.
struct Limits {
    /// A probe counts as lost once so many later ones are back.
    later_probes: u32,
    /// A probe also counts as lost after this time in addition to two round trips, nanoseconds.
    probe_lost_ns: u64,
    /// A packet train is over this long after its last packet, nanoseconds.
    train_over_ns: u64,
    /// Time between checks whether the kernel has moved a window clamp, nanoseconds.
    clamp_check_ns: u64,
    /// The window counts as the limit if the streams waited for it during more than this fraction of the time.
    window_limited_fraction: f64,
    /// That fraction is measured over at least this time, nanoseconds.
    window_limited_over_ns: u64,
    /// A stream counts as idle if nothing arrived on it for this time in addition to a round trip, nanoseconds.
    idle_ns: u64,
    /// UDP has ceased to pass if no probe came back for this time in addition to two round trips, nanoseconds. The sender reports
    /// its streams' statistics over the control connection by then.
    udp_silent_ns: u64,
    /// Time between probes from then on, nanoseconds. They find out whether it passes again, and keep the sender from reporting
    /// for half a second.
    silent_probes_ns: u64,
    /// Most datagrams and messages that are taken in at a time: the other end may send faster than they are read.
    at_once: usize,
}

const LIMITS: Limits = Limits {
    later_probes: 3,
    probe_lost_ns: 1_000_000_000,
    train_over_ns: 20_000_000,
    clamp_check_ns: 100_000_000,
    window_limited_fraction: 0.5,
    window_limited_over_ns: 20_000_000,
    idle_ns: 30_000_000,
    udp_silent_ns: 1_500_000_000,
    silent_probes_ns: 5_000_000_000,
    at_once: 256,
};

/// A packet train that was asked for.
#[derive(Default)]
struct ExpectedTrain {
    /// When each packet arrived, by the kernel's `CLOCK_REALTIME`, nanoseconds.
    arrivals_ns: Vec<u64>,
    /// When the last packet was read, or the train asked for, by `CLOCK_MONOTONIC`, nanoseconds.
    last_ns: u64,
    /// The number of packets that the sender sent and the time that they took, nanoseconds, once the sender has said so.
    sent: Option<(u16, u64)>,
    /// The number of packets that were asked for.
    asked: u16,
    /// The time over which they were to be spread, nanoseconds; zero for back to back.
    over_ns: u64,
    /// The question that it was asked for.
    question: u32,
}

/// The receiving end's shell around [`Sobas`].
pub(super) struct Controller {
    session: Arc<Session>,
    setup: SizingSetup,
    streams: Arc<Streams>,
    /// Number of streams that send.
    sending: u16,
    counters: Arc<Counters>,
    /// The sender's statistics that arrive over the control connection.
    sender_stats: mpsc::Receiver<SenderStats>,
    windows: actuators::Windows,
    /// Probes without an echo: when each left, by its number, nanoseconds.
    outstanding_probes: BTreeMap<u32, u64>,
    /// Number of the next probe, and when the last one left, nanoseconds.
    next_probe: u32,
    probed: u64,
    /// When a probe last came back, nanoseconds.
    echoed: u64,
    /// Packet trains that are not complete, by number.
    trains: BTreeMap<u32, ExpectedTrain>,
    /// Number of the next train.
    next_train: u32,
    /// Number of the next train that the sender sends unasked.
    next_unasked: u32,
    /// When [`SenderStats::window_limited_us`] was last evaluated, nanoseconds, and its value then.
    limited: Option<(u64, u64)>,
    /// When this began, nanoseconds.
    began: u64,
    /// Largest window of all streams together, bytes.
    max_window: u64,
    arrived: Arrived,
}

/// Measures the payload that has arrived, in order or not. The kernel counts bytes only once all bytes before them are
/// there, so each loss would look like a pause followed by a burst. It counts segments as they arrive
/// (`tcpi_data_segs_in`).
#[derive(Default)]
struct Arrived {
    /// For each stream the kernel's 32-bit counter as last read, and the sum of all its increments.
    segments: Vec<(u32, u64)>,
    /// When each stream's last segment was seen, nanoseconds.
    when: Vec<u64>,
    /// Bytes of payload of a segment: the largest average so far.
    payload: f64,
}

impl Arrived {
    /// Number of streams on which a segment arrived since an instant.
    fn busy(&self, since: u64) -> usize {
        self.when.iter().filter(|at| **at >= since).count()
    }

    /// Reads the counters of all streams at an instant. Returns the payload that has arrived, bytes.
    fn read(&mut self, streams: &Streams, at: u64) -> u64 {
        self.segments.resize(streams.len(), (0, 0));
        self.when.resize(streams.len(), 0);
        let (mut bytes, mut all) = (0, 0);
        for ((stream, (last, total)), when) in streams.iter().zip(&mut self.segments).zip(&mut self.when) {
            let Some(info) = tcp_info(&**stream) else { continue };
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
        (streams, sending): (Arc<Streams>, u16),
        counters: Arc<Counters>,
    ) -> Controller {
        let (tell, sender_stats) = mpsc::sync_channel(LIMITS.at_once);
        session.on_sizing(move |message| {
            if let Message::SenderStats(seen) = message {
                // The controller may have ended already, or have more to read than it can.
                let _ = tell.try_send(seen);
            }
        });
        let max_window = setup::max_window(setup.buffer).saturating_mul(streams.len() as u64);
        Controller {
            session: session.clone(),
            max_window,
            arrived: Arrived::default(),
            setup,
            windows: actuators::Windows::default(),
            streams,
            sending,
            counters,
            sender_stats,
            outstanding_probes: BTreeMap::new(),
            next_probe: 0,
            probed: 0,
            echoed: sys::now_ns(),
            trains: BTreeMap::new(),
            next_train: UNASKED_TRAINS,
            next_unasked: 0,
            limited: None,
            began: sys::now_ns(),
        }
    }

    /// Records an event at both ends.
    fn note(&self, note: SizingEvent) {
        keep_event(&self.counters, note.clone());
        // If the connection has ended, another thread reports that.
        let _ = self.session.send(&Message::Sized(note));
    }

    fn send(&self, datagram: &Datagram) {
        if let Some(udp) = &self.setup.udp {
            udp.send(datagram, PROBE_BYTES);
        }
    }

    /// Waits for the sender's first datagram. Returns the sizes of its segments: payload and packet, bytes.
    fn greet(&mut self) -> Option<(u32, u32)> {
        let patience = self.began + PATIENCE.as_nanos() as u64 + 2 * self.setup.rtt_ns;
        let mut greeted = 0;
        loop {
            let now = sys::now_ns();
            if now >= patience || self.session.is_over() {
                return None;
            }
            if now >= greeted + GREET_EVERY_NS {
                greeted = now;
                self.send(&Datagram::Hello { mss: 0, packet: 0 });
            }
            let udp = self.setup.udp.as_mut()?;
            udp.wait(GREET_EVERY_NS);
            while let Some(came) = udp.next() {
                if let Datagram::Hello { mss, packet } = came.datagram
                    && mss > 0
                {
                    return Some((mss, packet));
                }
            }
        }
    }

    /// Runs until the session is over.
    pub fn run(mut self) {
        let met = self.greet();
        let (mss, packet) =
            met.or_else(|| self.streams.first().map(|stream| segment(&**stream))).unwrap_or((1448, 1500));
        if met.is_none() {
            self.setup.udp = None;
        }
        let law = self.setup.law;
        let config = Config {
            mss,
            packet,
            streams: self.sending,
            spare: u16::try_from(self.streams.len()).unwrap_or(u16::MAX).saturating_sub(self.sending),
            largest: self.max_window,
            window: law != SizingMode::Pacing,
            pacing: law.paces(),
            restart: law.restarts(),
            change: law == SizingMode::All,
            trains: met.is_some(),
            assumed_bps: self.setup.assumed_bps as f64,
            limit_bps: self.setup.limit_bps.map_or(f64::INFINITY, |bps| bps as f64),
            decrease: self.setup.decrease,
            algorithm: if law == SizingMode::Paper { Algorithm::Paper } else { Algorithm::Adaptive },
        };
        self.note(SizingEvent::Began { law, udp: met.is_some(), mss, largest: self.max_window });
        let mut sobas = Sobas::new(config, self.setup.rtt_ns, sys::now_ns());
        let mut kept = self.began;
        self.echoed = sys::now_ns();
        while !self.session.is_over() {
            let now = sys::now_ns();
            let wait = sobas.next_wake().saturating_sub(now).min(SESSION_CHECK_NS);
            self.listen(&mut sobas, wait);
            let now = sys::now_ns();
            self.observe(&mut sobas, now);
            for action in sobas.tick(now) {
                self.act(action);
            }
            if now >= kept + LIMITS.clamp_check_ns {
                kept = now;
                self.windows.keep(&self.streams);
            }
        }
    }

    /// Whether UDP does not pass, or no longer.
    fn is_udp_silent(&self, now: u64) -> bool {
        self.setup.udp.is_none()
            || now.saturating_sub(self.echoed) > LIMITS.udp_silent_ns.saturating_add(2 * self.setup.rtt_ns)
    }

    /// Waits at most `wait` nanoseconds, and takes in the datagrams and messages that arrive.
    fn listen(&mut self, sobas: &mut Sobas, wait: u64) {
        let mut first = None;
        if let Some(udp) = &self.setup.udp {
            udp.wait(wait);
            for _ in 0..LIMITS.at_once {
                let Some(came) = self.setup.udp.as_mut().and_then(Udp::next) else { break };
                self.received(sobas, came);
            }
            sobas.set_trains(!self.is_udp_silent(sys::now_ns()));
        } else {
            match self.sender_stats.recv_timeout(Duration::from_nanos(wait)) {
                Ok(seen) => first = Some(seen),
                Err(mpsc::RecvTimeoutError::Timeout) => return,
                // The session is ending, and this thread with it.
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(Duration::from_nanos(wait));
                    return;
                }
            }
        }
        // Of those that have waited, only the last is of now.
        let Some(seen) = first.into_iter().chain(self.sender_stats.try_iter().take(LIMITS.at_once)).last() else {
            return;
        };
        let now = sys::now_ns();
        if self.is_udp_silent(now) && seen.rtt_us > 0 && seen.rtt_us < u32::MAX {
            sobas.observe(now, Observation::Probe { rtt_ns: u64::from(seen.rtt_us) * 1000 });
        }
        self.take_stats(sobas, now, seen);
    }

    /// Takes in one datagram.
    fn received(&mut self, sobas: &mut Sobas, came: ReceivedDatagram) {
        let now = sys::now_ns();
        match came.datagram {
            Datagram::Echo { n, sent_ns, held_ns, seen } => {
                // The echo must name the instant at which this very probe left: the sender could make up another.
                if self.outstanding_probes.remove(&n) != Some(sent_ns) {
                    return;
                }
                self.echoed = now;
                let rtt_ns = round_trip_ns(now.saturating_sub(sent_ns), held_ns, came.waited_ns);
                while let Some((&first, _)) = self.outstanding_probes.first_key_value()
                    && first.saturating_add(LIMITS.later_probes) <= n
                {
                    self.outstanding_probes.remove(&first);
                    sobas.observe(now, Observation::ProbeLost);
                }
                if let Some(rtt_ns) = rtt_ns {
                    sobas.observe(now, Observation::Probe { rtt_ns });
                }
                self.take_stats(sobas, now, seen);
            }
            Datagram::Packet { id } => {
                if (self.next_unasked..UNASKED_TRAINS).contains(&id) {
                    self.next_unasked = id + 1;
                    let train = ExpectedTrain { asked: FIRST_TRAIN_PACKETS, last_ns: now, ..ExpectedTrain::default() };
                    self.trains.insert(id, train);
                }
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

    /// Takes in the sender's statistics of its streams.
    fn take_stats(&mut self, sobas: &mut Sobas, now: u64, stats: SenderStats) {
        sobas.observe(now, Observation::Retransmits(stats.retransmits));
        let Some((since, before)) = self.limited else {
            self.limited = Some((now, stats.window_limited_us));
            return;
        };
        let over = now.saturating_sub(since);
        if over >= LIMITS.window_limited_over_ns.max(self.setup.rtt_ns) {
            let limited = stats.window_limited_us.saturating_sub(before) as f64 * 1000.0;
            let limited = limited > LIMITS.window_limited_fraction * over as f64 * f64::from(self.sending);
            sobas.observe(now, Observation::BufferLimited(limited));
            self.limited = Some((now, stats.window_limited_us));
        }
    }

    /// Takes in what this end sees of its streams, and decides which probes and trains are lost or complete.
    fn observe(&mut self, sobas: &mut Sobas, now: u64) {
        let bytes = self.arrived.read(&self.streams, now);
        self.windows.busy(&self.streams, self.arrived.busy(now.saturating_sub(LIMITS.idle_ns + self.setup.rtt_ns)));
        sobas.observe(now, Observation::Bytes(bytes));
        let late = LIMITS.probe_lost_ns + 2 * self.setup.rtt_ns;
        while let Some((&first, &sent)) = self.outstanding_probes.first_key_value()
            && now.saturating_sub(sent) > late
        {
            self.outstanding_probes.remove(&first);
            // Where nothing passes, nothing is lost either.
            if !self.is_udp_silent(now) {
                sobas.observe(now, Observation::ProbeLost);
            }
        }
        let over = |train: &ExpectedTrain| {
            train.sent.is_some_and(|(sent, _)| train.arrivals_ns.len() >= usize::from(sent))
                || now.saturating_sub(train.last_ns)
                    > LIMITS.train_over_ns + if train.arrivals_ns.is_empty() { late } else { 0 }
        };
        let done: Vec<u32> = self.trains.iter().filter(|(_, train)| over(train)).map(|(id, _)| *id).collect();
        for id in done {
            let Some(train) = self.trains.remove(&id) else { continue };
            let (sent, sent_span_ns) = train.sent.unwrap_or((train.asked, 0));
            let ExpectedTrain { over_ns, question, arrivals_ns, .. } = train;
            sobas.observe(now, Observation::Train(Train { sent_span_ns, sent, over_ns, question, arrivals_ns }));
        }
    }

    /// Does what the controller decided.
    fn act(&mut self, action: Action) {
        match action {
            Action::Window(bytes) => {
                // Until the first window, the paper's law leaves the buffer to the kernel's tuning, which offers 64 KB at first.
                if self.setup.law == SizingMode::Paper {
                    self.windows.end_tuning(&self.streams, self.max_window);
                }
                let limit = (bytes < self.max_window).then_some(bytes);
                self.windows.set(&self.streams, limit);
            }
            Action::Pacing(bps) => {
                // If the connection has ended, another thread reports that.
                let _ = self.session.send(&Message::Pace { bps });
            }
            Action::Streams(sending) => {
                self.sending = sending;
                let _ = self.session.send(&Message::Streams { sending });
            }
            Action::SlowStart => {
                let _ = self.session.send(&Message::SlowStart);
            }
            Action::BearLosses => {
                let _ = self.session.send(&Message::BearLosses);
            }
            Action::SendProbe => {
                // Read again now: the time for reading the streams is no part of the round trip.
                let (n, now) = (self.next_probe, sys::now_ns());
                let apart = if self.is_udp_silent(now) { LIMITS.silent_probes_ns } else { 0 };
                if self.setup.udp.is_some() && now >= self.probed + apart {
                    self.probed = now;
                    self.next_probe = self.next_probe.wrapping_add(1);
                    self.outstanding_probes.insert(n, now);
                    self.send(&Datagram::Probe { n, sent_ns: now });
                }
            }
            Action::SendTrain { packets, bytes, over_ns, question } => {
                let (id, last_ns) = (self.next_train, sys::now_ns());
                self.next_train = self.next_train.wrapping_add(1);
                let train = ExpectedTrain { asked: packets, over_ns, question, last_ns, ..ExpectedTrain::default() };
                self.trains.insert(id, train);
                self.send(&Datagram::Train { id, packets, bytes, over_ns });
            }
            Action::Note(mut event) => {
                event.at_ns = event.at_ns.saturating_sub(self.began);
                self.note(SizingEvent::Decided(event));
            }
        }
    }
}

/// The round-trip time of a probe that came back after `elapsed_ns`, of which it waited `held_ns` at the sender and `waited_ns` here;
/// none if these waits are longer. Those are by the clock of arrivals, which steps, and goes on while a host is suspended.
fn round_trip_ns(elapsed_ns: u64, held_ns: u64, waited_ns: u64) -> Option<u64> {
    elapsed_ns.checked_sub(held_ns.saturating_add(waited_ns)).filter(|rtt_ns| *rtt_ns > 0)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::datagram::Keys;
    use super::*;

    #[test]
    fn where_udp_has_ceased_the_senders_figures_are_probes_and_few_probes_leave() {
        let here = IpAddr::from([127, 0, 0, 1]);
        let [near, far] = [(), ()].map(|()| Udp::bind(here, 0).unwrap());
        let setup = SizingSetup {
            law: SizingMode::All,
            udp: Some(Udp::new(near, far.local_addr().ok(), Keys::new(&[1; 32], true))),
            rtt_ns: 20_000_000,
            buffer: fullpipe_path::Buffer::Auto,
            assumed_bps: 1_000_000_000,
            limit_bps: None,
            decrease: 0.5,
        };
        let session = Session::new(String::new(), Box::new(std::io::sink()));
        let mut controller = Controller::new(&session, setup, (Arc::new([]), 0), Arc::default());
        let (tell, sender_stats) = mpsc::sync_channel(1);
        controller.sender_stats = sender_stats;
        let long = LIMITS.udp_silent_ns + 2 * 20_000_000 + 1_000_000;
        for (silent, probes, rtt_ns) in [(false, 3, 20_000_000), (true, 1, 5_000_000)] {
            let now = sys::now_ns();
            controller.echoed = if silent { now - long } else { now };
            let before = controller.next_probe;
            controller.probed = 0;
            for _ in 0..3 {
                controller.act(Action::SendProbe);
            }
            assert_eq!(controller.next_probe - before, probes, "silent: {silent}");
            let config = Config {
                mss: 1448,
                packet: 1500,
                streams: 1,
                spare: 0,
                largest: 1 << 30,
                window: true,
                pacing: true,
                restart: true,
                change: true,
                trains: true,
                assumed_bps: 1e9,
                limit_bps: f64::INFINITY,
                decrease: 0.5,
                algorithm: Algorithm::Adaptive,
            };
            let mut sobas = Sobas::new(config, 20_000_000, now);
            tell.send(SenderStats { rtt_us: 5_000, ..SenderStats::default() }).unwrap();
            controller.listen(&mut sobas, 0);
            // Without trains it begins at once, and tells the shortest round trip.
            sobas.set_trains(false);
            let told = sobas.tick(now + 1_000_000_000);
            let event =
                told.iter().find_map(|action| if let Action::Note(event) = action { Some(event) } else { None });
            assert_eq!(event.map(|event| event.rtt_ns), Some(rtt_ns), "silent: {silent}");
        }
    }

    #[test]
    fn a_host_that_was_suspended_has_seen_no_round_trip() {
        assert_eq!(round_trip_ns(21_000_000, 500_000, 500_000), Some(20_000_000));
        for (held, waited) in [(0, 60_000_000_000), (60_000_000_000, 0), (u64::MAX, 1), (20_500_000, 500_000)] {
            assert_eq!(round_trip_ns(21_000_000, held, waited), None);
        }
    }
}
