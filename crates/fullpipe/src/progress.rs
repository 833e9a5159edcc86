//! Progress on a terminal: bars and words go to stderr, and only there.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Whether anyone is watching.
pub fn watched(quiet: bool) -> bool {
    !quiet && std::io::stderr().is_terminal()
}

/// A bar of `length` steps with an ETA, or one that shows nothing when nobody is watching. With no steps, words and
/// a sign of life until their number is [`known`].
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

/// The number of steps, as far as it is known. Steps that differ in what they cost have no ETA but in their words.
pub fn known(bar: &ProgressBar, length: u64) {
    if bar.length().is_none() {
        style(bar, "{prefix} {wide_bar} {percent:>3}% {msg}");
    }
    bar.set_length(length);
}

fn style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}
