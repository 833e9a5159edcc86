//! The capacity and the other traffic of a path, from the dispersion of packet trains.
//!
//! The paper takes "the average dispersion of five packet trains, using UDP probing packets" (section IV-B), after Dovrolis,
//! Ramanathan and Moore (INFOCOM 2001). Today's receivers coalesce interrupts and merge packets (NAPI, GRO), so timestamps
//! of neighbouring packets say nothing. The number of packets between the ends of two batches still does.

/// Number of trains that the paper averages over (section IV-B).
pub const TRAIN_COUNT: usize = 5;
/// Packets of a first train. Up to all of them queue at the bottleneck: a queue of 64 KB holds 32 of 1,500 bytes.
pub const FIRST_TRAIN_PACKETS: u16 = 32;
/// Packets of the longest train: 1 ms at 10 Gb/s. Longer trains are sent where shorter ones arrive in too few batches.
pub const MAX_TRAIN_PACKETS: u16 = 1024;
/// Most packets of a paced train at the rate of the path. If others take half of the path, half of the train queues: 48 KB in
/// packets of 1,500 bytes.
pub const MAX_PACED_PACKETS: u16 = 64;
/// Most packets of a paced train that asks whether its rate is free beside the transfer. If half of the capacity is asked for
/// and nothing of it is free, the whole train queues: 48 KB.
pub const MAX_ASKING_PACKETS: f64 = 32.0;
/// Least rate of a train that asks how much is free, packets per second, so that it takes at most 4 ms. If that exceeds the
/// capacity, the train tells no less: `Trains::free_beside` computes what is free from how far the path slows it. Trains that ask
/// whether a certain rate fits ([`Trains::fitted`]) are as slow as that rate.
pub const MIN_ASKING_PPS: f64 = MIN_PACED_PACKETS / MAX_PACED_S;
/// An asking train did not fit if it arrived more slowly than it was sent by this factor. The transfer's own bursts slow it by less.
const DID_NOT_FIT_FACTOR: f64 = 1.08;
/// A train was slowed if it arrived more slowly than it was sent by this factor. Less is the error of its stamps.
const SLOWED_FACTOR: f64 = 1.02;
/// Longest duration of a paced train, seconds. On slow paths it has fewer packets.
const MAX_PACED_S: f64 = 4e-3;
/// Fewest packets of a paced train.
pub const MIN_PACED_PACKETS: f64 = 16.0;
/// Packets of a paced train that may queue behind the transfer's own: a quarter of a queue of 64 KB.
const MAX_QUEUED_PACKETS: f64 = 11.0;
/// A transfer with this part of the capacity has all of it.
const ALL_OF_PATH: f64 = 0.9;
/// Ratio of TCP's rate at the end of an RTT to its mean rate during it, while it doubles each RTT: 2 ln 2.
pub const DOUBLING_RATIO: f64 = 1.386;
/// Number of back-to-back trains sent before giving up.
const MAX_TRAINS: usize = 12;
/// Gaps below this fraction of the mean gap are within a batch. Cross traffic that leaves half of the capacity stretches gaps by
/// at most a factor of two.
const WITHIN_BATCH: f64 = 0.3;
/// Fewest batches that a rate can be taken from: the first and the last are not used.
const MIN_BATCHES: usize = 4;
/// The first of this many parts of a train is left out. Its packets find the receiver asleep and are stamped late, which at
/// 10 Gb/s is 2% of the duration of 32 packets.
const WAKING_PARTS: usize = 8;
/// Fewest packets that a rate is taken from.
const MIN_PACKETS: usize = 8;
/// Packets over which the fastest passage is sought: few enough to fall between the packets of cross traffic.
const RUN_PACKETS: usize = 8;
/// If the fastest passage of a train exceeds its mean rate by this factor, packets of others came between.
const CROSS_FACTOR: f64 = 1.06;
/// Error of the receiver's timestamps, seconds: at 10 Gb/s almost the duration of a packet.
const TIMESTAMP_ERROR_S: f64 = 1e-6;
/// Fewer than half of `TRAIN_COUNT` suffice if their rates agree to this fraction.
const AGREEMENT: f64 = 0.02;
/// Trains whose fastest passages differ by more than this factor did not show the path's rate.
const CONSISTENT_FACTOR: f64 = 1.3;
/// Fewest trains that can agree.
const MIN_TRAINS: usize = 2;
/// The sender must have been faster than the arrivals by this factor, or the dispersion may be its own instead of the path's.
const SENDER_FASTER_FACTOR: f64 = 1.1;

/// How one packet train arrived.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Train {
    /// Time from handing the first packet to the sender's kernel to handing over the last, nanoseconds; 0 if unknown. A train
    /// from a sender slower than the path says nothing about the path.
    pub sent_span_ns: u64,
    /// Number of packets sent.
    pub sent: u16,
    /// Time over which the packets were to be spread, nanoseconds; 0 if they were sent back to back.
    pub over_ns: u64,
    /// The question that it was sent for, as in [`Action::SendTrain`](crate::Action::SendTrain).
    pub question: u32,
    /// Instants at which packets arrived, by the receiver's clock, in the order of arrival, nanoseconds. The kernel's own
    /// timestamps (`SO_TIMESTAMPNS`) are better than the reader's.
    pub arrivals_ns: Vec<u64>,
}

/// What back-to-back trains say about the path. Rates are packets per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Dispersion {
    /// There were too few packets or batches to tell. A longer train may say more.
    Unknown,
    /// The trains show the path's rate.
    Known {
        /// Mean over the trains, as in the paper. Cross traffic lowers it.
        mean: f64,
        /// Capacity: the median over the trains. Where others' packets came between, it is the median of the fastest passages.
        capacity: f64,
        /// Whether nothing hints at a higher capacity: no cross traffic was seen, and the sender was faster than the path.
        sure: bool,
    },
}

/// The rates of one back-to-back train, packets per second.
#[derive(Debug, Clone, Copy)]
struct Rated {
    /// Over the whole train.
    whole: f64,
    /// Over its fastest passage.
    fastest: f64,
    /// Whether others' packets came between, beyond what the errors of timestamps explain.
    cross: bool,
    /// At which it was sent, if known.
    sent: Option<f64>,
}

/// The rates of one paced train, packets per second. The packets of a paced train are spread evenly over a time, so that it is
/// sent at a chosen rate: at the start the rate of the path, later a rate of which it asks whether it is free.
#[derive(Debug, Clone, Copy)]
struct Paced {
    /// Rate at which it was sent.
    sent: f64,
    /// Rate at which it arrived.
    came: f64,
    /// The transfer beside it.
    own: Own,
}

/// The transfer beside a train, packets per second.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Own {
    /// Its rate, as far as it may have grown.
    pub rate: f64,
    /// Its rate just before the train arrived.
    pub lately: f64,
}

/// The trains so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trains {
    /// Back-to-back trains that arrived.
    rated: Vec<Rated>,
    /// Whether those agreed that came before they were sent again.
    were_consistent: bool,
    /// Number of back-to-back trains sent.
    sent_back_to_back: usize,
    /// Packets of the next back-to-back train, once a first one was too short.
    packets: Option<u16>,
    /// Paced trains that arrived.
    paced: Vec<Paced>,
    /// Number of paced trains sent.
    sent_paced: usize,
    /// Number of the question that paced trains ask: whether there is room beside the transfer. 0 for those of the start, which
    /// are over once it is another.
    question: u32,
    /// Most packets of a train that asks.
    most_asking: f64,
}

impl Trains {
    /// Packets of the next back-to-back train, if one is wanted.
    pub fn next(&mut self) -> Option<u16> {
        if self.rated.len() >= TRAIN_COUNT || self.sent_back_to_back >= MAX_TRAINS {
            return None;
        }
        self.sent_back_to_back += 1;
        Some(self.packets.unwrap_or(FIRST_TRAIN_PACKETS))
    }

    /// Whether no further back-to-back train is wanted.
    pub fn done(&self) -> bool {
        self.rated.len() >= TRAIN_COUNT || self.sent_back_to_back >= MAX_TRAINS
    }

    /// The next paced train at the rate of the path, if one is wanted: its packets, and its duration in nanoseconds. The transfer
    /// has `own` packets per second now, and twice as many once the train is on its way.
    pub fn next_paced(&mut self, packets_per_second: f64, own: f64) -> Option<(u16, u64)> {
        if self.sent_paced >= TRAIN_COUNT {
            return None;
        }
        self.sent_paced += 1;
        let most = (MAX_QUEUED_PACKETS * packets_per_second / (2.0 * own).max(1.0)).min(f64::from(MAX_PACED_PACKETS));
        let packets = (MAX_PACED_S * packets_per_second).min(most).max(MIN_PACED_PACKETS) as u16;
        Some((packets, (f64::from(packets) / packets_per_second.max(1.0) * 1e9).max(1.0) as u64))
    }

    /// Whether further paced trains are wanted.
    pub fn wants_paced(&self) -> bool {
        self.sent_paced < TRAIN_COUNT
    }

    /// Makes further paced trains of at most so many packets ask whether their rate is free beside the transfer.
    pub fn ask(&mut self, most: f64) {
        self.paced.clear();
        self.question = self.question.wrapping_add(1).max(1);
        (self.sent_paced, self.most_asking) = (0, most);
    }

    /// The next asking train at this rate, if one is wanted: its packets, and its duration in nanoseconds.
    pub fn next_asking(&mut self, packets_per_second: f64) -> Option<(u16, u64)> {
        if self.sent_paced >= TRAIN_COUNT {
            return None;
        }
        self.sent_paced += 1;
        let packets =
            (MAX_PACED_S * packets_per_second).clamp(MIN_PACED_PACKETS, self.most_asking.max(MIN_PACED_PACKETS)) as u16;
        Some((packets, (f64::from(packets) / packets_per_second.max(1.0) * 1e9).max(1.0) as u64))
    }

    /// Makes back-to-back trains measure the capacity again.
    pub fn measure_again(&mut self) {
        self.were_consistent = self.are_consistent();
        self.rated.clear();
        (self.sent_back_to_back, self.packets) = (0, None);
    }

    /// Whether asking trains arrived as they were sent. They did not if most of them are missing.
    pub fn fitted(&self) -> bool {
        let mut slower: Vec<f64> = self.paced.iter().map(|train| train.sent / train.came).collect();
        slower.len() * 2 >= TRAIN_COUNT && median(&mut slower) <= DID_NOT_FIT_FACTOR
    }

    /// Whether the start's paced trains are over.
    pub fn start_is_over(&self) -> bool {
        self.question > 0
    }

    /// Number of the question that paced trains ask now.
    pub fn question(&self) -> u32 {
        self.question
    }

    /// The rate that others leave free, packets per second, according to asking trains beside a transfer at the rate `own`. It
    /// is the whole capacity if the trains arrived as they were sent. None if most of them are missing.
    pub fn free_beside(&self, capacity: f64, own: f64) -> Option<f64> {
        if self.paced.len() * 2 < TRAIN_COUNT {
            return None;
        }
        if self.fitted() {
            return Some(capacity);
        }
        // As in `others`, with the transfer counted among them.
        let mut taken: Vec<f64> = self.paced.iter().map(|train| train.sent * (capacity / train.came - 1.0)).collect();
        Some((capacity - (median(&mut taken) - own).max(0.0)).max(0.0))
    }

    /// What others take of a path with this capacity, in packets per second, once enough paced trains have been sent at its rate.
    ///
    /// A bottleneck of capacity c that serves packets in the order of arrival lets a flow of rate r, beside others of rate x,
    /// leave at the rate c·r/(r + x) (the fluid model of TOPP: Melander, Björkman and Gunningberg, 2000).
    pub fn others(&self, capacity: f64) -> Option<f64> {
        if self.paced.len() * 2 < TRAIN_COUNT {
            return None;
        }
        // Slow start sends at twice its rate or not at all (`tcp_pacing_ss_ratio`), so a train meets anything from nothing to
        // twice the transfer's rate. Others take what is consistent with all trains.
        // A train that was sent below the capacity and arrived as it was sent met nothing that it could see.
        let slowed = |train: &Paced| train.sent / train.came > SLOWED_FACTOR;
        let taken = |train: &Paced| {
            if slowed(train) { (train.sent * (capacity / train.came - 1.0)).max(0.0) } else { 0.0 }
        };
        // One that has all of the path sends all the time.
        let met = |train: &Paced| match train.own.lately >= ALL_OF_PATH * capacity {
            true => (train.own.lately, train.own.lately),
            false => (0.0, 2.0 * train.own.rate),
        };
        let (mut least, mut most) = (0.0f64, f64::INFINITY);
        for train in &self.paced {
            let (met_least, met_most) = met(train);
            least = least.max(taken(train) - met_most);
            most = most.min((taken(train) - met_least).max(0.0));
        }
        if least <= most {
            return Some((least + most) / 2.0);
        }
        // Others send in bursts too, so no value is consistent with all trains.
        let others = self.paced.iter().map(|train| (taken(train) - train.own.rate).max(0.0));
        Some(median(&mut others.collect::<Vec<_>>()))
    }

    /// Whether all paced trains have arrived.
    pub fn all_paced_arrived(&self) -> bool {
        self.paced.len() >= TRAIN_COUNT
    }

    /// Takes in a train, and the transfer beside it.
    pub fn add(&mut self, train: &Train, own: Own) {
        if train.over_ns > 0 {
            // One that answers an earlier question says nothing of this one.
            if self.paced.len() < TRAIN_COUNT
                && train.question == self.question
                && let Some((sent, came)) = paced_rates(train)
            {
                self.paced.push(Paced { sent, came, own });
            }
            return;
        }
        if self.rated.len() >= TRAIN_COUNT {
            return;
        }
        match rate(train) {
            Some(rated) => self.rated.push(rated),
            // The train arrived in too few batches; only a longer one has more. One of which most was lost would lose more.
            None if train.arrivals_ns.len() * 2 >= usize::from(train.sent) => {
                let now = self.packets.unwrap_or(FIRST_TRAIN_PACKETS);
                self.packets = Some(now.saturating_mul(4).min(MAX_TRAIN_PACKETS));
            }
            None => {}
        }
    }

    /// Whether the fastest passages of back-to-back trains agree. A path whose delay varies stretches and compresses them. While
    /// the capacity is measured again, this is about the trains before.
    pub fn are_consistent(&self) -> bool {
        if self.rated.len() < MIN_TRAINS {
            return self.were_consistent;
        }
        let fastest = || self.rated.iter().map(|r| r.fastest);
        let (least, most) = (fastest().fold(f64::INFINITY, f64::min), fastest().fold(0.0, f64::max));
        most <= CONSISTENT_FACTOR * least
    }

    /// What the back-to-back trains say together.
    pub fn dispersion(&self) -> Dispersion {
        let mut whole: Vec<f64> = self.rated.iter().map(|r| r.whole).collect();
        let (Some(low), Some(high)) = (whole.iter().copied().reduce(f64::min), whole.iter().copied().reduce(f64::max))
        else {
            return Dispersion::Unknown;
        };
        if whole.len() < MIN_TRAINS || whole.len() * 2 < TRAIN_COUNT && high > low * (1.0 + AGREEMENT) {
            return Dispersion::Unknown;
        }
        // The mean of dispersions, hence the harmonic mean of rates.
        let mean = whole.len() as f64 / whole.iter().map(|r| 1.0 / r).sum::<f64>();
        let mut fastest: Vec<f64> = self.rated.iter().map(|r| r.fastest).collect();
        let (middle, fast) = (median(&mut whole), median(&mut fastest));
        let cross = self.rated.iter().filter(|r| r.cross).count() * 2 > self.rated.len();
        let faster = self.rated.iter().all(|r| r.sent.is_none_or(|sent| sent >= SENDER_FASTER_FACTOR * middle));
        Dispersion::Known { mean, capacity: if cross { fast } else { middle }, sure: !cross && faster }
    }
}

/// Rates of a back-to-back train: packets between the ends of its first and its second-last batch, over that time.
///
/// The first batch began at an unknown moment before its packets were stamped, and the train's end may have cut the last one
/// short. So both ends of the measured time are ends of a batch. Without coalescing every packet is a batch, and the first
/// eighth of them is left out (`WAKING_PARTS`).
fn rate(train: &Train) -> Option<Rated> {
    let at = &train.arrivals_ns;
    let (first, last) = (*at.first()?, *at.last()?);
    if at.len() < MIN_PACKETS || last <= first || at.windows(2).any(|w| w[1] < w[0]) {
        return None;
    }
    let gap = (last - first) as f64 / (at.len() - 1) as f64;
    // Index of the last packet of each batch.
    let mut ends: Vec<usize> = (0..at.len() - 1).filter(|&i| (at[i + 1] - at[i]) as f64 > WITHIN_BATCH * gap).collect();
    ends.push(at.len() - 1);
    if ends.len() < MIN_BATCHES {
        return None;
    }
    // Whether almost every packet is a batch of its own.
    let single = ends.len() * 10 >= at.len() * 9;
    let (from, to) = (ends[if single { ends.len() / WAKING_PARTS } else { 0 }], ends[ends.len() - 2]);
    let packets = to - from;
    let span = seconds(at[from], at[to]);
    if packets < MIN_PACKETS / 2 || span <= 0.0 {
        return None;
    }
    let whole = packets as f64 / span;
    // Packets of one batch have no time between them that could be measured.
    let fastest = if single {
        let runs =
            at[from..=to].windows(RUN_PACKETS + 1).map(|run| RUN_PACKETS as f64 / seconds(run[0], run[RUN_PACKETS]));
        runs.filter(|r| r.is_finite()).fold(whole, f64::max)
    } else {
        whole
    };
    let cross = 1.0 / (1.0 / fastest + TIMESTAMP_ERROR_S / RUN_PACKETS as f64) > CROSS_FACTOR * whole;
    let sent = (train.sent_span_ns > 0 && train.sent > 1)
        .then(|| f64::from(train.sent - 1) / (train.sent_span_ns as f64 * 1e-9));
    Some(Rated { whole, fastest, cross, sent })
}

/// The rates at which a paced train was sent and arrived, packets per second.
fn paced_rates(train: &Train) -> Option<(f64, f64)> {
    let at = &train.arrivals_ns;
    let (first, last) = (*at.first()?, *at.last()?);
    if at.len() < MIN_PACKETS || last <= first || train.sent < 2 || train.sent_span_ns == 0 {
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
            trains.add(&train(packets, gap_ns, coalesce_ns), Own::default());
        }
        (trains.dispersion(), trains.sent_back_to_back)
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
            trains.add(&Train { sent: 32, arrivals_ns: arrivals_ns.clone(), ..Train::default() }, Own::default());
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
                trains.add(&train(packets, 1_200.0, 0), Own::default());
            }
            assert_eq!(trains.dispersion() == Dispersion::Unknown, usize::from(packets) < MIN_PACKETS, "{packets}");
        }
    }

    #[test]
    fn one_batch_says_nothing() {
        assert_eq!(run(1_200.0, 10_000_000).0, Dispersion::Unknown);
        assert_eq!(Trains::default().dispersion(), Dispersion::Unknown);
    }

    #[test]
    fn a_train_that_was_lost_is_not_followed_by_a_longer_one() {
        let mut trains = Trains::default();
        let of = |arrived: usize, gap: f64, coalesce: u64| {
            let mut train = train(32, gap, coalesce);
            train.arrivals_ns.truncate(arrived);
            train
        };
        for arrived in [0, 5, 15] {
            trains.add(&of(arrived, 1_200.0, 10_000_000), Own::default());
            assert_eq!(trains.next(), Some(FIRST_TRAIN_PACKETS), "{arrived}");
        }
        trains.add(&of(32, 1_200.0, 10_000_000), Own::default());
        assert_eq!(trains.next(), Some(4 * FIRST_TRAIN_PACKETS));
    }

    #[test]
    fn what_answers_an_earlier_question_is_dropped() {
        let mut trains = Trains::default();
        let paced =
            |question: u32| Train { over_ns: 400_000, sent_span_ns: 380_000, question, ..train(32, 12_000.0, 0) };
        trains.ask(MAX_ASKING_PACKETS);
        let first = trains.question();
        trains.ask(MAX_ASKING_PACKETS);
        for _ in 0..TRAIN_COUNT {
            trains.add(&paced(0), Own::default());
            trains.add(&paced(first), Own::default());
        }
        assert_eq!((trains.paced.len(), trains.free_beside(8e4, 0.0)), (0, None));
        for _ in 0..TRAIN_COUNT {
            trains.add(&paced(trains.question()), Own::default());
        }
        assert!(trains.all_paced_arrived());
    }

    #[test]
    fn trains_that_measure_again_are_as_consistent_as_those_before_until_they_arrive() {
        let mut trains = Trains::default();
        assert!(!trains.are_consistent());
        for gap in [12_000.0, 12_100.0] {
            trains.add(&train(32, gap, 0), Own::default());
        }
        trains.measure_again();
        assert!(trains.are_consistent());
        for gap in [12_000.0, 24_000.0] {
            trains.add(&train(32, gap, 0), Own::default());
        }
        assert!(!trains.are_consistent());
    }

    #[test]
    fn one_train_decides_nothing() {
        let mut trains = Trains::default();
        for known in [false, true] {
            trains.add(&train(32, 12_000.0, 0), Own::default());
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
            trains.add(&t, Own::default());
        }
        let Dispersion::Known { mean, capacity, sure } = trains.dispersion() else { panic!() };
        assert!(mean < 600_000.0 && (capacity * 1.2e-6 - 1.0).abs() < 0.02 && !sure, "{mean} {capacity}");
    }

    #[test]
    fn trains_at_the_rate_of_the_path_show_others() {
        let mut trains = Trains::default();
        let capacity = 80_000.0;
        while let Some((packets, over_ns)) = trains.next_paced(capacity, 0.0) {
            // Others take 30,000 packets per second.
            let came = train(packets, 1e9 / (capacity * capacity / (capacity + 30_000.0)), 0);
            let sent_span_ns = over_ns * u64::from(packets - 1) / u64::from(packets);
            trains.add(&Train { over_ns, sent_span_ns, ..came }, Own::default());
        }
        let others = trains.others(capacity).unwrap();
        assert!((others / 30_000.0 - 1.0).abs() < 0.01, "{others}");
        assert_eq!(trains.dispersion(), Dispersion::Unknown);
    }

    #[test]
    fn a_sender_no_faster_than_the_path_leaves_doubt() {
        let mut trains = Trains::default();
        while let Some(packets) = trains.next() {
            trains.add(&Train { sent_span_ns: 37_200, ..train(packets, 1_200.0, 0) }, Own::default());
        }
        assert!(matches!(trains.dispersion(), Dispersion::Known { sure: false, .. }));
    }
}
