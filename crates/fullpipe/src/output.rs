//! Writes to standard output and standard error, whose readers may go away. `fullpipe select ... | head -1` is no failure, and
//! a log that nobody reads does not end a copy. The standard macros would panic.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::Mutex;

use fullpipe_path::text;

/// The first error of writing to standard output, other than that nobody reads it. Nothing else is done while it is
/// locked.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Standard output as a writer that never fails; [`failed`] tells whether it did.
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stdout = io::stdout().lock();
        if let Err(error) = stdout.write_all(bytes).and_then(|()| stdout.flush())
            && error.kind() != ErrorKind::BrokenPipe
            && let Ok(mut failed) = FAILED.lock()
        {
            failed.get_or_insert(error);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes to standard output. Characters that are unsafe to show ([`text::is_unsafe`]) are written as `\uXXXX`, which
/// in JSON means the same; newlines and tabs stay.
pub fn out(what: Arguments<'_>) {
    let _ = Stdout.write_all(text::json(&what.to_string()).as_bytes());
}

/// Writes to standard error, with an escape for each character that is unsafe to show; newlines and tabs stay. A failure
/// is ignored, as there is nowhere left to report it.
pub fn err(what: Arguments<'_>) {
    let _ = io::stderr().lock().write_all(text::lines(&what.to_string()).as_bytes());
}

/// Passes on what a program of the user wrote to its standard output and error, byte for byte.
pub fn unchanged(out: &[u8], err: &[u8]) {
    let _ = Stdout.write_all(out);
    let _ = io::stderr().lock().write_all(err);
}

/// The error that left standard output incomplete, such as a full disk.
pub fn failed() -> Option<io::Error> {
    FAILED.lock().ok()?.take()
}

/// Prints a line with [`out`], as `println!` does.
macro_rules! outln {
    () => { $crate::output::out(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::out(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a line with [`err`], as `eprintln!` does.
macro_rules! errln {
    ($($text:tt)*) => { $crate::output::err(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use {errln, outln};
