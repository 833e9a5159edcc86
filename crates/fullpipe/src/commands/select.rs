//! `fullpipe select`: chooses a transport for a path from a profile.

mod hosts;
mod storage;
mod this_host;

use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use fullpipe_path::{
    ExitClass, Host, LabHost, LabPath, Path, Probability, Protocol, Rate, Size, Time, Transport, Workload,
};
use fullpipe_profile::{Choice, Estimate, Joint, Needed, Profile, ProfileError, Query, Selection, select};
use serde::Serialize;
use this_host::ThisHost;

use crate::failure::{Failure, Result};
use crate::output::outln;
use crate::over_ssh::{OverSsh, SshArgs};
use crate::shipped_profile::{describe, text_of};
use crate::start_up::StartUp;
use crate::{format, hints};

/// Most lines of the ranking, or of missing runs.
const SHOWN: usize = 20;

const EXAMPLES: &str = "\
Examples:
  fullpipe select --rtt 91.6ms --rate 10gbit --explain
  fullpipe select --rtt 91.6ms --host stock        between hosts with a distribution's limits
  fullpipe select ssh:host                         measures the RTT to a host that ssh reaches
  fullpipe select host                             measures the RTT to a host that runs 'fullpipe serve'
  fullpipe select lab:rtt=91.6ms,rate=10gbit --profile profile.json --certain 95%
  fullpipe select host --from-storage here/storage-profile.json --to-storage there/storage-profile.json";

/// The arguments of `fullpipe select`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Path to choose for: HOST or HOST:PORT where 'fullpipe serve' runs (its RTT is measured), ssh:HOST (measured over
    /// ssh), or lab:rtt=91.6ms,rate=10gbit
    path: Option<String>,
    /// Choose for this round-trip time instead of a PATH, such as 91.6ms
    #[arg(long, conflicts_with = "path", value_name = "TIME")]
    rtt: Option<Time>,
    /// Choose from this profile, made by 'fullpipe analyze' [default: the one that comes with fullpipe]
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Choose for this capacity, such as 10gbit
    #[arg(long)]
    rate: Option<Rate>,
    /// Choose for this random loss, such as 1e-5 or 0.001%
    #[arg(long, value_name = "PROBABILITY")]
    loss: Option<Probability>,
    /// Choose for a bottleneck with this queue, such as 16MB; needs --rate
    #[arg(long, value_name = "SIZE")]
    queue: Option<Size>,
    /// Choose for packets of at most this many bytes, such as 9000
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=65535))]
    mtu: Option<u32>,
    /// Choose for hosts with these limits: stock (a distribution's), tuned, or these with changes, such as
    /// stock+rmem_max:16MiB+wmem_max:16MiB [default: as the path says, else tuned]
    #[arg(long, value_name = "HOST")]
    host: Option<LabHost>,
    /// Choose a transport over this protocol, tcp or udt [default: the better one]
    #[arg(long, value_name = "PROTOCOL", value_parser = protocol)]
    transport: Option<Protocol>,
    /// Predict a transfer of this size, such as 1GB; choose from the profile's runs of the nearest size
    #[arg(long, conflicts_with = "duration")]
    size: Option<Size>,
    /// Choose from the profile's runs whose duration is nearest to this, such as 100s
    #[arg(long, value_name = "TIME")]
    duration: Option<Time>,
    /// Choose only with this confidence, such as 0.95 or 95%; if the data do not give it, list the runs to add, and fail
    #[arg(long, value_name = "LEVEL")]
    certain: Option<Probability>,
    /// Count rates within this fraction of the best as equally good
    #[arg(long, value_name = "FRACTION", default_value = "1%")]
    within: Probability,
    /// Join the network with the storage that is read, as measured by 'fullpipe measure disk:FOLDER --read': a
    /// storage-profile.json of 'fullpipe analyze', or one record
    #[arg(long, value_name = "FILE")]
    from_storage: Option<PathBuf>,
    /// Join the network with the storage that is written, as measured by 'fullpipe measure disk:FOLDER --write'
    #[arg(long, value_name = "FILE")]
    to_storage: Option<PathBuf>,
    #[command(flatten)]
    over_ssh: SshArgs,
    /// Explain the choice: the ranking, what the data cannot tell apart, where estimates come from
    #[arg(long)]
    explain: bool,
    /// Print the selection as JSON on stdout
    #[arg(long)]
    json: bool,
}

/// Chooses a transport and prints what to expect of it.
pub fn run(args: Args, cli: &clap::Command) -> Result {
    let query = query(&args, Some(cli))?;
    let (text, name) = text_of(args.profile.as_deref())?;
    let profile = Profile::parse(&text, name)?;
    let mut selection = chosen(&profile, &query)?;
    if let Some(Ok(Path::Lab(lab))) = args.path.as_deref().map(str::parse) {
        selection.notes.extend(not_selected_for(&lab));
    }
    let is_emulated = matches!(args.path.as_deref().map(str::parse), Some(Ok(Path::Lab(_))));
    // Where hosts are named, this one may be none of them.
    let is_named = is_emulated || args.host.is_some();
    let lacks = if is_named { Vec::new() } else { ThisHost::read().lacks(&selection) };
    let size_bps = for_size(&selection, &query).and_then(|size| size.rate_bps);
    let (from, to) = (args.from_storage.as_deref(), args.to_storage.as_deref());
    let joint = storage::join_with(&selection, size_bps, from, to)?;
    if args.json {
        outln!("{}", json(&selection, &query, joint.as_ref(), Some(&lacks))?);
    }
    if args.certain.is_some() && selection.hosts != query.hosts && query.hosts.iter().any(Option::is_some) {
        let why = "a prediction is never certain, and the profile has no runs between such hosts; measure some ('fullpipe measure \
                   lab:rtt=...,host=stock --out runs'), 'fullpipe analyze runs', and give --profile runs/profile.json";
        return Err(Failure::new(ExitClass::Failed, why));
    }
    if args.certain.is_some() && !selection.certain {
        return Err(Failure::new(ExitClass::Failed, uncertain(&selection, &args)));
    }
    if !args.json {
        print(&selection, &query, joint.as_ref(), args.profile.is_none());
        lacks.iter().for_each(|lack| outln!("note        {lack}"));
        if args.explain {
            explain(&selection);
        }
    }
    Ok(())
}

/// Chooses a transport for the path and its hosts, and adds what its protocol needs to the notes.
fn chosen(profile: &Profile, query: &Query) -> Result<Selection, ProfileError> {
    let mut selection = select(profile, query)?;
    hosts::hold_to(&mut selection, query)?;
    let notes = needs(&selection);
    selection.notes.extend(notes);
    Ok(selection)
}

/// What a choice over UDT needs, in sentences.
fn needs(selection: &Selection) -> Vec<String> {
    let transport = &selection.choice.transport;
    if transport.protocol() != Protocol::Udt {
        return Vec::new();
    }
    let tcp = selection.best_over(Protocol::Tcp);
    let instead = tcp.map_or_else(String::new, |tcp| {
        format!("; the best over TCP is {} ({})", tcp.transport, format::rate(tcp.expected.mean_bps))
    });
    let kept = transport
        .pacing
        .map(|rate| format!("UDT keeps to {rate} whatever is lost: only for paths that nobody else uses"));
    std::iter::once(format!("UDT needs UDP to the far host{instead}")).chain(kept).collect()
}

/// A protocol that a transport can be chosen over.
fn protocol(text: &str) -> Result<Protocol, String> {
    match text.parse() {
        Ok(Protocol::Udp) => Err("plain UDP loses data, so nothing is chosen over it; give tcp or udt".to_owned()),
        Err(_) => Err(format!("'{text}' is neither tcp nor udt")),
        Ok(protocol) => Ok(protocol),
    }
}

/// What may be asked over HTTP, as flags of this verb.
pub const ASKED: [&str; 10] =
    ["rtt", "rate", "loss", "queue", "mtu", "host", "size", "duration", "within", "transport"];

/// Why a question over HTTP has no answer.
pub enum Unanswered {
    /// A flag is not one of [`ASKED`], or comes twice; a value is wrong, or `rtt` is missing.
    Wrong(Failure),
    /// The question is right, but the profile has no kind of path or workload that is near enough.
    NothingFits {
        /// What no kind of path of the profile is near to, such as `rate=4gbit`.
        asked: String,
        /// What the profile has instead.
        has: String,
    },
    /// The profile cannot be used.
    Profile(ProfileError),
    /// The selection cannot be written as JSON.
    Json(Failure),
}

/// Chooses from a profile as the command line would with these flags and `--json`; returns the JSON. `name` names the profile
/// in errors.
///
/// # Errors
/// See [`Unanswered`].
pub fn answer(profile: &str, name: &FilePath, asked: &[(String, String)]) -> Result<String, Unanswered> {
    let query = query_of(asked).map_err(Unanswered::Wrong)?;
    let selection = Profile::parse(profile, name).and_then(|profile| chosen(&profile, &query));
    let selection = selection.map_err(|error| match error {
        ProfileError::NothingFits { asked, has } => Unanswered::NothingFits { asked, has },
        error => Unanswered::Profile(error),
    })?;
    json(&selection, &query, None, None).map_err(Unanswered::Json)
}

/// The query of a question over HTTP, or of a path in a file: names of [`ASKED`] with their values.
///
/// # Errors
/// A name is not one of [`ASKED`], or comes twice; a value is wrong, or `rtt` is missing.
pub fn query_of(asked: &[(String, String)]) -> Result<Query> {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }
    if let Some((other, _)) = asked.iter().find(|(name, _)| !ASKED.contains(&name.as_str())) {
        let other: String = other.chars().filter(char::is_ascii_graphic).take(40).collect();
        return Err(Failure::usage(format!("'{other}' is not asked for; there are {}", ASKED.join(", "))));
    }
    // In a query of HTTP, a plus stands for a space, and no host has one.
    let written = |name: &str, value: &str| if name == "host" { value.replace(' ', "+") } else { value.to_owned() };
    let words = asked.iter().map(|(name, value)| format!("--{name}={}", written(name, value)));
    let line = <Line as clap::Parser>::try_parse_from(std::iter::once("select".to_owned()).chain(words));
    let first_line = |e: clap::Error| e.render().to_string().lines().next().unwrap_or_default().to_owned();
    let wrong = |e| Failure::usage(first_line(e).trim_start_matches("error: "));
    let args = line.map_err(wrong)?.args;
    if args.rtt.is_none() {
        return Err(Failure::usage("give the round-trip time, such as rtt=91.6ms"));
    }
    query(&args, None)
}

fn json(selection: &Selection, query: &Query, joint: Option<&Joint>, this_host: Option<&[String]>) -> Result<String> {
    let printed = Printed { selection, for_size: for_size(selection, query), joint, this_host };
    serde_json::to_string(&printed).map_err(|e| Failure::new(ExitClass::Record, e))
}

/// A selection as JSON.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    selection: &'a Selection,
    for_size: Option<ForSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    joint: Option<&'a Joint>,
    /// What this host lacks for the choice. Of no use to who asks over HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    this_host: Option<&'a [String]>,
}

/// What to expect of a transfer of the size that was asked for.
#[derive(Serialize)]
struct ForSize {
    bytes: u64,
    seconds: Option<f64>,
    rate_bps: Option<f64>,
}

/// Predicts a transfer of the size of `--size`; `None` without one, and if the profile's runs had that size. What is sent
/// within the first round trip has no rate.
fn for_size(selection: &Selection, query: &Query) -> Option<ForSize> {
    let Some(Workload::Size(Size(bytes))) = query.workload.filter(|asked| *asked != selection.workload) else {
        return None;
    };
    let choice = &selection.choice;
    let start = StartUp {
        transport: &choice.transport,
        rtt_s: query.rtt_ms * 1e-3,
        mtu: query.mtu.or(selection.mtu),
        loss: query.loss,
    };
    let mean_bps = choice.expected.mean_bps;
    let seconds = start.seconds(bytes as f64, mean_bps, selection.workload, selection.capacity_bps);
    let seconds = Some(seconds).filter(|seconds| *seconds >= start.rtt_s);
    Some(ForSize { bytes, seconds, rate_bps: seconds.map(|seconds| bytes as f64 * 8.0 / seconds) })
}

/// The query of the command line to the profile. Without `cli` nothing is asked over ssh.
fn query(args: &Args, cli: Option<&clap::Command>) -> Result<Query> {
    let given = [
        ("--rtt", args.rtt.is_some_and(|rtt| rtt.0 == 0), "a round-trip time, such as 91.6ms"),
        ("--rate", args.rate.is_some_and(|rate| rate.0 == 0), "a capacity, such as 10gbit"),
        ("--size", args.size.is_some_and(|size| size.0 == 0), "a size, such as 1GB"),
        ("--duration", args.duration.is_some_and(|duration| duration.0 == 0), "a duration, such as 10s"),
    ];
    if let Some((flag, _, example)) = given.iter().find(|(_, is_zero, _)| *is_zero) {
        return Err(Failure::usage(format!("{flag} is 0; give {example}")));
    }
    let mut query = match (&args.path, args.rtt) {
        (_, Some(rtt)) => {
            args.over_ssh.refuse()?;
            Query::from(rtt)
        }
        (Some(path), None) => {
            let over_ssh =
                cli.map(|cli| OverSsh::parse(path, &args.over_ssh, (args.json, None), 1, cli)).transpose()?.flatten();
            match over_ssh {
                Some(mut over_ssh) => of_host(&over_ssh.described.clone(), over_ssh.round_trip()?),
                None => ask_path(&hints::path(path, storage_of)?)?,
            }
        }
        (None, None) => {
            let why = "no path given; name one as HOST or lab:rtt=91.6ms,rate=10gbit, or give its RTT as --rtt 91.6ms";
            return Err(Failure::usage(why));
        }
    };
    describe(&mut query, args.rate, args.loss, args.queue)?;
    query.mtu = args.mtu.or(query.mtu);
    query.protocol = args.transport;
    if let Some(host) = &args.host {
        query.hosts = [host, host].map(named);
    }
    query.workload = args.size.map(Workload::Size).or_else(|| args.duration.map(Workload::Duration));
    query.within = args.within.get();
    if let Some(level) = args.certain {
        if level.get() <= 0.5 || level.get() >= 1.0 {
            let why = format!("--certain {level} is out of range; give a level above 0.5 and below 1, such as 0.95");
            return Err(Failure::usage(why));
        }
        query.level = Some(level.get());
    }
    Ok(query)
}

/// How to select for the storage of a folder.
fn storage_of(folder: &str) -> String {
    format!(
        "select chooses how to send; measure its storage ('fullpipe measure disk:{folder}'), and give the record with \
         --from-storage or --to-storage"
    )
}

/// A host as profiles name it; `None` for the default.
fn named(host: &LabHost) -> Option<String> {
    (!host.is_default()).then(|| host.to_string())
}

/// A query with the RTT to a real host, seconds.
fn of_host(host: &Host, rtt_s: f64) -> Query {
    Query { host: Some(host.to_string()), ..Query::from(Time((rtt_s * 1e9) as u64)) }
}

/// A query with what is known of a path; measures the RTT to a real host.
fn ask_path(path: &Path) -> Result<Query> {
    Ok(match path {
        Path::Host(host) => {
            let asked = fullpipe_net::measure::round_trip(host, Duration::from_secs(10));
            let rtt_s = asked.map_err(|error| hints::of_host(error, storage_of))?;
            of_host(host, rtt_s)
        }
        Path::Lab(lab) if lab.mount.is_some() => {
            let why = "mount: select chooses how streams are sent, and over a mount the kernel sends; leave it out, or measure the \
                       mount ('fullpipe measure')";
            return Err(Failure::usage(why));
        }
        Path::Lab(lab) => Query {
            rate: Some(lab.rate),
            loss: Some(lab.loss.get()),
            mtu: Some(lab.mtu),
            queue: Some((lab.queue.0, lab.queue.0 as f64 / lab.bdp().max(1) as f64)),
            disks: [&lab.disk_a, &lab.disk_b].map(|disk| disk.as_ref().map(ToString::to_string)),
            hosts: [&lab.host_a, &lab.host_b].map(named),
            ..Query::from(lab.rtt)
        },
    })
}

/// What the selection leaves out of an emulated path, in sentences.
fn not_selected_for(lab: &LabPath) -> Vec<String> {
    let disks = [("disk_a", &lab.disk_a), ("disk_b", &lab.disk_b)];
    let slowest = disks.iter().filter_map(|(key, disk)| Some((key, disk.as_ref()?.rate))).min_by_key(|(_, rate)| *rate);
    let bound = slowest.map(|(key, rate)| {
        let most = format::rate(rate.0 as f64 * 8.0);
        format!("{key} has {rate}/s: a copy that reads or writes it has at most {most}")
    });
    let used = |key: &str| key.starts_with("disk") || ["host_a", "host_b"].contains(&key);
    let others: Vec<&str> = lab.further_keys().into_iter().filter(|key| !used(key)).collect();
    let others = (!others.is_empty()).then(|| {
        let used = "select uses the path's rtt, rate, queue, mtu, loss and hosts";
        format!("{used}, and ignores {}", others.join(", "))
    });
    bound.into_iter().chain(others).collect()
}

/// Says that an RTT, ms, is outside the measured ones, and which of them stands for it; `None` if it is not outside.
pub fn outside(expected: &Estimate, rtt_ms: f64) -> Option<String> {
    let at = expected.from_rtt_ms.first().filter(|_| expected.outside)?;
    Some(format!("{} ms is outside the measured range; this is the rate at {} ms", format::ms(rtt_ms), format::ms(*at)))
}

/// Says between which measured RTTs a rate was interpolated; `None` if it was measured.
fn between(expected: &Estimate) -> Option<String> {
    let [a, b] = expected.from_rtt_ms[..] else { return None };
    Some(format!("the rate is interpolated between {} and {} ms", format::ms(a), format::ms(b)))
}

fn print(selection: &Selection, query: &Query, joint: Option<&Joint>, shipped: bool) {
    let choice = &selection.choice;
    outln!("transport   {}", choice.transport);
    outln!("expected    {} over {}, start-up included", expected(choice, selection.level), selection.workload);
    let for_size = for_size(selection, query);
    if let Some(ForSize { bytes, seconds, rate_bps }) = for_size {
        let label = Size(bytes).to_string();
        if let (Some(seconds), Some(rate_bps)) = (seconds, rate_bps) {
            let share = if rate_bps < choice.expected.mean_bps { "larger" } else { "smaller" };
            let (rate, seconds) = (format::rate(rate_bps), format::seconds(seconds));
            outln!("{label:<11} about {rate} in {seconds}: start-up is a {share} part of it");
        } else {
            outln!("{label:<11} is sent within the first round trip, which is too short for a rate");
        }
    }
    let source = if shipped { "the shipped profile" } else { "the profile" };
    outln!("at          {} ms; {source} has {}", format::ms(query.rtt_ms), selection.conditions);
    if let Some(sentence) = outside(&choice.expected, query.rtt_ms).or_else(|| between(&choice.expected)) {
        outln!("note        {sentence}");
    }
    // The line of the size has told already that the profile's runs sent something else.
    let is_told = |assumed: &str| for_size.is_some() && assumed.starts_with("workload=");
    let assumed: Vec<&str> = selection.assumed.iter().map(String::as_str).filter(|a| !is_told(a)).collect();
    if !assumed.is_empty() {
        outln!("assumed     {}; change with --rate, --loss, --queue, --mtu or --size", assumed.join(", "));
    }
    for note in &selection.notes {
        outln!("note        {note}");
    }
    if let (true, Some(capacity_bps)) = (choice.expected.at_capacity, selection.capacity_bps) {
        outln!(
            "note        its runs, on a faster path, had more than {} can carry: on this path it has at most {}",
            format::rate(capacity_bps),
            format::rate(choice.expected.mean_bps)
        );
    }
    let others: Vec<String> = selection
        .ranking
        .iter()
        .filter(|c| c.tied && c.transport != choice.transport)
        .map(|c| format!("{} ({})", c.transport, format::rate(c.expected.mean_bps)))
        .collect();
    if !others.is_empty() {
        let more = others.len().saturating_sub(3);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        outln!("or          {}{more}: the data cannot tell them apart", others[..others.len().min(3)].join("; "));
    }
    if let Some(joint) = joint {
        storage::print(joint);
    }
    let t = &choice.transport;
    let pacing = t.pacing.map(|p| format!(" --pacing {p}")).unwrap_or_default();
    let streams = joint.map_or(t.streams, |joint| joint.streams);
    let blocks = joint.map(storage::flags).unwrap_or_default();
    outln!("use         {} --streams {streams} --buffer {}{pacing}{blocks}", t.flag(), t.buffer);
}

fn explain(selection: &Selection) {
    outln!("\nwhy");
    reason(selection);
    if let Some(line) = protocols(selection) {
        outln!("  {line}");
    }
    let full = selection.ranking.iter().filter(|choice| choice.expected.at_capacity).count();
    if full > 0 {
        outln!(
            "  {} the capacity on the profile's faster path: ranked and compared by their rates there",
            format::count(full as u64, "transport exceeds", "transports exceed")
        );
    }
    outln!("\nranking (= marks those that the data cannot tell from the highest)");
    for choice in selection.ranking.iter().take(SHOWN) {
        let from: Vec<String> = choice.expected.from_rtt_ms.iter().map(|r| format!("{} ms", format::ms(*r))).collect();
        outln!(
            "{} {:<34} {}   from {}",
            if choice.tied { "=" } else { " " },
            choice.transport.to_string(),
            expected(choice, selection.level),
            from.join(" and ")
        );
    }
    let more = selection.ranking.len().saturating_sub(SHOWN);
    if more > 0 {
        outln!("  and {more} more; all with --json");
    }
}

/// Says why it is this transport.
fn reason(selection: &Selection) {
    let Selection { choice, ranking, .. } = selection;
    let (level, within) = (format::percent(selection.level), format::percent(selection.within));
    if choice.expected.predicted {
        outln!(
            "  of the predicted rates within 5% of the highest: CUBIC if it is there, as every kernel has it, then fewest streams"
        );
        return;
    }
    if ranking.len() < 2 {
        outln!("  the profile has no other transport for such a path");
        return;
    }
    let told = ranking.iter().filter(|c| !c.tied).count();
    let others = format::count(ranking.len().saturating_sub(1) as u64, "other transport", "other transports");
    outln!("  the data tell the highest rate from that of {told} of {others} at {level} (Welch's t, Bonferroni);");
    let least = (1.0 - selection.within) * ranking.first().map_or(0.0, |first| first.expected.mean_bps);
    let equals: Vec<&Choice> = ranking.iter().filter(|c| c.tied && c.expected.mean_bps >= least).collect();
    if equals.len() <= 1 {
        outln!("  {} has it, and nothing that remains is within {within} of it", choice.transport);
        return;
    }
    let has_udt = equals.iter().any(|c| c.transport.protocol() == Protocol::Udt);
    let order = if has_udt { "TCP before UDT, then fewest" } else { "fewest" };
    outln!("  of it and what remains within {within} of it, {} disturbs others least:", choice.transport);
    outln!("  {order} streams, then smallest buffer, then CUBIC");
}

/// Compares the best transport over UDT with the best one over TCP, if the profile has both.
fn protocols(selection: &Selection) -> Option<String> {
    let (udt, tcp) = (selection.best_over(Protocol::Udt)?, selection.best_over(Protocol::Tcp)?);
    let (udt_bps, tcp_bps) = (udt.expected.mean_bps, tcp.expected.mean_bps);
    Some(format!(
        "the best over UDT, {} ({}), has {:.2} times the rate of the best over TCP, {} ({})",
        udt.transport,
        format::rate(udt_bps),
        udt_bps / tcp_bps.max(1.0),
        tcp.transport,
        format::rate(tcp_bps)
    ))
}

/// Why there is no sure choice, which runs would make it one, and the commands that make them.
fn uncertain(selection: &Selection, args: &Args) -> String {
    let mut lines = vec![format!(
        "no transport is certain to be within {} of the best at {}; {} is the highest so far. Runs to add:",
        format::percent(selection.within),
        format::percent(selection.level),
        selection.choice.transport
    )];
    for needed in selection.needed.iter().take(SHOWN) {
        lines.push(format!(
            "  {} of {} at {} ms",
            format::count(needed.runs.into(), "more run", "more runs"),
            needed.transport,
            format::ms(needed.rtt_ms)
        ));
    }
    let more = selection.needed.len().saturating_sub(SHOWN);
    if more > 0 {
        lines.push(format!("  and {more} more transports; all with --json"));
    }
    if let Some(first) = selection.needed.first() {
        let seeds = match args.profile {
            Some(_) => "",
            None => ", from seed 1 as the records of the shipped profile are not on this host",
        };
        lines.push(format!("To make the first, and the others alike{seeds}:"));
        lines.extend(commands(selection, first, args).into_iter().map(|command| format!("  {command}")));
    }
    lines.join("\n")
}

/// The commands that make runs of one transport, and a profile with them.
fn commands(selection: &Selection, needed: &Needed, args: &Args) -> [String; 3] {
    let there = selection.ranking.iter().find(|choice| choice.transport == needed.transport);
    let measured = there.map_or(0, |choice| choice.expected.n);
    // The records of a profile lie beside it. Runs of the same seed are the same, so new ones go on counting.
    let (folder, from) = match &args.profile {
        Some(file) => (file.parent().filter(|folder| !folder.as_os_str().is_empty()), measured + 1),
        None => (Some(FilePath::new("runs")), 1),
    };
    let folder = folder.unwrap_or(FilePath::new(".")).to_string_lossy().into_owned();
    let folder = format::quoted(&folder);
    let Transport { streams, buffer, pacing, .. } = &needed.transport;
    let pacing = pacing.map(|rate| format!(" --pacing {rate}")).unwrap_or_default();
    let workload = match selection.workload {
        Workload::Size(size) => format!("--size {size}"),
        Workload::Duration(time) => format!("--duration {time}"),
    };
    let reverse = if selection.receives { " --reverse" } else { "" };
    let measure = format!(
        "fullpipe measure {} {} --streams {streams} --buffer {buffer}{pacing} {workload}{reverse}",
        path_word(&selection.path),
        needed.transport.flag()
    );
    let last = measured + needed.runs;
    [
        format!("for seed in $(seq {from} {last}); do {measure} --seed $seed --out {folder}; done"),
        format!("fullpipe analyze {folder}"),
        format!("fullpipe select ... --profile {folder}/profile.json"),
    ]
}

/// A path as a shell takes it: quoted, but not for the `=` and `,` of every emulated path, which no shell changes in a word.
fn path_word(path: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "+-./:@_=,".contains(c);
    if path.chars().all(is_plain) { path.to_owned() } else { format::quoted(path) }
}

/// The expected rate with its interval: `9.412 Gb/s (9.300 to 9.500 at 95%, n=10)`, or `7.941 Gb/s (at most: the capacity; no
/// interval, n=10)`.
fn expected(choice: &Choice, level: f64) -> String {
    let e = &choice.expected;
    // A rate and its interval have one unit.
    let (unit, name) = match e.mean_bps {
        bps if bps >= 1e8 => (1e9, "Gb/s"),
        bps if bps >= 1e5 => (1e6, "Mb/s"),
        _ => (1e3, "kb/s"),
    };
    if e.predicted {
        return format!("{:.3} {name} (predicted, n={})", e.mean_bps / unit, e.n);
    }
    let interval = match (e.low_bps, e.high_bps) {
        (Some(low), Some(high)) => format!("{:.3} to {:.3} at {}", low / unit, high / unit, format::percent(level)),
        _ if e.at_capacity => "no interval".into(),
        _ => "no interval, as no run was repeated".into(),
    };
    let bound = if e.at_capacity { "at most: the capacity; " } else { "" };
    format!("{:.3} {name} ({bound}{interval}, n={})", e.mean_bps / unit, e.n)
}
