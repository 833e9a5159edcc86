"""Measures one statement of a paper on our runs: an estimate with its interval, and two p-values.

A statement says that a quantity lies between two bounds. `p_holds` is small if the runs show that it does,
and `p_fails` is small if they show that it does not. Both are uncorrected.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from fullpipe.confidence import p_not_below, ratio
from fullpipe.transition.spread import moderate
from scipy import stats

from lab.papers.cells import Floats
from lab.papers.fits import FittedShape

MIN_RUNS = 10
"""The fewest runs of a cell that a verdict may rest on."""

KNOWN_TO = 1e-3
"""The least spread of a cell, relative to its mean: a run is known to a thousandth at best.

Many cells of one stream have a spread of less, and now and then a run that is 0.5% off. Without this bound,
intervals of ten runs hold the mean of a hundred in 26% of draws there (:mod:`lab.papers.coverage`).
"""
_FLOOR = 2 * KNOWN_TO**2
"""The least variance of the logarithm of a ratio of two cells."""


@dataclass(frozen=True)
class Bounds:
    """The range in which a paper says that a quantity lies; an open end is infinite."""

    low: float = -math.inf
    high: float = math.inf

    def __str__(self) -> str:
        """The range in words."""
        if math.isinf(self.high):
            return f"over {self.low:g}"
        return f"under {self.high:g}" if math.isinf(self.low) else f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Part:
    """One comparison of a clause.

    Attributes:
        label: The conditions in which this part differs from the other parts of its clause.
        n: The number of runs, or of replicates of a profile; of two cells, the smaller.
        estimate: The quantity in its own unit; NaN without runs.
        low: The lower end of its 95% interval, for this part alone.
        high: The upper end.
        p_holds: The p-value of "the statement is false"; None if there are too few runs.
        p_fails: The p-value of "the statement is true"; None if there are too few runs.
        effect: The distance from the nearest bound in standard deviations of a run (Hedges' g), positive
            inside the bounds; None where the estimate is an effect size itself.
        note: What else was found.
    """

    label: str
    n: int
    estimate: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p_holds: float | None = None
    p_fails: float | None = None
    effect: float | None = None
    note: str = ""


def between(bounds: Bounds, p_at_most: Callable[[float], float]) -> tuple[float, float]:
    """Combines the one-sided tests of both bounds: (p_holds, p_fails).

    Both bounds must hold, so the larger p-value counts (an intersection-union test). One violated bound is
    enough to fail, so with two bounds the smaller p-value counts twice (Bonferroni).

    Args:
        bounds: The range.
        p_at_most: The p-value of "the quantity is at most this"; one minus it is that of "at least this".
    """
    sides = [] if math.isinf(bounds.low) else [p_at_most(bounds.low)]
    sides += [] if math.isinf(bounds.high) else [1 - p_at_most(bounds.high)]
    return max(sides), min(1.0, len(sides) * min(1 - p for p in sides))


def _hedges(sd: float, df: float, distance: float) -> float | None:
    return None if sd == 0 else (1 - 3 / (4 * df - 1)) * distance / sd


def _distance(estimate: float, bounds: Bounds) -> float:
    return min(estimate - bounds.low, bounds.high - estimate)


def level(label: str, runs: Floats, bounds: Bounds) -> Part:
    """Compares the mean of a cell with the paper's range (Student's t).

    The spread counts as :data:`KNOWN_TO` of the mean at least.
    """
    x = runs[np.isfinite(runs)]
    if len(x) < MIN_RUNS or len(x) < len(runs):
        note = "" if len(x) == len(runs) else f"{len(runs) - len(x)} of {len(runs)} runs have no value"
        return Part(label, len(x), float(x.mean()) if len(x) else math.nan, note=note)
    return _of_mean(label, x, bounds, KNOWN_TO * abs(float(x.mean())))


def _of_mean(label: str, x: Floats, bounds: Bounds, least_sd: float) -> Part:
    """Compares the mean of values, whose spread counts as no smaller than `least_sd`."""
    mean, n = float(x.mean()), len(x)
    sd = max(float(x.std(ddof=1)), least_sd)
    error = sd / math.sqrt(n)
    half = float(stats.t.ppf(0.975, n - 1)) * error

    def p_at_most(bound: float) -> float:
        return float(stats.t.sf((mean - bound) / error, n - 1)) if error else float(mean <= bound)

    holds, fails = between(bounds, p_at_most)
    effect = _hedges(sd, n - 1, _distance(mean, bounds))
    return Part(label, n, mean, mean - half, mean + half, holds, fails, effect)


def ratio_of(label: str, over: Sequence[Floats], under: Sequence[Floats], bounds: Bounds) -> Part:
    """Compares a ratio of cells with the paper's range: Student's t on the logarithm of each seed's ratio.

    Runs of one seed have the same start instants and pauses in every cell, so they are compared as pairs.
    Each cell's logarithm has a spread of :data:`KNOWN_TO` at least. The estimate is the geometric mean of
    the ratios. The effect is in standard deviations of a pair's logarithm.

    Args:
        label: The part's conditions.
        over: The cells above the line, each with one value per seed, in the same order.
        under: The cells below the line.
        bounds: The range of the ratio.
    """
    n = min(map(len, (*over, *under)))
    cells = np.array([x[:n] for x in (*over, *under)])
    if n < MIN_RUNS or not (cells > 0).all():
        return Part(label, n, note="" if n < MIN_RUNS else "a run has no value")
    logs = np.log(cells[: len(over)]).sum(axis=0) - np.log(cells[len(over) :]).sum(axis=0)
    with np.errstate(divide="ignore"):
        limits = Bounds(float(np.log(max(bounds.low, 0.0))), float(np.log(bounds.high)))
    found = _of_mean(label, logs, limits, KNOWN_TO * math.sqrt(len(cells)))
    estimate, low, high = (math.exp(x) for x in (found.estimate, found.low, found.high))
    return replace(found, estimate=estimate, low=low, high=high)


def moderated(labels: Sequence[str], logs: Sequence[Floats], bounds: Sequence[Bounds]) -> list[Part]:
    """Compares ratios with their ranges: Student's t on logarithms, with moderated variances.

    Few runs do not tell their spread, so each ratio borrows from the others, as far as they are alike.

    Args:
        labels: The conditions of each ratio.
        logs: The logarithms of each ratio, one for each seed.
        bounds: The range of each ratio.
    """
    own = np.array([len(some) - 1.0 for some in logs])
    spread = moderate(np.array([np.var(some, ddof=1) for some in logs]), own, np.full(len(logs), _FLOOR))
    found = []
    for label, some, variance, of in zip(labels, logs, spread.variance, bounds, strict=True):
        n, mean = len(some), float(np.mean(some))
        df = min(float(spread.lent_df) + n - 1, float(own.sum()))
        error = float(np.sqrt(variance / n))
        low, high = np.exp(mean + np.array([-1, 1]) * stats.t.ppf(0.975, df) * error)

        def p_at_most(bound: float, mean: float = mean, error: float = error, df: float = df) -> float:
            return float(stats.t.sf((mean - np.log(bound)) / error, df))

        holds, fails = between(of, p_at_most)
        found.append(Part(label, n, float(np.exp(mean)), float(low), float(high), holds, fails))
    return found


def spread_of(label: str, after: Floats, before: Floats, bounds: Bounds) -> Part:
    """Compares the ratio of two cells' spreads with the paper's range.

    The spread is the mean distance from the median, as in Brown and Forsythe's test. Its interval is
    Fieller's. A spread of less than :data:`KNOWN_TO` is not compared.
    """
    n = min(len(after), len(before))
    if n < MIN_RUNS or not (np.isfinite(after).all() and np.isfinite(before).all()):
        return Part(label, n)
    a, b = (np.abs(x - np.median(x)) for x in (after, before))
    if min(a.mean() / abs(after.mean()), b.mean() / abs(before.mean())) < KNOWN_TO:
        return Part(label, n, note="a spread is below a thousandth of the mean")
    found = ratio(a, b)
    holds, fails = between(bounds, lambda bound: 1 - p_not_below(a, b, bound))
    return Part(label, n, found.ratio, found.low, found.high, holds, fails)


def correlation(label: str, x: Floats, y: Floats, bounds: Bounds) -> Part:
    """Compares the rank correlation over the runs of one cell (Spearman; Bonett and Wright).

    The runs must be exchangeable: repeats of one configuration that differ by their seed.
    """
    kept = np.isfinite(x) & np.isfinite(y)
    x, y = x[kept], y[kept]
    n = len(x)
    if n < MIN_RUNS or any(v.std(ddof=1) <= KNOWN_TO * abs(v.mean()) for v in (x, y)):
        return Part(
            label, n, note="all runs have the same value, within a thousandth" if n >= MIN_RUNS else ""
        )
    rho = float(stats.spearmanr(x, y).statistic)
    z = math.atanh(min(max(rho, -0.999999), 0.999999))
    error = math.sqrt((1 + rho**2 / 2) / (n - 3))
    low, high = (math.tanh(z + side * stats.norm.ppf(0.975) * error) for side in (-1, 1))

    holds, fails = between(bounds, lambda bound: float(stats.norm.sf((z - math.atanh(bound)) / error)))
    return Part(label, n, rho, low, high, holds, fails)


def share(label: str, events: Sequence[bool], note: str = "") -> Part:
    """Tests whether a statement holds in most replicates of a profile (binomial test against one half)."""
    n, k = len(events), sum(events)
    if n < MIN_RUNS:
        return Part(label, n, k / n if n else math.nan, note=note)
    found = stats.binomtest(k, n)
    low, high = found.proportion_ci(0.95)
    holds = float(stats.binomtest(k, n, alternative="greater").pvalue)
    fails = float(stats.binomtest(k, n, alternative="less").pvalue)
    return Part(label, n, k / n, float(low), float(high), holds, fails, note=note)


def shape(label: str, n: int, found: FittedShape | None, wanted: str) -> Part:
    """Tests whether a profile has a shape: the runs must exclude all others for it, or it against it.

    Args:
        label: The part's conditions.
        n: The fewest runs at an RTT.
        found: The shapes that the runs allow; None if an RTT has too few of them.
        wanted: The shape.
    """
    if found is None:
        return Part(label, n)
    words = " or ".join(found.shapes) or "no profile fits that is concave, then convex"
    if found.between_ms is not None:
        words += f", turning between {found.between_ms[0]:g} and {found.between_ms[1]:g} ms"
    # A curve that no shape fits refutes the wanted one, and shows none.
    holds = found.largest_p(wanted, others=True) if found.shapes else 1.0
    return Part(label, n, p_holds=holds, p_fails=found.largest_p(wanted), note=words)
