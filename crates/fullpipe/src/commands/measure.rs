//! `fullpipe measure`: measures one transport over one path, or storage.

mod disks;
mod guest_commands;
mod intervals;
mod iperf3_json;
mod print;
mod storage;
mod transport;

use std::cell::{Cell, RefCell};
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_lab::{Lab, LabMeasured};
use fullpipe_net::Measured;
use fullpipe_net::measure::MeasureOptions;
use fullpipe_net::sample::Sample;
use fullpipe_net::side::Side;
use fullpipe_net::wire::Request;
use fullpipe_net::{LocalEnd, Progress, Watcher};
use fullpipe_path::record::Outcome;
use fullpipe_path::transport::UNLIMITED;
use fullpipe_path::{
    Buffer, Direction, Dscp, ExitClass, Host, LabPath, Path, Protocol, Rate, Run, Size, Time, Workload,
};

use self::intervals::{Interval, Intervals, SampleLine};
use crate::failure::{Failure, Result};
use crate::output::{self, errln, outln};
use crate::{format, interrupt, progress, run_record};

/// Longest time between two probes: before the data, ten are sent.
const MAX_PROBE: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  fullpipe measure host --cc bbr --streams 4 --duration 30s   to a host that runs 'fullpipe serve'
  fullpipe measure host --interval 1s --omit 5s               a line each second; the rate without the ramp-up
  fullpipe measure host --transport udt --buffer 256MB
  fullpipe measure host --transport udp --pacing 100mbit      loss and jitter of datagrams at this rate
  fullpipe measure lab:rtt=91.6ms,rate=10gbit --buffer 256MB --out runs/
  fullpipe measure lab:rtt=91.6ms,rate=10gbit,disk=1GB/s --size 1GB --streams 4   from disk to disk
  fullpipe measure disk:/scratch --threads 1-16 --block 1MiB,8MiB --size 10GB
  fullpipe measure lab:rtt=91.6ms,rate=10gbit,mount=nfs+nconnect:4 --threads 1-16   NFS over an emulated path
  fullpipe measure mount:/mnt/far --threads 1-16 --direct on,off   a file system mounted by NFS or FUSE";

/// The arguments of `fullpipe measure`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// HOST or HOST:PORT that runs 'fullpipe serve', an emulated path lab:rtt=45.6ms,rate=10gbit,..., a TOML file with its keys,
    /// disk:FOLDER for storage, or mount:FOLDER for storage that is mounted over a network or by FUSE
    path: String,
    /// Send over this transport; udt has its own congestion control, or with --pacing a fixed rate; udp sends datagrams at the rate
    /// of --pacing, and counts losses and jitter [default: tcp]
    #[arg(long, value_name = "tcp|udt|udp")]
    transport: Option<Protocol>,
    /// Use this congestion control of TCP, under its kernel name [default: cubic, or the system's own where this user cannot use it]
    #[arg(long, value_name = "NAME")]
    cc: Option<String>,
    /// Send over this many parallel streams, 1 to 64 [default: 1]
    #[arg(long, short = 'n')]
    streams: Option<u16>,
    /// Set each stream's socket buffers at both ends to SIZE, such as 256MB, or leave them to the kernel's autotuning (auto)
    /// [default: auto]
    #[arg(long, value_name = "SIZE|auto")]
    buffer: Option<Buffer>,
    /// Send no faster than this, all streams together, such as 9.9gbit [default: unpaced]
    #[arg(long, value_name = "RATE")]
    pacing: Option<Rate>,
    /// Mark the packets of both ends with this class of service, a name such as CS1, LE, AF11 or EF, or a number, 0 to 63
    #[arg(long, value_name = "DSCP")]
    dscp: Option<Dscp>,
    /// Let segments of TCP have at most this many bytes, TCP's options included, 88 to 32767 [default: what the path's MTU allows]
    #[arg(long, value_name = "BYTES")]
    mss: Option<u16>,
    /// With --transport udp, send datagrams with this much payload, 16 to 65507 [default: what fills the path's packets]
    #[arg(long, value_name = "BYTES")]
    datagram_size: Option<u16>,
    /// Connect from this address of this host, through this network interface or both, such as 192.0.2.7%eth0 or %eth0
    #[arg(long, value_name = "ADDRESS%DEVICE")]
    bind: Option<LocalEnd>,
    /// Send this much over all streams, such as 1GB; for storage [default: 1GB], and between disks, the size of the file
    #[arg(long, conflicts_with = "duration")]
    size: Option<Size>,
    /// Send for this long, or until Ctrl-C (unlimited) [default: 10s, unless --size is given]
    #[arg(long, value_name = "TIME|unlimited", value_parser = fullpipe_path::transport::duration)]
    duration: Option<Time>,
    /// Leave out the beginning, in which the rate still grows, of a second rate; without --size, the run lasts this much longer
    #[arg(long, value_name = "TIME")]
    omit: Option<Time>,
    /// Receive instead of sending
    #[arg(long)]
    reverse: bool,
    /// Ask the server for an answer this often before the run and beside it, for the latency under load [default of TIME: 100ms]
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "100ms", require_equals = true)]
    #[arg(conflicts_with = "bidir")]
    probe: Option<Time>,
    /// Send and receive at once: two results, and two records that say so
    #[arg(long, conflicts_with_all = ["reverse", "interval"])]
    bidir: bool,
    /// Print a line for each interval, such as 1s; in the testbed, once the run is over
    #[arg(long, short = 'i', value_name = "TIME")]
    interval: Option<Time>,
    /// Measure this many times, in the testbed with a seed of its own each time; a server that fails is tried again the next time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: Option<u32>,
    /// With --repeat, begin a measurement this often, such as 1h [default: one after the other]
    #[arg(long, value_name = "TIME", requires = "repeat")]
    every: Option<Time>,
    /// Seed the streams' start times and, in the testbed, every random number [default: 1]
    #[arg(long)]
    seed: Option<u64>,
    /// Sample TCP_INFO, or UDT's statistics, this often, at least 10ms apart [default: 100ms, or --interval if that is shorter; 1s if
    /// --duration is unlimited]
    #[arg(long, value_name = "TIME")]
    sample: Option<Time>,
    /// Write the record into folder DIR, or to FILE if it ends in .ndjson
    #[arg(long, value_name = "DIR|FILE")]
    out: Option<PathBuf>,
    /// Print the whole record as NDJSON on stdout; with --interval, a line for each interval before it, as it ends
    #[arg(long)]
    json: bool,
    /// Print the result as iperf3 does with -J, with intervals of 1s or --interval; fields that fullpipe does not know are left out
    #[arg(long, conflicts_with_all = ["json", "bidir"])]
    iperf3_json: bool,
    /// Print only errors
    #[arg(long)]
    quiet: bool,
    /// Give up when nothing has moved for this long [default: 60s]
    #[arg(long, value_name = "TIME")]
    stall: Option<Time>,
    /// Read the server's token from this file [default: the token in the environment variable FULLPIPE_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// In the testbed, give up after this much real time [default: 1h]
    #[arg(long, value_name = "TIME")]
    limit: Option<Time>,
    /// In the testbed, set the memory of the guest, such as 2GB [default: what the path needs]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// The emulated path on whose behalf this process runs inside the guest
    #[arg(long, hide = true)]
    guest: Option<String>,
    #[command(flatten)]
    storage: storage::StorageArgs,
}

impl Args {
    /// The first flag that was given and has no meaning for storage, or with `in_lab` for storage in the testbed.
    fn given_for_paths(&self, in_lab: bool) -> Option<&'static str> {
        let flags = [
            (self.transport.is_some(), "--transport"),
            (self.cc.is_some(), "--cc"),
            (self.streams.is_some(), "--streams"),
            (self.buffer.is_some(), "--buffer"),
            (self.pacing.is_some(), "--pacing"),
            (self.dscp.is_some(), "--dscp"),
            (self.mss.is_some(), "--mss"),
            (self.datagram_size.is_some(), "--datagram-size"),
            (self.bind.is_some(), "--bind"),
            (self.duration.is_some(), "--duration"),
            (self.omit.is_some(), "--omit"),
            (self.reverse, "--reverse"),
            (self.bidir, "--bidir"),
            (self.probe.is_some(), "--probe"),
            (self.interval.is_some(), "--interval"),
            (self.repeat.is_some(), "--repeat"),
            (self.iperf3_json, "--iperf3-json"),
            (self.seed.is_some() && !in_lab, "--seed"),
            (self.sample.is_some(), "--sample"),
            (self.stall.is_some(), "--stall"),
            (self.token_file.is_some(), "--token-file"),
            (self.limit.is_some() && !in_lab, "--limit"),
            (self.memory.is_some() && !in_lab, "--memory"),
            (self.guest.is_some(), "--guest"),
        ];
        flags.into_iter().find_map(|(given, flag)| given.then_some(flag))
    }

    /// The flags that paths and storage share.
    fn common(&self) -> storage::Common {
        storage::Common { size: self.size, out: self.out.clone(), json: self.json, quiet: self.quiet }
    }

    /// Most real time that a guest may take.
    fn limit(&self) -> Duration {
        self.limit.unwrap_or(Time(3_600_000_000_000)).duration()
    }

    fn stall(&self) -> Time {
        self.stall.unwrap_or(Time(60_000_000_000))
    }
}

/// Measures, writes the record, and prints the result.
pub fn run(args: &Args) -> Result {
    if let Some(target) = storage::Target::parse(&args.path) {
        if let Some(flag) = args.given_for_paths(false) {
            let why = format!(
                "{flag} is for a path between hosts; disk:FOLDER and mount:FOLDER have --read, --write, --threads, --block, \
                 --direct and --size"
            );
            return Err(Failure::usage(why));
        }
        return storage::run(&target, &args.storage, &args.common());
    }
    let path = read_path(&args.path)?;
    if let Path::Lab(lab) = &path
        && lab.mount.is_some()
    {
        if let Some(flag) = args.given_for_paths(true) {
            let why = format!(
                "{flag} is for a path that carries streams; one with mount=... has --read, --write, --threads, --block, \
                 --direct and --size"
            );
            return Err(Failure::usage(why));
        }
        let flags = storage::LabFlags { seed: args.seed.unwrap_or(1), limit: args.limit(), memory: args.memory };
        return storage::run_in_lab(lab, &args.storage, &args.common(), &flags);
    }
    let described: Option<Path> = args.guest.as_deref().map(str::parse).transpose()?;
    let disks = match described.as_ref().unwrap_or(&path) {
        Path::Lab(lab) if lab.has_disk() => Some(args.storage.disk_access()?),
        _ => None,
    };
    if let (None, Some(flag)) = (disks, args.storage.given()) {
        let or = if ["--block", "--direct"].contains(&flag) { ", or a path with disk_a and disk_b," } else { "" };
        let why = format!("{flag} is for storage; give disk:FOLDER{or} instead of {}, or leave it out", args.path);
        return Err(Failure::usage(why));
    }
    let transport = transport::asked(args)?;
    let protocol = transport.protocol();
    let transport = transport::allowed(transport, &path, args);
    let omit = args.omit.unwrap_or(Time(0));
    let workload = match (args.size, args.duration) {
        (Some(size), _) => Workload::Size(size),
        (None, duration) => Workload::Duration(Time(duration.unwrap_or(Time(10_000_000_000)).0.saturating_add(omit.0))),
    };
    workload.validate(transport.streams)?;
    let is_unlimited = workload == Workload::Duration(UNLIMITED);
    if is_unlimited && matches!(path, Path::Lab(_)) {
        return Err(Failure::usage(
            "--duration unlimited is for a host that runs 'fullpipe serve'; in the testbed, give a time",
        ));
    }
    if is_unlimited && args.repeat.is_some() {
        return Err(Failure::usage("--repeat never comes to the second run with --duration unlimited; give a time"));
    }
    // The samples of a run without an end stay in memory until it is over.
    let usual = Time(if is_unlimited { 1_000_000_000 } else { 100_000_000 });
    let sample = args.sample.unwrap_or(args.interval.map_or(usual, |interval| interval.min(usual)));
    run_record::check_sample(sample, if args.sample.is_none() { "--interval" } else { "--sample" })?;
    if let Some(interval) = args.interval.filter(|interval| *interval < sample) {
        let why = format!("--interval {interval} is shorter than --sample {sample}; give a shorter --sample, too");
        return Err(Failure::usage(why));
    }
    let direction = if args.reverse { Direction::Receive } else { Direction::Send };
    if args.iperf3_json && protocol == Protocol::Udt {
        return Err(Failure::usage(
            "--iperf3-json is for TCP and plain UDP, since iperf3 has no UDT; --json has the record of any",
        ));
    }
    if let Some(every) = args.probe {
        run_record::check_sample(every, "--probe")?;
        if every.duration() > MAX_PROBE {
            return Err(Failure::usage(format!("--probe {every}: the longest is {}s", MAX_PROBE.as_secs())));
        }
    }
    if args.bind.is_some() && matches!(path, Path::Lab(_)) {
        return Err(Failure::usage(
            "--bind is for a host that runs 'fullpipe serve'; the testbed's hosts have one address each",
        ));
    }
    let disks = disks.map(|access| disks::with_block_of_copy(access, transport.streams)).transpose()?;
    let seed = args.seed.unwrap_or(1);
    let run = Run { path, transport, workload, direction, bidir: args.bidir, disks, seed, sample };
    if let (Some(access), Some(path)) = (&disks, &args.guest) {
        return Err(disks::copy(&run, path, access, args.stall()));
    }
    if let Some(out) = &args.out {
        run_record::check_target(out)?;
        let several = [(args.repeat.is_some_and(|times| times > 1), "--repeat"), (args.bidir, "--bidir")];
        if let Some((_, flag)) = several.iter().find(|(given, _)| *given && run_record::is_file(out)) {
            let why = format!("{flag} makes several records; give a folder instead of {}", out.display());
            return Err(Failure::usage(why));
        }
    }
    repeat(run, args)
}

/// Measures as often as `--repeat` says.
fn repeat(mut run: Run, args: &Args) -> Result {
    let times = args.repeat.unwrap_or(1);
    let interrupted = match run.path {
        Path::Host(_) if args.guest.is_none() => Some(interrupt::flag()),
        // Whoever ends a guest ends its measurement.
        _ => None,
    };
    let interrupted = interrupted.as_deref();
    let is_interrupted = || interrupted.is_some_and(|flag| flag.load(Ordering::SeqCst));
    let begun = Instant::now();
    let mut failures = 0;
    for i in 0..times {
        if let Some(every) = args.every {
            let due = every.duration().saturating_mul(i);
            wait_for(&|| due.saturating_sub(begun.elapsed()), &is_interrupted);
        }
        if is_interrupted() {
            return Err(Failure::new(ExitClass::Interrupted, "interrupted"));
        }
        if times > 1 && !args.json && !args.iperf3_json && !args.quiet {
            outln!("{}measurement {} of {times}, {}", if i > 0 { "\n" } else { "" }, i + 1, format::now());
        }
        match once(&run, args, interrupted) {
            Ok(()) => {}
            // The next time, the path or the server may be well again.
            Err(failure) if times > 1 && failure.is_remote() => {
                errln!("error: {failure}");
                failures += 1;
            }
            Err(failure) => return Err(failure),
        }
        run.seed = run.seed.wrapping_add(u64::from(matches!(run.path, Path::Lab(_))));
    }
    match failures {
        0 => Ok(()),
        failures => Err(Failure::new(ExitClass::Peer, format!("{failures} of {times} measurements failed"))),
    }
}

/// Waits until no time is left, or until `is_over`.
fn wait_for(left: &dyn Fn() -> Duration, is_over: &dyn Fn() -> bool) {
    const STEP: Duration = Duration::from_millis(100);
    while !is_over() && !left().is_zero() {
        std::thread::sleep(left().min(STEP));
    }
}

/// Measures once, writes the records, and prints the results.
fn once(run: &Run, args: &Args, interrupted: Option<&AtomicBool>) -> Result {
    let measured = match &run.path {
        Path::Host(host) => {
            let results = on_host(host, run, args, interrupted)?;
            if let [(described, measured)] = &results[..]
                && args.json
                && args.out.is_none()
                && interrupted.is_none()
            {
                // A long record would take much of a guest's memory, so it is not held whole.
                let mut stdout = BufWriter::new(output::Stdout);
                return run_record::render(described, measured, None, None, &mut stdout);
            }
            let text = |(described, measured): (Run, Measured)| {
                let mut text = Vec::new();
                run_record::render(&described, &measured, None, None, &mut text)?;
                let text = String::from_utf8(text).map_err(|e| Failure::new(ExitClass::Record, e))?;
                Ok((described, text, measured.outcome))
            };
            results.into_iter().map(text).collect::<Result<Vec<_>>>()?
        }
        Path::Lab(lab) => {
            let measured = in_lab(lab, run, args)?;
            measured.iter().for_each(|(run, text, _)| show_intervals(text, run, args));
            measured
        }
    };
    for (i, (run, text, outcome)) in measured.iter().enumerate() {
        let target = args.out.as_deref().map(|out| run_record::keep(out, run, text)).transpose()?;
        if args.json {
            output::out(format_args!("{text}"));
        } else if args.iperf3_json {
            let every_s = args.interval.map_or(1.0, |every| every.duration().as_secs_f64());
            let all = iperf3_json::of_record(text, every_s).map_err(|e| Failure::new(ExitClass::Record, e))?;
            outln!("{all:#}");
        } else if !args.quiet {
            if i > 0 {
                outln!();
            }
            print::print(run, outcome, text, target.as_deref());
        }
    }
    // Nothing else ends a run without a limit.
    let is_unlimited = run.workload == Workload::Duration(UNLIMITED);
    if !is_unlimited && measured.iter().any(|(_, _, outcome)| outcome.interrupted) {
        let why = "interrupted; the result is of what had been sent until then";
        return Err(Failure::new(ExitClass::Interrupted, why));
    }
    Ok(())
}

/// Prints intervals that are over, for people below a heading.
fn print_intervals(over: &[Interval], args: &Args) {
    for interval in over {
        match serde_json::to_string(interval) {
            Ok(line) if args.json => outln!("{line}"),
            _ if !args.quiet && !args.iperf3_json => {
                if interval.is_first() {
                    outln!("{}", interval.heading());
                }
                outln!("{}", interval.line());
            }
            _ => {}
        }
    }
}

/// Prints the intervals of a record.
fn show_intervals(record: &str, run: &Run, args: &Args) {
    let Some(every) = args.interval else { return };
    let sends = run.direction == Direction::Send;
    let side = if sends { "sender" } else { "receiver" };
    let mut intervals = Intervals::new(every.duration().as_secs_f64(), sends);
    let mut over = intervals.take(record.lines().filter_map(|line| SampleLine::read(line, side)));
    over.extend(intervals.rest());
    print_intervals(&over, args);
}

/// Reads a path from the command line, or from a TOML file.
fn read_path(text: &str) -> Result<Path> {
    if text.ends_with(".toml") {
        let table =
            std::fs::read_to_string(text).map_err(|e| Failure::usage(format!("cannot read path file {text}: {e}")))?;
        // A scenario is a TOML file too, and easily taken for a path.
        if table.lines().any(|line| line.trim() == "[[program]]") {
            let why = format!("{text} is a scenario, not a path; run it with 'fullpipe lab run {text}'");
            return Err(Failure::usage(why));
        }
        let path = LabPath::from_toml(&table).map_err(|e| Failure::usage(format!("{text}: {e}")))?;
        return Ok(Path::Lab(Box::new(path)));
    }
    Ok(text.parse()?)
}

/// Measures to a real host, or from inside the guest. Returns a result for each direction in which data moved.
fn on_host(host: &Host, run: &Run, args: &Args, interrupted: Option<&AtomicBool>) -> Result<Vec<(Run, Measured)>> {
    // In the guest, the record describes the emulated path, not the address at its end.
    let described = match &args.guest {
        Some(path) => Run { path: path.parse()?, ..run.clone() },
        None => run.clone(),
    };
    let capacity = match &described.path {
        Path::Lab(lab) => Some(lab.capacity(run.transport.protocol())),
        Path::Host(_) => None,
    };
    let request = Request {
        transport: run.transport.clone(),
        workload: run.workload,
        direction: run.direction,
        seed: run.seed,
        sample: run.sample,
    };
    let options = MeasureOptions {
        from: args.bind.clone().unwrap_or_default(),
        stall: args.stall().duration(),
        connect: Duration::from_secs(if args.guest.is_some() { 120 } else { 10 }),
        capacity,
        check_memory: args.guest.is_none(),
        proof_key: crate::token_files::given(args.token_file.as_deref(), args.quiet)?.map(|token| token.proof_key()),
        omit: args.omit.map(Time::duration),
        probe: args.probe.map(Time::duration),
    };
    // Two displays on one terminal would disturb each other.
    let quiet = args.quiet || args.json || args.iperf3_json || args.interval.is_some();
    let total = match run.workload {
        Workload::Size(size) => size.0,
        Workload::Duration(UNLIMITED) => 0,
        Workload::Duration(time) => time.0,
    };
    let bar = progress::bar(total, &run.transport.to_string(), quiet);
    // Number of this side's samples that the display has seen.
    let seen_samples = Cell::new(0);
    let intervals = RefCell::new(
        args.interval.map(|every| Intervals::new(every.duration().as_secs_f64(), run.direction == Direction::Send)),
    );
    let show = |seen: &Progress<'_>| {
        if let Some(intervals) = &mut *intervals.borrow_mut() {
            print_intervals(&intervals.live(seen.samples), args);
            seen_samples.set(seen_samples.get() + seen.samples.len());
        }
        bar.set_position(match run.workload {
            Workload::Size(_) => seen.bytes,
            Workload::Duration(_) => (seen.seconds * 1e9) as u64,
        });
        bar.set_message(format!("{:.2} Gb/s", seen.bytes as f64 * 8e-9 / seen.seconds.max(1e-9)));
    };
    let is_shown = args.interval.is_some() || progress::watched(quiet);
    let is_interrupted = || interrupted.is_some_and(|flag| flag.load(Ordering::SeqCst));
    let watcher = Watcher {
        show: is_shown.then_some(&show),
        tick: args.interval.map(|every| every.duration().min(Duration::from_millis(100))),
        interrupted: Some(&is_interrupted),
    };
    let measured = if run.bidir {
        Vec::from(fullpipe_net::measure_both(host, &request, &options, &watcher)?)
    } else {
        vec![fullpipe_net::measure(host, &request, &options, &watcher)?]
    };
    if let (Some(mut intervals), Some(measured)) = (intervals.into_inner(), measured.first()) {
        let side = if run.direction == Direction::Send { Side::Sender } else { Side::Receiver };
        let ours = measured.samples.iter().filter(|sample| sample.end == side);
        let last: Vec<Sample> = ours.skip(seen_samples.get()).cloned().collect();
        let mut over = intervals.live(&last);
        over.extend(intervals.rest());
        print_intervals(&over, args);
    }
    bar.finish_and_clear();
    if args.guest.is_none() {
        measured.iter().for_each(|measured| print::warn_of_limits(run, measured));
    }
    if !run.bidir {
        return Ok(measured.into_iter().map(|measured| (described.clone(), measured)).collect());
    }
    let directions = [Direction::Send, Direction::Receive].map(|direction| Run { direction, ..described.clone() });
    Ok(directions.into_iter().zip(measured).collect())
}

/// Measures over an emulated path. Returns a record for each direction in which data moved.
fn in_lab(path: &LabPath, run: &Run, args: &Args) -> Result<Vec<(Run, String, Outcome)>> {
    run.transport.validate_for_lab()?;
    if run.disks.is_some() {
        disks::check(run, path, args.omit, args.probe.is_some())?;
    }
    if args.token_file.is_some() {
        let why = "--token-file is for a host that runs 'fullpipe serve'; the testbed needs no token, leave it out";
        return Err(Failure::usage(why));
    }
    let lab = Lab::open(path.kernel.as_deref())?.with_memory(args.memory);
    let bar = progress::bar(1_000, &run.transport.to_string(), args.quiet || args.json);
    let commands = match &run.disks {
        Some(access) => disks::commands(run, path, access, args.stall()),
        None => guest_commands::guest_commands(run, path, args.stall(), args.omit, args.probe),
    };
    let measured = lab.measure(run, path, &commands, args.limit(), &|fraction, words| {
        bar.set_position((fraction * 1_000.0) as u64);
        bar.set_message(words.to_owned());
    })?;
    bar.finish_and_clear();
    let directions: &[Direction] =
        if run.bidir { &[Direction::Send, Direction::Receive] } else { std::slice::from_ref(&run.direction) };
    let of = |(direction, record): (&Direction, LabMeasured)| {
        (Run { direction: *direction, ..run.clone() }, record.text, record.outcome)
    };
    Ok(directions.iter().zip(measured).map(of).collect())
}
