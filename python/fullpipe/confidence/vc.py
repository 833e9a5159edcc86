"""The papers' distribution-free guarantee, a Vapnik–Chervonenkis bound, and the runs that it needs."""

from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fullpipe.arrays import FloatArray, check_share, floats
from fullpipe.errors import UsageError


def _positive(name: str, value: ArrayLike) -> FloatArray:
    try:
        array = floats(value)
    except UsageError:
        raise UsageError(f"{name} should be a number") from None
    if not (np.isfinite(array) & (array > 0)).all():
        raise UsageError(f"{name} should be finite and greater than zero")
    return array


def _relative(epsilon: ArrayLike, capacity: ArrayLike) -> FloatArray:
    ratio = np.asarray(_positive("epsilon", epsilon) / _positive("capacity", capacity))
    if (ratio > 1).any():
        raise UsageError("epsilon is above the capacity, where the bound is trivial: give both in one unit")
    return ratio


def _log_bound(n: FloatArray, ratio: FloatArray) -> FloatArray:
    cover = (1 + 1 / ratio) * np.log2(4 / ratio) * np.log(n / ratio**2)
    return np.asarray(np.log(32) + cover + np.log(n) - ratio**2 * n / 16)


@overload
def vc_bound(n: float, epsilon: float, capacity: float) -> float: ...
@overload
def vc_bound(n: ArrayLike, epsilon: ArrayLike, capacity: ArrayLike) -> float | FloatArray: ...
def vc_bound(n: ArrayLike, epsilon: ArrayLike, capacity: ArrayLike) -> float | FloatArray:
    """Bounds the probability that the profile mean is worse than the best estimator by more than ε.

    The bound on P{I(profile mean) - I(best unimodal estimator) > ε} of Rao et al., HPDC 2017, section
    5.2, corrected. The paper prints

        32 (n/ε²)^((1 + C/ε) log₂(4ε/C)) n exp(-ε² n / (2C)²),

    whose first exponent is negative for ε < C/4, as if less than one function covered a class of functions:
    see :func:`vc_bound_as_printed`. Here the ratio in the logarithm is inverted,

        32 (n C²/ε²)^((1 + C/ε) log₂(4C/ε)) n exp(-ε² n / (4C)²),

    with the (4C)² of the paper's first inequality, which does not lead to (2C)², and with n/ε² made free of
    units. The other constants are the paper's and are not derived again here.

    It is loose: 95% confidence takes 1.7·10⁵ observations at ε/C = 0.2, 2·10⁶ at 0.1 and 2·10⁷ at 0.05,
    and for far fewer the bound is 1. For practical numbers, see :func:`fullpipe.confidence.interval` and
    :func:`fullpipe.confidence.envelope`.

    Args:
        n: The number of observations, at least 1.
        epsilon: ε, above 0 and up to `capacity`. Only ε/C matters. It bounds squared errors of
            throughput scaled by the capacity: ε/C = 0.04 is a root-mean-square error of 0.2 C.
        capacity: C, in the unit of `epsilon`. All three broadcast.

    Returns:
        A bound on the probability of failure, in [0, 1]; an array if an argument is one.

    Raises:
        UsageError: A value is not a positive number, n is below 1, or ε is above C.
    """
    runs, ratio = _positive("n", n), _relative(epsilon, capacity)
    if (runs < 1).any():
        raise UsageError("n should be at least 1: it counts observations")
    found = np.exp(np.minimum(_log_bound(runs, ratio), 0.0))
    return float(found) if np.ndim(found) == 0 else np.asarray(found)


@overload
def vc_bound_as_printed(n: float, epsilon: float, capacity: float) -> float: ...
@overload
def vc_bound_as_printed(n: ArrayLike, epsilon: ArrayLike, capacity: ArrayLike) -> float | FloatArray: ...
def vc_bound_as_printed(n: ArrayLike, epsilon: ArrayLike, capacity: ArrayLike) -> float | FloatArray:
    """Computes the bound as the paper prints it; it is not valid and serves for comparison.

    32 (n/ε²)^((1 + C/ε) log₂(4ε/C)) n exp(-ε² n / (2C)²), Rao et al., HPDC 2017, section 5.2. With C = 1
    and ε = 0.1 it is below 10⁻³⁰ for two observations. It is not clipped to [0, 1] and
    depends on units: divide by the capacity first, so that C = 1.

    Args:
        n: The number of observations.
        epsilon: ε.
        capacity: C. All three broadcast.

    Returns:
        The printed value; infinite where it overflows.

    Raises:
        UsageError: A value is not a positive number.
    """
    runs, eps, top = _positive("n", n), _positive("epsilon", epsilon), _positive("capacity", capacity)
    cover = (1 + top / eps) * np.log2(4 * eps / top) * np.log(runs / eps**2)
    with np.errstate(over="ignore"):
        found = np.exp(np.log(32) + cover + np.log(runs) - eps**2 * runs / (2 * top) ** 2)
    return float(found) if np.ndim(found) == 0 else np.asarray(found)


@overload
def vc_runs_needed(epsilon: float, capacity: float, level: float = ...) -> int: ...
@overload
def vc_runs_needed(
    epsilon: ArrayLike, capacity: ArrayLike, level: float = ...
) -> int | NDArray[np.int64]: ...
def vc_runs_needed(epsilon: ArrayLike, capacity: ArrayLike, level: float = 0.95) -> int | NDArray[np.int64]:
    """Computes how many observations :func:`vc_bound` needs for ε at a confidence level.

    Args:
        epsilon: ε, from 0.001 of `capacity` to `capacity`.
        capacity: C, in the unit of `epsilon`; both broadcast.
        level: The confidence level, in (0, 1).

    Returns:
        The least n with a bound of 1 - `level` or less; an array if an argument is one.

    Raises:
        UsageError: A value is not a positive number, the level is outside (0, 1), or ε is out of range.
    """
    check_share("level", level)
    ratio = _relative(epsilon, capacity)
    if (ratio < 1e-3).any():
        raise UsageError("epsilon is below 0.001 of the capacity: no possible number of runs suffices")
    goal = np.log(1 - level)
    # The bound starts above 1, rises with n up to this value, and falls beyond it.
    low = np.ceil(16 / ratio**2 * (1 + (1 + 1 / ratio) * np.log2(4 / ratio)))
    high = 2 * low
    while (_log_bound(high, ratio) > goal).any():
        high *= 2
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        enough = _log_bound(middle, ratio) <= goal
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return int(high) if np.ndim(high) == 0 else np.asarray(high).astype(np.int64)
