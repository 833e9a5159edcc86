//! `fullpipe select`.

use std::borrow::Cow;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use fullpipe_path::{ExitClass, Path, Probability, Rate, Size, Time, Workload};
use fullpipe_profile::{Choice, Profile, Query, Selection, select};

use crate::failure::Failure;
use crate::output::outln;
use crate::{Result, words};

/// The profile that comes with the program: measured in the testbed (`docs/explanation/selection.md`).
const SHIPPED: &str = include_str!("../shipped.json");
/// Lines of the ranking that a person reads.
const SHOWN: usize = 20;

/// Command line.
#[derive(clap::Args)]
pub struct Args {
    /// HOST or HOST:PORT running 'fullpipe serve', whose RTT is measured, or lab:rtt=91.6ms,rate=10gbit
    path: Option<String>,
    /// Round-trip time of the path, instead of naming it
    #[arg(long, conflicts_with = "path", value_name = "TIME")]
    rtt: Option<Time>,
    /// The profile, as 'fullpipe analyze' makes one; the one that comes with the program by default
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Capacity of the path
    #[arg(long)]
    rate: Option<Rate>,
    /// Random loss of the path: 1e-5, 0.001%
    #[arg(long, value_name = "PROBABILITY")]
    loss: Option<Probability>,
    /// Queue of the path's bottleneck
    #[arg(long, value_name = "SIZE")]
    queue: Option<Size>,
    /// Largest packet of the path, bytes
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=65535))]
    mtu: Option<u32>,
    /// What will be sent, where the profile has several
    #[arg(long, conflicts_with = "duration")]
    size: Option<Size>,
    /// For how long it will be sent, where the profile has several
    #[arg(long, value_name = "TIME")]
    duration: Option<Time>,
    /// Choose only if the choice is this sure (0.95 or 95%); otherwise say which runs to add, and fail
    #[arg(long, value_name = "LEVEL")]
    certain: Option<Probability>,
    /// Rates within this fraction of the best are as good as the best
    #[arg(long, value_name = "FRACTION", default_value = "1%")]
    within: Probability,
    /// Say why: the ranking, what cannot be told apart, where the estimates come from
    #[arg(long)]
    explain: bool,
    /// The selection as JSON on stdout
    #[arg(long)]
    json: bool,
}

/// Chooses a transport and prints what to expect of it.
pub fn run(args: Args) -> Result {
    let query = query(&args)?;
    let (text, name) = text_of(args.profile.as_deref())?;
    let profile = Profile::parse(&text, name)?;
    let selection = select(&profile, &query)?;
    if args.json {
        let text = serde_json::to_string(&selection).map_err(|e| Failure::new(ExitClass::Record, e))?;
        outln!("{text}");
    }
    if args.certain.is_some() && !selection.certain {
        return Err(Failure::new(ExitClass::Failed, uncertain(&selection)));
    }
    if !args.json {
        print(&selection, &query, args.profile.is_none());
        if let Some(Path::Host(_)) = args.path.as_deref().and_then(|path| path.parse().ok()) {
            say_what_lacks(&selection);
        }
        if args.explain {
            explain(&selection);
        }
    }
    Ok(())
}

/// A profile's text and what it is called: a file's, or the one that comes with the program.
///
/// # Errors
/// It cannot be read.
pub fn text_of(file: Option<&FilePath>) -> Result<(Cow<'static, str>, &FilePath)> {
    Ok(match file {
        Some(file) => (Cow::Owned(fullpipe_profile::read_text(file)?), file),
        None => (Cow::Borrowed(SHIPPED), FilePath::new("the shipped profile")),
    })
}

/// Congestion controls of the shipped profile, the fastest first, each with what the best transport that
/// uses it is expected to do, bit/s; none for a path that the profile says nothing of.
pub fn shipped_ranking(rtt: Time, rate: Rate) -> Vec<(String, f64)> {
    let query = Query { rate: Some(rate), ..Query::from(rtt) };
    let shipped = Profile::parse(SHIPPED, FilePath::new("the shipped profile"));
    let Ok(selection) = shipped.and_then(|profile| select(&profile, &query)) else { return Vec::new() };
    let mut best: Vec<(String, f64)> = Vec::new();
    for choice in selection.ranking {
        if !best.iter().any(|(cc, _)| *cc == choice.transport.cc) {
            best.push((choice.transport.cc, choice.expected.mean_bps));
        }
    }
    best
}

fn query(args: &Args) -> Result<Query> {
    let mut query = match (&args.path, args.rtt) {
        (_, Some(rtt)) => Query::from(rtt),
        (Some(path), None) => ask_path(&path.parse()?)?,
        (None, None) => {
            let why = "for which path? give HOST, lab:rtt=91.6ms,rate=10gbit, or --rtt 91.6ms";
            return Err(Failure::new(ExitClass::Usage, why));
        }
    };
    describe(&mut query, args.rate, args.loss, args.queue)?;
    query.mtu = args.mtu.or(query.mtu);
    query.workload = args.size.map(Workload::Size).or_else(|| args.duration.map(Workload::Duration));
    query.within = args.within.get();
    if let Some(level) = args.certain {
        if level.get() <= 0.5 || level.get() >= 1.0 {
            let why = format!("--certain {level}: give a level over 0.5 and under 1, such as 0.95");
            return Err(Failure::new(ExitClass::Usage, why));
        }
        query.level = Some(level.get());
    }
    Ok(query)
}

/// Adds what is known of the path.
///
/// # Errors
/// A queue without a rate, in whose terms it is deep or shallow.
pub fn describe(query: &mut Query, rate: Option<Rate>, loss: Option<Probability>, queue: Option<Size>) -> Result {
    query.rate = rate.or(query.rate);
    query.loss = loss.map(Probability::get).or(query.loss);
    if let Some(queue) = queue {
        let Some(rate) = query.rate else {
            return Err(Failure::new(ExitClass::Usage, "--queue means something only with --rate; give both"));
        };
        let bdp = rate.0 as f64 * query.rtt_ms / 8e3;
        query.queue = Some((queue.0, queue.0 as f64 / bdp.max(1.0)));
    }
    Ok(())
}

fn ask_path(path: &Path) -> Result<Query> {
    Ok(match path {
        Path::Host(host) => {
            let rtt_s = fullpipe_net::measure::round_trip(host, Duration::from_secs(10))?;
            Query { host: Some(host.to_string()), ..Query::from(Time((rtt_s * 1e9) as u64)) }
        }
        Path::Lab(lab) => Query {
            rate: Some(lab.rate),
            loss: Some(lab.loss.get()),
            mtu: Some(lab.mtu),
            queue: Some((lab.queue.0, lab.queue.0 as f64 / lab.bdp().max(1) as f64)),
            ..Query::from(lab.rtt)
        },
    })
}

fn print(selection: &Selection, query: &Query, shipped: bool) {
    let choice = &selection.choice;
    outln!("transport   {}", choice.transport);
    outln!("expected    {}", expected(choice, selection.level));
    let source = if shipped { "the shipped profile" } else { "the profile" };
    outln!("at          {} ms; {source} has {}, {}", words::ms(query.rtt_ms), selection.conditions, selection.workload);
    if choice.expected.outside {
        outln!(
            "note        {} ms is outside the measured range; this is the value at {} ms",
            words::ms(query.rtt_ms),
            words::ms(choice.expected.from_rtt_ms.first().copied().unwrap_or_default())
        );
    }
    if !selection.assumed.is_empty() {
        outln!("assumed     {}; say --rate, --loss, --queue, --mtu, --size for another", selection.assumed.join(", "));
    }
    for note in &selection.notes {
        outln!("note        {note}");
    }
    let others: Vec<String> = selection
        .ranking
        .iter()
        .filter(|c| c.tied && c.transport != choice.transport)
        .map(|c| format!("{} ({})", c.transport, words::rate(c.expected.mean_bps)))
        .collect();
    if !others.is_empty() {
        let more = others.len().saturating_sub(3);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        outln!("or          {}{more}: the data cannot tell them apart", others[..others.len().min(3)].join("; "));
    }
    let t = &choice.transport;
    let pacing = t.pacing.map(|p| format!(" --pacing {p}")).unwrap_or_default();
    outln!("use         --cc {} --streams {} --buffer {}{pacing}", t.cc, t.streams, t.buffer);
}

/// A real host has what it has: what of the choice this end could not do.
fn say_what_lacks(selection: &Selection) {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/net/{name}")).unwrap_or_default();
    let available = read("ipv4/tcp_available_congestion_control");
    let has = |cc: &str| available.split_whitespace().any(|name| name == cc);
    let cc = &selection.choice.transport.cc;
    if !available.is_empty() && !has(cc) {
        let best = selection.ranking.iter().find(|choice| has(&choice.transport.cc));
        let best = best.map_or_else(String::new, |c| {
            format!("; of what it has, the best is {} ({})", c.transport, words::rate(c.expected.mean_bps))
        });
        outln!("note        this kernel lacks {cc}; as root: modprobe tcp_{cc}{best}");
    }
    if let fullpipe_path::Buffer::Bytes(size) = selection.choice.transport.buffer {
        for name in ["core/wmem_max", "core/rmem_max"] {
            if read(name).trim().parse::<u64>().is_ok_and(|limit| limit < size.0) {
                let key = format!("net.{}", name.replace('/', "."));
                outln!("note        this kernel limits buffers; on both ends, as root: sysctl -w {key}={}", size.0);
            }
        }
    }
}

fn explain(selection: &Selection) {
    let tied = selection.ranking.iter().filter(|c| c.tied).count();
    outln!("\nwhy");
    outln!(
        "  {} of {} cannot be told from the highest at {} (Welch's t, Bonferroni); of those within {} of it,",
        words::count(tied as u64, "transport", "transports"),
        selection.ranking.len(),
        words::percent(selection.level),
        words::percent(selection.within)
    );
    outln!("  {} disturbs least: fewest streams, then the smallest buffer, then CUBIC", selection.choice.transport);
    outln!("\nranking (= where the data cannot tell it from the highest)");
    for choice in selection.ranking.iter().take(SHOWN) {
        let from: Vec<String> = choice.expected.from_rtt_ms.iter().map(|r| format!("{} ms", words::ms(*r))).collect();
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

/// Why there is no choice, and what would bring one.
fn uncertain(selection: &Selection) -> String {
    let mut lines = vec![format!(
        "no transport is within {} of the best for certain at {}; {} is the highest so far. Runs to add:",
        words::percent(selection.within),
        words::percent(selection.level),
        selection.choice.transport
    )];
    for needed in selection.needed.iter().take(SHOWN) {
        lines.push(format!(
            "  {} of {} at {} ms",
            words::count(needed.runs.into(), "more run", "more runs"),
            needed.transport,
            words::ms(needed.rtt_ms)
        ));
    }
    let more = selection.needed.len().saturating_sub(SHOWN);
    if more > 0 {
        lines.push(format!("  and {more} more transports; all with --json"));
    }
    lines.join("\n")
}

fn expected(choice: &Choice, level: f64) -> String {
    let e = &choice.expected;
    let interval = match (e.low_bps, e.high_bps) {
        (Some(low), Some(high)) => format!("{:.3} to {:.3} at {}", low * 1e-9, high * 1e-9, words::percent(level)),
        _ => "no interval: no repeats to tell from".into(),
    };
    format!("{:.3} Gb/s ({interval}, n={})", e.mean_bps * 1e-9, e.n)
}
