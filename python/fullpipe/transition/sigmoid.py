"""The papers' estimator of the transition RTT, a pair of flipped sigmoids."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import least_squares
from scipy.special import expit

from fullpipe.arrays import FloatArray
from fullpipe.errors import UsageError
from fullpipe.transition.samples import Samples, gap, group

# No sigmoid reaches a scaled throughput of exactly 1.
_HEADROOM = 1.001
_STEEPEST = 100.0
_FLATTEST = 1e-4
_FARTHEST = 40.0
_STARTS = 2


class Sigmoid(NamedTuple):
    """The flipped sigmoid g(τ) = 1 - 1/(1 + exp(-a (τ - τ₀))), which falls through 1/2 at τ₀."""

    a: float
    """The steepness in 1/ms."""
    tau_ms: float
    """The centre τ₀ in ms."""

    def __call__(self, rtt_ms: ArrayLike) -> FloatArray:
        """The scaled throughput at RTTs in ms."""
        return np.asarray(expit(-self.a * (np.asarray(rtt_ms, dtype=np.float64) - self.tau_ms)))


class SigmoidParams(NamedTuple):
    """The two branches; None for a branch that the runs do not determine."""

    concave: Sigmoid | None
    """The concave branch, with a₁ and τ₁."""
    convex: Sigmoid | None
    """The convex branch, with a₂ and τ₂."""


@dataclass(frozen=True, repr=False)
class DualSigmoid:
    """The result of :func:`fit_dual_sigmoid`."""

    shape: Literal["concave", "convex", "dual", "cannot say"]
    tau_t_ms: float | None
    """The transition RTT, one of the measured RTTs; None if there is none inside the grid."""
    between_ms: tuple[float, float] | None
    """The gap between measured RTTs with the transition; None if `tau_t_ms` is None."""
    papers_tau_t_ms: float | None
    """The transition RTT as the papers print it, also at an end of the grid where one branch is missing."""
    params: SigmoidParams
    sse: float
    """The sum of squared errors of scaled throughput over runs."""
    sse_at: tuple[tuple[float, float], ...]
    """Pairs of an RTT in ms and the smallest SSE with the transition at that RTT."""
    scale: float
    """The throughput that is scaled to 1."""

    def __repr__(self) -> str:
        """The result in one line."""
        if self.shape == "cannot say":
            return "dual sigmoid: cannot say, all throughputs are equal"
        where = "no transition inside the grid" if self.between_ms is None else gap(*self.between_ms)
        return f"dual sigmoid: {self.shape}, {where}, SSE {self.sse:.3g}"


class _Branch(NamedTuple):
    sse: float
    fit: Sigmoid | None


def _fit_branch(rtt: FloatArray, n: FloatArray, y: FloatArray, tau_t: float, side: int) -> _Branch:
    """Fits one branch: side +1 is concave (centre at or beyond `tau_t`), -1 is convex (at or before)."""
    if len(rtt) == 0:
        return _Branch(0.0, None)
    if len(rtt) == 1:
        # One RTT does not determine both a and τ₀, but the branch must stay on its side of 1/2.
        return _Branch(float(n[0] * max(0.0, side * (0.5 - y[0])) ** 2), None)
    x, root = rtt - tau_t, np.sqrt(n)
    steps = np.diff(rtt)
    low, high = np.log(_FLATTEST / (rtt[-1] - rtt[0])), np.log(_STEEPEST / steps.min())

    def residuals(p: FloatArray) -> FloatArray:
        return np.asarray(root * (expit(side * p[1] - np.exp(p[0]) * x) - y))

    # With log a and c = ±a (τ₀ - τ_T) the constraint on τ₀ is a bound, c ≥ 0.
    grid = np.stack(np.meshgrid(np.linspace(low, high, 40), np.r_[0:8:25j, 12.0, 20.0]), -1).reshape(-1, 2)
    errors = expit(side * grid[:, 1:] - np.exp(grid[:, :1]) * x) - y
    order = np.argsort((errors**2) @ n, kind="stable")[:_STARTS]
    bounds = ([low - 1e-9, -1e-12], [high + 1e-9, _FARTHEST])
    fits = [least_squares(residuals, grid[i], bounds=bounds, xtol=1e-12, ftol=1e-12) for i in order]
    best = min(fits, key=lambda fit: float(fit.cost))
    a, c = float(np.exp(best.x[0])), max(0.0, float(best.x[1]))
    return _Branch(2 * float(best.cost), Sigmoid(a, float(tau_t + side * c / a)))


def _scale(samples: Samples, largest: float, capacity: float | None) -> float:
    if capacity is None:
        return _HEADROOM * largest
    if not np.isfinite(capacity) or capacity <= 0:
        raise UsageError(f"a capacity of {capacity:g} is not positive: give it in the unit of throughput")
    if largest > capacity:
        raise UsageError(f"throughput {largest:g} is above the capacity {capacity:g}: give both in one unit")
    return capacity


def _between(samples: Samples, y: FloatArray, k: int, overlap: bool) -> tuple[float, float]:
    # Runs at τ_T belong to the concave branch; with overlap, to the branch on their side of 1/2.
    left = k - 1 if overlap and y[k] < 0.5 else k
    return float(samples.rtt_ms[left]), float(samples.rtt_ms[left + 1])


def fit_dual_sigmoid(
    rtt_ms: ArrayLike, throughput: ArrayLike, *, capacity: float | None = None, overlap: bool = False
) -> DualSigmoid:
    """Estimates the transition RTT τ_T as the papers do (Rao et al., HPDC 2017, section 2.3).

    With throughput scaled to (0, 1), f(τ) = g(a₁,τ₁)(τ) for τ ≤ τ_T and g(a₂,τ₂)(τ) beyond, with
    g(a,τ₀)(τ) = 1 - 1/(1 + exp(-a (τ - τ₀))) and τ₂ ≤ τ_T ≤ τ₁, by least squares over a₁, a₂ > 0, τ₁,
    τ₂, and τ_T among the measured RTTs. It is concave up to τ_T and convex beyond.

    Its limits: a flipped sigmoid is concave only above 1/2 and convex only below it, so τ_T mostly follows
    the RTT where *scaled throughput crosses 1/2*, whatever the curvature. The entirely convex 1/(1 + τ/50 ms)
    has its τ_T at 22.6 ms on the papers' RTTs. At best τ_T is known to one gap of the grid: see `between_ms`.
    :func:`fullpipe.transition.fit_shape` estimates the curvature itself.

    The paper does not say how throughput is scaled. Here it is divided by `capacity`, or by 1.001 times the
    largest throughput. A branch with a single RTT has no (a, τ₀): it is None, and counts in the SSE only if
    its throughput is on the wrong side of 1/2. Without a concave branch the profile is "convex", without a
    convex one "concave". There is then no transition inside the grid and `tau_t_ms` is None, while
    `papers_tau_t_ms` is the smallest RTT (for convex; the paper prints 0.4 ms) or one of the two largest (for
    concave).

    Args:
        rtt_ms: The RTT of each run in ms, of shape (runs,); RTTs may repeat.
        throughput: The throughput of each run, in one unit, of shape (runs,).
        capacity: The throughput that is scaled to 1, in the unit of `throughput`.
        overlap: Whether the runs at τ_T count in both sums, as in the paper's SSE (τ ≤ τ_T and τ ≥ τ_T),
            although f then has two values there. Otherwise they belong to the concave branch.

    Returns:
        The fit. If all mean throughputs are equal, its shape is "cannot say" and nothing is fitted.

    Raises:
        UsageError: Lengths differ, a value is not finite, an RTT is not positive, a throughput is negative or
            above `capacity`, or there are fewer than three distinct RTTs.
    """
    samples = group(rtt_ms, throughput)
    scale = _scale(samples, float(np.max(np.asarray(throughput, dtype=np.float64))), capacity)
    if samples.flat:
        none = SigmoidParams(None, None)
        return DualSigmoid("cannot say", None, None, None, none, 0.0, (), scale)
    rtt, n, y = samples.rtt_ms, samples.n, samples.mean / scale
    within = samples.within / scale**2
    fits: list[tuple[_Branch, _Branch]] = []
    for k, tau_t in enumerate(rtt):
        right = k if overlap else k + 1
        concave = _fit_branch(rtt[: k + 1], n[: k + 1], y[: k + 1], tau_t, +1)
        fits.append((concave, _fit_branch(rtt[right:], n[right:], y[right:], tau_t, -1)))
    sse = [concave.sse + convex.sse + within for concave, convex in fits]
    k = int(np.argmin(sse))
    params = SigmoidParams(*(branch.fit for branch in fits[k]))
    at = tuple((float(tau), value) for tau, value in zip(rtt, sse, strict=True))
    tau_t = float(rtt[k])
    if params.concave is None:
        return DualSigmoid("convex", None, None, tau_t, params, sse[k], at, scale)
    if params.convex is None:
        return DualSigmoid("concave", None, None, tau_t, params, sse[k], at, scale)
    between = _between(samples, y, k, overlap)
    return DualSigmoid("dual", tau_t, between, tau_t, params, sse[k], at, scale)
