"""Estimates the variance of one run at each RTT from few repeats."""

from typing import NamedTuple

import numpy as np
from scipy.special import digamma, polygamma

from fullpipe.arrays import FloatArray

_STEPS = 12
"""Newton steps; each doubles the digits, and the start is good."""
_LARGEST_DF = 1e9


class Spread(NamedTuple):
    """Variances of one run, of shape (..., K), and the degrees of freedom that others lend to each."""

    variance: FloatArray
    lent_df: FloatArray


def _inverse_trigamma(value: FloatArray) -> FloatArray:
    """The y for which trigamma(y) is the value (Smyth 2004, appendix)."""
    y = 0.5 + 1 / value
    for _ in range(_STEPS):
        trigamma = polygamma(1, y)
        y = y + trigamma * (1 - trigamma / value) / polygamma(2, y)
    return np.asarray(y)


def moderate(own: FloatArray, df: FloatArray, floor: FloatArray) -> Spread:
    """Moves each RTT's own variance towards those of the others, as far as they are alike (Smyth 2004).

    Where variances differ between RTTs by no more than chance, the result is the pooled variance; where they
    differ by much more, it is hardly more than each RTT's own. An RTT without repeats takes what the others
    lend. limma (Ritchie et al. 2015) does the same for genes.

    Args:
        own: The variance of the runs at each RTT, of shape (..., K); ignored where `df` is zero.
        df: The degrees of freedom of each, of shape (K,); at least one is positive.
        floor: The least variance at each RTT, of shape (K,).
    """
    known = df > 0
    d = df[known]
    own = np.maximum(own, floor)
    level = np.log(own[..., known]) - digamma(d / 2) + np.log(d / 2)
    mean = level.mean(axis=-1, keepdims=True)
    count = len(d)
    excess = np.zeros_like(mean)
    if count > 1:
        excess = ((level - mean) ** 2).sum(axis=-1, keepdims=True) / (count - 1) - polygamma(1, d / 2).mean()
    varies = excess > 1e-6
    lent = np.where(varies, 2 * _inverse_trigamma(np.where(varies, excess, 1.0)), _LARGEST_DF)
    centre = np.where(varies, np.exp(mean + digamma(lent / 2) - np.log(lent / 2)), np.exp(mean))
    # Alike variances are pooled by their degrees of freedom.
    pooled = (own[..., known] * d).sum(axis=-1, keepdims=True) / d.sum()
    centre = np.where(varies, centre, pooled)
    variance = (lent * centre + np.where(known, df * own, 0.0)) / (lent + df)
    return Spread(np.maximum(variance, floor), lent[..., 0])
