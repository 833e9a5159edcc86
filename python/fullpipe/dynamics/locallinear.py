"""Local-linear regression with a Gaussian kernel, for many series of the same values at once.

The estimator is that of Fan and Gijbels 1996 and of statsmodels' `KernelReg(reg_type="ll")`. Resampled and
surrogate series have the same values as the trace, so they share the kernel, which takes most of the time.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Bools = NDArray[np.bool_]

_LEAST_SPREAD = 0.3
_LEAST_WEIGHT = 1e-10


@dataclass(frozen=True)
class Line:
    """Lines fitted around m points for r series; each array is (m, r).

    Attributes:
        level: The fitted value at the point.
        slope: The fitted slope at the point.
        leverage: The weight of an observation at the point in its own fit.
        defined: Whether the values within the kernel's reach have a standard deviation of at least 0.3
            bandwidths. Otherwise, as in a tight cluster, the slope is that of a finer scale or of noise.
    """

    level: Floats
    slope: Floats
    leverage: Floats
    defined: Bools

    def only(self, series: int) -> "Line":
        """The lines of one series; arrays of shape (m, 1)."""
        one = slice(series, series + 1)
        return Line(self.level[:, one], self.slope[:, one], self.leverage[:, one], self.defined[:, one])


def _kernel(values: Floats, at: Indices, bandwidth: float) -> Floats:
    """The weights of all values around the given points, shape (m, n); all one for an infinite bandwidth."""
    return np.asarray(np.exp(-0.5 * ((values[at][:, None] - values[None, :]) / bandwidth) ** 2))


def lines(values: Floats, at: Indices, bandwidth: float, counts: Floats, next_values: Floats) -> Line:
    """Fits next values on values around each point, for each series.

    Args:
        values: The values of all series, shape (n,); centred and scaled to unit spread, for precision.
        at: The indices of the points, shape (m,).
        bandwidth: The standard deviation of the kernel; infinite for one line through all values.
        counts: How often each value counts in each series, shape (n, r).
        next_values: The successor of each value in each series, shape (n, r); ignored where counts are zero.
    """
    x, v = values[at][:, None], values[:, None]
    columns = np.concatenate(
        [counts, counts * v, counts * v**2, counts * next_values, counts * v * next_values], axis=1
    )
    s0, sv, svv, t0, tv = np.split(_kernel(values, at, bandwidth) @ columns, 5, axis=1)
    s1, s2, t1 = sv - x * s0, svv - 2 * x * sv + x**2 * s0, tv - x * t0
    determinant = s0 * s2 - s1**2
    # A straight line through everything only needs two different values.
    least = (_LEAST_SPREAD * bandwidth) ** 2 if np.isfinite(bandwidth) else _LEAST_WEIGHT
    with np.errstate(divide="ignore", invalid="ignore"):
        return Line(
            level=(s2 * t0 - s1 * t1) / determinant,
            slope=(s0 * t1 - s1 * t0) / determinant,
            leverage=s2 / determinant,
            defined=(s0 > _LEAST_WEIGHT) & (determinant > least * s0**2),
        )


def slope_errors(
    values: Floats, at: Indices, bandwidth: float, counts: Floats, next_values: Floats, line: Line
) -> Floats:
    """Computes standard errors of one series' slopes for unequal variances (White 1980), shape (m, 1).

    Args:
        values: The values, as for :func:`lines`.
        at: The indices of the points, as for :func:`lines`.
        bandwidth: The bandwidth, as for :func:`lines`.
        counts: The counts of the series, shape (n, 1).
        next_values: The successors in the series, shape (n, 1).
        line: The result of :func:`lines`.
    """
    weights = _kernel(values, at, bandwidth) * counts.T
    distance = values[None, :] - values[at][:, None]
    residuals = next_values.T - line.level - line.slope * distance
    centred = distance - (weights * distance).sum(axis=1, keepdims=True) / weights.sum(axis=1, keepdims=True)
    spread = (weights * centred**2).sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.sqrt(((weights * centred * residuals) ** 2).sum(axis=1, keepdims=True)) / spread)
