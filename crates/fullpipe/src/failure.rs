//! How a verb fails: with a text on standard error, mostly one line, and an exit code.

use std::fmt::Display;
use std::process::ExitCode;

use fullpipe_path::{Classified, ExitClass};

use crate::output::errln;

/// The result of a verb and of its steps.
pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// Why a command failed.
pub struct Failure {
    /// Kind of failure, which gives the exit code.
    class: ExitClass,
    /// What failed, on what, why, and what to do. It has one line, unless the answer to a question is a list.
    text: String,
    /// Whether the output for programs (`--json`) has told of it.
    said: bool,
}

impl Failure {
    /// A failure of this class.
    pub fn new(class: ExitClass, text: impl Display) -> Failure {
        Failure { class, text: without_numbers(text.to_string()), said: false }
    }

    /// A failure of what the user typed or gave as input.
    pub fn usage(text: impl Display) -> Failure {
        Failure::new(ExitClass::Usage, text)
    }

    /// This failure, marked as told to programs in a result.
    pub fn said(self) -> Failure {
        Failure { said: true, ..self }
    }

    /// Whether programs have been told in a result.
    pub fn is_said(&self) -> bool {
        self.said
    }

    /// Whether the other end refused, vanished or has another version.
    pub fn is_remote(&self) -> bool {
        matches!(self.class, ExitClass::Peer)
    }

    /// Whether the user ended the run.
    pub fn is_interrupt(&self) -> bool {
        matches!(self.class, ExitClass::Interrupted)
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.class as u8
    }

    /// Prints the failure on standard error, and returns its exit code.
    pub fn report(self) -> ExitCode {
        errln!("error: {}", self.text);
        ExitCode::from(self.code())
    }
}

/// Takes out the numbers of system errors, which Rust puts behind their names: `No such file or directory (os error 2)`.
pub fn without_numbers(mut text: String) -> String {
    const BEFORE: &str = " (os error ";
    let mut from = 0;
    while let Some(begin) = text[from..].find(BEFORE).map(|at| from + at) {
        let number = begin + BEFORE.len();
        let digits = text[number..].bytes().take_while(u8::is_ascii_digit).count();
        let end = number + digits;
        from = number;
        if digits > 0 && text[end..].starts_with(')') {
            text.replace_range(begin..=end, "");
            from = begin;
        }
    }
    text
}

/// What is wrong with a command line, in one line without the help that follows.
pub fn reason(error: &clap::Error) -> String {
    let text = error.to_string();
    // A list follows the first line, and an empty line follows that.
    let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

/// What is wrong with a text in TOML, in one line that begins with the number of the line.
pub fn toml_reason(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let words: Vec<&str> = error.message().split_whitespace().collect();
    format!("line {}: {}", before.matches('\n').count() + 1, words.join(" "))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_names_and_no_numbers() {
        let missing = std::io::Error::from_raw_os_error(2);
        for (text, told) in [
            (format!("/x: {missing}; is it mounted?"), "/x: No such file or directory; is it mounted?"),
            (format!("{missing} ({missing})"), "No such file or directory (No such file or directory)"),
            ("a (os error x) b (os error ) c (os error 2".into(), "a (os error x) b (os error ) c (os error 2"),
            ("ü (os error 28)ü".into(), "üü"),
        ] {
            assert_eq!(Failure::usage(text).to_string(), told);
        }
    }
}
