//! The clients of a server, for its log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Clients that have shown a token or are served, by address. The lock guards only the map, and is held only for one access; at
/// the end of the server it is held for good.
#[derive(Clone, Default)]
pub struct Clients(Arc<Mutex<BTreeMap<String, Client>>>);

/// What the log knows of a client.
#[derive(Default)]
pub struct Client {
    /// Name of its token.
    pub token: Option<String>,
    /// Whether its measurement or copy has begun.
    pub served: bool,
}

impl Clients {
    /// Takes the lock. The end of the server holds it for good, so that no client is logged after that.
    pub fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Client>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the token of a client.
    pub fn holds(&self, peer: &str, token: &str) {
        self.lock().entry(peer.to_owned()).or_default().token = Some(token.to_owned());
    }

    /// Notes that a client is served, and returns the name of its token.
    pub fn served(&self, peer: &str) -> Option<String> {
        let mut clients = self.lock();
        let client = clients.entry(peer.to_owned()).or_default();
        client.served = true;
        client.token.clone()
    }

    /// Forgets a client, and returns what was known of it.
    pub fn remove(&self, peer: &str) -> Client {
        self.lock().remove(peer).unwrap_or_default()
    }
}
