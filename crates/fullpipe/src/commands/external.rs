//! Verbs of other programs.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use fullpipe_path::ExitClass;

use crate::failure::Failure;

/// Becomes `fullpipe-VERB`; comes back only if that cannot be.
pub fn run(words: &[OsString]) -> ExitCode {
    let verb = words.first().map_or(OsStr::new(""), OsString::as_os_str);
    let mut name = OsString::from("fullpipe-");
    name.push(verb);
    let mut command = Command::new(&name);
    command.args(words.iter().skip(1));
    // What it calls back should be this same program.
    if let Ok(me) = std::env::current_exe() {
        command.env("FULLPIPE", me);
    }
    let error = command.exec();
    let verb = verb.to_string_lossy();
    let failure = if error.kind() == io::ErrorKind::NotFound {
        match verb.as_ref() {
            "campaign" | "analyze" | "report" => Failure::new(
                ExitClass::Missing,
                format!("'{verb}' comes with fullpipe's Python part: 'make build', then put .venv/bin on PATH"),
            ),
            _ => Failure::new(
                ExitClass::Usage,
                format!(
                    "'{verb}' is no verb of fullpipe, and there is no fullpipe-{verb} on PATH; see fullpipe --help"
                ),
            ),
        }
    } else {
        Failure::new(ExitClass::Missing, format!("cannot run fullpipe-{verb}: {error}"))
    };
    failure.report()
}
