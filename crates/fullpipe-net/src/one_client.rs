//! The one client of a server that ends after it: one copy, or one measurement with all its connections.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::EventFd;

use crate::NetError;
use crate::sys;

/// Random number that the connections of one measurement share, if there are several.
pub type MeasurementId = [u8; 16];

/// Longest wait for a connection or for the end of the client, ns. The wait begins again after it.
const WAIT_NS: u64 = 3_600_000_000_000;

#[derive(Debug)]
enum State {
    /// Nobody has been admitted yet.
    Vacant,
    /// Connections of the one client are served.
    Taken { id: Option<MeasurementId>, connections: usize },
    /// The last connection of the one client has ended.
    Gone,
}

#[derive(Debug)]
struct Shared {
    /// The state, and the first error of one of the client's connections.
    state: Mutex<(State, Option<NetError>)>,
    /// Readable once the client has gone.
    gone: EventFd,
}

/// Admits one client. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct OneClient(Arc<Shared>);

/// A connection of the one client, until this is dropped.
#[derive(Debug)]
pub(crate) struct Member(OneClient);

impl OneClient {
    pub(crate) fn new() -> io::Result<OneClient> {
        let state = Mutex::new((State::Vacant, None));
        Ok(OneClient(Arc::new(Shared { state, gone: EventFd::new()? })))
    }

    fn lock(&self) -> MutexGuard<'_, (State, Option<NetError>)> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a connection if it is the first one, or belongs to the same measurement as the first one while that is served.
    pub(crate) fn admit(&self, id: Option<MeasurementId>) -> Option<Member> {
        let state = &mut self.lock().0;
        match state {
            State::Vacant => *state = State::Taken { id, connections: 1 },
            State::Taken { id: taken, connections } if id.is_some() && id == *taken => *connections += 1,
            State::Taken { .. } | State::Gone => return None,
        }
        Some(Member(self.clone()))
    }

    /// Whether nobody has been admitted yet.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(self.lock().0, State::Vacant)
    }

    /// Notes the result of a connection of the one client. It must be noted before its [`Member`] is dropped.
    pub(crate) fn note(&self, result: Result<(), NetError>) {
        if let Err(error) = result {
            self.lock().1.get_or_insert(error);
        }
    }

    /// Waits for a connection at the listener. Returns the client's result instead once the client has gone.
    ///
    /// # Errors
    /// The kernel cannot wait.
    pub(crate) fn wait(&self, listener: &TcpListener) -> io::Result<Option<Result<(), NetError>>> {
        loop {
            let [caller, gone] = sys::wait_readable([listener.as_fd(), self.0.gone.as_fd()], WAIT_NS)?;
            if gone {
                return Ok(Some(self.lock().1.take().map_or(Ok(()), Err)));
            }
            if caller {
                return Ok(None);
            }
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let state = &mut self.0.lock().0;
        if let State::Taken { connections, .. } = state {
            *connections -= 1;
            if *connections == 0 {
                *state = State::Gone;
                let _ = self.0.0.gone.write(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_measurement_is_one_client_whatever_connections_it_takes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = OneClient::new().unwrap();
        let first = one.admit(Some([1; 16])).unwrap();
        let second = one.admit(Some([1; 16])).unwrap();
        assert!(one.admit(Some([2; 16])).is_none() && one.admit(None).is_none());
        one.note(Err(NetError::Interrupted));
        drop(first);
        let third = one.admit(Some([1; 16])).unwrap();
        drop((second, third));
        assert!(one.admit(Some([1; 16])).is_none(), "it has gone");
        assert!(matches!(one.wait(&listener), Ok(Some(Err(NetError::Interrupted)))));
    }

    #[test]
    fn a_connection_without_a_number_is_a_client_of_its_own() {
        let one = OneClient::new().unwrap();
        let _first = one.admit(None).unwrap();
        assert!(one.admit(None).is_none());
    }
}
