//! The terms of fullpipe as types: plain data and parsing.
//!
//! A [`Path`] lies between two hosts, a [`Transport`] is how to send, a [`Workload`] what to send. Together with a seed they
//! describe a [`Run`], and a [`record`] holds its result. [`storage`] describes what is measured of a disk. Nothing
//! here has a socket or a clock; only [`record`] writes files.

mod cross;
pub mod dscp;
pub mod exit;
pub mod host;
pub mod lab_disk;
pub mod lab_host;
pub mod lab_mount;
pub mod path;
mod path_change;
mod path_error;
pub mod record;
pub mod run;
pub mod storage;
mod stripes;
pub mod text;
pub mod transport;
pub mod units;

pub use cross::Cross;
pub use dscp::Dscp;
pub use exit::{Classified, ExitClass};
pub use host::Host;
pub use lab_host::{HostQueue, LabHost};
pub use path::{LabPath, Modality, Path, payload_rate};
pub use path_change::PathChange;
pub use path_error::PathError;
pub use run::{DirectIo, Direction, DiskAccess, Run};
pub use stripes::Stripes;
pub use transport::{Buffer, Protocol, Transport, TransportError, Workload};
pub use units::{Probability, Rate, Size, Time, UnitError};
