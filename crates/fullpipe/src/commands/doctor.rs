//! `fullpipe doctor`.

mod check;
mod finding;
mod host;

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::Path as FilePath;
use std::time::Duration;

use fullpipe_net::NetError;
use fullpipe_path::{ExitClass, Path, Rate, Time};
use serde::Serialize;
use serde_json::json;

use self::check::judge;
use self::finding::{Finding, State, Yardstick};
use self::host::{Host, Interface};
use crate::failure::{Failure, Result};
use crate::output::outln;
use crate::{format, shipped_profile};

/// Version of what `--json` prints.
const VERSION: u32 = 1;
/// A path where nothing is said of it: across a continent and back.
const RTT: Time = Time(100_000_000);
/// A link where none tells its rate.
const RATE: Rate = Rate(10_000_000_000);

/// Command line.
#[derive(clap::Args)]
pub struct Args {
    /// HOST or HOST:PORT that data will go to, whose RTT is measured if 'fullpipe serve' runs there, or
    /// lab:rtt=91.6ms,rate=10gbit; all interfaces if left out
    path: Option<String>,
    /// Round-trip time to judge by [default: that of HOST, or 100ms]
    #[arg(long, value_name = "TIME")]
    rtt: Option<Time>,
    /// Rate to judge by [default: that of the fastest link seen, or 10gbit]
    #[arg(long)]
    rate: Option<Rate>,
    /// Show what is well too, a line each
    #[arg(long)]
    all: bool,
    /// Exit with 1 if anything costs
    #[arg(long)]
    strict: bool,
    /// Findings as NDJSON on stdout
    #[arg(long)]
    json: bool,
}

/// What the host is judged by, and where that is from.
struct Asked {
    rtt: Time,
    rtt_from: String,
    rate: Rate,
    rate_from: String,
}

/// Looks, judges, prints.
pub fn run(args: Args) -> Result {
    for (flag, zero) in [("--rtt", args.rtt == Some(Time(0))), ("--rate", args.rate == Some(Rate(0)))] {
        if zero {
            return Err(Failure::new(ExitClass::Usage, format!("{flag} 0: give more than nothing to judge by")));
        }
    }
    let path = args.path.as_deref().map(str::parse::<Path>).transpose()?;
    let interface = match &path {
        Some(Path::Host(host)) => route(&host.name, host.port)?,
        _ => None,
    };
    let mut host = Host::read(FilePath::new("/"), interface.as_deref());
    host.ask();
    let (asked, far_end) = ask(&args, path.as_ref(), &host);
    let by = Yardstick {
        rtt_s: asked.rtt.seconds(),
        rate_bps: asked.rate.0 as f64,
        asked: args.rate.is_some() || path.is_some(),
        ranking: shipped_profile::shipped_ranking(asked.rtt, asked.rate),
    };
    let mut findings = judge(&host, &by);
    if let Some(why) = far_end {
        findings.push(Finding::far_end(&why));
        findings.sort_by_key(|finding| finding.state);
    }
    if args.json {
        as_json(&host, &asked, &by, &findings)?
    } else {
        print(&asked, &by, &findings, args.all)
    }
    let costs = findings.iter().filter(|finding| finding.state == State::Costs).count() as u64;
    if args.strict && costs > 0 {
        let why = format!("{} rate, time or processor", format::count(costs, "limit costs", "limits cost"));
        return Err(Failure::new(ExitClass::Failed, why));
    }
    Ok(())
}

/// By what to judge; and why the far end was not asked, if it was to be.
fn ask(args: &Args, path: Option<&Path>, host: &Host) -> (Asked, Option<String>) {
    let mut far_end = None;
    let (rtt, rtt_from) = match (args.rtt, path) {
        (Some(rtt), _) => (rtt, "as given".into()),
        (None, Some(Path::Lab(lab))) => (lab.rtt, "as given".into()),
        (None, Some(Path::Host(to))) => match fullpipe_net::measure::round_trip(to, Duration::from_secs(5)) {
            Ok(rtt_s) => (Time((rtt_s * 1e9).max(1.0) as u64), format!("measured to {to}")),
            Err(error) => {
                far_end = Some(error.to_string());
                (RTT, "assumed; say --rtt for another".into())
            }
        },
        (None, None) => (RTT, "assumed; say --rtt for another".into()),
    };
    // A virtual link between two namespaces calls itself 10 Gb/s.
    let counts = |interface: &&Interface| interface.device || matches!(path, Some(Path::Host(_)));
    let fastest = host.interfaces.iter().filter(counts).filter_map(|i| Some((i.speed_bps?, &i.name))).max();
    let (rate, rate_from) = match (args.rate, path, fastest) {
        (Some(rate), ..) => (rate, "as given".into()),
        (None, Some(Path::Lab(lab)), _) => (lab.rate, "as given".into()),
        (None, _, Some((speed, name))) => (Rate(speed), format!("the link of {name}")),
        (None, _, None) => (RATE, "assumed; say --rate for another".into()),
    };
    (Asked { rtt, rtt_from, rate, rate_from }, far_end)
}

/// The interface that packets to a host leave by: connecting a datagram socket sends nothing, and asks the
/// kernel for the route.
fn route(name: &str, port: u16) -> Result<Option<String>> {
    let resolve = |source| NetError::Resolve { host: name.to_owned(), source };
    let found = (name, port).to_socket_addrs();
    let found = found.or_else(|error| match of_ssh(name) {
        Some(host) => (host.as_str(), port).to_socket_addrs(),
        None => Err(error),
    });
    let addresses: Vec<SocketAddr> = found.map_err(resolve)?.collect();
    let mut last = None;
    for address in addresses {
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).and_then(|socket| socket.connect(address).map(|()| socket));
        match socket.and_then(|socket| socket.local_addr()) {
            Ok(local) => return Ok(interface_of(local.ip())),
            Err(error) => last = Some(error),
        }
    }
    let why = last.map_or_else(|| "it has no address".to_owned(), |error| error.to_string());
    Err(Failure::new(ExitClass::Missing, format!("this host has no route to '{name}': {why}")))
}

/// What ssh's configuration calls so: `cp` takes such names too.
fn of_ssh(name: &str) -> Option<String> {
    let asked = std::process::Command::new("ssh").args(["-G", "--", name]).output().ok()?;
    let text = String::from_utf8(asked.stdout).ok()?;
    let host = text.lines().find_map(|line| line.strip_prefix("hostname "))?;
    (asked.status.success() && host != name).then(|| host.to_owned())
}

fn interface_of(local: IpAddr) -> Option<String> {
    let found = nix::ifaddrs::getifaddrs().ok()?.find(|entry| {
        let Some(address) = &entry.address else { return false };
        let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
        let v6 = address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip()));
        v4.or(v6) == Some(local)
    })?;
    Some(found.interface_name)
}

fn as_json(host: &Host, asked: &Asked, by: &Yardstick, findings: &[Finding]) -> Result {
    #[derive(Serialize)]
    struct Line<'a> {
        kind: &'static str,
        #[serde(flatten)]
        finding: &'a Finding,
    }
    let names: Vec<&str> = host.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    outln!(
        "{}",
        json!({
            "kind": "doctor", "version": VERSION, "program": env!("CARGO_PKG_VERSION"),
            "host": host.sysctl("kernel.hostname"), "kernel": host.sysctl("kernel.osrelease"), "interfaces": names,
            "rtt_s": by.rtt_s, "rtt_from": asked.rtt_from, "rate_bps": by.rate_bps, "rate_from": asked.rate_from,
            "bdp_bytes": by.bdp(),
        })
    );
    for finding in findings {
        let line = serde_json::to_string(&Line { kind: "finding", finding });
        outln!("{}", line.map_err(|error| Failure::new(ExitClass::Record, error))?);
    }
    Ok(())
}

fn print(asked: &Asked, by: &Yardstick, findings: &[Finding], all: bool) {
    outln!(
        "judged by {} ({}) over {} ms ({}): {} in flight\n",
        format::rate(by.rate_bps),
        asked.rate_from,
        format::ms(by.rtt_s * 1e3),
        asked.rtt_from,
        format::bytes(by.bdp())
    );
    let (well, shown): (Vec<&Finding>, Vec<&Finding>) =
        findings.iter().partition(|finding| finding.state == State::Ok && !all);
    let width = shown.iter().map(|finding| finding.subject.chars().count()).max().unwrap_or(0);
    for finding in shown {
        let state = match finding.state {
            State::Costs => "costs",
            State::Unknown => "unknown",
            State::Ok => "ok",
        };
        let read = finding.read.as_ref().map(|read| format!("{read}: ")).unwrap_or_default();
        let see = finding.see.as_ref().map(|command| format!(": {command}")).unwrap_or_default();
        outln!("{state:<8} {:<width$}  {read}{}{see}", finding.subject, finding.words);
    }
    if !well.is_empty() {
        outln!("{:<8} {} more; --all shows them", "ok", well.len());
    }
    let (sure, unsure): (Vec<&Finding>, Vec<&Finding>) =
        findings.iter().filter(|finding| finding.state == State::Costs).partition(|finding| finding.only_if.is_none());
    mend(&sure, "");
    for finding in unsure {
        mend(&[finding], &format!(", but only if {}", finding.only_if.as_deref().unwrap_or_default()));
    }
}

/// The lines that mend findings, to be pasted as they are.
fn mend(findings: &[&Finding], condition: &str) {
    for (root, who) in [(false, ""), (true, ", as root")] {
        let lines = findings.iter().filter(|finding| finding.root == root).flat_map(|finding| &finding.fix);
        block(&format!("to mend it now{who}{condition}"), lines);
    }
    let keeps = || findings.iter().filter_map(|finding| finding.keep.as_ref());
    let mut files: Vec<&str> = keeps().map(|keep| keep.file.as_str()).collect();
    files.sort();
    files.dedup();
    for file in files {
        block(
            &format!("to keep it so, add to {file}{condition}"),
            keeps().filter(|keep| keep.file == file).flat_map(|keep| &keep.lines),
        );
    }
}

/// Lines below a heading, each once.
fn block<'a>(heading: &str, lines: impl Iterator<Item = &'a String>) {
    let mut told: Vec<&String> = Vec::new();
    for line in lines {
        if told.contains(&line) {
            continue;
        }
        if told.is_empty() {
            outln!("\n{heading}");
        }
        outln!("  {line}");
        told.push(line);
    }
}
