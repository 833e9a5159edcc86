//! Congestion control (section 7): what decides the rate and the window of a sender.

mod fixed_rate;
mod interface;
mod native;

pub use fixed_rate::FixedRate;
pub use interface::{CongestionControl, INITIAL_WINDOW_PACKETS, Path};
pub use native::Native;
