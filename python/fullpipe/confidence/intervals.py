"""Computes confidence intervals of the mean throughput over runs."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from fullpipe.arrays import FloatArray, check_share, vector
from fullpipe.errors import UsageError

Method = Literal["t", "hoeffding", "empirical-bernstein", "bootstrap"]

RESAMPLES = 3000

_NO_SPREAD = 1e-9


class Interval(NamedTuple):
    """The lower and the upper bound of a mean, in the unit of the samples."""

    low: float
    high: float

    def __repr__(self) -> str:
        """The interval in one line."""
        return f"from {self.low:.6g} to {self.high:.6g}"


def _spread(x: FloatArray) -> float:
    if len(x) < 2:
        raise UsageError("cannot say: one run has no spread; repeat the run, or use 'hoeffding' with bounds")
    return 0.0 if np.ptp(x) == 0 else float(x.std(ddof=1))


def _student(x: FloatArray, level: float) -> Interval:
    half = float(stdtrit(len(x) - 1, 0.5 + level / 2)) * _spread(x) / float(np.sqrt(len(x)))
    return Interval(float(x.mean()) - half, float(x.mean()) + half)


def _bootstrap(x: FloatArray, level: float, seed: int) -> Interval:
    """Bootstrap-t: uses quantiles of the resampled t statistic instead of Student's."""
    sd, mean, n = _spread(x), float(x.mean()), len(x)
    if sd == 0:
        return Interval(mean, mean)
    drawn = x[np.random.default_rng(seed).integers(0, n, (RESAMPLES, n))]
    shift, error = drawn.mean(axis=1) - mean, drawn.std(axis=1, ddof=1) / np.sqrt(n)
    # A resample that repeats one value has no spread and makes t arbitrarily large.
    t = shift / np.maximum(error, _NO_SPREAD**2 * sd)
    low, high = np.quantile(t, [(1 - level) / 2, (1 + level) / 2], method="higher")
    if max(abs(low), abs(high)) > 1 / _NO_SPREAD:
        raise UsageError(
            f"cannot say: {n} runs of {len(np.unique(x))} distinct values are too few to resample at level"
            f" {level:g}; repeat the run, or use 't'"
        )
    scale = sd / float(np.sqrt(n))
    return Interval(mean - float(high) * scale, mean - float(low) * scale)


def _hoeffding(x: FloatArray, level: float, bounds: Interval) -> Interval:
    half = (bounds.high - bounds.low) * float(np.sqrt(np.log(2 / (1 - level)) / (2 * len(x))))
    return Interval(float(x.mean()) - half, float(x.mean()) + half)


def _bernstein(x: FloatArray, level: float, bounds: Interval) -> Interval:
    n, log = len(x), float(np.log(4 / (1 - level)))
    half = _spread(x) * float(np.sqrt(2 * log / n)) + (bounds.high - bounds.low) * 7 * log / (3 * (n - 1))
    return Interval(float(x.mean()) - half, float(x.mean()) + half)


_BOUNDED: dict[str, Callable[[FloatArray, float, Interval], Interval]] = {
    "hoeffding": _hoeffding,
    "empirical-bernstein": _bernstein,
}


def _check_bounds(x: FloatArray, method: str, bounds: tuple[float, float] | None) -> Interval | None:
    if bounds is None:
        if method in _BOUNDED:
            raise UsageError(f"'{method}' needs bounds that no run can exceed: give bounds=(0, capacity)")
        return None
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        raise UsageError(f"bounds {bounds!r} are not two numbers: give bounds=(0, capacity)") from None
    if not np.isfinite([low, high]).all() or low >= high:
        raise UsageError(f"bounds ({low:g}, {high:g}) are not in order: give bounds=(0, capacity)")
    if x.min() < low or x.max() > high:
        outside = x.min() if x.min() < low else x.max()
        raise UsageError(f"a sample of {outside:g} is outside the bounds ({low:g}, {high:g}): widen them")
    return Interval(low, high)


def interval(
    samples: ArrayLike,
    method: Method = "t",
    level: float = 0.95,
    *,
    bounds: tuple[float, float] | None = None,
    seed: int = 0,
) -> Interval:
    """Computes a confidence interval of the mean over independent runs.

    - "t": Student's t, which profiles use. It is exact for normal noise at any n ≥ 2.
    - "bootstrap": bootstrap-t (Efron and Tibshirani 1993, section 12.5) with a fixed seed. It suits noise
      that is not normal, such as throughput close to capacity. It needs at least four different values, and
      about 20 runs to hold its level.
    - "hoeffding" (Hoeffding 1963, theorem 2): holds for any distribution inside `bounds`, at any n ≥ 1. It
      ignores the spread and is therefore conservative: it covers the mean more often than `level`.
    - "empirical-bernstein" (Maurer and Pontil 2009, theorem 4, both sides at once): holds likewise for n ≥ 2,
      and is narrower than Hoeffding's for hundreds of runs with little spread.

    If all runs are equal, "t" and "bootstrap" give (mean, mean). That is right only if nothing can vary, as
    in a simulation without randomness.

    Args:
        samples: The throughput of each run, of shape (runs,), in one unit.
        method: One of the four methods.
        level: The confidence level, in (0, 1).
        bounds: The bounds of throughput, normally (0, capacity), in the unit of `samples`. The last two
            methods need them; the interval of every method is clipped to them.
        seed: The seed of the bootstrap.

    Returns:
        The lower and the upper bound, in the unit of `samples`.

    Raises:
        UsageError: The method is unknown, there are no samples, one is not finite or outside `bounds`, a
            single run has no spread, or there are too few different values to resample.
    """
    check_share("level", level)
    x = vector("samples", samples)
    limits = _check_bounds(x, method, bounds)
    if method == "t":
        found = _student(x, level)
    elif method == "bootstrap":
        found = _bootstrap(x, level, seed)
    elif method in _BOUNDED and limits is not None:
        found = _BOUNDED[method](x, level, limits)
    else:
        known = "t, hoeffding, empirical-bernstein or bootstrap"
        raise UsageError(f"'{method}' is not a method: use {known}")
    return found if limits is None else Interval(max(found.low, limits.low), min(found.high, limits.high))
