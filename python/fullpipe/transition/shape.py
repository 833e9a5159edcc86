"""Concave–convex regression: the transition RTTs that the runs allow, with nothing assumed but shape."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls
from scipy.stats import f as f_distribution

from fullpipe.arrays import FloatArray
from fullpipe.errors import UsageError
from fullpipe.transition.differences import weights
from fullpipe.transition.samples import Samples, gap, group

Curve = Literal["concave", "convex", "dual"]
Shape = Literal["concave", "convex", "dual", "cannot say", "none"]

_ROUNDING = 1e-9
_HOPELESS = 1e-6


def _words(shape: Curve, between_ms: tuple[float, float]) -> str:
    return f"concave then convex, turning {gap(*between_ms)}" if shape == "dual" else shape


@dataclass(frozen=True, repr=False)
class Split:
    """One way to cut the grid: concave up to a gap between measured RTTs, convex from it."""

    between_ms: tuple[float, float]
    """The gap; the first stands for entirely convex, the last for entirely concave."""
    shape: Curve
    sse: float
    """Sum over runs of (mean - fit)², in throughput²: the misfit beyond the spread of repeats."""
    chi2: float | None
    """The weighted sum that the fit minimises, in variances of the noise; None if that is unknown."""
    p_value: float | None
    """Of the hypothesis that this is the profile's split, at most; None if the noise is unknown."""

    def __repr__(self) -> str:
        """One line."""
        end = f"SSE {self.sse:.3g}" if self.p_value is None else f"p = {self.p_value:.2g}"
        return f"{_words(self.shape, self.between_ms)}, {end}"


@dataclass(frozen=True, eq=False, repr=False)
class ShapeFit:
    """What :func:`fit_shape` found."""

    shape: Shape
    """The one shape that the runs allow; "cannot say" if they allow several, "none" if none."""
    shapes: tuple[Curve, ...]
    """All shapes that the runs allow, the best fit's first."""
    best: Split
    """The split that fits best among those that the runs allow."""
    allowed: tuple[Split, ...]
    """The splits that the runs cannot exclude, in the order of RTT."""
    splits: tuple[Split, ...]
    """All splits of the grid, in the order of RTT."""
    rtt_ms: FloatArray
    """Distinct RTTs, of shape (K,)."""
    mean: FloatArray
    """Mean throughput at each, weighted by 1/sd² within an RTT, of shape (K,)."""
    fitted: FloatArray
    """The best split's fit at each, of shape (K,)."""
    p_fit: float | None
    """How likely a misfit as large as this is if the model holds; None if the noise is unknown."""
    noise: float | None
    """Spread of one run, pooled over repeats; None if `sd` was given, or if there are no repeats."""
    level: float

    @property
    def sse(self) -> float:
        """The best split's SSE."""
        return self.best.sse

    @property
    def best_split_ms(self) -> tuple[float, float] | None:
        """The best split's gap; None if it is entirely convex or concave."""
        return self.best.between_ms if self.best.shape == "dual" else None

    @property
    def splits_ms(self) -> tuple[tuple[float, float], ...]:
        """The gaps of all splits that the runs cannot exclude."""
        return tuple(split.between_ms for split in self.allowed)

    @property
    def between_ms(self) -> tuple[float, float] | None:
        """From where to where the measured profile may turn; None unless the shape is "dual"."""
        return self._range("dual") if self.shape == "dual" else None

    @property
    def curve_between_ms(self) -> tuple[float, float] | None:
        """As `between_ms`, for a smooth curve behind the measured points: one more gap on each side."""
        if self.between_ms is None:
            return None
        low, high = np.searchsorted(self.rtt_ms, self.between_ms)
        return float(self.rtt_ms[max(low - 1, 0)]), float(self.rtt_ms[min(high + 1, len(self.rtt_ms) - 1)])

    def __repr__(self) -> str:
        """One line."""
        sure = f"({100 * self.level:.6g}% sure)"
        if self.shape == "none":
            return f"none: no profile that is concave, then convex, fits the runs {sure}"
        if self.p_fit is None:
            return f"cannot say: the noise is unknown; the best fit is {self.best}"
        found = "; or ".join(_words(shape, self._range(shape)) for shape in self.shapes)
        return f"cannot say: {found} {sure}" if len(self.shapes) > 1 else f"{found} {sure}"

    def _range(self, shape: Curve) -> tuple[float, float]:
        gaps = [split.between_ms for split in self.allowed if split.shape == shape]
        return gaps[0][0], gaps[-1][1]


def _cone(rtt: FloatArray, weight: FloatArray, split: int, monotone: bool) -> FloatArray:
    """Rows whose products with sqrt(weight)·profile are ≥ 0 for every profile of this split."""
    k = len(rtt)
    rows = weights(rtt)
    rows[:split] *= -1
    if monotone:
        # Slopes fall and then rise, so that none is positive if the two at the ends are not.
        ends = np.zeros((2, k))
        ends[0, :2] = ends[1, -2:] = (1, -1)
        rows = np.vstack([rows, ends])
    rows = rows / np.sqrt(weight)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


class _Projection(NamedTuple):
    point: FloatArray
    distance2: float
    active: int


def _project(z: FloatArray, cone: FloatArray) -> _Projection:
    """The point of {x: cone·x ≥ 0} nearest to z, and how many constraints hold it there."""
    # Moreau: z is its projection plus that onto the polar cone, which the negated rows generate.
    multipliers, _ = nnls(cone.T, -z)
    push = cone.T @ multipliers
    return _Projection(z + push, float(push @ push), int(np.count_nonzero(multipliers)))


@lru_cache(maxsize=256)
def _face_weights(
    rtt: tuple[float, ...], weight: tuple[float, ...], split: int, monotone: bool, draws: int
) -> FloatArray:
    """Probabilities that a straight profile's noise is held by 0, 1, ... constraints."""
    cone = _cone(np.array(rtt), np.array(weight), split, monotone)
    noise = np.random.default_rng(0).standard_normal((draws, len(rtt)))
    counts = np.bincount([_project(z, cone).active for z in noise], minlength=len(rtt) + 1)
    return np.asarray(counts / draws)


def _p_value(chi2: float, df: float, most: int, faces: Callable[[], FloatArray]) -> float:
    """How likely a misfit is; `most` is the number of constraints, `faces` simulates their weights."""
    if chi2 <= 0:
        return 1.0
    # An infinite df turns scipy's F into nan; beyond 10⁹ it is χ²/j to nine digits.
    df = min(df, 1e9)
    bound = float(f_distribution.sf(chi2 / most, most, df))
    if bound < _HOPELESS:
        return bound
    weight = faces()
    j = np.flatnonzero(weight[1:]) + 1
    return float(weight[j] @ f_distribution.sf(chi2 / j, j, df))


class _Fit(NamedTuple):
    fitted: FloatArray
    distance2: float
    """What the fit minimises, in units of the largest weight and the largest mean."""
    chi2: float | None
    p_split: float | None
    p_fit: float | None


def _fit(samples: Samples, split: int, monotone: bool, draws: int) -> _Fit:
    weight = samples.weight / samples.weight.max()
    z = np.sqrt(weight) * samples.mean / samples.scale
    cone = _cone(samples.rtt_ms, weight, split, monotone)
    fit = _project(z, cone)
    fitted = fit.point / np.sqrt(weight) * samples.scale
    if samples.variance is None:
        return _Fit(fitted, fit.distance2, None, None, None)
    unit = samples.weight.max() * samples.scale**2 / samples.variance

    def p_value(distance2: float, cone: FloatArray, falls: bool) -> float:
        key = tuple(samples.rtt_ms.tolist()), tuple(weight.tolist()), split, falls, draws
        return _p_value(distance2 * unit, samples.df, len(cone), lambda: _face_weights(*key))

    p_fit = p_split = p_value(fit.distance2, cone, monotone)
    if monotone:
        free = _cone(samples.rtt_ms, weight, split, False)
        p_split = p_value(_project(z, free).distance2, free, False)
    return _Fit(fitted, fit.distance2, fit.distance2 * unit, p_split, p_fit)


def _split(samples: Samples, index: int, fit: _Fit) -> Split:
    rtt = samples.rtt_ms
    shape: Curve = "convex" if index == 0 else "concave" if index == len(rtt) - 2 else "dual"
    sse = float(samples.n @ (samples.mean - fit.fitted) ** 2)
    return Split((float(rtt[index]), float(rtt[index + 1])), shape, sse, fit.chi2, fit.p_split)


def _best(candidates: Sequence[int], fits: Sequence[_Fit]) -> int:
    # Fits that agree but for rounding are equal: the first of them, on every machine.
    least = min(fits[i].distance2 for i in candidates)
    return next(i for i in candidates if fits[i].distance2 <= least * (1 + _ROUNDING) + _ROUNDING**2)


def _allowed(fits: Sequence[_Fit], alpha: float) -> list[int]:
    everything = list(range(len(fits)))
    p_fits = [fit.p_fit for fit in fits if fit.p_fit is not None]
    if not p_fits:
        return everything
    if max(p_fits) < alpha:
        return []
    return [i for i in everything if (fits[i].p_split or 0.0) >= alpha]


def fit_shape(
    rtt_ms: ArrayLike,
    throughput: ArrayLike,
    sd: ArrayLike | None = None,
    *,
    monotone: bool = True,
    level: float = 0.95,
    draws: int = 500,
) -> ShapeFit:
    """Fits concave-then-convex profiles and says which splits and shapes the runs cannot exclude.

    Least squares over the mean throughput at each RTT, weighted by n/sd², under shape alone: no scaling
    and no parameters (S-shaped regression: Feng, Chen, Han, Carroll and Samworth, JRSS B 84, 2022).
    A profile of K distinct RTTs, linear between them, has K - 1 splits: concave up to a gap of the grid
    and convex from it, of which the first is entirely convex and the last entirely concave. Each is a
    projection onto a convex cone, computed exactly as a non-negative least-squares problem.

    A split is excluded if its misfit, in variances of the noise, would be as large with probability below
    1 - `level` even where it is hardest to tell from noise, that is if the profile were straight. There
    the misfit is a mixture of F (or χ²) distributions, the chi-bar-square of order-restricted tests
    (Robertson, Wright and Dykstra 1988, chapter 2; Silvapulle and Sen 2005, chapter 3), whose weights are
    simulated with a fixed seed. For normal noise of one size at all RTTs (or sizes given by `sd`) the
    splits that remain hold the true one with at least probability `level`, at any sample size. The test
    leaves monotonicity out: it would widen the set.

    The gap of a split is where the *measured profile* turns. A smooth curve behind it may turn one gap
    further on either side, since its chord between two RTTs hides what it does there: see
    `curve_between_ms`. Likewise "convex" says nothing of RTTs left of the second one.

    Args:
        rtt_ms: RTT of each run, ms, of shape (runs,); repeats allowed.
        throughput: Throughput of each run, in any one unit, of shape (runs,).
        sd: Noise of one run in the unit of `throughput`: one number, or one per run; taken as known, so
            that spreads estimated from fewer than some ten runs of an RTT exclude too much. If None, the
            spread of repeats, pooled over RTTs: where spread grows with RTT that excludes too little,
            where it falls with RTT too much. With neither `sd` nor repeats, the means are weighted by n,
            no split is excluded, and the shape is "cannot say".
        monotone: Whether fits may not rise with RTT, as in the papers' model.
        level: Confidence in the set of splits.
        draws: Simulated profiles per split for the weights of the test.

    Returns:
        The fit. All throughputs equal is no error: every split then fits and the shape is "cannot say".
        If no split is left, or none fits a profile that does not rise, the shape is "none".

    Raises:
        UsageError: Lengths that differ, values that are not finite, RTTs or `sd` that are not positive,
            negative throughput, fewer than three distinct RTTs, or a level outside (0, 1).
    """
    if not 0 < level < 1:
        raise UsageError(f"a level of {level:g} is not between 0 and 1: give one such as 0.95")
    if draws < 1:
        raise UsageError(f"{draws} draws simulate nothing: give some hundreds")
    samples = group(rtt_ms, throughput, sd)
    fits = [_fit(samples, i, monotone, draws) for i in range(len(samples.rtt_ms) - 1)]
    splits = [_split(samples, i, fit) for i, fit in enumerate(fits)]
    allowed = _allowed(fits, 1 - level)
    best = _best(allowed or range(len(fits)), fits)
    shapes = tuple(dict.fromkeys(splits[i].shape for i in [best, *allowed])) if allowed else ()
    known = samples.variance is not None
    shape: Shape = "none" if not shapes else shapes[0] if known and len(shapes) == 1 else "cannot say"
    return ShapeFit(
        shape=shape,
        shapes=shapes,
        best=splits[best],
        allowed=tuple(splits[i] for i in allowed),
        splits=tuple(splits),
        rtt_ms=samples.rtt_ms,
        mean=samples.mean,
        fitted=fits[best].fitted,
        p_fit=max((fit.p_fit for fit in fits if fit.p_fit is not None), default=None),
        noise=None if sd is not None or samples.variance is None else float(np.sqrt(samples.variance)),
        level=level,
    )
