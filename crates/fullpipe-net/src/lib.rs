//! The measurement engine: memory to memory over n TCP streams, the same on a real host and in the
//! testbed.
//!
//! One thread per stream, in one long blocking call: the sender hands the kernel pages of a memory
//! file by reference (`sendfile`), the receiver drops what comes without copying it (`MSG_TRUNC`
//! with `MSG_WAITALL`). So the engine costs few system calls and no copies, never spins, and the
//! kernel wakes it exactly when there is something to do. One more thread samples TCP_INFO.

mod admission;
mod bottleneck;
pub mod callers;
mod error;
pub mod host_info;
mod limits;
pub mod measure;
pub mod preamble_listener;
pub mod preface;
pub mod sample;
pub mod serve;
mod session;
pub mod side;
pub mod socket;
mod start_times;
pub mod stream;
pub mod sys;
pub mod tcp_info;
mod traffic;
pub mod wire;

pub use error::{Denial, NetError};
pub use limits::{Admitted, AnonymousLimits};
pub use measure::{Measured, measure};
pub use serve::{ServeOptions, Server};
pub use session::Observed;
