//! The measurement engine: moves data from memory to memory over n streams, on real hosts and in the testbed alike.
//!
//! [`stream`] is the seam between the engine and the transport. `traffic.rs` moves the data, with one thread for each
//! stream; one more thread samples the streams (TCP_INFO). [`serve`] and [`measure`](mod@measure) are the two ends.

mod admission;
mod bottleneck;
pub mod callers;
pub mod child;
pub mod combine;
mod error;
pub mod host_info;
mod limits;
pub mod local_end;
pub mod measure;
mod omitted;
mod one_client;
mod plausible;
pub mod preamble_listener;
pub mod preface;
mod probe;
mod rate;
pub mod sample;
mod sample_count;
pub mod serve;
pub mod serve_measurement;
mod session;
pub mod shared_port;
pub mod side;
pub mod socket;
mod start_times;
pub mod stream;
pub mod sys;
pub mod tcp_info;
mod traffic;
pub mod wire;

pub use combine::Measured;
pub use error::{Denial, NetError};
pub use limits::{Admitted, AnonymousLimits};
pub use local_end::LocalEnd;
pub use measure::{measure, measure_both};
pub use one_client::MeasurementId;
pub use serve::{ServeOptions, Server};
pub use session::{Observed, Progress, Watcher};
