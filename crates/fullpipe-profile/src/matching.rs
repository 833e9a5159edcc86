//! Finds the kind of path in a profile that stands for the path of a query: the same one, or else the nearest. It reports
//! where the two differ, and which values it assumed for properties that the query does not name.

use fullpipe_path::{Protocol, Rate, Size, Workload};

use crate::profile::{Conditions, Listed, Profile, ProfileError};
use crate::query::Query;
use crate::ratio::{SAME_RATIO, ratio};

/// The kind of path and the workload in a profile that match a query.
pub struct PathMatch {
    pub path: usize,
    pub workload: usize,
    /// Values that were assumed because the query names none: `rate=10gbit`.
    pub assumed: Vec<String>,
    /// Sentences that say where the profile's path differs from the query's.
    pub notes: Vec<String>,
}

struct Narrowing<'a> {
    profile: &'a Profile<'a>,
    /// ` over udt`, if the query asks for one protocol.
    over: String,
    left: Vec<usize>,
    assumed: Vec<String>,
    notes: Vec<String>,
}

/// One property of a path as a number.
struct Axis<'a> {
    name: &'static str,
    /// Returns a path's value and its text; `None` if the path has no such value, and then any query fits.
    of: &'a dyn Fn(&Conditions) -> Option<(f64, String)>,
    /// The value that the query names, and its text.
    asked: Option<(f64, String)>,
    /// Largest ratio between the profile's value and the query's that still fits.
    within: f64,
    /// Rank of a value when none is named: the lowest is assumed.
    assume: fn(f64) -> f64,
}

impl Narrowing<'_> {
    fn has(&self, of: &dyn Fn(&Conditions) -> Option<(f64, String)>) -> String {
        let mut words: Vec<(f64, String)> = self.left.iter().filter_map(|i| of(&self.profile.paths[*i])).collect();
        words.sort_by(|a, b| a.0.total_cmp(&b.0));
        words.dedup();
        words.into_iter().map(|(_, word)| word).collect::<Vec<_>>().join(", ")
    }

    fn narrow(&mut self, axis: &Axis) -> Result<(), ProfileError> {
        let paths = &self.profile.paths;
        let value = |i: usize| (axis.of)(&paths[i]);
        let cost = |i: usize| match (value(i), &axis.asked) {
            (None, _) => 1.0,
            (Some((value, _)), Some((asked, _))) => ratio(value, *asked),
            (Some((value, _)), None) => (axis.assume)(value),
        };
        let Some(best) = self.left.iter().copied().min_by(|a, b| cost(*a).total_cmp(&cost(*b))) else { return Ok(()) };
        match (&axis.asked, value(best)) {
            (Some((_, asked)), Some((_, has))) if cost(best) > SAME_RATIO => {
                if cost(best) > axis.within {
                    let (name, over) = (axis.name, &self.over);
                    return Err(ProfileError::NothingFits {
                        asked: format!("{name}={asked}{over}"),
                        has: format!("{name}={}{over}", self.has(axis.of)),
                    });
                }
                self.notes.push(format!("measured with {}={has}, not {asked}", axis.name));
            }
            (None, Some((_, has))) if self.left.iter().any(|i| value(*i).is_some_and(|(_, other)| other != has)) => {
                self.assumed.push(format!("{}={has}", axis.name));
            }
            _ => {}
        }
        let least = cost(best);
        self.left.retain(|i| cost(*i) <= least + 1e-9 * least.abs());
        Ok(())
    }

    /// Reports that the runs of a path went to another host than the query's, or assumes their host if it names none.
    fn tell_host(&mut self, path: usize, asked: Option<&str>) {
        let paths = &self.profile.paths;
        let Some(host) = &paths[path].host else { return };
        match asked {
            Some(asked) if asked == host => {}
            Some(asked) => self.notes.push(format!("measured to {host}, not {asked}")),
            None if self.left.iter().any(|i| paths[*i].host.as_ref() != Some(host)) => {
                self.assumed.push(format!("host={host}"));
            }
            None => {}
        }
    }

    /// Keeps the paths for which `is` is true, if there are any.
    fn prefer(&mut self, is: impl Fn(&Conditions) -> bool) {
        let some: Vec<usize> = self.left.iter().copied().filter(|i| is(&self.profile.paths[*i])).collect();
        if !some.is_empty() {
            self.left = some;
        }
    }
}

/// Returns a loss as a positive number, for ratios. No loss counts as one packet in 10^8, which no transfer notices.
fn loss(p: f64) -> f64 {
    p.max(1e-8)
}

/// What is rare in a path, and assumed not to be there.
const PLAIN: [fn(&Conditions) -> bool; 14] = [
    |path| path.jitter_ms.is_none(),
    |path| path.reorder.is_none(),
    |path| path.duplicate.is_none(),
    |path| path.corrupt.is_none(),
    |path| path.host_noise_ms.is_none(),
    |path| path.host_a.is_none() && path.host_b.is_none(),
    |path| path.disk_a.is_none() && path.disk_b.is_none(),
    |path| path.dscp.is_none(),
    |path| path.mss.is_none(),
    |path| path.direction.is_none(),
    |path| path.loss_back.is_none_or(|p| p.is_zero()),
    |path| path.cross.is_none(),
    |path| path.modality.is_none(),
    |path| path.kernel.is_none(),
];

/// Whether an entry is over the protocol that a query asks for; any is if it asks for none. Plain UDP, which loses data, is no
/// choice.
pub fn is_over(entry: &Listed, query: &Query) -> bool {
    let protocol = entry.protocol();
    protocol != Some(Protocol::Udp) && query.protocol.is_none_or(|asked| protocol == Some(asked))
}

/// Finds the kind of path and the workload for a query.
///
/// # Errors
/// What was asked for is too far from everything there is.
pub fn choose(profile: &Profile, query: &Query) -> Result<PathMatch, ProfileError> {
    let listed: Vec<&Listed> = profile.listed.iter().filter(|entry| is_over(entry, query)).collect();
    if let (true, Some(first)) = (listed.is_empty(), profile.listed.first()) {
        let protocol = query.protocol.unwrap_or_default();
        let other = first.protocol().unwrap_or_default();
        let (asked, has) = (format!("transport={protocol}"), format!("transport={other}"));
        return Err(ProfileError::NothingFits { asked, has });
    }
    let mut left: Vec<usize> = listed.iter().map(|entry| entry.path as usize).collect();
    left.sort_unstable();
    left.dedup();
    let over = query.protocol.map_or_else(String::new, |protocol| format!(" over {protocol}"));
    let mut all = Narrowing { profile, over, left, assumed: Vec::new(), notes: Vec::new() };
    all.prefer(|path| path.host.is_some() && path.host == query.host);
    all.prefer(|path| path.host.is_none() || path.host == query.host);
    let has_disks = |path: &Conditions| path.disk_a == query.disks[0] && path.disk_b == query.disks[1];
    all.prefer(has_disks);
    all.prefer(|path| path.host_a == query.hosts[0] && path.host_b == query.hosts[1]);
    PLAIN.iter().for_each(|plain| all.prefer(plain));
    all.narrow(&Axis {
        name: "rate",
        of: &|path| path.rate_bps.map(|bps| (bps, Rate(bps as u64).to_string())),
        asked: query.rate.map(|rate| (rate.0 as f64, rate.to_string())),
        within: 2.5,
        // The papers' rate, and today's commonest for such paths.
        assume: |bps| ratio(bps, 1e10),
    })?;
    all.narrow(&Axis {
        name: "loss",
        of: &|path| path.loss.map(|p| (loss(p.get()), p.to_string())),
        asked: query.loss.map(|p| (loss(p), p.to_string())),
        within: 10.0,
        assume: |p| p,
    })?;
    all.narrow(&Axis {
        name: "queue",
        of: &|path| match (path.queue_bdp, path.queue, query.queue) {
            (Some(bdp), ..) => Some((bdp, format!("{bdp}BDP"))),
            (None, Some(size), Some((bytes, bdp))) => {
                Some((size.0 as f64 / bytes.max(1) as f64 * bdp, size.to_string()))
            }
            (None, Some(size), None) => Some((size.0 as f64, size.to_string())),
            (None, None, _) => None,
        },
        asked: query.queue.map(|(bytes, bdp)| (bdp, format!("{} ({bdp:.3} BDP)", Size(bytes)))),
        within: 4.0,
        // Who does not know the queue should not count on it.
        assume: |bdp| bdp,
    })?;
    all.narrow(&Axis {
        name: "mtu",
        of: &|path| path.mtu.map(|mtu| (f64::from(mtu), mtu.to_string())),
        asked: query.mtu.map(|mtu| (f64::from(mtu), mtu.to_string())),
        within: 10.0,
        assume: |mtu| -mtu,
    })?;
    let distance = |path: usize| {
        let of_path = listed.iter().filter(|entry| entry.path as usize == path);
        of_path.filter_map(|entry| entry.distance(query.rtt_ms)).fold(f64::INFINITY, f64::min)
    };
    let path = match all.left[..] {
        [only] => only,
        ref several => {
            let near = several.iter().map(|path| (*path, distance(*path)));
            near.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(path, _)| path)
        }
    };
    all.tell_host(path, query.host.as_deref());
    let found = &profile.paths[path];
    if !has_disks(found) && (found.disk_a.is_some() || found.disk_b.is_some()) {
        let of = |disk: &Option<String>| disk.clone().unwrap_or_else(|| "memory".into());
        all.notes.push(format!("measured from disk to disk: from {} to {}", of(&found.disk_a), of(&found.disk_b)));
    }
    let (workload, more) = workload(profile, &listed, path, query.workload)?;
    let Narrowing { mut assumed, notes, .. } = all;
    assumed.extend(more);
    Ok(PathMatch { path, workload, assumed, notes })
}

/// Finds the workload of a query, or the nearest one of its kind; the largest if the query names none.
fn workload(
    profile: &Profile,
    listed: &[&Listed],
    path: usize,
    asked: Option<Workload>,
) -> Result<(usize, Option<String>), ProfileError> {
    let of_path = listed.iter().filter(|entry| entry.path as usize == path);
    let mut there: Vec<usize> = of_path.map(|e| e.workload as usize).collect();
    there.sort_unstable();
    there.dedup();
    let amount = |i: usize| match profile.workloads[i] {
        Workload::Size(size) => size.0 as f64,
        Workload::Duration(time) => time.0 as f64,
    };
    let found = match asked {
        None => there.iter().copied().max_by(|a, b| amount(*a).total_cmp(&amount(*b))),
        Some(asked) => {
            let near = |i: &usize| match (profile.workloads[*i], asked) {
                (Workload::Size(a), Workload::Size(b)) => ratio(a.0 as f64, b.0 as f64),
                (Workload::Duration(a), Workload::Duration(b)) => ratio(a.0 as f64, b.0 as f64),
                // A transfer of a size is measured by one of a duration, if there is nothing nearer.
                _ => f64::MAX,
            };
            there.iter().copied().min_by(|a, b| near(a).total_cmp(&near(b)))
        }
    };
    let Some(found) = found else {
        return Err(ProfileError::NothingFits { asked: "this path".into(), has: "no entries for it".into() });
    };
    let has = profile.workloads[found];
    let words = match asked {
        None if there.len() > 1 => Some(format!("workload={has}")),
        Some(asked) if asked != has => Some(format!("workload={has} for {asked}")),
        _ => None,
    };
    Ok((found, words))
}
