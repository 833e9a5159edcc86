"""Checks of input that several bounds share."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fullpipe.errors import UsageError

FloatArray = NDArray[np.float64]


def vector(name: str, values: ArrayLike) -> FloatArray:
    """A 1-D array of finite numbers, at least one of them.

    Raises:
        UsageError: It is not one; the message names it.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise UsageError(f"{name} should be a list of numbers") from None
    if array.ndim != 1:
        raise UsageError(f"{name} should be one-dimensional, not of shape {array.shape}")
    if len(array) == 0:
        raise UsageError(f"{name} is empty: give at least one number")
    if not np.isfinite(array).all():
        at = int(np.flatnonzero(~np.isfinite(array))[0])
        raise UsageError(f"{name}[{at}] is {array[at]}: leave out what has no finite value")
    return array


def check_share(name: str, value: float) -> None:
    """Refuses a level, or another probability, outside (0, 1).

    Raises:
        UsageError: It is outside.
    """
    if not 0 < value < 1:
        raise UsageError(f"a {name} of {value:g} is not between 0 and 1: give one such as 0.95")
