//! `fullpipe lab`: builds the testbed's kernel, and runs scenarios.

use std::path::PathBuf;

use clap::Subcommand;
use fullpipe_lab::Lab;
use fullpipe_lab::job::Ended;
use fullpipe_lab::kernel::{self, STEPS, Source};
use fullpipe_lab::scenario::{self, ProgramResult, Scenario};
use fullpipe_path::{ExitClass, Size, Time};
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::output::{self, errln, outln};
use crate::progress;

/// The arguments of `fullpipe lab`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build the guest kernel (takes some minutes, once), or print where it is
    #[command(disable_version_flag = true)]
    Kernel {
        /// Build this version of the distribution's kernel sources, such as 6.12 [default: the newest]
        #[arg(long)]
        version: Option<String>,
        /// Build from this tarball of kernel sources
        #[arg(long, value_name = "TARBALL", conflicts_with = "version")]
        source: Option<PathBuf>,
        /// Print configuration and patches, but build nothing
        #[arg(long)]
        recipe: bool,
        /// Print the result as JSON on stdout
        #[arg(long)]
        json: bool,
        /// Show no progress
        #[arg(long)]
        quiet: bool,
    },
    /// Run any programs at the two ends of an emulated path
    Run {
        /// Scenario to run: a TOML file with a path and programs (docs/reference/scenario.md)
        scenario: PathBuf,
        /// Set the memory of the guest, such as 2GB [default: what the path needs]
        #[arg(long, value_name = "SIZE")]
        memory: Option<Size>,
        /// Seed every random number of the guest [default: the scenario's seed, or 1]
        #[arg(long)]
        seed: Option<u64>,
        /// Give up after this much real time
        #[arg(long, default_value = "1h", value_name = "TIME")]
        limit: Time,
        /// Write each program's output into this folder, as 0.out, 0.err, 1.out, ...
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Let the scenario's programs write below this folder, where its folders ask for that; may be repeated
        #[arg(long, value_name = "DIR")]
        write: Vec<PathBuf>,
        /// Print results as NDJSON on stdout
        #[arg(long)]
        json: bool,
        /// Show no progress
        #[arg(long)]
        quiet: bool,
    },
}

/// Runs a verb of the testbed.
pub fn run(args: Args) -> Result {
    match args.verb {
        Verb::Kernel { recipe: true, .. } => {
            let mut text = Vec::new();
            kernel::print_recipe(&mut text).map_err(|e| Failure::new(ExitClass::Record, e))?;
            output::unchanged(&text, &[]);
            Ok(())
        }
        Verb::Kernel { version, source, json, quiet, .. } => {
            let source = Source { tarball: source.as_deref(), version: version.as_deref() };
            let bar = progress::bar(STEPS, "kernel", quiet);
            let said = std::cell::Cell::new("");
            let built = kernel::build(&kernel::cache_folder()?, &source, &|step, doing| {
                bar.set_position(step.min(STEPS));
                bar.set_message(doing.to_owned());
                // Nobody watches the bar, but a log should show what takes minutes.
                if bar.is_hidden() && !quiet && said.replace(static_name(doing)) != static_name(doing) {
                    errln!("kernel: {doing}");
                }
            })?;
            bar.finish_and_clear();
            if json {
                outln!("{}", json!({"kind": "kernel", "version": built.version, "executable": built.executable}));
            } else {
                outln!("{} {}", built.version, built.executable.display());
            }
            Ok(())
        }
        Verb::Run { scenario, memory, seed, limit, out, write, json, quiet } => {
            let scenario = Scenario::read(&scenario, &write)?;
            scenario_run(scenario, (memory, seed), limit, out, json, quiet)
        }
    }
}

/// The name of a step of the build without its details, so that a log has each step once.
fn static_name(doing: &str) -> &'static str {
    ["waiting for another build", "unpacking", "configuring", "compiling"]
        .into_iter()
        .find(|name| *name == doing)
        .unwrap_or("working")
}

fn scenario_run(
    scenario: Scenario,
    (memory, seed): (Option<Size>, Option<u64>),
    limit: Time,
    out: Option<PathBuf>,
    json: bool,
    quiet: bool,
) -> Result {
    if let Some(out) = &out {
        fullpipe_path::record::check_folder(out)?;
    }
    let lab = Lab::open(scenario.kernel())?.with_memory(memory.or(scenario.memory));
    let mut job = scenario.into_job();
    job.seed = seed.unwrap_or(job.seed);
    let bar = progress::bar(0, "scenario", quiet || json);
    let done = lab.run(&job, limit.duration(), &|seconds, bytes| {
        bar.set_message(format!(
            "{seconds:.1} s of virtual time, {:.2} GB through the bottleneck",
            bytes as f64 * 1e-9
        ));
    })?;
    bar.finish_and_clear();
    let results = scenario::results(&job, &done);
    for (i, result) in results.iter().enumerate() {
        if let Some(out) = &out {
            fullpipe_path::record::write_atomically(&out.join(format!("{i}.out")), &result.stdout)?;
            fullpipe_path::record::write_atomically(&out.join(format!("{i}.err")), &result.stderr)?;
        }
    }
    let report = &done.report;
    if json {
        for result in &results {
            outln!("{}", with_kind("program", result));
        }
        for sample in &report.queue {
            // On the scenario's clock, as the programs' times are.
            let mut line = with_kind("queue", sample);
            line["ns"] = json!(sample.ns.saturating_sub(job.zero_ns()));
            outln!("{line}");
        }
        outln!(
            "{}",
            json!({"kind": "path", "forward": report.forward, "back": report.back, "impaired": report.impaired,
                   "impaired_back": report.impaired_back, "deepest": report.deepest, "seconds": report.seconds,
                   "real": {"wall_s": done.wall_s, "memory_bytes": done.memory_peak}})
        );
    } else {
        results.iter().for_each(print);
        outln!(
            "-- {:.3} s of virtual time; forward: {} packets, {} bytes, {} dropped, deepest queue {} bytes; {} lost at random",
            report.seconds,
            report.forward.packets,
            report.forward.bytes,
            report.forward.drops,
            report.deepest,
            report.impaired.drops
        );
    }
    failed(&results)
}

fn with_kind(kind: &str, value: &impl serde::Serialize) -> serde_json::Value {
    let mut line = json!({"kind": kind});
    if let (Some(line), Ok(serde_json::Value::Object(fields))) = (line.as_object_mut(), serde_json::to_value(value)) {
        line.extend(fields);
    }
    line
}

fn print(result: &ProgramResult) {
    let how = match &result.report.ended {
        Ended::Exit(code) => format!("status {code}"),
        Ended::Signal(signal) => format!("signal {signal}"),
        Ended::NotStarted(why) => return outln!("-- {}: {} (not started: {why})", result.end, result.run.join(" ")),
    };
    let stopped = if result.report.stopped { ", stopped by the scenario" } else { "" };
    outln!(
        "-- {}: {} ({how}{stopped}; {:.3} s to {:.3} s)",
        result.end,
        result.run.join(" "),
        result.report.start_s,
        result.report.end_s
    );
    output::unchanged(&result.stdout, &result.stderr);
}

/// Fails if a program failed that the scenario did not stop.
fn failed(results: &[ProgramResult]) -> Result {
    for result in results {
        let how = match &result.report.ended {
            Ended::Exit(0) => continue,
            _ if result.report.stopped => continue,
            Ended::Exit(code) => format!("failed with status {code}"),
            Ended::Signal(signal) => format!("was killed by signal {signal}"),
            Ended::NotStarted(why) => format!("could not be started: {why}"),
        };
        let text = format!("'{}' on end {} of the path {how}", result.run.join(" "), result.end);
        return Err(Failure::new(ExitClass::Lab, text));
    }
    Ok(())
}
