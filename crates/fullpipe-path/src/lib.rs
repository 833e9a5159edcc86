//! The words of fullpipe as types.
//!
//! A [`Path`] is what lies between two hosts, a [`Transport`] how to send, a [`Workload`] what to
//! send. Together with a seed they describe a [`Run`], whose outcome is a [`record`]. Everything
//! here is plain data and parsing: no socket, no clock, no file.

pub mod path;
pub mod record;
pub mod run;
pub mod text;
pub mod transport;
pub mod units;

pub use path::{Cross, Host, LabPath, Modality, Path, PathError};
pub use run::{Direction, Run};
pub use transport::{Buffer, Transport, TransportError, Workload};
pub use units::{Probability, Rate, Size, Time, UnitError};

/// What went wrong, as the exit code tells it. The same numbers serve every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitClass {
    /// The work itself failed: a run that moved nothing, a check that missed its bar.
    Failed = 1,
    /// The command line, a file given to it or a value in it is wrong.
    Usage = 2,
    /// Something that the machine should have is missing: a kernel, a tool, a permission, a
    /// congestion control, a port.
    Missing = 3,
    /// The far end refused, vanished, or speaks another version.
    Peer = 4,
    /// Output cannot be written, or a record cannot be read.
    Record = 5,
    /// The testbed's guest failed: panic, out of memory, time limit, a program in it.
    Lab = 6,
    /// Interrupted from the keyboard, as shells number it.
    Interrupted = 130,
}

impl ExitClass {
    /// The class behind an exit code of fullpipe, if it is one.
    pub fn from_code(code: i32) -> Option<ExitClass> {
        use ExitClass::{Failed, Interrupted, Lab, Missing, Peer, Record, Usage};
        [Failed, Usage, Missing, Peer, Record, Lab, Interrupted].into_iter().find(|class| *class as i32 == code)
    }
}

/// Every error that reaches a person knows its class.
pub trait Classified: std::error::Error {
    /// The exit code's meaning.
    fn class(&self) -> ExitClass;
}
