//! The sending end's part of SOBAS: echoes probes, sends packet trains, reports its streams' statistics, and paces them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fullpipe_net::sys;
use fullpipe_net::tcp_info::TcpInfo;
use fullpipe_sobas::{
    FIRST_TRAIN_PACKETS, MAX_TRAIN_PACKET_BYTES, MAX_TRAIN_PACKETS, PROBE_BYTES, PROBE_INTERVAL_NS, first_pacing_bps,
};

use super::actuators::{Pacing, Streams};
use super::datagram::Datagram;
use super::setup::{GREET_EVERY_NS, PATIENCE, SESSION_CHECK_NS, SizingSetup, UNASKED_TRAINS, keep_event, segment};
use super::udp::{ReceivedDatagram, Udp};
use crate::connection::session::Session;
use crate::connection::stream::{is_busy, tcp_info};
use crate::protocol::message::Message;
use crate::protocol::sizing::{BBR, SenderStats, SizingMode};
use crate::telemetry::counters::Counters;

/// Limits on what the receiving end may ask for, and on how often this end reports.
struct Limits {
    /// Packet trains that may be asked for at the start. The controller starts with at most seventeen.
    first_trains: u64,
    /// Further trains that may be asked for in each second. The controller asks for at most five in 300 ms, and rarely.
    trains_per_s: u64,
    /// Least time between two restarts of slow start, nanoseconds, in addition to `slow_start_rtts`. The controller waits
    /// longer.
    slow_start_ns: u64,
    /// Round trips that are added to `slow_start_ns`.
    slow_start_rtts: u64,
    /// Longest time over which a train is spread, nanoseconds: 64 packets of 1,500 bytes at 1 Mb/s.
    max_spread_ns: u64,
    /// Least time between two reads of the streams' TCP_INFO, nanoseconds.
    stats_ns: u64,
    /// Time without a probe after which statistics go over the control connection, nanoseconds.
    silent_ns: u64,
    /// Least RTT at which trains are sent unasked, nanoseconds: twice that from which on Hybla's slow start is faster than Reno's
    /// (`rtt0`, net/ipv4/tcp_hybla.c).
    unasked_rtt_ns: u64,
    /// Time from the begin to the first of them, and between two, nanoseconds. The first windows are on the path before them.
    unasked_apart_ns: u64,
}

const LIMITS: Limits = Limits {
    first_trains: 256,
    trains_per_s: 20,
    slow_start_ns: 250_000_000,
    slow_start_rtts: 4,
    max_spread_ns: 800_000_000,
    stats_ns: 5_000_000,
    silent_ns: 500_000_000,
    unasked_rtt_ns: 50_000_000,
    unasked_apart_ns: 4_000_000,
};

/// The sending end's side of the conversation with the controller.
pub(super) struct Responder {
    session: Arc<Session>,
    setup: SizingSetup,
    streams: Arc<Streams>,
    /// When the statistics were last read, nanoseconds, and what they were.
    stats: (u64, SenderStats),
    /// Whether a datagram of the other end has arrived.
    met: bool,
    /// When the last probe arrived, nanoseconds.
    probed: u64,
    /// Number of trains sent so far.
    trains: u64,
    /// Number of those that nobody asked for.
    unasked: u32,
    /// When this began, nanoseconds.
    began: u64,
    /// Sets the streams' pacing rates; `None` if the mode does not pace.
    pacing: Option<Arc<Pacing>>,
}

impl Responder {
    /// Makes a responder. Of the streams, the given number send from the start.
    pub fn new(
        session: &Arc<Session>,
        setup: SizingSetup,
        (streams, sending): (Arc<Streams>, u16),
        counters: Arc<Counters>,
    ) -> Responder {
        let (paced, restarts, changes) = (setup.law.paces(), setup.law.restarts(), setup.law == SizingMode::All);
        let pacing = Arc::new(Pacing::new(&streams, setup.decrease == 0.0, setup.limit_bps));
        if paced {
            // From the first byte on, among those that send.
            let (mss, packet) = streams.first().map_or((1448, 1500), |stream| segment(&**stream));
            pacing.busy(&streams, usize::from(sending));
            pacing.set(&streams, Some(first_pacing_bps(setup.assumed_bps as f64, mss, packet) as u64));
        }
        let (all, of_all) = (streams.clone(), pacing.clone());
        let restarted = AtomicU64::new(0);
        let apart = LIMITS.slow_start_ns + LIMITS.slow_start_rtts * setup.rtt_ns;
        session.on_sizing(move |message| match message {
            Message::Pace { bps } if paced => of_all.set(&all, bps),
            // Before they begin, so that they do not all take the shares of the few.
            Message::Streams { sending } if paced => of_all.busy(&all, usize::from(sending)),
            Message::SlowStart if restarts => {
                // A receiver that asked for it after each loss would push all others off the path.
                let (now, last) = (sys::now_ns(), restarted.load(Ordering::Relaxed));
                if now.saturating_sub(last) >= apart {
                    restarted.store(now, Ordering::Relaxed);
                    for stream in all.iter() {
                        // Where the transport cannot do that, nothing changes.
                        let _ = stream.restart_slow_start();
                    }
                }
            }
            Message::BearLosses if changes => {
                for stream in all.iter() {
                    let _ = stream.set_congestion_control(BBR);
                }
            }
            Message::Sized(note) => keep_event(&counters, note),
            _ => {}
        });
        let stats = (0, SenderStats::default());
        let began = sys::now_ns();
        Responder {
            session: session.clone(),
            setup,
            streams,
            stats,
            met: false,
            probed: began,
            trains: 0,
            unasked: 0,
            began,
            pacing: paced.then_some(pacing),
        }
    }

    /// The streams' statistics, read anew if they are old.
    fn stats(&mut self, now: u64) -> SenderStats {
        if self.stats.0 == 0 || now.saturating_sub(self.stats.0) >= LIMITS.stats_ns {
            let (seen, busy) = sum(self.streams.iter().filter_map(|stream| tcp_info(&**stream)));
            if let Some(pacing) = &self.pacing {
                pacing.busy(&self.streams, busy);
            }
            self.stats = (now, seen);
        }
        self.stats.1
    }

    /// Runs until the session is over.
    pub fn run(mut self) {
        let (mss, packet) = self.streams.first().map_or((0, 0), |stream| segment(&**stream));
        let hello = Datagram::Hello { mss, packet };
        let patience = sys::now_ns() + PATIENCE.as_nanos() as u64 + 2 * self.setup.rtt_ns;
        let (mut greeted, mut told) = (0, self.probed);
        while !self.session.is_over() {
            let now = sys::now_ns();
            let mut wait = SESSION_CHECK_NS;
            if !self.met && now < patience {
                wait = GREET_EVERY_NS;
                if now >= greeted + GREET_EVERY_NS {
                    greeted = now;
                    self.send(&hello);
                }
            }
            wait = wait.min(self.send_unasked(now, packet));
            let silent = now.saturating_sub(self.probed) > LIMITS.silent_ns;
            if silent {
                // The controller uses these as probes, and needs three of them within 35 ms.
                if now >= told + PROBE_INTERVAL_NS {
                    told = now;
                    let seen = self.stats(now);
                    if self.session.send(&Message::SenderStats(seen)).is_err() {
                        return;
                    }
                }
                wait = PROBE_INTERVAL_NS;
            }
            let Some(udp) = &self.setup.udp else {
                std::thread::sleep(std::time::Duration::from_nanos(wait));
                continue;
            };
            udp.wait(wait);
            while let Some(came) = self.setup.udp.as_mut().and_then(Udp::next) {
                self.received(came, &hello, packet);
            }
        }
    }

    /// Does what a datagram asks for. The other end is not trusted: it may ask for anything.
    fn received(&mut self, came: ReceivedDatagram, hello: &Datagram, packet: u32) {
        self.met = true;
        match came.datagram {
            Datagram::Hello { .. } => self.send(hello),
            Datagram::Probe { n, sent_ns } => {
                let now = sys::now_ns();
                self.probed = now;
                let seen = self.stats(now);
                // Reading the statistics waits for the streams' locks in the kernel.
                let held_ns = came.waited_ns.saturating_add(sys::now_ns().saturating_sub(now));
                self.send(&Datagram::Echo { n, sent_ns, held_ns, seen });
            }
            Datagram::Train { id, packets, bytes, over_ns } if self.trains < self.allowed() => {
                self.trains += 1;
                let Some(udp) = &self.setup.udp else { return };
                let bytes = bytes.min(packet);
                let packets = packets.min(MAX_TRAIN_PACKETS);
                let (sent, span_ns) = if over_ns == 0 {
                    udp.train(id, packets, bytes)
                } else {
                    udp.spread(id, packets, bytes, over_ns.min(LIMITS.max_spread_ns))
                };
                udp.send(&Datagram::TrainEnd { id, sent, span_ns }, PROBE_BYTES);
            }
            _ => {}
        }
    }

    /// Sends the next train that nobody asks for, once it is due. Returns the time until the next one, nanoseconds.
    fn send_unasked(&mut self, now: u64, packet: u32) -> u64 {
        let wanted = self.pacing.is_some() && self.setup.rtt_ns >= LIMITS.unasked_rtt_ns;
        let Some(udp) = self.setup.udp.as_ref().filter(|udp| wanted && udp.knows_peer()) else { return u64::MAX };
        if self.unasked >= UNASKED_TRAINS {
            return u64::MAX;
        }
        let due = self.began + LIMITS.unasked_apart_ns * u64::from(self.unasked + 1);
        if now < due {
            return due - now;
        }
        let id = self.unasked;
        self.unasked += 1;
        let (sent, span_ns) = udp.train(id, FIRST_TRAIN_PACKETS, packet.min(MAX_TRAIN_PACKET_BYTES));
        udp.send(&Datagram::TrainEnd { id, sent, span_ns }, PROBE_BYTES);
        LIMITS.unasked_apart_ns
    }

    /// Number of trains that the other end may have asked for by now.
    fn allowed(&self) -> u64 {
        LIMITS.first_trains + LIMITS.trains_per_s * (sys::now_ns().saturating_sub(self.began) / 1_000_000_000)
    }

    fn send(&self, datagram: &Datagram) {
        if let Some(udp) = &self.setup.udp {
            udp.send(datagram, PROBE_BYTES);
        }
    }
}

/// The statistics of all streams together, and how many of them send. Only those tell the path's round-trip time: the kernel's figure
/// for one that sends nothing is that of its handshake, or of its last data.
fn sum(streams: impl Iterator<Item = TcpInfo>) -> (SenderStats, usize) {
    let mut seen = SenderStats { rtt_us: u32::MAX, ..SenderStats::default() };
    let mut busy = 0;
    for info in streams {
        seen.retransmits += info.get("total_retrans").unwrap_or(0);
        seen.window_limited_us += info.get("rwnd_limited").unwrap_or(0);
        if is_busy(&info) {
            busy += 1;
            let rtt = info.get("rtt").and_then(|us| u32::try_from(us).ok()).filter(|us| *us > 0);
            seen.rtt_us = seen.rtt_us.min(rtt.unwrap_or(u32::MAX));
        }
    }
    (seen, busy)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{IpAddr, TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use fullpipe_net::stream::DataStream;
    use fullpipe_net::stream::tcp::TcpDataStream;
    use proptest::prelude::*;

    use super::super::datagram::Keys;
    use super::*;

    /// One on this machine, and the socket to which it sends.
    fn responder(rtt_ns: u64) -> (Responder, std::net::UdpSocket) {
        let here = IpAddr::from([127, 0, 0, 1]);
        let listener = TcpListener::bind((here, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = Udp::bind(here, 0).unwrap();
        let socket = Udp::bind(here, 0).unwrap();
        let setup = SizingSetup {
            law: SizingMode::All,
            udp: Some(Udp::new(socket, far.local_addr().ok(), Keys::new(&[1; 32], true))),
            rtt_ns,
            buffer: fullpipe_path::Buffer::Auto,
            assumed_bps: 1_000_000_000,
            limit_bps: None,
            decrease: 0.5,
        };
        let session = Session::new(String::new(), Box::new(std::io::sink()));
        let streams = Arc::new([TcpDataStream::new(stream).handle()]);
        (Responder::new(&session, setup, (streams, 0), Arc::default()), far)
    }

    #[test]
    fn only_streams_that_send_tell_the_round_trip_time() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let [idle, busy] = [(), ()].map(|()| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        busy.set_nonblocking(true).unwrap();
        // Nobody reads it, so that some of it waits.
        while (&busy).write(&[0; 1 << 16]).is_ok() {}
        let info = |stream: &TcpStream| TcpInfo::read(stream.as_fd()).unwrap();
        assert_eq!(sum([info(&idle)].into_iter()), (SenderStats { rtt_us: u32::MAX, ..SenderStats::default() }, 0));
        let rtt_us = info(&busy).get("rtt").unwrap();
        let (seen, count) = sum([info(&idle), info(&busy)].into_iter());
        assert_eq!((u64::from(seen.rtt_us), count), (rtt_us, 1));
    }

    #[test]
    fn two_trains_come_unasked_on_a_long_path() {
        for (rtt_ms, expected) in [(10, [0, 0, 0]), (100, [0, 33, 33])] {
            let (mut responder, far) = responder(rtt_ms * 1_000_000);
            let began = responder.began;
            let came = [0, 5_000_000, 20_000_000].map(|after| {
                // More calls than trains.
                for _ in 0..3 {
                    responder.send_unasked(began + after, 9000);
                }
                std::iter::from_fn(|| far.recv(&mut [0; 2000]).ok()).count()
            });
            assert_eq!(came, expected, "{rtt_ms} ms");
            assert_eq!(responder.send_unasked(began + 1_000_000_000, 9000), u64::MAX);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn anything_may_be_asked(kind in 0..6u8, mut bytes in any::<[u8; 80]>()) {
            let (mut responder, _far) = responder(0);
            bytes[0] = kind;
            // Most byte strings parse, and their numbers are of all magnitudes.
            if let Ok(datagram) = postcard::from_bytes(&bytes) {
                responder.received(ReceivedDatagram { datagram, stamp_ns: 0, waited_ns: 0 }, &Datagram::Hello { mss: 1448, packet: 1500 }, 1500);
            }
        }
    }
}
