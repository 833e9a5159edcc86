//! `fullpipe lab`.

use std::path::PathBuf;

use clap::Subcommand;
use fullpipe_lab::Lab;
use fullpipe_lab::job::Ended;
use fullpipe_lab::kernel::{self, STEPS, Source};
use fullpipe_lab::scenario::{self, ProgramResult, Scenario};
use fullpipe_path::{ExitClass, Size, Time};
use serde_json::json;

use crate::Result;
use crate::failure::Failure;
use crate::output::{self, errln, outln};
use crate::progress;

/// Command line.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build the guest kernel, once (some minutes), or say where it is
    Kernel {
        /// Which of the distribution's sources: 6.12, 6.1; the newest by default
        #[arg(long)]
        version: Option<String>,
        /// Build from this tarball instead
        #[arg(long, value_name = "TARBALL", conflicts_with = "version")]
        source: Option<PathBuf>,
        /// Print configuration and patches, and build nothing
        #[arg(long)]
        recipe: bool,
        /// The result as JSON on stdout
        #[arg(long)]
        json: bool,
        /// No progress
        #[arg(long)]
        quiet: bool,
    },
    /// Run any programs on the two ends of an emulated path
    Run {
        /// The scenario (see docs/reference/scenario.md)
        scenario: PathBuf,
        /// Memory of the guest, if what the path needs is not enough
        #[arg(long, value_name = "SIZE")]
        memory: Option<Size>,
        /// Give up after so much real time
        #[arg(long, default_value = "1h", value_name = "TIME")]
        limit: Time,
        /// Copy each program's output into this folder: 0.out, 0.err, 1.out, ...
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Results as NDJSON on stdout
        #[arg(long)]
        json: bool,
        /// No progress
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
                // Where nobody watches a bar, a log still shows what takes minutes.
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
        Verb::Run { scenario, memory, limit, out, json, quiet } => {
            scenario_run(&scenario, memory, limit, out, json, quiet)
        }
    }
}

fn static_name(doing: &str) -> &'static str {
    ["waiting for another build", "unpacking", "configuring", "compiling"]
        .into_iter()
        .find(|name| *name == doing)
        .unwrap_or("working")
}

fn scenario_run(
    file: &std::path::Path,
    memory: Option<Size>,
    limit: Time,
    out: Option<PathBuf>,
    json: bool,
    quiet: bool,
) -> Result {
    let scenario = Scenario::read(file)?;
    if let Some(out) = &out {
        fullpipe_path::record::check_folder(out)?;
    }
    let lab = Lab::open(scenario.kernel())?.with_memory(memory.or(scenario.memory));
    let job = scenario.into_job();
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
            fullpipe_path::record::write_atomically(&out.join(format!("{i}.out")), result.stdout.as_bytes())?;
            fullpipe_path::record::write_atomically(&out.join(format!("{i}.err")), result.stderr.as_bytes())?;
        }
    }
    let report = &done.report;
    if json {
        for result in &results {
            outln!("{}", with_kind("program", result));
        }
        for sample in &report.queue {
            outln!("{}", with_kind("queue", sample));
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
            "-- {:.3} s of virtual time; forward {} packets, {} bytes, {} dropped, deepest queue {} bytes; lost at random {}",
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
        Ended::NotStarted(why) => format!("not started: {why}"),
    };
    let stopped = if result.report.stopped { ", asked to end" } else { "" };
    outln!(
        "-- {}: {} ({how}{stopped}; {:.3} s to {:.3} s)",
        result.end,
        result.run.join(" "),
        result.report.start_s,
        result.report.end_s
    );
    output::unchanged(result.stdout.as_bytes(), result.stderr.as_bytes());
}

/// A program that failed by itself makes the scenario fail.
fn failed(results: &[ProgramResult]) -> Result {
    for result in results {
        let how = match &result.report.ended {
            Ended::Exit(0) => continue,
            _ if result.report.stopped => continue,
            Ended::Exit(code) => format!("failed with status {code}"),
            Ended::Signal(signal) => format!("was killed by signal {signal}"),
            Ended::NotStarted(why) => format!("could not be started: {why}"),
        };
        let text = format!("in the guest, '{}' on end {} {how}", result.run.join(" "), result.end);
        return Err(Failure::new(ExitClass::Lab, text));
    }
    Ok(())
}
