//! Computes the rate of a run from what arrived and when. A pure function.
//!
//! A rate needs an interval that can carry one. Bytes that had arrived when the interval began are not of it, an interval
//! shorter than a round trip shows how the sender's kernel starts and not what the path carries, and a rate above what the
//! path can carry shows a clock or a buffer.

use fullpipe_path::{Rate, Size, Time};

/// Excess over a limit that a rate may have: the testbed's bottleneck lets a burst of a few packets pass.
const TOLERANCE: f64 = 1e-3;

/// What arrived at a receiver, over all streams of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrivals {
    /// Bytes that the application read.
    pub(crate) bytes: u64,
    /// Bytes of these that had arrived when the first was read.
    pub(crate) early_bytes: u64,
    /// Time from the first byte's arrival to the end of the run, ns.
    pub(crate) interval_ns: u64,
    /// Round-trip time of the path, ns.
    pub(crate) rtt_ns: u64,
    /// Over plain UDP, the datagrams that brought the bytes.
    pub(crate) datagrams: Option<u64>,
}

/// A rate that no run can exceed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    /// The rate, bit/s.
    pub(crate) bps: f64,
    /// What has this rate: `the path's capacity`.
    pub(crate) what: &'static str,
}

/// Returns the rate of a run's payload, bit/s.
///
/// # Errors
/// The run has no rate. The text is the reason, for a person.
pub(crate) fn rate(arrived: &Arrivals, limits: &[Limit]) -> Result<f64, String> {
    let Arrivals { bytes, early_bytes, interval_ns, rtt_ns, datagrams } = *arrived;
    let later = bytes.saturating_sub(early_bytes);
    if bytes == 0 {
        return Err("nothing arrived".to_owned());
    }
    if later == 0 && datagrams == Some(1) {
        return Err(format!("only one datagram ({}) arrived; send more, or for longer", Size(bytes)));
    }
    if later == 0 {
        return Err(format!("all {} arrived at once; send more, or for longer", Size(bytes)));
    }
    if interval_ns == 0 || interval_ns < rtt_ns {
        let (interval, rtt) = (Time(interval_ns), Time(rtt_ns));
        return Err(format!("the bytes arrived within {interval}, less than a round trip ({rtt}); send more"));
    }
    let bps = later as f64 * 8e9 / interval_ns as f64;
    let lowest = limits.iter().min_by(|a, b| a.bps.total_cmp(&b.bps));
    match lowest {
        Some(limit) if bps > limit.bps * (1.0 + TOLERANCE) => Err(format!(
            "{} over {} is above {} ({}); send for longer",
            Rate(rounded(bps as u64)),
            Time(rounded(interval_ns)),
            limit.what,
            Rate(rounded(limit.bps as u64))
        )),
        _ => Ok(bps),
    }
}

/// A number with four digits that count, as people read it.
fn rounded(number: u64) -> u64 {
    let unit = 10_u64.pow(number.checked_ilog10().unwrap_or(0).saturating_sub(3));
    number.saturating_add(unit / 2) / unit * unit
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const MS: u64 = 1_000_000;

    fn arrivals(bytes: u64, early_bytes: u64, interval_ns: u64) -> Arrivals {
        Arrivals { bytes, early_bytes, interval_ns, rtt_ns: 10 * MS, datagrams: None }
    }

    #[test]
    fn a_rate_counts_what_arrived_in_its_interval() {
        assert_eq!(rate(&arrivals(1_010_000, 10_000, 1000 * MS), &[]), Ok(8e6));
    }

    #[test]
    fn an_interval_that_cannot_carry_a_rate_has_none() {
        let limits =
            [Limit { bps: 1e9, what: "the interface's rate" }, Limit { bps: 1e8, what: "the path's capacity" }];
        for (arrived, why) in [
            (arrivals(10_000, 10_000, 1), "all 10KB arrived at once; send more, or for longer"),
            (arrivals(10_000, 10_000, 3_000 * MS), "all 10KB arrived at once; send more, or for longer"),
            (arrivals(0, 0, 0), "nothing arrived"),
            (arrivals(0, 0, 3_000 * MS), "nothing arrived"),
            (
                Arrivals { datagrams: Some(1), ..arrivals(8_972, 8_972, 3_000 * MS) },
                "only one datagram (8.972KB) arrived; send more, or for longer",
            ),
            (
                Arrivals { datagrams: Some(2), ..arrivals(2_000, 2_000, 3_000 * MS) },
                "all 2KB arrived at once; send more, or for longer",
            ),
            (arrivals(20_000, 10_000, 0), "the bytes arrived within 0ns, less than a round trip (10ms); send more"),
            (
                arrivals(20_000, 10_000, 9 * MS),
                "the bytes arrived within 9ms, less than a round trip (10ms); send more",
            ),
            (
                arrivals(1_260_000, 10_000, 50 * MS),
                "200mbit over 50ms is above the path's capacity (100mbit); send for longer",
            ),
        ] {
            assert_eq!(rate(&arrived, &limits), Err(why.to_owned()));
        }
    }

    #[test]
    fn a_reason_has_four_digits() {
        let limits = [Limit { bps: 99_267_805.0, what: "the path's capacity" }];
        let why = "99.41mbit over 507ms is above the path's capacity (99.27mbit); send for longer";
        assert_eq!(rate(&arrivals(6_310_003, 10_000, 506_989_312), &limits), Err(why.to_owned()));
    }

    /// Whatever arrives, a rate is at most the bytes over the time, and at most the slowest part of the path.
    #[test]
    fn no_rate_exceeds_bytes_time_and_path() {
        let mut rng = Pcg64Mcg::seed_from_u64(38);
        let mut rates = 0;
        for _ in 0..100_000 {
            let up_to = |rng: &mut Pcg64Mcg, digits: f64| 10f64.powf(rng.random::<f64>() * digits) as u64 - 1;
            let bytes = up_to(&mut rng, 13.0);
            let early_bytes = bytes.min(up_to(&mut rng, 13.0));
            let (interval_ns, rtt_ns) = (up_to(&mut rng, 13.0), up_to(&mut rng, 9.0));
            let limit = Limit { bps: up_to(&mut rng, 12.0) as f64 + 1.0, what: "the path's capacity" };
            let arrived = Arrivals { bytes, early_bytes, interval_ns, rtt_ns, datagrams: None };
            if let Ok(bps) = rate(&arrived, &[limit]) {
                rates += 1;
                assert!(bps > 0.0 && bps.is_finite(), "{arrived:?}");
                assert!(bps <= bytes as f64 * 8e9 / interval_ns as f64, "{arrived:?}");
                assert!(bps <= limit.bps * (1.0 + TOLERANCE), "{arrived:?} {limit:?}");
                assert!(interval_ns >= rtt_ns);
            }
        }
        assert!(rates > 1_000, "{rates}");
    }
}
