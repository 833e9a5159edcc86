//! Limits for clients that have not proved that they hold a token: the time of a run, and the number of clients from one
//! network at once.

use std::collections::BTreeMap;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use crate::callers::Network;
use crate::error::{Denial, NetError, system};

/// Time that a client may spend besides its run: to greet, to connect its streams, and to fetch the report.
const BESIDE_RUN: Duration = Duration::from_secs(120);

/// Limits for clients without a token.
#[derive(Debug, Clone)]
pub struct AnonymousLimits {
    /// Longest time of a run.
    pub run: Duration,
    /// Longest time that a client may spend besides its run.
    beside_run: Duration,
    places: NetworkPlaces,
}

impl AnonymousLimits {
    /// Limits the time of a run, and the number of clients from one network at once.
    pub fn new(run: Duration, places_per_network: usize) -> AnonymousLimits {
        AnonymousLimits {
            run,
            beside_run: BESIDE_RUN,
            places: NetworkPlaces { most: places_per_network, taken: Arc::default() },
        }
    }

    /// Takes a place for a client, and closes its connection when its time is over.
    ///
    /// # Errors
    /// The client is refused: its network has too many clients here, or the server has no thread for it.
    pub fn admit(&self, from: IpAddr, control: &TcpStream) -> Result<Admitted, NetError> {
        let Some(place) = self.places.take(from) else {
            let most = self.places.most;
            return Err(NetError::Denied(Denial::new(
                format!("it is busy with clients from this address (its --max-clients-per-address is {most})"),
                "try again later, or ask its operator to raise that",
            )));
        };
        let control = control.try_clone().map_err(system("doubling a descriptor"))?;
        let (here, gone) = mpsc::channel::<()>();
        let most = self.run.saturating_add(self.beside_run);
        let watch = move || {
            if gone.recv_timeout(most) == Err(mpsc::RecvTimeoutError::Timeout) {
                // The thread that serves the client gets an error, and frees all that it holds.
                let _ = control.shutdown(Shutdown::Both);
            }
        };
        let watch = std::thread::Builder::new().name("limit".into()).stack_size(64 << 10).spawn(watch);
        watch.map_err(system("starting a thread"))?;
        Ok(Admitted { _place: place, _here: here })
    }
}

/// A client's place within the limits, taken until this is dropped.
#[must_use]
pub struct Admitted {
    _place: NetworkPlace,
    _here: mpsc::Sender<()>,
}

/// Places of the clients of each network.
#[derive(Debug, Clone)]
struct NetworkPlaces {
    most: usize,
    /// Number of present clients from each network. The lock guards nothing else, and is held only to count.
    taken: Arc<Mutex<BTreeMap<Network, usize>>>,
}

impl NetworkPlaces {
    fn take(&self, from: IpAddr) -> Option<NetworkPlace> {
        let from = Network::from(from);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let n = taken.get(&from).copied().unwrap_or(0);
        if n >= self.most {
            return None;
        }
        taken.insert(from, n + 1);
        Some(NetworkPlace { from, places: self.clone() })
    }
}

/// The place of one client, taken until this is dropped.
struct NetworkPlace {
    from: Network,
    places: NetworkPlaces,
}

impl Drop for NetworkPlace {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(&self.from) {
            Some(n) if *n > 1 => *n -= 1,
            _ => {
                taken.remove(&self.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_stays_too_long_is_cut_off() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        caller.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (control, from) = listener.accept().unwrap();
        let limits = AnonymousLimits {
            beside_run: Duration::from_millis(100),
            ..AnonymousLimits::new(Duration::from_millis(100), 1)
        };
        let admitted = limits.admit(from.ip(), &control).unwrap();
        assert!(limits.admit(from.ip(), &control).is_err(), "one place");
        assert_eq!(std::io::Read::read(&mut caller, &mut [0]).unwrap(), 0, "shut down, not timed out");
        drop(admitted);
        assert!(limits.admit(from.ip(), &control).is_ok());
    }

    #[test]
    fn places_are_counted_by_network_and_given_back() {
        let places = NetworkPlaces { most: 2, taken: Arc::default() };
        let take = |text: &str| places.take(text.parse().unwrap());
        let (one, two) = (take("2001:db8:1:2::1").unwrap(), take("2001:db8:1:2:ffff::9").unwrap());
        assert!(take("2001:db8:1:2::3").is_none());
        assert!(take("2001:db8:1:3::1").is_some() && take("192.0.2.1").is_some());
        let _v4 = (take("192.0.2.1").unwrap(), take("::ffff:192.0.2.1").unwrap());
        assert!(take("192.0.2.1").is_none());
        drop(one);
        let one = take("2001:db8:1:2::3").unwrap();
        assert!(take("2001:db8:1:2::4").is_none());
        drop((one, two));
        assert_eq!(places.taken.lock().unwrap().len(), 1);
    }
}
