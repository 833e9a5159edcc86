//! Capacity from the dispersion of packet trains.
//!
//! The paper takes "the average dispersion of five packet trains, using UDP probing packets" (section
//! IV-B), after Dovrolis, Ramanathan and Moore (INFOCOM 2001). A receiver of today coalesces interrupts
//! and merges packets (NAPI, GRO), so the timestamps of neighbours say nothing; how many packets came
//! between the ends of two batches still does.

/// Trains that the paper averages over (section IV-B).
pub const TRAINS: usize = 5;
/// Packets of a first train. At the bottleneck up to all of them queue: 32 × 1,500 bytes fit a queue of 64 KB.
pub const FIRST_PACKETS: u16 = 32;
/// Packets of the longest train, sent where shorter ones arrive in too few batches: 1 ms at 10 Gb/s.
pub const MOST_PACKETS: u16 = 1024;
/// Packets of a train at the rate of the path: beside others who take half of it, half of them queue, 48 KB of
/// 1,500-byte packets.
pub const SPREAD_PACKETS: u16 = 64;
/// Packets of a train that asks whether so much more fits beside the transfer. Where half of the capacity is asked for
/// and nothing of it is free, all of them queue: 48 KB.
const ASKING_PACKETS: f64 = 32.0;
/// And no slower than this, packets per second: a train takes 4 ms at most. Beyond the capacity it says as much.
pub const ASKING_PPS: f64 = LEAST_SPREAD / SPREAD_S;
/// Slower by this factor than it was sent, such a train did not fit: the transfer's own bursts make less.
const DID_NOT_FIT: f64 = 1.08;
/// On slow paths fewer, that they take no longer than this, seconds,
const SPREAD_S: f64 = 4e-3;
/// but no fewer than this.
const LEAST_SPREAD: f64 = 16.0;
/// Of a train beside the transfer's own packets so many may have to queue: a quarter of a queue of 64 KB.
const QUEUED_PACKETS: f64 = 11.0;
/// TCP that doubles its rate each RTT is so much faster at the end of one than in its mean: 2 ln 2.
pub const DOUBLING: f64 = 1.386;
/// Trains sent before giving up.
pub const MOST_TRAINS: usize = 12;
/// A gap below this part of the mean one is within a batch. Cross traffic alone stretches gaps by at most
/// a factor of two while it leaves half of the capacity.
const WITHIN_BATCH: f64 = 0.3;
/// Fewest batches that have an inside once the first and the last are discarded.
const FEWEST_BATCHES: usize = 4;
/// The first packets of a train, one of so many, find the receiver asleep: they are stamped late, and at 10 Gb/s that
/// is 2% of 32 packets' time.
const WAKING: usize = 8;
/// Fewest packets that a rate is taken from.
const FEWEST_PACKETS: usize = 8;
/// Packets over which the fastest passage is sought: few enough to fall between cross traffic's.
const RUN: usize = 8;
/// The fastest passage being so much faster than the whole train says that others' packets came between.
const CROSS: f64 = 1.06;
/// The receiver's timestamps are no better than this, seconds: at 10 Gb/s almost a packet.
const STAMP_S: f64 = 1e-6;
/// Trains left below `TRAINS / 2` that agree to this much are as good as five.
const AGREE: f64 = 0.02;
/// One train agrees with itself.
const FEWEST_TRAINS: usize = 2;
/// A sender must have been so much faster than what arrived, or the dispersion is its own, not the path's.
const SENDER_FASTER: f64 = 1.1;

/// How one packet train arrived.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Train {
    /// From handing its first packet to the sender's kernel to handing over its last, nanoseconds; 0 where nobody
    /// looked. A sender slower than the path says nothing of the path.
    pub sent_span_ns: u64,
    /// Packets sent.
    pub sent: u16,
    /// Over how long they were asked to be spread, nanoseconds; 0: back to back.
    pub over_ns: u64,
    /// When each packet that came arrived, by the receiver's clock, in the order of arrival, nanoseconds.
    /// The kernel's own timestamps (`SO_TIMESTAMPNS`) are better than the reader's.
    pub arrivals_ns: Vec<u64>,
}

/// What the trains say. Rates are packets per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Dispersion {
    /// Nothing: too few packets or batches. A longer train may say more.
    Unknown,
    /// The path's rate.
    Known {
        /// The mean over the trains, as in the paper; cross traffic lowers it.
        mean: f64,
        /// The capacity: median over the trains, of the fastest passages where others' packets came between.
        capacity: f64,
        /// Whether nothing hints at a higher capacity: no cross traffic seen, and a sender faster than
        /// the path.
        sure: bool,
    },
}

/// One train's rates, packets per second.
#[derive(Debug, Clone, Copy)]
struct Rated {
    whole: f64,
    fastest: f64,
    /// Whether others' packets were between, beyond what the timestamps' errors make of it.
    cross: bool,
    sent: Option<f64>,
}

/// The trains so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trains {
    rated: Vec<Rated>,
    asked: usize,
    packets: Option<u16>,
    /// Of those at the rate of the path: what others took meanwhile, at a capacity of c: `.0 * (c / .1 - 1.0) - .2`.
    spread: Vec<(f64, f64, f64)>,
    spread_asked: usize,
    /// Whether those ask for room beside the transfer: the start's are over.
    asking: bool,
}

impl Trains {
    /// Packets of the next train, if one is wanted.
    pub fn next(&mut self) -> Option<u16> {
        if self.rated.len() >= TRAINS || self.asked >= MOST_TRAINS {
            return None;
        }
        self.asked += 1;
        Some(self.packets.unwrap_or(FIRST_PACKETS))
    }

    /// Whether no further train is wanted.
    pub fn done(&self) -> bool {
        self.rated.len() >= TRAINS || self.asked >= MOST_TRAINS
    }

    /// The next train at the rate of the path, if one is wanted: packets, and how long they take. `own` packets per
    /// second of the transfer come now, and twice as many once the train is on its way.
    pub fn next_spread(&mut self, packets_per_second: f64, own: f64) -> Option<(u16, u64)> {
        if self.spread_asked >= TRAINS {
            return None;
        }
        self.spread_asked += 1;
        let most = (QUEUED_PACKETS * packets_per_second / (2.0 * own).max(1.0)).min(f64::from(SPREAD_PACKETS));
        let packets = (SPREAD_S * packets_per_second).min(most).max(LEAST_SPREAD) as u16;
        Some((packets, (f64::from(packets) / packets_per_second.max(1.0) * 1e9).max(1.0) as u64))
    }

    /// Whether trains at the rate of the path have still to be sent.
    pub fn spreading(&self) -> bool {
        self.spread_asked < TRAINS
    }

    /// From now on trains ask whether there is room beside the transfer.
    pub fn ask(&mut self) {
        self.spread.clear();
        (self.spread_asked, self.asking) = (0, true);
    }

    /// The next of those, if one is wanted, at so many packets per second: packets, and how long they take.
    pub fn next_asking(&mut self, packets_per_second: f64) -> Option<(u16, u64)> {
        if self.spread_asked >= TRAINS {
            return None;
        }
        self.spread_asked += 1;
        let packets = (SPREAD_S * packets_per_second).clamp(LEAST_SPREAD, ASKING_PACKETS) as u16;
        Some((packets, (f64::from(packets) / packets_per_second.max(1.0) * 1e9).max(1.0) as u64))
    }

    /// Whether trains at the rate of the path, which the start sends, are over.
    pub fn start_is_over(&self) -> bool {
        self.asking
    }

    /// What those that ask say: packets per second that others leave of the capacity, all that was asked for and more if they came
    /// as they were sent. `own`: the transfer's. None where most are missing.
    pub fn left(&self, capacity: f64, own: f64) -> Option<f64> {
        if self.spread.len() * 2 < TRAINS {
            return None;
        }
        let mut slower: Vec<f64> = self.spread.iter().map(|train| train.0 / train.1).collect();
        if median(&mut slower) <= DID_NOT_FIT {
            return Some(capacity);
        }
        // As in `others`, with the transfer among them.
        let mut taken: Vec<f64> = self.spread.iter().map(|train| train.0 * (capacity / train.1 - 1.0)).collect();
        Some((capacity - (median(&mut taken) - own).max(0.0)).max(0.0))
    }

    /// What others take of a path of so many packets per second, once enough trains have been sent at its rate.
    ///
    /// A bottleneck that serves all in the order of their coming gives a flow that comes at rate r, beside
    /// others' x, the rate c·r/(r + x) (the fluid model of Melander, Björkman and Gunningberg, TOPP, 2000).
    pub fn others(&self, capacity: f64) -> Option<f64> {
        if self.spread.len() * 2 < TRAINS {
            return None;
        }
        // Slow start sends at twice its rate or not at all (`tcp_pacing_ss_ratio`), so a train meets anything from
        // nothing to twice what comes of the transfer. What others take is what all trains allow.
        let taken = |&(sent, came, _): &(f64, f64, f64)| (sent * (capacity / came - 1.0)).max(0.0);
        let (mut least, mut most) = (0.0f64, f64::INFINITY);
        for train in &self.spread {
            least = least.max(taken(train) - 2.0 * train.2);
            most = most.min(taken(train));
        }
        if least <= most {
            return Some((least + most) / 2.0);
        }
        // Others come in bursts too.
        let others = self.spread.iter().map(|train| (taken(train) - train.2).max(0.0));
        Some(median(&mut others.collect::<Vec<_>>()))
    }

    /// Whether all trains at the rate of the path have come.
    pub fn all_spread(&self) -> bool {
        self.spread.len() >= TRAINS
    }

    /// Takes one in; `own` packets per second of the transfer came beside it.
    pub fn add(&mut self, train: &Train, own: f64) {
        if train.over_ns > 0 {
            if self.spread.len() < TRAINS
                && let Some((sent, came)) = spread(train)
            {
                self.spread.push((sent, came, own));
            }
            return;
        }
        if self.rated.len() >= TRAINS {
            return;
        }
        match rate(train) {
            Some(rated) => self.rated.push(rated),
            // Too few batches: only a longer train has more.
            None => {
                let now = self.packets.unwrap_or(FIRST_PACKETS);
                self.packets = Some(now.saturating_mul(4).min(MOST_PACKETS));
            }
        }
    }

    /// What they say together.
    pub fn dispersion(&self) -> Dispersion {
        let mut whole: Vec<f64> = self.rated.iter().map(|r| r.whole).collect();
        let (Some(low), Some(high)) = (whole.iter().copied().reduce(f64::min), whole.iter().copied().reduce(f64::max))
        else {
            return Dispersion::Unknown;
        };
        if whole.len() < FEWEST_TRAINS || whole.len() * 2 < TRAINS && high > low * (1.0 + AGREE) {
            return Dispersion::Unknown;
        }
        // The mean of dispersions, hence the harmonic mean of rates.
        let mean = whole.len() as f64 / whole.iter().map(|r| 1.0 / r).sum::<f64>();
        let mut fastest: Vec<f64> = self.rated.iter().map(|r| r.fastest).collect();
        let (middle, fast) = (median(&mut whole), median(&mut fastest));
        let cross = self.rated.iter().filter(|r| r.cross).count() * 2 > self.rated.len();
        let faster = self.rated.iter().all(|r| r.sent.is_none_or(|sent| sent >= SENDER_FASTER * middle));
        Dispersion::Known { mean, capacity: if cross { fast } else { middle }, sure: !cross && faster }
    }
}

/// Of one train: packets between the ends of its first and its second-last batch, over that time.
///
/// The first batch began at an unknown moment before its packets were stamped, the last may have been
/// cut short by the train's end; both ends fall on the end of a batch. Without coalescing every packet is a batch, and
/// the first eighth of them is left out (`WAKING`).
fn rate(train: &Train) -> Option<Rated> {
    let at = &train.arrivals_ns;
    let (first, last) = (*at.first()?, *at.last()?);
    if at.len() < FEWEST_PACKETS || last <= first || at.windows(2).any(|w| w[1] < w[0]) {
        return None;
    }
    let gap = (last - first) as f64 / (at.len() - 1) as f64;
    // Index of the last packet of each batch.
    let mut ends: Vec<usize> = (0..at.len() - 1).filter(|&i| (at[i + 1] - at[i]) as f64 > WITHIN_BATCH * gap).collect();
    ends.push(at.len() - 1);
    if ends.len() < FEWEST_BATCHES {
        return None;
    }
    let single = ends.len() * 10 >= at.len() * 9;
    let (from, to) = (ends[if single { ends.len() / WAKING } else { 0 }], ends[ends.len() - 2]);
    let packets = to - from;
    let span = seconds(at[from], at[to]);
    if packets < FEWEST_PACKETS / 2 || span <= 0.0 {
        return None;
    }
    let whole = packets as f64 / span;
    // Between packets of one batch there is no time to measure.
    let fastest = if single {
        let runs = at[from..=to].windows(RUN + 1).map(|run| RUN as f64 / seconds(run[0], run[RUN]));
        runs.filter(|r| r.is_finite()).fold(whole, f64::max)
    } else {
        whole
    };
    let cross = 1.0 / (1.0 / fastest + STAMP_S / RUN as f64) > CROSS * whole;
    let sent = (train.sent_span_ns > 0 && train.sent > 1)
        .then(|| f64::from(train.sent - 1) / (train.sent_span_ns as f64 * 1e-9));
    Some(Rated { whole, fastest, cross, sent })
}

/// The rate at which a train was sent and that at which it came, packets per second.
fn spread(train: &Train) -> Option<(f64, f64)> {
    let at = &train.arrivals_ns;
    let (first, last) = (*at.first()?, *at.last()?);
    if at.len() < FEWEST_PACKETS || last <= first || train.sent < 2 || train.sent_span_ns == 0 {
        return None;
    }
    let sent = f64::from(train.sent - 1) / (train.sent_span_ns as f64 * 1e-9);
    Some((sent, (at.len() - 1) as f64 / seconds(first, last)))
}

fn seconds(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 * 1e-9
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evenly spaced, stamped when the coalescing timer fires.
    fn train(packets: u16, gap_ns: f64, coalesce_ns: u64) -> Train {
        let stamp = |at: u64| if coalesce_ns == 0 { at } else { at.div_ceil(coalesce_ns) * coalesce_ns };
        let arrivals_ns = (0..packets).map(|i| stamp(1_000_000 + (f64::from(i) * gap_ns) as u64)).collect();
        Train { sent: packets, arrivals_ns, ..Train::default() }
    }

    fn run(gap_ns: f64, coalesce_ns: u64) -> (Dispersion, usize) {
        let mut trains = Trains::default();
        while let Some(packets) = trains.next() {
            trains.add(&train(packets, gap_ns, coalesce_ns), 0.0);
        }
        (trains.dispersion(), trains.asked)
    }

    #[test]
    fn even_gaps_are_the_rate() {
        for gap in [120.0, 1200.0, 12_000.0, 120_000.0] {
            let (Dispersion::Known { capacity, sure, .. }, 5) = run(gap, 0) else { panic!("{gap}") };
            assert!((capacity * gap * 1e-9 - 1.0).abs() < 0.02, "{gap}: {capacity}");
            assert!(sure);
        }
    }

    #[test]
    fn a_receiver_that_wakes_late_and_coarse_stamps_are_no_others() {
        // 10 Gb/s, as a guest sees it whose clock ticks each 256 ns.
        let gaps = [
            512, 1792, 512, 1280, 1024, 1536, 1024, 1024, 1792, 768, 1280, 1536, 768, 1280, 1792, 512, 1280, 2048, 512,
            1024, 1280, 1536, 768, 1280, 1792, 768, 1024, 2048, 512, 1280, 1024,
        ];
        let mut arrivals_ns = vec![0u64];
        for gap in gaps {
            arrivals_ns.push(arrivals_ns.last().unwrap() + gap);
        }
        let mut trains = Trains::default();
        while trains.next().is_some() {
            trains.add(&Train { sent: 32, arrivals_ns: arrivals_ns.clone(), ..Train::default() }, 0.0);
        }
        let Dispersion::Known { mean, capacity, sure } = trains.dispersion() else { panic!() };
        assert!(
            (capacity * 1211.2e-9 - 1.0).abs() < 0.005 && (mean / capacity - 1.0).abs() < 1e-9 && sure,
            "{}",
            capacity * 1211.2e-9
        );
    }

    #[test]
    fn coalescing_takes_longer_trains_and_no_more() {
        // 1, 10, 40 Gb/s; 20 to 100 µs between interrupts.
        for (gap, timer) in [(12_000.0, 50_000), (1_200.0, 20_000), (1_200.0, 100_000), (300.0, 50_000)] {
            let (Dispersion::Known { capacity, .. }, asked) = run(gap, timer) else { panic!("{gap} {timer}") };
            assert!((capacity * gap * 1e-9 - 1.0).abs() < 0.07, "{gap} {timer}: {}", capacity * gap * 1e-9);
            assert!(asked <= 8);
        }
    }

    #[test]
    fn trains_of_any_length_are_read() {
        for packets in 0..50 {
            let mut trains = Trains::default();
            for _ in 0..3 {
                trains.add(&train(packets, 1_200.0, 0), 0.0);
            }
            assert_eq!(trains.dispersion() == Dispersion::Unknown, usize::from(packets) < FEWEST_PACKETS, "{packets}");
        }
    }

    #[test]
    fn one_batch_says_nothing() {
        assert_eq!(run(1_200.0, 10_000_000).0, Dispersion::Unknown);
        assert_eq!(Trains::default().dispersion(), Dispersion::Unknown);
    }

    #[test]
    fn one_train_decides_nothing() {
        let mut trains = Trains::default();
        for known in [false, true] {
            trains.add(&train(32, 12_000.0, 0), 0.0);
            assert_eq!(trains.dispersion() != Dispersion::Unknown, known);
        }
    }

    #[test]
    fn others_packets_between_are_seen_past() {
        let mut trains = Trains::default();
        while let Some(packets) = trains.next() {
            let mut t = train(packets, 1_200.0, 0);
            for at in t.arrivals_ns.iter_mut().skip(20) {
                *at += 20_000;
            }
            trains.add(&t, 0.0);
        }
        let Dispersion::Known { mean, capacity, sure } = trains.dispersion() else { panic!() };
        assert!(mean < 600_000.0 && (capacity * 1.2e-6 - 1.0).abs() < 0.02 && !sure, "{mean} {capacity}");
    }

    #[test]
    fn trains_at_the_rate_of_the_path_show_others() {
        let mut trains = Trains::default();
        let capacity = 80_000.0;
        while let Some((packets, over_ns)) = trains.next_spread(capacity, 0.0) {
            // Others take 30,000 packets per second.
            let came = train(packets, 1e9 / (capacity * capacity / (capacity + 30_000.0)), 0);
            let sent_span_ns = over_ns * u64::from(packets - 1) / u64::from(packets);
            trains.add(&Train { over_ns, sent_span_ns, ..came }, 0.0);
        }
        let others = trains.others(capacity).unwrap();
        assert!((others / 30_000.0 - 1.0).abs() < 0.01, "{others}");
        assert_eq!(trains.dispersion(), Dispersion::Unknown);
    }

    #[test]
    fn a_sender_no_faster_than_the_path_leaves_doubt() {
        let mut trains = Trains::default();
        while let Some(packets) = trains.next() {
            trains.add(&Train { sent_span_ns: 37_200, ..train(packets, 1_200.0, 0) }, 0.0);
        }
        assert!(matches!(trains.dispersion(), Dispersion::Known { sure: false, .. }));
    }
}
