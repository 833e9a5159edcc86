"""The papers' transition RTT by every reading of their estimator, and how sure each is.

HPDC'17 (section 2.3) leaves two things open. Its f(τ) has two values at τ_T, and its sum of errors counts the
runs there in both branches; other readings count them once, in either. And throughput is "scaled to (0, 1)",
which may mean by its largest value or by the capacity. `fullpipe.transition.fit_dual_sigmoid` fits one
profile by a search; this module fits thousands of simulated ones, by a grid of the same bounds.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from fullpipe.transition.samples import group
from numpy.typing import NDArray
from scipy.special import expit

from lab.papers.cells import CAPACITY_GBPS, RTTS, Floats

Branch = Literal["both", "concave", "convex"]
_LARGEST = 1.001
"""The largest throughput is scaled to 1/1.001: no sigmoid reaches 1."""
_FLATTEST, _STEEPEST, _FARTHEST = 1e-4, 100.0, 40.0
"""Bounds of the fit, those of `fullpipe.transition.sigmoid`."""
_SLOPES, _NEAR, _FAR = 110, 57, 14
"""Points of the grid: of the steepness, and of the centre's distance, below and beyond 8 steepnesses."""
_CHUNK = 4_000_000
"""Distances that are computed at once."""
_ALIKE = 250
"""Rows that are compared with the first one together."""


class Variant(NamedTuple):
    """A reading of the papers' estimator."""

    counted: Branch
    """The branch in which runs at τ_T count."""
    scaled_by: Literal["largest", "capacity"]
    """What is scaled to 1."""

    def __str__(self) -> str:
        """The reading in words."""
        where = {"both": "in both", "concave": "in the concave", "convex": "in the convex"}[self.counted]
        return f"{where}; {self.scaled_by}"


VARIANTS = tuple(
    Variant(counted, scaled_by)
    for counted in ("both", "concave", "convex")
    for scaled_by in ("largest", "capacity")
)  # fmt: skip
"""All readings; the first counts runs at τ_T in both branches, as the paper's sum of errors is printed."""


class Sample(NamedTuple):
    """Means of a profile, with their errors."""

    rtt_ms: Floats
    mean: Floats
    error: Floats
    """Standard errors of the means, moderated over RTTs."""
    df: float
    """Their degrees of freedom."""


def sample(rtt_ms: Floats, rates: Floats) -> Sample:
    """The means of the runs at each RTT, with errors as :func:`fullpipe.transition.fit_shape` takes them."""
    found = group(rtt_ms, rates)
    return Sample(found.rtt_ms, found.mean, 1 / np.sqrt(found.weight), found.df)


@lru_cache(maxsize=64)
def _curves(rtts: tuple[float, ...], tau_t: float, side: int) -> Floats:
    """Branches with their centre on one side of `tau_t`, of shape (curves, RTTs); side +1 is concave."""
    rtt = np.array(rtts)
    distance = np.r_[np.linspace(0, 8, _NEAR), np.geomspace(8, _FARTHEST, _FAR + 1)[1:]]
    if len(rtt) == 1:
        return np.asarray(expit(side * distance)[:, None])
    steep = np.geomspace(_FLATTEST / (rtt[-1] - rtt[0]), _STEEPEST / np.diff(rtt).min(), _SLOPES)
    argument = side * distance[None, :, None] - steep[:, None, None] * (rtt - tau_t)
    return np.asarray(expit(argument)).reshape(-1, len(rtt))


def _least(curves: Floats, y: Floats) -> Floats:
    """The smallest distance of each row of y to a curve.

    A row differs from the first one by at most `reach`, so only curves that could be nearest are compared.
    """
    at_first = np.sqrt(((curves - y[0]) ** 2).sum(axis=1))
    reach = float(np.sqrt(((y - y[0]) ** 2).sum(axis=1)).max())
    near = curves[at_first <= at_first.min() + 2 * reach + 1e-12]
    squares = (near**2).sum(axis=1)
    step = max(1, _CHUNK // len(near))
    found = [
        ((rows**2).sum(axis=1)[:, None] + squares - 2 * rows @ near.T).min(axis=1)
        for rows in np.split(y, range(step, len(y), step))
    ]
    return np.asarray(np.sqrt(np.maximum(np.concatenate(found), 0.0)))


def _distances(rtt: Floats, y: Floats, k: int, counted: Branch) -> Floats:
    """The root of each row's smallest sum of squared errors with τ_T at the RTT number k."""
    left, right = k + (counted != "convex"), k + (counted == "concave")
    found = np.zeros(len(y))
    for part, side in ((slice(0, left), 1), (slice(right, None), -1)):
        if rtt[part].size:
            curves = _curves(tuple(rtt[part].tolist()), float(rtt[k]), side)
            found += _least(curves, y[:, part]) ** 2
    return np.sqrt(found)


def _alike(rtt_ms: Floats, scaled: Floats, counted: Branch) -> Floats:
    first = np.array([_distances(rtt_ms, scaled[:1], k, counted)[0] for k in range(len(rtt_ms))])
    # An RTT can win in a row only if it is this near in the first: each distance changes by √2 reach at most.
    reach = np.sqrt(2) * float(np.sqrt(((scaled - scaled[0]) ** 2).sum(axis=1)).max())
    able = np.flatnonzero(first <= first.min() + 2 * reach + 1e-12)
    if len(able) == 1:
        return np.full(len(scaled), rtt_ms[able[0]])
    distances = np.array([_distances(rtt_ms, scaled, int(k), counted) for k in able])
    return np.asarray(rtt_ms[able[distances.argmin(axis=0)]])


def transitions(rtt_ms: Floats, scaled: Floats, counted: Branch = "both") -> Floats:
    """The transition RTT (ms) of each row of scaled throughputs, of shape (rows, RTTs).

    It is fast if most rows are near the first one, as draws around it are.
    """
    found = np.empty(len(scaled))
    order = np.argsort(((scaled - scaled[0]) ** 2).sum(axis=1), kind="stable")
    for rows in np.array_split(order, max(1, len(order) // _ALIKE)):
        found[rows] = _alike(rtt_ms, np.vstack([scaled[:1], scaled[rows]]), counted)[1:]
    return found


def scaled(rates: Floats, capacity: float, variant: Variant) -> Floats:
    """Throughputs of shape (rows, RTTs), each row scaled to (0, 1) as a variant has it."""
    return rates / (
        capacity if variant.scaled_by == "capacity" else _LARGEST * rates.max(axis=1, keepdims=True)
    )


def transition_of_means(means: Floats, modality: str, variant: Variant) -> float:
    """The transition RTT (ms) of a profile's means at the papers' RTTs (Gb/s) by one variant."""
    of = scaled(means[None], CAPACITY_GBPS[modality], variant)
    return float(transitions(np.array(RTTS), of, variant.counted)[0])


@dataclass(frozen=True)
class Turning:
    """The transition RTT of a profile by one variant.

    Attributes:
        tau_ms: That of the means (ms).
        draws: Those of simulated means (ms), of shape (draws,).
    """

    tau_ms: float
    draws: Floats

    @property
    def likely(self) -> tuple[float, ...]:
        """The RTTs (ms) that at least one draw in twenty has."""
        values, counts = np.unique(self.draws, return_counts=True)
        return tuple(values[counts >= 0.05 * len(self.draws)].tolist())


def draw(of: Sample, number: int, seed: int = 1) -> Floats:
    """Simulated means, the measured ones first: each is off by Student's t with the errors of the means."""
    random = np.random.default_rng(seed)
    df = min(of.df, 1e6)
    noise = random.standard_t(df, size=(number, len(of.mean)))
    return np.vstack([of.mean, np.maximum(of.mean + of.error * noise, 0.0)])


def turning(of: Sample, variant: Variant, capacity: float, draws: int, seed: int = 1) -> Turning:
    """Estimates a profile's transition RTT by one variant, and again on simulated means.

    Args:
        of: The profile.
        variant: The reading of the estimator.
        capacity: What the path carries, in the unit of the profile.
        draws: The number of simulated profiles.
        seed: Seeds the simulation.
    """
    means = scaled(draw(of, draws, seed), capacity, variant)
    found = transitions(of.rtt_ms, means, variant.counted)
    return Turning(float(found[0]), found[1:])


def grows(taus: Floats) -> NDArray[np.bool_]:
    """Whether the values of each row rise more often than they fall along it (Kendall's tau is positive)."""
    pairs = np.sign(taus[:, :, None] - taus[:, None, :])
    return np.asarray(np.tril(pairs).sum(axis=(1, 2)) > 0)
