"""Groups runs by RTT and estimates their noise."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fullpipe.arrays import FloatArray, vector
from fullpipe.errors import UsageError

MIN_RTTS = 3

# Repeats that agree to a billionth differ by rounding only; they do not prove that a path has no noise.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Samples:
    """Throughput grouped by RTT; arrays with one entry for each distinct RTT, ascending."""

    rtt_ms: FloatArray
    n: FloatArray
    """The number of runs."""
    mean: FloatArray
    """The weighted mean throughput."""
    weight: FloatArray
    """The weight of a mean, whose variance is `variance / weight`."""
    variance: float | None
    """The variance of one run of weight 1; None if it is unknown."""
    df: float
    """The degrees of freedom of `variance`: infinite if it was given, 0 if it is unknown."""
    within: float
    """The sum of squared deviations of the runs from the mean at their RTT."""

    @property
    def scale(self) -> float:
        """The largest mean throughput, or 1 if all are zero."""
        return float(self.mean.max()) or 1.0

    @property
    def flat(self) -> bool:
        """Whether all means are equal within rounding."""
        return float(np.ptp(self.mean)) <= _ROUNDING * self.scale


def _spread(sd: ArrayLike, size: int) -> FloatArray:
    array = vector("sd", np.full(size, sd) if np.ndim(sd) == 0 else sd)
    if len(array) != size:
        raise UsageError(f"sd has {len(array)} entries for {size} runs: give one number, or one per run")
    if (array <= 0).any():
        raise UsageError("sd should be positive: leave it out to estimate it from repeated runs")
    return array


def group(rtt_ms: ArrayLike, throughput: ArrayLike, sd: ArrayLike | None = None) -> Samples:
    """Groups runs by RTT.

    Args:
        rtt_ms: The RTT of each run in ms, of shape (runs,).
        throughput: The throughput of each run, in one unit, of shape (runs,).
        sd: The noise of one run in the unit of `throughput`, one number or one per run; None for the spread
            pooled over the RTTs with repeats, assuming that it is the same at all RTTs.

    Raises:
        UsageError: Lengths differ, a value is not finite, an RTT or `sd` is not positive, a throughput is
            negative, or there are fewer than three distinct RTTs.
    """
    rtt, y = vector("rtt_ms", rtt_ms), vector("throughput", throughput)
    if len(rtt) != len(y):
        raise UsageError(f"rtt_ms has {len(rtt)} entries and throughput {len(y)}: give one of each per run")
    if (rtt <= 0).any():
        raise UsageError(f"an RTT of {rtt.min():g} ms is not positive: give RTTs in ms, greater than zero")
    if (y < 0).any():
        raise UsageError(f"a throughput of {y.min():g} is negative: give throughputs of zero or more")
    distinct, index = np.unique(rtt, return_inverse=True)
    if len(distinct) < MIN_RTTS:
        raise UsageError(
            f"cannot say: curvature needs runs at {MIN_RTTS} distinct RTTs, and these have {len(distinct)}"
        )
    ones = np.ones(len(y)) if sd is None else 1 / _spread(sd, len(y)) ** 2
    n = np.bincount(index).astype(np.float64)
    weight = np.asarray(np.bincount(index, ones), dtype=np.float64)
    mean = np.bincount(index, ones * y) / weight
    within = float(np.sum((y - mean[index]) ** 2))
    variance: float | None = 1.0
    df = np.inf
    if sd is None:
        df = float(len(y) - len(distinct))
        floor = (_ROUNDING * (float(y.max()) or 1.0)) ** 2
        variance = max(within / df, floor) if df > 0 else None
    return Samples(distinct, n, mean, weight, variance, df, within)


def gap(low: float, high: float) -> str:
    """Formats a gap between RTTs: `between 45.6 and 91.6 ms`."""
    return f"between {low:.6g} and {high:.6g} ms"
