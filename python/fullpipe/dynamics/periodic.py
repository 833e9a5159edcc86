"""Recognises traces that repeat themselves, which have no exponent of a map."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

REPEATS = 0.97
"""The correlation of a trace with itself one period later from which on it counts as periodic."""
_FALLS = 0.5
"""The correlation below which a trace has to fall before it returns: a slow trace is no periodic one."""
_PERIODS = 3
"""The fewest periods that a trace has to show."""


class Period(NamedTuple):
    """The period of a trace."""

    values: int
    """The number of values after which the trace repeats itself."""
    share: float
    """The share of its variance that repeats: its correlation with itself one period later."""


def period(values: Floats) -> Period | None:
    """The period after which a trace repeats itself; None if it does not.

    A trace repeats itself if its correlation with itself falls below one half and then returns to at least
    :data:`REPEATS`. Noise on a period lowers the correlation by its share of the variance.

    Args:
        values: The trace, of shape (n,).
    """
    lags = np.arange(1, len(values) // _PERIODS + 1)
    change = np.array([np.mean((values[lag:] - values[:-lag]) ** 2) for lag in lags])
    correlation = 1 - change / (2 * values.var())
    low = np.flatnonzero(correlation < _FALLS)
    if len(low) == 0:
        return None
    again = np.flatnonzero(correlation >= REPEATS)
    again = again[again > low[0]]
    if len(again) == 0:
        return None
    # A period that is no whole number of values may return at several lags: take the best of the first.
    gaps = np.flatnonzero(np.diff(again) > 1)
    first = again[: gaps[0] + 1] if len(gaps) else again
    best = first[np.argmax(correlation[first])]
    return Period(int(lags[best]), float(correlation[best]))
