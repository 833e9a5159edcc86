//! `fullpipe doctor`: shows which settings of this host limit long fast paths, and how to change them.

mod check;
mod finding;
mod host;
mod report;

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::Path as FilePath;
use std::time::Duration;

use fullpipe_net::NetError;
use fullpipe_path::host::DEFAULT_PORT;
use fullpipe_path::{ExitClass, Path, Rate, Time};
use serde::Serialize;
use serde_json::json;

use self::finding::{Finding, State, Yardstick};
use self::host::{Host, Interface};
use self::report::Report;
use crate::failure::{Failure, Result};
use crate::mount::Mount;
use crate::output::{errln, outln};
use crate::over_ssh::{OverSsh, SshArgs};
use crate::{format, hints, shipped_profile};

/// Version of the output of `--json`.
const VERSION: u32 = 1;
/// Round-trip time that is assumed if nothing tells it: across a continent and back.
const DEFAULT_RTT: Time = Time(100_000_000);
/// Round-trip time assumed of this host to itself.
const LOOPBACK_RTT: Time = Time(50_000);
/// Rate that is assumed if no link tells its own.
const DEFAULT_RATE: Rate = Rate(10_000_000_000);

const EXAMPLES: &str = "\
Examples:
  fullpipe doctor                                for all interfaces and a round trip of 100 ms
  fullpipe doctor ssh:host                       for the route to a host that ssh reaches, and that host too
  fullpipe doctor --rtt 91.6ms --rate 10gbit --all
  fullpipe doctor mount:/mnt/far                 for a folder that is mounted by NFS";

/// The arguments of `fullpipe doctor`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Check for data to HOST or HOST:PORT (the RTT is measured if 'fullpipe serve' runs there), to ssh:HOST (and that host for data
    /// from here), for a path like lab:rtt=91.6ms,rate=10gbit, or check the NFS mount of mount:FOLDER [default: check all interfaces]
    path: Option<String>,
    #[command(flatten)]
    over_ssh: SshArgs,
    /// Check for this round-trip time, such as 91.6ms [default: that of PATH, or 100ms]
    #[arg(long, value_name = "TIME")]
    rtt: Option<Time>,
    /// Check for this rate, such as 10gbit [default: that of PATH or of the fastest link, or 10gbit]
    #[arg(long)]
    rate: Option<Rate>,
    /// Show the settings that are fine too
    #[arg(long)]
    all: bool,
    /// Exit with 1 if any setting costs rate, time or processor
    #[arg(long)]
    strict: bool,
    /// Print findings as NDJSON on stdout
    #[arg(long)]
    json: bool,
}

/// The path that the host is checked for, and where its values come from.
struct Goal {
    rtt: Time,
    /// Source of the RTT, in words.
    rtt_from: String,
    rate: Rate,
    /// Source of the rate, in words.
    rate_from: String,
}

/// Reads the host's settings, checks them for the path, and prints the findings.
pub fn run(args: Args, cli: &clap::Command) -> Result {
    for (flag, zero) in [("--rtt", args.rtt == Some(Time(0))), ("--rate", args.rate == Some(Rate(0)))] {
        if zero {
            return Err(Failure::usage(format!("{flag} 0 is no value to check for; give a larger one")));
        }
    }
    if let Some(folder) = args.path.as_deref().and_then(|path| path.strip_prefix("mount:")) {
        args.over_ssh.refuse()?;
        return of_mount(folder, &args);
    }
    let named = args.path.as_deref().unwrap_or_default();
    let mut over_ssh = OverSsh::parse(named, &args.over_ssh, (args.json, None), 1, cli)?;
    let path = match (&over_ssh, &args.path) {
        (Some(over_ssh), _) => Some(Path::Host(over_ssh.described.clone())),
        (None, Some(path)) => Some(hints::path(path, storage_of)?),
        (None, None) => None,
    };
    if let Some(Path::Lab(lab)) = &path {
        if lab.mount.is_some() {
            let why = "mount: doctor checks this host, where nothing of the testbed is mounted; leave it out, or give \
                       mount:FOLDER for a mount of this host";
            return Err(Failure::usage(why));
        }
        let others = lab.further_keys();
        if !others.is_empty() {
            errln!("note: doctor uses the path's rtt and rate, and ignores {}", others.join(", "));
        }
    }
    let interface = match (&mut over_ssh, &path) {
        (Some(over_ssh), _) => {
            let at = &over_ssh.start(None)?.host;
            route(&at.name, at.port)?
        }
        (None, Some(Path::Host(host))) => route(&host.name, host.port)?,
        _ => None,
    };
    let mut host = Host::read(FilePath::new("/"), interface.as_deref());
    host.ask();
    let to_itself = interface.as_deref() == Some("lo");
    let (goal, no_rtt) = goal(&args, path.as_ref(), &mut over_ssh, (&host, to_itself));
    let by = yardstick(goal.rtt, goal.rate, args.rate.is_some() || path.is_some());
    let mut findings = check::all(&host, &by);
    if let Some(why) = no_rtt {
        findings.push(Finding::far_end(&why));
        findings.sort_by_key(|finding| finding.state);
    }
    let mut reports = vec![Report::new(&host, findings)];
    if let Some(over_ssh) = &mut over_ssh {
        reports.push(checked(over_ssh, &goal)?);
    }
    tell(&args, &goal, &by, &reports)
}

/// What a host is checked for.
fn yardstick(rtt: Time, rate: Rate, asked: bool) -> Yardstick {
    let ranking = shipped_profile::shipped_ranking(rtt, rate);
    Yardstick { rtt_s: rtt.seconds(), rate_bps: rate.0 as f64, asked, ranking }
}

/// Checks this host for a path to the address of another one, which has asked over ssh. Returns what was found, in JSON.
pub fn report_for(rtt: Time, rate: Rate, towards: Option<IpAddr>) -> String {
    // Without a route, as behind a jump host of another network, all interfaces are checked.
    let interface = towards.and_then(|to| route(&to.to_string(), DEFAULT_PORT).ok().flatten());
    let mut host = Host::read(FilePath::new("/"), interface.as_deref());
    host.ask();
    let findings = check::all(&host, &yardstick(rtt, rate, true));
    Report::new(&host, findings).to_json()
}

/// Has the host that ssh reaches check itself for the same path.
fn checked(over_ssh: &mut OverSsh, goal: &Goal) -> Result<Report> {
    let found = over_ssh.check(goal.rtt, goal.rate)?;
    let mut report = Report::from_peer(&found).map_err(|e| {
        Failure::new(ExitClass::Peer, format!("what {} has found cannot be read: {e}", over_ssh.described.name))
    })?;
    report.host = Some(over_ssh.described.name.clone());
    Ok(report)
}

/// What doctor has for a folder.
fn storage_of(folder: &str) -> String {
    format!("doctor checks no disks; if it is mounted by NFS, give mount:{folder}")
}

/// Checks the mount of a folder.
fn of_mount(folder: &str, args: &Args) -> Result {
    let mount = Mount::read(FilePath::new("/"), folder)?;
    if !mount.is_nfs() {
        let why = format!(
            "{folder} is on {}, which doctor does not know as a mount over a network; it knows NFS",
            mount.kind
        );
        return Err(Failure::usage(why));
    }
    let mut host = Host::read(FilePath::new("/"), None);
    host.ask();
    let given = args.rtt.map(|rtt| (rtt, "as given".to_owned(), None));
    let (rtt, rtt_from, no_rtt) = given.unwrap_or_else(|| match mount.round_trip() {
        Ok(rtt) => (rtt, format!("measured to {}", mount.source), None),
        Err(why) => (DEFAULT_RTT, assumed("--rtt"), Some(why)),
    });
    let (rate, rate_from) = wanted_rate(args, None, &host);
    let goal = Goal { rtt, rtt_from, rate, rate_from };
    let (rtt_s, rate_bps) = (goal.rtt.seconds(), goal.rate.0 as f64);
    let by = Yardstick { rtt_s, rate_bps, asked: args.rate.is_some(), ranking: Vec::new() };
    let mut findings = check::nfs::check(&mount, &host, &by);
    if let Some(why) = no_rtt {
        let words = format!("could not measure the RTT: {why}");
        findings.push(Finding::unseen("server", words, format!("fullpipe doctor mount:{folder} --rtt TIME")));
    }
    check::sort(&mut findings, &by);
    tell(args, &goal, &by, &[Report::new(&host, findings)])
}

/// Prints the findings, and fails with `--strict` if anything costs.
fn tell(args: &Args, goal: &Goal, by: &Yardstick, reports: &[Report]) -> Result {
    if args.json {
        reports.iter().try_for_each(|report| as_json(goal, by, report))?;
    } else {
        print_goal(goal, by);
        for (i, report) in reports.iter().enumerate() {
            if i > 0 {
                let kernel = report.kernel.as_deref().unwrap_or("unknown");
                outln!("\nat the other end, {} (Linux {kernel}):\n", report.name());
            }
            // Commands that are pasted at the wrong end do harm.
            let at = if reports.len() > 1 { format!(" at {}", report.name()) } else { String::new() };
            print(&report.findings, args.all, &at);
        }
    }
    let costs = reports.iter().map(Report::costs).sum::<usize>() as u64;
    if args.strict && costs > 0 {
        let each: Vec<_> = reports.iter().map(|report| format!("{} at {}", report.costs(), report.name())).collect();
        let each = if each.len() > 1 { format!(": {}", each.join(", ")) } else { String::new() };
        let why = format!("{} rate, time or processor{each}", format::count(costs, "limit costs", "limits cost"));
        return Err(Failure::new(ExitClass::Failed, why));
    }
    Ok(())
}

/// The path to check for; and the error, if the RTT to a host could not be measured.
fn goal(
    args: &Args,
    path: Option<&Path>,
    over_ssh: &mut Option<OverSsh>,
    (host, to_itself): (&Host, bool),
) -> (Goal, Option<String>) {
    let mut no_rtt = None;
    let mut measured = |to: &fullpipe_path::Host| match over_ssh {
        Some(over_ssh) => over_ssh.round_trip().map(|rtt_s| (rtt_s, over_ssh.typed())),
        None => fullpipe_net::measure::round_trip(to, Duration::from_secs(5))
            .map(|rtt_s| (rtt_s, to.to_string()))
            .map_err(|error| hints::of_host(error, storage_of)),
    };
    let (rtt, rtt_from) = match (args.rtt, path) {
        (Some(rtt), _) => (rtt, "as given".into()),
        (None, Some(Path::Lab(lab))) => (lab.rtt, "as given".into()),
        (None, Some(Path::Host(to))) => match measured(to) {
            Ok((rtt_s, to)) => (Time((rtt_s * 1e9).max(1.0) as u64), format!("measured to {to}")),
            Err(error) => {
                no_rtt = Some(error.to_string());
                (if to_itself { LOOPBACK_RTT } else { DEFAULT_RTT }, assumed("--rtt"))
            }
        },
        (None, None) => (DEFAULT_RTT, assumed("--rtt")),
    };
    let (rate, rate_from) = wanted_rate(args, path, host);
    (Goal { rtt, rtt_from, rate, rate_from }, no_rtt)
}

fn assumed(flag: &str) -> String {
    format!("assumed; set with {flag}")
}

/// The rate to check for, and where it comes from, in words.
fn wanted_rate(args: &Args, path: Option<&Path>, host: &Host) -> (Rate, String) {
    // A virtual link claims 10 Gb/s, which counts only if the data go that way.
    let counts = |interface: &&Interface| interface.device || matches!(path, Some(Path::Host(_)));
    let fastest = host.interfaces.iter().filter(counts).filter_map(|i| Some((i.speed_bps?, &i.name))).max();
    match (args.rate, path, fastest) {
        (Some(rate), ..) => (rate, "as given".into()),
        (None, Some(Path::Lab(lab)), _) => (lab.rate, "as given".into()),
        (None, _, Some((speed, name))) => (Rate(speed), format!("the link of {name}")),
        (None, _, None) => (DEFAULT_RATE, assumed("--rate")),
    }
}

/// The interface that packets to a host leave by. Connecting a datagram socket sends nothing, but makes the kernel choose a
/// route.
fn route(name: &str, port: u16) -> Result<Option<String>> {
    let resolve = |source| NetError::Resolve { host: name.to_owned(), source };
    let found = (name, port).to_socket_addrs();
    let found = found.or_else(|error| match ssh_host_name(name) {
        Some(host) => (host.as_str(), port).to_socket_addrs(),
        None => Err(error),
    });
    let addresses: Vec<SocketAddr> = found.map_err(|e| hints::of_host(resolve(e), storage_of))?.collect();
    let mut last = None;
    for address in addresses {
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).and_then(|socket| socket.connect(address).map(|()| socket));
        match socket.and_then(|socket| socket.local_addr()) {
            Ok(local) => return Ok(interface_of(local.ip())),
            Err(error) => last = Some(error),
        }
    }
    let why = last.map_or_else(|| "its name has no address".to_owned(), |error| error.to_string());
    Err(Failure::new(ExitClass::Missing, format!("this host has no route to '{name}': {why}")))
}

/// The real name of a host that ssh's configuration has an alias for; `cp` takes such aliases too.
fn ssh_host_name(name: &str) -> Option<String> {
    let asked = std::process::Command::new("ssh").args(["-G", "--", name]).output().ok()?;
    let text = String::from_utf8(asked.stdout).ok()?;
    let host = text.lines().find_map(|line| line.strip_prefix("hostname "))?;
    (asked.status.success() && host != name).then(|| host.to_owned())
}

/// The interface that has an address.
fn interface_of(local: IpAddr) -> Option<String> {
    let found = nix::ifaddrs::getifaddrs().ok()?.find(|entry| {
        let Some(address) = &entry.address else { return false };
        let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
        let v6 = address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip()));
        v4.or(v6) == Some(local)
    })?;
    Some(found.interface_name)
}

fn as_json(goal: &Goal, by: &Yardstick, report: &Report) -> Result {
    #[derive(Serialize)]
    struct Line<'a> {
        kind: &'static str,
        #[serde(flatten)]
        finding: &'a Finding,
    }
    outln!(
        "{}",
        json!({
            "kind": "doctor", "version": VERSION, "program": env!("CARGO_PKG_VERSION"),
            "host": report.host, "kernel": report.kernel, "interfaces": report.interfaces,
            "rtt_s": by.rtt_s, "rtt_from": goal.rtt_from, "rate_bps": by.rate_bps, "rate_from": goal.rate_from,
            "bdp_bytes": by.bdp(),
        })
    );
    for finding in &report.findings {
        let line = serde_json::to_string(&Line { kind: "finding", finding });
        outln!("{}", line.map_err(|error| Failure::new(ExitClass::Record, error))?);
    }
    Ok(())
}

fn print_goal(goal: &Goal, by: &Yardstick) {
    outln!(
        "checked for {} ({}) over {} ms ({}): {} in flight\n",
        format::rate(by.rate_bps),
        goal.rate_from,
        format::ms(by.rtt_s * 1e3),
        goal.rtt_from,
        format::bytes(by.bdp())
    );
}

/// Prints the findings, and the commands that fix them; `at` says where, if there are several hosts.
fn print(findings: &[Finding], all: bool, at: &str) {
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
        let see = finding.see.as_ref().map(|command| format!("; run: {command}")).unwrap_or_default();
        outln!("{state:<8} {:<width$}  {read}{}{see}", finding.subject, finding.words);
    }
    if !well.is_empty() {
        outln!("{:<8} {} more; show them with --all", "ok", well.len());
    }
    let (sure, unsure): (Vec<&Finding>, Vec<&Finding>) =
        findings.iter().filter(|finding| finding.state == State::Costs).partition(|finding| finding.only_if.is_none());
    print_fixes(&sure, at, "");
    for finding in unsure {
        print_fixes(&[finding], at, &format!(", but only if {}", finding.only_if.as_deref().unwrap_or_default()));
    }
}

/// Prints the commands that fix findings, ready to be pasted.
fn print_fixes(findings: &[&Finding], at: &str, condition: &str) {
    for (root, who) in [(false, ""), (true, ", as root")] {
        let lines = findings.iter().filter(|finding| finding.root == root).flat_map(|finding| &finding.fix);
        block(&format!("to fix it now{at}{who}{condition}"), lines);
    }
    let keeps = || findings.iter().flat_map(|finding| finding.keep.iter().chain(&finding.also_keep));
    let mut files: Vec<&str> = keeps().map(|keep| keep.file.as_str()).collect();
    files.sort();
    files.dedup();
    for file in files {
        block(
            &format!("to keep it fixed{at} after a reboot, add to {file}{condition}"),
            keeps().filter(|keep| keep.file == file).flat_map(|keep| &keep.lines),
        );
    }
}

/// Prints lines below a heading, each line once.
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
