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
CUBIC_MARGIN, NEAR = 0.02, 0.995
LEAST_ALIVE = 0.7
MOST_STEPS = 16
"""After which the rest goes at the mean rate so far."""
STEPS_PER_REST, STEPS_PER_CLIMB = 3.0, 3.0


@dataclass
class _Now:
    """Where a step begins: (n, cases) or (cases,)."""

    window: Floats
    total: Floats
    streams: Floats
    """Those that are not done."""
    rtt: Floats
    """With what queues, RTTs."""
    since: Floats
    """Time since the last loss, seconds."""
    low: Floats
    """Window that it left, packets."""
    before: Floats
    """Window that it met, packets; for CUBIC the origin of its curve."""
    beta: Floats
    """What the last loss left of it."""


Grow = Callable[[Floats], Floats]


def _growth(cc: str, c: Cases, s: _Now, brim: Floats) -> tuple[Grow, Floats, bool]:
    """Windows after a time without loss, RTTs; the time in which they reach `brim`; and if that is exact."""
    w, rq = s.window, s.rtt
    if cc == "reno":
        return lambda dt: w + dt / rq, (brim - s.total) / s.streams * rq, True
    if cc == "htcp":
        scale = htcp_scale(c.rtt_s)
        grown = htcp_grown(s.since)
        pace = 2 * (1 - s.beta) / (c.rtt_s * rq)

        def htcp(dt: Floats) -> Floats:
            t = dt * c.rtt_s
            return np.asarray(w + pace * np.maximum(t, scale * (htcp_grown(s.since + t) - grown)))

        each = np.maximum(brim - s.total, 0) / s.streams / pace
        return htcp, np.minimum(each, htcp_time(grown + each / scale) - s.since) / c.rtt_s, True
    if cc == "scalable":
        small = bool((w < SCALABLE_LEAST).any())

        def scalable(dt: Floats) -> Floats:
            wide = w * np.exp(np.minimum(SCALABLE_PER_ACK * dt / rq, MOST_EXPONENT))
            return np.where(w < SCALABLE_LEAST, w + dt / rq, wide) if small else wide

        wide_in = rq / SCALABLE_PER_ACK * np.log(np.maximum(brim / np.maximum(s.total, 1e-9), 1))
        if small:
            wide_in = np.minimum(wide_in, (brim - s.total) / s.streams * rq)
        return scalable, wide_in, not small
    if cc == "cubic":
        lost = s.before > 0
        back = np.cbrt(np.maximum(s.before - s.low, 0) / CUBIC_C) - c.rtt_s
        origin = np.where(lost, s.before, s.low)
        some, alike = bool(lost.any()), bool(lost.all())

        def cubic(dt: Floats) -> Floats:
            t = s.since + dt * c.rtt_s
            rounds = dt / rq
            x = t - back
            aim = np.maximum(origin + (CUBIC_C * x) * (x * x), s.low + CUBIC_FRIENDLY * t / (c.rtt_s * rq))
            if not alike:
                first = w * np.exp(np.minimum(np.log(CUBIC_FIRST) * rounds, MOST_EXPONENT))
                aim = np.maximum(aim, np.where(lost, w, first) if some else first)
            most = w * np.exp(np.minimum(np.log(CUBIC_MOST) * rounds, MOST_EXPONENT))
            return np.asarray(np.minimum(np.maximum(aim, w), most))

        # As if all streams were their mean.
        live = w > 0
        aim, lag = brim / s.streams - (origin * live).sum(0) / s.streams, (back * live).sum(0) / s.streams
        until = lag + np.cbrt(aim / CUBIC_C) - s.since
        if some:
            friendly = (brim - (s.low * live).sum(0)) / s.streams / CUBIC_FRIENDLY * c.rtt_s * rq - s.since
            until = np.minimum(until, friendly)
        if not alike:
            rounds = np.log(np.maximum(brim / np.maximum(s.total, 1e-9), 1)) / np.log(CUBIC_FIRST)
            until = np.where((lost & live).any(0), until, np.minimum(until, rounds * rq * c.rtt_s))
        return cubic, np.maximum(until, 0) / c.rtt_s * (1 + CUBIC_MARGIN), False
    # BBR finds more only while nothing queues, and does not mind what is lost.
    rise = np.where(s.total < c.b, np.log(BBR_PROBE_GAIN) / BBR_CYCLE, 0.0)
    return lambda dt: w * np.exp(np.minimum(rise * dt, MOST_EXPONENT)), np.full_like(s.total, np.inf), True


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
    t, w, left, before = s.t[ids], s.window[:, ids], s.left[:, ids], s.before[:, ids]
    sent, finish = s.sent[ids], s.finish[ids]
    # Times and packets: so far, at the first overflow and at the last.
    got = np.zeros(len(ids))
    marks = np.stack([t, got, t, got])
    overflows = np.zeros(len(ids), np.int64)
    stride = np.zeros(len(ids))
    since, low = np.zeros(len(ids)), w.copy()
    end = c.end + c.phase[:, 0]
    timed = bool(np.isfinite(end).any())
    most = np.minimum(c.window, _random_window(cc, c))
    w = np.minimum(w, most)
    beta, later = c.beta, _later_beta(cc, c)
    crumb = np.where(np.isfinite(c.share), 1e-9 * c.share, -1.0)
    for _ in range(MOST_STEPS):
        live = w > 0
        streams = live.sum(0)
        alive = streams > 0
        if not alive.any() or alive.mean() < LEAST_ALIVE:
            s.sent[ids], s.finish[ids] = sent, finish
            if not alive.any():
                return s
            keep = np.flatnonzero(alive)
            ids, c, streams, live = ids[keep], c.take(keep), streams[keep], live.take(keep, 1)
            w, left, before, low = (
                w.take(keep, 1),
                left.take(keep, 1),
                before.take(keep, 1),
                low.take(keep, 1),
            )
            t, sent, finish, got = t[keep], sent[keep], finish[keep], got[keep]
            marks, overflows = marks.take(keep, 1), overflows[keep]
            since, end, most, crumb = since[keep], end[keep], most[keep], crumb[keep]
            beta, later, stride = beta[keep], later[keep], stride[keep]
        count = np.maximum(streams, 1).astype(np.float64)
        # A packet of each stream more than fits is the least that is lost.
        room = c.b + c.queue
        brim = room + count
        total = w.sum(0)
        rq = np.clip(total, c.b, room) / c.b
        rate = w / np.maximum(1, total / c.b)
        soonest = np.where(live, left / np.maximum(rate, 1e-12), np.inf).min(0)
        whole = np.minimum((left * live).sum(0) if not timed else np.where(live, left, 0.0).sum(0), 1e18)
        whole = whole / np.maximum(rate.sum(0), 1e-12)
        now = _Now(w, total, count, rq, since, low, before, beta)
        grow, until, exact = _growth(cc, c, now, brim)
        # A window that is as wide as it may be stays so until a stream is done.
        still = ((w >= most) | ~live).all(0) & (total <= brim)
        dt = np.maximum(2 * rq, np.minimum(whole, end - t) / STEPS_PER_REST)
        # The way up is cut into equal parts as long as the windows do not fill the path.
        stride = np.maximum(stride, until / STEPS_PER_CLIMB)
        dt = np.where(total < c.b, np.minimum(dt, np.maximum(2 * rq, stride)), dt)
        dt = np.minimum(dt, np.maximum(until, 0.0 if exact else 2 * rq))
        dt = np.minimum(np.where(still, soonest, np.minimum(dt, soonest)), end - t)
        dt = np.where(streams > 0, dt, 0.0)
        new = np.minimum(grow(dt), most) * live
        grown = new.sum(0)
        if exact:
            over = grown >= brim * (1 - 1e-9)
        else:
            for _ in range(2):
                beyond = grown > brim
                if not beyond.any():
                    break
                part = np.clip((brim - total) / np.maximum(grown - total, 1e-9), 0, 1)
                dt = np.where(beyond, dt * part, dt)
                new = np.minimum(grow(dt), most) * live
                grown = new.sum(0)
            over = grown >= brim * NEAR
        if cc == "bbr":
            over[:] = False
        # The round trip until a loss is seen.
        extra = np.where(over, rq, 0.0)
        passed = (w + new) * (dt / 2 / np.maximum(1, (total + grown) / 2 / c.b))
        if over.any():
            passed += new * (extra / np.maximum(1, grown / c.b))
        span = dt + extra
        rest = left - passed
        done = live & (rest <= crumb)
        if done.any():
            when = np.where(done, t + span * np.minimum(left / np.maximum(passed, 1e-12), 1), 0.0)
            finish = np.maximum(finish, when.max(0))
        moved = np.minimum(passed, left).sum(0)
        got += moved
        if timed:
            sent += moved * np.clip((end - t) / np.maximum(span, 1e-12), 0, 1)
        t = t + span
        since = since + span * c.rtt_s
        left = rest
        if over.any():
            if cc == "cubic":
                new = np.where(over, np.minimum(grow(span), most) * live, new)
                # Fast convergence: a window that falls short of the last one gives way.
                shrunk = np.where(new < before, new * (1 + beta) / 2, new)
                before = np.where(over & live, shrunk, before)
            new = np.where(over, np.maximum(beta * new, 2) * live, new)
            beta = np.where(over, later, beta)
            low = np.where(over, new, low)
            since = np.where(over, 0.0, since)
            overflows += over
            stride = np.where(over, 0.0, stride)
            marks[:2] = np.where(over & (overflows <= 2), (t, got), marks[:2])
            marks[2:] = np.where(over, (t, got), marks[2:])
        w = np.where(done, 0.0, new)
        if timed:
            w = w * (t < end - 1e-9)
    rest = np.where(w > 0, left, 0.0).sum(0)
    # Whole epochs, without the first, which slow start began.
    whole_epochs = overflows > 2
    begun, until_then = marks[:2], np.where(whole_epochs, marks[2:], (t, got))
    mean = (until_then[1] - begun[1]) / np.maximum(until_then[0] - begun[0], 1e-9)
    mean = np.clip(mean, 1e-9, c.b)
    s.finish[ids] = np.where(rest > 0, np.maximum(finish, t + rest / mean), finish)
    s.sent[ids] = sent + np.where((rest > 0) & np.isfinite(end), mean * np.maximum(end - t, 0), 0.0)
    return s
