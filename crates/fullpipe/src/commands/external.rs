//! Runs `fullpipe-VERB` for a verb that is not built in: from the program's own folder, as in a Python environment, else from
//! PATH.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use fullpipe_path::ExitClass;

use crate::failure::Failure;

/// The verbs of the Python part, and what each does.
pub const PYTHON: [(&str, &str); 3] = [
    ("campaign", "Run a grid of measurements, or what is missing of it"),
    ("analyze", "Turn records into Parquet files, a profile and the papers' statistics"),
    ("report", "Turn records into one self-contained HTML page, or into one figure"),
];

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
        if PYTHON.iter().any(|(python, _)| *python == verb) {
            let text = format!(
                "'{verb}' needs fullpipe's Python part: install the wheel with pip, or run 'make build' in the repository \
                 and put its .venv/bin on PATH"
            );
            Failure::new(ExitClass::Missing, text)
        } else {
            let text =
                format!("fullpipe has no verb '{verb}', and there is no fullpipe-{verb} on PATH; see fullpipe --help");
            Failure::usage(text)
        }
    } else {
        Failure::new(ExitClass::Missing, format!("cannot run fullpipe-{verb}: {error}"))
    };
    failure.report()
}
