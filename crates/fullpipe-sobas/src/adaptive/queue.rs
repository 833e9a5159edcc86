//! The bottleneck's queue: how long it may stand, and how deep it is known to be.

use super::measure::longest_s;
use super::params::SIGHT;
use crate::network_model::NetworkModel;

/// How long a queue is let stand.
struct Params {
    /// Least standing queue, packets. The bursts of other traffic make as much.
    target_packets: f64,
    /// Least standing queue as a fraction of the RTT. What happened within an RTT cannot be undone, and other traffic varies
    /// meanwhile.
    target_rtts: f64,
    /// Longest standing queue that depth alone justifies, seconds: a third of what the paper's transfers added to the RTT of its
    /// gigabit path (section V-A). Longer rate probes are told from TCP's own bursts sooner.
    max_target_s: f64,
    /// Least standing queue however shallow the bottleneck's queue is, seconds, or rate probes would show nothing. At 1 Gb/s it
    /// is 38 KB; a millisecond would overflow a queue of 100 KB.
    min_target_s: f64,
    /// A queue forgives a longer delay if it is known to hold this many times as much.
    deeper: f64,
    /// A transfer with next to nothing of the path lets the queue stand longer by this many times the target.
    small_share_factor: f64,
    /// Limit of that addition, seconds.
    small_share_max_s: f64,
    /// Limit of that queue as a fraction of the depth that is known to do no harm. A transfer with half of the path or more is
    /// limited to half of this.
    small_share_of_depth: f64,
    /// The queue is too long above this multiple of the target.
    high: f64,
    /// The queue has gone below this multiple of the target.
    low: f64,
    /// The queue has also gone below this many of TCP's own bursts, up to `low_max` of the target.
    low_bursts: f64,
    /// Limit for `low_bursts`, as a multiple of the target.
    low_max: f64,
    /// First rate probe, bits: half of a queue of 64 KB.
    first_probe_bits: f64,
    /// Factor by which the target recovers per rate probe without a loss.
    recovery: f64,
    /// A rate probe of at least this length, as a delay, is seen well enough, seconds.
    clear_probe_s: f64,
}

const PARAMS: Params = Params {
    target_packets: 8.0,
    target_rtts: 0.02,
    max_target_s: 1e-3,
    min_target_s: 3e-4,
    deeper: 3.0,
    small_share_factor: 3.0,
    small_share_max_s: 10e-3,
    small_share_of_depth: 2.0 / 3.0,
    high: 2.0,
    low: 0.4,
    low_bursts: 1.2,
    low_max: 0.6,
    first_probe_bits: 32_768.0 * 8.0,
    recovery: 1.05,
    clear_probe_s: 2.5e-4,
};

/// The bottleneck's queue. Its length is a delay, in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queue {
    /// Standing queue to keep.
    pub target: f64,
    /// Standing queue to keep when nothing speaks for a longer one; set while a longer one stands.
    usual: Option<f64>,
    /// Longest queue that was seen without a loss.
    pub depth: f64,
    /// Largest rate probe that is known to do no harm, bits.
    pub probe_bits: f64,
}

impl Queue {
    pub fn new() -> Queue {
        Queue { target: PARAMS.min_target_s, usual: None, depth: 0.0, probe_bits: PARAMS.first_probe_bits }
    }

    /// The target for a path of this capacity in bit/s.
    fn target_at(&self, model: &NetworkModel, capacity: f64) -> f64 {
        let packets = PARAMS.target_packets * f64::from(model.config.mss) * 8.0 / capacity.max(1.0);
        packets.max(self.forgiven()).max(Queue::least_target(model))
    }

    /// The least target for a path of this RTT.
    pub fn least_target(model: &NetworkModel) -> f64 {
        (PARAMS.target_rtts * model.probes.base_ns() as f64 * 1e-9).max(PARAMS.min_target_s)
    }

    /// Sets the target for a path of this capacity in bit/s.
    pub fn set_target(&mut self, model: &NetworkModel, capacity: f64) {
        self.target = self.target_at(model, capacity);
    }

    /// Target that the known depth forgives.
    fn forgiven(&self) -> f64 {
        (self.depth / PARAMS.deeper).min(PARAMS.max_target_s)
    }

    /// Takes in the latest delays, which caused no loss.
    pub fn observe(&mut self, model: &NetworkModel, now: u64) {
        self.depth = self.depth.max(longest_s(model, now, SIGHT.standing_ns));
        self.target = self.target.max(self.forgiven());
    }

    /// The queue overflowed, so it is no deeper than the longest delay that was seen.
    pub fn overflowed(&mut self, longest: f64) {
        self.depth = self.depth.min(longest);
        if longest >= SIGHT.visible_s {
            self.target = self.target.min(longest / 3.0).max(PARAMS.min_target_s);
        }
        self.probe_bits = (self.probe_bits / 4.0).max(PARAMS.first_probe_bits);
    }

    /// A rate probe caused no loss. `delay` is its volume as a delay.
    pub fn probed(&mut self, model: &NetworkModel, capacity: f64, delay: f64) {
        // A queue of 64 KB would not forgive a probe much longer than the shortest visible one, so probes grow further only
        // where the queue is known to hold more.
        if delay < PARAMS.clear_probe_s || PARAMS.deeper * delay < self.depth {
            self.probe_bits *= 2.0;
        }
        self.target = (self.target * PARAMS.recovery).min(self.target_at(model, capacity));
    }

    /// Starts to let a longer queue stand.
    pub fn raise(&mut self, target: f64) {
        self.usual.get_or_insert(self.target);
        self.target = target;
    }

    /// Returns from a longer queue that was tried to an earlier target, which may be a longer one too.
    pub fn return_to(&mut self, target: f64) {
        self.target = target;
        self.usual = self.usual.filter(|usual| *usual < target);
    }

    /// Returns to the usual target. Returns whether a longer queue stood.
    pub fn lower(&mut self) -> bool {
        let Some(usual) = self.usual.take() else { return false };
        self.target = self.target.min(usual);
        true
    }

    /// Standing queue to keep when nothing speaks for a longer one.
    fn usual(&self) -> f64 {
        self.usual.unwrap_or(self.target)
    }

    /// Standing queue to keep for a transfer that has this part of the capacity.
    ///
    /// A transfer with less of the path lets a longer queue stand, so its rate rises while that of a transfer with more falls.
    /// Transfers that all do so converge to equal shares, as those of FAST do (Jin, Wei and Low, INFOCOM 2004), whose
    /// rates are in inverse proportion to the delay that each aims at.
    pub fn stand(&self, part: f64) -> f64 {
        if self.usual.is_some() || self.depth <= PARAMS.deeper * self.target {
            return self.target;
        }
        let less = 1.0 - part;
        let forgiven = PARAMS.small_share_of_depth * less.max(0.5) * self.depth;
        let most = forgiven.min(self.target + PARAMS.small_share_max_s);
        (self.target * (1.0 + PARAMS.small_share_factor * less)).min(most).max(self.target)
    }

    /// A longer queue than this is too long. One of TCP's own bursts lasts `burst` seconds.
    pub fn high(&self, part: f64, burst: f64) -> f64 {
        (self.stand(part) + (PARAMS.high - 1.0) * self.usual()).max(burst + SIGHT.visible_s)
    }

    /// A shorter queue than this has gone. TCP's own bursts, of `burst` seconds, may leave as much.
    pub fn low(&self, burst: f64) -> f64 {
        let usual = self.usual();
        (PARAMS.low * usual).max((PARAMS.low_bursts * burst).min(PARAMS.low_max * usual))
    }

    /// Queue that the window allows for while pacing limits the rate.
    pub fn window_slack(&self, part: f64) -> f64 {
        PARAMS.high * self.stand(part)
    }
}
