//! The measurement engine: memory to memory over n TCP streams, the same on a real host and in the
//! testbed.
//!
//! One thread per stream, in one long blocking call: the sender hands the kernel pages of a memory
//! file by reference (`sendfile`), the receiver drops what comes without copying it (`MSG_TRUNC`
//! with `MSG_WAITALL`). So the engine costs few system calls and no copies, never spins, and the
//! kernel wakes it exactly when there is something to do. One more thread samples TCP_INFO.

mod bottleneck;
pub mod callers;
pub mod doorway;
pub mod ends;
mod error;
mod limits;
mod lobby;
pub mod measure;
mod plan;
pub mod preface;
pub mod sample;
pub mod serve;
mod session;
pub mod socket;
mod stream;
pub mod sys;
pub mod tcp_info;
pub mod wire;

pub use error::{Denial, NetError};
pub use limits::{Admitted, Limits};
pub use measure::{Measured, measure};
pub use serve::{ServeOptions, Server};
pub use session::Seen;
