//! `fullpipe token`: makes, lists and revokes the tokens of a server.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use fullpipe_path::Time;
use fullpipe_transfer::TransferError;
use fullpipe_transfer::connection::token::{self, Token};
use fullpipe_transfer::connection::token_store::{self, Grant, Rights};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::failure::{Failure, Result};
use crate::output::{errln, outln};
use crate::token_files::server_file;

/// Longest lifetime of a token, seconds: a century.
const LIFETIME_MAX_S: u64 = 100 * 365 * 86_400;

/// The arguments of `fullpipe token`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Make a token; a running server accepts it at once
    New(New),
    /// List a server's tokens with rights, folders and expiry, but no secrets
    List(List),
    /// Revoke a token; a running server refuses it at once, but lets running copies finish
    Revoke(Revoke),
}

/// Make a token; a running server accepts it at once
#[derive(clap::Args)]
struct New {
    /// Restrict the token to this folder, at or below the server's --root [default: all of --root]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Allow only copies from the server
    #[arg(long, conflicts_with = "write_only")]
    read_only: bool,
    /// Allow only copies to the server
    #[arg(long)]
    write_only: bool,
    /// Let the token expire after this time, such as 12h, 7d or 4w [default: never]
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    expires: Option<u64>,
    /// Name the token, for the log and for revoking it [default: a random name]
    #[arg(long)]
    name: Option<String>,
    /// Write the token to this new file, readable by its owner only, instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Keep tokens in this file, its store beside it (FILE.store), as 'fullpipe serve' does
    /// [default: ~/.local/state/fullpipe/token]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Make a token for a server that has not been started yet, whose --token-file FILE does not exist
    #[arg(long)]
    new_server: bool,
    /// Print the token and what it grants as JSON on stdout
    #[arg(long)]
    json: bool,
}

/// List a server's tokens with rights, folders and expiry, but no secrets
#[derive(clap::Args)]
struct List {
    /// Use the server's tokens in this file and in its store beside it (FILE.store)
    /// [default: ~/.local/state/fullpipe/token]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print NDJSON on stdout, one line per token
    #[arg(long)]
    json: bool,
}

/// Revoke a token; a running server refuses it at once, but lets running copies finish
#[derive(clap::Args)]
struct Revoke {
    /// Name of the token, as 'fullpipe token list' shows it
    name: String,
    /// Use the server's tokens in this file and in its store beside it (FILE.store)
    /// [default: ~/.local/state/fullpipe/token]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print the name of the revoked token as JSON on stdout
    #[arg(long)]
    json: bool,
}

/// Makes, lists or revokes.
pub fn run(args: Args) -> Result {
    match args.what {
        What::New(args) => new(&args),
        What::List(args) => list(&args),
        What::Revoke(args) => revoke(&args),
    }
}

/// Reads a time, seconds: `7d`, `4w`, or as elsewhere (`12h`, `30min`).
fn lifetime(text: &str) -> std::result::Result<u64, String> {
    let days = |number: &str, each: u64| number.parse::<u64>().ok().and_then(|n| n.checked_mul(each * 86_400));
    let seconds = match (text.strip_suffix('d'), text.strip_suffix('w')) {
        (Some(number), _) => days(number, 1),
        (_, Some(number)) => days(number, 7),
        _ => text.parse::<Time>().ok().map(|time| time.0 / 1_000_000_000),
    };
    let fits = seconds.filter(|seconds| (1..=LIFETIME_MAX_S).contains(seconds));
    fits.ok_or_else(|| "give a time from 1s to a century, such as 12h, 7d or 4w".to_owned())
}

/// A time as RFC 3339, UTC.
pub fn utc(unix_s: u64) -> String {
    let time = i64::try_from(unix_s).ok().and_then(|s| OffsetDateTime::from_unix_timestamp(s).ok());
    time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_else(|| format!("{unix_s} s after 1970"))
}

fn new(args: &New) -> Result {
    let file = server_file(args.token_file.as_deref())?;
    let folder = args.root.as_deref().map(folder).transpose()?;
    let rights = match (args.read_only, args.write_only) {
        (true, _) => Rights::ReadOnly,
        (_, true) => Rights::WriteOnly,
        _ => Rights::ReadWrite,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let expires_unix_s = args.expires.map(|seconds| now.saturating_add(seconds));
    let grant = Grant { name: String::new(), rights, folder, expires_unix_s };
    // Without one, the token is for a server that has not begun.
    let is_first = !token::has_identity(&file);
    if is_first && !args.new_server && args.token_file.is_some() {
        let file = file.display();
        return Err(Failure::usage(format!(
            "--token-file {file}: no server has its tokens there; give the file that 'fullpipe serve' was started with, or add \
             --new-server if that server is still to be started"
        )));
    }
    let mut kept = false;
    let keep = |token: &Token, _: &Grant| match &args.out {
        Some(out) => write(out, token).inspect(|()| kept = true),
        None => Ok(()),
    };
    let added = token_store::add(&file, args.name.as_deref(), grant, keep);
    let (token, grant) = added.inspect_err(|_| {
        if let Some(out) = args.out.as_ref().filter(|_| kept) {
            // It opens nothing.
            let _ = std::fs::remove_file(out);
        }
    })?;
    // The token is stored, so an error here must not keep it from being shown.
    for exposed in token_store::exposed(&file).unwrap_or_default() {
        errln!("warning: {exposed}");
    }
    if args.json {
        let mut line = described(&grant);
        match &args.out {
            Some(out) => line["file"] = json!(out.to_string_lossy()),
            None => line["token"] = json!(token.to_string()),
        }
        outln!("{line}");
        return Ok(());
    }
    if args.out.is_none() {
        outln!("{token}");
    }
    let folder =
        grant.folder.as_ref().map_or_else(|| "the server's --root".into(), |folder| folder.display().to_string());
    let end =
        grant.expires_unix_s.map_or_else(|| "until it is revoked".to_owned(), |end| format!("until {}", utc(end)));
    let place = match &args.out {
        Some(out) => format!("it is in {}", out.display()),
        None => "it is not shown again".to_owned(),
    };
    errln!("token {}: {} below {folder}, {end}; {place}", grant.name, grant.rights);
    if is_first {
        errln!(
            "{} is new, and with it a server's key: no server that runs takes this token; start one with --token-file {}",
            file.display(),
            file.display()
        );
    }
    if grant.folder.is_some() {
        errln!(
            "it opens only a server that has this token file and serves {folder} or a folder above it (serve --root)"
        );
    }
    Ok(())
}

/// The folder of a token: absolute, without links, as text.
fn folder(typed: &Path) -> Result<PathBuf> {
    let whole = std::fs::canonicalize(typed).map_err(|e| {
        let why = match e.kind() {
            ErrorKind::NotFound => "there is no such folder; make it first".to_owned(),
            _ => e.to_string(),
        };
        Failure::usage(format!("--root {}: {why}", typed.display()))
    })?;
    if !whole.is_dir() {
        return Err(Failure::usage(format!("--root {}: it is not a folder", typed.display())));
    }
    if whole.to_str().is_none() {
        return Err(Failure::usage(format!(
            "--root {}: its name is not UTF-8, so the store cannot hold it",
            typed.display()
        )));
    }
    Ok(whole)
}

/// Writes a token to a new file.
fn write(out: &Path, token: &Token) -> std::result::Result<(), TransferError> {
    let write = || {
        let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(out)?;
        to.write_all(format!("{token}\n").as_bytes()).and_then(|()| to.sync_all()).inspect_err(|_| {
            let _ = std::fs::remove_file(out);
        })
    };
    write().map_err(|e| TransferError::of_file(format!("cannot write the token to --out {}", out.display()), &e))
}

/// What a token grants, for programs.
fn described(grant: &Grant) -> Value {
    json!({"kind": "token", "name": grant.name, "rights": grant.rights.to_string(), "folder": grant.folder,
           "expires": grant.expires_unix_s.map(utc), "expired": grant.has_expired(SystemTime::now())})
}

fn list(args: &List) -> Result {
    let grants = token_store::list(&server_file(args.token_file.as_deref())?)?;
    if args.json {
        for grant in &grants {
            outln!("{}", described(grant));
        }
        return Ok(());
    }
    let width = grants.iter().map(|grant| grant.name.len()).max().unwrap_or(0).max("NAME".len());
    outln!("{:width$}  {:10}  {:20}  FOLDER", "NAME", "RIGHTS", "ENDS");
    for grant in &grants {
        let end = match grant.expires_unix_s {
            None => "never".to_owned(),
            Some(_) if grant.has_expired(SystemTime::now()) => "has expired".to_owned(),
            Some(end) => utc(end),
        };
        let folder = grant.folder.as_ref().map_or_else(|| "--root".into(), |folder| folder.display().to_string());
        outln!("{:width$}  {:10}  {end:20}  {folder}", grant.name, grant.rights.to_string());
    }
    Ok(())
}

fn revoke(args: &Revoke) -> Result {
    let file = server_file(args.token_file.as_deref())?;
    if token_store::revoke(&file, &args.name)? {
        if args.json {
            outln!("{}", json!({"kind": "revoked", "name": args.name}));
            return Ok(());
        }
        errln!("token {} is revoked; a server that runs refuses it from now on", args.name);
        return Ok(());
    }
    let names: Vec<String> = token_store::list(&file)?.into_iter().map(|grant| grant.name).collect();
    let known = if names.is_empty() { "there are none".to_owned() } else { format!("there are: {}", names.join(", ")) };
    Err(Failure::usage(format!("no token is called '{}'; {known}", args.name.escape_default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes() {
        for (text, seconds) in [("7d", 604_800), ("2w", 1_209_600), ("12h", 43_200), ("1s", 1), ("30min", 1_800)] {
            assert_eq!(lifetime(text), Ok(seconds), "{text}");
        }
        for bad in ["", "7", "d", "-1d", "0d", "1ms", "99999999999999d", "101000w", "1 d"] {
            assert!(lifetime(bad).is_err(), "{bad}");
        }
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert!(utc(u64::MAX).contains("after 1970"));
    }
}
