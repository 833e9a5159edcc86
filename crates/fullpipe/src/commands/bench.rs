//! `fullpipe bench`: copies random data to a host, or from it, with fullpipe and with the other programs that both hosts have.

mod far_shell;
mod programs;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{PipeReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use far_shell::{FarShell, stopped};
use fullpipe_path::{ExitClass, Size, text};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use programs::{Ends, FILE, FULLPIPE, PROGRAMS, Program, Run};
use rand::Rng;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::config::{self, Config, Reached};
use crate::failure::{Failure, Result};
use crate::format::quoted;
use crate::output::{errln, outln};
use crate::over_ssh::{self, SSH};
use crate::{format, interrupt};

/// Bytes of random data that are made at a time.
const PART: usize = 1 << 20;
/// Bytes of the copy that each program makes before it is timed.
const FIRST_BYTES: u64 = 1000;
/// Space that is to stay free beside the data, bytes.
const SPARE: u64 = 64_000_000;
/// Most that is kept of what a program prints, bytes.
const MOST_SAID: usize = 4096;
/// Time between two looks whether a program has ended.
const LOOK: Duration = Duration::from_millis(2);
/// Time that an interrupted program has to end.
const END: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "\
Examples:
  fullpipe bench host                      1 GB to the login's home folder there, with each program
  fullpipe bench --size 10GB host:/data    10 GB, below /data
  fullpipe bench --reverse host:/data      from there to here
  fullpipe bench host -- --via ssh         with flags for fullpipe cp

It removes what it has written, also after Ctrl-C.";

/// The arguments of `fullpipe bench`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Host, as ssh takes it, and the folder there in which a folder for the data is made [default: the login's home]
    #[arg(value_name = "HOST[:FOLDER]")]
    host: String,
    /// Copy this much random data with each program
    #[arg(long, default_value = "1GB", value_name = "SIZE")]
    size: Size,
    /// Copy from HOST to this host
    #[arg(long, short = 'R')]
    reverse: bool,
    /// Copy N times with each program, in turn, and show medians
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeat: u16,
    /// Try these programs only, beside fullpipe, with commas between their names
    #[arg(long, value_name = "PROGRAM,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Make a folder for the data of this host in DIR
    #[arg(long, default_value = ".", value_name = "DIR")]
    here: PathBuf,
    /// Connect with this command and its options [default: ssh]
    #[arg(long, value_name = "COMMAND")]
    ssh: Option<String>,
    /// Connect to this port, as 'ssh -p'
    #[arg(long, short = 'P', value_name = "PORT")]
    port: Option<u16>,
    /// Log in with this private key, as 'ssh -i'
    #[arg(long, short, value_name = "FILE")]
    identity: Option<String>,
    /// Go through this host, or several with commas, as 'ssh -J'
    #[arg(long, short = 'J', value_name = "HOST")]
    jump: Option<String>,
    /// Print NDJSON on stdout
    #[arg(long)]
    json: bool,
    /// Print only results and errors
    #[arg(long, short)]
    quiet: bool,
    /// Flags for 'fullpipe cp', behind --
    #[arg(last = true, value_name = "FLAGS")]
    cp: Vec<String>,
}

/// One program's results.
struct Row {
    program: &'static Program,
    /// Seconds of each copy.
    times_s: Vec<f64>,
    /// Processor time of this host in each copy, seconds.
    cpus_s: Vec<f64>,
    error: Option<String>,
}

/// A program that is not tried, and why.
type LeftOut = (&'static str, String);

impl Row {
    fn seconds(&self) -> Option<f64> {
        median(&self.times_s).filter(|_| self.error.is_none())
    }
}

/// Copies with each program.
pub fn run(args: Args, cli: &clap::Command) -> Result {
    let interrupted = interrupt::flag();
    let done = checked(&args, cli).and_then(|(ends, folder)| {
        let mut far = FarShell::start(&ends.ssh, &ends.ssh_host, &interrupted)?;
        let done = compare(&args, ends, &folder, &mut far, &interrupted);
        // The other host's folder goes whatever has happened.
        match (done, far.end()) {
            (done, Ok(())) => done,
            (Ok(()), Err(left)) => Err(Failure::new(ExitClass::Peer, left)),
            (Err(_), Err(left)) if interrupted.load(Ordering::SeqCst) => {
                Err(Failure::new(ExitClass::Interrupted, format!("interrupted; {left}")))
            }
            (Err(failure), Err(left)) => {
                errln!("warning: {left}");
                Err(failure)
            }
        }
    });
    if args.json {
        outln!("{}", json!({"kind": "end", "error": done.as_ref().err().map(ToString::to_string)}));
    }
    done
}

/// Reads the command line: what all programs need to know, and the folder at the other host.
fn checked(args: &Args, cli: &clap::Command) -> Result<(Ends, String)> {
    let (host, folder) = host_and_folder(&args.host).ok_or_else(|| {
        Failure::usage(format!("'{}': bench copies over ssh; give HOST or HOST:FOLDER, as for ssh and scp", args.host))
    })?;
    if let Some(unknown) = args.only.iter().find(|name| !PROGRAMS.iter().any(|program| program.name == **name)) {
        let known: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
        return Err(Failure::usage(format!(
            "--only '{unknown}' is no program that is known; give some of {}",
            known.join(", ")
        )));
    }
    if args.size.0 == 0 {
        return Err(Failure::usage("--size 0 copies nothing"));
    }
    let mut set = Vec::new();
    if let Some(cp) = cli.find_subcommand("cp") {
        set = Config::read()?.settings(cp, config::host_name(host), Vec::new(), Some(Reached::OverSsh))?;
    }
    let configured = |flag: &str| {
        let setting = set.iter().find(|setting| setting.flag == flag);
        setting.and_then(|setting| setting.given().map(str::to_owned))
    };
    let command = args.ssh.clone().or_else(|| configured("ssh")).unwrap_or_else(|| SSH.to_owned());
    let (mut cp, mut native) = (Vec::new(), Vec::new());
    if let Some(given) = &args.ssh {
        cp.extend(["--ssh".to_owned(), given.clone()]);
    }
    let port = args.port.map(|port| port.to_string());
    let given = [(&port, "port", "-P"), (&args.identity, "identity", "-i"), (&args.jump, "jump", "-J")];
    let options = given.map(|(given, name, of_scp)| {
        cp.extend(given.iter().flat_map(|value| [of_scp.to_owned(), value.clone()]));
        let value = given.clone().or_else(|| configured(name));
        native.extend(value.iter().flat_map(|value| [of_scp.to_owned(), value.clone()]));
        value
    });
    let ssh = over_ssh::ssh_command(&command, options.each_ref().map(|value| value.as_ref().map(OsStr::new)))?;
    let ssh = ssh.into_iter().map(|word| word.to_string_lossy().into_owned()).collect();
    cp.extend(args.cp.iter().cloned());
    check_flags(&cp, cli)?;
    let ends = Ends {
        me: std::env::current_exe()
            .map_err(|e| Failure::new(ExitClass::Missing, format!("finding this program: {e}")))?,
        native: (command == "ssh").then_some(native),
        ssh,
        host: host.to_owned(),
        ssh_host: host.replace(['[', ']'], ""),
        cp,
        push: !args.reverse,
        here: PathBuf::new(),
        there: String::new(),
    };
    Ok((ends, folder.to_owned()))
}

/// Checks the flags for `fullpipe cp`, as far as the command line tells.
fn check_flags(flags: &[String], cli: &clap::Command) -> Result {
    let Some(cp) = cli.find_subcommand("cp") else { return Ok(()) };
    let words = ["cp", "--quiet"].into_iter().map(str::to_owned).chain(flags.iter().cloned());
    let words = words.chain([FILE, "host:data"].map(str::to_owned));
    let wrong = |e: clap::Error| {
        let text = e.render().to_string();
        let line = text.lines().next().unwrap_or_default();
        Failure::usage(format!("behind --, for 'fullpipe cp': {}", line.strip_prefix("error: ").unwrap_or(line)))
    };
    let matches = cp.clone().try_get_matches_from(words).map_err(wrong)?;
    let parsed = <super::cp::Args as clap::FromArgMatches>::from_arg_matches(&matches).map_err(wrong)?;
    match &parsed.paths[..] {
        [_, _] => Ok(()),
        [more, ..] => Err(Failure::usage(format!(
            "behind --, for 'fullpipe cp': {} is no flag; bench names the files itself",
            quoted(&more.to_string_lossy())
        ))),
        [] => Ok(()),
    }
}

/// Splits HOST or HOST:FOLDER. A folder below the login's home has no `~/` before it.
fn host_and_folder(typed: &str) -> Option<(&str, &str)> {
    let end = typed.find(']').unwrap_or(0);
    let (host, folder) = match typed[end..].find(':') {
        Some(colon) => (&typed[..end + colon], &typed[end + colon + 1..]),
        None => (typed, ""),
    };
    let folder = folder.strip_prefix("~/").unwrap_or(folder);
    let folder = if folder.is_empty() || folder == "~" { "." } else { folder };
    let is_host = !host.is_empty()
        && !host.trim_start_matches('[').starts_with('-')
        && !folder.starts_with("//")
        && !host.contains('/');
    is_host.then_some((host, folder))
}

/// Makes the data, and copies them with each program.
fn compare(args: &Args, mut ends: Ends, folder: &str, far: &mut FarShell, interrupted: &AtomicBool) -> Result {
    let failed = |e: std::io::Error| {
        // The error of a temporary folder has a text of its own, and no number.
        let why = match e.raw_os_error() {
            Some(code) => nix::errno::Errno::from_raw(code).desc().to_lowercase(),
            None => e.kind().to_string(),
        };
        let why = format!("--here {}: {why}; give a folder of this host that can be written to", args.here.display());
        Failure::new(ExitClass::Record, why)
    };
    let bytes = args.size.0;
    args.here.metadata().map_err(failed)?;
    let here = tempfile::Builder::new().prefix("fullpipe-bench-").tempdir_in(&args.here).map_err(failed)?;
    let here_folder = here.path().canonicalize().map_err(failed)?;
    far.make_folder(folder)?;
    ends.here = here_folder.join(FILE);
    ends.there = format!("{}/{FILE}", far.folder);
    check_space(&here_folder, far, bytes)?;
    if !args.quiet {
        errln!(
            "writes {} of random data below {} and below {}:{}, and removes both at the end",
            format::bytes(bytes as f64),
            here_folder.display(),
            ends.host,
            far.folder
        );
    }
    if args.json {
        outln!(
            "{}",
            json!({"kind": "start", "time": format::now(), "host": ends.host, "bytes": bytes, "repeat": args.repeat,
                   "direction": if ends.push { "send" } else { "receive" },
                   "here": here_folder.display().to_string(), "there": far.folder})
        );
    }
    ends.write_wrapper(&here_folder).map_err(failed)?;
    let (usable, missing) = usable(args, &ends, far)?;
    let mut rows: Vec<Row> = usable
        .into_iter()
        .map(|program| Row { program, times_s: Vec::new(), cpus_s: Vec::new(), error: None })
        .collect();
    let digest = tried(&mut rows, FIRST_BYTES, 1, (&ends, far, interrupted), args)
        .and_then(|_| tried(&mut rows, bytes, args.repeat, (&ends, far, interrupted), args))?;
    show(args, &rows, &missing, digest);
    drop_folder(here)?;
    let broken: Vec<_> = rows.iter().filter(|row| row.error.is_some()).map(|row| row.program.name).collect();
    match &broken[..] {
        [] => Ok(()),
        broken => Err(Failure::new(ExitClass::Failed, format!("not copied by {}", broken.join(", ")))),
    }
}

/// Makes data of this size, and copies them with each program that has not failed yet. Returns whether digests were compared. The
/// times are those of this call.
fn tried(
    rows: &mut [Row],
    bytes: u64,
    times: u16,
    (ends, far, interrupted): (&Ends, &mut FarShell, &AtomicBool),
    args: &Args,
) -> Result<bool> {
    let watched = !args.quiet && bytes > FIRST_BYTES;
    let expected = if ends.push {
        make_data(&ends.here, bytes, interrupted)?;
        digest_here(&ends.here)
    } else {
        far.make_data(bytes)?
    };
    for row in &mut *rows {
        (row.times_s, row.cpus_s) = (Vec::new(), Vec::new());
    }
    for _ in 0..times {
        for row in rows.iter_mut().filter(|row| row.error.is_none()) {
            if watched {
                errln!("{} ...", row.program.name);
            }
            let copied = timed(&(row.program.run)(ends), interrupted)?;
            let checked = copied.and_then(|took| {
                let (size, digest) = if ends.push {
                    far.look(expected.is_some()).map_err(|failure| failure.to_string())?
                } else {
                    let size = ends.here.metadata().map_or(0, |file| file.len());
                    (size, expected.as_ref().and_then(|_| digest_here(&ends.here)))
                };
                match (&expected, &digest) {
                    _ if size != bytes => Err(format!("its copy has {size} bytes")),
                    (Some(expected), Some(digest)) if expected != digest => {
                        Err("its copy has other content".to_owned())
                    }
                    _ => Ok(took),
                }
            });
            if interrupted.load(Ordering::SeqCst) {
                return Err(stopped());
            }
            match checked {
                Ok((time_s, cpu_s)) => {
                    row.times_s.push(time_s);
                    row.cpus_s.push(cpu_s);
                }
                Err(why) => row.error = Some(why),
            }
            if ends.push {
                far.remove_data()?;
            } else {
                // It may not be there.
                let _ = std::fs::remove_file(&ends.here);
            }
        }
    }
    Ok(expected.is_some())
}

/// The programs that both hosts have, and why others are left out.
fn usable(args: &Args, ends: &Ends, far: &mut FarShell) -> Result<(Vec<&'static Program>, Vec<LeftOut>)> {
    let (mut usable, mut missing) = (Vec::new(), Vec::new());
    let wanted = |program: &Program| {
        program.name == FULLPIPE || args.only.is_empty() || args.only.iter().any(|name| name == program.name)
    };
    for program in PROGRAMS.iter().filter(|program| wanted(program)) {
        let here = program.here.is_none_or(|name| programs::find_here(name).is_some());
        let there = match program.there {
            Some(name) => far.has(name)?,
            None => true,
        };
        match (here, there, (program.unfit)(ends)) {
            (true, true, None) => usable.push(program),
            (true, true, Some(why)) => missing.push((program.name, why.to_owned())),
            (false, true, _) => missing.push((program.name, "not on this host".to_owned())),
            (true, false, _) => missing.push((program.name, format!("not on {}", ends.host))),
            (false, false, _) => missing.push((program.name, "on neither host".to_owned())),
        }
    }
    Ok((usable, missing))
}

/// Prints the results.
fn show(args: &Args, rows: &[Row], missing: &[LeftOut], digest: bool) {
    let bits = 8.0 * args.size.0 as f64;
    let ours_s = rows.iter().find(|row| row.program.name == FULLPIPE).and_then(Row::seconds);
    if args.json {
        for row in rows {
            let seconds = row.seconds();
            outln!(
                "{}",
                json!({"kind": "result", "program": row.program.name, "rate_bps": seconds.map(|s| bits / s),
                       "ratio": ours_s.zip(seconds).map(|(ours, s)| ours / s), "seconds": seconds,
                       "cpu_s": median(&row.cpus_s).filter(|_| row.error.is_none()), "times_s": row.times_s,
                       "checked": if row.error.is_some() { Value::Null } else if digest { "sha256".into() } else { "size".into() },
                       "error": row.error})
            );
        }
        for (name, why) in missing {
            outln!("{}", json!({"kind": "missing", "program": name, "why": why}));
        }
        return;
    }
    let width = rows.iter().map(|row| row.program.name.len()).fold("program".len(), usize::max);
    outln!("{:<width$}  {:>11}  {:>8}  {:>9}  {:>9}", "program", "rate", "ratio", "time", "CPU here");
    for row in rows {
        let name = row.program.name;
        let Some(seconds) = row.seconds() else {
            outln!("{name:<width$}  failed: {}", row.error.as_deref().unwrap_or_default());
            continue;
        };
        let ratio = ours_s.map_or("-".to_owned(), |ours| format!("{:.3}", ours / seconds));
        let cpu = format::seconds(median(&row.cpus_s).unwrap_or(0.0));
        outln!(
            "{name:<width$}  {:>11}  {ratio:>8}  {:>9}  {cpu:>9}",
            format::rate(bits / seconds),
            format::seconds(seconds)
        );
    }
    let missing: Vec<_> = missing.iter().map(|(name, why)| format!("{name} ({why})")).collect();
    if !missing.is_empty() {
        outln!("left out: {}", missing.join(", "));
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    Some((sorted.get(n.checked_sub(1)? / 2)? + sorted.get(n / 2)?) / 2.0)
}

/// Refuses to fill a disk.
fn check_space(here: &Path, far: &mut FarShell, bytes: u64) -> Result {
    let free =
        nix::sys::statvfs::statvfs(here).ok().map(|stat| stat.blocks_available().saturating_mul(stat.fragment_size()));
    let there = format!("{}:{}", far.host, far.folder);
    let sides = [
        (free, here.display().to_string(), "--here DIR elsewhere", ExitClass::Record),
        (far.free()?, there, "HOST:FOLDER elsewhere", ExitClass::Peer),
    ];
    for (free, place, remedy, class) in sides {
        if let Some(free) = free.filter(|free| *free < bytes.saturating_add(SPARE)) {
            let [free, needed, spare] = [free, bytes, SPARE].map(|bytes| format::bytes(bytes as f64));
            let why = format!(
                "{place} has {free} left, too little for {needed} and {spare} to spare; give a smaller --size, or {remedy}"
            );
            return Err(Failure::new(class, why));
        }
    }
    Ok(())
}

/// Fills a file of this host with random data, which are on disk at the end.
fn make_data(file: &Path, bytes: u64, interrupted: &AtomicBool) -> Result {
    let failed = |e| Failure::new(ExitClass::Record, format!("{}: {e}", file.display()));
    let mut out = File::create(file).map_err(failed)?;
    let (mut part, mut left) = (vec![0; PART], bytes);
    while left > 0 {
        if interrupted.load(Ordering::SeqCst) {
            return Err(stopped());
        }
        let n = PART.min(usize::try_from(left).unwrap_or(PART));
        rand::rng().fill_bytes(&mut part[..n]);
        out.write_all(&part[..n]).map_err(failed)?;
        left -= n as u64;
    }
    out.sync_all().map_err(failed)
}

/// The SHA-256 of a file of this host, if it has a program for that.
fn digest_here(file: &Path) -> Option<String> {
    let out = Command::new("sh").args(["-c", far_shell::DIGEST, "sh"]).arg(file).stderr(Stdio::null()).output().ok()?;
    far_shell::digest(&String::from_utf8_lossy(&out.stdout))
}

/// Runs a program. Returns its time and its processor time here, seconds, or why it has failed.
fn timed(run: &Run, interrupted: &AtomicBool) -> Result<Result<(f64, f64), String>> {
    let opened = (|| -> std::io::Result<_> {
        let input = run.input.as_ref().map_or_else(|| Ok(Stdio::null()), |file| File::open(file).map(Stdio::from))?;
        // Some programs say on standard output why they fail.
        let (words, errors) = std::io::pipe()?;
        let output = match &run.output {
            Some(file) => File::create(file).map(Stdio::from)?,
            None => Stdio::from(errors.try_clone()?),
        };
        Ok((input, output, words, errors))
    })();
    let (input, output, words, errors) = match opened {
        Ok(opened) => opened,
        Err(e) => return Ok(Err(e.to_string())),
    };
    let before_s = children_s();
    let begin = Instant::now();
    let mut command = Command::new(&run.words[0]);
    if let Some(first) = &run.path_first {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(first.clone()).chain(std::env::split_paths(&path));
        match std::env::join_paths(folders) {
            Ok(path) => command.env("PATH", path),
            Err(_) => return Ok(Err(format!("{} has a colon; give another --here", first.display()))),
        };
    }
    // After a backtrace, the reason would not be among the last lines.
    command.env("RUST_BACKTRACE", "0");
    let started = command.args(&run.words[1..]).stdin(input).stdout(output).stderr(errors).spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(e) => return Ok(Err(format!("cannot run {}: {e}", run.words[0].display()))),
    };
    // It holds the other end of the pipe.
    drop(command);
    let said = said(words);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if interrupted.load(Ordering::SeqCst) => {
                end(&mut child);
                return Err(stopped());
            }
            Ok(None) => std::thread::sleep(LOOK),
            Err(e) => return Ok(Err(e.to_string())),
        }
    };
    let took = (begin.elapsed().as_secs_f64(), children_s() - before_s);
    if status.success() {
        return Ok(Ok(took));
    }
    // Another process may hold the pipe open.
    let said = said.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
    let lines: Vec<_> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    // The reason often stands before what it has led to.
    let last = lines.last_chunk::<2>().map(|lines| lines.join("; ")).or_else(|| lines.first().map(ToString::to_string));
    let ended = || match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with code {code}"),
        (None, signal) => format!("it was ended by signal {}", signal.unwrap_or(0)),
    };
    Ok(Err(last.map_or_else(ended, |last| text::from_peer(&last))))
}

/// The last of what a program prints, once it has ended.
fn said(mut words: PipeReader) -> mpsc::Receiver<String> {
    let (tell, said) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut last, mut part) = (Vec::new(), [0; 4096]);
        // What has come before an error counts.
        while let Ok(n @ 1..) = words.read(&mut part) {
            last.extend_from_slice(&part[..n]);
            last.drain(..last.len().saturating_sub(MOST_SAID));
        }
        let _ = tell.send(String::from_utf8_lossy(&last).into_owned());
    });
    said
}

/// Ends a program that runs.
fn end(child: &mut Child) {
    let until = Instant::now() + END;
    let id = i32::try_from(child.id()).unwrap_or(i32::MAX);
    // One that has ended already needs no signal.
    let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
    while Instant::now() < until {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(LOOK);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Processor time of all programs that have ended, seconds.
fn children_s() -> f64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return 0.0 };
    (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6
}

fn drop_folder(folder: TempDir) -> Result {
    let path = folder.path().display().to_string();
    folder.close().map_err(|e| Failure::new(ExitClass::Record, format!("{path} cannot be removed: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_or_without_a_folder() {
        for (typed, expected) in [
            ("host", Some(("host", "."))),
            ("me@host:", Some(("me@host", "."))),
            ("host:~/x", Some(("host", "x"))),
            ("host:/data/a:b", Some(("host", "/data/a:b"))),
            ("[::1]:/data", Some(("[::1]", "/data"))),
            ("me@[fe80::1%eth0]", Some(("me@[fe80::1%eth0]", "."))),
            ("fullpipe://host/", None),
            ("-oProxyCommand=x", None),
            // Without its brackets it would be an option of ssh's.
            ("[-oProxyCommand=x]", None),
            (":/data", None),
            ("/data", None),
        ] {
            assert_eq!(host_and_folder(typed), expected, "{typed}");
        }
    }

    #[test]
    fn the_median_of_few() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[3.0, 1.0]), Some(2.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
    }
}
