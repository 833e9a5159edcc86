//! The sending end: echoes probes, sends trains, says what it sees, and paces.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fullpipe_net::sys;
use fullpipe_sobas::{MOST_PACKETS, PROBE_BYTES, PROBE_EVERY_NS, SMOOTH_BPS};

use super::actuators::{self, Pacing};
use super::datagram::Datagram;
use super::setup::{GREET_EVERY_NS, LOOK_NS, PATIENCE, SizingSetup, keep, segment};
use super::udp::{ReceivedDatagram, Udp};
use crate::connection::session::Session;
use crate::connection::stream::tcp_info;
use crate::protocol::message::Message;
use crate::protocol::sizing::{SenderStats, SizingMode};
use crate::telemetry::counters::Counters;

/// Trains that a session may ask for at first: the controller begins with no more than seventeen;
const MOST_TRAINS: u64 = 256;
/// and so many more each second: it asks for five each 300 ms at most, and seldom.
const MORE_TRAINS: u64 = 20;
/// Slow start begins again no more often than this, nanoseconds, besides round trips: the controller takes longer.
const SLOW_START_NS: u64 = 250_000_000;
const SLOW_START_RTTS: u64 = 4;
/// Time that a train may take at most, nanoseconds: 64 packets of 1,500 bytes at 1 Mb/s.
const LONGEST_SPREAD_NS: u64 = 800_000_000;
/// What the streams say is read no more often than this, nanoseconds.
const SEEN_EVERY_NS: u64 = 5_000_000;
/// Without a probe for so long, what is seen goes over the control connection, nanoseconds.
const SILENT_NS: u64 = 500_000_000;

pub(super) struct Responder {
    session: Arc<Session>,
    setup: SizingSetup,
    sockets: Arc<Vec<TcpStream>>,
    seen: (u64, SenderStats),
    /// Whether the other end has been heard.
    met: bool,
    /// When its last probe came, nanoseconds.
    probed: u64,
    /// Trains sent so far.
    trains: u64,
    /// Since when, nanoseconds.
    began: u64,
    /// Where this end may pace.
    pacing: Option<Arc<Pacing>>,
}

impl Responder {
    /// `parts`: whether streams send in parts.
    pub fn new(
        session: &Arc<Session>,
        setup: SizingSetup,
        sockets: Arc<Vec<TcpStream>>,
        parts: Arc<AtomicBool>,
        counters: Arc<Counters>,
    ) -> Responder {
        let (paced, restarts) = (setup.law.paces(), setup.law == SizingMode::All);
        let pacing = Arc::new(Pacing::new((setup.decrease > 0.0).then_some(parts)));
        if paced {
            // From the first byte on.
            pacing.set(&sockets, Some(SMOOTH_BPS));
        }
        let (all, of_all) = (sockets.clone(), pacing.clone());
        let restarted = AtomicU64::new(0);
        let apart = SLOW_START_NS + SLOW_START_RTTS * setup.rtt_ns;
        session.on_sizing(move |message| match message {
            Message::Pace { bps } if paced => of_all.set(&all, bps),
            Message::SlowStart if restarts => {
                // Whoever asks for it after each loss would take all of the path.
                let (now, last) = (sys::now_ns(), restarted.load(Ordering::Relaxed));
                if now.saturating_sub(last) >= apart {
                    restarted.store(now, Ordering::Relaxed);
                    all.iter().for_each(actuators::slow_start);
                }
            }
            Message::Sized(note) => keep(&counters, note),
            _ => {}
        });
        let seen = (0, SenderStats::default());
        let began = sys::now_ns();
        Responder {
            session: session.clone(),
            setup,
            sockets,
            seen,
            met: false,
            probed: began,
            trains: 0,
            began,
            pacing: paced.then_some(pacing),
        }
    }

    fn seen(&mut self, now: u64) -> SenderStats {
        if self.seen.0 == 0 || now.saturating_sub(self.seen.0) >= SEEN_EVERY_NS {
            let mut seen = SenderStats { rtt_us: u32::MAX, ..SenderStats::default() };
            let mut busy = 0;
            for info in self.sockets.iter().filter_map(tcp_info) {
                seen.retransmits += info.get("total_retrans").unwrap_or(0);
                seen.window_limited_us += info.get("rwnd_limited").unwrap_or(0);
                let rtt = info.get("rtt").and_then(|us| u32::try_from(us).ok()).filter(|us| *us > 0);
                seen.rtt_us = seen.rtt_us.min(rtt.unwrap_or(u32::MAX));
                let has = |name| info.get(name).is_some_and(|n| n > 0);
                busy += usize::from(has("unacked") || has("notsent_bytes"));
            }
            if let Some(pacing) = &self.pacing {
                pacing.busy(&self.sockets, busy);
            }
            self.seen = (now, seen);
        }
        self.seen.1
    }

    /// Until the session is over.
    pub fn run(mut self) {
        let (mss, packet) = self.sockets.first().map_or((0, 0), segment);
        let hello = Datagram::Hello { mss, packet };
        let patience = sys::now_ns() + PATIENCE.as_nanos() as u64 + 2 * self.setup.rtt_ns;
        let (mut greeted, mut told) = (0, self.probed);
        while !self.session.is_over() {
            let now = sys::now_ns();
            let mut wait = LOOK_NS;
            if !self.met && now < patience {
                wait = GREET_EVERY_NS;
                if now >= greeted + GREET_EVERY_NS {
                    greeted = now;
                    self.say(&hello);
                }
            }
            let silent = now.saturating_sub(self.probed) > SILENT_NS;
            if silent {
                // The controller takes it for a probe, and wants three of them within 35 ms.
                if now >= told + PROBE_EVERY_NS {
                    told = now;
                    let seen = self.seen(now);
                    if self.session.send(&Message::SenderStats(seen)).is_err() {
                        return;
                    }
                }
                wait = PROBE_EVERY_NS;
            }
            let Some(udp) = &self.setup.udp else {
                std::thread::sleep(std::time::Duration::from_nanos(wait));
                continue;
            };
            udp.wait(wait);
            while let Some(came) = self.setup.udp.as_mut().and_then(Udp::next) {
                self.heard(came, &hello, packet);
            }
        }
    }

    /// Does what the other end asks for. It may ask for anything.
    fn heard(&mut self, came: ReceivedDatagram, hello: &Datagram, packet: u32) {
        self.met = true;
        match came.word {
            Datagram::Hello { .. } => self.say(hello),
            Datagram::Probe { n, sent_ns } => {
                let now = sys::now_ns();
                self.probed = now;
                let seen = self.seen(now);
                // Reading it waits for the streams' locks.
                let held_ns = came.waited_ns.saturating_add(sys::now_ns().saturating_sub(now));
                self.say(&Datagram::Echo { n, sent_ns, held_ns, seen });
            }
            Datagram::Train { id, packets, bytes, over_ns } if self.trains < self.allowed() => {
                self.trains += 1;
                let Some(udp) = &self.setup.udp else { return };
                let bytes = bytes.min(packet);
                let packets = packets.min(MOST_PACKETS);
                let (sent, span_ns) = if over_ns == 0 {
                    udp.train(id, packets, bytes)
                } else {
                    udp.spread(id, packets, bytes, over_ns.min(LONGEST_SPREAD_NS))
                };
                udp.send(&Datagram::TrainEnd { id, sent, span_ns }, PROBE_BYTES);
            }
            _ => {}
        }
    }

    /// Trains that may have been asked for by now.
    fn allowed(&self) -> u64 {
        MOST_TRAINS + MORE_TRAINS * (sys::now_ns().saturating_sub(self.began) / 1_000_000_000)
    }

    fn say(&self, word: &Datagram) {
        if let Some(udp) = &self.setup.udp {
            udp.send(word, PROBE_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, TcpListener};

    use proptest::prelude::*;

    use super::super::datagram::Keys;
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn anything_may_be_asked(kind in 0..6u8, mut bytes in any::<[u8; 80]>()) {
            let here = IpAddr::from([127, 0, 0, 1]);
            let listener = TcpListener::bind((here, 0)).unwrap();
            let sockets = Arc::new(vec![TcpStream::connect(listener.local_addr().unwrap()).unwrap()]);
            let far = Udp::bind(here, 0).unwrap();
            let socket = Udp::bind(here, 0).unwrap();
            let udp = Some(Udp::new(socket, far.local_addr().ok(), Keys::new(&[1; 32], true)));
            let setup = SizingSetup { law: SizingMode::All, udp, rtt_ns: 0, buffer: fullpipe_path::Buffer::Auto, decrease: 0.5 };
            let session = Session::new(String::new(), Box::new(std::io::sink()));
            let mut answer = Responder::new(&session, setup, sockets, Arc::default(), Arc::default());
            bytes[0] = kind;
            // Of most bytes; the numbers are of all magnitudes.
            if let Ok(word) = postcard::from_bytes(&bytes) {
                answer.heard(ReceivedDatagram { word, stamp_ns: 0, waited_ns: 0 }, &Datagram::Hello { mss: 1448, packet: 1500 }, 1500);
            }
        }
    }
}
