//! `fullpipe cp`.

mod endpoint;
mod explain;
mod lab;
mod loss;
mod names;
mod record;
mod transport;
mod watch;

use std::cell::RefCell;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_path::{ExitClass, Size, Time};
use fullpipe_transfer::client::{self, Between, Finished, Order, Way};
use fullpipe_transfer::protocol::message::{Direct, Options, Sources, Target};
use fullpipe_transfer::protocol::name::one_line;
use fullpipe_transfer::{Skipped, TransferError};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{errln, outln};
use crate::{Result, words};
use endpoint::Place;

/// Attempts in a row that move nothing before a lost connection is given up.
const TRIES: u32 = 5;
/// What ssh and the far end's program are called where nobody says otherwise, and the testbed's seed.
const SSH: &str = "ssh";
const FAR_PROGRAM: &str = "fullpipe";
const SEED: u64 = 1;
/// Lines of what was left that a person reads.
const SHOWN: usize = 20;

/// Command line.
#[derive(clap::Args)]
#[command(override_usage = "fullpipe cp [OPTIONS] <SRC>... <DST>")]
pub struct Args {
    /// SRC... DST, of which one may be HOST:PATH (over ssh) or fullpipe://HOST:PORT/PATH (a standing
    /// server); DST also lab:rtt=91.6ms,rate=10gbit:/PATH (the testbed). Where DST is a folder, names at the far end may
    /// be patterns: 'HOST:/data/*.h5'
    #[arg(required = true, num_args = 1.., value_name = "PATH")]
    paths: Vec<OsString>,
    /// Folders too
    #[arg(long, short, visible_short_alias = 'a')]
    recursive: bool,
    /// Keep setuid, setgid and sticky bits too; permissions and times are kept without it
    #[arg(long, short = 'p')]
    preserve: bool,
    /// Leave out what is called so, or is there below a source, such as '*.tmp' or 'raw/**'; give it for each
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// What symbolic links point at, not the links
    #[arg(long, short = 'L')]
    dereference: bool,
    /// Extended attributes too
    #[arg(long)]
    xattrs: bool,
    /// To disk before a file takes its name
    #[arg(long)]
    fsync: bool,
    /// Read each file back from storage once it has its name, and compare it with what the sender read
    #[arg(long)]
    verify: bool,
    /// Leave alone what is there with the same size and time, and what is newer there
    #[arg(long, short)]
    update: bool,
    /// Do not encrypt the data; it is checked all the same
    #[arg(long)]
    no_encrypt: bool,
    /// Bypass the page cache: large files on disks (auto), all, or none
    #[arg(long, default_value = "auto", value_name = "auto|on|off", value_parser = direct)]
    direct: Direct,
    /// Largest block
    #[arg(long, default_value = "8MiB", value_name = "SIZE")]
    block: Size,
    #[command(flatten)]
    how: transport::Args,
    /// The program that connects, with its options
    #[arg(long, default_value = SSH, value_name = "COMMAND")]
    ssh: String,
    /// ssh's port, as 'ssh -p'
    #[arg(long, short = 'P', value_name = "PORT")]
    port: Option<u16>,
    /// ssh's key, as 'ssh -i'
    #[arg(long, short, value_name = "FILE")]
    identity: Option<std::path::PathBuf>,
    /// fullpipe at the far end, if it is not on the PATH of its logins
    #[arg(long, default_value = FAR_PROGRAM, value_name = "PROGRAM")]
    far_program: String,
    /// Ports that streams may use at the far end, FIRST-LAST
    #[arg(long, value_name = "FIRST-LAST")]
    data_ports: Option<String>,
    /// Holds the token of a standing server; or it is in the environment as FULLPIPE_TOKEN
    #[arg(long, value_name = "FILE")]
    token_file: Option<std::path::PathBuf>,
    /// The standing server wants no token and no encryption of what is said to it
    #[arg(long, conflicts_with = "token_file")]
    insecure: bool,
    /// Say how it will be sent, and why
    #[arg(long)]
    explain: bool,
    /// Say what would be sent, and move nothing
    #[arg(long)]
    dry_run: bool,
    /// Write a record with TCP_INFO of every stream, as measure does, into this folder, or to this file if
    /// it ends in .ndjson; 'fullpipe report' shows it, 'fullpipe analyze' makes a profile of many
    #[arg(long, value_name = "DIR|FILE")]
    record: Option<std::path::PathBuf>,
    /// Between samples of TCP_INFO in the record, from 10ms
    #[arg(long, default_value = "100ms", value_name = "TIME")]
    sample: Time,
    /// Runs in the testbed's guest on behalf of this path
    #[arg(long, hide = true)]
    guest: Option<String>,
    /// Testbed: memory of the guest, if what the path needs is not enough
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Testbed: draws every random number
    #[arg(long, default_value_t = SEED)]
    seed: u64,
    /// Give up a connection over which nothing moved for so long; a lost one is tried five times more
    #[arg(long, default_value = "60s", value_name = "TIME")]
    stall: Time,
    /// Name what moves, on stdout: each file as it begins to be sent, or as it takes its name here
    #[arg(long, short, conflicts_with_all = ["quiet", "dry_run"])]
    verbose: bool,
    /// What happens as NDJSON on stdout
    #[arg(long)]
    json: bool,
    /// No progress and no words but errors
    #[arg(long, short)]
    quiet: bool,
}

impl Args {
    /// The words that another fullpipe needs to treat files alike.
    fn passed_on(&self, how: &transport::Args) -> Vec<String> {
        let mut words = Vec::new();
        for (on, flag) in [
            (self.recursive, "-r"),
            (self.dereference, "-L"),
            (self.xattrs, "--xattrs"),
            (self.fsync, "--fsync"),
            (self.preserve, "--preserve"),
            (self.verify, "--verify"),
            (self.update, "--update"),
            (self.no_encrypt, "--no-encrypt"),
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
        let direct = match self.direct {
            Direct::Auto => "auto",
            Direct::On => "on",
            Direct::Off => "off",
        };
        let valued =
            [("--direct", direct.to_owned()), ("--block", self.block.to_string()), ("--stall", self.stall.to_string())];
        words.extend(self.exclude.iter().map(|pattern| format!("--exclude={pattern}")));
        words.extend(valued.into_iter().chain(how.passed_on()).flat_map(|(flag, value)| [flag.to_owned(), value]));
        words
    }
}

fn direct(text: &str) -> std::result::Result<Direct, String> {
    match text {
        "auto" => Ok(Direct::Auto),
        "on" => Ok(Direct::On),
        "off" => Ok(Direct::Off),
        _ => Err("give auto, on or off".into()),
    }
}

/// Copies; with `--json` the last line says how it ended, whatever happened.
pub fn run(args: Args) -> Result {
    let json = args.json;
    copy(args).inspect_err(|failure| {
        if json && !failure.is_said() {
            failed(&failure.to_string(), failure.code());
        }
    })
}

/// The last line with `--json` where nothing was done.
pub fn failed(error: &str, code: u8) {
    outln!("{}", json!({"kind": "failed", "error": error, "exit_code": code}));
}

/// Copies, again and again while a lost connection lets it get on.
fn copy(args: Args) -> Result {
    crate::far::more_files();
    crate::serve::data_ports(args.data_ports.as_deref())?;
    let block = u32::try_from(args.block.0).unwrap_or(u32::MAX);
    if !(64 << 10..=64 << 20).contains(&block) {
        return Err(Failure::new(ExitClass::Usage, format!("--block {}: give from 64KiB to 64MiB", args.block)));
    }
    if args.stall.0 == 0 {
        return Err(Failure::new(ExitClass::Usage, "--stall 0s: give a time; everything takes some"));
    }
    let options = Options {
        recursive: args.recursive,
        dereference: args.dereference,
        fsync: args.fsync,
        special: args.preserve,
        verify: args.verify,
        xattrs: args.xattrs,
        encrypt: !args.no_encrypt,
        direct: args.direct,
        block,
        update: args.update,
        sample_ns: if args.record.is_some() { args.sample.0 } else { 0 },
        stall_ns: args.stall.0,
        sobas: args.how.sobas(),
    };
    args.how.check()?;
    crate::measure::check_sample(args.sample)?;
    let Some((to, from)) = args.paths.split_last().filter(|(_, from)| !from.is_empty()) else {
        return Err(Failure::new(ExitClass::Usage, "give what to copy, and where to: SRC... DST"));
    };
    let from: Vec<Place> = from.iter().map(|path| endpoint::parse(path)).collect::<Result<_>>()?;
    let to = endpoint::parse(to)?;
    if let Place::Lab(path, folder) = &to {
        return lab::run(&args, &from, path, folder);
    }
    let (endpoint, way) = endpoint::order(&args, &from, &to)?;
    if args.dry_run {
        return explain::dry_run(&args, &endpoint, &way, options);
    }
    if let Some(record) = &args.record {
        // Found out before the transfer, not after it.
        record::check(record)?;
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // Without it the signal ends the program, which is all that it asks for.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, interrupted.clone());
        let _ = signal_hook::flag::register(signal, interrupted.clone());
    }
    let is_interrupted = || interrupted.load(Ordering::SeqCst);
    let began = Instant::now();
    let watch = watch::Watch::new(&args, matches!(way, Way::Push(..)));
    let last = RefCell::new(None);
    let mut tries = 0;
    let finished = loop {
        watch.connecting();
        let before = watch.moved();
        let choose = |between: &Between| {
            let chosen = args.how.choose(between).map_err(|e| TransferError::Usage(e.to_string()))?;
            let transport = chosen.transport.clone();
            last.replace(Some((chosen, between.clone())));
            Ok(transport)
        };
        let tell = || {
            let last = last.borrow();
            let Some((chosen, Between { rtt_s, .. })) = last.as_ref() else { return };
            watch.chosen(chosen, *rtt_s);
            if args.explain && !args.json && watch.moved() == 0 {
                explain::print(&args, chosen, *rtt_s, true);
            }
        };
        let mut show = |counters: &_| watch.show(counters);
        let order = &mut Order {
            endpoint: &endpoint,
            way: way.clone(),
            options,
            choose: &choose,
            chosen: &tell,
            names: args.verbose,
            show: &mut show,
            interrupted: &interrupted,
        };
        let error = match client::run(order) {
            Ok(finished) => break finished,
            Err(error) => error,
        };
        tries = if watch.moved() > before { 0 } else { tries + 1 };
        // Before anything has moved, a host that does not answer is a mistake, not an accident; one that has no place
        // just now is neither. Ctrl-C ends ssh too, and then the lost connection is only what followed.
        let may = watch.moved() > 0 || matches!(error, TransferError::Refused { .. });
        if !is_interrupted() && (!error.again() || tries >= TRIES || !may) {
            watch.finish();
            return Err(error.into());
        }
        if !is_interrupted() {
            watch.say(&format!("{error}; connecting again"));
            // Who wants to know soon does not want to wait long in between either.
            let until = Instant::now() + Duration::from_secs(1 << tries.min(5)).min(Duration::from_nanos(args.stall.0));
            while !is_interrupted() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        if is_interrupted() {
            watch.finish();
            return Err(TransferError::Interrupted.into());
        }
    };
    let took = began.elapsed();
    watch.finish();
    if let Some(((chosen, between), losses)) = last.take().zip(finished.losses)
        && let Some(advice) = loss::advice(&args.how, &chosen, &between, &losses)
    {
        watch.say(&advice);
    }
    // Of nothing there is no rate, and a profile made of such records would say that there is none to be had.
    let moved = finished.summary.bytes > 0 || watch.earlier() > 0;
    if let (Some(to), false) = (&args.record, moved) {
        watch.say(&format!("nothing had to be moved, so there is no record in {}", to.display()));
    }
    let recorded = args
        .record
        .as_ref()
        .filter(|_| moved)
        .map_or(Ok(()), |to| record::write(&args, to, &endpoint, &way, &finished, took, &watch.noted()));
    report(&args, &finished, (watch.earlier(), watch.spared()), took).and(recorded)
}

/// Says how it went; what was left makes the command fail. With the bytes that attempts have moved before the last, and
/// those that it did not have to move.
fn report(args: &Args, finished: &Finished, (earlier, spared): (u64, u64), took: Duration) -> Result {
    let summary = &finished.summary;
    let bytes = summary.bytes.saturating_add(earlier);
    let left = finished.skipped.clone().with(&summary.skipped);
    let seconds = took.as_secs_f64();
    let rate = bytes as f64 * 8.0 / seconds.max(1e-9);
    if args.json {
        outln!(
            "{}",
            json!({"kind": "done", "files": summary.files, "skipped": summary.present, "bytes": bytes,
                   "spared_bytes": spared, "encrypted": !args.no_encrypt, "seconds": seconds, "rate_bps": rate,
                   "transport": finished.transport, "rtt_s": finished.rtt_s,
                   "retransmits": finished.losses.map(|l| l.all.again),
                   "loss": finished.losses.and_then(|l| loss::share(&l, finished.rtt_s)),
                   "verified": args.verify.then(|| words::verified(&summary.verified)),
                   "unfinished_others": summary.unfinished, "distrusted": told(&summary.distrusted),
                   "left": words::left(&left), "left_total": left.total})
        );
    } else if !args.quiet {
        let skipped = match summary.present {
            // What an earlier attempt of this command has moved counts as moved.
            0 if spared > earlier && bytes > 0 => {
                format!(" ({} of it were holes, or there already)", words::bytes((spared - earlier) as f64))
            }
            0 => String::new(),
            n if args.update => format!(" ({} there already, or newer)", words::thousands(n)),
            n => format!(" ({} there already)", words::thousands(n)),
        };
        let encryption = if args.no_encrypt { "; not encrypted" } else { "" };
        // Of nothing there is no rate.
        let moved = if bytes == 0 { String::new() } else { format!(" ({}{encryption})", words::rate(rate)) };
        let verified = if args.verify { words::verified_line(&summary.verified) } else { String::new() };
        errln!(
            "{}{skipped}, {} in {}{moved}{verified}",
            words::count(summary.files, "file", "files"),
            words::bytes(bytes as f64),
            words::seconds(seconds),
        );
    }
    if !args.json && !args.quiet {
        for file in told(&summary.distrusted) {
            errln!("not used: {file}; what an earlier attempt may have left there was copied again, under other names");
        }
    }
    if summary.unfinished > 0 && !args.json && !args.quiet {
        errln!(
            "{} of other commands in the destination: each goes on with its own command, 'rm .fullpipe.*' there gives up all",
            words::count(summary.unfinished, "unfinished copy", "unfinished copies")
        );
    }
    let what = words::count(left.total, "thing was", "things were") + " not copied";
    self::left(&left, &what).map_err(Failure::said)
}

/// Files at the destination that did not count, as the receiver tells of them.
fn told(distrusted: &[String]) -> Vec<String> {
    distrusted.iter().take(SHOWN).map(|text| one_line(text.as_bytes())).collect()
}

/// Names what was left, or would be; that makes the command fail.
fn left(left: &Skipped, what: &str) -> Result {
    for one in left.named.iter().take(SHOWN) {
        errln!("left: {one}");
    }
    if left.total == 0 {
        return Ok(());
    }
    let more = if left.total > SHOWN as u64 { " (the first of them above)" } else { "" };
    let again = match left.to_do() {
        0 => "",
        _ => "; once the cause is mended, the same command copies the rest, and only that",
    };
    Err(Failure::new(ExitClass::Failed, format!("{what}{more}{again}")))
}

impl TryFrom<&Args> for endpoint::Ssh {
    type Error = Failure;

    fn try_from(args: &Args) -> Result<endpoint::Ssh> {
        let words = shlex::split(&args.ssh).filter(|words| !words.is_empty());
        let words = words.ok_or_else(|| {
            Failure::new(ExitClass::Usage, format!("--ssh '{}': no command, or a quote that does not end", args.ssh))
        })?;
        let mut ssh: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        ssh.extend(args.port.iter().flat_map(|port| ["-p".into(), port.to_string().into()]));
        ssh.extend(args.identity.iter().flat_map(|key| ["-i".into(), key.clone().into()]));
        Ok(endpoint::Ssh { ssh, program: args.far_program.clone(), ports: args.data_ports.clone() })
    }
}

/// A way and its number: the same for the same command, so that it goes on where it was.
fn way(push: bool, paths: Vec<Vec<u8>>, exclude: &[String], patterns: bool, mut target: Target) -> Way {
    target.process = rand::random();
    let sources = Sources { paths, exclude: exclude.to_vec(), patterns };
    if push { Way::Push(sources, target) } else { Way::Pull(sources, target) }
}
