//! Writes to standard output and standard error, whose readers may go away. `fullpipe select ... | head -1` is no failure, and
//! a log that nobody reads does not end a copy. The standard macros would panic.

use std::fmt::Arguments;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::sync::Mutex;

use fullpipe_path::text;

use crate::closed;

/// The first error of writing to standard output, other than that nobody reads it. Nothing else is done while it is
/// locked.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// The file that also keeps what is told on standard error, with the time ([`log_to`]). Nothing else is done while it is locked
/// but to write a line.
static LOG: Mutex<Option<Log>> = Mutex::new(None);

struct Log {
    file: File,
    /// The first error of writing to it.
    failed: Option<io::Error>,
}

/// Has what is told from now on kept in a file, too.
pub fn log_to(file: File) {
    if let Ok(mut log) = LOG.lock() {
        *log = Some(Log { file, failed: None });
    }
}

/// Writes lines to the log, if there is one. A log that cannot be written does not end a copy; [`log_failed`] tells of it.
pub fn log(what: Arguments<'_>) {
    if let Ok(mut log) = LOG.lock()
        && let Some(Log { file, failed }) = &mut *log
    {
        let now = crate::format::now();
        let what = what.to_string();
        let lines = text::lines(&what);
        let lines: String = lines.lines().map(|line| format!("{now} {line}\n")).collect();
        if let Err(error) = file.write_all(lines.as_bytes()) {
            failed.get_or_insert(error);
        }
    }
}

/// The error that left the log incomplete, such as a full disk.
pub fn log_failed() -> Option<io::Error> {
    LOG.lock().ok()?.as_mut()?.failed.take()
}

/// Prints a line on standard error, if it is to be shown, and keeps it in the log in any case.
pub fn tell(shown: bool, line: Arguments<'_>) {
    if shown { err(format_args!("{line}\n")) } else { log(line) }
}

/// Standard output as a writer that never fails; [`failed`] tells whether it did.
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stdout = io::stdout().lock();
        let written = match closed::stdout() {
            true => Err(io::Error::from_raw_os_error(libc::EBADF)),
            false => stdout.write_all(bytes).and_then(|()| stdout.flush()),
        };
        if let Err(error) = written
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
    log(what);
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
