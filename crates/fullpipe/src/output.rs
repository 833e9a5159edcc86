//! Standard output and standard error, as something that can go away: `fullpipe select ... | head -1` is
//! no failure, and a log that nobody reads ends no transfer. The standard macros would panic.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::Mutex;

use fullpipe_path::text;

/// The first write to standard output that failed, if not for want of a reader.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Standard output that takes everything; a failure is kept for [`failed`].
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

/// Writes to standard error, with an escape for each character that is unsafe to show; newlines and tabs stay. There
/// is no place left to tell of a failure.
pub fn err(what: Arguments<'_>) {
    let _ = io::stderr().lock().write_all(text::lines(&what.to_string()).as_bytes());
}

/// Writes to standard output and to standard error as it is: what a program of the user's own has written there.
pub fn unchanged(out: &[u8], err: &[u8]) {
    let _ = Stdout.write_all(out);
    let _ = io::stderr().lock().write_all(err);
}

/// Why standard output is not complete, if a full disk or the like is the reason.
pub fn failed() -> Option<io::Error> {
    FAILED.lock().ok()?.take()
}

/// `println!` for [`out`].
macro_rules! outln {
    () => { $crate::output::out(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::out(format_args!("{}\n", format_args!($($text)*))) };
}

/// `eprintln!` for [`err`].
macro_rules! errln {
    ($($text:tt)*) => { $crate::output::err(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use {errln, outln};
