//! Admission control of a server: pending connections, which have not shown yet what they want, and places of clients.
//!
//! Anyone may connect, and send nothing, or a byte now and then. A pending connection takes no client's place, is closed
//! after a while, and is one of few from its network. When there are too many, the server closes the oldest one from the
//! most crowded network, not the newcomer. Connections that have proved that they know a token are counted apart.

use std::collections::BTreeMap;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::NetError;
use crate::callers::{Crowd, Network};
use crate::one_client::{MeasurementId, Member, OneClient};

/// Longest time that a connection may stay pending. It suffices for TLS and two messages over a long and lossy path.
const MAX_PENDING_TIME: Duration = Duration::from_secs(20);
/// Time between two looks for connections that have been pending too long.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Most pending connections without proof of a token, or four times as many as there are places if that is more.
const MAX_PENDING: usize = 256;
/// Most pending connections without proof of a token from one [`Network`], or as many as there are places if that is more:
/// clients that start at the same time, as on a cluster, are all let in.
const MAX_PENDING_PER_NETWORK: usize = 64;
/// Most pending connections with proof of a token. Further ones are treated as if they had none.
const MAX_PROVEN: usize = 256;
/// Most lines per second in the log about connections whose run or copy has not begun.
const MAX_LOG_LINES_PER_S: u32 = 20;

/// The purpose of a client. Clients of one purpose leave the places of the other free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A measurement. On a server with tokens, the client needs one.
    Measurement,
    /// Anything else.
    Other,
}

/// Why a client gets no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlace {
    /// All places are taken; this many clients are served at once.
    Busy(usize),
    /// The server serves one client, and that is another one.
    NotTheOne,
}

/// Places of clients, counted apart for each [`Purpose`].
#[derive(Debug, Clone)]
pub(crate) struct Places {
    most: usize,
    taken: [Arc<AtomicUsize>; 2],
    one: Option<OneClient>,
}

impl Places {
    /// Places for so many clients, or for the one client alone if there is such a limit.
    pub(crate) fn new(most: usize, one: Option<OneClient>) -> Places {
        Places { most, taken: Default::default(), one }
    }

    fn take(&self, kind: Purpose) -> Result<Place, NoPlace> {
        let taken = &self.taken[kind as usize];
        taken
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| (n < self.most).then_some(n + 1))
            .map_err(|_| NoPlace::Busy(self.most))?;
        Ok(Place(taken.clone()))
    }
}

/// A client's place, taken until this is dropped.
#[derive(Debug)]
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A pending connection.
#[derive(Debug)]
struct PendingConnection {
    network: Network,
    since: Instant,
    socket: TcpStream,
    /// Whether the connection has proved that its client knows a token. Then it is not among [`Room::unproven`].
    proven: bool,
    ended: Option<Why>,
}

/// The reason why the server has closed a pending connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Late,
    Crowded,
}

impl PendingConnection {
    fn end(&mut self, why: Why) {
        self.ended.get_or_insert(why);
        // A connection that is closed already needs no shutting down.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

#[derive(Debug, Default)]
struct Room {
    pending: BTreeMap<u64, PendingConnection>,
    /// Pending connections without proof of a token that have not been closed.
    unproven: Crowd,
    /// Number of pending connections with proof of a token.
    proven_count: usize,
    last: u64,
    /// Networks from which sessions expect streams at this port, and how many.
    expected: BTreeMap<Network, usize>,
    /// Whether a thread looks for connections that have been pending too long.
    watched: bool,
}

impl Room {
    /// The connection to close when there are too many. Those from where streams are expected are closed last.
    fn victim(&self) -> Option<u64> {
        self.unproven.victim(|network| self.expected.contains_key(network))
    }

    /// Closes a connection to make room.
    fn close_for_room(&mut self, number: u64) {
        if let Some(one) = self.pending.get_mut(&number) {
            one.end(Why::Crowded);
            self.unproven.remove(number, one.network);
        }
    }

    fn leave(&mut self, number: u64) -> Option<PendingConnection> {
        let one = self.pending.remove(&number)?;
        self.unproven.remove(number, one.network);
        self.proven_count -= usize::from(one.proven);
        Some(one)
    }
}

type All = Arc<Mutex<Room>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All pending connections of a server. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Admission {
    /// The lock guards all counts together. It is held only to change them, never across a wait.
    all: All,
}

impl Admission {
    /// Takes a new connection in, and closes another one if there are too many.
    ///
    /// # Errors
    /// The server has no descriptor or no thread for it; the error says which.
    pub(crate) fn enter(&self, from: IpAddr, socket: &TcpStream, places: &Places) -> Result<PendingClient, String> {
        let mut room = lock(&self.all);
        let socket = socket.try_clone().map_err(|e| format!("doubling a descriptor: {e}"))?;
        if !room.watched {
            // The thread ends when no connection is pending.
            let all = self.all.clone();
            let watch = std::thread::Builder::new().name("admission".into()).stack_size(64 << 10);
            watch.spawn(move || watch_over(&all)).map_err(|e| format!("starting a thread: {e}"))?;
            room.watched = true;
        }
        room.last += 1;
        let (number, network) = (room.last, Network::from(from));
        room.pending
            .insert(number, PendingConnection { network, since: Instant::now(), socket, proven: false, ended: None });
        room.unproven.insert(number, network);
        let expected = room.expected.get(&network).copied().unwrap_or(0);
        let all_expected: usize = room.expected.values().sum();
        let victim = if room.unproven.members_from(network)
            > places.most.max(MAX_PENDING_PER_NETWORK).saturating_add(expected)
        {
            room.unproven.oldest_from(network)
        } else if room.unproven.len() > places.most.saturating_mul(4).max(MAX_PENDING).saturating_add(all_expected) {
            room.victim()
        } else {
            None
        };
        if let Some(victim) = victim {
            room.close_for_room(victim);
        }
        Ok(PendingClient {
            entry: (self.all.clone(), number),
            places: places.clone(),
            place: Mutex::default(),
            member: Mutex::default(),
            known: AtomicBool::new(false),
        })
    }

    /// Makes room for `n` streams from a network, besides the pending connections of everybody.
    pub(crate) fn expect(&self, network: Network, n: usize) -> ExpectedStreams {
        *lock(&self.all).expected.entry(network).or_default() += n;
        ExpectedStreams { all: self.all.clone(), network, n }
    }

    /// Closes a pending connection because the process has no descriptors left; returns whether there was one.
    pub(crate) fn make_room(&self) -> bool {
        let mut room = lock(&self.all);
        let victim = room.victim();
        if let Some(victim) = victim {
            room.close_for_room(victim);
        }
        victim.is_some()
    }
}

/// Streams that are expected at a server's own port, until this is dropped.
#[derive(Debug)]
pub(crate) struct ExpectedStreams {
    all: All,
    network: Network,
    n: usize,
}

impl Drop for ExpectedStreams {
    fn drop(&mut self) {
        let mut room = lock(&self.all);
        if let Some(expected) = room.expected.get_mut(&self.network) {
            *expected -= self.n;
            if *expected == 0 {
                room.expected.remove(&self.network);
            }
        }
    }
}

/// Closes connections that have been pending too long, until none is pending.
fn watch_over(all: &All) {
    loop {
        std::thread::sleep(LOOK_INTERVAL);
        let mut room = lock(all);
        if room.pending.is_empty() {
            room.watched = false;
            return;
        }
        for one in room.pending.values_mut().filter(|one| one.since.elapsed() > MAX_PENDING_TIME) {
            one.end(Why::Late);
        }
    }
}

/// A connection that may become a client.
#[derive(Debug)]
pub struct PendingClient {
    /// The list of pending connections, and this connection's number in it.
    entry: (All, u64),
    places: Places,
    place: Mutex<Option<Place>>,
    /// The membership of the server's one client, on a server that has one.
    member: Mutex<Option<Member>>,
    /// Whether its run or copy has begun, or it holds a token.
    known: AtomicBool,
}

impl PendingClient {
    /// Admits the client: it has shown what it wants. It has its place until this is dropped. `id` tells to which measurement
    /// it belongs, if that takes several connections.
    ///
    /// # Errors
    /// There is no place.
    pub fn let_in(&self, kind: Purpose, id: Option<MeasurementId>) -> Result<(), NoPlace> {
        let place = self.places.take(kind)?;
        if let Some(one) = &self.places.one {
            let member = &mut *lock(&self.member);
            if member.is_none() {
                *member = Some(one.admit(id).ok_or(NoPlace::NotTheOne)?);
            }
        }
        *lock(&self.place) = Some(place);
        self.leave();
        Ok(())
    }

    /// Gives a place to a client that only asks, until this is dropped. It is not the one client of a server that has one.
    ///
    /// # Errors
    /// There is no place, or the one client is served or has been.
    pub fn let_in_to_ask(&self, kind: Purpose) -> Result<(), NoPlace> {
        let place = self.places.take(kind)?;
        if self.places.one.as_ref().is_some_and(|one| !one.is_awaited()) {
            return Err(NoPlace::NotTheOne);
        }
        *lock(&self.place) = Some(place);
        self.leave();
        Ok(())
    }

    /// Notes that the client has proved that it knows a token. Unless there are too many such connections, no stranger can
    /// crowd it out from now on.
    pub fn prove(&self) {
        let mut room = lock(&self.entry.0);
        let number = self.entry.1;
        let room = &mut *room;
        if room.proven_count >= MAX_PROVEN {
            return;
        }
        if let Some(one) = room.pending.get_mut(&number).filter(|one| !one.proven) {
            one.proven = true;
            room.proven_count += 1;
            room.unproven.remove(number, one.network);
        }
    }

    /// Whether the client has been admitted.
    #[must_use]
    pub fn is_in(&self) -> bool {
        lock(&self.place).is_some()
    }

    /// Notes that the client's run or copy has begun, or that it holds a token. The log has the end of every such client, and
    /// only some ends of others.
    pub fn note_known(&self) {
        self.known.store(true, Ordering::SeqCst);
    }

    /// Whether [`PendingClient::note_known`] was called.
    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Ordering::SeqCst)
    }

    /// Whether the client is the server's one client.
    pub(crate) fn is_the_one(&self) -> bool {
        lock(&self.member).is_some()
    }

    /// Whether its connection has been ended before it was let in.
    pub(crate) fn is_ended(&self) -> bool {
        lock(&self.entry.0).pending.get(&self.entry.1).is_some_and(|one| one.ended.is_some())
    }

    fn leave(&self) -> Option<PendingConnection> {
        lock(&self.entry.0).leave(self.entry.1)
    }

    /// Returns the result of the connection: the reason if the server closed it while it was pending, else `result`.
    pub(crate) fn explain(&self, result: Result<(), NetError>) -> Result<(), NetError> {
        let why = match self.leave().and_then(|one| one.ended) {
            Some(Why::Late) => format!("closed: it did not say within {MAX_PENDING_TIME:?} what it wants"),
            Some(Why::Crowded) => "closed: there are too many connections that have not said what they want".to_owned(),
            None => return result,
        };
        Err(NetError::Other(why))
    }
}

impl Drop for PendingClient {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Limits the lines of the log about connections whose run or copy has not begun, so that strangers cannot fill it.
#[derive(Debug)]
pub(crate) struct LogLimit {
    since: Instant,
    lines: u32,
}

impl LogLimit {
    pub(crate) fn new(now: Instant) -> LogLimit {
        LogLimit { since: now, lines: 0 }
    }

    /// Counts a line; returns whether the log may have it.
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) >= Duration::from_secs(1) {
            *self = LogLimit::new(now);
        }
        self.lines += 1;
        self.lines <= MAX_LOG_LINES_PER_S
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn socket() -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap()
    }

    fn is_ended(guest: &PendingClient) -> bool {
        lock(&guest.entry.0).pending[&guest.entry.1].ended == Some(Why::Crowded)
    }

    #[test]
    fn few_from_one_network_and_places_of_their_own() {
        let (socket, admission, places) = (socket(), Admission::default(), Places::new(2, None));
        let from = |n: u16| IpAddr::from([0x2001, 0xdb8, 0, n >> 8, 0, 0, 0, n & 255]);
        let mut guests: Vec<PendingClient> =
            (0..MAX_PENDING_PER_NETWORK as u16).map(|n| admission.enter(from(n), &socket, &places).unwrap()).collect();
        assert!(!guests.iter().any(is_ended));
        guests.push(admission.enter(from(99), &socket, &places).unwrap());
        assert!(is_ended(&guests[0]) && !guests[1..].iter().any(is_ended), "the oldest of the /64 has gone");
        guests.push(admission.enter(from(256), &socket, &places).unwrap());
        assert!(!guests[1..].iter().any(is_ended), "another /64");
        assert_eq!(guests[1].let_in(Purpose::Other, None), Ok(()));
        assert_eq!(guests[2].let_in(Purpose::Other, None), Ok(()));
        assert_eq!(guests[3].let_in(Purpose::Other, None), Err(NoPlace::Busy(2)));
        assert_eq!(guests[3].let_in(Purpose::Measurement, None), Ok(()), "another kind");
        drop(guests.remove(1));
        assert_eq!(guests[2].let_in(Purpose::Other, None), Ok(()));
        guests.clear();
        let room = lock(&admission.all);
        assert!(room.pending.is_empty() && room.unproven.is_empty() && room.proven_count == 0);
    }

    /// From many networks, each with few connections.
    #[test]
    fn full_admission_takes_newcomers_and_keeps_the_proven() {
        let (socket, admission, places) = (socket(), Admission::default(), Places::new(2, None));
        let from = |n: usize| IpAddr::from([10, 0, (n >> 8) as u8, n as u8]);
        let proven = admission.enter(from(0), &socket, &places).unwrap();
        proven.prove();
        proven.prove();
        let mut guests: Vec<PendingClient> =
            (1..=MAX_PENDING).map(|n| admission.enter(from(n / 2), &socket, &places).unwrap()).collect();
        assert!(!guests.iter().any(is_ended));
        for n in 0..1000 {
            let guest = admission.enter(from(1000 + n), &socket, &places).unwrap();
            assert!(!is_ended(&guest), "the newcomer stays");
            guests.push(guest);
        }
        assert!(!is_ended(&proven));
        let ended = guests.iter().filter(|guest| is_ended(guest)).count();
        assert_eq!(ended, 1000);
        assert!(guests[0].let_in(Purpose::Other, None).is_ok() && admission.make_room() && !is_ended(&proven));
        assert_eq!(proven.let_in(Purpose::Other, None), Ok(()));
        assert_eq!(lock(&admission.all).proven_count, 0);
    }

    /// As many clients as there are places may start at the same time on one network.
    #[test]
    fn a_place_for_each_client_is_room_for_each_to_ask() {
        let most = 4 * MAX_PENDING_PER_NETWORK;
        let (socket, admission, places) = (socket(), Admission::default(), Places::new(most, None));
        let from = IpAddr::from([10, 0, 0, 1]);
        let all: Vec<PendingClient> = (0..most).map(|_| admission.enter(from, &socket, &places).unwrap()).collect();
        assert!(!all.iter().any(is_ended));
        let _one_too_many = admission.enter(from, &socket, &places).unwrap();
        assert!(is_ended(&all[0]));
    }

    /// A stream that is expected waits for its first bytes, which may be lost and come later.
    #[test]
    fn strangers_do_not_crowd_out_expected_streams() {
        let (socket, admission, places) = (socket(), Admission::default(), Places::new(2, None));
        let from = |n: usize| IpAddr::from([10, 0, (n >> 8) as u8, n as u8]);
        let expected = admission.expect(Network::from(from(0)), MAX_PENDING_PER_NETWORK);
        let streams: Vec<PendingClient> =
            (0..2 * MAX_PENDING_PER_NETWORK).map(|_| admission.enter(from(0), &socket, &places).unwrap()).collect();
        let strangers: Vec<PendingClient> =
            (1..2000).map(|n| admission.enter(from(n), &socket, &places).unwrap()).collect();
        assert!(!streams.iter().any(is_ended) && strangers.iter().any(is_ended));
        drop(expected);
        assert!(lock(&admission.all).expected.is_empty());
        let _last = admission.enter(from(0), &socket, &places).unwrap();
        assert!(is_ended(&streams[0]));
    }

    #[test]
    fn strangers_do_not_fill_the_log() {
        let begin = Instant::now();
        let mut limit = LogLimit::new(begin);
        assert_eq!((0..1000).filter(|_| limit.allows(begin)).count(), MAX_LOG_LINES_PER_S as usize);
        assert!(limit.allows(begin + Duration::from_secs(1)));
    }
}
