//! The connections between two ends: reaching the server, tokens, TLS, and the control connection.

mod deploy;
mod login;
mod records;

pub mod dial;
pub mod endpoint;
pub(crate) mod far_port;
pub mod join;
pub mod relay;
pub mod session;
pub(crate) mod ssh;
pub(crate) mod stop;
pub mod stream;
pub(crate) mod third_party;
pub mod tls;
pub mod token;
pub mod token_proof;
pub mod token_store;
