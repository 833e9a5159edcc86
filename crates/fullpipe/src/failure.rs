//! Errors as a person sees them: one line, and an exit code.

use std::fmt::Display;
use std::process::ExitCode;

use fullpipe_path::{Classified, ExitClass};

use crate::output::errln;

/// The result of a verb, and of its steps.
pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// Why a command failed.
pub struct Failure {
    class: ExitClass,
    text: String,
    said: bool,
}

impl Failure {
    /// With a class of its own.
    pub fn new(class: ExitClass, text: impl Display) -> Failure {
        Failure { class, text: text.to_string(), said: false }
    }

    /// Of which a program has been told already, as part of a result.
    pub fn said(self) -> Failure {
        Failure { said: true, ..self }
    }

    /// Whether it has.
    pub fn is_said(&self) -> bool {
        self.said
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.class as u8
    }

    /// Says it on stderr.
    pub fn report(self) -> ExitCode {
        errln!("error: {}", self.text);
        ExitCode::from(self.code())
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl<E: Classified> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::new(error.class(), error)
    }
}
