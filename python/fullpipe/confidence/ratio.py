"""Computes confidence intervals and tests of the ratio of two mean throughputs, such as after and before."""

import math
from typing import NamedTuple

from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from fullpipe.arrays import FloatArray, check_share, vector
from fullpipe.errors import UsageError


class Ratio(NamedTuple):
    """The ratio of two means with its interval; without a unit."""

    ratio: float
    low: float
    high: float
    """The upper bound; infinite if the runs do not exclude any large ratio."""

    def __repr__(self) -> str:
        """The ratio and its interval in one line."""
        return f"{self.ratio:.6g}, from {self.low:.6g} to {self.high:.6g}"


class _Mean(NamedTuple):
    n: int
    mean: float
    variance: float
    """The variance of the mean."""


def _mean(name: str, samples: ArrayLike) -> _Mean:
    x: FloatArray = vector(name, samples)
    if len(x) < 2:
        raise UsageError("cannot say: one run has no spread; repeat the run")
    if x.min() < 0:
        raise UsageError(f"{name} has {x.min():g}, which is negative: give throughputs")
    # Runs that are all equal have a variance of zero, not one of rounding errors.
    variance = 0.0 if x.min() == x.max() else float(x.var(ddof=1)) / len(x)
    return _Mean(len(x), float(x.mean()), variance)


def _means(after: ArrayLike, before: ArrayLike) -> tuple[_Mean, _Mean]:
    new, old = _mean("after", after), _mean("before", before)
    if old.mean == 0:
        raise UsageError("cannot say: the mean before is zero, so nothing is a share of it")
    return new, old


def ratio(after: ArrayLike, before: ArrayLike, level: float = 0.95) -> Ratio:
    """Computes the ratio of the mean throughput after a change to that before it, with its interval.

    The interval is Fieller's (1954) for two independent sets of runs with spreads of their own: all ratios ρ
    for which the t test of mean(after) = ρ·mean(before) is not significant. As degrees of freedom it takes
    those of the smaller set, min(n) - 1. With them the test holds its level for normal noise whatever the two
    spreads are (Mickey and Brown 1966). Welch's degrees of freedom give narrower intervals, but cover the
    ratio in only 90% of simulations with 2 and 10 runs. A simulation in the tests checks the coverage.

    If all runs of both sets are equal, the interval is one point. That is right only if nothing can vary, as
    in a simulation without randomness.

    Args:
        after: The throughput of each run after the change, of shape (runs,).
        before: The throughput of each run before it, of shape (runs,), in the same unit.
        level: The confidence level, in (0, 1).

    Returns:
        The ratio of the means, and its interval. The lower bound is at least zero. The upper bound is
        infinite if the mean before cannot be distinguished from zero.

    Raises:
        UsageError: A set has fewer than two runs, a value is negative or not finite, the mean before is zero,
            or the level is outside (0, 1).
    """
    check_share("level", level)
    new, old = _means(after, before)
    t2 = float(stdtrit(min(new.n, old.n) - 1, 0.5 + level / 2)) ** 2
    # The interval is where a·ρ² - 2·b·ρ + c ≤ 0.
    a, b, c = old.mean**2 - t2 * old.variance, old.mean * new.mean, new.mean**2 - t2 * new.variance
    found = new.mean / old.mean
    if old.variance == new.variance == 0:
        return Ratio(found, found, found)
    root = math.sqrt(max(b * b - a * c, 0.0))
    return Ratio(found, c / (b + root) if c > 0 else 0.0, (b + root) / a if a > 0 else math.inf)


def p_not_below(after: ArrayLike, before: ArrayLike, bound: float) -> float:
    """Computes the one-sided p-value of the hypothesis that the ratio of two means is at least `bound`.

    The test is the one that :func:`ratio` inverts. A small value shows that the mean after the change is
    below `bound` times the mean before it.

    Args:
        after: The throughput of each run after the change, of shape (runs,).
        before: The throughput of each run before it, of shape (runs,), in the same unit.
        bound: The ratio, such as 0.95 for a fall by 5%; at least 0.

    Returns:
        The p-value, in [0, 1].

    Raises:
        UsageError: A set has fewer than two runs, a value is negative or not finite, the mean before is zero,
            or the bound is negative or not finite.
    """
    if not 0 <= bound < math.inf:
        raise UsageError(f"a ratio of {bound:g} is negative or not finite: give one such as 0.95")
    new, old = _means(after, before)
    difference = new.mean - bound * old.mean
    error = math.sqrt(new.variance + bound**2 * old.variance)
    if error == 0:
        return float(difference >= 0)
    return float(stdtr(min(new.n, old.n) - 1, difference / error))
