"""After slow start: windows that grow, overflow the queue together, and shrink, as a fluid.

Units and shapes as in `ramp`. A step lasts until the queue overflows, a stream is done, or a part of what is
left has passed. Within it rates are those of the mean window: W per RTT while all windows fit into the path,
else a share of its rate. Drop-tail losses hit every stream, which holds where each has packets among those
that overflow the queue; what is lost is sent again within the following round trip.

Sources of the windows' maps: `net/ipv4/tcp_cubic.c`, `tcp_htcp.c`, `tcp_scalable.c`, `tcp_cong.c` and
`tcp_bbr.c`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fullpipe.model.congestion import (
    CUBIC_C,
    HTCP_BETA_HIGH,
    SCALABLE_PER_ACK,
    htcp_backoff,
    htcp_grown,
    htcp_scale,
    htcp_time,
)
from fullpipe.model.ramp import FIRST_GROWTH, Cases, Floats, State

CUBIC_FIRST, CUBIC_MOST = FIRST_GROWTH, 1.5
"""Growth per RTT: at least, while there was no loss, and at most (`cnt` of 20 and 2)."""
CUBIC_FRIENDLY = 0.53
"""Growth per RTT in packets of the Reno that CUBIC keeps up with: 3 (1 - β) / (1 + β)."""
SCALABLE_LEAST = 100.0
"""Window, packets, below which Scalable TCP grows as Reno does (`TCP_SCALABLE_AI_CNT`)."""
BBR_PROBE_GAIN, BBR_CYCLE = 1.25, 8.0
BBR_PROBE_RTT_S, BBR_PROBE_EVERY_S = 0.2, 10.0
RENO_LOSS, CUBIC_LOSS, SCALABLE_LOSS = 1.31, 1.054, 0.08
"""Reno with random losses and an acknowledgement per packet (Mathis et al. 1997), RFC 9438, Kelly 2003."""
MOST_EXPONENT = 100.0
ENDLESS = 1e30
CUBIC_MARGIN, NEAR = 0.02, 0.995
LEAST_ALIVE = 0.7
MOST_STEPS = 16
"""After which the rest goes at the mean rate so far."""
SETTLED_OVERFLOWS = 5
"""After which it may do so at once, where the steps left would not see the end."""
STEPS_PER_REST, STEPS_PER_CLIMB = 3.0, 3.0


@dataclass
class _Now:
    """Where a step begins: (n, cases) or (cases,)."""

    window: Floats
    live: Floats
    """One for each stream that is not done, else zero."""
    total: Floats
    streams: Floats
    """Those that are not done; at least one."""
    rtt: Floats
    """With what queues, RTTs."""
    since: Floats
    """Time since the last loss, seconds."""
    low: Floats
    """Window that it left, packets."""
    before: Floats
    """Window that it met, packets; for CUBIC the origin of its curve."""
    climb: Floats
    """CUBIC's K: from the one to the other without anything queued, seconds."""
    beta: Floats
    """What the last loss left of it."""


Columns = NDArray[np.intp] | slice
ALL = slice(None)
Grow = Callable[[Floats, Columns], Floats]


def _growth(cc: str, c: Cases, s: _Now, brim: Floats) -> tuple[Grow, Floats, bool]:
    """Windows of some cases after a time without loss, RTTs; when they reach `brim`; and if that is exact."""
    w, rq = s.window, s.rtt
    if cc == "reno":
        return lambda dt, of: w[:, of] + dt / rq[of], (brim - s.total) / s.streams * rq, True
    if cc == "htcp":
        scale = htcp_scale(c.rtt_s)
        grown = htcp_grown(s.since)
        pace = 2 * (1 - s.beta) / (c.rtt_s * rq)

        def htcp(dt: Floats, of: Columns) -> Floats:
            t = dt * c.rtt_s[of]
            more = np.maximum(t, scale[of] * (htcp_grown(s.since[of] + t) - grown[of]))
            return np.asarray(w[:, of] + pace[of] * more)

        each = np.maximum(brim - s.total, 0) / s.streams / pace
        return htcp, np.minimum(each, htcp_time(grown + each / scale) - s.since) / c.rtt_s, True
    if cc == "scalable":
        small = bool(((w < SCALABLE_LEAST) & (w > 0)).any())

        def scalable(dt: Floats, of: Columns) -> Floats:
            rounds = dt / rq[of]
            wide = w[:, of] * np.exp(np.minimum(SCALABLE_PER_ACK * rounds, MOST_EXPONENT))
            return np.maximum(wide, w[:, of] + np.minimum(rounds, SCALABLE_LEAST)) if small else wide

        wide_in = rq / SCALABLE_PER_ACK * np.log(np.maximum(brim / np.maximum(s.total, 1e-9), 1))
        if small:
            wide_in = np.minimum(wide_in, (brim - s.total) / s.streams * rq)
        return scalable, wide_in, not small
    if cc == "cubic":
        lost = s.before > 0
        back = s.climb - c.rtt_s
        some, alike = bool(lost.any()), bool(lost.all())
        origin = s.before if alike else np.where(lost, s.before, s.low)

        def cubic(dt: Floats, of: Columns) -> Floats:
            t = s.since[of] + dt * c.rtt_s[of]
            rounds = dt / rq[of]
            now = w[:, of]
            x = t - back[:, of]
            aim = x * x
            aim *= x
            aim *= CUBIC_C
            aim += origin[:, of]
            np.maximum(aim, s.low[:, of] + CUBIC_FRIENDLY * t / (c.rtt_s[of] * rq[of]), out=aim)
            if not alike:
                first = now * np.exp(np.minimum(np.log(CUBIC_FIRST) * rounds, MOST_EXPONENT))
                np.maximum(aim, np.where(lost[:, of], now, first) if some else first, out=aim)
            np.maximum(aim, now, out=aim)
            most = now * np.exp(np.minimum(np.log(CUBIC_MOST) * rounds, MOST_EXPONENT))
            return np.asarray(np.minimum(aim, most, out=aim))

        # As if all streams were their mean.
        live = s.live
        aim, lag = brim / s.streams - (origin * live).sum(0) / s.streams, (back * live).sum(0) / s.streams
        until = lag + np.cbrt(aim / CUBIC_C) - s.since
        if some:
            friendly = (brim - (s.low * live).sum(0)) / s.streams / CUBIC_FRIENDLY * c.rtt_s * rq - s.since
            until = np.minimum(until, friendly)
        if not alike:
            rounds = np.log(np.maximum(brim / np.maximum(s.total, 1e-9), 1)) / np.log(CUBIC_FIRST)
            until = np.where((lost & (w > 0)).any(0), until, np.minimum(until, rounds * rq * c.rtt_s))
        return cubic, np.maximum(until, 0) / c.rtt_s * (1 + CUBIC_MARGIN), False
    # BBR finds more only while nothing queues, and does not mind what is lost.
    rise = np.where(s.total < c.b, np.log(BBR_PROBE_GAIN) / BBR_CYCLE, 0.0)

    def bbr(dt: Floats, of: Columns) -> Floats:
        return w[:, of] * np.exp(np.minimum(rise[of] * dt, MOST_EXPONENT))

    return bbr, np.full_like(s.total, np.inf), True


def _htcp_random_window(c: Cases, p: Floats) -> Floats:
    """Fixed point of an epoch of 1/p packets at the mean window that its growth gives, by bisection."""
    scale = htcp_scale(c.rtt_s)
    low, high = np.zeros_like(p), np.full_like(p, np.log(1e12))
    for _ in range(40):
        middle = (low + high) / 2
        w = np.exp(middle)
        t = c.rtt_s / (p * w)
        more = (1 + HTCP_BETA_HIGH) / c.rtt_s * np.maximum(t, scale * htcp_grown(t)) > w
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return np.asarray(np.exp(low))


def _random_window(cc: str, c: Cases) -> Floats:
    """Mean window under random loss alone, packets: infinite for none."""
    if cc == "bbr":
        return np.full_like(c.b, np.inf)
    p = np.maximum(c.loss, 1e-30)
    window = RENO_LOSS / np.sqrt(p)
    if cc == "cubic":
        window = np.maximum(CUBIC_LOSS * (c.rtt_s / p) ** 0.75, window)
    elif cc == "scalable":
        window = np.maximum(SCALABLE_LOSS / p, window)
    elif cc == "htcp" and (c.loss > 0).any():
        window = np.maximum(_htcp_random_window(c, p), window)
    return np.where(c.loss > 0, window, np.inf)


def _later_beta(cc: str, c: Cases) -> Floats:
    """What a loss in congestion avoidance leaves of H-TCP's window from the second on: RTT_min / RTT_max."""
    if cc != "htcp":
        return c.beta
    return htcp_backoff(c.rtt_s, c.queue / c.b)


def sustain(cc: str, c: Cases, s: State) -> State:
    """Runs cases to their end; `sent` and `finish` of the state are what counts."""
    ids = np.flatnonzero((s.window > 0).any(0) & (s.t < c.end + c.phase[:, 0]))
    c = c.take(ids)
    t, w, before = s.t[ids], s.window[:, ids], s.before[:, ids]
    left = np.minimum(s.left[:, ids], ENDLESS)
    sent, finish = s.sent[ids], s.finish[ids]
    # Times and packets: so far, at the second overflow and at the last.
    begin, got = t, np.zeros(len(ids))
    marks = np.stack([t, got, t, got])
    overflows = np.zeros(len(ids), np.int64)
    stride, epoch = np.zeros(len(ids)), np.zeros(len(ids))
    since, low = np.zeros(len(ids)), w.copy()
    end = c.end + c.phase[:, 0]
    timed = bool(np.isfinite(end).any())
    most = np.minimum(c.window, _random_window(cc, c))
    w = np.minimum(w, most)
    climb = np.cbrt(np.maximum(before - low, 0) / CUBIC_C)
    beta, later = c.beta, _later_beta(cc, c)
    crumb = np.where(np.isfinite(c.share), 1e-9 * c.share, -1.0)
    for step in range(MOST_STEPS):
        live = np.sign(w)
        streams = live.sum(0)
        alive = streams > 0
        if not alive.any() or alive.mean() < LEAST_ALIVE:
            s.sent[ids], s.finish[ids] = sent, finish
            if not alive.any():
                return s
            keep = np.flatnonzero(alive)
            ids, c, streams = ids[keep], c.take(keep), streams[keep]
            w, live, left, before, low, climb = (
                rows.take(keep, 1) for rows in (w, live, left, before, low, climb)
            )
            t, begin, sent, finish, got = t[keep], begin[keep], sent[keep], finish[keep], got[keep]
            marks, overflows = marks.take(keep, 1), overflows[keep]
            since, end, most, crumb = since[keep], end[keep], most[keep], crumb[keep]
            beta, later, stride, epoch = beta[keep], later[keep], stride[keep], epoch[keep]
        count = np.maximum(streams, 1)
        # A packet of each stream more than fits is the least that is lost.
        room = c.b + c.queue
        brim = room + count
        total = w.sum(0)
        rq = np.clip(total, c.b, room) / c.b
        # Windows per RTT that pass, of which there is one while they fit into the path.
        crowd = np.maximum(1, total / c.b)
        lasts = left / np.maximum(w, 1e-12)
        lasts += (1 - live) * ENDLESS
        soonest = lasts.min(0) * crowd
        whole = (left * live).sum(0) / np.maximum(total / crowd, 1e-12)
        now = _Now(w, live, total, count, rq, since, low, before, climb, beta)
        grow, until, exact = _growth(cc, c, now, brim)
        # A window that is as wide as it may be stays so until a stream is done, and one that does not queue
        # does not see the others' ends either. BBR's stay while they fill the path.
        still = (total >= count * most * (1 - 1e-12)) & (total <= brim)
        if cc == "bbr":
            still |= total >= c.b
        alone = np.flatnonzero(still & (total <= c.b))
        if alone.size:
            soonest[alone] = (lasts.take(alone, 1) * live.take(alone, 1)).max(0)
        dt = np.maximum(2 * rq, np.minimum(whole, end - t) / STEPS_PER_REST)
        # The way up is cut into equal parts as long as the windows do not fill the path.
        stride = np.maximum(stride, until / STEPS_PER_CLIMB)
        dt = np.where(total < c.b, np.minimum(dt, np.maximum(2 * rq, stride)), dt)
        dt = np.minimum(dt, np.maximum(until, 0.0 if exact else 2 * rq))
        dt = np.minimum(np.where(still, soonest, np.minimum(dt, soonest)), end - t)
        dt = np.where(streams > 0, dt, 0.0)
        new = np.minimum(grow(dt, ALL), most)
        new *= live
        grown = new.sum(0)
        if exact:
            over = grown >= brim * (1 - 1e-9)
        else:
            for _ in range(2):
                beyond = np.flatnonzero(grown > brim)
                if not beyond.size:
                    break
                part = (brim - total)[beyond] / np.maximum((grown - total)[beyond], 1e-9)
                dt[beyond] *= np.clip(part, 0, 1)
                redone = np.minimum(grow(dt[beyond], beyond), most[beyond]) * live.take(beyond, 1)
                new[:, beyond], grown[beyond] = redone, redone.sum(0)
            over = grown >= brim * NEAR
        if cc == "bbr":
            over[:] = False
        # The round trip until a loss is seen.
        extra = np.where(over, rq, 0.0)
        span = dt + extra
        share = dt / 2 / np.maximum(1, (total + grown) / 2 / c.b)
        after = share + extra / np.maximum(1, grown / c.b)
        passed = w * share
        passed += new * after
        rest = left - passed
        moved = total * share + grown * after
        done = (rest <= crumb) & (w > 0)
        ended = np.flatnonzero(done.any(0))
        if ended.size:
            had, went, some = left.take(ended, 1), passed.take(ended, 1), done.take(ended, 1)
            when = t[ended] + span[ended] * np.minimum(had / np.maximum(went, 1e-12), 1)
            finish[ended] = np.maximum(finish[ended], np.where(some, when, 0.0).max(0))
            moved[ended] = np.minimum(went, had).sum(0)
        got += moved
        if timed:
            sent += moved * np.clip((end - t) / np.maximum(span, 1e-12), 0, 1)
        t = t + span
        since = since + span * c.rtt_s
        left = rest
        hit = np.flatnonzero(over)
        if hit.size:
            met, alive_there = new.take(hit, 1), live.take(hit, 1)
            if cc == "cubic":
                met = np.minimum(grow(span[hit], hit), most[hit]) * alive_there
                # Fast convergence: a window that falls short of the last one gives way.
                shrunk = np.where(met < before.take(hit, 1), met * (1 + beta[hit]) / 2, met)
                before[:, hit] = np.where(alive_there > 0, shrunk, before.take(hit, 1))
            met = np.maximum(beta[hit] * met, 2) * alive_there
            new[:, hit] = low[:, hit] = met
            if cc == "cubic":
                climb[:, hit] = np.cbrt(np.maximum(before.take(hit, 1) - met, 0) / CUBIC_C)
            beta = np.where(over, later, beta)
            since[hit] = stride[hit] = 0.0
            # One that slow start left too wide for a single loss to mend is no epoch's end.
            climbed = over & (total < brim)
            overflows += climbed
            marks[:2] = np.where(climbed & (overflows == 2), (t, got), marks[:2])
            epoch = np.where(climbed & (overflows > 1), np.maximum(epoch, t - marks[2]), epoch)
            marks[2:] = np.where(climbed, (t, got), marks[2:])
        w = new
        if ended.size:
            w[:, ended] = np.where(some, 0.0, new.take(ended, 1))
        if timed:
            w = w * (t < end - 1e-9)
        settled = overflows >= SETTLED_OVERFLOWS
        last = step == MOST_STEPS - 1
        if not (last or settled.any()):
            continue
        rest = (left * np.sign(w)).sum(0)
        # Whole epochs, without the first, which slow start began.
        begun = np.where(overflows > 2, marks[:2], (begin, np.zeros_like(begin)))
        until_then = np.where(overflows > 2, marks[2:], (t, got))
        mean = (until_then[1] - begun[1]) / np.maximum(until_then[0] - begun[0], 1e-9)
        mean = np.clip(mean, 1e-9, c.b)
        # An epoch takes a step at least; and who ends first leaves the path to the others.
        first = np.where(w > 0, left / np.maximum(w, 1e-9), np.inf).min(0) * np.maximum(1, w.sum(0) / c.b)
        settled &= np.minimum(first, end - t) > (MOST_STEPS - 1 - step) * epoch
        going = (rest > 0) & (settled | last)
        finish = np.where(going, np.maximum(finish, t + rest / mean), finish)
        sent += np.where(going & np.isfinite(end), mean * np.maximum(end - t, 0), 0.0)
        w = np.where(going, 0.0, w)
    s.sent[ids], s.finish[ids] = sent, finish
    return s
