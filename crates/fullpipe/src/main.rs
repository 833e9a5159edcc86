//! The `fullpipe` command: one file per verb, thin. What it does not know it looks for on PATH as
//! `fullpipe-VERB`, as git and cargo do.

// They panic when nobody reads; crate::output does not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod commands;
mod failure;
mod format;
mod output;
mod ports;
mod progress;
mod rlimit;
mod run_record;
mod shipped_profile;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{CommandFactory, Parser, Subcommand};
use commands::{cp, doctor, external, far, lab, measure, pages, select, serve, token};
use failure::Failure;
use fullpipe_path::ExitClass;

const AFTER: &str = "\
With its Python part installed:
  campaign  Run a grid of measurements, and only what is missing of it
  analyze   From records to Parquet files, a profile, and what the papers compute of them
  report    Records as one self-contained HTML page, or one figure

Any other VERB runs the program fullpipe-VERB from PATH.

Exit codes:
  0    done
  1    the work failed
  2    wrong usage or input
  3    something is missing here: kernel, tool, permission, port
  4    the far end refused, vanished or has another version
  5    output or record cannot be written or read
  6    the testbed's guest failed
  130  interrupted";

#[derive(Parser)]
#[command(name = "fullpipe", version, propagate_version = true, about = "Fills long fat pipes: copies files, measures transports, decides, emulates paths", after_help = AFTER)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Measure one transport over one path: a real host, or one emulated in the testbed
    Measure(measure::Args),
    /// Copy files to or from another host, at the path's full rate
    Cp(Box<cp::Args>),
    /// The far end of a transfer, started by ssh
    #[command(hide = true)]
    Far(far::Args),
    /// Be the far end of measurements, and with --root of copies, on a real host
    Serve(serve::Args),
    /// Serve one client of a server, started by 'fullpipe serve'
    #[command(hide = true)]
    ServeClient,
    /// Tokens of a server: make, list and revoke them
    Token(token::Args),
    /// The testbed: build its kernel, run any programs over an emulated path
    Lab(lab::Args),
    /// Choose a transport for a path from a profile
    Select(select::Args),
    /// What this host's limits cost on long fast paths, and the lines that mend it
    Doctor(doctor::Args),
    /// A shell's completions of fullpipe's command line, on standard output
    Completions(pages::Completions),
    /// Write fullpipe's manual pages into a folder
    Man(pages::Man),
    /// A verb of another program
    #[command(external_subcommand)]
    External(Vec<OsString>),
}

fn main() -> ExitCode {
    if fullpipe_lab::guest::is_guest() {
        return fullpipe_lab::guest::init();
    }
    // A file that is longer than its user may make is an error of that file, not the end of the program.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::<AtomicBool>::default());
    let result = match Cli::try_parse().unwrap_or_else(|error| wrong(&error)).verb {
        Verb::Measure(args) => measure::run(args),
        Verb::Cp(args) => cp::run(*args),
        Verb::Far(args) => far::run(args),
        Verb::Serve(args) => serve::run(args),
        Verb::ServeClient => serve::child::run(),
        Verb::Token(args) => token::run(args),
        Verb::Lab(args) => lab::run(args),
        Verb::Select(args) => select::run(args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Completions(args) => {
            pages::completions(&args, Cli::command());
            Ok(())
        }
        Verb::Man(args) => pages::man(&args, Cli::command()),
        Verb::External(words) => return external::run(&words),
    };
    let incomplete = output::failed()
        .map_or(Ok(()), |e| Err(Failure::new(ExitClass::Record, format!("cannot write to standard output: {e}"))));
    match result.and(incomplete) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Says what is wrong with the command line, to a program too.
fn wrong(error: &clap::Error) -> ! {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let of_cp = words.first().is_some_and(|verb| verb == "cp") && words.iter().any(|word| word == "--json");
    if of_cp && error.use_stderr() {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        cp::print_failed(first.trim_start_matches("error: "), ExitClass::Usage as u8);
    }
    error.exit()
}
