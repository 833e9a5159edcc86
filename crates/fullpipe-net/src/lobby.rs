//! Who may come in: connections that have not said yet what they are, and the places of those that are served.
//!
//! Anyone may connect, and say nothing, or a byte now and then. Such connections take no client's place, are given up
//! after a while, and are few from one address.

use std::collections::BTreeMap;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::NetError;

/// How long one may take to show what it is: TLS, over a long and lossy path, and two messages.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between looks.
const LOOK: Duration = Duration::from_millis(500);
/// Most that have not shown it,
const MOST: usize = 256;
/// and from one address.
const MOST_EACH: usize = 64;

/// What a client comes for: those of one kind leave the places of the other free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// To measure, which anyone may.
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

    fn take(&self, kind: Kind) -> Option<Place> {
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
    from: IpAddr,
    since: Instant,
    socket: TcpStream,
    late: bool,
}

#[derive(Debug, Default)]
struct Room {
    waiting: BTreeMap<u64, Waiting>,
    /// A thread looks for those that take too long.
    watched: bool,
}

type All = Arc<Mutex<Room>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connections that have not shown yet what they are.
#[derive(Debug, Default)]
pub(crate) struct Lobby {
    all: All,
    last: AtomicUsize,
}

impl Lobby {
    /// A connection comes in; why not, if it may not.
    pub(crate) fn enter(&self, from: IpAddr, socket: &TcpStream, places: &Places) -> Result<Guest, String> {
        let mut room = lock(&self.all);
        if room.waiting.len() >= MOST || room.waiting.values().filter(|one| one.from == from).count() >= MOST_EACH {
            return Err("closed: too many connections that have not said what they want".to_owned());
        }
        let socket = socket.try_clone().map_err(|e| format!("doubling a descriptor: {e}"))?;
        let number = self.last.fetch_add(1, Ordering::Relaxed) as u64;
        if !room.watched {
            // It goes when nobody waits any more.
            let all = self.all.clone();
            let watch = std::thread::Builder::new().name("lobby".into()).stack_size(64 << 10);
            watch.spawn(move || watch_over(&all)).map_err(|e| format!("starting a thread: {e}"))?;
            room.watched = true;
        }
        room.waiting.insert(number, Waiting { from, since: Instant::now(), socket, late: false });
        Ok(Guest { waiting: (self.all.clone(), number), places: places.clone(), place: Mutex::default() })
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
            one.late = true;
            let _ = one.socket.shutdown(Shutdown::Both);
        }
    }
}

/// A connection that may become a client.
#[derive(Debug)]
pub struct Guest {
    waiting: (All, u64),
    places: Places,
    place: Mutex<Option<Place>>,
}

impl Guest {
    /// It has shown what it is, and takes a place until this is dropped.
    ///
    /// # Errors
    /// All are taken; so many there are.
    pub fn let_in(&self, kind: Kind) -> Result<(), usize> {
        let place = self.places.take(kind).ok_or(self.places.most)?;
        *lock(&self.place) = Some(place);
        self.leave();
        Ok(())
    }

    /// Whether it has been let in.
    pub(crate) fn is_in(&self) -> bool {
        lock(&self.place).is_some()
    }

    fn leave(&self) -> Option<Waiting> {
        lock(&self.waiting.0).waiting.remove(&self.waiting.1)
    }

    /// Why it has ended, where it took too long.
    pub(crate) fn explain(&self, error: NetError) -> NetError {
        match self.leave() {
            Some(Waiting { late: true, .. }) => {
                NetError::Other(format!("closed: it has not said within {PATIENCE:?} what it wants"))
            }
            _ => error,
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn few_from_one_address_and_places_of_their_own() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (lobby, places) = (Lobby::default(), Places::new(2));
        let from = |n: u8| IpAddr::from([10, 0, 0, n]);
        let mut guests: Vec<Guest> = (0..MOST_EACH).map(|_| lobby.enter(from(1), &socket, &places).unwrap()).collect();
        assert!(lobby.enter(from(1), &socket, &places).is_err(), "one more from there");
        guests.push(lobby.enter(from(2), &socket, &places).unwrap());
        // Who is let in waits no more; so another may come.
        assert_eq!(guests[0].let_in(Kind::Other), Ok(()));
        guests.push(lobby.enter(from(1), &socket, &places).unwrap());
        assert_eq!(guests[1].let_in(Kind::Other), Ok(()));
        assert_eq!(guests[2].let_in(Kind::Other), Err(2));
        assert_eq!(guests[2].let_in(Kind::Measurement), Ok(()), "another kind");
        drop(guests.remove(0));
        assert_eq!(guests[2].let_in(Kind::Other), Ok(()));
        guests.clear();
        assert!(lock(&lobby.all).waiting.is_empty());
    }
}
