//! Two ends over a simulated path, in simulated time.

pub mod gaps;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

use fullpipe_udt::handshake::Handshake;
use fullpipe_udt::packet::IP_UDP_BYTES;
use fullpipe_udt::seq::SEQ_MASK;
use fullpipe_udt::{Caller, Config, Connection, Listener, Progress, Request, Transmit};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

pub const SECOND: u64 = 1_000_000_000;
pub const MS: u64 = 1_000_000;

/// Whether a datagram is lost.
pub type Lose = Box<dyn FnMut(&[u8]) -> bool>;

/// One direction of a path.
pub struct Link {
    /// Bytes per second with IP and UDP headers; `None`: without limit.
    pub rate: Option<f64>,
    pub delay_ns: u64,
    /// Bytes that wait for the link, at most.
    pub queue_bytes: f64,
    /// Probabilities, for each datagram.
    pub loss: f64,
    pub duplicate: f64,
    pub reorder: f64,
    /// How much later a reordered datagram arrives.
    pub reorder_ns: u64,
    /// Decides whether a datagram is lost, before all else.
    pub lose: Lose,
    pub sent: u64,
    pub dropped: u64,
    free_ns: f64,
    order: u64,
    flying: BinaryHeap<Reverse<(u64, u64, Vec<u8>)>>,
    rng: Pcg64Mcg,
}

impl Link {
    pub fn new(rate: Option<f64>, delay_ns: u64, queue_bytes: f64, seed: u64) -> Link {
        Link {
            rate,
            delay_ns,
            queue_bytes,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_ns: 0,
            lose: Box::new(|_| false),
            sent: 0,
            dropped: 0,
            free_ns: 0.0,
            order: 0,
            flying: BinaryHeap::new(),
            rng: Pcg64Mcg::seed_from_u64(seed),
        }
    }

    pub fn send(&mut self, now_ns: u64, datagram: &[u8]) {
        self.sent += 1;
        let now = now_ns as f64;
        let mut leaves = now;
        if let Some(rate) = self.rate {
            let waiting = (self.free_ns - now).max(0.0) * rate / 1e9;
            let bytes = (datagram.len() + IP_UDP_BYTES) as f64;
            if waiting + bytes > self.queue_bytes {
                self.dropped += 1;
                return;
            }
            self.free_ns = self.free_ns.max(now) + bytes * 1e9 / rate;
            leaves = self.free_ns;
        }
        if (self.lose)(datagram) || self.rng.random_bool(self.loss) {
            self.dropped += 1;
            return;
        }
        let copies = 1 + usize::from(self.rng.random_bool(self.duplicate));
        for _ in 0..copies {
            let late = if self.rng.random_bool(self.reorder) { self.reorder_ns } else { 0 };
            self.order += 1;
            self.flying.push(Reverse((leaves as u64 + self.delay_ns + late, self.order, datagram.to_vec())));
        }
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.flying.peek().map(|Reverse((at, ..))| *at)
    }

    pub fn arrived(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        let due = self.next_ns().is_some_and(|at| at <= now_ns);
        due.then(|| self.flying.pop().map(|Reverse((.., datagram))| datagram)).flatten()
    }
}

/// Byte of a test's data at an offset.
pub fn byte(offset: u64) -> u8 {
    (offset ^ (offset >> 8) ^ (offset >> 19)) as u8
}

/// One end: a connection, and a program that writes so many bytes and reads all that comes.
pub struct Host {
    pub connection: Connection,
    pub to_write: u64,
    pub written: u64,
    pub read: u64,
    /// Whether the end finishes once all is written.
    pub finishes: bool,
    /// What the end's clock shows more than the simulation's.
    pub clock_ahead_ns: i64,
    pub reads: bool,
    /// Whether the data differs from byte to byte and is checked; else it is zeros.
    pub checks: bool,
    pub largest_burst: usize,
}

impl Host {
    fn new(connection: Connection) -> Host {
        Host {
            connection,
            to_write: 0,
            written: 0,
            read: 0,
            finishes: false,
            clock_ahead_ns: 0,
            reads: true,
            checks: true,
            largest_burst: 0,
        }
    }

    fn clock(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add_signed(self.clock_ahead_ns)
    }

    fn next_ns(&self) -> Option<u64> {
        self.connection.next_timeout().map(|at| at.saturating_add_signed(-self.clock_ahead_ns))
    }

    /// Everything that can happen without time going on.
    fn work(&mut self, now_ns: u64, link: &mut Link) {
        let now = self.clock(now_ns);
        self.connection.handle_timeout(now);
        if self.reads {
            self.read_all();
        }
        while self.written < self.to_write {
            let n = (self.to_write - self.written).min(self.connection.room_bytes()).min(1 << 16);
            if n == 0 {
                break;
            }
            let data: Vec<u8> = match self.checks {
                true => (self.written..self.written + n).map(byte).collect(),
                false => vec![0; n as usize],
            };
            self.written += self.connection.write(now, &data) as u64;
        }
        if self.finishes && self.written == self.to_write {
            self.connection.finish(now);
        }
        let mut burst = 0;
        while let Some(transmit) = self.connection.poll_transmit(now, 65_000) {
            match transmit {
                Transmit::Control(packet) => link.send(now_ns, packet),
                Transmit::Data(run) => {
                    burst += run.packets;
                    assert_eq!(run.bytes.chunks(run.segment_bytes).count(), run.packets);
                    run.bytes.chunks(run.segment_bytes).for_each(|packet| link.send(now_ns, packet));
                }
            }
        }
        self.largest_burst = self.largest_burst.max(burst);
    }

    fn read_all(&mut self) {
        loop {
            let bytes = self.connection.readable();
            if bytes.is_empty() {
                break;
            }
            assert!(
                !self.checks || (self.read..).zip(bytes).all(|(offset, got)| *got == byte(offset)),
                "wrong bytes after {}",
                self.read
            );
            let n = bytes.len();
            self.read += n as u64;
            self.connection.consume(n);
        }
    }
}

/// Two connected ends and the path between them.
pub struct Pair {
    pub now_ns: u64,
    pub a: Host,
    pub b: Host,
    pub ab: Link,
    pub ba: Link,
    /// Time that passed until both ends were connected.
    pub connected_ns: u64,
}

pub const A: &str = "10.0.1.1:4000";
pub const B: &str = "10.0.2.1:5000";

pub fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

impl Pair {
    /// Connects `a`, the caller, to `b`, the listener.
    pub fn connect(a: Config, b: Config, mut ab: Link, mut ba: Link, seed: u64) -> Pair {
        let mut now = 100_000 * SECOND;
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut listener = Listener::new(b, 1, bytes);
        let mut caller = Caller::new(now, a, address(B), bytes[..16].try_into().unwrap());
        let mut accepted = None;
        let start = now;
        loop {
            if let Some(request) = caller.poll_transmit(now) {
                ab.send(now, &request);
            }
            let next = [Some(caller.next_timeout()), ab.next_ns(), ba.next_ns()];
            now = now.max(next.into_iter().flatten().min().unwrap());
            while let Some(datagram) = ab.arrived(now) {
                match listener.handle_datagram(now, address(A), &datagram) {
                    Request::Ignored => {}
                    Request::Answer(answer) => ba.send(now, &answer),
                    Request::Accepted(connection, answer) => {
                        ba.send(now, &answer);
                        assert!(accepted.replace(*connection).is_none(), "one request, two connections");
                    }
                }
            }
            while let Some(datagram) = ba.arrived(now) {
                match caller.handle_datagram(now, &datagram) {
                    Progress::Waiting => {}
                    Progress::Connected(connection) => {
                        let b = Host::new(accepted.expect("the listener has accepted"));
                        let (a, connected_ns) = (Host::new(*connection), now - start);
                        return Pair { now_ns: now, a, b, ab, ba, connected_ns };
                    }
                    Progress::Failed(error) => panic!("{error:?}"),
                }
            }
            if let Progress::Failed(error) = caller.handle_timeout(now) {
                panic!("{error:?} after {} ns", now - start);
            }
        }
    }

    /// Connects with a seed whose first sequence number is less than `packets` before the wrap.
    pub fn connect_near_wrap(config: Config, ab: Link, ba: Link, packets: u32) -> Pair {
        let near = |seed: &u64| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&seed.to_le_bytes());
            let mut caller = Caller::new(0, config.clone(), address(B), bytes);
            let request = caller.poll_transmit(0).and_then(|bytes| Handshake::from_datagram(&bytes));
            request.is_some_and(|(request, _)| SEQ_MASK - request.isn < packets)
        };
        let seed = (0..).find(near).unwrap();
        Pair::connect(config.clone(), config.clone(), ab, ba, seed)
    }

    /// One event: the next datagram or timer. False if nothing is left to happen.
    pub fn step(&mut self) -> bool {
        self.a.work(self.now_ns, &mut self.ab);
        self.b.work(self.now_ns, &mut self.ba);
        let next = [self.a.next_ns(), self.b.next_ns(), self.ab.next_ns(), self.ba.next_ns()];
        let Some(next) = next.into_iter().flatten().min() else { return false };
        self.now_ns = self.now_ns.max(next);
        while let Some(datagram) = self.ab.arrived(self.now_ns) {
            let clock = self.b.clock(self.now_ns);
            self.b.connection.handle_datagrams(clock, &datagram, datagram.len());
        }
        while let Some(datagram) = self.ba.arrived(self.now_ns) {
            let clock = self.a.clock(self.now_ns);
            self.a.connection.handle_datagrams(clock, &datagram, datagram.len());
        }
        true
    }

    /// Goes on until an instant.
    pub fn run_to(&mut self, end_ns: u64) {
        while self.now_ns < end_ns && self.step() {}
    }

    /// Goes on until nothing happens any more.
    pub fn run_to_end(&mut self, limit_ns: u64) {
        let limit = self.now_ns + limit_ns;
        while self.step() {
            assert!(self.now_ns < limit, "no end: {:?} {:?}", self.a.connection.ended(), self.b.connection.ended());
        }
    }

    /// Sends bytes from `a` to `b`, finishes, and checks that they came.
    pub fn transfer(&mut self, bytes: u64, limit_ns: u64) {
        self.a.to_write = bytes;
        self.a.finishes = true;
        self.run_to_end(limit_ns);
        assert_eq!(self.b.read, bytes);
        assert_eq!(self.a.connection.ended(), Some(fullpipe_udt::End::Finished));
        assert_eq!(self.b.connection.ended(), Some(fullpipe_udt::End::ByPeer));
    }
}
