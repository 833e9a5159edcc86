//! Steps of the guest's work, and how their errors are worded.

/// Result of a step in the guest. Errors go to the host as text.
pub type Fallible<T> = Result<T, String>;

/// Puts the step that failed before an error.
pub trait Doing<T> {
    /// Returns the error as text, after the name of the step.
    fn doing(self, what: impl FnOnce() -> String) -> Fallible<T>;
}

impl<T, E: std::fmt::Display> Doing<T> for Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Fallible<T> {
        self.map_err(|error| format!("{}: {error}", what()))
    }
}
