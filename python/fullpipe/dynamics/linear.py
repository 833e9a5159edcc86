"""Estimates how far a first-order linear process goes back to its mean in one step, from few values."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_GRID = np.sin(np.linspace(-1, 1, 61) * np.arcsin(0.998))
"""Correlations that are simulated, denser towards -1 and 1, where estimates change fastest."""
_VALUES = 1_000_000
"""Values of each simulated correlation, over all series."""
_MIN_SERIES, _MAX_SERIES = 400, 4000
_LEVELS = (0.025, 0.5, 0.975)
_MAX_EXACT, _STEP = 128, 1.03
"""The longest series that is simulated with its own length, and the ratio of the lengths above it."""


class Correlation(NamedTuple):
    """The correlation of each value with the next, and the ends of its 95% interval."""

    value: float
    low: float
    high: float


def least_squares(values: Floats) -> Floats:
    """The slope of the line through each value and its successor; over the last axis."""
    now, then = values[..., :-1], values[..., 1:]
    now = now - now.mean(axis=-1, keepdims=True)
    return np.asarray((now * then).sum(axis=-1) / (now**2).sum(axis=-1))


def _simulated(n: int) -> int:
    """The length that stands for series of n values, at most 4% less; the quantiles vary slowly with it."""
    if n <= _MAX_EXACT:
        return n
    return int(_MAX_EXACT * _STEP ** int(np.log(n / _MAX_EXACT) / np.log(_STEP)))


@lru_cache(maxsize=256)
def _quantiles(n: int) -> Floats:
    """The quantiles of the least-squares slope of n values at each correlation, of shape (3, grid)."""
    from scipy.signal import lfilter

    noise = np.random.default_rng(0).standard_normal(
        (int(np.clip(_VALUES // n, _MIN_SERIES, _MAX_SERIES)), n)
    )
    found = np.empty((len(_LEVELS), len(_GRID)))
    for i, correlation in enumerate(_GRID):
        start = noise.copy()
        start[:, 0] /= np.sqrt(1 - correlation**2)
        found[:, i] = np.quantile(least_squares(lfilter([1.0], [1.0, -correlation], start, axis=1)), _LEVELS)
    # Simulated quantiles may fall by chance where the true ones rise.
    return np.asarray(np.maximum.accumulate(found, axis=1))


def correlation(values: Floats) -> Correlation:
    """Estimates a trace's correlation with its next value, median-unbiased (Andrews 1993).

    The least-squares slope is too small in short series, and its error is skewed near 1. The estimate is the
    correlation for which half of simulated Gaussian first-order processes of about this length have a smaller
    slope; the ends of the interval are those for which 97.5% and 2.5% have.

    Args:
        values: The trace, of shape (n,).
    """
    slope = float(least_squares(values))
    small, middle, large = _quantiles(_simulated(len(values)))
    return Correlation(
        float(np.interp(slope, middle, _GRID)),
        float(np.interp(slope, large, _GRID, left=-1.0)),
        float(np.interp(slope, small, _GRID, right=1.0)),
    )
