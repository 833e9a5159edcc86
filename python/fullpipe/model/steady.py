"""Simulates what follows slow start: windows grow, overflow the queue together, and shrink.

Units and shapes are those of `ramp`. Data flows as a fluid, and `windows` says how windows grow. A step lasts
until the queue overflows, a stream finishes, or a part of the remaining data has passed. Within a step each
stream sends at the rate of its mean window: W per RTT while all windows fit into the path, otherwise its
share of the path's rate. An overflow is a loss for every stream, which is true if each stream has packets
among those that overflow the queue. Lost packets are retransmitted within the following round trip.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fullpipe.model.congestion import CUBIC_C
from fullpipe.model.ramp import Bools, Cases, Floats, State
from fullpipe.model.windows import ALL, Grow, Now, growth, later_beta, random_window

BBR_PROBE_RTT_S, BBR_PROBE_EVERY_S = 0.2, 10.0
"""Length of BBR's PROBE_RTT, and the time from one to the next, seconds."""
ENDLESS = 1e30
"""Number of packets that stands for no end."""
NEAR = 0.995
"""Fraction of the overflowing window from which a step that is not exact counts as having reached it."""
LEAST_ALIVE = 0.7
"""Fraction of cases still running below which finished cases are dropped from the arrays."""
MOST_STEPS = 16
"""Maximum number of steps; after them the remaining data is sent at the mean rate so far."""
SETTLED_OVERFLOWS = 5
"""Number of overflows from which on the rest is sent at the mean rate if the remaining steps are too few."""
STEPS_PER_REST, STEPS_PER_CLIMB = 3.0, 3.0
"""Numbers of steps into which the remaining data, and the growth until the next overflow, are divided."""

Indices = NDArray[np.intp]


def _keep(rows: object, which: Indices) -> None:
    """Keeps only some of the cases in every array of an object; cases are the last axis."""
    for name, array in vars(rows).items():
        if isinstance(array, np.ndarray):
            setattr(rows, name, array.take(which, -1))


@dataclass
class _Then:
    """The state at the end of a step. `window` has the shape (n, cases), the others (cases,)."""

    window: Floats
    total: Floats
    dt: Floats
    """Time during which windows grew, RTTs."""
    over: Bools
    """Whether the queue overflows."""
    unseen: Floats
    """Round trip from an overflow until the streams see the loss, RTTs; zero without an overflow."""
    span: Floats
    """Length of the step, `dt` + `unseen`, RTTs."""


@dataclass
class _Epochs:
    """Epochs, each from one overflow to the next. Arrays have the shape (cases,)."""

    begin: Floats
    """Time at which slow start ended, RTTs."""
    overflows: NDArray[np.int64]
    """Number of overflows so far."""
    longest: Floats
    """Length of the longest epoch, RTTs."""
    marks: Floats
    """Time and packets at the second overflow, then the same at the last one, of shape (4, cases)."""

    def note(self, climbed: Bools, t: Floats, got: Floats) -> None:
        """Counts the overflows of some cases, and notes when they happened."""
        self.overflows += climbed
        self.marks[:2] = np.where(climbed & (self.overflows == 2), (t, got), self.marks[:2])
        longest = np.maximum(self.longest, t - self.marks[2])
        self.longest = np.where(climbed & (self.overflows > 1), longest, self.longest)
        self.marks[2:] = np.where(climbed, (t, got), self.marks[2:])

    def mean_rate(self, t: Floats, got: Floats) -> Floats:
        """Mean rate in packets per RTT.

        It is the mean over whole epochs, except the first, which began with slow start. Before the third
        overflow it is the mean over all the time so far.
        """
        whole = self.overflows > 2
        begun = np.where(whole, self.marks[:2], (self.begin, np.zeros_like(self.begin)))
        until = np.where(whole, self.marks[2:], (t, got))
        return np.asarray((until[1] - begun[1]) / np.maximum(until[0] - begun[0], 1e-9))


@dataclass
class _Flows:
    """Cases that are still running, with their state.

    `w`, `live`, `left`, `low`, `before` and `climb` have the shape (n, cases), the others (cases,).
    """

    cc: str
    c: Cases
    ids: Indices
    """Columns of these cases in the state at the end of slow start."""
    timed: bool
    """Whether some cases have a given duration."""
    end: Floats
    """Time at which a transfer of a given duration ends, RTTs, counted as `State.t`."""
    most: Floats
    """Maximum window of a stream, packets."""
    crumb: Floats
    """Number of remaining packets at or below which a stream counts as finished."""
    later: Floats
    """Value of `beta` after the first overflow."""
    t: Floats
    """This time, and `left`, `sent` and `finish`, are those of `State`."""
    w: Floats
    """Window of each stream, packets; zero for a stream that has finished."""
    live: Floats
    """One for each running stream, zero for a finished one."""
    streams: Floats
    """Number of running streams."""
    left: Floats
    sent: Floats
    finish: Floats
    got: Floats
    """Packets that passed since slow start."""
    since: Floats
    """This time, and the next four fields, are those of `Now`."""
    low: Floats
    before: Floats
    climb: Floats
    beta: Floats
    stride: Floats
    """Maximum length of a step before the next overflow, RTTs."""
    epochs: _Epochs

    def store(self, s: State) -> None:
        """Writes the results of the cases into the state."""
        s.sent[self.ids], s.finish[self.ids] = self.sent, self.finish

    def keep_alive(self, s: State) -> None:
        """Stores finished cases and drops them from the arrays, if there are many of them."""
        alive = np.flatnonzero(self.streams)
        if alive.size / self.streams.size >= LEAST_ALIVE:
            return
        self.store(s)
        self.c = self.c.take(alive)
        _keep(self, alive)
        _keep(self.epochs, alive)

    def now(self) -> Now:
        """The state at the beginning of a step."""
        count = np.maximum(self.streams, 1)
        room = self.c.b + self.c.queue
        total = self.w.sum(0)
        return Now(
            window=self.w,
            live=self.live,
            total=total,
            streams=count,
            rtt=np.clip(total, self.c.b, room) / self.c.b,
            # The queue overflows when each stream has one packet more than fits.
            brim=room + count,
            since=self.since,
            low=self.low,
            before=self.before,
            climb=self.climb,
            beta=self.beta,
        )

    def still(self, now: Now) -> Bools:
        """Whether all windows are at their maximum, and so do not change until a stream finishes."""
        still = (now.total >= now.streams * self.most * (1 - 1e-12)) & (now.total <= now.brim)
        if self.cc == "bbr":
            # BBR's windows do not change while they fill the path.
            still |= now.total >= self.c.b
        return np.asarray(still)

    def step(self, now: Now, until: Floats, exact: bool) -> Floats:
        """Length of the next step, RTTs. Windows overflow the queue after `until`."""
        total, rq, b, to_end = now.total, now.rtt, self.c.b, self.end - self.t
        # Round-trip times that it takes to send one window: one while the windows fit into the path.
        crowd = np.maximum(1, total / b)
        lasts = self.left / np.maximum(self.w, 1e-12)
        lasts += (1 - self.live) * ENDLESS
        soonest = lasts.min(0) * crowd
        whole = (self.left * self.live).sum(0) / np.maximum(total / crowd, 1e-12)
        still = self.still(now)
        # If windows do not change and nothing queues, the end of one stream does not affect the others.
        alone = np.flatnonzero(still & (total <= b))
        if alone.size:
            soonest[alone] = (lasts.take(alone, 1) * self.live.take(alone, 1)).max(0)
        dt = np.maximum(2 * rq, np.minimum(whole, to_end) / STEPS_PER_REST)
        # While the windows do not fill the path, the time until the overflow is divided into equal steps.
        self.stride = np.maximum(self.stride, until / STEPS_PER_CLIMB)
        dt = np.where(total < b, np.minimum(dt, np.maximum(2 * rq, self.stride)), dt)
        dt = np.minimum(dt, np.maximum(until, 0.0 if exact else 2 * rq))
        dt = np.minimum(np.where(still, soonest, np.minimum(dt, soonest)), to_end)
        return np.where(self.streams > 0, dt, 0.0)

    def grown(self, grow: Grow, dt: Floats, of: Indices) -> Floats:
        """Windows of some cases after the time `dt`."""
        return np.asarray(np.minimum(grow(dt, of), self.most[of]) * self.live.take(of, 1))

    def grown_to_brim(self, now: Now, grow: Grow, dt: Floats, exact: bool) -> _Then:
        """The state after a step of `dt`, or of a shorter one that ends when the queue overflows."""
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
        """Shortens steps that pass the overflow; changes `dt`, `new` and `total` in place."""
        for _ in range(2):
            beyond = np.flatnonzero(total > now.brim)
            if not beyond.size:
                break
            part = (now.brim - now.total)[beyond] / np.maximum((total - now.total)[beyond], 1e-9)
            dt[beyond] *= np.clip(part, 0, 1)
            redone = self.grown(grow, dt[beyond], beyond)
            new[:, beyond], total[beyond] = redone, redone.sum(0)

    def move(self, now: Now, then: _Then) -> tuple[Indices, Bools]:
        """Advances time and sends the step's packets.

        Returns the cases in which streams finish, and which streams do.
        """
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
        """Shrinks the windows of `then` where the queue overflowed, in place."""
        hit = np.flatnonzero(then.over)
        if not hit.size:
            return
        live, cubic = self.live.take(hit, 1), self.cc == "cubic"
        if cubic:
            met = self.grown(grow, then.span[hit], hit)
            before = self.before.take(hit, 1)
            # Fast convergence: a stream whose window stayed below the one at its last loss yields bandwidth.
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
        # If slow start left windows so large that one loss does not suffice, no epoch ends here.
        self.epochs.note(then.over & (now.total < now.brim), self.t, self.got)

    def end_streams(self, new: Floats, ended: Indices, done: Bools) -> None:
        """Sets the new windows, with zero for streams that have finished or whose time is over."""
        if ended.size:
            new[:, ended] = np.where(done.take(ended, 1), 0.0, new.take(ended, 1))
        self.go_on(new * (self.t < self.end - 1e-9) if self.timed else new)

    def go_on(self, w: Floats) -> None:
        """Sets the windows, and with them the running streams."""
        self.w, self.live = w, np.sign(w)
        self.streams = self.live.sum(0)

    def extrapolate(self, steps_left: int) -> None:
        """Sends the rest at the mean rate in cases that the remaining steps would not complete."""
        last = steps_left == 0
        settled = self.epochs.overflows >= SETTLED_OVERFLOWS
        if not (last or settled.any()):
            return
        w, to_end = self.w, self.end - self.t
        rest = (self.left * self.live).sum(0)
        # An epoch takes at least one step. The first stream to finish leaves its share to the others.
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
    """The cases that did not finish within slow start, as slow start left them."""
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
    """Simulates cases to their end. The results are `sent` and `finish` of the returned state."""
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
