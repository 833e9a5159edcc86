"""Computes Poincaré maps of throughput traces: each value against the one before.

HPDC'17, section 4.1: a thin curve means stable dynamics, a scattered cluster means rich ones.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fullpipe.arrays import floats
from fullpipe.errors import UsageError

Floats = NDArray[np.float64]

MIN_POINTS = 10
"""The fewest values whose map has a shape."""

# 95% quantiles of chi-square with two degrees of freedom, which is exponential: -2 ln 0.05.
_CHI2_95 = 5.991464547107979
# The same for the difference of a round cluster's axes, seen through the less efficient robust covariance:
# by simulation of white noise, 100 and 400 values.
_ROUND_95 = 11.0
_FLAT = 1e-12


@dataclass(frozen=True, repr=False)
class Poincare:
    """A trace's Poincaré map and the shape of its cluster.

    Attributes:
        x: The values X_i in bit/s, shape (n − 1,).
        y: The values X_{i+1} in bit/s, shape (n − 1,).
        sd1: The standard deviation across the diagonal, of (y − x) / √2, in bit/s: change between two steps.
        sd2: The standard deviation along the diagonal, of (y + x) / √2, in bit/s: change over many steps.
        correlation: The correlation of y with x, from −1 to 1; None if either does not vary.
        tilt_deg: The angle of the cluster's longer axis against the horizontal, in (−90, 90]: 45 is along the
            diagonal, −45 across it. None if the cluster is round or a point. In a long stationary trace x and
            y vary alike, so the angle is near 45 or −45, and `correlation` and SD1 / SD2 show how marked it
            is; another angle shows a drift, or a core whose shape differs from the whole.
        area: The area of the ellipse that holds 95% of a normal cluster with the same robust covariance, in
            (bit/s)².
    """

    x: Floats = field(compare=False)
    y: Floats = field(compare=False)
    sd1: float
    sd2: float
    correlation: float | None
    tilt_deg: float | None
    area: float

    def __repr__(self) -> str:
        """The shape in one line."""
        tilt = "none (round)" if self.tilt_deg is None else f"{round(self.tilt_deg):d}°"
        return (
            f"Poincare({len(self.x)} points, SD1 {self.sd1:.3g}, SD2 {self.sd2:.3g} bit/s, tilt {tilt}, "
            f"95% ellipse {self.area:.3g} (bit/s)²)"
        )


def check_values(trace: ArrayLike, least: int, what: str) -> Floats:
    """Checks the values of an equally spaced trace and returns them.

    Raises:
        UsageError: The trace is not one-dimensional, too short, or has NaN, infinite or masked values.
    """
    x = floats(trace)
    if x.ndim != 1:
        raise UsageError(f"{what} takes one trace, a one-dimensional array, not one of shape {x.shape}")
    if len(x) < least:
        raise UsageError(f"{len(x)} values are too few for {what}: it takes {least} or more; run longer")
    if not np.isfinite(x).all():
        raise UsageError(
            f"the trace has NaN, infinite or masked values, which {what} cannot skip; drop that part"
        )
    return x


def _robust_covariance(points: Floats) -> Floats:
    """The covariance of the cluster's core; zero along an axis in which more than half of it is flat."""
    from sklearn.covariance import MinCovDet  # type: ignore[import-untyped, unused-ignore]

    scale = points.std(axis=0)
    scaled = (points - points.mean(axis=0)) / np.where(scale > 0, scale, 1)
    whole = np.atleast_2d(np.cov(scaled, rowvar=False))
    values, vectors = np.linalg.eigh(whole)
    if values[0] > _FLAT * values[1]:
        whole = _min_cov_det(MinCovDet, scaled)
        values, vectors = np.linalg.eigh(whole)
    values = np.where(values > _FLAT * max(values[1], _FLAT), values, 0)
    return np.asarray((vectors * values) @ vectors.T * np.outer(scale, scale))


def _min_cov_det(estimator: type, points: Floats) -> Floats:
    import warnings

    with warnings.catch_warnings():
        # Its warning is about a case that the eigenvalues below reveal.
        warnings.simplefilter("ignore")
        try:
            return np.asarray(estimator(random_state=0).fit(points).covariance_)
        except ValueError:
            # More than half of the cluster is one point.
            return np.zeros((2, 2))


def _tilt(covariance: Floats, n: int) -> float | None:
    values, vectors = np.linalg.eigh(covariance)
    small, large = float(values[0]), float(values[1])
    if large <= 0 or n * ((large - small) / (large + small)) ** 2 < _ROUND_95:
        return None
    angle = float(np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1])))
    return angle - 180 if angle > 90 else angle + 180 if angle <= -90 else angle


def poincare(trace: ArrayLike) -> Poincare:
    """Computes the Poincaré map of a trace, X_{i+1} against X_i (HPDC'17, section 4.1).

    SD1 and SD2 as in Brennan, Palaniswami and Kamen, IEEE Trans. Biomed. Eng. 48(11), 2001. The ellipse is of
    the minimum covariance determinant (Rousseeuw and Van Driessen 1999, as scikit-learn has it, with a fixed
    seed), so that a few outliers do not widen it. Where the cluster, or more than half of it, lies on a line
    or a point, that has no area: the ellipse's is zero. A curve that is not straight has one.

    The tilt is that of the same covariance, given where the axes differ more than those of a round normal
    cluster would by chance (95%).

    Args:
        trace: The values at equal intervals in bit/s, shape (n,), n ≥ 10, without ramp-up.

    Raises:
        UsageError: The trace is not one-dimensional, too short, or has NaN or infinite values.
    """
    values = check_values(trace, MIN_POINTS, "a Poincaré map")
    x, y = values[:-1], values[1:]
    if np.ptp(values) <= _FLAT * np.abs(values).max():
        return Poincare(x, y, 0.0, 0.0, None, None, 0.0)
    varies = np.ptp(x) > 0 and np.ptp(y) > 0
    covariance = _robust_covariance(np.column_stack([x, y]))
    # A majority that is a single point still has a few values around it that show a direction.
    shape = covariance if covariance.any() else np.cov(x, y)
    return Poincare(
        x=x,
        y=y,
        sd1=float(np.std((y - x) / np.sqrt(2), ddof=1)),
        sd2=float(np.std((y + x) / np.sqrt(2), ddof=1)),
        correlation=float(np.corrcoef(x, y)[0, 1]) if varies else None,
        tilt_deg=_tilt(shape, len(x)),
        area=float(np.pi * _CHI2_95 * np.sqrt(max(np.linalg.det(covariance), 0))),
    )
