//! Progress bars. They are drawn on standard error, and only if it is a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Whether somebody watches standard error and wants to see progress.
pub fn watched(quiet: bool) -> bool {
    !quiet && std::io::stderr().is_terminal()
}

/// A bar of `length` steps with an ETA; hidden if nobody watches. With a length of 0 it is a spinner with a message, until
/// [`known`] gives it a length.
pub fn bar(length: u64, what: &str, quiet: bool) -> ProgressBar {
    if !watched(quiet) {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::no_length();
    if length > 0 {
        style(&bar, "{prefix} {wide_bar} {percent:>3}% {msg} ETA {eta}");
        bar.set_length(length);
    } else {
        style(&bar, "{spinner} {prefix} {msg}");
    }
    bar.set_prefix(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Ends the line that a bar stands in, for a program that ends without it.
pub fn end_line() {
    if watched(false) {
        crate::output::err(format_args!("\n"));
    }
}

/// Gives a bar the number of steps that is known so far. It shows no ETA of its own, as steps may take unequal time; the
/// message may have one.
pub fn known(bar: &ProgressBar, length: u64) {
    if bar.length().is_none() {
        style(bar, "{prefix} {wide_bar} {percent:>3}% {msg}");
    }
    bar.set_length(length);
}

/// Sets the layout of a bar.
fn style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}
