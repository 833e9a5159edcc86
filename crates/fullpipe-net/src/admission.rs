//! Who may come in: connections that have not said yet what they are, and the places of those that are served.
//!
//! Anyone may connect, and say nothing, or a byte now and then. Such connections take no client's place, are given up
//! after a while, and are few from one network. When there are too many, the oldest from the most crowded network goes,
//! not the newcomer. Connections that have proved that they know a token have places of their own.

use std::collections::BTreeMap;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::NetError;
use crate::callers::{Crowd, Network};

/// How long one may take to show what it is: TLS, over a long and lossy path, and two messages.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between looks.
const LOOK: Duration = Duration::from_millis(500);
/// Most connections that have shown nothing.
const MOST: usize = 256;
/// Most connections that have shown nothing from one network ([`Network`]).
const MOST_EACH: usize = 64;
/// Most connections that have proved that they know a token, and have not said yet what they want.
const MOST_PROVEN: usize = 256;
/// Lines of the log in one second about connections that never became clients.
const MOST_LINES: u32 = 20;

/// What a client comes for: those of one kind leave the places of the other free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To measure: anyone, or on a server with tokens those who hold one.
    Measurement,
    /// Something else.
    Other,
}

/// Places of clients, of each kind.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    most: usize,
    taken: [Arc<AtomicUsize>; 2],
}

impl Places {
    pub(crate) fn new(most: usize) -> Places {
        Places { most, taken: Default::default() }
    }

    fn take(&self, kind: Purpose) -> Option<Place> {
        let taken = &self.taken[kind as usize];
        taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| (n < self.most).then_some(n + 1)).ok()?;
        Some(Place(taken.clone()))
    }
}

/// A client's, as long as it is served.
#[derive(Debug)]
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One that waits to be let in.
#[derive(Debug)]
struct Waiting {
    network: Network,
    since: Instant,
    socket: TcpStream,
    /// It has proved that it knows a token: it is not in the crowd.
    proven: bool,
    ended: Option<Why>,
}

/// Why the lobby has ended a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Late,
    Crowded,
}

impl Waiting {
    fn end(&mut self, why: Why) {
        self.ended.get_or_insert(why);
        // One that is gone already needs no shutting down.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

#[derive(Debug, Default)]
struct Room {
    waiting: BTreeMap<u64, Waiting>,
    /// Those that have shown nothing, and have not been ended.
    crowd: Crowd,
    /// Number of those that have proved that they know a token.
    proven: usize,
    last: u64,
    /// A thread looks for those that take too long.
    watched: bool,
}

impl Room {
    /// Ends one that has shown nothing.
    fn recycle(&mut self, number: u64) {
        if let Some(one) = self.waiting.get_mut(&number) {
            one.end(Why::Crowded);
            self.crowd.remove(number, one.network);
        }
    }

    fn leave(&mut self, number: u64) -> Option<Waiting> {
        let one = self.waiting.remove(&number)?;
        self.crowd.remove(number, one.network);
        self.proven -= usize::from(one.proven);
        Some(one)
    }
}

type All = Arc<Mutex<Room>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connections that have not shown yet what they are.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    all: All,
}

impl Admission {
    /// A connection comes in, and perhaps another one has to go for it.
    ///
    /// # Errors
    /// Why this one may not: a descriptor or a thread is lacking.
    pub(crate) fn enter(&self, from: IpAddr, socket: &TcpStream, places: &Places) -> Result<PendingClient, String> {
        let mut room = lock(&self.all);
        let socket = socket.try_clone().map_err(|e| format!("doubling a descriptor: {e}"))?;
        if !room.watched {
            // It goes when nobody waits any more.
            let all = self.all.clone();
            let watch = std::thread::Builder::new().name("lobby".into()).stack_size(64 << 10);
            watch.spawn(move || watch_over(&all)).map_err(|e| format!("starting a thread: {e}"))?;
            room.watched = true;
        }
        room.last += 1;
        let (number, network) = (room.last, Network::from(from));
        room.waiting.insert(number, Waiting { network, since: Instant::now(), socket, proven: false, ended: None });
        room.crowd.insert(number, network);
        let victim = if room.crowd.members_from(network) > MOST_EACH {
            room.crowd.oldest_from(network)
        } else if room.crowd.len() > MOST {
            room.crowd.victim(None)
        } else {
            None
        };
        if let Some(victim) = victim {
            room.recycle(victim);
        }
        Ok(PendingClient { waiting: (self.all.clone(), number), places: places.clone(), place: Mutex::default() })
    }

    /// Ends one that has shown nothing, since descriptors are lacking; says whether there was one.
    pub(crate) fn make_room(&self) -> bool {
        let mut room = lock(&self.all);
        let victim = room.crowd.victim(None);
        if let Some(victim) = victim {
            room.recycle(victim);
        }
        victim.is_some()
    }
}

/// Ends those that take too long, until there are none.
fn watch_over(all: &All) {
    loop {
        std::thread::sleep(LOOK);
        let mut room = lock(all);
        if room.waiting.is_empty() {
            room.watched = false;
            return;
        }
        for one in room.waiting.values_mut().filter(|one| one.since.elapsed() > PATIENCE) {
            one.end(Why::Late);
        }
    }
}

/// A connection that may become a client.
#[derive(Debug)]
pub struct PendingClient {
    waiting: (All, u64),
    places: Places,
    place: Mutex<Option<Place>>,
}

impl PendingClient {
    /// It has shown what it is, and takes a place until this is dropped.
    ///
    /// # Errors
    /// All are taken; so many there are.
    pub fn let_in(&self, kind: Purpose) -> Result<(), usize> {
        let place = self.places.take(kind).ok_or(self.places.most)?;
        *lock(&self.place) = Some(place);
        self.leave();
        Ok(())
    }

    /// It has proved that it knows a token: as long as there are not too many such, no stranger can take its place.
    pub(crate) fn prove(&self) {
        let mut room = lock(&self.waiting.0);
        let number = self.waiting.1;
        let room = &mut *room;
        if room.proven >= MOST_PROVEN {
            return;
        }
        if let Some(one) = room.waiting.get_mut(&number).filter(|one| !one.proven) {
            one.proven = true;
            room.proven += 1;
            room.crowd.remove(number, one.network);
        }
    }

    /// Whether it has been let in.
    pub(crate) fn is_in(&self) -> bool {
        lock(&self.place).is_some()
    }

    fn leave(&self) -> Option<Waiting> {
        lock(&self.waiting.0).leave(self.waiting.1)
    }

    /// How it has ended: where the lobby has ended it, why.
    pub(crate) fn explain(&self, result: Result<(), NetError>) -> Result<(), NetError> {
        let why = match self.leave().and_then(|one| one.ended) {
            Some(Why::Late) => format!("closed: it has not said within {PATIENCE:?} what it wants"),
            Some(Why::Crowded) => "closed: too many connections that have not said what they want".to_owned(),
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

/// Keeps strangers from filling the log.
#[derive(Debug)]
pub(crate) struct LogLimit {
    since: Instant,
    lines: u32,
}

impl LogLimit {
    pub(crate) fn new(now: Instant) -> LogLimit {
        LogLimit { since: now, lines: 0 }
    }

    /// Whether there may be one more line about a connection that never became a client.
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) >= Duration::from_secs(1) {
            *self = LogLimit::new(now);
        }
        self.lines += 1;
        self.lines <= MOST_LINES
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
        lock(&guest.waiting.0).waiting[&guest.waiting.1].ended == Some(Why::Crowded)
    }

    #[test]
    fn few_from_one_network_and_places_of_their_own() {
        let (socket, lobby, places) = (socket(), Admission::default(), Places::new(2));
        let from = |n: u16| IpAddr::from([0x2001, 0xdb8, 0, n >> 8, 0, 0, 0, n & 255]);
        let mut guests: Vec<PendingClient> =
            (0..MOST_EACH as u16).map(|n| lobby.enter(from(n), &socket, &places).unwrap()).collect();
        assert!(!guests.iter().any(is_ended));
        guests.push(lobby.enter(from(99), &socket, &places).unwrap());
        assert!(is_ended(&guests[0]) && !guests[1..].iter().any(is_ended), "the oldest of the /64 has gone");
        guests.push(lobby.enter(from(256), &socket, &places).unwrap());
        assert!(!guests[1..].iter().any(is_ended), "another /64");
        assert_eq!(guests[1].let_in(Purpose::Other), Ok(()));
        assert_eq!(guests[2].let_in(Purpose::Other), Ok(()));
        assert_eq!(guests[3].let_in(Purpose::Other), Err(2));
        assert_eq!(guests[3].let_in(Purpose::Measurement), Ok(()), "another kind");
        drop(guests.remove(1));
        assert_eq!(guests[2].let_in(Purpose::Other), Ok(()));
        guests.clear();
        let room = lock(&lobby.all);
        assert!(room.waiting.is_empty() && room.crowd.is_empty() && room.proven == 0);
    }

    /// From many networks, each with few connections.
    #[test]
    fn a_full_lobby_takes_newcomers_and_keeps_the_proven() {
        let (socket, lobby, places) = (socket(), Admission::default(), Places::new(2));
        let from = |n: usize| IpAddr::from([10, 0, (n >> 8) as u8, n as u8]);
        let proven = lobby.enter(from(0), &socket, &places).unwrap();
        proven.prove();
        proven.prove();
        let mut guests: Vec<PendingClient> =
            (1..=MOST).map(|n| lobby.enter(from(n / 2), &socket, &places).unwrap()).collect();
        assert!(!guests.iter().any(is_ended));
        for n in 0..1000 {
            let guest = lobby.enter(from(1000 + n), &socket, &places).unwrap();
            assert!(!is_ended(&guest), "the newcomer stays");
            guests.push(guest);
        }
        assert!(!is_ended(&proven));
        let ended = guests.iter().filter(|guest| is_ended(guest)).count();
        assert_eq!(ended, 1000);
        assert!(guests[0].let_in(Purpose::Other).is_ok() && lobby.make_room() && !is_ended(&proven));
        assert_eq!(proven.let_in(Purpose::Other), Ok(()));
        assert_eq!(lock(&lobby.all).proven, 0);
    }

    #[test]
    fn strangers_do_not_fill_the_log() {
        let begin = Instant::now();
        let mut limit = LogLimit::new(begin);
        assert_eq!((0..1000).filter(|_| limit.allows(begin)).count(), MOST_LINES as usize);
        assert!(limit.allows(begin + Duration::from_secs(1)));
    }
}
