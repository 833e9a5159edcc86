//! The transport with the highest profile at a path's RTT (HPDC'17 section 3.4), linear between
//! measured RTTs.

use fullpipe_path::{Rate, Size, Time, Transport, Workload};
use serde::Serialize;

use crate::profile::{Entry, Point, Profile, ProfileError};

/// For what a transport is wanted. What is none may be anything, as long as the profile has only one.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Round-trip time, milliseconds.
    pub rtt_ms: f64,
    /// Capacity of the path.
    pub rate: Option<Rate>,
    /// Random loss of the path.
    pub loss: Option<f64>,
    /// Packet size of the path.
    pub mtu: Option<u32>,
    /// Queue of the path's bottleneck, bytes, and in bandwidth-delay products.
    pub queue: Option<(u64, f64)>,
    /// What will be sent.
    pub workload: Option<Workload>,
}

/// Throughput to expect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Estimate {
    /// Mean, bit/s.
    pub mean_bps: f64,
    /// Its interval, where there is one at all RTTs that it comes from.
    pub low_bps: Option<f64>,
    /// Upper end.
    pub high_bps: Option<f64>,
    /// Fewest runs behind any of them.
    pub n: u32,
    /// The measured RTTs that it comes from, milliseconds.
    pub from_rtt_ms: Vec<f64>,
    /// Whether the RTT lies outside what was measured; then the nearest measured one stands for it.
    pub outside: bool,
}

/// A transport and what to expect of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// How to send.
    pub transport: Transport,
    /// What to expect.
    pub expected: Estimate,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Selection {
    /// Level of the intervals.
    pub confidence: f64,
    /// The kind of path that the profile was measured on.
    pub conditions: String,
    /// The workload that it was measured with.
    pub workload: Workload,
    /// Best first; the first is the choice.
    pub ranking: Vec<Choice>,
}

/// Throughput of one entry at an RTT.
pub(crate) fn estimate(points: &[Point], rtt_ms: f64) -> Option<Estimate> {
    let exact = |p: &Point, outside| Estimate {
        mean_bps: p.mean_bps,
        low_bps: p.low_bps,
        high_bps: p.high_bps,
        n: p.n,
        from_rtt_ms: vec![p.rtt_ms],
        outside,
    };
    let (first, last) = (points.first()?, points.last()?);
    if let Some(point) = points.iter().find(|p| (p.rtt_ms - rtt_ms).abs() <= 1e-6 * rtt_ms) {
        return Some(exact(point, false));
    }
    if rtt_ms < first.rtt_ms {
        return Some(exact(first, true));
    }
    if rtt_ms > last.rtt_ms {
        return Some(exact(last, true));
    }
    let right = points.iter().position(|p| p.rtt_ms > rtt_ms)?;
    let (a, b) = (&points[right.checked_sub(1)?], &points[right]);
    let weight = (rtt_ms - a.rtt_ms) / (b.rtt_ms - a.rtt_ms);
    let between = |x: f64, y: f64| x + weight * (y - x);
    let both = |x: Option<f64>, y: Option<f64>| Some(between(x?, y?));
    Some(Estimate {
        mean_bps: between(a.mean_bps, b.mean_bps),
        low_bps: both(a.low_bps, b.low_bps),
        high_bps: both(a.high_bps, b.high_bps),
        n: a.n.min(b.n),
        from_rtt_ms: vec![a.rtt_ms, b.rtt_ms],
        outside: false,
    })
}

/// Ranks the profile's transports for a path; equal means go to fewer streams, then smaller buffers.
///
/// # Errors
/// Nothing in the profile fits, or more than one kind of path or workload does.
pub fn select(profile: &Profile, query: &Query) -> Result<Selection, ProfileError> {
    let mut fit: Vec<&Entry> = profile.entries.iter().collect();
    let narrow =
        |fit: &mut Vec<&Entry>, asked: String, keep: &dyn Fn(&Entry) -> bool, name: &dyn Fn(&Entry) -> String| {
            let has = Profile::list(fit, name);
            fit.retain(|entry| keep(entry));
            if fit.is_empty() { Err(ProfileError::NothingFits { asked, has }) } else { Ok(()) }
        };
    let conditions = |entry: &Entry| entry.path.describe();
    if let Some(rate) = query.rate {
        let near = |entry: &Entry| entry.path.rate_bps.is_some_and(|bps| (bps - rate.0 as f64).abs() <= 0.01 * bps);
        narrow(&mut fit, format!("rate={rate}"), &near, &conditions)?;
    }
    if let Some(loss) = query.loss {
        let same = |entry: &Entry| {
            let had = entry.path.loss.map_or(0.0, |p| p.get());
            (had - loss).abs() <= 0.01 * loss
        };
        narrow(&mut fit, format!("loss={loss}"), &same, &conditions)?;
    }
    if let Some(mtu) = query.mtu {
        narrow(&mut fit, format!("mtu={mtu}"), &|entry| entry.path.mtu == Some(mtu), &conditions)?;
    }
    if let Some((bytes, bdp)) = query.queue {
        let same = |entry: &Entry| {
            let as_bdp = entry.path.queue_bdp.map(|had| (had - bdp).abs() <= 0.01 * had);
            as_bdp.or_else(|| entry.path.queue.map(|had| had.0 == bytes)).unwrap_or(true)
        };
        let asked = format!("a queue of {} ({bdp:.3} BDP)", Size(bytes));
        narrow(&mut fit, asked, &same, &conditions)?;
    }
    if let Some(workload) = query.workload {
        let name = |entry: &Entry| entry.workload.to_string();
        narrow(&mut fit, format!("a workload of {workload}"), &|entry| entry.workload == workload, &name)?;
    }
    let Some(first) = fit.first().copied() else {
        return Err(ProfileError::NothingFits { asked: "anything".into(), has: "no entries".into() });
    };
    if fit.iter().any(|entry| entry.path != first.path) {
        let has = Profile::list(&fit, conditions);
        return Err(ProfileError::Ambiguous { what: "kinds of path", has, flag: "a lab: path, or --rate" });
    }
    if fit.iter().any(|entry| entry.workload != first.workload) {
        let has = Profile::list(&fit, |entry| entry.workload.to_string());
        return Err(ProfileError::Ambiguous { what: "workloads", has, flag: "--size or --duration" });
    }
    let mut ranking: Vec<Choice> = fit
        .iter()
        .filter_map(|entry| {
            let expected = estimate(&entry.points, query.rtt_ms)?;
            Some(Choice { transport: entry.transport.clone(), expected })
        })
        .collect();
    ranking.sort_by(|a, b| {
        b.expected
            .mean_bps
            .total_cmp(&a.expected.mean_bps)
            .then(a.transport.streams.cmp(&b.transport.streams))
            .then(a.transport.buffer.cmp(&b.transport.buffer))
    });
    Ok(Selection {
        confidence: profile.confidence,
        conditions: first.path.describe(),
        workload: first.workload,
        ranking,
    })
}

/// A path of this round-trip time, of which nothing else is known.
impl From<Time> for Query {
    fn from(rtt: Time) -> Query {
        Query { rtt_ms: rtt.0 as f64 * 1e-6, ..Query::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(rtt_ms: f64, gbps: f64) -> Point {
        Point { rtt_ms, n: 3, mean_bps: gbps * 1e9, low_bps: Some(gbps * 0.9e9), high_bps: Some(gbps * 1.1e9) }
    }

    #[test]
    fn linear_between_measured_rtts() {
        let points = [point(45.6, 9.0), point(91.6, 5.0)];
        let middle = estimate(&points, 68.6).unwrap();
        assert!((middle.mean_bps - 7e9).abs() < 1.0);
        assert!((middle.low_bps.unwrap() - 6.3e9).abs() < 1.0);
        assert!(!middle.outside);
        assert_eq!(estimate(&points, 91.6).unwrap().mean_bps, 5e9);
        assert!(estimate(&points, 200.0).unwrap().outside);
        assert!(estimate(&points, 1.0).unwrap().outside);
        assert!(estimate(&[], 1.0).is_none());
    }

    fn profile(json: &str) -> Profile {
        let dir = std::env::temp_dir().join(format!(
            "fullpipe-profile-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::write(&dir, json).unwrap();
        let profile = Profile::read(&dir).unwrap();
        std::fs::remove_file(dir).unwrap();
        profile
    }

    fn entry(cc: &str, streams: u32, rate: f64, size: &str, gbps: f64) -> String {
        format!(
            r#"{{"path":{{"rate_bps":{rate},"queue":null,"queue_bdp":1.0,"mtu":9000,"loss":0.0,"loss_back":0.0,"modality":null,"kernel":null,"cross":null,"host":null}},
               "transport":{{"cc":"{cc}","streams":{streams},"buffer":"1GB","pacing":null}},"workload":{{"size":"{size}"}},
               "points":[{{"rtt_ms":10.0,"n":1,"mean_bps":{gbps}e9,"sd_bps":null,"low_bps":null,"high_bps":null}}]}}"#
        )
    }

    #[test]
    fn the_best_and_among_equals_the_least_disruptive() {
        let entries = [
            entry("cubic", 10, 1e10, "1GB", 9.0),
            entry("htcp", 1, 1e10, "1GB", 9.0),
            entry("reno", 1, 1e10, "1GB", 3.0),
        ];
        let json = format!(r#"{{"kind":"profile","version":1,"confidence":0.95,"entries":[{}]}}"#, entries.join(","));
        let got = select(&profile(&json), &Query { rtt_ms: 10.0, ..Query::default() }).unwrap();
        let names: Vec<_> = got.ranking.iter().map(|c| c.transport.cc.as_str()).collect();
        assert_eq!(names, ["htcp", "cubic", "reno"]);
        assert_eq!(got.conditions, "rate=10gbit,queue=1BDP,mtu=9000");
        let ask = |bdp: f64| {
            let queue = Some((1_000_000, bdp));
            select(&profile(&json), &Query { rtt_ms: 10.0, queue, ..Query::default() })
        };
        assert!(ask(1.0).is_ok());
        assert!(matches!(ask(0.08), Err(ProfileError::NothingFits { .. })), "another queue");
    }

    #[test]
    fn what_is_ambiguous_or_missing_says_so() {
        let entries = [
            entry("cubic", 1, 1e10, "1GB", 9.0),
            entry("cubic", 1, 1e9, "1GB", 0.9),
            entry("cubic", 1, 1e9, "2GB", 0.9),
        ];
        let json = format!(r#"{{"kind":"profile","version":1,"confidence":0.95,"entries":[{}]}}"#, entries.join(","));
        let profile = profile(&json);
        let ask =
            |rate: Option<u64>| select(&profile, &Query { rtt_ms: 10.0, rate: rate.map(Rate), ..Query::default() });
        assert!(matches!(ask(None), Err(ProfileError::Ambiguous { what: "kinds of path", .. })));
        assert!(ask(Some(10_000_000_000)).is_ok());
        assert!(matches!(ask(Some(1_000_000_000)), Err(ProfileError::Ambiguous { what: "workloads", .. })));
        assert!(matches!(ask(Some(40_000_000_000)), Err(ProfileError::NothingFits { .. })));
    }
}
