"""Runs grouped by RTT, with what is known of their noise."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fullpipe.arrays import FloatArray, vector
from fullpipe.errors import UsageError

LEAST_RTTS = 3

# Repeats that agree to a billionth are one value as computers print it, not proof of a noiseless path.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Samples:
    """Throughput grouped by RTT; arrays of one entry per distinct RTT, in ascending order."""

    rtt_ms: FloatArray
    n: FloatArray
    """Runs."""
    mean: FloatArray
    """Weighted mean throughput."""
    weight: FloatArray
    """The variance of a mean is `variance / weight`."""
    variance: float | None
    """Of one run of weight 1; None if nothing tells."""
    df: float
    """Degrees of freedom of `variance`: infinite if it was given, 0 if it is unknown."""
    within: float
    """Sum of squared deviations of the runs from the mean of their RTT."""

    @property
    def scale(self) -> float:
        """The largest mean throughput, or 1 if all are zero."""
        return float(self.mean.max()) or 1.0

    @property
    def flat(self) -> bool:
        """Whether the means are all the same within rounding."""
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
        rtt_ms: RTT of each run, ms.
        throughput: Throughput of each run, in any one unit.
        sd: Noise of one run in the unit of `throughput`, for all runs or for each; if None, it is pooled
            over the RTTs that have repeats, as if it were the same at all RTTs.

    Raises:
        UsageError: Lengths that differ, values that are not finite, RTTs or `sd` that are not positive,
            negative throughput, or fewer than three distinct RTTs.
    """
    rtt, y = vector("rtt_ms", rtt_ms), vector("throughput", throughput)
    if len(rtt) != len(y):
        raise UsageError(f"rtt_ms has {len(rtt)} entries and throughput {len(y)}: give one of each per run")
    if (rtt <= 0).any():
        raise UsageError(f"an RTT of {rtt.min():g} ms is not positive: give RTTs in ms, greater than zero")
    if (y < 0).any():
        raise UsageError(f"a throughput of {y.min():g} is negative: give throughputs of zero or more")
    distinct, index = np.unique(rtt, return_inverse=True)
    if len(distinct) < LEAST_RTTS:
        raise UsageError(
            f"cannot say: curvature needs runs at {LEAST_RTTS} distinct RTTs, and these have {len(distinct)}"
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
    """As `between 45.6 and 91.6 ms`."""
    return f"between {low:.6g} and {high:.6g} ms"
