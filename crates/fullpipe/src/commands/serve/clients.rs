//! The clients of a server, for its log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Clients that have shown a token or are served, by their addresses. Guards nothing but the map.
#[derive(Clone, Default)]
pub struct Clients(Arc<Mutex<BTreeMap<String, Client>>>);

#[derive(Default)]
pub struct Client {
    /// Name of its token.
    pub token: Option<String>,
    /// Whether it has begun what it came for.
    pub served: bool,
}

impl Clients {
    pub fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Client>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whose token a client holds.
    pub fn holds(&self, peer: &str, token: &str) {
        self.lock().entry(peer.to_owned()).or_default().token = Some(token.to_owned());
    }

    /// Notes that a client is served; gives its token's name.
    pub fn served(&self, peer: &str) -> Option<String> {
        let mut clients = self.lock();
        let client = clients.entry(peer.to_owned()).or_default();
        client.served = true;
        client.token.clone()
    }

    /// Forgets a client; gives what was known of it.
    pub fn remove(&self, peer: &str) -> Client {
        self.lock().remove(peer).unwrap_or_default()
    }
}
