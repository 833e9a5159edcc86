//! `fullpipe measure`: measures one transport over one path, or storage.

mod args;
mod csv;
mod disks;
mod guest_commands;
mod intervals;
mod iperf3_json;
mod live;
mod print;
mod storage;
mod transport;
mod watch;

use std::io::BufWriter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_lab::{Lab, LabMeasured};
use fullpipe_net::measure::{FIRST_ANSWER, MeasureOptions};
use fullpipe_net::wire::Request;
use fullpipe_net::{Measured, NetError};
use fullpipe_net::{Progress, Watcher};
use fullpipe_path::record::Outcome;
use fullpipe_path::transport::UNLIMITED;
use fullpipe_path::{Direction, ExitClass, Host, LabPath, Path, Protocol, Run, Time, Workload};
use fullpipe_transfer::connection::token_proof;

pub use self::args::Args;
use self::intervals::{Intervals, SampleLine};
use self::live::Live;
use crate::failure::{Failure, Result};
use crate::output::{self, errln, outln};
use crate::over_ssh::OverSsh;
use crate::{format, hints, interrupt, progress, rlimit, run_record};

/// Longest time between two probes: before the data, ten are sent.
const MAX_PROBE: Duration = Duration::from_secs(1);

/// Measures, writes the record, and prints the result.
pub fn run(args: &Args, cli: &clap::Command) -> Result {
    if args.stall == Some(Time(0)) {
        return Err(Failure::usage("--stall 0s leaves a run no time; give a time above 0s"));
    }
    if let Some(target) = storage::Target::parse(&args.path) {
        if let Some(flag) = args.given_for_paths(false) {
            let again = if flag == "--repeat" { "; to repeat it, run it again with the same --out" } else { "" };
            let why = format!(
                "{flag} is for a path between hosts; disk:FOLDER and mount:FOLDER have --read, --write, --threads, --block, \
                 --direct and --size{again}"
            );
            return Err(Failure::usage(why));
        }
        return storage::run(&target, &args.storage, &args.common());
    }
    // A stream takes up to three files.
    rlimit::raise_open_files();
    let ports = if args.bidir { 3 } else { 2 };
    let over_ssh = OverSsh::parse(&args.path, &args.over_ssh, (args.quiet, args.stall), ports, cli)?;
    if let (Some(flag), Some(_)) = (args.given_without_ssh(), &over_ssh) {
        return Err(Failure::usage(format!("{flag} has no effect on a measurement to ssh:HOST; leave it out")));
    }
    let path = match &over_ssh {
        Some(over_ssh) => Path::Host(over_ssh.described.clone()),
        None => read_path(&args.path)?,
    };
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
        let folder = "disk:FOLDER for a folder of this host";
        let why = match path {
            Path::Host(_) => {
                format!("{flag} is for storage; give disk:FOLDER instead of {}, or leave it out", args.path)
            }
            Path::Lab(_) if ["--block", "--direct"].contains(&flag) => {
                format!(
                    "{flag} is for storage; add mount=nfs or disk=1GB/s to the path, give {folder}, or leave it out"
                )
            }
            Path::Lab(_) => format!(
                "{flag} is for storage; add mount=nfs to the path, give {folder}, or leave it out (between disks, disk=1GB/s, files \
                 have a thread for each of --streams)"
            ),
        };
        return Err(Failure::usage(why));
    }
    let transport = transport::asked(args)?;
    let protocol = transport.protocol();
    let transport = transport::allowed(transport, &path, args);
    let omit = args.omit().unwrap_or(Time(0));
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
    if let (Some(every), Workload::Duration(length), Path::Host(_)) = (args.every, &workload, &path)
        && every < *length
    {
        let why =
            format!("--every {every} is shorter than a measurement, {length}; give a longer --every, or leave it out");
        return Err(Failure::usage(why));
    }
    // The samples of a run without an end stay in memory until it is over.
    let usual = Time(if is_unlimited { 1_000_000_000 } else { 100_000_000 });
    let sample = args.sample.unwrap_or(args.interval.map_or(usual, |interval| intervals::sample_time(interval, usual)));
    run_record::check_sample(sample, if args.sample.is_none() { "--interval" } else { "--sample" })?;
    if let Some(interval) = args.interval.filter(|interval| !interval.0.is_multiple_of(sample.0)) {
        let why = format!(
            "--interval {interval} is no multiple of --sample {sample}, where intervals can end; give another --sample, or leave it \
             out"
        );
        return Err(Failure::usage(why));
    }
    if let Some(omit) = args.omit().filter(|omit| *omit < sample) {
        let why = format!(
            "--omit {omit} is shorter than --sample {sample}, after which the rest can begin; give a shorter --sample"
        );
        return Err(Failure::usage(why));
    }
    let direction = if args.reverse { Direction::Receive } else { Direction::Send };
    if args.watch && matches!(path, Path::Lab(_)) {
        return Err(Failure::usage(
            "--watch is for a host that runs 'fullpipe serve'; in the testbed, --interval prints lines at the end",
        ));
    }
    if args.watch && !watch::has_terminal() {
        return Err(Failure::usage("--watch needs a terminal on standard error; --interval prints lines anywhere"));
    }
    if args.iperf3_json && protocol == Protocol::Udt {
        return Err(Failure::usage(
            "--iperf3-json is for TCP and plain UDP, since iperf3 has no UDT; --json has the record of any",
        ));
    }
    if args.limit == Some(Time(0)) {
        return Err(Failure::usage("--limit 0s leaves a run no time; give more, or leave it out"));
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
    if disks.is_some() {
        transport.validate_for_copy()?;
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
    repeat(run, args, over_ssh)
}

/// Measures as often as `--repeat` says.
fn repeat(mut run: Run, args: &Args, mut over_ssh: Option<OverSsh>) -> Result {
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
    if args.csv {
        csv::print_header();
    }
    for i in 0..times {
        if let Some(every) = args.every {
            let due = every.duration().saturating_mul(i);
            wait_for(&|| due.saturating_sub(begun.elapsed()), &is_interrupted);
        }
        if is_interrupted() {
            return Err(Failure::new(ExitClass::Interrupted, "interrupted"));
        }
        if times > 1 && !args.prints_data() && !args.quiet {
            outln!("{}measurement {} of {times}, {}", if i > 0 { "\n" } else { "" }, i + 1, format::now());
        }
        let started = over_ssh.as_mut().map(|over_ssh| over_ssh.start(interrupted).map(drop)).transpose();
        if is_interrupted() {
            return Err(Failure::new(ExitClass::Interrupted, "interrupted"));
        }
        let measured = started.and_then(|_| once(&run, args, (over_ssh.as_ref(), interrupted), i + 1));
        if let Err(failure) = &measured
            && args.iperf3_json
            && !failure.is_said()
        {
            outln!("{:#}", iperf3_json::of_failure(&run, failure));
        }
        match measured {
            Ok(()) => {}
            // The next time, the path or the server may be well again.
            Err(failure) if times > 1 && failure.is_remote() => {
                errln!("error: {failure}");
                failures += 1;
                if let Some(over_ssh) = &mut over_ssh {
                    over_ssh.end();
                }
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

/// Measures once, writes the records, and prints the results. `number` is that of the measurement, from 1.
fn once(
    run: &Run,
    args: &Args,
    (over_ssh, interrupted): (Option<&OverSsh>, Option<&AtomicBool>),
    number: u32,
) -> Result {
    let measured = match &run.path {
        Path::Host(host) => {
            let results = on_host(host, run, args, (over_ssh, interrupted), number)?;
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
            for (run, text, outcome) in &measured {
                print::warn_of_limits_in_testbed(run, text, outcome);
            }
            show_intervals(&measured, args, number);
            measured
        }
    };
    for (i, (run, text, outcome)) in measured.iter().enumerate() {
        let target = args.out.as_deref().map(|out| run_record::keep(out, run, &args.beside(), text)).transpose()?;
        if args.json {
            output::out(format_args!("{text}"));
        } else if args.iperf3_json {
            let every_s = args.interval.map_or(1.0, |every| every.duration().as_secs_f64());
            let all = iperf3_json::of_record(text, every_s).map_err(|e| Failure::new(ExitClass::Record, e))?;
            outln!("{all:#}");
        } else if args.csv {
            csv::print_result(outcome, number, run.direction);
            if let Some(why) = outcome.no_rate.as_ref().filter(|_| !args.quiet) {
                errln!("no rate: {why}");
            }
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
        return Err(Failure::new(ExitClass::Interrupted, why).said());
    }
    Ok(())
}

/// Prints the intervals of the records of a measurement, in the order of their ends.
fn show_intervals(measured: &[(Run, String, Outcome)], args: &Args, number: u32) {
    let Some(every) = args.every() else { return };
    let of = |(run, record, _): &(Run, String, Outcome)| {
        let sends = run.direction == Direction::Send;
        let side = if sends { "sender" } else { "receiver" };
        let mut intervals = Intervals::new(every.duration().as_secs_f64(), sends);
        let mut over = intervals.take(record.lines().filter_map(|line| SampleLine::read(line, side)));
        over.extend(intervals.rest());
        over.into_iter().map(|interval| (run.direction, interval)).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = measured.iter().flat_map(of).collect();
    all.sort_by(|(_, one), (_, other)| one.end_s.total_cmp(&other.end_s));
    let printer = live::Printer::new(args, number);
    all.iter().for_each(|(direction, interval)| printer.print(*direction, interval));
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
    hints::path(text, storage_of)
}

/// How to measure the storage of a folder.
fn storage_of(folder: &str) -> String {
    format!("measure its storage as disk:{folder}")
}

/// Measures to a real host, or from inside the guest. Returns a result for each direction in which data moved.
fn on_host(
    host: &Host,
    run: &Run,
    args: &Args,
    (over_ssh, interrupted): (Option<&OverSsh>, Option<&AtomicBool>),
    number: u32,
) -> Result<Vec<(Run, Measured)>> {
    let started = over_ssh.and_then(|over_ssh| over_ssh.server.as_ref());
    let host = started.map_or(host, |server| &server.host);
    let key = match started {
        Some(server) => Some(server.key),
        None => crate::token_files::given(args.token_file.as_deref(), args.quiet)?.map(|token| token.proof_key()),
    };
    // In the guest, the record describes the emulated path, not the address at its end.
    let described = match &args.guest {
        Some(path) => Run { path: path.parse()?, ..run.clone() },
        None => run.clone(),
    };
    let lab = match &described.path {
        Path::Lab(lab) => Some(lab),
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
        first_answer: if args.guest.is_some() {
            Duration::from_secs(120)
        } else {
            FIRST_ANSWER.min(args.stall().duration())
        },
        capacity: lab.map(|lab| lab.capacity(&run.transport)),
        has_cross: lab.is_some_and(|lab| lab.cross.is_some()),
        check_memory: args.guest.is_none(),
        proof_key: key,
        // Only this host's user reaches a server that was started over ssh.
        preface: started.is_none().then_some(token_proof::prove_now),
        omit: args.omit().map(Time::duration),
        probe: args.probe.map(Time::duration),
    };
    let live = Live::new(run, args, number);
    let show = |seen: &Progress<'_>| live.show(seen);
    let is_interrupted = || interrupted.is_some_and(|flag| flag.load(Ordering::SeqCst));
    let watcher = Watcher {
        show: live.is_shown.then_some(&show),
        tick: args.every().map(|every| every.duration().min(Duration::from_millis(100))),
        interrupted: Some(&is_interrupted),
    };
    let measured = if run.bidir {
        fullpipe_net::measure_both(host, &request, &options, &watcher).map(Vec::from)
    } else {
        fullpipe_net::measure(host, &request, &options, &watcher).map(|measured| vec![measured])
    };
    if let Err(NetError::Refused { usable_cc: Some(cc), .. }) = &measured
        && let Some(transport) = transport::instead(&run.transport, cc, args)
    {
        live.finish(&[]);
        return on_host(host, &Run { transport, ..run.clone() }, args, (over_ssh, interrupted), number);
    }
    let measured = measured.map_err(|error| match over_ssh {
        Some(over_ssh) => over_ssh.explain(error),
        None => hints::of_host(error, storage_of),
    })?;
    live.finish(&measured);
    if args.guest.is_none() {
        measured.iter().for_each(|measured| print::warn_of_limits(run, measured));
    }
    let runs = live::directions(run).into_iter().map(|direction| Run { direction, ..described.clone() });
    Ok(runs.zip(measured).collect())
}

/// Measures over an emulated path. Returns a record for each direction in which data moved.
fn in_lab(path: &LabPath, run: &Run, args: &Args) -> Result<Vec<(Run, String, Outcome)>> {
    run.transport.validate_for_lab()?;
    if run.disks.is_some() {
        disks::check(run, path, args.omit(), args.probe.is_some())?;
    }
    if args.token_file.is_some() {
        let why = "--token-file is for a host that runs 'fullpipe serve'; the testbed needs no token, leave it out";
        return Err(Failure::usage(why));
    }
    let lab = Lab::open(path.kernel.as_deref())?.with_memory(args.memory);
    let bar = progress::bar(1_000, &run.transport.to_string(), args.quiet || args.prints_data());
    let commands = match &run.disks {
        Some(access) => disks::commands(run, path, access, args.stall()),
        None => guest_commands::guest_commands(run, path, args.stall(), args.omit(), args.probe),
    };
    let measured = lab.measure(run, path, &commands, args.limit(), &|fraction, words| {
        bar.set_position((fraction * 1_000.0) as u64);
        bar.set_message(words.to_owned());
    })?;
    bar.finish_and_clear();
    let directions: &[Direction] =
        if run.bidir { &[Direction::Send, Direction::Receive] } else { std::slice::from_ref(&run.direction) };
    let of = |(direction, record): (&Direction, LabMeasured)| {
        let run = Run { direction: *direction, ..run.clone() };
        // A copy in the guest has named it as its own.
        let text = if run.disks.is_some() { run_record::named(&record.text, &run.id())? } else { record.text };
        Ok((run, text, record.outcome))
    };
    directions.iter().zip(measured).map(of).collect()
}
