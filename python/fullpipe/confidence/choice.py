"""Compares transports: which may be the best, and how many runs would separate them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from fullpipe.arrays import FloatArray, check_share, vector
from fullpipe.errors import UsageError

Spread = Literal["own", "pooled", "unknown"]

_DRAWS = 100_000
_MOST_RUNS = 10**9


class _Mean(NamedTuple):
    n: int
    mean: float
    variance: float
    """The variance of one run."""
    df: float
    is_pooled: bool = False
    """Whether the variance is estimated from the runs of other candidates."""


@dataclass(frozen=True, repr=False)
class Tied:
    """The result of :func:`tied`."""

    best: str
    """The candidate with the highest mean; the first of equal ones."""
    tied: tuple[str, ...]
    """The other candidates that may be the best, by falling mean."""
    p_values: dict[str, float | None]
    """The p-value of the hypothesis that a candidate is the best; None if no spread is known."""
    spread: dict[str, Spread]
    """The source of each candidate's spread: its own runs, pooled over the candidates, or unknown."""
    level: float

    def __repr__(self) -> str:
        """The result in one line."""
        sure = f"({100 * self.level:.6g}% sure)"
        unknown = ", ".join(name for name, kind in self.spread.items() if kind == "unknown")
        if unknown:
            return f"cannot say: the spread of {unknown} is unknown; {self.best} has the highest mean"
        pooled = ", ".join(name for name, kind in self.spread.items() if kind == "pooled")
        note = f"; the spread of {pooled} is taken from the others" if pooled else ""
        rest = f", tied with {', '.join(self.tied)}" if self.tied else ""
        return f"{self.best}{rest} {sure}{note}"


@dataclass(frozen=True, repr=False)
class RunsNeeded:
    """The result of :func:`runs_needed`."""

    more_of_each: int | None
    """The number of further runs of each transport; None if no number suffices."""
    difference: float
    """The difference of the means, first minus second."""
    p_value: float
    """The one-sided p-value of the hypothesis that the higher mean is not better."""
    level: float
    power: float

    def __repr__(self) -> str:
        """The result in one line."""
        if self.more_of_each is None:
            return "cannot say: the means are too close for any number of runs"
        if self.more_of_each == 0:
            return f"no more runs: the choice is {100 * self.level:.6g}% sure"
        odds, sure = f"{100 * self.power:.6g}%", f"{100 * self.level:.6g}%"
        return f"{self.more_of_each} more runs of each: {odds} likely to make the choice {sure} sure"


def _own(x: FloatArray) -> _Mean:
    variance = float(x.var(ddof=1)) if len(x) > 1 and np.ptp(x) > 0 else 0.0
    return _Mean(len(x), float(x.mean()), variance, len(x) - 1.0)


def _candidates(samples: object) -> Mapping[str, ArrayLike]:
    """The samples by candidate: a mapping, or the columns of a data frame."""
    if isinstance(samples, Mapping):
        return samples
    columns = getattr(samples, "columns", None)
    if columns is None:
        raise UsageError(
            "give the samples by candidate, as in {'cubic': [9.1, 9.2], 'bbr': [8.8, 8.9]}, or as a data "
            "frame with a column for each"
        )
    return {str(name): samples[name] for name in columns}  # type: ignore[index]


def _means(samples: Mapping[str, ArrayLike]) -> dict[str, tuple[_Mean, Spread]]:
    own = {name: _own(vector(f"the samples of {name}", values)) for name, values in samples.items()}
    repeated = [one for one in own.values() if one.n > 1 and one.mean != 0]
    df = sum(one.df for one in repeated)
    relative = sum(one.df * one.variance / one.mean**2 for one in repeated) / df if df else None
    found: dict[str, tuple[_Mean, Spread]] = {}
    for name, one in own.items():
        if one.n > 1:
            found[name] = one, "own"
        elif relative is None:
            found[name] = one, "unknown"
        else:
            found[name] = one._replace(variance=relative * one.mean**2, df=df, is_pooled=True), "pooled"
    return found


def _welch(high: _Mean, low: _Mean) -> tuple[float, float, float]:
    """The difference of means, its standard error, and its degrees of freedom (Welch 1947).

    A pooled spread is not estimated independently of another from its pool, nor of that of a candidate in it.
    Their covariance keeps the degrees of freedom at or below the pool's (Satterthwaite 1946).
    """
    a, b = high.variance / high.n, low.variance / low.n
    if a + b == 0:
        return high.mean - low.mean, 0.0, np.inf
    estimated = a**2 / high.df + b**2 / low.df
    if high.is_pooled or low.is_pooled:
        estimated += 2 * a * b / (high.df if high.is_pooled else low.df)
    return high.mean - low.mean, float(np.sqrt(a + b)), (a + b) ** 2 / estimated


def _p_not_better(high: _Mean, low: _Mean) -> float:
    difference, error, df = _welch(high, low)
    if error == 0:
        return 0.5 if difference == 0 else float(difference < 0)
    return float(stdtr(df, -difference / error)) if np.isfinite(df) else 0.5


def tied(samples_by_candidate: Mapping[str, ArrayLike], level: float = 0.95) -> Tied:
    """Finds the candidates that cannot be distinguished from the best.

    This is a multiple comparison with the best. Each candidate in turn is assumed to be the best, and is
    rejected if another candidate beats it in a one-sided Welch test at (1 - level)/(k - 1), for k candidates.
    The true best is among the remaining ones with at least probability `level` (Gupta 1965; Hsu 1996, chapter
    4). Welch's test with Bonferroni's correction replaces their tests, since transports differ in spread. The
    p-values are already corrected.

    A candidate with a single run has no spread of its own. It gets the *relative* spread (sd / mean) pooled
    over the candidates with repeats; `spread` is then "pooled". If it is compared with another single run, or
    with one of the pool, both spreads come from the same runs, and the degrees of freedom are never more than
    the pool's. If no candidate has repeats, all are tied and have no p-value. A candidate whose runs are all
    equal has zero spread, which is right for a simulation without randomness.

    Args:
        samples_by_candidate: The throughputs of each candidate, one per run, by name or as the columns of a
            data frame; in one unit.
        level: Confidence, in (0, 1).

    Returns:
        The best, the candidates tied with it, the p-values, and the source of each spread.

    Raises:
        UsageError: There are no candidates, one has no runs, a value is not finite, or the level is outside
            (0, 1).
    """
    check_share("level", level)
    samples_by_candidate = _candidates(samples_by_candidate)
    if not samples_by_candidate:
        raise UsageError("there are no candidates: give at least one, by name, with its runs")
    means = _means(samples_by_candidate)
    order = sorted(means, key=lambda name: -means[name][0].mean)
    spread = {name: kind for name, (_, kind) in means.items()}
    if "unknown" in spread.values():
        return Tied(order[0], tuple(order[1:]), dict.fromkeys(means, None), spread, level)
    p_values: dict[str, float | None] = {}
    for name, (one, _) in means.items():
        p = min((_p_not_better(other, one) for key, (other, _) in means.items() if key != name), default=1.0)
        p_values[name] = min(1.0, p * (len(means) - 1)) if len(means) > 1 else 1.0
    kept = [name for name in order[1:] if (p_values[name] or 0.0) >= 1 - level]
    return Tied(order[0], tuple(kept), p_values, spread, level)


def probability_best(samples_by_candidate: Mapping[str, ArrayLike], *, seed: int = 0) -> dict[str, float]:
    """Estimates the probability that each candidate has the highest mean.

    It is the share of draws in which the candidate has the highest mean, with each mean drawn from mean +
    se·t, which is the posterior under the reference prior for normal noise. Single runs get the pooled
    relative spread, as in :func:`tied`. This is no test: for a guarantee at a level use :func:`tied`.

    Args:
        samples_by_candidate: The throughputs of each candidate, one per run, by name or as the columns of a
            data frame; in one unit.
        seed: The seed of the 100 000 draws.

    Returns:
        The probability of each candidate by name; the sum is 1, and ties share a draw.

    Raises:
        UsageError: There are no candidates, one has no runs, a value is not finite, or there are single runs
            but no repeated ones that show the spread.
    """
    samples_by_candidate = _candidates(samples_by_candidate)
    if not samples_by_candidate:
        raise UsageError("there are no candidates: give at least one, by name, with its runs")
    means = _means(samples_by_candidate)
    if any(kind == "unknown" for _, kind in means.values()) and len(means) > 1:
        raise UsageError("cannot say: no repeated runs show the spread of the single ones; repeat some")
    rng = np.random.default_rng(seed)
    draws = np.array([
        one.mean + np.sqrt(one.variance / one.n) * rng.standard_t(one.df or 1.0, _DRAWS)
        for one, _ in means.values()
    ])  # fmt: skip
    wins = draws == draws.max(axis=0)
    shares = (wins / wins.sum(axis=0)).mean(axis=1)
    return dict(zip(means, shares.tolist(), strict=True))


def _enough(first: _Mean, second: _Mean, more: int, level: float, power: float) -> bool:
    # With more runs, each has a spread of its own.
    a, b = (one._replace(n=one.n + more, df=one.n + more - 1, is_pooled=False) for one in (first, second))
    difference, error, df = _welch(a, b)
    return abs(difference) >= error * float(stdtrit(df, level) + stdtrit(df, power))


def _least(first: _Mean, second: _Mean, level: float, power: float) -> int | None:
    high = 1
    while not _enough(first, second, high, level, power):
        high *= 2
        if high > _MOST_RUNS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _enough(first, second, middle, level, power) else (middle, high)
    return high


def runs_needed(
    samples_best: ArrayLike, samples_other: ArrayLike, level: float = 0.95, *, power: float = 0.8
) -> RunsNeeded:
    """Estimates how many more runs of each would decide between two transports.

    The runs so far serve as a pilot. If their means and spreads are right, that many further runs of each
    make a one-sided Welch test of all runs significant at `level` with probability `power` (the usual
    sample-size formula, difference = (t_level + t_power)·se, with Welch's degrees of freedom). The number is
    zero if the test is significant already. Make all these runs and test once: testing after each run until
    it is significant finds differences that do not exist. A transport with one run gets the other's relative
    spread.

    Args:
        samples_best: The throughputs of one transport, one per run.
        samples_other: The throughputs of the other, in the same unit.
        level: Confidence, in (0, 1).
        power: The probability of a decision, in [0.5, 1).

    Returns:
        The number of further runs of each, with the difference and p-value so far. The number is None if the
        means are equal, or so close that a billion runs would not suffice.

    Raises:
        UsageError: There are no samples, one is not finite, both have a single run, or the level or power is
            out of range.
    """
    check_share("level", level)
    check_share("power", power)
    if power < 0.5 or level < 0.5:
        raise UsageError(f"level {level:g} with power {power:g} decides nothing: give 0.5 or more for each")
    (first, _), (second, _) = _means({"first": samples_best, "second": samples_other}).values()
    if first.df == 0 or second.df == 0:
        raise UsageError("cannot say: one run of each has no spread; repeat at least one of them")
    difference = first.mean - second.mean
    p = _p_not_better(first, second) if difference >= 0 else _p_not_better(second, first)
    if p <= 1 - level:
        return RunsNeeded(0, difference, p, level, power)
    more = None if difference == 0 else _least(first, second, level, power)
    return RunsNeeded(more, difference, p, level, power)
