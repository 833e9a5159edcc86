"""Concave–convex regression: finds the transition RTTs that the runs allow, assuming only the shape."""

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
from fullpipe.transition.spread import moderate

Curve = Literal["concave", "convex", "dual"]
Shape = Literal["concave", "convex", "dual", "cannot say", "none"]

_ROUNDING = 1e-9
_HOPELESS = 1e-6
_ENOUGH = 8
"""A simulation ends when one in so many of its draws has reached the misfit."""
_ITERATIONS = 100
"""The most steps of a projection for each constraint. Nearly all need fewer than 3, the default of scipy."""
_SAME = 1e-24
"""Largest misfit, in squares of the largest mean, that is only rounding."""


def _words(shape: Curve, between_ms: tuple[float, float]) -> str:
    return f"concave then convex, turning {gap(*between_ms)}" if shape == "dual" else shape


@dataclass(frozen=True, repr=False)
class Split:
    """One split of the grid: concave up to a gap between measured RTTs, and convex beyond it."""

    between_ms: tuple[float, float]
    """The gap in ms; the first gap means entirely convex, the last entirely concave."""
    shape: Curve
    sse: float
    """The sum of (mean - fit)² over runs, in throughput²: the misfit without the spread of repeats."""
    chi2: float | None
    """The weighted sum that the fit minimises, in variances of the noise; None if the noise is unknown."""
    p_value: float | None
    """An upper bound of the p-value of this split; None if the noise is unknown."""

    def __repr__(self) -> str:
        """The result in one line."""
        end = f"SSE {self.sse:.3g}" if self.p_value is None else f"p = {self.p_value:.2g}"
        return f"{_words(self.shape, self.between_ms)}, {end}"


@dataclass(frozen=True, eq=False, repr=False)
class ShapeFit:
    """The result of :func:`fit_shape`."""

    shape: Shape
    """The only shape that the runs allow; "cannot say" if they allow several, "none" if none."""
    shapes: tuple[Curve, ...]
    """All shapes that the runs allow, the best fit's first."""
    best: Split
    """The best fit among the splits that the runs allow."""
    allowed: tuple[Split, ...]
    """The splits that the runs cannot exclude, in the order of RTT."""
    splits: tuple[Split, ...]
    """All splits of the grid, in the order of RTT."""
    rtt_ms: FloatArray
    """The distinct RTTs in ms, of shape (K,)."""
    mean: FloatArray
    """The mean throughput at each RTT, weighted by 1/sd², of shape (K,)."""
    fitted: FloatArray
    """The fit of the best split at each RTT, of shape (K,)."""
    p_fit: float | None
    """The probability of a misfit this large if the model holds; None if the noise is unknown."""
    noise: float | None
    """The spread of one run, pooled over repeats; None if `sd` was given or there are no repeats."""
    level: float

    @property
    def sse(self) -> float:
        """The SSE of the best split."""
        return self.best.sse

    @property
    def best_split_ms(self) -> tuple[float, float] | None:
        """The gap of the best split in ms; None if it is entirely convex or concave."""
        return self.best.between_ms if self.best.shape == "dual" else None

    @property
    def splits_ms(self) -> tuple[tuple[float, float], ...]:
        """The gaps in ms of all splits that the runs cannot exclude."""
        return tuple(split.between_ms for split in self.allowed)

    @property
    def between_ms(self) -> tuple[float, float] | None:
        """The RTTs in ms between which the measured profile may turn; None unless the shape is "dual"."""
        return self._range("dual") if self.shape == "dual" else None

    @property
    def curve_between_ms(self) -> tuple[float, float] | None:
        """As `between_ms`, for a smooth curve behind the measured points: one more gap on each side."""
        if self.between_ms is None:
            return None
        low, high = np.searchsorted(self.rtt_ms, self.between_ms)
        return float(self.rtt_ms[max(low - 1, 0)]), float(self.rtt_ms[min(high + 1, len(self.rtt_ms) - 1)])

    def __repr__(self) -> str:
        """The result in one line."""
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
    """The rows whose products with sqrt(weight)·profile are ≥ 0 for every profile of this split."""
    k = len(rtt)
    rows = weights(rtt)
    rows[:split] *= -1
    if monotone:
        # Slopes fall and then rise, so none is positive if the two at the ends are not.
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
    """The point of {x: cone·x ≥ 0} nearest to z, and the number of active constraints there."""
    # Moreau: z is its projection plus that onto the polar cone, which the negated rows generate.
    try:
        multipliers, _ = nnls(cone.T, -z, maxiter=_ITERATIONS * len(cone))
    except RuntimeError as error:
        raise UsageError("cannot say: the search for the closest profile of a shape did not end") from error
    push = cone.T @ multipliers
    return _Projection(z + push, float(push @ push), int(np.count_nonzero(multipliers)))


@lru_cache(maxsize=256)
def _face_weights(
    rtt: tuple[float, ...], weight: tuple[float, ...], split: int, monotone: bool, draws: int
) -> FloatArray:
    """The probabilities that 0, 1, ... constraints are active for the noise of a straight profile."""
    cone = _cone(np.array(rtt), np.array(weight), split, monotone)
    noise = np.random.default_rng(0).standard_normal((draws, len(rtt)))
    counts = np.bincount([_project(z, cone).active for z in noise], minlength=len(rtt) + 1)
    return np.asarray(counts / draws)


def _p_value(chi2: float, df: float, most: int, faces: Callable[[], FloatArray]) -> float:
    """The probability of a misfit; `most` is the number of constraints, `faces` simulates their weights."""
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


def _simulated_p(samples: Samples, distance2: float, split: int, monotone: bool, draws: int) -> float:
    """The probability of a misfit for a straight profile whose variances are estimated from as many repeats.

    The true variances are drawn, too, from what the repeats tell of them: few repeats may agree by chance.
    """
    random = np.random.default_rng(0)
    k, known = len(samples.n), samples.own_df > 0
    # If the RTTs differ, what they lend each other is a guess, and no degree of freedom counts but their own.
    alike = samples.lent_df > samples.own_df.sum()
    df = (
        np.full(k, samples.own_df.sum())
        if alike
        else np.where(known, samples.own_df, samples.own_df[known].min())
    )
    true = samples.n / samples.weight * df / random.chisquare(df, (draws, k))
    noise = random.standard_normal((draws, k)) * np.sqrt(true / samples.n)
    own = np.zeros((draws, k))
    drawn_df = samples.own_df[known]
    own[:, known] = true[:, known] * random.chisquare(drawn_df, (draws, len(drawn_df))) / drawn_df
    weight = samples.n / moderate(own, samples.own_df, samples.floor).variance
    reached, enough = 0, max(draws // _ENOUGH, 1)
    for tried, (mean, weights_) in enumerate(zip(noise, weight, strict=True), start=1):
        drawn = _project(np.sqrt(weights_) * mean, _cone(samples.rtt_ms, weights_, split, monotone))
        reached += bool(drawn.distance2 >= distance2)
        if reached == enough:
            # A large p-value needs no more draws (Besag and Clifford 1991).
            return reached / tried
    return (reached + 1) / (draws + 1)


class _Fit(NamedTuple):
    fitted: FloatArray
    distance2: float
    """The minimised sum, in units of the largest weight and the largest mean."""
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
        if samples.flat or distance2 <= _SAME:
            # Only rounding lies between the means and the fit.
            return 1.0
        if samples.is_estimated:
            return _simulated_p(samples, distance2 * unit, split, falls, draws)
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
    # Fits that differ by rounding only count as equal, so that every machine takes the first.
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
    """Fits concave-then-convex profiles and finds the splits and shapes that the runs cannot exclude.

    The fit is least squares over the mean throughput at each RTT, weighted by n/sd² with the sd of that RTT,
    constrained by the shape
    only, without parameters (S-shaped regression: Feng, Chen, Han, Carroll and Samworth, JRSS B 84, 2022).
    A profile of K distinct RTTs, linear between them, has K - 1 splits: concave up to a gap of the grid
    and convex beyond it. The first split is entirely convex and the last entirely concave. Each fit is a
    projection onto a convex cone, computed exactly as a non-negative least-squares problem.

    A split is excluded if a misfit as large as its own, in variances of the noise, has a probability below 1
    - `level` even for a straight profile, which is the hardest to exclude. There the misfit is a mixture of
    F (or χ²) distributions, the chi-bar-square of order-restricted tests (Robertson, Wright and Dykstra
    1988, chapter 2; Silvapulle and Sen 2005, chapter 3), whose weights are simulated with a fixed seed. If
    the sd are estimated from repeats, the misfits themselves are simulated, each with sd estimated anew. For
    normal noise the remaining splits contain the true one with a probability of about `level` (0.91 to 0.99
    for 0.95, in `bench/splits.py`). With only two runs at each RTT, and spreads that change a hundredfold
    from each RTT to the next, it is 0.87. The test ignores monotonicity, which would widen the set.

    The gap of a split is where the *measured profile* turns. A smooth curve behind it may turn one gap
    further on either side, since its course between two RTTs is not measured: see `curve_between_ms`.
    Likewise "convex" says nothing about RTTs left of the second one.

    Args:
        rtt_ms: The RTT of each run in ms, of shape (runs,); RTTs may repeat. Those that differ by less than a
            millionth count as one.
        throughput: The throughput of each run, in one unit, of shape (runs,).
        sd: The noise of one run in the unit of `throughput`, one number or one per run. It is taken as known:
            estimates from fewer than about ten runs at an RTT exclude too much. None for the spread of
            repeats at each RTT, moved towards that of the others as far as they are alike, and at least 0.1%
            of the mean. With neither `sd` nor repeats, the means are weighted by n, no split is excluded, and
            the shape is "cannot say".
        monotone: Whether fits must not rise with RTT, as in the papers' model.
        level: The confidence level of the set of splits, in (0, 1).
        draws: The number of simulated profiles per split for the weights of the test.

    Returns:
        The fit. If all throughputs are equal, every split fits and the shape is "cannot say". If no split
        remains, or none fits a profile that does not rise, the shape is "none".

    Raises:
        UsageError: Lengths differ, a value is not finite, an RTT or `sd` is not positive, a throughput is
            negative, there are fewer than three distinct RTTs, the level is outside (0, 1), or the search for
            a fit does not end.
    """
    if not 0 < level < 1:
        raise UsageError(f"a level of {level:g} is not between 0 and 1: give one such as 0.95")
    if draws < 1:
        raise UsageError(f"{draws} draws are too few to simulate: give some hundreds")
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
        noise=float(np.sqrt(samples.within / samples.own_df.sum())) if samples.is_estimated else None,
        level=level,
    )
