//! The command line of `fullpipe cp`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Arg;
use fullpipe_path::{DirectIo, Size, Stripes, Time};
use fullpipe_transfer::protocol::changes::{Changes, mode_rules};

use super::filters::Filters;
use super::transport::{HEADING, TransportArgs};
use super::via::Wanted;
use crate::failure::{Failure, Result};
use crate::over_ssh::SSH;

/// Default of `--seed`.
pub const SEED: u64 = 1;

/// The end of the help text of `-h`.
const SHORT_END: &str = "\
These are the flags that most copies need. 'fullpipe cp --help' has all of them, and examples.

An interrupted or failed copy goes on where it was when the same command is repeated.";

const EXAMPLES: &str = "\
Examples:
  fullpipe cp -r big/ me@host:/data/              over ssh; nothing needs to be installed on host
  fullpipe cp 'host:/data/*.h5' .                 from host, by pattern
  fullpipe cp -r one:/data/big two:/data/         from one host straight to another
  tar c big | fullpipe cp - host:/data/big.tar    what comes from a pipe
  fullpipe cp -r big/ fullpipe://host:7412/       to a host that runs 'fullpipe serve --root DIR'
  fullpipe cp x lab:rtt=91.6ms,rate=10gbit:/tmp/  over an emulated path, on this host

An interrupted or failed copy goes on where it was when the same command is repeated.";

/// The arguments of `fullpipe cp`.
#[derive(clap::Args)]
#[command(override_usage = "fullpipe cp [OPTIONS] <SRC>... <DST>", after_help = SHORT_END, after_long_help = EXAMPLES)]
#[command(mut_args = show_in_short_help, args_override_self = true)]
pub struct Args {
    /// Sources, then the destination: local names, and on one side HOST:PATH (ssh), fullpipe://HOST:PORT/PATH (a server), or as
    /// destination lab:KEYS:/PATH (the testbed); or HOST:PATH on both sides; '-' is standard input or output
    #[arg(required = true, num_args = 1.., value_name = "PATH")]
    pub paths: Vec<OsString>,

    /// Copy folders with everything below them
    #[arg(long, short, visible_short_alias = 'a', help_heading = FILES)]
    pub recursive: bool,
    /// Take DST as the name of the copy, even if it is a folder: repeating the command then never makes DST/SRC
    #[arg(long, short = 'T', help_heading = FILES)]
    pub no_target_directory: bool,
    /// Keep setuid, setgid and sticky bits too; permissions and times are always kept
    #[arg(long, short = 'p', help_heading = FILES)]
    pub preserve: bool,
    /// Delete files and folders at the destination, in the folders that are copied, that the source does not have; only once
    /// everything has arrived. What --exclude excludes stays
    #[arg(long, requires = "recursive", conflicts_with = "files-from", help_heading = FILES)]
    pub delete: bool,
    /// Delete at most N files and folders
    #[arg(long, value_name = "N", requires = "delete", help_heading = FILES)]
    pub max_delete: Option<u64>,
    /// Remove each file and link of the source once the destination has it, complete and on disk (--fsync is implied); what has
    /// changed meanwhile stays, and so do folders
    #[arg(long, conflicts_with_all = ["delete", "dereference", "hard_links", "xattrs", "acls"], help_heading = FILES)]
    pub remove_source_files: bool,
    /// Copy what symbolic links point to, not the links
    #[arg(long, short = 'L', help_heading = FILES)]
    pub dereference: bool,
    /// Set permissions as chmod does, such as D755,F644 or go=rX,g+w; D is for folders only, F for files only
    #[arg(long, value_name = "MODE", help_heading = FILES)]
    pub chmod: Option<String>,
    /// Give everything to USER and GROUP of the destination, if the receiver is root; either may be left out
    #[arg(long, value_name = "USER:GROUP", help_heading = FILES)]
    pub chown: Option<String>,
    /// Keep no owners and groups, also if the receiver is root: everything belongs to it
    #[arg(long, help_heading = FILES)]
    pub no_owner: bool,
    /// Copy extended attributes too
    #[arg(long, short = 'X', help_heading = FILES)]
    pub xattrs: bool,
    /// Copy access control lists too
    #[arg(long, short = 'A', help_heading = FILES)]
    pub acls: bool,
    /// Keep hard links among the copied files
    #[arg(long, short = 'H', help_heading = FILES)]
    pub hard_links: bool,
    /// Write into the files that the destination has, not into new ones that take their place: hard links and inodes stay, no
    /// second file needs room, and readers see a file while it changes
    #[arg(long, help_heading = FILES)]
    pub inplace: bool,
    /// Flush each file to disk before it gets its name
    #[arg(long, help_heading = FILES)]
    pub fsync: bool,
    /// Read each finished file back from storage and compare it with what the sender read
    #[arg(long, help_heading = FILES)]
    pub verify: bool,
    /// Skip files that the destination has with the same size and time, or newer
    #[arg(long, short, help_heading = FILES)]
    pub update: bool,
    /// Skip files that the destination has with the same content, whatever their times: the sender reads every file, the
    /// receiver those of the same size. Overrides --update
    #[arg(long, short, help_heading = FILES)]
    pub checksum: bool,
    /// Skip files that the destination has with the same size and time, and replace all others, newer ones too: the quick check of
    /// rsync
    #[arg(long, conflicts_with_all = ["update", "ignore_times", "checksum"], help_heading = FILES)]
    pub quick_check: bool,
    /// Copy every file, whatever the destination has. This is so without --update, too; overrides --update
    #[arg(long, short = 'I', conflicts_with = "checksum", help_heading = FILES)]
    pub ignore_times: bool,
    /// Copy a file that grows meanwhile, such as a log, as far as it was when it was found; otherwise a file that changes is left
    /// out, and named
    #[arg(long, conflicts_with = "remove_source_files", help_heading = FILES)]
    pub allow_growing: bool,
    /// Give files all of their blocks, also where the source has holes, or zeros
    #[arg(long, help_heading = FILES)]
    pub no_sparse: bool,
    /// Bypass the page cache (O_DIRECT): for large files on disks (auto), for all files (on), or never (off)
    #[arg(long, default_value = "auto", value_name = "auto|on|off", help_heading = FILES)]
    pub direct: DirectIo,
    /// Read, send and write blocks of at most this size, 64KiB to 64MiB
    #[arg(long, default_value = "8MiB", value_name = "SIZE", help_heading = FILES)]
    pub block: Size,

    /// Lay out files from 1MiB that are new on a Lustre file system over COUNT storage targets, or over all; SIZE is that of a
    /// stripe [default: the layout that the folder prescribes; where it has none, one that depends on the file's size]
    #[arg(long, value_name = "COUNT[,SIZE]", help_heading = FILES)]
    pub stripe: Option<Stripes>,

    #[command(flatten)]
    pub filters: Filters,

    #[command(flatten)]
    pub how: TransportArgs,
    /// Send data unencrypted; corruption and tampering are still detected
    #[arg(long, help_heading = HEADING)]
    pub no_encrypt: bool,
    /// Drop a connection on which nothing has moved for this long, and connect again
    #[arg(long, default_value = "60s", value_name = "TIME", help_heading = HEADING)]
    pub stall: Time,
    /// End the copy once it has connected again N times in a row and nothing has moved
    #[arg(long, default_value_t = 5, value_name = "N", help_heading = HEADING)]
    pub retries: u32,

    /// Read no configuration file
    #[arg(long, help_heading = HEADING)]
    pub no_config: bool,

    /// Connect to HOST:PATH with this command and its options
    #[arg(long, default_value = SSH, value_name = "COMMAND", help_heading = OVER_SSH)]
    pub ssh: String,
    /// Connect to this port of HOST, as 'ssh -p'
    #[arg(long, short = 'P', value_name = "PORT", help_heading = OVER_SSH)]
    pub port: Option<u16>,
    /// Log in with this private key, as 'ssh -i'
    #[arg(long, short, value_name = "FILE", help_heading = OVER_SSH)]
    pub identity: Option<PathBuf>,
    /// Go through this host, or several with commas, as 'ssh -J'
    #[arg(long, short = 'J', value_name = "HOST", help_heading = OVER_SSH)]
    pub jump: Option<String>,
    /// Run this program on HOST [default: the fullpipe on the PATH of its logins; if that is missing or of another version, this
    /// one, which is sent to ~/.cache/fullpipe/bin there]
    #[arg(long, value_name = "PROGRAM", help_heading = OVER_SSH)]
    pub far_program: Option<String>,
    /// Send this fullpipe to HOST, such as one for another architecture, instead of the one that runs here
    #[arg(long, value_name = "FILE", conflicts_with = "far_program", help_heading = OVER_SSH)]
    pub far_binary: Option<PathBuf>,
    /// Send no program to HOST
    #[arg(long, conflicts_with = "far_binary", help_heading = OVER_SSH)]
    pub no_deploy: bool,
    /// Accept data streams on these ports, such as 7413-7476: with --via tcp on those of HOST, with --via reverse on those of this
    /// host, with --via auto on those of HOST, and if it cannot be reached there on the same ones of this host [default: any
    /// free port]
    #[arg(long, value_name = "FIRST-LAST", help_heading = OVER_SSH)]
    pub data_ports: Option<String>,
    /// Carry the data over connections to the far host (tcp), from there to this host (reverse), or of ssh (ssh); or try these in
    /// turn, TCP for 3 s, and remember what got through (auto). Between two other hosts: straight (tcp), through this one (ssh)
    #[arg(long, value_enum, default_value = "auto", value_name = "auto|tcp|reverse|ssh", help_heading = OVER_SSH)]
    #[arg(hide_possible_values = true)]
    pub via: Wanted,

    /// Read the server's token from this file [default: the token in the environment variable FULLPIPE_TOKEN]
    #[arg(long, value_name = "FILE", help_heading = WITH_SERVER)]
    pub token_file: Option<PathBuf>,
    /// Send no token and encrypt nothing, for a server that runs with --insecure
    #[arg(long, conflicts_with = "token_file", help_heading = WITH_SERVER)]
    pub insecure: bool,

    /// Set the memory of the guest [default: what the path needs]
    #[arg(long, value_name = "SIZE", help_heading = IN_TESTBED)]
    pub memory: Option<Size>,
    /// Seed every random number
    #[arg(long, default_value_t = SEED, help_heading = IN_TESTBED)]
    pub seed: u64,
    /// The emulated path on whose behalf this process runs inside the guest
    #[arg(long, hide = true)]
    pub guest: Option<String>,
    /// The command line with what the configuration files set for the host of the sources, if the copy is between two hosts.
    #[arg(skip)]
    pub source: Option<Box<Args>>,

    /// Show how the data will be sent, and why
    #[arg(long, help_heading = OUTPUT)]
    pub explain: bool,
    /// Show what would be copied, compared with what the destination has, and how, but copy nothing
    #[arg(long, help_heading = OUTPUT)]
    pub dry_run: bool,
    /// Write a record with TCP_INFO, or UDT's statistics, of every stream into folder DIR, or to FILE if it ends in .ndjson;
    /// 'fullpipe report' shows it, 'fullpipe analyze' makes a profile of many
    #[arg(long, value_name = "DIR|FILE", help_heading = OUTPUT)]
    pub record: Option<PathBuf>,
    /// Sample TCP_INFO, or UDT's statistics, this often for the record, at least 10ms apart
    #[arg(long, default_value = "100ms", value_name = "TIME", help_heading = OUTPUT)]
    pub sample: Time,
    /// Print the name of each file on stdout: when sending, as it starts; when receiving, as it is finished; with --dry-run, of
    /// each that would be copied, and whether it would be new
    #[arg(long, short, conflicts_with = "quiet", help_heading = OUTPUT)]
    pub verbose: bool,
    /// Add a line to FILE, with the time, for each file that is sent, received (copied) or deleted, and for all that is told
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub log_file: Option<PathBuf>,
    /// Print events as NDJSON on stdout
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Print only errors
    #[arg(long, short, help_heading = OUTPUT)]
    pub quiet: bool,
}

/// The arguments that `-h` shows; `--help` shows all.
const SHORT_HELP: [&str; 17] = [
    "paths",
    "recursive",
    "no_target_directory",
    "preserve",
    "update",
    "checksum",
    "delete",
    "exclude",
    "verify",
    "pacing",
    "port",
    "identity",
    "jump",
    "dry_run",
    "verbose",
    "quiet",
    "json",
];

fn show_in_short_help(arg: Arg) -> Arg {
    let shown = SHORT_HELP.contains(&arg.get_id().as_str());
    arg.hide_short_help(!shown)
}

// Headings of the help text.
const FILES: &str = "Files";
const OVER_SSH: &str = "Over ssh (HOST:PATH)";
const WITH_SERVER: &str = "With a server (fullpipe://HOST:PORT/PATH)";
const IN_TESTBED: &str = "In the testbed (lab:...)";
const OUTPUT: &str = "Output";

impl Args {
    /// Whether files that are the same, and perhaps those that are newer, at the destination are skipped.
    pub fn updates(&self) -> bool {
        (self.update || self.quick_check) && !self.checksum && !self.ignore_times
    }

    /// What is changed of the files' attributes.
    ///
    /// # Errors
    /// A mode or an owner cannot be read.
    pub fn changes(&self) -> Result<Changes> {
        let modes = self.chmod.as_deref().map_or(Ok(Vec::new()), mode_rules);
        let modes = modes.map_err(|why| Failure::usage(format!("--chmod: {why}")))?;
        let (owner, group) = match &self.chown {
            Some(chown) => chown.split_once(':').unwrap_or((chown, "")),
            None => ("", ""),
        };
        if self.chown.is_some() && owner.is_empty() && group.is_empty() {
            return Err(Failure::usage("--chown: give USER, USER:GROUP or :GROUP"));
        }
        let given = |name: &str| Some(name.to_owned()).filter(|name| !name.is_empty());
        Ok(Changes { no_owner: self.no_owner, owner: given(owner), group: given(group), modes })
    }

    /// The flags that another fullpipe needs to treat files, data and messages as this command line asks.
    ///
    /// # Errors
    /// A file with patterns cannot be read.
    pub fn passed_on(&self, how: &TransportArgs) -> Result<Vec<String>> {
        let mut words = self.filters.passed_on()?;
        for (on, flag) in [
            (self.recursive, "-r"),
            (self.no_target_directory, "-T"),
            (self.dereference, "-L"),
            (self.xattrs, "--xattrs"),
            (self.acls, "--acls"),
            (self.hard_links, "--hard-links"),
            (self.delete, "--delete"),
            (self.no_owner, "--no-owner"),
            (self.inplace, "--inplace"),
            (self.fsync, "--fsync"),
            (self.preserve, "--preserve"),
            (self.verify, "--verify"),
            (self.update, "--update"),
            (self.checksum, "--checksum"),
            (self.quick_check, "--quick-check"),
            (self.ignore_times, "--ignore-times"),
            (self.allow_growing, "--allow-growing"),
            (self.no_sparse, "--no-sparse"),
            (self.no_encrypt, "--no-encrypt"),
            (how.steady, "--steady"),
            (self.explain, "--explain"),
            (self.dry_run, "--dry-run"),
            (self.json, "--json"),
            (self.verbose, "--verbose"),
            (self.quiet, "--quiet"),
        ] {
            if on {
                words.push(flag.to_owned());
            }
        }
        let valued = [
            ("--direct", self.direct.to_string()),
            ("--block", self.block.to_string()),
            ("--stall", self.stall.to_string()),
            ("--retries", self.retries.to_string()),
        ];
        words.extend(self.chmod.iter().map(|modes| format!("--chmod={modes}")));
        words.extend(self.chown.iter().map(|owner| format!("--chown={owner}")));
        words.extend(self.stripe.iter().map(|stripes| format!("--stripe={stripes}")));
        words.extend(self.max_delete.iter().map(|most| format!("--max-delete={most}")));
        words.extend(valued.into_iter().chain(how.passed_on()).flat_map(|(flag, value)| [flag.to_owned(), value]));
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use clap::{ArgAction, CommandFactory, Parser};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// Without a value. What a copy into the testbed refuses, or what concerns this process alone, is not passed on.
    #[test]
    fn each_flag_is_passed_on_or_known_not_to_be() {
        const HERE: [&str; 5] = ["remove_source_files", "no_config", "no_deploy", "insecure", "from0"];
        let command = Line::command();
        let flags = command.get_arguments().filter(|arg| matches!(arg.get_action(), ArgAction::SetTrue));
        let mut passed = 0;
        for arg in flags.filter(|arg| !HERE.contains(&arg.get_id().as_str())) {
            let long = format!("--{}", arg.get_long().unwrap());
            let names = [arg.get_short().map(|short| format!("-{short}")), Some(long.clone())];
            let words = if long == "--recursive" { vec!["cp", &long] } else { vec!["cp", "-r", &long] };
            let args = Line::try_parse_from(words.into_iter().chain(["a", "b"])).unwrap_or_else(|e| panic!("{e}")).args;
            let words = args.passed_on(&args.how).unwrap_or_else(|e| panic!("{e}"));
            assert!(names.iter().flatten().any(|name| words.contains(name)), "{long} is not in {words:?}");
            passed += 1;
        }
        assert!(passed > 20, "{passed}");
    }
}
