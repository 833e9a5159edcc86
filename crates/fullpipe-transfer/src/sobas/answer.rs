//! The sending end: echoes probes, sends trains, says what it sees, and paces.

use std::net::TcpStream;
use std::sync::Arc;

use fullpipe_net::sys;
use fullpipe_sobas::PROBE_BYTES;

use super::wire::Word;
use super::{Aside, GREET_EVERY_NS, LOOK_NS, Law, PATIENCE, Seen, actuate, read, segment};
use crate::counters::Counters;
use crate::proto::Message;
use crate::session::{Session, lock};

/// Trains that a session may ask for: the controller asks for no more than twelve at a time.
const MOST_TRAINS: u32 = 256;
/// Packets of the longest train, and IP bytes of each.
const MOST_PACKETS: u16 = 1024;
/// Time that a train may take at most, nanoseconds: 64 packets of 1,500 bytes at 1 Mb/s.
const LONGEST_SPREAD_NS: u64 = 800_000_000;
/// What the streams say is read no more often than this, nanoseconds.
const SEEN_EVERY_NS: u64 = 5_000_000;
/// Without a probe for so long, what is seen goes over the control connection, nanoseconds.
const SILENT_NS: u64 = 500_000_000;
/// And no more often than this, or a round trip, nanoseconds.
const TELL_EVERY_NS: u64 = 20_000_000;
/// A pacing rate that no path has, bit/s: from the first byte on TCP spreads its segments at its own rate.
const SMOOTH: u64 = 1_000_000_000_000;

pub(super) struct Answer {
    session: Arc<Session>,
    aside: Aside,
    sockets: Arc<Vec<TcpStream>>,
    seen: (u64, Seen),
}

impl Answer {
    pub fn new(session: &Arc<Session>, aside: Aside, sockets: Arc<Vec<TcpStream>>, counters: Arc<Counters>) -> Answer {
        let paced = matches!(aside.law, Law::Pacing | Law::Both);
        if paced {
            actuate::pace(&sockets, Some(SMOOTH));
        }
        let all = sockets.clone();
        session.aside(move |message| match message {
            Message::Pace { bps } if paced => actuate::pace(&all, bps),
            Message::Sized(note) => lock(&counters.notes).push(note),
            _ => {}
        });
        Answer { session: session.clone(), aside, sockets, seen: (0, Seen::default()) }
    }

    fn seen(&mut self, now: u64) -> Seen {
        if self.seen.0 == 0 || now.saturating_sub(self.seen.0) >= SEEN_EVERY_NS {
            let mut seen = Seen { rtt_us: u32::MAX, ..Seen::default() };
            for info in self.sockets.iter().filter_map(read) {
                seen.retransmits += info.get("total_retrans").unwrap_or(0);
                seen.window_limited_us += info.get("rwnd_limited").unwrap_or(0);
                let rtt = info.get("rtt").and_then(|us| u32::try_from(us).ok()).filter(|us| *us > 0);
                seen.rtt_us = seen.rtt_us.min(rtt.unwrap_or(u32::MAX));
            }
            self.seen = (now, seen);
        }
        self.seen.1
    }

    /// Until the session is over.
    pub fn run(mut self) {
        let (mss, packet) = self.sockets.first().map_or((0, 0), segment);
        let began = sys::now_ns();
        let patience = began + PATIENCE.as_nanos() as u64 + 2 * self.aside.rtt_ns;
        let (mut met, mut greeted, mut probed, mut told, mut trains) = (false, 0, began, began, 0u32);
        while !self.session.is_over() {
            let now = sys::now_ns();
            let mut wait = LOOK_NS;
            if !met && now < patience {
                wait = GREET_EVERY_NS;
                if now >= greeted + GREET_EVERY_NS {
                    greeted = now;
                    self.say(&Word::Hello { mss, packet });
                }
            }
            let silent = now.saturating_sub(probed) > SILENT_NS;
            if silent {
                let every = TELL_EVERY_NS.max(self.aside.rtt_ns);
                if now >= told + every {
                    told = now;
                    let seen = self.seen(now);
                    if self.session.send(&Message::Seen(seen)).is_err() {
                        return;
                    }
                }
                wait = every.min(LOOK_NS);
            }
            let Some(udp) = &self.aside.udp else {
                std::thread::sleep(std::time::Duration::from_nanos(wait));
                continue;
            };
            udp.wait(wait);
            while let Some(came) = self.aside.udp.as_mut().and_then(super::udp::Udp::next) {
                met = true;
                match came.word {
                    Word::Hello { .. } => self.say(&Word::Hello { mss, packet }),
                    Word::Probe { n, sent_ns } => {
                        let now = sys::now_ns();
                        probed = now;
                        let seen = self.seen(now);
                        self.say(&Word::Echo { n, sent_ns, held_ns: came.waited_ns, seen });
                    }
                    Word::Train { id, packets, bytes, over_ns } if trains < MOST_TRAINS => {
                        trains += 1;
                        if let Some(udp) = &self.aside.udp {
                            let bytes = bytes.min(packet);
                            let packets = packets.min(MOST_PACKETS);
                            let (sent, span_ns) = if over_ns == 0 {
                                udp.train(id, packets, bytes)
                            } else {
                                udp.spread(id, packets, bytes, over_ns.min(LONGEST_SPREAD_NS))
                            };
                            udp.send(&Word::TrainEnd { id, sent, span_ns }, PROBE_BYTES);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn say(&self, word: &Word) {
        if let Some(udp) = &self.aside.udp {
            udp.send(word, PROBE_BYTES);
        }
    }
}
