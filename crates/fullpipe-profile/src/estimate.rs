//! Estimates the throughput of one transport at one RTT, and how certain the estimate is.

use std::collections::HashMap;

use fullpipe_path::Protocol;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, FisherSnedecor, StudentsT};

use crate::profile::{Entry, Point};
use crate::ratio::{SAME_RATIO, ratio};

/// Number of runs from which on a point's own variance is used alone.
const OWN: u32 = 5;
/// Least degrees of freedom of a pooled variance.
const LEAST: f64 = 3.0;
/// Probability, if all points vary alike, that a point is taken to vary more than the others.
const APART: f64 = 0.05;
/// Largest standard deviation relative to the mean that counts. The squares of larger ones could overflow.
const MAX_RELATIVE_SD: f64 = 1e6;
/// Ratio of two variances above which they differ, whatever their degrees of freedom. The F distribution overflows with
/// much larger ones.
const SURELY_APART: f64 = 1e100;

/// The throughput to expect of a transport at an RTT.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Estimate {
    /// Mean throughput, bit/s.
    pub mean_bps: f64,
    /// Lower end of the mean's interval, bit/s. `None` if the profile has no repeated runs, or if the whole interval is above the
    /// capacity.
    pub low_bps: Option<f64>,
    /// Upper end of the mean's interval, bit/s; `None` where there is no lower end.
    pub high_bps: Option<f64>,
    /// Whether the profile's runs, on a faster kind of path, have a higher mean than this path's capacity. Then
    /// [`Estimate::mean_bps`] is the capacity, and no more than an upper bound.
    pub at_capacity: bool,
    /// Whether the runs were between other hosts than these: the rate is theirs, as far as the windows of these let it be.
    pub predicted: bool,
    /// Number of runs at the measured point with the fewest.
    pub n: u32,
    /// Measured RTTs from which the estimate was made, ms.
    pub from_rtt_ms: Vec<f64>,
    /// Whether the RTT is outside the measured ones. The nearest measured RTT stands for it then.
    pub outside: bool,
    /// Ratio of the RTT to the nearest measured one, or the other way round; 1 if the RTT is not outside.
    #[serde(skip)]
    pub(crate) distance: f64,
    /// Variance of the mean.
    #[serde(skip)]
    pub(crate) spread: Option<Spread>,
    /// The measured points on both sides of the RTT. A profile that decreases lies between them.
    #[serde(skip)]
    pub(crate) sides: (Mean, Mean),
}

/// A mean of several runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mean {
    pub bps: f64,
    pub n: u32,
    pub spread: Option<Spread>,
}

/// Variance of a mean, (bit/s)², and its degrees of freedom.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub variance: f64,
    pub freedom: f64,
    /// Protocol of the transport.
    pub protocol: Protocol,
    /// Whether the variance is that of all transports of the protocol, those that have a variance of their own included.
    pub is_borrowed: bool,
}

impl Estimate {
    /// Whether the transport was measured as near to the RTT as another one, or nearer. RTTs that hardly differ count as equal.
    pub fn is_as_near_as(&self, other: &Estimate) -> bool {
        self.distance <= SAME_RATIO * other.distance
    }

    /// Makes this the prediction of a rate, bit/s, between other hosts than those of the runs. It has no interval.
    pub fn predict(&mut self, bps: f64) {
        (self.predicted, self.mean_bps, self.at_capacity) = (true, bps, false);
        (self.low_bps, self.high_bps, self.spread) = (None, None, None);
    }

    /// Lowers the mean and the upper end of its interval to a capacity, bit/s, above which no rate can be. An interval that is
    /// above the capacity as a whole says nothing of the rates below it, and is dropped.
    pub(crate) fn limit(&mut self, capacity_bps: f64) {
        self.at_capacity = self.mean_bps > capacity_bps;
        self.mean_bps = self.mean_bps.min(capacity_bps);
        if self.at_capacity {
            self.low_bps = self.low_bps.filter(|low| *low < capacity_bps);
        }
        self.high_bps = self.low_bps.and(self.high_bps).map(|high| high.min(capacity_bps));
    }
}

impl Spread {
    /// Returns the variance of the difference of two independent means (Welch 1947, Satterthwaite 1946).
    ///
    /// The two variances are independent as well, unless runs of one protocol count in both. Then their covariance counts:
    /// it is that of a variance and of a pool which holds its runs, so the difference of two means with the variance of one
    /// pool has the pool's degrees of freedom.
    pub fn difference(self, other: Spread) -> Spread {
        let variance = self.variance + other.variance;
        let is_shared = self.protocol == other.protocol && (self.is_borrowed || other.is_borrowed);
        let shared =
            if is_shared { 2.0 * self.variance * other.variance / self.freedom.max(other.freedom) } else { 0.0 };
        let denominator = self.variance.powi(2) / self.freedom + other.variance.powi(2) / other.freedom + shared;
        let freedom = if denominator > 0.0 { variance.powi(2) / denominator } else { self.freedom.min(other.freedom) };
        Spread { variance, freedom, protocol: self.protocol, is_borrowed: self.is_borrowed || other.is_borrowed }
    }
}

/// Variance of single runs relative to the square of their mean, pooled over several points.
#[derive(Debug, Clone, Copy, Default)]
struct Pool {
    squares: f64,
    freedom: f64,
}

impl Pool {
    fn of<'a>(points: impl IntoIterator<Item = &'a Point>) -> Pool {
        let mut pool = Pool::default();
        for point in points {
            if let Some(sd) = point.sd_bps.filter(|_| point.n > 1 && point.mean_bps > 0.0) {
                let freedom = f64::from(point.n - 1);
                pool.squares += freedom * (sd / point.mean_bps).min(MAX_RELATIVE_SD).powi(2);
                pool.freedom += freedom;
            }
        }
        pool
    }

    /// The pool without one of its points.
    fn without(self, point: &Point) -> Pool {
        let own = Pool::of([point]);
        Pool { squares: (self.squares - own.squares).max(0.0), freedom: (self.freedom - own.freedom).max(0.0) }
    }

    /// Whether a point varies by more than this pool of others can explain (F-test of two variances).
    fn is_exceeded_by(self, point: &Point) -> bool {
        let own = Pool::of([point]);
        let Ok(fisher) = FisherSnedecor::new(own.freedom, self.freedom) else { return false };
        let ratio = own.squares / own.freedom / (self.squares / self.freedom);
        // The comparisons are false for a ratio that is not a number.
        own.squares > 0.0 && (ratio > SURELY_APART || ratio <= SURELY_APART && fisher.sf(ratio) < APART)
    }
}

/// The runs that a point without enough runs of its own borrows the variance of.
#[derive(Clone, Copy)]
struct Lender {
    pool: Pool,
    /// Protocol of the transport.
    protocol: Protocol,
    /// Whether the pool is that of all transports of the protocol, and not of this one alone.
    is_of_protocol: bool,
}

/// The mean of a point. `lender` is what runs like its own vary by.
fn mean(point: &Point, lender: Lender) -> Mean {
    let Lender { pool, protocol, is_of_protocol } = lender;
    let n = f64::from(point.n);
    let spread = |variance: f64, freedom: f64, is_borrowed| Spread { variance, freedom, protocol, is_borrowed };
    let own = point.sd_bps.filter(|_| point.n > 1).map(|sd| spread(sd * sd / n, n - 1.0, false));
    let pooled = (pool.freedom >= LEAST)
        .then(|| spread(pool.squares / pool.freedom * point.mean_bps.powi(2) / n, pool.freedom, is_of_protocol));
    let spread = match (own, pooled) {
        (Some(own), _) if point.n >= OWN => Some(own),
        (Some(own), Some(_)) if pool.without(point).is_exceeded_by(point) => Some(own),
        (Some(own), Some(pooled)) => Some(Spread { variance: own.variance.max(pooled.variance), ..pooled }),
        (own, pooled) => pooled.or(own),
    };
    Mean { bps: point.mean_bps, n: point.n, spread }
}

/// Makes estimates from the points of a profile.
///
/// Few runs give a poor variance. For a point with fewer than five runs, the larger of two variances counts: its own, and that
/// of all points of the transport, relative to their means. One that varies by far more than these has its own alone. A
/// transport without repeated runs takes the variance of the transports of its protocol that it is compared with, or else of
/// those of the whole profile: how much runs over UDT vary says nothing of TCP.
pub(crate) struct Estimator {
    level: f64,
    others: HashMap<Protocol, Pool>,
    quantiles: HashMap<u64, f64>,
}

impl Estimator {
    /// Makes an estimator with intervals of a confidence level, from the entries that are compared and from all entries.
    pub fn new<E>(level: f64, compared: &[Entry], all: impl Fn() -> Result<Vec<Entry>, E>) -> Result<Estimator, E> {
        let pool = |entries: &[Entry], protocol: Protocol| {
            let same = entries.iter().filter(|entry| entry.transport.protocol() == protocol);
            Pool::of(same.flat_map(|entry| &entry.points))
        };
        let mut others: HashMap<Protocol, Pool> =
            compared.iter().map(|entry| entry.transport.protocol()).map(|it| (it, pool(compared, it))).collect();
        if others.values().any(|pool| pool.freedom < LEAST) {
            let all = all()?;
            for (protocol, few) in others.iter_mut().filter(|(_, pool)| pool.freedom < LEAST) {
                *few = pool(&all, *protocol);
            }
        }
        Ok(Estimator { level, others, quantiles: HashMap::new() })
    }

    /// Estimates the throughput of one transport at an RTT, linearly between the measured RTTs.
    pub fn estimate(&mut self, entry: &Entry, rtt_ms: f64) -> Option<Estimate> {
        let points = &entry.points;
        let (own, protocol) = (Pool::of(points), entry.transport.protocol());
        let others = || self.others.get(&protocol).copied().unwrap_or_default();
        let is_of_protocol = own.freedom < LEAST;
        let pool = if is_of_protocol { others() } else { own };
        let lender = Lender { pool, protocol, is_of_protocol };
        let (first, last) = (points.first()?, points.last()?);
        let same = points.iter().find(|p| (p.rtt_ms - rtt_ms).abs() <= 1e-6 * rtt_ms);
        let end = if rtt_ms < first.rtt_ms { Some(first) } else { (rtt_ms > last.rtt_ms).then_some(last) };
        let (a, b) = match same.or(end) {
            Some(point) => (point, point),
            None => {
                let right = points.iter().position(|p| p.rtt_ms > rtt_ms)?;
                (&points[right.checked_sub(1)?], &points[right])
            }
        };
        let (left, right) = (mean(a, lender), mean(b, lender));
        if a == b {
            let distance = if same.is_some() { 1.0 } else { ratio(rtt_ms, a.rtt_ms) };
            return Some(self.finish(left.bps, left.spread, (left, left), vec![a.rtt_ms], distance));
        }
        let weight = (rtt_ms - a.rtt_ms) / (b.rtt_ms - a.rtt_ms);
        let spread = left.spread.zip(right.spread).map(|(x, y)| Spread {
            variance: (1.0 - weight).powi(2) * x.variance + weight.powi(2) * y.variance,
            freedom: x.freedom.min(y.freedom),
            is_borrowed: x.is_borrowed || y.is_borrowed,
            ..x
        });
        let mean = left.bps + weight * (right.bps - left.bps);
        Some(self.finish(mean, spread, (left, right), vec![a.rtt_ms, b.rtt_ms], 1.0))
    }

    fn finish(
        &mut self,
        mean_bps: f64,
        spread: Option<Spread>,
        sides: (Mean, Mean),
        from_rtt_ms: Vec<f64>,
        distance: f64,
    ) -> Estimate {
        let half = spread.map(|s| self.quantile(s.freedom) * s.variance.sqrt());
        Estimate {
            mean_bps,
            low_bps: half.map(|half| (mean_bps - half).max(0.0)),
            high_bps: half.map(|half| mean_bps + half),
            at_capacity: false,
            predicted: false,
            n: sides.0.n.min(sides.1.n),
            from_rtt_ms,
            outside: distance > 1.0,
            distance,
            spread,
            sides,
        }
    }

    /// Returns Student's quantile for a two-sided interval. The results are kept: each takes a search, and few degrees of freedom
    /// occur.
    fn quantile(&mut self, freedom: f64) -> f64 {
        let p = 0.5 + self.level / 2.0;
        *self.quantiles.entry(freedom.to_bits()).or_insert_with(|| quantile(p, freedom))
    }
}

/// Returns Student's quantile.
pub(crate) fn quantile(p: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(p))
}

/// Tests, one-sided and at an error of `alpha`, whether differences could be zero or less. Critical values are kept for whole
/// degrees of freedom: the two next to a difference's own nearly always decide.
pub(crate) struct Comparison {
    alpha: f64,
    critical: HashMap<u64, f64>,
}

impl Comparison {
    pub fn new(alpha: f64) -> Comparison {
        Comparison { alpha, critical: HashMap::new() }
    }

    /// Returns the least significant t.
    pub fn critical(&mut self, freedom: f64) -> f64 {
        let alpha = self.alpha;
        *self.critical.entry(freedom.to_bits()).or_insert_with(|| quantile(1.0 - alpha, freedom))
    }

    pub fn could_be_nothing(&mut self, difference: f64, spread: Spread) -> bool {
        if spread.variance <= 0.0 || difference <= 0.0 {
            return difference <= 0.0;
        }
        let t = difference / spread.variance.sqrt();
        if t.is_nan() || spread.freedom.is_nan() {
            return true;
        }
        // The critical value falls as the freedom grows; beyond a thousand it hardly does.
        let (low, high) = (spread.freedom.clamp(1.0, 1000.0).floor(), spread.freedom.clamp(1.0, 1000.0).ceil());
        if t > self.critical(low) {
            return false;
        }
        t <= self.critical(high)
            || StudentsT::new(0.0, 1.0, spread.freedom).map_or(true, |student| student.sf(t) > self.alpha)
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_path::{Buffer, Transport};
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    fn entry(points: &[(f64, u32, f64, Option<f64>)]) -> Entry {
        Entry {
            transport: Transport {
                cc: "cubic".into(),
                streams: 1,
                buffer: Buffer::Auto,
                pacing: None,
                dscp: None,
                mss: None,
            },
            points: points
                .iter()
                .map(|&(rtt_ms, n, gbps, sd)| Point { rtt_ms, n, mean_bps: gbps * 1e9, sd_bps: sd.map(|s| s * 1e9) })
                .collect(),
        }
    }

    fn at(entry: &Entry, rtt_ms: f64) -> Estimate {
        let none = || Ok::<_, std::convert::Infallible>(Vec::new());
        let Ok(mut estimator) = Estimator::new(0.95, std::slice::from_ref(entry), none);
        estimator.estimate(entry, rtt_ms).unwrap()
    }

    #[test]
    fn linear_between_measured_rtts() {
        let e = entry(&[(45.6, 3, 9.0, Some(0.1)), (91.6, 3, 5.0, Some(0.1))]);
        let middle = at(&e, 68.6);
        assert!((middle.mean_bps - 7e9).abs() < 1.0);
        assert!(!middle.outside && middle.low_bps.unwrap() < 7e9);
        assert_eq!(at(&e, 91.6).mean_bps, 5e9);
        assert!(at(&e, 200.0).outside && at(&e, 1.0).outside);
        assert_eq!(at(&e, 200.0).mean_bps, 5e9);
    }

    #[test]
    fn students_interval_of_enough_runs() {
        // t(0.975, 9) = 2.2622.
        let e = entry(&[(10.0, 10, 5.0, Some(1.0))]);
        let half = at(&e, 10.0).high_bps.unwrap() - 5e9;
        assert!((half - 2.2622 * 1e9 / 10f64.sqrt()).abs() < 1e5, "{half}");
    }

    fn spread(variance: f64, freedom: f64, is_borrowed: bool) -> Spread {
        Spread { variance, freedom, protocol: Protocol::Tcp, is_borrowed }
    }

    #[test]
    fn comparisons_agree_with_the_distribution() {
        let mut comparison = Comparison::new(0.01);
        for freedom in [1.0, 1.3, 2.9, 7.5, 250.0] {
            let critical = quantile(0.99, freedom);
            let spread = spread(4.0, freedom, false);
            assert!(comparison.could_be_nothing(critical * 2.0 - 1e-6, spread), "{freedom}");
            assert!(!comparison.could_be_nothing(critical * 2.0 + 1e-6, spread), "{freedom}");
        }
        let exact = spread(0.0, 3.0, false);
        assert!(comparison.could_be_nothing(0.0, exact) && !comparison.could_be_nothing(1.0, exact));
    }

    #[test]
    fn extreme_spreads_are_compared_without_a_panic() {
        let runs = |sd: f64| Point { rtt_ms: 10.0, n: 5, mean_bps: 1e9, sd_bps: Some(sd) };
        // The ratio times the degrees of freedom overflows, or the ratio itself does.
        for squares in [1e-295, 1e-307] {
            assert!(Pool { squares, freedom: 10.0 }.is_exceeded_by(&runs(1e15)), "{squares}");
        }
        assert!(!Pool { squares: f64::INFINITY, freedom: 10.0 }.is_exceeded_by(&runs(1e8)));
        let mut comparison = Comparison::new(0.05);
        for (difference, variance) in [(f64::NAN, 1.0), (1.0, f64::NAN), (f64::INFINITY, f64::INFINITY)] {
            assert!(comparison.could_be_nothing(difference, spread(variance, 3.0, false)));
        }
        assert!(comparison.could_be_nothing(1.0, spread(1.0, f64::NAN, false)));
        // The mean of one point is as small as numbers can be.
        let mut e = entry(&[(10.0, 2, 5.0, Some(0.1)), (20.0, 2, 4.0, Some(0.1)), (30.0, 3, 3.0, Some(0.1))]);
        e.points[0] = Point { mean_bps: 5e-324, sd_bps: Some(1e15), ..e.points[0] };
        assert!([10.0, 15.0, 20.0].iter().all(|rtt_ms| at(&e, *rtt_ms).high_bps.unwrap().is_finite()));
    }

    #[test]
    fn few_runs_borrow_spread() {
        // Two runs that happen to agree are not exact: the other points say what runs vary by.
        let e = entry(&[(10.0, 2, 5.0, Some(0.0)), (20.0, 3, 4.0, Some(0.4)), (30.0, 3, 2.0, Some(0.2))]);
        let got = at(&e, 10.0);
        let relative = (2.0 * 0.1f64.powi(2) + 2.0 * 0.1f64.powi(2)) / 5.0;
        let half = quantile(0.975, 5.0) * (relative / 2.0).sqrt() * 5e9;
        assert!((got.high_bps.unwrap() - 5e9 - half).abs() < 1.0, "{got:?}");
        // A single run with nobody to borrow from has no interval.
        assert_eq!(at(&entry(&[(10.0, 1, 5.0, None)]), 10.0).low_bps, None);
    }

    #[test]
    fn what_udt_varies_by_says_nothing_of_tcp() {
        let single = entry(&[(10.0, 1, 9.0, None)]);
        let repeated = entry(&[(10.0, 4, 9.0, Some(0.09))]);
        let mut udt = entry(&[(10.0, 9, 5.0, Some(2.0))]);
        udt.transport.cc = "udt".into();
        let half = |compared: &[Entry], all: &[Entry]| {
            let mut estimator = Estimator::new(0.95, compared, || Ok::<_, ()>(all.to_vec())).unwrap();
            estimator.estimate(&single, 10.0).unwrap().high_bps.map(|high| high / 1e9 - 9.0)
        };
        let expected = quantile(0.975, 3.0) * 0.09;
        let all = [single.clone(), repeated.clone(), udt.clone()];
        // Those that it is compared with have no repeated run over TCP, so the whole profile's count.
        for compared in [&all[..], &[single.clone(), udt.clone()]] {
            assert!((half(compared, &all).unwrap() - expected).abs() < 1e-9);
        }
        assert_eq!(half(&[single.clone(), udt.clone()], &[single.clone(), udt]), None);
    }

    /// A normal number, by Box and Muller's method.
    fn normal(rng: &mut Pcg64Mcg) -> f64 {
        let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    #[test]
    fn two_variances_of_one_pool_are_no_two_variances() {
        let freedom = |a: Spread, b: Spread| a.difference(b).freedom;
        assert_eq!(freedom(spread(1.0, 3.0, false), spread(1.0, 3.0, false)), 6.0);
        for (a, b) in [(1.0, 1.0), (2.0, 0.5)] {
            assert!((freedom(spread(a, 3.0, true), spread(b, 3.0, true)) - 3.0).abs() < 1e-9, "{a} {b}");
        }
        // A transport's own three degrees of freedom are among the pool's: nearly all of these, or few.
        let nested = |pool: f64| freedom(spread(1.0, 3.0, false), spread(1.0, pool, true));
        assert!((nested(3.0) - 3.0).abs() < 1e-9 && nested(4.0) < 4.0, "{}", nested(4.0));
        assert!((11.5..11.8).contains(&nested(300.0)), "{}", nested(300.0));
        let udt = Spread { protocol: Protocol::Udt, ..spread(1.0, 3.0, true) };
        assert_eq!(freedom(spread(1.0, 3.0, true), udt), 6.0);
    }

    /// Two transports of one run each borrow the variance of a third, which has four.
    #[test]
    fn single_runs_are_told_apart_by_chance_no_more_often_than_alpha() {
        const TRIALS: u32 = 4_000;
        let rng = &mut Pcg64Mcg::seed_from_u64(7);
        let mut run = || 5.0 * (1.0 + 0.02 * normal(rng));
        let mut comparison = Comparison::new(0.01);
        let mut told = 0;
        for _ in 0..TRIALS {
            let four: [f64; 4] = std::array::from_fn(|_| run());
            let mean = four.iter().sum::<f64>() / 4.0;
            let sd = (four.iter().map(|run| (run - mean).powi(2)).sum::<f64>() / 3.0).sqrt();
            let all = [(4, mean, Some(sd)), (1, run(), None), (1, run(), None)];
            let all = all.map(|(n, mean, sd)| entry(&[(10.0, n, mean, sd)]));
            let Ok(mut estimator) = Estimator::new(0.99, &all, || Ok::<_, std::convert::Infallible>(Vec::new()));
            let [_, b, c] = all.each_ref().map(|entry| estimator.estimate(entry, 10.0).unwrap());
            let spread = b.spread.unwrap().difference(c.spread.unwrap());
            told += u32::from(!comparison.could_be_nothing(b.mean_bps - c.mean_bps, spread));
        }
        let told = f64::from(told) / f64::from(TRIALS);
        // With twice the degrees of freedom it would be 2.6%.
        assert!((0.005..0.016).contains(&told), "{told}");
    }

    /// Fractions of simulated profiles whose intervals hold the true mean: at a measured RTT, and midway between two. Each has
    /// `n` runs of normal noise at each of five RTTs: 5% at 30 ms, and `others` at the rest.
    fn coverage(rng: &mut Pcg64Mcg, n: u32, others: f64) -> [f64; 2] {
        const TRIALS: u32 = 4_000;
        const RTTS_MS: [f64; 5] = [10.0, 20.0, 30.0, 40.0, 50.0];
        let truth = |rtt_ms: f64| 9.5 - 0.1 * rtt_ms;
        let mut held = [0; 2];
        for _ in 0..TRIALS {
            let points: Vec<(f64, u32, f64, Option<f64>)> = RTTS_MS
                .iter()
                .map(|rtt_ms| {
                    let noise = if *rtt_ms == 30.0 { 0.05 } else { others };
                    let runs: Vec<f64> = (0..n).map(|_| truth(*rtt_ms) * (1.0 + noise * normal(rng))).collect();
                    let mean = runs.iter().sum::<f64>() / f64::from(n);
                    let squares: f64 = runs.iter().map(|run| (run - mean).powi(2)).sum();
                    (*rtt_ms, n, mean, Some((squares / f64::from(n - 1)).sqrt()))
                })
                .collect();
            let entry = entry(&points);
            for (held, rtt_ms) in held.iter_mut().zip([30.0, 35.0]) {
                let got = at(&entry, rtt_ms);
                let (low, high) = (got.low_bps.unwrap() / 1e9, got.high_bps.unwrap() / 1e9);
                *held += u32::from((low..=high).contains(&truth(rtt_ms)));
            }
        }
        held.map(|held| f64::from(held) / f64::from(TRIALS))
    }

    #[test]
    fn intervals_hold_the_mean_as_often_as_they_say() {
        let rng = &mut Pcg64Mcg::seed_from_u64(38);
        for n in [5, 10] {
            let [measured, between] = coverage(rng, n, 0.05);
            assert!((0.935..0.965).contains(&measured), "n={n}: {measured}");
            // The degrees of freedom are those of one of the two sides.
            assert!((0.935..0.985).contains(&between), "n={n}: {between}");
        }
        // The larger of two variances makes intervals of few runs conservative.
        for n in [2, 3] {
            let found = coverage(rng, n, 0.05);
            assert!(found.iter().all(|covered| (0.94..0.995).contains(covered)), "n={n}: {found:?}");
        }
        // Where one RTT varies ten times as much as the others, two or three runs may agree by chance, as the others do.
        for (n, least) in [(2, 0.84), (3, 0.92), (4, 0.93)] {
            let [measured, _] = coverage(rng, n, 0.005);
            assert!((least..0.97).contains(&measured), "n={n}: {measured}");
        }
    }
}
