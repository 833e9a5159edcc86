"""Curvature at each measured RTT, with its error, and no model."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fullpipe.arrays import FloatArray
from fullpipe.transition.samples import group

_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class SecondDifferences:
    """Curvature of the mean profile at its interior RTTs; arrays of one entry per interior RTT."""

    rtt_ms: FloatArray
    value: FloatArray
    """Second divided difference, throughput per ms²: negative is concave, positive convex."""
    se: FloatArray | None
    """Standard errors of `value`; None if the noise is unknown."""
    z: FloatArray | None
    """`value / se`; None if the noise is unknown."""
    df: float
    """Degrees of freedom of the noise: z is Student's t with these; infinite if `sd` was given."""

    def __repr__(self) -> str:
        """One line per RTT."""
        signs = ["concave" if v < 0 else "convex" if v > 0 else "straight" for v in self.value]
        ends = ["noise unknown"] * len(signs) if self.z is None else [f"z = {z:+.1f}" for z in self.z]
        rows = zip(self.rtt_ms, signs, ends, strict=True)
        return "second differences:\n" + "\n".join(f"  {rtt:g} ms: {sign}, {end}" for rtt, sign, end in rows)


def weights(rtt_ms: FloatArray) -> FloatArray:
    """The matrix, of shape (K - 2, K), that takes K values to their second divided differences."""
    k = len(rtt_ms)
    slope = (np.eye(k, k, 1) - np.eye(k))[:-1] / np.diff(rtt_ms)[:, None]
    return np.diff(slope, axis=0) / (rtt_ms[2:] - rtt_ms[:-2])[:, None]


def second_differences(
    rtt_ms: ArrayLike, throughput: ArrayLike, sd: ArrayLike | None = None
) -> SecondDifferences:
    """Second divided differences of the mean throughput at the interior RTTs.

    The divided difference at τ_j is that of τ_{j-1}, τ_j, τ_{j+1}: half the second derivative for a
    parabola. Neighbouring entries share runs, so their errors are correlated: several small z of one
    sign may mean more, or less, than each alone.

    Args:
        rtt_ms: RTT of each run, ms, of shape (runs,); repeats allowed.
        throughput: Throughput of each run, in any one unit, of shape (runs,).
        sd: Noise of one run in the unit of `throughput`: one number, or one per run. If None, the spread
            of repeats, pooled over RTTs.

    Returns:
        Values, standard errors and z-scores. Errors and z are None if `sd` is None and no RTT has a
        repeat.

    Raises:
        UsageError: Lengths that differ, values that are not finite, RTTs or `sd` that are not positive,
            negative throughput, or fewer than three distinct RTTs.
    """
    samples = group(rtt_ms, throughput, sd)
    matrix = weights(samples.rtt_ms)
    value = matrix @ samples.mean
    # What rounding leaves of a straight line has no sign.
    value[np.abs(value) <= _ROUNDING * (np.abs(matrix) @ samples.mean)] = 0.0
    se = None if samples.variance is None else np.sqrt(matrix**2 @ (samples.variance / samples.weight))
    z = None if se is None else value / se
    return SecondDifferences(samples.rtt_ms[1:-1], value, se, z, samples.df)
