"""After slow start: windows that grow, overflow the queue together, and shrink, as a fluid.

Units and shapes as in `ramp`; how windows grow is in `windows`. A step lasts until the queue overflows, a
stream is done, or a part of what is left has passed. Within it rates are those of the mean window: W per RTT
while all windows fit into the path, else a share of its rate. Drop-tail losses hit every stream, which holds
where each has packets among those that overflow the queue; what is lost is sent again within the following
round trip.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fullpipe.model.congestion import CUBIC_C
from fullpipe.model.ramp import Bools, Cases, Floats, State
from fullpipe.model.windows import ALL, Grow, Now, growth, later_beta, random_window

BBR_PROBE_RTT_S, BBR_PROBE_EVERY_S = 0.2, 10.0
ENDLESS = 1e30
NEAR = 0.995
LEAST_ALIVE = 0.7
MOST_STEPS = 16
"""After which the rest goes at the mean rate so far."""
SETTLED_OVERFLOWS = 5
"""After which it may do so at once, where the steps left would not see the end."""
STEPS_PER_REST, STEPS_PER_CLIMB = 3.0, 3.0

Indices = NDArray[np.intp]


def _keep(rows: object, which: Indices) -> None:
    """Keeps some of the cases in each array that an object holds; cases are the last axis."""
    for name, array in vars(rows).items():
        if isinstance(array, np.ndarray):
            setattr(rows, name, array.take(which, -1))


@dataclass
class _Then:
    """Where a step ends: (n, cases) or (cases,)."""

    window: Floats
    total: Floats
    dt: Floats
    """How long windows grew, RTTs."""
    over: Bools
    """Whether the queue overflows."""
    unseen: Floats
    """The round trip until a loss is seen, RTTs."""
    span: Floats
    """Both together."""


@dataclass
class _Epochs:
    """From one overflow to the next: (cases,)."""

    begin: Floats
    """When slow start was over, RTTs."""
    overflows: NDArray[np.int64]
    longest: Floats
    """RTTs."""
    marks: Floats
    """Times and packets, at the second overflow and at the last: (4, cases)."""

    def note(self, climbed: Bools, t: Floats, got: Floats) -> None:
        """Counts overflows of some cases, and marks when they were."""
        self.overflows += climbed
        self.marks[:2] = np.where(climbed & (self.overflows == 2), (t, got), self.marks[:2])
        longest = np.maximum(self.longest, t - self.marks[2])
        self.longest = np.where(climbed & (self.overflows > 1), longest, self.longest)
        self.marks[2:] = np.where(climbed, (t, got), self.marks[2:])

    def mean_rate(self, t: Floats, got: Floats) -> Floats:
        """Packets per RTT: over whole epochs, without the first, which slow start began, or else so far."""
        whole = self.overflows > 2
        begun = np.where(whole, self.marks[:2], (self.begin, np.zeros_like(self.begin)))
        until = np.where(whole, self.marks[2:], (t, got))
        return np.asarray((until[1] - begun[1]) / np.maximum(until[0] - begun[0], 1e-9))


@dataclass
class _Flows:
    """Cases on their way. (n, cases): `w`, `live`, `left`, `low`, `before`, `climb`; the others (cases,)."""

    cc: str
    c: Cases
    ids: Indices
    """Their columns in the state that they came from."""
    timed: bool
    """Whether some of them have an end."""
    end: Floats
    """Since the path's zero, RTTs."""
    most: Floats
    """Widest that a window may be, packets."""
    crumb: Floats
    """What counts as nothing left, packets."""
    later: Floats
    """`beta` once there was an overflow."""
    t: Floats
    w: Floats
    """Windows, packets; zero for a stream that is done."""
    live: Floats
    """One for each stream that is not done, else zero."""
    streams: Floats
    """Those that are not done."""
    left: Floats
    sent: Floats
    finish: Floats
    got: Floats
    """Packets that passed since slow start."""
    since: Floats
    """This and the next four as in `Now`."""
    low: Floats
    before: Floats
    climb: Floats
    beta: Floats
    stride: Floats
    """Longest part of this way up, RTTs."""
    epochs: _Epochs

    def store(self, s: State) -> None:
        """Puts down what came of the cases."""
        s.sent[self.ids], s.finish[self.ids] = self.sent, self.finish

    def keep_alive(self, s: State) -> None:
        """Drops cases of which no stream is left, once they are many, and puts down what came of them."""
        alive = np.flatnonzero(self.streams)
        if alive.size / self.streams.size >= LEAST_ALIVE:
            return
        self.store(s)
        self.c = self.c.take(alive)
        _keep(self, alive)
        _keep(self.epochs, alive)

    def now(self) -> Now:
        """Where a step begins."""
        count = np.maximum(self.streams, 1)
        room = self.c.b + self.c.queue
        total = self.w.sum(0)
        return Now(
            window=self.w,
            live=self.live,
            total=total,
            streams=count,
            rtt=np.clip(total, self.c.b, room) / self.c.b,
            # A packet of each stream more than fits is the least that is lost.
            brim=room + count,
            since=self.since,
            low=self.low,
            before=self.before,
            climb=self.climb,
            beta=self.beta,
        )

    def still(self, now: Now) -> Bools:
        """Whether windows stay as they are until a stream is done: as wide as they may be."""
        still = (now.total >= now.streams * self.most * (1 - 1e-12)) & (now.total <= now.brim)
        if self.cc == "bbr":
            # BBR's stay while they fill the path.
            still |= now.total >= self.c.b
        return np.asarray(still)

    def step(self, now: Now, until: Floats, exact: bool) -> Floats:
        """How long a step lasts, RTTs, if windows reach the brim after `until`."""
        total, rq, b, to_end = now.total, now.rtt, self.c.b, self.end - self.t
        # Windows per RTT that pass, of which there is one while they fit into the path.
        crowd = np.maximum(1, total / b)
        lasts = self.left / np.maximum(self.w, 1e-12)
        lasts += (1 - self.live) * ENDLESS
        soonest = lasts.min(0) * crowd
        whole = (self.left * self.live).sum(0) / np.maximum(total / crowd, 1e-12)
        still = self.still(now)
        # A window that stays as it is and does not queue does not see the others' ends either.
        alone = np.flatnonzero(still & (total <= b))
        if alone.size:
            soonest[alone] = (lasts.take(alone, 1) * self.live.take(alone, 1)).max(0)
        dt = np.maximum(2 * rq, np.minimum(whole, to_end) / STEPS_PER_REST)
        # The way up is cut into equal parts as long as the windows do not fill the path.
        self.stride = np.maximum(self.stride, until / STEPS_PER_CLIMB)
        dt = np.where(total < b, np.minimum(dt, np.maximum(2 * rq, self.stride)), dt)
        dt = np.minimum(dt, np.maximum(until, 0.0 if exact else 2 * rq))
        dt = np.minimum(np.where(still, soonest, np.minimum(dt, soonest)), to_end)
        return np.where(self.streams > 0, dt, 0.0)

    def grown(self, grow: Grow, dt: Floats, of: Indices) -> Floats:
        """Windows of some cases after a time."""
        return np.asarray(np.minimum(grow(dt, of), self.most[of]) * self.live.take(of, 1))

    def grown_to_brim(self, now: Now, grow: Grow, dt: Floats, exact: bool) -> _Then:
        """Where a step of `dt` ends, or at the brim a shorter one."""
        new = np.minimum(grow(dt, ALL), self.most)
        new *= self.live
        total = new.sum(0)
        if not exact:
            self.clip(now, grow, dt, new, total)
        over = total >= now.brim * (1 - 1e-9 if exact else NEAR)
        if self.cc == "bbr":
            over[:] = False
        unseen = np.where(over, now.rtt, 0.0)
        return _Then(new, total, dt, over, unseen, dt + unseen)

    def clip(self, now: Now, grow: Grow, dt: Floats, new: Floats, total: Floats) -> None:
        """Shortens steps that end beyond the brim; `dt`, `new` and `total` in place."""
        for _ in range(2):
            beyond = np.flatnonzero(total > now.brim)
            if not beyond.size:
                break
            part = (now.brim - now.total)[beyond] / np.maximum((total - now.total)[beyond], 1e-9)
            dt[beyond] *= np.clip(part, 0, 1)
            redone = self.grown(grow, dt[beyond], beyond)
            new[:, beyond], total[beyond] = redone, redone.sum(0)

    def move(self, now: Now, then: _Then) -> tuple[Indices, Bools]:
        """Lets time and packets pass: cases of which streams end, and which streams of theirs."""
        b, span = self.c.b, then.span
        share = then.dt / 2 / np.maximum(1, (now.total + then.total) / 2 / b)
        after = share + then.unseen / np.maximum(1, then.total / b)
        passed = self.w * share
        passed += then.window * after
        rest = self.left - passed
        moved = now.total * share + then.total * after
        done = (rest <= self.crumb) & (self.w > 0)
        ended = np.flatnonzero(done.any(0))
        if ended.size:
            had, went, some = self.left.take(ended, 1), passed.take(ended, 1), done.take(ended, 1)
            when = self.t[ended] + span[ended] * np.minimum(had / np.maximum(went, 1e-12), 1)
            self.finish[ended] = np.maximum(self.finish[ended], np.where(some, when, 0.0).max(0))
            moved[ended] = np.minimum(went, had).sum(0)
        self.got += moved
        if self.timed:
            self.sent += moved * np.clip((self.end - self.t) / np.maximum(span, 1e-12), 0, 1)
        self.t = self.t + span
        self.since = self.since + span * self.c.rtt_s
        self.left = rest
        return ended, done

    def back_off(self, now: Now, then: _Then, grow: Grow) -> None:
        """What a loss leaves of windows where the queue overflowed; those of `then` in place."""
        hit = np.flatnonzero(then.over)
        if not hit.size:
            return
        live, cubic = self.live.take(hit, 1), self.cc == "cubic"
        if cubic:
            met = self.grown(grow, then.span[hit], hit)
            before = self.before.take(hit, 1)
            # Fast convergence: a window that falls short of the last one gives way.
            shrunk = np.where(met < before, met * (1 + self.beta[hit]) / 2, met)
            self.before[:, hit] = np.where(live > 0, shrunk, before)
        else:
            met = then.window.take(hit, 1)
        met = np.maximum(self.beta[hit] * met, 2) * live
        then.window[:, hit] = self.low[:, hit] = met
        if cubic:
            self.climb[:, hit] = np.cbrt(np.maximum(self.before.take(hit, 1) - met, 0) / CUBIC_C)
        self.beta = np.where(then.over, self.later, self.beta)
        self.since[hit] = self.stride[hit] = 0.0
        # One that slow start left too wide for a single loss to mend is no epoch's end.
        self.epochs.note(then.over & (now.total < now.brim), self.t, self.got)

    def end_streams(self, new: Floats, ended: Indices, done: Bools) -> None:
        """Goes on with new windows, without those of streams that are done or whose time is over."""
        if ended.size:
            new[:, ended] = np.where(done.take(ended, 1), 0.0, new.take(ended, 1))
        self.go_on(new * (self.t < self.end - 1e-9) if self.timed else new)

    def go_on(self, w: Floats) -> None:
        """Sets windows."""
        self.w, self.live = w, np.sign(w)
        self.streams = self.live.sum(0)

    def extrapolate(self, steps_left: int) -> None:
        """Takes the rest at the mean rate where the steps left would not see the end."""
        last = steps_left == 0
        settled = self.epochs.overflows >= SETTLED_OVERFLOWS
        if not (last or settled.any()):
            return
        w, to_end = self.w, self.end - self.t
        rest = (self.left * self.live).sum(0)
        # An epoch takes a step at least; and who ends first leaves the path to the others.
        first = np.where(w > 0, self.left / np.maximum(w, 1e-9), np.inf).min(0)
        first *= np.maximum(1, w.sum(0) / self.c.b)
        settled &= np.minimum(first, to_end) > steps_left * self.epochs.longest
        going = (rest > 0) & (settled | last)
        if not going.any():
            return
        mean = np.clip(self.epochs.mean_rate(self.t, self.got), 1e-9, self.c.b)
        self.finish = np.where(going, np.maximum(self.finish, self.t + rest / mean), self.finish)
        self.sent += np.where(going & np.isfinite(self.end), mean * np.maximum(to_end, 0), 0.0)
        self.go_on(np.where(going, 0.0, w))


def _begin(cc: str, c: Cases, s: State) -> _Flows:
    """Cases as slow start left them, but those of which it saw the end."""
    ids = np.flatnonzero((s.window > 0).any(0) & (s.t < c.end + c.phase[:, 0]))
    c, end = c.take(ids), (c.end + c.phase[:, 0])[ids]
    t, window, before = s.t[ids], s.window[:, ids], s.before[:, ids]
    low = window.copy()
    most = np.minimum(c.window, random_window(cc, c))
    w = np.minimum(window, most)
    live = np.sign(w)
    zero = np.zeros(len(ids))
    return _Flows(
        cc=cc,
        c=c,
        ids=ids,
        timed=bool(np.isfinite(end).any()),
        end=end,
        most=most,
        crumb=np.where(np.isfinite(c.share), 1e-9 * c.share, -1.0),
        later=later_beta(cc, c),
        t=t,
        w=w,
        live=live,
        streams=live.sum(0),
        left=np.minimum(s.left[:, ids], ENDLESS),
        sent=s.sent[ids],
        finish=s.finish[ids],
        got=zero.copy(),
        since=zero.copy(),
        low=low,
        before=before,
        climb=np.cbrt(np.maximum(before - low, 0) / CUBIC_C),
        beta=c.beta,
        stride=zero.copy(),
        epochs=_Epochs(t, np.zeros(len(ids), np.int64), zero.copy(), np.stack([t, zero, t, zero])),
    )


def sustain(cc: str, c: Cases, s: State) -> State:
    """Runs cases to their end; `sent` and `finish` of the state are what counts."""
    flows = _begin(cc, c, s)
    for steps_left in reversed(range(MOST_STEPS)):
        if not flows.streams.any():
            break
        flows.keep_alive(s)
        now = flows.now()
        grow, until, exact = growth(cc, flows.c, now)
        dt = flows.step(now, until, exact)
        then = flows.grown_to_brim(now, grow, dt, exact)
        ended, done = flows.move(now, then)
        flows.back_off(now, then, grow)
        flows.end_streams(then.window, ended, done)
        flows.extrapolate(steps_left)
    flows.store(s)
    return s
