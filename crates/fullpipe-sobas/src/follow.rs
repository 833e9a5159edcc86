//! Beyond the paper: pacing rate and window from the capacity, then whatever the path has to give.
//!
//! - `Estimate`, `Start`: trains tell the capacity C'; TCP starts up beneath a pacing rate just below C' and
//!   the paper's S = 1.2·C'·T. Doubling under a pacing rate ends at it, without a burst.
//! - `Hold`: C' was reached and no queue stands. Nothing is tried: a queue of 64 KB would not forgive it.
//! - `Drain`: a queue stands, so the rate received is exactly what the path has to give. Less is sent until
//!   the queue has gone.
//! - `Follow`: less than C' is to be had. A short queue is kept standing: while it stands, nothing is left
//!   free. Once it has gone, a *pulse* of the same size is added to the rate. If the queue comes back, the
//!   pulse has refilled it; if not, others have left and the rate grows by the pulse's. A rate that has
//!   overflowed the queue is kept beneath until it is seen that others have left.
//! - `Start`, once more: losses have left TCP's window far below the rate, nothing more is lost and no queue
//!   stands. TCP alone would make up a segment per round trip.
//! - `Free`: BBR or Scalable beside others. Where they yield to it, it has more than a limit would leave it.
//! - `Yield`, `Disabled`: probes are lost. Less is sent for the length of a hundred probes; if they are
//!   still lost, others congest the path, and limits would only give it to them (section III-B).
//!
//! Without trains C' is unknown: TCP starts up unlimited, until a queue stands or segments are lost, and
//! C' is the rate received then (a maximum filter on the delivery rate, as BBR's BtlBw).
//!
//! Constants here and in the parts that name neither the paper nor a kernel file are fullpipe's own, found by experiment in
//! the testbed: on the paths of `docs/explanation/sobas-results.md`, and where cross traffic changes (`lab/sobas/changes.py`).

mod ceiling;
mod drains;
mod free;
mod lift;
mod losses;
mod pulses;
mod restarts;

use ceiling::{Ceiling, Patience};
use drains::{SHRUNK, STUCK, Stuck};
use free::Trial;
use lift::Lift;
use pulses::{DEEPER, FIRST_BUDGET, Pulse, SENDER_LIMITED};
use restarts::Restart;

use crate::Senses;
use crate::paper::{START_FACTOR, give_up_at};
use crate::probes::PROBE_EVERY_NS;
use crate::trains::Dispersion;
use crate::words::{State, Why};

/// A pacing rate that no path has, bit/s: asks TCP to pace at its own rate, twice the window per RTT in slow
/// start (`tcp_pacing_ss_ratio`), so that not every acknowledgment releases a burst.
pub const SMOOTH_BPS: u64 = 1_000_000_000_000;
/// Pacing below the capacity: five trains are right within 2%.
const BELOW: f64 = 0.98;
/// Others that take less than this part of the capacity are not told from chance.
const SHARED: f64 = 0.08;
/// However much they take: trains are few, so no less than this part is tried.
const LEAST_SHARE: f64 = 0.1;
/// Start below what the trains leave: they are few.
const BELOW_SHARED: f64 = 0.95;
/// A queue stands if no probe of the last so many, plus one, escaped it.
const STANDING_NS: u64 = 45_000_000;
/// The same while TCP doubles its window each RTT.
const STANDING_START_NS: u64 = 35_000_000;
/// Least standing queue, packets: others' bursts make as much.
const TARGET_PACKETS: f64 = 8.0;
/// And at least this part of the RTT: what is older than an RTT can't be undone, and others' traffic
/// wanders in the meantime.
const TARGET_RTT: f64 = 0.02;
/// So many times longer, and once more, is the queue that who has next to nothing of the path lets stand,
const LESS: f64 = 3.0;
/// but longer by no more than this, seconds, and
const MOST_LESS_S: f64 = 10e-3;
/// no longer than this part of what is known to do no harm: who has half of the path or more lets half of that stand.
const FORGIVES: f64 = 2.0 / 3.0;
/// The rate of who has next to nothing falls by no more than this part in a round: what a queue grows by is measured by
/// the capacity, and would be all of it.
const LEAST_FALL: f64 = 0.09;
/// That of others by no more than this one.
const MOST_FALL: f64 = 0.5;
/// Above this multiple of the target the queue is too long,
const HIGH: f64 = 2.0;
/// below this one it has gone.
const LOW: f64 = 0.4;
/// or this one, where so many of TCP's own bursts are as long.
const LOW_BURSTS: f64 = 0.6;
const BURSTS: f64 = 1.2;
/// Share of the growth of the queue that is taken back at once.
const DAMP: f64 = 0.7;
/// Share of the distance to the target that is made up per round.
const PULL: f64 = 0.25;
/// A pulse shorter than this, in delay, can't be told from the timestamps' noise, seconds.
const VISIBLE_S: f64 = 2e-4;
/// A queue that is known to be deep may stand so long, seconds: a third of what the paper's transfers added to the
/// RTT of its gigabit path (section V-A). Longer pulses are told from TCP's own bursts sooner.
const MOST_TARGET_S: f64 = 1e-3;
/// However shallow the queue: no less than this is kept standing, or pulses show nothing, seconds. At 1 Gb/s it is
/// 38 KB; a millisecond would overflow a queue of 100 KB.
const LEAST_TARGET_S: f64 = 3e-4;
/// Received above this part of it: started up.
const STARTED: f64 = 0.95;
/// A rate of this part of the most that is ever tried is as good.
const FILLED: f64 = 0.97;
/// Most that a paced sender may hand to the line at once, bytes per stream: a quarter of a queue of 64 KB.
pub const BURST: u32 = 16_384;
/// What TCP does without being asked for less: `GSO_LEGACY_MAX_SIZE`, bytes.
const TCP_BURST: f64 = 65_536.0;
/// And in time (`tcp_tso_autosize`: `sk_pacing_shift` is 10), seconds.
const BURST_S: f64 = 1e-3;

/// The adaptive law.
#[derive(Debug, Clone)]
pub(crate) struct Follow {
    pub state: State,
    began: u64,
    /// What is aimed at, bit/s; none: no limit.
    rate: Option<f64>,
    /// What is aimed at once the queue has drained.
    after: f64,
    /// What is believed, bit/s.
    capacity: Option<f64>,
    /// What the trains said, bit/s.
    trained: f64,
    /// Whether nothing above it is tried.
    sure: bool,
    /// Where a queue overflowed before it could be seen.
    ceiling: Option<Ceiling>,
    /// For how long it stays, if it leaves little.
    patience: Patience,
    /// Delay of the queue to keep standing, seconds.
    target: f64,
    /// When the next decision is due.
    judge: u64,
    /// When which queue delay stood last, seconds.
    last_queue: Option<(u64, f64)>,
    pulse: Option<Pulse>,
    /// Largest pulse that is known to do no harm, bits.
    budget: f64,
    /// Retransmissions dealt with.
    retransmits: u64,
    /// Until when further ones are of the same event.
    deaf_until: u64,
    /// Drains in a row that have changed nothing.
    stuck: Stuck,
    /// Since when no probe has been lost.
    clean_since: u64,
    /// Whether the record says already that no more is to be had.
    told_full: bool,
    /// Pulses in a row that passed freely.
    passed: usize,
    /// Rate before the last pulse's success: what the sender must have shown that it fills.
    settled: f64,
    /// What others take, as trains at the path's own rate say, has been dealt with.
    asked_others: bool,
    /// Others use the path too.
    shared: bool,
    /// They did, and pulses have shown that they have left.
    left: bool,
    /// BBR or Scalable without a limit.
    trial: Option<Trial>,
    /// A longer queue, where others yield to it.
    lift: Lift,
    /// Losses while starting up.
    start_losses: u32,
    /// Longest delay of the queue that was seen without loss, seconds.
    depth: f64,
    /// TCP's slow start, once more.
    pub restart: Restart,
}

impl Follow {
    pub fn new(now: u64) -> Follow {
        Follow {
            state: State::Estimate,
            began: now,
            rate: None,
            after: 0.0,
            capacity: None,
            trained: 0.0,
            sure: false,
            ceiling: None,
            patience: Patience::default(),
            target: LEAST_TARGET_S,
            judge: now,
            last_queue: None,
            pulse: None,
            budget: FIRST_BUDGET,
            retransmits: 0,
            deaf_until: now,
            stuck: Stuck::default(),
            clean_since: now,
            told_full: false,
            passed: 0,
            settled: 0.0,
            asked_others: false,
            shared: false,
            left: false,
            trial: None,
            lift: Lift::default(),
            start_losses: 0,
            depth: 0.0,
            restart: Restart::default(),
        }
    }

    /// What the trains said the capacity is, packets per second.
    pub fn trained_pps(&self, s: &Senses) -> Option<f64> {
        (self.trained > 0.0).then(|| self.trained / s.packet_bits())
    }

    /// Takes what trains at the path's own rate say of others.
    fn others(&mut self, now: u64, s: &Senses) -> Option<Why> {
        if self.asked_others {
            return None;
        }
        let others = s.payload_bps(s.trains.others(self.trained_pps(s)?)?);
        self.asked_others = s.trains.all_spread();
        let before = self.shared;
        self.shared = others >= SHARED * self.trained;
        if self.shared {
            self.rate = Some(BELOW_SHARED * (self.trained - others).max(LEAST_SHARE * self.trained));
        } else if before {
            self.rate = Some(self.cap().min(BELOW * self.trained));
        }
        if self.shared
            && self.asked_others
            && let Some(why) = self.free_at_once(now, s, self.trained - others)
        {
            return Some(why);
        }
        (self.shared && !before).then_some(Why::Shared)
    }

    pub fn wake(&self) -> u64 {
        self.pulse.map_or(u64::MAX, |p| if p.on { p.until } else { p.judge })
    }

    pub fn capacity(&self) -> Option<f64> {
        self.capacity
    }

    /// Pacing rate, bit/s.
    pub fn pacing(&self) -> Option<f64> {
        if matches!(self.state, State::Disabled | State::Free) {
            return None;
        }
        let Some(rate) = self.rate else { return Some(SMOOTH_BPS as f64) };
        Some(rate + self.pulse.filter(|p| p.on).map_or(0.0, |p| p.extra))
    }

    /// Window, bytes.
    pub fn window(&self, s: &Senses) -> f64 {
        let largest = s.config.largest as f64;
        let Some(rate) = self.rate else { return largest };
        let mut t = s.probes.base_ns() as f64 * 1e-9;
        // The delay may be the path's own: a window for the old one would itself lower the rate.
        if s.config.pacing && self.stuck.drains > 0 {
            t += self.stuck.queue;
        }
        let pulse = self.pulse.map_or(0.0, |p| p.volume) / 8.0;
        s.fit(match self.state {
            State::Disabled | State::Estimate | State::Free => largest,
            State::Start if self.shared => START_FACTOR * rate / 8.0 * t,
            State::Start => START_FACTOR * self.capacity.unwrap_or(rate) / 8.0 * t,
            // The window alone: what is in flight beyond rate·T is the queue.
            State::Hold if !s.config.pacing => rate / BELOW / 8.0 * t,
            _ if !s.config.pacing => rate / 8.0 * (t + self.stand()) + pulse,
            // Pacing limits; the window stops what would come if the path suddenly gave less.
            _ => rate / BELOW / 8.0 * (t + HIGH * self.stand()) + pulse + TCP_BURST * f64::from(s.config.streams),
        })
    }

    fn enter(&mut self, state: State, why: Why) -> Option<Why> {
        self.state = state;
        Some(why)
    }

    /// From an order to its effect's return. The sender's word of its TCP is half a round trip older than a probe, and
    /// takes half of one to come.
    fn echo(s: &Senses) -> u64 {
        s.probes.base_ns() * if s.config.trains { 1 } else { 2 }
    }

    /// The same, and the probes that show it.
    fn round(s: &Senses) -> u64 {
        Self::echo(s) + STANDING_NS
    }

    fn cap(&self) -> f64 {
        if self.sure { self.capacity.map_or(f64::INFINITY, |c| BELOW * c) } else { f64::INFINITY }
    }

    /// A step; why, if something was decided that belongs in the record.
    pub fn step(&mut self, now: u64, s: &mut Senses) -> Option<Why> {
        if let Some(pulse) = self.pulse.as_mut()
            && now >= pulse.until
        {
            pulse.on = false;
        }
        if s.retransmits > self.retransmits {
            self.restart.lost(now);
        }
        if let Some(why) = self.congestion(now, s).or_else(|| self.loss(now, s)).or_else(|| self.start_again(now, s)) {
            return Some(why);
        }
        self.depth = self.depth.max(s.probes.longest_ns(now.saturating_sub(STANDING_NS)) as f64 * 1e-9);
        self.target = self.target.max(self.deep());
        match self.state {
            State::Estimate => self.estimate(now, s),
            State::Start => self.start(now, s),
            State::Hold => self.hold(now, s),
            State::Drain => self.drain(now, s),
            State::Follow => self.follow(now, s),
            State::Free => self.free(now, s),
            _ => None,
        }
    }

    fn estimate(&mut self, now: u64, s: &mut Senses) -> Option<Why> {
        let waited = now >= self.began.saturating_add(3 * s.probes.base_ns());
        match s.trains.dispersion() {
            Dispersion::Known { mean, capacity, sure } if s.trains.done() || waited => {
                let capacity = s.payload_bps(capacity);
                (self.capacity, self.sure, self.trained) = (Some(capacity), sure, capacity);
                // Nearer to what is available than the capacity is, where there is cross traffic.
                self.rate = Some(BELOW * s.payload_bps(mean).min(capacity));
                self.target = self.target_at(s, capacity);
                self.enter(State::Start, Why::Trains)
            }
            _ if !s.config.trains || s.trains.done() || now >= give_up_at(self.began, s.probes.base_ns()) => {
                self.target = self.target_at(s, f64::INFINITY);
                self.enter(State::Start, Why::NoTrains)
            }
            _ => None,
        }
    }

    fn target_at(&self, s: &Senses, capacity: f64) -> f64 {
        let packets = TARGET_PACKETS * f64::from(s.config.mss) * 8.0 / capacity.max(1.0);
        packets.max(self.deep()).max(LEAST_TARGET_S).max(TARGET_RTT * s.probes.base_ns() as f64 * 1e-9)
    }

    /// What the queue is known to forgive, seconds.
    fn deep(&self) -> f64 {
        (self.depth / DEEPER).min(MOST_TARGET_S)
    }

    /// How long one of TCP's own bursts takes, seconds.
    fn burst(&self, s: &Senses) -> f64 {
        let bytes = if s.config.pacing { f64::from(BURST) } else { TCP_BURST };
        self.capacity.map_or(0.0, |c| (bytes * 8.0 / c.max(1.0)).min(BURST_S))
    }

    /// The queue that is aimed at, seconds. Who has less of the path lets a longer one stand, and rises while who has more
    /// falls: transfers that all do so come to share evenly (as FAST's do: Jin, Wei and Low, INFOCOM 2004, whose rates are
    /// in inverse proportion to the delay that each aims at).
    fn stand(&self) -> f64 {
        if self.lifted() || self.depth <= DEEPER * self.target {
            return self.target;
        }
        let less = 1.0 - self.part();
        let most = (FORGIVES * less.max(0.5) * self.depth).min(self.target + MOST_LESS_S);
        (self.target * (1.0 + LESS * less)).min(most).max(self.target)
    }

    /// Of the capacity it aims at so much.
    fn part(&self) -> f64 {
        let (Some(rate), Some(capacity)) = (self.rate, self.capacity) else { return 1.0 };
        (rate / capacity.max(1.0)).clamp(0.0, 1.0)
    }

    /// A queue longer than this is too long, seconds; TCP's own bursts make less.
    fn high(&self, s: &Senses) -> f64 {
        (self.stand() + (HIGH - 1.0) * self.usual()).max(self.burst(s) + VISIBLE_S)
    }

    /// A queue shorter than this has gone, seconds: TCP's own bursts may leave as much.
    fn low(&self, s: &Senses) -> f64 {
        let usual = self.usual();
        (LOW * usual).max((BURSTS * self.burst(s)).min(LOW_BURSTS * usual))
    }

    /// Rate that the path gave while its queue stood, bit/s.
    fn seen(&self, now: u64, s: &Senses) -> Option<f64> {
        let longest = s.probes.base_ns().max(2 * STANDING_NS);
        let since = s.probes.busy_since()?.max(now.saturating_sub(longest));
        s.bytes.between(since, now)
    }

    /// Delay of the queue that stands, seconds.
    fn queue(&self, s: &Senses, now: u64, over: u64) -> Option<f64> {
        let standing = s.probes.standing_ns(now.saturating_sub(over))? as f64 * 1e-9;
        // TCP's own times are means over its bursts, each of which waits for itself.
        let own = if s.config.trains { 0.0 } else { self.burst(s) / 2.0 };
        Some((standing - own).max(0.0))
    }

    fn start(&mut self, now: u64, s: &mut Senses) -> Option<Why> {
        if let Some(why) = self.others(now, s) {
            return Some(why);
        }
        let queue = self.queue(s, now, STANDING_START_NS)?;
        if queue > self.target.max(self.burst(s) + VISIBLE_S)
            && let Some(seen) = self.seen(now, s)
        {
            // TCP may have begun only, and the queue be that of the trains: they know more of what is left. Beside others
            // who have all of it they may not have told yet.
            let left = self.rate.filter(|_| self.shared).unwrap_or(LEAST_SHARE * self.trained);
            return self.reduce(now, s, seen.max(left), queue, Why::Queue);
        }
        let measured = s.windows.step(now, s.probes.base_ns(), &mut s.bytes)?;
        let rate = self.rate?;
        if measured.bps >= STARTED * rate {
            self.judge = now + Self::round(s);
            self.unsteady(now, s);
            let state = if rate >= FILLED * self.cap() && !self.shared { State::Hold } else { State::Follow };
            return self.enter(state, Why::Flat);
        }
        None
    }

    fn hold(&mut self, now: u64, s: &Senses) -> Option<Why> {
        let queue = self.queue(s, now, STANDING_START_NS)?;
        if queue <= self.high(s) {
            return None;
        }
        let seen = self.seen(now, s)?;
        self.reduce(now, s, seen, queue, Why::Queue)
    }

    /// Forgets what was being tried.
    fn calm(&mut self) {
        (self.pulse, self.last_queue, self.told_full, self.passed, self.settled) = (None, None, false, 0, 0.0);
    }

    fn follow(&mut self, now: u64, s: &mut Senses) -> Option<Why> {
        if let Some(pulse) = self.pulse {
            if now < pulse.judge {
                return None;
            }
            return self.verdict(now, s, pulse);
        }
        let (queue, rate) = (self.queue(s, now, STANDING_NS)?, self.rate?);
        if now < self.judge {
            return None;
        }
        if self.shared
            && let Some(why) = self.free_beside(now, s)
        {
            return Some(why);
        }
        let capacity = self.capacity.unwrap_or(rate).max(1.0);
        if queue > self.high(s) {
            if self.stuck.drains >= STUCK && queue >= SHRUNK * self.stuck.queue {
                return self.rebase(now, s);
            }
            let seen = self.seen(now, s)?;
            return self.reduce(now, s, seen, queue, Why::Queue);
        }
        self.stuck = Stuck::default();
        self.judge = now + Self::round(s);
        if queue > self.low(s) {
            let grown = self.last_queue.map_or(0.0, |(at, was)| {
                (queue - was) * capacity / ((now.saturating_sub(at)).max(PROBE_EVERY_NS) as f64 * 1e-9)
            });
            let pull = (self.stand() - queue) * capacity / (Self::round(s) as f64 * 1e-9);
            self.last_queue = Some((now, queue));
            let why = self.lift(now, s);
            let aim = rate - DAMP * grown + PULL * pull;
            // A sender that does not fill its rate must not wind it up.
            let filled = s.recent_bps(now).is_none_or(|bps| bps >= SENDER_LIMITED * rate);
            let most = if filled { 1.1 * rate } else { rate };
            let fall = self.part().clamp(LEAST_FALL, MOST_FALL);
            self.rate = Some(aim.clamp((1.0 - fall) * rate, most).min(self.top()));
            return why;
        }
        self.last_queue = None;
        self.lower(now);
        if rate >= 0.995 * self.cap() {
            return self.enter(State::Hold, Why::Capacity);
        }
        self.begin(now, s, queue, rate, capacity);
        None
    }
}
