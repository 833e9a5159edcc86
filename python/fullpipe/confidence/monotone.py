"""Computes bounds between the measured RTTs, assuming that throughput does not rise with RTT."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fullpipe.arrays import FloatArray, vector
from fullpipe.errors import UsageError


class Envelope(NamedTuple):
    """Bounds of throughput; arrays with one entry for each requested RTT."""

    low: FloatArray
    high: FloatArray


def _check(rtt: FloatArray, low: FloatArray, high: FloatArray, capacity: float | None) -> None:
    if not len(rtt) == len(low) == len(high):
        lengths = f"{len(rtt)}, {len(low)} and {len(high)}"
        raise UsageError(f"rtt_ms, low and high have {lengths} entries: give one of each per RTT")
    if (low > high).any():
        at = int(np.flatnonzero(low > high)[0])
        bounds = f"the lower bound {low[at]:g} is above the upper bound {high[at]:g}"
        raise UsageError(f"at {rtt[at]:g} ms {bounds}: give each interval as low and high")
    if high.min() < 0:
        raise UsageError(f"an upper bound of {high.min():g} is negative: throughput is not")
    if capacity is not None and not capacity > 0:
        raise UsageError(f"a capacity of {capacity:g} is not positive: give it in the unit of the bounds")
    if capacity is not None and low.max() > capacity:
        raise UsageError(f"a lower bound of {low.max():g} is above the capacity {capacity:g}: use one unit")
    floor = np.array([low[rtt >= r].max() for r in rtt])
    if (floor > high).any():
        at = int(np.flatnonzero(floor > high)[0])
        later = int(np.argmax(np.where(rtt >= rtt[at], low, -np.inf)))
        raise UsageError(
            f"throughput rises with RTT: at most {high[at]:g} at {rtt[at]:g} ms but at least {low[later]:g}"
            f" at {rtt[later]:g} ms; widen the intervals (a higher level), or use no envelope"
        )


def envelope(
    rtt_ms: ArrayLike, low: ArrayLike, high: ArrayLike, at_ms: ArrayLike, *, capacity: float | None = None
) -> Envelope:
    """Computes bounds at any RTT from intervals at the measured ones.

    The upper bound at τ is the smallest upper bound at RTTs up to τ; the lower bound is the largest lower
    bound at RTTs from τ on. So the envelope is a pair of stairs, never wider than the intervals at the
    measured RTTs. It assumes only that throughput does not rise with RTT, which the papers argue (Rao et al.,
    HPDC 2017, section 3.3) and mostly observe. Left of the grid the upper bound is `capacity`, or infinity
    without it; right of it the lower bound is zero.

    The envelope holds at all RTTs together with the confidence with which all intervals hold together. For
    95% with K measured RTTs, give intervals of level 1 - 0.05/K.

    Args:
        rtt_ms: The measured RTTs in ms, of shape (K,), in any order; bounds of equal RTTs are intersected.
        low: The lower bounds of throughput at these RTTs, of shape (K,); negative ones count as zero.
        high: The upper bounds at these RTTs, of shape (K,).
        at_ms: The RTTs to bound in ms, of shape (M,), or one number.
        capacity: The largest possible throughput, in the unit of the bounds.

    Returns:
        The lower and upper bounds, of shape (M,), or of shape () for one number.

    Raises:
        UsageError: Lengths differ, a value is not finite, an RTT is not positive, bounds cross at one RTT or
            exceed `capacity`, or a lower bound is above an upper bound at a shorter RTT.
    """
    rtt, lows, highs = vector("rtt_ms", rtt_ms), vector("low", low), vector("high", high)
    at = vector("at_ms", np.atleast_1d(np.asarray(at_ms)))
    shortest = min(rtt.min(), at.min())
    if shortest <= 0:
        raise UsageError(f"an RTT of {shortest:g} ms is not positive: give RTTs in ms, greater than zero")
    _check(rtt, lows, highs, capacity)
    top = np.inf if capacity is None else float(capacity)
    upper = np.where(rtt <= at[:, None], highs, np.inf).min(axis=1)
    lower = np.where(rtt >= at[:, None], lows, 0.0).max(axis=1)
    shape = np.shape(at_ms)
    return Envelope(np.maximum(lower, 0.0).reshape(shape), np.minimum(upper, top).reshape(shape))
