"""How windows grow without loss, and how losses shrink them, for each congestion control.

Units and shapes are those of `ramp`.

Sources of the formulas: `net/ipv4/tcp_cubic.c`, `tcp_htcp.c`, `tcp_scalable.c`, `tcp_cong.c` and
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
from fullpipe.model.ramp import FIRST_GROWTH, Cases, Floats

CUBIC_FIRST, CUBIC_MOST = FIRST_GROWTH, 1.5
"""Factors by which CUBIC's window grows per RTT: the least before its first loss, and the most ever (`cnt` of
20 and 2)."""
CUBIC_FRIENDLY = 0.53
"""Growth in packets per RTT of the Reno window below which CUBIC does not fall: 3 (1 - β) / (1 + β)."""
CUBIC_MARGIN = 0.02
"""Fraction added to the estimated time until an overflow, which is computed for the mean stream."""
SCALABLE_LEAST = 100.0
"""Window in packets below which Scalable TCP grows like Reno (`TCP_SCALABLE_AI_CNT`)."""
BBR_PROBE_GAIN, BBR_CYCLE = 1.25, 8.0
"""BBR probes for more bandwidth with this gain, once per cycle of this many RTTs."""
RENO_LOSS, CUBIC_LOSS, SCALABLE_LOSS = 1.31, 1.054, 0.08
"""Factors in the mean windows under random loss. Reno: Mathis et al. 1997, with random losses and one
acknowledgement per packet; CUBIC: RFC 9438; Scalable TCP: Kelly 2003."""
MOST_EXPONENT = 100.0
"""Limit on exponents, so that `exp` does not overflow."""


@dataclass
class Now:
    """The state at the beginning of a step; arrays have the shape (n, cases) or (cases,)."""

    window: Floats
    live: Floats
    """One for each running stream, zero for a finished one."""
    total: Floats
    """Sum of the windows, packets."""
    streams: Floats
    """Number of running streams, but at least one."""
    rtt: Floats
    """Round-trip time with queueing, in RTTs of the empty path."""
    brim: Floats
    """Sum of the windows at which the queue overflows, packets."""
    since: Floats
    """Time since the last loss, seconds."""
    low: Floats
    """Window right after the last loss, packets."""
    before: Floats
    """Window right before the last loss, packets; for CUBIC the origin of its curve."""
    climb: Floats
    """CUBIC's K, seconds: the time that the window takes from `low` to `before`."""
    beta: Floats
    """Fraction of the window that remains after the next loss."""


Columns = NDArray[np.intp] | slice
ALL = slice(None)
Grow = Callable[[Floats, Columns], Floats]


def growth(cc: str, c: Cases, s: Now) -> tuple[Grow, Floats, bool]:
    """How windows grow without loss under a congestion control.

    Returns a function that gives the windows of some cases after a time in RTTs, the time in RTTs until the
    queue overflows, and whether that time is exact.
    """
    w, rq, brim = s.window, s.rtt, s.brim
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

        # The time until the overflow is estimated for a stream with the mean of all windows.
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
    # BBR's window grows only while nothing queues. Losses do not shrink it.
    rise = np.where(s.total < c.b, np.log(BBR_PROBE_GAIN) / BBR_CYCLE, 0.0)

    def bbr(dt: Floats, of: Columns) -> Floats:
        return w[:, of] * np.exp(np.minimum(rise[of] * dt, MOST_EXPONENT))

    return bbr, np.full_like(s.total, np.inf), True


def _htcp_random_window(c: Cases, p: Floats) -> Floats:
    """Mean window of H-TCP under random loss, packets.

    An epoch lasts 1/p packets. Bisection finds the window at which its growth gives that same mean window.
    """
    scale = htcp_scale(c.rtt_s)
    low, high = np.zeros_like(p), np.full_like(p, np.log(1e12))
    for _ in range(40):
        middle = (low + high) / 2
        w = np.exp(middle)
        t = c.rtt_s / (p * w)
        more = (1 + HTCP_BETA_HIGH) / c.rtt_s * np.maximum(t, scale * htcp_grown(t)) > w
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return np.asarray(np.exp(low))


def random_window(cc: str, c: Cases) -> Floats:
    """Mean window under random loss alone, packets; infinite without loss."""
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


def later_beta(cc: str, c: Cases) -> Floats:
    """Fraction of the window that remains after the second and later losses in congestion avoidance.

    For H-TCP it is RTT_min / RTT_max, for the others the same as after the first loss.
    """
    if cc != "htcp":
        return c.beta
    return htcp_backoff(c.rtt_s, c.queue / c.b)
