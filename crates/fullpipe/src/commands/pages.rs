//! `fullpipe completions` and `fullpipe man`: files that a package installs beside the program, made from its command line.

use std::path::{Path, PathBuf};

use clap::{Arg, Command, ValueHint};
use fullpipe_path::ExitClass;

use super::external;
use crate::failure::{Failure, Result};
use crate::output::Stdout;

/// The arguments of `fullpipe completions`.
#[derive(clap::Args)]
pub struct Completions {
    /// Shell to complete for
    shell: clap_complete::Shell,
}

/// The arguments of `fullpipe man`.
#[derive(clap::Args)]
pub struct Man {
    /// Folder for the pages, created if missing
    folder: PathBuf,
}

/// Prints the completions for a shell.
pub fn completions(args: &Completions, program: Command) {
    clap_complete::generate(args.shell, &mut with_python(program), "fullpipe", &mut Stdout);
}

/// Writes a page for the program, and one for each verb: `fullpipe.1`, `fullpipe-cp.1`.
pub fn man(args: &Man, program: Command) -> Result {
    write(&args.folder, with_python(program)).map_err(|e| {
        let text = format!("cannot write manual pages to {}: {e}", args.folder.display());
        Failure::new(ExitClass::Record, text)
    })
}

fn write(folder: &Path, program: Command) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // Beside their names first: a link that somebody put under a name is replaced, and not written through.
    let fresh = tempfile::tempdir_in(folder)?;
    clap_mangen::generate_to(without_help(program), fresh.path())?;
    for page in std::fs::read_dir(fresh.path())? {
        let page = page?;
        std::fs::rename(page.path(), folder.join(page.file_name()))?;
    }
    Ok(())
}

/// Drops the `help` verbs, which repeat `--help` and need no page.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

/// Adds the verbs of the Python part, which parses their words itself.
fn with_python(program: Command) -> Command {
    external::PYTHON.iter().fold(program, |program, (verb, about)| {
        let words = Arg::new("words").value_name("WORD").num_args(0..).allow_hyphen_values(true);
        let more = format!(
            "It belongs to fullpipe's Python part. 'fullpipe {verb} --help' says what it takes, once that part is installed."
        );
        let verb = Command::new(*verb).about(*about).after_help(more).disable_help_flag(true);
        program.subcommand(verb.arg(words.value_hint(ValueHint::AnyPath)))
    })
}
