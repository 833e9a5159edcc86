"""Groups runs by RTT and estimates their noise."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fullpipe.arrays import FloatArray, vector
from fullpipe.errors import UsageError
from fullpipe.transition.spread import moderate

MIN_RTTS = 3
SAME_RTT = 1e-6
"""RTTs that differ by less than this share of themselves are one RTT."""
FLOOR = 1e-3
"""The least spread of one run, as a share of the mean at its RTT: smaller ones show no shape."""

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
    """The degrees of freedom of the variances: infinite if they were given, 0 if they are unknown."""
    own_df: FloatArray
    """The degrees of freedom of the repeats at each RTT."""
    lent_df: float
    """The degrees of freedom that the repeats at the other RTTs lend to each."""
    floor: FloatArray
    """The least variance of one run at each RTT."""
    is_estimated: bool
    """Whether the weights rest on the spread of repeats."""
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


def _distinct(rtt: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
    """The distinct RTTs, and for each run the index of its own; the smallest of equal ones stands for all."""
    values, index = np.unique(rtt, return_inverse=True)
    begins = np.append(True, np.diff(values) > SAME_RTT * values[1:])
    return values[begins], np.asarray(np.cumsum(begins) - 1)[index]


def group(rtt_ms: ArrayLike, throughput: ArrayLike, sd: ArrayLike | None = None) -> Samples:
    """Groups runs by RTT.

    Args:
        rtt_ms: The RTT of each run in ms, of shape (runs,).
        throughput: The throughput of each run, in one unit, of shape (runs,).
        sd: The noise of one run in the unit of `throughput`, one number or one per run; None for the spread
            of repeats at each RTT (:func:`fullpipe.transition.spread.moderate`), at least :data:`FLOOR` of
            the mean.

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
    distinct, index = _distinct(rtt)
    if len(distinct) < MIN_RTTS:
        raise UsageError(
            f"cannot say: curvature needs runs at {MIN_RTTS} distinct RTTs, and these have {len(distinct)}"
        )
    ones = np.ones(len(y)) if sd is None else 1 / _spread(sd, len(y)) ** 2
    n = np.bincount(index).astype(np.float64)
    weight = np.asarray(np.bincount(index, ones), dtype=np.float64)
    mean = np.bincount(index, ones * y) / weight
    squares = np.bincount(index, (y - mean[index]) ** 2)
    within = float(squares.sum())
    own_df = n - 1
    # Repeats that agree exactly differ by less than a measurement can tell.
    floor = np.maximum(FLOOR * mean, _ROUNDING * (float(y.max()) or 1.0)) ** 2
    variance: float | None = 1.0
    df = np.inf
    lent_df = 0.0
    is_estimated = sd is None and bool(own_df.any())
    if is_estimated:
        spread = moderate(squares / np.maximum(own_df, 1), own_df, floor)
        weight = n / spread.variance
        lent_df = float(spread.lent_df)
        df = float(min(lent_df + own_df.min(), own_df.sum()))
    elif sd is None:
        variance, df = None, 0.0
    return Samples(distinct, n, mean, weight, variance, df, own_df, lent_df, floor, is_estimated, within)


def gap(low: float, high: float) -> str:
    """Formats a gap between RTTs: `between 45.6 and 91.6 ms`."""
    return f"between {low:.6g} and {high:.6g} ms"
