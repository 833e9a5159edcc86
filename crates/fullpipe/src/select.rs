//! `fullpipe select`.

use std::path::PathBuf;
use std::time::Duration;

use fullpipe_path::{ExitClass, Path, Rate, Size, Time, Workload};
use fullpipe_profile::{Choice, Profile, Query, Selection, select};

use crate::Result;
use crate::failure::Failure;

/// Command line.
#[derive(clap::Args)]
pub struct Args {
    /// HOST or HOST:PORT running 'fullpipe serve', whose RTT is measured, or lab:rtt=91.6ms,rate=10gbit
    path: Option<String>,
    /// Round-trip time of the path, instead of naming it
    #[arg(long, conflicts_with = "path", value_name = "TIME")]
    rtt: Option<Time>,
    /// The profile
    #[arg(long, default_value = "profile.json", value_name = "FILE")]
    profile: PathBuf,
    /// Capacity of the path, where the profile has several
    #[arg(long)]
    rate: Option<Rate>,
    /// What will be sent, where the profile has several
    #[arg(long, conflicts_with = "duration")]
    size: Option<Size>,
    /// For how long it will be sent, where the profile has several
    #[arg(long)]
    duration: Option<Time>,
    /// Show the whole ranking, and where the estimates come from
    #[arg(long)]
    explain: bool,
    /// The selection as JSON on stdout
    #[arg(long)]
    json: bool,
}

/// Chooses a transport and prints what to expect of it.
pub fn run(args: Args) -> Result {
    let profile = Profile::read(&args.profile)?;
    let mut query = match (&args.path, args.rtt) {
        (_, Some(rtt)) => Query::from(rtt),
        (Some(path), None) => ask_path(&path.parse()?)?,
        (None, None) => return Err(Failure::new(ExitClass::Usage, "for which path? give HOST, lab:rtt=91.6ms,rate=10gbit, or --rtt 91.6ms")),
    };
    query.rate = args.rate.or(query.rate);
    query.workload = args.size.map(Workload::Size).or_else(|| args.duration.map(Workload::Duration));
    let selection = select(&profile, &query)?;
    if args.json {
        let text = serde_json::to_string(&selection).map_err(|e| Failure::new(ExitClass::Record, e))?;
        println!("{text}");
    } else {
        print(&selection, query.rtt_ms, args.explain);
    }
    Ok(())
}

fn ask_path(path: &Path) -> Result<Query> {
    Ok(match path {
        Path::Host(host) => {
            let rtt_s = fullpipe_net::measure::round_trip(host, Duration::from_secs(10))?;
            Query { rtt_ms: rtt_s * 1e3, ..Query::default() }
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

fn print(selection: &Selection, rtt_ms: f64, explain: bool) {
    let Some(best) = selection.ranking.first() else { return };
    println!("transport   {}", best.transport);
    println!("expected    {}", expected(best, selection.confidence));
    println!("at          {rtt_ms:.4} ms; measured with {}, {}", selection.conditions, selection.workload);
    if best.expected.outside {
        println!(
            "note        {rtt_ms:.4} ms is outside the measured range; this is the value at {} ms",
            best.expected.from_rtt_ms.first().copied().unwrap_or_default()
        );
    }
    let pacing = best.transport.pacing.map(|p| format!(" --pacing {p}")).unwrap_or_default();
    let t = &best.transport;
    println!("use         --cc {} --streams {} --buffer {}{pacing}", t.cc, t.streams, t.buffer);
    if explain {
        println!("\nranking");
        for choice in &selection.ranking {
            let from: Vec<String> = choice.expected.from_rtt_ms.iter().map(|r| format!("{r} ms")).collect();
            println!(
                "  {:<40} {}   from {}",
                choice.transport.to_string(),
                expected(choice, selection.confidence),
                from.join(" and ")
            );
        }
    }
}

fn expected(choice: &Choice, confidence: f64) -> String {
    let e = &choice.expected;
    let interval = match (e.low_bps, e.high_bps) {
        (Some(low), Some(high)) => format!("{:.3} to {:.3} at {:.0}%", low * 1e-9, high * 1e-9, confidence * 100.0),
        _ => "no interval from a single run".into(),
    };
    format!("{:.3} Gb/s ({interval}, n={})", e.mean_bps * 1e-9, e.n)
}
