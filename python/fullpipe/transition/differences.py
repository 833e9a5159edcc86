"""Estimates the curvature of a profile at each measured RTT, with its error, without a model."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fullpipe.arrays import FloatArray
from fullpipe.transition.samples import group

_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class SecondDifferences:
    """The curvature of the mean profile; arrays with one entry for each interior RTT."""

    rtt_ms: FloatArray
    value: FloatArray
    """The second divided differences, in throughput per ms²; negative is concave, positive is convex."""
    se: FloatArray | None
    """The standard errors of `value`; None if the noise is unknown."""
    z: FloatArray | None
    """`value / se`; None if the noise is unknown."""
    df: float
    """The degrees of freedom of the noise, with which z is Student's t; infinite if `sd` was given."""

    def __repr__(self) -> str:
        """One line for each RTT."""
        signs = ["concave" if v < 0 else "convex" if v > 0 else "straight" for v in self.value]
        ends = ["noise unknown"] * len(signs) if self.z is None else [f"z = {z:+.1f}" for z in self.z]
        rows = zip(self.rtt_ms, signs, ends, strict=True)
        return "second differences:\n" + "\n".join(f"  {rtt:g} ms: {sign}, {end}" for rtt, sign, end in rows)


def weights(rtt_ms: FloatArray) -> FloatArray:
    """The matrix of shape (K - 2, K) that maps K values to their second divided differences."""
    k = len(rtt_ms)
    slope = (np.eye(k, k, 1) - np.eye(k))[:-1] / np.diff(rtt_ms)[:, None]
    return np.diff(slope, axis=0) / (rtt_ms[2:] - rtt_ms[:-2])[:, None]


def second_differences(
    rtt_ms: ArrayLike, throughput: ArrayLike, sd: ArrayLike | None = None
) -> SecondDifferences:
    """Computes second divided differences of the mean throughput at the interior RTTs.

    The divided difference at τ_j uses τ_{j-1}, τ_j and τ_{j+1}; for a parabola it is half the second
    derivative. Neighbouring entries share runs, so their errors are correlated: several small z of one sign
    may mean more or less than each alone.

    Args:
        rtt_ms: The RTT of each run in ms, of shape (runs,); RTTs may repeat.
        throughput: The throughput of each run, in one unit, of shape (runs,).
        sd: The noise of one run in the unit of `throughput`, one number or one per run; None for the spread
            of repeats, as for :func:`fullpipe.transition.fit_shape`.

    Returns:
        The values, standard errors and z-scores. Errors and z are None if `sd` is None and no RTT has
        repeats.

    Raises:
        UsageError: Lengths differ, a value is not finite, an RTT or `sd` is not positive, a throughput is
            negative, or there are fewer than three distinct RTTs.
    """
    samples = group(rtt_ms, throughput, sd)
    matrix = weights(samples.rtt_ms)
    value = matrix @ samples.mean
    # Rounding errors of a straight line must not count as curvature.
    value[np.abs(value) <= _ROUNDING * (np.abs(matrix) @ samples.mean)] = 0.0
    se = None if samples.variance is None else np.sqrt(matrix**2 @ (samples.variance / samples.weight))
    z = None if se is None else value / se
    return SecondDifferences(samples.rtt_ms[1:-1], value, se, z, samples.df)
