//! Runs `fullpipe-VERB` from PATH for a verb that is not built in.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use fullpipe_path::ExitClass;

use crate::failure::Failure;

/// Replaces this process by `fullpipe-VERB`. Returns only if that fails.
pub fn run(words: &[OsString]) -> ExitCode {
    let verb = words.first().map_or(OsStr::new(""), OsString::as_os_str);
    let mut name = OsString::from("fullpipe-");
    name.push(verb);
    let mut command = Command::new(&name);
    command.args(words.iter().skip(1));
    // If that program calls fullpipe, it should be this very one.
    if let Ok(me) = std::env::current_exe() {
        command.env("FULLPIPE", me);
    }
    let error = command.exec();
    let verb = verb.to_string_lossy();
    let failure = if error.kind() == io::ErrorKind::NotFound {
        match verb.as_ref() {
            "campaign" | "analyze" | "report" => Failure::new(
                ExitClass::Missing,
                format!(
                    "'{verb}' needs fullpipe's Python part; run 'make build' in the repository, then put its .venv/bin on PATH"
                ),
            ),
            _ => Failure::usage(format!(
                "fullpipe has no verb '{verb}', and there is no fullpipe-{verb} on PATH; see fullpipe --help"
            )),
        }
    } else {
        Failure::new(ExitClass::Missing, format!("cannot run fullpipe-{verb}: {error}"))
    };
    failure.report()
}
