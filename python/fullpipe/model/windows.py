"""How windows grow while nothing is lost, and what losses leave of them: for each congestion control.

Units and shapes as in `ramp`.

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
from fullpipe.model.ramp import FIRST_GROWTH, Cases, Floats

CUBIC_FIRST, CUBIC_MOST = FIRST_GROWTH, 1.5
"""Growth per RTT: at least, while there was no loss, and at most (`cnt` of 20 and 2)."""
CUBIC_FRIENDLY = 0.53
"""Growth per RTT in packets of the Reno that CUBIC keeps up with: 3 (1 - β) / (1 + β)."""
CUBIC_MARGIN = 0.02
SCALABLE_LEAST = 100.0
"""Window, packets, below which Scalable TCP grows as Reno does (`TCP_SCALABLE_AI_CNT`)."""
BBR_PROBE_GAIN, BBR_CYCLE = 1.25, 8.0
RENO_LOSS, CUBIC_LOSS, SCALABLE_LOSS = 1.31, 1.054, 0.08
"""Reno with random losses and an acknowledgement per packet (Mathis et al. 1997), RFC 9438, Kelly 2003."""
MOST_EXPONENT = 100.0


@dataclass
class Now:
    """Where a step begins: (n, cases) or (cases,)."""

    window: Floats
    live: Floats
    """One for each stream that is not done, else zero."""
    total: Floats
    streams: Floats
    """Those that are not done; at least one."""
    rtt: Floats
    """With what queues, RTTs."""
    brim: Floats
    """Windows, packets, at which the queue overflows."""
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


def growth(cc: str, c: Cases, s: Now) -> tuple[Grow, Floats, bool]:
    """Windows of some cases after a time without loss, RTTs; when they reach the brim; if that is exact."""
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


def random_window(cc: str, c: Cases) -> Floats:
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


def later_beta(cc: str, c: Cases) -> Floats:
    """What a loss in congestion avoidance leaves of H-TCP's window from the second on: RTT_min / RTT_max."""
    if cc != "htcp":
        return c.beta
    return htcp_backoff(c.rtt_s, c.queue / c.b)
