//! UDT between two ends in simulated time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod handshake;
mod hostile;
mod rate;
mod sim;
mod transfer;
