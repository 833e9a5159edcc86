//! Classes of errors: the exit codes of every command.

/// Class of an error, which is the program's exit code. Every command uses the same numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitClass {
    /// The work itself failed: for example, a run moved nothing, or a check missed its bar.
    Failed = 1,
    /// The command line, a value in it, or a file that it names is wrong.
    Usage = 2,
    /// The machine lacks something: a kernel, a tool, a permission, a congestion control, or a port.
    Missing = 3,
    /// The other end refused, disappeared, or has another version.
    Peer = 4,
    /// Output cannot be written, or a record cannot be read.
    Record = 5,
    /// The testbed's guest failed: it panicked, ran out of memory or time, or a program in it failed.
    Lab = 6,
    /// The user interrupted the program. Shells use the same number.
    Interrupted = 130,
}

impl ExitClass {
    /// Returns the class of an exit code of fullpipe, if there is one.
    pub fn from_code(code: i32) -> Option<ExitClass> {
        use ExitClass::{Failed, Interrupted, Lab, Missing, Peer, Record, Usage};
        [Failed, Usage, Missing, Peer, Record, Lab, Interrupted].into_iter().find(|class| *class as i32 == code)
    }
}

/// An error with a class. Every error that a user can get has one.
pub trait Classified: std::error::Error {
    /// Returns the error's class.
    fn class(&self) -> ExitClass;
}
