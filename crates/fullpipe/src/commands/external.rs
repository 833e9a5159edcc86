//! Runs `fullpipe-VERB` for a verb that is not built in: from the program's own folder, as in a Python environment, else from
//! PATH.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use fullpipe_path::ExitClass;

use crate::failure::Failure;

/// Replaces this process by `fullpipe-VERB`. Returns only if that fails.
pub fn run(words: &[OsString]) -> ExitCode {
    let verb = words.first().map_or(OsStr::new(""), OsString::as_os_str);
    let mut name = OsString::from("fullpipe-");
    name.push(verb);
    let me = std::env::current_exe().ok();
    let beside = me.as_ref().map(|me| me.with_file_name(&name)).filter(|file| file.is_file());
    let mut command = Command::new(beside.as_deref().map_or(name.as_os_str(), Path::as_os_str));
    command.args(words.iter().skip(1));
    // If that program calls fullpipe, it should be this very one.
    if let Some(me) = me {
        command.env("FULLPIPE", me);
    }
    let error = command.exec();
    let verb = verb.to_string_lossy();
    let failure = if error.kind() == io::ErrorKind::NotFound {
        match verb.as_ref() {
            "campaign" | "analyze" | "report" => Failure::new(
                ExitClass::Missing,
                format!(
                    "'{verb}' needs fullpipe's Python part: install the wheel with pip, or run 'make build' in the repository and put \
                     its .venv/bin on PATH"
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
