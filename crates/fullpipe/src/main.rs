//! The `fullpipe` command: reads the command line and runs one verb (`commands/`). Any other verb is the program
//! `fullpipe-VERB` on PATH, as with git and cargo.

// The standard macros panic when nobody reads; those of `output` do not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod closed;
mod commands;
mod config;
mod failure;
mod format;
mod hints;
mod interrupt;
mod mount;
mod output;
mod over_ssh;
mod ports;
mod progress;
mod rlimit;
mod run_record;
mod shipped_profile;
mod start_up;
mod token_files;
mod windows;
mod xdg;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};
use commands::{bench, config as show_config, cp, doctor, external, far, lab, measure, pages, select, serve, token};
use failure::Failure;
use fullpipe_path::ExitClass;

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the work failed
  2    wrong usage or input
  3    this host lacks something: kernel, tool, permission, port
  4    the other end refused, vanished or has another version
  5    output or record cannot be written or read
  6    the testbed's guest failed
  130  interrupted";

/// What 'fullpipe --help' says behind the verbs and flags.
fn after() -> String {
    let python: String = external::PYTHON.iter().map(|(verb, about)| format!("  {verb:<9} {about}\n")).collect();
    format!(
        "With fullpipe's Python part installed:\n{python}\nAny other VERB runs the program fullpipe-VERB from \
         PATH.\n\n{EXIT_CODES}"
    )
}

#[derive(Parser)]
#[command(name = "fullpipe", version, propagate_version = true, about = "Fills long fat pipes: copies files at full rate, measures transports, chooses among them, emulates paths", after_help = after())]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Measure one transport over one path, to a real host or emulated in the testbed; or the storage of a folder
    Measure(Box<measure::Args>),
    /// Copy files to or from another host, or between two others, at the path's full rate
    Cp(Box<cp::Args>),
    /// Serve the far end of a copy (started by ssh)
    #[command(hide = true)]
    Far(far::Args),
    /// Serve measurements to other hosts, and with --root also copies
    Serve(serve::Args),
    /// Serve one client (started by 'fullpipe serve')
    #[command(hide = true)]
    ServeClient,
    /// Make, list and revoke the tokens of a server
    Token(token::Args),
    /// Build the testbed's kernel, or run any programs over an emulated path
    Lab(lab::Args),
    /// Choose a transport for a path from a profile
    Select(select::Args),
    /// Show what this host's settings cost on long fast paths, and the commands that fix it
    Doctor(doctor::Args),
    /// Copy random data to or from a host with fullpipe and with the other programs that both hosts have, and compare
    Bench(bench::Args),
    /// Show what the configuration files set for a host
    Config(show_config::Args),
    /// Print shell completions on standard output
    Completions(pages::Completions),
    /// Write manual pages into a folder
    Man(pages::Man),
    /// Run the program fullpipe-VERB
    #[command(external_subcommand)]
    External(Vec<OsString>),
}

fn main() -> ExitCode {
    if fullpipe_lab::guest::is_guest() {
        return fullpipe_lab::guest::init();
    }
    // A file over its user's limit of size is an error of that file, not the end of the program.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::<AtomicBool>::default());
    let result = match Cli::try_parse().unwrap_or_else(|error| wrong(error)).verb {
        Verb::Measure(args) => measure::run(&args, &Cli::command()),
        Verb::Cp(args) => configured(args).and_then(|args| cp::run(*args)),
        Verb::Far(args) => far::run(args, &doctor::report_for),
        Verb::Serve(args) => serve::run(args),
        Verb::ServeClient => serve::child::run(),
        Verb::Token(args) => token::run(args),
        Verb::Lab(args) => lab::run(args),
        Verb::Select(args) => select::run(args, &Cli::command()),
        Verb::Doctor(args) => doctor::run(args, &Cli::command()),
        Verb::Bench(args) => bench::run(args, &Cli::command()),
        Verb::Config(args) => show_config::run(args, &Cli::command()),
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

/// Adds to a command line of `cp` what the configuration files set for its host.
fn configured(args: Box<cp::Args>) -> failure::Result<Box<cp::Args>> {
    let Some(host) = args.host().filter(|_| !args.no_config) else { return Ok(args) };
    let source = args.source_host().map(|source| configured_for(&args, &source)).transpose()?.flatten();
    let typed = args.via;
    let mut configured = configured_for(&args, &host)?.unwrap_or(args);
    if source.is_some() {
        configured.via = configured.via.between_hosts(typed);
    }
    configured.source = source;
    Ok(configured)
}

/// The command line of `cp` with what the configuration files set for a host.
fn configured_for(
    args: &cp::Args,
    (host, reached): &(String, config::Reached),
) -> failure::Result<Option<Box<cp::Args>>> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let words = config::configured(&Cli::command(), &words, host, *reached).inspect_err(|failure| {
        if args.json {
            cp::print_failed(&failure.to_string(), failure.code());
        }
    })?;
    Ok(match Cli::try_parse_from(words).unwrap_or_else(|error| wrong(error)).verb {
        Verb::Cp(configured) => Some(configured),
        _ => None,
    })
}

/// Removes clap's tip to pass an unknown flag as a value, behind `--`: that is seldom meant, and most verbs take no such value.
fn without_value_tip(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) {
        tips.retain(|tip| !tip.to_string().contains(" as a value, use "));
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    error
}

/// Reports a wrong command line, and ends. `cp --json` tells a program too.
fn wrong(error: clap::Error) -> ! {
    let error = without_value_tip(error);
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into()).collect();
    let of_cp = words.first().is_some_and(|verb| verb == "cp");
    let json = of_cp && words.iter().any(|word| word == "--json");
    let flag = if of_cp { cp::wrong_flag(&error, &words).or_else(|| named_as_typed(&error, &words)) } else { None };
    if json && (flag.is_some() || error.use_stderr()) {
        cp::print_failed(&flag.clone().unwrap_or_else(|| failure::reason(&error)), ExitClass::Usage as u8);
    }
    if let Some(why) = flag {
        output::errln!("error: {why}");
        std::process::exit(ExitClass::Usage as i32);
    }
    error.exit()
}

/// The error under the name of the flag that was typed, where that is not the flag's first one.
fn named_as_typed(error: &clap::Error, words: &[String]) -> Option<String> {
    let is_typed = words.iter().any(|word| word == "--bwlimit" || word.starts_with("--bwlimit="));
    let reason = failure::reason(error);
    let (name, typed) = ("--pacing <RATE>", "--bwlimit <RATE>");
    (is_typed && reason.contains(name)).then(|| reason.replace(name, typed))
}
