"""Checks of arrays and shares that several estimators take as arguments."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fullpipe.errors import UsageError

FloatArray = NDArray[np.float64]


def floats(values: ArrayLike) -> FloatArray:
    """Converts values into an array of numbers; masked ones become NaN, so that no check can overlook them.

    Raises:
        UsageError: The values are no numbers.
    """
    try:
        if np.ma.isMaskedArray(values):
            return np.asarray(np.ma.asarray(values, dtype=np.float64).filled(np.nan))
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise UsageError("give numbers, with a point before decimals, in lists of one length") from None


def vector(name: str, values: ArrayLike) -> FloatArray:
    """Converts values into a one-dimensional array of at least one finite number.

    Args:
        name: The name of the argument, for the error text.
        values: The values.

    Returns:
        The array, of shape (n,).

    Raises:
        UsageError: The values are not such an array.
    """
    try:
        array = floats(values)
    except UsageError as error:
        raise UsageError(f"{name} should be a list of numbers: {error}") from None
    if array.ndim != 1:
        raise UsageError(f"{name} should be one-dimensional, not of shape {array.shape}")
    if len(array) == 0:
        raise UsageError(f"{name} is empty: give at least one number")
    if not np.isfinite(array).all():
        at = int(np.flatnonzero(~np.isfinite(array))[0])
        raise UsageError(f"{name}[{at}] is {array[at]}: leave out values that are masked or not finite")
    return array


def check_share(name: str, value: float) -> None:
    """Checks that a level or another probability is inside (0, 1).

    Args:
        name: The name of the argument, for the error text.
        value: The value.

    Raises:
        UsageError: The value is outside.
    """
    if not 0 < value < 1:
        raise UsageError(f"a {name} of {value:g} is not between 0 and 1: give one such as 0.95")
